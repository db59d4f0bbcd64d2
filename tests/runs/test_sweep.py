"""Sweeps of stand-ins for the trainer, on this machine and through submitit."""

import fcntl
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from configs import table3
from toy.task import SETTINGS, write_raw
from transformer_jax.machine import processor
from transformer_jax.runs import local, slurm, sweep
from transformer_jax.runs.run import Run
from transformer_jax.runs.sweep import State

ROOT = pathlib.Path(__file__).parents[2]
STEPS = 20

# Stands in for `python -m scripts.train` and `python -m scripts.evaluate`: WHAT is in
# the run's name. A "slow" one works until SIGTERM, once; a "shy" one does not listen.
STAND_IN = f"""#!{sys.executable} -S
import json, os, pathlib, signal, sys, time
GPUS = 'CUDA_VISIBLE_DEVICES'
flags = dict(word.partition('=')[::2] for word in sys.argv)
folder = pathlib.Path(flags['--workdir'])
(folder / 'called').open('a').write(sys.argv[2] + chr(10))
calls = (folder / 'called').read_text().split()
first = calls.count(sys.argv[2]) == 1
if 'crash' in folder.name and calls == ['scripts.train']:
  print('out of luck')
  sys.exit(3)
if 'pair' in folder.name and sys.argv[2] == 'scripts.train':
  end = time.monotonic() + 60
  while len(list(folder.parent.glob('pair*'))) < 2 and time.monotonic() < end:
    time.sleep(0.01)
  has = {{'cores': sorted(os.sched_getaffinity(0)), 'gpus': os.environ.get(GPUS)}}
  (folder / 'has.json').write_text(json.dumps(has))
if sys.argv[2] == 'scripts.evaluate':
  if 'mute' not in folder.name:
    found = json.dumps({{'step': {STEPS}, 'split': 'dev'}})
    path = folder / 'translations'
    path.mkdir(exist_ok=True)
    name = 'dev.step-{STEPS}.average-1.beam-4.alpha-0.6.json'
    (path / name).write_text(found)
  sys.exit()
def log(step):
  record = {{'step': step, 'target_tokens': 9, 'loss': 1, 'seconds': 5.0}}
  (folder / 'metrics.jsonl').open('a').write(json.dumps(record) + chr(10))
stopped = []
if 'shy' not in folder.name:
  signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
if first:
  log({STEPS // 2})
if ('slow' in folder.name or 'shy' in folder.name) and first:
  (folder / 'ready').touch()
  while not stopped:
    time.sleep(0.01)
  time.sleep(0.2)
  (folder / 'saved').touch()
if stopped or ('early' in folder.name and first):
  sys.exit(75)
log({STEPS})
"""


@pytest.fixture
def stand_in(tmp_path: pathlib.Path) -> pathlib.Path:
  path = tmp_path / 'stand-in'
  path.write_text(STAND_IN)
  path.chmod(0o755)
  return path


@pytest.fixture
def jobs(tmp_path: pathlib.Path, stand_in: pathlib.Path):
  """Makes jobs of names."""

  def make(*names: str) -> list[sweep.Job]:
    made = []
    for name in names:
      run = Run(tmp_path / 'runs' / name)
      command = str(stand_in), '-m'
      train = *command, 'scripts.train', f'--workdir={run.workdir}'
      evaluate = *command, 'scripts.evaluate', f'--workdir={run.workdir}'
      result = run.workdir / 'translations'
      result /= f'dev.step-{STEPS}.average-1.beam-4.alpha-0.6.json'
      made.append(sweep.Job(run, (train, evaluate), STEPS, result, 100.0))
    return made

  return make


def called(job: sweep.Job) -> list[str]:
  path = job.run.workdir / 'called'
  return [x.split('.')[1] for x in path.read_text().split()] if path.exists() else []


def run_here(jobs: list[sweep.Job], **options: object) -> list[str]:
  """What it said."""
  said: list[str] = []
  given = {'together': 1, 'is_stopped': lambda: False, 'tick': lambda: None} | options
  local.run(jobs, say=said.append, **given)
  return said


def wait_for(path: pathlib.Path) -> None:
  wait_until(path.exists)


