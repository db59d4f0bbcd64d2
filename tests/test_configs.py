"""Every config, and those of Table 3 against the paper's table in the report."""

import functools
import json
import math
import pathlib
import subprocess
import sys
from types import ModuleType

import jax
import ml_collections
import numpy as np
import pytest

from configs import base, big, multi30k, newsmix, parsing, quickstart, table3
from scripts import describe
from transformer_jax.data import card, token_files
from transformer_jax.data.corpus import Corpus
from transformer_jax.model import build, flops
from transformer_jax.report import paper

PAIRS = ('en-de', 'en-fr', 'de-en')

COLUMNS = ('N', 'd_model', 'd_ff', 'h', 'd_k', 'd_v', 'P_drop')

# With a vocabulary of 37,000 and no attention biases; rows A and D are base's.
PARAMETERS = {
  'base': 63_045_632,
  'B1': 55_967_744,
  'B2': 58_327_040,
  'C1': 33_644_544,
  'C2': 48_345_088,
  'C3': 77_746_176,
  'C4': 26_816_512,
  'C5': 163_815_424,
  'C6': 50_450_432,
  'C7': 88_236_032,
  'E': 63_307_776,
  'big': 214_171_648,
}


def all_configs() -> dict[str, ml_collections.ConfigDict]:
  configs = {f'base:{pair}': base.get_config(pair) for pair in PAIRS}
  configs |= {f'big:{pair}': big.get_config(pair) for pair in PAIRS[:2]}
  configs |= {f'table3:{row}': table3.get_config(row) for row in table3.ROWS}
  configs |= {
    f'table3:{row},mini': table3.get_config(f'{row},mini') for row in table3.ROWS
  }
  configs |= {f'parsing:{arg}': parsing.get_config(arg) for arg in parsing.ARGS}
  configs |= {f'newsmix:{pair}': newsmix.get_config(pair) for pair in PAIRS}
  configs |= {
    f'multi30k:{pair}{option}': multi30k.get_config(pair + option)
    for pair in PAIRS
    for option in ('', ',lowercase')
  }
  return configs | {
    f'quickstart:{pair}': quickstart.get_config(pair) for pair in PAIRS[:2]
  }


CONFIGS = all_configs()
EVERY = pytest.mark.parametrize('name', CONFIGS)


def flat(config: ml_collections.ConfigDict | dict) -> dict:
  """Dotted names to values."""
  found = {}
  for key, value in dict(config).items():
    nested = flat(value) if hasattr(value, 'keys') else {'': value}
    found |= {f'{key}.{k}'.rstrip('.'): v for k, v in nested.items()}
  return found


# All configs


@EVERY
def test_locked(name: str):
  config = CONFIGS[name].copy_and_resolve_references()
  assert config.is_locked and config.model.is_locked and config.data.files.is_locked
  with pytest.raises(AttributeError):
    config.warmup_step = 1
  with pytest.raises(KeyError):
    config['warmup_step'] = 1
  with pytest.raises(KeyError):
    config.update({'model': {'d_modell': 1}})
  with pytest.raises(AttributeError):
    config.model.N_layers = 1


@EVERY
def test_survives_json(name: str):
  """As a run keeps it: lists for tuples, and nothing else is another."""
  config = CONFIGS[name]
  text = config.to_json_best_effort()
  again = ml_collections.ConfigDict(json.loads(text)).lock()
  assert again.to_json_best_effort() == text
  plain = lambda config: {
    k: list(v) if 'files' in k else v for k, v in flat(config).items()
  }
  assert plain(again) == plain(config)
  assert Corpus.of(again).as_json() == Corpus.of(config).as_json()


@EVERY
def test_has_every_key_of_base_with_its_type(name: str):
  kinds = lambda config: {
    key: type(value) for key, value in flat(config).items() if key != 'row'
  }
  assert kinds(CONFIGS[name]) == kinds(base.get_config())


