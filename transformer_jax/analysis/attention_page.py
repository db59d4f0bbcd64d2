"""One interactive page with all weights of a few sentences; it needs no network."""

import base64
import json
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from transformer_jax.machine import files

TEMPLATE = pathlib.Path(__file__).with_name('attention_page.html')
KINDS = {
  'encoder': 'encoder self',
  'decoder': 'decoder self',
  'cross': 'encoder-decoder',
}
# One attention's weights [N, H, T, S], the T words of its queries, the S of its keys.
Part = tuple[np.ndarray, Sequence[str], Sequence[str]]


def write(
  path: pathlib.Path,
  sentences: Sequence[Mapping[str, Part]],
  about: str,
  kind: str,
  layer: int,
  heads: Sequence[int],
  word: int | None,
) -> None:
  """Writes the page.

  Args:
    sentences: what each has for each of KINDS.
    about: what stands below the title.
    kind, layer, heads: what is shown at first; layers and heads count from 0.
    word: the row of the first sentence that is chosen at first, if any.
  """
  layers, count = sentences[0][kind][0].shape[:2]
  data = {
    'about': about,
    'kinds': KINDS,
    'kind': kind,
    'layer': layer,
    'heads': [*heads],
    'word': word,
    'N': layers,
    'H': count,
    'sentences': [
      {name: _part(*part) for name, part in sentence.items()} for sentence in sentences
    ],
  }
  # Nothing that a sentence holds can end the element in which the data stand.
  text = json.dumps(data).replace('<', r'\u003c')
  template = TEMPLATE.read_text(encoding='utf-8')
  files.write(path, template.replace('@DATA@', text))


def _part(weights: np.ndarray, rows: Sequence[str], columns: Sequence[str]) -> dict:
  """Weights as bytes in base 64, of which 255 stands for 1."""
  quantised = np.rint(255 * np.clip(weights, 0, 1)).astype(np.uint8)
  text = base64.b64encode(quantised.tobytes()).decode()
  return {'rows': [*rows], 'columns': [*columns], 'weights': text}
