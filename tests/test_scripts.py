"""What a user gets who asks the scripts for help, or gives them what cannot be."""

import contextlib
import importlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest

from configs import multi30k
from toy import untrained
from transformer_jax.decoding import pipe
from transformer_jax.machine import cli, errors
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import EXIT_CODE

ROOT = pathlib.Path(__file__).parents[1]
SCRIPTS = sorted(
  p.stem for p in (ROOT / 'scripts').glob('*.py') if p.stem != '__init__'
)
MULTI30K = '--config=configs/multi30k.py:en-de'


def run(name: str, *options: str) -> tuple[int, str, str]:
  """Exit code, stdout and stderr of scripts.NAME."""
  environment = {k: v for k, v in os.environ.items() if k != 'JAX_NUM_CPU_DEVICES'}
  command = [sys.executable, '-m', f'scripts.{name}', *options]
  done = subprocess.run(
    command, cwd=ROOT, env=environment, capture_output=True, text=True, encoding='utf-8'
  )
  return done.returncode, done.stdout, done.stderr


def refused_by_process(name: str, *options: str) -> str:
  """The line with which it fails, perhaps after progress."""
  code, out, err = run(name, *options)
  assert code == 1 and not out and 'Traceback' not in err, (code, out, err)
  return err.splitlines()[-1]


def refused(name: str, *options: str, alone: bool = True) -> str:
  """The same within this process, which takes a tenth of the time.

  Unless `alone`, progress may stand before the line.
  """
  main = errors.in_one_line()(importlib.import_module(f'scripts.{name}').main)
  out, err = io.StringIO(), io.StringIO()
  with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
    with pytest.raises(SystemExit) as end:
      main([name, *options])
  assert not out.getvalue() and not (alone and err.getvalue()), (out, err)
  assert isinstance(end.value.code, str) and '\n' not in end.value.code
  return end.value.code


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch):
  monkeypatch.chdir(ROOT)


@pytest.fixture
def raw(tmp_path: pathlib.Path) -> pathlib.Path:
  folder = tmp_path / 'raw'
  folder.mkdir()
  for stem, count in (('train', 40), ('val', 3), ('test_2016_flickr', 3)):
    for language, words in (('en', 'one two three'), ('de', 'eins zwei drei')):
      lines = (f'{words} {i}\n' for i in range(count))
      (folder / f'{stem}.{language}').write_text(''.join(lines))
  return folder


@pytest.mark.slow
@pytest.mark.parametrize('name', SCRIPTS)
def test_every_script_is_a_command(name: str):
  code, out, err = run(name, '--help')
  assert (code, err) == (0, '') and out


@pytest.mark.parametrize('name', SCRIPTS)
def test_help(name: str, capsys: pytest.CaptureFixture):
  """Says what the script does, how it is called, and every flag of its own."""
  with pytest.raises(SystemExit) as end:
    importlib.import_module(f'scripts.{name}').main([name, '--help'])
  out, err = capsys.readouterr()
  assert (end.value.code, err) == (0, '')
  assert f'python -m scripts.{name}' in out
  source = (ROOT / 'scripts' / f'{name}.py').read_text()
  own = re.findall(r"FLAGS\.(?!config|parse)\w+\(\s*'(\w+)'", source)
  own += ['config'] if 'FLAGS.config(' in source else []
  own += ['data_dir'] if 'data_dir(FLAGS)' in source else []
  own += ['data_dir', 'raw_dir'] if 'DataFlags(FLAGS)' in source else []
  assert own and all(f'--{flag}:' in out or f'--[no]{flag}:' in out for flag in own)