@EVERY
def test_records_its_row_of_table_3(name: str):
  file, _, arg = name.partition(':')
  row = {'base': 'base', 'big': 'big', 'table3': arg.removesuffix(',mini')}.get(file)
  assert CONFIGS[name].row == row
  config = CONFIGS[name].copy_and_resolve_references()
  assert json.loads(config.to_json_best_effort())['row'] == row


@EVERY
def test_builds_and_counts(name: str):
  """The real model, as shapes alone, has the parameters that cost says."""
  config = CONFIGS[name]
  sizes = config.model.to_dict() | {'P_drop': 0.1}  # which changes no number
  assert counted(json.dumps(sizes)) == flops.parameters(config.model)


@functools.cache
def counted(model: str) -> int:
  config = base.get_config()
  config.model.update(json.loads(model))
  shapes = build.architecture(config)[1]
  return sum(math.prod(x.shape) for x in jax.tree.leaves(shapes))


@EVERY
def test_names_its_corpus_and_languages(name: str):
  config = CONFIGS[name]
  source, target = name.split(':')[1][:5].split('-') if '-' in name else ('en', 'de')
  if name.startswith('parsing'):
    assert config.data.name.startswith('parsing.')
    target = 'tree'
  else:
    assert f'.{source}-{target}' in config.data.name
  assert (config.data.source_language, config.data.target_language) == (source, target)
  assert config.keep_checkpoints >= config.average_last
  assert config.data.tokenized == ('lowercase' in name)


@pytest.mark.parametrize('config', [base, big, multi30k, newsmix, quickstart])
@pytest.mark.parametrize('pair', ['ende', 'en-de-fr', 'en-en', 'en_de', 'EN-DE', ''])
def test_unknown_pairs_are_refused(config: ModuleType, pair: str):
  with pytest.raises(ValueError, match=f"'{pair}' .*: en-de, en-fr, de-en, fr-en"):
    config.get_config(pair)


@pytest.mark.parametrize('config', [base, big, multi30k, newsmix, quickstart])
@pytest.mark.parametrize('pair', base.PAIRS)
def test_every_pair_is_a_config(config: ModuleType, pair: str):
  found = config.get_config(pair)
  assert f'{found.data.source_language}-{found.data.target_language}' == pair


def test_unknown_arguments_are_refused():
  with pytest.raises(
    ValueError, match='table3.py:: give table3.py:ROW or .* base, A1, .*, big'
  ):
    table3.get_config()
  with pytest.raises(ValueError, match='B2'):
    table3.get_config('B3')
  with pytest.raises(ValueError, match='ROW,mini'):
    table3.get_config('B2,tiny')
  with pytest.raises(ValueError, match='lowercase'):
    multi30k.get_config('en-de,uncased')
  with pytest.raises(ValueError, match="'ptb' is no parser: wsj, semi, craft"):
    parsing.get_config('ptb')


def test_corpora_that_differ_have_names_that_differ():
  """What decides on a prepared corpus: configs that share its name share all that."""
  prepared = {}
  for name, config in CONFIGS.items():
    settings = Corpus.of(config).as_json()
    assert prepared.setdefault(config.data.name, settings) == settings, name


# Parsing


def test_the_parser_is_section_6_3s():
  for arg, pieces in (('wsj', 16_000), ('semi', 32_000)):
    config = parsing.get_config(arg)
    model = config.model
    assert (model.N, model.d_model, model.vocab_size) == (4, 1024, pieces)
    assert model.h * model.d_k == model.h * model.d_v == 1024
    assert (config.beam, config.alpha, config.extra_length) == (21, 0.3, 300)
    assert 0 < model.P_drop < 1 and 0 < model.P_drop_attention < 1
  assert parsing.get_config('semi').data.files.train == ('wsj.02-21', 'silver')
  assert parsing.get_config('small').data.name == parsing.get_config('gum').data.name
  for arg in ('craft', 'gum', 'sample', 'small'):
    assert parsing.get_config(arg).alpha == 1.0


# Table 3


