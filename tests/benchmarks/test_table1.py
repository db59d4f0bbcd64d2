"""Table 1's layer types, counts of their programs, and fits to times."""

import functools
import itertools
import json
import math
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.layer_types import layers, measuring, table
from benchmarks.layer_types.layers import recurrent, self_attention
from transformer_jax.report import page, paper

D = 4
CONVOLUTION, RESTRICTED = 'Convolutional', 'Self-Attention (restricted)'
PROJECTED = 'Self-Attention, projected'


def draw(*shape: int, seed: int = 0) -> np.ndarray:
  return np.random.default_rng(seed).standard_normal(shape, np.float32)


def attended(q: np.ndarray, k: np.ndarray, v: np.ndarray, reach: int) -> np.ndarray:
  """Returns softmax(q k^T / sqrt(d)) v, one position after another."""
  rows = []
  for i in range(len(q)):
    near = [j for j in range(len(k)) if abs(i - j) <= reach]
    weights = np.array([math.exp(q[i] @ k[j] / math.sqrt(q.shape[1])) for j in near])
    rows.append(weights / weights.sum() @ v[near])
  return np.stack(rows)


def test_self_attention():
  x, *w = draw(7, D), *(draw(D, D, seed=seed) for seed in range(1, 5))
  np.testing.assert_allclose(self_attention(x), attended(x, x, x, 7), atol=1e-5)
  ours = attended(x @ w[0], x @ w[1], x @ w[2], 7) @ w[3]
  np.testing.assert_allclose(layers.projected_self_attention(x, *w), ours, rtol=1e-4)
  for n, r in (13, 7), (12, 7), (5, 21):
    x = draw(n, D)
    restricted = jax.jit(layers.restricted_self_attention, static_argnums=1)(x, r)
    np.testing.assert_allclose(restricted, attended(x, x, x, r // 2), atol=1e-5)


def test_recurrent():
  x, u, w = draw(6, D), draw(D, D, seed=1), draw(D, D, seed=2)
  h, rows = np.zeros(D), []
  for x_t in x:
    h = np.tanh(h @ w + x_t @ u)
    rows.append(h)
  np.testing.assert_allclose(recurrent(x, u, w), np.stack(rows), atol=1e-5)


def convolved(x: np.ndarray, kernel: np.ndarray, offsets: list[int]) -> np.ndarray:
  z = np.zeros_like(x)
  taps = zip(kernel, offsets, strict=True)
  for i, (weights, by) in itertools.product(range(len(x)), taps):
    if 0 <= i + by < len(x):
      z[i] += x[i + by] @ weights
  return z


def test_convolutions():
  x, kernel = draw(11, D), draw(5, D, D, seed=1)
  expected = convolved(x, kernel, [-2, -1, 0, 1, 2])
  np.testing.assert_allclose(layers.convolution(x, kernel), expected, atol=1e-5)
  expected = convolved(x, kernel, [-12, -9, -6, -3, 0])
  ours = layers.dilated_convolution(x, kernel, 3)
  np.testing.assert_allclose(ours, expected, atol=1e-5)


# Of multiply-adds, to the paper's orders. Blocks of restricted attention have r - 1
# positions: their neighbourhood's middle is in both halves.
FACTORS = {'Self-Attention': 2, 'Recurrent': 2, CONVOLUTION: 1, RESTRICTED: 3}


@pytest.mark.parametrize('name', layers.LAYER_TYPES)
def test_flops_of_layers(name: str):
  kind = layers.LAYER_TYPES[name]
  for n, d, reach in itertools.product((24, 48), (4, 8), (5, 9)):
    weights = [draw(*shape) for shape in kind.weights(d, reach)]
    function = functools.partial(kind.apply, reach)
    expected = 2 * n * n * d + 4 * n * d * d
    if name != PROJECTED:
      expected = FACTORS[name] * paper.TABLE_1[name].cost(n, d, reach, reach - 1)
    assert measuring.flops(function, draw(n, d), *weights) == 2 * expected


W = draw(D, D)


def test_sequential_operations():
  """Those of a program that cannot be counted are refused."""
  for function, expected in (
    (lambda x: jnp.tanh(jax.jit(lambda y: y @ W)(x @ W)), 2),
    (lambda x: recurrent(x, W, W), 9),
    (lambda x: jax.lax.map(lambda row: row @ W, x), 1),
  ):
    assert measuring.sequential_operations(function, draw(9, D)) == expected
  grows = lambda x: jax.lax.while_loop(lambda y: y.sum() < 9, lambda y: y @ W, x)
  for function in (grows, jax.checkpoint(lambda x: x @ W)):
    with pytest.raises(ValueError, match='would not be counted'):
      measuring.sequential_operations(function, draw(9, D))


def test_paths_in_closed_form():
  n = 28
  joined = lambda stack: measuring.layers_between(stack, draw(n, D))
  assert joined([self_attention]) == joined([lambda x: recurrent(x, W, W)]) == 1
  assert joined([lambda x: x] * 5) is None
  for k in (3, 5):
    kernel = draw(k, D, D)
    convolve = lambda x, kernel=kernel: layers.convolution(x, kernel)
    attend = lambda x, r=k: layers.restricted_self_attention(x, r)
    for one in (convolve, attend):
      assert joined([one] * n) == math.ceil((n - 1) / (k // 2))
    dilated = [
      lambda x, kernel=kernel, by=k**depth: layers.dilated_convolution(x, kernel, by)
      for depth in range(4)
    ]
    assert joined(dilated) == next(m for m in range(9) if k**m >= n)  # log_k(n)


@pytest.mark.slow
def test_report(monkeypatch):
  """Of a tiny grid, and a result that has been JSON."""
  monkeypatch.setattr(measuring, 'REACHES', {'': (0,), 'k': (3, 5), 'r': (5, 9)})
  monkeypatch.setattr(measuring, 'COUNTED_N', (4, 16))
  monkeypatch.setattr(measuring, 'MIN_SECONDS', 0.0)
  measured = {'device': 'a device', 'processor': 'a chip', 'versions': {'jax': '0'}}
  measured |= measuring.table([8, 16], [4, 8])
  blocks = table.blocks(json.loads(json.dumps(measured)))
  lines = page.markdown(blocks, 'x').splitlines()
  row = lambda name: next(x for x in lines if x.startswith(f'| {name} |')).split(' | ')
  assert row('Self-Attention')[1:3] == ['O(n^2 d)', 'n^2.00 d^1.00']
  assert row('Recurrent')[5:] == ['O(n)', '4, 16', 'O(n)', '4, 16 |']
  assert row(CONVOLUTION)[2] == 'k^1.00 n^1.00 d^2.00'
  assert row(CONVOLUTION)[-2:] == ['O(log_k(n))', '3, 15; dilated 2, 3 |']
  assert row(PROJECTED)[1] == row(PROJECTED)[5] == row(PROJECTED)[7] == ''


def test_the_documentation_has_the_published_measurement():
  root = pathlib.Path(__file__).parents[2]
  published = json.loads((root / 'results' / 'table1.json').read_text())
  text = (root / 'docs' / 'reproduce.md').read_text()
  lines = table.blocks(published)[1].splitlines()
  shown = [line for line in lines if '---' not in line]
  assert len(shown) == 6 and all(line in text for line in shown)