def test_all_scripts_in_one_process(capsys: pytest.CaptureFixture, tmp_path):
  """They are imported side by side, and called as functions, again and again."""
  scripts = {name: importlib.import_module(f'scripts.{name}') for name in SCRIPTS}
  call = lambda name, *options: scripts[name].main([name, *options])
  told = []
  for layers in (3, 4):
    override = f'--config.model.N={layers}'
    call('describe', '--config=configs/base.py:en-de', override, '--json')
    told.append(json.loads(capsys.readouterr().out)['cells']['N'])
  call('describe', MULTI30K)
  assert told == [3, 4] and 'json' not in capsys.readouterr().out
  for name, lines in (('hypotheses', 'ein Hund\n'), ('references', 'ein Hund da\n')):
    (tmp_path / name).write_text(lines)
  files = [f'--{name}={tmp_path / name}' for name in ('hypotheses', 'references')]
  call('evaluate', *files, '--target_language=de')
  assert 'sacrebleu ' in capsys.readouterr().out
  with pytest.raises(UserError, match='give --workdir'):
    call('train', MULTI30K)


def test_a_misspelt_key():
  message = refused('prepare_data', MULTI30K, '--config.train_step=3')
  assert message.startswith('--config.train_step: no such key; the nearest: train_st')
  for key, nearest in (('model.N.x', 'model.N'), ('N', 'model.N'), ('D_FF', 'model')):
    message = refused('describe', MULTI30K, f'--config.{key}=3')
    assert message.startswith(f'--config.{key}: no such key; the nearest: {nearest}')
  message = refused('train', MULTI30K, '--workdir=x', '--config.xyzzy=3')
  assert message == '--config.xyzzy: no such key; configs/base.py has them all'


def test_a_value_of_another_type():
  message = refused('prepare_data', MULTI30K, '--config.train_steps=many')
  assert 'train_steps' in message


@pytest.mark.parametrize(
  ('name', 'missing'),
  [
    ('train', '--workdir'),
    ('sweep', '--workdir'),
    ('describe', '--config'),
    ('evalb', '--gold and --test'),
  ],
)
def test_a_missing_flag(name: str, missing: str):
  assert refused(name) == f'give {missing} (--help tells of all flags)'


def test_evalb_compares_parsers(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture):
  gold, flat = tmp_path / 'gold.mrg', tmp_path / 'flat.mrg'
  gold.write_text('(TOP (S (NP (PRP I)) (VP (VBD saw) (NP (PRP it)))))\n')
  flat.write_text('(TOP (S (PRP I) (VBD saw) (PRP it)))\n')
  main = importlib.import_module('scripts.evalb').main
  main(['evalb', f'--gold={gold}', f'--test={flat}', f'--against={gold}'])
  last = capsys.readouterr().out.splitlines()[-1]
  assert last.startswith('F1 40.00 against 100.00: -60.00, p = ')
  with pytest.raises(OSError, match='none.mrg'):
    main(['evalb', f'--gold={gold}', f'--test={flat}', f'--against={flat}.none.mrg'])
  assert not capsys.readouterr().out  # it is told before 1,000 lines of scores


def test_a_word_that_is_no_flag():
  """Such as a value after a space that a switch does not take."""
  message = refused('describe', '--config=configs/base.py', '--json', 'true')
  assert message == "'true' is no flag; flags begin with --"


def test_a_key_without_a_config():
  message = refused('train', '--workdir=x', '--config.seed=2')
  assert message == '--config.seed=2 changes a config: give --config=FILE too'


def test_no_config_and_no_such_config():
  assert 'give --config, or --verify' in refused('prepare_data')
  assert 'x holds no run to go on with: give --config=' in refused(
    'train', '--workdir=x'
  )
  message = refused('prepare_data', '--config=configs/nothing.py')
  assert '--config=configs/nothing.py: no such file; there are: configs/base' in message


@pytest.mark.parametrize(
  ('name', 'config', 'message'),
  [
    ('prepare_data', 'multi30k.py:en-de,uppercase', 'PAIR or PAIR,lowercase, such as'),
    ('train', 'base.py:ende', "'ende' is none of the pairs of languages: en-de"),
    ('describe', 'big.py:en-de-fr', "'en-de-fr' is none of the pairs"),
    ('benchmark', 'newsmix.py:en-', "'en-' is none of the pairs"),
    ('describe', 'table3.py', 'ROW or ROW,mini; the rows are base, A1, '),
    ('describe', 'table3.py:Z9', 'ROW or ROW,mini; the rows are base, A1, '),
  ],
)
def test_an_unknown_pair_or_row(name: str, config: str, message: str):
  workdir = ['--workdir=x'] if name == 'train' else []
  assert message in refused(name, f'--config=configs/{config}', *workdir)


