"""The whole report: read from paths, made of its parts, written as HTML or Markdown."""

import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from tqdm import tqdm

from transformer_jax.data.task import Task
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.report import (
  curves,
  differences,
  flops,
  grouping,
  overview,
  page,
  pictures,
  recipe,
  results,
  scorers,
  summary,
  table1,
  tables,
)
from transformer_jax.report.blocks import Block, Bullets, Heading, Picture, legible
from transformer_jax.report.results import Found, Scored
from transformer_jax.scoring.significance import paired_bootstrap

TITLE = 'Attention Is All You Need: runs'


class Report(NamedTuple):
  summary: str  # for a terminal
  blocks: list[Block]


def of_paths(
  paths: Sequence[pathlib.Path],
  tasks: Mapping[str, Task],
  data_dir: pathlib.Path,
  samples: int,
  tflops: float | None,
) -> Report:
  """The report of runs and of measurements of Table 1; stderr tells what is left out.

  Args:
    paths: of runs' folders, of results, and of what scripts.table1 wrote.
    tasks: all there are, by name.
    data_dir: where the paired tests and the samples look for prepared corpora.
    samples: sentences of each test set to show with their translations.
    tflops: TFLOP/s that one training device sustains; None takes the paper's figure.

  Raises:
    UserError: there is nothing to report.
  """
  found, measured = results.none_found(), []
  for path in paths:
    try:
      layers = table1.read(path)
    except UserError as error:
      found.left_out.append(str(error))
      continue
    if layers:
      measured.append((path.stem, layers))
    else:
      for every, some in zip(found, results.read(path, tasks), strict=True):
        every += some
  for reason in found.left_out:
    print(f'left out: {legible(reason)}', file=sys.stderr)
  found = found.with_distinct_names()
  if not any((found.scored, found.unscored, measured, *found[3:])):
    raise UserError('no run with a result.json: evaluate one first')
  said, blocks = '', []
  if found.scored or found.unscored:
    said, blocks = _of_runs(found, data_dir, samples, tflops)
  for name, task in tasks.items():
    scored = [one for one in found.sectioned if one.result.task == name]
    baselines = [baseline for of, baseline in found.baselines if of == name]
    if scored or baselines:
      lines, made = task.section.write(scored, baselines, data_dir, samples)
      said, blocks = said + lines, blocks + made
      if not (found.scored or found.unscored):  # else their curves are drawn already
        blocks += curves.curves([], scored)
  for n, (stem, layers) in enumerate(measured, 1):
    made = table1.blocks(layers, f'{n}.{stem}' if len(measured) > 1 else '')
    said += f'Table 1, measured: {stem}\n'
    blocks += made
  return Report(said, blocks)


def _of_runs(
  found: Found, data_dir: pathlib.Path, samples: int, tflops: float | None
) -> Report:
  scored, unscored, left_out = found[:3]
  groups, ungrouped = grouping.group(scored)
  left_out = [*left_out, *ungrouped, *_of_other_lengths(scored, data_dir)]
  with tqdm(desc='comparing', unit='pair', disable=None) as bar:

    def compare(system: Scored, baseline: Scored) -> float | None:
      bar.update()
      return paired_p(system, baseline, data_dir)

    studies = [(group, differences.differences(group, compare)) for group in groups]
    pieces = recipe.recipe(scored, compare)
  top = summary.facts(found, studies, left_out)
  left_out += map(str, unscored)
  made = [Heading(2, 'What the runs say'), top]
  for n, (group, differ) in enumerate(studies, 1):
    number = f'.{n}' if len(studies) > 1 else ''
    made += tables.comparable(group, tflops, differ, number)
  made += curves.curves(scored, [*unscored, *found.sectioned])
  if scored:
    made += [Heading(2, 'Every result'), overview.table(scored)]
  made += pieces
  made += scorers.scorers(overview.best(scored), data_dir)
  made += overview.samples(scored, data_dir, samples)
  if groups:
    made += flops.papers_own() + tables.inconsistencies()
  if left_out:
    made += [Heading(2, 'Left out'), Bullets(left_out)]
  if scored:
    made += overview.footnotes(scored)
  return Report(summary.on_terminal(top, scored, studies), made)


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
    config['data']['target_language'],
    lowercase=system.result.lowercase,
    tokenized=config['data']['tokenized'],
    kinds=('paper_bleu',),
  )['paper_bleu'].p


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
