"""Weights of sentences and translations, by pieces and by words."""

import pathlib

import numpy as np
import pytest

from toy import untrained
from transformer_jax.analysis.maps import KINDS, LONGEST, RunAttention
from transformer_jax.data.vocabulary import EOS
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.run import Run
from transformer_jax.tasks import TRANSLATION

SENTENCES = ['one, two "five"', 'three', 'four. seven-up eight six six ten nine']


@pytest.fixture(scope='module')
def attention(tmp_path_factory: pytest.TempPathFactory) -> RunAttention:
  run = Run(untrained.write(tmp_path_factory.mktemp('attention')))
  return RunAttention(LoadedRun(run, TRANSLATION))


def test_rows_sum_to_one_and_none_looks_ahead(attention: RunAttention):
  all_maps = attention.maps(SENTENCES, SENTENCES[::-1], False)
  for maps, source in zip(all_maps, SENTENCES, strict=True):
    for kind in KINDS:
      weights, rows, columns = maps.of(kind)
      assert weights.shape == (2, 3, len(rows), len(columns))
      np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    assert (np.triu(maps.decoder, 1) == 0).all()
    assert maps.source[-1] == '</s>' and maps.of('decoder')[2][0] == '<s>'
    text = ''.join(maps.source[:-1]).replace('\u2581', '').replace(' ', '')
    assert text == source.replace(' ', '')


def test_words_end_at_spaces_and_at_final_punctuation(attention: RunAttention):
  (maps,) = attention.maps(['one, two "five" seven-up four.'], ['"five".'], True)
  assert maps.source == 'one , two "five " seven-up four . </s>'.split()
  assert maps.of('decoder')[2] == ['<s>', '"five', '"', '.']


def test_merging_sums_over_keys_and_averages_over_queries(attention: RunAttention):
  (pieces,) = attention.maps(['seven-up two'], ['acht zwei'], False)
  (words,) = attention.maps(['seven-up two'], ['acht zwei'], True)
  for kind in KINDS:
    (small, *names), (large, *merged) = words.of(kind), pieces.of(kind)
    spans = []
    for few, many in zip(names, merged, strict=True):
      starts = [n for n, x in enumerate(many) if x[0] in '\u2581<']
      assert len(starts) == len(few) < len(many)
      spans.append([*zip(starts, [*starts[1:], len(many)], strict=True)])
    for row, (a, b) in enumerate(spans[0]):
      for column, (c, d) in enumerate(spans[1]):
        expected = large[..., a:b, c:d].sum(-1).mean(-1)
        np.testing.assert_allclose(small[..., row, column], expected, atol=1e-6)


@pytest.mark.slow
def test_without_a_translation_it_is_searched(attention: RunAttention):
  ((best,),) = attention.run.translator.translate(['one two'], 1)
  (maps,) = attention.maps(['one two'], [None], False)
  expected = [attention.target.pieces[i] for i in best.tokens if i != EOS]
  assert maps.target == [*expected, '</s>']


def test_each_side_with_its_own_vocabulary(tmp_path: pathlib.Path):
  run = Run(untrained.write(tmp_path, **{'model.target_vocab_size': 40}))
  attention = RunAttention(LoadedRun(run, TRANSLATION))
  (maps,) = attention.maps(['two seven-up'], ['acht zwei'], True)
  assert maps.source == ['two', 'seven-up', '</s>']
  assert maps.target == ['acht', 'zwei', '</s>']


def test_too_long_to_be_shown(attention: RunAttention):
  long = 'one ' * LONGEST
  with pytest.raises(UserError, match='sentence 2: the sentence has'):
    attention.maps(['one', long], [None, None], True)
  with pytest.raises(UserError, match='sentence 1: the translation has .* split it'):
    attention.maps(['one'], [long], True)