def test_an_unknown_row_or_key_of_a_sweep(tmp_path: pathlib.Path):
  options = f'--workdir={tmp_path}', '--dry_run'
  assert 'table3.py:Z9: give table3.py:ROW or ROW,mini' in refused(
    'sweep', '--rows=Z9', *options
  )
  message = refused('sweep', '--rows=B1', *options, '--', '--config.train_step=3')
  assert '--config.train_step: no such key; the nearest: train_steps' in message


def test_no_raw_dir(tmp_path: pathlib.Path):
  data = f'--data_dir={tmp_path / "data"}'
  message = refused('prepare_data', MULTI30K, data)
  assert 'multi30k.en-de is not prepared in --data_dir: give --raw_dir' in message
  message = refused('prepare_data', MULTI30K, data, f'--raw_dir={tmp_path / "none"}')
  assert 'none: no such folder (--raw_dir)' in message
  message = refused('prepare_data', MULTI30K, data, '--config.data.reader=tape')
  assert "reader='tape': 'wmt14', 'files', 'trees' or 'embedded'" in message
  assert not (tmp_path / 'data').exists()


def test_no_corpus_and_no_file(tmp_path: pathlib.Path):
  data = f'--data_dir={tmp_path / "data"}'
  message = refused('benchmark', MULTI30K, data, '--what=input')
  assert 'multi30k.en-de is not prepared in --data_dir: give --raw_dir' in message
  message = refused('prepare_data', f'--verify={tmp_path}')
  assert 'card.json: not there' in message
  message = refused('report', str(tmp_path / 'run'), alone=False)
  assert 'no run with a result.json' in message
  message = refused(
    'evaluate',
    f'--hypotheses={tmp_path / "hypotheses"}',
    f'--references={tmp_path / "references"}',
    '--target_language=de',
  )
  assert 'No such file' in message and str(tmp_path / 'references') in message


def test_sides_of_unequal_length(raw: pathlib.Path, tmp_path: pathlib.Path):
  with (raw / 'train.de').open('a') as file:
    file.write('noch eine\n')
  options = f'--data_dir={tmp_path / "data"}', f'--raw_dir={raw}'
  message = refused('prepare_data', MULTI30K, *options, alone=False)
  assert 'train.de' in message and 'line' in message


@pytest.mark.parametrize(
  ('name', 'flag'),
  [
    ('evaluate', 'average'),
    ('evaluate', 'beam'),
    ('sweep', 'average'),
    ('sweep', 'per_node'),
    ('benchmark', 'length'),
  ],
)
def test_fewer_than_one(name: str, flag: str):
  assert f'flag --{flag}=0: 0 is not' in refused(name, f'--{flag}=0')


@pytest.mark.parametrize('step', ['last', '1.5', ''])
def test_a_step_is_a_number_or_best(step: str):
  message = refused('evaluate', '--workdir=x', f'--step={step}')
  assert message == f'flag --step={step}: a whole number, or best'


@pytest.mark.parametrize('numbers', ['abc', '0', '-1', ''])
def test_numbers_of_a_benchmark(numbers: str):
  for options in ([f'--rows={numbers}'], [f'--beams={numbers}', '--what=decoding']):
    message = refused('benchmark', MULTI30K, *options)
    assert f'={numbers}: numbers of 1 or more' in message


def test_a_grid_of_one():
  message = refused('table1', '--output=x.json', '--n=64')
  assert '--n wants two different numbers or more' in message


