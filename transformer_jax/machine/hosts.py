"""Several hosts that run the same program: joining, agreeing, ending together."""

import contextlib
import hashlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax.experimental import multihost_utils
from orbax.checkpoint import multihost

from transformer_jax.machine.signals import EXIT_CODE

PATIENCE = 24 * 60 * 60 * 1000  # milliseconds for which hosts wait for another


Tree = Any


def join_hosts(address: str | None, count: int | None, number: int | None) -> None:
  """Makes this process one of several; call before anything else of JAX.

  With no argument, what Slurm, Open MPI, Kubernetes or a TPU pod says of this process
  is used, if any of them does. A `count` of 1 is one process whatever they say.

  Args:
    address: host:port on which process 0 can be reached.
    count: how many processes there are.
    number: which of them this one is, from 0.
  """
  # JAX would take SIGTERM to itself: see signals.py for what is done about it.
  jax.config.update('jax_enable_preemption_service', False)
  # Open MPI first, as JAX does: its daemons are a Slurm job's steps, of one task each.
  mpi = os.environ.get('OMPI_COMM_WORLD_SIZE')
  # Not SLURM_NTASKS, which is the job's in an interactive step of one task.
  tasks = mpi or os.environ.get('SLURM_STEP_NUM_TASKS')
  # Alone in a step of one task, JAX would see the first of its devices only.
  if count == 1 or (count is None and tasks == '1'):
    return
  if (address, count, number) != (None, None, None):
    if None in (address, count, number):
      raise ValueError(
        'give all of --coordinator_address, --process_count and --process_id, or none'
      )
    jax.distributed.initialize(address, count, number)
    return
  try:
    jax.distributed.initialize()
  except ValueError as error:  # nobody said where the others are
    if 'coordinator_address' not in str(error):
      raise
    if mpi:
      raise ValueError(
        f'this JAX does not find the other of {mpi} processes of this Open MPI: give '
        '--coordinator_address, --process_count and --process_id (docs/devices.md)'
      ) from error


@contextlib.contextmanager
def one_error_ends_all() -> Iterator[None]:
  """What goes wrong in here on one of several hosts ends its process at once.

  In order, JAX would wait five minutes for the others, which wait for this one. When
  the first host's process is gone, JAX ends theirs; another's it misses after 100 s.
  """
  try:
    yield
  except BaseException as error:  # whatever it is, it ends here
    exits = isinstance(error, SystemExit)
    if count() == 1 or (exits and error.code == EXIT_CODE):  # all hosts have agreed
      raise
    if exits:
      print(error.code, file=sys.stderr)
    else:
      traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


def joined() -> bool:
  """Whether this process is one of several that found each other."""
  return jax.distributed.is_initialized()


def count() -> int:
  return jax.process_count()


def is_first_host() -> bool:
  """Whether this process is the one that reads and writes the run's folder."""
  return jax.process_index() == 0


def first_host_first(make: Callable[[], Any]) -> Any:
  """make() on the first host, and when it is done there, on the others."""
  made = make() if is_first_host() else None
  wait_for_all('made')
  return made if is_first_host() else make()


def wait_for_all(key: str) -> None:
  """Until all hosts have come here, by the coordinator and not between devices.

  Those of CPUs give up when another host's come to their first exchange 30 s later; and
  so late they are when JAX has kept the compiled programs of the first host alone.
  """
  multihost.get_barrier_sync_fn()(key=key, timeout_ms=PATIENCE)


def from_first_host(tree: Tree) -> Tree:
  """The first host's arrays; the others give some of the same shapes."""
  return tree if count() == 1 else multihost_utils.broadcast_one_to_all(tree)


def check_same(text: str) -> None:
  """Raises ValueError on a host whose text is not the first host's."""
  ours = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
  if (ours != from_first_host(ours)).any():
    raise ValueError('this host has another config or corpus than the first host')
