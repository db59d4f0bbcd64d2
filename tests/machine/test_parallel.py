"""What a step's program computes, moves and waits for, and several processes as one."""

import os
import pathlib
import re
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from toy.hlo import Hlo, size
from toy.programs import SERVER, free_port
from toy.steps import (
  Course,
  Steps,
  assert_same_course,
  corpus,
  course,
  course_on_one,
  model,
  steps_on,
  tiny_config,
)
from transformer_jax.data import batches, token_files
from transformer_jax.data import corpus as corpora
from transformer_jax.machine import hosts, parallel, platform, processor
from transformer_jax.model import build
from transformer_jax.training import trainer
from transformer_jax.training.step import Share


@pytest.mark.parametrize('count', [4, pytest.param(8, marks=pytest.mark.slow)])
def test_what_the_devices_tell_each_other(count: int):
  """One sum of all gradients a step, after the slices of each have been added up."""
  steps = steps_on(count)
  steps(steps.initial(), *example_arrays())
  (program,) = steps.programs.values()
  hlo = Hlo(program.as_text())
  inside = [line for body in hlo.loops() for line in hlo.collectives(body)]
  assert hlo.loops() and not inside
  reduced = hlo.collectives(hlo.entry)
  assert reduced and all(' all-reduce' in line for line in reduced)
  gradient = sum(x.nbytes for x in jax.tree.leaves(steps.params))
  assert gradient <= sum(map(size, reduced)) < gradient + 1024


def test_a_sum_in_a_loop_would_be_found():
  def step(x: jax.Array) -> jax.Array:
    more = lambda total, _: (jax.lax.psum(total * 0.5, 'd'), None)
    return jax.lax.scan(more, x, None, 9)[0]

  mapped = jax.pmap(step, axis_name='d').lower(np.ones((8, 5), np.float32))
  hlo = Hlo(mapped.compile().as_text())
  (inside,) = (line for body in hlo.loops() for line in hlo.collectives(body))
  assert size(inside) == 20


def example_arrays() -> tuple[np.ndarray, np.ndarray]:
  side = np.full((8, 2, 6), 5, np.int32)
  return side, side


def test_the_state_is_updated_in_place():
  """Each array of the state that goes in is one that comes out."""
  steps = steps_on(8)
  state = steps.initial()
  steps(state, *example_arrays())
  (program,) = steps.programs.values()
  leaves = jax.tree.leaves(state)
  assert all(array.is_deleted() for array in leaves)
  aliases = re.search(r'input_output_alias=\{(.*?)\}, entry', program.as_text())[1]
  given = {int(n) for n in re.findall(r'\((\d+), ', aliases)}
  assert given == {*range(len(leaves))}


def test_nothing_moves_unasked(tmp_path: pathlib.Path, monkeypatch):
  """Batches enter by device_put, as the step wants them; sums leave by device_get.

  A CPU shows the first half alone: what leaves is in the host's memory already, and no
  guard refuses to read it. That sums leave once, one step late, is test_loop.py's.
  """
  monkeypatch.setattr(build, 'transformer', lambda _: model(0.3))
  ours = trainer.Trainer(
    tiny_config(tokens_per_batch=64, max_shapes=1), corpus(tmp_path)
  )
  state = ours.initial()
  ours.compile(state, list)
  with jax.transfer_guard('disallow'):
    for step in range(3):
      state, sums = ours.step(state, ours.batches.batch(step))
      assert np.isfinite(jax.device_get(sums).loss)
    with monkeypatch.context() as wrong:
      wrong.setattr(ours.devices, 'split', each_device_its_own)
      with pytest.raises(jax.errors.JaxRuntimeError, match='Disallowed host-to-device'):
        ours.step(state, ours.batches.batch(3))
  share = ours.devices.split((ours.batches.batch(0).source,))[0]
  (program,) = ours._compiled.values()
  assert share.sharding == program.input_shardings[0][1][0]


def each_device_its_own(share: Share) -> Share:
  """What Devices.split() gives, left on the host."""
  return jax.tree.map(lambda x: x.reshape(8, 1, *x.shape[1:]), share)


