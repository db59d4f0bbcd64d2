"""What a model costs, by arithmetic alone: parameters and FLOPs (Tables 2 and 3)."""

from collections.abc import Mapping


def parameters(
  *,
  N: int,
  d_model: int,
  d_ff: int,
  h: int,
  d_k: int,
  d_v: int,
  positions: str,
  max_positions: int,
  vocab_size: int,
  target_vocab_size: int,
  biases: bool = False,
  activation: str = 'relu',  # these three have no parameters
  norm_epsilon: float = 1e-6,
  P_drop_attention: float = 0.0,
) -> int:
  """Numbers that are trained: no final norms, and attention biases only if asked."""
  attention = 2 * d_model * h * (d_k + d_v)
  attention += (h * (2 * d_k + d_v) + d_model) * biases
  feed_forward = 2 * d_model * d_ff + d_ff + d_model
  norm = 2 * d_model
  layer_pair = 3 * attention + 2 * feed_forward + 5 * norm
  learned = 2 * max_positions * d_model if positions == 'learned' else 0
  embeddings = (vocab_size + target_vocab_size) * d_model
  embeddings += (target_vocab_size or vocab_size) * biases  # of the logits
  return embeddings + learned + N * layer_pair


# Tokens of a side of a sentence that FLOPs are counted for: about WMT14's mean.
SENTENCE = 30

_SIZES = ('N', 'd_model', 'd_ff', 'h', 'd_k', 'd_v')


def flops_per_target_token(
  model: Mapping[str, float | str], length: int = SENTENCE
) -> int:
  """Training FLOPs of a config's model, by its cells, for `length` tokens a side."""
  sizes = {name: int(model[name]) for name in _SIZES}
  written = int(model['target_vocab_size'] or model['vocab_size'])
  return training_flops_per_target_token(**sizes, vocab_size=written, length=length)


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
