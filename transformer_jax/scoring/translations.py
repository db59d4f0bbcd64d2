"""Scores translations by a list of metrics.

An entry of METRICS is all that a metric needs: `scripts.evaluate` computes and prints
it, result.json keeps it, and the report has a column for it.
"""

import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from sacrebleu.metrics.chrf import CHRF, CHRFScore

from transformer_jax.data.text import nfc
from transformer_jax.scoring import bleu, moses, significance
from transformer_jax.scoring.bleu import Score, TextMetric
from transformer_jax.scoring.output import SystemOutput


class Metric(NamedTuple):
  """A measure of a model that translates.

  Attributes:
    name: in result.json and in messages.
    title: of pictures and sentences.
    column: heads the columns of tables.
    unit: of its values.
    sign: of a difference that is an improvement, 1 or -1.
    of_text: takes a language, whether the text is tokenised, and the references (maybe
      none); returns the metric for them. None for what is not computed from text.
    margin: the smallest difference that the paper's text calls one, in the paper's
      table. None: no verdict depends on the metric.
    is_relative: whether the margin grows with base's value.
    decimals: of the paper's values.
  """

  name: str
  title: str
  column: str
  unit: str
  sign: int
  of_text: Callable[[str, bool, Sequence[str]], TextMetric] | None = None
  margin: float | None = None
  is_relative: bool = False
  decimals: int = 1


class Chrf(CHRF):
  """sacreBLEU's chrF, whose bootstrap fails where a sample scores 0.

  Its samples' scores are NumPy's float32, but 0 is Python's float: the mean over both
  is a TypeError.
  """

  def _compute_score_from_stats(self, *arguments: Any) -> CHRFScore:
    score = super()._compute_score_from_stats(*arguments)
    score.score = float(score.score)
    return score


def chrf(language: str, tokenized: bool, references: Sequence[str]) -> TextMetric:
  """Returns sacreBLEU's chrF2, which is the same for all languages and tokens."""
  metric = Chrf()
  metric.num_refs = 1  # sacreBLEU makes no signature without it
  return TextMetric(str(metric.get_signature()), metric)


# Both margins are row A4's ("quality also drops off with too many heads"; B2 is as
# large). E, "nearly identical", has 0.00 and 0.1.
PERPLEXITY = Metric(
  'dev_perplexity',
  'perplexity',
  'PPL',
  'per piece',
  -1,
  margin=0.09,
  is_relative=True,
  decimals=2,
)
SACREBLEU = Metric('sacrebleu', 'sacreBLEU', 'sacreBLEU', 'percent', 1, bleu.sacrebleu)
PAPER_BLEU = Metric(
  'paper_bleu',
  'BLEU',
  'BLEU',
  'percent',
  1,
  lambda language, tokenized, _: bleu.paper_bleu(language, tokenized),
  margin=0.4,
)
METRICS = (
  PERPLEXITY,
  SACREBLEU,
  PAPER_BLEU,
  Metric('chrf', 'chrF', 'chrF', 'percent', 1, chrf),
)
JUDGED = tuple(metric for metric in METRICS if metric.margin is not None)


def text_metrics() -> list[Metric]:
  """Returns the metrics that are computed from text."""
  return [metric for metric in METRICS if metric.of_text]


def perplexity_text(value: float, pieces: int, decimals: int) -> str:
  """Returns a perplexity, or '> 4,000: worse than guessing' one of `pieces`."""
  if value > pieces:
    return f'> {pieces:,}: worse than guessing'
  return f'{value:.{decimals}f}'


def kind(outputs: SystemOutput) -> str:
  """Returns what the signatures do not tell of a text, such as 'detokenised'."""
  kind = 'tokens as given' if outputs.tokenized else 'detokenised'
  text = ''.join(outputs.references)
  # In a script with capitals most letters have one; Python takes Georgian for small.
  cased = sum(c.title() != c for c in text) > sum(map(str.isalpha, text)) / 2
  return kind + (', lower-cased' if text.islower() and cased else '')


def score(outputs: SystemOutput) -> dict[str, Score]:
  """Returns each metric's score of a system's outputs, by the metric's name.

  Prints a warning if normalising the texts would change them.
  """
  texts = outputs.hypotheses, outputs.references
  metrics = _metrics(outputs)
  scores = {name: metric.score(*texts) for name, metric in metrics.items()}
  composed = [[*map(nfc, lines)] for lines in texts]
  if composed != [*texts]:
    others = {name: metric.percent(*composed) for name, metric in metrics.items()}
    if any(abs(others[name] - scores[name].score) >= 0.005 for name in scores):
      changes = (f'{n} {x.score:.2f} to {others[n]:.2f}' for n, x in scores.items())
      print(
        'the texts spell accents as one character and as two: normalising both to '
        f'NFC would change {", ".join(changes)}',
        file=sys.stderr,
      )
  return scores


def _metrics(outputs: SystemOutput) -> dict[str, TextMetric]:
  how = outputs.language, outputs.tokenized, outputs.references
  return {metric.name: metric.of_text(*how) for metric in METRICS if metric.of_text}


def score_lines(kind: str, scores: Mapping[str, Score]) -> Iterator[str]:
  """Yields scores as lines for a reader; `kind` is that of the text."""
  for name, score in scores.items():
    yield f'{name} {score.score:.2f}  {score.signature}'
    yield f'  95 % interval: {_between(score.interval)}'
  if kind != 'detokenised':
    yield f'The text is {kind}: compare only scores of such text with these'


def comparison_lines(outputs: SystemOutput, baseline: Sequence[str]) -> Iterator[str]:
  """Yields how much better outputs are than a baseline, by a randomisation test."""
  references = outputs.references
  test = f'ar:{significance.EXCHANGES}|seed:{significance.SEED}'
  for name, metric in _metrics(outputs).items():
    ours = metric.score(outputs.hypotheses, references)
    theirs = metric.score(baseline, references)
    p = metric.paired_p([outputs.hypotheses], [baseline], references)
    yield (
      f'{name} {ours.score:.2f} [{_between(ours.interval)}] against '
      f'{theirs.score:.2f} [{_between(theirs.interval)}]: '
      f'{ours.score - theirs.score:+.2f}, p = {p:.4f}  '
      + metric.signature.replace('nrefs:1', f'nrefs:1|{test}')
    )


def _between(interval: Sequence[float]) -> str:
  return f'{interval[0]:.2f}, {interval[1]:.2f}'


def score_files(
  hypotheses: pathlib.Path,
  references: pathlib.Path,
  baseline: pathlib.Path | None,
  language: str,
  tokenized: bool,
) -> Iterator[str]:
  """Yields the scores of a file of translations, and its comparison with a baseline.

  Raises:
    UserError: a file is not UTF-8, or has not one line for each reference.
  """
  if not tokenized and not moses.has_rules(language):
    print(
      f'no abbreviations of {language} are known, so English ones count',
      file=sys.stderr,
    )
  if not tokenized and not moses.is_faithful(language):
    print(
      f"paper_bleu lacks some of the Moses script's rules for {language}; sacrebleu "
      'does not need them',
      file=sys.stderr,
    )
  expected = bleu.read_lines(references)
  texts = []
  for path in filter(None, (hypotheses, baseline)):
    lines = bleu.read_lines(path)
    bleu.check_lines(path, lines, references, expected)
    texts.append(lines)
  outputs = SystemOutput(texts[0], expected, language, tokenized)
  yield from score_lines(kind(outputs), score(outputs))
  if baseline is not None:
    yield from comparison_lines(outputs, texts[1])
