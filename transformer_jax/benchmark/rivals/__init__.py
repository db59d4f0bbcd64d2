"""Other programs to be timed beside us; each is imported only where it is asked for."""

import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import ml_collections

from transformer_jax.machine import platform

TRANSFORMERS = "pip install torch==2.13.0, and then 'transformers>=5,<6'"
# What each takes, as one would type it.
NEEDS = {
  'huggingface': TRANSFORMERS,
  'ctranslate2': f"{TRANSFORMERS} 'ctranslate2>=4.8,<5'",
  'flax_wmt': 'a checkout of github.com/google/flax, --rivals=flax_wmt=FOLDER',
}


def device() -> str:
  """Where rivals without JAX run, as PyTorch calls it: where we do.

  Raises:
    ValueError: they cannot: we have several accelerators, or another kind.
  """
  if jax.default_backend() == 'cpu':
    return 'cpu'
  if jax.default_backend() != 'gpu' or jax.device_count() > 1:
    raise ValueError(
      f'PyTorch is timed on CPUs or on one GPU, not on {platform.describe_device()}: '
      'CUDA_VISIBLE_DEVICES=0 leaves one, JAX_PLATFORMS=cpu none'
    )
  return 'cuda'


def load(
  asked: Sequence[str], what: str, config: ml_collections.ConfigDict, threads: int
) -> tuple[dict[str, Any], dict[str, str]]:
  """Rivals by column, as many as are there, and for the others what they lack.

  Args:
    asked: names of NEEDS; flax_wmt has its checkout behind it, flax_wmt=FOLDER.
    what: 'training' or 'decoding'.
    threads: of each.

  Raises:
    ValueError: a name is none of these, or a rival has no model of the config's sizes,
      or cannot run where we do.
  """
  there: dict[str, Any] = {}
  absent: dict[str, str] = {}
  for given in asked:
    name, _, checkout = given.partition('=')
    if name not in NEEDS:
      raise ValueError(f'--rivals={given}: there are {", ".join(NEEDS)}')
    make = _training if what == 'training' else _decoding
    try:
      found = make(name, config, threads, pathlib.Path(checkout))
      there |= found
      if not found:
        absent[name] = f'is not there to be compared in {what}'
    except ImportError as error:
      absent[name] = f'{error}; it takes {NEEDS[name]}'
  return there, absent


def _training(
  name: str, config: ml_collections.ConfigDict, threads: int, checkout: pathlib.Path
) -> dict[str, Any]:
  if name == 'huggingface':
    from transformer_jax.benchmark.rivals import huggingface

    half = platform.training_dtype(config.dtype).name == 'bfloat16'
    return {name: huggingface.Training(config, threads, half, device())}
  if name == 'flax_wmt':
    from transformer_jax.benchmark.rivals import flax_wmt

    return {name: flax_wmt.Training(config, checkout)}
  return {}


def _decoding(
  name: str, config: ml_collections.ConfigDict, threads: int, _: pathlib.Path
) -> dict[str, Any]:
  if name == 'huggingface':
    from transformer_jax.benchmark.rivals import huggingface

    return huggingface.decoding(config, threads, device())
  if name == 'ctranslate2':
    from transformer_jax.benchmark.rivals import ctranslate2

    return ctranslate2.decoding(config, threads, device())
  return {}
