"""Translates lines with a run: N lines in, N lines out (N times K with --nbest=K).

echo 'A man rides a horse.' | python -m scripts.translate --workdir=runs/multi30k
"""

import math
import os
import pathlib
import sys

from absl import flags, logging
from tqdm import tqdm

from transformer_jax.decoding.translate import Hypothesis, Translator
from transformer_jax.machine import errors, platform
from transformer_jax.machine.signals import Interruption
from transformer_jax.model.build import architecture
from transformer_jax.runs.run import Run
from transformer_jax.training import checkpoint

WORKDIR = flags.DEFINE_string('workdir', None, "The run's folder.")
INPUT = flags.DEFINE_string('input', '-', "File to translate; '-' is stdin.")
NBEST = flags.DEFINE_integer(
  'nbest', 1, 'How many translations of each line.', lower_bound=1
)
SCORES = flags.DEFINE_bool('scores', False, 'Put score and tab before each.')
flags.mark_flags_as_required(['workdir'])


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


def main(_: list[str]) -> None:
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
  errors.run(main)
