"""No line of held-out text is too long for a run to be trained, scored and used."""

import json
import pathlib

import pytest

from toy.runs import Toy, finished, write_raw
from transformer_jax.runs.run import Run


@pytest.mark.slow
def test_a_line_of_150_kilobytes(tmp_path: pathlib.Path):
  """It is cut where it is measured and translated, counted, and one line comes out."""
  raw = write_raw(tmp_path / 'raw', {'train': 100, 'dev': 4, 'test': 4})
  for split in ('dev', 'test'):
    for language, words in (('en', 'one seven'), ('de', 'sieben eins')):
      with (raw / f'{split}.{language}').open('a') as file:
        file.write(f'{words} ' * 13_000 + '\n')
  toy = Toy(tmp_path, train_steps=5)
  trained = finished(toy.train())
  assert '1 pairs were cut for the perplexity: too long' in trained.said
  assert [r['step'] for r in Run(toy.workdir).records() if 'dev_perplexity' in r] == [5]
  evaluated = finished(toy.evaluate('--average=1'))
  assert '1 lines were cut: too long' in evaluated.said
  result = json.loads((toy.workdir / 'result.json').read_text())
  assert (result['sources_cut'], result['dev_pairs_cut']) == (1, 1)
  (translations,) = (toy.workdir / 'translations').glob('*.txt')
  assert translations.read_text().count('\n') == 5
