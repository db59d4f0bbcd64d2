"""Translates lines with a run: N lines in, N lines out (N times K with --nbest=K).

  echo 'A man rides a horse.' | python -m scripts.translate --workdir=runs/multi30k
  python -m scripts.translate --workdir=runs/multi30k

At a terminal it asks for a line and translates it at once; Ctrl-D ends it. With
--nbest=K above 1 each line starts with the number of its sentence and a tab.
"""

import sys
from collections.abc import Iterator

from absl import flags, logging
from tqdm import tqdm

import transformer_jax
from transformer_jax.decoding import pipe
from transformer_jax.machine import cli
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs import checkpoints
from transformer_jax.runs.run import Run

FLAGS = cli.Flags(__doc__)
WORKDIR = FLAGS.path('workdir', None, "The run's folder.", required=True)
INPUT = FLAGS.path('input', '-', "File to translate, perhaps packed; '-' is stdin.")
NBEST = flags.DEFINE_integer(
  'nbest', 1, 'Translations of each line.', lower_bound=1, flag_values=FLAGS.values
)
BEAM = flags.DEFINE_integer(
  'beam',
  None,
  "The config's, and NBEST at least.",
  lower_bound=1,
  flag_values=FLAGS.values,
)
ALPHA = flags.DEFINE_float(
  'alpha', None, "Length penalty; the config's by default.", flag_values=FLAGS.values
)
AVERAGE, STEP = checkpoints.define_flags(FLAGS)
SCORES = flags.DEFINE_bool(
  'scores', False, 'Put its score and a tab before each.', FLAGS.values
)


def typed() -> Iterator[bytes]:
  """Lines as they are typed at a terminal."""
  while True:
    print('> ', end='', file=sys.stderr, flush=True)
    line = sys.stdin.buffer.readline()
    if not line:
      print(file=sys.stderr)
      return
    yield line


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  logging.set_verbosity(logging.WARNING)
  interruption = Interruption()
  is_stdin = str(INPUT.value) == '-'
  is_typed = is_stdin and sys.stdin.isatty()
  first = 1
  if is_typed:
    print(f'Loading {WORKDIR.value}; Ctrl-D ends.', file=sys.stderr)
  else:
    interruption.last_words = lambda: pipe.written(first - 1)
  beam = max(BEAM.value or Run(WORKDIR.value).config().beam, NBEST.value)
  which = {'average': AVERAGE.value, 'step': STEP.value}
  model = transformer_jax.load(WORKDIR.value, beam=beam, alpha=ALPHA.value, **which)
  bar = lambda items: tqdm(items, unit='batch', disable=is_typed or None)
  if is_typed:
    model.warm_up(NBEST.value)  # compiles before somebody waits for it
  with interruption:
    for text in typed() if is_typed else [pipe.read(INPUT.value)]:
      for lines in pipe.parts(pipe.split_lines(text)):
        interruption.leave_if_requested()  # during the part before
        found = model.hypotheses(lines, bar, nbest=NBEST.value)
        with interruption.deferred():
          for line in pipe.output_lines(found, NBEST.value, SCORES.value, first):
            print(line)
          sys.stdout.flush()
          first += len(lines)
  for line in model.cuts():
    print(line, file=sys.stderr)


if __name__ == '__main__':
  cli.run(main)