def wait_until(there: Callable[[], bool]) -> None:
  end = time.monotonic() + 60
  while not there():
    assert time.monotonic() < end
    time.sleep(0.01)


SUBMITIT = pytest.mark.skipif(
  importlib.util.find_spec('submitit') is None, reason='submitit is not installed'
)


# One after another


def test_all_are_trained_and_scored_once(jobs):
  made = jobs('a', 'b')
  assert [sweep.state(job) for job in made] == [State.WAITING] * 2
  run_here(made)
  assert [sweep.state(job) for job in made] == [State.DONE] * 2
  run_here(made)
  assert [called(job) for job in made] == [['train', 'evaluate']] * 2


def test_a_crash_stops_no_other(jobs):
  made = jobs('a', 'crash', 'b')
  said = run_here(made)
  assert [sweep.state(j) for j in made] == [State.DONE, State.FAILED, State.DONE]
  note = json.loads((made[1].run.workdir / 'sweep.json').read_text())
  assert note['exit_code'] == 3 and 'scripts.train' in note['command']
  told = next(text for text in said if 'failed' in text)
  assert 'exit code 3' in told and 'out of luck' in told
  assert str(made[1].run.workdir / 'sweep.log') in told
  run_here(made)
  assert called(made[1]) == ['train'], 'a failed run is not begun again unasked'
  sweep.forgive(made[1])
  run_here(made)
  assert sweep.state(made[1]) is State.DONE


def test_a_run_without_its_result_failed(jobs):
  (job,) = jobs('mute')
  run_here([job])
  assert sweep.state(job) is State.FAILED
  assert f'no result of step {STEPS}' in sweep.failure(job)


@pytest.mark.parametrize('text', ['', '{"step": 2', '[]', '{}', '{"step": 10}'])
def test_a_damaged_result_is_none(jobs, text: str):
  """Nor is one of fewer steps; a run that was trained is only scored again."""
  (job,) = jobs('a')
  run_here([job])
  job.result.write_text(text)
  assert sweep.state(job) is State.WAITING
  run_here([job])
  assert sweep.state(job) is State.DONE


def test_what_another_process_runs_is_left_alone(jobs):
  for lock in ('lock', 'sweep.lock'):
    (job,) = jobs(f'a-{lock}')
    job.run.workdir.mkdir(parents=True)
    with (job.run.workdir / lock).open('w') as file:
      fcntl.flock(file, fcntl.LOCK_EX)
      assert sweep.state(job) is State.RUNNING
      run_here([job])
      assert called(job) == []
    assert sweep.state(job) is State.WAITING


def test_two_that_begin_at_once(jobs):
  """Only one of them runs the commands."""
  (job,) = jobs('slow')
  stop: list[int] = []
  first = threading.Thread(target=run_here, args=([job],), kwargs={
    'is_stopped': lambda: bool(stop)
  })  # fmt: skip
  first.start()
  wait_for(job.run.workdir / 'ready')
  with pytest.raises(sweep.Busy):
    sweep.attempt(job, lambda: False, {})
  stop.append(1)
  first.join()
  assert called(job) == ['train']


@pytest.mark.parametrize('name', ['slow', 'shy'])
def test_stopped_and_gone_on_with(jobs, name: str):
  """It may save before it ends; one that is told too early for that waits as well."""
  made = jobs(name, 'b')
  ready = made[0].run.workdir / 'ready'
  run_here(made, is_stopped=ready.exists)
  assert (made[0].run.workdir / 'saved').exists() == (name == 'slow')
  assert [sweep.state(job) for job in made] == [State.WAITING] * 2
  assert called(made[0]) == ['train'] and called(made[1]) == []
  run_here(made)
  assert called(made[0]) == ['train', 'train', 'evaluate']
  assert [sweep.state(job) for job in made] == [State.DONE] * 2


def test_a_trainer_that_was_told_to_stop_waits(jobs):
  made = jobs('early', 'b')
  run_here(made)
  assert [sweep.state(job) for job in made] == [State.WAITING, State.DONE]


# Progress


