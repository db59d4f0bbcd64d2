"""Made runs of Table 3's configs: where each lands, what is refused, and the pages."""

import copy
import html.parser
import itertools
import json
import pathlib
import shutil

import pytest
from absl import flags
from absl.testing import flagsaver

from configs import base, big, table3
from scripts import report as script
from transformer_jax.data import card
from transformer_jax.report import (
  curves,
  effects,
  flops,
  page,
  paper,
  placing,
  plain,
  results,
  rows,
  rules,
  tables,
)
from transformer_jax.report.blocks import Bullets, Paragraph, Table

SENTENCES = 6
SIGNATURES = {'sacrebleu': 'nrefs:1|case:mixed|tok:13a', 'paper_bleu': 'tok:moses-de'}


@pytest.fixture(autouse=True)
def short_test_sets(monkeypatch: pytest.MonkeyPatch):
  for split, (name, _) in paper.TEST_SETS.items():
    monkeypatch.setitem(paper.TEST_SETS, split, (name, SENTENCES))


def result(
  row: str = 'base', seed: int = 1, perplexity: float = 5.0, score: float = 20.0
) -> dict:
  """What evaluate writes of a run of the miniature, as Table 3 wants it."""
  config = table3.get_config(row if ',' in row or ':' in row else f'{row},mini')
  return of_config(config, seed, perplexity, score)


def of_config(config, seed: int = 1, perplexity: float = 5.0, score: float = 20.0):
  config = json.loads(config.to_json_best_effort()) | {'seed': seed}
  return {
    'task': 'translation',
    'split': 'dev',
    'step': config['train_steps'],
    'averaged': [config['train_steps']],
    'beam': 4,
    'alpha': 0.6,
    'sacrebleu': {'score': score - 0.5, 'signature': SIGNATURES['sacrebleu']},
    'paper_bleu': {'score': score, 'signature': SIGNATURES['paper_bleu']},
    'dev_perplexity': perplexity,
    'parameters': 2_400_000,
    'target_tokens_seen': 10_000_000,
    'wall_seconds': 3600.0,
    'device': 'CPU, 2 cores (2 JAX devices)',
    'training_device': 'CPU, 2 cores (2 JAX devices)',
    'versions': {},
    'commit': None,
    'corpus': 'c0ffee' * 10,
    'config': config,
  }


def made(values: dict, folder: pathlib.Path, name: str) -> results.Scored:
  """A run's folder with this result, read back."""
  write(values, folder / name)
  found, left_out = results.read(str(folder / name))
  assert not left_out
  return results.told_apart(found)[0]


def write(values: dict, folder: pathlib.Path) -> None:
  folder.mkdir(parents=True, exist_ok=True)
  (folder / 'result.json').write_text(json.dumps(values))


def family(folder: pathlib.Path, *, more: tuple = ()) -> list[results.Scored]:
  """Base with 3 seeds, C1 clearly worse as the paper has it, and `more`."""
  specs = [('base', 1, 5.0, 20.0), ('base', 2, 5.1, 20.2), ('base', 3, 4.9, 19.8)]
  specs += [('C1', 1, 7.0, 16.0), *more]
  return [made(result(*s), folder, f'{s[0]}.seed{s[1]}') for s in specs]


def only(found: list[results.Scored], *bases: str) -> placing.Placed:
  placed, left_out = placing.place(found, [pathlib.Path(base) for base in bases])
  assert len(placed) == 1 and not left_out, left_out
  return placed[0]


def text(placed: placing.Placed, compare: effects.Compare = lambda a, b: None) -> str:
  return page.markdown(tables.comparable(placed, None, compare))


def line(printed: str, start: str, table: int = 0) -> list[str]:
  """Cells of the (table+1)-th row that begins with `start`."""
  lines = [x for x in printed.splitlines() if x.startswith(f'| {start} |')]
  return [cell.strip() for cell in lines[table].strip('|').split('|')]


# Which row a run is


def test_relations_tell_all_rows_apart():
  assert sorted(rows.RELATIONS.values()) == sorted(paper.TABLE_3)


@pytest.mark.parametrize('option', ['', ',mini'])
def test_rows_are_known_by_their_cells(option: str):
  cells = {
    row: rows.cells(table3.get_config(row + option).to_dict()) for row in paper.TABLE_3
  }
  base = rows.base_of([*cells.values()])
  assert base == cells['base']
  assert {row: rows.row_of(base, cells[row]) for row in cells} == {r: r for r in cells}


# Of these and base, either could be the other's base, by cells alone.
AMBIGUOUS = ('A2', 'A3', 'C4', 'C5', 'C6', 'C7')


@pytest.mark.parametrize('row', [row for row in paper.TABLE_3 if row != 'base'])
def test_a_base_is_found_or_left_open_but_never_wrong(row: str):
  base, other = (
    rows.cells(table3.get_config(f'{r},mini').to_dict()) for r in ('base', row)
  )
  for members in itertools.permutations([base, other]):
    found = rows.base_of(members)
    assert found == base or (found is None and row in AMBIGUOUS)


def test_a_row_of_the_papers_size_needs_no_base():
  cells = rows.cells(table3.get_config('C6').to_dict())
  assert rows.base_of([cells]) == paper.BASE


