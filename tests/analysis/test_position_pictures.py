"""Section 3.5's linear relation, and what similarity over distance is."""

import numpy as np
import pytest

from transformer_jax.analysis import position_pictures
from transformer_jax.model.layers import sinusoids
from transformer_jax.report.blocks import Table


@pytest.mark.parametrize('k', [1, 7, 40])
@pytest.mark.parametrize('width', [12, 13])
def test_a_shift_moves_every_position(k: int, width: int):
  table = sinusoids(60, width)
  even = table[:, : width - width % 2]  # the last of an odd width is a sine alone
  moved = table[:-k] @ position_pictures.shift(k, width).T
  np.testing.assert_allclose(moved[:, : even.shape[1]], even[k:], atol=1e-5)
  turn = position_pictures.shift(k, 12)
  np.testing.assert_allclose(turn @ turn.T, np.eye(12), atol=1e-12)


def test_an_error_is_seen():
  table = sinusoids(60, 12)
  assert position_pictures.shift_error(table, 3) < 1e-5
  table[20, 4] += 0.5
  assert position_pictures.shift_error(table, 3) == pytest.approx(0.5, abs=1e-3)


def test_similarity_over_distance():
  table = np.array([[1.0, 0], [0, 2], [-3, 0], [0, -1]])
  found = position_pictures.over_distance(table)
  np.testing.assert_allclose(found, [1, 0, -1, 0], atol=1e-12)
  # Of sinusoids it is the same wherever the two positions are.
  alike = position_pictures.similarity(sinusoids(60, 12))
  for k in (1, 9):
    assert np.ptp(np.diagonal(alike, k)) < 1e-5


def test_learnt_positions_stand_beside_sinusoids():
  learnt = np.random.default_rng(0).normal(size=(9, 12))
  tables = {'sinusoids': sinusoids(20, 12), 'learned, source': learnt}
  table = next(b for b in position_pictures.blocks(tables) if isinstance(b, Table))
  assert table.header == ('', 'k = 1', 'k = 2', 'k = 4', 'k = 8')
  assert [row[0] for row in table.rows[1:]] == [f'mean cosine: {n}' for n in tables]
  for figure in (
    position_pictures.encodings_figure,
    position_pictures.similarity_figure,
  ):
    titles = {axes.get_title() for axes in figure(tables).axes}
    assert {*tables} <= titles
  assert len(position_pictures.shifts_figure(tables['sinusoids']).axes) == 5
