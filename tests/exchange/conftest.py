"""A run of random parameters, and what it is as a Marian model."""

import pathlib

import pytest

from toy import untrained
from transformer_jax.exchange.export import export


@pytest.fixture(scope='session')
def workdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  sizes = {'model.d_model': 24, 'extra_length': 6}
  return untrained.write(tmp_path_factory.mktemp('exchange'), **sizes)


@pytest.fixture(scope='session')
def marian(workdir: pathlib.Path) -> pathlib.Path:
  """Returns the run's export for Hugging Face, which tests must not change."""
  output = workdir.parent / 'marian'
  export(workdir, 'huggingface', output, 'float32', None, None)
  return output
