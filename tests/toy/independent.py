"""The Transformer once more, by another hand, right or with planted mistakes.

It computes in NumPy or, for gradients, in PyTorch: head by head, with masks as numbers
and without a line of examples/one_file.py.
"""

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import numpy as np
import scipy.special

PAD, EOS, BOS = range(3)
Hypothesis = tuple[float, tuple[int, ...], bool]  # score, tokens, finished
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

  def choose(self, right: Any, **mistakes: Any) -> Any:
    """Returns the value of a planted mistake, or the right one."""
    return next((x for name, x in mistakes.items() if name in self.wrong), right)

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
    rows = []
    for position in range(length):
      position += 'positions_from_1' in self.wrong
      pairs = []
      for pair in range(D // 2):
        exponent = self.choose(
          2 * pair / D,
          halves_of_tensor2tensor=pair / (D // 2 - 1),
          exponent_halved=pair / D,
        )
        both = exponent, exponent
        of_columns = 4 * pair / D, (4 * pair + 2) / D
        of_sine, of_cosine = self.choose(both, exponent_of_column=of_columns)
        sine = math.sin(position / 10000**of_sine)
        pairs.append((sine, math.cos(position / 10000**of_cosine)))
      pairs = self.choose(pairs, cosines_first=[pair[::-1] for pair in pairs])
      halves = [*zip(*pairs, strict=True)]
      pairs = self.choose(pairs, halves=halves, halves_of_tensor2tensor=halves)
      rows.append([x for pair in pairs for x in pair])
    return self.number(rows)

  def embed(self, stack: str, ids: Any, table: Any) -> Any:
    root = math.sqrt(D)
    encoding = self.put(f'{stack}.positional_encoding', self.encoding(ids.shape[1]))
    factor = self.choose(root, unscaled_embedding=1, scaled_by_d_model=D)
    x = self.put(f'{stack}.scaled_embedding', table[ids] * factor)
    encoding = encoding * self.choose(1, scaled_positions=root, no_positions=0)
    return self.put(f'{stack}.input', x + encoding)

  # Layers

  def attention(self, name: str, x: Any, memory: Any, mask: Any) -> Any:
    """`mask` is an array of 1 (seen) and 0, [B, T, S]."""
    wrong, p, stack = self.wrong, self.p, self.xp.stack
    B, T, S = len(x), x.shape[1], memory.shape[1]
    biased = 'attention_biases' in wrong
    q, k, v = [], [], []
    for projected, source, W in (q, x, 'Q'), (k, memory, 'K'), (v, memory, 'V'):
      for head in range(HEADS):
        bias = p[f'{name}.b_{W}'][head] * biased
        projected.append(source @ p[f'{name}.W_{W}'][:, head] + bias)
    if 'heads_split_by_reshape' in wrong:
      cut = lambda heads, length: stack(heads, 2).reshape(B, HEADS, length, D_K)
      q, k, v = ([*cut(y, n).swapaxes(0, 1)] for y, n in ((q, T), (k, S), (v, S)))
    n = self.choose(D_K, unscaled_scores=1, scores_by_d_model=D, scores_by_d_k=D_K**2)
    scores = [a @ b.swapaxes(1, 2) / math.sqrt(n) for a, b in zip(q, k, strict=True)]
    scores = self.put(f'{name}.scores', stack(scores, 1))
    mask = self.choose(mask, mask_inverted=1 - mask)[:, None]
    masked = self.choose(
      scores * mask - 1e9 * (1 - mask),
      mask_adds_minus_1=scores - (1 - mask),
      masked_scores_0=scores * mask,
      mask_after_softmax=scores,
    )
    axis = self.choose(-1, softmax_over_queries=-2, softmax_over_heads=1)
    weights = self.softmax(masked, axis)
    weights = self.choose(weights, mask_after_softmax=weights * mask)
    if self.zeroes:
      weights = weights * (mask.sum(-1)[..., None] > 0)
    self.put(f'{name}.weights', weights)
    heads = [weights[:, head] @ v[head] for head in range(HEADS)]
    joined = stack(heads, 1).reshape(B, T, HEADS, D_K)
    heads = self.choose(stack(heads, 2), heads_joined_by_reshape=joined)
    self.put(f'{name}.heads', heads)
    x = heads.reshape(B, T, -1) @ p[f'{name}.W_O'].reshape(-1, D)
    return self.put(f'{name}.output', x + p[f'{name}.b_O'] * biased)

  def feed_forward(self, name: str, x: Any) -> Any:
    p, relu = self.p, lambda x: x * (x > 0)
    biased = 'no_biases_in_feed_forward' not in self.wrong
    x = x @ p[f'{name}.W_1'] + p[f'{name}.b_1'] * biased
    tanh = self.xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    x = self.choose(
      relu(x),
      gelu=x * (1 + self.erf(x / math.sqrt(2))) / 2,
      gelu_by_tanh=x / 2 * (1 + tanh),
      relu_after_second_matrix=x,
      no_relu=x,
    )
    self.put(f'{name}.hidden', x)
    x = x @ p[f'{name}.W_2'] + p[f'{name}.b_2'] * biased
    return self.put(f'{name}.output', self.choose(x, relu_after_second_matrix=relu(x)))

  def norm(self, name: str, x: Any) -> Any:
    mean = self.choose(x.sum(-1)[..., None] / D, rms_norm=0)
    squares = ((x - mean) ** 2).sum(-1)[..., None]
    unbiased = {'unbiased_deviation', 'norm_epsilon_outside_root'} & {*self.wrong}
    variance = squares / (D - 1 if unbiased else D)
    epsilon = self.choose(
      1e-6, **{f'norm_epsilon_{x}': float(x) for x in ('1e-5', '1e-3', '1e-12')}
    )
    outside = variance**0.5 + epsilon
    deviation = (variance + epsilon) ** 0.5
    deviation = self.choose(deviation, norm_epsilon_outside_root=outside)
    return (x - mean) / deviation * self.p[f'{name}.scale'] + self.p[f'{name}.bias']

  def sublayer(self, name: str, x: Any, function: Any) -> Any:
    if {'pre_norm', 'pre_norm_with_final_norms'} & {*self.wrong}:
      return x + function(self.put(name, self.norm(name, x)))
    y = function(x)
    if 'norm_before_residual' in self.wrong:
      return self.put(name, x + self.norm(name, y))
    return self.put(name, self.norm(name, self.choose(x + y, no_residual=y)))

  def layer(self, name: str, x: Any, mask: Any, *memory: Any) -> Any:
    """`memory` are a decoder's encoder output and its mask."""
    attend = lambda y: self.attention(f'{name}.attention', y, y, mask)
    x = self.sublayer(f'{name}.norm_1', x, attend)
    if memory:
      of = lambda y: self.choose(memory, cross_attention_to_decoder=(y, mask))
      cross = lambda y: self.attention(f'{name}.cross', y, *of(y))
      x = self.sublayer(f'{name}.norm_2', x, cross)
    feed = lambda y: self.feed_forward(f'{name}.feed_forward', y)
    return self.sublayer(f'{name}.norm_3', x, feed)

  def end(self, name: str, x: Any) -> Any:
    final = {'final_norms', 'pre_norm_with_final_norms'} & {*self.wrong}
    return self.norm(name, x) if final else x

  # Stacks

  def encode(self, source: Any) -> tuple[list[Any], Any]:
    """Returns each layer's output, and cross-attention's mask [B, 1, S]."""
    table = self.p[self.choose('embedding', untied_source='source_embedding')]
    x = self.embed('encoder', source, table)
    seen = self.number(source != PAD)[:, None]
    every = seen * 0 + 1
    seen = self.choose(seen, padding_mask_inverted=1 - seen, no_mask_of_padding=every)
    mask = self.choose(seen, no_mask_in_encoder=every)
    outputs = []
    for n in range(LAYERS):
      x = self.layer(f'encoder.{n}', x, mask)
      outputs.append(x)
    last = [self.end('encoder_norm', x)] * LAYERS
    outputs = self.choose(last, memory_of_same_layer=outputs)
    return outputs, self.choose(seen, no_mask_in_cross_attention=every)

  def decode(self, memory: tuple[list[Any], Any], target: Any) -> Any:
    T = target.shape[1]
    right, left = target * 0, target * 0
    right[:, 0] = self.choose(BOS, begins_with_eos=EOS, begins_with_pad=PAD)
    right[:, 1:], left[:, :-1] = target[:, :-1], target[:, 1:]
    inputs = self.choose(right, not_shifted=target, shifted_to_the_left=left)
    y = self.embed('decoder', inputs, self.p['embedding'])
    ahead = self.choose(0, causal_mask_late=1, causal_mask_early=-1, no_causal_mask=T)
    rows = [[float(key <= query + ahead) for key in range(T)] for query in range(T)]
    causal = self.number([rows])
    causal = self.choose(causal, causal_mask_inverted=1 - causal)
    for n in range(LAYERS):
      y = self.layer(f'decoder.{n}', y, causal, memory[0][n], memory[1])
    table = self.p[self.choose('embedding', untied_softmax='softmax')]
    logits = self.end('decoder_norm', y) @ table.T
    scaled = logits / math.sqrt(D)
    return self.put('logits', self.choose(logits, logits_by_sqrt_d_model=scaled))

  def __call__(self, source: Any, target: Any) -> Any:
    """Returns the smoothed loss."""
    logits = self.decode(self.encode(source), target)
    logits = self.choose(logits, softmax_twice=self.softmax(logits))
    log_p = self.xp.log(self.softmax(logits))
    self.put('log_probabilities', log_p)
    self.put('loss.plain', self.loss(log_p, target, 0.0))
    return self.put('loss.smoothed', self.loss(log_p, target, 0.1))

  def loss(self, log_p: Any, target: Any, epsilon: float) -> Any:
    true = self.number(np.eye(WORDS)[np.asarray(target)])
    words, others = self.number(np.arange(WORDS) != PAD), 1 - true
    off = epsilon / (WORDS - 1)
    labels = self.choose(
      (1 - epsilon) * true + off * others,
      smoothing_over_v=(1 - epsilon) * true + epsilon / WORDS,
      smoothing_without_pad=(1 - epsilon) * true
      + epsilon / (WORDS - 2) * others * words,
      no_smoothing=true,
      smoothing_1_minus_epsilon=epsilon * true + (1 - epsilon) / (WORDS - 1) * others,
    )
    each = -(labels * log_p).sum(-1)
    if 'kl_divergence' in self.wrong and epsilon:
      each = each + (1 - epsilon) * math.log(1 - epsilon) + epsilon * math.log(off)
    real = self.number(target != PAD)
    real = self.choose(real, loss_on_padding=real * 0 + 1)
    each = each * real
    return self.choose(
      each.sum() / real.sum(),
      mean_over_positions=each.mean(),
      mean_of_sentence_means=(each.sum(1) / real.sum(1)).mean(),
      sum_over_sentences=each.sum() / len(target),
      summed_loss=each.sum(),
    )


def rate(step: int, d_model: int, warmup: int, wrong: Collection[str] = ()) -> float:
  """Returns Equation 3 for the update number `step`, from 1."""
  step -= 'step_from_0' in wrong
  rising, falling = step * warmup**-1.5, step**-0.5 if step else math.inf
  factor = max(rising, falling) if 'max_for_min' in wrong else min(rising, falling)
  factor = falling if 'no_warmup' in wrong else factor
  factor *= 2 if 'rate_doubled' in wrong else 1
  return factor if 'rate_without_d_model' in wrong else factor * d_model**-0.5


def narrowest(entries: Sequence, first: int, last: int) -> float:
  """Returns the smallest gap between totals of neighbours, from first to last."""
  pairs = list(itertools.pairwise(entries))[max(first, 0) : max(last, 0)]
  return min((a[0] - b[0] for a, b in pairs), default=math.inf)


def plain_search(
  next_log_p: Callable[[list[tuple[int, ...]]], Iterable[Sequence[float]]],
  limit: int,
  beam: int,
  alpha: float,
  wrong: Collection[str] = (),
) -> tuple[list[Hypothesis], float]:
  """Searches to the limit; returns the n-best list and its narrowest decision.

  `next_log_p` returns log P of each token after each of some hypotheses.
  """

  def penalty(length: int) -> float:
    length -= 'eos_not_counted' in wrong
    if 'penalty_without_5' in wrong:
      return float(length) ** alpha
    if 'penalty_is_length' in wrong:
      return length
    return 1 if 'no_penalty' in wrong else ((5 + length) / 6) ** alpha

  never = () if 'pad_and_bos_generated' in wrong else (PAD, BOS)
  count = beam if beam == 1 or 'beams_shrink' in wrong else 2 * beam
  live, ended, margins = [(0.0, ())], [], []
  for length in range(1, limit + 1):
    rows = next_log_p([y for _, y in live])
    grown = [
      (total + more, (*tokens, token))
      for (total, tokens), row in zip(live, rows, strict=True)
      for token, more in enumerate(row)
      if token not in never and more > -math.inf
    ]
    grown.sort(key=lambda pair: -pair[0])
    margins.append(narrowest(grown, count - 1, count))
    grown = grown[:count]
    ended += [(x / penalty(length), y, True) for x, y in grown if y[-1] == EOS]
    live = [pair for pair in grown if pair[1][-1] != EOS]
    margins.append(narrowest(live, beam - 1, beam))
    live = live[:beam]
    if not live or ('stops_at_first_end' in wrong and ended):
      break
  ended.sort(key=lambda entry: -entry[0])
  length = limit + ('eos_not_counted' in wrong)
  cut = [(total / penalty(length), tokens, False) for total, tokens in live]
  margins += narrowest(ended, 0, beam), narrowest(cut, 0, beam - len(ended))
  return (ended + cut)[:beam], min(margins)


def search(
  params: dict,
  sentence: list[int],
  beam: int,
  alpha: float,
  wrong: Collection[str] = (),
) -> tuple[list[int], float]:
  """Returns the best translation and its score."""
  model = Transformer(params)
  outputs, mask = model.encode(np.array([sentence]))

  def next_log_p(rows: list) -> np.ndarray:
    memory = [np.repeat(x, len(rows), 0) for x in outputs]
    targets = np.array([[*tokens, PAD] for tokens in rows])
    logits = model.decode((memory, np.repeat(mask, len(rows), 0)), targets)[:, -1]
    return np.log(model.softmax(logits))

  hypotheses, _ = plain_search(next_log_p, len(sentence) + 12, beam, alpha, wrong)
  score, tokens, _ = hypotheses[0]
  return [*tokens], score
