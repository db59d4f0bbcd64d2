"""The whole Transformer equals one made of PyTorch's layers, weights copied.

Logits, and gradients of the label-smoothed loss, in float32. Embeddings and positions
around PyTorch's layers are written here, so nothing of this project computes them.
(tests/exchange compares with Hugging Face's Marian.)
"""

import math
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from transformer_jax.data.vocabulary import BOS, PAD
from transformer_jax.model.layers import Hyperparameters
from transformer_jax.model.transformer import Transformer
from transformer_jax.training.loss import cross_entropy

torch = pytest.importorskip('torch')

pytestmark = pytest.mark.torch

Tree = Any
Weights = dict[str, Any]  # our names to tensors that require gradients

N, D, FF, H, W = 2, 24, 40, 3, 31
EPSILON = 0.1


def ours() -> tuple[nnx.GraphDef, Tree]:
  """The model with every parameter random, biases and norms too."""

  def make() -> Transformer:
    return Transformer(
      Hyperparameters(
        N=N,
        d_model=D,
        d_ff=FF,
        h=H,
        d_k=D // H,
        d_v=D // H,
        P_drop=0.1,
        P_drop_attention=0.0,
        positions='sinusoid',
        max_positions=0,
        vocab_size=W,
        target_vocab_size=0,
        activation='relu',
        biases=False,
        norm_epsilon=1e-6,
      ),
      dtype=jnp.float32,
      activation_dtype=jnp.float32,
      rngs=nnx.Rngs(params=0),
    )

  graph, shapes = nnx.split(nnx.eval_shape(make))
  rng = np.random.default_rng(0)

  def fill(path: tuple, leaf: jax.ShapeDtypeStruct) -> np.ndarray:
    # Norms near 1: where they are near 0, gradients are what rounding leaves of them.
    return (rng.normal(size=leaf.shape) * 0.3 + (path[-1].key == 'scale')).astype('f4')

  return graph, jax.tree_util.tree_map_with_path(fill, nnx.to_pure_dict(shapes))


def sentences() -> tuple[np.ndarray, np.ndarray]:
  """[3, 7] source and [3, 9] target, padded to different lengths."""
  rng = np.random.default_rng(1)
  source = rng.integers(3, W, (3, 7))
  target = rng.integers(3, W, (3, 9))
  for row, (S, T) in enumerate(((7, 5), (3, 9), (1, 2))):
    source[row, S:] = PAD
    target[row, T:] = PAD
  return source, target


def positions(length: int) -> np.ndarray:
  table = np.zeros((length, D), np.float32)
  for position in range(length):
    for i in range(0, D, 2):
      angle = position / math.pow(10000, i / D)
      table[position, i : i + 2] = math.sin(angle), math.cos(angle)
  return table


def named(params: Tree) -> dict[str, np.ndarray]:
  """Dotted names, such as encoder.0.attention.query."""
  leaves = jax.tree_util.tree_leaves_with_path(params)
  return {'.'.join(str(p.key) for p in path): np.asarray(x) for path, x in leaves}


def inward(w: Any) -> Any:
  """Our [D, H, K] as PyTorch's [H K, D]."""
  return w.reshape(D, -1).T


def outward(w: Any) -> Any:
  """Our [H, V, D] as PyTorch's [D, H V]."""
  return w.reshape(-1, D).T


def torch_layers() -> tuple[Any, Any]:
  sizes = {'dropout': 0.0, 'layer_norm_eps': 1e-6, 'batch_first': True}
  layers = (
    torch.nn.TransformerEncoderLayer(D, H, FF, **sizes),
    torch.nn.TransformerDecoderLayer(D, H, FF, **sizes),
  )
  encoder = torch.nn.TransformerEncoder(layers[0], N, enable_nested_tensor=False)
  return encoder, torch.nn.TransformerDecoder(layers[1], N)


