"""A run whose parameters are random, which tests of decoding share."""

import pathlib

import pytest

from toy import untrained


@pytest.fixture(scope='session')
def workdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp('trained')
  return untrained.write(folder, **{'model.N': 1, 'bleu_sentences': 9})
