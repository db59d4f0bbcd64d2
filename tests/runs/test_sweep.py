"""scripts.sweep and its plan, with a stand-in for the trainer."""

import importlib
import os
import pathlib
import signal
import subprocess
import sys

import pytest

from configs import table3
from scripts import sweep as script
from toy.jobs import STEPS, wait_until, write_stand_in
from transformer_jax.data.corpus import DataFlags
from transformer_jax.machine import errors
from transformer_jax.machine.cli import Flags
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.jobs import Job
from transformer_jax.runs.sweep import Plan
from transformer_jax.tasks import task_of

pytestmark = pytest.mark.usefixtures('in_the_checkout')

ROOT = pathlib.Path(__file__).parents[2]


class Command:
  """Runs scripts.sweep as a process that starts a stand-in for Python."""

  def __init__(self, folder: pathlib.Path, python: str | pathlib.Path):
    self._begin = (
      f'import sys; sys.executable = {str(python)!r}; sys.argv[0] = "sweep"\n'
      'from transformer_jax.machine import cli; from scripts import sweep\n'
      'cli.run(sweep.main)'
    )
    self.workdir = folder / 'runs'

  def start(self, *options: str) -> subprocess.Popen:
    """Starts it in a group of processes, as a terminal does."""
    command = [sys.executable, '-c', self._begin, f'--workdir={self.workdir}', *options]
    environment = os.environ | {'XDG_CACHE_HOME': str(self.workdir.parent / 'cache')}
    environment.pop('JAX_NUM_CPU_DEVICES', None)
    return subprocess.Popen(
      command,
      cwd=ROOT,
      env=environment,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
      start_new_session=True,
    )

  def __call__(self, *options: str) -> tuple[int, str, str]:
    process = self.start(*options)
    out, err = process.communicate()
    return process.returncode, out, err


def stand_in_config(folder: pathlib.Path, name: str) -> tuple[str, ...]:
  """Returns flags of a config whose file's name says what the stand-in does."""
  path = folder / f'{name}.py'
  path.write_text('from configs.quickstart import get_config\n')
  return f'--config={path}', '--', f'--config.train_steps={STEPS}'


def run_script(folder: pathlib.Path, *options: str) -> None:
  """Calls scripts.sweep without runs; SystemExit has what it refuses."""
  with errors.in_one_line():
    script.main(['sweep', f'--workdir={folder / "runs"}', *options])


def test_dry_run(tmp_path: pathlib.Path, monkeypatch, capsys):
  """Prints commands to stdout and states to stderr; writes nothing."""
  monkeypatch.setattr(sys, 'executable', '/bin/python')
  run_script(
    tmp_path,
    *('--dry_run', '--rows=base,D1', '--mini', '--seeds=1,2', '--raw_dir=r'),
    *('--data_dir=d', '--config=configs/newsmix.py:en-de', '--'),
    '--config.train_steps=7',
  )
  out, err = capsys.readouterr()
  assert not (tmp_path / 'runs').exists()
  rows = ('table3.base.mini', 'table3.D1.mini', 'newsmix.en-de')
  expected = [f'waiting {row}.seed-{seed}' for seed in (1, 2) for row in rows]
  assert err.splitlines() == expected
  folder = tmp_path / 'runs' / 'table3.D1.mini.seed-2'
  assert out.splitlines()[8:10] == [
    '/bin/python -m scripts.train --config=configs/table3.py:D1,mini --config.seed=2 '
    f'--config.train_steps=7 --workdir={folder} --data_dir=d --raw_dir=r',
    f'/bin/python -m scripts.evaluate --workdir={folder} --data_dir=d --split=dev '
    '--average=1',
  ]
  for line in out.splitlines():
    name, *words = line.split()[2:]
    importlib.import_module(name).FLAGS.parse([name, *words])


def planned(folder: pathlib.Path, configs: tuple[str, ...], *flags: str) -> list[Job]:
  """Returns the jobs of a plan whose results average five checkpoints."""
  table = Flags('')
  plan = Plan(folder, configs, (1,), 'dev', 5, DataFlags(table), flags, task_of)
  table.parse(['sweep'])
  return plan.jobs()


