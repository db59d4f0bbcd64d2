"""Checkpoints come back bit for bit; a damaged one is named, and never used."""

import errno
import json
import pathlib
import random
import shutil
import sys
from typing import Any
from unittest import mock

import jax
import numpy as np
import pytest

from toy import checkpoints
from toy.runs import state_shapes
from toy.steps import tiny_config
from transformer_jax.machine.errors import UserError
from transformer_jax.training import checkpoint
from transformer_jax.training.checkpoint import DamagedCheckpoint, Writer


def trees(seed: int) -> tuple[dict, tuple]:
  """Parameters and an optimizer state with every kind of leaf that training has."""
  rng = np.random.default_rng(seed)
  draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
  odd = np.array([np.pi, -0.0, np.inf, np.nan, 1e-45, 3e38], np.float32)
  params = {'layers': {0: {'w': draw(7, 5)}, 1: {'w': draw(7, 5)}}, 'odd': odd}
  return params, (np.int32(seed), {'mu': jax.tree.map(np.copy, params)})


def bits(tree: Any) -> list[tuple]:
  return [
    (jax.tree_util.keystr(path), np.asarray(x).dtype, np.asarray(x).tobytes())
    for path, x in jax.tree_util.tree_leaves_with_path(tree)
  ]


@pytest.fixture(scope='module')
def kept(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """Checkpoints 1, 2 and 3; tests that do damage copy them (fixture `folder`)."""
  folder = tmp_path_factory.mktemp('run') / 'checkpoints'
  for step in (1, 2, 3):
    checkpoints.save(folder, step, *trees(step))
  return folder


@pytest.fixture
def folder(kept: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
  return shutil.copytree(kept, tmp_path / 'checkpoints')


def files(folder: pathlib.Path, step: int) -> list[pathlib.Path]:
  """Returns the files in the step's manifest."""
  listed = json.loads((folder / str(step) / checkpoint.MANIFEST).read_bytes())['sha256']
  return [folder / str(step) / name for name in listed]


def names(folder: pathlib.Path) -> list[str]:
  return sorted(path.name for path in folder.iterdir())


def test_average(folder: pathlib.Path):
  """The mean of known trees, rounded once to float32; none of a damaged one."""
  example = trees(9)[0]
  actual = checkpoint.average(folder, [1, 2, 3], example)
  rows = [trees(step)[0]['layers'] for step in (1, 2, 3)]
  exact = jax.tree.map(lambda *x: np.mean(np.float64(x), 0).astype(np.float32), *rows)
  jax.tree.map(np.testing.assert_array_equal, actual['layers'], exact)
  (folder / '2' / 'params').rename(folder / 'elsewhere')
  with pytest.raises(DamagedCheckpoint, match='2: damaged .*: params.* by --average'):
    checkpoint.average(folder, [1, 2, 3], example)


def test_an_export_is_the_average(tmp_path: pathlib.Path):
  """Without the optimizer; of any steps it is the same, and no other model's."""
  params, other = (trees(seed)[0] | {'odd': np.ones(3, np.float32)} for seed in (1, 9))
  checkpoint.export(tmp_path, [1, 3], params, np.float32)
  one = checkpoint.restore_params(tmp_path, 3, other)
  mean = checkpoint.average(tmp_path, [1, 3], other)
  assert bits(one) == bits(mean) == bits(params)
  with pytest.raises(UserError, match='another model than config.model.*more'):
    checkpoint.average(tmp_path, [1, 3], other | {'more': other['odd']})


def test_a_training_deletes_what_is_averaged(folder: pathlib.Path):
  """Others are chosen; the error stands if they are the same."""
  example, again = trees(9)[0], []
  shutil.rmtree(folder / '1')
  choose = lambda: again.append(1) or [2, 3]
  steps, params = checkpoint.average_kept(folder, [1, 2], choose, example)
  assert steps == [2, 3] and again == [1]
  assert bits(params) == bits(checkpoint.average(folder, [2, 3], example))
  shutil.rmtree(folder / '3')
  with pytest.raises(DamagedCheckpoint, match='3: damaged'):
    checkpoint.average_kept(folder, [2, 3], choose, example)


def flip(path: pathlib.Path, rng: random.Random) -> None:
  content = bytearray(path.read_bytes())
  content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
  path.write_bytes(content)


def test_a_flipped_bit_anywhere_is_found(folder: pathlib.Path):
  """In every file of the step, at random bytes; so is a file too many."""
  rng = random.Random(0)
  for path in files(folder, 3):
    whole = path.read_bytes()
    for _ in range(8 if whole else 0):
      flip(path, rng)
      with pytest.raises(DamagedCheckpoint, match='damaged or missing') as caught:
        checkpoint.verify(folder, 3)
      assert path.relative_to(folder / '3').as_posix() in str(caught.value)
      path.write_bytes(whole)
  (folder / '3' / 'params' / 'new').write_bytes(b'x')
  with pytest.raises(DamagedCheckpoint, match='damaged or missing: params/new'):
    checkpoint.verify(folder, 3)


def test_what_cannot_be_read_is_not_damaged(folder: pathlib.Path, monkeypatch):
  """A disk that fails for a moment costs no checkpoint."""
  error = OSError(errno.EIO, 'Input/output error')
  monkeypatch.setattr(checkpoint, 'checksums', mock.Mock(side_effect=error))
  with pytest.raises(OSError, match='Input/output'):
    checkpoint.restore_newest(folder, *trees(9))
  assert names(folder) == ['1', '2', '3']


def test_a_damaged_manifest_is_a_damaged_checkpoint(folder: pathlib.Path):
  path = folder / '3' / checkpoint.MANIFEST
  other = (folder / '1' / checkpoint.MANIFEST).read_bytes()
  for content in (b'', path.read_bytes()[:-30], b'\xff\xfe', b'{}', b'null', other):
    path.write_bytes(content)
    with pytest.raises(DamagedCheckpoint, match=r'3: damaged: .*manifest\.json'):
      checkpoint.average(folder, [1, 3], trees(9)[0])


def test_a_damaged_checkpoint_is_skipped(folder: pathlib.Path, capsys):
  """The file is named; the arrays are the earlier checkpoint's, bit for bit."""
  for seed in (3, 4):  # the second time there is a 3.damaged
    path = max(files(folder, 3), key=lambda path: path.stat().st_size)
    flip(path, random.Random(seed))
    restored = checkpoint.restore_newest(folder, *trees(9))
    assert restored.step == 2 and bits(restored[1:]) == bits(trees(2))
    said = capsys.readouterr().err
    assert path.name in said and f'{folder / "3"} is renamed 3.damaged' in said
    assert names(folder) == ['1', '2', '3.damaged']
    checkpoints.save(folder, 3, *trees(4))
  assert bits(checkpoint.restore_newest(folder, *trees(9)).params) == bits(trees(4)[0])


def test_training_does_not_restart_if_all_are_damaged(folder: pathlib.Path):
  """No checkpoint is renamed: the next start would see none, and train from step 0."""
  for step in (1, 2, 3):
    flip(files(folder, step)[-1], random.Random(step))
  for _ in range(2):
    with pytest.raises(DamagedCheckpoint, match='all checkpoints are damaged'):
      checkpoint.restore_newest(folder, *trees(9))
  assert checkpoint.finished_steps(folder) == [1, 2, 3]
  assert checkpoint.restore_newest(folder / 'nowhere', *trees(9)) is None


def test_a_checkpoint_of_another_model_is_refused(tmp_path: pathlib.Path):
  """Also if both have as many parameters; nothing is renamed or written."""
  zeros = lambda tree: jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), tree)
  ours = state_shapes(tiny_config())
  checkpoints.save(tmp_path, 1, *zeros(ours))
  assert checkpoint.restore_newest(tmp_path, *ours).step == 1
  for changes, name in (
    ({'h': 4, 'd_k': 4, 'd_v': 4}, 'attention'),
    ({'N': 2}, 'feed_forward_norm'),
  ):
    config = tiny_config()
    config.model.update(changes)
    with pytest.raises(UserError, match=f'another model than config.model.*{name}'):
      checkpoint.restore_newest(tmp_path, *state_shapes(config))
  assert names(tmp_path) == ['1']


