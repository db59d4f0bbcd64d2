"""The Transformer once more, by another hand, right or with planted mistakes.

It computes in NumPy or, for gradients, in PyTorch: head by head, with masks as numbers
and without a line of examples/one_file.py.
"""

import math
from collections.abc import Collection
from typing import Any

import numpy as np
import scipy.special

PAD, EOS, BOS = range(3)
D, D_K, HEADS, LAYERS, WORDS = 32, 8, 4, 2, 60


class Transformer:
  """A model whose `arrays` are those of the last call, by the kit's names.

  Args:
    params: arrays by the kit's names.
    wrong: names of mistakes.
    torch: the module, if `params` are its tensors.
  """

  def __init__(self, params: dict, wrong: Collection[str] = (), torch: Any = None):
    self.p, self.torch = params, torch
    self.wrong = {name.removesuffix('_in_pytorch') for name in wrong}
    self.zeroes = self.wrong != {*wrong}  # weights of a query that sees no key
    self.xp, self.arrays = torch or np, {}
    self.erf = torch.erf if torch else scipy.special.erf

  def number(self, array: Any) -> Any:
    """Returns an array as floats of the model's kind."""
    like = self.p['embedding']
    if not self.torch:
      return np.asarray(array).astype(like.dtype)
    return self.torch.as_tensor(np.asarray(array)).to(like.dtype)

  def put(self, name: str, x: Any) -> Any:
    self.arrays[name] = x
    return x

  def softmax(self, x: Any, axis: int = -1) -> Any:
    top = x.amax(axis, keepdim=True) if self.torch else x.max(axis, keepdims=True)
    x = self.xp.exp(x - top)
    total = x.sum(axis, keepdim=True) if self.torch else x.sum(axis, keepdims=True)
    return x / total

  # Embeddings

  def encoding(self, length: int) -> Any:
    wrong, rows = self.wrong, []
    for position in range(length):
      position += 'positions_from_1' in wrong
      pairs = []
      for pair in range(D // 2):
        exponent = 2 * pair / D
        if 'halves_of_tensor2tensor' in wrong:
          exponent = pair / (D // 2 - 1)
        if 'exponent_halved' in wrong:
          exponent = pair / D
        angles = [position / 10000**exponent] * 2
        if 'exponent_of_column' in wrong:
          columns = 2 * pair, 2 * pair + 1
          angles = [position / 10000 ** (2 * column / D) for column in columns]
        pairs.append((math.sin(angles[0]), math.cos(angles[1])))
      if 'cosines_first' in wrong:
        pairs = [(cosine, sine) for sine, cosine in pairs]
      if {'halves', 'halves_of_tensor2tensor'} & {*wrong}:
        pairs = [*zip(*pairs, strict=True)]
      rows.append([x for pair in pairs for x in pair])
    return self.number(rows)

  def embed(self, stack: str, ids: Any, table: Any) -> Any:
    wrong = self.wrong
    encoding = self.put(f'{stack}.positional_encoding', self.encoding(ids.shape[1]))
    factor = 1 if 'unscaled_embedding' in wrong else math.sqrt(D)
    factor = D if 'scaled_by_d_model' in wrong else factor
    x = self.put(f'{stack}.scaled_embedding', table[ids] * factor)
    if 'scaled_positions' in wrong:
      encoding = encoding * math.sqrt(D)
    return self.put(f'{stack}.input', x if 'no_positions' in wrong else x + encoding)

  # Layers

  def attention(self, name: str, x: Any, memory: Any, mask: Any) -> Any:
    """`mask` is an array of 1 (seen) and 0, [B, T, S]."""
    wrong, p = self.wrong, self.p
    B, T, S = len(x), x.shape[1], memory.shape[1]
    q, k, v = [], [], []
    for projected, source, W in (q, x, 'Q'), (k, memory, 'K'), (v, memory, 'V'):
      for head in range(HEADS):
        y = source @ p[f'{name}.W_{W}'][:, head]
        if 'attention_biases' in wrong:
          y = y + p[f'{name}.b_{W}'][head]
        projected.append(y)
    if 'heads_split_by_reshape' in wrong:
      cut = lambda heads, length: self.xp.stack(heads, 2).reshape(B, HEADS, length, D_K)
      q, k, v = ([*cut(y, n).swapaxes(0, 1)] for y, n in ((q, T), (k, S), (v, S)))
    scale = math.sqrt(D_K)
    if 'unscaled_scores' in wrong:
      scale = 1
    if 'scores_by_d_model' in wrong:
      scale = math.sqrt(D)
    if 'scores_by_d_k' in wrong:
      scale = D_K
    scores = [a @ b.swapaxes(1, 2) / scale for a, b in zip(q, k, strict=True)]
    scores = self.put(f'{name}.scores', self.xp.stack(scores, 1))
    mask = mask[:, None]
    if 'mask_inverted' in wrong:
      mask = 1 - mask
    if 'mask_adds_minus_1' in wrong:
      masked = scores - (1 - mask)
    elif 'masked_scores_0' in wrong:
      masked = scores * mask
    elif 'mask_after_softmax' in wrong:
      masked = scores
    else:
      masked = scores * mask - 1e9 * (1 - mask)
    axis = -2 if 'softmax_over_queries' in wrong else -1
    axis = 1 if 'softmax_over_heads' in wrong else axis
    weights = self.softmax(masked, axis)
    if 'mask_after_softmax' in wrong:
      weights = weights * mask
    if self.zeroes:
      weights = weights * (mask.sum(-1)[..., None] > 0)
    self.put(f'{name}.weights', weights)
    heads = [weights[:, head] @ v[head] for head in range(HEADS)]
    if 'heads_joined_by_reshape' in wrong:
      heads = self.xp.stack(heads, 1).reshape(B, T, HEADS, D_K)
    else:
      heads = self.xp.stack(heads, 2)
    self.put(f'{name}.heads', heads)
    x = heads.reshape(B, T, -1) @ p[f'{name}.W_O'].reshape(-1, D)
    if 'attention_biases' in wrong:
      x = x + p[f'{name}.b_O']
    return self.put(f'{name}.output', x)

  def feed_forward(self, name: str, x: Any) -> Any:
    p, wrong = self.p, self.wrong
    relu = lambda x: x * (x > 0)
    biased = 'no_biases_in_feed_forward' not in wrong
    x = x @ p[f'{name}.W_1'] + p[f'{name}.b_1'] * biased
    if 'gelu' in wrong:
      x = x * (1 + self.erf(x / math.sqrt(2))) / 2
    elif 'gelu_by_tanh' in wrong:
      x = x / 2 * (1 + self.xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    elif not {'relu_after_second_matrix', 'no_relu'} & {*wrong}:
      x = relu(x)
    self.put(f'{name}.hidden', x)
    x = x @ p[f'{name}.W_2'] + p[f'{name}.b_2'] * biased
    return self.put(
      f'{name}.output', relu(x) if 'relu_after_second_matrix' in wrong else x
    )

  def norm(self, name: str, x: Any) -> Any:
    wrong = self.wrong
    mean = 0 if 'rms_norm' in wrong else x.sum(-1)[..., None] / D
    squares = ((x - mean) ** 2).sum(-1)[..., None]
    unbiased = {'unbiased_deviation', 'norm_epsilon_outside_root'} & {*wrong}
    variance = squares / (D - 1 if unbiased else D)
    epsilon = 1e-6
    for name_of_mistake in wrong:
      before, _, value = name_of_mistake.partition('norm_epsilon_1e')
      epsilon = float(f'1e{value}') if value else epsilon
    deviation = (variance + epsilon) ** 0.5
    if 'norm_epsilon_outside_root' in wrong:
      deviation = variance**0.5 + epsilon
    return (x - mean) / deviation * self.p[f'{name}.scale'] + self.p[f'{name}.bias']

  def sublayer(self, name: str, x: Any, function: Any) -> Any:
    if {'pre_norm', 'pre_norm_with_final_norms'} & {*self.wrong}:
      return x + function(self.put(name, self.norm(name, x)))
    y = function(x)
    if 'norm_before_residual' in self.wrong:
      return self.put(name, x + self.norm(name, y))
    return self.put(name, self.norm(name, y if 'no_residual' in self.wrong else x + y))

  def end(self, name: str, x: Any) -> Any:
    final = {'final_norms', 'pre_norm_with_final_norms'} & {*self.wrong}
    return self.norm(name, x) if final else x

  # Stacks

  def encode(self, source: Any) -> tuple[list[Any], Any]:
    """Returns each layer's output, and cross-attention's mask [B, 1, S]."""
    wrong = self.wrong
    table = self.p['source_embedding' if 'untied_source' in wrong else 'embedding']
    x = self.embed('encoder', source, table)
    seen = self.number(source != PAD)[:, None]
    if 'padding_mask_inverted' in wrong:
      seen = 1 - seen
    if 'no_mask_of_padding' in wrong:
      seen = seen * 0 + 1
    mask = seen * 0 + 1 if 'no_mask_in_encoder' in wrong else seen
    outputs = []
    for n in range(LAYERS):
      layer = f'encoder.{n}'
      attend = lambda y, layer=layer: self.attention(f'{layer}.attention', y, y, mask)
      x = self.sublayer(f'{layer}.norm_1', x, attend)
      feed = lambda y, layer=layer: self.feed_forward(f'{layer}.feed_forward', y)
      x = self.sublayer(f'{layer}.norm_3', x, feed)
      outputs.append(x)
    if 'memory_of_same_layer' not in wrong:
      outputs = [self.end('encoder_norm', x)] * LAYERS
    return outputs, seen * 0 + 1 if 'no_mask_in_cross_attention' in wrong else seen

  def decode(self, memory: tuple[list[Any], Any], target: Any) -> Any:
    wrong = self.wrong
    T = target.shape[1]
    inputs = target * 0
    if 'not_shifted' in wrong:
      inputs = target
    elif 'shifted_to_the_left' in wrong:
      inputs[:, :-1] = target[:, 1:]
    else:
      first = EOS if 'begins_with_eos' in wrong else BOS
      inputs[:, 0] = PAD if 'begins_with_pad' in wrong else first
      inputs[:, 1:] = target[:, :-1]
    y = self.embed('decoder', inputs, self.p['embedding'])
    ahead = 1 if 'causal_mask_late' in wrong else 0
    ahead = -1 if 'causal_mask_early' in wrong else ahead
    ahead = T if 'no_causal_mask' in wrong else ahead
    rows = [[float(key <= query + ahead) for key in range(T)] for query in range(T)]
    causal = self.number([rows])
    if 'causal_mask_inverted' in wrong:
      causal = 1 - causal
    for n in range(LAYERS):
      layer, x = f'decoder.{n}', memory[0][n]
      attend = lambda y, layer=layer: self.attention(f'{layer}.attention', y, y, causal)
      y = self.sublayer(f'{layer}.norm_1', y, attend)

      def cross(y: Any, layer: str = layer, x: Any = x) -> Any:
        if 'cross_attention_to_decoder' in wrong:
          return self.attention(f'{layer}.cross', y, y, causal)
        return self.attention(f'{layer}.cross', y, x, memory[1])

      y = self.sublayer(f'{layer}.norm_2', y, cross)
      feed = lambda y, layer=layer: self.feed_forward(f'{layer}.feed_forward', y)
      y = self.sublayer(f'{layer}.norm_3', y, feed)
    table = self.p['softmax' if 'untied_softmax' in wrong else 'embedding']
    logits = self.end('decoder_norm', y) @ table.T
    if 'logits_by_sqrt_d_model' in wrong:
      logits = logits / math.sqrt(D)
    return self.put('logits', logits)

  def __call__(self, source: Any, target: Any) -> Any:
    """Returns the smoothed loss."""
    logits = self.decode(self.encode(source), target)
    if 'softmax_twice' in self.wrong:
      logits = self.softmax(logits)
    log_p = self.xp.log(self.softmax(logits))
    self.put('log_probabilities', log_p)
    self.put('loss.plain', self.loss(log_p, target, 0.0))
    return self.put('loss.smoothed', self.loss(log_p, target, 0.1))

  def loss(self, log_p: Any, target: Any, epsilon: float) -> Any:
    wrong = self.wrong
    true = self.number(np.eye(WORDS)[np.asarray(target)])
    if 'smoothing_over_v' in wrong:
      labels = (1 - epsilon) * true + epsilon / WORDS
    elif 'smoothing_without_pad' in wrong:
      words = self.number(np.arange(WORDS) != PAD)
      labels = (1 - epsilon) * true + epsilon / (WORDS - 2) * (1 - true) * words
    elif 'no_smoothing' in wrong:
      labels = true
    elif 'smoothing_1_minus_epsilon' in wrong:
      labels = epsilon * true + (1 - epsilon) / (WORDS - 1) * (1 - true)
    else:
      labels = (1 - epsilon) * true + epsilon / (WORDS - 1) * (1 - true)
    each = -(labels * log_p).sum(-1)
    if 'kl_divergence' in wrong:
      off = epsilon / (WORDS - 1)
      entropy = -(1 - epsilon) * math.log(1 - epsilon)
      each = each - entropy + (epsilon * math.log(off) if epsilon else 0)
    real = self.number(target != PAD)
    if 'loss_on_padding' in wrong:
      real = real * 0 + 1
    each = each * real
    if 'mean_over_positions' in wrong:
      return each.mean()
    if 'mean_of_sentence_means' in wrong:
      return (each.sum(1) / real.sum(1)).mean()
    if 'sum_over_sentences' in wrong:
      return each.sum() / len(target)
    return each.sum() if 'summed_loss' in wrong else each.sum() / real.sum()


def rate(step: int, d_model: int, warmup: int, wrong: Collection[str] = ()) -> float:
  """Returns Equation 3 for the update number `step`, from 1."""
  step -= 'step_from_0' in wrong
  rising, falling = step * warmup**-1.5, step**-0.5 if step else math.inf
  factor = max(rising, falling) if 'max_for_min' in wrong else min(rising, falling)
  factor = falling if 'no_warmup' in wrong else factor
  factor *= 2 if 'rate_doubled' in wrong else 1
  return factor if 'rate_without_d_model' in wrong else factor * d_model**-0.5


def search(
  params: dict,
  sentence: list[int],
  beam: int,
  alpha: float,
  wrong: Collection[str] = (),
  extra_length: int = 12,
) -> tuple[list[int], float]:
  """Returns the best translation and its score."""
  model = Transformer(params)
  outputs, mask = model.encode(np.array([sentence]))

  def penalty(length: int) -> float:
    length -= 'eos_not_counted' in wrong
    if 'penalty_without_5' in wrong:
      return float(length) ** alpha
    if 'penalty_is_length' in wrong:
      return length
    return 1 if 'no_penalty' in wrong else ((5 + length) / 6) ** alpha

  live: list[tuple[float, list[int]]] = [(0.0, [])]
  ended: list[tuple[float, list[int]]] = []
  for length in range(1, len(sentence) + extra_length + 1):
    rows = np.array([[*tokens, PAD] for _, tokens in live])
    memory = (
      [np.repeat(x, len(live), 0) for x in outputs],
      np.repeat(mask, len(live), 0),
    )
    logits = model.decode(memory, rows)[:, -1]
    log_p = np.log(model.softmax(logits))
    grown = [
      (total + float(log_p[row, token]), [*tokens, token])
      for row, (total, tokens) in enumerate(live)
      for token in range(WORDS)
      if token not in (PAD, BOS) or 'pad_and_bos_generated' in wrong
    ]
    grown.sort(key=lambda pair: -pair[0])
    grown = grown[: beam if beam == 1 or 'beams_shrink' in wrong else 2 * beam]
    ended += [(x / penalty(length), y) for x, y in grown if y[-1] == EOS]
    live = [pair for pair in grown if pair[1][-1] != EOS][:beam]
    if not live or ('stops_at_first_end' in wrong and ended):
      break
  if ended:
    score, tokens = max(ended, key=lambda pair: pair[0])
    return tokens, score
  total, tokens = live[0]
  length = len(tokens) + ('eos_not_counted' in wrong)
  return tokens, total / penalty(length)
