"""Flags of several scripts, as a command line sets them."""

import pathlib

import pytest
from absl import flags as absl

from transformer_jax.machine.cli import Flags
from transformer_jax.runs import flags


def test_checkpoints_dtypes_and_folders():
  table = Flags('')
  holders = *flags.checkpoint_flags(table), flags.dtype_flag(table)
  holders += flags.data_flags(table)
  names = 'average', 'step', 'decode_dtype', 'data_dir', 'raw_dir', 'tfds_data_dir'
  assert [holder.name for holder in holders] == [*names]
  table.parse(['x'])
  none = [None] * 3
  assert [x.value for x in holders] == [*none, pathlib.Path('data'), None, None]
  words = ['--average=2', '--step=20', '--decode_dtype=bfloat16', '--raw_dir=r']
  table.parse(['x', *words])
  assert [x.value for x in holders[:3]] == [2, 20, 'bfloat16']
  assert holders[4].value == pathlib.Path('r')
  table.parse(['x', '--step=best'])
  assert holders[1].value == 'best'
  for word in '--average=0', '--step=-', '--step=1.5', '--decode_dtype=float64':
    with pytest.raises(absl.Error, match=word):
      table.parse(['x', word])
