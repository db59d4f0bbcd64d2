"""OPUS's zip files for Moses give their pairs, or are refused by name."""

import hashlib
import io
import pathlib
import stat
import struct
import zipfile

import hypothesis
import pytest
from hypothesis import strategies as st

from transformer_jax.data import archived, zips
from transformer_jax.data.lines import Pair, Unequal
from transformer_jax.machine.errors import UserError

SIDES = {'News.de-en.en': b'one\r\ntwo\n', 'News.de-en.de': b'eins\nzwei \xc3\xa4\n'}
PAIRS = [('one', 'eins'), ('two', 'zwei ä')]
OPUS = {'README': b'from OPUS', **SIDES, 'News.de-en.ids': b'1 1\n2 2\n'}


def packed(
  members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED, kind: int = 0
) -> bytes:
  """A zip file; `kind` is what the system that made it says the members are."""
  file = io.BytesIO()
  with zipfile.ZipFile(file, 'w', method) as made:
    for name, content in members.items():
      info = zipfile.ZipInfo(name)
      info.filename = name  # as it is, which ZipInfo may have changed
      info.external_attr = kind << 16
      made.writestr(info, content, method)
  return file.getvalue()


def read(folder: pathlib.Path, content: bytes) -> list[Pair]:
  path = folder / 'de-en.txt.zip'
  path.write_bytes(content)
  return list(zips.bitext(path, 'en', 'de').pairs())


def refused(folder: pathlib.Path, content: bytes, message: str) -> None:
  with pytest.raises(UserError, match=f'(?s)de-en.txt.zip.*{message}'):
    read(folder, content)


def test_a_name_whose_languages_begin_alike(tmp_path: pathlib.Path):
  """Their common letters are no part of the corpus's name."""
  path = tmp_path / 'es-et.txt.zip'
  with zipfile.ZipFile(path, 'w') as made:
    for language in ('es', 'et'):
      made.writestr(f'T.es-et.{language}', 'a\n')
  assert zips.bitext(path, 'es', 'et').name == 'T.es-et'


