"""Jobs of a sweep whose trainer and scorer are a stand-in, which needs no JAX."""

import pathlib
import sys
import time
from collections.abc import Callable

from transformer_jax.runs.jobs import Job
from transformer_jax.runs.run import Run

STEPS = 20
CONFIG = {'train_steps': STEPS, 'checkpoint_every_steps': STEPS}
CONFIG |= {'beam': 4, 'alpha': 0.6}

# Stands in for `python -m scripts.train` and `python -m scripts.evaluate`. The run's
# name says what it does: "slow" works until its first SIGTERM, "shy" does not handle
# that, "crash" fails once, "early" stops once, "mute" leaves no result, "impatient" has
# ever worse dev perplexities and ends at step 3, and "pair" waits for another, writing
# down what it has of the machine.
STAND_IN = f"""#!{sys.executable} -S
import json, os, pathlib, signal, sys, time
flags = dict(word.partition('=')[::2] for word in sys.argv)
folder = pathlib.Path(flags['--workdir'])
(folder / 'called').open('a').write(sys.argv[2] + chr(10))
calls = (folder / 'called').read_text().split()
first = calls.count(sys.argv[2]) == 1
if 'crash' in folder.name and calls == ['scripts.train']:
  print('out of luck')
  sys.exit(3)
if 'pair' in folder.name and sys.argv[2] == 'scripts.train':
  end = time.monotonic() + 300
  while len(list(folder.parent.glob('pair*'))) < 2 and time.monotonic() < end:
    time.sleep(0.01)
  gpus = os.environ.get('CUDA_VISIBLE_DEVICES')
  has = {{'cores': sorted(os.sched_getaffinity(0)), 'gpus': gpus}}
  (folder / 'has.json').write_text(json.dumps(has))
if sys.argv[2] == 'scripts.evaluate':
  if 'mute' not in folder.name:
    path = folder / 'translations'
    path.mkdir(exist_ok=True)
    step = 3 if 'impatient' in folder.name else {STEPS}
    name = f'dev.step-{{step}}.average-1.beam-4.alpha-0.6.json'
    (path / name).write_text(json.dumps({{'step': step, 'split': 'dev'}}))
  sys.exit()
def log(step):
  record = {{'step': step, 'target_tokens': 9, 'loss': 1, 'seconds': 5.0}}
  (folder / 'metrics.jsonl').open('a').write(json.dumps(record) + chr(10))
if 'impatient' in folder.name:  # the best of three is the first
  lines = [json.dumps({{'step': n, 'dev_perplexity': 4.0 + n}}) for n in (1, 2, 3)]
  (folder / 'metrics.jsonl').write_text(chr(10).join(lines) + chr(10))
  sys.exit()
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


def write_stand_in(folder: pathlib.Path) -> pathlib.Path:
  """Writes a program that takes the arguments of Python."""
  path = folder / 'stand-in'
  path.write_text(STAND_IN)
  path.chmod(0o755)
  return path


def make_jobs(folder: pathlib.Path, *names: str, patience: int = 0) -> list[Job]:
  """Jobs in `folder`/runs; the names say what the stand-in does."""
  command = str(write_stand_in(folder)), '-m'
  jobs = []
  for name in names:
    run = Run(folder / 'runs' / name)
    train = *command, 'scripts.train', f'--workdir={run.workdir}'
    evaluate = *command, 'scripts.evaluate', f'--workdir={run.workdir}'
    jobs.append(Job(run, (train, evaluate), CONFIG | {'patience': patience}, 'dev', 1))
  return jobs


def done(jobs: list[Job]) -> list[bool]:
  return [job.is_done() for job in jobs]


def called(job: Job) -> list[str]:
  """Returns the programs that ran for the job so far: train, evaluate ..."""
  path = job.run.workdir / 'called'
  return [x.split('.')[1] for x in path.read_text().split()] if path.exists() else []


def wait_until(is_true: Callable[[], bool]) -> None:
  end = time.monotonic() + 300
  while not is_true():
    assert time.monotonic() < end
    time.sleep(0.01)
