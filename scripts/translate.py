"""Translates lines with a run: N lines in, N lines out (N times K with --nbest=K).

echo 'A man rides a horse.' | python -m scripts.translate --workdir=runs/multi30k
"""

from transformer_jax.machine.signals import Interruption

if __name__ == '__main__':  # what is imported below takes seconds
  Interruption().install()

import sys

from absl import logging
from tqdm import tqdm

from transformer_jax.decoding import pipe
from transformer_jax.machine import flags, streams
from transformer_jax.runs.flags import checkpoints

FLAGS = flags.Flags(__doc__)
WORKDIR = FLAGS.path('workdir', None, "The run's folder.", required=True)
INPUT = FLAGS.path('input', '-', "File to translate; '-' is stdin.")
NBEST = FLAGS.integer('nbest', 1, 'How many translations of each line.', at_least=1)
AVERAGE, STEP = checkpoints(FLAGS)
SCORES = FLAGS.boolean('scores', 'Put score and tab before each.')


def read() -> bytes:
  if str(INPUT.value) == '-':
    return streams.read_stdin()
  return INPUT.value.read_bytes()


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  logging.set_verbosity(logging.WARNING)
  interruption = Interruption()
  interruption.last_words = lambda: 'No line was written.'
  interruption.install()
  bar = lambda items: tqdm(items, unit='batch', disable=not sys.stderr.isatty())
  which = AVERAGE.value, STEP.value
  found, cuts = pipe.translate(WORKDIR.value, read, NBEST.value, bar, *which)
  with interruption.deferred():
    for line in pipe.output_lines(found, NBEST.value, SCORES.value):
      print(line)
    sys.stdout.flush()
  for line in cuts:
    print(line, file=sys.stderr)


if __name__ == '__main__':
  flags.run(main)
