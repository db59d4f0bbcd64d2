"""Restored is what was saved; the damaged is named, the unfinished is passed over."""

import errno
import json
import os
import pathlib
import random
import shutil
from collections.abc import Callable

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import orbax.checkpoint as ocp
import pytest

from configs import base
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.run import Run, chosen_steps
from transformer_jax.training import checkpoint
from transformer_jax.training.checkpoint import Damaged

Tree = dict


def trees(seed: int) -> tuple[Tree, tuple]:
  """Parameters and an optimizer state with every kind of leaf that training has."""
  rng = np.random.default_rng(seed)
  draw = lambda *shape: rng.normal(size=shape).astype(np.float32)
  odd = np.array([np.pi, -0.0, np.inf, np.nan, 1e-45, 3e38], np.float32)
  params = {'layers': {0: {'w': draw(7, 5)}, 1: {'w': draw(7, 5)}}, 'odd': odd}
  return params, (np.int32(seed), {'mu': jax.tree.map(np.copy, params)})


def bits(tree) -> list[tuple]:
  return [
    (jax.tree_util.keystr(path), np.asarray(x).dtype, np.asarray(x).tobytes())
    for path, x in jax.tree_util.tree_leaves_with_path(tree)
  ]


@pytest.fixture(scope='module')
def kept(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """Checkpoints 1, 2 and 3; tests that do damage copy them (fixture `folder`)."""
  folder = tmp_path_factory.mktemp('run') / 'checkpoints'
  for step in (1, 2, 3):
    checkpoint.save(folder, step, *trees(step))
  return folder


@pytest.fixture
def folder(kept: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
  return shutil.copytree(kept, tmp_path / 'checkpoints')


def files(folder: pathlib.Path, step: int) -> list[pathlib.Path]:
  """All that the step's manifest vouches for."""
  found = (path for path in (folder / str(step)).rglob('*') if path.is_file())
  return sorted(path for path in found if path.name != checkpoint.MANIFEST)


def copied(folder: pathlib.Path, step: int, new: int) -> None:
  """A whole checkpoint of another step."""
  path = shutil.copytree(folder / str(step), folder / str(new)) / checkpoint.MANIFEST
  path.write_text(json.dumps(json.loads(path.read_text()) | {'step': new}))


def to_average(
  folder: pathlib.Path, every: int, count: int, last: int | str | None = None
) -> list[int]:
  config = ml_collections.ConfigDict({'checkpoint_every_steps': every})
  return chosen_steps(Run(folder.parent), config, count, last)


def test_restored_is_what_was_saved(kept: pathlib.Path):
  params, opt_state = trees(2)
  restored = checkpoint.restore(kept, 2, *trees(9))
  assert restored.step == 2
  assert bits(restored.params) == bits(params)
  assert bits(restored.opt_state) == bits(opt_state)
  assert bits(checkpoint.restore_params(kept, 2, trees(9)[0])) == bits(params)
  for path in files(kept, 2):  # and nothing is pickled
    assert not path.suffix.startswith('.p') and b'\x80\x04\x95' not in path.read_bytes()


def test_device_arrays_are_saved_as_host_arrays(tmp_path: pathlib.Path):
  params = {'w': jax.device_put(jnp.arange(5.0), jax.devices()[-1])}
  checkpoint.save(tmp_path, 1, params, params)
  assert bits(checkpoint.restore(tmp_path, 1, params, params).opt_state) == bits(params)


def test_average(folder: pathlib.Path):
  """The mean of known trees, rounded once to float32; none of a damaged one."""
  example = trees(9)[0]
  found = checkpoint.average(folder, [1, 2, 3], example)
  rows = [trees(step)[0] for step in (1, 2, 3)]
  for layer in (0, 1):
    exact = np.mean([r['layers'][layer]['w'].astype(np.float64) for r in rows], 0)
    np.testing.assert_array_equal(found['layers'][layer]['w'], exact.astype(np.float32))
    assert found['layers'][layer]['w'].dtype == np.float32
  alone = checkpoint.average(folder, [2], example)
  jax.tree.map(np.testing.assert_array_equal, alone, trees(2)[0])
  for path in (folder / '2' / 'optimizer').rglob('*'):  # an average does not read them
    if path.is_file():
      path.write_bytes(b'')
  checkpoint.average(folder, [1, 2, 3], example)
  (folder / '2' / 'params').rename(folder / 'elsewhere')
  with pytest.raises(Damaged, match=r'checkpoints.2: damaged or missing: params.'):
    checkpoint.average(folder, [1, 2, 3], example)
  (folder / 'elsewhere').rename(folder / '2' / 'params')
  files(folder, 2)[-1].write_bytes(b'')
  with pytest.raises(Damaged, match=r'checkpoints.2: damaged'):
    checkpoint.average(folder, [1, 2, 3], example)


def flip(path: pathlib.Path, rng: random.Random) -> None:
  content = bytearray(path.read_bytes())
  content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
  path.write_bytes(content)


def test_a_flipped_bit_anywhere_is_found(folder: pathlib.Path):
  """In every file of the step, at random places: arrays, and what describes them."""
  rng = random.Random(0)
  assert len(files(folder, 3)) > 4
  for path in files(folder, 3):
    whole = path.read_bytes()
    for _ in range(8 if whole else 0):
      flip(path, rng)
      with pytest.raises(Damaged, match='damaged or missing') as caught:
        checkpoint.verify(folder, 3)
      assert path.relative_to(folder / '3').as_posix() in str(caught.value)
      path.write_bytes(whole)
  checkpoint.verify(folder, 3)


def test_a_damaged_manifest_is_a_damaged_checkpoint(folder: pathlib.Path):
  """Whatever the flipped bit makes of it, nothing wrong is taken for right."""
  path = folder / '3' / checkpoint.MANIFEST
  whole, rng, found = path.read_bytes(), random.Random(1), 0
  for _ in range(200):
    flip(path, rng)
    try:
      checkpoint.verify(folder, 3)
    except Damaged as error:
      assert str(folder / '3') in str(error)
      found += 1
    path.write_bytes(whole)
  assert found > 180  # all but what hits a part that nothing depends on
  odd = (
    b'',
    whole[:-30],
    b'\xff\xfe',
    b'{}',
    b'[]',
    b'5',
    b'"step"',
    b'null',
    b'[' * 9999,
  )
  odd += b'{"sha256": null, "step": 3}', b'{"sha256": [1], "step": 3}'
  for content in odd:
    path.write_bytes(content)
    with pytest.raises(Damaged, match=r'3: damaged: manifest\.json'):
      checkpoint.restore(folder, 3, *trees(9))


def test_a_manifest_is_of_its_folders_step(folder: pathlib.Path, capsys):
  """A checkpoint that was copied under another name is not that step's."""
  shutil.copytree(folder / '1', folder / '4')
  with pytest.raises(Damaged, match='4: damaged: its manifest.json is of step 1'):
    checkpoint.average(folder, [1, 4], trees(9)[0])
  assert checkpoint.restore_newest(folder, *trees(9)).step == 3
  assert f'{folder / "4"} is set aside' in capsys.readouterr().out


def test_a_file_too_many(folder: pathlib.Path):
  files(folder, 3)[-1].with_name('new').write_bytes(b'x')
  with pytest.raises(Damaged, match='damaged or missing: .*new'):
    checkpoint.restore(folder, 3, *trees(9))


def test_unfinished_ones_are_no_checkpoints(folder: pathlib.Path):
  for step in (10, 100):
    copied(folder, 3, step)
  (folder / '3' / checkpoint.MANIFEST).unlink()
  (folder / '2').rename(folder / '2.partial')
  (folder / '4').mkdir()
  (folder / 'notes').mkdir()
  assert checkpoint.steps(folder) == [1, 10, 100]
  assert checkpoint.steps(folder / 'nowhere') == []


def test_what_a_kill_left_is_replaced_or_tidied_up(folder: pathlib.Path):
  for name in ('4.partial', '5.partial', '1.deleted'):
    shutil.copytree(folder / '3', folder / name)
  checkpoint.save(folder, 4, *trees(5))
  assert bits(checkpoint.restore(folder, 4, *trees(9)).params) == bits(trees(5)[0])
  checkpoint.tidy(folder)
  assert sorted(p.name for p in folder.iterdir()) == ['1', '2', '3', '4']


def test_all_is_on_the_disk_before_it_counts(tmp_path: pathlib.Path, monkeypatch):
  """Every file and folder, then the new name: as a power cut would find them."""
  synced, sync = [], os.fsync

  def told(descriptor: int) -> None:
    place = pathlib.Path(os.readlink(f'/proc/self/fd/{descriptor}'))
    synced.append(place.relative_to(tmp_path).as_posix())
    sync(descriptor)

  monkeypatch.setattr(os, 'fsync', told)
  checkpoint.save(tmp_path, 1, *trees(1))
  below = [path.relative_to(tmp_path) for path in (tmp_path / '1').rglob('*')]
  assert synced.pop() == '.'
  expected = {'1.partial', *(f'1.partial/{"/".join(p.parts[1:])}' for p in below)}
  assert {*synced} >= expected
  assert '1.partial/manifest.json.partial' in synced


@pytest.mark.parametrize('place', ['params', 'optimizer', 'manifest'])
def test_a_killed_save_is_no_checkpoint(place: str, tmp_path, monkeypatch):
  def stop(*_: object, **__: object):
    raise KeyboardInterrupt

  if place == 'manifest':
    monkeypatch.setattr(checkpoint.files, 'write', stop)
  else:
    save = ocp.StandardCheckpointer.save
    some = lambda self, path, tree: (
      stop() if path.name == place else save(self, path, tree)
    )
    monkeypatch.setattr(ocp.StandardCheckpointer, 'save', some)
  with pytest.raises(KeyboardInterrupt):
    checkpoint.save(tmp_path, 1, *trees(1))
  monkeypatch.undo()
  assert checkpoint.steps(tmp_path) == []
  checkpoint.save(tmp_path, 1, *trees(1))
  assert bits(checkpoint.restore(tmp_path, 1, *trees(9)).params) == bits(trees(1)[0])


def test_a_killed_prune_leaves_no_half_checkpoint(folder, monkeypatch):
  def stop(*_: object):
    raise KeyboardInterrupt

  monkeypatch.setattr(shutil, 'rmtree', stop)
  with pytest.raises(KeyboardInterrupt):
    checkpoint.prune(folder, 1, 1)
  assert checkpoint.steps(folder) == [2, 3]


def test_prune_keeps_the_newest(folder: pathlib.Path):
  """At multiples of a step; another one while it is the newest of all."""
  names = lambda: sorted(path.name for path in folder.iterdir())
  (folder / '9.partial').mkdir()
  for keep in (2, 5):
    checkpoint.prune(folder, 1, keep)
    assert names() == ['2', '3', '9.partial']
  for step in (10, 15, 20):
    copied(folder, 3, step)
  checkpoint.prune(folder, 10, 2)
  assert names() == ['10', '20', '9.partial']
  copied(folder, 20, 25)
  checkpoint.prune(folder, 10, 2)
  assert checkpoint.steps(folder) == [10, 20, 25]
  assert to_average(folder, 10, 3) == [10, 20, 25]
  checkpoint.verify(folder, 10)
  checkpoint.prune(folder, 10, 1, best=10)
  assert checkpoint.steps(folder) == [10, 20, 25]


def elsewhere(path: pathlib.Path) -> None:
  """Moves it out of the folder and leaves a link to it."""
  target = path.parents[1] / f'elsewhere.{path.name}'
  path.rename(target)
  path.symlink_to(target)


def dangling(path: pathlib.Path) -> None:
  shutil.rmtree(path)
  path.symlink_to('nowhere')


def a_file(path: pathlib.Path) -> None:
  shutil.rmtree(path)
  path.write_text('?')


def a_folder_as_manifest(path: pathlib.Path) -> None:
  (path / checkpoint.MANIFEST).unlink()
  (path / checkpoint.MANIFEST).mkdir()


ODD = [elsewhere, dangling, a_file, a_folder_as_manifest]


@pytest.mark.parametrize('odd', ODD)
def test_what_is_odd_is_set_aside(odd: Callable, folder: pathlib.Path, capsys):
  """By name, twice if need be; the one before is used, and the step saved again."""
  for _ in range(2):
    odd(folder / '3')
    assert checkpoint.steps(folder) == [1, 2]
    assert checkpoint.restore_newest(folder, *trees(9)).step == 2
    said = capsys.readouterr().out
    assert f'{folder / "3"}: ' in said and f'aside as {folder / "3.damaged"}' in said
    shutil.rmtree(folder.parent / 'elsewhere.3', ignore_errors=True)
    checkpoint.save(folder, 3, *trees(3))
  assert checkpoint.restore_newest(folder, *trees(9)).step == 3


@pytest.mark.parametrize('odd', ODD)
def test_what_is_odd_does_not_hinder(odd: Callable, folder: pathlib.Path):
  """Where a checkpoint is written, pruned or tidied up; what a link leads to stays."""
  for step in (4, 5):
    copied(folder, 3, step)
  odd(folder / '1')
  for name in ('2.deleted', '6.partial', '7.partial'):
    shutil.copytree(folder / '3', folder / name)
    odd(folder / name)
  kept = sorted(folder.parent.glob('elsewhere*/params'))
  checkpoint.prune(folder, 1, 2)
  checkpoint.save(folder, 6, *trees(6))
  checkpoint.tidy(folder)
  assert sorted(path.name for path in folder.iterdir()) == ['1', '4', '5', '6']
  assert all(path.is_dir() for path in kept)


def test_odd_names_are_passed_over(folder: pathlib.Path, capsys):
  for name in ('075', '\u00b2', '0', 'notes'):
    shutil.copytree(folder / '3', folder / name)
  assert checkpoint.steps(folder) == [1, 2, 3]
  assert checkpoint.restore_newest(folder, *trees(9)).step == 3
  said = capsys.readouterr().out.splitlines()
  names = '0', '075', '\u00b2'
  assert said == [
    f'{folder / n}: is no name of a checkpoint; passed over' for n in names
  ]
  checkpoint.prune(folder, 1, 1)
  assert sorted(path.name for path in folder.iterdir()) == [
    '0',
    '075',
    '3',
    'notes',
    '\u00b2',
  ]


# Averaged


def test_one_that_is_missing_is_not_left_out(folder: pathlib.Path, capsys):
  """Within those to average, or as the newest; fewer or older when asked, not else."""
  for step in (4, 5, 6):
    copied(folder, 3, step)
  assert to_average(folder, 1, 3) == [4, 5, 6]
  (folder / '5' / checkpoint.MANIFEST).unlink()
  with pytest.raises(UserError) as caught:
    to_average(folder, 1, 3)
  assert str(caught.value) == (
    f'{folder / "5"} has no manifest.json, one of 3 to average up to step 6: put it '
    'back, or give --average=1'
  )
  assert to_average(folder, 1, 1) == [6]
  (folder / '6').rename(folder / '6.damaged')
  (folder / '5').rename(folder / '7')
  with pytest.raises(UserError, match='7 has no .* or give --step, one of .1, 2, 3, 4'):
    to_average(folder, 1, 1)
  assert to_average(folder, 1, 2, last=4) == [3, 4]
  with pytest.raises(UserError, match='6 is set aside as .*6.damaged, one of 1 to'):
    to_average(folder, 1, 1, last=6)
  with pytest.raises(UserError, match='is not there, one of 2 '):
    to_average(folder, 1, 2, last=10**20)
  shutil.rmtree(folder / '7')
  assert to_average(folder, 1, 2) == [3, 4]
  (folder.parent / 'metrics.jsonl').write_text('{"step": 5, "saved": true}\n')
  with pytest.raises(UserError, match='5 is not there, one of 2 to average'):
    to_average(folder, 1, 2)
  assert capsys.readouterr().err == ''


def test_a_short_run_has_fewer_to_average(folder: pathlib.Path, capsys):
  """All of it are taken, which is said."""
  assert to_average(folder, 1, 5) == [1, 2, 3]
  assert capsys.readouterr().err == 'averaging 3 checkpoints: no more were made\n'
  assert to_average(folder, 2, 2) == [2, 3]


def test_the_best_on_dev(folder: pathlib.Path):
  """By what the config asks for; alone, unless more are asked for."""
  run, config = Run(folder.parent), base.get_config()
  write = lambda: (folder.parent / 'config.json').write_text(
    config.to_json_best_effort()
  )
  lines = [{'step': s, 'dev_perplexity': abs(s - 2), 'dev_bleu': s} for s in (1, 2, 3)]
  run.metrics.write_text(''.join(json.dumps(line) + '\n' for line in lines[:2]))
  write()
  with pytest.raises(
    UserError, match='keeps no best checkpoint: train with --config.b'
  ):
    to_average(folder, 1, 1, last='best')
  config.best_by = 'perplexity'
  write()
  assert to_average(folder, 1, 1, last='best') == [2]
  assert to_average(folder, 1, 2, last='best') == [1, 2]
  config.best_by = 'bleu'
  write()
  run.metrics.write_text('')
  with pytest.raises(UserError, match='no dev bleu was measured yet'):
    to_average(folder, 1, 1, last='best')


# In a restart


@pytest.mark.parametrize('damage', ['flipped', 'truncated', 'file', 'manifest'])
def test_the_one_before_a_damaged_one_is_used(
  damage: str, folder: pathlib.Path, capsys: pytest.CaptureFixture
):
  """Named is the file; the arrays are those of the one before, bit for bit."""
  rng = random.Random(damage)
  path = max(files(folder, 3), key=lambda path: path.stat().st_size)
  if damage == 'flipped':
    flip(path, rng)
  elif damage == 'truncated':
    path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size)])
  elif damage == 'file':
    path.unlink()
  else:
    path = folder / '3' / checkpoint.MANIFEST
    path.unlink()
  restored = checkpoint.restore_newest(folder, *trees(9))
  assert restored.step == 2 and bits(restored.params) == bits(trees(2)[0])
  said = capsys.readouterr().out
  assert str(folder / '3') in said and path.name in said
  assert f'set aside as {folder / "3.damaged"}: delete it' in said


