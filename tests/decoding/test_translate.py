"""As many lines come out as go in, and none depends on its batch."""

import math
import pathlib
import random
from typing import Any

import jax
import numpy as np
import pytest
from jaxtyping import PyTree

import transformer_jax
from toy import forms, untrained
from toy.config import tiny
from toy.corpus import number_lines
from transformer_jax.data import text
from transformer_jax.data.vocabulary import EOS
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.decoding.translate import Hypothesis, Translator
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build
from transformer_jax.tasks import TRANSLATION

TABLE = 12  # rows of learned positions


def translator(model: LoadedRun, params: PyTree = None, **changes: Any) -> Translator:
  """Returns the model's with another config, or other parameters."""
  config = model.config.copy_and_resolve_references()
  config.update_from_flattened_dict({'decode_tokens': 16} | changes)
  params = params or model.params
  return Translator(config, TRANSLATION, model.vocabularies, params, math.inf)


def lines(count: int) -> list[str]:
  return [line.decode() for line in number_lines(count, 1, untrained.WORDS)[0]]


def test_as_many_out_as_in(model: LoadedRun):
  """Empty lines stay empty; no character splits a line."""
  odd = ['', ' ', 'one\u2028two', 'a\rb', 'caf\ufffd', 'x\x0by\x85z', '\t', '日本語 ▁']
  sentences = ['', *lines(9), '', *odd, '']
  words, nothing = model.vocabularies.source, [Hypothesis('', 0.0, [])]
  translated = model.translator.translate(sentences, 3)
  assert len(translated) == len(sentences)
  for line, hypotheses in zip(sentences, translated, strict=True):
    (ids,) = words.encode([text.input_line(line, model.config.data)])
    if not ids:
      assert hypotheses == nothing
      continue
    assert len(hypotheses) == 3
    for h in hypotheses:
      assert len(h.tokens) <= len(ids) + 1, 'extra_length is 0'
      assert '\n' not in h.text and words.decode([h.tokens]) == [h.text]
  assert translated[0] == translated[10] == translated[-1] == nothing
  assert model.translator.translate([], 3) == []
  assert model.translator.translate(['', ''], 3) == [nothing] * 2


def test_all_text_enters_in_one_way(model: LoadedRun):
  """Spaces at the ends and NUL do not matter; with data.nfc nor does decomposition.

  Lines with unknown characters are counted.
  """
  plain = 'one two', 'café'
  decorated = '\u3000\xa0one\x00two \x85', ' cafe\u0301\t'
  one = translator(model)
  expected = one.translate(plain, 3)
  same(one.translate(decorated[:1], 3), expected[:1])
  one.translate(['one', 'ж ж', 'two', 'one ж'], 3)
  assert one.unknown_sources == 3  # with café
  assert [*one.warnings()][0] == 'characters outside the vocabulary: 3 lines'
  one._config.data.nfc = True
  same(one.translate(decorated, 3), expected)


def test_a_diverged_model_is_refused(model: LoadedRun):
  huge = jax.tree.map(lambda x: np.full_like(x, 1e30), model.params)
  with pytest.raises(UserError, match='no translation has a finite score: the train'):
    translator(model, huge).translate(['one two'], 3)


def same(a: list[list[Hypothesis]], b: list[list[Hypothesis]]) -> None:
  for ours, theirs in zip(a, b, strict=True):
    assert [h.tokens for h in ours] == [h.tokens for h in theirs]
    np.testing.assert_allclose(
      [h.score for h in ours], [h.score for h in theirs], atol=1e-4, rtol=0
    )


def test_translations_do_not_depend_on_the_batch(model: LoadedRun):
  """Order, batch size and padding change no token, and scores by 1e-4 at most."""
  sentences = [*lines(30), 'one ' * 9]
  one = translator(model, decode_tokens=64)  # batches of several sentences
  translated = one.translate(sentences, 3)
  lengths = {len(h[0].tokens) for h in translated}
  assert len(lengths) > 3, 'the model should end sentences at different lengths'
  order = list(range(len(sentences)))
  random.Random(0).shuffle(order)
  shuffled = one.translate([sentences[i] for i in order], 3)
  same(shuffled, [translated[i] for i in order])
  alone = [one.translate([line], 3)[0] for line in sentences[25:]]
  same(alone, translated[25:])
  same(model.translator.translate(sentences, 3), translated)


@pytest.mark.parametrize(
  ('options', 'least', 'most'),
  [({}, 0, 2e-5), ({'decode_dtype': 'bfloat16', 'alpha': 0.0}, 1e-4, 0.02)],
)
def test_scores_are_the_models_own(
  options: dict, least: float, most: float, workdir: pathlib.Path, model, log_probs
):
  """log P by teacher forcing over ((5 + |Y|) / 6)^alpha, |Y| with EOS.

  bfloat16 moves them as rounding does. Limits are in nats a token.
  """
  one = transformer_jax.load(workdir, beam=3, **options).translator
  assert one.dtype.name == options.get('decode_dtype', 'float32')
  sentences, off = lines(12), []
  ids = model.vocabularies.source.encode(sentences)
  for source, hypotheses in zip(ids, one.translate(sentences, 3), strict=True):
    for h in hypotheses:
      total = log_probs([*source, EOS], h.tokens).sum()
      exact = total / ((5 + len(h.tokens)) / 6) ** options.get('alpha', 0.6)
      off.append(abs(h.score - exact) / len(h.tokens))
  assert least <= np.median(off) and max(off) < most


@pytest.mark.slow
def test_learned_positions_cut_and_count(model: LoadedRun):
  """Neither source nor output goes beyond the table; both are counted."""
  sizes = {'model.positions': 'learned', 'model.max_positions': TABLE}
  shapes = build.architecture(tiny(**untrained.SIZES | {'model.N': 1} | sizes))[1]
  params = forms.random_like(shapes, 0.4, seed=4)
  # More than are searched, so a batch has rows of padding.
  one = translator(model, params, decode_tokens=512, **sizes)
  assert [*one.warnings()] == []
  words = model.vocabularies.source
  (ids,) = words.encode(['one, ' * 30])
  fits, beyond = words.decode([ids[: TABLE - 1], ids[:TABLE]])
  translated = one.translate([fits, beyond, *untrained.WORDS], 3)
  same(translated[:1], translated[1:2])
  assert max(len(h.tokens) for hs in translated for h in hs) <= TABLE
  cut = sum(h[0].tokens[-1] != EOS for h in translated)
  assert (one.cut_sources, one.cut_outputs) == (1, cut) and cut > 1
  parts = f'the {TABLE - 1} pieces that fit: 1 line', f'an end: {cut} translations'
  for part, line in zip(parts, one.warnings(), strict=True):
    assert line.endswith(part)


@pytest.mark.devices
def test_any_number_of_devices_is_one(model: LoadedRun, monkeypatch):
  assert jax.local_device_count() == 8
  sentences = lines(20)
  translated = translator(model).translate(sentences, 3)
  first = jax.devices()[:1]
  monkeypatch.setattr(jax, 'local_devices', lambda: first)
  monkeypatch.setattr(jax, 'local_device_count', lambda: 1)
  same(translated, translator(model).translate(sentences, 3))