def test_progress(jobs):
  made = jobs('a', 'early', 'crash', 'b')
  made[3] = made[3]._replace(flops=300.0)
  before = sweep.progress(made, 1)
  assert before.fraction == 0 and before.seconds_left is None
  assert str(before) == '4 waiting; 0.0 % trained, time left not known yet'
  run_here(made[:3])
  found = sweep.progress(made, 1)
  assert found.counts == {State.DONE: 1, State.FAILED: 1, State.WAITING: 2}
  # 20 and 10 of 4 x 20 steps, of which the last weigh three times as much.
  assert found.fraction == pytest.approx(3000 / 12000)
  # 15 s for those, and for scoring each of the two that wait what the first took; with
  # the one that failed nobody goes on.
  scoring = json.loads((made[0].run.workdir / 'sweep.json').read_text())['seconds']
  assert found.seconds_left == pytest.approx(7000 * 15 / 3000 + 2 * scoring)
  assert '1 done, 1 failed, 2 waiting; 25.0 % trained, 0 h 01 min' in str(found)
  assert sweep.progress(made, 2).seconds_left == pytest.approx(found.seconds_left / 2)
  # Three have no work for two.
  assert sweep.progress(made, 3) == sweep.progress(made, 2)
  run_here(jobs('b'))
  assert sweep.progress(jobs('a', 'crash', 'b'), 1).seconds_left == 0


def test_progress_while_a_line_is_written(jobs):
  (job,) = jobs('early')
  run_here([job])
  with job.run.metrics.open('a') as file:
    file.write('{"step": 15, "seco')
  assert sweep.trained(job) == (10, 5.0)
  with job.run.metrics.open('a') as file:
    file.write('}\n')
  assert sweep.trained(job) == (0, 0.0), 'the report and the trainer name the damage'


# Side by side


def test_gpus_are_divided(monkeypatch: pytest.MonkeyPatch):
  def devices(visible: str, jobs: int) -> list[str]:
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', visible)
    found = [share.environment for share in local.shares(jobs)]
    return [one['CUDA_VISIBLE_DEVICES'] if one else '' for one in found]

  assert devices('0,1,2,3', 2) == ['0,1', '2,3']
  assert devices('4,5', 2) == ['4', '5']
  assert devices('0,1', 4) == ['0', '1', '0', '1']
  shared = [share.environment for share in local.shares(4)]
  assert {one['XLA_CLIENT_MEM_FRACTION'] for one in shared} == {'0.450'}
  assert devices('', 2) == ['', '']
  assert devices('0,1', 1) == [''], 'one alone has what it finds'


@pytest.mark.parametrize(
  ('body', 'expected'),
  [('echo 0; echo 1', ['0', '1']), ('echo no driver; exit 9', []), (None, [])],
)
def test_gpus_that_no_variable_names(
  body: str | None,
  expected: list[str],
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
):
  """The driver's program tells of them, where there is one."""
  monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
  monkeypatch.setenv('PATH', str(tmp_path))
  if body:
    program = tmp_path / 'nvidia-smi'
    asked = '--query-gpu=index --format=csv,noheader'
    program.write_text(f'#!/bin/sh\n[ "$*" = "{asked}" ] || exit 1\n{body}\n')
    program.chmod(0o755)
  assert local.gpus() == expected


def test_cores_are_divided(monkeypatch: pytest.MonkeyPatch):
  monkeypatch.setattr(processor, 'cores', lambda: [1, 2, 4, 6, 7])
  cores = lambda jobs: [share.cores for share in local.shares(jobs)]
  assert cores(1) == [(1, 2, 4, 6, 7)]
  assert cores(2) == [(1, 2), (4, 6)]
  assert cores(6) == [(1,), (2,), (4,), (6,), (7,), (1,)]


def test_two_at_once(jobs, monkeypatch: pytest.MonkeyPatch):
  """Each waits for the other, and has its own part of the machine."""
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '4,5')
  before = processor.cores()
  made = jobs('pair-a', 'pair-b', 'c')
  run_here(made, together=2)
  assert [sweep.state(job) for job in made] == [State.DONE] * 3
  has = [json.loads((job.run.workdir / 'has.json').read_text()) for job in made[:2]]
  assert sorted(one['gpus'] for one in has) == ['4', '5']
  assert processor.cores() == before, 'its own cores are as they were'
  if len(before) > 1:
    assert not set(has[0]['cores']) & set(has[1]['cores'])


