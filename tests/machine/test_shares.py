"""Arrays that devices share: each has its part, and all together have the whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer_jax.machine.shares import AXIS, Shares

SHARED = {'matrix': (8, 3), 'cube': (4, 2, 5)}
WHOLE = {'scalar': (), 'vector': (8,), 'indivisible': (6, 4)}


def arrays(devices: int, seed: int = 0) -> dict[str, np.ndarray]:
  """[devices, *shape] of small whole numbers, whose sums are exact in any order."""
  rng = np.random.default_rng(seed)
  draw = lambda shape: rng.integers(-9, 9, (devices, *shape)).astype(np.float32)
  return {name: draw(shape) for name, shape in (SHARED | WHOLE).items()}


def test_which_are_shared():
  shapes = {
    name: jax.ShapeDtypeStruct(shape, np.float32)
    for name, shape in (SHARED | WHOLE).items()
  }
  axes = Shares(4).axes(shapes)
  assert axes == dict.fromkeys(SHARED, 0) | dict.fromkeys(WHOLE)
  assert set(Shares(1).axes(shapes).values()) == {None}


pytestmark = pytest.mark.devices


@pytest.mark.parametrize('count', [1, 4])
def test_the_shares_of_a_sum_are_parts_of_it(count: int):
  """In the order in which split() cuts, so that they fit the state that it has cut."""
  shares, given = Shares(count), arrays(count)
  found = jax.pmap(shares.sum, AXIS, devices=jax.devices()[:count])(given)
  expected = shares.split({name: x.sum(0) for name, x in given.items()})
  for name, x in found.items():
    shared = count > 1 and name in SHARED
    for device in range(count):
      part = expected[name][device] if shared else expected[name]
      np.testing.assert_array_equal(x[device], part)


@pytest.mark.parametrize('count', [1, 4])
def test_own_and_join_are_inverse(count: int):
  shares = Shares(count)
  whole = {name: x[0] for name, x in arrays(1).items()}

  def there_and_back(_: jax.Array) -> tuple:
    own = shares.own(whole)
    return own, shares.join(own, whole)

  own, back = jax.pmap(there_and_back, AXIS, devices=jax.devices()[:count])(
    jnp.zeros(count)
  )
  cut = shares.split(whole)
  for name, x in whole.items():
    for device in range(count):
      np.testing.assert_array_equal(back[name][device], x)
      part = cut[name][device] if count > 1 and name in SHARED else x
      np.testing.assert_array_equal(own[name][device], part)