def test_an_open_base_is_named_and_the_flag_settles_it(tmp_path: pathlib.Path):
  found = [
    made(result(row), tmp_path, name) for row, name in (('base', 'x'), ('A3', 'y'))
  ]
  placed, left_out = placing.place(found, [])
  assert not placed and 'x, y: which of them is the base' in left_out[0]
  assert {*only(found, 'x').table_3} == {'base', 'A3'}


def test_a_run_that_is_no_row_is_named(tmp_path: pathlib.Path):
  other = result('C1')
  other['config']['model']['h'] = 2
  found = family(tmp_path) + [made(other, tmp_path, 'odd')]
  assert only(found).left_out == ['odd: no row of Table 3 differs from base so: N, h']


# How it was scored


@pytest.mark.parametrize(
  'change, reason',
  [
    ({'beam': 1}, 'beam 1, alpha 0.6, not beam 4, alpha 0.6'),
    ({'alpha': 1.0}, 'beam 4, alpha 1.0, not'),
    ({'averaged': [12000, 12500]}, '2 checkpoints averaged, not 1'),
    ({'step': 12000}, 'step 12,000 of 12,500'),
    ({'split': 'test'}, 'scored on newstest2014, not newstest2013'),
    ({'task': 'parsing'}, 'its task is parsing'),
  ],
)
def test_what_was_scored_otherwise_is_refused(
  change: dict, reason: str, tmp_path: pathlib.Path
):
  found = family(tmp_path) + [made(result('D1') | change, tmp_path, 'wrong')]
  placed = only(found)
  assert 'D1' not in placed.table_3 and len(placed.left_out) == 1
  assert placed.left_out[0].startswith('wrong (row D1) is not in Table 3: ')
  assert reason in placed.left_out[0]
  assert line(text(placed), 'D1')[2:] == ['', '', '5.77', '', '24.6', '', '', '', '']


def test_another_dev_set_is_refused(tmp_path: pathlib.Path):
  values = result('C1')
  values['config']['files']['dev'] = ['val']
  reasons = [*rules.against_table_3(made(values, tmp_path, 'run'))]
  assert reasons == ['scored on val, not newstest2013']
  values['config']['files']['dev'] = ['x/newstest2013']
  values['config']['reader'] = 'embedded'
  assert [*rules.against_table_3(made(values, tmp_path, 'run'))]


def test_other_languages_are_refused(tmp_path: pathlib.Path):
  for pair, right in (('en-de', True), ('en-fr', True), ('de-en', False)):
    scored = made(on_test(base.get_config(pair), 5), tmp_path, 'run')
    reasons = [*rules.against_table_2(scored, 'base')]
    assert reasons == ([] if right else [f'{pair}, not en-de or en-fr'])
  scored = made(of_config(base.get_config('en-fr')), tmp_path, 'run')
  assert [*rules.against_table_3(scored)] == ['en-fr, not en-de']


def test_lower_case_and_missing_sentences_are_refused(tmp_path: pathlib.Path):
  values = result('C1')
  values['sacrebleu']['signature'] = 'nrefs:1|case:lc|tok:13a'
  scored = made(values, tmp_path, 'run')
  scored.text.parent.mkdir()
  scored.text.write_text('a line\n' * (SENTENCES - 1))
  scored = made(values, tmp_path, 'run')
  assert [*rules.against_table_3(scored)] == [
    f'{SENTENCES - 1} translations, newstest2013 has {SENTENCES} sentences',
    'scored in lower case',
  ]


def test_of_several_results_of_a_run_the_fitting_one_is_taken(tmp_path: pathlib.Path):
  family(tmp_path)
  folder = tmp_path / 'D1' / 'translations'
  folder.mkdir(parents=True)
  for n, change in enumerate(({'beam': 1}, {}, {'alpha': 0.0})):
    values = result('D1', score=10.0 + n) | change
    (folder / f'{n}.json').write_text(json.dumps(values))
  (tmp_path / 'D1' / 'result.json').write_text('half')
  found, left_out = results.read(str(tmp_path / 'D1'))
  assert len(found) == 3 and not left_out and {s.run for s in found} == {'D1'}
  placed = only(family(tmp_path) + found)
  assert not placed.left_out
  assert [s.result['paper_bleu']['score'] for s in placed.table_3['D1']] == [11.0]


# What may stand together


def scorer(values: dict) -> None:
  values['paper_bleu']['signature'] = 'another'


def corpus(values: dict) -> None:
  values['corpus'] = 'another'


def vocabulary(values: dict) -> None:
  values['config']['model']['vocab_size'] = 9000


def recipe(values: dict) -> None:
  values['config']['warmup_steps'] = 1


@pytest.mark.parametrize('change', [scorer, corpus, vocabulary, recipe])
def test_what_cannot_be_compared_stands_in_no_common_table(
  change, tmp_path: pathlib.Path
):
  first, second = family(tmp_path), []
  for scored in family(tmp_path / 'second'):
    values = copy.deepcopy(scored.result)
    change(values)
    second.append(scored._replace(result=values))
  placed, left_out = placing.place(first + second, [])
  assert not left_out
  assert [len(p.table_3['base']) for p in placed] == [3, 3]
  marked = plain.results(first[:1] + second[:1])[0].rows
  if change is not recipe:
    assert marked[0][6] == '19.50' and marked[1][6:9] == ['19.50†', '20.00†', '5.000†']
    assert 'cannot be compared' in page.markdown(plain.results(first + second))


