"""A benchmark's counts, ratios and forced lengths; other programs beside ours."""

import importlib.util
import json
import pathlib
import types
from typing import Any

import jax
import ml_collections
import numpy as np
import pytest

import toy.corpus
from benchmarks import decoding, rivals, run, timing, training
from configs import base
from transformer_jax.data.batches import Batch
from transformer_jax.data.corpus import read_split
from transformer_jax.data.vocabulary import EOS
from transformer_jax.machine import platform
from transformer_jax.machine.errors import UserError
from transformer_jax.model import flops
from transformer_jax.training.trainer import Trainer

SIZES = {'N': 1, 'd_model': 16, 'd_ff': 32, 'h': 2, 'd_k': 8, 'd_v': 8}
OPTIONS = dict.fromkeys(run.Options._fields) | {'length': 5, 'rivals': [], 'tries': []}
OPTIONS = run.Options(**OPTIONS)


def tiny(**changes: Any) -> ml_collections.ConfigDict:
  options = {'tokens_per_batch': 128, 'max_shapes': 2, 'decode_dtype': 'float32'}
  return toy.config.tiny(**options | changes)


def test_each_program_runs_in_every_position():
  calls = []
  programs = {name: lambda _, name=name: calls.append(name) for name in 'abc'}
  seconds = timing.interleave(programs, 3)
  assert ''.join(calls) == 'abcbcacab' and [*map(len, seconds.values())] == [3] * 3


def test_medians_and_ratios():
  seconds = {'ours': [2.0, 1.0, 4.0], 'them': [2.0, 3.0, 8.0]}
  columns = timing.columns(seconds, {'tokens': [10, 10, 80]})
  assert columns['ours']['tokens_per_second'] == 10.0  # of 5, 10, 20
  assert columns['them']['tokens_per_second'] == 5.0  # of 5, 3.3, 10
  assert (columns['ours']['ratio'], columns['them']['ratio']) == (1.0, 2.0)


def test_a_fixed_shape_is_full(tmp_path: pathlib.Path):
  config = tiny()
  config.model.target_vocab_size = 9
  config = training.write_corpus(config, 24, 7, tmp_path)
  batches = Trainer(config, read_split(tmp_path, 'train')).batches
  assert batches.shapes == [(3, 7, 7)]
  assert batches.steps_per_epoch == 1 and batches.padding == 0
  source, target = batches.batch(0)[:2]
  for side in (source, target):
    assert side.shape == (8, 3, 7) and (side[..., -1] == EOS).all()
  assert 60 > source.max() > 9 > target.max(), 'each side has its own vocabulary'
  with pytest.raises(UserError, match='--rows=12 must be a multiple of slices=8'):
    training.write_corpus(tiny(), 12, 7, tmp_path)


@pytest.mark.slow
def test_training(tmp_path: pathlib.Path, monkeypatch):
  """Two rounds of three updates: tokens, rates, utilisation, and what a rival sees."""
  monkeypatch.setattr(timing, 'SIZES', {'cpu': (16, 32)})
  monkeypatch.setattr(timing, 'MIN_SECONDS', 0.001)
  toy.corpus.prepare(toy.corpus.write_raw(tmp_path / 'raw'))
  corpus, seen = tmp_path / 'data' / 'toy', []
  rival = types.SimpleNamespace(step=seen.append, wait=lambda: 0.0)
  result = training.measure(tiny(), corpus, {'them': rival}, each=3, rounds=2)
  result = json.loads(json.dumps(result))
  batches = Trainer(tiny(), read_split(corpus, 'train')).batches
  target = batches.target
  # Counted by pair in the token files, which know nothing of padding.
  pairs = [batches.batch(step).pairs for step in range(6)]
  counts = [int(target.lengths[p[p >= 0]].sum()) for p in pairs]
  tokens, ours = [sum(counts[:3]), sum(counts[3:])], result['columns']['ours']
  assert result['target_tokens'] == tokens and 0 < result['padding'] < 1
  rate = np.median(np.divide(tokens, ours['seconds']))
  assert ours['target_tokens_per_second'] == pytest.approx(rate)

  sizes = SIZES | {'vocab_size': 60, 'target_vocab_size': 0}
  flops_per_token = flops.flops_per_target_token(sizes, round(target.lengths.mean()))
  utilisation = rate * flops_per_token / result['matrix_products']['flops_per_second']
  assert result['model_flops_utilisation'] == pytest.approx(utilisation)
  assert len(seen) == 2 + 6
  for number, batch in enumerate(seen[2:]):
    for side, whole in zip(batch, batches.batch(number), strict=True):
      np.testing.assert_array_equal(side, whole)


@pytest.mark.slow
def test_forced_lengths():
  """Every hypothesis has as many tokens as its source, EOS counted."""
  beam = 2
  texts = ['5', '9 8 7 6 5 4 3 9 8 7', '7 7 7', '11 12 13 14 15']
  program = decoding.Ours(tiny(), decoding.NUMBERS, beam, rows=2, length=4)
  translated = program.translator.translate(texts, beam)
  for text, hypotheses in zip(texts, translated, strict=True):
    lengths = [len(one.tokens) for one in hypotheses if EOS not in one.tokens]
    assert lengths == [len(text.split()) + 1] * beam
  assert program(texts) == [hypotheses[0].text for hypotheses in translated]


