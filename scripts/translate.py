"""Translates lines with a run: N lines in, N lines out.

  echo 'A man rides a horse.' | python -m scripts.translate --workdir=runs/multi30k
  python -m scripts.translate --workdir=runs/multi30k

At a terminal the command asks for a line and translates it at once, until Ctrl-D. In a
pipe it translates when input pauses. With --nbest=K above 1 it writes up to K lines for
each line. These start with the number of the line and a tab.
"""

import sys
from collections.abc import Iterator

from tqdm import tqdm

import transformer_jax
from transformer_jax.machine import cli
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs.flags import checkpoint_flags, dtype_flag
from transformer_jax.runs.run import Run

FLAGS = cli.Flags(__doc__)
WORKDIR = FLAGS.path('workdir', None, 'Folder of the run.', required=True)
INPUT = FLAGS.path('input', '-', "File to translate, plain or compressed; '-': stdin.")
NBEST = FLAGS.integer('nbest', 1, 'Number of translations of each line.', 1)
BEAM = FLAGS.integer(
  'beam', None, "Beam size, --nbest or more; default: the config's, or --nbest.", 1
)
ALPHA = FLAGS.float('alpha', None, "Length penalty; default: the config's.")
AVERAGE, STEP = checkpoint_flags(FLAGS)
DECODE_DTYPE = dtype_flag(FLAGS)
SCORES = FLAGS.bool(
  'scores', False, 'Write the score and a tab before each translation.'
)


def read_typed_lines() -> Iterator[bytes]:
  """Yields lines as a user types them at a terminal."""
  while True:
    print('> ', end='', file=sys.stderr, flush=True)
    line = sys.stdin.buffer.readline()
    if not line:
      print(file=sys.stderr)
      return
    yield line


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  if BEAM.value and BEAM.value < NBEST.value:
    raise UserError(f'--nbest={NBEST.value} needs --beam={NBEST.value} or more')
  interruption = Interruption()
  is_typed = str(INPUT.value) == '-' and sys.stdin.isatty()
  count = 0
  if is_typed:
    print(f'Loading {WORKDIR.value}; Ctrl-D ends.', file=sys.stderr)
  else:
    interruption.last_words = lambda: f'Lines translated: {count:,}.'
  beam = max(BEAM.value or Run(WORKDIR.value).config().beam, NBEST.value)
  flags = AVERAGE, STEP, ALPHA, DECODE_DTYPE
  options = {flag.name: flag.value for flag in flags}
  model = transformer_jax.load(WORKDIR.value, beam=beam, **options)
  from transformer_jax.decoding import translate  # JAX takes seconds

  if is_typed:
    batches = map(translate.split_lines, read_typed_lines())
  else:
    batches = translate.line_batches(INPUT.value)
  bar = lambda items: tqdm(items, unit='batch', disable=is_typed or None)
  with interruption:
    for lines in batches:
      interruption.leave_if_requested()  # during the batch before
      translations = model.translator.translate(lines, NBEST.value, bar)
      options = NBEST.value, SCORES.value, count + 1
      with interruption.deferred():
        for line in translate.output_lines(translations, *options):
          print(line)
        cli.check_output()
        count += len(lines)
  for line in model.warnings():
    print(line, file=sys.stderr)


if __name__ == '__main__':
  cli.run(main)
