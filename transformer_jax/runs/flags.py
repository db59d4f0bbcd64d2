"""Flags that several commands share: a config, folders of text, and checkpoints."""

import pathlib
from typing import Any, get_args

import ml_collections
from absl import flags

from transformer_jax.config import KEYS, DType, check
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


class _StepParser(flags.ArgumentParser[int | str]):
  def parse(self, argument: str | int) -> int | str:
    if argument == 'best':
      return argument
    if not str(argument).removeprefix('-').isdecimal():
      raise ValueError('a whole number, or best')
    return int(argument)


def checkpoint_flags(
  table: Flags,
) -> tuple[flags.FlagHolder[Any], flags.FlagHolder[Any]]:
  """Defines --average and --step: which checkpoints to average; None by default."""
  about = (
    "Number of checkpoints to average; default: the config's, or 1 with --step=best."
  )
  average = table.integer('average', None, about, 1)
  about = (
    'Last checkpoint to average, by its step; default: the newest; best: best on dev.'
  )
  return average, table.define(flags.DEFINE, _StepParser(), 'step', None, about)


def dtype_flag(table: Flags) -> flags.FlagHolder[Any]:
  """Defines --decode_dtype, the dtype of a search; None is the config's."""
  values = get_args(DType)
  about = (
    "Dtype of search; in float32 no result depends on the batch; default: the config's."
  )
  return table.enum('decode_dtype', None, [*values], about)