def test_a_crash_beside_others(jobs):
  made = jobs('a', 'crash', 'b')
  said = run_here(made, together=3)
  assert [sweep.state(j) for j in made] == [State.DONE, State.FAILED, State.DONE]
  assert sum('out of luck' in text for text in said) == 1


@pytest.mark.parametrize('together', [1, 3])
def test_a_folder_that_cannot_be_written(jobs, together: int):
  """One run's trouble is not the others'."""
  made = jobs('a', 'b', 'c')
  (made[1].run.workdir / 'sweep.log').mkdir(parents=True)
  said: list[str] = []
  options = {'is_stopped': lambda: False, 'tick': lambda: None, 'say': said.append}
  ended = local.run(made, together, **options)
  assert ended == {'a': State.DONE, 'b': State.FAILED, 'c': State.DONE}
  assert any('b failed' in text and 'sweep.log' in text for text in said)


@pytest.mark.parametrize('text', ['{"exit_c', '[]', '{"exit_code": 3}'])
def test_a_damaged_note_is_named(jobs, text: str):
  (job,) = jobs('a')
  job.run.workdir.mkdir(parents=True)
  (job.run.workdir / 'sweep.json').write_text(text)
  with pytest.raises(ValueError, match='sweep.json: damaged .* delete it'):
    run_here([job])


def test_all_are_stopped(jobs):
  made = jobs('slow-a', 'slow-b', 'c')
  ready = [job.run.workdir / 'ready' for job in made[:2]]
  run_here(made, together=2, is_stopped=lambda: all(path.exists() for path in ready))
  assert all((job.run.workdir / 'saved').exists() for job in made[:2])
  assert [sweep.state(job) for job in made] == [State.WAITING] * 3
  assert called(made[2]) == []


# On a cluster


def test_a_node(jobs):
  made = jobs('a', 'crash', 'b')
  ended = slurm.Node(made)()
  assert ended == {'a': 'done', 'crash': 'failed', 'b': 'done'}