def test_a_damaged_one_does_not_count_any_more(folder: pathlib.Path):
  """What is saved after it stays, is gone on from, and is averaged with the rest."""
  for step in (20, 25, 27, 30):
    copied(folder, 3, step)
  for step in (1, 2, 3):
    shutil.rmtree(folder / str(step))
  flip(files(folder, 30)[-1], random.Random(0))
  assert checkpoint.restore_newest(folder, *trees(9)).step == 27
  with checkpoint.Writer(folder, 5, 2, lambda _: None) as background:
    background.save(28, *trees(28))
  assert checkpoint.steps(folder) == [20, 25, 28]
  assert to_average(folder, 5, 3) == [20, 25, 28]
  assert (folder / '30.damaged' / checkpoint.MANIFEST).is_file()
  restored = checkpoint.restore_newest(folder, *trees(9))
  assert restored.step == 28 and bits(restored.params) == bits(trees(28)[0])
  with checkpoint.Writer(folder, 5, 2, lambda _: None) as background:
    background.save(30, *trees(30))
  assert checkpoint.steps(folder) == [25, 30]
  flip(files(folder, 30)[-1], random.Random(0))  # once more
  assert checkpoint.restore_newest(folder, *trees(9)).step == 25
  assert sorted(path.name for path in folder.iterdir()) == ['25', '30.damaged']


