"""Help, refusals and calls of the scripts."""

import contextlib
import importlib
import io
import json
import pathlib
import re

import pytest

import transformer_jax
from toy.corpus import write_raw
from transformer_jax.machine import errors

pytestmark = pytest.mark.usefixtures('in_the_checkout')

SCRIPTS = pathlib.Path(__file__).parents[1] / 'scripts'
MULTI30K = '--config=configs/multi30k.py:en-de'

TRAIN = 'train --workdir={tmp}/x --config=configs/'
# A command, where {tmp} is an empty folder, and what its one line of error says.
REFUSED = [
  # Keys of a config
  (f'{TRAIN}table3.py:B1 --config.row=B9', 'so this is not row B9'),
  (f'{TRAIN}base.py --config.model.h=4', 'model.h: not as in the config file'),
  ('describe --config=configs/my.py', '--config=configs/my.py:SOURCE-TARGET,DIR'),
  ('train --workdir={tmp}/x', 'starts one with --config='),
  # Flags
  ('evaluate --hypotheses=h', 'needs --references and --target_language'),
  (
    f'{TRAIN}parsing.py:wsj --config.model.target_vocab_size=0',
    'constrained=True needs a vocabulary of the target alone: give --config.model.t',
  ),
  ('prepare_data --verify=x --raw_dir=y', '--raw_dir does not go with --verify'),
  ('evaluate --workdir=x --step=1.5', 'flag --step=1.5: a whole number, or best'),
  # Files
  ('check_mine {tmp}/none.safetensors', 'none.safetensors'),
  ('report {tmp}/run', 'no run with a result.json'),
  ('evalb --gold=/dev/null --test=/dev/null', 'are empty: give a tree a line'),
]


def call(name: str, *options: str) -> None:
  importlib.import_module(f'scripts.{name}').main([name, *options])


def error_of(name: str, *options: str) -> str:
  """Returns the one line with which scripts.NAME ends, in this process."""
  main = errors.report_user_errors()(call)
  out = io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
    with pytest.raises(SystemExit) as end:
      main(name, *options)
  assert not out.getvalue()
  assert isinstance(end.value.code, str) and '\n' not in end.value.code
  return end.value.code


@pytest.mark.parametrize(('command', 'message'), REFUSED)
def test_refused(command: str, message: str, tmp_path: pathlib.Path):
  assert message in error_of(*command.format(tmp=tmp_path).split())
  assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize('name', sorted(p.stem for p in SCRIPTS.glob('[a-z]*.py')))
def test_help(name: str, capsys):
  with pytest.raises(SystemExit) as end:
    call(name, '--help')
  assert end.value.code in (0, None)
  module = importlib.import_module(f'scripts.{name}')
  out = capsys.readouterr().out
  assert module.__doc__.splitlines()[0] in out and re.search('^  --', out, re.M)


def test_scripts_are_functions_too(capsys, tmp_path):
  """A call leaves no flags to the next."""
  call('describe', MULTI30K, '--config.model.N=2', '--json')
  assert json.loads(capsys.readouterr().out)['cells']['N'] == 2
  call('describe', MULTI30K)
  out = capsys.readouterr().out
  assert not out.startswith('{') and re.search(r'^model\.N = 4 ', out, re.M)
  for name, line in (('hypotheses', 'ein Hund\n'), ('references', 'ein Hund da\n')):
    (tmp_path / name).write_text(line)
  files = [f'--{name}={tmp_path / name}' for name in ('hypotheses', 'references')]
  call('evaluate', *files, '--target_language=de')
  assert 'sacrebleu ' in capsys.readouterr().out


@pytest.mark.parametrize(
  ('name', 'count'),
  [('evaluate', 5), ('translate', 5), ('plot_attention', 2), ('survey_heads', 2)],
)
def test_a_run_is_loaded_as_the_flags_say(name: str, count: int, monkeypatch):
  def load(_, **options):
    raise errors.UserError(json.dumps(options))

  monkeypatch.setattr(transformer_jax, 'load', load)
  every = {'average': 2, 'step': 20, 'beam': 3, 'alpha': 1.0, 'decode_dtype': 'float32'}
  for step in 20, 'best':
    given = dict([*(every | {'step': step}).items()][:count])
    flags = (f'--{key}={value}' for key, value in given.items())
    told = error_of(name, '--workdir=pretrained/tatoeba.en-de', *flags)
    assert json.loads(told) == given


def test_preparing(tmp_path: pathlib.Path, capsys):
  """A refused size comes with one that fits, which is prepared once, by a new name."""
  raw = write_raw(tmp_path / 'raw', 40, 3, 3)
  options = [MULTI30K, f'--data_dir={tmp_path / "data"}', f'--raw_dir={raw}']
  options += [f"--config.data.files.{split}=('{split}',)" for split in ('dev', 'test')]
  message = error_of('prepare_data', *options)
  assert 'no vocabulary of 10000 pieces (--config.model.vocab_size)' in message
  fits = message.rpartition('<= ')[2].split('.')[0]
  options.append(f'--config.model.vocab_size={fits}')
  call('prepare_data', *options)
  folder = pathlib.Path(capsys.readouterr().out.strip())
  assert folder.parent == tmp_path / 'data'
  assert re.fullmatch(r'multi30k\.en-de\.[0-9a-f]{8}', folder.name)
  call('prepare_data', *options)
  out, err = capsys.readouterr()
  assert out == f'{folder}\n' and f'using {folder} (' in err
