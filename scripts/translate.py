"""Translates lines with a run: N lines in, N lines out (N times K with --nbest=K).

echo 'A man rides a horse.' | python -m scripts.translate --workdir=runs/multi30k
"""

import math
import os
import pathlib
import sys

from absl import logging
from tqdm import tqdm

from transformer_jax.decoding.translate import Hypothesis, Translator
from transformer_jax.machine import flags, platform
from transformer_jax.machine.signals import Interruption
from transformer_jax.model.build import architecture
from transformer_jax.runs.run import Run
from transformer_jax.training import checkpoint

FLAGS = flags.Flags(__doc__)
WORKDIR = FLAGS.string('workdir', None, "The run's folder.", required=True)
INPUT = FLAGS.string('input', '-', "File to translate; '-' is stdin.")
NBEST = FLAGS.integer('nbest', 1, 'How many translations of each line.', at_least=1)
SCORES = FLAGS.boolean('scores', 'Put score and tab before each.')


def read(path: str) -> list[str]:
  """Lines at LF; bytes that are not UTF-8 become U+FFFD, so that no line is lost."""
  content = sys.stdin.buffer.read() if path == '-' else pathlib.Path(path).read_bytes()
  text = content.decode('utf-8-sig', errors='replace')
  lines = text.split('\n')
  if lines[-1] == '':
    lines.pop()
  # NUL ends a string for SentencePiece; CR is the rest of a CRLF.
  return [line.removesuffix('\r').replace('\x00', ' ').strip() for line in lines]


def write(found: list[list[Hypothesis]]) -> None:
  """Exactly --nbest lines for each, empty ones where there are fewer hypotheses."""
  sys.stdout.reconfigure(encoding='utf-8')
  for hypotheses in found:
    none = [Hypothesis('', -math.inf, [])] * (NBEST.value - len(hypotheses))
    for hypothesis in hypotheses[: NBEST.value] + none:
      score = f'{hypothesis.score:.4f}\t' if SCORES.value else ''
      print(score + hypothesis.text)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  logging.set_verbosity(logging.WARNING)
  interruption = Interruption()
  interruption.last_words = lambda: 'No line was written.'
  interruption.install()
  run = Run(pathlib.Path(WORKDIR.value))
  config = run.config()
  config.beam = max(config.beam, NBEST.value)
  vocabulary = run.vocabulary()
  steps = checkpoint.to_average(
    run.checkpoints, config.checkpoint_every_steps, config.average_last
  )
  lines = read(INPUT.value)
  platform.start(config.slices)
  _, shapes = architecture(config)
  params = checkpoint.average(run.checkpoints, steps, shapes)
  translator = Translator(config, vocabulary, params)
  bar = lambda items: tqdm(items, unit='batch', disable=not sys.stderr.isatty())
  found = translator.translate(lines, bar)
  with interruption.deferred():
    try:
      write(found)
      sys.stdout.flush()
    except BrokenPipeError:  # as of `| head`, which has what it wants
      os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
  for line in translator.cuts():
    print(line, file=sys.stderr)


if __name__ == '__main__':
  flags.run(main)
