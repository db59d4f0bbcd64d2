"""What is drawn of a few sentences' weights: the page, and pictures of chosen heads."""

import pathlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from transformer_jax.analysis import attention_page, attention_pictures
from transformer_jax.analysis.attention_page import KINDS, Part
from transformer_jax.machine.errors import UserError
from transformer_jax.report.blocks import Block, Heading, Picture
from transformer_jax.report.results import distinct_name

_PICTURE = re.compile(
  rf'(\d+)\.({"|".join(KINDS)})\.layer-\d+\.(lines|maps)\.(svg|png)'
)


class View(NamedTuple):
  """What to draw; numbers count from 1, as in the paper."""

  kind: str  # one of KINDS
  layers: Sequence[int]  # empty: the last but one, as in the paper's figures
  heads: Sequence[int]  # empty: all heads
  word: str | None  # the word whose weights are drawn; None: every word


def write(
  folder: pathlib.Path,
  sentences: Sequence[Mapping[str, Part]],
  about: str,
  view: View,
) -> list[pathlib.Path]:
  """Writes attention.html, and for each sentence and layer lines and heat maps.

  Pictures of further sentences, which were drawn there before, are deleted.

  Raises:
    UserError: there is no such layer, head or word.
  """
  layers, heads = _chosen(view, sentences[0][view.kind][0].shape)
  rows = [_row(view, sentence) for sentence in sentences]
  if view.word is not None and rows == [None] * len(rows):
    words = ' '.join(sentences[0][view.kind][1])
    raise UserError(f'--word={view.word}: no sentence has it; the first has: {words}')
  folder.mkdir(parents=True, exist_ok=True)
  for old in folder.iterdir():
    is_ours = _PICTURE.fullmatch(old.name)
    if is_ours and int(is_ours[1]) > len(sentences):
      old.unlink()
  page = folder / 'attention.html'
  first = layers[0], heads, rows[0]
  attention_page.write(page, sentences, about, view.kind, *first)
  written = [page]
  for number, (sentence, row) in enumerate(zip(sentences, rows, strict=True), 1):
    for layer in layers:
      weights, *words = sentence[view.kind]
      title = f'{KINDS[view.kind]} attention, layer {layer + 1} of {len(weights)}'
      if len(heads) == 1:
        title += f', head {heads[0] + 1}'
      stem = folder / f'{number}.{view.kind}.layer-{layer + 1}'
      lines = attention_pictures.figure_of_lines(
        weights[layer], *words, heads, row, title
      )
      maps = attention_pictures.figure_of_maps(weights[layer], *words, heads, title)
      for name, figure in (('lines', lines), ('maps', maps)):
        path = stem.with_name(f'{stem.name}.{name}')
        written += attention_pictures.save(figure, path)
  return written


def blocks(runs: Sequence[pathlib.Path]) -> list[Block]:
  """The pictures in the runs' folders, for a report; stderr names runs without any."""
  made: list[Block] = []
  homes = {run.resolve() for run in runs}
  for run in runs:
    pictures = sorted((run / 'attention').glob('*.svg'))
    if not pictures:
      print(
        f'{run}: no pictures of attention there; scripts.plot_attention draws them',
        file=sys.stderr,
      )
      continue
    name = distinct_name(run.resolve(), homes)
    made.append(Heading(2, f'Inside {name}'))
    for path in pictures:
      svg = path.read_text(encoding='utf-8')
      file = f'{name.replace("/", ".")}.{path.stem}'
      made.append(Picture(file, f'{path.stem} of {name}', svg[svg.index('<svg') :]))
  return made


def _chosen(view: View, shape: tuple[int, ...]) -> tuple[list[int], list[int]]:
  """The layers and heads to draw, from 0."""
  layers, heads = shape[:2]
  chosen = [*view.layers] or [max(layers - 1, 1)], [*view.heads] or range(1, heads + 1)
  for name, numbers, count in zip(
    ('layers', 'heads'), chosen, (layers, heads), strict=True
  ):
    for number in numbers:
      if not 1 <= number <= count:
        raise UserError(f'--{name}={number}: the model has {name} 1 to {count}')
  return [n - 1 for n in chosen[0]], [n - 1 for n in chosen[1]]


def _row(view: View, sentence: Mapping[str, Part]) -> int | None:
  rows = sentence[view.kind][1]
  return rows.index(view.word) if view.word in rows else None
