"""Scores a run: average, beam search, both BLEUs, perplexity -> result.json.

  python -m scripts.evaluate --workdir=runs/quickstart --split=test
  python -m scripts.evaluate --workdir=runs/a --split=dev --against=runs/b
  python -m scripts.evaluate --hypotheses=FILE --references=FILE --target_language=de \\
    [--against_hypotheses=FILE]

Translations and results stand in WORKDIR/translations/, and the newest result in
WORKDIR/result.json. `--against` compares a run with another's result of the same
search, or else with its newest, and `--against_hypotheses` a file with another, by
approximate randomisation. Files are detokenised text, a sentence a line.
"""

import sys

from transformer_jax.data import cleaning
from transformer_jax.data.corpus import data_dir
from transformer_jax.machine import cli
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs.run import Run, checkpoint_flags
from transformer_jax.scoring import bleu

FLAGS = cli.Flags(__doc__)
WORKDIR = FLAGS.path('workdir', None, 'Folder of the run.')
SPLIT = FLAGS.enum('split', 'test', ['dev', 'test'], 'Split to score.')
AVERAGE, STEP = checkpoint_flags(FLAGS)
BEAM = FLAGS.integer('beam', None, "Beam size; default: the config's.", 1)
ALPHA = FLAGS.float('alpha', None, "Length penalty; default: the config's.")
AGAINST = FLAGS.path('against', None, 'Other run to compare with.')
HYPOTHESES = FLAGS.path('hypotheses', None, 'Translations to score, in place of a run.')
REFERENCES = FLAGS.path('references', None, 'References of --hypotheses.')
TARGET_LANGUAGE = FLAGS.string(
  'target_language', None, 'Language code of the files, such as de.'
)
TOKENIZED = FLAGS.bool('tokenized', False, 'Score the tokens of the files as they are.')
AGAINST_HYPOTHESES = FLAGS.path(
  'against_hypotheses', None, 'Other translations to compare with.'
)
DATA_DIR = data_dir(FLAGS)


def check_flags() -> None:
  """Raises UserError for flags that do not go together."""
  if (WORKDIR.value is None) == (HYPOTHESES.value is None):
    raise UserError('give --workdir, or --hypotheses, to say what to score')
  if WORKDIR.value:
    files = REFERENCES, TARGET_LANGUAGE, TOKENIZED, AGAINST_HYPOTHESES
    FLAGS.refuse('--workdir', *files)
    return
  run = AGAINST, AVERAGE, STEP, BEAM, ALPHA, SPLIT, DATA_DIR
  FLAGS.refuse('--hypotheses', *run)
  if None in (REFERENCES.value, TARGET_LANGUAGE.value):
    raise UserError('--hypotheses needs --references and --target_language')


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  check_flags()
  interruption = Interruption()
  if HYPOTHESES.value:
    cleaning.check_code(TARGET_LANGUAGE.value)
    files = HYPOTHESES.value, REFERENCES.value, AGAINST_HYPOTHESES.value
    how = TARGET_LANGUAGE.value, TOKENIZED.value
    lines = bleu.score_files(*files, *how)
  else:
    print('loading JAX', file=sys.stderr, flush=True)
    import transformer_jax
    from transformer_jax.decoding.evaluate import evaluate_run  # files do not need it

    which = {'average': AVERAGE.value, 'step': STEP.value}
    search = {'beam': BEAM.value, 'alpha': ALPHA.value}
    loaded = transformer_jax.load(WORKDIR.value, **which, **search)
    against = Run(AGAINST.value) if AGAINST.value else None
    lines = evaluate_run(loaded, DATA_DIR.value, SPLIT.value, against, interruption)
  with interruption:
    for line in lines:
      print(line)


if __name__ == '__main__':
  cli.run(main)
