"""Token files hold what was written; an epoch has every pair once, in few shapes."""

import functools
import hashlib
import itertools
import pathlib
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toy.corpus import write_tokens
from transformer_jax.data.batches import Batches, choose_lengths
from transformer_jax.data.corpus import Sentences, token_writer
from transformer_jax.data.vocabulary import EOS, PAD, UNK
from transformer_jax.machine.errors import UserError

SENTENCES = st.lists(
  st.lists(st.integers(UNK, 65535), max_size=12), min_size=1, max_size=40
)


def written(
  sentences: list[list[int]], folder: pathlib.Path, name: str = 'x'
) -> Sentences:
  write_tokens(folder / name, sentences)
  return Sentences(folder / name)


@settings(max_examples=100)
@given(SENTENCES, st.integers(0, 5), st.data())
def test_pad(sentences: list[list[int]], more: int, data):
  """Rows equal those of a loop over lists."""
  with tempfile.TemporaryDirectory() as folder:
    side = written(sentences, pathlib.Path(folder))
  assert side.lengths.tolist() == [len(ids) + 1 for ids in sentences]
  assert [side[row][:-1] for row in range(len(sentences))] == sentences
  length = max(side.lengths) + more
  rows = data.draw(st.lists(st.integers(-1, len(sentences) - 1), max_size=9), 'rows')
  block = side.pad(np.array(rows, np.int64), length)
  assert block.dtype == np.int32 and block.shape == (len(rows), length)
  for row, row_ids in zip(rows, block.tolist(), strict=True):
    words = [] if row < 0 else [*sentences[row], EOS]
    assert row_ids == words + [PAD] * (length - len(words))


TOKENS = np.array([4, 5, 6, 7, 8, 9], '<u2')


@pytest.mark.parametrize(
  ('tokens', 'offsets'),
  [
    (TOKENS[:-1], [0, 2, 5, 6]),
    (TOKENS, []),
    (TOKENS, [0, 5, 2, 6]),
    (TOKENS, [0, 2 + 2**40, 5, 6]),  # a flipped bit
    (TOKENS, [1, 2, 5, 6]),
  ],
)
def test_files_that_do_not_fit_each_other(tokens, offsets, tmp_path: pathlib.Path):
  assert written([[4, 5], [6, 7, 8], [9]], tmp_path).offsets.tolist() == [0, 2, 5, 6]
  tokens.tofile(tmp_path / 'x.tokens')
  np.array(offsets, '<i8').tofile(tmp_path / 'x.offsets')
  again = r'x\.tokens and \.offsets do not fit .* run scripts\.prepare_data again'
  with pytest.raises(UserError, match=again):
    Sentences(tmp_path / 'x')


def sentences(lengths: list[int], seed: int = 0) -> list[list[int]]:
  rng = np.random.default_rng(seed)
  return [rng.integers(4, 65536, n).tolist() for n in lengths]


def batches_of(
  pairs: list[tuple[int, int]],
  tokens: int = 100,
  slices: int = 2,
  max_shapes: int = 3,
  seed: int = 1,
) -> tuple[Batches, list[list[list[int]]]]:
  """Returns batches of random pairs with these lengths, and the ids of each."""
  ids = [sentences([pair[i] for pair in pairs], i) for i in (0, 1)]
  with tempfile.TemporaryDirectory() as folder:
    sides = [written(ids[i], pathlib.Path(folder), f'x.{i}') for i in (0, 1)]
  stream = Batches(
    *sides, tokens=tokens, slices=slices, max_shapes=max_shapes, seed=seed
  )
  return stream, ids


PAIRS = st.lists(
  st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=120
)
SIZES = {
  'tokens': st.integers(1, 400),
  'slices': st.sampled_from([1, 2, 3, 8]),
  'max_shapes': st.integers(1, 6),
  'seed': st.integers(0, 2**32),
}


@settings(max_examples=60)
@given(pairs=PAIRS, **SIZES)
def test_every_pair_once_an_epoch(pairs, tokens, slices, max_shapes, seed):
  """Each row has the ids of its pair, EOS and PAD."""
  stream, ids = batches_of(pairs, tokens, slices, max_shapes, seed)
  assert len(stream.shapes) <= max_shapes
  for epoch in (0, 3):
    seen, positions, real, partial = [], 0, 0, 0
    for step in range(stream.steps_per_epoch):
      batch = stream.batch(epoch * stream.steps_per_epoch + step)
      shape = batch.shape
      assert shape in stream.shapes
      for array, expected, most in zip(batch[:2], ids, shape[1:], strict=True):
        assert array.dtype == np.int32
        assert array.shape == (slices, shape.rows, most)
        positions += array.size
        real += (array != PAD).sum()
        for row, pair in zip(array.reshape(-1, most), batch.pairs.ravel(), strict=True):
          words = [] if pair < 0 else [*expected[pair], EOS]
          assert row.tolist() == words + [PAD] * (most - len(words))
      chosen = batch.pairs[batch.pairs >= 0]
      assert len(chosen)
      partial += len(chosen) < batch.pairs.size
      seen += chosen.tolist()
    assert sorted(seen) == list(range(len(pairs)))
    assert partial <= 1  # all batches but one are full
    assert stream.padding == pytest.approx(1 - real / positions)


