"""Jobs on this machine, with a stand-in for the trainer and the scorer."""

import contextlib
import io
import json
import pathlib

import pytest

from toy.jobs import STEPS, called, done, make_jobs
from transformer_jax.machine import environment
from transformer_jax.runs import jobs as module
from transformer_jax.runs.jobs import Job, run_jobs

pytestmark = pytest.mark.usefixtures('in_the_checkout')


def run_here(jobs: list[Job], **options: object) -> tuple[dict[str, int], list[str]]:
  """Returns the exit codes, and what it printed."""
  defaults = {'together': 1, 'is_stopped': lambda: False}
  with contextlib.redirect_stderr(io.StringIO()) as said:
    codes = run_jobs(jobs, **defaults | options)
  return codes, said.getvalue().splitlines()


def test_all_are_trained_and_scored_once(tmp_path: pathlib.Path):
  jobs = make_jobs(tmp_path, 'a', 'b')
  assert not any(done(jobs))
  codes, lines = run_here(jobs)
  assert codes == {'a': 0, 'b': 0} and 'a: done' in lines
  assert all(done(jobs))
  assert run_here(jobs) == ({}, [])
  assert [called(job) for job in jobs] == [['train', 'evaluate']] * 2


@pytest.mark.parametrize('together', [1, 3])
def test_a_crash_stops_no_other(tmp_path: pathlib.Path, together: int):
  jobs = make_jobs(tmp_path, 'a', 'crash', 'b')
  codes, lines = run_here(jobs, together=together)
  assert codes == {'a': 0, 'crash': 3, 'b': 0} and done(jobs) == [True, False, True]
  assert f'crash: failed, exit code 3: see {jobs[1].log}' in lines
  assert 'out of luck' in jobs[1].log.read_text()
  assert run_here(jobs)[0] == {'crash': 0}, 'the same command runs it again'


def test_a_run_without_its_result_failed(tmp_path: pathlib.Path):
  codes, lines = run_here(make_jobs(tmp_path, 'mute'))
  assert codes == {'mute': 1} and 'mute: failed, exit code 1' in lines[-1]


@pytest.mark.parametrize('text', ['{"step": 2', '{"step": 10}'])
def test_a_damaged_result_is_none(tmp_path: pathlib.Path, text: str):
  """Such a run is scored again, as is one with a result of fewer steps."""
  jobs = make_jobs(tmp_path, 'a')
  run_here(jobs)
  jobs[0].result.write_text(text)
  assert not jobs[0].is_done()
  assert run_here(jobs)[0] == {'a': 0}


def test_a_folder_that_cannot_be_written(tmp_path: pathlib.Path):
  """The other runs are done."""
  jobs = make_jobs(tmp_path, 'a', 'b', 'c')
  (jobs[1].run.workdir / 'sweep.log').mkdir(parents=True)
  codes, lines = run_here(jobs, together=3)
  assert codes == {'a': 0, 'b': 1, 'c': 0}
  assert any('b: failed: ' in text and 'sweep.log' in text for text in lines)


@pytest.mark.parametrize('names', [['slow'], ['shy'], ['slow-a', 'slow-b']])
def test_stopped_and_resumed(tmp_path: pathlib.Path, names: list[str]):
  """A run that is stopped waits, whether it could save or not."""
  jobs = make_jobs(tmp_path, *names, 'c')
  folders = [job.run.workdir for job in jobs[:-1]]
  are_ready = lambda: all((folder / 'ready').exists() for folder in folders)
  codes, _ = run_here(jobs, together=len(names), is_stopped=are_ready)
  assert {*codes.values()} == {75} and not any(done(jobs))
  for folder in folders:
    assert (folder / 'saved').exists() == ('shy' not in names)
  assert called(jobs[0]) == ['train'] and called(jobs[-1]) == []
  run_here(jobs)
  assert called(jobs[0]) == ['train', 'train', 'evaluate']
  assert all(done(jobs))


def test_a_trainer_that_was_stopped_is_not_done(tmp_path: pathlib.Path):
  codes, _ = run_here(make_jobs(tmp_path, 'early', 'b'))
  assert codes == {'early': 75, 'b': 0}


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
def test_gpus_are_divided(visible, jobs, expected, monkeypatch):
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', visible)
  assert gpus_of(jobs) == expected
  if jobs == 4:
    memory = 'XLA_CLIENT_MEM_FRACTION'
    shared = [part.environment[memory] for part in module.divide_machine(jobs)]
    assert shared == ['0.450'] * 4
    # JAX refuses to have the variable's old name too, which a shell may export.
    old = f'XLA_PYTHON{memory.removeprefix("XLA")}'
    assert all(part.environment[old] == '' for part in module.divide_machine(jobs))


@pytest.mark.parametrize(
  ('body', 'expected'),
  [
    ('echo 0; echo 1', ['0', '1']),
    ('echo no driver; exit 9', ['', '']),
    (None, ['', '']),
  ],
)
def test_gpus_that_no_variable_names(
  body: str | None, expected: list[str], tmp_path: pathlib.Path, monkeypatch
):
  """nvidia-smi lists them."""
  monkeypatch.delenv('CUDA_VISIBLE_DEVICES', raising=False)
  monkeypatch.setenv('PATH', str(tmp_path))
  if body:
    program = tmp_path / 'nvidia-smi'
    query = '--query-gpu=index --format=csv,noheader'
    program.write_text(f'#!/bin/sh\n[ "$*" = "{query}" ] || exit 1\n{body}\n')
    program.chmod(0o755)
  assert gpus_of(2) == expected


def test_cores_are_divided(monkeypatch):
  monkeypatch.setattr(environment, 'cores', lambda: [1, 2, 4, 6, 7])
  cores = lambda jobs: [part.cores for part in module.divide_machine(jobs)]
  assert cores(1) == [(1, 2, 4, 6, 7)]
  assert cores(2) == [(1, 2), (4, 6)]
  assert cores(6) == [(1,), (2,), (4,), (6,), (7,), (1,)]


def test_two_at_once(tmp_path: pathlib.Path, monkeypatch):
  """Each has its own part of the machine."""
  monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '4,5')
  before = environment.cores()
  jobs = make_jobs(tmp_path, 'pair-a', 'pair-b', 'c')
  run_here(jobs, together=2)
  assert all(done(jobs))
  has = [json.loads((job.run.workdir / 'has.json').read_text()) for job in jobs[:2]]
  assert sorted(one['gpus'] for one in has) == ['4', '5']
  assert environment.cores() == before, 'its own cores are as they were'
  if len(before) > 1:
    assert not set(has[0]['cores']) & set(has[1]['cores'])


def test_a_run_is_scored_where_its_patience_ends(tmp_path: pathlib.Path):
  """Without patience, a run of so few steps is not done."""
  jobs = make_jobs(tmp_path, 'impatient', patience=2)
  run_here(jobs)
  assert jobs[0].is_done() and jobs[0].last_step() == 3
  run_here(jobs)
  assert called(jobs[0]) == ['train', 'evaluate']
  (other,) = make_jobs(tmp_path, 'impatient again', patience=3)
  assert run_here([other])[0] == {'impatient again': 1} and other.last_step() == STEPS
