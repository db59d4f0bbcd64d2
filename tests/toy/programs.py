"""Our commands as processes of their own, without the seconds that imports take.

A server that has imported the libraries forks them, which is all that differs from
`python -m scripts.NAME`: each still starts JAX, compiles and handles signals itself.
"""

import functools
import importlib
import itertools
import multiprocessing
import os
import pathlib
import socket
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax

from transformer_jax.machine import cli

# All tests' programs are kept here, so that each is compiled once.
CACHE = pathlib.Path(__file__).parents[2] / '.pytest_cache' / 'd'
SERVER = multiprocessing.get_context('forkserver')
SERVER.set_forkserver_preload(
  ['transformer_jax.training.loop', 'sacrebleu', 'toy.programs']
)


def free_port() -> int:
  with socket.socket() as probe:
    probe.bind(('localhost', 0))
    return probe.getsockname()[1]


def _hold(name: str, first: int, released: str, seconds: float) -> None:
  """Makes all calls of MODULE:FUNCTION print their begin and their end.

  From call number `first` on, which counts from 1, each waits after its begin until
  the file `released` exists, `seconds` at most.
  """
  module, name = name.split(':')
  *outer, last = name.split('.')
  owner = functools.reduce(getattr, outer, importlib.import_module(module))
  function, calls = getattr(owner, last), itertools.count(1)

  def say(what: str) -> None:
    # Not print(): it holds a lock while Python handles a signal, so that another
    # thread's print() would wait for that handler, which may wait for the thread.
    os.write(1, f'{what} {name}\n'.encode())

  def held(*args: Any, **kwargs: Any) -> Any:
    say('begin')
    end = time.monotonic() + (seconds if next(calls) >= first else 0)
    # Not one sleep: a signal that comes as it begins would be heard at its end.
    while time.monotonic() < end and not os.path.exists(released):
      time.sleep(0.02)
    result = function(*args, **kwargs)
    say('end')
    return result

  setattr(owner, last, held)


def _run(
  name: str,
  argv: list[str],
  log: str,
  devices: int,
  hold: Mapping[str, int],
  seconds: float,
  environment: dict[str, str],
) -> None:
  """Runs the command in the child; the file `log` gets all it prints."""
  file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
  os.dup2(file, 1)
  os.dup2(file, 2)
  sys.stdout, sys.stderr = (os.fdopen(fd, 'w', buffering=1) for fd in (1, 2))
  # Read when JAX was imported, so that for JAX setting it here would be too late.
  os.environ |= environment | {'JAX_NUM_CPU_DEVICES': str(devices)}
  jax.config.update('jax_num_cpu_devices', devices)
  module = importlib.import_module(f'scripts.{name}')
  for function, first in hold.items():
    _hold(function, first, f'{log}.released', seconds)
  sys.argv = [name, *argv]
  cli.run(module.main)


class Program:
  """One command that runs, or has run.

  `hold`: functions, as MODULE:NAME, and the number of the call from which on each
  waits, for release() or `seconds`: then a signal comes within that call, however slow
  the machine is.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    name: str,
    *options: str,
    devices: int = 1,
    hold: Mapping[str, int] = MappingProxyType({}),
    seconds: float = 120,
    **environment: str,
  ):
    self._log = folder / f'{name}.{time.monotonic_ns()}.log'
    self._log.touch()
    environment = {'XDG_CACHE_HOME': str(CACHE)} | environment
    arguments = name, list(options), str(self._log), devices, dict(hold), seconds
    self._process = SERVER.Process(
      target=_run, args=(*arguments, environment), daemon=True
    )
    self._process.start()

  @property
  def output(self) -> str:
    return self._log.read_text(errors='replace')

  def wait_for(self, is_ready: Callable[[], bool], seconds: float = 300) -> None:
    """Returns when is_ready() is true, or at the end of the process."""
    end = time.monotonic() + seconds
    while not is_ready() and self._process.exitcode is None:
      assert time.monotonic() < end, self.output
      time.sleep(0.002)

  def calls(self, function: str) -> int:
    """Returns how many calls of a function of `hold` began."""
    return self.output.count(f'begin {function.split(":")[1]}\n')

  def release(self) -> None:
    """Lets the calls go on that wait."""
    self._log.with_name(f'{self._log.name}.released').touch()

  def signal(self, number: int) -> None:
    if self._process.exitcode is None:
      os.kill(self._process.pid, number)

  def code(self, seconds: float = 300) -> int:
    """Waits for its end; returns the exit code."""
    self._process.join(seconds)
    assert self._process.exitcode is not None, self.output
    return self._process.exitcode
