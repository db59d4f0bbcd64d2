"""reference/ has what one_file.py and the package compute."""

import json
import pathlib
import shutil
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from safetensors import numpy as safetensors

from configs import base
from toy.names import renamed
from transformer_jax.model import build
from transformer_jax.reference import check, compute, kit
from transformer_jax.training import step


@pytest.mark.slow
def test_the_kit_is_written_again(tmp_path: pathlib.Path, monkeypatch):
  """By one_file.py; gradients and updates are stored in float32."""
  stored = [*kit.FOLDER.iterdir()]
  shutil.copy(kit.FOLDER / 'bleu.json', tmp_path)
  monkeypatch.setattr(kit, 'FOLDER', tmp_path)
  kit.write()
  rounded = lambda text: json.loads(text, parse_float=lambda x: round(float(x), 6))
  for path in stored:
    ours = tmp_path / path.name
    if path.suffix == '.json':
      assert rounded(ours.read_text()) == rounded(path.read_text()), path
      continue
    arrays, known = map(safetensors.load_file, (ours, path))
    assert arrays.keys() == known.keys()
    limits = (1e-6, 1e-7) if path.stem == 'backward' else (1e-12, 1e-12)
    for name, x in arrays.items():
      assert x.dtype == known[name].dtype
      np.testing.assert_allclose(x, known[name], *limits, err_msg=name)


@pytest.mark.slow
def test_the_package_passes():
  """In float32: logits, losses, gradient and ten updates."""
  config = base.get_config()
  sizes = {'vocab_size': kit.SIZES['W']} | kit.SIZES
  config.model.update({key: n for key, n in sizes.items() if key != 'W'})
  config.update({'dtype': 'float32', 'warmup_steps': kit.CONFIG['warmup_steps']})
  graph, shapes = build.architecture(config)
  paths = jax.tree_util.tree_map_with_path(lambda path, x: path, shapes)
  names = {path: name for name, path in compute.flatten(renamed(paths)).items()}
  arrays = kit.read('parameters')
  params = jax.tree_util.tree_map_with_path(lambda path, _: arrays[names[path]], shapes)
  source, target = (jnp.asarray(kit.read('inputs')[x]) for x in ('source', 'target'))
  optimizer, tokens, mine = step.adam(config), (target != 0).sum(), {}
  state = optimizer.init(params)

  def loss(params: Any) -> tuple[jax.Array, tuple]:
    outputs = nnx.merge(graph, params)(source, target)
    smoothed, plain = step.cross_entropy(outputs, target, config.epsilon_ls)
    return smoothed / tokens, (plain / tokens, outputs.logits)

  def add(prefix: str, tree: Any) -> None:
    for name, x in compute.flatten(renamed(tree)).items():
      mine[f'{prefix}.{name}'] = x

  differentiate = jax.jit(jax.value_and_grad(loss, has_aux=True))
  for number in range(1, 11):
    (smoothed, (plain, logits)), gradient = differentiate(params)
    if number == 1:
      mine |= {'loss.smoothed': smoothed, 'loss.plain': plain, 'logits': logits}
      add('gradient', gradient)
    changes, state = optimizer.update(gradient, state, params)
    params = optax.apply_updates(params, changes)
    if number in compute.UPDATES:
      add(f'update_{number}', params)
  mine = {name: np.asarray(mine[name]) for name in check.right_arrays() if name in mine}
  (line,) = check.report(mine)
  assert line.startswith(f'equal: {3 + 4 * 61} of {3 + 4 * 61} arrays')