def test_runs_of_one_name_are_told_apart(tmp_path: pathlib.Path):
  """Each keeps its row and its number, and is shown by enough of its path."""
  for row in ('base', 'C1', 'D1'):
    for seed in (1, 2, 3):
      values = result(row, seed, 5.0 + seed / 10 + 9 * 'BCD'.find(row[0]))
      write(values, tmp_path / row / f'seed-{seed}')
  found = [s for path in tmp_path.glob('*/*') for s in results.read(str(path))[0]]
  found = results.told_apart([*found, *found])
  assert {s.run for s in found} == {
    f'{row}/seed-{n}' for row in ('base', 'C1', 'D1') for n in (1, 2, 3)
  }
  table = only(found).table_3
  for row, results_ in table.items():
    assert {s.run.partition('/')[0] for s in results_} == {row} and len(results_) == 3
  assert {*table} == {'base', 'C1', 'D1'}


def test_a_prolonged_run_is_of_two_rows(tmp_path: pathlib.Path):
  """Its earlier results belong to the config that was asked for then."""
  found = family(tmp_path)
  longer = result('D1')
  longer['config']['train_steps'] = longer['step'] = 13_000
  folder = tmp_path / 'D1.seed1' / 'translations'
  folder.mkdir(parents=True)
  for n, values in enumerate((result('D1'), longer)):
    (folder / f'{n}.json').write_text(json.dumps(values))
  placed = only(found + results.read(str(folder.parent))[0])
  assert [s.result['step'] for s in placed.table_3['D1']] == [12_500]
  assert placed.left_out == [
    'D1.seed1: no row of Table 3 differs from base so: P_drop, train_steps'
  ]


def test_several_seeds_of_base_alone(tmp_path: pathlib.Path):
  """What the smallest difference is can be told before any other row is run."""
  found = [s for s in family(tmp_path) if s.run.startswith('base')]
  _, left_out = placing.place(found, [])
  assert 'base.seed3: which of them is the base is open; --base=RUN' in left_out[0]
  printed = text(only(found, 'base.seed1'))
  assert 'no runs of any other row' in printed
  assert 'can show differences from 0.50 PPL and 0.99 BLEU on' in printed
  assert placing.place(found[:1], []) == ([], [])


@pytest.mark.parametrize('row', ['D1', 'big'])
def test_seeds_of_one_row_of_the_papers_size(row: str, tmp_path: pathlib.Path):
  """Are that row's: nothing is open."""
  config = table3.get_config(row)
  found = [made(of_config(config, seed), tmp_path, f'{seed}') for seed in (1, 2)]
  assert [len(s) for s in only(found).table_3.values()] == [2]
  assert {*only(found).table_3} == {row}


def test_a_base_is_given_by_its_path(tmp_path: pathlib.Path):
  specs = [('base', 1), ('base', 2), ('A3', 1)]
  found = [made(result(*s), tmp_path / 'runs', f'{s[0]}.{s[1]}') for s in specs]
  for given in ('base.2', 'runs/base.2', str(tmp_path / 'runs' / 'base.2')):
    assert {*only(found, given).table_3} == {'base', 'A3'}
  with pytest.raises(ValueError, match='--base=base.3: no such run among base.1, b'):
    placing.place(found, [pathlib.Path('base.3')])


def test_a_seed_counts_once(tmp_path: pathlib.Path):
  found = family(tmp_path)
  again = made(found[0].result, tmp_path, 'copy')
  other = made(result('base', 1, 4.0, 30.0), tmp_path, 'other')
  placed = only([*found, again, other])
  assert len(placed.table_3['base']) == 3
  assert placed.left_out == [
    'other (row base) is not in Table 3: seed 1 is there already, from base.seed1'
  ]


# Damage


def changed(values: dict, value: object, *keys: str) -> dict:
  *within, last = keys
  inner = values
  for key in within:
    inner = inner[key]
  inner[last] = value
  return values


def without(values: dict, *keys: str) -> dict:
  *within, last = keys
  inner = values
  for key in within:
    inner = inner[key]
  del inner[last]
  return values


