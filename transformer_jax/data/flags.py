"""The flags of scripts that read or prepare corpora."""

import pathlib

from absl import flags

from transformer_jax.machine.cli import Flags


def data_dir(table: Flags) -> flags.FlagHolder[pathlib.Path]:
  """Defines --data_dir."""
  return table.path('data_dir', 'data', 'Where prepared corpora live.')


class DataFlags:
  """--data_dir, --raw_dir and --tfds_data_dir: all that preparing.prepare needs."""

  def __init__(self, table: Flags):
    self._holders = (
      data_dir(table),
      table.path(
        'raw_dir',
        None,
        "Folder with what to prepare from: WMT14's archives, Parquet, treebanks, or "
        'files of text, one sentence a line, alone or in zip files. Without it, WMT14 '
        'comes from tensorflow-datasets.',
      ),
      table.path(
        'tfds_data_dir', None, 'Where tensorflow-datasets has or puts its data sets.'
      ),
    )

  def folders(self) -> tuple[pathlib.Path, pathlib.Path | None, pathlib.Path | None]:
    """The folders, in the order in which preparing.prepare takes them."""
    return tuple(holder.value for holder in self._holders)

  def command_line(self) -> list[str]:
    """Those that have a value, for the command line of another script."""
    given = [holder for holder in self._holders if holder.value]
    return [f'--{holder.name}={holder.value}' for holder in given]
