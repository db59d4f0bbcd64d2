"""What the page's JavaScript computes is what the package computes."""

import math
import pathlib
from collections.abc import Sequence

import jax
import ml_dtypes
import numpy as np
import pytest

import transformer_jax
from toy import browser
from transformer_jax.analysis.maps import RunAttention
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.exchange import page

ROOT = pathlib.Path(__file__).parents[2]
DEV = ROOT / 'tests/fixtures/tatoeba.dev.en'  # the first of the published model's dev


def rounded(workdir: pathlib.Path) -> LoadedRun:
  """Returns a run in float32 whose parameters are rounded to bfloat16."""
  run = transformer_jax.load(workdir, decode_dtype='float32')
  bfloat16 = lambda x: np.asarray(x).astype(ml_dtypes.bfloat16).astype(np.float32)
  run.params = jax.tree.map(bfloat16, run.params)
  return run


def assert_equal(run: LoadedRun, lines: Sequence[str]) -> None:
  """Compares pieces, tokens, scores and the weights of all heads."""
  model = page.model_of(run.params, run.config, run.vocabularies, math.inf)
  theirs = browser.translate(model, lines)
  ours = [best for (best,) in run.hypotheses(lines, nbest=1)]
  sources = run.source_ids(lines)
  for best, source, output in zip(ours, sources, theirs, strict=True):
    assert (output['source'], output['tokens']) == (source, best.tokens)
    assert output['text'] == best.text
    assert output['score'] == pytest.approx(best.score, abs=1e-4)
  pairs = [(output['source'], output['target']) for output in theirs]
  weights = RunAttention(run).weights(pairs)
  for of_pair, output in zip(weights, theirs, strict=True):
    for expected, seen in zip(of_pair, output['weights'], strict=True):
      np.testing.assert_allclose(seen, expected, atol=1e-3)


@pytest.mark.filterwarnings('ignore::UserWarning')  # what the package says of them
def test_an_untrained_model(workdir: pathlib.Path):
  assert_equal(rounded(workdir), ['one, two "five"', 'seven-up  six', 'one Ω'])


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore:less probable than references')
def test_the_published_model_on_200_sentences():
  lines = DEV.read_text().splitlines()
  assert len(lines) == 200
  assert_equal(rounded(ROOT / 'pretrained/tatoeba.en-de'), lines)
