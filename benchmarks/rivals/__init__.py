"""Other programs to time beside ours; each is imported only if it is asked for."""

import importlib.util
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

import jax
import ml_collections

from transformer_jax.machine import platform
from transformer_jax.machine.errors import UserError

TRANSFORMERS = "pip install torch==2.13.0, and then 'transformers>=5,<6'"
# What each needs to be installed.
NEEDS = {
  'huggingface': TRANSFORMERS,
  'ctranslate2': f"{TRANSFORMERS} 'ctranslate2>=4.8,<5'",
  'flax_wmt': 'a checkout of github.com/google/flax, --rivals=flax_wmt=FOLDER',
}
MODULES = {
  'huggingface': ('torch', 'transformers'),
  'ctranslate2': ('torch', 'transformers', 'ctranslate2'),
  'flax_wmt': (),
}

# What the rivals' models have, whatever the config says.
PLAIN = {'target_vocab_size': 0, 'activation': 'relu', 'P_drop_attention': 0.0}


def device() -> str:
  """PyTorch's name of our device, on which rivals without JAX run.

  Raises:
    UserError: they cannot run there: we have several accelerators, or another kind.
  """
  if jax.default_backend() == 'cpu':
    return 'cpu'
  if jax.default_backend() != 'gpu' or jax.device_count() > 1:
    raise UserError(
      f'PyTorch is timed on CPUs or on one GPU, not on {platform.describe_device()}: '
      'CUDA_VISIBLE_DEVICES=0 leaves one, JAX_PLATFORMS=cpu none'
    )
  return 'cuda'


def check(asked: Sequence[str], config: ml_collections.ConfigDict) -> None:
  """Tells on stderr which rivals are not installed, before anything is measured.

  Raises:
    UserError: a name is not in NEEDS, or a rival has no such model.
  """
  model = config.model
  for key, plain in PLAIN.items():
    if asked and model[key] != plain:
      raise UserError(
        f'--rivals: the other programs are not timed with model.{key}={model[key]}, '
        f'but with {plain!r} (--config.model.{key})'
      )
  for given in asked:
    name, _, checkout = given.partition('=')
    if name not in NEEDS:
      raise UserError(f'--rivals={given}: there are {", ".join(NEEDS)}')
    if name == 'flax_wmt':
      if model.d_k != model.d_v:
        raise UserError('--rivals: flax_wmt needs d_k = d_v')
      if not (pathlib.Path(checkout) / 'examples' / 'wmt' / 'train.py').is_file():
        print(f'{name} will be left out: it takes {NEEDS[name]}', file=sys.stderr)
    elif {model.h * model.d_k, model.h * model.d_v} != {model.d_model}:
      raise UserError(f'--rivals: {name} needs h d_k = h d_v = d_model')
    missing = [m for m in MODULES[name] if importlib.util.find_spec(m) is None]
    if missing:
      print(f'{name} will be left out: no {", ".join(missing)} here', file=sys.stderr)


def load(
  asked: Sequence[str], what: str, config: ml_collections.ConfigDict, threads: int
) -> tuple[dict[str, Any], dict[str, str]]:
  """Loads the rivals that are installed.

  Args:
    asked: names that passed check(); flax_wmt with its checkout, as flax_wmt=FOLDER.
    what: 'training' or 'decoding'.
    threads: how many threads each may use.

  Returns:
    The rivals by name, and for each one that is not there the reason.

  Raises:
    UserError: a rival cannot run on our device.
  """
  there: dict[str, Any] = {}
  absent: dict[str, str] = {}
  for given in asked:
    name, _, checkout = given.partition('=')
    make = _training if what == 'training' else _decoding
    try:
      found = make(name, config, threads, pathlib.Path(checkout))
      there |= found
      if not found:
        absent[name] = f'has no {what} to compare'
    except ImportError as error:
      absent[name] = f'{error}; it takes {NEEDS[name]}'
  return there, absent


def _training(
  name: str, config: ml_collections.ConfigDict, threads: int, checkout: pathlib.Path
) -> dict[str, Any]:
  if name == 'huggingface':
    from benchmarks.rivals import huggingface

    half = platform.training_dtype(config.dtype).name == 'bfloat16'
    return {name: huggingface.Training(config, threads, half, device())}
  if name == 'flax_wmt':
    from benchmarks.rivals import flax_wmt

    return {name: flax_wmt.Training(config, checkout)}
  return {}


def _decoding(
  name: str, config: ml_collections.ConfigDict, threads: int, _: pathlib.Path
) -> dict[str, Any]:
  if name == 'huggingface':
    from benchmarks.rivals import huggingface

    return huggingface.decoding(config, threads, device())
  if name == 'ctranslate2':
    from benchmarks.rivals import ctranslate2

    return ctranslate2.decoding(config, threads, device())
  return {}
