"""What a compiled program moves: bytes to and from memory, and between devices.

XLA's own count of bytes adds up the operands of operations that read them from faster
memory, and is absent for GPUs. So this reads the program's text, which is the same for
all platforms: an operation reads its operands from a device's memory and writes its
result there. What a fusion computes inside stays in registers.
"""

import collections
import dataclasses
import math
import re
from collections.abc import Iterator

# Operations that move nothing themselves: they name memory, or run other computations.
_FREE = {
  *('parameter', 'constant', 'tuple', 'get-tuple-element', 'bitcast', 'after-all'),
  *('partition-id', 'replica-id', 'opt-barrier', 'iota'),
  *('while', 'conditional', 'call', 'async-start'),
}
_PARTIAL = {'slice', 'dynamic-slice', 'gather'}  # read no more than their result
_FREE_CALLS = 'AllocateBuffer|ConcatBitcast'  # of TPUs, which name memory
COLLECTIVES = {
  *('all-reduce', 'all-gather', 'reduce-scatter', 'all-to-all', 'collective-permute'),
}
_BITS = re.compile(r'[a-z]+(\d+)')
# An array's type and layout. S(n) names a memory other than the device's main one, such
# as a TPU's VMEM.
_ARRAY = re.compile(r'([a-z]+\d*\w*)\[([\d,]*)\](\{[^}]*\})?')
_NAME = re.compile(r'%([\w.-]+)')
_CALLED = re.compile(
  r'(?:calls|to_apply|body|branch_computations|true_computation|false_computation)='
  r'(\{[^}]*\}|%[\w.-]+)'
)
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"')


@dataclasses.dataclass(frozen=True)
class Instruction:
  """A line of a program's text."""

  name: str
  type: str
  opcode: str
  inputs: str  # what stands in its parentheses
  attributes: str

  @property
  def operands(self) -> list[str]:
    """Names of the instructions that it reads."""
    return _NAME.findall(self.inputs)

  @property
  def called(self) -> list[str]:
    """Names of the computations that it runs."""
    return [n for x in _CALLED.findall(self.attributes) for n in _NAME.findall(x)]

  @property
  def trips(self) -> int:
    """How often a loop runs; 1 where the text does not tell."""
    known = _TRIPS.search(self.attributes)
    return int(known[1]) if known else 1


def array_bytes(type: str, everywhere: bool = False) -> int:
  """Returns the bytes of a type's arrays in main memory, or in all memories."""
  total = 0
  for kind, sizes, layout in _ARRAY.findall(type):
    if everywhere or 'S(' not in layout:
      bits = _BITS.match(kind)  # absent for pred and token
      count = math.prod(int(size) for size in sizes.split(',') if size)
      total += count * int(bits[1]) // 8 if bits else count * (kind == 'pred')
  return total


def _instruction(line: str) -> Instruction | None:
  head = re.match(r' +(?:ROOT )?%?([\w.-]+) = ', line)
  if not head:
    return None
  rest = re.sub(r'/\*.*?\*/', '', line[head.end() :])
  end = _end(rest) if rest.startswith('(') else rest.index(' ')
  type, call = rest[:end], rest[end:].lstrip()
  opcode, _, inputs = call.partition('(')
  end = _end('(' + inputs) - 2
  return Instruction(head[1], type, opcode, inputs[:end], inputs[end:])


def _end(text: str) -> int:
  """Returns the index after the parenthesis that closes the first one."""
  depth = 0
  for match in re.finditer(r'[()]', text):
    depth += 1 if match[0] == '(' else -1
    if not depth:
      return match.end()
  raise ValueError(f'no end of {text[:80]!r}')


