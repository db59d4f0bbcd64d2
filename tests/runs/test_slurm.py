"""Jobs through submitit: its local stand-in for a cluster, and stand-ins for Slurm."""

import importlib.util
import os
import pathlib
import signal
import threading

import pytest

from toy.jobs import called, done, make_jobs, wait_until
from transformer_jax.runs import slurm
from transformer_jax.runs.jobs import run_jobs

SUBMITIT = pytest.mark.skipif(
  importlib.util.find_spec('submitit') is None, reason='submitit is not installed'
)


def test_a_node_stops_by_sigterm(tmp_path: pathlib.Path):
  """Slurm signals this process alone, which has its jobs save."""
  (job,) = make_jobs(tmp_path, 'slow')

  def tell() -> None:
    wait_until((job.run.workdir / 'ready').exists)
    os.kill(os.getpid(), signal.SIGTERM)

  thread = threading.Thread(target=tell)
  thread.start()
  assert slurm.Node([job])() == {'slow': 75}
  thread.join()
  assert (job.run.workdir / 'saved').exists()
  assert slurm.Node([job])() == {'slow': 0}


@SUBMITIT
@pytest.mark.filterwarnings(
  # submitit waits for none of the processes that it starts.
  'ignore::ResourceWarning',
  'ignore::pytest.PytestUnraisableExceptionWarning',
)
def test_submitit(tmp_path: pathlib.Path, monkeypatch, in_the_checkout):
  """Its local executor runs two jobs in one submission, is interrupted, and resumes."""
  monkeypatch.setenv('SUBMITIT_PREEMPT_SIGNAL', '')  # to have it restored
  jobs = make_jobs(tmp_path, 'slow', 'crash', 'b')
  executor = slurm.make_executor('local', tmp_path / 'submitit', {'timeout_min': 5})
  lines = slurm.submit(jobs, executor, 2)
  assert [line.partition(': ')[2] for line in lines] == ['slow crash', 'b']
  wait_until((jobs[0].run.workdir / 'ready').exists)
  wait_until(jobs[2].result.exists)
  # The submission's number is that of the process that starts its tasks.
  node = int(lines[0].partition(':')[0])
  children = pathlib.Path(f'/proc/{node}/task/{node}/children').read_text().split()
  for child in children:
    os.kill(int(child), signal.SIGUSR1)
  wait_until((jobs[0].run.workdir / 'saved').exists)
  wait_until(lambda: all(done(jobs)))
  assert called(jobs[0]) == ['train', 'train', 'evaluate']


@SUBMITIT
def test_slurm(tmp_path: pathlib.Path, monkeypatch):
  """Stand-ins for Slurm's commands show that jobs are submitted once."""
  monkeypatch.setenv('SUBMITIT_PREEMPT_SIGNAL', '')  # to have it restored
  scripts = {
    'srun': 'exit 0',
    'sbatch': f'cp "$1" {tmp_path}/submitted; echo Submitted batch job 12',
  }
  folder = tmp_path / 'bin'
  folder.mkdir()
  for name, body in scripts.items():
    (folder / name).write_text(f'#!/bin/sh\n{body}\n')
    (folder / name).chmod(0o755)
  monkeypatch.setenv('PATH', f'{folder}:{os.environ["PATH"]}')
  jobs = make_jobs(tmp_path, 'a', 'b', 'c')
  words = ['timeout_min=90', 'gpus_per_node=8', 'slurm_partition=fast']
  parameters = slurm.parse(words, 'slurm')

  executor = slurm.make_executor('slurm', tmp_path / 's', parameters)
  assert slurm.submit(jobs, executor, 2) == ['12_0: a b', '12_1: c']
  submitted = (tmp_path / 'submitted').read_text()
  for words in ('--time=90', '--gpus-per-node=8', '--partition=fast', 'USR1@90'):
    assert words in submitted
  run_jobs(jobs[:2], 1, lambda: False)
  assert slurm.submit(jobs, executor, 2) == ['12: c']
