"""BLEU of a text against its references, with intervals, and a test of two texts.

The text may be a run's translations, or files that were translated anywhere.
"""

import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence

from transformer_jax.data.task import Outputs
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.scoring import bleu, moses, significance
from transformer_jax.scoring.score import Score


def kind(outputs: Outputs) -> str:
  """What is scored: a signature does not tell that text has no capitals."""
  kind = 'tokens as given' if outputs.tokenized else 'detokenised'
  return kind + (', lower-cased' if '\n'.join(outputs.references).islower() else '')


def score(outputs: Outputs) -> dict[str, Score]:
  """`sacrebleu` and `paper_bleu` of a text."""
  hypotheses, references, language, tokenized, lowercase = outputs[:5]
  sacre = bleu.sacre_bleu(hypotheses, references, lowercase, tokenized, language)
  if tokenized:
    paper = bleu.tokenized_bleu(hypotheses, references, lowercase)
  else:
    paper = bleu.paper_bleu(hypotheses, references, language, lowercase)
  intervals = significance.bootstrap_intervals(
    hypotheses, references, language, tokenized, lowercase
  )
  found = {}
  for kind, one in (('sacrebleu', sacre), ('paper_bleu', paper)):
    interval = [round(end, 4) for end in intervals[kind]]
    found[kind] = Score(one.score, one.signature, interval)
  return found


def score_lines(kind: str, scores: Mapping[str, Score]) -> Iterator[str]:
  """The scores for a reader; `kind` is that of the text."""
  for name, one in scores.items():
    yield f'{name} {one.score:.2f}  {one.signature}'
    yield f'  95 % interval: {_between(one.interval)}'
  if kind != 'detokenised':
    yield f'of {kind}: to be compared with scores of the same text alone'


def comparison_lines(outputs: Outputs, baseline: Sequence[str]) -> Iterator[str]:
  """How much better a text is than other hypotheses, by paired bootstrap."""
  paired = significance.paired_bootstrap(
    outputs.hypotheses,
    baseline,
    outputs.references,
    outputs.language,
    outputs.tokenized,
    outputs.lowercase,
  )
  for kind, found in paired.items():
    yield (
      f'{kind} {found.score:.2f} [{_between(found.interval)}] against '
      f'{found.baseline:.2f} [{_between(found.baseline_interval)}]: '
      f'{found.score - found.baseline:+.2f}, p = {found.p:.4f}  {found.signature}'
    )


def read_lines(path: pathlib.Path) -> list[str]:
  """A file's lines, which end in LF or CRLF; the last may lack its end.

  Raises:
    UserError: the file cannot be read, or is not UTF-8.
  """
  try:
    content = files.read_bytes(path).decode('utf-8-sig')
  except (OSError, UnicodeDecodeError) as error:
    raise UserError(f'{path}: {error}') from error
  lines = content.removesuffix('\n').split('\n') if content else []
  return [line.removesuffix('\r') for line in lines]


def score_files(
  hypotheses: pathlib.Path,
  references: pathlib.Path,
  baseline: pathlib.Path | None,
  language: str,
  tokenized: bool,
  lowercase: bool,
) -> Iterator[str]:
  """Scores a file of translations, and compares it with `baseline` if there is one.

  Raises:
    UserError: a file cannot be read, or has not one line for each reference.
  """
  if not tokenized and not moses.has_rules(language):
    print(f'no abbreviations of {language} are known: English ones', file=sys.stderr)
  if not tokenized and not moses.is_faithful(language):
    print(
      f"paper_bleu lacks some of the Moses script's rules for {language}; sacrebleu "
      'does not need them',
      file=sys.stderr,
    )
  expected = read_lines(references)
  found = []
  for path in filter(None, (hypotheses, baseline)):
    lines = read_lines(path)
    if len(lines) != len(expected) or not lines:
      raise UserError(
        f'{path} has {len(lines)} lines, {references} has {len(expected)}: '
        'a translation has one line for each of the references'
      )
    found.append(lines)
  outputs = Outputs(found[0], expected, language, tokenized, lowercase)
  yield from score_lines(kind(outputs), score(outputs))
  if baseline is not None:
    yield from comparison_lines(outputs, found[1])


def _between(interval: Sequence[float]) -> str:
  return f'{interval[0]:.2f}, {interval[1]:.2f}'