def test_preparing(raw: pathlib.Path, tmp_path: pathlib.Path):
  """Too large a vocabulary is refused with what fits; what fits is prepared, once.

  As it is not what the config has, it gets another name than the config's.
  """
  options = [MULTI30K, f'--data_dir={tmp_path / "data"}', f'--raw_dir={raw}']
  message = refused('prepare_data', *options, alone=False)
  assert 'no vocabulary of 10000 pieces (--config.model.vocab_size)' in message
  fits = message.rpartition('<= ')[2].split('.')[0]
  options.append(f'--config.model.vocab_size={fits}')
  code, out, err = run('prepare_data', *options)
  folder = pathlib.Path(out.strip())
  assert code == 0 and folder.parent == tmp_path / 'data', err
  assert re.fullmatch(r'multi30k\.en-de\.[0-9a-f]{8}', folder.name)
  before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
  assert 'card.json' in before
  again = run('prepare_data', *options)
  assert again[:2] == (0, out) and f'using {folder} (' in again[2]
  others = '--config.data.train_pairs=10', f'--config.data.name={folder.name}'
  message = refused('prepare_data', *options, *others)
  assert (
    'prepared with train_pairs=1000000000, the config says 10: give the corpus'
    in message
  )
  assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


@pytest.mark.slow
def test_another_configs_run(raw: pathlib.Path, tmp_path: pathlib.Path):
  """Refused before anything is compiled; so is a corpus of another vocabulary size."""
  options = [MULTI30K, f'--data_dir={tmp_path / "data"}', f'--raw_dir={raw}']
  options += ['--config.data.name=multi30k.en-de', '--config.model.vocab_size=60']
  workdir = tmp_path / 'run'
  assert run('prepare_data', *options)[0] == 0
  prepared = tmp_path / 'data' / 'multi30k.en-de'
  workdir.mkdir()
  for name in ('vocabulary.model', 'card.json'):
    (workdir / name).write_bytes((prepared / name).read_bytes())
  (workdir / 'config.json').write_text('{"beam": 5, "train_steps": 5}')
  (workdir / 'metrics.jsonl').write_text('{"step": 5, "loss": 1.0}\n')
  message = refused_by_process('train', *options, f'--workdir={workdir}')
  assert "run holds another config's run; these differ: adam_b1, " in message
  assert 'beam' not in message.rpartition('these differ')[2].split('.')[0]
  new = f'--workdir={tmp_path / "new"}'
  message = refused_by_process('train', *options[:-1], new)
  assert 'prepared with vocab_size=60, the config says 10000' in message
  message = refused_by_process(
    'train', *options, f'--workdir={workdir}', '--config.average_last=0'
  )
  assert 'average_last=0: a whole number from 1 to ' in message
  (workdir / 'config.json').write_text('{"beam"')
  message = refused_by_process('train', *options, f'--workdir={workdir}')
  assert 'config.json: damaged' in message


def test_a_text_is_translated_in_parts(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys
):
  """They are numbered on, and a signal in one of them ends it before the next."""
  text = tmp_path / 'text'
  text.write_text(''.join(f'{line}\n' for line in ('one two', '', 'six', 'ten', 'two')))
  options = f'--workdir={untrained.write(tmp_path)}', f'--input={text}', '--nbest=2'
  translate = importlib.import_module('scripts.translate')
  monkeypatch.setattr(translate.Interruption, 'install', lambda self: self)
  translate.main(['translate', *options])
  whole = capsys.readouterr().out
  assert [line[0] for line in whole.splitlines()] == [*'1122334455']
  monkeypatch.setattr(pipe, 'TOGETHER', 2)
  translate.main(['translate', *options])
  assert capsys.readouterr().out == whole

  class Told(translate.Interruption):
    """A signal comes while the second part is printed."""

    parts = 0

    @contextlib.contextmanager
    def deferred(self):
      yield
      self.parts += 1
      self.asked = self.parts == 2

  monkeypatch.setattr(translate, 'Interruption', Told)
  with pytest.raises(SystemExit) as ended:
    translate.main(['translate', *options])
  assert ended.value.code == EXIT_CODE
  out, err = capsys.readouterr()
  assert out.splitlines() == whole.splitlines()[:8] and '4 lines are translated' in err