def test_a_rival_from_text_to_text():
  """In the batches that our Translator makes; outputs in order, cut to length."""
  batches, words = [], decoding.Numbers()

  def reverse(sources: list[list[int]], beam: int, length: int) -> list[list[int]]:
    batches.append([len(ids) for ids in sources])
    assert all(ids[-1] == EOS for ids in sources) and length == max(batches[-1])
    return [[*reversed(ids[:-1]), *[7] * length][:length] for ids in sources]

  rival = types.SimpleNamespace(translate=reverse)
  lengths = (3, 30, 15, 16, 1, 20)
  texts = [' '.join(str(10 + i) for i in range(n)) for n in lengths]
  tokens = decoding.decode_tokens(rows=2, length=20, longest=512)
  translations = decoding.from_text(rival, decoding.NUMBERS, 4, tokens, 512)(texts)
  expected = [[*reversed(words.encode([text])[0]), 7] for text in texts]
  assert translations == words.decode(expected)
  assert batches == [[31, 21], [17, 16], [4, 2]]  # of 32, 32 and 16 tokens


def test_no_sentence_is_cut():
  """Otherwise it would count tokens that are not translated."""
  texts, how = decoding.random_sentences(2, 513, 60), {'beams': [2], 'rows': [2]}
  with pytest.raises(UserError, match='sentence 1 has 513 tokens: 512 are the most'):
    decoding.measure(tiny(), decoding.NUMBERS, texts, {}, **how, rounds=1)


RESULTS = pathlib.Path(__file__).parents[2] / 'results'


def test_this_commit_against_a_stored_row():
  """A commit of half the speed, on another device; another model is refused."""
  config = base.get_config('en-de')
  for file, what, line in (
    ('base.784x32.h200', 'training', '0.500 of its 730,393 target tokens/s'),
    ('decoding.base.h200', 'decoding', 'beam 4, rows of 128, 3003 sentences: 0.500 of'),
  ):
    path = RESULTS / f'benchmark-{file}.json'
    stored, result = run.read_stored(path, what, config), json.loads(path.read_text())
    for some in result.get('runs', [result]):
      some['columns']['ours']['target_tokens_per_second'] /= 2
    result['machine']['device'] = 'CPU'
    text = '\n'.join(run.comparison(result, stored))
    assert line in text and 'versions' not in text
    assert 'not the same device: CPU against 1 x NVIDIA H200' in text
  config.model.N = 2
  with pytest.raises(UserError, match='it measured decoding of .*a file with decoding'):
    run.read_stored(path, 'decoding', config)
  with pytest.raises(UserError, match='no result of scripts.benchmark'):
    run.read_stored(RESULTS / 'figures.json', 'decoding', config)


def test_what_is_refused(monkeypatch):
  """Rivals before anything is prepared; --kernels once JAX has named the device."""
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: name != 'ctranslate2')
  monkeypatch.setattr(platform, 'start', lambda slices: None)  # JAX has started
  monkeypatch.setattr(jax.config, 'update', lambda *_: None)
  kernels = {'rows': [16], 'tries': ['relu'], 'kernels': True}
  for what, options, changes, message in (
    ('training', {'rivals': ['marian']}, {}, '--rivals=marian: not one of huggingface'),
    ('training', {'rivals': ['ctranslate2']}, {}, 'ctranslate2 cannot train'),
    ('decoding', {'rivals': ['huggingface.compiled']}, {}, 'is timed in training'),
    ('decoding', {'rivals': ['ctranslate2']}, {}, 'is not installed: pip install'),
    ('training', {'rivals': ['huggingface']}, {'target_vocab_size': 9}, 'but with 0'),
    ('training', {'rivals': ['huggingface']}, {'d_v': 5}, 'need h d_k = h d_v = d_mo'),
    ('training', {'rows': [16, 32]}, {}, '--rows: training takes one number'),
    ('training', kernels, {}, '--kernels: only NVIDIA'),
  ):
    config = tiny()
    config.model.update(changes)
    with pytest.raises(UserError, match=message):
      run.measure(what, config, OPTIONS._replace(**options), [])
  with pytest.raises(UserError, match='translation is timed, not parsing'):
    run.measure('decoding', tiny(task='parsing'), OPTIONS, [])


@pytest.mark.torch
def test_hugging_face_and_ctranslate2_decode():
  """At forced lengths, and, as one is converted from the other, the same tokens."""
  for module in ('torch', 'transformers', 'ctranslate2'):
    pytest.importorskip(module)
  random = np.random.default_rng(1)
  sources = [[*random.integers(4, 60, n - 1).tolist(), EOS] for n in (9, 5, 2)]
  loaded = rivals.load(['huggingface', 'ctranslate2'], 'decoding', tiny())
  translations = {name: one.translate(sources, 4, 9) for name, one in loaded.items()}
  assert len(translations) == 4  # each in two precisions
  for rows in translations.values():
    assert [len(ids) for ids in rows if EOS not in ids] == [9, 9, 9]
  assert translations['ctranslate2.float32'] == translations['huggingface.float32']


@pytest.mark.torch
def test_hugging_face_trains_alike_compiled():
  pytest.importorskip('torch')
  pytest.importorskip('transformers')
  random = np.random.default_rng(1)
  side = lambda length: random.integers(4, 60, (2, 3, length), np.int32)
  config, pairs = tiny(), np.zeros((2, 3), np.int64)
  config.model.P_drop = 0.0
  programs = rivals.load(['huggingface', 'huggingface.compiled'], 'training', config)
  losses: dict[str, list[float]] = {name: [] for name in programs}
  for batch in 3 * [Batch(side(7), side(8), pairs)]:
    for name, program in programs.items():
      program.step(batch)
      losses[name].append(program.wait())
  eager, compiled = losses.values()
  assert eager == pytest.approx(compiled, rel=1e-5) and eager[0] > eager[1] > eager[2]
