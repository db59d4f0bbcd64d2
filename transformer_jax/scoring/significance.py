"""Is a difference more than noise? Over seeds, and over the sentences of a test set."""

import math
import re
import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest
from scipy.special import stdtrit

from transformer_jax.scoring.bleu import paper_signature, sacre_metric, split_compounds
from transformer_jax.scoring.moses import replace_unicode_punctuation as _plain

SAMPLES = 1000  # of the test set, as sacreBLEU draws by default


class Spread(NamedTuple):
  """Values of several seeds; from one there is neither spread nor interval."""

  mean: float
  deviation: float | None  # of the sample
  margin: float | None  # the 95 % interval of the mean is mean +- margin
  seeds: int


class Noise(NamedTuple):
  """What seeds do, pooled over rows that were run more than once."""

  deviation: float
  freedom: int


class Paired(NamedTuple):
  """Two systems on the same sentences; p of no difference, by paired bootstrap."""

  score: float  # percent
  baseline: float
  p: float
  signature: str
  interval: tuple[float, float]  # as bootstrap_intervals has it
  baseline_interval: tuple[float, float]


def quantile(freedom: int) -> float:
  """Student's t that 95 % lie within, on both sides."""
  return float(stdtrit(freedom, 0.975))


def spread(values: Sequence[float]) -> Spread:
  if len(values) < 2:
    return Spread(values[0], None, None, 1)
  deviation = statistics.stdev(values)
  margin = quantile(len(values) - 1) * deviation / math.sqrt(len(values))
  return Spread(statistics.fmean(values), deviation, margin, len(values))


def noise(groups: Sequence[Sequence[float]]) -> Noise | None:
  """The deviation between seeds, the same for all groups; None without a second one."""
  freedom = sum(len(values) - 1 for values in groups)
  if not freedom:
    return None
  squares = sum(
    sum((v - statistics.fmean(values)) ** 2 for v in values) for values in groups
  )
  return Noise(math.sqrt(squares / freedom), freedom)


def margin(noise: Noise, seeds: int, base_seeds: int) -> float:
  """Half the 95 % interval of a difference of two means."""
  error = noise.deviation * math.sqrt(1 / seeds + 1 / base_seeds)
  return quantile(noise.freedom) * error


def paired_bootstrap(
  hypotheses: Sequence[str],
  baseline: Sequence[str],
  references: Sequence[str],
  language: str,
  tokenized: bool = False,
  lowercase: bool = False,
  kinds: Sequence[str] = ('sacrebleu', 'paper_bleu'),
) -> dict[str, Paired]:
  """sacreBLEU's paired bootstrap (Koehn 2004) over detokenised text, for each BLEU.

  Text that is `tokenized` already counts as it is, as in tokenized_bleu.

  Raises:
    ValueError: no sentences, or unequal numbers of them.
  """
  counts = len(hypotheses), len(baseline), len(references)
  if len({*counts}) != 1 or not references:
    raise ValueError(
      f'{counts[0]} and {counts[1]} hypotheses for {counts[2]} references: '
      'a paired test needs one of each for every sentence'
    )
  found = {}
  for kind in kinds:
    systems, metric = _prepared(
      kind, (baseline, hypotheses), references, language, tokenized, lowercase
    )
    paired = _test(*systems, metric)
    if kind == 'paper_bleu':  # the metric's is of what it was given, our tokens spelt
      resampled = '|'.join(re.findall(r'(?:bs|seed):\d+', paired.signature))
      plain = paper_signature(None if tokenized else language, lowercase)
      paired = paired._replace(signature=f'{plain}|{resampled}')
    found[kind] = paired
  return found


def bootstrap_intervals(
  hypotheses: Sequence[str],
  references: Sequence[str],
  language: str,
  tokenized: bool = False,
  lowercase: bool = False,
) -> dict[str, tuple[float, float]]:
  """The 95 % interval of each BLEU, by sacreBLEU's bootstrap over the sentences.

  It is the mean of the resampled test sets' scores, and half the range of their middle
  95 % to both sides of it, so that it may pass 100.

  Raises ValueError for no sentences or unequal numbers of them.
  """
  found = {}
  for kind in ('sacrebleu', 'paper_bleu'):
    (system, against), metric = _prepared(
      kind, (hypotheses,), references, language, tokenized, lowercase
    )
    score = metric.corpus_score(system, [against], n_bootstrap=SAMPLES)
    found[kind] = _interval(score._mean, score._ci)
  return found


def _prepared(
  kind: str,
  systems: Sequence[Sequence[str]],
  references: Sequence[str],
  language: str,
  tokenized: bool,
  lowercase: bool,
) -> tuple[list[Sequence[str]], BLEU]:
  """Systems and references as the metric takes them, and the metric."""
  if kind == 'sacrebleu':
    return [*systems, references], sacre_metric(lowercase, tokenized)
  spell = lambda lines: _spelt(lines, None if tokenized else language, lowercase)
  plain = lambda lines: lines if tokenized else map(_plain, lines)
  prepared = [*(spell(plain(lines)) for lines in systems), spell(references)]
  return prepared, BLEU(tokenize='none', smooth_method='none', force=True)


def _interval(mean: float, margin: float) -> tuple[float, float]:
  return float(mean - margin), float(mean + margin)


def _test(
  baseline: Sequence[str],
  system: Sequence[str],
  references: Sequence[str],
  metric: BLEU,
) -> Paired:
  named = [('baseline', list(baseline)), ('system', list(system))]
  test = PairedTest(
    named, {'BLEU': metric}, [list(references)], test_type='bs', n_samples=SAMPLES
  )
  signatures, scores = test()
  baseline_result, result = scores['BLEU']
  # sacreBLEU counts resamples above a difference, of which equal systems have none.
  p = 1.0 if result.score == baseline_result.score else result.p_value
  return Paired(
    result.score,
    baseline_result.score,
    p,
    str(signatures['BLEU']),
    _interval(result.mean, result.ci),
    _interval(baseline_result.mean, baseline_result.ci),
  )


def _spelt(lines: Iterable[str], language: str | None, lowercase: bool) -> list[str]:
  """The paper's tokens, each in hexadecimal digits: sacreBLEU parts and folds no more.

  Without a language, the lines are tokens already.
  """
  split = (
    split_compounds(line, language) if language else line.encode() for line in lines
  )
  folded = (line.lower() if lowercase else line for line in split)
  return [' '.join(token.hex() for token in line.split()) for line in folded]