@pytest.mark.parametrize(
  'damage, reason',
  [
    (lambda v: '{"task": "tra', 'damaged'),
    (lambda v: '[]', 'the object'),
    (lambda v: v | {'dev_perplexity': None}, 'dev_perplexity'),
    (lambda v: v | {'dev_perplexity': float('nan')}, 'dev_perplexity'),
    (lambda v: v | {'paper_bleu': {'score': 3.0}}, 'paper_bleu.signature'),
    (lambda v: v | {'config': {'seed': 1}}, 'config.train_steps'),
    (lambda v: {k: x for k, x in v.items() if k != 'averaged'}, 'averaged'),
    (lambda v: without(v, 'config', 'beam'), 'config.beam'),
    (lambda v: changed(v, None, 'config', 'files'), 'config.files'),
    (lambda v: changed(v, None, 'config', 'files', 'dev'), 'config.files.dev'),
    (lambda v: changed(v, None, 'config', 'model', 'N'), 'config.model.N'),
    (lambda v: changed(v, True, 'config', 'model', 'N'), 'config.model.N'),
    (lambda v: v | {'training_device': 8}, 'training_device'),
    (lambda v: v | {'decode_dtype': None}, 'decode_dtype'),
    (lambda v: v | {'target_tokens_seen': 10**400}, 'target_tokens_seen'),
    (lambda v: changed(v, [1], 'config', 'files', 'dev'), 'config.files.dev'),
    (lambda v: '[' * 100_000, 'damaged'),
  ],
)
def test_damage_is_named_and_skipped(damage, reason: str, tmp_path: pathlib.Path):
  values = damage(result())
  (tmp_path / 'run').mkdir()
  path = tmp_path / 'run' / 'result.json'
  path.write_text(values if isinstance(values, str) else json.dumps(values))
  found, left_out = results.read(str(path.parent))
  assert not found and len(left_out) == 1
  assert left_out[0].startswith(f'{path}: ') and reason in left_out[0]


@pytest.mark.parametrize('line', ['{"step": 2, "lo}', '{"loss": 3.0}', '{"step": "2"}'])
def test_damage_beside_a_result_leaves_the_result(line: str, tmp_path: pathlib.Path):
  whole = made(result(), tmp_path, 'run')
  log = whole.home / 'metrics.jsonl'
  log.write_text(f'{{"step": 1, "loss": 9}}\n{line}\n')
  whole.text.parent.mkdir()
  whole.text.write_bytes(b'\xff\n' * SENTENCES)
  (found,), left_out = results.read(str(whole.home))
  assert found == whole and found.translations is None and not found.records
  assert [reason.partition(': ')[0] for reason in left_out] == [
    str(log),
    str(whole.text),
  ]
  assert f'{log}, line 2: ' in left_out[0]


def test_a_folder_without_results_is_named(tmp_path: pathlib.Path):
  assert 'result.json: damaged or missing' in results.read(str(tmp_path))[1][0]


# Table 3


def test_table_3_beside_the_papers(tmp_path: pathlib.Path):
  printed = text(only(family(tmp_path)))
  assert line(printed, 'base') == [
    'base',
    'N 6, d_model 512, d_ff 2,048, h 8, d_k 64, d_v 64, P_drop 0.1, epsilon_ls 0.1, '
    'train_steps 100,000',
    'N 3, d_model 64, d_ff 256, h 8, d_k 8, d_v 8, P_drop 0.1, epsilon_ls 0.1, '
    'train_steps 12,500',
    '3',
    '4.92',
    '5.00 ± 0.25 (sd 0.10)',
    '25.8',
    '20.00 ± 0.50 (sd 0.20)',
    '19.50 ± 0.50 (sd 0.20)',
    '65 M',
    '2.40 M',
  ]
  assert line(printed, 'C1')[1:6] == ['N 2', 'N 1', '1', '6.11', '7.00']
  for row, papers in paper.TABLE_3.items():
    cells = line(printed, row)
    assert float(cells[4]) == papers.perplexity and float(cells[6]) == papers.bleu
    if row not in ('base', 'C1'):
      assert [*cells[2:4], cells[5], *cells[7:9], cells[10]] == [''] * 6
  assert "Not the paper's corpus, nor its base model" in printed


def test_where_it_was_trained_and_decoded_is_told(tmp_path: pathlib.Path):
  """Of rows that differ in it, row by row; what is not known as well."""
  found = family(tmp_path)
  alike = text(only(found))
  assert 'Trained on: CPU, 2 cores (2 JAX devices). Decoded in: not recorded.' in alike
  other = {'training_device': '1 x NVIDIA H100', 'decode_dtype': 'bfloat16'}
  found = [
    s._replace(result=s.result | other) if 'N": 1' in json.dumps(s.config) else s
    for s in found
  ]
  printed = text(only(found))
  assert 'CPU, 2 cores (2 JAX devices) (base); 1 x NVIDIA H100 (C1). ' in printed
  assert 'Decoded in: not recorded (base); bfloat16 (C1). ' in printed


@pytest.mark.parametrize(
  'papers, ours, margin, p, expected',
  [
    (-0.9, -2.0, 1.0, None, 'agrees'),
    (-0.9, 2.0, 1.0, None, 'disagrees'),
    (-0.9, -1.0, 1.0, None, 'undecided'),
    (-0.9, -2.0, None, 0.001, 'undecided'),
    (-0.9, -2.0, 1.0, 0.05, 'undecided'),
    (-0.9, -2.0, 1.0, 0.049, 'agrees'),
    (0.4, 2.0, 1.0, None, 'agrees'),
    (0.0, 2.0, 1.0, None, 'disagrees'),
    (0.0, 0.5, 1.0, None, 'undecided'),
  ],
)
def test_verdict(papers, ours, margin, p, expected: str):
  assert effects.verdict(papers, ours, margin, p) == expected