def torch_weights(w: Weights, stack: str) -> Weights:
  """State of one of torch.nn's stacks; attention's biases stay zero."""
  norms = ['attention_norm', 'cross_norm', 'feed_forward_norm']
  if stack == 'encoder':
    norms.remove('cross_norm')
  state = {}
  for n in range(N):
    here, there = f'{stack}.{n}', f'layers.{n}'
    for mine, theirs in (('attention', 'self_attn'), ('cross', 'multihead_attn')):
      if f'{here}.{mine}.query' in w:
        three = [inward(w[f'{here}.{mine}.{x}']) for x in ('query', 'key', 'value')]
        state[f'{there}.{theirs}.in_proj_weight'] = torch.cat(three)
        state[f'{there}.{theirs}.in_proj_bias'] = torch.zeros(3 * D)
        state[f'{there}.{theirs}.out_proj.weight'] = outward(w[f'{here}.{mine}.output'])
        state[f'{there}.{theirs}.out_proj.bias'] = torch.zeros(D)
    for mine, theirs in (('inner', 'linear1'), ('outer', 'linear2')):
      state[f'{there}.{theirs}.weight'] = w[f'{here}.feed_forward.{mine}.kernel'].T
      state[f'{there}.{theirs}.bias'] = w[f'{here}.feed_forward.{mine}.bias']
    for number, mine in enumerate(norms, 1):
      state[f'{there}.norm{number}.weight'] = w[f'{here}.{mine}.norm.scale']
      state[f'{there}.norm{number}.bias'] = w[f'{here}.{mine}.norm.bias']
  return state


def torch_logits(w: Weights, source: Any, shifted: Any) -> Any:
  encoder, decoder = torch_layers()
  embedding = w['embedding']
  embed = lambda ids: (
    torch.nn.functional.embedding(ids, embedding) * math.sqrt(D)
    + torch.from_numpy(positions(ids.shape[1]))
  )
  T = shifted.shape[1]
  memory = torch.func.functional_call(
    encoder,
    torch_weights(w, 'encoder'),
    (embed(source),),
    {'src_key_padding_mask': source == PAD},
  )
  out = torch.func.functional_call(
    decoder,
    torch_weights(w, 'decoder'),
    (embed(shifted), memory),
    {
      'tgt_mask': torch.ones(T, T, dtype=torch.bool).triu(1),
      'memory_key_padding_mask': source == PAD,
    },
  )
  return out @ embedding.T


def test_logits_and_gradients_equal():
  graph, params = ours()
  source, target = sentences()

  def loss(p: Tree) -> tuple[jax.Array, jax.Array]:
    outputs = nnx.merge(graph, p)(source, target)
    return cross_entropy(outputs, target, EPSILON)[0], outputs.logits

  (value, logits), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(params)

  weights = {k: torch.tensor(v, requires_grad=True) for k, v in named(params).items()}
  shifted = np.concatenate([np.full((len(target), 1), BOS), target[:, :-1]], axis=1)
  with warnings.catch_warnings():
    warnings.simplefilter('ignore')  # PyTorch's own deprecations
    theirs = torch_logits(weights, torch.from_numpy(source), torch.from_numpy(shifted))
  # PyTorch shares epsilon out among all words, the true one included.
  their_value = torch.nn.functional.cross_entropy(
    theirs.reshape(-1, W),
    torch.from_numpy(target).reshape(-1),
    ignore_index=PAD,
    label_smoothing=EPSILON * W / (W - 1),
    reduction='sum',
  )
  their_value.backward()

  real = target != PAD
  close = lambda a, b: np.abs(a - b).max() <= 1e-4 * np.abs(b).max()
  assert close(np.asarray(logits)[real], theirs.detach().numpy()[real])
  np.testing.assert_allclose(value, their_value.item(), rtol=1e-5)
  for name, mine in named(gradient).items():
    assert close(mine, weights[name].grad.numpy()), name
