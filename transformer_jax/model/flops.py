"""What a model costs, by arithmetic alone: parameters and FLOPs (Tables 2 and 3)."""

from collections.abc import Mapping
from typing import Any

# FLOPs are counted for sentences of so many tokens a side: about WMT14's mean length.
SENTENCE = 30

_SIZES = ('N', 'd_model', 'd_ff', 'h', 'd_k', 'd_v')


def parameters(model: Mapping[str, Any]) -> int:
  """The number of trainable parameters of a config's model.

  The stacks have no final LayerNorm. Attention and the logits have biases only with
  `biases`.
  """
  N, d_model, d_ff, h, d_k, d_v = (model[name] for name in _SIZES)
  source_words, biases = model['vocab_size'], model['biases']
  target_words = model['target_vocab_size']
  attention = 2 * d_model * h * (d_k + d_v)
  attention += (h * (2 * d_k + d_v) + d_model) * biases
  feed_forward = 2 * d_model * d_ff + d_ff + d_model
  norm = 2 * d_model
  layer_pair = 3 * attention + 2 * feed_forward + 5 * norm
  is_learned = model['positions'] == 'learned'
  learned = 2 * model['max_positions'] * d_model if is_learned else 0
  embeddings = (source_words + target_words) * d_model
  embeddings += (target_words or source_words) * biases  # of the logits
  return embeddings + learned + N * layer_pair


def flops_per_target_token(
  model: Mapping[str, float | str], length: int = SENTENCE
) -> int:
  """Training FLOPs of a config's model, by its cells, for `length` tokens a side."""
  sizes = {name: int(model[name]) for name in _SIZES}
  pieces = int(model['target_vocab_size'] or model['vocab_size'])
  return training_flops_per_target_token(**sizes, vocab_size=pieces, length=length)


def training_flops_per_target_token(
  *,
  N: int,
  d_model: int,
  d_ff: int,
  h: int,
  d_k: int,
  d_v: int,
  vocab_size: int,
  length: int,
) -> int:
  """FLOPs of matrix products per target token, forward and backward.

  For pairs of `length` tokens a side. A product of n multiply-adds is 2 n FLOPs, and
  the backward pass is two products for each of the forward's; the softmax's product
  with all the target's vocabulary counts, looking embeddings up does not.
  """
  projections = 2 * d_model * h * (d_k + d_v)  # multiply-adds of one position
  scores = h * length * (d_k + d_v)
  feed_forward = 2 * d_model * d_ff
  encoder = N * (projections + scores + feed_forward)
  # The causal half of decoder self-attention is computed and masked, so it counts.
  decoder = N * (2 * (projections + scores) + feed_forward)
  return 3 * 2 * (encoder + decoder + d_model * vocab_size)
