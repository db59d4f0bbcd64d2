"""What stands in the text of a compiled program."""

import re

import numpy as np

COLLECTIVE = r'all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute'
BYTES = {'f32': 4, 's32': 4, 'u32': 4, 'pred': 1}


class Hlo:
  """The text of a compiled program: its computations, and what they call."""

  def __init__(self, text: str):
    self.text = text
    self.bodies = {}
    for block in re.findall(r'^(?:ENTRY )?%\S+ \(.*?^}', text, re.M | re.S):
      self.bodies[re.search(r'%(\S+) ', block)[1]] = block.splitlines()[1:]

  def collectives(self, name: str) -> list[str]:
    """The lines that are one, in a computation and all that it calls."""
    found = []
    for line in self.bodies[name]:
      if re.search(rf' (?:{COLLECTIVE})(?:-start)?\(', line):
        found.append(line)
      for called in re.findall(r'%([^\s,(){}]+)', line.partition(' = ')[2]):
        if called in self.bodies:
          found += self.collectives(called)
    return found

  def told(self) -> dict[str, list[int]]:
    """Bytes of what each collective of the whole program gives, by its kind."""
    found: dict[str, list[int]] = {}
    for line in self.collectives(self.entry):
      kind = re.search(COLLECTIVE, line.partition(' = ')[2])[0]
      found.setdefault(kind, []).append(size(line))
    return found

  def loops(self) -> list[str]:
    return re.findall(r' while\(.*body=%([^\s,]+)', self.text)

  @property
  def entry(self) -> str:
    return re.search(r'^ENTRY %(\S+) ', self.text, re.M)[1]


def size(line: str) -> int:
  """Bytes of what an instruction gives."""
  shapes = re.findall(r'(\w+)\[([\d,]*)\]', line.partition(' = ')[2].partition('(%')[0])
  count = lambda dims: np.prod([int(d) for d in dims.split(',') if d], dtype=int)
  return sum(int(BYTES[kind] * count(dims)) for kind, dims in shapes)
