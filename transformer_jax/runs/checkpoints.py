"""Lists the checkpoints of a run, and chooses those to average; imports no JAX."""

import os
import pathlib
import re

from absl import flags

from transformer_jax.machine import files
from transformer_jax.machine.cli import Flags

MANIFEST = 'manifest.json'  # is written last: a checkpoint that has one is finished
ARRAYS = 'parameters.safetensors'  # in params/, where an export wrote the checkpoint


def finished_steps(checkpoints: pathlib.Path) -> list[int]:
  """Returns the steps that have a finished checkpoint, ascending."""
  is_finished = lambda step: (checkpoints / str(step) / MANIFEST).is_file()
  return [*filter(is_finished, folder_steps(checkpoints))]


def folder_steps(checkpoints: pathlib.Path) -> list[int]:
  """Returns the steps that folders are named by, ascending, finished or not."""
  names = os.listdir(checkpoints) if checkpoints.exists() else []
  return sorted(int(name) for name in names if re.fullmatch('[1-9][0-9]*', name))


def exported_steps(checkpoints: pathlib.Path) -> list[int]:
  """Returns the steps whose average an exported run holds; [] for a trained run."""
  newest = checkpoints / str(max(finished_steps(checkpoints), default=0))
  if not (newest / 'params' / ARRAYS).is_file():
    return []
  return files.read_json_object(newest / MANIFEST)['averaged']


def averaged_steps(last: int, every: int, count: int) -> list[int]:
  """Returns the `count` steps to average up to `last`; fewer in a short run.

  All but `last` are multiples of `every`, the steps between two checkpoints. So an
  average spans as many steps in a run that was stopped and resumed as in any other.
  """
  before = (last - 1) // every  # multiples of `every`
  return [n * every for n in range(max(1, before - count + 2), before + 1)] + [last]


class _StepParser(flags.ArgumentParser):
  def parse(self, argument: str | int) -> int | str:
    if argument == 'best':
      return argument
    if not str(argument).removeprefix('-').isdecimal():
      raise ValueError('a whole number, or best')
    return int(argument)


def define_flags(table: Flags) -> tuple[flags.FlagHolder, flags.FlagHolder]:
  """Defines --average and --step: which checkpoints to average; None by default."""
  average = table.integer(
    'average',
    None,
    "Checkpoints to average; by default the config's number, or 1 with --step=best.",
    1,
  )
  about = 'Last step to average, the newest by default; best: best on dev.'
  return average, table.define(flags.DEFINE, _StepParser(), 'step', None, about)
