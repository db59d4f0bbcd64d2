"""Other programs to time beside ours; each is imported only where --rivals names it."""

import importlib.util
import pathlib
from collections.abc import Sequence
from typing import Any

import jax
import ml_collections

from transformer_jax.machine import environment, platform
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
# What each can be timed in.
CAN = {
  'huggingface': ('training', 'decoding'),
  'ctranslate2': ('decoding',),
  'flax_wmt': ('training',),
}
# What the rivals' models have, whatever the config says.
PLAIN = {'target_vocab_size': 0, 'activation': 'relu', 'P_drop_attention': 0.0}


def check(names: Sequence[str], what: str, config: ml_collections.ConfigDict) -> None:
  """Checks that every rival can be timed, before anything is measured.

  Args:
    names: of rivals; flax_wmt with its checkout, as flax_wmt=FOLDER.
    what: 'training' or 'decoding'.

  Raises:
    UserError: a name is not in NEEDS, or the rival is not installed, has no such model,
      or does not do this.
  """
  model = config.model
  for key, plain in PLAIN.items():
    if names and model[key] != plain:
      raise UserError(
        f'--rivals: the other programs are not timed with model.{key}={model[key]}, '
        f'but with {plain!r} (--config.model.{key})'
      )
  for argument in names:
    name, _, checkout = argument.partition('=')
    if name not in NEEDS:
      raise UserError(f'--rivals={argument}: not one of {", ".join(NEEDS)}')
    if what not in CAN[name]:
      raise UserError(f'--rivals: {name} is not timed in {what} (--what)')
    missing = [m for m in MODULES[name] if importlib.util.find_spec(m) is None]
    train = pathlib.Path(checkout) / 'examples' / 'wmt' / 'train.py'
    if missing or (name == 'flax_wmt' and not train.is_file()):
      raise UserError(f'--rivals: {name} is missing: it takes {NEEDS[name]}')
    if name == 'flax_wmt' and model.d_k != model.d_v:
      raise UserError('--rivals: flax_wmt needs d_k = d_v')
    if name != 'flax_wmt' and {model.h * model.d_k, model.h * model.d_v} != {
      model.d_model
    }:
      raise UserError(f'--rivals: {name} needs h d_k = h d_v = d_model')


def device() -> str:
  """PyTorch's name of our device, on which rivals without JAX run.

  Raises:
    UserError: they cannot run on it: we have several accelerators, or another kind.
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
  """The rivals that passed check(), by name; each uses as many threads as we do.

  Raises:
    UserError: a rival cannot run on our device.
  """
  threads = len(environment.cores())
  loaded: dict[str, Any] = {}
  for argument in names:
    name, _, checkout = argument.partition('=')
    module = importlib.import_module(f'benchmarks.rivals.{name}')
    if name == 'flax_wmt':
      loaded[name] = module.Training(config, pathlib.Path(checkout))
    elif what == 'training':
      half = platform.training_dtype(config.dtype).name == 'bfloat16'
      loaded[name] = module.Training(config, threads, half, device())
    else:
      loaded |= module.decoding(config, threads, device())
  return loaded
