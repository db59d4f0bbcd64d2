"""The scripts that look inside a run, from flags to files."""

import importlib
import pathlib

import pytest

from toy import untrained
from transformer_jax.machine.errors import UserError


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp('scripts')
  untrained.write(folder)
  return folder


def call(folder: pathlib.Path, name: str, *options: str) -> None:
  script = importlib.import_module(f'scripts.{name}')
  script.main([name, f'--workdir={folder / "run"}', *options])


def test_sentences_to_pictures(folder: pathlib.Path, capsys: pytest.CaptureFixture):
  """A tab comes before a given translation; empty lines are left out."""
  text = ['--text=one, two\teins zwei', '--text=', '--text=three', '--word=three']
  call(folder, 'plot_attention', *text, '--layers=1,2', '--heads=2,3')
  written = capsys.readouterr().out.split()
  assert len(written) == 1 + 2 * 2 * 4 and all(
    map(pathlib.Path.exists, map(pathlib.Path, written))
  )
  assert written[0] == str(folder / 'run' / 'attention' / 'attention.html')
  with pytest.raises(UserError, match='no sentence was given'):
    call(folder, 'plot_attention', '--text=', '--text= ')
  with pytest.raises(UserError, match='--heads=4: the model has heads 1 to 3'):
    call(folder, 'plot_attention', '--text=one', '--heads=4')


@pytest.mark.slow
def test_a_survey(folder: pathlib.Path, capsys: pytest.CaptureFixture):
  data = f'--data_dir={folder / "data"}'
  output = f'--output={folder / "survey"}'
  call(folder, 'survey_heads', data, output, '--sentences=5', '--prune')
  said = capsys.readouterr().out
  assert (
    'Means over 5 sentences of dev.' in said and '| encoder-decoder | aligned |' in said
  )
  assert 'without one head it changes by:' in said
  assert {path.name for path in (folder / 'survey').iterdir()} == {
    f'{name}.{ending}' for name in ('heads', 'pruning') for ending in ('svg', 'png')
  }
  call(folder, 'survey_heads', data, output, '--query=zwei', '--key=two')
  assert '## From zwei to two' in capsys.readouterr().out


def test_positions(folder: pathlib.Path, capsys: pytest.CaptureFixture):
  call(folder, 'plot_positions', f'--output={folder / "positions"}')
  assert '| largest error of M_k |' in capsys.readouterr().out
  assert len([*(folder / 'positions').glob('positions.*.svg')]) == 3
