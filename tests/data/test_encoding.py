"""Token files hold what the vocabulary encodes, however the text is cut into blocks."""

import pathlib

import pytest

import toy.corpus
from transformer_jax.data import encoding, token_files, vocabulary
from transformer_jax.data.encoding import Encoded
from transformer_jax.data.lines import SIDES

MAX_LENGTH = 6  # tokens, EOS counted: some pairs of the toy corpus are longer


@pytest.fixture(scope='module')
def words(tmp_path_factory: pytest.TempPathFactory) -> vocabulary.Vocabulary:
  path = tmp_path_factory.mktemp('words') / 'vocabulary.model'
  sides = toy.corpus.number_lines(200)
  lines = [line.decode() for side in sides for line in side]
  vocabulary.train(lines, path, 60, 1.0, False)
  return vocabulary.Vocabulary(path)


@pytest.fixture
def texts(tmp_path: pathlib.Path) -> list[pathlib.Path]:
  """100 pairs; a line of other spaces and characters among them."""
  source, target = toy.corpus.number_lines(99, seed=5)
  source[40:40], target[40:40] = ['  one\u2028\r x '.encode()], ['ß\t'.encode()]
  return written(tmp_path, source, target)


def written(folder: pathlib.Path, *sides: list[bytes]) -> list[pathlib.Path]:
  paths = [folder / f'text.{side}' for side in SIDES]
  for path, lines in zip(paths, sides, strict=True):
    path.write_bytes(b''.join(line + b'\n' for line in lines))
  return paths


def encode(
  words: vocabulary.Vocabulary, texts: list[pathlib.Path], name: str = 'train'
) -> Encoded:
  sides = [texts[0].parent / f'{name}.{side}' for side in SIDES]
  both = vocabulary.Vocabularies(words, words)
  return encoding.encode(both, texts, sides, MAX_LENGTH, 100, lambda *_: None)


def content(folder: pathlib.Path, name: str = 'train') -> list[bytes]:
  paths = [
    folder / f'{name}.{side}.{end}' for side in SIDES for end in ('tokens', 'offsets')
  ]
  return [path.read_bytes() for path in paths]


def test_encoding_is_the_vocabulary_s_own(words, texts):
  """Line by line; pairs with a side too long are left out together."""
  lines = [path.read_bytes().decode().split('\n')[:-1] for path in texts]
  pairs = list(zip(*map(words.encode, lines), strict=True))
  kept = [pair for pair in pairs if max(map(len, pair)) < MAX_LENGTH]
  assert 20 < len(kept) < 80
  done = encode(words, texts)
  for number, side in enumerate(
    token_files.Side(texts[0].parent / f'train.{s}') for s in SIDES
  ):
    ids = [pair[number] for pair in kept]
    assert [
      side.tokens[a:b].tolist() for a, b in zip(side.offsets, side.ends, strict=False)
    ] == ids
    assert done.tokens[number] == sum(map(len, ids))
    assert done.longest[number] == max(map(len, ids))
  assert (done.read, done.kept) == (100, len(kept))


@pytest.mark.parametrize('cores', [1, 3])
@pytest.mark.parametrize('block', [1, 7, 100, 5000])
def test_neither_blocks_nor_threads_change_it(block, cores, words, texts, monkeypatch):
  expected = encode(words, texts)
  monkeypatch.setattr(encoding, 'BLOCK', block)
  monkeypatch.setattr(encoding.environment, 'cores', lambda: [*range(cores)])
  assert encode(words, texts, 'again') == expected
  assert content(texts[0].parent, 'again') == content(texts[0].parent)


@pytest.mark.parametrize('block', [1, 7, 5000])
def test_what_is_kept_is_shown(block: int, words, texts, monkeypatch):
  monkeypatch.setattr(encoding, 'BLOCK', block)
  shown: tuple[list[bytes], list[bytes]] = ([], [])

  def look(*lines: list[bytes]) -> None:
    for side, some in zip(shown, lines, strict=True):
      side.extend(some)

  sides = [texts[0].parent / f'train.{side}' for side in SIDES]
  both = vocabulary.Vocabularies(words, words)
  done = encoding.encode(both, texts, sides, MAX_LENGTH, 100, look)
  assert 20 < len(shown[0]) == len(shown[1]) == done.kept < 80
  for path, lines in zip(sides, shown, strict=True):
    side = token_files.Side(path)
    rows = [side.tokens[a:b] for a, b in zip(side.offsets, side.ends, strict=False)]
    assert [row.tolist() for row in rows] == words.encode(
      [line.decode().removesuffix('\n') for line in lines]
    )


@pytest.mark.parametrize('sides', [([], []), ([b''] * 3, [b'one'] * 3)])
def test_little_text(sides, words, tmp_path: pathlib.Path):
  done = encode(words, written(tmp_path, *sides))
  assert (done.read, done.kept) == (len(sides[0]), len(sides[0]))
  assert done.tokens[0] == 0
  assert len(token_files.Side(tmp_path / 'train.source')) == len(sides[0])


def test_all_too_long(words, tmp_path: pathlib.Path):
  done = encode(words, written(tmp_path, [b'one ' * 9] * 3, [b'eins'] * 3))
  assert (done.read, done.kept, done.tokens, done.longest) == (3, 0, [0, 0], [0, 0])
