"""Describes a config and its costs: keys, parameters, FLOPs, memory, hours.

python -m scripts.describe --config=configs/table3.py:B2 [--json]
python -m scripts.describe --config=configs/base.py:en-de --time
python -m scripts.describe --config=configs/base.py:en-de --topology=v5e:2x4,h100:8

--time compiles the training step on this machine, times three updates and prints the
hours of the whole run. It takes the most common shape of a prepared corpus's batches.
--topology compiles the step and the search for devices that this machine lacks, and
says whether they fit (docs/reproduce.md). Its sentences, and those of --time without a
corpus, have --length tokens.
"""

import collections
import sys
from typing import Any

import ml_collections

from transformer_jax import config as configs
from transformer_jax.data.batches import Batches, train_batches
from transformer_jax.data.corpus import Corpus
from transformer_jax.machine import cli, files, platform
from transformer_jax.model import flops
from transformer_jax.runs.flags import config_flag, data_dir
from transformer_jax.scale import compile, topologies

FLAGS = cli.Flags(__doc__)
CONFIG = config_flag(FLAGS, 'Config to describe.')
JSON = FLAGS.bool('json', False, 'Print one JSON object.')
TIME = FLAGS.bool('time', False, 'Time three updates on this machine.')
TOPOLOGY = FLAGS.list(
  'topology', [], f'Devices to compile for, such as {", ".join(topologies.EXAMPLES)}.'
)
LENGTH = FLAGS.integer(
  'length', 32, 'Length of each sentence in tokens, with --time or --topology.', 1
)
DATA_DIR = data_dir(FLAGS)


def describe(
  config: ml_collections.ConfigDict, batches: Batches | None
) -> dict[str, Any]:
  """Returns a config's cells, parameters, FLOPs and batch shapes, for --json.

  A shape is [slices, rows, source tokens, target tokens]. There are none (null) until
  the corpus is prepared.
  """
  model = config.model.to_dict()
  shapes = batches and [[config.slices, *shape] for shape in batches.shapes]
  return {
    'cells': configs.cells(config.to_dict()),
    'parameters': flops.parameters(model),
    'flops_per_target_token': flops.flops_per_target_token(model),
    'batch_shapes': shapes,
  }


def time_here(
  config: ml_collections.ConfigDict, batches: Batches | None
) -> dict[str, Any]:
  """Returns device, shape, the seconds of an update and the hours of all updates.

  The shape is the most common of the first 100 batches. Without a corpus it is full.
  """
  platform.start(config.slices)
  shape = compile.full_shape(config, LENGTH.value)
  if batches is not None:
    shapes = (batches.batch(step).shape for step in range(100))
    shape = collections.Counter(shapes).most_common(1)[0][0]
  seconds = compile.seconds_here(config, shape)
  return {
    'device': platform.describe_device(),
    'shape': [config.slices, *shape],
    'seconds': seconds,
    'hours': config.train_steps * seconds / 3600,
  }


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  if not (TIME.value or TOPOLOGY.value):
    FLAGS.refuse('a config alone: it needs --time or --topology', LENGTH)
  targets = list(map(topologies.topology, TOPOLOGY.value))
  folder, batches = DATA_DIR.value / CONFIG.value.data.name, None
  if folder.is_dir():
    corpus = Corpus.open(folder)
    corpus.check_settings(CONFIG.value)
    batches = train_batches(CONFIG.value, corpus.split('train'))
  description = describe(CONFIG.value, batches)
  if TIME.value:
    description['time'] = time_here(CONFIG.value, batches)
  for target in targets:
    print(f'compiling for {target.name}, which takes minutes', file=sys.stderr)
    result = compile.compile_in_subprocess(CONFIG.value, target, LENGTH.value)
    description.setdefault('topologies', []).append(result)
  if JSON.value:
    print(files.as_json(description))
  else:
    show(description)


def show(description: dict[str, Any]) -> None:
  """Prints what main() has put together."""
  print(*configs.describe(CONFIG.value.to_dict()), sep='\n')
  print(f'\n{description["parameters"]:,} parameters')
  if target := CONFIG.value.model.target_vocab_size:
    print(f'source embedding not tied: the target vocabulary has {target:,} pieces')
  gigaflops = description['flops_per_target_token'] / 1e9
  print(f'{gigaflops:.3f} GFLOP per target token ({flops.SENTENCE} tokens a side)')
  shapes = description['batch_shapes']
  if shapes is None:
    print('batch shapes: not known before the corpus is prepared')
  else:
    print('batch shapes [slices, rows, source tokens, target tokens]:', *shapes)
  if 'time' in description:
    timing, steps = description['time'], f'{CONFIG.value.train_steps:,} updates'
    print(f'\n{timing["device"]}, a batch of {timing["shape"]}:')
    print(f'  an update {timing["seconds"]:.3g} s; {steps} {timing["hours"]:.3g} hours')
  for result in description.get('topologies', []):
    print('', *compile.lines(result), sep='\n')


if __name__ == '__main__':
  cli.run(main)
