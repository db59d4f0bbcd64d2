"""Tables 2 and 3 of comparable runs, with the paper's columns beside ours."""

import operator
import statistics
from collections.abc import Callable, Sequence

from transformer_jax.report import claims, differences, flops, forest, paper
from transformer_jax.report.blocks import Block, Bullets, Heading, Paragraph, Table
from transformer_jax.report.differences import Differences
from transformer_jax.report.grouping import Group
from transformer_jax.report.results import Scored
from transformer_jax.report.rows import Cells, cells
from transformer_jax.scoring.significance import half_interval, noise

SPREAD = (
  'Scores: mean of the seeds ± half its 95 % interval (Student, the spread between '
  'seeds pooled over all rows with several); sd: between the seeds of the row.'
)
SCORES = tuple(map(operator.attrgetter, ('perplexity', 'bleu', 'sacrebleu')))


def comparable(
  group: Group, tflops: float | None, found: Differences, number: str = ''
) -> list[Block]:
  """Everything about runs that can be compared.

  Args:
    number: tells the names of its pictures from those of other groups.
  """
  corpus = group.corpus
  blocks = [Heading(2, _title(group)), Paragraph(_about(group))]
  if len(found) > 1:
    blocks.append(Heading(3, "Differences from base, ours and the paper's"))
    blocks += forest.pictures(group, found, number)
    blocks += claims.blocks(claims.judge(found), found)
  if group.table_3:
    blocks += differences.blocks(group, found)
    blocks += [Heading(3, 'Table 3'), _table_3(group)]
  if group.table_2:
    blocks += [Heading(3, f'Table 2 on {corpus}'), _table_2(group, tflops)]
  if group.left_out:
    blocks += [Paragraph('Left out:'), Bullets(group.left_out)]
  return blocks


def inconsistencies() -> list[Block]:
  """Where the paper contradicts itself."""
  items = [f'{place}: {what}' for place, what in paper.INCONSISTENCIES]
  return [Heading(2, 'Where the paper contradicts itself'), Bullets(items)]


def column(rows: Sequence[Sequence[float]]) -> list[str]:
  """A cell for each row's seeds: '25.31 ± 0.30 (sd 0.12)', '25.31', '' without one."""
  pooled, cells = noise([values for values in rows if values]), []
  for values in rows:
    text = f'{statistics.fmean(values):.2f}' if values else ''
    if values and pooled is not None:
      half = half_interval(pooled.deviation, pooled.freedom, len(values))
      text += f' ± {half:.2f}'
    if len(values) > 1:
      text += f' (sd {statistics.stdev(values):.2f})'
    cells.append(text)
  return cells


def _title(group: Group) -> str:
  """Table 3's, in miniature unless test set and base model are the paper's."""
  if not group.table_3:
    return group.corpus
  test_set = next(iter(group.table_3.values()))[0].test_set
  if test_set == paper.TEST_SETS['dev'][0] and group.base == paper.BASE:
    return f'Table 3 on {group.corpus}'
  return f'Table 3 in miniature on {group.corpus}, scored on {test_set}'


def _about(group: Group) -> str:
  scored = group.any
  text = f'{scored.pair}, {scored.config["model"]["vocab_size"]:,} pieces, '
  text += f'{group.corpus} {group.conditions.corpus[:12]}. '
  text += f'Trained on: {_each(group, lambda scored: scored.result.training_device)}. '
  text += f'Decoded in: {_each(group, lambda scored: scored.result.decode_dtype)}. '
  other = ['corpus'] if scored.config['data']['reader'] != 'wmt14' else []
  if sizes := {k: v for k, v in group.base.items() if v != paper.BASE[k]}:
    other.append(f'base model (here {_text(sizes)})')
  if other:
    text += f"Not the paper's {', nor its '.join(other)}: "
    text += 'its columns can be compared in their directions alone. '
  return text + SPREAD


def _each(group: Group, read: Callable[[Scored], str | None]) -> str:
  """What is read of every run; with the rows where it differs between them."""
  rows: dict[str, list[str]] = {}
  for table in (group.table_3, group.table_2):
    for row, results in table.items():
      for scored in results:
        rows.setdefault(read(scored) or 'not recorded', []).append(row)
  if len(rows) == 1:
    return next(iter(rows))
  return '; '.join(f'{k} ({", ".join(dict.fromkeys(x))})' for k, x in rows.items())


def _table_3(group: Group) -> Table:
  header = ['row', 'cells (paper)', 'cells', 'seeds', 'PPL (paper)', 'PPL']
  header += ['BLEU (paper)', 'BLEU', 'sacreBLEU', 'parameters (paper)', 'parameters']
  found = [group.table_3[r] if r in group.table_3 else [] for r in paper.TABLE_3]
  rows = []
  for (row, printed), results, ppl, bleu, sacre in zip(
    paper.TABLE_3.items(),
    found,
    *(column([[*map(read, results)] for results in found]) for read in SCORES),
    strict=True,
  ):
    rows.append(
      [
        row,
        _text(printed.cells),
        _cells(row, results),
        str(len(results) or ''),
        f'{printed.perplexity:.2f}',
        ppl,
        f'{printed.bleu:.1f}',
        bleu,
        sacre,
        f'{printed.millions} M' if printed.millions else '',
        f'{results[0].result.parameters / 1e6:.2f} M' if results else '',
      ]
    )
  return Table(header, rows)


def _cells(row: str, results: Sequence[Scored]) -> str:
  """Our values of the cells that the row fills in; nothing without a run."""
  if not results:
    return ''
  ours = cells(results[0].config)
  return _text({cell: ours[cell] for cell in paper.TABLE_3[row].cells})


def _text(values: Cells) -> str:
  return ', '.join(
    f'{cell} {value:,}' if isinstance(value, int) else f'{cell} {value}'
    for cell, value in values.items()
  )


def _table_2(group: Group, tflops: float | None) -> Table:
  french = group.any.config['data']['target_language'] == 'fr'
  ours = {paper.TABLE_2_NAMES[row]: runs for row, runs in group.table_2.items()}
  header = ['model', 'seeds', 'BLEU (paper)', 'BLEU', 'sacreBLEU', 'FLOPs (paper)']
  header += ["FLOPs, paper's method", 'FLOPs, counted']
  found = [ours[name] if name in ours else [] for name in paper.TABLE_2]
  rows = []
  for (name, system), results, ours_bleu, sacre in zip(
    paper.TABLE_2.items(),
    found,
    *(column([[*map(read, results)] for results in found]) for read in SCORES[1:]),
    strict=True,
  ):
    bleu = system.bleu_fr if french else system.bleu_de
    printed = system.flops_fr if french else system.flops_de
    by_paper = [flops.by_paper(scored, tflops) for scored in results]
    rows.append(
      [
        name,
        str(len(results) or ''),
        '' if bleu is None else f'{bleu:g}',
        ours_bleu,
        sacre,
        _mean_flops([printed]),
        _mean_flops(by_paper),
        _mean_flops([flops.counted(scored) for scored in results]),
      ]
    )
  return Table(header, rows)


def _mean_flops(found: Sequence[float | None]) -> str:
  known = [x for x in found if x is not None]
  if not known or len(known) < len(found):
    return ''
  return f'{sum(known) / len(known):.1e}'
