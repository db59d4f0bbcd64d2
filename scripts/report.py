"""Sets runs beside each other: a table of their results, and sample translations.

python -m scripts.report runs/quickstart runs/other
"""

import json
import pathlib
import sys

from absl import app, flags

from transformer_jax import corpora
from transformer_jax.run import Run

DATA_DIR = flags.DEFINE_string('data_dir', 'data', 'Where prepared corpora live.')
SAMPLES = flags.DEFINE_integer('samples', 5, 'Translations to show of each run.')

HEADER = (
  '| run | split | step | averaged | sacreBLEU | paper BLEU | dev PPL | parameters |'
  ' target tokens | minutes |'
)


def row(run: Run, result: dict) -> str:
  cells = [
    run.workdir.name,
    result['split'],
    f'{result["step"]:,}',
    len(result['averaged']),
    f'{result["sacrebleu"]["score"]:.2f}',
    f'{result["paper_bleu"]["score"]:.2f}',
    f'{result["dev_perplexity"]:.3f}',
    f'{result["parameters"] / 1e6:.1f} M',
    f'{result["target_tokens_seen"] / 1e6:.1f} M',
    f'{result["wall_seconds"] / 60:.1f}',
  ]
  return '| ' + ' | '.join(map(str, cells)) + ' |'


def samples(run: Run, result: dict) -> list[str]:
  """Evenly spaced sentences of the split: source, translation, reference."""
  corpus = pathlib.Path(DATA_DIR.value) / result['config']['corpus']
  sources, references = corpora.held_out(corpus, result['split'])
  hypotheses = run.translations(result).read_text().split('\n')
  step = max(1, len(sources) // max(1, SAMPLES.value))
  lines = []
  for i in range(0, len(sources), step)[: SAMPLES.value]:
    lines += [
      f'- source: {sources[i]}',
      f'  - translation: {hypotheses[i]}',
      f'  - reference: {references[i]}',
    ]
  return lines


def main(arguments: list[str]) -> None:
  found = []
  for name in arguments[1:]:
    path = pathlib.Path(name) / 'result.json'
    try:
      found.append((Run(path.parent), json.loads(path.read_text())))
    except (OSError, ValueError) as error:
      print(f'{path} is left out: {error}', file=sys.stderr)
  if not found:
    raise app.UsageError('no run with a result.json: evaluate one first')
  print(HEADER, '|---' * HEADER.count(' | ') + '|---|', sep='\n')
  for run, result in found:
    print(row(run, result))
  for run, result in found:
    print(f'\nSample translations of {run.workdir.name}, {result["split"]}:\n')
    print('\n'.join(samples(run, result)))


if __name__ == '__main__':
  app.run(main)
