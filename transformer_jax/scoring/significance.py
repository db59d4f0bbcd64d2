"""Whether a difference is more than noise: over seeds, and over a test's sentences."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from sacrebleu.metrics import BLEU
from sacrebleu.metrics.base import Signature
from sacrebleu.significance import PairedTest
from scipy.special import stdtrit

from transformer_jax.machine.errors import UserError
from transformer_jax.scoring import bleu, moses

SAMPLES = 1000  # resampled test sets, as many as sacreBLEU draws by default


class Spread(NamedTuple):
  """Mean and spread of one value over seeds; one seed has no spread."""

  mean: float
  deviation: float | None  # the sample's standard deviation
  margin: float | None  # half the 95 % interval of the mean
  seeds: int


class Noise(NamedTuple):
  """Standard deviation between seeds, pooled over the rows with several seeds."""

  deviation: float
  freedom: int  # degrees of freedom


class Paired(NamedTuple):
  """Two systems on the same sentences, by paired bootstrap."""

  score: float  # percent
  baseline: float
  p: float  # of no difference, two-sided: twice sacreBLEU's
  signature: str
  interval: tuple[float, float]  # as bootstrap_intervals has it
  baseline_interval: tuple[float, float]


def student_t(freedom: int) -> float:
  """The t for which 95 % of Student's distribution lies between -t and t."""
  return float(stdtrit(freedom, 0.975))


def half_interval(deviation: float, freedom: int, seeds: int) -> float:
  """Half the 95 % interval of a mean over seeds, by Student's t distribution."""
  return student_t(freedom) * deviation / math.sqrt(seeds)


def spread(values: Sequence[float]) -> Spread:
  if len(values) < 2:
    return Spread(values[0], None, None, 1)
  deviation = statistics.stdev(values)
  margin = half_interval(deviation, len(values) - 1, len(values))
  return Spread(statistics.fmean(values), deviation, margin, len(values))


def noise(groups: Sequence[Sequence[float]]) -> Noise | None:
  """Pools the deviation between seeds, taken to be the same in all groups.

  None if no group has a second seed, or if none of them differs from the first.
  """
  freedom = sum(len(values) - 1 for values in groups)
  if not freedom:
    return None
  if all(len({*values}) == 1 for values in groups):
    return None
  squares = sum(
    sum((v - statistics.fmean(values)) ** 2 for v in values) for values in groups
  )
  return Noise(math.sqrt(squares / freedom), freedom)


def margin(noise: Noise, seeds: int, base_seeds: int) -> float:
  """Half the 95 % interval of the difference of two means over seeds."""
  error = noise.deviation * math.sqrt(1 / seeds + 1 / base_seeds)
  return student_t(noise.freedom) * error


def paired_bootstrap(
  hypotheses: Sequence[str],
  baseline: Sequence[str],
  references: Sequence[str],
  language: str,
  tokenized: bool = False,
  lowercase: bool = False,
  kinds: Sequence[str] = ('sacrebleu', 'paper_bleu'),
) -> dict[str, Paired]:
  """sacreBLEU's paired bootstrap (Koehn 2004), for each BLEU of `kinds`.

  Args:
    language: whose Moses tokens the paper's BLEU counts.
    tokenized: the text is tokens already, which are scored as they are.

  Raises:
    UserError: no sentences, or unequal numbers of them.
  """
  counts = len(hypotheses), len(baseline), len(references)
  if len({*counts}) != 1 or not references:
    raise UserError(
      f'{counts[0]} and {counts[1]} hypotheses for {counts[2]} references: '
      'a paired test needs one of each for every sentence'
    )
  found = {}
  for kind in kinds:
    metric, systems = _metric(
      kind, (baseline, hypotheses), language, tokenized, lowercase
    )
    signature, paired = _paired_test(metric, *systems, references)
    if kind == 'paper_bleu':  # sacreBLEU's signature does not name our tokens
      name = bleu.paper_signature(None if tokenized else language, lowercase)
      drawn = (f'{key}:{signature.info[key]}' for key in ('bs', 'seed'))
      paired = paired._replace(signature='|'.join([name, *drawn]))
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

  Its centre is the mean score of the resampled test sets, its width the range of the
  middle 95 % of them. It may pass 100.

  Raises UserError for no sentences or unequal numbers of them.
  """
  bleu.check_lengths(hypotheses, references)
  found = {}
  for kind in ('sacrebleu', 'paper_bleu'):
    metric, (system,) = _metric(kind, (hypotheses,), language, tokenized, lowercase)
    score = metric.corpus_score(system, [references], n_bootstrap=SAMPLES)
    found[kind] = _interval(score._mean, score._ci)
  return found


def _metric(
  kind: str,
  systems: Sequence[Sequence[str]],
  language: str,
  tokenized: bool,
  lowercase: bool,
) -> tuple[BLEU, list[Sequence[str]]]:
  """The metric, and each system's hypotheses as the metric takes them."""
  if kind == 'sacrebleu':
    return bleu.sacre_metric(lowercase, tokenized, language), [*systems]
  if tokenized:
    return bleu.paper_metric(None, lowercase), [*systems]
  plain = [[*map(moses.replace_unicode_punctuation, lines)] for lines in systems]
  return bleu.paper_metric(language, lowercase), plain


def _interval(mean: float, margin: float) -> tuple[float, float]:
  return float(mean - margin), float(mean + margin)


def _paired_test(
  metric: BLEU,
  baseline: Sequence[str],
  system: Sequence[str],
  references: Sequence[str],
) -> tuple[Signature, Paired]:
  named = [('baseline', list(baseline)), ('system', list(system))]
  test = PairedTest(
    named, {'BLEU': metric}, [list(references)], test_type='bs', n_samples=SAMPLES
  )
  signatures, scores = test()
  baseline_result, result = scores['BLEU']
  # sacreBLEU's p counts one side alone. It gives equal systems the smallest p there is.
  equal = result.score == baseline_result.score
  p = 1.0 if equal else min(1.0, 2 * result.p_value)
  return signatures['BLEU'], Paired(
    result.score,
    baseline_result.score,
    p,
    str(signatures['BLEU']),
    _interval(result.mean, result.ci),
    _interval(baseline_result.mean, baseline_result.ci),
  )
