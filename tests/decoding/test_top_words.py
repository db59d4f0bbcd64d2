"""The best words in two stages equal a sort of all of them."""

import jax
import numpy as np
import pytest

from transformer_jax.decoding import top_words
from transformer_jax.model import products


@pytest.mark.parametrize('on_cpu', [True, False])
@pytest.mark.parametrize('size', [40, 129, 1000, 1280, 1281, 5000])
def test_equal_to_top_k(monkeypatch: pytest.MonkeyPatch, size: int, on_cpu: bool):
  """Ties and all: few different values, and -inf."""
  monkeypatch.setattr(products, 'on_cpu', lambda: on_cpu)
  rng = np.random.default_rng(size)
  x = rng.integers(-3, 40, (6, 7, size)).astype(np.float32)
  x[x < 0] = -np.inf
  x[0, 0, : size - 3] = -np.inf
  x[1] = rng.normal(size=(7, size))
  normalizer = jax.nn.logsumexp(x, -1)
  for count in 1, 3, 10:
    expected = jax.lax.top_k(x, count)
    found = jax.jit(top_words.best_words, static_argnums=1)(x, count)
    assert np.array_equal(found[0], expected[0])
    there = np.isfinite(expected[0])
    assert np.array_equal(found[1][there], expected[1][there])
    np.testing.assert_allclose(found[2], normalizer, rtol=1e-6)
