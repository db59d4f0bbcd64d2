"""BLEU in two ways: as sacreBLEU has it, and as the script of the paper's authors."""

import dataclasses
import importlib.metadata
import pathlib
import re
import sys
from collections.abc import Sequence

import numpy as np
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from transformer_jax.data import text
from transformer_jax.machine.errors import UserError
from transformer_jax.scoring import moses, significance

# Languages in Chinese characters that sacreBLEU does not know. They are cut as 'zh' is.
CHINESE = {'gan', 'hak', 'lzh', 'wuu', 'yue'}
SPLIT = {'zh', 'ja', 'ko'}  # languages whose text sacreBLEU splits into words


@dataclasses.dataclass(frozen=True)
class Score:
  """One score of a test set, as any scorer computes it and result.json keeps it."""

  score: float  # percent, unrounded
  signature: str  # how it was computed; scores of another signature do not compare
  interval: list[float]  # both ends of the 95 % interval, by bootstrap over sentences


@dataclasses.dataclass(frozen=True)
class TextMetric:
  """A metric for the text of one language.

  Attributes:
    signature: all choices that its scores depend on.
    metric: sacreBLEU's, with the tokens to count.
    replaces: whether Unicode punctuation of hypotheses is replaced.
  """

  signature: str
  metric: BLEU | CHRF
  replaces: bool = False

  def percent(self, hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """Returns the score without its interval."""
    texts = self._texts(hypotheses, references)
    return self.metric.corpus_score(texts[0], [texts[1]]).score

  def score(self, hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Returns the score and its 95 % interval, by sacreBLEU's bootstrap over sentences.

    The interval's centre is the mean score of the resampled test sets, its width the
    range of the middle 95 % of them. It may pass 100.
    """
    texts = self._texts(hypotheses, references)
    whole = self.metric.corpus_score(
      texts[0], [texts[1]], n_bootstrap=significance.SAMPLES
    )
    ends = whole._mean - whole._ci, whole._mean + whole._ci
    return Score(whole.score, self.signature, [round(float(end), 4) for end in ends])

  def paired_p(
    self,
    systems: Sequence[Sequence[str]],
    baselines: Sequence[Sequence[str]],
    references: Sequence[str],
  ) -> float:
    """Returns the two-sided p of a difference (significance.paired_p).

    Args:
      systems: outputs of one run or of several, whose counts are added.
      baselines: the same number of others.
    """
    ours, theirs = (self._counts(runs, references) for runs in (systems, baselines))
    score = lambda sums: self.metric._compute_score_from_stats(sums).score
    return significance.paired_p(ours, theirs, score)

  def _counts(
    self, runs: Sequence[Sequence[str]], references: Sequence[str]
  ) -> np.ndarray:
    """Returns the metric's counts [sentence, count], summed over runs."""
    texts = (self._texts(hypotheses, references) for hypotheses in runs)
    extract = self.metric._extract_corpus_statistics
    return np.sum([extract(ours, [expected]) for ours, expected in texts], 0)

  def _texts(
    self, hypotheses: Sequence[str], references: Sequence[str]
  ) -> list[list[str]]:
    assert len(hypotheses) == len(references) > 0, 'see check_lines()'
    if self.replaces:
      hypotheses = [*map(moses.replace_unicode_punctuation, hypotheses)]
    return [[*hypotheses], [*references]]


def sacrebleu(
  language: str, tokenized: bool, references: Sequence[str] = ()
) -> TextMetric:
  """Returns sacreBLEU's default: exponential smoothing, 13a tokens (not ja, ko, zh).

  Its default is changed in one point: languages without spaces between words are scored
  by characters, and those in CHINESE by the tokens of zh. Text with hardly a space is
  scored by characters too, unless its language is in SPLIT; stderr says so.

  Args:
    language: of the text, such as 'zh' or 'zh_TW'.
    tokenized: the text is tokens already, which are scored as they are.
    references: the text, if it is known.

  Raises:
    UserError: what cuts this language into words is not installed.
  """
  short = moses.base(language)
  if tokenized:  # force: sacreBLEU would warn of text that is tokenized
    metric = BLEU(tokenize='none', force=True)
  elif short in CHINESE:
    metric = BLEU(tokenize='zh')
  elif text.is_unspaced(short) and short not in SPLIT:
    metric = BLEU(tokenize='char')
  elif short not in SPLIT and _has_no_spaces(references):
    print(
      f'{language} text has hardly a space, so BLEU counts characters', file=sys.stderr
    )
    metric = BLEU(tokenize='char')
  else:
    try:
      metric = BLEU(trg_lang=short)
    except RuntimeError as error:
      raise UserError(
        f'BLEU of {language} needs a program that finds its words: pip install '
        f"'sacrebleu[{short}]', then give the command again"
      ) from error
  metric.num_refs = 1  # sacreBLEU makes no signature without it
  return TextMetric(str(metric.get_signature()), metric)


def _has_no_spaces(lines: Sequence[str]) -> bool:
  """Returns True if fewer than one in 20 characters of the longer lines is a space."""
  text = ''.join(line for line in lines if len(line) > 20)
  return 20 * text.count(' ') < len(text)


def paper_bleu(language: str, tokenized: bool) -> TextMetric:
  """Returns the paper's BLEU, that of tensor2tensor's get_ende_bleu.sh.

  The script splits compounds at hyphens and calls multi-bleu.perl, whose formula has no
  smoothing. It replaces Unicode punctuation in hypotheses alone, so German quotation
  marks match none (tensor2tensor's issue 317). "partly" in the signature says that
  some of the Moses tokeniser's rules for the language are missing.

  Args:
    tokenized: the text is tokens already, which are scored as they are.
  """
  split = str.encode if tokenized else lambda line: split_compounds(line, language)
  metric = BLEU(tokenize='none', smooth_method='none', force=True)
  # The script's Perl splits bytes at ASCII spaces, sacreBLEU at every space of Unicode.
  # So each token is spelt in hexadecimal digits.
  metric.tokenizer = lambda line: ' '.join(token.hex() for token in split(line).split())
  how = 'tok:none'
  if not tokenized:
    partly = '' if moses.is_faithful(language) else '-partly'
    version = importlib.metadata.version('sacremoses')
    how = f'punct:unicode-replaced-in-hyp|tok:moses-{moses.base(language)}{partly}'
    how += f'-sacremoses-{version}|compounds:##AT##-##AT##'
  signature = f'nrefs:1|case:mixed|{how}|smooth:none|formula:multi-bleu'
  return TextMetric(signature, metric, not tokenized)


def split_compounds(line: str, language: str) -> bytes:
  """Returns Moses tokens in UTF-8, with hyphens split off as ##AT##-##AT##.

  The script's `perl -p` works on bytes, in one pass whose matches do not overlap. In
  "a-b-c" it splits off the first hyphen only, but in "a-é-b" both: é has two bytes.
  """
  tokens = ' '.join(moses.tokenize(line, language)).encode()
  return re.sub(rb'(\S)-(\S)', rb'\1 ##AT##-##AT## \2', tokens)


def read_lines(path: pathlib.Path) -> list[str]:
  """Returns a file's lines (data/text.py); raises UserError if one is not UTF-8."""
  lines = []
  for number, line in enumerate(text.read_lines(path), 1):
    if line is None:
      raise UserError(f'{path}, line {number}: not UTF-8; save the file in UTF-8')
    lines.append(line)
  return lines


def check_lines(
  path: pathlib.Path,
  lines: Sequence[str],
  references: pathlib.Path,
  expected: Sequence[str],
) -> None:
  """Raises UserError unless a file has one line for each line of the references."""
  if len(lines) != len(expected) or not lines:
    raise UserError(
      f'{path} has {len(lines)} lines, {references} has {len(expected)}: '
      'line n of one has to belong to line n of the other'
    )
