"""What a user gets who asks the scripts for help, or gives them what cannot be."""

import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
SCRIPTS = sorted(
  p.stem for p in (ROOT / 'scripts').glob('*.py') if p.stem != '__init__'
)
MULTI30K = '--config=configs/multi30k.py:en-de'


def run(name: str, *options: str) -> tuple[int, str, str]:
  """Exit code, stdout and stderr of scripts.NAME."""
  environment = {k: v for k, v in os.environ.items() if k != 'XLA_FLAGS'}
  command = [sys.executable, '-m', f'scripts.{name}', *options]
  done = subprocess.run(
    command, cwd=ROOT, env=environment, capture_output=True, text=True, encoding='utf-8'
  )
  return done.returncode, done.stdout, done.stderr


def refused(name: str, *options: str) -> str:
  """What it says when it fails; the last line is for the reader."""
  code, out, err = run(name, *options)
  assert code != 0 and not out.startswith('/'), (code, out)
  return err + out


@pytest.fixture
def raw(tmp_path: pathlib.Path) -> pathlib.Path:
  folder = tmp_path / 'raw'
  folder.mkdir()
  for stem, count in (('train', 40), ('val', 3), ('test_2016_flickr', 3)):
    for language, words in (('en', 'one two three'), ('de', 'eins zwei drei')):
      lines = (f'{words} {i}\n' for i in range(count))
      (folder / f'{stem}.{language}').write_text(''.join(lines))
  return folder


@pytest.mark.parametrize('name', SCRIPTS)
def test_help(name: str):
  """Says what the script does, how it is called, and every flag of its own."""
  code, out, err = run(name, '--help')
  assert code in (0, 1) and 'Traceback' not in err
  assert f'python -m scripts.{name}' in out
  source = (ROOT / 'scripts' / f'{name}.py').read_text()
  own = [line.split("'")[1] for line in source.split('flags.DEFINE_')[1:]]
  assert own and all(f'--{flag}' in out or f'--[no]{flag}' in out for flag in own)


def test_a_misspelt_key():
  message = refused('prepare_data', MULTI30K, '--config.train_step=3')
  assert 'Did you mean "train_steps" instead of "train_step"?' in message


def test_a_value_of_another_type():
  message = refused('prepare_data', MULTI30K, '--config.train_steps=many')
  assert 'train_steps' in message


def test_no_config_and_no_such_config():
  assert 'give --config, or --verify' in refused('prepare_data')
  assert 'Flag --config must have a value' in refused('train', '--workdir=x')
  message = refused('prepare_data', '--config=configs/nothing.py')
  assert 'nothing.py' in message
  message = refused('prepare_data', '--config=configs/multi30k.py:en-de,uppercase')
  assert "PAIR or PAIR,lowercase, such as 'en-de'" in message


def test_no_raw_dir(tmp_path: pathlib.Path):
  data = f'--data_dir={tmp_path / "data"}'
  message = refused('prepare_data', MULTI30K, data)
  assert 'multi30k.en-de is not prepared: give --raw_dir' in message
  message = refused('prepare_data', MULTI30K, data, f'--raw_dir={tmp_path / "none"}')
  assert 'none: no such folder (--raw_dir)' in message
  message = refused('prepare_data', MULTI30K, data, '--config.reader=tape')
  assert "reader='tape': 'wmt14', 'files' or 'embedded'" in message
  assert not (tmp_path / 'data').exists()


def test_preparing(raw: pathlib.Path, tmp_path: pathlib.Path):
  """Too large a vocabulary is refused with what fits; what fits is prepared, once."""
  options = [MULTI30K, f'--data_dir={tmp_path / "data"}', f'--raw_dir={raw}']
  message = refused('prepare_data', *options)
  assert 'no vocabulary of 10000 pieces (--config.model.vocab_size)' in message
  fits = message.rpartition('<= ')[2].split('.')[0]
  options.append(f'--config.model.vocab_size={fits}')
  code, out, err = run('prepare_data', *options)
  folder = tmp_path / 'data' / 'multi30k.en-de'
  assert (code, out.strip()) == (0, str(folder)), err
  before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
  assert 'card.json' in before
  assert run('prepare_data', *options)[:2] == (0, out)
  assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_another_configs_run(raw: pathlib.Path, tmp_path: pathlib.Path):
  """Refused before anything is compiled; so is a corpus of another vocabulary size."""
  options = [MULTI30K, f'--data_dir={tmp_path / "data"}', f'--raw_dir={raw}']
  options += ['--config.model.vocab_size=60']
  workdir = tmp_path / 'run'
  assert run('prepare_data', *options)[0] == 0
  prepared = tmp_path / 'data' / 'multi30k.en-de'
  workdir.mkdir()
  for name in ('vocabulary.model', 'card.json'):
    (workdir / name).write_bytes((prepared / name).read_bytes())
  (workdir / 'config.json').write_text('{"beam": 5, "train_steps": 5}')
  message = refused('train', *options, f'--workdir={workdir}')
  assert "run holds another config's run; these differ: adam_b1, " in message
  assert 'beam' not in message.rpartition('these differ')[2].split('.')[0]
  message = refused('train', *options[:-1], f'--workdir={workdir}')
  assert 'prepared with vocab_size=60, the config says 10000' in message


@pytest.mark.parametrize('name', ['evaluate', 'translate'])
def test_no_run(name: str, tmp_path: pathlib.Path):
  message = refused(name, f'--workdir={tmp_path}')
  assert 'config.json: not there; is ' in message and ' a run?' in message
