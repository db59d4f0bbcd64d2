"""Several hosts run the same program: how they join, agree and end together.

Each is one process with its own devices. Once they have joined, the first alone reads
and writes the run's folder.
"""

import contextlib
import hashlib
import os
import sys
import traceback
from collections.abc import Iterator

import jax
import numpy as np
from jax.experimental import multihost_utils
from jaxtyping import PyTree
from orbax.checkpoint import multihost

from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import EXIT_CODE

TIMEOUT_MS = 24 * 60 * 60 * 1000  # for which hosts wait for one another: a day


def join_hosts(
  address: str | None, process_count: int | None, process_id: int | None
) -> None:
  """Makes this process one of several; call it before anything else of JAX.

  Without arguments, JAX asks Slurm, Open MPI, Kubernetes or the TPU pod that started
  this process. If none of them did, it stays alone.

  Args:
    address: HOST:PORT on which process 0 can be reached.
    process_count: how many processes there are; 1 means this one, whatever a cluster
      says.
    process_id: which of them this one is, from 0.

  Raises:
    UserError: JAX refuses the arguments, or cannot read what Open MPI or another
      cluster says of the processes.
  """
  # JAX would handle SIGTERM by itself; here signals.py does.
  jax.config.update('jax_enable_preemption_service', False)
  # As in JAX, Open MPI comes first: under Slurm, each of its daemons is a Slurm step of
  # one task. SLURM_NTASKS would be the whole job's, even in a step of one task.
  names = 'OMPI_COMM_WORLD_SIZE', 'SLURM_STEP_NUM_TASKS'
  tasks = next(filter(None, map(os.environ.get, names)), None)
  flags = address, process_count, process_id
  # In a step of one task, JAX would give this process the first of its GPUs only.
  if process_count == 1 or (flags == (None, None, None) and tasks == '1'):
    return
  try:
    jax.distributed.initialize(*flags)
  except (ValueError, KeyError, RuntimeError) as error:
    # JAX has no address: neither a flag nor a cluster tells of other processes.
    if isinstance(error, ValueError) and flags == (None, None, None) and not tasks:
      return
    raise UserError(
      f'JAX does not reach the other processes ({error!r}): give all of '
      '--coordinator_address, --process_count and --process_id (docs/devices.md)'
    ) from error


@contextlib.contextmanager
def abort_all_hosts_on_error() -> Iterator[None]:
  """Ends this process at once on an exception, if it is one of several hosts.

  If it left in the usual order, JAX would wait five minutes for the other hosts, which
  wait for this one. JAX ends the others at once if the first host is gone, and after
  100 s if another one is.
  """
  try:
    yield
  except BaseException as error:
    sentence = error.code if isinstance(error, SystemExit) else traceback.format_exc()
    # After a signal all leave together.
    if jax.process_count() == 1 or sentence == EXIT_CODE:
      raise
    print(sentence, file=sys.stderr, flush=True)
    sys.stdout.flush()
    os._exit(1)


def is_first_host() -> bool:
  """Returns True if this process reads and writes the run's folder."""
  return jax.process_index() == 0


def wait_for_all(key: str) -> None:
  """Returns when all hosts have called it.

  They wait at JAX's coordinator. In a collective operation between CPU devices they
  would give up after 30 s, while one compiles what the first has in its cache.
  """
  multihost.get_barrier_sync_fn()(key=key, timeout_ms=TIMEOUT_MS)


def from_first_host(tree: PyTree) -> PyTree:
  """Returns the first host's arrays; every host passes arrays of the same shapes."""
  several = jax.process_count() > 1
  return multihost_utils.broadcast_one_to_all(tree) if several else tree


def check_same(text: str) -> None:
  """Raises UserError on a host whose text is not the first host's."""
  ours = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
  if (ours != from_first_host(ours)).any():
    raise UserError(
      'this host has another config or corpus than the first host: give both the same '
      'flags and the same prepared corpus (--data_dir)'
    )
