"""Several processes join, and compute as one."""

import os
import pathlib

import jax
import numpy as np
import pytest

from toy.programs import SERVER, free_port
from toy.steps import (
  ShardMapDevices,
  Steps,
  assert_same_course,
  corpus,
  course,
  course_on_one,
  tiny_config,
)
from transformer_jax.data.batches import train_batches
from transformer_jax.data.corpus import read_split
from transformer_jax.machine import hosts
from transformer_jax.machine.errors import UserError
from transformer_jax.training.trainer import Trainer

SMALL = {'tokens_per_batch': 64, 'max_shapes': 2}


def test_a_host_with_another_config_is_refused(monkeypatch):
  hosts.check_same('x')
  monkeypatch.setattr(hosts, 'from_first_host', np.zeros_like)
  with pytest.raises(UserError, match='another config or corpus than the first host'):
    hosts.check_same('x')


def test_when_processes_join(monkeypatch):
  """Outside of any cluster; in a step of one task; or with the three flags."""
  for name in ('SLURM_STEP_NUM_TASKS', 'OMPI_COMM_WORLD_SIZE'):
    monkeypatch.delenv(name, raising=False)
  joined = []

  def record(*flags):
    joined.append(flags)
    if None in flags:
      raise ValueError('coordinator_address should be defined.')

  monkeypatch.setattr(jax.distributed, 'initialize', record)
  hosts.join_hosts(None, None, None)
  assert joined.pop() == (None, None, None)
  with pytest.raises(UserError, match='give all of --coordinator_address'):
    hosts.join_hosts(None, 4, 3)
  joined.pop()
  hosts.join_hosts('host:1', 4, 3)
  assert joined.pop() == ('host:1', 4, 3)
  hosts.join_hosts(None, 1, None)
  monkeypatch.setenv('SLURM_NTASKS', '4')  # of a job, with a step of one task in it
  monkeypatch.setenv('SLURM_STEP_NUM_TASKS', '1')
  hosts.join_hosts(None, None, None)
  monkeypatch.setenv('OMPI_COMM_WORLD_SIZE', '1')
  hosts.join_hosts(None, None, None)
  assert not joined
  # Open MPI's daemon is the step of one task.
  monkeypatch.setenv('OMPI_COMM_WORLD_SIZE', '3')
  with pytest.raises(UserError, match='the other processes .* --coordinator_address'):
    hosts.join_hosts(None, None, None)


def test_an_error_ends_one_of_several_hosts(monkeypatch, capsys):
  """At once, with its traceback or its sentence; after a signal all leave together."""
  ends = []
  monkeypatch.setattr(os, '_exit', ends.append)
  sentences = (ValueError('bug'), 'ValueError: bug'), (SystemExit('why'), 'why')
  for error, sentence in sentences:
    with pytest.raises(type(error)), hosts.abort_all_hosts_on_error():
      raise error
    with monkeypatch.context() as patch:
      patch.setattr(jax, 'process_count', lambda: 2)
      with hosts.abort_all_hosts_on_error():
        raise error
      with pytest.raises(SystemExit), hosts.abort_all_hosts_on_error():
        raise SystemExit(75)
    assert capsys.readouterr().err.strip().endswith(sentence)
    assert ends.pop() == 1 and not ends


def one_of_two(number: int, address: str, folder: pathlib.Path) -> tuple:
  """Makes the ten updates in a process with four of eight devices.

  Returns: their course, the pairs of its slices, and a number of the first host.
  """
  os.environ.pop('XLA_FLAGS', None)
  jax.config.update('jax_num_cpu_devices', 4)
  hosts.join_hosts(address, 2, number)
  assert jax.device_count() == 8 and hosts.is_first_host() == (number == 0)
  measured, twin = course(Steps(None)), course(Steps(None, kind=ShardMapDevices))
  jax.tree.map(np.testing.assert_array_equal, measured, twin)
  ours = Trainer(tiny_config(**SMALL), read_split(folder, 'train'))
  of_host = ours.devices.host_slices
  assert of_host == slice(4 * number, 4 * number + 4)
  batches = [ours.batch(step) for step in range(20)]
  assert all(len(batch.source) == 4 for batch in batches)
  first = int(hosts.from_first_host(np.int32(7 + number)))
  return measured, [batch.pairs[of_host] for batch in batches], first


@pytest.mark.slow
def test_two_processes_are_one(tmp_path: pathlib.Path):
  """Both have the same rows at each step, and the losses of one device.

  They have them by pmap and, bit for bit, by shard_map.
  """
  train, address = corpus(tmp_path), f'localhost:{free_port()}'
  arguments = [(number, address, tmp_path) for number in (0, 1)]
  with SERVER.Pool(2) as pool:
    both = pool.starmap_async(one_of_two, arguments, chunksize=1).get(600)
  for measured, _, first in both:
    assert_same_course(course_on_one(), measured)
    assert first == 7
  ours = Trainer(tiny_config(**SMALL), train)
  for step in range(20):
    rows = np.concatenate([pairs[step] for _, pairs, _ in both])
    np.testing.assert_array_equal(rows, ours.batches.batch(step).pairs)
    assert (rows >= 0).any()


def test_a_host_reads_its_slices_alone(tmp_path: pathlib.Path):
  """They are part of the whole batch, whose pairs every host knows."""
  all_batches = train_batches(tiny_config(**SMALL), corpus(tmp_path))
  for step in range(2 * all_batches.steps_per_epoch):
    whole = all_batches.batch(step)
    for half in (slice(0, 4), slice(4, 8)):
      part = all_batches.batch(step, half)
      expected = whole.source[half], whole.target[half], whole.pairs
      ours = part.source, part.target, part.pairs
      jax.tree.map(np.testing.assert_array_equal, ours, expected)
