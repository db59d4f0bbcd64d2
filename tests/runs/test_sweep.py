"""scripts.sweep and its plan, with a stand-in for the trainer and the scorer."""

import importlib.util
import os
import pathlib
import signal
import sys
import threading
import time

import pytest

from configs import table3
from scripts import sweep as script
from transformer_jax.data.corpus import DataFlags
from transformer_jax.machine import errors
from transformer_jax.machine.cli import Flags
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs import sweep
from transformer_jax.runs.run import Run
from transformer_jax.runs.sweep import Job, Plan
from transformer_jax.tasks import task_of

pytestmark = pytest.mark.usefixtures('in_the_checkout')

ROOT = pathlib.Path(__file__).parents[2]
STEPS = 20
# Stands in for Python with `-m scripts.train` or `-m scripts.evaluate`. The name of the
# run's folder says what the trainer does: "slow" works until its first SIGTERM, and
# "shy" does not handle that; "crash" fails once, "pair" waits for another one, and
# "impatient" has ever worse dev perplexities and ends at step 3.
STAND_IN = f"""#!{sys.executable} -S
import json, pathlib, signal, sys, time
flags = dict(word.partition('=')[::2] for word in sys.argv)
folder = pathlib.Path(flags['--workdir'])
folder.mkdir(parents=True, exist_ok=True)
(folder / 'called').open('a').write(sys.argv[2].split('.')[1] + chr(10))
calls = (folder / 'called').read_text().split()
if 'crash' in folder.name and calls == ['train']:
  sys.exit(3)
if 'pair' in folder.name:
  end = time.monotonic() + 300
  while len(list(folder.parent.glob('pair*'))) < 2 and time.monotonic() < end:
    time.sleep(0.01)
if calls[-1] == 'evaluate':
  step = 3 if 'impatient' in folder.name else {STEPS}
  (folder / 'translations').mkdir(exist_ok=True)
  name = f'dev.step-{{step}}.average-1.beam-4.alpha-0.6.json'
  (folder / 'translations' / name).touch()
if 'impatient' in folder.name:
  lines = [json.dumps({{'step': n, 'dev_perplexity': 4.0 + n}}) for n in (1, 2, 3)]
  (folder / 'metrics.jsonl').write_text(chr(10).join(lines))
if ('slow' in folder.name or 'shy' in folder.name) and calls == ['train']:
  stopped = []
  if 'slow' in folder.name:
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
  (folder / 'ready').touch()
  while not stopped:
    time.sleep(0.01)
  (folder / 'saved').touch()
  sys.exit(75)
"""


def write_stand_in(folder: pathlib.Path) -> str:
  """Writes a program that takes the arguments of Python."""
  path = folder / 'stand-in'
  path.write_text(STAND_IN)
  path.chmod(0o755)
  return str(path)


def make_jobs(folder: pathlib.Path, *names: str, patience: int = 0) -> list[Job]:
  """Returns jobs in `folder`/runs; the names say what the stand-in does."""
  config = {'train_steps': STEPS, 'checkpoint_every_steps': STEPS, 'beam': 4}
  config |= {'alpha': 0.6, 'patience': patience}
  python, jobs = write_stand_in(folder), []
  for name in names:
    run = Run(folder / 'runs' / name)
    words = [(python, '-m', f'scripts.{n}') for n in ('train', 'evaluate')]
    commands = tuple((*w, f'--workdir={run.workdir}') for w in words)
    jobs.append(Job(run, commands, config, 'dev', 1))
  return jobs


def run(jobs: list[Job], together: int = 1) -> int:
  with Interruption() as interruption:
    return sweep.run(jobs, together, interruption)


def called(job: Job) -> list[str]:
  """Returns the programs that ran for the job so far."""
  path = job.run.workdir / 'called'
  return path.read_text().split() if path.exists() else []


def signalled(number: int, when: pathlib.Path) -> threading.Thread:
  """Starts a thread that signals this process once a file exists."""

  def send() -> None:
    end = time.monotonic() + 300
    while not when.exists() and time.monotonic() < end:
      time.sleep(0.01)
    os.kill(os.getpid(), number)

  thread = threading.Thread(target=send)
  thread.start()
  return thread


def test_all_are_trained_and_scored_once(tmp_path: pathlib.Path):
  """Two at a time, here: one alone would wait for the other."""
  jobs = make_jobs(tmp_path, 'pair-a', 'pair-b', 'c')
  for _ in range(2):
    assert run(jobs, together=2) == 0 and all(job.is_done() for job in jobs)
    assert [called(job) for job in jobs] == [['train', 'evaluate']] * 3


def test_a_failure_stops_no_other(tmp_path: pathlib.Path, capsys):
  """The same command runs it again."""
  jobs = make_jobs(tmp_path, 'a', 'crash', 'b')
  assert run(jobs) == 1 and [job.is_done() for job in jobs] == [True, False, True]
  assert 'crash: failed, exit code 3\n' in capsys.readouterr().err
  assert run(jobs) == 0 and jobs[1].is_done()


