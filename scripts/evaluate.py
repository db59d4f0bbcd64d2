"""Scores a run: averages checkpoints, searches, and computes BLEU, chrF and perplexity.

  python -m scripts.evaluate --workdir=runs/quickstart --split=test
  python -m scripts.evaluate --workdir=runs/a --split=dev --against=runs/b
  python -m scripts.evaluate --workdir=RUN --source=FILE --references=FILE \\
    [--against=RUN]
  python -m scripts.evaluate --hypotheses=FILE --references=FILE --target_language=de \\
    [--against_hypotheses=FILE]

Translations and results are in WORKDIR/translations/, and the newest result in
WORKDIR/result.json. With --source the command scores that file and writes nothing.
--hypotheses are translations of any program. Files have detokenised text, a sentence a
line.

--against compares with another run, by approximate randomisation: with its result of
the same search, or else of its last step. With --source the other run translates the
file, too. --against_hypotheses compares two files.
"""

import sys

from transformer_jax.data import text
from transformer_jax.machine import cli
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs.flags import checkpoint_flags, data_dir, dtype_flag
from transformer_jax.runs.run import Run
from transformer_jax.scoring import translations

FLAGS = cli.Flags(__doc__)
WORKDIR = FLAGS.path('workdir', None, 'Folder of the run.')
SPLIT = FLAGS.enum('split', 'test', ['dev', 'test'], 'Split to score.')
AVERAGE, STEP = checkpoint_flags(FLAGS)
BEAM = FLAGS.integer('beam', None, "Beam size; default: the config's.", 1)
ALPHA = FLAGS.float('alpha', None, "Length penalty; default: the config's.")
DECODE_DTYPE = dtype_flag(FLAGS)
AGAINST = FLAGS.path('against', None, 'Other run to compare with.')
HYPOTHESES = FLAGS.path('hypotheses', None, 'Translations to score, in place of a run.')
SOURCE = FLAGS.path('source', None, 'File to translate and score, in place of a split.')
REFERENCES = FLAGS.path('references', None, 'References of --source or --hypotheses.')
TARGET_LANGUAGE = FLAGS.string(
  'target_language', None, 'Language code of --hypotheses, such as de.'
)
TOKENIZED = FLAGS.bool(
  'tokenized', False, 'Score the tokens of --hypotheses as they are.'
)
AGAINST_HYPOTHESES = FLAGS.path(
  'against_hypotheses', None, 'Other translations to compare with.'
)
DATA_DIR = data_dir(FLAGS)


def check_flags() -> None:
  """Raises UserError for flags that do not go together."""
  if (WORKDIR.value is None) == (HYPOTHESES.value is None):
    raise UserError('give --workdir, or --hypotheses, to say what to score')
  if WORKDIR.value:
    FLAGS.refuse('--workdir', TARGET_LANGUAGE, TOKENIZED, AGAINST_HYPOTHESES)
    if SOURCE.value:
      FLAGS.refuse('--source', SPLIT, DATA_DIR)
    if (SOURCE.value is None) != (REFERENCES.value is None):
      raise UserError('--source and --references go together')
    return
  run = AGAINST, AVERAGE, STEP, BEAM, ALPHA, DECODE_DTYPE, SPLIT, SOURCE, DATA_DIR
  FLAGS.refuse('--hypotheses', *run)
  if None in (REFERENCES.value, TARGET_LANGUAGE.value):
    raise UserError('--hypotheses needs --references and --target_language')


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  check_flags()
  interruption = Interruption()
  if HYPOTHESES.value:
    text.check_code(TARGET_LANGUAGE.value)
    files = HYPOTHESES.value, REFERENCES.value, AGAINST_HYPOTHESES.value
    how = TARGET_LANGUAGE.value, TOKENIZED.value
    lines = translations.score_files(*files, *how)
  else:
    print('loading JAX', file=sys.stderr, flush=True)
    import transformer_jax
    from transformer_jax.decoding import evaluate  # files do not need it
    from transformer_jax.runs.run import exported_steps

    flags = AVERAGE, STEP, BEAM, ALPHA, DECODE_DTYPE
    options = {flag.name: flag.value for flag in flags}
    loaded = transformer_jax.load(WORKDIR.value, **options)
    other = AGAINST.value
    if SOURCE.value:
      theirs = Run(other) if other else None
      if theirs and exported_steps(theirs.checkpoints):  # of one average alone
        options |= {AVERAGE.name: None, STEP.name: None}
      elif theirs and STEP.value == 'best' and not theirs.config().best_by:
        options |= {STEP.name: None}
      against = transformer_jax.load(other, **options) if other else None
      paths = SOURCE.value, REFERENCES.value
      lines = evaluate.evaluate_files(loaded, *paths, against)
    else:
      run, what = Run(other) if other else None, (DATA_DIR.value, SPLIT.value)
      lines = evaluate.evaluate_run(loaded, *what, run, interruption)
  # Scores of a run alone are in its result.json, so printing them may fail.
  is_written = not (HYPOTHESES.value or SOURCE.value or AGAINST.value)
  with interruption:
    for line in lines:
      (cli.say if is_written else print)(line)


if __name__ == '__main__':
  cli.run(main)
