"""One checkpoint, as a training writes it."""

import pathlib
import sys

from jaxtyping import PyTree

from transformer_jax.training.checkpoint import Writer


def save(folder: pathlib.Path, step: int, params: PyTree, opt_state: PyTree) -> None:
  """Writes a checkpoint, deletes none, and returns when it is on the disk."""
  with Writer(folder, every=1, keep=sys.maxsize) as writer:
    writer.save(step, params, opt_state)
