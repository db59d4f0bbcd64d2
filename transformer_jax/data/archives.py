"""WMT14's own archives, read where they lie: nothing is unpacked to disk.

Every archive is read twice. The first pass finds the members and checks the archive to
its end, where gzip has a checksum of everything in it. The second pass reads the pairs,
with one stream for each side. The first pass over an archive with WMT's own digest ends
at the last member needed. (A plain tar file has no checksums. The only one that WMT
gives out is giga-fren, whose members are themselves packed with gzip.)

An archive may have been made to do harm, for example to fill the memory. The limits
below are far from anything that an archive of text has.
"""

import contextlib
import gzip
import hashlib
import os
import pathlib
import re
import sys
import tarfile
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
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.files import sha256

# What WMT gives out: URL, bytes, sha256. From TensorFlow Datasets: translate/wmt.py and
# the url_checksums of wmt13, wmt14 and wmt19. The last one is from sacreBLEU, which has
# only its md5: dataset/__init__.py, wmt14/full.
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

_GZIP = b'\x1f\x8b'  # the first bytes of a gzip file
_BLOCK = 1 << 18
# gzip packs text to about a third, and what a bomb holds to a thousandth.
_MOST_UNPACKED, _MOST_PER_BYTE = 1 << 30, 20
_MOST_MEMBERS = 10_000
_MOST_HEADERS = 1 << 14  # bytes that describe one member
_MOST_SGML = 1 << 26  # bytes of a test set


class _Limited:
  """A stream that a bomb cannot make endless.

  Args:
    stream: what is read.
    packed_size: bytes of the file that the stream is unpacked from.
  """

  def __init__(self, stream: BinaryIO, packed_size: int):
    self._stream = stream
    self._limit = _MOST_UNPACKED + _MOST_PER_BYTE * packed_size

  def read(self, size: int) -> bytes:
    block = self._stream.read(size)
    if self._stream.tell() > self._limit:
      raise gzip.BadGzipFile(
        f'it unpacks to over {self._limit:,} bytes, as no text does'
      )
    return block


class _Tape(_Limited):
  """The tar file that the first pass reads, forwards only.

  tarfile reads the headers and skips the members.
  """

  headers_left = _MOST_HEADERS

  def tell(self) -> int:
    return self._stream.tell()

  def read(self, size: int) -> bytes:
    self.headers_left -= size
    if self.headers_left < 0:
      raise tarfile.ReadError(f'it has a header of over {_MOST_HEADERS:,} bytes')
    return super().read(size)

  def seek(self, position: int) -> None:
    if position < self.tell():
      raise tarfile.ReadError('it has a header that points backwards')
    while (left := position - self.tell()) and super().read(min(left, _BLOCK)):
      pass


def _unpacked(file: Any) -> Any:
  """What a file opened for reading holds, unpacked if it is a gzip file."""
  packed = file.peek(len(_GZIP)).startswith(_GZIP)
  return gzip.GzipFile(fileobj=file) if packed else file


