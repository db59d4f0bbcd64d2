"""Our parameters as Marian's, and back to the last bit; other weights are refused."""

from collections.abc import Callable
from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

from configs import base
from toy import forms
from transformer_jax.exchange import marian
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build

N, D, FF, W = 2, 12, 20, 31
SIZES = {'N': N, 'd_model': D, 'd_ff': FF, 'h': 3, 'd_k': 4, 'd_v': 4, 'vocab_size': W}


def model(biases: bool = True) -> tuple[Any, Any]:
  """Returns random parameters and their shapes."""
  config = base.get_config()
  config.model.update(SIZES | {'biases': biases})
  shapes = build.architecture(config)[1]
  return forms.random_like(shapes), shapes


@pytest.mark.parametrize('biases', [True, False])
def test_export_and_import_to_the_last_bit(biases: bool):
  params, shapes = model(biases)
  arrays = marian.to_marian(params)
  expected = marian.expected_shapes(N, D, FF, W)
  assert {name: array.shape for name, array in arrays.items()} == expected
  assert marian.has_biases(arrays) == biases
  again = marian.scale_norm_inputs(marian.scale_norm_inputs(arrays, N, 4.0), N, 0.25)
  back = marian.from_marian(marian.check_arrays(again, expected), shapes)
  jax.tree.map(np.testing.assert_array_equal, back, params)


def test_positions_are_sines_and_then_cosines():
  table = marian.positions(9, D)
  angles = np.arange(9)[:, None] / 10000 ** (np.arange(0, D, 2) / D)
  np.testing.assert_allclose(table[:, : D // 2], np.sin(angles), atol=1e-6)
  np.testing.assert_allclose(table[:, D // 2 :], np.cos(angles), atol=1e-6)
  assert sorted(marian.order_of(5)) == [0, 1, 2, 3, 4]


def test_a_power_of_two_brings_epsilons_together():
  assert [marian.norm_factor(e) for e in (1e-5, 1e-6, 1e-12)] == [1.0, 4.0, 4096.0]


FC1 = 'model.encoder.layers.0.fc1.weight'
TABLE = 'model.encoder.embed_positions.weight'
FAULTS: list[tuple[Callable[[marian.Arrays], Any], str]] = [
  (lambda a: a.pop(FC1), f'it lacks {FC1}'),
  (lambda a: a.update({'encoder.w': a[FC1]}), 'no such model has encoder.w'),
  (lambda a: a.update({FC1: a[FC1].T}), r'of shape \[12, 20\].* says \[20, 12\]'),
]


@pytest.mark.parametrize(('damage', 'message'), FAULTS)
def test_other_weights_are_refused(
  damage: Callable[[marian.Arrays], Any], message: str
):
  arrays = marian.to_marian(model()[0])
  arrays |= {'lm_head.weight': arrays[marian.EMBEDDING], TABLE: marian.positions(8, D)}
  expected = marian.expected_shapes(N, D, FF, W)
  assert marian.check_arrays(arrays, expected).keys() == expected.keys()
  rounded = {name: array.astype(ml_dtypes.bfloat16) for name, array in arrays.items()}
  assert marian.check_arrays(rounded, expected).keys() == expected.keys()
  damage(arrays)
  with pytest.raises(UserError, match=message):
    marian.check_arrays(arrays, expected)
