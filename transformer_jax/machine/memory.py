"""Memory that this process has freed."""

import ctypes


def give_back() -> None:
  """Returns to the system what is freed, where the C library would keep it.

  glibc keeps what lies below memory that is still used. After XLA has made a program,
  and a program has made a model's first parameters, that can be several hundred MB.
  """
  trim = getattr(ctypes.CDLL(None), 'malloc_trim', None)  # of glibc alone
  if trim is not None:
    trim(ctypes.c_size_t(0))
