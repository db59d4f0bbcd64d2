"""Files to prepare a corpus from."""

import os
import pathlib

import pytest

import toy.corpus


@pytest.fixture(autouse=True)
def machine_stays_up(monkeypatch) -> None:
  """Leaves out fsync, which only saves files from a power failure."""
  monkeypatch.setattr(os, 'fsync', lambda file: None)


@pytest.fixture
def raw(tmp_path: pathlib.Path) -> pathlib.Path:
  return toy.corpus.write_raw(tmp_path / 'raw')
