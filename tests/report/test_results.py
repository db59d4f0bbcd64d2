"""Which results are read of runs and files, and which are left out."""

import gzip
import pathlib

import pytest

from toy.results import changed, of_row, scored, unscored, written
from transformer_jax.report import results
from transformer_jax.report.results import HeldOut
from transformer_jax.runs.result import Result
from transformer_jax.tasks import TASKS

PUBLISHED = pathlib.Path(__file__).parents[2] / 'results'


def test_every_published_result_is_read():
  paths = sorted(PUBLISHED.glob('**/*.json'))
  paths = [path for path in paths if '"task": "translation"' in path.read_text()]
  rows = {path: Result.read(path).row for path in paths}
  assert rows
  for path, row in rows.items():
    in_table = path.parent.name.startswith('table3')
    assert row == (path.name.partition('.')[0] if in_table else None), path
    contents = results.read(path, TASKS)
    assert len(contents.scored) == 1 and not contents.left_out
    assert not in_table or len(contents.scored[0].translations) == 2014
  parsers = [*(PUBLISHED / 'parsing').rglob('*.json')]
  assert parsers
  for path in parsers:
    contents = results.read(path, TASKS)
    assert (
      len(contents.scored) + len(contents.baselines) == 1 and not contents.left_out
    ), path


def test_all_translations_of_a_run_are_read_or_else_its_result(tmp_path: pathlib.Path):
  home = tmp_path / 'run'
  contents = written(of_row('D1'), home)
  assert (contents.run, contents.path) == ('run', home / 'result.json')
  (home / 'translations').mkdir()
  for beam in (4, 1):
    changed(of_row('D1'), beam=beam).write(home / 'translations' / f'{beam}.json')
  (home / 'result.json').write_text('half')
  contents = results.read(home, TASKS)
  assert [s.result.beam for s in contents.scored] == [1, 4] and not contents.left_out
  assert {s.run for s in contents.scored} == {'run'}
  alone = results.read(home / 'translations' / '4.json', TASKS)
  assert alone.scored == contents.scored[1:]
  of_row('D1').write(home / 'result.json')
  (home / 'metrics.jsonl').write_text('{"step": 5, "loss": 3.0}\n')
  (same,) = results.read(home / 'result.json', TASKS).scored
  assert (same.run, same.home, same.path) == ('run', home, home / 'result.json')
  assert same.records == [{'step': 5, 'loss': 3.0}]


@pytest.mark.parametrize(
  'text, reason',
  [
    (None, 'no run that can be read'),
    ('{"task": "tra', 'damaged'),
    ('{"version": 2}', 'missing required field `task`'),
    ('{"kind": "baseline of parsing"}', 'missing required field `parser`'),
  ],
)
def test_what_is_no_result_is_named(
  text: str | None, reason: str, tmp_path: pathlib.Path
):
  path = tmp_path / 'result.json'
  if text is not None:
    path.write_text(text)
  contents = results.read(tmp_path, TASKS)
  assert not contents.scored and not contents.unscored and len(contents.left_out) == 1
  name = tmp_path if text is None else path
  assert contents.left_out[0].startswith(f'{name}: ') and reason in contents.left_out[0]


def test_a_run_without_a_result_is_read_for_its_curves(tmp_path: pathlib.Path):
  started = unscored(tmp_path / 'run', 'D1', [{'step': 25, 'loss': 3.0}])
  assert str(started) == 'not evaluated: run run (step 25 of 3,125)'
  assert started.row == 'D1' and started.records == [{'step': 25, 'loss': 3.0}]
  for damage in ('{}', '{"model": 3}', '['):
    (tmp_path / 'run' / 'config.json').write_text(damage)
    contents = results.read(tmp_path / 'run', TASKS)
    assert not contents.unscored and 'no run that can be read' in contents.left_out[0]


@pytest.mark.parametrize(
  'line', ['{"step": 2, "lo\n{"step": 3}', '{"loss": 3.0}', '{"step": "2"}']
)
def test_damage_beside_a_result_leaves_the_result(line: str, tmp_path: pathlib.Path):
  whole = written(of_row(), tmp_path / 'run')
  log = whole.home / 'metrics.jsonl'
  log.write_text(f'{{"step": 1, "loss": 9}}\n{line}\n')
  whole.text.parent.mkdir()
  whole.text.write_bytes(b'\xff\n')
  (contents,), *_, left_out = results.read(whole.home, TASKS)
  assert contents == whole and contents.translations is None and not contents.records
  assert left_out[0].startswith(f'{log}, line 2: damaged (')
  assert left_out[1].startswith(f'{whole.text}: ') and len(left_out) == 2


CUT = gzip.compress(b'a\n' * 99)[:-9]


@pytest.mark.parametrize('content', [b'half', CUT, b''], ids=['half', 'cut', 'empty'])
def test_damaged_packed_translations_are_named(content: bytes, tmp_path: pathlib.Path):
  whole = written(of_row(), tmp_path / 'run')
  whole.text.parent.mkdir()
  path = whole.text.with_name(f'{whole.text.name}.gz')
  path.write_bytes(gzip.compress(b'Ja.\nNein.\n'))
  (one,), *_, left_out = results.read(whole.home, TASKS)
  assert one.translations == ['Ja.', 'Nein.'] and not left_out
  path.write_bytes(content)
  (one,), *_, left_out = results.read(whole.home, TASKS)
  assert one.translations in (None, []) and (not content or len(left_out) == 1)


@pytest.mark.parametrize('name', ['card.json', 'dev.source.txt', 'dev.target.txt'])
@pytest.mark.parametrize('content', [b'', b'{}', b'\xff\n', None])
def test_a_damaged_corpus_is_named_once(
  name: str, content: bytes | None, prepared, tmp_path: pathlib.Path, capsys
):
  """Samples and p are not shown then."""
  some = [prepared.run(tmp_path / f'run.{n}', 'Ja', 'base', n) for n in (1, 2)]
  folder = prepared.data_dir / some[0].data['name']
  texts = HeldOut(prepared.data_dir)
  assert all(texts.text(one) for one in some) and not capsys.readouterr().err
  if content is None:
    (folder / name).unlink()
  else:
    (folder / name).write_bytes(content)
  assert [texts.text(one) for one in some] == [None, None]
  said = capsys.readouterr().err
  # Without a card it is no corpus, and tables say what p needs.
  assert said.count('\n') == (name != 'card.json' or content is not None)
  assert not said or (
    said.startswith('no samples; paired tests need --references') and name in said
  )


def test_runs_of_one_name_bear_their_folders():
  runs = [
    scored(of_row(row, seed))._replace(home=pathlib.Path(f'/a/{row}/seed-{seed}'))
    for row in ('base', 'C1')
    for seed in (1, 2)
  ]
  other = results.Unscored('seed-1', pathlib.Path('/b/base/seed-1'), {}, '', [])
  named = results.Results([*runs, *runs], [other], [], []).with_distinct_names()
  names = ['a/base/seed-1', 'base/seed-2', 'C1/seed-1', 'C1/seed-2']
  assert [s.run for s in named.scored] == names * 2
  assert [s.result for s in named.scored] == [s.result for s in runs] * 2
  assert named.unscored[0].run == 'b/base/seed-1'
