"""What a model costs, by arithmetic alone: parameters and FLOPs (Tables 2 and 3)."""

from collections.abc import Mapping
from typing import Any

from transformer_jax.config import target_pieces

# Tokens of the source and of the target for which FLOPs are counted: about the mean
# length in WMT14.
SENTENCE = 30


def parameters(model: Mapping[str, Any]) -> int:
  """Returns the number of trainable parameters of a config's model.

  Attention and the logits have no biases, and the stacks no final LayerNorm.
  """
  N, d_model, d_ff = model['N'], model['d_model'], model['d_ff']
  h, d_k, d_v = model['h'], model['d_k'], model['d_v']
  tokens = model['vocab_size'] + model['target_vocab_size']
  attention = 2 * d_model * h * (d_k + d_v)
  feed_forward = 2 * d_model * d_ff + d_ff + d_model
  norm = 2 * d_model
  layer_pair = 3 * attention + 2 * feed_forward + 5 * norm
  is_learned = model['positions'] == 'learned'
  positions = 2 * model['max_positions'] * d_model if is_learned else 0
  return tokens * d_model + positions + N * layer_pair


def flops_per_target_token(model: Mapping[str, Any], length: int = SENTENCE) -> int:
  """Returns the FLOPs of a model's matrix products per target token in training.

  It counts a pair of `length` source and `length` target tokens. A product of n
  multiply-adds has 2 n FLOPs. The backward pass has two products for each product of
  the forward pass. The product that makes the logits counts; the lookup of embeddings
  does not.
  """
  N, d_model, d_ff = model['N'], model['d_model'], model['d_ff']
  h, d_k, d_v = model['h'], model['d_k'], model['d_v']
  tokens = target_pieces(model)
  projections = 2 * d_model * h * (d_k + d_v)  # multiply-adds of one position
  scores = h * length * (d_k + d_v)
  feed_forward = 2 * d_model * d_ff
  encoder = N * (projections + scores + feed_forward)
  # Decoder self-attention also computes the half that is then masked, so it counts.
  decoder = N * (2 * (projections + scores) + feed_forward)
  return 3 * 2 * (encoder + decoder + d_model * tokens)
