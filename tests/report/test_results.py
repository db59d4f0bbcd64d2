"""Which results are read of runs and files, and which are left out."""

import gzip
import pathlib

import pytest

from toy.results import changed, of_row, written
from transformer_jax.report import results
from transformer_jax.runs.result import Result
from transformer_jax.tasks import TASKS

PUBLISHED = pathlib.Path(__file__).parents[2] / 'results'


def test_every_published_result_is_read():
  paths = sorted(PUBLISHED.glob('**/*.json'))
  paths = [path for path in paths if '"task": "translation"' in path.read_text()]
  rows = {path: Result.read(path).row for path in paths}
  assert rows
  for path, row in rows.items():
    assert Result.read(path).training_commit, path
    of_sweep = path.parent.name in ('table3', 'tatoeba')
    assert row == (path.name.partition('.')[0] if of_sweep else None), path
    in_table = path.parent.name == 'table3'
    contents = results.read([path], TASKS)
    assert len(contents.evaluations) == 1 and not contents.left_out
    assert not in_table or len(contents.evaluations[0].translations) == 2014
  parsers = [*(PUBLISHED / 'parsing').rglob('*.json')]
  assert parsers
  for path in parsers:
    contents = results.read([path], TASKS)
    assert len(contents.evaluations + contents.baselines) == 1, path
    assert not contents.left_out


def test_all_translations_of_a_run_are_read_or_else_its_result(tmp_path: pathlib.Path):
  home = tmp_path / 'run'
  contents = written(of_row('D1'), home)
  assert (contents.name, contents.path) == ('run', home / 'result.json')
  (home / 'translations').mkdir()
  for beam in (4, 1):
    changed(of_row('D1'), beam=beam).write(home / 'translations' / f'{beam}.json')
  (home / 'result.json').write_text('half')
  contents = results.read([home], TASKS)
  assert [s.result.beam for s in contents.evaluations] == [1, 4]
  assert not contents.left_out
  assert {s.name for s in contents.evaluations} == {'run'}
  alone = results.read([home / 'translations' / '4.json'], TASKS)
  assert alone.evaluations == contents.evaluations[1:]
  of_row('D1').write(home / 'result.json')
  (home / 'metrics.jsonl').write_text('{"step": 5, "loss": 3.0}\n')
  (same,) = results.read([home / 'result.json'], TASKS).evaluations
  assert (same.name, same.home, same.path) == ('run', home, home / 'result.json')
  assert same.records == [{'step': 5, 'loss': 3.0}]


def test_a_damaged_log_is_named(tmp_path: pathlib.Path):
  """The run's scores count all the same."""
  whole = written(of_row(), tmp_path / 'run')
  log = whole.home / 'metrics.jsonl'
  log.write_text('{"step": 1, "loss": 9}\n{"loss": 3.0}\n')
  evaluations, *_, left_out = results.read([whole.home], TASKS)
  assert [run.result for run in evaluations] == [whole.result] and len(left_out) == 1
  assert left_out[0].startswith(f'{log}, line 2: damaged (')


CUT = gzip.compress(b'a\n' * 99, mtime=0)[:-9]
# Without the time, which would be in the tests' names: workers must agree on them.
LATIN = gzip.compress(b'\xff\n', mtime=0)


@pytest.mark.parametrize('content', [b'half', CUT, LATIN])
def test_damaged_translations_are_named(content: bytes, tmp_path: pathlib.Path):
  whole = written(of_row(), tmp_path / 'run')
  whole.text.parent.mkdir()
  path = whole.text.with_name(f'{whole.text.name}.gz')
  path.write_bytes(gzip.compress(b'Ja.\nNein.\n'))
  (one,), *_, left_out = results.read([whole.home], TASKS)
  assert one.translations == ['Ja.', 'Nein.'] and not left_out
  path.write_bytes(content)
  evaluations, *_, left_out = results.read([whole.home], TASKS)
  assert not evaluations and len(left_out) == 1 and str(path) in left_out[0]


def test_runs_of_one_name_bear_their_folders(tmp_path: pathlib.Path):
  homes = [tmp_path / 'a' / row / f'seed-{n}' for row in ('base', 'C1') for n in (1, 2)]
  for home in homes:
    written(of_row(), home)
  homes.append(tmp_path / 'b/base/seed-1')
  written(of_row(), homes[-1])
  named = results.read([*homes, *homes], TASKS)
  names = ['a/base/seed-1', 'base/seed-2', 'C1/seed-1', 'C1/seed-2', 'b/base/seed-1']
  assert [s.name for s in named.evaluations] == names * 2
