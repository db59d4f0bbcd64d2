"""The processor, the cores, the commit and the packages that a result was made with."""

import importlib.metadata
import os
import pathlib
import platform
import subprocess
from collections.abc import Iterable

CPUINFO = pathlib.Path('/proc/cpuinfo')


def processor(cpuinfo: pathlib.Path = CPUINFO) -> tuple[str, list[str]]:
  """Returns the processor's name, and its flags that begin with avx or amx.

  There are no flags where the system has no /proc/cpuinfo.
  """
  if not cpuinfo.is_file():
    return platform.processor() or platform.machine(), []
  fields = {}
  for line in cpuinfo.read_text().splitlines():
    name, _, value = line.partition(':')
    fields[name.strip()] = value.strip()
  flags = fields.get('flags', '').split()
  model = fields.get('model name', platform.machine())
  return model, sorted(f for f in flags if f.startswith(('avx', 'amx')))


def multiplies_bfloat16() -> bool:
  """Tells whether the processor has instructions for products of bfloat16."""
  return not {'amx_bf16', 'avx512_bf16'}.isdisjoint(processor()[1])


def cores() -> list[int]:
  """Returns the cores that this process may use; all of them on macOS."""
  if hasattr(os, 'sched_getaffinity'):
    return sorted(os.sched_getaffinity(0))
  return [*range(os.cpu_count() or 1)]


def commit(folder: pathlib.Path = pathlib.Path(__file__).parent) -> str | None:
  """Returns the checkout's commit, with a '+' if files differ; None outside of one."""
  git = lambda *words: subprocess.run(
    ['git', '--no-optional-locks', *words],
    cwd=folder,
    capture_output=True,
    text=True,
    check=True,
  ).stdout.strip()
  try:
    # Fails if this package is only installed inside another project's checkout.
    git('ls-files', '--error-unmatch', '.')
    changed = git('status', '--porcelain', '--untracked-files=no')
    return git('rev-parse', 'HEAD') + ('+' if changed else '')
  except (OSError, subprocess.CalledProcessError):
    return None


def versions(packages: Iterable[str]) -> dict[str, str]:
  """Returns the versions of Python and of installed packages."""
  installed = {name: importlib.metadata.version(name) for name in packages}
  return {'python': platform.python_version()} | installed