def test_differences_from_base(tmp_path: pathlib.Path):
  more = (('C7', 1, 5.6, 20.3), ('D1', 1, 3.0, 22.0))
  printed = text(only(family(tmp_path, more=more)), lambda system, base: 0.01)
  # Two degrees of freedom, sd 0.1 and 0.2, one run against three: t is 4.303.
  assert line(printed, 'C1', 1) == (
    'C1 +1.19 | +2.00 ± 0.50 | agrees | -2.1 | -4.00 ± 0.99 | 0.010 | agrees'
  ).replace('C1 ', 'C1 | ').split(' | ')
  assert line(printed, 'D1', 1)[3::4] == ['disagrees', 'disagrees']
  assert line(printed, 'C7', 1)[3::4] == ['disagrees', 'undecided']
  assert line(printed, 'B1', 1) == ['B1', '+0.24', '', '', '-0.7', '', '', '']
  assert 'can show differences from 0.50 PPL and 0.99 BLEU on' in printed
  claims = [x for x in printed.splitlines() if x.startswith('| Bigger')]
  assert 'C1: PPL agrees, BLEU agrees; C7: PPL disagrees' in claims[0]
  assert '| Smaller attention keys hurt. (section 6.2) |  |' in printed


def test_a_claim_is_judged_by_its_own_direction(tmp_path: pathlib.Path):
  """The paper's C3 is larger and its BLEU lower; its E is as good, and 0.1 lower."""
  more = (('C3', 1, 4.0, 16.0), ('E', 1, 9.0, 16.0), ('D3', 1, 3.0, 16.0))
  printed = text(only(family(tmp_path, more=more)), lambda system, base: 0.01)
  assert line(printed, 'C3', 1)[3::4] == line(printed, 'D3', 1)[3::4] == ['agrees'] * 2
  (claims,) = [x for x in printed.splitlines() if x.startswith('| Bigger')]
  assert 'C3: PPL agrees, BLEU disagrees' in claims
  assert '(section 6.2) | E: PPL disagrees, BLEU disagrees |' in printed
  assert '(section 5.4) | D3: PPL agrees, BLEU agrees |' in printed
  near = family(tmp_path / 'near', more=(('E', 1, 5.0, 20.0),))
  printed = text(only(near), lambda system, base: 0.5)
  assert '| E: PPL undecided, BLEU undecided |' in printed


def test_without_a_second_seed_everything_is_undecided(tmp_path: pathlib.Path):
  found = [s for s in family(tmp_path) if s.config['seed'] == 1]
  printed = text(only(found), lambda system, base: 0.001)
  assert line(printed, 'C1', 1)[2:4] == ['+2.00', 'undecided']
  assert 'agrees |' not in printed and 'No row has a second seed' in printed


def test_without_base_there_are_no_differences(tmp_path: pathlib.Path):
  found = [made(of_config(table3.get_config('C1')), tmp_path, 'C1')]
  printed = text(only(found))
  assert 'There are no runs of base' in printed and line(printed, 'C1')[5] == '5.00'


def test_pairs_are_of_one_seed(tmp_path: pathlib.Path):
  """Several are combined to twice their mean, one stays as it is."""
  found = family(tmp_path, more=(('C1', 2, 7.0, 16.0), ('C1', 9, 7.0, 16.0)))
  asked = []

  def compare(system: results.Scored, base: results.Scored) -> float:
    asked.append((system.config['seed'], base.config['seed']))
    return 0.01 * system.config['seed']

  placed = only(found)
  rows = placed.table_3['C1'], placed.table_3['base']
  assert effects.paired_p(*rows, compare) == pytest.approx(2 * (0.01 + 0.02) / 2)
  assert asked == [(1, 1), (2, 2)]
  assert effects.paired_p(rows[0][:1], rows[1], compare) == 0.01
  assert effects.paired_p(*rows, lambda system, base: 0.9) == 1
  assert effects.paired_p(*rows, lambda system, base: None) is None


# Table 2 and FLOPs


def on_test(config, average: int, device: str = '8 x Tesla P100-SXM2-16GB') -> dict:
  values = of_config(config)
  last = values['step']
  return values | {
    'split': 'test',
    'averaged': [last - n for n in range(average)][::-1],
    'training_device': device,
    'wall_seconds': 12 * 3600.0,
  }


def test_table_2_needs_its_averages(tmp_path: pathlib.Path):
  for name, config in (('base', 'base'), ('big', 'big')):
    average = {'base': 5, 'big': 20}[name]
    config = table3.get_config(config)
    found = [
      made(on_test(config, average), tmp_path, f'{name}.right'),
      made(on_test(config, average - 1), tmp_path, f'{name}.wrong'),
    ]
    placed = only(found)
    assert {*placed.table_2} == {name} and not placed.table_3
    assert placed.left_out == [
      f'{name}.wrong (row {name}) is not in Table 2: {average - 1} checkpoints '
      f'averaged, not {average}'
    ]
    printed = text(placed)
    ours = line(printed, f'Transformer ({name})')
    assert ours[1:7] == ['1', *{'base': ('27.3',), 'big': ('28.4',)}[name]] + [
      '20.00',
      '19.50',
      {'base': '3.3e+18', 'big': '2.3e+19'}[name],
      '3.3e+18',
    ]
    assert line(printed, 'ByteNet')[1:] == ['', '23.75', '', '', '', '', '']


