"""Checkpoints: arrays written by Orbax, and a manifest of sha256 sums to check them by.

`checkpoints/STEP/` holds `params/`, `optimizer/` and `manifest.json`. It is written as
`STEP.partial` and renamed when all of it is on the disk, so a folder named STEP was
written to its end. Orbax does not notice a flipped byte, so every file is compared with
the manifest before it is restored. Only the first host's process reads and writes here.
"""

import json
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from transformer_jax.machine import files
from transformer_jax.machine.devices import to_host
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.checkpoints import (
  ASIDE,
  MANIFEST,
  misnumbered,
  numbered,
  steps,
)

# Suffixes of folders that are not checkpoints: half written, and half deleted by a
# process that was killed.
PARTIAL, DELETED = '.partial', '.deleted'
# What reading a manifest raises where the file is missing, is a folder, or holds
# something else.
NO_MANIFEST = (ValueError, KeyError, TypeError, RecursionError)
NO_MANIFEST += (FileNotFoundError, IsADirectoryError, NotADirectoryError)
# Without this, Orbax would wait for the other hosts.
ALONE = ocp.options.MultiprocessingOptions(primary_host=0, active_processes={0})
Tree = Any


class Damaged(UserError):
  """A checkpoint whose files are not those that its manifest lists."""


class Unsaved(UserError):
  """A checkpoint could not be written."""


class Saved(NamedTuple):
  """What a checkpoint holds, as host arrays."""

  step: int
  params: Tree
  opt_state: Tree


def save(folder: pathlib.Path, step: int, params: Tree, opt_state: Tree) -> None:
  """Writes one checkpoint; returns when it is on the disk, with its manifest.

  Raises:
    OSError: it could not be written; what is there of it is named STEP.partial.
  """
  partial = (folder / f'{step}{PARTIAL}').absolute()
  _remove(partial)
  partial.mkdir(parents=True)
  with ocp.StandardCheckpointer(multiprocessing_options=ALONE) as writer:
    for name, tree in (('params', params), ('optimizer', opt_state)):
      writer.save(partial / name, jax.device_get(tree))
      writer.wait_until_finished()
  manifest = {'step': step, 'sha256': checksums(partial)}
  files.write(partial / MANIFEST, files.as_json(manifest, indent=1))
  for path in _below(partial):
    files.sync(path)
  partial.rename(folder / str(step))
  files.sync(folder)


def prune(folder: pathlib.Path, every: int, keep: int, best: int | None = None) -> None:
  """Keeps `best`, the last `keep` checkpoints at multiples of `every`, and the newest.

  An average takes the newest and multiples of `every` before it (runs.checkpoints). All
  others are deleted.
  """
  there = steps(folder)
  regular = [step for step in there if step % every == 0]
  for step in set(there[:-1]) - set(regular[-keep:]) - {best}:
    _delete(folder / str(step))


def tidy(folder: pathlib.Path) -> None:
  """Deletes what killed processes left; the caller holds the run's lock."""
  for suffix in (PARTIAL, DELETED):
    for path in folder.glob(f'*{suffix}'):
      _remove(path)


def _delete(path: pathlib.Path) -> None:
  """Renames it first: a process killed half way leaves nothing named STEP."""
  deleted = path.with_name(path.name + DELETED)
  _remove(deleted)
  path.rename(deleted)
  _remove(deleted)


def _remove(path: pathlib.Path) -> None:
  """Removes what stands there, if anything does; of a link, what it leads to stays."""
  if path.is_symlink() or path.is_file():
    path.unlink()
  elif path.exists():
    shutil.rmtree(path)


