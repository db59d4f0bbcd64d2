"""Measures the speed of a config in training or decoding, beside other programs.

  python -m scripts.benchmark --config=configs/multi30k.py:en-de --steps=60
  python -m scripts.benchmark --config=configs/base.py:en-de --rows=64 --length=32 \\
    --rivals=huggingface --output=FILE
  python -m scripts.benchmark --config=configs/base.py:en-de --what=decoding \\
    --rows=16,64 --rivals=huggingface,ctranslate2

In training the command times updates on the prepared corpus's batches, reading
included. With --rows and --length it takes batches of one shape without padding, which
need no corpus. In decoding it times text to text with an untrained model and forced
lengths, on the lines of --text or on random ids. It prints a table, and writes JSON to
--output or to stdout. docs/speed.md says how everything is measured.
"""

from benchmarks import rivals, run
from benchmarks.tries import TRIES
from transformer_jax import config
from transformer_jax.machine import cli, files
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.flags import config_flag, data_flags

FLAGS = cli.Flags(__doc__)
CONFIG = config_flag(FLAGS, 'Config to measure.')
WHAT = FLAGS.enum('what', 'training', [*run.MEASUREMENTS], 'Work to time.')
STEPS = FLAGS.integer('steps', 60, 'Number of updates to time.', 1)
REPEATS = FLAGS.integer(
  'repeats', 5, 'Number of rounds. Every program works once in each.', 1
)
ROWS = FLAGS.list(
  'rows',
  None,
  'Pairs in a batch of training, or sentences in a batch of decoding.',
)
LENGTH = FLAGS.integer(
  'length', 32, 'Tokens of each random sentence; in training, with --rows.', 1
)
SENTENCES = FLAGS.integer('sentences', 64, 'Number of random sentences to decode.', 1)
TEXT = FLAGS.path(
  'text',
  None,
  "File to decode, with the prepared corpus's vocabulary; default: random ids.",
)
BEAMS = FLAGS.list('beams', ['4', '1'], 'Beam sizes to decode with; 1 is greedy.')
KERNELS = FLAGS.bool(
  'kernels', False, 'Time training with --config.kernels=plain, too.'
)
TRY = FLAGS.list('try', [], f'Changes to training to time: {", ".join(TRIES)}.')
RIVALS = FLAGS.list('rivals', [], f'Other programs to time: {", ".join(rivals.NEEDS)}.')
AGAINST = FLAGS.path('against', None, 'JSON file of an earlier commit to compare with.')
OUTPUT = FLAGS.path('output', None, 'JSON file to write.')
DATA = data_flags(FLAGS)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  if WHAT.value == 'training':
    FLAGS.refuse('--what=training', SENTENCES, TEXT, BEAMS)
    if ROWS.value is None:
      FLAGS.refuse('batches of a corpus: it needs --rows', LENGTH)
  else:
    FLAGS.refuse('--what=decoding', STEPS, KERNELS, TRY)
    if TEXT.value is not None:
      FLAGS.refuse('--text', SENTENCES, LENGTH)
  for name in TRY.value:
    if name not in TRIES:
      raise UserError(f'--try={name}: not one of {", ".join(TRIES)}')
  for beam in cli.integers(BEAMS):
    config.check(CONFIG.value.to_dict() | {'beam': beam})
  options = run.Options(
    steps=STEPS.value,
    repeats=REPEATS.value,
    rows=None if ROWS.value is None else cli.integers(ROWS),
    length=LENGTH.value,
    sentences=SENTENCES.value,
    text=TEXT.value,
    beams=cli.integers(BEAMS),
    rivals=RIVALS.value,
    kernels=KERNELS.value,
    tries=TRY.value,
  )
  earlier = None
  if AGAINST.value is not None:
    earlier = run.read_stored(AGAINST.value, WHAT.value, CONFIG.value)
  if OUTPUT.value is not None:  # so that what is measured is not lost
    OUTPUT.value.parent.mkdir(parents=True, exist_ok=True)
  result = run.measure(WHAT.value, CONFIG.value, options, [flag.value for flag in DATA])
  for line in run.lines(result):
    print(line)
  for line in run.comparison(result, earlier) if earlier else ():
    print(line)
  text = files.as_json(result, indent=1)
  if OUTPUT.value is None:
    print(text)
  else:
    files.write(OUTPUT.value, text + '\n')


if __name__ == '__main__':
  cli.run(main)
