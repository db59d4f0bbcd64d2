"""Zip files as OPUS gives them out for Moses: NAME.en-de.en and NAME.en-de.de in one.

As archives of WMT, a zip file is read where it lies, twice: once to compare what is
wanted of it with its checksums, and once for the pairs.
"""

import contextlib
import io
import pathlib
import stat
import struct
import zipfile
from collections.abc import Iterator
from typing import Any

from tqdm import tqdm

from transformer_jax.data import archived
from transformer_jax.data.lines import DAMAGE, file_stamp
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.files import sha256

_BLOCK = 1 << 18
_MOST_DIRECTORY = 1 << 22  # bytes of the list of members
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 1  # a bit of a member's flags

# What zipfile raises for files that are no zip files, or were made to do harm.
_FAULTS = (RuntimeError, ValueError, struct.error, *DAMAGE)


class _File(io.FileIO):
  """A file for zipfile that refuses to read over _MOST_DIRECTORY bytes at once."""

  def read(self, size: int = -1) -> bytes:
    if size > _MOST_DIRECTORY:
      raise zipfile.BadZipFile(f'its list of members has {size:,} bytes')
    return super().read(size)


class Zip:
  """A zip file on disk; an archived.Archive."""

  def __init__(self, path: pathlib.Path):
    self.path = path
    self.wanted: set[str] = set()
    self.origin: dict = {}
    self._checked: list = []  # the stamp of the file when it was checked

  def names(self) -> list[str]:
    """The members' names; UserError if the file is no zip file or made to do harm."""
    with self._faults_named(), self._opened() as members:
      return members.namelist()

  def check(self) -> None:
    stamp = file_stamp(self.path)
    if stamp == self._checked:
      return
    with self._faults_named(), self._opened() as members:
      for name in sorted(self.wanted):
        self._check_member(members, name)
    self.origin = {'file': self.path.name, 'sha256': sha256(self.path)}
    self._checked = stamp

  @contextlib.contextmanager
  def member(self, name: str) -> Iterator[Any]:
    with self._opened() as members, members.open(name) as member:
      yield member

  @contextlib.contextmanager
  def _opened(self) -> Iterator[zipfile.ZipFile]:
    with _File(self.path) as file, zipfile.ZipFile(file) as members:
      entries = members.infolist()
      if len(entries) > archived.MOST_MEMBERS:
        raise zipfile.BadZipFile(f'it holds over {archived.MOST_MEMBERS:,} members')
      for info in entries:
        if archived.leads_out(info.orig_filename):
          raise zipfile.BadZipFile(
            f'it holds {info.orig_filename!a}, a path that leads out of it'
          )
      yield members

  def _check_member(self, members: zipfile.ZipFile, name: str) -> None:
    """Reads a member to its end, where zipfile compares it with its checksum."""
    if members.namelist().count(name) != 1:
      raise zipfile.BadZipFile(
        f'it holds {name} {members.namelist().count(name)} times'
      )
    info = members.getinfo(name)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):  # 0 where the system that made it has no kinds
      raise zipfile.BadZipFile(f'its {name} is no regular file')
    if info.flag_bits & _ENCRYPTED:
      raise zipfile.BadZipFile(f'its {name} is encrypted')
    if info.compress_type not in _METHODS:
      raise zipfile.BadZipFile(f'its {name} is packed in an unusual way')
    if info.file_size > archived.most_unpacked(info.compress_size):
      raise zipfile.BadZipFile(
        f'its {name} unpacks to {info.file_size:,} bytes, as no text does'
      )
    doing = f'checking {name}'
    with (
      tqdm(desc=doing, total=info.file_size, unit='B', unit_scale=True) as bar,
      members.open(info) as member,
    ):
      while block := member.read(_BLOCK):
        bar.update(len(block))

  @contextlib.contextmanager
  def _faults_named(self) -> Iterator[None]:
    try:
      yield
    except UserError:
      raise
    except _FAULTS as error:
      raise UserError(
        f'{self.path} is truncated, damaged or no zip file: {error}; get it again'
      ) from error


def bitext(path: pathlib.Path, source: str, target: str) -> archived.ArchivedBitext:
  """The members NAME.source and NAME.target of a zip file, whatever NAME is.

  Raises:
    UserError: the file is bad, or has no such NAME, or several.
  """
  archive = Zip(path)
  names = archive.names()
  ends = f'.{source}', f'.{target}'
  stems = [name.removesuffix(ends[0]) for name in names if name.endswith(ends[0])]
  stems = sorted({stem for stem in stems if stem + ends[1] in names})
  if len(stems) != 1:
    there = ', '.join(map(ascii, stems or names[:4])) or 'nothing'
    raise UserError(
      f'{path}: it should hold one NAME{ends[0]} with its NAME{ends[1]}, but holds '
      f'{there}; unpack it and name the files in --config.data.files'
    )
  return archived.ArchivedBitext(archive, *(stems[0] + end for end in ends))
