"""Labelled bracketing scores as the program EVALB gives them under COLLINS.prm.

EVALB (Sekine and Collins, 1997) defines the F1 of a parser. Its limits are not here:
200 words and as many brackets a tree, 100 bytes a word, 5,000 a line, and the eleven
errors (MAX_ERROR) after which it ends without a total. A line whose brackets do not
balance is always an error here; what EVALB does with it can depend on the line before.

`score` is for a parser of ours. It gives the parser's trees the treebank's tags first:
EVALB removes punctuation by its tag, and discards a sentence if the remaining words
differ. The accuracy of the parser's tags is a score by itself.
"""

import dataclasses
import hashlib
import pathlib
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.data.text import read_bytes
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing.trees import TRACE
from transformer_jax.scoring.bleu import Score
from transformer_jax.scoring.significance import SAMPLES, SEED, paired_p

SIGNATURE = 'evalb:COLLINS.prm|tags:gold|lengths:all'
# Sentences of this many words, as EVALB counts them; None is any number.
LENGTHS = ((1, 10), (11, 20), (21, 30), (31, 40), (41, None), (1, 40))

# Labels that do not count. A preterminal with such a label is deleted with its word.
# Any other node with such a label loses only its bracket, and its children stay.
DELETED = frozenset(('TOP', TRACE, ',', ':', '``', "''", '.'))
EQUAL = {'PRT': 'ADVP'}  # labels, and tags, that count as the other one
CUT_OFF = 40  # words of the longest sentences in EVALB's second summary

# EVALB's names of what summarize() returns.
_NAMES = {
  'recall': 'Bracketing Recall',
  'precision': 'Bracketing Precision',
  'f1': 'Bracketing FMeasure',
  'complete_match': 'Complete match',
  'average_crossing': 'Average crossing',
  'no_crossing': 'No crossing',
  'two_or_less_crossing': '2 or less crossing',
  'tagging': 'Tagging accuracy',
}

# The spaces of C's default locale.
_SPACE = r' \t\n\v\f\r'
_TOKEN = re.compile(
  rf'(?P<leaf>\((?P<tag>[^{_SPACE}()]*)[{_SPACE}]+(?P<word>[^{_SPACE}()]*)\))'
  rf'|(?P<open>\((?P<label>[^{_SPACE}()]*))|(?P<close>\))|(?P<stray>[^{_SPACE}()]+)'
)
_LEAF = re.compile(rf'\(([^{_SPACE}()]+)[{_SPACE}]+([^{_SPACE}()]+)\)')  # tag, word


class Sentence(NamedTuple):
  """A line of EVALB's output: the counts of a pair of trees."""

  length: int  # words of the gold tree, with punctuation and without traces
  status: str  # 'valid', 'error' or 'skipped'
  matched: int = 0  # brackets, as are `gold`, `test` and `crossing`
  gold: int = 0
  test: int = 0
  crossing: int = 0
  words: int = 0  # without those that are deleted
  tags: int = 0  # of the words, those that are tagged as in the gold tree
  labels: tuple[Counter[str], ...] = ()  # of the matched, gold and test brackets


class _Tree(NamedTuple):
  """A line as EVALB reads it."""

  length: int
  words: list[tuple[str, str]]  # word and tag, of those that are not deleted
  brackets: list[tuple[int, int, str]]  # start, end and label of those that count
  balanced: bool


def compare(gold: Sequence[str], test: Sequence[str]) -> list[Sentence]:
  """Returns the counts of each pair of bracketed trees, given one a line.

  A sentence is skipped if nothing is left of the test tree, and an error if the words
  of the trees differ or brackets do not balance.

  Raises:
    UserError: the numbers of lines differ, or a line has a word outside brackets, or
      two words in one pair of brackets. EVALB ends there.
  """
  if len(gold) != len(test):
    raise UserError(f'{len(test)} trees for {len(gold)} gold trees: one for each')
  sentences = []
  for number, pair in enumerate(zip(gold, test, strict=True), 1):
    try:
      sentences.append(_compare(*map(_read, pair)))
    except UserError as error:
      raise UserError(f'pair {number} of the trees: {error}') from error
  return sentences


def summarize(sentences: Sequence[Sentence]) -> dict[str, float]:
  """Returns EVALB's scores of the sentences that are valid, by the keys of _NAMES.

  They are in percent, but `average_crossing` (brackets a sentence); 0 if there is
  nothing to count, where EVALB prints nan.
  """
  valid = [s for s in sentences if s.status == 'valid']
  total = lambda field: sum(getattr(s, field) for s in valid)
  percent_of = lambda is_so: _percent(sum(map(is_so, valid)), len(valid))
  matched, gold, test = total('matched'), total('gold'), total('test')
  return dict(
    recall=_percent(matched, gold),
    precision=_percent(matched, test),
    f1=_percent(2 * matched, gold + test),
    complete_match=percent_of(lambda s: s.matched == s.gold == s.test),
    average_crossing=_percent(total('crossing'), len(valid)) / 100,
    no_crossing=percent_of(lambda s: s.crossing == 0),
    two_or_less_crossing=percent_of(lambda s: s.crossing <= 2),
    tagging=_percent(total('tags'), total('words')),
  )


