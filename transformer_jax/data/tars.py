"""Tar files, as WMT gives them out: the members that are wanted, in two passes.

The first pass finds the members and checks the file to its end, where gzip has a
checksum of everything in it. The second pass reads a member, and several can be read at
once. The first pass over a file with WMT's own digest ends at the last member needed.
(A plain tar file has no checksums. The only one that WMT gives out is giga-fren, whose
members are themselves packed with gzip.)
"""

import contextlib
import gzip
import hashlib
import pathlib
import sys
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from tqdm import tqdm

from transformer_jax.data import archived
from transformer_jax.data.lines import DAMAGE, file_stamp
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.files import sha256

_GZIP = b'\x1f\x8b'  # the first bytes of a gzip file
_BLOCK = 1 << 18
_MOST_HEADERS = 1 << 14  # bytes that describe one member


class _Limited:
  """A stream that a bomb cannot make endless.

  Args:
    stream: what is read.
    packed_size: bytes of the file that the stream is unpacked from.
  """

  def __init__(self, stream: BinaryIO, packed_size: int):
    self._stream = stream
    self._limit = archived.most_unpacked(packed_size)

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


class Published(NamedTuple):
  """The archive that its makers give out."""

  url: str
  size: str  # in bytes; ? if it is not known
  digest: str  # sha256, or md5


class Tar:
  """A tar file on disk, packed with gzip or not; an archived.Archive."""

  def __init__(self, path: pathlib.Path, published: Published):
    self.path, self._published = path, published
    self.wanted: set[str] = set()
    self.origin: dict = {}
    self._members: dict[str, tarfile.TarInfo] = {}
    self._checked: list = []  # the stamp of the file when it was checked

  def check(self) -> None:
    stamp = file_stamp(self.path)
    if stamp == self._checked:
      return
    size, published = stamp[1], self._published
    sizes = f' and has {published.size} bytes; this has {size}'
    advice = f"WMT's own is at {published.url}{sizes if published.size != '?' else ''}"
    digest = sha256(self.path)
    with self.path.open('rb') as file:
      md5 = len(published.digest) == 32 and hashlib.file_digest(file, 'md5').hexdigest()
    same = published.digest in (digest, md5)
    try:
      self._members = self._find(size, to_the_end=not same)
    except (ValueError, *DAMAGE) as error:
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
          if name.endswith('.sgm') and info.size > archived.MOST_SGML:
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
  """The members of a tar file, their number and names checked."""
  for count, info in enumerate(tar):
    if count == archived.MOST_MEMBERS:
      raise tarfile.ReadError(f'it holds over {archived.MOST_MEMBERS:,} members')
    if archived.leads_out(info.name):
      raise tarfile.ReadError(f'it holds {info.name!a}, a path that leads out of it')
    yield info