def test_the_newest_the_last_and_the_best_are_kept(tmp_path: pathlib.Path):
  """Each has the state of its step, though training uses the memory again at once."""
  saved, (params, opt_state) = [], trees(1)
  with Writer(tmp_path, 10, 2, saved.append, lambda: 20) as writer:
    for step in (10, 15, 20, 30, 40, 45):
      params['layers'][0]['w'][:] = step
      writer.save(step, params, opt_state)
      params['layers'][0]['w'][:] = 0
    assert writer.newest() == f'The newest checkpoint: {tmp_path / "45"}'
  assert saved == [10, 15, 20, 30, 40], 'newest() may log nothing, in a signal handler'
  assert names(tmp_path) == ['20', '30', '40', '45']
  for step in (20, 45):
    restored = checkpoint.restore_params(tmp_path, step, params)
    assert (restored['layers'][0]['w'] == step).all()


def test_unfinished_folders_are_no_checkpoints(folder: pathlib.Path):
  """Half written or half deleted, as a kill leaves them."""
  shutil.copytree(folder / '3', folder / '4.orbax-checkpoint-tmp')
  (folder / checkpoint.DELETED).mkdir()
  shutil.copytree(folder / '3', folder / checkpoint.DELETED / '1')
  (folder / '5').mkdir()
  assert checkpoint.finished_steps(folder) == [1, 2, 3]
  assert checkpoint.restore_newest(folder, *trees(9)).step == 3
  with Writer(folder, 1, 9) as writer:
    writer.save(4, *trees(5))
  assert bits(checkpoint.restore(folder, 4, *trees(9)).params) == bits(trees(5)[0])
  assert names(folder) == ['1', '2', '3', '4', '5.damaged']


def test_a_full_disk_is_one_line(folder: pathlib.Path, monkeypatch, capsys):
  """The next call raises; the older checkpoints stay, and are whole."""
  full, saved = 'No space left on device', []

  def fail(path: pathlib.Path) -> str:
    raise ValueError(f'long text: {full} [and more]')  # as Orbax does

  monkeypatch.setattr(checkpoint.files, 'sha256', fail)  # as the manifest is written
  with pytest.raises(checkpoint.SaveError) as caught:
    with Writer(folder, 10, 1, saved.append) as writer:
      writer.save(20, *trees(4))
      # As TensorStore's threads do, for each array that they have not yet written.
      sys.excepthook(RuntimeError, RuntimeError('Event loop is closed'), None)
      writer.finish()
  monkeypatch.undo()
  newest = f'The newest checkpoint: {folder / "3"}'
  assert str(caught.value) == f'saving {folder / "20"}: {full}. {newest}'
  assert 'Event loop' not in capsys.readouterr().err
  assert saved == [] and checkpoint.finished_steps(folder) == [1, 2, 3]
  checkpoint.verify(folder, 3)
