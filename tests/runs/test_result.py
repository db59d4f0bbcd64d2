"""result.json is read as it was written, and anything else is refused."""

import math
import pathlib

import pytest

from toy.results import PARSED, RESULT, changed
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.result import VERSION, Result
from transformer_jax.runs.run import Run
from transformer_jax.scoring.bleu import Score
from transformer_jax.scoring.translations import PAPER_BLEU, PERPLEXITY


def test_what_is_written_is_read(tmp_path: pathlib.Path):
  """A parser's result needs no BLEU."""
  path = tmp_path / 'result.json'
  for result in RESULT, PARSED:
    result.write(path)
    assert Result.read(path) == result
  search = {'beam': 4, 'alpha': 0.6, 'decode_dtype': 'float32', 'average_last': 2}
  assert RESULT.search() == search
  assert RESULT.value(PERPLEXITY) == 2.5 and RESULT.value(PAPER_BLEU) == 51
  assert PARSED.value(PAPER_BLEU) is None
  name = 'test.step-600.average-2.beam-4.alpha-0.6.txt'
  assert RESULT.translations(Run(tmp_path)) == tmp_path / 'translations' / name


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'dev_perplexity': math.nan}, r'`\$.dev_perplexity`'),  # null, as JSON has no NaN
    ({'paper_bleu': None}, 'without its scores'),
    ({'paper_bleu': Score(51, '', [1, None])}, r'scores\[...\].interval'),
    ({'config': {'model.P_drop': 'much'}}, 'model.P_drop'),
    *(({'version': v}, f'version {v}, not {VERSION}') for v in (VERSION + 1, None)),
  ],
)
def test_what_is_refused(change: dict, message: str, tmp_path: pathlib.Path):
  """The message names the file and advises to evaluate again."""
  path = tmp_path / 'result.json'
  changed(RESULT, **change).write(path)
  with pytest.raises(UserError, match=f'{path}.*{message}.*evaluate the run again'):
    Result.read(path)
