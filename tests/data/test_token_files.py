"""Token files hold what was written; damaged ones are refused."""

import pathlib
import tempfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_jax.data.token_files import Sentences, TokenWriter, write_tokens
from transformer_jax.data.vocabulary import EOS, PAD, UNK
from transformer_jax.machine.errors import UserError

SENTENCES = st.lists(
  st.lists(st.integers(UNK, 65535), max_size=12), min_size=1, max_size=40
)


FILES = ('.tokens', '.offsets')


def content(path: pathlib.Path) -> tuple[bytes, bytes]:
  return tuple(path.with_name(path.name + e).read_bytes() for e in FILES)


def append(writer: TokenWriter, sentences: list[list[int]]) -> None:
  ids = np.array([i for ids in sentences for i in ids], '<u2')
  writer.append(ids, np.array([len(ids) for ids in sentences], np.int64))


def written(sentences: list[list[int]], folder: pathlib.Path) -> Sentences:
  write_tokens(folder / 'x', sentences)
  return Sentences(folder / 'x')


def test_token_files_hold_what_was_written(tmp_path: pathlib.Path):
  ids = [[5, 6, 65535], [], [4], [7] * 300]
  assert write_tokens(tmp_path / 'x', ids) == 304
  read = Sentences(tmp_path / 'x')
  assert len(read) == 4
  assert read.lengths.tolist() == [4, 1, 2, 301]
  assert (tmp_path / 'x.tokens').read_bytes()[:6] == b'\x05\0\x06\0\xff\xff'
  block = read.pad(np.array([1, -1, 0]), 5)
  assert block.tolist() == [[EOS, 0, 0, 0, 0], [0] * 5, [5, 6, 65535, EOS, 0]]
  assert read.cut(3).lengths.tolist() == [3, 1, 2, 3]
  assert read.lengths.tolist() == [4, 1, 2, 301]


@settings(max_examples=100)
@given(SENTENCES, st.integers(1, 14), st.integers(0, 5), st.data())
def test_pad(sentences: list[list[int]], longest: int, more: int, data):
  """Rows equal those of a loop over lists, of whole and of cut sentences."""
  with tempfile.TemporaryDirectory() as folder:
    side = written(sentences, pathlib.Path(folder))
  expected = sentences
  if data.draw(st.booleans(), 'cut'):
    side, expected = side.cut(longest), [ids[: longest - 1] for ids in sentences]
  if data.draw(st.booleans(), 'in memory'):
    side.tokens, side.offsets = side.tokens.copy(), side.offsets.copy()
  assert side.lengths.tolist() == [len(ids) + 1 for ids in expected]
  length = max(side.lengths) + more
  rows = data.draw(st.lists(st.integers(-1, len(sentences) - 1), max_size=9), 'rows')
  block = side.pad(np.array(rows, np.int64), length)
  assert block.dtype == np.int32 and block.shape == (len(rows), length)
  for row, row_ids in zip(rows, block.tolist(), strict=True):
    words = [] if row < 0 else [*expected[row], EOS]
    assert row_ids == words + [PAD] * (length - len(words))


# Files that cannot be right


TOKENS = np.array([4, 5, 6, 7, 8, 9], '<u2')


@pytest.mark.parametrize(
  ('tokens', 'offsets'),
  [
    (TOKENS[:-1], [0, 2, 5, 6]),
    (TOKENS.view('u1')[:-1], [0, 2, 5, 6]),
    (TOKENS, [0, 2, 5]),
    (TOKENS, []),
    (TOKENS, [0, 5, 2, 6]),
    (TOKENS, [0, 2 + 2**40, 5, 6]),  # a flipped bit
    (TOKENS, [1, 2, 5, 6]),
    (TOKENS, np.array([0, 2, 6]).view('u1')[:-1]),
  ],
)
def test_files_that_do_not_fit_each_other(tokens, offsets, tmp_path: pathlib.Path):
  assert written([[4, 5], [6, 7, 8], [9]], tmp_path).offsets.tolist() == [0, 2, 5, 6]
  tokens.tofile(tmp_path / 'x.tokens')
  kind = 'u1' if isinstance(offsets, np.ndarray) else '<i8'
  np.array(offsets, kind).tofile(tmp_path / 'x.offsets')
  again = r'x\.tokens and \.offsets do not fit .* run scripts\.prepare_data again'
  with pytest.raises(UserError, match=again):
    Sentences(tmp_path / 'x')


# Writing


@settings(max_examples=50)
@given(st.lists(SENTENCES, max_size=5))
def test_blocks_do_not_show(blocks: list):
  sentences = [ids for block in blocks for ids in block]
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder) / 'x'
    assert write_tokens(path, sentences) == sum(map(len, sentences))
    at_once = content(path)
    with TokenWriter(path) as writer:
      for block in blocks:
        append(writer, block)
    assert content(path) == at_once
    read = Sentences(path)
  assert read.tokens.tolist() == [i for ids in sentences for i in ids]
  assert read.offsets.tolist() == np.cumsum([0, *map(len, sentences)]).tolist()
