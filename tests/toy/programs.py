"""Our commands as processes of their own, without the seconds that imports take.

A server that has imported the libraries forks them, which is all that differs from
`python -m scripts.NAME`: each still starts JAX, compiles and handles signals itself.
"""

import functools
import importlib
import multiprocessing
import os
import pathlib
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import jax

from toy.task import TINY, write_raw
from transformer_jax.machine import errors

SERVER = multiprocessing.get_context('forkserver')
SERVER.set_forkserver_preload(
  ['transformer_jax.training.loop', 'sacrebleu', 'toy.programs']
)


def free_port() -> int:
  with socket.socket() as probe:
    probe.bind(('localhost', 0))
    return probe.getsockname()[1]


def _hold(place: str, seconds: float) -> None:
  """Makes all calls of MODULE:FUNCTION say so, wait, and say when they are done."""
  module, name = place.split(':')
  *outer, last = name.split('.')
  owner = functools.reduce(getattr, outer, importlib.import_module(module))
  function = getattr(owner, last)

  def held(*args: Any, **kwargs: Any) -> Any:
    print(f'begin {name}')
    time.sleep(seconds)
    result = function(*args, **kwargs)
    print(f'end {name}')
    return result

  setattr(owner, last, held)


def _run(
  name: str,
  argv: list[str],
  log: str,
  devices: int,
  hold: Mapping[str, float],
  environment: dict[str, str],
) -> None:
  """In the child: the command, with all it prints in the file `log`."""
  file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
  os.dup2(file, 1)
  os.dup2(file, 2)
  sys.stdout, sys.stderr = (os.fdopen(fd, 'w', buffering=1) for fd in (1, 2))
  os.environ.pop('XLA_FLAGS', None)
  # Read when JAX was imported, so that for JAX setting it here would be too late.
  os.environ |= environment | {'JAX_NUM_CPU_DEVICES': str(devices)}
  jax.config.update('jax_num_cpu_devices', devices)
  module = importlib.import_module(f'scripts.{name}')
  for place, seconds in hold.items():
    _hold(place, seconds)
  sys.argv = [name, *argv]
  errors.run(module.main)


class Program:
  """One command that runs, or has run.

  `hold`: functions, as MODULE:NAME, and the seconds that each call of them waits, so
  that where it is when it is told something is no guess.
  """

  def __init__(
    self,
    folder: pathlib.Path,
    name: str,
    *options: str,
    devices: int = 1,
    hold: Mapping[str, float] = MappingProxyType({}),
    **environment: str,
  ):
    self._log = folder / f'{name}.{time.monotonic_ns()}.log'
    self._log.touch()
    environment = {'XDG_CACHE_HOME': str(folder / 'cache')} | environment
    arguments = name, list(options), str(self._log), devices, dict(hold), environment
    self._process = SERVER.Process(target=_run, args=arguments, daemon=True)
    self._process.start()

  @property
  def process_id(self) -> int:
    return self._process.pid

  @property
  def said(self) -> str:
    return self._log.read_text(errors='replace')

  def wait_for(self, told: Callable[[], bool], seconds: float = 300) -> None:
    """Until told() or the end, whichever comes first."""
    end = time.monotonic() + seconds
    while not told() and self._process.exitcode is None:
      assert time.monotonic() < end, self.said
      time.sleep(0.002)

  def listens(self) -> bool:
    """Whether it has come to where it handles its signals itself."""
    status = pathlib.Path(f'/proc/{self._process.pid}/status').read_text()
    caught = next(line for line in status.splitlines() if line.startswith('SigCgt'))
    return bool(int(caught.split()[1], 16) >> (signal.SIGUSR1 - 1) & 1)

  def signal(self, number: int) -> None:
    if self._process.exitcode is None:
      os.kill(self._process.pid, number)

  def code(self, seconds: float = 300) -> int:
    """The exit code, when it has ended."""
    self._process.join(seconds)
    assert self._process.exitcode is not None, self.said
    return self._process.exitcode


class Toy:
  """A folder with a toy task, and our commands on it."""

  def __init__(self, folder: pathlib.Path, data_dir: str = 'data', **settings: object):
    self.folder, self.workdir = folder, folder / 'run'
    self.checkpoints = self.workdir / 'checkpoints'
    if not (folder / 'raw').exists():
      write_raw(folder / 'raw', {'train': 100, 'dev': 20, 'test': 20})
    self._data = f'--data_dir={folder / data_dir}'
    self._config = ['--config=configs/quickstart.py', f'--raw_dir={folder / "raw"}']
    for key, value in (TINY | settings).items():
      self._config.append(f'--config.{key}={value}')

  @property
  def preparing(self) -> list[str]:
    """What scripts.prepare_data is given."""
    return [self._data, *self._config]

  def train(self, *options: str, **how: Any) -> Program:
    """`how`: what Program takes by name."""
    given = f'--workdir={self.workdir}', self._data, *self._config, *options
    return Program(self.folder, 'train', *given, **how)

  def evaluate(self, *flags: str, **how: Any) -> Program:
    given = f'--workdir={self.workdir}', self._data, *flags
    return Program(self.folder, 'evaluate', *given, **how)

  def translate(self, text: pathlib.Path, **how: Any) -> Program:
    given = f'--workdir={self.workdir}', f'--input={text}'
    return Program(self.folder, 'translate', *given, **how)

  def in_another(self, workdir: str) -> 'Toy':
    """The same task and settings with another run's folder."""
    other = object.__new__(Toy)
    other.__dict__ |= self.__dict__
    other.workdir = self.folder / workdir
    other.checkpoints = other.workdir / 'checkpoints'
    return other