def test_where_none_is_whole_nothing_is_begun_anew(folder: pathlib.Path, capsys):
  """Nor is any set aside: the next start would find none, and begin."""
  for step in (1, 2, 3):
    flip(files(folder, step)[-1], random.Random(step))
  for _ in range(2):
    with pytest.raises(Damaged, match='no checkpoint there is as it was') as caught:
      checkpoint.restore_newest(folder, *trees(9))
    assert str(folder) in str(caught.value) and '--workdir' in str(caught.value)
    assert capsys.readouterr().out.count('trying the one before') == 3
  assert checkpoint.steps(folder) == [1, 2, 3]
  assert checkpoint.restore_newest(folder / 'nowhere', *trees(9)) is None


@pytest.mark.parametrize('place', ['file', 'manifest', 'folder', 'all'])
def test_what_cannot_be_read_is_not_taken_for_damaged(place, folder, monkeypatch):
  """An error of the disk or of permissions: named, and nothing is passed over."""
  path = {
    'file': files(folder, 3)[-1],
    'manifest': folder / '3' / checkpoint.MANIFEST,
    'folder': folder / '3' / 'params',
    'all': folder,
  }[place]

  def guard(call):
    def guarded(given, *rest, **named):
      if pathlib.Path(given) == path:
        raise PermissionError(errno.EACCES, 'Permission denied', str(given))
      return call(given, *rest, **named)

    return guarded

  monkeypatch.setattr(pathlib.Path, 'open', guard(pathlib.Path.open))
  for name in ('scandir', 'listdir'):
    monkeypatch.setattr(os, name, guard(getattr(os, name)))
  with pytest.raises(OSError, match='Permission denied') as caught:
    checkpoint.restore_newest(folder, *trees(9))
  assert str(path) in str(caught.value)
  monkeypatch.undo()
  assert checkpoint.steps(folder) == [1, 2, 3]


