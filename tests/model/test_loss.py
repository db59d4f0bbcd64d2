"""The loss and its gradients equal those of one written out with a one-hot."""

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special

from toy import forms
from toy.forms import normal
from transformer_jax.data.vocabulary import PAD
from transformer_jax.model import ops_cpu
from transformer_jax.model.transformer import Outputs
from transformer_jax.training.step import cross_entropy

B, T, D = 3, 5, 6
# A cache that does not hold all rows' logits.
SMALL = {'LOGITS_BYTES': 4 * 4 * 37, 'VECTOR_FLOATS': 4}
FORMS = {'plain': None, 'all rows at once': {}, 'four rows at a time': SMALL}
# Nor the table, which is then transposed 16 rows at a time; the last 16 overlap.
FORMS['by a large table'] = SMALL | {'CACHE_BYTES': 400}


@pytest.fixture(params=FORMS, autouse=True, scope='module')
def form(request: pytest.FixtureRequest) -> Iterator[None]:
  """Chooses an accelerator's form or a CPU's; the last part has 3 rows of padding."""
  if request.param == 'plain':
    with forms.of_an_accelerator():
      yield
    return
  with pytest.MonkeyPatch.context() as patch:
    for name, value in FORMS[request.param].items():
      patch.setattr(ops_cpu, name, value)
    jax.clear_caches()  # of what was traced with other sizes
    yield
  jax.clear_caches()


def by_one_hot(
  x: jax.Array, table: jax.Array, labels: jax.Array, epsilon: float
) -> tuple[np.ndarray, ...]:
  """Returns - sum_w q(w) log p(w) over real positions, q as in section 5.4.

  Then its gradients by x and the table: by the logits it is p - q.
  """
  x, table = (np.asarray(y, np.float64) for y in (x, table))
  z = x @ table.T
  log_p = z - special.logsumexp(z, -1, keepdims=True)
  q = np.full(z.shape, epsilon / (len(table) - 1))
  np.put_along_axis(q, labels[..., None], 1 - epsilon, -1)
  real = np.asarray(labels != PAD)[..., None]
  by_z = (np.exp(log_p) - q) * real
  by_table = np.tensordot(by_z, x, ((0, 1), (0, 1)))
  return -(q * log_p * real).sum(), by_z @ table, by_table


@pytest.mark.parametrize(
  ('tokens', 'epsilon', 'scale', 'shift', 'dtype'),
  [
    (11, 0.0, 1, 0, jnp.float32),
    (37, 0.1, 1, -200, jnp.float32),
    (37, 0.1, 300, 0, jnp.float32),  # logits of up to 1,000
    (37, 0.1, 1, 0, jnp.bfloat16),
  ],
)
def test_equals_the_one_hot(tokens, epsilon, scale, shift, dtype):
  """With padding, and labels at both ends of the vocabulary."""
  x = (normal(B, T, D) * scale).at[..., 0].set(1)
  table = normal(tokens, D, seed=1).at[:, 0].add(shift).astype(dtype)
  labels = np.random.default_rng(0).integers(1, tokens, (B, T))
  labels[0, 3:] = labels[2] = PAD
  labels[1, 0] = tokens - 1

  def losses(x: jax.Array, table: jax.Array) -> tuple[jax.Array, jax.Array]:
    smoothed, plain = cross_entropy(Outputs(x, table), jnp.asarray(labels), epsilon)
    return smoothed / 3 + plain, plain  # a factor goes through; plain has no gradient

  both = jax.jit(jax.value_and_grad(losses, (0, 1), has_aux=True))
  (total, plain), gradients = both(x, table)
  rough = 2e-2 if dtype == jnp.bfloat16 else 5e-4 if shift else 1e-5
  np.testing.assert_allclose(plain, by_one_hot(x, table, labels, 0.0)[0], rtol=rough)
  smoothed, *slopes = by_one_hot(x, table, labels, epsilon)
  np.testing.assert_allclose(total - plain, smoothed / 3, rtol=2 * rough)
  for ours, slope, like in zip(gradients, slopes, (x, table), strict=True):
    assert ours.dtype == like.dtype
    off = np.linalg.norm(np.asarray(ours, np.float64) - slope / 3)
    assert off < rough * np.linalg.norm(slope)
