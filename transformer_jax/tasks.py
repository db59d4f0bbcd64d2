"""The tasks that a config can choose: the core gets one of them as an argument."""

from collections.abc import Callable

from ml_collections import ConfigDict

from transformer_jax.config import KEYS, Tag, values
from transformer_jax.data import sources, vocabulary, wmt14
from transformer_jax.data.task import Scorer, Task
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing.task import PARSING
from transformer_jax.runs.result import BLEUS
from transformer_jax.scoring import bleu


def _target(config: ConfigDict) -> Callable[[str], str]:
  """Returns a function that leaves a line as it is; raises for a setting of trees."""
  for name, value in values(config.to_dict(), Tag.TREES).items():
    if value != KEYS[name].base:
      raise UserError(f'--config.{name}={value}: only trees have such lines')
  return lambda line: line


TRANSLATION = Task(
  name='translation',
  readers={
    'wmt14': wmt14.read_splits,
    'files': sources.from_files,
    'embedded': sources.embedded,
  },
  target=_target,
  learners=vocabulary.learners,
  source=lambda _: lambda line: line,
  # A model can write the end of a line: in byte pieces, or because its corpus has it.
  finish=lambda line, output: (' '.join(output.splitlines()), True),
  scorer=Scorer(
    has_bleu=True,
    check=lambda tokenized, language: bleu.sacrebleu(language, tokenized),
    references=lambda sources, targets: [*targets],
    score=lambda outputs: {'text': bleu.kind(outputs), **bleu.score(outputs)},
    score_lines=lambda scores: bleu.score_lines(
      scores['text'], {name: scores[name] for name in BLEUS}
    ),
    comparison_lines=bleu.comparison_lines,
  ),
  constraint=None,
  section=None,
)

TASKS = {task.name: task for task in (TRANSLATION, PARSING)}


def task_of(config: ConfigDict) -> Task:
  """Returns the task that a config chooses.

  Raises UserError if there is none, or it lacks BLEU or a constraint that the config
  needs.
  """
  if config.task not in TASKS:
    known = ' or '.join(map(repr, TASKS))
    raise UserError(f'task={config.task!r}: {known} (--config.task)')
  task = TASKS[config.task]
  if config.best_by == 'bleu' and not task.scorer.has_bleu:
    raise UserError(
      f"best_by=bleu: {task.name} has no BLEU; take 'perplexity' (--config.best_by)"
    )
  if config.constrained and task.constraint is None:
    raise UserError(
      f'constrained=True: {task.name} has no constraint; take False '
      '(--config.constrained)'
    )
  return task
