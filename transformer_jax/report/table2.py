"""Table 2 beside the paper's, with training FLOPs as it estimates them and counted."""

import re
from collections.abc import Sequence

from transformer_jax.model import flops
from transformer_jax.report import paper
from transformer_jax.report.comparable import Group
from transformer_jax.report.page import table
from transformer_jax.report.results import Scored
from transformer_jax.report.table3 import BLEU, SACREBLEU, column


def table_2(group: Group, tflops: float | None) -> str:
  """Returns Table 2 with the paper's columns beside ours.

  Args:
    tflops: TFLOP/s that one device sustains; see flops_by_paper().
  """
  french = group.members[0].data['target_language'] == 'fr'
  ours = {paper.TABLE_2_NAMES[row]: runs for row, runs in group.table_2.items()}
  header = ['model', 'seeds', 'BLEU (paper)', 'BLEU', 'sacreBLEU', 'FLOPs (paper)']
  header += ["FLOPs, paper's method", 'FLOPs, counted']
  runs = [ours[name] if name in ours else [] for name in paper.TABLE_2]
  column_of = lambda read: column([[*map(read, results)] for results in runs])
  scores = map(column_of, (BLEU, SACREBLEU))
  rows = []
  for (name, system), results, ours_bleu, sacre in zip(
    paper.TABLE_2.items(),
    runs,
    *scores,
    strict=True,
  ):
    bleu = system.bleu_fr if french else system.bleu_de
    printed = system.flops_fr if french else system.flops_de
    rows.append(
      [
        name,
        str(len(results) or ''),
        '' if bleu is None else f'{bleu:g}',
        ours_bleu,
        sacre,
        _mean_flops([printed]),
        _mean_flops([flops_by_paper(scored, tflops) for scored in results]),
        _mean_flops([flops_counted(scored) for scored in results]),
      ]
    )
  return table(header, rows)


def _mean_flops(runs: Sequence[float | None]) -> str:
  known = [x for x in runs if x is not None]
  if not known or len(known) < len(runs):
    return ''
  return f'{sum(known) / len(known):.1e}'


def flops_counted(scored: Scored) -> float:
  """Returns FLOPs of training's matrix products, backward pass included."""
  each = flops.flops_per_target_token(scored.config['model'])
  return each * scored.result.target_tokens_seen


def flops_by_paper(scored: Scored, tflops: float | None) -> float | None:
  """Returns training's FLOPs as time x devices x sustained capacity; None if unknown.

  Args:
    tflops: TFLOP/s that one device sustains; None takes the figure that the paper
      prints for this GPU, if it does.
  """
  trained_on = scored.result.training_device
  if trained_on is None or '; ' in trained_on:  # not known, or several in turn
    return None
  device = re.fullmatch(r'(\d+) x (.+)', trained_on)
  if tflops is None:
    named = lambda kind: device and re.search(rf'\b{kind}\b', device[2])
    kinds = [*filter(named, paper.SUSTAINED_TFLOPS)]
    if not kinds:
      return None
    tflops = paper.SUSTAINED_TFLOPS[kinds[0]]
  devices = int(device[1]) if device else 1
  return paper.training_flops(scored.result.wall_seconds, devices, tflops)
