"""Says what a config is: cells, parameters, FLOPs; batch shapes of a prepared corpus.

python -m scripts.describe --config=configs/table3.py:B2 [--json]
python -m scripts.describe --config=configs/base.py:en-de --topology=v5e:2x4,h100:8

With --topology it compiles the training step and the search for accelerators that this
machine lacks, and says what they need and how long training takes at least
(docs/scale.md).
"""

import pathlib
import sys

import ml_collections
from absl import flags

from transformer_jax import config
from transformer_jax.data.batches import train_batches
from transformer_jax.data.corpus import (
  Corpus,
  check_settings,
  data_dir,
  rename_if_changed,
)
from transformer_jax.machine import cli, files
from transformer_jax.model import flops
from transformer_jax.scale import chips, estimate

FLAGS = cli.Flags(__doc__)
CONFIG = FLAGS.config('What to describe.', rename_if_changed)
JSON = flags.DEFINE_bool(
  'json', False, 'One JSON object instead of lines.', FLAGS.values
)
TOPOLOGY = flags.DEFINE_list(
  'topology',
  [],
  f'Accelerators to compile for, such as {", ".join(chips.EXAMPLES)}.',
  FLAGS.values,
)
LENGTH = flags.DEFINE_integer(
  'length',
  32,
  'Tokens of source and of target in the batch that is compiled.',
  lower_bound=1,
  flag_values=FLAGS.values,
)
DATA_DIR = data_dir(FLAGS)

CELLS = ('N', 'd_model', 'd_ff', 'h', 'd_k', 'd_v', 'P_drop', 'positions')


def describe(config: ml_collections.ConfigDict, corpus: pathlib.Path) -> dict:
  """Returns cells, parameters, flops_per_target_token and batch_shapes of a config.

  batch_shapes are [slices, rows, source tokens, target tokens] of each shape. They
  follow from the lengths of the corpus: null until it is prepared.
  """
  model = config.model.to_dict()
  return {
    'cells': {name: model[name] for name in CELLS}
    | {'epsilon_ls': config.epsilon_ls, 'train_steps': config.train_steps},
    'parameters': flops.parameters(model),
    'flops_per_target_token': flops.flops_per_target_token(model),
    'batch_shapes': _shapes(config, corpus),
  }


def _shapes(
  config: ml_collections.ConfigDict, corpus: pathlib.Path
) -> list[list[int]] | None:
  if not corpus.is_dir():
    return None
  check_settings(corpus, Corpus.of(config))
  batches = train_batches(config, corpus)
  return [[config.slices, *shape] for shape in batches.shapes]


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  if not TOPOLOGY.value:
    FLAGS.refuse('a config alone (--topology)', LENGTH)
  config.check(CONFIG.value.to_dict())
  described = describe(CONFIG.value, DATA_DIR.value / CONFIG.value.data.name)
  compiled = []
  for name in [chips.topology(name).name for name in TOPOLOGY.value]:
    print(f'compiling for {name}, which takes minutes', file=sys.stderr)
    compiled.append(estimate.estimate(CONFIG.value, name, LENGTH.value))
  if JSON.value:
    described |= {'topologies': compiled} if compiled else {}
    print(files.as_json(described))
    return
  cells = described['cells']
  width = max(map(len, cells))
  for name, value in cells.items():
    print(f'{name:{width}}  {value}')
  print(f'\n{described["parameters"]:,} parameters')
  if target := CONFIG.value.model.target_vocab_size:
    print(f'source embedding not tied: the target has {target:,} pieces of its own')
  gigaflops = described['flops_per_target_token'] / 1e9
  print(f'{gigaflops:.3f} GFLOP per target token ({flops.SENTENCE} tokens a side)')
  shapes = described['batch_shapes']
  if shapes is None:
    print('batch shapes: known once the corpus is prepared')
  else:
    print('batch shapes [slices, rows, source tokens, target tokens]:', *shapes)
  for result in compiled:
    print('', *estimate.lines(result), sep='\n')


if __name__ == '__main__':
  cli.run(main)
