"""The flags of scripts that use a run's checkpoints."""

from absl import flags

from transformer_jax.machine.flags import Flags


def checkpoints(table: Flags) -> tuple[flags.FlagHolder, flags.FlagHolder]:
  """Defines --average and --step: which checkpoints to average; None if not given."""
  average = table.integer(
    'average',
    None,
    "Checkpoints to average; the config's number by default.",
    at_least=1,
  )
  step = table.integer_or(
    'step', 'best', 'The last of them, the newest by default; or best: on dev, alone.'
  )
  return average, step