@SUBMITIT
@pytest.mark.filterwarnings(
  # It waits for none of the processes that it starts.
  'ignore::ResourceWarning',
  'ignore::pytest.PytestUnraisableExceptionWarning',
)
def test_submitit(jobs, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
  """Its local executor: two in one submission, interrupted, and gone on with."""
  monkeypatch.chdir(ROOT)
  monkeypatch.setenv('SUBMITIT_PREEMPT_SIGNAL', '')  # to have it restored
  made = jobs('slow', 'crash', 'b')
  folder = tmp_path / 'submitit'
  lines = slurm.submit(made, 'local', folder, 2, {'timeout_min': 5})
  assert [line.partition(': ')[2] for line in lines] == ['slow crash', 'b']
  wait_for(made[0].run.workdir / 'ready')
  wait_for(made[2].result)
  identity = json.loads((made[0].run.workdir / 'sweep.queued.json').read_text())['id']
  node = int(identity)  # the process that starts the tasks
  children = pathlib.Path(f'/proc/{node}/task/{node}/children').read_text().split()
  for child in children:
    os.kill(int(child), signal.SIGUSR1)
  wait_for(made[0].run.workdir / 'saved')
  expected = [State.DONE, State.FAILED, State.DONE]
  wait_until(lambda: [sweep.state(job) for job in made] == expected)
  assert called(made[0]) == ['train', 'train', 'evaluate']
  assert called(made[1]) == ['train']


def test_told_to_end(jobs):
  """By SIGTERM, of which Slurm tells this process alone: what it started saves."""
  (job,) = jobs('slow')

  def tell() -> None:
    wait_for(job.run.workdir / 'ready')
    os.kill(os.getpid(), signal.SIGTERM)

  told = threading.Thread(target=tell)
  told.start()
  assert slurm.Node([job])() == {'slow': 'waiting'}
  told.join()
  assert (job.run.workdir / 'saved').exists()
  assert slurm.Node([job])() == {'slow': 'done'}


@SUBMITIT
def test_slurm(jobs, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
  """Stand-ins for Slurm's commands: what is submitted, and that it is once."""
  monkeypatch.setenv('SUBMITIT_PREEMPT_SIGNAL', '')  # to have it restored
  queue = tmp_path / 'queue'
  scripts = {
    'srun': 'exit 0',
    'sbatch': f'cp "$1" {tmp_path}/submitted; echo Submitted batch job 12',
    'squeue': f'[ "$*" = "--noheader --array --format=%i" ] && cat {queue}',
  }
  folder = tmp_path / 'bin'
  folder.mkdir()
  for name, body in scripts.items():
    (folder / name).write_text(f'#!/bin/sh\n{body}\n')
    (folder / name).chmod(0o755)
  monkeypatch.setenv('PATH', f'{folder}:{os.environ["PATH"]}')
  made = jobs('a', 'b', 'c')
  parameters = {'timeout_min': 90, 'gpus_per_node': 8, 'slurm_partition': 'fast'}

  def submit() -> list[str]:
    return slurm.submit(made, 'slurm', tmp_path / 's', 2, parameters)

  assert submit() == ['12_0: a b', '12_1: c']
  submitted = (tmp_path / 'submitted').read_text()
  for words in ('--time=90', '--gpus-per-node=8', '--partition=fast', 'USR1@90'):
    assert words in submitted
  queue.write_text('12_0\n12_1\n7\n')
  assert submit() == []
  queue.write_text('12_1\n112_0\n')  # the first has left; another's number is longer
  assert submit() == ['12: a b']


# The script


class Command:
  """scripts.sweep as a process, with a stand-in for the Python that it starts."""

  def __init__(self, folder: pathlib.Path, python: str):
    self._begin = (
      f'import sys; sys.executable = {python!r}; sys.argv[0] = "sweep"\n'
      'from absl import app; from scripts import sweep; app.run(sweep.main)'
    )
    self.workdir = folder / 'runs'

  def start(self, *options: str) -> subprocess.Popen:
    command = [sys.executable, '-c', self._begin, f'--workdir={self.workdir}', *options]
    environment = os.environ | {'XDG_CACHE_HOME': str(self.workdir.parent / 'cache')}
    del environment['XLA_FLAGS']
    return subprocess.Popen(
      command,
      cwd=ROOT,
      env=environment,
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )

  def __call__(self, *options: str) -> tuple[int, str, str]:
    process = self.start(*options)
    out, err = process.communicate()
    return process.returncode, out, err


def test_dry_run(stand_in: pathlib.Path, tmp_path: pathlib.Path):
  """Commands on stdout, how it stands on stderr; nothing is made."""
  command = Command(tmp_path, '/bin/python')
  code, out, err = command(
    *('--dry_run', '--rows=base,D1', '--mini', '--seeds=1,2', '--raw_dir=r'),
    *('--data_dir=d', '--config=configs/newsmix.py:en-de', '--'),
    '--config.train_steps=7',
  )
  assert code == 0 and not command.workdir.exists()
  names = [line.removeprefix('waiting ') for line in err.splitlines()[:6]]
  rows = ('table3.base.mini', 'table3.D1.mini', 'newsmix.en-de')
  assert names == [f'{row}.seed-{seed}' for seed in (1, 2) for row in rows]
  assert '6 waiting; 0.0 %' in err
  folder = command.workdir / 'table3.D1.mini.seed-2'
  assert out.splitlines()[8:10] == [
    '/bin/python -m scripts.train --config=configs/table3.py:D1,mini --config.seed=2 '
    f'--config.train_steps=7 --workdir={folder} --data_dir=d --raw_dir=r',
    f'/bin/python -m scripts.evaluate --workdir={folder} --data_dir=d --split=dev '
    '--average=1',
  ]


def test_all_rows(tmp_path: pathlib.Path):
  _, _, err = Command(tmp_path, sys.executable)('--dry_run', '--rows=all')
  names = [line.split()[1] for line in err.splitlines()[:-1]]
  assert len(names) == 20
  assert (names[0], names[-1]) == ('table3.base.seed-1', 'table3.big.seed-1')


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGINT])
def test_signalled(stand_in: pathlib.Path, tmp_path: pathlib.Path, number: int):
  """The trainer saves, all end with 75, and the same command goes on."""
  command = Command(tmp_path, str(stand_in))
  config = tmp_path / 'slow.py'
  config.write_text('from configs.quickstart import get_config\n')
  slow = f'--config={config}', '--', f'--config.train_steps={STEPS}'
  process = command.start(*slow)
  folder = command.workdir / 'slow.seed-1'
  wait_for(folder / 'ready')
  process.send_signal(number)
  _, err = process.communicate()
  assert process.returncode == 75 and (folder / 'saved').exists(), err
  assert 'The same command goes on' in err and '1 waiting; 50.0 % trained' in err
  code, _, err = command(*slow)
  assert code == 0 and '1 done; 100.0 % trained' in err