def test_what_is_translated_with_is_what_is_asked_for(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  """The search, the length penalty and the checkpoints."""
  translate = importlib.import_module('scripts.translate')
  monkeypatch.setattr(translate.Interruption, 'install', lambda self: self)
  monkeypatch.setattr(translate.Run, 'config', lambda self: SimpleNamespace(beam=4))
  seen = []

  def load(workdir: pathlib.Path, **given: object) -> None:
    seen.append(given)
    raise EOFError

  monkeypatch.setattr(translate.transformer_jax, 'load', load)
  flags = ['--beam=2', '--alpha=0', '--average=3', '--step=7']
  for asked in ([], flags, ['--nbest=6', '--step=best']):
    with pytest.raises(EOFError):
      translate.main(['translate', f'--workdir={tmp_path}', '--input=x', *asked])
  own = {'beam': 4, 'alpha': None, 'average': None, 'step': None}
  given = {'beam': 2, 'alpha': 0.0, 'average': 3, 'step': 7}
  assert seen == [own, given, own | {'beam': 6, 'step': 'best'}]


def test_a_swapped_vocabulary(raw: pathlib.Path, tmp_path: pathlib.Path):
  """translate says so before it reads, averages or compiles anything."""
  options = [MULTI30K, f'--data_dir={tmp_path / "data"}', f'--raw_dir={raw}']
  options += ['--config.data.name=multi30k.en-de', '--config.model.vocab_size=60']
  assert run('prepare_data', *options)[0] == 0
  prepared, workdir = tmp_path / 'data' / 'multi30k.en-de', tmp_path / 'run'
  workdir.mkdir()
  (workdir / 'card.json').write_bytes((prepared / 'card.json').read_bytes())
  (workdir / 'config.json').write_text(multi30k.get_config().to_json_best_effort())
  model = (prepared / 'vocabulary.model').read_bytes()
  (workdir / 'vocabulary.model').write_bytes(model)
  message = refused('translate', f'--workdir={workdir}', alone=False)
  assert 'no finished checkpoint there' in message
  (workdir / 'vocabulary.model').write_bytes(model + b'x')
  message = refused('translate', f'--workdir={workdir}', alone=False)
  assert f'{workdir / "vocabulary.model"} (' in message
  assert "is not the run's vocabulary" in message


@pytest.mark.parametrize(
  ('name', 'flag'),
  [
    ('train', 'workdir'),
    ('train', 'raw_dir'),
    ('sweep', 'workdir'),
    ('evaluate', 'workdir'),
    ('translate', 'input'),
    ('report', 'html'),
    ('report', 'markdown'),
    ('benchmark', 'text'),
    ('benchmark', 'output'),
    ('table1', 'output'),
  ],
)
def test_an_empty_path(name: str, flag: str):
  assert refused(name, f'--{flag}=') == f'flag --{flag}=: is empty'


def test_a_home_in_a_path(monkeypatch: pytest.MonkeyPatch):
  """Which a shell leaves alone behind a =."""
  monkeypatch.setenv('HOME', '/home/me')
  table = cli.Flags('')
  path = table.path('output', None, '')
  table.parse(['x', '--output=~/runs/a'])
  assert path.value == pathlib.Path('/home/me/runs/a')


@pytest.mark.parametrize('number', ['0', '-5', 'nan', 'inf'])
def test_no_speed(number: str):
  message = refused('report', 'run', f'--sustained_tflops={number}')
  assert message.endswith(': more than 0, and finite')


def test_a_beam_that_nothing_can_have():
  message = refused('benchmark', MULTI30K, '--what=decoding', '--beams=4,2000')
  assert message.startswith('beam=2000: a whole number from 1 to 1,024')


@pytest.mark.parametrize('name', ['evaluate', 'translate'])
def test_no_run(name: str, tmp_path: pathlib.Path):
  message = refused(name, f'--workdir={tmp_path}', alone=False)
  assert 'config.json: not there; is ' in message and ' a run?' in message
