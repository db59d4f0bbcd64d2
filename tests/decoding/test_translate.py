"""As many lines come out as go in, and none depends on its batch."""

import functools
import math
import pathlib
import random
import tempfile
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx
from jaxtyping import PyTree
from ml_collections import ConfigDict

from toy import forms
from toy.config import tiny
from toy.corpus import WORDS, learn
from transformer_jax.data import text
from transformer_jax.data.vocabulary import EOS, PAD, Vocabularies, Vocabulary
from transformer_jax.decoding.translate import Hypothesis, Translator
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build
from transformer_jax.tasks import TRANSLATION

TABLE = 12  # rows of learned positions


def tiny_config(positions: str = 'sinusoid', **changes: Any) -> ConfigDict:
  sizes = {'model.vocab_size': 50, 'model.max_positions': TABLE}
  search = {
    'decode_tokens': 16,
    'beam': 3,
    'extra_length': 0,
    'decode_dtype': 'float32',
  }
  return tiny(**{'model.positions': positions} | sizes | search | changes)


@functools.cache
def model(positions: str = 'sinusoid') -> tuple[nnx.GraphDef, PyTree]:
  """Returns a graph and random parameters; its outputs differ in length."""
  graph, shapes = build.architecture(tiny_config(positions))
  return graph, forms.random_like(shapes, 0.4, seed=4)


@functools.cache
def words() -> Vocabulary:
  rng = random.Random(0)
  text = [' '.join(rng.choices(WORDS, k=5)) for _ in range(300)]
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'vocabulary.model'
    learn(text, path, 50)
    return Vocabulary(path)


def translator(
  positions: str = 'sinusoid',
  params: PyTree = None,
  nats: float = math.inf,
  **changes: Any,
) -> Translator:
  config, both = tiny_config(positions, **changes), Vocabularies(words(), words())
  params = params or model(positions)[1]
  return Translator(config, TRANSLATION, both, params, nats)


@functools.cache
def shared() -> Translator:
  """Returns one for most tests: its searches are compiled once."""
  return translator()


def lines(count: int, longest: int = 5) -> list[str]:
  rng = random.Random(1)
  return [' '.join(rng.choices(WORDS, k=rng.randint(1, longest))) for _ in range(count)]


def test_as_many_out_as_in():
  """Empty lines stay empty; no character splits a line."""
  odd = ['', ' ', 'one\u2028two', 'a\rb', 'caf\ufffd', 'x\x0by\x85z', '\t', '日本語 ▁']
  sentences = ['', *lines(9), '', *odd, '']
  translated = shared().translate(sentences, 3)
  assert len(translated) == len(sentences)
  for line, hypotheses in zip(sentences, translated, strict=True):
    if words().encode([text.input_line(line, tiny().data)]) == [[]]:
      assert hypotheses == [Hypothesis('', 0.0, [])]
      continue
    assert len(hypotheses) == 3
    for h in hypotheses:
      assert '\n' not in h.text and words().decode([h.tokens]) == [h.text]
  assert translated[0] == translated[10] == translated[-1] == [Hypothesis('', 0.0, [])]
  assert shared().translate([], 3) == []
  assert shared().translate(['', ''], 3) == [[Hypothesis('', 0.0, [])]] * 2


def test_all_text_enters_in_one_way():
  """Spaces at the ends and NUL do not matter; with data.nfc nor does decomposition.

  Lines with unknown characters are counted.
  """
  plain = 'one two', 'café'
  decorated = '\u3000\xa0one\x00two \x85', ' cafe\u0301\t'
  one = translator()
  expected = one.translate(plain, 3)
  same(one.translate(decorated[:1], 3), expected[:1])
  one.translate(['one', 'ж ж', 'two', 'one ж'], 3)
  assert one.unknown_sources == 3  # with café
  assert [*one.warnings()][0] == 'characters outside the vocabulary: 3 lines'
  one._config.data.nfc = True
  same(one.translate(decorated, 3), expected)


def test_a_diverged_model_is_refused():
  """Its parameters are finite, but no score is."""
  huge = jax.tree.map(lambda x: np.full_like(x, 1e30), model()[1])
  with pytest.raises(UserError, match='no translation has a finite score: the train'):
    translator(params=huge).translate(['one two'], 3)


def same(a: list[list[Hypothesis]], b: list[list[Hypothesis]]) -> None:
  for ours, theirs in zip(a, b, strict=True):
    assert [h.tokens for h in ours] == [h.tokens for h in theirs]
    np.testing.assert_allclose(
      [h.score for h in ours], [h.score for h in theirs], atol=1e-4, rtol=0
    )


