"""The tasks: how a line goes into a model, and how its output becomes a line."""

from collections.abc import Callable
from typing import NamedTuple

from transformer_jax.parsing import trees


class Task(NamedTuple):
  """What follows from a config's `task`; how it is scored stands in scorers.py.

  Attributes:
    read: takes a line; returns it in the form of the model's training sources.
    finish: takes a line and the model's output for it; returns the output as one line,
      and the number of repairs of each kind, {} for none.
  """

  read: Callable[[str], str]
  finish: Callable[[str, str], tuple[str, dict[str, int]]]


def _tree(line: str, output: str) -> tuple[str, dict[str, int]]:
  tokens = trees.without_numbers(output.split())
  tree, repairs = trees.repair(tokens, trees.words(line))
  return str(tree), {kind: n for kind, n in repairs._asdict().items() if n}


TASKS = {
  'translation': Task(
    read=lambda line: line,
    # A model can produce a line's end: spelt in bytes, or as its corpus taught it.
    finish=lambda line, output: (' '.join(output.splitlines()), {}),
  ),
  'parsing': Task(read=lambda line: ' '.join(trees.words(line)), finish=_tree),
}
