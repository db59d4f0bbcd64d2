"""Which runs share a table, whether they are their rows, and which are left out."""

import pytest

from configs import base, table3
from toy.results import changed, family, of_config, of_row, scored
from transformer_jax.report import listing, paper, results
from transformer_jax.report.results import ScoredRun


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
  'row, config, difference',
  [
    ('base', {'model.N': 2}, 'N is 2, not 3'),
    ('D1', {'model.P_drop': 0.2}, 'P_drop is 0.2, not 0'),
    ('E', {'model.positions': 'sinusoid'}, 'positions is sinusoid, not learned'),
    ('B1', {'model.d_v': 8}, 'd_v is 8, not 16'),
  ],
)
def test_a_run_that_is_not_its_row_is_named(row: str, config: dict, difference: str):
  odd = scored(changed(of_row(row, 7), config), 'odd')
  for runs in ([odd, *family()], [*family(), odd]):
    group = only(runs)
    assert group.omissions == [
      f'odd is not row {row}, as its config says: {difference}'
    ]
    assert [*map(len, group.table_3.values())] == [3, 1]


def test_without_a_base_there_is_nothing_to_compare():
  rows = [scored(of_row('C1'), 'x'), scored(of_row('D1'), 'y')]
  groups, omissions = results.group(rows)
  assert not groups and omissions[0].startswith('x, y: no base to compare with')


def test_a_prolonged_run_is_its_row_with_the_steps_of_before():
  """Its earlier results belong to the config with fewer steps."""
  longer = changed(of_row('D1'), {'train_steps': 4000}, step=4000, averaged=[4000])
  group = only([*family(), scored(of_row('D1'), 'D1'), scored(longer, 'D1')])
  assert [s.result.step for s in group.table_3['D1']] == [3125]
  assert group.omissions == [
    'D1 is not row D1, as its config says: train_steps is 4000, not 3125'
  ]
  more = {'train_steps': 4000}, {'step': 4000, 'averaged': [4000]}
  longer = [
    run._replace(result=changed(run.result, more[0], **more[1])) for run in family()
  ]
  group = only([*family(), *longer])
  assert group.table_3['C1'] == longer[-1:], 'all were prolonged'


@pytest.mark.parametrize(
  'change, reason',
  [
    ({'beam': 1}, 'beam 1, alpha 0.6, not beam 4, alpha 0.6'),
    ({'alpha': 1.0}, 'beam 4, alpha 1.0, not beam 4, alpha 0.6'),
    ({'averaged': [3000, 3125]}, '2 checkpoints averaged, not 1'),
    ({'step': 3000}, '3,000 of 3,125 updates'),
    ({'split': 'test'}, 'scored on test_2016_flickr, which is test, not dev'),
  ],
)
def test_what_was_scored_otherwise_is_left_out(change: dict, reason: str):
  group = only([*family(), scored(changed(of_row('D1'), **change), 'wrong')])
  assert 'D1' not in group.table_3
  assert group.omissions == [f'wrong (row D1) is not in Table 3: {reason}']


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


def test_a_seed_counts_once():
  runs = family()
  group = only([*runs, scored(of_row('base', 1, 4.0), 'other')])
  assert len(group.table_3['base']) == 3
  assert group.omissions == [
    'other (row base) is not in Table 3: seed 1 is in the table already, from '
    'base.seed1'
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


@pytest.mark.parametrize(
  'config, fields',
  [
    ({}, {'corpus': 'another'}),
    ({}, {'paper_bleu': of_row().scores['sacrebleu']}),
    ({'data.files.dev': ['val']}, {}),
  ],
)
def test_incomparable_runs_share_no_table(config: dict, fields: dict):
  first = family()
  second = [s._replace(result=changed(s.result, config, **fields)) for s in first]
  groups, omissions = results.group(first + second)
  assert not omissions
  assert [len(group.table_3['base']) for group in groups] == [3, 3]
  _, table = listing.every_result([first[0], second[0]])
  assert all(rf'| 19.50 \[19.0, 20.0\]{mark} |' in table for mark in '¹²')


def test_which_settings_matter():
  """A corpus counts by its content, not by how it was made."""
  *bases, row = family()
  without = 'data.name', 'data.cleaning.max_ratio', 'patience', 'decode_tokens'
  for key in (*without, 'tokens_per_batch', 'warmup_steps', 'extra_length'):
    groups, omissions = results.group(
      [*bases, row._replace(result=changed(row.result, {key: 7}))]
    )
    rows = {'base', 'C1'} if key in without else {'base'}
    assert [{*group.table_3} for group in groups] == [rows], key
    assert len(omissions) == (key not in without)
