"""How the outputs of each task are scored and compared."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from transformer_jax.parsing import parses
from transformer_jax.parsing.trees import Repairs, Tree
from transformer_jax.runs.result import BLEUS, Result
from transformer_jax.scoring import bleu, text
from transformer_jax.scoring.text import Text


class Scorer(NamedTuple):
  """What follows from a config's `task`, once there are outputs.

  Attributes:
    check: raises UserError if the scorer for such a text and language is missing.
    references: takes a held-out set's two texts; returns the outputs' references.
    score: takes a text, each line's repairs and whether to ignore case; returns fields
      of Result.
    score_lines: the lines that show a result to the user.
    comparison_lines: takes a text, other outputs and whether to ignore case; returns
      the lines that compare the two.
    has_case: whether scores can ignore case.
  """

  check: Callable[[bool, str], Any]  # of whether it is tokenised, and of the language
  references: Callable[[Sequence[str], Sequence[str]], list[str]]
  score: Callable[[Text, Sequence[Mapping[str, int]], bool], dict[str, Any]]
  score_lines: Callable[[Result], Iterator[str]]
  comparison_lines: Callable[[Text, Sequence[str], bool], Iterator[str]]
  has_case: bool


def _score_text(
  output: Text, repairs: Sequence[Mapping[str, int]], lowercase: bool
) -> dict[str, Any]:
  return {'text': output.kind} | text.score(output, lowercase)


def _text_lines(result: Result) -> Iterator[str]:
  yield from text.score_lines(result.text, {k: getattr(result, k) for k in BLEUS})


def _brackets(sources: Sequence[str], targets: Sequence[str]) -> list[str]:
  pairs = zip(sources, targets, strict=True)
  return [str(Tree(words.split(' '), tokens.split(' '))) for words, tokens in pairs]


def _score_trees(
  output: Text, repairs: Sequence[Mapping[str, int]], lowercase: bool
) -> dict[str, Any]:
  return {
    'text': 'trees',
    'parsing': parses.score(output.references, output.hypotheses),
    'valid': 100 * sum(not found for found in repairs) / len(repairs),
    'repairs': {
      kind: sum(found.get(kind, 0) for found in repairs) for kind in Repairs._fields
    },
  }


def _tree_lines(result: Result) -> Iterator[str]:
  yield from parses.score_lines(result.parsing)
  counts = ', '.join(f'{n} {kind}' for kind, n in result.repairs.items() if n)
  repaired = f', all after repair ({counts})' if counts else ''
  yield f'{result.valid:.2f} % of the outputs were trees{repaired}'


def _compare_trees(
  output: Text, baseline: Sequence[str], lowercase: bool
) -> Iterator[str]:
  return parses.comparison_lines(output.references, output.hypotheses, baseline)


SCORERS = {
  'translation': Scorer(
    check=functools.partial(bleu.sacre_metric, False),
    references=lambda sources, targets: [*targets],
    score=_score_text,
    score_lines=_text_lines,
    comparison_lines=text.comparison_lines,
    has_case=True,
  ),
  'parsing': Scorer(
    check=lambda *_: None,
    references=_brackets,
    score=_score_trees,
    score_lines=_tree_lines,
    comparison_lines=_compare_trees,
    has_case=False,
  ),
}
