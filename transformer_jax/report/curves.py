"""Curves of loss, perplexity and BLEU over steps, one corpus to an axis."""

import functools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from transformer_jax.report import paper, rows
from transformer_jax.report.blocks import Block, Heading, Picture, legible
from transformer_jax.report.pictures import GREY, LINES, picture
from transformer_jax.report.results import Scored, Unscored

NO_ROW = ''  # the group of runs that stand for no row of Table 3
DASHES = ('-', '--', ':')
SETTLED = 0.25  # the axis fits what follows this share of a curve's steps
ROUND = (1, 2, 2.5, 5, 10)  # what ticks are multiples of
LONGEST = 44  # characters of a name in a legend


class Line(NamedTuple):
  """One curve of one run."""

  row: str | None  # of Table 3
  label: str
  steps: Sequence[int]
  values: Sequence[float]


class Plot(NamedTuple):
  name: str
  title: str
  axis: str
  logarithmic: bool


LOSS = Plot(
  'loss', 'Training loss, label-smoothed', 'training loss (nats per piece)', False
)
PERPLEXITY = Plot('perplexity', 'Dev perplexity', 'perplexity per piece', True)
BLEU = Plot('bleu', 'BLEU over training', 'BLEU (percent)', False)


def curves(
  scored: Sequence[Scored], others: Sequence[Scored | Unscored]
) -> list[Block]:
  """For each corpus dev perplexity, training loss, and BLEU if scored several times.

  Losses of several corpora or vocabularies cannot be compared, so each has its own
  pictures; in these, each group of Table 3's rows has one, with base in all.

  Args:
    others: runs without a BLEU: parsers, and those that were not evaluated.
  """
  data: dict[tuple, list[Scored | Unscored]] = {}
  for one in {one.home: one for one in (*others, *scored)}.values():
    data.setdefault(_data(one), []).append(one)
  made: list[Block] = []
  for n, (of_data, runs) in enumerate(data.items(), 1):
    number = f'.{n}' if len(data) > 1 else ''
    plots = (
      (PERPLEXITY, _logged(runs, 'dev_perplexity')),
      (LOSS, _logged(runs, 'loss')),
      (BLEU, _scores([one for one in scored if _data(one) == of_data])),
    )
    drawn = [(plot, _pictures(plot, lines, number)) for plot, lines in plots if lines]
    name = f'{runs[0].config["data"]["name"]}, {of_data[1]:,} pieces'
    made += [Heading(2, f'Curves: {name}')] if drawn else []
    for plot, pictures in drawn:
      made += [Heading(3, plot.title), *pictures]
  return made


def _data(one: Scored | Unscored) -> tuple[str, int]:
  """Corpus and vocabulary, on which a loss per piece depends beside the model."""
  return one.corpus, one.config['model']['vocab_size']


def _row(one: Scored | Unscored) -> str | None:
  return one.row if one.row in paper.TABLE_3 else None


def _label(one: Scored | Unscored) -> str:
  row = _row(one)
  return rows.label(row, rows.cells(one.config)) if row else one.run


def _logged(runs: Iterable[Scored | Unscored], key: str) -> list[Line]:
  lines = []
  for one in runs:
    points = [(r['step'], r[key]) for r in one.records if key in r and _finite(r[key])]
    if points:
      lines.append(Line(_row(one), _label(one), *zip(*points, strict=True)))
  return lines


def _finite(value: object) -> bool:
  return isinstance(value, int | float) and math.isfinite(value)


def _scores(found: Sequence[Scored]) -> list[Line]:
  """BLEU over steps; a line is named by what tells it from the others."""
  points: dict[tuple, dict[int, float]] = {}
  for scored in found:
    result = scored.result
    told = (
      _label(scored),
      scored.test_set,
      f'average {len(result.averaged)}',
      f'beam {result.beam}',
      f'alpha {result.alpha}',
    )
    key = scored.home, _row(scored), scored.signatures, told
    points.setdefault(key, {})[result.step] = scored.bleu
  points = {key: steps for key, steps in points.items() if len(steps) > 1}
  differing = [
    len({*each}) > 1 for each in zip(*(key[-1] for key in points), strict=True)
  ]
  lines = []
  for (_, row, _, told), steps in points.items():
    tells = [text for text, differs in zip(told, differing, strict=True) if differs]
    label = ', '.join(tells) or told[0]
    lines.append(Line(row, label, *zip(*sorted(steps.items()), strict=True)))
  return lines


