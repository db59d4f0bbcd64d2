"""Which results are read, which share a table, and which are left out."""

import gzip
import pathlib
import re

import pytest

from configs import base, table3
from toy.results import changed, family, of_config, of_row, scored, written
from transformer_jax.report import paper, results
from transformer_jax.report.results import ScoredRun
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


def test_damaged_translations_are_named(tmp_path: pathlib.Path):
  whole = written(of_row(), tmp_path / 'run')
  whole.text.parent.mkdir()
  path = whole.text.with_name(f'{whole.text.name}.gz')
  path.write_bytes(content := gzip.compress(b'Ja.\nNein.\n'))
  (one,), *_, omissions = results.read([whole.home], OUTPUTS)
  assert one.translations == ['Ja.', 'Nein.'] and not omissions
  path.write_bytes(content[:-9])
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


# Which runs share a table


def only(runs: list[ScoredRun]) -> results.Group:
  groups, omissions = results.group(runs)
  assert len(groups) == 1 and not omissions, omissions
  return groups[0]


@pytest.mark.parametrize('option', ['', ',mini'])
def test_every_row_is_taken_for_what_its_config_says(option: str):
  results = {row: of_config(table3.get_config(row + option)) for row in paper.TABLE_3}
  runs = {row: [scored(result, row)] for row, result in results.items()}
  group = only([run for (run,) in runs.values()])
  assert group.table_3 == runs
  assert not group.omissions and (group.base == paper.BASE) == (not option)


@pytest.mark.parametrize(
  'row, config, fields, reason',
  [
    ('base', {'model.N': 2}, {}, 'not row base, although .* so: N is 2, not 3'),
    ('D1', {'model.P_drop': 0.2}, {}, 'not row D1, although .* P_drop is 0.2, not 0'),
    ('E', {'model.positions': 'sinusoid'}, {}, 'positions is sinusoid, not learned'),
    ('D1', {}, {'beam': 1}, 'not in Table 3: beam 1, alpha 0.6, not beam 4, alpha 0.6'),
    ('D1', {}, {'alpha': 1.0}, 'beam 4, alpha 1.0, not beam 4, alpha 0.6'),
    ('D1', {}, {'averaged': [3000, 3125]}, 'averaged, not 1 .see --average.'),
    ('D1', {}, {'step': 3000}, '3,000 of 3,125 updates'),
    ('D1', {}, {'split': 'test'}, 'scored on test_2016_flickr, which is test, not dev'),
  ],
)
def test_what_is_no_such_row_or_scored_otherwise_is_left_out(
  row: str, config: dict, fields: dict, reason: str
):
  odd = scored(changed(of_row(row, 7), config, **fields), 'odd')
  for runs in ([odd, *family()], [*family(), odd]):
    group = only(runs)
    (why,) = group.omissions
    assert re.match(f'odd .*{reason}$', why)
    assert [*map(len, group.table_3.values())] == [3, 1]


def test_without_a_base_there_is_nothing_to_compare():
  rows = [scored(of_row('C1'), 'x'), scored(of_row('D1'), 'y')]
  groups, omissions = results.group(rows)
  assert not groups and omissions[0].startswith('x, y: no base to compare with')


def test_rows_that_were_all_prolonged_are_compared():
  """Their earlier results belong to the config with fewer steps."""
  fields = {'step': 4000, 'averaged': [4000]}
  longer = [
    run._replace(result=changed(run.result, {'train_steps': 4000}, **fields))
    for run in family()
  ]
  group = only([*family(), *longer])
  assert group.table_3['C1'] == longer[-1:]


def test_other_languages_are_refused():
  for pair, right in (('en-de', True), ('en-fr', True), ('de-en', False)):
    result = changed(of_config(base.get_config(pair), average=5), split='test')
    unmet = [*results.unmet_conditions(scored(result), 2)]
    assert unmet == ([] if right else [f'{pair}, not en-de or en-fr'])
  french = scored(of_config(base.get_config('en-fr')))
  assert [*results.unmet_conditions(french, 3)] == ['en-fr, not en-de']


def test_of_several_results_of_a_run_the_fitting_one_is_taken():
  several = [
    scored(changed(of_row('D1', bleu=10.0 + n), **change), 'D1')
    for n, change in enumerate(({'beam': 1}, {}, {'alpha': 0.0}))
  ]
  group = only([*family(), *several])
  assert not group.omissions and [
    s.result.scores['paper_bleu'].score for s in group.table_3['D1']
  ] == [11.0]


def test_a_seed_counts_once_and_base_is_no_other_row():
  runs, same = family(), scored(changed(of_row(), row='B3'), 'same')
  group = only([*runs, scored(of_row('base', 1, 4.0), 'other'), same])
  assert len(group.table_3['base']) == 3
  assert group.omissions == [
    'other (row base) is not in Table 3: seed 1 is in the table already, from '
    'base.seed1',
    'same (row B3) is not in Table 3: the paper has no such row, and its cells are '
    'those of base',
  ]


def test_table_2_needs_its_averages():
  for row, average in (('base', 5), ('big', 20)):
    result = of_config(table3.get_config(row), average=average)
    right = scored(changed(result, split='test'), 'right')
    wrong = scored(changed(right.result, averaged=result.averaged[1:]), 'wrong')
    group = only([right, wrong])
    assert group.table_2 == {row: [right]} and not group.table_3
    assert group.omissions == [
      f'wrong (row {row}) is not in Table 2: {average - 1} checkpoints averaged, '
      f'not {average}'
    ]


def test_which_settings_matter():
  """A corpus counts by its content, not by how it was made."""
  *bases, row = family()
  without = 'data.name', 'data.cleaning.max_ratio', 'patience', 'decode_tokens'
  matter = 'tokens_per_batch', 'warmup_steps', 'extra_length', 'data.files.dev'
  changes = [({key: ['x']}, {}) for key in (*without, *matter)]
  changes += ({}, {'corpus': 'other'}), ({}, {'paper_bleu': row.result.scores['chrf']})
  for n, (config, fields) in enumerate(changes):
    other = row._replace(result=changed(row.result, config, **fields))
    (group,), omissions = results.group([*bases, other])
    is_alike = n < len(without)
    assert {*group.table_3} == {'base', *['C1'] * is_alike}, (config, fields)
    assert len(omissions) == (not is_alike)
