"""Parameters under the names and in the layouts of torch.nn.Transformer, and back.

A linear layer of PyTorch is x W^T. W^Q, W^K and W^V of all heads stand in one matrix.
Attention has biases there, which are 0 here.
"""

from collections.abc import Iterator, Mapping

import numpy as np

ATTENTION = {'attention': 'self_attn', 'cross': 'multihead_attn'}
NORMS = {
  'encoder': {'norm_1': 'norm1', 'norm_3': 'norm2'},
  'decoder': {'norm_1': 'norm1', 'norm_2': 'norm2', 'norm_3': 'norm3'},
}
FEED_FORWARD = {
  'W_1': 'linear1.weight',
  'b_1': 'linear1.bias',
  'W_2': 'linear2.weight',
  'b_2': 'linear2.bias',
}
QKV = ('W_Q', 'W_K', 'W_V')


def to_torch(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
  """Returns parameters for load_state_dict(); the embedding is `embedding.weight`."""
  return {name: np.ascontiguousarray(x) for name, x in _to_torch(arrays)}


def _to_torch(
  arrays: Mapping[str, np.ndarray],
) -> Iterator[tuple[str, np.ndarray]]:
  yield 'embedding.weight', arrays['embedding']
  for name in arrays.keys() - {'embedding'}:
    stack, n, part, last = name.split('.')
    layer = f'{stack}.layers.{n}'
    if part in NORMS[stack]:
      last = 'weight' if last == 'scale' else 'bias'
      yield f'{layer}.{NORMS[stack][part]}.{last}', arrays[name]
    elif part == 'feed_forward':
      yield f'{layer}.{FEED_FORWARD[last]}', arrays[name].T
    elif last == 'W_O':
      output, x = f'{layer}.{ATTENTION[part]}.out_proj', arrays[name]
      yield f'{output}.weight', x.reshape(-1, x.shape[-1]).T
      yield f'{output}.bias', np.zeros(x.shape[-1], x.dtype)
    elif last == 'W_Q':
      heads = (arrays[name.replace('W_Q', W)] for W in QKV)
      x = np.concatenate([W.reshape(len(W), -1).T for W in heads])
      yield f'{layer}.{ATTENTION[part]}.in_proj_weight', x
      yield f'{layer}.{ATTENTION[part]}.in_proj_bias', np.zeros(len(x), x.dtype)


def from_torch(name: str, x: np.ndarray, h: int) -> dict[str, np.ndarray]:
  """Returns the kit's arrays for one of PyTorch's.

  There are none for a bias of attention, or for a norm at the end of a stack.
  `name` may have a prefix, such as `gradient.`. A name that is not PyTorch's stays.
  """
  if name.endswith('embedding.weight'):
    return {name.removesuffix('.weight'): x}
  if name.endswith(('coder.norm.weight', 'coder.norm.bias')):
    return {}
  before, layers, rest = name.partition('.layers.')
  stack = before.rpartition('.')[2]
  if not layers or stack not in NORMS:
    return {name: x}
  n, _, last = rest.partition('.')
  for ours, theirs in FEED_FORWARD.items():
    if last == theirs:
      return {f'{before}.{n}.feed_forward.{ours}': x.T}
  part, _, last = last.partition('.')
  for ours, theirs in NORMS[stack].items():
    if part == theirs:
      last = 'scale' if last == 'weight' else last
      return {f'{before}.{n}.{ours}.{last}': x}
  for ours, theirs in ATTENTION.items():
    if part == theirs:
      prefix = f'{before}.{n}.{ours}'
      if last == 'in_proj_weight':
        split = zip(QKV, np.split(x, 3), strict=True)
        return {f'{prefix}.{W}': y.T.reshape(x.shape[1], h, -1) for W, y in split}
      if last == 'out_proj.weight':
        return {f'{prefix}.W_O': x.T.reshape(h, -1, len(x))}
      return {}
  return {name: x}
