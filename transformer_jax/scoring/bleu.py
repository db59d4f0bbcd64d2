"""BLEU twice: as sacreBLEU makes it, and as the paper's own script made it."""

import importlib.metadata
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU

from transformer_jax.scoring import moses

MAX_ORDER = 4


@dataclass(frozen=True)
class Score:
  score: float  # percent, unrounded
  signature: str


def sacre_metric(lowercase: bool, tokenized: bool) -> BLEU:
  """sacreBLEU's default (13a tokens, exponential smoothing); given tokens stay."""
  if tokenized:  # which sacreBLEU warns of, were it not forced
    return BLEU(lowercase=lowercase, tokenize='none', force=True)
  return BLEU(lowercase=lowercase)


def sacre_bleu(
  hypotheses: Sequence[str],
  references: Sequence[str],
  lowercase: bool = False,
  tokenized: bool = False,
) -> Score:
  """sacreBLEU of detokenised text, or of tokens as given.

  Raises ValueError for no sentences or unequal numbers of them.
  """
  _check_lengths(hypotheses, references)
  metric = sacre_metric(lowercase, tokenized)
  score = metric.corpus_score(hypotheses, [references]).score
  return Score(score, str(metric.get_signature()))


def paper_bleu(
  hypotheses: Sequence[str],
  references: Sequence[str],
  language: str,
  lowercase: bool = False,
) -> Score:
  """The paper's BLEU (tensor2tensor's get_ende_bleu.sh) on detokenised text.

  Only the hypotheses have their Unicode punctuation replaced, as in that script.
  Raises ValueError for no sentences, unequal numbers of them, or a language that
  cannot be tokenised as the script did.
  """
  _check_lengths(hypotheses, references)
  plain = [moses.replace_unicode_punctuation(line) for line in hypotheses]
  score = _multi_bleu(
    (split_compounds(line, language) for line in plain),
    (split_compounds(line, language) for line in references),
    lowercase,
  )
  return Score(score, paper_signature(language, lowercase))


def tokenized_bleu(
  hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False
) -> Score:
  """multi-bleu.perl on text that is tokenised already; tokens as given.

  Raises ValueError for no sentences or unequal numbers of them.
  """
  _check_lengths(hypotheses, references)
  score = _multi_bleu(
    (line.encode() for line in hypotheses),
    (line.encode() for line in references),
    lowercase,
  )
  return Score(score, paper_signature(None, lowercase))


def paper_signature(language: str | None, lowercase: bool) -> str:
  """What tells paper_bleu of a language, or without one tokenized_bleu, from others."""
  parts = ['nrefs:1', _case(lowercase)]
  if language is None:
    parts.append('tok:none')
  else:
    version = importlib.metadata.version('sacremoses')
    parts.append('punct:unicode-replaced-in-hyp')
    parts.append(f'tok:moses-{language}-sacremoses-{version}')
    parts.append('compounds:##AT##-##AT##')
  return '|'.join([*parts, 'smooth:none', 'formula:multi-bleu'])


def split_compounds(line: str, language: str) -> bytes:
  """Moses tokens with hyphens split off as ##AT##-##AT##, UTF-8.

  On bytes and in one pass, as the script's `perl -p` does it: of "a-b-c" only the
  first hyphen is split, of "a-é-b", whose é is two bytes, both.
  """
  tokens = ' '.join(moses.tokenize(line, language)).encode()
  return re.sub(rb'(\S)-(\S)', rb'\1 ##AT##-##AT## \2', tokens)


def _check_lengths(hypotheses: Sequence[str], references: Sequence[str]) -> None:
  if len(hypotheses) != len(references):
    raise ValueError(
      f'{len(hypotheses)} hypotheses but {len(references)} references: '
      'BLEU needs one reference for each'
    )
  if not hypotheses:
    raise ValueError('no sentences to score')


def _case(lowercase: bool) -> str:
  return 'case:lc-ascii' if lowercase else 'case:mixed'


def _multi_bleu(
  hypotheses: Iterable[bytes], references: Iterable[bytes], lowercase: bool
) -> float:
  """Corpus BLEU in percent, unsmoothed; case folded as `-lc` folds it, A to Z only."""
  matches, totals = [0] * MAX_ORDER, [0] * MAX_ORDER
  hypothesis_length = reference_length = 0
  for hypothesis, reference in zip(hypotheses, references, strict=True):
    if lowercase:
      hypothesis, reference = hypothesis.lower(), reference.lower()
    ours, theirs = hypothesis.split(), reference.split()
    hypothesis_length += len(ours)
    reference_length += len(theirs)
    for n in range(1, MAX_ORDER + 1):
      counts = _ngrams(ours, n)
      matches[n - 1] += (counts & _ngrams(theirs, n)).total()
      totals[n - 1] += counts.total()
  if not all(matches):
    return 0.0
  log_precisions = [math.log(m / t) for m, t in zip(matches, totals, strict=True)]
  log_brevity = min(0.0, 1 - reference_length / hypothesis_length)
  return 100 * math.exp(log_brevity + sum(log_precisions) / MAX_ORDER)


def _ngrams(tokens: list[bytes], n: int) -> Counter[tuple[bytes, ...]]:
  return Counter(zip(*(tokens[i:] for i in range(n)), strict=False))
