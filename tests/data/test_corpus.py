"""A corpus has its own folder; overrides that change it change its name."""

import pathlib

import ml_collections
import pytest

from transformer_jax.data.corpus import rename_if_changed, set_name
from transformer_jax.machine.cli import Flags

ROOT = pathlib.Path(__file__).parents[2]


def parsed(*overrides: str, config: str) -> ml_collections.ConfigDict:
  table = Flags('')
  holder = table.config('', rename_if_changed)
  table.parse(['x', f'--config={ROOT}/configs/{config}', *overrides])
  return holder.value


def name(*overrides: str, config: str = 'multi30k.py:en-de') -> str:
  return parsed(*overrides, config=config).data.name


def test_the_word_none_takes_a_config_out_of_table_3():
  config = parsed('--config.row=None', '--config.seed=2', config='base.py:en-de')
  assert (config.row, config.seed) == (None, 2)


def test_the_name_of_a_config_as_it_is():
  assert name() == 'multi30k.en-de'
  same = 'seed=5', 'model.N=2', 'tokens_per_batch=9', 'train_steps=1'
  same += 'data.train_pairs=1000000000', 'model.vocab_size=10000', 'data.max_length=256'
  for change in same:
    assert name(f'--config.{change}') == 'multi30k.en-de'
  for chosen in ('mine', 'multi30k.en-de'):
    change = '--config.data.train_pairs=20000'
    assert name(change, f'--config.data.name={chosen}') == chosen


# Keys and values of data and model, as flags have them.
CHANGES = """
  data.train_pairs=20000 data.train_pairs=20001 data.vocabulary_pairs=9 data.seed=2
  data.files.train=('a','b') data.files.dev=('a',) data.files.test=('a',)
  data.reader=wmt14 data.suffix=.tok data.source_language=fr data.target_language=fr
  data.max_length=100 data.cleaning.max_ratio=3.0 data.cleaning.off=True
  data.character_coverage=0.99 data.byte_fallback=True model.vocab_size=9000
  model.target_vocab_size=50 data.tags=False data.numbers=True data.whole_words=True
""".split()


def test_each_change_of_a_corpus_has_another_name():
  """Other overrides and their order do not matter."""
  names = [name(f'--config.{change}') for change in CHANGES]
  assert len({*names}) == len(names)
  assert all(len(chosen) == len('multi30k.en-de.12345678') for chosen in names)
  assert all(chosen.startswith('multi30k.en-de.') for chosen in names)
  first, second = '--config.data.train_pairs=20000', '--config.data.max_length=100'
  assert name(first, '--config.seed=2') == name(first) == names[0]
  assert name(first, second) == name(second, first) not in names
  assert name(first, config='newsmix.py:en-de').startswith('newsmix.en-de.')


@pytest.mark.parametrize(
  ('stem', 'name'),
  [
    ('newstest/en-de/newstest2014', 'newstest2014'),
    ('sacrebleu:wmt13', 'newstest2013'),
    ('sacrebleu:wmt14/full', 'newstest2014'),
    ('sacrebleu:wmt14', 'sacrebleu:wmt14'),
  ],
)
def test_the_name_of_a_test_set(stem: str, name: str):
  assert set_name(stem) == name
