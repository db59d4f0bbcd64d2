"""Files that may be compressed, unpacked as they are read."""

import bz2
import gzip
import io
import lzma
import pathlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

import pyarrow

from transformer_jax.data.lines import DAMAGE
from transformer_jax.machine.errors import UserError

# The ends of the names of compressed files.
ENDS = ('.gz', '.zst', '.xz', '.bz2')

_BLOCK = 1 << 18
# The command xz needs 65 MB at most to unpack what its presets have packed.
_MOST_XZ_MEMORY = 1 << 28


class _Streams(io.RawIOBase):
  """The streams of an xz or bz2 file, one after another.

  If the bytes after a stream begin no other stream, Python's own readers end there
  without an error. But these bytes may be a damaged stream, whose lines would be lost.

  Args:
    path: the file.
    unpacker: makes an LZMADecompressor or a BZ2Decompressor.
  """

  def __init__(self, path: pathlib.Path, unpacker: Callable):
    super().__init__()
    self._file, self._unpacker = path.open('rb'), unpacker
    self._stream = unpacker()

  def read(self, size: int) -> bytes:
    while True:
      packed = b''
      if self._stream.eof:
        # xz fills up files with zeros.
        packed = self._stream.unused_data.lstrip(b'\0')
        while not packed:
          block = self._file.read(_BLOCK)
          if not block:
            return b''
          packed = block.lstrip(b'\0')
        self._stream = self._unpacker()
      elif self._stream.needs_input:
        packed = self._file.read(_BLOCK)
        if not packed:
          raise EOFError('it ends in the middle of what is packed')
      if unpacked := self._stream.decompress(packed, size):
        return unpacked

  def close(self) -> None:
    self._file.close()
    super().close()


def blocks(path: pathlib.Path) -> Iterator[bytes]:
  """A file's content, unpacked; UserError if it is damaged."""
  try:
    with opened(path) as stream:
      while block := stream.read(1 << 20):
        yield block
  except DAMAGE as error:
    if getattr(error, 'filename', None):  # it could not be opened; the system says why
      raise
    raise UserError(f'{path}: truncated or damaged ({error}); get it again') from error


def opened(path: pathlib.Path) -> BinaryIO:
  """A file opened for reading, unpacked if its name says that it is compressed.

  Reading it raises one of lines.DAMAGE if it is damaged or truncated.
  """
  if path.suffix in ENDS and not path.stat().st_size:
    raise UserError(f'{path}: truncated, it is empty; get it again')
  if path.suffix == '.gz':
    return gzip.open(path)
  if path.suffix == '.zst':
    # Unlike other readers of zstd, pyarrow notices that the end is missing.
    return pyarrow.input_stream(str(path), compression='zstd')
  if path.suffix == '.xz':
    unxz = lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MOST_XZ_MEMORY)
    return _Streams(path, unxz)
  if path.suffix == '.bz2':
    return _Streams(path, bz2.BZ2Decompressor)
  return path.open('rb')
