"""The forms of the model's operations: a CPU's, or an accelerator's run on this CPU."""

import contextlib
from collections.abc import Iterator
from unittest import mock

import jax


@contextlib.contextmanager
def of_an_accelerator() -> Iterator[None]:
  """Programs that are traced meanwhile have the plain form of every operation."""
  plain = lambda *inputs, default, **forms: default(*inputs)
  jax.clear_caches()  # of what was traced with a CPU's forms
  with mock.patch.object(jax.lax, 'platform_dependent', plain):
    yield
  jax.clear_caches()