def test_a_short_run_averages_fewer_checkpoints(tmp_path: pathlib.Path):
  """The name of its result has their number."""
  every = '--config.checkpoint_every_steps=100', '--config.train_steps=250'
  (job,) = planned(tmp_path, ('configs/quickstart.py:en-de',), *every)
  assert job.result.name.startswith('dev.step-250.average-3.')


def test_two_configs_of_one_name(tmp_path: pathlib.Path):
  """They would train in one folder."""
  (tmp_path / 'quickstart.py').write_text('from configs.quickstart import get_config\n')
  configs = 'configs/quickstart.py:en-de', f'{tmp_path}/quickstart.py:en-de'
  folder = r'quickstart\.en-de\.seed-1 would be the folder of 2 runs: .*or two configs'
  with pytest.raises(UserError, match=folder):
    planned(tmp_path, configs)


@pytest.mark.parametrize(
  'number', [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)]
)
def test_signalled(tmp_path: pathlib.Path, number: int):
  """The trainer saves, all end with 75, and the same command resumes."""
  command = Command(tmp_path, write_stand_in(tmp_path))
  options = stand_in_config(tmp_path, 'slow')
  process = command.start(*options)
  folder = command.workdir / 'slow.seed-1'
  try:
    wait_until((folder / 'ready').exists)
    os.killpg(process.pid, number)  # the trainer is not in the group
    _, err = process.communicate()
  finally:
    if process.poll() is None:
      process.terminate()  # or it would run for ever, and the trainer with it
      process.wait()
  assert process.returncode == 75 and (folder / 'saved').exists(), err
  assert 'The same command resumes' in err and '\n0 of 1 runs are done\n' in err
  code, _, err = command(*options)
  assert code == 0 and err.endswith('1 of 1 runs are done\n')


def test_exit_code_of_a_failure(tmp_path: pathlib.Path, monkeypatch, capsys):
  monkeypatch.setattr(sys, 'executable', str(write_stand_in(tmp_path)))
  for code in (1, 0):
    with pytest.raises(SystemExit) as end:
      run_script(tmp_path, *stand_in_config(tmp_path, 'crash'))
    assert end.value.code == code
  assert capsys.readouterr().err.count('crash.seed-1: failed, exit code 3') == 1


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ([], 'give --rows, or --config'),
    (['--rows=base,base'], 'given twice'),
    (['--rows=F'], 'the rows are base, A1'),
    (['--rows=base', '--mini', '--average=21'], 'base,mini keeps 20 checkpoints'),
    (['--config=configs/table3.py:base', '--mini'], '--mini is of --rows'),
    (['--rows=base', '--slurm=mem_gb=8'], '--slurm needs --submit'),
    (['--rows=base', '--', '--config.seed=7'], '--config.seed=7: give --rows, '),
    (['--rows=base', '--', '--raw_dir=/x'], '--raw_dir=/x: give it before the --'),
    (['--rows=base', 'D1'], "'D1' is no flag: --rows=base,D1"),
    (['--rows=base', '--submit=slurm'], 'needs --slurm=timeout_min=MINUTES'),
  ],
)
def test_refused(options: list[str], message: str, tmp_path: pathlib.Path):
  with pytest.raises(SystemExit) as caught:
    run_script(tmp_path, *options)
  assert message in str(caught.value)
  assert not (tmp_path / 'runs').exists()


def test_a_folder_of_another_config_is_refused(tmp_path: pathlib.Path, capsys):
  """A finished run is refused too: its result belongs to another config."""
  config = table3.get_config('base,mini').unlock()
  config.model.P_drop = 0.3
  folder = tmp_path / 'runs' / 'table3.base.mini.seed-1'
  folder.mkdir(parents=True)
  (folder / 'config.json').write_text(config.to_json_best_effort())
  (folder / 'metrics.jsonl').write_text('{"step": 5, "loss": 1.0}\n')
  options = '--dry_run', '--rows=base', '--mini'
  with pytest.raises(SystemExit, match='these differ: model.P_drop'):
    run_script(tmp_path, *options)
  same = '--', '--config.model.P_drop=0.3', '--config.train_steps=20000'
  run_script(tmp_path, *options, *same)
  assert 'waiting table3.base.mini.seed-1' in capsys.readouterr().err