def count_labels(sentences: Sequence[Sentence]) -> dict[str, list[int]]:
  """Returns the matched, gold and test brackets of each label, the commonest first."""
  counts: list[Counter[str]] = [Counter() for _ in range(3)]
  for sentence in sentences:
    for count, of_kind in zip(counts, sentence.labels, strict=False):
      count.update(of_kind)
  labels = sorted(counts[1] | counts[2], key=lambda label: -counts[1][label])
  return {label: [count[label] for count in counts] for label in labels}


def score_files(gold: pathlib.Path, test: pathlib.Path) -> Iterator[str]:
  """Yields EVALB's output for two files with a tree on each line.

  Raises:
    UserError: a line cannot be read, or the numbers of lines differ.
  """
  both = [_lines(path) for path in (gold, test)]
  if not any(both):
    raise UserError(f'{gold} and {test} are empty: give a tree a line')
  for path, lines in zip((gold, test), both, strict=True):
    if any(re.match(r'\(\s*\(', line) for line in lines):
      fact = 'EVALB counts a root without a label as a constituent: write (TOP for it'
      print(f'WARNING: {path}: {fact}', file=sys.stderr)
  sentences = compare(*both)
  yield ' ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy'
  for number, s in enumerate(sentences, 1):
    code = ('valid', 'error', 'skipped').index(s.status)
    recall, precision = (
      _percent(s.matched, s.gold),
      _percent(s.matched, s.test),
    )
    yield (
      f'{number:4} {s.length:4} {code:4}  {recall:6.2f} {precision:6.2f} '
      f'{s.matched:5} {s.gold:6} {s.test:4} {s.crossing:6} {s.words:6} '
      f'{s.tags:5}   {_percent(s.tags, s.words):6.2f}'
    )
  short = [s for s in sentences if s.length <= CUT_OFF]
  for title, some in (('All', sentences), (f'len<={CUT_OFF}', short)):
    yield f'-- {title} --'
    statuses = Counter(s.status for s in some)
    counts = len(some), statuses['error'], statuses['skipped'], statuses['valid']
    kinds = 'sentence', 'Error sentence', 'Skip  sentence', 'Valid sentence'
    for kind, count in zip(kinds, counts, strict=True):
      yield f'{f"Number of {kind}":25} = {count:6}'
    scores = summarize(some)
    for key, name in _NAMES.items():
      yield f'{name:25} = {scores[key]:6.2f}'


@dataclasses.dataclass(frozen=True)
class Parsing:
  """Scores of a parser's trees, in percent."""

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


def score(gold: Sequence[str], outputs: Sequence[str]) -> Parsing:
  """Scores `outputs`, one tree over the same words for each tree of `gold`.

  Raises:
    UserError: there are no trees, or the numbers of trees or their words differ.
  """
  tagged = _with_tags_of(gold, outputs)
  sentences = compare(gold, tagged)
  scores: dict[str, Any] = {**summarize(sentences)}
  low, high = np.quantile(_resample_f1(sentences), (0.025, 0.975)).round(4).tolist()
  scores['f1'] = Score(scores['f1'], SIGNATURE, [low, high])
  scores['tagging'] = _tagging(gold, outputs)
  return Parsing(
    **scores,
    lengths=dict(_by_length(sentences)),
    labels=count_labels(sentences),
    treebank=hashlib.sha256('\n'.join(gold).encode()).hexdigest(),
  )


def score_lines(parsing: Parsing) -> Iterator[str]:
  """Yields the scores for a terminal."""
  low, high = parsing.f1.interval
  yield f'F1 {parsing.f1.score:.2f}  {parsing.f1.signature}'
  yield f'  95 % interval: {low:.2f}, {high:.2f}'
  yield (
    f'  recall {parsing.recall:.2f}, precision {parsing.precision:.2f}, complete match '
    f'{parsing.complete_match:.2f}, crossing {parsing.average_crossing:.2f} a sentence'
  )
  for words, (sentences, f1) in parsing.lengths.items():
    yield f'  {words} words: F1 {f1:.2f} of {int(sentences):,} sentences'
  yield f'tagging accuracy {parsing.tagging:.2f}'


def comparison_lines(
  gold: Sequence[str], outputs: Sequence[str], baseline: Sequence[str]
) -> Iterator[str]:
  """Yields the F1 of two parsers, their difference, and its p (paired_p())."""
  systems = [_with_tags_of(gold, lines) for lines in (outputs, baseline)]
  ours, theirs = (compare(gold, lines) for lines in systems)
  scores = [summarize(sentences)['f1'] for sentences in (ours, theirs)]
  p = paired_p(_counts(ours), _counts(theirs), _f1)
  gain = scores[0] - scores[1]
  yield f'F1 {scores[0]:.2f} against {scores[1]:.2f}: {gain:+.2f}, p = {p:.4f}'


