"""Scores a run: average, beam search, both BLEUs, perplexity -> result.json.

  python -m scripts.evaluate --workdir=runs/quickstart --split=test

The translations and this result stay under WORKDIR/translations/, whatever was
evaluated before; WORKDIR/result.json is the newest.
"""

import importlib.metadata
import json
import pathlib
import platform
import subprocess
import sys

import ml_collections
from absl import app, flags, logging
from tqdm import tqdm

from scripts import prepare_data
from transformer_jax import batches, bleu, checkpoint, corpora, cost, parallel
from transformer_jax.run import Run
from transformer_jax.translate import Perplexity, Translator, architecture

WORKDIR = flags.DEFINE_string('workdir', None, "The run's folder.")
SPLIT = flags.DEFINE_enum('split', 'test', ['dev', 'test'], 'What to score on.')
AVERAGE = flags.DEFINE_integer(
  'average', None, "How many checkpoints to average; the config's by default."
)
STEP = flags.DEFINE_integer('step', None, 'The last of them; the newest by default.')
BEAM = flags.DEFINE_integer('beam', None, "Beam size; the config's by default.")
ALPHA = flags.DEFINE_float('alpha', None, "Length penalty; the config's by default.")
LOWERCASE = flags.DEFINE_bool('lowercase', False, 'Ignore case in BLEU, and say so.')
flags.mark_flags_as_required(['workdir'])

PACKAGES = ('jax', 'flax', 'optax', 'sentencepiece', 'sacrebleu', 'sacremoses')


def scores(
  config: ml_collections.ConfigDict, hypotheses: list[str], references: list[str]
) -> dict:
  """Both BLEUs. Tokens given are not tokenised again for the paper's."""
  sacre = bleu.sacre_bleu(hypotheses, references, LOWERCASE.value)
  if config.tokenized:
    paper = bleu.tokenized_bleu(hypotheses, references, LOWERCASE.value)
  else:
    language = config.target_language
    paper = bleu.paper_bleu(hypotheses, references, language, LOWERCASE.value)
  return {'sacrebleu': vars(sacre), 'paper_bleu': vars(paper)}


def training_so_far(run: Run, step: int) -> dict:
  """Target tokens and seconds of the training steps up to `step`."""
  records = [json.loads(line) for line in run.metrics.read_text().splitlines()]
  steps = [r for r in records if 'target_tokens' in r and r['step'] <= step]
  return {
    'target_tokens_seen': sum(r['target_tokens'] for r in steps),
    'wall_seconds': round(sum(r['seconds'] for r in steps), 1),
  }


def commit() -> str | None:
  """The checkout's commit, '+' behind it if files differ; None outside of one."""
  folder = pathlib.Path(__file__).parent
  git = lambda *words: subprocess.run(
    ['git', *words], cwd=folder, capture_output=True, text=True, check=True
  ).stdout.strip()
  try:
    changed = git('status', '--porcelain', '--untracked-files=no')
    return git('rev-parse', 'HEAD') + ('+' if changed else '')
  except (OSError, subprocess.CalledProcessError):
    return None


def evaluate(run: Run, config: ml_collections.ConfigDict) -> tuple[dict, list[str]]:
  """The result of --split, and its translations."""
  corpus = pathlib.Path(prepare_data.DATA_DIR.value) / config.corpus
  run.check_vocabulary(corpus)
  average = config.average_last if AVERAGE.value is None else AVERAGE.value
  steps = checkpoint.to_average(
    run.checkpoints, config.checkpoint_every_steps, average, STEP.value
  )
  if len(steps) < average:
    print(f'averaging {len(steps)} checkpoints: no more are there', file=sys.stderr)
  graph, shapes = architecture(config)
  params = parallel.everywhere(checkpoint.average(run.checkpoints, steps, shapes))
  sources, references = corpora.held_out(corpus, SPLIT.value)
  translator = Translator(config, run.vocabulary(), graph, params)
  bar = lambda items: tqdm(items, desc='translating', unit='batch', disable=None)
  found = translator.translate(sources, bar)
  hypotheses = [best[0].text for best in found]
  perplexity = Perplexity(config, graph, *batches.read_split(corpus, 'dev'))
  model = config.model.to_dict()
  del model['P_drop']
  result = {
    'task': config.task,
    'split': SPLIT.value,
    'step': steps[-1],
    'averaged': steps,
    'beam': config.beam,
    'alpha': config.alpha,
    **scores(config, hypotheses, references),
    'dev_perplexity': perplexity(params),
    'sources_cut': translator.cut_sources,
    'outputs_cut': translator.cut_outputs,
    'parameters': cost.parameters(**model),
    **training_so_far(run, steps[-1]),
    'device': parallel.describe_device(),
    'versions': {'python': platform.python_version()}
    | {name: importlib.metadata.version(name) for name in PACKAGES},
    'commit': commit(),
    'corpus': corpora.read_card(corpus)['corpus'],
    'config': json.loads(config.to_json_best_effort()),
  }
  return result, hypotheses


def main(_: list[str]) -> None:
  logging.set_verbosity(logging.WARNING)
  run = Run(pathlib.Path(WORKDIR.value))
  config = run.config()
  for key, flag in (('beam', BEAM), ('alpha', ALPHA)):
    if flag.value is not None:
      config[key] = flag.value
  parallel.start(config.slices)
  result, hypotheses = evaluate(run, config)
  translations = run.translations(result)
  translations.parent.mkdir(exist_ok=True)
  lines = ''.join(line + '\n' for line in hypotheses)
  translations.write_text(lines, encoding='utf-8')
  text = json.dumps(result, indent=1) + '\n'
  translations.with_suffix('.json').write_text(text)
  (run.workdir / 'result.json').write_text(text)
  for kind in ('sacrebleu', 'paper_bleu'):
    print(f'{kind} {result[kind]["score"]:.2f}  {result[kind]["signature"]}')
  print(f'dev perplexity {result["dev_perplexity"]:.3f} per piece')
  print(translations)


if __name__ == '__main__':
  app.run(main)
