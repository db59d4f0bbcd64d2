"""The flags of scripts that use a run's checkpoints."""

from absl import flags

from transformer_jax.machine.flags import Flags


def checkpoints(table: Flags) -> tuple[flags.FlagHolder, flags.FlagHolder]:
  """Defines --average and --step: which checkpoints to average; None if not given."""
  average = table.integer(
    'average',
    None,
    "Checkpoints to average; by default the config's number, or 1 with --step=best.",
    at_least=1,
  )
  step = table.integer_or(
    'step', 'best', 'Last step to average, the newest by default; best: best on dev.'
  )
  return average, step