class Archive:
  """One of ARCHIVES on disk.

  Attributes:
    wanted: the names of the members that will be read.
    origin: what the card says of the file, once check() has read it.
  """

  def __init__(self, path: pathlib.Path):
    self.path = path
    self.wanted: set[str] = set()
    self.origin: dict = {}
    self._members: dict[str, tarfile.TarInfo] = {}
    self._checked: list = []  # the stamp of the file when it was checked

  def check(self) -> None:
    """The first pass. Does nothing if the file has not changed since the last one.

    Raises:
      UserError: the archive is missing, damaged, another one, or made to do harm.
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
      self._members = self._find(size, to_the_end=not same)
    except (tarfile.TarError, ValueError, *DAMAGE) as error:
      raise UserError(
        f'{self.path} is truncated, damaged or another archive: {error}. {advice}'
      ) from error
    if not same:
      print(f'{self.path} is whole, but not as published. {advice}', file=sys.stderr)
    self.origin = {'file': self.path.name, 'sha256': digest, 'published': same}
    self._checked = stamp

  def _find(self, size: int, to_the_end: bool) -> dict[str, tarfile.TarInfo]:
    """The wanted members of the file, which has `size` bytes."""
    found: dict[str, tarfile.TarInfo] = {}
    others: list[str] = []
    doing = f'checking {self.path.name}'
    with (
      self.path.open('rb') as file,
      tqdm.wrapattr(file, 'read', size, desc=doing, disable=None) as counted,
    ):
      tape = _Tape(_unpacked(counted), size)
      with tarfile.open(fileobj=tape, mode='r:') as tar:
        for info in _entries(tar):
          tape.headers_left = _MOST_HEADERS
          name = info.name.removeprefix('./')
          if name not in self.wanted:
            others.append(name)
            continue
          if not info.isreg() or info.issparse():
            raise tarfile.ReadError(f'its {name} is no regular file')
          if name.endswith('.sgm') and info.size > _MOST_SGML:
            raise tarfile.ReadError(
              f'its {name} has {info.size:,} bytes, as no test set has'
            )
          found[name] = info
          if not to_the_end and found.keys() == self.wanted:
            return found
      tape.seek(sys.maxsize)  # at the end gzip compares its checksum
    for name in sorted(self.wanted - found.keys()):
      there = ', '.join(map(ascii, others[-4:])) or 'nothing'
      raise tarfile.ReadError(f'it holds no {name}, but {there}')
    return found

  @contextlib.contextmanager
  def member(self, name: str) -> Iterator[Any]:
    """The second pass, after check(): the bytes of a member, those of NAME.gz unpacked.

    Reading them raises tarfile.TarError or one of DAMAGE if the file has changed.
    """
    info = self._members[name]
    with (
      self.path.open('rb') as file,
      tarfile.open(fileobj=_unpacked(file), mode='r:') as tar,
      tar.extractfile(info) as member,
    ):
      if name.endswith('.gz'):
        member = _Limited(gzip.GzipFile(fileobj=member), info.size)
      yield member


def _entries(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
  """The members of a tar file, their number and names checked.

  Nothing is ever written to where a name says. But neither WMT nor tar makes an archive
  with a name that leads out of it, so whoever made such a one meant harm.
  """
  for count, info in enumerate(tar):
    if count == _MOST_MEMBERS:
      raise tarfile.ReadError(f'it holds over {_MOST_MEMBERS:,} members')
    first, *rest = re.split(r'[/\\]', info.name)
    if not first or first.endswith(':') or '..' in (first, *rest):
      raise tarfile.ReadError(f'it holds {info.name!a}, a path that leads out of it')
    yield info


class ArchivedBitext:
  """Two members of an archive: files of lines, or a test set in WMT's SGML."""

  def __init__(self, archive: Archive, source: str, target: str):
    # What the two names share: training/europarl-v7.de-en.de is europarl-v7.de-en.
    self.name = os.path.commonprefix([source, target]).split('/')[-1].rstrip('-.')
    self._archive, self._members = archive, (source, target)
    self._origin: dict = {}
    archive.wanted.update(self._members)

  def stamp(self) -> list:
    return [*file_stamp(self._archive.path), *self._members]

  def pairs(self) -> Iterator[Pair]:
    path = self._archive.path
    source, target = (f'{path}, {member}' for member in self._members)
    with unchanged(path), contextlib.ExitStack() as stack:
      self._archive.check()
      try:
        streams = [stack.enter_context(self._archive.member(m)) for m in self._members]
        if self._members[0].endswith('.sgm'):
          segments = sgml.pairs(*(s.read() for s in streams), (source, target))
          yield from segments
          about = [{'lines': len(segments)}] * 2
        else:
          sides = Lines(streams[0], source), Lines(streams[1], target)
          yield from paired(*sides)
          about = [side.about() for side in sides]
      except (tarfile.TarError, *DAMAGE) as error:
        raise UserError(f'{path}: it changed while it was read ({error})') from error
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
    UserError: WMT14 does not have this pair of languages, or archives are missing; the
      message names all of them and where they are.
  """
  other = source_language if target_language == 'en' else target_language
  if 'en' not in (source_language, target_language) or other not in ('de', 'fr'):
    raise UserError(
      f'{source_language}-{target_language}: WMT14 is read as en with de or fr'
    )
  plan = {
    'train': [row for row in _TRAIN if other == 'fr' or 'fr' not in row[1]],
    'dev': [_DEV],
    'test': [next((t for t in _TESTS if (raw_dir / t[0]).is_file()), _TESTS[-1])],
  }
  archives = {
    name: Archive(raw_dir / name) for rows in plan.values() for name, _ in rows
  }
  missing = [name for name, archive in archives.items() if not archive.path.is_file()]
  if missing:
    raise UserError(
      f'{raw_dir} lacks archives of WMT14: '
      + ', '.join(f'{name} (get it from {ARCHIVES[name][0]})' for name in missing)
    )

  def bitext(name: str, pattern: str) -> ArchivedBitext:
    words = {'pair': f'{other}-en', 'other': other}
    return ArchivedBitext(
      archives[name],
      pattern.format(role='src', language=source_language, **words),
      pattern.format(role='ref', language=target_language, **words),
    )

  return {split: [bitext(*row) for row in rows] for split, rows in plan.items()}