def test_a_mean_of_flops_needs_them_of_all_seeds(tmp_path: pathlib.Path):
  config = table3.get_config('base')
  first = on_test(config, 5)
  second = on_test(config, 5, '8 x TPU v3')
  second['config']['seed'] = 2
  found = [made(first, tmp_path, 'first'), made(second, tmp_path, 'second')]
  ours = line(text(only(found)), 'Transformer (base)')
  assert ours[1] == '2' and ours[6] == '' and ours[7] == '3.8e+15'


def test_big_drops_less_for_french(tmp_path: pathlib.Path):
  placed = only([made(on_test(big.get_config('en-fr'), 20), tmp_path, 'big.fr')])
  assert {*placed.table_2} == {'big'}
  assert line(text(placed), 'Transformer (big)')[2] == '41.8'


def test_flops(tmp_path: pathlib.Path):
  config = table3.get_config('base')
  on = lambda device: made(on_test(config, 5, device), tmp_path, 'run')
  assert flops.by_paper(on('CPU, 2 cores (2 JAX devices)'), None) is None
  assert flops.by_paper(on('2 x NVIDIA H200'), None) is None
  assert flops.by_paper(on('2 x NVIDIA H200'), 50.0) == 12 * 3600 * 2 * 50e12
  assert flops.by_paper(on('4 x Quadro P1000'), None) is None  # is no P100
  moved = '8 x Tesla P100-SXM2-16GB; 1 x Tesla P100-SXM2-16GB'
  assert flops.by_paper(on(moved), None) is flops.by_paper(on(moved), 50.0) is None
  untold = on_test(config, 5)
  del untold['training_device']
  assert flops.by_paper(made(untold, tmp_path, 'untold'), 50.0) is None
  p100 = flops.by_paper(on('8 x Tesla P100-SXM2-16GB'), None)
  assert p100 == pytest.approx(3.283e18, rel=1e-3)
  counted = flops.counted(on('2 x NVIDIA H200'))
  assert counted == pytest.approx(0.381e9 * 10_000_000, rel=0.01)


def test_where_the_paper_contradicts_itself():
  _, listed = tables.inconsistencies()
  assert len(listed.items) == len(paper.INCONSISTENCIES)
  assert any('41.8' in item and '41.0' in item for item in listed.items)
  assert any('3.3e18' in item and '3.0e18' in item for item in listed.items)


def test_the_papers_own_flops():
  table = next(block for block in flops.papers_own() if isinstance(block, Table))
  assert table.rows == [
    ['base', '3.3e+18', '3.28e+18', '3.04e+18', '9.53e+17', '29%'],
    ['big', '2.3e+19', '2.30e+19', '2.28e+19', '9.68e+18', '42%'],
  ]


# Pages


class Reader(html.parser.HTMLParser):
  """Checks that tags close in order; collects tags and attributes."""

  VOID = {'meta', 'br', 'path', 'use', 'rect'}

  def __init__(self, source: str):
    super().__init__()
    self.open, self.tags, self.links, self.words = [], [], [], []
    self.feed(source)
    assert not self.open

  def handle_starttag(self, tag: str, attributes: list):
    self.tags.append(tag)
    self.links += [v for k, v in attributes if k in ('src', 'href', 'xlink:href')]
    if tag not in self.VOID:
      self.open.append(tag)

  def handle_startendtag(self, tag: str, attributes: list):
    self.handle_starttag(tag, attributes)
    if tag not in self.VOID:
      self.open.pop()

  def handle_endtag(self, tag: str):
    if tag not in self.VOID:
      assert self.open.pop() == tag

  def handle_data(self, data: str):
    self.words.append(data)


def with_curves(scored: results.Scored) -> results.Scored:
  records = [{'step': n, 'loss': 9 / n} for n in (1, 2, 3)]
  records += [{'step': n, 'dev_perplexity': 100 / n} for n in (1, 3)]
  lines = [json.dumps(record) for record in records] + ['{"step": 4, "lo']
  (scored.home / 'metrics.jsonl').write_text('\n'.join(lines))
  return results.read(str(scored.home))[0][0]


def test_curves(tmp_path: pathlib.Path):
  found = family(tmp_path)
  assert curves.curves(found) == []
  found = [with_curves(scored) for scored in found]
  pictures = curves.curves(found)
  assert [p.name for p in pictures] == ['loss', 'perplexity']
  assert pictures == curves.curves(found)
  for picture in pictures:
    assert picture.svg.startswith('<svg') and 'C1.seed1' in picture.svg


def test_scores_over_steps_are_drawn_where_there_are_several(tmp_path: pathlib.Path):
  folder = tmp_path / 'run' / 'translations'
  folder.mkdir(parents=True)
  for step in (2000, 4000):
    values = result() | {'step': step, 'averaged': [step]}
    (folder / f'{step}.json').write_text(json.dumps(values))
  found = results.read(str(tmp_path / 'run'))[0]
  assert [p.name for p in curves.curves(found)] == ['bleu']
  other = {'corpus': 'f' * 64}
  found += [s._replace(run='other', result=s.result | other) for s in found]
  (picture,) = curves.curves(found)
  assert 'other†, ' in picture.svg and 'run†' not in picture.svg, 'as in the table'


