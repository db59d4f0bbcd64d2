"""Jobs whose trainer and scorer are stand-ins, on this machine."""

import fcntl
import json
import pathlib
import threading

import pytest

from toy.jobs import STEPS, called, make_jobs, states, wait_until
from transformer_jax.machine import environment
from transformer_jax.runs import jobs as module
from transformer_jax.runs.jobs import Job, run_jobs
from transformer_jax.runs.sweep import describe_progress

ROOT = pathlib.Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.chdir(ROOT)


def run_here(jobs: list[Job], **options: object) -> list[str]:
  """What it said."""
  said: list[str] = []
  given = {'together': 1, 'is_stopped': lambda: False, 'tick': lambda: None} | options
  run_jobs(jobs, say=said.append, **given)
  return said


def test_all_are_trained_and_scored_once(tmp_path: pathlib.Path):
  jobs = make_jobs(tmp_path, 'a', 'b')
  assert states(jobs) == ['waiting'] * 2
  said = run_here(jobs)
  assert 'a: is trained, scoring' in said
  assert states(jobs) == ['done'] * 2
  run_here(jobs)
  assert [called(job) for job in jobs] == [['train', 'evaluate']] * 2


@pytest.mark.parametrize('together', [1, 3])
def test_a_crash_stops_no_other(tmp_path: pathlib.Path, together: int):
  jobs = make_jobs(tmp_path, 'a', 'crash', 'b')
  said = run_here(jobs, together=together)
  assert states(jobs) == ['done', 'failed', 'done']
  note = json.loads((jobs[1].run.workdir / 'sweep.json').read_text())
  assert note['exit_code'] == 3 and 'scripts.train' in note['command']
  (told,) = (text for text in said if 'failed' in text)
  assert 'exit code 3' in told and 'out of luck' in told
  assert str(jobs[1].run.workdir / 'sweep.log') in told
  run_here(jobs)
  assert called(jobs[1]) == ['train'], 'a failed run is not begun again unasked'
  jobs[1].forgive()
  run_here(jobs)
  assert states(jobs) == ['done'] * 3


def test_a_run_without_its_result_failed(tmp_path: pathlib.Path):
  jobs = make_jobs(tmp_path, 'mute')
  (*_, told) = run_here(jobs)
  assert states(jobs) == ['failed'] and f'no result of step {STEPS}' in told


@pytest.mark.parametrize('text', ['{"step": 2', '{"step": 10}'])
def test_a_damaged_result_is_none(tmp_path: pathlib.Path, text: str):
  """Nor is one of fewer steps: the run is scored again."""
  jobs = make_jobs(tmp_path, 'a')
  run_here(jobs)
  jobs[0].result.write_text(text)
  assert states(jobs) == ['waiting']
  run_here(jobs)
  assert states(jobs) == ['done']


def test_a_folder_that_cannot_be_written(tmp_path: pathlib.Path):
  """One run's trouble is not the others'."""
  jobs = make_jobs(tmp_path, 'a', 'b', 'c')
  (jobs[1].run.workdir / 'sweep.log').mkdir(parents=True)
  said: list[str] = []
  options = {'is_stopped': lambda: False, 'tick': lambda: None, 'say': said.append}
  ended = run_jobs(jobs, 3, **options)
  assert ended == {'a': 'done', 'b': 'failed', 'c': 'done'}
  assert any('b failed' in text and 'sweep.log' in text for text in said)


@pytest.mark.parametrize('lock', ['lock', 'sweep.lock'])
def test_what_another_process_runs_is_left_alone(tmp_path: pathlib.Path, lock: str):
  jobs = make_jobs(tmp_path, 'a')
  jobs[0].run.workdir.mkdir(parents=True)
  with (jobs[0].run.workdir / lock).open('w') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    assert states(jobs) == ['running']
    run_here(jobs)
    assert called(jobs[0]) == []
  assert states(jobs) == ['waiting']


def test_two_that_begin_at_once(tmp_path: pathlib.Path):
  """Only one of them runs the commands."""
  (job,) = make_jobs(tmp_path, 'slow')
  stop = threading.Event()
  first = threading.Thread(target=job.attempt, args=(stop.is_set, {}, print))
  first.start()
  wait_until((job.run.workdir / 'ready').exists)
  assert job.attempt(lambda: False, {}, print) == 'running'
  stop.set()
  first.join()
  assert called(job) == ['train']


@pytest.mark.parametrize('names', [['slow'], ['shy'], ['slow-a', 'slow-b']])
def test_stopped_and_resumed(tmp_path: pathlib.Path, names: list[str]):
  """A run may save before it ends; one that is stopped before it can waits as well."""
  jobs = make_jobs(tmp_path, *names, 'c')
  folders = [job.run.workdir for job in jobs[:-1]]
  begun = lambda: all((folder / 'ready').exists() for folder in folders)
  run_here(jobs, together=len(names), is_stopped=begun)
  assert states(jobs) == ['waiting'] * len(jobs)
  for folder in folders:
    assert (folder / 'saved').exists() == ('shy' not in names)
  assert called(jobs[0]) == ['train'] and called(jobs[-1]) == []
  run_here(jobs)
  assert called(jobs[0]) == ['train', 'train', 'evaluate']
  assert states(jobs) == ['done'] * len(jobs)


