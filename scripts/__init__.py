"""The commands: `python -m scripts.NAME`, run in the checkout."""

import os
import sys

if sys.argv[0] == '-m':  # Python has not run NAME yet, whose imports take seconds
  from transformer_jax.machine import signals

  signals.Interruption().__enter__()
  if os.environ.get(signals.PARENT) == str(os.getppid()):
    signals.end_with_parent()
