"""Measures the speed of a config in training or decoding, beside other programs.

  python -m scripts.benchmark --config=configs/multi30k.py:en-de --steps=60
  python -m scripts.benchmark --config=configs/base.py:en-de --rows=64 --length=32 \\
    --rivals=huggingface --output=FILE
  python -m scripts.benchmark --config=configs/base.py:en-de --what=decoding \\
    --rows=16,64 --rivals=huggingface,ctranslate2

Training takes the prepared corpus's sequence of batches, input included; with --rows
and --length, batches of one shape without padding, which need no corpus. Decoding is
from text to text, by an untrained model with forced lengths: of the lines of --text, or
else of random ids. docs/speed.md says how everything is measured. A table goes to
stdout, and JSON to --output, or else to stdout too.
"""

from absl import flags, logging

from benchmarks import rivals, run
from transformer_jax import config
from transformer_jax.data.corpus import DataFlags, config_flag
from transformer_jax.machine import cli, files

FLAGS = cli.Flags(__doc__)
CONFIG = config_flag(FLAGS, 'What to time.')
WHAT = flags.DEFINE_enum(
  'what', 'training', [*run.MEASUREMENTS], 'What to time.', FLAGS.values
)
STEPS = flags.DEFINE_integer(
  'steps', 60, 'Steps that are timed.', lower_bound=1, flag_values=FLAGS.values
)
REPEATS = flags.DEFINE_integer(
  'repeats',
  5,
  'Rounds, in each of which every program has its turn.',
  lower_bound=1,
  flag_values=FLAGS.values,
)
ROWS = flags.DEFINE_list(
  'rows',
  None,
  'Pairs in a training batch of one fixed shape; sentences in a decoded batch.',
  FLAGS.values,
)
LENGTH = flags.DEFINE_integer(
  'length',
  32,
  'Tokens of source and of target in a fixed shape.',
  lower_bound=1,
  flag_values=FLAGS.values,
)
SENTENCES = flags.DEFINE_integer(
  'sentences',
  64,
  'Random sentences to decode.',
  lower_bound=1,
  flag_values=FLAGS.values,
)
TEXT = FLAGS.path(
  'text', None, "File to decode instead, with the prepared corpus's vocabulary."
)
BEAMS = flags.DEFINE_list(
  'beams', ['4', '1'], 'Beams to decode with; 1 is greedy.', FLAGS.values
)
KERNELS = flags.DEFINE_bool(
  'kernels',
  False,
  'Also time training with --config.kernels=plain, to see what kernels for a GPU give.',
  FLAGS.values,
)
RIVALS = flags.DEFINE_list('rivals', [], ', '.join(rivals.NEEDS), FLAGS.values)
OUTPUT = FLAGS.path('output', None, 'File for the JSON.')
DATA = DataFlags(FLAGS)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  if WHAT.value == 'training':
    FLAGS.refuse('--what=training', SENTENCES, TEXT, BEAMS)
    if ROWS.value is None:
      FLAGS.refuse('batches of a corpus (--rows)', LENGTH)
  else:
    FLAGS.refuse('--what=decoding', STEPS, KERNELS)
    if TEXT.value is not None:
      FLAGS.refuse('--text', SENTENCES, LENGTH)
  logging.set_verbosity(logging.WARNING)
  for beam in cli.counts(BEAMS):
    config.check(CONFIG.value.to_dict() | {'beam': beam})
  options = run.Options(
    steps=STEPS.value,
    repeats=REPEATS.value,
    rows=None if ROWS.value is None else cli.counts(ROWS),
    length=LENGTH.value,
    sentences=SENTENCES.value,
    text=TEXT.value,
    beams=cli.counts(BEAMS),
    rivals=RIVALS.value,
    kernels=KERNELS.value,
  )
  if OUTPUT.value is not None:  # so that what is measured is not lost
    OUTPUT.value.parent.mkdir(parents=True, exist_ok=True)
  result = run.measure(WHAT.value, CONFIG.value, options, DATA.folders())
  for line in run.lines(result):
    print(line)
  text = files.as_json(result, indent=1)
  if OUTPUT.value is None:
    print(text)
  else:
    files.write(OUTPUT.value, text + '\n')


if __name__ == '__main__':
  cli.run(main)
