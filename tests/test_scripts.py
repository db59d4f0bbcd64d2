"""What a user gets who asks the scripts for help, or gives them what cannot be."""

import contextlib
import importlib
import io
import json
import pathlib
import re
import subprocess
import sys

import pytest

from transformer_jax.machine import errors
from transformer_jax.machine.errors import UserError

ROOT = pathlib.Path(__file__).parents[1]
SCRIPTS = sorted(p.stem for p in (ROOT / 'scripts').glob('[!_]*.py'))
MULTI30K = '--config=configs/multi30k.py:en-de'

# A command, where {tmp} is an empty folder, and what its one line of error says.
REFUSED = [
  # Keys of a config
  (
    f'prepare_data {MULTI30K} --config.train_step=3',
    'no such key; the nearest: train_',
  ),
  (f'describe {MULTI30K} --config.model.N.x=3', 'no such key; the nearest: model.N'),
  (f'describe {MULTI30K} --config.D_FF=3', 'no such key; the nearest: model'),
  (f'train {MULTI30K} --workdir=x --config.xyzzy=3', 'configs/base.py has them all'),
  (f'prepare_data {MULTI30K} --config.train_steps=many', 'train_steps'),
  ('train --workdir=x --config.seed=2', "Unknown command line flag 'config.seed'"),
  # Configs
  ('prepare_data', 'give --config, or --verify'),
  ('train --workdir=x', 'starts one with --config='),
  ('prepare_data --config=configs/nothing.py', 'no such file; there are: configs/base'),
  (
    'prepare_data --config=configs/multi30k.py:en-de,up',
    'PAIR or PAIR,lowercase, such',
  ),
  ('train --config=configs/base.py:ende --workdir=x', "'ende' is none of the pairs"),
  ('describe --config=configs/big.py:en-de-fr', "'en-de-fr' is none of the pairs"),
  ('describe --config=configs/table3.py', 'ROW or ROW,mini; the rows are base, A1, '),
  ('describe --config=configs/table3.py:Z9', 'the rows are base, A1, '),
  ('sweep --workdir={tmp} --dry_run --rows=Z9', 'give table3.py:ROW or ROW,mini'),
  ('sweep --workdir={tmp} --dry_run --rows=B1 -- --config.train_step=3', 'no such key'),
  # Flags
  ('train', 'give --workdir (--help tells of all flags)'),
  ('sweep', 'give --workdir (--help tells of all flags)'),
  ('describe', 'give --config (--help tells of all flags)'),
  ('evalb', 'give --gold and --test (--help tells of all flags)'),
  ('describe --config=configs/base.py --json true', "'true' is no flag; flags begin"),
  ('evaluate --average=0', 'flag --average=0: 0 is not'),
  ('evaluate --hypotheses=h', 'needs --references and --target_language'),
  ('evaluate --hypotheses=h --workdir=w', 'give --workdir, or --hypotheses'),
  ('evaluate --hypotheses=h --beam=1', '--beam does not go with --hypotheses'),
  ('evaluate --workdir=r --tokenized', '--tokenized does not go with --workdir'),
  ('evaluate --beam=0', 'flag --beam=0: 0 is not'),
  ('sweep --per_node=0', 'flag --per_node=0: 0 is not'),
  ('evaluate --workdir=x --step=1.5', 'flag --step=1.5: a whole number, or best'),
  (f'benchmark {MULTI30K} --rows=abc', 'rows=abc: numbers of 1 or more'),
  (
    f'benchmark {MULTI30K} --what=decoding --beams=4,2000',
    'beam=2000: expected a whole',
  ),
  ('table1 --output=x.json --n=64', '--n wants two different numbers or more'),
  ('report run --sustained_tflops=nan', ': more than 0, and finite'),
  ('train --workdir=', 'flag --workdir=: is empty'),
  ('report --html=', 'flag --html=: is empty'),
  # Files
  (f'prepare_data {MULTI30K} --data_dir={{tmp}}/data', 'is not prepared in --data_dir'),
  (
    f'prepare_data {MULTI30K} --data_dir={{tmp}}/data --raw_dir={{tmp}}/none',
    'none: no such folder (--raw_dir)',
  ),
  (
    f'prepare_data {MULTI30K} --data_dir={{tmp}} --raw_dir=. --config.data.reader=tape',
    "reader='tape': ",
  ),
  (f'benchmark {MULTI30K} --data_dir={{tmp}}', 'give --raw_dir'),
  ('prepare_data --verify={tmp}', 'card.json: not there'),
  ('report {tmp}/run', 'no run with a result.json'),
  ('evaluate --workdir={tmp}', ' a run?'),
  ('translate --workdir={tmp}', ' a run?'),
  (
    'evaluate --hypotheses={tmp}/h --references={tmp}/r --target_language=de',
    'No such file',
  ),
]


def run(name: str, *options: str) -> tuple[int, str, str]:
  """Exit code, stdout and stderr of scripts.NAME in a process of its own."""
  command = [sys.executable, '-m', f'scripts.{name}', *options]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
  return done.returncode, done.stdout, done.stderr