class Writer:
  """Writes checkpoints in a thread while the training goes on, one at a time.

  When one is written, older ones are pruned and `saved` is called with its step. If one
  could not be written, the next call of save(), check() or finish() raises Unsaved. As
  a context manager it waits for the last one.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    every: int,
    keep: int,
    saved: Callable[[int], None],
    best: Callable[[], int | None] = lambda: None,
  ):
    """`best` tells which step is kept in any case, if one is."""
    self._best = best
    self._folder, self._every, self._keep = folder, every, keep
    self._saved = saved
    self._thread = futures.ThreadPoolExecutor(1)
    self._step = 0
    self._pending: futures.Future = futures.Future()
    self._pending.set_result(None)

  def __enter__(self) -> 'Writer':
    return self

  def __exit__(self, *_: object) -> None:
    self._thread.shutdown()

  def save(self, step: int, params: Tree, opt_state: Tree) -> None:
    """Waits for the checkpoint before, copies the arrays and starts writing them."""
    self.finish()
    ours = to_host((params, opt_state))
    self._step = step
    self._pending = self._thread.submit(self._write, step, *ours)

  def _write(self, step: int, params: Tree, opt_state: Tree) -> None:
    save(self._folder, step, params, opt_state)
    prune(self._folder, self._every, self._keep, self._best())
    self._saved(step)

  def check(self) -> None:
    """Raises Unsaved if what was written last could not be."""
    if self._pending.done():
      self.finish()

  def finish(self) -> None:
    """Waits for the checkpoint that is being written."""
    error = self._pending.exception()
    if error is not None:
      shutil.rmtree(self._folder / f'{self._step}{PARTIAL}', ignore_errors=True)
      raise Unsaved(self.newest()) from error

  def newest(self) -> str:
    """Waits as well; says which checkpoint is the newest, and if one failed, why."""
    error, there = self._pending.exception(), steps(self._folder)
    which = self._folder / str(there[-1]) if there else 'none'
    last = self._folder / str(self._step)
    failed = f'{last} could not be written: {error}. '
    if self._step in there:
      failed = f'{last} is written, but what follows a checkpoint failed: {error}. '
    return f'{failed if error else ""}The newest checkpoint: {which}'


def verify(folder: pathlib.Path, step: int, part: str = '') -> None:
  """Makes sure that a step's files are those that were written.

  Args:
    part: of these, a folder whose files are looked at; all files by default.

  Raises:
    Damaged: they are not; those that differ are named.
    OSError: one could not be read, so that it may be right or wrong.
  """
  path = folder / str(step)
  if path.is_symlink():
    raise Damaged(f'{path}: is a link, and no checkpoint')
  try:
    with files.named(path):
      manifest = json.loads((path / MANIFEST).read_bytes())
      written, listed = manifest['step'], dict(manifest['sha256'])
      found = checksums(path, part) if (path / part).is_dir() else {}
  except NO_MANIFEST as error:
    raise Damaged(f'{path}: damaged: {MANIFEST} ({error})') from error
  if written != step:
    raise Damaged(f'{path}: damaged: its {MANIFEST} is of step {written}')
  listed = {name: one for name, one in listed.items() if name.startswith(part)}
  wrong = sorted(f for f in listed.keys() | found if listed.get(f) != found.get(f))
  if wrong:
    raise Damaged(f'{path}: damaged or missing: {", ".join(wrong)}')


def restore(folder: pathlib.Path, step: int, params: Tree, opt_state: Tree) -> Saved:
  """Reads a checkpoint as host arrays.

  Args:
    params, opt_state: trees of the same structure, of arrays or of their shapes.

  Raises:
    Damaged, OSError: as verify() has them.
  """
  verify(folder, step)
  path = folder / str(step)
  return Saved(
    step, _read(path / 'params', params), _read(path / 'optimizer', opt_state)
  )


def restore_newest(folder: pathlib.Path, params: Tree, opt_state: Tree) -> Saved | None:
  """The newest checkpoint that is not damaged; None if there is none at all.

  Damaged ones are named and renamed, so that they are neither counted nor averaged. The
  caller holds the run's lock.

  Raises:
    Damaged: all of them are.
    OSError: a file could not be read, so that it may be right or wrong.
  """
  for name in misnumbered(folder):
    print(f'{folder / name}: is no name of a checkpoint; passed over', flush=True)
  there, refused = numbered(folder), []
  while there:
    step = there.pop()
    try:
      restored = restore(folder, step, params, opt_state)
    except Damaged as error:
      print(f'{error}; trying the one before', flush=True)
      refused.append(step)
      continue
    for bad in refused:
      _set_aside(folder / str(bad))
    return restored
  if refused:
    raise Damaged(
      f'{folder}: no checkpoint there is as it was written: put a good one back, or '
      'start anew: delete that folder, or give another --workdir'
    )
  return None


def _set_aside(path: pathlib.Path) -> None:
  aside = path.with_name(path.name + ASIDE)
  _remove(aside)  # the same step was damaged before
  path.rename(aside)
  print(f'{path} is set aside as {aside}: delete it when you like', flush=True)


def restore_params(folder: pathlib.Path, step: int, params: Tree) -> Tree:
  """The parameters of a checkpoint, as host arrays; it raises what restore() does."""
  verify(folder, step, 'params')
  return _read(folder / str(step) / 'params', params)


def average(folder: pathlib.Path, chosen: list[int], params: Tree) -> Tree:
  """The mean of the parameters of some steps (section 6.1), as float32 host arrays.

  It is summed in float64. `params` and errors are as restore() has them.
  """
  add = lambda total, x: total + x.astype(np.float64)
  total = jax.tree.map(lambda x: np.zeros(x.shape, np.float64), params)
  for step in chosen:
    total = jax.tree.map(add, total, restore_params(folder, step, params))
  return jax.tree.map(lambda x: (x / len(chosen)).astype(np.float32), total)


def _read(path: pathlib.Path, example: Tree) -> Tree:
  target = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), example)
  with ocp.StandardCheckpointer(multiprocessing_options=ALONE) as reader:
    return reader.restore(path.absolute(), target)


def checksums(path: pathlib.Path, part: str = '') -> dict[str, str]:
  """The sha256 of every file below path/part but the manifest, by its place in path."""
  return {
    file.relative_to(path).as_posix(): files.sha256(file)
    for file in sorted(_below(path / part))
    if file.is_file() and file.name != MANIFEST
  }


def _below(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """`path` and all that is in it; raises where rglob would skip what it cannot read."""

  def refuse(error: OSError) -> None:
    raise error

  for folder, _, inside in os.walk(path, onerror=refuse):
    yield pathlib.Path(folder)
    yield from (pathlib.Path(folder, name) for name in inside)
