"""The door for WMT14's own archives, read where they lie: nothing is unpacked to disk.

An archive is read once, from end to end, before the first pair comes out of it: gzip's
checksum of all it holds is compared and the places of its members are noted. One whose
sum is WMT's own is read no further than the last member needed. (A plain tar has no
checksums; the one that WMT gives out, giga-fren, has members packed with gzip.)
"""

import contextlib
import hashlib
import itertools
import os
import pathlib
import re
import sys
import tarfile
import zlib
from collections.abc import Iterator
from typing import Any, BinaryIO

from tqdm import tqdm

from transformer_jax.data import sgml
from transformer_jax.data.lines import (
  DAMAGE,
  SIDES,
  Bitext,
  Lines,
  Pair,
  file_stamp,
  paired,
  unchanged,
)
from transformer_jax.machine.files import sha256

# What WMT gives out: URL, bytes, sha256. From TensorFlow Datasets: translate/wmt.py and
# the url_checksums of wmt13, wmt14 and wmt19; but the last from sacreBLEU, which knows
# its md5 alone: dataset/__init__.py, wmt14/full.
_PUBLISHED = """
www.statmt.org/wmt13/training-parallel-europarl-v7.tgz 657632379
  0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7
www.statmt.org/wmt13/training-parallel-commoncrawl.tgz 918311367
  c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5
www.statmt.org/wmt13/training-parallel-un.tgz 2365634246
  29141b5c1eba149a94f7a59d3b1a834b2e47fe0f8758d68dcd77a3d3f497ee47
www.statmt.org/wmt14/training-parallel-nc-v9.tgz 80418416
  cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485
www.statmt.org/wmt10/training-giga-fren.tar 2595102720
  3ff8319f6919393520559bfbc7ad6a747ec81b3abc7be9993b338d4b017b4d9a
data.statmt.org/wmt19/translation-task/dev.tgz 38654961
  7a7deccf82ebb05ba508dba5eb21356492224e8f630ec4f992132b029b4b25e7
www.statmt.org/wmt14/test-full.tgz ?
  a8cd784e006feb32ac6f3d9ec7eb389a
""".split()
ARCHIVES = {
  url.split('/')[-1]: (f'http://{url}', size, digest)
  for url, size, digest in zip(*(_PUBLISHED[i::3] for i in range(3)), strict=True)
}

# In the order of TensorFlow Datasets' translate/wmt14.py, names from its wmt.py.
_TRAIN = (
  ('training-parallel-europarl-v7.tgz', 'training/europarl-v7.{pair}.{language}'),
  ('training-parallel-commoncrawl.tgz', 'commoncrawl.{pair}.{language}'),
  ('training-parallel-un.tgz', 'un/undoc.2000.fr-en.{language}'),
  ('training-parallel-nc-v9.tgz', 'training/news-commentary-v9.{pair}.{language}'),
  ('training-giga-fren.tar', 'giga-fren.release2.fixed.{language}.gz'),
)
_DEV = ('dev.tgz', 'dev/newstest2013.{language}')
# newstest2014 in full, 3,003 segments: WMT14's own if it is there, else WMT19's.
_TESTS = (
  ('test-full.tgz', 'test-full/newstest2014-{other}en-{role}.{language}.sgm'),
  ('dev.tgz', 'dev/newstest2014-{other}en-{role}.{language}.sgm'),
)

_GZIP, _GZIP_FILE = b'\x1f\x8b', 31  # how one begins, and zlib's name for it
_BLOCK = 1 << 18
# Text is packed to a third or so, a bomb to a thousandth.
_MOST_UNPACKED, _MOST_PER_BYTE = 1 << 30, 20
_MOST_MEMBERS = 10_000
_MOST_HEADERS = 1 << 14  # bytes of what describes one member
_MOST_SGML = 1 << 26  # bytes of a test set


class _Unpacked:
  """What `packed` and the next bytes of a file hold, unpacked by `inflate` if given.

  The size of the file, in bytes, is there to tell a bomb by.
  """

  def __init__(self, file: Any, size: int, inflate: Any = None, packed: bytes = b''):
    self._file, self._inflate, self._packed = file, inflate, packed
    self._limit = _MOST_UNPACKED + _MOST_PER_BYTE * size
    self._position = 0

  def read(self, size: int) -> bytes:
    """Up to `size` bytes; fewer at the end alone. Raises one of DAMAGE."""
    self._check(self._position + size)
    if self._inflate:
      block = b''.join(self._inflated(size))
    else:
      block = self._file.read(size)
    self._position += len(block)
    return block

  def _check(self, end: int) -> None:
    if end > self._limit:
      raise zlib.error(f'it unpacks to over {self._limit:,} bytes, as no text does')

  def _inflated(self, size: int) -> Iterator[bytes]:
    while size and not self._inflate.eof:
      if not self._packed:
        self._packed = self._file.read(_BLOCK)
        if not self._packed:
          raise EOFError('it ends too early')
      block = self._inflate.decompress(self._packed, size)
      self._packed = self._inflate.unconsumed_tail
      size -= len(block)
      yield block
      if self._inflate.eof:
        self._go_on(self._inflate.unused_data)

  def _go_on(self, rest: bytes) -> None:
    """Behind what gzip packed there may be more of that, or zeros to fill up."""
    while not (rest := rest.lstrip(b'\0')):
      rest = self._file.read(_BLOCK)
      if not rest:
        return
    self._packed, self._inflate = rest, zlib.decompressobj(_GZIP_FILE)


