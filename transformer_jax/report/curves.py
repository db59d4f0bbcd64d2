"""Curves of loss, perplexity and BLEU over steps, as SVG."""

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from transformer_jax.report.blocks import Picture
from transformer_jax.report.overview import marks
from transformer_jax.report.pictures import picture
from transformer_jax.report.results import Scored

Line = tuple[Sequence[float], Sequence[float]]  # steps, values


def curves(found: Sequence[Scored]) -> list[Picture]:
  """Training loss, dev perplexity, and BLEU of runs that were scored at several steps.

  A curve without points is not drawn. Where there are several corpora or vocabularies,
  whose losses cannot be compared, the runs' names tell them.
  """
  data = {_data(scored) for scored in found}
  logs = {}
  for scored in found:
    name = scored.run if len(data) == 1 else f'{scored.run}, {_data(scored)}'
    logs[name] = scored.records
  plots = (
    ('loss', 'Training loss, label-smoothed (nats)', _logged(logs, 'loss')),
    ('perplexity', 'Dev perplexity per piece', _logged(logs, 'dev_perplexity')),
    ('bleu', 'BLEU', _scores(found)),
  )
  return [
    picture(name, f'{label} over steps', _plot(label, lines, name == 'perplexity'))
    for name, label, lines in plots
    if lines
  ]


def _data(scored: Scored) -> str:
  """Corpus and vocabulary, on which a loss per piece depends beside the model."""
  size = scored.config['model']['vocab_size']
  return f'{scored.config["corpus"]} {scored.result.corpus[:6]}, {size:,} pieces'


def _logged(logs: dict[str, list[dict]], key: str) -> dict[str, Line]:
  lines = {}
  for run, records in logs.items():
    points = [(r['step'], r[key]) for r in records if key in r]
    if points:
      lines[run] = tuple(zip(*points, strict=True))
  return lines


def _scores(found: Sequence[Scored]) -> dict[str, Line]:
  points: dict[str, dict[int, float]] = {}
  for scored, mark in zip(found, marks(found), strict=True):
    result = scored.result
    name = f'{scored.run}{mark}, {scored.test_set}, average {len(result.averaged)}'
    name += f', beam {result.beam}, alpha {result.alpha}'
    points.setdefault(name, {})[result.step] = scored.bleu
  return {
    name: tuple(zip(*sorted(steps.items()), strict=True))
    for name, steps in points.items()
    if len(steps) > 1
  }


def _plot(label: str, lines: dict[str, Line], logarithmic: bool) -> Figure:
  figure = Figure(figsize=(8, max(4, 0.22 * len(lines))), layout='constrained')
  axes = figure.add_subplot(xlabel='step', ylabel=label)
  for name, (steps, values) in lines.items():
    axes.plot(steps, values, label=name, linewidth=1.2, marker='.', markersize=3)
  if logarithmic:
    axes.set_yscale('log')
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(ScalarFormatter())
  axes.grid(alpha=0.3)
  figure.legend(loc='outside right upper', fontsize='small', frameon=False)
  return figure
