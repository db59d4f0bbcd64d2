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
from toy.corpus import write_raw
from toy.programs import Program
from toy.runs import TINY
from transformer_jax.machine import errors
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs import sweep
from transformer_jax.runs.result import Result
from transformer_jax.runs.run import Run
from transformer_jax.runs.sweep import Job

pytestmark = pytest.mark.usefixtures('in_the_checkout')

STEPS = 20
# What a trainer does, in its run's folder. SLOW works until its first SIGTERM.
SAVES = "trap 'touch saved; exit 75' TERM;"
SLOW = '[ -e ready ] && exit 0; touch ready; while :; do sleep 0.01; done'
CRASHES_ONCE = '[ -e tried ] || { touch tried; exit 3; }'
WAITS = 'touch ready; timeout 300 sh -c "until [ -e ../%s/ready ]; do sleep 0.01; done"'


def make_job(folder: pathlib.Path, name: str, train: str = ':', **config: int) -> Job:
  """Returns a job of shell commands, which write what they were called for."""
  every = {'train_steps': STEPS, 'checkpoint_every_steps': STEPS}
  every |= {'patience': 0, 'best_by': 'perplexity'}
  run = Run(folder / 'runs' / name)
  score = run.translations('dev', STEPS, 1, 4, 0.6).with_suffix('.json')
  score.parent.mkdir(parents=True, exist_ok=True)
  train = f'cd {run.workdir}; echo $TRANSFORMER_JAX_PARENT >> called; {train}'
  shell = train, f'touch {score}'
  commands = tuple(('sh', '-c', words) for words in shell)
  return Job(run, commands, every | {'beam': 4, 'alpha': 0.6} | config, 'dev', 1)


def run(jobs: list[Job], together: int = 1) -> int:
  with Interruption() as interruption:
    return sweep.run(jobs, together, interruption)


def trained(job: Job) -> int:
  """Returns how many trainings were started."""
  path = job.run.workdir / 'called'
  return path.read_text().split().count(str(os.getpid())) if path.exists() else 0


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


def test_all_are_trained_and_scored_once(tmp_path: pathlib.Path, capsys):
  """Two at a time, here: one alone would wait for the other.

  A failure stops no other; the same command runs it again.
  """
  words = {'a': WAITS % 'b', 'crash': CRASHES_ONCE, 'b': WAITS % 'a'}
  jobs = [make_job(tmp_path, *one) for one in words.items()]
  assert run(jobs, together=2) == 1
  assert [job.is_done() for job in jobs] == [True, False, True]
  assert 'crash: failed, exit code 3\n' in capsys.readouterr().err
  assert run(jobs, together=2) == 0 and all(job.is_done() for job in jobs)
  assert [trained(job) for job in jobs] == [1, 2, 1]


@pytest.mark.slow
def test_real_runs_are_trained_and_scored(tmp_path: pathlib.Path):
  """Two seeds of the toy task; the same command then has nothing to do."""
  write_raw(tmp_path / 'raw', 100, 20, 20, order=-1)
  flags = [f'--{name}={tmp_path / name[:-4]}' for name in ('raw_dir', 'data_dir')]
  flags += ['--config=configs/quickstart.py', f'--workdir={tmp_path / "runs"}']
  flags += ['--seeds=1,2', '--split=test', '--average=2', '--']
  flags += [f'--config.{key}={value}' for key, value in TINY.items()]
  for _ in range(2):
    program = Program(tmp_path, 'sweep', *flags)
    assert program.code(900) == 0, program.output
    output = program.output
    assert '2 of 2 runs are done' in output
  assert 'starts' not in output
  results = map(Result.read, sorted((tmp_path / 'runs').glob('*/result.json')))
  told = [(r.config['seed'], r.split, r.averaged) for r in results]
  assert told == [(1, 'test', [25, 30]), (2, 'test', [25, 30])]


@pytest.mark.parametrize('trap', [SAVES, ''])
def test_stopped_and_resumed(trap: str, tmp_path: pathlib.Path):
  """A trainer that can saves; no other starts, and the same command goes on."""
  first, second = jobs = make_job(tmp_path, 'a', trap + SLOW), make_job(tmp_path, 'b')
  thread = signalled(signal.SIGTERM, first.run.workdir / 'ready')
  with pytest.raises(SystemExit) as end:
    run(jobs)
  thread.join()
  assert end.value.code == 75 and trained(first) == 1 and not trained(second)
  assert (first.run.workdir / 'saved').exists() == bool(trap)
  assert run(jobs) == 0 and trained(first) == 2 and first.is_done()


def test_a_run_is_done_when_its_last_step_is_scored(tmp_path: pathlib.Path):
  """Patience may end it before; a short run averages fewer checkpoints."""
  job, other = (
    make_job(tmp_path, 'a', checkpoint_every_steps=1, patience=n) for n in (2, 3)
  )
  lines = [f'{{"step": {n}, "dev_perplexity": {4 + n}}}\n' for n in (1, 2, 3)]
  job.run.metrics.write_text(''.join(lines))
  assert not job.is_done()
  job.run.translations('dev', 3, 1, 4, 0.6).with_suffix('.json').touch()
  assert job.is_done() and not other.is_done()
  short = make_job(tmp_path, 'b', train_steps=250, checkpoint_every_steps=100)
  short.run.translations('dev', 250, 3, 4, 0.6).with_suffix('.json').touch()
  assert short._replace(average=5).is_done() and not short.is_done()


