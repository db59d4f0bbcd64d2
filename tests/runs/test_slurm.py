"""Jobs through submitit: its local stand-in for a cluster, and stand-ins for Slurm."""

import contextlib
import importlib.util
import json
import os
import pathlib
import signal
import threading
from types import SimpleNamespace

import pytest

from toy.jobs import called, make_jobs, states, wait_until
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs import slurm
from transformer_jax.runs.jobs import run_jobs

ROOT = pathlib.Path(__file__).parents[2]
SUBMITIT = pytest.mark.skipif(
  importlib.util.find_spec('submitit') is None, reason='submitit is not installed'
)


def test_a_node(tmp_path: pathlib.Path):
  jobs = make_jobs(tmp_path, 'a', 'crash', 'b')
  assert slurm.Node(jobs)() == {'a': 'done', 'crash': 'failed', 'b': 'done'}


def test_told_to_end(tmp_path: pathlib.Path):
  """By SIGTERM, of which Slurm tells this process alone: what it started saves."""
  (job,) = make_jobs(tmp_path, 'slow')

  def tell() -> None:
    wait_until((job.run.workdir / 'ready').exists)
    os.kill(os.getpid(), signal.SIGTERM)

  told = threading.Thread(target=tell)
  told.start()
  assert slurm.Node([job])() == {'slow': 'waiting'}
  told.join()
  assert (job.run.workdir / 'saved').exists()
  assert slurm.Node([job])() == {'slow': 'done'}


@SUBMITIT
@pytest.mark.filterwarnings(
  # submitit waits for none of the processes that it starts.
  'ignore::ResourceWarning',
  'ignore::pytest.PytestUnraisableExceptionWarning',
)
def test_submitit(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
  """Its local executor: two in one submission, interrupted, and gone on with."""
  monkeypatch.chdir(ROOT)
  monkeypatch.setenv('SUBMITIT_PREEMPT_SIGNAL', '')  # to have it restored
  jobs = make_jobs(tmp_path, 'slow', 'crash', 'b')
  by = slurm.executor('local', tmp_path / 'submitit', {'timeout_min': 5})
  lines = slurm.submit(jobs, by, 'local', 2)
  assert [line.partition(': ')[2] for line in lines] == ['slow crash', 'b']
  wait_until((jobs[0].run.workdir / 'ready').exists)
  wait_until(jobs[2].result.exists)
  # The submission's number is that of the process that starts its tasks.
  queued = json.loads((jobs[0].run.workdir / 'sweep.queued.json').read_text())
  node = int(queued['id'])
  children = pathlib.Path(f'/proc/{node}/task/{node}/children').read_text().split()
  for child in children:
    os.kill(int(child), signal.SIGUSR1)
  wait_until((jobs[0].run.workdir / 'saved').exists)
  wait_until(lambda: states(jobs) == ['done', 'failed', 'done'])
  assert called(jobs[0]) == ['train', 'train', 'evaluate']
  assert called(jobs[1]) == ['train']


@SUBMITIT
def test_slurm(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
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
  jobs = make_jobs(tmp_path, 'a', 'b', 'c')
  words = ['timeout_min=90', 'gpus_per_node=8', 'slurm_partition=fast']
  parameters = slurm.parse(words, 'slurm')

  def submit() -> list[str]:
    by = slurm.executor('slurm', tmp_path / 's', parameters)
    return slurm.submit(jobs, by, 'slurm', 2)

  assert submit() == ['12_0: a b', '12_1: c']
  submitted = (tmp_path / 'submitted').read_text()
  for words in ('--time=90', '--gpus-per-node=8', '--partition=fast', 'USR1@90'):
    assert words in submitted
  queue.write_text('12_0\n12_1\n7\n')
  assert submit() == []
  queue.write_text('12_1\n112_0\n')  # the first has left; another's number is longer
  assert submit() == ['12: a b']
  (folder / 'squeue').write_text('#!/bin/sh\necho no controller >&2; exit 1\n')
  with pytest.raises(UserError, match=r'squeue cannot tell .*\(no controller\)'):
    submit()

  (folder / 'srun').unlink()
  monkeypatch.setenv('PATH', str(folder))
  with pytest.raises(UserError, match='--submit=slurm: .*srun'):
    submit()


def test_submitted(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys):
  """Corpora first; then a line on each submission, what failed, and how all stands."""
  jobs, done = make_jobs(tmp_path, 'a', 'b', 'crash'), []
  run_jobs(jobs[2:], 1, lambda: False, lambda: None, lambda text: None)
  plan = SimpleNamespace(workdir=tmp_path, prepare=lambda: done.append('prepared'))
  submit = lambda node: done.append('submitted') or SimpleNamespace(job_id='7')
  cluster = SimpleNamespace(batch=contextlib.nullcontext, submit=submit)
  monkeypatch.setattr(slurm, 'executor', lambda *given: done.append(given) or cluster)
  slurm.submit_plan(plan, jobs, 'slurm', 2, ['timeout_min=9'], Interruption())
  out, err = capsys.readouterr()
  asked = 'slurm', tmp_path / 'submitit', {'timeout_min': 9}
  assert done == [asked, 'prepared', 'submitted']
  assert out == '7: a b\n' and 'crash failed, exit code 3' in err
  assert err.endswith('1 failed, 2 waiting\n')


def test_a_signal_while_jobs_are_submitted(tmp_path: pathlib.Path, monkeypatch):
  """What the cluster has taken is noted first, or it would be submitted twice."""
  (job,) = make_jobs(tmp_path, 'a')

  def submit(node: object) -> SimpleNamespace:
    os.kill(os.getpid(), signal.SIGTERM)
    return SimpleNamespace(job_id='7')

  plan = SimpleNamespace(workdir=tmp_path, prepare=lambda: None)
  cluster = SimpleNamespace(batch=contextlib.nullcontext, submit=submit)
  monkeypatch.setattr(slurm, 'executor', lambda *_: cluster)
  with pytest.raises(SystemExit, match='75'), Interruption() as interruption:
    slurm.submit_plan(plan, [job], 'slurm', 1, ['timeout_min=9'], interruption)
  assert (job.run.workdir / 'sweep.queued.json').exists()


@SUBMITIT
def test_an_unknown_parameter(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
  monkeypatch.setenv('SUBMITIT_PREEMPT_SIGNAL', '')  # to have it restored
  with pytest.raises(UserError, match='--submit=local: .*gpu'):
    slurm.executor('local', tmp_path, {'timeout_min': 9, 'gpu_per_node': 1})
