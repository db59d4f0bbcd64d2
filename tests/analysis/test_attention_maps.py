"""Weights of sentences and translations, by pieces and by words."""

import pathlib

import numpy as np
import pytest

from toy import untrained
from transformer_jax.analysis import positions
from transformer_jax.analysis.attention_maps import KINDS, LONGEST, Watcher
from transformer_jax.data import card
from transformer_jax.data.vocabulary import EOS
from transformer_jax.decoding.restored import Restored
from transformer_jax.machine.errors import UserError

SENTENCES = ['one, two "five"', 'three', 'four. seven-up eight six six ten nine']


@pytest.fixture(scope='module')
def watcher(tmp_path_factory: pytest.TempPathFactory) -> Watcher:
  folder = tmp_path_factory.mktemp('attention')
  return Watcher(Restored(untrained.write(folder)))


@pytest.mark.parametrize('whole', [True, False])
def test_rows_sum_to_one_where_they_may_look(watcher: Watcher, whole: bool):
  found = watcher.maps(SENTENCES, [*SENTENCES[1:], None], whole)
  assert len(found) == len(SENTENCES)
  for maps in found:
    for kind in KINDS:
      weights, rows, columns = maps.of(kind)
      assert weights.shape == (2, 3, len(rows), len(columns))
      np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-6)
    assert (np.triu(maps.decoder, 2 if whole else 1) == 0).all()
    assert maps.source[-1] == '</s>' and maps.of('decoder')[2][0] == '<s>'


def test_a_sentences_weights_do_not_depend_on_its_batch(watcher: Watcher):
  together = watcher.maps(SENTENCES, SENTENCES[::-1], False)
  for sentence, translation, maps in zip(
    SENTENCES, SENTENCES[::-1], together, strict=True
  ):
    (alone,) = watcher.maps([sentence], [translation], False)
    for kind in KINDS:
      np.testing.assert_allclose(maps.of(kind)[0], alone.of(kind)[0], atol=1e-6)


def test_words_are_what_stands_between_spaces_and_marks(watcher: Watcher):
  (maps,) = watcher.maps(['one, two "five" seven-up four.'], ['"five".'], True)
  expected = ['one', ',', 'two', '"five', '"', 'seven-up', 'four', '.', '</s>']
  assert maps.source == expected
  assert maps.target == ['"five', '"', '.', '</s>']
  assert maps.of('decoder')[2] == ['<s>', '"five', '"', '.']


def test_merging_sums_over_keys_and_averages_over_queries(watcher: Watcher):
  (pieces,) = watcher.maps(['seven-up two'], ['eight'], False)
  (words,) = watcher.maps(['seven-up two'], ['eight'], True)
  spaces = [i for i, piece in enumerate(pieces.source) if piece[0] == '\u2581']
  starts = [*spaces, len(pieces.source) - 1]
  parts = [*zip(starts, [*starts[1:], len(pieces.source)], strict=True)]
  assert words.source == ['seven-up', 'two', '</s>'] and parts[0][1] > 1
  for row, (a, b) in enumerate(parts):
    for column, (c, d) in enumerate(parts):
      expected = pieces.encoder[..., a:b, c:d].sum(-1).mean(-1)
      np.testing.assert_allclose(words.encoder[..., row, column], expected, atol=1e-6)


def test_a_searched_translation_is_the_translators(watcher: Watcher):
  ((best,),) = watcher.restored.translator.translate(['one two'], 1)
  (maps,) = watcher.maps(['one two'], [None], False)
  pieces = watcher.target.pieces
  expected = [pieces[i] for i in best.tokens if i != EOS]
  assert maps.target == [*expected, '</s>']


def test_sides_with_vocabularies_of_their_own(tmp_path: pathlib.Path):
  apart = Watcher(
    Restored(untrained.write(tmp_path, **{'model.target_vocab_size': 40}))
  )
  (maps,) = apart.maps(['two seven-up'], ['acht zwei'], True)
  assert maps.source == ['two', 'seven-up', '</s>']
  assert maps.target == ['acht', 'zwei', '</s>']
  np.testing.assert_allclose(maps.cross.sum(-1), 1, atol=1e-6)


def test_texts_that_no_font_or_space_helps(watcher: Watcher):
  """Unknown characters, and nothing at all."""
  for text in ('日本語', 'שלום עולם', '', ' '):
    (maps,) = watcher.maps([text], [text], True)
    assert maps.source[-1] == '</s>' and all(maps.source)


def test_too_long_to_be_shown(watcher: Watcher):
  long = 'one ' * LONGEST
  with pytest.raises(
    UserError, match='sentence 2: the sentence has .* a picture shows 128'
  ):
    watcher.maps(['one', long], [None, None], True)
  with pytest.raises(UserError, match='sentence 1: the translation has .* split it'):
    watcher.maps(['one'], [long], True)


def test_as_long_as_learned_positions(tmp_path: pathlib.Path):
  """No padding goes beyond the last of them."""
  sizes = {'model.positions': 'learned', 'model.max_positions': 90}
  watcher = Watcher(Restored(untrained.write(tmp_path, **sizes)))
  ids = watcher.restored.source_ids(['one ' * 80])[0]
  words = 80 - (len(ids) - 90) if len(ids) > 90 else 80
  (maps,) = watcher.maps(['one ' * words], ['one'], False)
  assert 80 < len(maps.source) <= 90
  with pytest.raises(UserError, match='a picture shows 90 at most'):
    watcher.maps(['one ' * 99], ['one'], False)


def test_a_parser_is_shown_what_it_reads(tmp_path: pathlib.Path):
  restored = Restored(untrained.write(tmp_path, task='parsing'))
  encoded = restored.vocabularies.source.encode(['-LRB- one'])
  assert restored.source_ids(['( one']) == [[*encoded[0], EOS]]


def test_no_run(tmp_path: pathlib.Path):
  with pytest.raises(UserError, match='is .* a run'):
    Watcher(Restored(tmp_path))


@pytest.mark.parametrize('learned', [False, True])
def test_positions_are_those_that_training_saw(learned: bool, tmp_path: pathlib.Path):
  changes = {'model.positions': 'learned', 'model.max_positions': 90} if learned else {}
  workdir = untrained.write(tmp_path, **changes)
  longest = card.read_card(workdir)['splits']['train']['longest']
  tables = positions.encodings(workdir)
  sides = ['learned, source', 'learned, target'] if learned else []
  assert [*tables] == ['sinusoids', *sides]
  for name, table in tables.items():
    side = name.rpartition(' ')[2]
    length = longest[side] if 'learned' in name else max(longest.values())
    assert table.shape == (length, untrained.SIZES['d_model'])
  params = Restored(workdir).params
  for side in ('source', 'target') if learned else ():
    own = np.asarray(params[f'{side}_positions'])[: longest[side]]
    np.testing.assert_array_equal(tables[f'learned, {side}'], own)
