"""A prepared corpus as the report reads it: its card and its held-out text."""

import pathlib
from typing import NamedTuple

import pytest

from toy.results import CARD, changed, of_row, written
from transformer_jax.data.corpus import read_card, write_card
from transformer_jax.report.results import Evaluation

SENTENCES = 6


class Prepared(NamedTuple):
  data_dir: pathlib.Path
  corpus: str  # its hash

  def run(
    self, home: pathlib.Path, line: str, row: str = 'base', seed: int = 1, **fields
  ) -> Evaluation:
    """Writes a run of the miniature that translates sentence n to `line` with {n}."""
    result = of_row(row, seed, 5.0 + seed / 10)
    result = changed(result, **{'corpus': self.corpus} | fields)
    lines = (line.format(n=n) + '\n' for n in range(SENTENCES))
    return written(result, home, ''.join(lines))


@pytest.fixture
def prepared(tmp_path: pathlib.Path) -> Prepared:
  """Writes sentences '<i>source</i> sentence {n} of some words' and references."""
  folder = tmp_path / 'data' / of_row().config['data']['name']
  folder.mkdir(parents=True)
  for side in ('source', 'target'):
    lines = (f'<i>{side}</i> sentence {n} of some words\n' for n in range(SENTENCES))
    (folder / f'dev.{side}.txt').write_text(''.join(lines))
  write_card(folder, CARD)
  return Prepared(folder.parent, read_card(folder).identity)
