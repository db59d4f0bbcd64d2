"""Tables 2 and 3 of comparable runs, with the paper's columns beside ours."""

from collections.abc import Callable, Sequence

from transformer_jax.report import differences, flops, paper
from transformer_jax.report.blocks import Block, Bullets, Heading, Paragraph, Table
from transformer_jax.report.grouping import Group
from transformer_jax.report.results import Scored
from transformer_jax.report.rows import Cells, cells
from transformer_jax.scoring.significance import spread


def comparable(
  group: Group, tflops: float | None, compare: differences.Compare
) -> list[Block]:
  """Everything about runs that can be compared."""
  corpus = group.conditions.name
  blocks = [Heading(2, corpus), Paragraph(_about(group))]
  if group.table_3:
    blocks += [Heading(3, _title(group)), _table_3(group)]
    blocks += differences.differences(group, compare)
  if group.table_2:
    blocks += [Heading(3, f'Table 2 on {corpus}'), _table_2(group, tflops)]
  if group.left_out:
    blocks += [Paragraph('Left out:'), Bullets(group.left_out)]
  return blocks


def inconsistencies() -> list[Block]:
  """Where the paper contradicts itself."""
  items = [f'{place}: {what}' for place, what in paper.INCONSISTENCIES]
  return [Heading(2, 'Where the paper contradicts itself'), Bullets(items)]


def _over_seeds(values: Sequence[float]) -> str:
  """'25.31', of several seeds '25.31 ± 0.30 (sd 0.12)'; '' of none."""
  if not values:
    return ''
  found = spread(values)
  text = f'{found.mean:.2f}'
  if found.margin is None:
    return text
  return f'{text} ± {found.margin:.2f} (sd {found.deviation:.2f})'


def _title(group: Group) -> str:
  """Table 3's, in miniature unless test set and base model are the paper's."""
  test_set = next(iter(group.table_3.values()))[0].test_set
  if test_set == paper.TEST_SETS['dev'][0] and group.base == paper.BASE:
    return f'Table 3 on {group.conditions.name}'
  return f'Table 3 in miniature on {group.conditions.name}, scored on {test_set}'


def _about(group: Group) -> str:
  scored, (sacre, papers) = group.any, group.conditions.signatures
  text = f'{scored.pair}, {scored.config["model"]["vocab_size"]:,} pieces, '
  text += f'{group.conditions.name} {group.conditions.corpus[:12]}. '
  text += f'Trained on: {_each(group, lambda scored: scored.result.training_device)}. '
  text += f'Decoded in: {_each(group, lambda scored: scored.result.decode_dtype)}. '
  other = ['corpus'] if scored.config['reader'] != 'wmt14' else []
  if sizes := {k: v for k, v in group.base.items() if v != paper.BASE[k]}:
    other.append(f'base model (here {_text(sizes)})')
  if other:
    text += f"Not the paper's {', nor its '.join(other)}: "
    text += 'its columns can be compared in their directions alone. '
  text += 'Scores: mean of the seeds ± half its 95 % interval (sd between them). '
  return text + f'sacreBLEU: `{sacre}`; BLEU: `{papers}`.'


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
  rows = []
  for row, printed in paper.TABLE_3.items():
    results = group.table_3[row] if row in group.table_3 else []
    rows.append(
      [
        row,
        _text(printed.cells),
        _cells(row, results),
        str(len(results) or ''),
        f'{printed.perplexity:.2f}',
        _over_seeds([scored.perplexity for scored in results]),
        f'{printed.bleu:.1f}',
        _over_seeds([scored.bleu for scored in results]),
        _over_seeds([scored.sacrebleu for scored in results]),
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
  french = group.any.config['target_language'] == 'fr'
  ours = {paper.TABLE_2_NAMES[row]: found for row, found in group.table_2.items()}
  header = ['model', 'seeds', 'BLEU (paper)', 'BLEU', 'sacreBLEU', 'FLOPs (paper)']
  header += ["FLOPs, paper's method", 'FLOPs, counted']
  rows = []
  for name, system in paper.TABLE_2.items():
    bleu = system.bleu_fr if french else system.bleu_de
    printed = system.flops_fr if french else system.flops_de
    results = ours[name] if name in ours else []
    by_paper = [flops.by_paper(scored, tflops) for scored in results]
    rows.append(
      [
        name,
        str(len(results) or ''),
        '' if bleu is None else f'{bleu:g}',
        _over_seeds([scored.bleu for scored in results]),
        _over_seeds([scored.sacrebleu for scored in results]),
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
