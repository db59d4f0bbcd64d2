"""The processor's name, its vector instructions, and the cores that we may use."""

import os
import pathlib
import platform

CPUINFO = pathlib.Path('/proc/cpuinfo')


def describe(cpuinfo: pathlib.Path = CPUINFO) -> tuple[str, list[str]]:
  """The processor's name, and its flags that begin with avx or amx.

  There are no flags where the system has no /proc/cpuinfo.
  """
  if not cpuinfo.is_file():
    return platform.processor() or platform.machine(), []
  fields = {}
  for line in cpuinfo.read_text().splitlines():
    name, _, value = line.partition(':')
    fields[name.strip()] = value.strip()
  model = fields['model name'] if 'model name' in fields else platform.machine()
  flags = fields['flags'].split() if 'flags' in fields else []
  return model, sorted(f for f in flags if f.startswith(('avx', 'amx')))


def cores() -> list[int]:
  """The cores that this process may use; all of them on macOS, which has no limit."""
  if hasattr(os, 'sched_getaffinity'):
    return sorted(os.sched_getaffinity(0))
  return [*range(os.cpu_count() or 1)]


def multiplies_bfloat16() -> bool:
  """Whether it has instructions for bfloat16.

  They make decoding faster, except that of one sentence alone without AMX
  (docs/speed_tried.md).
  """
  return not {'amx_bf16', 'avx512_bf16'}.isdisjoint(describe()[1])