def test_cells_are_the_printed_ones():
  """They are typed in twice: in the config, and in the report's copy of the table."""
  printed = {name: row.cells for name, row in paper.TABLE_3.items()}
  assert table3.ROWS == printed | {'base': {}}
  config = base.get_config('en-de')
  cells = config.to_dict() | config.model.to_dict()
  assert {cell: cells[cell] for cell in paper.BASE} == paper.BASE


@pytest.mark.parametrize('row', table3.ROWS)
def test_row_differs_from_base_in_the_cells_it_fills_in(row: str):
  elsewhere = 'epsilon_ls', 'train_steps'
  changed = {
    cell if cell in elsewhere else f'model.{cell}': value
    for cell, value in table3.ROWS[row].items()
  }
  changed |= {'average_last': 1, 'row': row}  # section 6.2 averages nothing
  assert flat(table3.get_config(row)) == flat(base.get_config('en-de')) | changed


@pytest.mark.parametrize('row', table3.ROWS)
def test_miniature_stands_to_its_base_as_the_paper_does(row: str):
  """It differs in the same cells, and by the same ratio where they are sizes."""
  base_row, base_mini = flat(table3.get_config('base')), flat(MINIATURE_BASE)
  full, mini = flat(table3.get_config(row)), flat(table3.get_config(f'{row},mini'))
  changed = {key for key in full if full[key] != base_row[key]} - {'row'}
  assert {key for key in mini if mini[key] != base_mini[key]} - {'row'} == changed
  for key in changed:
    if key in ('model.P_drop', 'epsilon_ls', 'model.positions'):
      assert mini[key] == full[key]
    else:
      assert mini[key] * base_row[key] == full[key] * base_mini[key] > 0
      assert isinstance(mini[key], int)


MINIATURE_BASE = table3.get_config('base,mini')


def test_the_miniature_is_small_and_otherwise_as_the_paper():
  config, printed = MINIATURE_BASE, base.get_config('en-de')
  captions = multi30k.get_config('en-de')
  assert config.data.files.train == captions.data.files.train
  assert config.data.files.dev == captions.data.files.dev + captions.data.files.test
  assert (
    config.data.name != captions.data.name
    and config.data.reader == captions.data.reader
  )
  model = config.model
  assert model.h * model.d_k == model.h * model.d_v == model.d_model < 512
  assert model.d_ff == 4 * model.d_model
  kept = ('beam', 'alpha', 'extra_length', 'rate_factor', 'adam_b2', 'slices')
  for key in (*kept, 'epsilon_ls', 'seed', 'data.seed', 'data.max_length'):
    assert config[key] == printed[key]
  assert printed.train_steps % config.train_steps == 0
  assert config.train_steps % config.checkpoint_every_steps == 0
  assert config.checkpoint_every_steps % config.log_every_steps == 0


def test_sections_5_and_6():
  for config in (base.get_config(), big.get_config()):
    assert config.warmup_steps == 4000 and config.rate_factor == 1.0
    adam = config.adam_b1, config.adam_b2, config.adam_epsilon
    assert adam == (0.9, 0.98, 1e-9)
    assert config.tokens_per_batch == 25_000 and config.slices == 8
    decoding = config.beam, config.alpha, config.extra_length
    assert decoding == (4, 0.6, 50)
  assert base.get_config('en-de').model.vocab_size == 37_000
  assert base.get_config('en-fr').model.vocab_size == 32_000
  assert (base.get_config().average_last, big.get_config().average_last) == (5, 20)


def test_big_is_the_last_row():
  """It averages 20, keeps the paper's 10 minutes, and drops less for French."""
  row, config = flat(table3.get_config('big')), flat(big.get_config('en-de'))
  assert config == row | {'average_last': 20, 'checkpoint_every_steps': 600}
  assert big.get_config('en-de').model.P_drop == 0.3
  assert big.get_config('en-fr').model.P_drop == 0.1


# describe


