"""Tables 2 and 3 of comparable runs, the paper's columns beside ours."""

from collections.abc import Callable, Sequence

from transformer_jax.report import effects, flops, paper
from transformer_jax.report.blocks import Block, Bullets, Heading, Paragraph, Table
from transformer_jax.report.placing import Placed
from transformer_jax.report.results import KINDS, Scored
from transformer_jax.scoring.significance import spread


def comparable(
  placed: Placed, tflops: float | None, compare: effects.Compare
) -> list[Block]:
  """Everything about runs that can be compared."""
  blocks = [Heading(2, placed.ground.name), Paragraph(_about(placed))]
  if placed.table_3:
    blocks += [Heading(3, f'Table 3 on {placed.ground.name}'), _table_3(placed)]
    blocks += effects.effects(placed, compare)
  if placed.table_2:
    blocks += [Heading(3, f'Table 2 on {placed.ground.name}'), _table_2(placed, tflops)]
  if placed.left_out:
    blocks += [Paragraph('Left out:'), Bullets(placed.left_out)]
  return blocks


def inconsistencies() -> list[Block]:
  """Where the columns of the paper cannot all be right."""
  items = [f'{place}: {what}' for place, what in paper.INCONSISTENCIES]
  return [Heading(2, 'Where the paper contradicts itself'), Bullets(items)]


def values(results: Sequence[Scored], kind: str, digits: int) -> str:
  """'25.31', of several seeds '25.31 ± 0.30 (sd 0.12)'; '' of none."""
  if not results:
    return ''
  read = [_value(scored, kind) for scored in results]
  found = spread(read)
  text = f'{found.mean:.{digits}f}'
  if found.margin is None:
    return text
  return f'{text} ± {found.margin:.{digits}f} (sd {found.deviation:.{digits}f})'


def _value(scored: Scored, kind: str) -> float:
  value = scored.result[kind]
  return value['score'] if kind in KINDS else value


def _about(placed: Placed) -> str:
  config = placed.any.config
  pair = f'{config["source_language"]}-{config["target_language"]}'
  text = f'{pair}, {config["model"]["vocab_size"]:,} pieces, {placed.ground.name} '
  text += f'{placed.ground.corpus[:12]}. '
  text += f'Trained on: {_each(placed, lambda scored: scored.training_device)}. '
  text += f'Decoded in: {_each(placed, lambda scored: scored.decode_dtype)}. '
  if config['reader'] != 'wmt14':
    text += "Not the paper's corpus"
    sizes = [cell for cell, value in placed.base.items() if value != paper.BASE[cell]]
    if sizes:
      own = _text({cell: placed.base[cell] for cell in sizes})
      text += f', nor its base model (here {own})'
    text += ': its columns can be compared in their directions alone. '
  text += 'Scores: mean of the seeds ± half its 95 % interval (sd between them). '
  sacre, papers = placed.ground.signatures
  return text + f'sacreBLEU: `{sacre}`; BLEU: `{papers}`.'


def _each(placed: Placed, read: Callable[[Scored], str | None]) -> str:
  """What it reads of all of them; with their rows where that differs."""
  rows: dict[str, list[str]] = {}
  for table in (placed.table_3, placed.table_2):
    for row, results in table.items():
      for scored in results:
        rows.setdefault(read(scored) or 'not recorded', []).append(row)
  if len(rows) == 1:
    return next(iter(rows))
  return '; '.join(f'{k} ({", ".join(dict.fromkeys(x))})' for k, x in rows.items())


def _table_3(placed: Placed) -> Table:
  header = ['row', 'cells (paper)', 'cells', 'seeds', 'PPL (paper)', 'PPL']
  header += ['BLEU (paper)', 'BLEU', 'sacreBLEU', 'parameters (paper)', 'parameters']
  rows = []
  for row, printed in paper.TABLE_3.items():
    results = placed.table_3[row] if row in placed.table_3 else []
    rows.append(
      [
        row,
        _text(printed.cells),
        _cells(row, results),
        str(len(results) or ''),
        f'{printed.perplexity:.2f}',
        values(results, 'dev_perplexity', 2),
        f'{printed.bleu:.1f}',
        values(results, 'paper_bleu', 2),
        values(results, 'sacrebleu', 2),
        f'{printed.millions} M' if printed.millions else '',
        f'{results[0].result["parameters"] / 1e6:.2f} M' if results else '',
      ]
    )
  return Table(header, rows)


def _cells(row: str, results: Sequence[Scored]) -> str:
  """Our values of the cells that the row fills in; nothing without a run."""
  if not results:
    return ''
  flat = results[0].config | results[0].config['model']
  return _text({cell: flat[cell] for cell in paper.TABLE_3[row].cells})


def _text(cells: dict[str, float | str]) -> str:
  return ', '.join(
    f'{cell} {value:,}' if isinstance(value, int) else f'{cell} {value}'
    for cell, value in cells.items()
  )


def _table_2(placed: Placed, tflops: float | None) -> Table:
  french = 'fr' in placed.any.config['target_language']
  ours = {paper.TABLE_2_NAMES[row]: found for row, found in placed.table_2.items()}
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
        values(results, 'paper_bleu', 2),
        values(results, 'sacrebleu', 2),
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
