"""The tasks that a config can choose.

A task is a Reader, which prepares its text, and an Output, which the core gets as an
argument.
"""

from collections.abc import Callable

from ml_collections import ConfigDict

from transformer_jax.config import KEYS, Tag, values
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing.task import TREES
from transformer_jax.prepare import prepare, sources, wmt14
from transformer_jax.prepare.sources import Reader
from transformer_jax.scoring import bleu, translations
from transformer_jax.scoring.output import Output, Scorer


def _target(config: ConfigDict) -> Callable[[str], str]:
  """Returns a function that leaves a line as it is; raises for a setting of trees."""
  for name, value in values(config.to_dict(), Tag.TREES).items():
    if value != KEYS[name].base:
      raise UserError(f'--config.{name}={value}: only trees have such lines')
  return lambda line: line


TRANSLATION = Output(
  name='translation',
  target=_target,
  source=lambda _: lambda line: line,
  # A model can generate a line break: in byte pieces, or because its corpus has one.
  finish=lambda line, output: (' '.join(output.splitlines()), True),
  scorer=Scorer(
    has_bleu=True,
    check=lambda tokenized, language: bleu.sacrebleu(language, tokenized),
    references=lambda sources, targets: [*targets],
    score=lambda outputs: {
      'text': translations.kind(outputs),
      'scores': translations.score(outputs),
    },
    score_lines=lambda fields: translations.score_lines(
      fields['text'], fields['scores']
    ),
    comparison_lines=translations.comparison_lines,
  ),
  constraint=None,
  section=None,
)

LINES = Reader(
  output=TRANSLATION,
  readers={
    'wmt14': wmt14.read_splits,
    'files': sources.from_files,
    'embedded': sources.embedded,
  },
  learners=prepare.learners,
)

READERS = {reader.output.name: reader for reader in (LINES, TREES)}
OUTPUTS = {name: reader.output for name, reader in READERS.items()}


def reader_of(config: ConfigDict) -> Reader:
  """Returns the reader of the task that a config chooses.

  Raises UserError if there is no such task, or it lacks BLEU, a constraint or a
  vocabulary of the target that the config needs.
  """
  if config.task not in READERS:
    known = ' or '.join(map(repr, READERS))
    raise UserError(f'task={config.task!r}: {known} (--config.task)')
  reader = READERS[config.task]
  if config.best_by == 'bleu' and not reader.output.scorer.has_bleu:
    raise UserError(
      f"best_by=bleu: {config.task} has no BLEU; take 'perplexity' (--config.best_by)"
    )
  if config.constrained and reader.output.constraint is None:
    raise UserError(
      f'constrained=True: {config.task} has no constraint; take False '
      '(--config.constrained)'
    )
  if config.constrained and not config.model.target_vocab_size:
    raise UserError(
      'constrained=True needs a vocabulary of the target alone: give '
      '--config.model.target_vocab_size, or take False (--config.constrained)'
    )
  return reader


def output_of(config: ConfigDict) -> Output:
  """Returns the output of the task that a config chooses; errors as reader_of()."""
  return reader_of(config).output
