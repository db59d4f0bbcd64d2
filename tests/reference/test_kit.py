"""reference/ has what one_file.py and the package compute."""

import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
from safetensors import numpy as safetensors

from transformer_jax.reference import check, compute, kit

ROOT = pathlib.Path(__file__).parents[2]


def parameters() -> dict[str, np.ndarray]:
  return {name: x.astype(np.float64) for name, x in kit.read('parameters').items()}


@pytest.mark.slow
def test_the_kit_is_written_again(tmp_path: pathlib.Path, monkeypatch):
  """Gradients and updates take long: test_package_computes_the_kit has them."""
  stored, backward = [*kit.FOLDER.iterdir()], kit.read('backward')
  shutil.copy(kit.FOLDER / 'bleu.json', tmp_path)
  monkeypatch.setattr(kit, 'FOLDER', tmp_path)
  rate = {'learning_rate'}
  monkeypatch.setattr(compute, 'gradient', lambda *_: {})
  monkeypatch.setattr(
    compute,
    'updates',
    lambda *_: {key: backward[key] for key in backward.keys() - rate},
  )
  kit.write()
  rounded = lambda text: json.loads(text, parse_float=lambda x: round(float(x), 6))
  for path in stored:
    ours = tmp_path / path.name
    if path.suffix == '.json':
      assert rounded(ours.read_text()) == rounded(path.read_text()), path
      continue
    arrays, known = map(safetensors.load_file, (ours, path))
    assert arrays.keys() == known.keys()
    for name, x in arrays.items():
      assert x.dtype == known[name].dtype
      np.testing.assert_allclose(x, known[name], 1e-12, 1e-12, err_msg=name)
  assert sum(path.stat().st_size for path in stored) <= 1_500_000
  bleu = kit.read_json('bleu')
  known = [*bleu['right'].values(), *bleu['wrong'].values()]
  assert len({round(x, 2) for x in known}) == len(known)


def test_arrays_are_those_of_one_file():
  right = check.right_arrays()
  for group in ('forward', 'learning_rate', *kit.SEARCHES):
    computed = check.arrays_of(group)
    assert [*computed] == [name for name in right if check.group_of(name) == group]
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
