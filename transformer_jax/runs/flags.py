"""Flags that several commands share: a config, and the folders of text."""

import pathlib
from typing import Any

import ml_collections
from absl import flags

from transformer_jax.config import KEYS, check
from transformer_jax.data.corpus import rename_if_changed
from transformer_jax.machine.cli import Flags


def config_flag(
  table: Flags, about: str, required: bool = True
) -> flags.FlagHolder[ml_collections.ConfigDict]:
  """Defines --config and the flags of its keys, which may rename the corpus."""

  def resolve(config: ml_collections.ConfigDict, *plain_and_overridden: Any) -> None:
    check(config.to_dict())
    rename_if_changed(config, *plain_and_overridden)

  return table.config(about, KEYS, resolve, required)


def data_dir(table: Flags) -> flags.FlagHolder[pathlib.Path]:
  """Defines --data_dir."""
  return table.path('data_dir', 'data', 'Folder of prepared corpora.')


def data_flags(table: Flags) -> tuple[flags.FlagHolder[Any], ...]:
  """Defines --data_dir, --raw_dir, --tfds_data_dir: what prepare.ensure() takes."""
  return (
    data_dir(table),
    table.path(
      'raw_dir',
      None,
      "Folder of raw text: a sentence a line, treebanks, or WMT14's Parquet files. "
      'Default: tensorflow-datasets downloads WMT14.',
    ),
    table.path('tfds_data_dir', None, 'Folder of tensorflow-datasets.'),
  )
