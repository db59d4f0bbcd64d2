"""Scores of a parser's trees against a treebank's, and a paired test of two parsers.

Trees are lines in brackets. The parser's trees get the treebank's tags before they are
scored: EVALB removes punctuation by its tag, and discards a sentence if the remaining
words differ. How many of the parser's own tags are right is reported separately.
"""

import dataclasses
import hashlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import evalb
from transformer_jax.parsing.evalb import Sentence
from transformer_jax.runs import fields
from transformer_jax.scoring.score import Score
from transformer_jax.scoring.significance import SAMPLES

SIGNATURE = 'evalb:COLLINS.prm|tags:gold|lengths:all'
# Sentences of so many words, as EVALB counts them; None is any number.
LENGTHS = ((1, 10), (11, 20), (21, 30), (31, 40), (41, None), (1, 40))
_SEED = 12345  # sacreBLEU's
_SPACE = r' \t\n\v\f\r'
_LEAF = re.compile(rf'\(([^{_SPACE}()]+)[{_SPACE}]+([^{_SPACE}()]+)\)')  # tag, word


@dataclasses.dataclass(frozen=True)
class Parsing:
  """What EVALB finds of a parser's trees, in percent."""

  f1: Score
  recall: float
  precision: float
  complete_match: float
  average_crossing: float  # brackets a sentence
  no_crossing: float
  two_or_less_crossing: float
  tagging: float
  lengths: dict[str, list[float]]  # sentences and F1, by words
  labels: dict[str, list[int]]  # matched, gold and test brackets
  treebank: str  # sha256 of the treebank's trees

  @classmethod
  def from_json(cls, scores: Mapping[str, Any]) -> 'Parsing':
    """The scores from a result's field `parsing`; UserError if that is damaged."""
    if wrong := ', '.join(fields.faults(scores, cls, 'parsing.')):
      raise UserError(f'missing or of another type: {wrong}; evaluate the run again')
    return fields.from_json(cls, scores)


def score(gold: Sequence[str], outputs: Sequence[str]) -> Parsing:
  """Scores `outputs`, one tree over the same words for each tree of `gold`.

  Raises:
    UserError: there are no trees, or the numbers of trees or their words differ.
  """
  tagged = _with_tags_of(gold, outputs)
  sentences = evalb.compare(gold, tagged)
  total = evalb.summarize(sentences)
  low, high = np.quantile(_resampled(sentences), (0.025, 0.975)).round(4).tolist()
  return Parsing(
    f1=Score(total.f1, SIGNATURE, [low, high]),
    recall=total.recall,
    precision=total.precision,
    complete_match=total.complete_match,
    average_crossing=total.average_crossing,
    no_crossing=total.no_crossing,
    two_or_less_crossing=total.two_or_less_crossing,
    tagging=_tagging(gold, outputs),
    lengths=dict(_by_length(sentences)),
    labels={k: [*v] for k, v in evalb.count_labels(gold, tagged).items()},
    treebank=hashlib.sha256('\n'.join(gold).encode()).hexdigest(),
  )


def score_lines(parsing: Parsing) -> Iterator[str]:
  """The scores for a reader."""
  low, high = parsing.f1.interval
  yield f'F1 {parsing.f1.score:.2f}  {parsing.f1.signature}'
  yield f'  95 % interval: {low:.2f}, {high:.2f}'
  yield (
    f'  recall {parsing.recall:.2f}, precision {parsing.precision:.2f}, complete match '
    f'{parsing.complete_match:.2f}, crossing {parsing.average_crossing:.2f} a sentence'
  )
  for words, (sentences, f1) in parsing.lengths.items():
    yield f'  {words} words: F1 {f1:.2f} of {sentences} sentences'
  yield f'tagging accuracy {parsing.tagging:.2f}'


def comparison_lines(
  gold: Sequence[str], outputs: Sequence[str], baseline: Sequence[str]
) -> Iterator[str]:
  """How much better trees are than others, by paired bootstrap (Koehn 2004)."""
  systems = [_with_tags_of(gold, lines) for lines in (outputs, baseline)]
  ours, theirs = (evalb.compare(gold, lines) for lines in systems)
  scores = [evalb.summarize(sentences).f1 for sentences in (ours, theirs)]
  gain = scores[0] - scores[1]
  gains = _resampled(ours) - _resampled(theirs)
  beyond = np.sum(np.abs(gains - gains.mean()) >= abs(gain))
  p = (beyond + 1) / (SAMPLES + 1)
  yield f'F1 {scores[0]:.2f} against {scores[1]:.2f}: {gain:+.2f}, p = {p:.4f}'


def _with_tags_of(gold: Sequence[str], outputs: Sequence[str]) -> list[str]:
  """The outputs with the treebank's tags."""
  if len(gold) != len(outputs) or not gold:
    raise UserError(f'{len(outputs)} trees for {len(gold)} of the treebank')
  found = []
  for number, (tree, output) in enumerate(zip(gold, outputs, strict=True), 1):
    leaves = _LEAF.findall(tree)
    words, ours = ([word for _, word in _LEAF.findall(line)] for line in (tree, output))
    if words != ours:
      both = itertools.zip_longest(ours, words, fillvalue='nothing')
      wrong, right = next((a, b) for a, b in both if a != b)
      raise UserError(
        f'tree {number} has not the words of the treebank: {wrong} '
        f'where that has {right}'
      )
    tags = (tag for tag, _ in leaves)
    found.append(_LEAF.sub(lambda leaf, tags=tags: f'({next(tags)} {leaf[2]})', output))
  return found


def _tagging(gold: Sequence[str], outputs: Sequence[str]) -> float:
  """Right tags in percent, of the words that EVALB keeps."""
  right = words = 0
  for tree, output in zip(gold, outputs, strict=True):
    for ours, theirs in zip(*map(_LEAF.findall, (tree, output)), strict=True):
      if ours[0] not in evalb.DELETED:
        words += 1
        right += ours[0] == theirs[0]
  return 100 * right / words if words else 0.0


def _by_length(sentences: Sequence[Sentence]) -> Iterator[tuple[str, list[float]]]:
  for first, last in LENGTHS:
    few = [s for s in sentences if first <= s.length <= (last or s.length)]
    name = f'{first}-{last}' if last else f'{first} or more'
    yield name, [len(few), evalb.summarize(few).f1]


def _resampled(sentences: Sequence[Sentence]) -> np.ndarray:
  """F1 [SAMPLES] of sentences drawn anew; the same ones are drawn for all systems."""
  counted = lambda s: (s.matched, s.gold + s.test) if s.status == 'valid' else (0, 0)
  counts = np.array([counted(sentence) for sentence in sentences])
  rng = np.random.default_rng(_SEED)
  drawn = (rng.integers(len(sentences), size=len(sentences)) for _ in range(SAMPLES))
  matched, both = np.array([counts[rows].sum(0) for rows in drawn]).T
  return 200 * matched / np.maximum(both, 1)
