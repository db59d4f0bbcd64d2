"""Other programs to time beside ours; each is imported only where --rivals names it."""

import importlib.util
from collections.abc import Sequence
from typing import Any

import jax
import ml_collections

from transformer_jax.machine import platform
from transformer_jax.machine.errors import UserError

# The packages that each program needs.
NEEDS = {
  'huggingface': ('torch', 'transformers'),
  'huggingface.compiled': ('torch', 'transformers'),
  'ctranslate2': ('torch', 'transformers', 'ctranslate2'),
}
INSTALL = (
  "pip install torch==2.13.0, and then 'transformers>=5,<6' 'ctranslate2>=4.8,<5'"
)
# What the other programs' models have, whatever the config says.
PLAIN = {'target_vocab_size': 0, 'P_drop_attention': 0.0, 'positions': 'sinusoid'}


def check(names: Sequence[str], what: str, config: ml_collections.ConfigDict) -> None:
  """Checks that every program can be timed, before anything is measured.

  Args:
    what: 'training' or 'decoding'.

  Raises:
    UserError: a name is not in NEEDS, or the program is not installed, has no such
      model, or does not do this.
  """
  model = config.model
  for key, plain in PLAIN.items():
    if names and model[key] != plain:
      raise UserError(
        f'--rivals: the other programs are not timed with model.{key}={model[key]}, '
        f'but with {plain!r} (--config.model.{key})'
      )
  if names and {model.h * model.d_k, model.h * model.d_v} != {model.d_model}:
    raise UserError('--rivals: the other programs need h d_k = h d_v = d_model')
  for name in names:
    if name not in NEEDS:
      raise UserError(f'--rivals={name}: not one of {", ".join(NEEDS)}')
    if (name, what) == ('ctranslate2', 'training'):
      raise UserError('--rivals: ctranslate2 cannot train (--what)')
    if (name, what) == ('huggingface.compiled', 'decoding'):
      raise UserError('--rivals: huggingface.compiled is timed in training (--what)')
    if not all(map(importlib.util.find_spec, NEEDS[name])):
      raise UserError(f'--rivals: {name} is not installed: {INSTALL}')


def device() -> str:
  """Returns PyTorch's name of our device.

  Raises:
    UserError: PyTorch cannot run on it: we have several accelerators, or another kind.
  """
  if jax.default_backend() == 'cpu':
    return 'cpu'
  if jax.default_backend() != 'gpu' or jax.device_count() > 1:
    raise UserError(
      f'PyTorch is timed on CPUs or on one GPU, not on {platform.describe_device()}: '
      'CUDA_VISIBLE_DEVICES=0 leaves one, JAX_PLATFORMS=cpu none'
    )
  return 'cuda'


def load(
  names: Sequence[str], what: str, config: ml_collections.ConfigDict
) -> dict[str, Any]:
  """Returns the programs of these names; each uses as many threads as we do.

  Raises:
    UserError: a program cannot run on our device.
  """
  threads = platform.cores()
  loaded: dict[str, Any] = {}
  for name in names:
    program, _, form = name.partition('.')
    module = importlib.import_module(f'benchmarks.rivals.{program}')
    if what == 'training':
      half = platform.training_dtype(config.dtype).name == 'bfloat16'
      loaded[name] = module.Training(config, threads, half, device(), form)
    else:
      loaded |= module.decoding(config, threads, device())
  return loaded