def test_exit_code_of_a_failure(stand_in: pathlib.Path, tmp_path: pathlib.Path):
  command = Command(tmp_path, str(stand_in))
  config = tmp_path / 'crash.py'
  config.write_text('from configs.quickstart import get_config\n')
  options = f'--config={config}', '--', f'--config.train_steps={STEPS}'
  code, _, err = command(*options)
  assert code == 1 and 'out of luck' in err and '1 failed' in err
  assert command('--retry_failed', *options)[0] == 0


@pytest.mark.parametrize(
  'options, message',
  [
    ([], 'give --rows, or --config'),
    (['--rows=base,base'], 'given twice'),
    (['--rows=base', '--seeds=1,01'], 'given twice'),
    (['--rows=F'], 'the rows are base, A1'),
    (['--rows=base', '--seeds=one'], '--seeds=one: numbers'),
    (['--rows=base', '--seeds='], '--seeds=: numbers'),
    (['--rows=base', '--mini', '--average=21'], 'base,mini keeps 20 checkpoints'),
    (['--rows=base', '--', '--config.train_step=1'], 'train_step'),
    (['--rows=base', '--submit=slurm'], 'needs --slurm=timeout_min=MINUTES'),
    (['--rows=base', '--submit=slurm', '--slurm=mem'], '--slurm=mem: KEY=VALUE'),
  ],
)
def test_refused(options: list[str], message: str, tmp_path: pathlib.Path):
  code, _, err = Command(tmp_path, sys.executable)(*options)
  assert code not in (0, 75) and message in err
  assert not (tmp_path / 'runs').exists()


def test_a_folder_of_another_config_is_refused(tmp_path: pathlib.Path):
  """Though it is finished: its result is not of what is asked for."""
  config = table3.get_config('base,mini').unlock()
  config.model.P_drop = 0.3
  folder = tmp_path / 'runs' / 'table3.base.mini.seed-1'
  folder.mkdir(parents=True)
  (folder / 'config.json').write_text(config.to_json_best_effort())
  command = Command(tmp_path, sys.executable)
  code, _, err = command('--dry_run', '--rows=base', '--mini')
  assert code == 1 and "another config's run; these differ: model.P_drop" in err
  asked = '--', '--config.model.P_drop=0.3', '--config.train_steps=20000'
  code, _, err = command('--dry_run', '--rows=base', '--mini', *asked)
  assert code == 0 and 'waiting table3.base.mini.seed-1' in err


@pytest.mark.slow
def test_the_whole_way(tmp_path: pathlib.Path):
  """Two seeds of a tiny model are trained and scored; a third follows alone."""
  write_raw(tmp_path / 'raw', {'train': 400, 'dev': 20, 'test': 20})
  settings = SETTINGS | {'train_steps': 30, 'checkpoint_every_steps': 10}
  options = [
    '--config=configs/quickstart.py:en-de',
    f'--data_dir={tmp_path / "data"}',
    f'--raw_dir={tmp_path / "raw"}',
  ]
  rest = ['--', *(f'--config.{key}={value}' for key, value in settings.items())]
  command = Command(tmp_path, sys.executable)
  code, _, err = command('--seeds=1,2', *options, *rest)
  assert code == 0 and '2 done; 100.0 % trained' in err, err
  code, _, err = command('--seeds=1,2,3', *options, *rest)
  assert code == 0 and '3 done; 100.0 % trained' in err and 'seed-1' not in err, err
  results = [
    json.loads((command.workdir / f'quickstart.en-de.seed-{n}/result.json').read_text())
    for n in (1, 2, 3)
  ]
  assert [found['config']['seed'] for found in results] == [1, 2, 3]
  assert len({found['corpus'] for found in results}) == 1
  assert len({found['dev_perplexity'] for found in results}) == 3
  assert all(found['averaged'] == [30] for found in results)
