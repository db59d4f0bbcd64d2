"""reference/ has what one_file.py and the package compute."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

from transformer_jax.reference import check, compute, kit, scores

ROOT = pathlib.Path(__file__).parents[2]


def parameters() -> dict[str, np.ndarray]:
  return {name: x.astype(np.float64) for name, x in kit.read('parameters').items()}


def test_forward_pass_and_learning_rates_are_those_of_one_file():
  right = check.right_arrays()
  computed = check.arrays_of('forward') | check.arrays_of('learning_rate')
  assert len(computed) == 53
  for name, x in computed.items():
    np.testing.assert_allclose(right[name], x, 1e-12, 1e-12, err_msg=name)


def test_gradient_is_the_slope_of_the_loss():
  """By differences of losses in NumPy, along a random direction of each parameter."""
  module, params, ids = compute.load_in_numpy(), parameters(), kit.read('inputs')
  rng = np.random.default_rng(0)
  loss = lambda params: module.loss(
    compute.unflatten(params), ids['source'], ids['target'], compute.EPSILON_LS
  )
  for name, x in params.items():
    step = 1e-6 * np.abs(x).mean() * rng.normal(size=x.shape)
    change = loss(params | {name: x + step}) - loss(params | {name: x - step})
    slope = 2 * (step * check.right_arrays()[f'gradient.{name}']).sum()
    np.testing.assert_allclose(change, slope, 1e-4, 1e-13, err_msg=name)


@pytest.mark.slow
def test_package_computes_the_kit(tmp_path: pathlib.Path):
  path = tmp_path / 'package.npz'
  program = pathlib.Path(__file__).with_name('in_float64.py')
  environment = {'PYTHONPATH': f'{ROOT}:{ROOT / "tests"}', 'JAX_PLATFORMS': 'cpu'}
  subprocess.run([sys.executable, program, path], env=environment, check=True, cwd=ROOT)
  computed = dict(np.load(path))
  by_one_file = {}
  for group in ('forward', 'gradient', 'update'):
    by_one_file |= check.arrays_of(group)
  assert len(computed) == 1 + 6 + 3 + 4 * 61
  for name, x in computed.items():
    np.testing.assert_allclose(x, by_one_file[name], 1e-12, 1e-12, err_msg=name)
    np.testing.assert_allclose(check.right_arrays()[name], x, 1e-6, 1e-7, err_msg=name)


def test_bleu():
  stored = kit.read_json('bleu')
  texts = stored['hypotheses'], stored['references']
  assert len(texts[0]) == len(texts[1]) == 20
  assert scores.right(*texts) == pytest.approx(stored['right'])
  assert scores.wrong(*texts) == pytest.approx(stored['wrong'])
  known = [*stored['right'].values(), *stored['wrong'].values()]
  assert len({round(x, 2) for x in known}) == len(known)


def test_size_of_the_kit():
  assert sum(path.stat().st_size for path in kit.FOLDER.iterdir()) <= 1_500_000


def test_searches_of_the_kit():
  """Each translation is among those that ended, or was cut at the longest length."""
  stored = kit.read_json('search')
  for name, rows in stored['best'].items():
    if name.endswith('.tokens'):
      steps = stored['steps'][name.split('.')[1]]
      for tokens, sentence, longest in zip(rows, steps, stored['longest'], strict=True):
        tokens = [token for token in tokens if token]
        ended = [tokens for step in sentence for _, tokens in step['ended']]
        assert tokens in ended or len(tokens) == longest
        assert len(sentence) <= longest