def test_the_page_is_whole_and_needs_nothing_else(tmp_path: pathlib.Path):
  found = [with_curves(scored) for scored in family(tmp_path)]
  blocks = tables.comparable(only(found), None, lambda a, b: None)
  source = page.page('Runs', blocks + curves.curves(found))
  reader = Reader(source)
  assert reader.tags.count('svg') == 2 and reader.tags.count('table') == 3
  assert all(link.startswith('#') for link in reader.links)
  assert 'url(http' not in source and '@import' not in source
  assert '<script' not in source


def test_text_is_no_markup(tmp_path: pathlib.Path):
  bad = 'a<b>c</b> | *d* _e_ snake_case'
  blocks = [Paragraph(bad), Table(['x'], [[bad]]), Bullets([bad, '`a|b_c`'])]
  reader = Reader(page.page('t', blocks))
  assert 'b' not in reader.tags and reader.words.count(bad) == 3
  printed = page.markdown(blocks).splitlines()
  assert printed[0] == r'a\<b\>c\</b\> | \*d\* \_e\_ snake_case'
  assert printed[4] == r'| a\<b\>c\</b\> \| \*d\* \_e\_ snake_case |'
  assert printed[-1] == '- `a|b_c`'


# The script


@pytest.fixture
def prepared(tmp_path: pathlib.Path) -> tuple[pathlib.Path, str]:
  """A data folder with the corpus's dev text, and the corpus's hash."""
  folder = tmp_path / 'data' / 'newsmix.en-de.mini'
  folder.mkdir(parents=True)
  (folder / card.CARD).write_text('{}')
  for side in ('source', 'target'):
    lines = (f'<i>{side}</i> sentence {n} of some words\n' for n in range(SENTENCES))
    (folder / f'dev.{side}.txt').write_text(''.join(lines))
  return folder.parent, card.read_card(folder)['corpus']


def run(tmp_path: pathlib.Path, data: pathlib.Path, **options: object) -> None:
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()
  names = [str(p) for p in sorted(tmp_path.iterdir()) if p.name.startswith('run')]
  with flagsaver.flagsaver(data_dir=str(data), **options):
    script.main(['report', *names])


def translated(tmp_path: pathlib.Path, hash_: str, row: str, seed: int, word: str):
  values = result(row, seed, 5.0 + seed / 10) | {'corpus': hash_}
  scored = made(values, tmp_path, f'run.{row}.{seed}')
  scored.text.parent.mkdir()
  lines = (f'<i>{word}</i> sentence {n} of some words\n' for n in range(SENTENCES))
  scored.text.write_text(''.join(lines))


def test_the_whole_report(
  prepared: tuple, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
):
  data, hash_ = prepared
  for row, seed, word in (('base', 1, 'target'), ('base', 2, 'x'), ('D1', 1, 'y')):
    translated(tmp_path, hash_, row, seed, word)
  (tmp_path / 'run.half').mkdir()
  (tmp_path / 'run.half' / 'result.json').write_text('{"split": ')
  run(tmp_path, data, samples=2, html=str(tmp_path / 'page.html'))
  out, err = capsys.readouterr()
  assert 'left out: ' in err and 'run.half/result.json: damaged' in err
  assert 'run.half/result.json: damaged' in out
  assert 0.0 < float(line(out, 'D1', 1)[6]) < 0.05  # base's seed 1 is the reference
  assert out.count('- source: ') == 6
  assert r'  - translation: \<i\>y\</i\> sentence 3' in out
  written = (tmp_path / 'page.html').read_text()
  reader = Reader(written)
  assert 'i' not in reader.tags and '<i>y</i> sentence 3 of some words' in reader.words


def test_markdown_with_its_pictures(prepared: tuple, tmp_path: pathlib.Path):
  data, hash_ = prepared
  with_curves(made(result() | {'corpus': hash_}, tmp_path, 'run'))
  folder = tmp_path / 'new'
  run(tmp_path, data, markdown=str(folder / 'table.md'))
  assert '](table.loss.svg)' in (folder / 'table.md').read_text()
  assert (folder / 'table.loss.svg').read_text().startswith('<?xml')


def test_table_1_stands_behind_the_runs(
  prepared: tuple, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
):
  """Or alone, without any."""
  measured = pathlib.Path(__file__).parents[2] / 'results' / 'table1.json'
  shutil.copy(measured, tmp_path / 'run.table1.json')
  run(tmp_path, prepared[0])
  alone = capsys.readouterr().out
  assert alone.startswith('## Table 1, measured') and 'O(n^2 d)' in alone
  made(result(), tmp_path, 'run.base')
  run(tmp_path, prepared[0])
  out = capsys.readouterr().out
  assert out.endswith(alone) and len(out) > len(alone)


