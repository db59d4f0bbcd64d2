"""Several processes join, and compute as one."""

import contextlib
import os

import jax
import numpy as np
import pytest

from toy import steps
from toy.programs import SERVER, free_port
from transformer_jax.machine import hosts
from transformer_jax.machine.errors import UserError

NO_FLAGS = None, None, None
SLURM = {'SLURM_STEP_NUM_TASKS': '1', 'SLURM_NTASKS': '4'}  # a step of one task


def test_a_host_with_another_config_is_refused(monkeypatch):
  hosts.check_same('x')
  monkeypatch.setattr(hosts, 'from_first_host', np.zeros_like)
  with pytest.raises(UserError, match='another config or corpus than the first host'):
    hosts.check_same('x')


@pytest.mark.parametrize(
  ('tasks', 'flags', 'asks', 'is_refused'),
  [
    ({}, NO_FLAGS, 1, False),  # outside of any cluster
    ({}, (None, 4, 3), 1, True),
    ({}, ('host:1', 4, 3), 1, False),
    ({}, (None, 1, None), 0, False),
    (SLURM, NO_FLAGS, 0, False),
    (SLURM | {'OMPI_COMM_WORLD_SIZE': '3'}, NO_FLAGS, 1, True),
  ],
)
def test_when_processes_join(
  tasks: dict[str, str], flags: tuple, asks: int, is_refused: bool, monkeypatch
):
  """By the three flags, or by a cluster; Open MPI's daemon is Slurm's step."""
  for name in ('SLURM_STEP_NUM_TASKS', 'OMPI_COMM_WORLD_SIZE'):
    monkeypatch.delenv(name, raising=False)
  for name, value in tasks.items():
    monkeypatch.setenv(name, value)
  asked = []

  def initialize(*flags):
    asked.append(flags)
    if None in flags:
      raise ValueError('coordinator_address should be defined.')

  monkeypatch.setattr(jax.distributed, 'initialize', initialize)
  refused = pytest.raises(UserError, match='give all of --coordinator_address')
  with refused if is_refused else contextlib.nullcontext():
    hosts.join_hosts(*flags)
  assert asked == [flags] * asks


def test_an_error_ends_one_of_several_hosts(monkeypatch, capsys):
  """At once, with its traceback or its sentence; after a signal all leave together."""
  ends = []
  monkeypatch.setattr(os, '_exit', ends.append)
  for count, error, printed in (
    (2, ValueError('bug'), 'ValueError: bug'),
    (2, SystemExit('why'), 'why'),
    (2, SystemExit(75), None),
    (1, ValueError('bug'), None),
  ):
    monkeypatch.setattr(jax, 'process_count', lambda count=count: count)
    leaves = contextlib.nullcontext() if printed else pytest.raises(type(error))
    with leaves, hosts.abort_all_hosts_on_error():
      raise error
    assert ends == ([1] if printed else [])
    assert capsys.readouterr().err.strip().endswith(printed or '')
    ends.clear()


def one_of_two(number: int, address: str) -> tuple[steps.Course, int]:
  """Makes the ten updates in a process with four of eight devices.

  Returns: their course, and a number that replicate() takes of the first host.
  """
  os.environ.pop('XLA_FLAGS', None)
  jax.config.update('jax_num_cpu_devices', 4)
  hosts.join_hosts(address, 2, number)
  assert jax.device_count() == 8 and hosts.is_first_host() == (number == 0)
  ours = steps.Steps(None)
  measured = steps.course(ours)
  twin = steps.course(steps.Steps(None, kind=steps.ShardMapDevices))
  jax.tree.map(np.testing.assert_array_equal, measured, twin)
  replicated = ours.devices.replicate(np.int32(7 + number))
  return measured, int(ours.devices.on_this_host(replicated))


@pytest.mark.slow
def test_two_processes_are_one():
  """Both have the losses of one device, by pmap and, bit for bit, by shard_map."""
  address = f'localhost:{free_port()}'
  arguments = [(number, address) for number in (0, 1)]
  with SERVER.Pool(2) as pool:
    both = pool.starmap_async(one_of_two, arguments, chunksize=1).get(600)
  for measured, first in both:
    steps.assert_same_course(steps.course_on_one(), measured)
    assert first == 7