@pytest.mark.parametrize('name', ['slow', 'shy'])
def test_stopped_and_resumed(name: str, tmp_path: pathlib.Path):
  """A trainer that can saves; no other starts, and the same command goes on."""
  first, second = jobs = make_jobs(tmp_path, name, 'b')
  thread = signalled(signal.SIGTERM, first.run.workdir / 'ready')
  with pytest.raises(SystemExit) as end:
    run(jobs)
  thread.join()
  assert end.value.code == 75 and called(first) == ['train'] and not called(second)
  assert (first.run.workdir / 'saved').exists() == (name == 'slow')
  assert run(jobs) == 0 and called(first) == ['train', 'train', 'evaluate']


def test_a_run_is_scored_where_its_patience_ends(tmp_path: pathlib.Path):
  """Without patience, a run of so few steps is not done."""
  (job,) = make_jobs(tmp_path, 'impatient', patience=2)
  assert run([job]) == 0 and job.is_done()
  (other,) = make_jobs(tmp_path, 'impatient', patience=3)
  assert not other.is_done()


# Slurm


@pytest.fixture
def slurm(tmp_path: pathlib.Path, monkeypatch) -> pathlib.Path:
  """Has stand-ins for Slurm's commands; returns a copy of what was submitted."""
  if importlib.util.find_spec('submitit') is None:
    pytest.skip('submitit is not installed')
  monkeypatch.setenv('SUBMITIT_PREEMPT_SIGNAL', '')  # to have it restored
  submitted = tmp_path / 'submitted'
  bodies = {'srun': '', 'sbatch': f'cp "$1" {submitted}; echo Submitted batch job 12'}
  (tmp_path / 'bin').mkdir()
  for name, body in bodies.items():
    (tmp_path / 'bin' / name).write_text(f'#!/bin/sh\n{body}\n')
    (tmp_path / 'bin' / name).chmod(0o755)
  monkeypatch.setenv('PATH', f'{tmp_path / "bin"}:{os.environ["PATH"]}')
  return submitted


def test_submitted_once(slurm: pathlib.Path, tmp_path: pathlib.Path, monkeypatch):
  monkeypatch.setattr(Plan, 'prepare', lambda plan: None)
  jobs = make_jobs(tmp_path, 'a', 'b', 'c')
  plan = Plan(tmp_path / 'runs', (), (), 'dev', 1, None, (), task_of)
  words = ['timeout_min=90', 'gpus_per_node=8', 'slurm_partition=fast']
  run(jobs[:1])
  assert sweep.submit(plan, jobs, words) == ['12_0: b', '12_1: c']
  text = slurm.read_text()
  for words in ('--time=90', '--gpus-per-node=8', '--partition=fast', 'USR1@90'):
    assert words in text


def test_a_job_of_slurm_saves_when_its_time_is_up(slurm, tmp_path: pathlib.Path):
  """submitit's handler of the signal calls checkpoint(), and queues what it returns."""
  (job,) = make_jobs(tmp_path, 'slow')
  one, queued = sweep.Submission(job), []
  handle = lambda *_: queued.append(one.checkpoint())
  before = signal.signal(signal.SIGUSR1, handle)
  thread = signalled(signal.SIGUSR1, job.run.workdir / 'ready')
  assert one() == 75 and (job.run.workdir / 'saved').exists()
  thread.join()
  signal.signal(signal.SIGUSR1, before)
  assert queued[0].function() == 0 and job.is_done()


# The command


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
  path = job.run.translations('dev', 250, 3, 4, 0.6).with_suffix('.json')
  path.parent.mkdir(parents=True)
  path.touch()
  assert job.is_done()


def test_two_configs_of_one_name(tmp_path: pathlib.Path):
  """They would train in one folder."""
  (tmp_path / 'quickstart.py').write_text('from configs.quickstart import get_config\n')
  configs = 'configs/quickstart.py:en-de', f'{tmp_path}/quickstart.py:en-de'
  folder = r'quickstart\.en-de\.seed-1 would be the folder of 2 runs: .*or two configs'
  with pytest.raises(UserError, match=folder):
    planned(tmp_path, configs)


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
  config.dtype = 'bfloat16'
  folder = tmp_path / 'runs' / 'table3.base.mini.seed-1'
  folder.mkdir(parents=True)
  (folder / 'config.json').write_text(config.to_json_best_effort())
  (folder / 'metrics.jsonl').write_text('{"step": 5, "loss": 1.0}\n')
  options = '--dry_run', '--rows=base', '--mini'
  with pytest.raises(SystemExit, match='these differ: dtype'):
    run_script(tmp_path, *options)
  same = '--', '--config.dtype=bfloat16', '--config.train_steps=20000'
  run_script(tmp_path, *options, *same)
  assert 'waiting table3.base.mini.seed-1' in capsys.readouterr().err
