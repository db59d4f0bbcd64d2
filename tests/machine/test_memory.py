"""Freed memory goes back to the system."""

import ctypes
import os
import pathlib

import pytest

from transformer_jax.machine import memory

BLOCK = 1 << 16  # bytes: glibc asks the system for larger ones one by one
STATM = pathlib.Path('/proc/self/statm')


def resident() -> int:
  """Bytes of this process that are in memory."""
  return int(STATM.read_text().split()[1]) * os.sysconf('SC_PAGE_SIZE')


@pytest.mark.skipif(
  not (STATM.exists() and hasattr(ctypes.CDLL(None), 'malloc_trim')),
  reason='the C library is not glibc',
)
def test_freed_memory_goes_back():
  """It does so even if memory above it is in use."""
  c = ctypes.CDLL(None)
  c.malloc.restype = ctypes.c_void_p
  blocks = [ctypes.c_void_p(c.malloc(BLOCK)) for _ in range(1001)]
  for block in blocks:
    ctypes.memset(block, 1, BLOCK)
  before = resident()
  for block in blocks[:-1]:
    c.free(block)
  kept = resident()
  memory.give_back()
  after = resident()
  c.free(blocks[-1])
  assert before - kept < 8 * BLOCK  # else there is nothing to give back
  assert before - after > 900 * BLOCK


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch):
  asked = []

  class Other:
    def __getattr__(self, name: str) -> None:
      asked.append(name)
      raise AttributeError(name)

  monkeypatch.setattr(memory.ctypes, 'CDLL', lambda _: Other())
  memory.give_back()
  assert asked == ['malloc_trim']
