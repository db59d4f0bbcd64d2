"""Ends a program with one line for a mistake of the user, and a traceback for a bug.

A mistake of the user is a UserError, an error of absl about a flag, of ml_collections
about a config, or of the system about a file that it names. So are a full disk, too
little memory, and a module that is missing because its extra is not installed.
"""

import contextlib
import errno
import sys
from collections.abc import Iterator

from absl import flags

# Modules that the core does not need -> the extra of pyproject.toml that brings them.
EXTRAS = {
  'ctranslate2': 'export',
  'markdown_it': 'report',
  'matplotlib': 'report',
  'pyarrow': 'wmt',
  'submitit': 'slurm',
  'tensorflow_datasets': 'wmt',
}


class UserError(Exception):
  """A mistake of the user; the message says where it is and what to do."""


@contextlib.contextmanager
def report_user_errors() -> Iterator[None]:
  """Prints an error for the user to stderr, and ends the program with exit code 1."""
  try:
    yield
  except Exception as error:
    if (message := _user_message(error)) is None:
      raise
    sys.exit(' '.join(line.strip() for line in message.splitlines()))


def _user_message(error: BaseException | None) -> str | None:
  """Returns what to tell the user, or None if the error is a bug."""
  if isinstance(error, UserError):
    return str(error)
  if isinstance(error, flags.Error):
    while error is not None and 'parsing config file' in str(
      error
    ):  # added to what the file has raised
      error = error.__context__
    users = isinstance(error, UserError | ValueError | flags.Error)
    return str(error) if users else None
  if isinstance(error, ModuleNotFoundError):
    module = (error.name or '').partition('.')[0]
    if module not in EXTRAS:
      return None
    return (
      f"{module} is not installed: pip install -e '.[{EXTRAS[module]}]' in the "
      'checkout brings it, and make install all extras'
    )
  if isinstance(error, MemoryError) or str(error).startswith('RESOURCE_EXHAUSTED'):
    return (
      f'out of memory ({error}): a smaller model, batch or beam takes less, and in '
      'training more slices of the same batch (--config.slices), in a search fewer '
      'positions at once (--config.decode_tokens in training, else decode_tokens in '
      "the run's config.json)"
    )
  if isinstance(error, OSError):
    of_disk = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
    of_config = 'Configuration is not available' in str(error)
    return str(error) if error.filename is not None or of_disk or of_config else None
  return None
