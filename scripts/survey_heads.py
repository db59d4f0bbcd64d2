"""Finds what each head attends to over a corpus, and what each head is worth.

  python -m scripts.survey_heads --workdir=runs/multi30k --prune

The command prints tables, and draws heads.svg and pruning.svg. Heads are named
LAYER.HEAD, both from 1. --prune measures dev perplexity once for each head, with that
head's output set to zero.
"""

import pathlib

import transformer_jax
from transformer_jax.analysis import survey
from transformer_jax.analysis.maps import RunAttention
from transformer_jax.machine import cli
from transformer_jax.runs.flags import checkpoint_flags, data_dir

FLAGS = cli.Flags(__doc__)
WORKDIR = FLAGS.path('workdir', None, 'Folder of the run.', required=True)
SPLIT = FLAGS.enum('split', 'dev', ['dev', 'test'], 'Split to survey.')
SENTENCES = FLAGS.integer('sentences', 100, 'Number of sentence pairs to survey.', 1)
PRUNE = FLAGS.bool('prune', False, 'Measure dev perplexity without each head.')
OUTPUT = FLAGS.path('output', None, 'Folder of pictures; default: attention/RUN.')
AVERAGE, STEP = checkpoint_flags(FLAGS)
DATA_DIR = data_dir(FLAGS)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  from transformer_jax.analysis import pictures  # here, since matplotlib is an extra

  run = transformer_jax.load(WORKDIR.value, average=AVERAGE.value, step=STEP.value)
  attention = RunAttention(run)
  corpus = run.run.open_corpus(DATA_DIR.value / run.config.data.name)
  split = corpus.split(SPLIT.value)
  pairs = survey.sample_pairs(split, SENTENCES.value, attention.longest)
  measures = survey.survey(attention, pairs)
  about = f'Means over {len(pairs)} sentences of {SPLIT.value}.'
  print(survey.survey_table(measures, about))
  folder = OUTPUT.value or pathlib.Path('attention', WORKDIR.value.resolve().name)
  folder.mkdir(parents=True, exist_ok=True)
  pictures.save(pictures.draw_survey(measures), folder / 'heads')
  if PRUNE.value:
    pruning = survey.prune(run, corpus.split('dev'))
    print(f'\n{survey.pruning_table(pruning)}')
    pictures.save(pictures.draw_pruning(pruning), folder / 'pruning')


if __name__ == '__main__':
  cli.run(main)