@pytest.fixture
def slurm(tmp_path: pathlib.Path, monkeypatch) -> pathlib.Path:
  """Has stand-ins for Slurm's commands; returns a copy of what was submitted."""
  if importlib.util.find_spec('submitit') is None:
    pytest.skip('submitit is not installed')
  submitted = tmp_path / 'submitted'
  bodies = {'srun': '', 'sbatch': f'cp "$1" {submitted}; echo Submitted batch job 12'}
  for name, body in bodies.items():
    (tmp_path / name).write_text(f'#!/bin/sh\n{body}\n')
    (tmp_path / name).chmod(0o755)
  monkeypatch.setenv('PATH', f'{tmp_path}:{os.environ["PATH"]}')
  return submitted


def test_submitted_once(slurm: pathlib.Path, tmp_path: pathlib.Path):
  jobs = [make_job(tmp_path, name) for name in 'abc']
  words = ['timeout_min=90', 'gpus_per_node=8', 'slurm_partition=fast']
  run(jobs[:1])
  assert sweep.submit(tmp_path / 'runs', jobs, words) == ['12_0: b', '12_1: c']
  text = slurm.read_text()
  for word in ('--time=90', '--gpus-per-node=8', '--partition=fast', 'USR2@90'):
    assert word in text
  assert sweep.submit(tmp_path / 'runs', jobs[:1], words) == ['1 of 1 runs are done']


def test_a_job_of_slurm_saves_when_its_time_is_up(slurm, tmp_path: pathlib.Path):
  """submitit's handler of the signal calls checkpoint(), and queues what it returns."""
  job = make_job(tmp_path, 'slow', SAVES + SLOW)
  one, queued = sweep.Submission(job), []
  handle = lambda *_: queued.append(one.checkpoint())
  before = [(n, signal.getsignal(n)) for n in (signal.SIGTERM, signal.SIGUSR2)]
  signal.signal(signal.SIGUSR2, handle)
  thread = signalled(signal.SIGUSR2, job.run.workdir / 'ready')
  assert one() == 75 and (job.run.workdir / 'saved').exists()
  thread.join()
  assert queued[0].function() == 0 and job.is_done()
  for number, handler in before:
    signal.signal(number, handler)


def run_script(folder: pathlib.Path, *options: str) -> None:
  with errors.report_user_errors():
    script.main(['sweep', f'--workdir={folder / "runs"}', *options])


def test_dry_run(tmp_path: pathlib.Path, monkeypatch, capsys):
  """Prints commands to stdout and states to stderr; writes nothing."""
  monkeypatch.setattr(sys, 'executable', '/bin/python')
  options = '--dry_run --rows=base,D1 --mini --seeds=1,2 --raw_dir=r --data_dir=d '
  options += '--config=configs/big.py:en-de -- --config.train_steps=7'
  run_script(tmp_path, *options.split())
  out, err = capsys.readouterr()
  assert not (tmp_path / 'runs').exists()
  rows = ('table3.base.mini', 'table3.D1.mini', 'big.en-de')
  assert err.splitlines() == [f'waiting {r}.seed-{n}' for n in (1, 2) for r in rows]
  folder = tmp_path / 'runs' / 'table3.D1.mini.seed-2'
  assert out.splitlines()[8:10] == [
    '/bin/python -m scripts.train --config=configs/table3.py:D1,mini --config.seed=2 '
    f'--config.train_steps=7 --workdir={folder} --data_dir=d --raw_dir=r',
    f'/bin/python -m scripts.evaluate --workdir={folder} --data_dir=d --split=dev '
    '--average=1',
  ]


def test_refused(tmp_path: pathlib.Path):
  for options, message in (
    ('--rows=base,base', 'given twice'),
    ('--rows=base --mini --average=21', 'base,mini keeps 20 checkpoints'),
    ('--rows=base -- --raw_dir=/x', '--raw_dir=/x: give configs, '),
    ('--rows=base D1', "'D1' is not a flag: --rows=base,D1"),
    ('--rows=base --submit=slurm', 'needs --slurm=timeout_min=MINUTES'),
  ):
    with pytest.raises(SystemExit, match=message):
      run_script(tmp_path, *options.split())
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


def test_the_config_of_a_job_has_the_trainers_flags(tmp_path: pathlib.Path):
  flags = '--config.beam=9', '--noconfig.data.cleaning.drop_untranslated'
  config = sweep.load_config('configs/base.py:en-de', flags, Run(tmp_path))
  assert (config.beam, config.data.cleaning.drop_untranslated) == (9, False)
  sizes = {'N': 4, 'd_model': 160, 'd_ff': 640, 'd_k': 20, 'd_v': 20}
  flags = (
    *(f'--config.model.{key}={n}' for key, n in sizes.items()),
    '--config.row=None',
    '--init_from=pretrained/tatoeba.en-de',
  )
  config = sweep.load_config('configs/table3.py:base,mini', flags, Run(tmp_path))
  assert config.init_from.step == 8000 and config.model.vocab_size == 6000
