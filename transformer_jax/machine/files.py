"""Writes a file whole or not at all; JSON, sha256 sums, and locks."""

import contextlib
import errno
import fcntl
import hashlib
import json
import math
import os
import pathlib
import secrets
import sys
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Any

from transformer_jax.machine.errors import UserError


@contextlib.contextmanager
def with_filename(path: pathlib.Path) -> Iterator[None]:
  """Adds `path` to an error that names no file, such as that of a full disk.

  Raises:
    OSError: the disk was full, also where a C++ or Rust library has its own error.
  """
  try:
    yield
  except OSError as error:
    if error.errno is not None:  # without a number, the message alone is printed
      error.filename = error.filename or str(path)
    raise
  except Exception as error:
    full = os.strerror(errno.ENOSPC)
    if full not in str(error):
      raise
    raise OSError(errno.ENOSPC, full, str(path)) from error


def write(path: pathlib.Path, text: str) -> None:
  """Writes a file as a whole: after a crash it is the old one or the new one.

  If two processes write the same file, the last one wins. A link, a pipe or a device,
  such as /dev/null, is written through and stays what it is.
  """
  if path.exists() and not path.is_file():
    with with_filename(path):
      path.write_text(text, encoding='utf-8')
    return
  path = path.resolve()
  partial = path.with_name(f'{path.name}.{secrets.token_hex(4)}.partial')
  try:
    with with_filename(path):
      partial.write_text(text, encoding='utf-8')
      sync(partial)
    partial.replace(path)
  finally:
    partial.unlink(missing_ok=True)


def ensure_writable(folder: pathlib.Path) -> None:
  """Makes a folder if it is missing; raises OSError if nothing can be written in it."""
  folder.mkdir(parents=True, exist_ok=True)
  tempfile.TemporaryFile(dir=folder).close()


def as_json(value: Any, indent: int | None = None) -> str:
  """Returns JSON that any reader takes: a number that is not finite becomes null."""
  return json.dumps(_finite(value), indent=indent, allow_nan=False)


def _finite(value: Any) -> Any:
  if isinstance(value, dict):
    return {key: _finite(inner) for key, inner in value.items()}
  if isinstance(value, list | tuple):
    return [_finite(inner) for inner in value]
  return None if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: pathlib.Path, value: Any) -> None:
  """Writes a value as indented JSON, whole or not at all."""
  write(path, as_json(value, indent=1) + '\n')


def read_json_object(path: pathlib.Path) -> dict[str, Any]:
  """Returns the object that a JSON file holds.

  Raises:
    UserError: the file holds no JSON, or another value than an object.
    OSError: it cannot be read.
  """
  try:
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
      raise ValueError('no object')
  except ValueError as error:
    raise UserError(
      f'{path}: damaged ({error}); put back a copy, or make it again'
    ) from error
  return value


def sync(path: pathlib.Path) -> None:
  """Waits until a file, or a folder's list of entries, is on the disk."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)


def sha256(path: pathlib.Path) -> str:
  """Returns the sha256 sum of a file's bytes, in hexadecimal."""
  with with_filename(path), path.open('rb') as file:
    return hashlib.file_digest(file, 'sha256').hexdigest()


def sha256_of_lines(lines: Iterable[str]) -> str:
  """Returns the sum of a file that has these lines, each with LF."""
  return hashlib.sha256(''.join(f'{line}\n' for line in lines).encode()).hexdigest()


def lock(file: IO[str], wait: bool = False) -> bool:
  """Locks an open file for this process alone; returns False if another has it locked.

  The operating system releases the lock when the file is closed, or the process ends.
  A file system without locks counts as a success, with a warning.
  """
  try:
    fcntl.flock(file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  except OSError as error:
    print(f'{file.name}: no lock ({error}): run only one process', file=sys.stderr)
  return True


@contextlib.contextmanager
def exclusive(path: pathlib.Path, doing: str) -> Iterator[None]:
  """Locks a file: one process at a time runs the block, and the others wait.

  Args:
    path: a file that is created if it is missing, and stays.
    doing: what the other process does, such as 'prepares toy'.
  """
  with path.open('a') as file:
    if not lock(file):
      print(f'waiting for another process that {doing}', file=sys.stderr)
      lock(file, wait=True)
    yield
