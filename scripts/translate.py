"""Translates lines with a run: N lines in, N lines out (N times K with --nbest=K).

echo 'A man rides a horse.' | python -m scripts.translate --workdir=runs/multi30k
"""

import os
import pathlib
import sys

from absl import logging
from tqdm import tqdm

from transformer_jax.decoding import pipe
from transformer_jax.machine import flags
from transformer_jax.machine.signals import Interruption

FLAGS = flags.Flags(__doc__)
WORKDIR = FLAGS.path('workdir', None, "The run's folder.", required=True)
INPUT = FLAGS.string('input', '-', "File to translate; '-' is stdin.")
NBEST = FLAGS.integer('nbest', 1, 'How many translations of each line.', at_least=1)
SCORES = FLAGS.boolean('scores', 'Put score and tab before each.')


def read() -> bytes:
  if INPUT.value == '-':
    return sys.stdin.buffer.read()
  return pathlib.Path(INPUT.value).read_bytes()


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  logging.set_verbosity(logging.WARNING)
  interruption = Interruption()
  interruption.last_words = lambda: 'No line was written.'
  interruption.install()
  bar = lambda items: tqdm(items, unit='batch', disable=not sys.stderr.isatty())
  found, cuts = pipe.translate(WORKDIR.value, read, NBEST.value, bar)
  with interruption.deferred():
    try:
      sys.stdout.reconfigure(encoding='utf-8')
      for line in pipe.output_lines(found, NBEST.value, SCORES.value):
        print(line)
      sys.stdout.flush()
    except BrokenPipeError:  # as of `| head`, which has what it wants
      os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
  for line in cuts:
    print(line, file=sys.stderr)


if __name__ == '__main__':
  flags.run(main)