def test_a_trainer_that_was_told_to_stop_waits(tmp_path: pathlib.Path):
  jobs = make_jobs(tmp_path, 'early', 'b')
  run_here(jobs)
  assert states(jobs) == ['waiting', 'done']


def test_progress_of_jobs(tmp_path: pathlib.Path):
  """The states, and the steps of what runs; a line that is being written is none."""
  jobs = make_jobs(tmp_path, 'a', 'early', 'crash', 'b')
  assert describe_progress(jobs) == '4 waiting'
  run_here(jobs[:3])
  assert describe_progress(jobs) == '1 done, 1 failed, 2 waiting'
  with (jobs[1].run.workdir / 'lock').open('w') as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    with jobs[1].run.metrics.open('a') as metrics:
      metrics.write('{"step": 15, "seco')
    running = '1 done, 1 running (early step 10/20), 1 failed, 1 waiting'
    assert describe_progress(jobs) == running
    jobs[1].run.metrics.write_text('{"step": 15, "seco\n{"step": 16}\n')
    # The report and the trainer name the damage.
    assert 'early step 0/20' in describe_progress(jobs)
    jobs[1].run.metrics.write_text('{"step": 20, "seconds": 1}\n')
    assert 'early scoring' in describe_progress(jobs)


# Side by side


def gpus_of(jobs: int) -> list[str]:
  parts = [part.environment for part in module.divide_machine(jobs)]
  return [part['CUDA_VISIBLE_DEVICES'] if part else '' for part in parts]


@pytest.mark.parametrize(
  ('visible', 'jobs', 'expected'),
  [
    ('0,1,2,3', 2, ['0,1', '2,3']),
    ('4,5', 2, ['4', '5']),
    ('0,1', 4, ['0', '1', '0', '1']),
    ('', 2, ['', '']),
    ('0,1', 1, ['']),  # one alone has what it finds
  ],
)
def test_gpus_are_divided(visible, jobs, expected, monkeypatch: pytest.MonkeyPatch):
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', visible)
  assert gpus_of(jobs) == expected
  if jobs == 4:
    memory = 'XLA_CLIENT_MEM_FRACTION'
    shared = [part.environment[memory] for part in module.divide_machine(jobs)]
    assert shared == ['0.450'] * 4


@pytest.mark.parametrize(
  ('body', 'expected'),
  [
    ('echo 0; echo 1', ['0', '1']),
    ('echo no driver; exit 9', ['', '']),
    (None, ['', '']),
  ],
)
def test_gpus_that_no_variable_names(
  body: str | None,
  expected: list[str],
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
):
  """The driver's program lists them, where there is one."""
  monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
  monkeypatch.setenv('PATH', str(tmp_path))
  if body:
    program = tmp_path / 'nvidia-smi'
    asked = '--query-gpu=index --format=csv,noheader'
    program.write_text(f'#!/bin/sh\n[ "$*" = "{asked}" ] || exit 1\n{body}\n')
    program.chmod(0o755)
  assert gpus_of(2) == expected


def test_cores_are_divided(monkeypatch: pytest.MonkeyPatch):
  monkeypatch.setattr(environment, 'cores', lambda: [1, 2, 4, 6, 7])
  cores = lambda jobs: [part.cores for part in module.divide_machine(jobs)]
  assert cores(1) == [(1, 2, 4, 6, 7)]
  assert cores(2) == [(1, 2), (4, 6)]
  assert cores(6) == [(1,), (2,), (4,), (6,), (7,), (1,)]


def test_two_at_once(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
  """Each waits for the other, and has its own part of the machine."""
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '4,5')
  before = environment.cores()
  jobs = make_jobs(tmp_path, 'pair-a', 'pair-b', 'c')
  run_here(jobs, together=2)
  assert states(jobs) == ['done'] * 3
  has = [json.loads((job.run.workdir / 'has.json').read_text()) for job in jobs[:2]]
  assert sorted(one['gpus'] for one in has) == ['4', '5']
  assert environment.cores() == before, 'its own cores are as they were'
  if len(before) > 1:
    assert not set(has[0]['cores']) & set(has[1]['cores'])


def test_a_run_whose_patience_ends_is_scored_there(tmp_path: pathlib.Path):
  """And where nothing ends early, a run of so few steps is not done."""
  jobs = make_jobs(tmp_path, 'impatient', patience=2)
  run_here(jobs)
  assert states(jobs) == ['done'] and jobs[0].last_step() == 3
  run_here(jobs)
  assert called(jobs[0]) == ['train', 'evaluate']
  (other,) = make_jobs(tmp_path, 'impatient again', patience=3)
  run_here([other])
  assert states([other]) == ['failed'] and other.last_step() == STEPS
