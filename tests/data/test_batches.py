"""Token files hold what was written; an epoch has every pair once, in few shapes."""

import hashlib
import itertools
import pathlib
import random
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toy.config import tiny
from toy.corpus import write_tokens
from transformer_jax.data.batches import Batches, choose_lengths, train_batches
from transformer_jax.data.corpus import Sentences, Split, token_writer
from transformer_jax.data.vocabulary import EOS, PAD

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
@given(pairs=PAIRS, sizes=st.fixed_dictionaries(SIZES))
def test_every_pair_once_an_epoch(pairs: list[tuple[int, int]], sizes: dict[str, int]):
  """Each row has the ids of its pair, EOS and PAD."""
  rng, sides = np.random.default_rng(0), []
  draw = lambda lengths: [rng.integers(4, 65536, n).tolist() for n in lengths]
  ids = [draw(lengths) for lengths in zip(*pairs, strict=True)]
  with tempfile.TemporaryDirectory() as folder:
    for i in (0, 1):
      path = pathlib.Path(folder) / f'x.{i}'
      write_tokens(path, ids[i])
      sides.append(Sentences(path))
  stream, slices = Batches(*sides, **sizes), sizes['slices']
  assert len(stream.shapes) <= sizes['max_shapes']
  for epoch in (0, 3):
    seen, real, positions, partial, needed = [], [0, 0], 0, 0, []
    first = epoch * stream.steps_per_epoch
    for step in range(first, first + stream.steps_per_epoch):
      batch = stream.batch(step)
      shape = batch.shape
      needed.append(shape)
      for i, most in enumerate(shape[1:]):
        array = batch[i]
        assert array.dtype == np.int32
        assert array.shape == (slices, shape.rows, most)
        part = slice(slices // 2, None)
        assert np.array_equal(stream.batch(step, part)[i], array[part])
        positions += array.size
        real[i] += (array != PAD).sum()
        for row, pair in zip(array.reshape(-1, most), batch.pairs.ravel(), strict=True):
          words = [] if pair < 0 else [*ids[i][pair], EOS]
          assert row.tolist() == words + [PAD] * (most - len(words))
          assert pair < 0 or sides[i][pair] == words
      chosen = batch.pairs[batch.pairs >= 0]
      assert len(chosen)
      assert batch.target_tokens == (batch.target != PAD).sum()
      partial += len(chosen) < batch.pairs.size
      seen += chosen.tolist()
    assert sorted(seen) == list(range(len(pairs)))
    assert partial <= 1  # all batches but one are full
    assert stream.padding == pytest.approx(1 - sum(real) / positions)
    assert stream.mean_tokens == tuple(n / stream.steps_per_epoch for n in real)
    for n in (0, len(needed) // 2):
      in_order = [*dict.fromkeys([*needed[n:], *stream.shapes])]
      assert stream.shapes_from(first + n) == in_order


def test_order_is_for_ever(tmp_path: pathlib.Path):
  """A run that goes on has the same batches, whose shapes have the least padding.

  The order of the calls does not matter. The digest is of all arrays of two epochs and
  of the start of a later one.
  """
  n = np.arange(20_000)
  for k in (0, 1):
    lengths = (n * n * 31 + 7 * n * (k + 1)) % 97 % (61 - 9 * k)
    ids = np.arange(lengths.sum()) * (13 + k) % 65532 + 4
    with token_writer(tmp_path / f'x.{k}') as append:
      append(ids, lengths)
  train = Split(*(Sentences(tmp_path / f'x.{k}') for k in (0, 1)))
  keys = {'tokens_per_batch': 6_000, 'slices': 8, 'max_shapes': 12, 'seed': 1}
  stream = train_batches(tiny(**keys), train)
  epoch, digest = stream.steps_per_epoch, hashlib.sha256()
  steps = [*range(2 * epoch), *range(5 * epoch, 5 * epoch + 3)]
  shuffled = random.Random(0).sample(steps, len(steps))
  batches = {step: stream.batch(step) for step in shuffled}
  for step in steps:
    for array in batches[step]:
      digest.update(repr((array.shape, array.dtype.str)).encode() + array.tobytes())
  assert digest.hexdigest()[:16] == '96484957edc5a39d'


@settings(max_examples=100)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=30), st.integers(1, 7))
def test_chosen_lengths_pad_least(lengths: list[int], count: int):
  padded = lambda bounds: sum(min(b for b in bounds if b >= n) for n in lengths)
  *values, longest = sorted({*lengths})
  choices = (
    [*some, longest]
    for size in range(min(count, len(values) + 1))
    for some in itertools.combinations(values, size)
  )
  chosen = choose_lengths(np.bincount(lengths), count)
  assert chosen == sorted({*chosen}) and chosen[-1] == longest
  assert len(chosen) <= count and padded(chosen) == min(map(padded, choices))
