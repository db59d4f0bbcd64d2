"""Mistakes of other programs, each as an edit of examples/one_file.py."""

import dataclasses
import functools
import itertools
import pathlib
from collections.abc import Iterator

import numpy as np

from transformer_jax.reference.compute import Arrays

PATH = pathlib.Path(__file__).with_name('mistakes.txt')


@dataclasses.dataclass(frozen=True)
class Mistake:
  """A mistake in mistakes.txt, which explains these fields."""

  name: str
  section: str
  says: str
  edits: tuple[tuple[str, str], ...]

  def affects(self, group: str) -> bool:
    """Returns True if it changes a group of arrays (check.group_of)."""
    if self.name == 'attention_biases':
      return group == 'update'
    if self.name.startswith('untied_'):
      return group in ('gradient', 'update')
    if self.section == '6.1':
      return group.startswith('search.')
    if self.section == '5.3':
      return group in ('learning_rate', 'update')
    if self.section == '5.4':
      return group in ('forward', 'gradient', 'update')
    return group not in ('learning_rate', 'bleu')

  def lines(self) -> Iterator[str]:
    """Yields the lines of one_file.py that are edited, and what replaces them."""
    for old, new in self.edits:
      yield from (f'  right  {line.strip()}' for line in old.split('\n'))
      yield from (f'  yours  {line.strip()}' for line in new.split('\n'))

  def added(self, params: Arrays) -> Arrays:
    """Returns the parameters, by name, that the paper's model does not have."""
    if self.name == 'attention_biases':
      return {
        name.replace('.W_', '.b_'): np.zeros_like(x[0, 0] if name[-1] == 'O' else x[0])
        for name, x in params.items()
        if name.rpartition('.')[2] in ('W_Q', 'W_K', 'W_V', 'W_O')
      }
    if self.name.endswith('final_norms'):
      bias = np.zeros_like(params['encoder.0.norm_1.bias'])
      norm = {'scale': bias + 1, 'bias': bias}
      stacks = itertools.product(('encoder', 'decoder'), norm.items())
      return {f'{stack}_norm.{name}': x for stack, (name, x) in stacks}
    return {}


@functools.cache
def read() -> dict[str, Mistake]:
  """Returns all mistakes by name, in the order of the file."""
  mistakes = {}
  for entry in PATH.read_text().split('\n\n')[1:]:
    head, says, *lines = entry.strip().split('\n')
    edits: list[tuple[str, str]] = []
    for sign, group in itertools.groupby(lines, key=lambda line: line[0]):
      text = '\n'.join(line[1:] for line in group)
      edits = (
        [*edits, (text, '')] if sign == '-' else [*edits[:-1], (edits[-1][0], text)]
      )
    name, section = head.split()
    mistakes[name] = Mistake(name, section, says, tuple(edits))
  return mistakes