def test_two_measurements_of_table_1(prepared: tuple, tmp_path: pathlib.Path, capsys):
  """Each under its name, with its own picture; half of one is named and skipped."""
  measured = pathlib.Path(__file__).parents[2] / 'results' / 'table1.json'
  values = json.loads(measured.read_text())
  for cell in values['cells']:
    cell['seconds'] *= 1 + cell['n'] / 1000
  (tmp_path / 'run.1.json').write_text(measured.read_text())
  (tmp_path / 'run.2.json').write_text(json.dumps(values))
  (tmp_path / 'run.3.json').write_text(json.dumps({'task': 'table1', 'cells': []}))
  halves = {'cells': values['cells'][:5], 'exponents': {}, 'reaches': [], 'counts': 8}
  for n, (key, half) in enumerate(halves.items(), 4):
    (tmp_path / f'run.{n}.json').write_text(json.dumps(values | {key: half}))
  run(tmp_path, prepared[0], markdown=str(tmp_path / 'two.md'))
  said = capsys.readouterr().err
  for n in range(3, 8):
    assert f'run.{n}.json: no whole measurement of Table 1' in said
  pictures = sorted(tmp_path.glob('*.svg'))
  assert len(pictures) == len({path.read_text() for path in pictures}) == 2
  text = (tmp_path / 'two.md').read_text()
  assert all(f']({path.name})' in text for path in pictures)
  assert '## Table 1, measured: 1.run.1' in text


def test_wrong_line_counts_are_named_and_not_compared(
  prepared: tuple, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
):
  data, hash_ = prepared
  for row, seed in (('base', 1), ('base', 2), ('D1', 1)):
    translated(tmp_path, hash_, row, seed, 'x')
  greedy = result('base', 1) | {'corpus': hash_, 'beam': 1}
  folder = tmp_path / 'run.base.1' / 'translations'
  short = folder / 'greedy.txt'
  short.write_text('a line\n' * (SENTENCES - 1))
  short.with_suffix('.json').write_text(json.dumps(greedy))
  (usual,) = [path for path in folder.glob('*.txt') if path != short]
  usual.with_suffix('.json').write_text((folder.parent / 'result.json').read_text())
  run(tmp_path, data)
  out = capsys.readouterr().out
  assert f'greedy.txt: {SENTENCES - 1} translations of {SENTENCES} sentences' in out
  pieces = [x for x in out.splitlines() if x.startswith('| beam | 4 | 1 |')]
  assert len(pieces) == 1 and pieces[0].endswith('|  |')


def test_lower_case_is_compared_in_lower_case(prepared: tuple, tmp_path: pathlib.Path):
  """Two texts that differ in their capitals alone do not differ."""
  data, hash_ = prepared
  if not flags.FLAGS.is_parsed():
    flags.FLAGS.mark_as_parsed()
  for case, expected in (('lc', 1.0), ('mixed', 0.0)):
    pair = []
    for seed, change in ((1, str.upper), (2, str)):
      values = result('base', seed) | {'corpus': hash_}
      values['sacrebleu']['signature'] = f'nrefs:1|case:{case}|tok:13a'
      scored = made(values, tmp_path, f'{case}.{seed}')
      scored.text.parent.mkdir()
      lines = (f'target sentence {n} of some words\n' for n in range(SENTENCES))
      scored.text.write_text(change(''.join(lines)))
      pair.append(made(values, tmp_path, f'{case}.{seed}'))
    with flagsaver.flagsaver(data_dir=str(data)):
      assert script.paired_p(*pair) == pytest.approx(expected, abs=0.05)


def test_a_run_is_shown_as_its_config_decodes(tmp_path: pathlib.Path):
  """At its newest step, whatever else it was decoded with."""
  folder = tmp_path / 'run' / 'translations'
  folder.mkdir(parents=True)
  for step, alpha in ((12_000, 0.6), (12_500, 0.6), (12_500, 1.0)):
    values = result() | {'step': step, 'averaged': [step], 'alpha': alpha}
    (folder / f'{step}.{alpha}.json').write_text(json.dumps(values))
  found, _ = results.read(str(tmp_path / 'run'))
  for order in itertools.permutations(found):
    ((scored, mark),) = script.usual([*order])
    assert (scored.result['step'], scored.result['alpha'], mark) == (12_500, 0.6, '')


def test_another_corpus_gives_neither_test_nor_samples(
  prepared: tuple, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
):
  for row, seed in (('base', 1), ('base', 2), ('D1', 1)):
    translated(tmp_path, 'of another card', row, seed, 'x')
  run(tmp_path, prepared[0])
  out = capsys.readouterr().out
  assert line(out, 'D1', 1)[6] == '' and '- source: ' not in out


def test_a_plain_run_has_a_short_report(
  prepared: tuple, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
):
  data, hash_ = prepared
  translated(tmp_path, hash_, 'base', 1, 'target')
  run(tmp_path, data, samples=1)
  out = capsys.readouterr().out
  assert out.startswith('| run | scored on | step |') and 'Table' not in out
  assert out.splitlines()[2].startswith(
    '| run.base.1 | newstest2013 | 12,500 | 1 | 4 |'
  )
  assert out.count('- source: ') == 1


def test_no_runs(tmp_path: pathlib.Path):
  with pytest.raises(script.app.UsageError, match='evaluate one first'):
    run(tmp_path, tmp_path)
