"""The whole report: read from paths, made of its parts, written as HTML or Markdown."""

import pathlib
import sys
from collections.abc import Iterator, Sequence

from tqdm import tqdm

from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.report import (
  curves,
  flops,
  grouping,
  overview,
  page,
  pictures,
  recipe,
  results,
  scorers,
  table1,
  tables,
)
from transformer_jax.report.blocks import Block, Bullets, Heading, Paragraph, Picture
from transformer_jax.report.results import Scored
from transformer_jax.scoring.significance import paired_bootstrap

TITLE = 'Attention Is All You Need: runs'


def of_paths(
  paths: Sequence[pathlib.Path],
  data_dir: pathlib.Path,
  samples: int,
  tflops: float | None,
) -> list[Block]:
  """The report of runs and of measurements of Table 1; stderr tells what is left out.

  Args:
    paths: of runs' folders, of results, and of what scripts.table1 wrote.
    data_dir: where the paired tests and the samples look for prepared corpora.
    samples: translations to show of each run.
    tflops: that one training device sustains, where the paper does not print it.

  Raises:
    UserError: there is nothing to report.
  """
  found, left_out, measured = [], [], []
  for path in paths:
    try:
      layers = table1.read(path)
    except UserError as error:
      left_out.append(str(error))
      continue
    if layers:
      measured.append((path.stem, layers))
      continue
    some, wrong = results.read(path)
    found += some
    left_out += wrong
  for reason in left_out:
    print(f'left out: {reason}', file=sys.stderr)
  if not found and not measured:
    raise UserError('no run with a result.json: evaluate one first')
  blocks = []
  if found:
    runs = results.with_distinct_names(found)
    blocks += _of_runs(runs, left_out, data_dir, samples, tflops)
  for n, (stem, layers) in enumerate(measured, 1):
    blocks += table1.blocks(layers, f'{n}.{stem}' if len(measured) > 1 else '')
  return blocks


def _of_runs(
  found: Sequence[Scored],
  left_out: Sequence[str],
  data_dir: pathlib.Path,
  samples: int,
  tflops: float | None,
) -> list[Block]:
  groups, ungrouped = grouping.group(found)
  left_out = [*left_out, *ungrouped, *_of_other_lengths(found, data_dir)]
  made = overview.overview(found)
  with tqdm(desc='comparing', unit='pair', disable=None) as bar:

    def compare(system: Scored, baseline: Scored) -> float | None:
      bar.update()
      return paired_p(system, baseline, data_dir)

    for group in groups:
      made += tables.comparable(group, tflops, compare)
    made += recipe.recipe(found, compare)
  if groups:
    made += flops.papers_own() + tables.inconsistencies()
  if left_out:
    made += [Paragraph('Left out:'), Bullets(left_out)]
  made += curves.curves(found)
  shown, marks = zip(*representatives(found), strict=True)
  made += scorers.scorers(shown, marks, data_dir)
  for scored in shown:
    made += overview.samples(scored, data_dir, samples)
  return made


def paired_p(system: Scored, baseline: Scored, data_dir: pathlib.Path) -> float | None:
  """p of no difference in BLEU; None unless text and translations are at hand."""
  held_out = system.held_out(data_dir)
  ours, theirs = system.translations, baseline.translations
  if held_out is None or ours is None or theirs is None:
    return None
  if not len(ours) == len(theirs) == len(held_out[1]):
    return None  # _of_other_lengths names them
  config = system.config
  return paired_bootstrap(
    ours,
    theirs,
    held_out[1],
    config['target_language'],
    lowercase=system.result.lowercase,
    tokenized=config['tokenized'],
    kinds=('paper_bleu',),
  )['paper_bleu'].p


def representatives(found: Sequence[Scored]) -> list[tuple[Scored, str]]:
  """Of each run one result of its newest step, as its config decodes, and its mark."""
  best: dict[str, tuple] = {}
  for scored, mark in zip(found, overview.marks(found), strict=True):
    rank = scored.result.step, recipe.as_configured(scored)
    if scored.run not in best or rank >= best[scored.run][0]:
      best[scored.run] = rank, scored, mark
  return [(scored, mark) for _, scored, mark in best.values()]


def write_html(blocks: Sequence[Block], path: pathlib.Path) -> None:
  """One page that needs no other file."""
  files.write(path, page.page(TITLE, [Heading(1, TITLE), *blocks]))


def write_markdown(blocks: Sequence[Block], path: pathlib.Path) -> None:
  """Markdown, and its pictures beside it as STEM.NAME.svg."""
  for block in blocks:
    if isinstance(block, Picture):
      pictures.write(block, path.with_suffix(f'.{block.name}.svg'))
  files.write(path, page.markdown([Heading(1, TITLE), *blocks], path.stem))


def _of_other_lengths(found: Sequence[Scored], data_dir: pathlib.Path) -> Iterator[str]:
  """Names translations that are not one for each sentence."""
  for scored in found:
    held_out = scored.held_out(data_dir)
    if held_out is not None and scored.translations is not None:
      lines, sentences = len(scored.translations), len(held_out[1])
      if lines != sentences:
        yield f'{scored.text}: {lines} translations of {sentences} sentences'