@settings(max_examples=25)
@given(pairs=PAIRS, order=st.randoms(use_true_random=False), **SIZES)
def test_batch_is_a_pure_function(pairs, order, tokens, slices, max_shapes, seed):
  """The order of the calls, the object and NumPy's state do not matter."""
  stream, _ = batches_of(pairs, tokens, slices, max_shapes, seed)
  other, _ = batches_of(pairs, tokens, slices, max_shapes, seed)
  steps = list(range(min(3 * stream.steps_per_epoch, 30)))
  straight = [stream.batch(step) for step in steps]
  order.shuffle(steps)
  for step in steps:
    np.random.seed(step)
    np.random.random(3)
    assert all(map(np.array_equal, other.batch(step), straight[step]))


# Of all arrays of two epochs and of the start of a later one: a run that goes on must
# go on with the same batches.
ORDERS = [
  ((20_000, 6_000, 8, 12, 1), '96484957edc5a39d'),
  ((500, 100, 2, 3, 7), 'e336936c06731a19'),
  ((300, 50, 1, 1, 2**40), 'e2a82a0f6a66eeca'),
  ((5, 400, 3, 6, 0), '3ea453988d401303'),
]


@pytest.mark.parametrize(('sizes', 'expected'), ORDERS)
def test_order_is_for_ever(sizes, expected: str, tmp_path: pathlib.Path):
  count, tokens, slices, max_shapes, seed = sizes
  n = np.arange(count)
  for k in (0, 1):
    lengths = (n * n * 31 + 7 * n * (k + 1)) % 97 % (61 - 9 * k)
    ids = np.arange(lengths.sum()) * (13 + k) % 65532 + 4
    with token_writer(tmp_path / f'x.{k}') as append:
      append(ids, lengths)
  stream = Batches(
    *(Sentences(tmp_path / f'x.{k}') for k in (0, 1)),
    tokens=tokens,
    slices=slices,
    max_shapes=max_shapes,
    seed=seed,
  )
  epoch, digest = stream.steps_per_epoch, hashlib.sha256()
  for step in (*range(2 * epoch), *range(5 * epoch, 5 * epoch + 3)):
    for array in stream.batch(step):
      digest.update(repr((array.shape, array.dtype.str)).encode() + array.tobytes())
  assert digest.hexdigest()[:16] == expected


def test_each_side_is_padded_to_its_own_longest():
  """Pairs of shorter classes fill up the last batch of a class."""
  stream, _ = batches_of([(4, 39)] * 50 + [(7, 19)] * 50 + [(2, 9)] * 50)
  assert [shape[1:] for shape in stream.shapes] == [(8, 40), (8, 20), (3, 10)]


@functools.cache
def positions(lengths: tuple[int, ...], bounds: tuple[int, ...]) -> int:
  return sum(min(b for b in bounds if b >= n) for n in lengths)


@settings(max_examples=200)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(1, 7))
def test_chosen_lengths_pad_least(lengths: list[int], count: int):
  chosen = choose_lengths(np.bincount(lengths), count)
  assert chosen == sorted(set(chosen)) and chosen[-1] == max(lengths)
  assert len(chosen) <= count
  values = sorted(set(lengths))
  best = min(
    positions(tuple(lengths), bounds)
    for size in range(1, min(count, len(values)) + 1)
    for bounds in itertools.combinations(values, size)
    if bounds[-1] == values[-1]
  )
  assert positions(tuple(lengths), tuple(chosen)) == best


@pytest.mark.parametrize(
  ('counts', 'why'), [((0, 0), '^0 source and 0'), ((2, 3), '^2 source and 3 target')]
)
def test_unequal_or_no_sentences_are_refused(counts, why: str, tmp_path: pathlib.Path):
  sides = [written([[4]] * n, tmp_path, f'x.{i}') for i, n in enumerate(counts)]
  with pytest.raises(UserError, match=why):
    Batches(*sides, tokens=10, slices=1, max_shapes=1, seed=0)
