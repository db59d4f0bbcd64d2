"""Checkpoints: Orbax writes and keeps them, a manifest of sha256 sums checks them.

`checkpoints/STEP/` holds `params/`, `optimizer/` and `manifest.json`. Orbax writes it
under another name and renames it when all of it is on the disk, with the manifest. It
does not notice a flipped byte, so every file is compared with the manifest before it is
restored. Only the first host's process reads and writes here.

In an exported run, `params/` holds one safetensors file, and `optimizer/` is absent.
"""

import errno
import json
import pathlib
import shutil
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.typing import DTypeLike
from jaxtyping import PyTree
from orbax.checkpoint import checkpoint_managers as policies
from safetensors import numpy as safetensors

from transformer_jax.machine import files
from transformer_jax.machine.devices import to_host
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.run import (
  ARRAYS,
  MANIFEST,
  exported_steps,
  finished_steps,
  folder_steps,
)
from transformer_jax.training.step import TrainState

PARTS = 'params', 'optimizer'
DELETED = 'deleted'  # a folder of checkpoints that are being deleted
# Two habits of Orbax that it does not document; pyproject.toml pins its minor version,
# and a test fails if they change: it writes to a folder STEP + PARTIAL, and after the
# manifest it adds an empty file COMMIT_MARK.
PARTIAL, COMMIT_MARK = '.orbax-checkpoint-tmp*', 'commit_success.txt'
# Without this, Orbax would wait for the other hosts.
FIRST_HOST = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})


class DamagedCheckpoint(UserError):
  """A checkpoint's files are not those that its manifest lists."""


class SaveError(UserError):
  """A checkpoint could not be written."""


class Writer:
  """Writes checkpoints in the background, one at a time.

  It keeps the newest checkpoint, the one of step best(), and the last `keep` at
  multiples of `every` steps, to average (runs/run.py). It calls `on_finished` with the
  step of each finished checkpoint. If one could not be written, the next call of
  save(), check() or finish() raises SaveError. As a context manager it waits for the
  last one.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    every: int,
    keep: int,
    on_finished: Callable[[int], None] = lambda step: None,
    best: Callable[[], int | None] = lambda: None,
  ):
    """Deletes leftovers of killed processes. The caller must hold the run's lock."""
    self._folder, self._on_finished = folder.absolute(), on_finished
    self._step: int | None = None  # of the checkpoint that is being written
    self._folder.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(self._folder / DELETED, ignore_errors=True)
    policy = policies.AnyPreservationPolicy(
      [policies.LatestN(1), policies.EveryNSteps(every, max_to_keep=keep), _Best(best)]
    )
    self._manager = ocp.CheckpointManager(
      self._folder,
      options=ocp.CheckpointManagerOptions(
        create=False,
        cleanup_tmp_directories=True,
        # A half-deleted checkpoint must not look like a whole one.
        todelete_subdir=DELETED,
        save_root_metadata=False,
        multiprocessing_options=FIRST_HOST,
        preservation_policy=policy,
        async_options=ocp.AsyncOptions(post_finalization_callback=self._add_manifest),
      ),
    )

  def __enter__(self) -> 'Writer':
    self._excepthook, sys.excepthook = sys.excepthook, self._report_uncaught
    return self

  def __exit__(self, kind: type | None, *_: object) -> None:
    if kind is None:
      self.finish()
      self._manager.close()
      sys.excepthook = self._excepthook
    else:
      self.newest()  # waits; the error that ends the training tells more

  def _report_uncaught(
    self, kind: type[BaseException], error: BaseException, trace: TracebackType | None
  ) -> None:
    """Prints an error that nothing caught, but for those that a failed save leaves.

    TensorStore's threads report each array to Orbax's event loop, which the first error
    has ended. Each would print a traceback, beside the line that tells of the error.
    """
    if str(error) != 'Event loop is closed':
      self._excepthook(kind, error, trace)

  def save(self, step: int, params: PyTree, opt_state: PyTree) -> None:
    """Waits for the last checkpoint, copies the arrays and starts to write them."""
    self.finish()
    trees = zip(PARTS, to_host((params, opt_state)), strict=True)
    items = {name: ocp.args.StandardSave(tree) for name, tree in trees}
    self._step = step
    try:
      with files.with_filename(self._folder / str(step)):
        self._manager.save(step, args=ocp.args.Composite(**items), force=True)
    except (OSError, ValueError) as error:
      raise self._save_error(step, error) from error

  def _add_manifest(self) -> None:
    """Writes the manifest. Orbax calls this before it renames the finished folder."""
    (partial,) = self._folder.glob(f'{self._step}{PARTIAL}')
    manifest = {'step': self._step, 'sha256': checksums(partial, PARTS)}
    files.write(partial / MANIFEST, files.as_json(manifest, indent=1))
    for path in (partial, *partial.rglob('*')):
      files.sync(path)

  def check(self) -> None:
    """Calls finish() if the last checkpoint is written, and otherwise does nothing."""
    if self._step is not None and not self._manager.is_saving_in_progress():
      self.finish()

  def finish(self) -> None:
    """Waits for the checkpoint that is being written, and calls `on_finished`."""
    if (step := self._wait()) is not None:
      self._on_finished(step)

  def _wait(self) -> int | None:
    """Waits for the checkpoint that is being written; returns its step, or None."""
    if (step := self._step) is None:
      return None
    try:
      with files.with_filename(self._folder / str(step)):
        self._manager.wait_until_finished()
      files.sync(self._folder)
      shutil.rmtree(self._folder / DELETED, ignore_errors=True)
    except Exception as error:  # of any kind: it comes from Orbax's threads
      raise self._save_error(step, error) from error
    finally:
      self._step = None
    return step

  def newest(self) -> str:
    """Waits; returns a sentence that names the newest checkpoint.

    If the last one could not be written, the sentence also says why. A signal's handler
    may call this within a print(), so it neither prints nor calls `on_finished`.
    """
    try:
      self._wait()
    except SaveError as error:
      return str(error)
    steps = finished_steps(self._folder)
    newest = self._folder / str(steps[-1]) if steps else 'none'
    return f'The newest checkpoint: {newest}'

  def _save_error(self, step: int, error: Exception) -> SaveError:
    self._step = None
    why: object = error
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
      why = error.strerror
    return SaveError(f'saving {self._folder / str(step)}: {why}. {self.newest()}')