@pytest.mark.parametrize('count', [1, 4, 8])
def test_slices_lie_on_devices_in_their_order(count: int, tmp_path: pathlib.Path):
  """So that a slice has the same rows and the same dropout wherever it is."""
  made = corpora.train_batches(
    tiny_config(tokens_per_batch=64, max_shapes=2), corpus(tmp_path)
  )
  devices = parallel.Devices(8, jax.devices()[:count])
  for step in range(20):
    batch = made.batch(step, devices.host_slices)
    rows = batch.pairs.astype(np.int32)
    parts = {x.device: x.data for x in devices.split((rows,))[0].addressable_shards}
    assert {len(part[0]) for part in parts.values()} == {8 // count}
    found = [parts[device][0] for device in jax.devices()[:count]]
    np.testing.assert_array_equal(np.concatenate(found), made.batch(step).pairs)


# Several processes


def one_of_two(number: int, address: str, folder: str) -> None:
  """In a process of its own: four of eight devices, and the same twenty updates."""
  os.environ.pop('XLA_FLAGS', None)
  jax.config.update('jax_num_cpu_devices', 4)
  hosts.join_hosts(address, 2, number)
  assert jax.device_count() == 8 and hosts.is_first_host() == (number == 0)
  steps = Steps(None)
  found = course(steps)
  config = tiny_config(tokens_per_batch=64, max_shapes=2)
  ours = trainer.Trainer(config, pathlib.Path(folder))
  share = ours.devices.host_slices
  assert share == slice(4 * number, 4 * number + 4)
  found_batches = [ours.batch(step) for step in range(20)]
  assert all(len(batch.source) == 4 for batch in found_batches)
  pairs = [batch.pairs[share] for batch in found_batches]
  leaves = jax.tree.leaves(found.moved)
  arrays = {f'leaf{i}': leaf for i, leaf in enumerate(leaves)}
  arrays |= {f'pairs{i}': rows for i, rows in enumerate(pairs)}
  other = np.int32(7 + number)
  np.savez(
    pathlib.Path(folder) / f'{number}.npz',
    losses=found.losses,
    first=hosts.from_first_host(other),
    **arrays,
  )


@pytest.mark.slow
def test_two_processes_are_one(tmp_path: pathlib.Path):
  """The same rows at each step, the same course as one device's, in both of them."""
  corpus(tmp_path)
  address = f'localhost:{free_port()}'
  arguments = [(number, address, str(tmp_path)) for number in (0, 1)]
  both = [SERVER.Process(target=one_of_two, args=args) for args in arguments]
  for process in both:
    process.start()
  for process in both:
    process.join(300)
    assert process.exitcode == 0
  found = [np.load(tmp_path / f'{number}.npz') for number in (0, 1)]
  moved = jax.tree.structure(course_on_one().moved)
  for file in found:
    leaves = [file[f'leaf{i}'] for i in range(moved.num_leaves)]
    theirs = Course(list(file['losses']), jax.tree.unflatten(moved, leaves))
    assert_same_course(course_on_one(), theirs)
    assert file['first'] == 7
  ours = trainer.Trainer(tiny_config(tokens_per_batch=64, max_shapes=2), tmp_path)
  for step in range(20):
    rows = np.concatenate([file[f'pairs{step}'] for file in found])
    np.testing.assert_array_equal(rows, ours.batches.batch(step).pairs)
    assert (rows >= 0).any()


def late(number: int, address: str) -> None:
  """The second host comes later than devices wait for each other."""
  os.environ.pop('XLA_FLAGS', None)
  jax.config.update('jax_num_cpu_devices', 1)
  hosts.join_hosts(address, 2, number)
  assert jax.device_count() == 2
  time.sleep(40 * number)
  hosts.wait_for_all('both')
  assert hosts.from_first_host(np.int32(7 + number)) == 7


@pytest.mark.slow
def test_hosts_wait_for_a_late_one():
  address = f'localhost:{free_port()}'
  both = [SERVER.Process(target=late, args=(number, address)) for number in (0, 1)]
  for process in both:
    process.start()
  for process in both:
    process.join(300)
    assert process.exitcode == 0


FLAGS = """
import os, jax
from transformer_jax.machine import platform
platform.deterministic()
platform.multiply_by_ynn()
platform.outlast_stops()
jax.devices()
print(os.environ['XLA_FLAGS'])
"""


def test_xla_knows_the_flags_that_are_set():
  """One that it does not know ends the process; the user's stay."""
  environment = os.environ | {'XLA_FLAGS': '--xla_cpu_enable_fast_math=false'}
  command = [sys.executable, '-c', FLAGS]
  done = subprocess.run(command, env=environment, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  assert done.stdout.split() == [
    '--xla_cpu_enable_fast_math=false',
    '--xla_gpu_deterministic_ops=true',
    '--xla_cpu_experimental_ynn_fusion_type=individual_dot',
    '--xla_cpu_collective_call_terminate_timeout_seconds=86400',
  ]


def test_accelerators_multiply_bfloat16(monkeypatch: pytest.MonkeyPatch):
  monkeypatch.setattr(platform.processor, 'describe', lambda: ('a chip', []))
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  for dtype in (platform.training_dtype, platform.decoding_dtype):
    assert (dtype('auto').name, dtype('float32').name) == ('bfloat16', 'float32')


@pytest.mark.parametrize(
  ('environment', 'folder'),
  [({'XDG_CACHE_HOME': 'x'}, 'x'), ({'XDG_CACHE_HOME': '', 'HOME': 'h'}, 'h/.cache')],
)
def test_compiled_programs_are_kept_where_nobody_else_writes(
  environment: dict, folder: str, tmp_path: pathlib.Path, monkeypatch
):
  for key, value in environment.items():
    monkeypatch.setenv(key, value and str(tmp_path / value))
  kept: dict[str, str] = {}
  monkeypatch.setattr(jax.config, 'update', kept.__setitem__)
  platform.keep_compiled()
  cache = tmp_path / folder / 'transformer_jax'
  assert kept == {'jax_compilation_cache_dir': str(cache)}
  assert cache.stat().st_mode & 0o777 == 0o700


def test_no_place_for_compiled_programs_ends_nothing(tmp_path, monkeypatch, capsys):
  (tmp_path / 'file').touch()
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'file'))
  platform.keep_compiled()
  assert 'compiled programs are not kept (' in capsys.readouterr().err


