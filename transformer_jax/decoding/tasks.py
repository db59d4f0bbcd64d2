"""The tasks: how a line goes into a model, and how its output becomes a line."""

from collections.abc import Callable
from typing import NamedTuple

from transformer_jax.data import trees


class Task(NamedTuple):
  """What follows from a config's `task`; how it is scored stands in scorers.py.

  Attributes:
    read: a line as the model was taught to read it.
    finish: a line and what the model wrote of it -> the output, which is one line, and
      how often it was mended in which way: empty if never.
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