class _Best(NamedTuple):
  """Keeps the best checkpoint, whose step changes; an Orbax preservation policy."""

  best: Callable[[], int | None]

  def should_preserve(
    self, checkpoints: Sequence[policies.PolicyCheckpointInfo], *, context: object
  ) -> list[bool]:
    best = self.best()
    return [checkpoint.step == best for checkpoint in checkpoints]


def try_folder(folder: pathlib.Path) -> None:
  """Writes a checkpoint of one number and reads it, before hours of training.

  When it writes, Orbax takes `[12]` or a backslash in the path for a pattern. It then
  does not read what it wrote.

  Raises:
    UserError: a checkpoint cannot be written there and read back.
  """
  folder = folder.absolute()
  trial = folder / 'trial'
  try:
    # Refused here and not by Orbax, whose threads would keep the process from ending.
    files.ensure_writable(folder)
    with ocp.StandardCheckpointer(multiprocessing_options=FIRST_HOST) as writer:
      writer.save(trial, {'x': np.zeros(1)}, force=True)
      writer.wait_until_finished()
      writer.restore(trial, {'x': np.zeros(1)})
    shutil.rmtree(trial)
  except (OSError, ValueError) as error:
    shutil.rmtree(trial, ignore_errors=True)
    raise UserError(
      f'{folder}: no checkpoint can be written there and read again ({error}): give '
      'another --workdir'
    ) from error


def checksums(path: pathlib.Path, parts: Sequence[str]) -> dict[str, str]:
  """Returns the sha256 of every file below path/PART, by its name below `path`."""
  below = (file for part in parts for file in sorted((path / part).rglob('*')))
  return {
    file.relative_to(path).as_posix(): files.sha256(file)
    for file in below
    if file.is_file() and file.name != COMMIT_MARK
  }


def verify(
  folder: pathlib.Path, step: int, parts: Sequence[str] = PARTS
) -> pathlib.Path:
  """Compares the files of some parts with the manifest; returns the step's folder.

  Raises:
    DamagedCheckpoint: a file differs, is missing or is not in the manifest; the error
      names it.
    OSError: a file could not be read. The checkpoint may be good.
  """
  path = folder.absolute() / str(step)
  try:
    manifest = json.loads((path / MANIFEST).read_bytes())
    manifest_step, expected = manifest['step'], dict(manifest['sha256'])
  except (ValueError, KeyError, TypeError, FileNotFoundError) as error:
    raise DamagedCheckpoint(f'{path}: damaged: {MANIFEST} ({error})') from error
  if manifest_step != step:
    raise DamagedCheckpoint(
      f'{path}: damaged: its {MANIFEST} is of step {manifest_step}'
    )
  sums = checksums(path, parts)
  expected = {f: expected[f] for f in expected if f.split('/')[0] in parts}
  mismatches = sorted(
    f for f in expected.keys() | sums if expected.get(f) != sums.get(f)
  )
  if mismatches or not expected:
    raise DamagedCheckpoint(f'{path}: damaged or missing: {", ".join(mismatches)}')
  return path


def restore(
  folder: pathlib.Path, step: int, params: PyTree, opt_state: PyTree
) -> TrainState:
  """Returns what a checkpoint holds, as host arrays.

  Args:
    params, opt_state: trees of the same structure, of arrays or of their shapes.

  Raises:
    DamagedCheckpoint, OSError: see verify().
    UserError: the model has other parameters, or other shapes.
  """
  path = verify(folder, step)
  trees = map(_read, (path / part for part in PARTS), (params, opt_state))
  return TrainState(jnp.int32(step), *trees)


