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
from toy.corpus import WORDS, learn, write_tokens
from transformer_jax.data import text
from transformer_jax.data.corpus import Sentences
from transformer_jax.data.vocabulary import EOS, PAD, Vocabularies, Vocabulary
from transformer_jax.decoding.translate import Hypothesis, Translator
from transformer_jax.machine.devices import replicate_read_only
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build
from transformer_jax.tasks import TRANSLATION
from transformer_jax.training.perplexity import Perplexity

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


def translator(positions: str = 'sinusoid', **changes: Any) -> Translator:
  config, both = tiny_config(positions, **changes), Vocabularies(words(), words())
  return Translator(config, TRANSLATION, both, model(positions)[1])


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
    both = Vocabularies(words(), words())
    Translator(tiny_config(), TRANSLATION, both, huge).translate(['one two'], 3)


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
def logits_of(positions: str) -> Callable[[PyTree, np.ndarray, np.ndarray], jax.Array]:
  graph = model(positions)[0]
  return jax.jit(lambda params, *pair: nnx.merge(graph, params)(*pair).logits)


def log_probs(positions: str, source: list[int], target: list[int]) -> np.ndarray:
  """Returns log P of each target id of one pair alone, by teacher forcing."""
  length = TABLE if positions == 'learned' else 40
  rows = [np.array([ids + [PAD] * (length - len(ids))]) for ids in (source, target)]
  (padded,) = logits_of(positions)(model(positions)[1], *rows)
  of_all = np.asarray(padded, np.float64)[: len(target)]
  of_all -= np.log(np.exp(of_all).sum(-1, keepdims=True))
  return of_all[np.arange(len(target)), target]


def test_scores_are_the_models_own():
  """log P by teacher forcing over ((5 + |Y|) / 6)^alpha, |Y| with EOS."""
  (line,) = lines(1)
  (source,) = words().encode([line])
  for h in shared().translate([line], 3)[0]:
    total = log_probs('sinusoid', [*source, EOS], h.tokens).sum()
    assert h.score == pytest.approx(total / ((5 + len(h.tokens)) / 6) ** 0.6, abs=1e-4)


def test_bfloat16_moves_scores_a_little():
  """By no more than rounding moves the float32 log P of the same tokens."""
  rounding = translator(decode_dtype='bfloat16', alpha=0.0)
  assert rounding.dtype.name == 'bfloat16'
  sentences, off = lines(12), []
  translated = rounding.translate(sentences, 3)
  for source, hypotheses in zip(words().encode(sentences), translated, strict=True):
    for h in hypotheses:
      exact = log_probs('sinusoid', [*source, EOS], h.tokens).sum()
      off.append(abs(h.score - exact) / len(h.tokens))
  assert 1e-4 < np.median(off) and max(off) < 0.02  # nats a token


@pytest.mark.slow
def test_learned_positions_cut_and_count():
  """Neither source nor output goes beyond the table; both are counted."""
  one = translator('learned', decode_tokens=512)  # so a batch has rows of padding
  assert [*one.warnings()] == []
  (ids,) = words().encode(['one ' * 30])
  fits, beyond = words().decode([ids[: TABLE - 1], ids[:TABLE]])
  translated = one.translate([fits], 3)
  assert one.cut_sources == 0
  same(one.translate([beyond], 3), translated)
  assert one.cut_sources == 1
  translated = one.translate(lines(12, 9), 3)
  assert max(len(h.tokens) for hs in translated for h in hs) <= TABLE
  before = one.cut_outputs
  cut = sum(h[0].tokens[-1] != EOS for h in one.translate(lines(12, 9), 3))
  assert one.cut_outputs - before == cut > 0
  sources, outputs = one.warnings()
  assert sources == f'cut to the {TABLE - 1} pieces that fit: 3 lines'
  limit = 'cut at the length limit, without an end'
  assert outputs == f'{limit}: {one.cut_outputs} translations'


def test_improbable_translations_are_counted():
  """Those with fewer nats a piece than dev's references had, by the search's score."""
  both = Vocabularies(words(), words())
  sentences = lines(12)
  config, params = tiny_config(), model()[1]
  every = [best for best, *_ in shared().translate(sentences, 3)]
  penalty = lambda h: ((5 + len(h.tokens)) / 6) ** config.alpha
  all_nats = sorted(-h.score * penalty(h) / len(h.tokens) for h in every)
  middle = (all_nats[5] + all_nats[6]) / 2
  one = Translator(config, TRANSLATION, both, params, middle)
  one.translate([*sentences, ''], 3)
  assert one.improbable == 6 and '6 translations; is the' in [*one.warnings()][-1]


def sides(folder: pathlib.Path) -> tuple[list, Sentences, Sentences]:
  rng = random.Random(3)
  draw = lambda: rng.choices(range(3, 50), k=rng.randint(0, 15))
  pairs = [[draw(), draw()] for _ in range(40)]
  for name, ids in zip('st', zip(*pairs, strict=True), strict=True):
    write_tokens(folder / name, ids)
  return pairs, Sentences(folder / 's'), Sentences(folder / 't')


@pytest.mark.devices
def test_any_number_of_devices_is_one(tmp_path: pathlib.Path, monkeypatch):
  _, *both = sides(tmp_path)
  sentences = lines(20, 3)

  def results() -> tuple[list[list[Hypothesis]], float]:
    perplexity = Perplexity(tiny_config(), model()[0], *both)
    return translator().translate(sentences, 3), perplexity(
      replicate_read_only(model()[1])
    )

  translated, measured = results()
  assert jax.local_device_count() == 8
  first = jax.devices()[:1]
  monkeypatch.setattr(jax, 'local_devices', lambda: first)
  monkeypatch.setattr(jax, 'local_device_count', lambda: 1)
  expected, of_one = results()
  same(translated, expected)
  assert measured == pytest.approx(of_one, rel=1e-6)


def test_perplexity(tmp_path: pathlib.Path):
  """Equals one pair at a time, cut to the table; PAD counts nowhere, EOS does."""
  pairs, *both = sides(tmp_path)
  graph, params = model('learned')
  perplexity = Perplexity(tiny_config('learned', decode_tokens=256), graph, *both)
  measured = perplexity(replicate_read_only(params))
  cut = sum(max(map(len, pair)) >= TABLE for pair in pairs)
  assert perplexity.cut_pairs == cut > 0
  message = f'pairs cut for the perplexity because they were too long: {cut}'
  assert perplexity.warnings == [message]
  total, count = 0.0, 0
  for source, target in ((s[: TABLE - 1], t[: TABLE - 1]) for s, t in pairs):
    total += log_probs('learned', [*source, EOS], [*target, EOS]).sum()
    count += len(target) + 1
  assert measured == pytest.approx(math.exp(-total / count), rel=1e-5)
