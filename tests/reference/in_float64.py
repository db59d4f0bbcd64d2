"""Saves to argv[1] what the package computes of the kit; float32 means float64."""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from transformer_jax.reference import compute, kit

arrays, ids = kit.read('parameters'), kit.read('inputs')
jax.config.update('jax_enable_x64', True)
jnp.float32 = np.float32 = np.float64
from configs import base  # noqa: E402
from toy.names import renamed  # noqa: E402
from transformer_jax.config import Model  # noqa: E402
from transformer_jax.model.transformer import Transformer  # noqa: E402
from transformer_jax.training import step  # noqa: E402

config = base.get_config()
sizes = {**kit.SIZES, 'vocab_size': kit.SIZES['W']}
config.model.update({key: x for key, x in sizes.items() if key != 'W'})
config.update({'dtype': 'float32', 'warmup_steps': kit.CONFIG['warmup_steps']})
model = Model(**config.model)
dtypes = {'dtype': jnp.float64, 'activation_dtype': jnp.float64}
build = lambda: Transformer(model, **dtypes, rngs=nnx.Rngs(0))
graph, shapes = nnx.split(nnx.eval_shape(build))
shapes = nnx.to_pure_dict(shapes)

paths = jax.tree_util.tree_map_with_path(lambda path, x: path, shapes)
names = {path: name for name, path in compute.flatten(renamed(paths)).items()}
params = jax.tree_util.tree_map_with_path(
  lambda path, x: jnp.asarray(arrays[names[path]], jnp.float64), shapes
)
ids = {name: jnp.asarray(x) for name, x in ids.items()}
tokens = (ids['target'] != 0).sum()
computed = {}


def loss(params):
  outputs = nnx.merge(graph, params)(ids['source'], ids['target'])
  smoothed, plain = step.cross_entropy(outputs, ids['target'], config.epsilon_ls)
  return smoothed / tokens, (plain / tokens, outputs.logits)


def add(prefix, tree):
  for name, x in compute.flatten(renamed(tree)).items():
    computed[f'{prefix}.{name}'] = x


model = nnx.merge(graph, params)
computed['encoder.1.norm_3'] = model.encode(ids['source'])[0]
weights = model.attention_weights(ids['source'], ids['target'])
for n in range(config.model.N):
  computed[f'encoder.{n}.attention.weights'] = weights.encoder[n]
  computed[f'decoder.{n}.attention.weights'] = weights.decoder[n]
  computed[f'decoder.{n}.cross.weights'] = weights.cross[n]
optimizer = step.adam(config)
state = optimizer.init(params)
differentiate = jax.jit(jax.value_and_grad(loss, has_aux=True))
for number in range(1, 11):
  (smoothed, (plain, logits)), gradient = differentiate(params)
  if number == 1:
    computed |= {'loss.smoothed': smoothed, 'loss.plain': plain, 'logits': logits}
    add('gradient', gradient)
  changes, state = optimizer.update(gradient, state, params)
  params = optax.apply_updates(params, changes)
  if number in compute.UPDATES:
    add(f'update_{number}', params)
np.savez(sys.argv[1], **computed)