class _Tape(_Unpacked):
  """What tarfile finds its way by; it never reads more than the headers."""

  headers_left = _MOST_HEADERS

  def read(self, size: int) -> bytes:
    self.headers_left -= size
    if self.headers_left < 0:
      raise ValueError(f'it has a header of over {_MOST_HEADERS:,} bytes')
    return super().read(size)

  def tell(self) -> int:
    return self._position

  def seek(self, position: int) -> None:
    if position < self._position:
      raise ValueError('it has a header that points backwards')
    self._check(position)
    if self._inflate:
      while super().read(min(_BLOCK, position - self._position)):
        pass
    else:
      self._file.seek(position)
      self._position = position

  def place(self) -> tuple[int, Any, bytes]:
    """What it takes to go on from here: where in the file, how, what was read ahead."""
    return self._file.tell(), self._inflate and self._inflate.copy(), self._packed


class _Member:
  """The bytes of a member, and not one behind them."""

  def __init__(self, file: BinaryIO, size: int, place: tuple[int, Any, bytes]):
    offset, inflate, packed = place
    file.seek(offset)
    self._stream = _Unpacked(file, size, inflate and inflate.copy(), packed)
    self._left = size

  def read(self, size: int) -> bytes:
    block = self._stream.read(min(size, self._left))
    self._left -= len(block)
    return block


class Archive:
  """One of ARCHIVES on disk, and what was found in it when it was last read."""

  def __init__(self, path: pathlib.Path):
    self.path = path
    self.members: set[str] = set()  # those that will be asked for
    self.origin: dict = {}
    self._places: dict[str, tuple] = {}
    self._checked: list = []

  def check(self) -> None:
    """Reads it, unless that was done since it last changed.

    Raises:
      OSError, ValueError: it is missing, damaged, another, or made to do harm.
    """
    stamp = file_stamp(self.path)
    if stamp == self._checked:
      return
    size, (url, published_size, published) = stamp[1], ARCHIVES[self.path.name]
    sizes = f' and has {published_size} bytes; this has {size}'
    advice = f"WMT's own is at {url}{sizes if published_size != '?' else ''}"
    digest = sha256(self.path)
    with self.path.open('rb') as file:
      md5 = len(published) == 32 and hashlib.file_digest(file, 'md5').hexdigest()
    same = published in (digest, md5)
    try:
      self._places = self._find(size, all_of_it=not same)
    except (tarfile.TarError, ValueError, *DAMAGE) as error:
      raise ValueError(
        f'{self.path} is truncated, damaged or another archive: {error}. {advice}'
      ) from error
    if not same:
      print(f'{self.path} is whole, but not as published. {advice}', file=sys.stderr)
    self.origin = {'file': self.path.name, 'sha256': digest, 'published': same}
    self._checked = stamp

  def _find(self, size: int, all_of_it: bool) -> dict[str, tuple]:
    """Where the members begin; reads on behind them if all of it is to be checked."""
    places: dict[str, tuple] = {}
    others: list[str] = []
    doing = f'checking {self.path.name}'
    with (
      self.path.open('rb') as file,
      tqdm.wrapattr(file, 'read', size, desc=doing, disable=None) as counted,
    ):
      packed = file.peek(len(_GZIP)).startswith(_GZIP)
      tape = _Tape(counted, size, zlib.decompressobj(_GZIP_FILE) if packed else None)
      with tarfile.open(fileobj=tape, mode='r:') as tar:
        for info in _entries(tar):
          tape.headers_left = _MOST_HEADERS
          name = info.name.removeprefix('./')
          if name not in self.members:
            others.append(name)
            continue
          if not info.isreg() or info.issparse():
            raise ValueError(f'its {name} is no regular file')
          if name.endswith('.sgm') and info.size > _MOST_SGML:
            raise ValueError(f'its {name} has {info.size:,} bytes, as no test set has')
          places[name] = info.size, tape.place()
          if not all_of_it and len(places) == len(self.members):
            return places
      tape.headers_left = sys.maxsize  # none are left, but at the end is the checksum
      while tape.read(_BLOCK):
        pass
    for name in sorted(self.members - places.keys()):
      there = ', '.join(map(ascii, others[-4:])) or 'nothing'
      raise ValueError(f'it holds no {name}, but {there}')
    return places

  def member(self, name: str, file: BinaryIO) -> _Unpacked | _Member:
    """Reads a member, unpacking NAME.gz, from the file opened anew after check()."""
    size, place = self._places[name]
    stream = _Member(file, size, place)
    if not name.endswith('.gz'):
      return stream
    return _Unpacked(stream, size, zlib.decompressobj(_GZIP_FILE))