def _pictures(plot: Plot, lines: Sequence[Line], number: str) -> list[Picture]:
  groups: dict[str, list[Line]] = {}
  for line in lines:
    groups.setdefault(_group(line), []).append(line)
  of_base = groups.pop('base') if 'base' in groups and len(groups) > 1 else []
  made = []
  for group in sorted(groups, key=[*paper.GROUPS, 'base', NO_ROW].index):
    name = f'{plot.name}.{group or "runs"}{number}'
    title = f'{group}: {paper.GROUPS[group]}' if group in paper.GROUPS else plot.title
    shown = groups[group] + (of_base if group != NO_ROW else [])
    names = dict.fromkeys(line.label for line in shown)
    columns = 1 if max(map(len, names)) > LONGEST / 2 else 2
    draw = functools.partial(
      _draw, plot=plot, title=title, lines=shown, names=[*names], columns=columns
    )
    height = 2.6 + 0.17 * -(-len(names) // columns)
    text = f'{plot.title} over steps: {", ".join(names)}'
    made.append(picture(name, text, height, draw))
  return made


def _group(line: Line) -> str:
  if line.row is None:
    return NO_ROW
  return line.row if line.row in ('base', 'big') else line.row[0]


def _draw(
  figure: Figure,
  plot: Plot,
  title: str,
  lines: Sequence[Line],
  names: Sequence[str],
  columns: int,
) -> None:
  axes = figure.add_subplot(title=title, xlabel='step', ylabel=plot.axis)
  handles = {}
  for line in lines:
    style = _style(line, names)
    (handles[line.label],) = axes.plot(line.steps, line.values, **style)
  _set_axes(axes, plot, lines)
  shown = [_short(name) for name in handles]
  place = {'loc': 'outside lower left', 'ncols': columns, 'handlelength': 1.8}
  figure.legend([*handles.values()], shown, **place)


def _style(line: Line, names: Sequence[str]) -> dict:
  """The same for a row wherever it is drawn; base is grey and behind all others."""
  if line.row == 'base':
    return {'color': GREY, 'linewidth': 1.1, 'zorder': 1}
  if line.row is None:
    place = names.index(line.label)
  else:
    alike = [row for row in paper.TABLE_3 if row[0] == line.row[0] and row != 'base']
    place = alike.index(line.row)
  dashes, colour = divmod(place, len(LINES))
  dash = DASHES[dashes % len(DASHES)]
  return {'color': LINES[colour], 'linewidth': 1.3, 'linestyle': dash}


def _short(name: str) -> str:
  """The name for a legend, which passes over names that begin with an underscore."""
  text = legible(name)
  if len(text) > LONGEST:
    text = f'{text[: LONGEST // 2]}…{text[-LONGEST // 2 :]}'
  return f' {text}' if text.startswith('_') else text


def _set_axes(axes: Axes, plot: Plot, lines: Sequence[Line]) -> None:
  """Cuts off how curves begin, and gives a logarithmic axis few round numbers."""
  axes.xaxis.set_major_locator(MaxNLocator(5, integer=True, steps=ROUND))
  axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f'{x:,.0f}'))
  axes.set_xlim(left=0)
  if plot.logarithmic:
    axes.set_yscale('log')
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f'{y:g}'))
  axes.yaxis.set_major_locator(MaxNLocator(5, steps=ROUND))
  if plot is BLEU:
    return
  settled = [
    value
    for line in lines
    for step, value in zip(line.steps, line.values, strict=True)
    if step >= SETTLED * line.steps[-1]
  ]
  low, high = min(settled), max(settled)
  if plot.logarithmic:
    axes.set_ylim(low / 1.05, high * 1.05)
    if high > 10 * low:
      axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    elif high > 3 * low:  # of 1, 2 and 5 there would be one between 5.5 and 17
      axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 7)))
  else:
    margin = 0.05 * (high - low) or 0.1
    axes.set_ylim(low - margin, high + margin)