# In the background


def writer(folder: pathlib.Path, saved: list[int], keep: int = 2) -> checkpoint.Writer:
  return checkpoint.Writer(folder, 10, keep, saved.append)


def test_they_come_one_after_another_and_the_oldest_go(tmp_path: pathlib.Path):
  """Each is the state of its moment, though its memory is used again at once."""
  saved, (params, opt_state) = [], trees(1)
  with writer(tmp_path, saved) as background:
    for step in (10, 15, 20, 30):
      params['layers'][0]['w'][:] = step
      background.save(step, params, opt_state)
      params['layers'][0]['w'][:] = 0
      background.check()
    assert background.newest() == f'The newest checkpoint: {tmp_path / "30"}'
  assert saved == [10, 15, 20, 30] and checkpoint.steps(tmp_path) == [20, 30]
  for step in (20, 30):
    restored = checkpoint.restore_params(tmp_path, step, params)
    assert (restored['layers'][0]['w'] == step).all()


def test_a_checkpoint_that_is_written_is_not_called_lost(folder: pathlib.Path):
  """If only what follows it fails, such as its record in metrics.jsonl."""

  def fail(step: int) -> None:
    raise OSError(errno.ENOSPC, 'No space left on device', 'metrics.jsonl')

  with checkpoint.Writer(folder, 1, 9, fail) as background:
    background.save(20, *trees(4))
    message = background.newest()
  assert message.startswith(f'{folder / "20"} is written, but what follows')
  assert message.endswith(f"'metrics.jsonl'. The newest checkpoint: {folder / '20'}")
  checkpoint.verify(folder, 20)


def test_a_write_that_fails_is_loud(folder: pathlib.Path, monkeypatch):
  """The next look at it raises; older ones and what was saved before are whole."""

  def full(self, path, tree):
    (path / 'some').mkdir(parents=True)
    raise OSError(errno.ENOSPC, 'No space left on device')

  monkeypatch.setattr(ocp.StandardCheckpointer, 'save', full)
  saved: list[int] = []
  with writer(folder, saved, keep=1) as background:
    background.save(20, *trees(4))
    newest = background.newest()
    with pytest.raises(checkpoint.Unsaved) as caught:
      background.check()
  message = str(caught.value)
  assert message == newest
  assert message.startswith(
    f'{folder / "20"} could not be written: [Errno 28] No space'
  )
  assert message.endswith(f'device. The newest checkpoint: {folder / "3"}')
  assert saved == [] and checkpoint.steps(folder) == [1, 2, 3]
  assert not list(folder.glob('*.partial'))
  checkpoint.verify(folder, 3)
