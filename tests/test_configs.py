"""Every config, and Table 3's beside the paper's table."""

import functools
import json
import math
import pathlib
import tempfile

import jax
import ml_collections
import pytest

from configs import base, big, multi30k, my, parsing, quickstart, table3
from transformer_jax import config as config_files
from transformer_jax.data.corpus import corpus_settings, languages
from transformer_jax.model import build, flops
from transformer_jax.runs.result import Result

PAIRS = ('en-de', 'en-fr', 'de-en')


def all_configs() -> dict[str, ml_collections.ConfigDict]:
  """Returns all configs by FILE:ARGUMENT."""
  arguments = {
    base: PAIRS,
    big: PAIRS[:2],
    table3: [*table3.ROWS, *(f'{row},mini' for row in table3.ROWS)],
    parsing: parsing.ARGS,
    multi30k: [*PAIRS, *(f'{pair},lowercase' for pair in PAIRS)],
    quickstart: ('en-de', 'de-en'),
  }
  name = lambda module, argument: f'{module.__name__.split(".")[1]}:{argument}'
  configs = {
    name(module, argument): module.get_config(argument)
    for module, names in arguments.items()
    for argument in names
  }
  with tempfile.TemporaryDirectory() as folder:
    for language in ('de', 'en'):
      (pathlib.Path(folder) / f'train.{language}').write_text('1\n')
    return configs | {'my:de-en': my.get_config(f'de-en,{folder}')}


CONFIGS = all_configs()
flat = lambda config: config_files.flat(config.to_dict())
MINIATURE = table3.get_config('base,mini')


@functools.cache
def counted(model: str) -> int:
  """Returns the number of parameters of the real model, from shapes alone."""
  config = base.get_config()
  config.model.update(json.loads(model))
  return sum(math.prod(x.shape) for x in jax.tree.leaves(build.architecture(config)[1]))


@pytest.mark.parametrize('name', CONFIGS)
def test_every_config(name: str):
  """Is locked, has the declared keys, survives JSON, builds, has a name."""
  config = CONFIGS[name]
  assert config.is_locked and config.model.is_locked
  config_files.check(config.to_dict())
  again = ml_collections.ConfigDict(json.loads(config.to_json_best_effort()))
  assert corpus_settings(again) == corpus_settings(config)
  # Layers are alike, and P_drop changes no number: so fewer models are built.
  sizes = config.model.to_dict() | {
    'N': 2 if config.row == 'base' else 1,
    'P_drop': 0.1,
  }
  assert counted(json.dumps(sizes)) == flops.parameters(sizes)
  file, _, argument = name.partition(':')
  row = {'base': 'base', 'big': 'big', 'table3': argument.removesuffix(',mini')}
  assert config.row == row.get(file)
  source, target = argument[:5].split('-') if '-' in argument else ('en', 'de')
  if file != 'parsing':
    assert languages(config) == (source, target)
    assert f'.{source}-{target}' in config.data.name
    assert config.data.tokenized == ('lowercase' in argument)


def test_corpora_that_differ_have_names_that_differ():
  """Configs that share the name of a corpus share all that decides on it."""
  settings: dict = {}
  for name, config in CONFIGS.items():
    corpus = corpus_settings(config)
    assert settings.setdefault(config.data.name, corpus) == corpus, name


def test_unknown_arguments():
  for config, argument, message in (
    (base, 'en-en', "'en-en': en-de, en-fr, de-en, fr-en"),
    (table3, 'B3', 'B2'),
    (table3, 'B2,tiny', 'ROW,mini'),
    (multi30k, 'en-de,uncased', 'lowercase'),
    (parsing, 'ptb', 'parsing:ptb: not one of wsj, semi, '),
  ):
    with pytest.raises(ValueError, match=message):
      config.get_config(argument)


def test_sections_5_and_6():
  for config in (base.get_config(), big.get_config()):
    assert config.warmup_steps == 4000 and config.rate_factor == 1.0
    adam = config.adam_b1, config.adam_b2, config.adam_epsilon
    assert adam == (0.9, 0.98, 1e-9)
    assert config.tokens_per_batch == 25_000 and config.slices == 8
    assert (config.beam, config.alpha, config.extra_length) == (4, 0.6, 50)
  assert base.get_config('en-de').model.vocab_size == 37_000
  assert base.get_config('en-fr').model.vocab_size == 32_000
  assert (base.get_config().average_last, big.get_config().average_last) == (5, 20)
  row = flat(table3.get_config('big')) | {'average_last': 20}
  assert flat(big.get_config('en-de')) == row | {'checkpoint_every_steps': 600}
  assert big.get_config('en-de').model.P_drop == 0.3
  assert big.get_config('en-fr').model.P_drop == 0.1


def test_published_runs_have_todays_configs():
  """But for seeds, flags of `make evidence`, and what is kept and printed."""
  free = {*config_files.keys_of(config_files.Tag.BOOKKEEPING), 'seed'}
  results = pathlib.Path(__file__).parents[1] / 'results'
  for path in [*results.glob('table3/*.json'), *results.glob('quickstart*.json')]:
    stored, config, flags = Result.read(path).config, CONFIGS['quickstart:en-de'], set()
    if stored['row']:
      config = CONFIGS[f'table3:{stored["row"]},mini']
      flags = {'decode_dtype', 'max_shapes'}
    today = config_files.as_json(config)
    assert config_files.differences(stored, today) <= free | flags, path


def test_the_parser_is_section_6_3s():
  for argument, pieces in (('wsj', 16_000), ('semi', 32_000)):
    config = parsing.get_config(argument)
    model = config.model
    assert (model.N, model.d_model, model.vocab_size) == (4, 1024, pieces)
    assert model.h * model.d_k == model.h * model.d_v == 1024
    assert (config.beam, config.alpha, config.extra_length) == (21, 0.3, 300)
  assert parsing.get_config('small').data.name == parsing.get_config('gum').data.name


@pytest.mark.parametrize('row', table3.ROWS)
def test_row_differs_from_base_in_the_cells_it_fills_in(row: str):
  outside = 'epsilon_ls', 'train_steps'
  cells = table3.ROWS[row].items()
  changed = {cell if cell in outside else f'model.{cell}': v for cell, v in cells}
  changed |= {'average_last': 1, 'row': row}  # section 6.2 averages nothing
  assert flat(table3.get_config(row)) == flat(base.get_config('en-de')) | changed


@pytest.mark.parametrize('row', table3.ROWS)
def test_a_miniature_row_differs_from_its_base_as_the_papers_does(row: str):
  """The same cells differ, and sizes by the same ratio."""
  base_row, base_mini = flat(table3.get_config('base')), flat(MINIATURE)
  full, mini = flat(table3.get_config(row)), flat(table3.get_config(f'{row},mini'))
  changed = {key for key in full if full[key] != base_row[key]} - {'row'}
  assert {key for key in mini if mini[key] != base_mini[key]} - {'row'} == changed
  for key in changed:
    if key in ('model.P_drop', 'epsilon_ls', 'model.positions'):
      assert mini[key] == full[key]
    else:
      assert mini[key] * base_row[key] == full[key] * base_mini[key] > 0
