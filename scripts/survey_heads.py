"""Finds the heads that do something, over a corpus, and what each is worth.

  python -m scripts.survey_heads --workdir=runs/multi30k --prune
  python -m scripts.survey_heads --workdir=RUN --query=its --key=dog

Prints tables and draws heads.svg and pruning.svg. A head is LAYER.HEAD, from 1. --prune
measures dev perplexity once for each head, with that head's output set to zero.
--query and --key find the heads by which one word looks at another in the whole split.
"""

import transformer_jax
from transformer_jax.analysis import survey
from transformer_jax.analysis.maps import RunAttention
from transformer_jax.data import batches
from transformer_jax.data.corpus import data_dir
from transformer_jax.machine import cli
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.run import checkpoint_flags

FLAGS = cli.Flags(__doc__)
WORKDIR = FLAGS.path('workdir', None, "The run's folder.", required=True)
SPLIT = FLAGS.enum('split', 'dev', ['dev', 'test'], 'Whose sentences to look at.')
SENTENCES = FLAGS.integer('sentences', 100, 'How many; with --query all.', 1)
PRUNE = FLAGS.bool('prune', False, 'Measure what each head is worth.')
QUERY = FLAGS.string('query', None, 'The word that looks at --key: finds its heads.')
KEY = FLAGS.string('key', None, 'The word that --query looks at.')
OUTPUT = FLAGS.path('output', None, 'Folder to write; attention in the run by default.')
AVERAGE, STEP = checkpoint_flags(FLAGS)
DATA_DIR = data_dir(FLAGS)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  from transformer_jax.analysis import figures  # here, since matplotlib is an extra

  if (QUERY.value is None) != (KEY.value is None):
    raise UserError('--query and --key go together')
  if QUERY.value is not None:
    FLAGS.refuse('--query', SENTENCES)
  run = transformer_jax.load(WORKDIR.value, average=AVERAGE.value, step=STEP.value)
  attention = RunAttention(run)
  corpus = DATA_DIR.value / run.config.data.name
  run.run.check_corpus(corpus)
  split = batches.read_split(corpus, SPLIT.value)
  folder = OUTPUT.value or WORKDIR.value / 'attention'
  folder.mkdir(parents=True, exist_ok=True)
  if QUERY.value is None:
    pairs = survey.sample_pairs(split, SENTENCES.value, attention.longest)
    surveyed = survey.survey(attention, pairs)
    about = f'Means over {len(pairs)} sentences of {SPLIT.value}.'
    print(survey.survey_table(surveyed, about))
    figures.save(figures.draw_survey(surveyed), folder / 'heads')
  else:
    words = QUERY.value, KEY.value
    pairs = survey.sample_pairs(split, len(split[0]), attention.longest)
    print(survey.between_table(*survey.mean_weights(attention, pairs, *words), *words))
  if PRUNE.value:
    dev = batches.read_split(corpus, 'dev')
    pruning = survey.prune(run, dev)
    print(f'\n{survey.pruning_table(pruning)}')
    figures.save(figures.draw_pruning(pruning), folder / 'pruning')


if __name__ == '__main__':
  cli.run(main)