def _compare(ours: _Tree, theirs: _Tree) -> Sentence:
  if not theirs.words:
    return Sentence(ours.length, 'skipped')
  if [word for word, _ in ours.words] != [word for word, _ in theirs.words]:
    return Sentence(ours.length, 'error')
  common = Counter(ours.brackets) & Counter(theirs.brackets)
  spans = {bracket[:2] for bracket in ours.brackets}
  crossing = sum(any(_cross(a, b) for a in spans) for b in theirs.brackets)
  pairs = zip(ours.words, theirs.words, strict=True)
  of_labels = lambda brackets: Counter(label for _, _, label in brackets)
  return Sentence(
    length=ours.length,
    status='valid' if ours.balanced and theirs.balanced else 'error',
    matched=common.total(),
    gold=len(ours.brackets),
    test=len(theirs.brackets),
    crossing=crossing,
    words=len(ours.words),
    tags=sum(EQUAL.get(a, a) == EQUAL.get(b, b) for (_, a), (_, b) in pairs),
    labels=tuple(map(of_labels, (common.elements(), ours.brackets, theirs.brackets))),
  )


def _read(line: str) -> _Tree:
  """Reads a line as EVALB does, which never looks at a tree as a whole."""
  length, words, brackets = 0, [], []
  opened: list[tuple[int, str]] = []  # first word and label of each open bracket
  balanced = True
  for token in _TOKEN.finditer(line):
    label = token['tag'] or token['label']
    if token['stray']:
      raise UserError(f'{token["stray"]!r} is not the one word of a pair of brackets')
    if token['leaf']:
      length += label != TRACE
      if label not in DELETED:
        words.append((token['word'], label))
    elif token['open']:
      label = re.split('[-=]', label)[0]
      opened.append((len(words), EQUAL.get(label, label)))
    elif opened:
      start, label = opened.pop()
      if start != len(words) and label not in DELETED:
        brackets.append((start, len(words), label))
    else:
      balanced = False
  return _Tree(length, words, brackets, balanced and not opened)


def _lines(path: pathlib.Path) -> list[str]:
  text = read_bytes(path).decode('latin-1')  # EVALB knows bytes, not characters
  return text.removesuffix('\n').split('\n') if text else []


def _cross(a: tuple[int, int], b: tuple[int, int, str]) -> bool:
  return a[0] < b[0] < a[1] < b[1] or b[0] < a[0] < b[1] < a[1]


def _percent(part: int, whole: int) -> float:
  return 100 * part / whole if whole else 0.0


def _with_tags_of(gold: Sequence[str], outputs: Sequence[str]) -> list[str]:
  """Returns the outputs with the treebank's tags."""
  if len(gold) != len(outputs) or not gold:
    raise UserError(f'{len(outputs)} trees for {len(gold)} of the treebank')
  tagged = []
  for number, (tree, output) in enumerate(zip(gold, outputs, strict=True), 1):
    leaves = _LEAF.findall(tree)
    words, ours = ([word for _, word in _LEAF.findall(line)] for line in (tree, output))
    if words != ours:
      raise UserError(f'tree {number} has other words than the treebank: {output}')
    tags = (tag for tag, _ in leaves)

    def with_tag(leaf: re.Match[str], tags: Iterator[str] = tags) -> str:
      return f'({next(tags)} {leaf[2]})'

    tagged.append(_LEAF.sub(with_tag, output))
  return tagged


def _tagging(gold: Sequence[str], outputs: Sequence[str]) -> float:
  """Returns the percentage of right tags, of the words that EVALB keeps."""
  right = words = 0
  for tree, output in zip(gold, outputs, strict=True):
    for ours, theirs in zip(*map(_LEAF.findall, (tree, output)), strict=True):
      if ours[0] not in DELETED:
        words += 1
        right += ours[0] == theirs[0]
  return _percent(right, words)


def _by_length(sentences: Sequence[Sentence]) -> Iterator[tuple[str, list[float]]]:
  for first, last in LENGTHS:
    chosen = [s for s in sentences if first <= s.length <= (last or s.length)]
    name = f'{first}-{last}' if last else f'{first} or more'
    yield name, [len(chosen), summarize(chosen)['f1']]


def _counts(sentences: Sequence[Sentence]) -> np.ndarray:
  """Returns matched brackets, and gold's plus test's, of each sentence: [n, 2]."""
  counts = lambda s: (s.matched, s.gold + s.test) if s.status == 'valid' else (0, 0)
  return np.array([*map(counts, sentences)])


def _f1(counts: np.ndarray) -> float:
  """Returns F1 in percent, of counts that are summed over sentences: [2]."""
  return 200 * counts[0] / max(counts[1], 1)


def _resample_f1(sentences: Sequence[Sentence]) -> np.ndarray:
  """Returns F1 of SAMPLES bootstrap samples of the sentences: [SAMPLES]."""
  counts, size = _counts(sentences), len(sentences)
  rng = np.random.default_rng(SEED)
  samples = (rng.integers(size, size=size) for _ in range(SAMPLES))
  return np.array([_f1(counts[rows].sum(0)) for rows in samples])
