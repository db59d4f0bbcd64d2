"""Which results are read of runs and files, and which are left out."""

import gzip
import pathlib

import pytest

from toy.results import changed, of_row, written
from transformer_jax.report import results
from transformer_jax.tasks import OUTPUTS

PUBLISHED = pathlib.Path(__file__).parents[2] / 'results'


def test_every_published_result_is_read():
  texts = {path: path.read_text() for path in PUBLISHED.rglob('*.json')}
  translated = [path for path, text in texts.items() if '"task": "translation"' in text]
  parsed = [*(PUBLISHED / 'parsing').rglob('*.json')]
  assert translated and parsed
  for path in translated + parsed:
    evaluations, baselines, omissions = results.read([path], OUTPUTS)
    assert len(evaluations + baselines) == 1 and not omissions, path
    if path in translated:
      (run,), folder = evaluations, path.parent.name
      assert run.result.training_commit, path
      has_row = folder in ('table3', 'tatoeba', 'averaged')
      row = path.name.partition('.')[0] if has_row else None
      assert run.row == row, path
      assert folder != 'table3' or len(run.translations) == 2014, path


def test_all_translations_of_a_run_are_read_or_else_its_result(tmp_path: pathlib.Path):
  home = tmp_path / 'run'
  contents = written(of_row('D1'), home)
  assert (contents.name, contents.path) == ('run', home / 'result.json')
  (home / 'translations').mkdir()
  for beam in (4, 1):
    changed(of_row('D1'), beam=beam).write(home / 'translations' / f'{beam}.json')
  (home / 'result.json').write_text('half')
  contents = results.read([home], OUTPUTS)
  assert [s.result.beam for s in contents.evaluations] == [1, 4]
  assert not contents.omissions
  assert {s.name for s in contents.evaluations} == {'run'}
  alone = results.read([home / 'translations' / '4.json'], OUTPUTS)
  assert alone.evaluations == contents.evaluations[1:]
  of_row('D1').write(home / 'result.json')
  (same,) = results.read([home / 'result.json'], OUTPUTS).evaluations
  assert (same.name, same.home, same.path) == ('run', home, home / 'result.json')


CUT = gzip.compress(b'a\n' * 99, mtime=0)[:-9]
# Without the time, which would be in the tests' names: workers must agree on them.
LATIN = gzip.compress(b'\xff\n', mtime=0)


@pytest.mark.parametrize('content', [b'half', CUT, LATIN])
def test_damaged_translations_are_named(content: bytes, tmp_path: pathlib.Path):
  whole = written(of_row(), tmp_path / 'run')
  whole.text.parent.mkdir()
  path = whole.text.with_name(f'{whole.text.name}.gz')
  path.write_bytes(gzip.compress(b'Ja.\nNein.\n'))
  (one,), *_, omissions = results.read([whole.home], OUTPUTS)
  assert one.translations == ['Ja.', 'Nein.'] and not omissions
  path.write_bytes(content)
  evaluations, *_, omissions = results.read([whole.home], OUTPUTS)
  assert not evaluations and len(omissions) == 1 and str(path) in omissions[0]


def test_runs_of_one_name_bear_their_folders(tmp_path: pathlib.Path):
  homes = [tmp_path / 'a' / row / f'seed-{n}' for row in ('base', 'C1') for n in (1, 2)]
  for home in homes:
    written(of_row(), home)
  homes.append(tmp_path / 'b/base/seed-1')
  written(of_row(), homes[-1])
  named = results.read([*homes, *homes], OUTPUTS)
  names = ['a/base/seed-1', 'base/seed-2', 'C1/seed-1', 'C1/seed-2', 'b/base/seed-1']
  assert [s.name for s in named.evaluations] == names * 2