@pytest.mark.parametrize(
  'vectors', [['avx512f'], ['amx_bf16'], ['avx512_bf16', 'avx2']]
)
def test_dtypes_of_products(monkeypatch: pytest.MonkeyPatch, vectors: list[str]):
  """On a CPU that multiplies bfloat16 what is decoded is decoded so, unasked."""
  monkeypatch.setattr(platform.processor, 'describe', lambda: ('a chip', vectors))
  fast = vectors != ['avx512f']
  assert platform.training_dtype('auto') == np.float32
  assert platform.decoding_dtype('auto').name == ('bfloat16' if fast else 'float32')
  for dtype in (platform.training_dtype, platform.decoding_dtype):
    assert (dtype('float32').name, dtype('bfloat16').name) == ('float32', 'bfloat16')
  with pytest.raises(ValueError, match="^dtype='half': 'auto', 'float32' or"):
    platform.training_dtype('half')
  with pytest.raises(ValueError, match="^decode_dtype='half'"):
    platform.decoding_dtype('half')


@pytest.mark.parametrize(
  'given', [('host:1', 2, None), (None, 2, 0), ('host:1', None, 1)]
)
def test_all_three_or_none(given: tuple):
  with pytest.raises(ValueError, match='all of --coordinator_address, --process_count'):
    hosts.join_hosts(*given)


def test_alone_where_nobody_tells_of_others(monkeypatch):
  """Outside of any cluster; in a step of one task; or when told so."""
  for name in ('SLURM_STEP_NUM_TASKS', 'OMPI_COMM_WORLD_SIZE'):
    monkeypatch.delenv(name, raising=False)
  joined = []

  def nobody(*given):
    joined.append(given)
    if not given:
      raise ValueError('coordinator_address should be defined.')

  monkeypatch.setattr(jax.distributed, 'initialize', nobody)
  hosts.join_hosts(None, None, None)
  assert joined == [()]
  hosts.join_hosts('host:1', 4, 3)
  assert joined.pop() == ('host:1', 4, 3)
  hosts.join_hosts(None, 1, None)
  monkeypatch.setenv('SLURM_NTASKS', '4')  # of a job, with a step of one task in it
  monkeypatch.setenv('SLURM_STEP_NUM_TASKS', '1')
  hosts.join_hosts(None, None, None)
  monkeypatch.setenv('OMPI_COMM_WORLD_SIZE', '1')
  hosts.join_hosts(None, None, None)
  assert joined == [()]
  # Open MPI's daemon is the step of one task.
  monkeypatch.setenv('OMPI_COMM_WORLD_SIZE', '3')
  with pytest.raises(ValueError, match='other of 3 processes .* --coordinator_address'):
    hosts.join_hosts(None, None, None)


def test_a_share_of_a_batch_is_read_alone(tmp_path: pathlib.Path, monkeypatch):
  """Whose shares are pieces of the same whole, of which all know the rows."""
  source, target = token_files.read_split(corpus(tmp_path), 'train')
  given = {'tokens': 64, 'slices': 8, 'max_shapes': 2, 'seed': 1}
  made = batches.Batches(source, target, **given)
  pad, read = token_files.Side.pad, []
  count = lambda side, rows, length: read.append(len(rows)) or pad(side, rows, length)
  monkeypatch.setattr(token_files.Side, 'pad', count)
  for step in range(2 * made.steps_per_epoch):
    whole, rows = made.batch(step), read.pop()
    for start in (0, 4):
      share = made.batch(step, slice(start, start + 4))
      np.testing.assert_array_equal(share.source, whole.source[start : start + 4])
      np.testing.assert_array_equal(share.target, whole.target[start : start + 4])
      np.testing.assert_array_equal(share.pairs, whole.pairs)
      assert read.pop() == rows // 2


def test_cores_where_a_process_has_no_limit_of_its_own(monkeypatch):
  """macOS has no sched_getaffinity; and a system may not know its cores either."""
  monkeypatch.delattr(os, 'sched_getaffinity', raising=False)
  for told, count in ((6, 6), (None, 1)):
    monkeypatch.setattr(os, 'cpu_count', lambda told=told: told)
    assert processor.cores() == [*range(count)]