def _entries(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
  """The members of a tar file, their number and names checked.

  Nothing is ever unpacked to where a name says, but neither WMT nor tar itself makes an
  archive with one that leads out of it: somebody else did, and not for good.
  """
  for count, info in enumerate(tar):
    if count == _MOST_MEMBERS:
      raise ValueError(f'it holds over {_MOST_MEMBERS:,} members')
    first, *rest = re.split(r'[/\\]', info.name)
    if not first or first.endswith(':') or '..' in (first, *rest):
      raise ValueError(f'it holds {info.name!a}, a path that leads out of it')
    yield info


class ArchivedBitext:
  """A part made of two members of an archive, of lines or of WMT's SGML."""

  def __init__(self, archive: Archive, source: str, target: str):
    # What both are called: training/europarl-v7.de-en.de is europarl-v7.de-en.
    self.name = os.path.commonprefix([source, target]).split('/')[-1].rstrip('-.')
    self._archive, self._members = archive, (source, target)
    self._origin: dict = {}
    archive.members.update(self._members)

  def stamp(self) -> list:
    return [*file_stamp(self._archive.path), *self._members]

  def pairs(self) -> Iterator[Pair]:
    source, target = (f'{self._archive.path}, {member}' for member in self._members)
    with contextlib.ExitStack() as stack:
      stack.enter_context(unchanged(self._archive.path))
      self._archive.check()
      files = [stack.enter_context(self._archive.path.open('rb')) for _ in SIDES]
      streams = [*map(self._archive.member, self._members, files)]
      if self._members[0].endswith('.sgm'):
        try:
          whole = [stream.read(_MOST_SGML) for stream in streams]
        except DAMAGE as error:
          raise ValueError(f'{source}: changed while it was read ({error})') from error
        segments = sgml.pairs(*whole, (source, target))
        yield from segments
        about = [{'lines': len(segments)}] * 2
      else:
        sides = Lines(streams[0], source), Lines(streams[1], target)
        yield from paired(*sides)
        about = [side.about() for side in sides]
    self._origin = {
      side: {**self._archive.origin, 'member': member, **counts}
      for side, member, counts in zip(SIDES, self._members, about, strict=True)
    }

  def origin(self) -> dict:
    return self._origin


def bitexts(
  raw_dir: pathlib.Path, source_language: str, target_language: str
) -> dict[str, list[Bitext]]:
  """WMT14's training corpora, newstest2013 as dev and newstest2014 as test.

  Raises:
    FileNotFoundError: archives are missing; names all of them and where they are.
    ValueError: WMT14 has no such pair of languages here.
  """
  other = source_language if target_language == 'en' else target_language
  if 'en' not in (source_language, target_language) or other not in ('de', 'fr'):
    raise ValueError(
      f'{source_language}-{target_language}: WMT14 is read as en with de or fr'
    )
  plan = {
    'train': [row for row in _TRAIN if other == 'fr' or 'fr' not in row[1]],
    'dev': [_DEV],
    'test': [next((t for t in _TESTS if (raw_dir / t[0]).is_file()), _TESTS[-1])],
  }
  archives = {
    name: Archive(raw_dir / name) for name, _ in itertools.chain(*plan.values())
  }
  missing = [name for name, archive in archives.items() if not archive.path.is_file()]
  if missing:
    raise FileNotFoundError(
      f'{raw_dir} lacks archives of WMT14: '
      + ', '.join(f'{name} (get it from {ARCHIVES[name][0]})' for name in missing)
    )

  def part(name: str, pattern: str) -> ArchivedBitext:
    words = {'pair': f'{other}-en', 'other': other}
    return ArchivedBitext(
      archives[name],
      pattern.format(role='src', language=source_language, **words),
      pattern.format(role='ref', language=target_language, **words),
    )

  return {split: [part(*row) for row in rows] for split, rows in plan.items()}