class Program:
  """A compiled program, from its text.

  Attributes:
    entry: the name of the computation that runs first.
    computations: the instructions of each, by name; the last is its root.
  """

  def __init__(self, text: str):
    self.computations: dict[str, dict[str, Instruction]] = {}
    self.entry = ''
    for line in text.splitlines():
      if line.endswith('{') and (head := re.match(r'(ENTRY )?%?([\w.-]+) \(', line)):
        inside = self.computations.setdefault(head[2], {})
        self.entry = head[2] if head[1] else self.entry
      elif instruction := _instruction(line):
        inside[instruction.name] = instruction

  def bytes_moved(self) -> int:
    """Returns the bytes that one run reads from memory and writes to it."""
    return sum(n * self._moved(c, i) for n, c, i in self._runs(self.entry, 1))

  def collectives(self) -> dict[str, int]:
    """Returns the bytes that each kind of collective takes from a device, per run."""
    totals: collections.Counter[str] = collections.Counter()
    for times, name, instruction in self._runs(self.entry, 1, inside_fusions=True):
      kind = instruction.opcode.removesuffix('-start')
      if kind in COLLECTIVES:
        known = self.computations[name]
        operands = (known[x].type for x in instruction.operands)
        totals[kind] += times * sum(array_bytes(t, everywhere=True) for t in operands)
    return dict(totals)

  def _runs(
    self, name: str, times: int, inside_fusions: bool = False
  ) -> Iterator[tuple[int, str, Instruction]]:
    """Yields how often each instruction runs, its computation, and itself.

    Of a conditional it takes the branch with the most instructions, which is the one
    with the update.
    """
    for instruction in self.computations[name].values():
      yield times, name, instruction
      called = instruction.called
      if instruction.opcode == 'conditional':
        called = [max(called, key=lambda x: len(self.computations[x]))]
      elif instruction.opcode not in ('while', 'call', 'async-start'):
        called = called if inside_fusions and instruction.opcode == 'fusion' else []
      for inner in called:
        yield from self._runs(inner, times * instruction.trips, inside_fusions)

  def _moved(self, name: str, instruction: Instruction) -> int:
    """Returns the bytes that an instruction itself reads and writes."""
    known, opcode = self.computations[name], instruction.opcode
    if opcode in _FREE or opcode.endswith('-done'):
      return 0
    if opcode == 'custom-call' and re.search(_FREE_CALLS, instruction.attributes):
      return 0
    if opcode == 'fusion':
      return self._moved_by_fusion(instruction, known)
    types = [known[x].type for x in dict.fromkeys(instruction.operands)]
    if opcode in ('copy-start', 'slice-start'):
      return self._moved_by_start(instruction, types[0])
    if opcode in _PARTIAL:
      return 2 * array_bytes(instruction.type)
    if opcode == 'dynamic-update-slice':
      return 2 * array_bytes(types[1])
    return array_bytes(instruction.type) + sum(map(array_bytes, types))

  def _moved_by_start(self, instruction: Instruction, operand: str) -> int:
    """Counts the ends of a copy that lie in main memory."""
    arrays = [match.group() for match in _ARRAY.finditer(instruction.type)]
    # The type has the operand too, and an integer at its end.
    result = arrays[0] if instruction.opcode == 'copy-start' else arrays[-2]
    ends = sum(array_bytes(x) > 0 for x in (operand, result))
    return ends * array_bytes(result, everywhere=True)

  def _moved_by_fusion(self, fusion: Instruction, known: dict[str, Instruction]) -> int:
    """Counts of an operand only what is read, and of a result what is written."""
    inside = self.computations[fusion.called[0]]
    root = [*inside.values()][-1]
    readers = collections.defaultdict(list)
    # A bitcast moves no bytes. An instruction that reads its result reads its operand.
    names: dict[str, str] = {}
    for instruction in inside.values():
      operands = [names.get(x, x) for x in instruction.operands]
      if instruction.opcode == 'bitcast':
        names[instruction.name] = operands[0]
        continue
      for operand in operands:
        readers[operand].append(instruction)
    written = array_bytes(fusion.type)
    in_place = ''  # the parameter of which the fusion writes a part, and reads nothing
    if root.opcode == 'dynamic-update-slice':
      in_place, update, *_ = root.operands
      written = array_bytes(inside[update].type)
    read = 0
    for parameter in (x for x in inside.values() if x.opcode == 'parameter'):
      whole = array_bytes(known[fusion.operands[int(parameter.inputs)]].type)
      using = readers[parameter.name]
      if whole and {x.opcode for x in using} <= _PARTIAL:
        whole = min(whole, sum(array_bytes(x.type, everywhere=True) for x in using))
      read += whole if parameter.name != in_place else 0
    return written + read
