"""Speed of a config: training, decoding, or input; with other programs beside it.

  python -m scripts.benchmark --config=configs/multi30k.py:en-de --steps=60
  python -m scripts.benchmark --config=configs/base.py:en-de --rows=64 --length=32 \\
    --rivals=huggingface,flax_wmt=FOLDER --output=FILE
  python -m scripts.benchmark --config=configs/base.py:en-de --what=decoding \\
    --rows=16,64 --rivals=huggingface,ctranslate2
  python -m scripts.benchmark --config=configs/base.py:en-fr --what=input --steps=1000

Training is by the prepared corpus's sequence of batches, input included; with --rows
and --length, by batches of one shape without padding, which need no corpus. Decoding is
from text to text, by an untrained model with forced lengths: of the lines of --text,
else of random ids. docs/speed.md tells how everything is measured. A table goes to
stdout, and JSON to --output, without it to stdout too.
"""

import json
import os
import pathlib
import sys
import tempfile

import jax
import ml_collections
from absl import app, logging

from transformer_jax.benchmark import (
  decoding,
  fixed,
  input,
  machine,
  rivals,
  start,
  table,
  training,
)
from transformer_jax.data import preparing, vocabulary
from transformer_jax.data.corpus import train_batches
from transformer_jax.data.flags import DataFlags
from transformer_jax.machine import files, flags, platform, processor

FLAGS = flags.Flags(__doc__)
CONFIG = FLAGS.config('What to time.')
WHAT = FLAGS.choice(
  'what',
  'training',
  ['training', 'decoding', 'input', 'start'],
  'What to time; start is what training calls to see how long it takes.',
)
STEPS = FLAGS.integer('steps', 60, 'Steps that are timed.', at_least=1)
REPEATS = FLAGS.integer(
  'repeats', 5, 'Rounds, in each of which every program has its turn.', at_least=1
)
ROWS = FLAGS.items(
  'rows', None, 'Pairs in a batch of one fixed shape; sentences in those decoded.'
)
LENGTH = FLAGS.integer('length', 32, 'Tokens of a side of a fixed shape.', at_least=1)
SENTENCES = FLAGS.integer('sentences', 64, 'Random sentences to decode.', at_least=1)
TEXT = FLAGS.string(
  'text', None, "File to decode instead, with the prepared corpus's vocabulary."
)
BEAMS = FLAGS.items('beams', ['4', '1'], 'Beams to decode with; 1 is greedy.')
RIVALS = FLAGS.items('rivals', [], ', '.join(rivals.NEEDS))
OUTPUT = FLAGS.string('output', None, 'File for the JSON.')
DATA = DataFlags(FLAGS)


def corpus(
  config: ml_collections.ConfigDict, folder: pathlib.Path
) -> tuple[ml_collections.ConfigDict, pathlib.Path]:
  """What to train on, and the config that fits it; one shape is made in `folder`."""
  if ROWS.value is None:
    return config, preparing.prepare(config, *DATA.folders())
  if len(ROWS.value) > 1:
    raise app.UsageError('--rows: training takes one number')
  (rows,), length = flags.counts(ROWS), LENGTH.value
  return fixed.corpus(config, rows, length, folder), folder


def time_training(config: ml_collections.ConfigDict) -> dict:
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    config, prepared = corpus(config, folder)
    # Before this process takes the devices to itself.
    command = [sys.executable, '-m', 'scripts.benchmark', *sys.argv[1:], '--what=start']
    started = start.measure(command, folder / 'compiled')
    jax.config.update('jax_compilation_cache_dir', str(folder / 'compiled'))
    platform.start(config.slices)
    threads = len(processor.cores())
    there, absent = rivals.load(RIVALS.value, 'training', config, threads)
    each = max(1, STEPS.value // REPEATS.value)
    found = training.measure(config, prepared, there, each, REPEATS.value)
  return found | {'start': started, 'absent': absent}


def time_start(config: ml_collections.ConfigDict) -> None:
  with tempfile.TemporaryDirectory() as folder:
    start.take_steps(*corpus(config, pathlib.Path(folder)))


def time_decoding(config: ml_collections.ConfigDict) -> dict:
  beams = flags.counts(BEAMS)
  rows = [16, 64] if ROWS.value is None else flags.counts(ROWS)
  words: vocabulary.Vocabulary | decoding.Numbers = decoding.Numbers()
  size = config.model.vocab_size
  texts = decoding.sentences(SENTENCES.value, LENGTH.value, size)
  if TEXT.value is not None:
    folder = preparing.prepare(config, *DATA.folders())
    words = vocabulary.Vocabulary(folder / 'vocabulary.model')
    lines = pathlib.Path(TEXT.value).read_text(encoding='utf-8').split('\n')
    texts = [line for line in lines if line.strip()]
    if not texts:
      raise app.UsageError(f'--text={TEXT.value}: no sentence is in it')
  platform.start(config.slices)
  there, absent = rivals.load(RIVALS.value, 'decoding', config, len(processor.cores()))
  found = decoding.measure(
    config,
    words,
    texts,
    there,
    beams=beams,
    rows=rows,
    rounds=REPEATS.value,
  )
  return found | {'text': TEXT.value, 'absent': absent}


def time_input(config: ml_collections.ConfigDict) -> dict:
  prepared = preparing.prepare(config, *DATA.folders())
  make = lambda: train_batches(config, prepared)
  return {'steps': STEPS.value} | input.measure(make, STEPS.value)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  logging.set_verbosity(logging.WARNING)
  config, what = CONFIG.value, WHAT.value
  if RIVALS.value:  # or JAX would take most of a GPU's memory, which they need
    os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  if what == 'start':
    time_start(config)
    return
  measures = {'training': time_training, 'decoding': time_decoding}
  found = measures[what](config) if what in measures else time_input(config)
  result = {
    'what': what,
    'config': config.corpus,
    'model': config.model.to_dict(),
    **found,
    'machine': machine.describe(),
  }
  for line in table.lines(result):
    print(line)
  text = json.dumps(result, indent=1)
  if OUTPUT.value is None:
    print(text)
  else:
    files.write(pathlib.Path(OUTPUT.value), text + '\n')


if __name__ == '__main__':
  flags.run(main)