def described(config: ml_collections.ConfigDict, data_dir: pathlib.Path) -> dict:
  """What --json prints."""
  return json.loads(json.dumps(describe.describe(config, data_dir / config.data.name)))


@pytest.mark.parametrize('row', table3.ROWS)
def test_describe_counts_the_rows(row: str, tmp_path: pathlib.Path):
  config = table3.get_config(row)
  config.model.vocab_size = 37_000
  result = described(config, tmp_path)
  name = 'base' if row[0] in 'AD' else row
  assert result['parameters'] == PARAMETERS[name]
  assert result['cells'] == {
    **{column: config.model[column] for column in COLUMNS},
    'positions': config.model.positions,
    'epsilon_ls': config.epsilon_ls,
    'train_steps': config.train_steps,
  }
  assert result['batch_shapes'] is None


def test_describe_by_its_command(tmp_path: pathlib.Path):
  row = 'B2'
  command = [
    sys.executable,
    '-m',
    'scripts.describe',
    '--json',
    f'--data_dir={tmp_path}',
  ]
  command += [f'--config=configs/table3.py:{row}', '--config.model.vocab_size=37000']
  root = pathlib.Path(__file__).parents[1]
  done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
  result = json.loads(done.stdout)
  assert set(result) == {
    *('cells', 'parameters', 'flops_per_target_token', 'batch_shapes'),
  }
  assert result['parameters'] == PARAMETERS[row]
  cells = base.get_config().model.to_dict() | table3.ROWS[row]
  assert {column: result['cells'][column] for column in COLUMNS} == {
    column: cells[column] for column in COLUMNS
  }


def test_describe_tells_of_a_vocabulary_of_the_targets_own(tmp_path: pathlib.Path):
  command = [sys.executable, '-m', 'scripts.describe', f'--data_dir={tmp_path}']
  command += ['--config=configs/base.py', '--config.model.target_vocab_size=512']
  root = pathlib.Path(__file__).parents[1]
  done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
  parameters = PARAMETERS['base'] + 512 * 512
  told = 'source embedding not tied: the target has 512 pieces of its own'
  assert f'\n{parameters:,} parameters\n{told}\n' in done.stdout


def test_parameters_move_between_rows_as_the_paper_prints():
  """Not for C4 and C5: how much they move depends on the size of the vocabulary."""
  for row in ('B1', 'B2', 'C1', 'C2', 'C3', 'C6', 'C7'):
    moved = (PARAMETERS[row] - PARAMETERS['base']) / 1e6
    printed = paper.TABLE_3[row].millions - paper.TABLE_3['base'].millions
    assert abs(moved - printed) < 1, row


@pytest.mark.parametrize('config, giga', [(base, 0.381), (big, 1.291)])
def test_flops_per_target_token(
  config: ModuleType, giga: float, tmp_path: pathlib.Path
):
  result = described(config.get_config('en-de'), tmp_path)
  np.testing.assert_allclose(result['flops_per_target_token'] / 1e9, giga, rtol=0.01)


def test_describe_shows_the_shapes_of_a_prepared_corpus(
  tmp_path: pathlib.Path,
):
  config = quickstart.get_config()
  folder = tmp_path / config.data.name
  folder.mkdir(parents=True)
  rng = np.random.default_rng(0)
  for side in ('source', 'target'):
    ids = [[5] * length for length in rng.integers(1, 40, 300)]
    token_files.write_tokens(folder / f'train.{side}', ids)
  made = {'splits': {}, 'vocabulary': {'sha256': ''}}
  card.write_card(folder, Corpus.of(config).as_json() | made)
  shapes = described(config, tmp_path)['batch_shapes']
  assert 1 <= len(shapes) <= config.max_shapes
  for slices, rows, *sides in shapes:
    assert slices == config.slices and rows >= 1
    assert len(sides) == 2 and all(2 <= most <= 41 for most in sides)
  config.data.max_length += 1
  with pytest.raises(ValueError, match=r'with max_length=\d+, the config says'):
    described(config, tmp_path)
