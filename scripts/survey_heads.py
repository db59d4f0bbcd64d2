"""Finds the heads that do something, over a corpus, and what each is worth.

  python -m scripts.survey_heads --workdir=runs/multi30k --prune
  python -m scripts.survey_heads --workdir=RUN --query=its --key=dog

Prints tables and draws heads.svg and pruning.svg. A head is LAYER.HEAD, from 1. --prune
measures dev perplexity once for each head, with that head's output set to zero.
--query and --key find the heads by which one word looks at another in the whole split.
"""

from transformer_jax.machine.signals import Interruption

if __name__ == '__main__':  # so that a signal also ends the slow imports below
  Interruption().install()

from absl import app, logging
from tqdm import tqdm

from transformer_jax.analysis import (
  attention_heads,
  attention_maps,
  attention_pictures,
  head_survey,
)
from transformer_jax.data import token_files
from transformer_jax.data.corpus import folder_of
from transformer_jax.data.flags import data_dir
from transformer_jax.decoding.restored import Restored
from transformer_jax.machine import cli
from transformer_jax.report import page
from transformer_jax.runs import checkpoints

FLAGS = cli.Flags(__doc__)
WORKDIR = FLAGS.path('workdir', None, "The run's folder.", required=True)
SPLIT = FLAGS.choice('split', 'dev', ['dev', 'test'], 'Whose sentences to look at.')
SENTENCES = FLAGS.integer(
  'sentences', 100, 'How many of them, drawn; all with --query.', at_least=1
)
PRUNE = FLAGS.boolean('prune', 'Measure what each head is worth.')
QUERY = FLAGS.string('query', None, 'A word that looks ...')
KEY = FLAGS.string('key', None, '... and one that it looks at.')
OUTPUT = FLAGS.path('output', None, 'Folder to write; attention in the run by default.')
AVERAGE, STEP = checkpoints.define_flags(FLAGS)
DATA_DIR = data_dir(FLAGS)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  logging.set_verbosity(logging.WARNING)
  if (QUERY.value is None) != (KEY.value is None):
    raise app.UsageError('--query and --key go together')
  Interruption().install()
  restored = Restored(WORKDIR.value, AVERAGE.value, STEP.value)
  watcher = attention_maps.Watcher(restored)
  corpus = folder_of(restored.config.corpus, DATA_DIR.value)
  restored.run.check_vocabulary(corpus)
  sides = token_files.read_split(corpus, SPLIT.value)
  folder = OUTPUT.value or WORKDIR.value / 'attention'
  folder.mkdir(parents=True, exist_ok=True)
  if QUERY.value is None:
    training = token_files.read_split(corpus, 'train')
    pairs = head_survey.sample_pairs(sides, SENTENCES.value, watcher.longest)
    found = head_survey.survey(watcher, pairs, training)
    about = f'Means over {len(pairs)} sentences of {SPLIT.value}.'
    blocks = attention_heads.survey_blocks(found, about)
    figure = attention_heads.survey_figure(found)
    attention_pictures.save(figure, folder / 'heads')
  else:
    words = QUERY.value, KEY.value
    every = head_survey.sample_pairs(sides, len(sides[0]), watcher.longest)
    means = head_survey.between(watcher, every, *words)
    blocks = attention_heads.pair_blocks(*means, *words)
  if PRUNE.value:
    dev = token_files.read_split(corpus, 'dev')
    bar = lambda items: tqdm(items, desc='pruning', unit='head', disable=None)
    pruning = head_survey.prune(restored, dev, bar)
    blocks += attention_heads.pruning_blocks(*pruning)
    figure = attention_heads.pruning_figure(*pruning)
    attention_pictures.save(figure, folder / 'pruning')
  print(page.markdown(blocks), end='')


if __name__ == '__main__':
  cli.run(main)