@pytest.mark.parametrize('method', [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize('kind', [0, stat.S_IFREG])
def test_pairs(method: int, kind: int, tmp_path: pathlib.Path):
  path = tmp_path / 'de-en.txt.zip'
  path.write_bytes(packed(OPUS, method, kind))
  for languages, step in ((('en', 'de'), 1), (('de', 'en'), -1)):
    found = zips.bitext(path, *languages)
    assert found.name == 'News.de-en'
    for _ in range(2):
      assert [*found.pairs()] == [pair[::step] for pair in PAIRS]
  about = {'file': path.name, 'sha256': hashlib.sha256(path.read_bytes()).hexdigest()}
  assert found.origin() == {
    'source': {**about, 'member': 'News.de-en.de', 'lines': 2},
    'target': {
      **about,
      **{'member': 'News.de-en.en', 'lines': 2, 'carriage_returns_taken_off': 1},
    },
  }


def test_a_folder_within(tmp_path: pathlib.Path):
  inner = {f'opus/v1/{name}': content for name, content in OPUS.items()}
  assert read(tmp_path, packed(inner)) == PAIRS


@pytest.mark.parametrize(
  ('members', 'message'),
  [
    ({}, 'holds nothing; unpack it and name the files in --config.data.files'),
    ({'README': b'', 'a.en': b''}, "holds 'README', 'a.en'; unpack"),
    ({**SIDES, 'B.en': b'', 'B.de': b''}, "holds 'B', 'News.de-en'; unpack"),
  ],
)
def test_which_members_is_not_clear(members, message: str, tmp_path: pathlib.Path):
  refused(tmp_path, packed(members), message)


def test_unequal_sides(tmp_path: pathlib.Path):
  with pytest.raises(Unequal, match='News.de-en.en has 2 .*News.de-en.de has 3'):
    read(tmp_path, packed(SIDES | {'News.de-en.de': b'1\n2\n3\n'}))


@pytest.mark.parametrize(
  'name', ['/etc/x', '../x', 'a/../../x', '..', r'..\x', 'C:/x', r'\\host\x']
)
def test_names_that_lead_out(name: str, tmp_path: pathlib.Path):
  refused(tmp_path, packed(OPUS | {name: b''}), 'a path that leads out of it')


@pytest.mark.parametrize(
  'kind', [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR]
)
def test_members_that_are_no_files(kind: int, tmp_path: pathlib.Path):
  refused(tmp_path, packed(OPUS, kind=kind), 'its News.de-en.de is no regular file')


def test_a_member_twice(tmp_path: pathlib.Path):
  twin = 'News.de-en.xx'
  content = packed(OPUS | {twin: b'other\n'}).replace(twin.encode(), b'News.de-en.en')
  refused(tmp_path, content, 'it holds News.de-en.en 2 times')


@pytest.mark.parametrize('method', [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_unusual_methods(method: int, tmp_path: pathlib.Path):
  refused(tmp_path, packed(OPUS, method), 'is packed in an unusual way')


def test_encrypted(tmp_path: pathlib.Path):
  content = bytearray(packed(OPUS))
  for header, flags in ((b'PK\3\4', 6), (b'PK\1\2', 8)):
    place = -1
    while (place := content.find(header, place + 1)) >= 0:
      content[place + flags] |= 1
  refused(tmp_path, bytes(content), 'its News.de-en.de is encrypted')


def test_bombs(tmp_path: pathlib.Path, monkeypatch):
  monkeypatch.setattr(archived, 'MOST_UNPACKED', 1 << 20)
  bomb = packed(OPUS | {'News.de-en.de': b'a\n' * (1 << 20)})
  refused(tmp_path, bomb, 'News.de-en.de unpacks to 2,097,152 bytes, as no text does')
  # One that says that it is small.
  sizes = struct.pack('<L', 1 << 21)
  refused(tmp_path, bomb.replace(sizes, struct.pack('<L', 99)), 'Bad CRC')


def test_members_without_end(tmp_path: pathlib.Path, monkeypatch):
  monkeypatch.setattr(archived, 'MOST_MEMBERS', 4)
  assert read(tmp_path, packed(OPUS)) == PAIRS
  refused(tmp_path, packed(OPUS | {'more': b''}), 'holds over 4 members')
  monkeypatch.setattr(zips, '_MOST_DIRECTORY', 200)
  refused(tmp_path, packed(OPUS), 'its list of members has [0-9]* bytes')


@pytest.mark.parametrize('content', [b'', b'<!DOCTYPE html>', b'PK' * 99])
def test_no_zip_file(content: bytes, tmp_path: pathlib.Path):
  refused(tmp_path, content, 'truncated, damaged or no zip file: .*; get it again')


def test_truncated(tmp_path: pathlib.Path):
  content = packed(OPUS)
  for size in range(len(content)):
    refused(tmp_path, content[:size], 'get it again')


@hypothesis.settings(
  deadline=None,
  max_examples=300,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(place=st.integers(0, len(packed(OPUS)) - 1), bit=st.integers(0, 7))
def test_altered(place: int, bit: int, tmp_path: pathlib.Path):
  """A flipped bit is found, or does no harm."""
  content = bytearray(packed(OPUS))
  content[place] ^= 1 << bit
  try:
    assert read(tmp_path, bytes(content)) == PAIRS
  except UserError as error:
    assert 'de-en.txt.zip' in str(error)


def test_a_file_that_changes(tmp_path: pathlib.Path):
  path = tmp_path / 'x.zip'
  path.write_bytes(packed(OPUS))
  found = zips.bitext(path, 'en', 'de')
  stamp = found.stamp()
  pairs = found.pairs()
  next(pairs)
  path.write_bytes(packed(OPUS | {'more': b''}))
  assert found.stamp() != stamp
  with pytest.raises(UserError, match='x.zip: it changed while it was read'):
    list(pairs)
