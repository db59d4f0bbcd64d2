"""Says what a config is, without data: cells, parameters, FLOPs, batch shapes.

python -m scripts.describe --config=configs/table3.py:B2 [--json]
"""

import json
import pathlib

import ml_collections
from absl import flags
from ml_collections import config_flags

from scripts import prepare_data
from transformer_jax.data import card
from transformer_jax.data.corpus import asked, train_batches
from transformer_jax.machine import errors
from transformer_jax.model import flops

CELLS = ('N', 'd_model', 'd_ff', 'h', 'd_k', 'd_v', 'P_drop', 'positions')


def describe(config: ml_collections.ConfigDict) -> dict:
  """cells, parameters, flops_per_target_token and batch_shapes of a config.

  batch_shapes are [slices, rows, length] of each shape. They follow from the lengths
  of the corpus: null until it is prepared.
  """
  model = config.model.to_dict()
  sizes = {name: model[name] for name in model if name != 'P_drop'}
  return {
    'cells': {name: model[name] for name in CELLS}
    | {'epsilon_ls': config.epsilon_ls, 'train_steps': config.train_steps},
    'parameters': flops.parameters(**sizes),
    'flops_per_target_token': flops.flops_per_target_token(model),
    'batch_shapes': _shapes(config),
  }


def _shapes(config: ml_collections.ConfigDict) -> list[list[int]] | None:
  corpus = pathlib.Path(prepare_data.DATA_DIR.value) / config.corpus
  if not corpus.is_dir():
    return None
  card.check_asked(corpus, asked(config))
  made = train_batches(config, corpus)
  return [[config.slices, *shape] for shape in made.shapes]


def main(_: list[str]) -> None:
  described = describe(CONFIG.value)
  if JSON.value:
    print(json.dumps(described))
    return
  cells = described['cells']
  width = max(map(len, cells))
  for name, value in cells.items():
    print(f'{name:{width}}  {value}')
  print(f'\n{described["parameters"]:,} parameters')
  gigaflops = described['flops_per_target_token'] / 1e9
  print(f'{gigaflops:.3f} GFLOP per target token ({flops.SENTENCE} tokens a side)')
  shapes = described['batch_shapes']
  if shapes is None:
    print('batch shapes: known once the corpus is prepared')
  else:
    print('batch shapes [slices, rows, length]:', *shapes)


if __name__ == '__main__':
  CONFIG = config_flags.DEFINE_config_file('config', None, 'What to describe.')
  JSON = flags.DEFINE_bool('json', False, 'One JSON object instead of lines.')
  flags.mark_flags_as_required(['config'])
  flags.adopt_module_key_flags(prepare_data)
  errors.run(main)