def test_translations_do_not_depend_on_the_batch():
  """Order, batch size and padding change no token, and scores by 1e-4 at most."""
  sentences = [*lines(30), 'one ' * 9]
  translated = shared().translate(sentences, 3)
  lengths = {len(h[0].tokens) for h in translated}
  assert len(lengths) > 3, 'the model should end sentences at different lengths'
  order = list(range(len(sentences)))
  random.Random(0).shuffle(order)
  shuffled = shared().translate([sentences[i] for i in order], 3)
  same(shuffled, [translated[i] for i in order])
  alone = [shared().translate([line], 3)[0] for line in sentences[25:]]
  same(alone, translated[25:])
  same(translator(decode_tokens=512).translate(sentences, 3), translated)


@functools.cache
def logits_of() -> Callable[[PyTree, np.ndarray, np.ndarray], jax.Array]:
  graph, _ = model()
  return jax.jit(lambda params, *pair: nnx.merge(graph, params)(*pair).logits)


def log_probs(source: list[int], target: list[int]) -> np.ndarray:
  """Returns log P of each target id of one pair alone, by teacher forcing."""
  rows = [np.array([ids + [PAD] * (40 - len(ids))]) for ids in (source, target)]
  (padded,) = logits_of()(model()[1], *rows)
  of_all = np.asarray(padded, np.float64)[: len(target)]
  of_all -= np.log(np.exp(of_all).sum(-1, keepdims=True))
  return of_all[np.arange(len(target)), target]


@pytest.mark.parametrize(
  ('changes', 'least', 'most'),
  [({}, 0, 2e-5), ({'decode_dtype': 'bfloat16', 'alpha': 0.0}, 1e-4, 0.02)],
)
def test_scores_are_the_models_own(changes: dict, least: float, most: float):
  """log P by teacher forcing over ((5 + |Y|) / 6)^alpha, |Y| with EOS.

  bfloat16 moves them as rounding does. Limits are in nats a token.
  """
  one = translator(**changes) if changes else shared()
  assert one.dtype.name == changes.get('decode_dtype', 'float32')
  sentences, off = lines(12), []
  translated = one.translate(sentences, 3)
  for source, hypotheses in zip(words().encode(sentences), translated, strict=True):
    for h in hypotheses:
      total = log_probs([*source, EOS], h.tokens).sum()
      exact = total / ((5 + len(h.tokens)) / 6) ** changes.get('alpha', 0.6)
      off.append(abs(h.score - exact) / len(h.tokens))
  assert least <= np.median(off) and max(off) < most


@pytest.mark.slow
def test_learned_positions_cut_and_count():
  """Neither source nor output goes beyond the table; both are counted."""
  one = translator('learned', decode_tokens=512)  # so a batch has rows of padding
  assert [*one.warnings()] == []
  (ids,) = words().encode(['one ' * 30])
  fits, beyond = words().decode([ids[: TABLE - 1], ids[:TABLE]])
  translated = one.translate([fits, beyond, *lines(10, 4)], 3)
  same(translated[:1], translated[1:2])
  assert max(len(h.tokens) for hs in translated for h in hs) <= TABLE
  cut = sum(h[0].tokens[-1] != EOS for h in translated)
  assert (one.cut_sources, one.cut_outputs) == (1, cut) and cut > 1
  sources, outputs = one.warnings()
  assert sources == f'cut to the {TABLE - 1} pieces that fit: 1 line'
  assert outputs == f'cut at the length limit, without an end: {cut} translations'


def test_improbable_translations_are_counted():
  """Those with fewer nats a piece than dev's references had, by the search's score."""
  sentences = lines(12)
  every = [best for best, *_ in shared().translate(sentences, 3)]
  penalty = lambda h: ((5 + len(h.tokens)) / 6) ** 0.6
  all_nats = sorted(-h.score * penalty(h) / len(h.tokens) for h in every)
  one = translator(nats=(all_nats[5] + all_nats[6]) / 2)
  one.translate([*sentences, ''], 3)
  assert one.improbable == 6 and '6 translations; is the' in [*one.warnings()][-1]


@pytest.mark.devices
def test_any_number_of_devices_is_one(monkeypatch):
  assert jax.local_device_count() == 8
  sentences = lines(20, 3)
  translated = translator().translate(sentences, 3)
  first = jax.devices()[:1]
  monkeypatch.setattr(jax, 'local_devices', lambda: first)
  monkeypatch.setattr(jax, 'local_device_count', lambda: 1)
  same(translated, translator().translate(sentences, 3))