def error_of(name: str, *options: str) -> str:
  """The one line with which scripts.NAME ends, in this process."""
  main = errors.in_one_line()(importlib.import_module(f'scripts.{name}').main)
  out = io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
    with pytest.raises(SystemExit) as end:
      main([name, *options])
  assert not out.getvalue()
  assert isinstance(end.value.code, str) and '\n' not in end.value.code
  return end.value.code


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch):
  monkeypatch.chdir(ROOT)


@pytest.mark.parametrize(('command', 'message'), REFUSED)
def test_refused(command: str, message: str, tmp_path: pathlib.Path):
  assert message in error_of(*command.format(tmp=tmp_path).split())
  assert not [*tmp_path.iterdir()]


def test_a_refused_command_prints_one_line():
  code, out, err = run('describe', '--config=configs/base.py', '--config.model.M=3')
  assert (code, out, err.count('\n')) == (1, '', 1) and 'no such key' in err


@pytest.mark.parametrize('name', SCRIPTS)
def test_help(name: str, capsys: pytest.CaptureFixture):
  """Says what the script does, how it is called, and every flag of its own."""
  with pytest.raises(SystemExit) as end:
    importlib.import_module(f'scripts.{name}').main([name, '--help'])
  out, err = capsys.readouterr()
  assert (end.value.code, err) == (0, '')
  assert f'python -m scripts.{name}' in out
  source = (ROOT / 'scripts' / f'{name}.py').read_text()
  own = re.findall(r"(?:FLAGS\.path|DEFINE_\w+)\(\s*'(\w+)'", source)
  assert own and all(f'--{flag}:' in out or f'--[no]{flag}:' in out for flag in own)


def test_scripts_are_functions_too(capsys: pytest.CaptureFixture, tmp_path):
  """They are imported side by side and called again and again, with no flags left."""
  scripts = {name: importlib.import_module(f'scripts.{name}') for name in SCRIPTS}
  call = lambda name, *options: scripts[name].main([name, *options])
  layers = []
  for n in (3, 4):
    call('describe', MULTI30K, f'--config.model.N={n}', '--json')
    layers.append(json.loads(capsys.readouterr().out)['cells']['N'])
  call('describe', MULTI30K)
  assert layers == [3, 4] and 'json' not in capsys.readouterr().out
  for name, line in (('hypotheses', 'ein Hund\n'), ('references', 'ein Hund da\n')):
    (tmp_path / name).write_text(line)
  files = [f'--{name}={tmp_path / name}' for name in ('hypotheses', 'references')]
  call('evaluate', *files, '--target_language=de')
  assert 'sacrebleu ' in capsys.readouterr().out
  with pytest.raises(UserError, match='give --workdir'):
    call('train', MULTI30K)


def test_evalb_compares_parsers(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture):
  gold, flat = tmp_path / 'gold.mrg', tmp_path / 'flat.mrg'
  gold.write_text('(TOP (S (NP (PRP I)) (VP (VBD saw) (NP (PRP it)))))\n')
  flat.write_text('(TOP (S (PRP I) (VBD saw) (PRP it)))\n')
  main = importlib.import_module('scripts.evalb').main
  main(['evalb', f'--gold={gold}', f'--test={flat}', f'--against={gold}'])
  last = capsys.readouterr().out.splitlines()[-1]
  assert last.startswith('F1 40.00 against 100.00: -60.00, p = ')


# A corpus and a run


@pytest.fixture
def options(tmp_path: pathlib.Path) -> list[str]:
  """Flags of Multi30k's config with forty pairs to train on."""
  raw = tmp_path / 'raw'
  raw.mkdir()
  for stem, count in (('train', 40), ('val', 3), ('test_2016_flickr', 3)):
    for language, words in (('en', 'one two three'), ('de', 'eins zwei drei')):
      lines = (f'{words} {i}\n' for i in range(count))
      (raw / f'{stem}.{language}').write_text(''.join(lines))
  return [MULTI30K, f'--data_dir={tmp_path / "data"}', f'--raw_dir={raw}']


def test_preparing(options: list[str], tmp_path: pathlib.Path):
  """Too large a vocabulary is refused with what fits; what fits is prepared, once.

  As it is not what the config has, it gets another name than the config's.
  """
  message = error_of('prepare_data', *options)
  assert 'no vocabulary of 10000 pieces (--config.model.vocab_size)' in message
  fits = message.rpartition('<= ')[2].split('.')[0]
  options.append(f'--config.model.vocab_size={fits}')
  code, out, err = run('prepare_data', *options)
  folder = pathlib.Path(out.strip())
  assert code == 0 and folder.parent == tmp_path / 'data', err
  assert re.fullmatch(r'multi30k\.en-de\.[0-9a-f]{8}', folder.name)
  times = lambda: {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
  before = times()
  again = run('prepare_data', *options)
  assert again[:2] == (0, out) and f'using {folder} (' in again[2]
  changed = '--config.data.train_pairs=10', f'--config.data.name={folder.name}'
  message = error_of('prepare_data', *options, *changed)
  assert 'prepared with train_pairs=1000000000, the config says 10' in message
  assert times() == before and 'card.json' in before


def test_sides_of_unequal_length(options: list[str], tmp_path: pathlib.Path):
  with (tmp_path / 'raw' / 'train.de').open('a') as file:
    file.write('noch eine\n')
  message = error_of('prepare_data', *options)
  assert 'train.de' in message and 'line' in message
