"""Where a training starts that goes on from another run's model: fine-tuning."""

import operator
import pathlib
from collections.abc import Sequence

import ml_collections

from transformer_jax.data.corpus import TREES_ALONE, name_apart
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.runs import config_checks
from transformer_jax.runs.checkpoints import MANIFEST, steps
from transformer_jax.runs.run import Run

# Keys of the model that may differ from the run's: dropout, which belongs to training,
# and the vocabulary sizes, which are replaced by the run's.
VOCABULARIES = {'vocab_size', 'target_vocab_size'}
FREE = {'P_drop', 'P_drop_attention'} | VOCABULARIES


def start_from(
  config: ml_collections.ConfigDict, origin: pathlib.Path, workdir: pathlib.Path
) -> None:
  """Makes a config start from the newest checkpoint of a run, with its vocabularies.

  A run in `workdir` that started there before keeps the checkpoint that it had.

  Raises:
    UserError: `origin` is no run with a checkpoint, is of another task or writes trees
      otherwise, or its model has other sizes than the config's.
  """
  run, plain = Run(origin), config.copy_and_resolve_references()
  theirs = run.config()
  if theirs.task != config.task:
    raise UserError(
      f'{origin} is a run of {theirs.task}, and the config of {config.task}'
    )
  lines = [f'data.{name}' for name in sorted(TREES_ALONE)]
  _check_same(lines, config, theirs, f'{origin} reads or writes otherwise')
  names = [f'model.{name}' for name in sorted(config_checks.MODEL - FREE)]
  _check_same(names, config, theirs, f'{origin} has a model of other sizes')
  config.init_from.run = str(origin.resolve())
  sums = (words.sha256 for words in run.vocabularies())
  config.init_from.vocabulary = ' '.join(dict.fromkeys(sums))
  config.model.update({name: theirs.model[name] for name in VOCABULARIES})
  name_apart(config, plain, ())  # another vocabulary encodes its corpus
  begun = Run(workdir)
  if begun.has_begun:
    before = begun.config().init_from
    if before.run == config.init_from.run:
      config.init_from.update(step=before.step, sha256=before.sha256)
      return
  there = steps(run.checkpoints)
  if not there:
    raise UserError(f'{run.checkpoints}: no finished checkpoint to start from')
  config.init_from.step = there[-1]
  config.init_from.sha256 = files.sha256(_manifest(run, there[-1]))


def check_origin(origin: ml_collections.ConfigDict) -> tuple[Run, int]:
  """The run and the step that a config's `init_from` names.

  Raises:
    UserError: the checkpoint is not there, or is another than it was.
  """
  run = Run(pathlib.Path(origin.run))
  path = _manifest(run, origin.step)
  if not path.is_file() or files.sha256(path) != origin.sha256:
    raise UserError(
      f'{path.parent} is not there, or not the checkpoint that this run was to start '
      'from: put it back, or begin a new run (--init_from, another --workdir)'
    )
  return run, origin.step


def _manifest(run: Run, step: int) -> pathlib.Path:
  return run.checkpoints / str(step) / MANIFEST


def _check_same(
  names: Sequence[str],
  config: ml_collections.ConfigDict,
  theirs: ml_collections.ConfigDict,
  otherwise: str,
) -> None:
  """Raises UserError if two configs have other values under dotted names."""
  wanted = {name: operator.attrgetter(name)(theirs) for name in names}
  differ = [name for name in names if operator.attrgetter(name)(config) != wanted[name]]
  if differ:
    give = ' '.join(f'--config.{name}={wanted[name]}' for name in differ)
    raise UserError(f'{otherwise} ({", ".join(differ)}) than the config: give {give}')
