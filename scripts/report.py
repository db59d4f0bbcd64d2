"""Sets runs beside each other and beside the paper's Tables 1, 2 and 3.

  python -m scripts.report runs/table3.* results/table1.json --html=report.html

Runs are folders, or result files whose translations (.txt) and curves (.metrics.jsonl)
stand beside them under the same name; Table 1 is a file that scripts.table1 wrote.
Prints Markdown; what is left out is named.
"""

import pathlib
import sys
from collections.abc import Iterable, Iterator

from absl import app, flags, logging
from tqdm import tqdm

from scripts.prepare_data import DATA_DIR
from transformer_jax.machine import errors
from transformer_jax.report import (
  curves,
  flops,
  page,
  pictures,
  placing,
  plain,
  recipe,
  results,
  scorers,
  table1,
  tables,
)
from transformer_jax.report.blocks import Block, Bullets, Heading, Paragraph, Picture
from transformer_jax.report.results import Scored
from transformer_jax.scoring.significance import paired_bootstrap

SAMPLES = flags.DEFINE_integer(
  'samples', 5, 'Translations to show of each run.', lower_bound=0
)
BASE = flags.DEFINE_multi_string(
  'base', [], 'A run that is a base model, where the runs alone leave that open.'
)
TFLOPS = flags.DEFINE_float(
  'sustained_tflops', None, "Of one device, for the paper's estimate of FLOPs."
)
HTML = flags.DEFINE_string('html', None, 'Writes one self-contained page here.')
MARKDOWN = flags.DEFINE_string(
  'markdown', None, 'Writes Markdown here, its pictures beside it, and prints none.'
)
flags.declare_key_flag('data_dir')


def paired_p(system: Scored, baseline: Scored) -> float | None:
  """Of no difference in BLEU; None unless text and both translations are there."""
  held_out = system.held_out(pathlib.Path(DATA_DIR.value))
  ours, theirs = system.translations, baseline.translations
  if held_out is None or ours is None or theirs is None:
    return None
  if not len(ours) == len(theirs) == len(held_out[1]):
    return None  # unequal() says so
  config = system.config
  return paired_bootstrap(
    ours,
    theirs,
    held_out[1],
    config['target_language'],
    lowercase=results.is_lowercase(system.result),
    tokenized=config['tokenized'],
    kinds=('paper_bleu',),
  )['paper_bleu'].p


def unequal(found: list[Scored]) -> Iterator[str]:
  """Whose translations are not one for each sentence."""
  for scored in found:
    held_out = scored.held_out(pathlib.Path(DATA_DIR.value))
    if held_out is not None and scored.translations is not None:
      lines, sentences = len(scored.translations), len(held_out[1])
      if lines != sentences:
        yield f'{scored.text}: {lines} translations of {sentences} sentences'


def of_runs(found: list[Scored], left_out: list[str]) -> list[Block]:
  try:
    placed, unplaced = placing.place(found, [pathlib.Path(b) for b in BASE.value])
  except ValueError as error:
    raise app.UsageError(str(error)) from error
  left_out = [*left_out, *unplaced, *unequal(found)]
  made = plain.results(found)
  with tqdm(desc='comparing', unit='pair', disable=None) as bar:

    def compare(system: Scored, baseline: Scored) -> float | None:
      bar.update()
      return paired_p(system, baseline)

    for runs in placed:
      made += tables.comparable(runs, TFLOPS.value, compare)
    made += recipe.recipe(found, compare)
  if placed:
    made += flops.papers_own() + tables.inconsistencies()
  if left_out:
    made += [Paragraph('Left out:'), Bullets(left_out)]
  made += curves.curves(found)
  data_dir = pathlib.Path(DATA_DIR.value)
  shown, marks = zip(*usual(found), strict=True)
  made += scorers.scorers(shown, marks, data_dir)
  for scored in shown:
    made += plain.samples(scored, data_dir, SAMPLES.value)
  return made


def usual(found: list[Scored]) -> Iterable[tuple[Scored, str]]:
  """Of each run one result of its newest step, as its config decodes, and its mark."""
  best: dict[str, tuple] = {}
  for scored, mark in zip(found, plain.marks(found), strict=True):
    rank = scored.result['step'], recipe.as_configured(scored)
    if scored.run not in best or rank >= best[scored.run][0]:
      best[scored.run] = rank, scored, mark
  return [(scored, mark) for _, scored, mark in best.values()]


def write(made: list[Block]) -> None:
  title = 'Attention Is All You Need: runs'
  if HTML.value:
    text = page.page(title, [Heading(1, title), *made])
    pathlib.Path(HTML.value).write_text(text, encoding='utf-8')
  if not MARKDOWN.value:
    print(page.markdown(made), end='')
    return
  path = pathlib.Path(MARKDOWN.value)
  for block in made:
    if isinstance(block, Picture):
      pictures.write(block, path.with_suffix(f'.{block.name}.svg'))
  text = page.markdown([Heading(1, title), *made], path.stem)
  path.write_text(text, encoding='utf-8')


def main(arguments: list[str]) -> None:
  logging.set_verbosity(logging.WARNING)
  for output in filter(None, (HTML.value, MARKDOWN.value)):
    pathlib.Path(output).parent.mkdir(parents=True, exist_ok=True)
  found, left_out, measured = [], [], []
  for path in map(pathlib.Path, arguments[1:]):
    try:
      layers = table1.read(path)
    except ValueError as error:
      left_out.append(str(error))
      continue
    if layers:
      measured.append((path.stem, layers))
      continue
    some, wrong = results.read(str(path))
    found += some
    left_out += wrong
  for reason in left_out:
    print(f'left out: {reason}', file=sys.stderr)
  if not found and not measured:
    raise app.UsageError('no run with a result.json: evaluate one first')
  made = of_runs(results.told_apart(found), left_out) if found else []
  for n, (stem, layers) in enumerate(measured, 1):
    made += table1.blocks(layers, f'{n}.{stem}' if len(measured) > 1 else '')
  write(made)


if __name__ == '__main__':
  errors.run(main)