def restore_newest(
  folder: pathlib.Path, params: PyTree, opt_state: PyTree
) -> TrainState | None:
  """Returns the newest checkpoint that is not damaged, or None without checkpoints.

  It renames newer, damaged ones and says so on stderr. They are then neither counted
  nor averaged. The caller must hold the run's lock.

  Raises:
    DamagedCheckpoint: all checkpoints are damaged.
    OSError, UserError: see restore().
  """
  state, damaged = None, []
  for step in reversed(folder_steps(folder)):
    try:
      state = restore(folder, step, params, opt_state)
      break
    except DamagedCheckpoint as error:
      print(f'{error}; trying the one before', file=sys.stderr, flush=True)
      damaged.append(folder / str(step))
  if damaged and state is None:
    raise DamagedCheckpoint(
      f'{folder}: all checkpoints are damaged: put a good one back, or give another '
      '--workdir to train anew'
    )
  for path in damaged:
    renamed = path.with_name(f'{path.name}.damaged')
    shutil.rmtree(renamed, ignore_errors=True)  # the same step was damaged before
    path.rename(renamed)
    print(f'{path} is renamed {renamed.name}: delete it when you like', file=sys.stderr)
  return state


def restore_params(folder: pathlib.Path, step: int, params: PyTree) -> PyTree:
  """Returns a checkpoint's parameters as host arrays; raises what restore() does."""
  return _read(verify(folder, step, PARTS[:1]) / PARTS[0], params)


def average(folder: pathlib.Path, steps: Sequence[int], params: PyTree) -> PyTree:
  """Returns the mean of some steps' parameters (section 6.1), as float32 host arrays.

  The sum is in float64. An exported run holds the mean, and `steps` is its steps.
  restore() explains `params` and the errors.
  """
  remedy = 'put it back, or choose others by --average and --step'
  if exported_steps(folder):
    steps, remedy = steps[-1:], 'put it back'
  add = lambda total, x: total + x.astype(np.float64)
  total = jax.tree.map(lambda x: np.zeros(x.shape, np.float64), params)
  for step in steps:
    try:
      step_params = restore_params(folder, step, params)
    except DamagedCheckpoint as error:
      raise DamagedCheckpoint(f'{error}: {remedy}') from error
    total = jax.tree.map(add, total, step_params)
  return jax.tree.map(lambda x: (x / len(steps)).astype(np.float32), total)


def average_kept(
  folder: pathlib.Path,
  steps: list[int],
  choose: Callable[[], list[int]],
  params: PyTree,
) -> tuple[list[int], PyTree]:
  """Returns the steps that it averages, and their average().

  These are `steps`, if all are still there. A training that goes on deletes
  checkpoints. If it has deleted one of them, choose() returns others. Errors are those
  of both functions.
  """
  while True:
    try:
      return steps, average(folder, steps, params)
    except (UserError, OSError):
      before, steps = steps, choose()
      if steps == before:
        raise


def _read(path: pathlib.Path, example: PyTree) -> PyTree:
  """Returns the arrays of one part of a checkpoint, in a tree like `example`."""
  wrong_model = f'{path}: it is of another model than config.model'
  named = _named(example)
  shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), example)
  try:
    if (path / ARRAYS).is_file():
      arrays = safetensors.load_file(path / ARRAYS)
      if differ := arrays.keys() ^ named.keys():
        raise ValueError(', '.join(sorted(differ)))
      leaves = [np.asarray(arrays[name], x.dtype) for name, x in named.items()]
    else:
      with ocp.StandardCheckpointer(multiprocessing_options=FIRST_HOST) as reader:
        leaves = jax.tree.leaves(reader.restore(path, shapes))
  except ValueError as error:  # other names
    raise UserError(f'{wrong_model} ({error})') from error
  for (name, ours), theirs in zip(named.items(), leaves, strict=True):
    if ours.shape != theirs.shape:  # Orbax does not compare them
      raise UserError(f'{wrong_model}: {name} is {theirs.shape}, not {ours.shape}')
  return jax.tree.unflatten(jax.tree.structure(example), leaves)


def export(
  folder: pathlib.Path, steps: Sequence[int], params: PyTree, dtype: DTypeLike
) -> None:
  """Writes the checkpoint of an exported run: the average of `steps`, in `dtype`."""
  path = folder / str(steps[-1])
  (path / PARTS[0]).mkdir(parents=True)
  arrays = {name: np.asarray(x, dtype) for name, x in _named(params).items()}
  (path / PARTS[0] / ARRAYS).write_bytes(safetensors.save(arrays))
  sums = checksums(path, PARTS[:1])
  files.write_json(
    path / MANIFEST, {'step': steps[-1], 'averaged': steps, 'sha256': sums}
  )


def _named(tree: PyTree) -> dict[str, Any]:
  """Returns the leaves by dotted names, such as encoder.0.attention.query."""
  leaves = jax.tree_util.tree_leaves_with_path(tree)
  name = lambda path: jax.tree_util.keystr(path, simple=True, separator='.')
  return {name(path): leaf for path, leaf in leaves}
