"""The Transformer of "Attention Is All You Need" in one file of JAX, NumPy and optax.

  python examples/one_file.py

It trains a model of 1.4 M parameters on the package's English-German corpus, translates
its test sentences with beam search and prints BLEU. Each block stands under the number
of its section. The package computes the same, faster and at any scale:
tests/test_one_file.py compares loss, gradients, updates and translations.

Axes: B sentences, S source tokens, T target tokens, D d_model, H heads, K d_k, V d_v,
W tokens of the vocabulary.
"""

import functools
import io
import itertools
import lzma
import pathlib
import random
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
import sacrebleu
import sentencepiece

PAD, EOS, BOS = range(3)  # the first ids of the vocabulary

# The paper's base: N=6, d_model=512, d_ff=2048, h=8, d_k=d_v=64, W=37,000; 100,000
# updates of 25,000 tokens, 4,000 of them warm-up
SIZES = {'N': 2, 'd_model': 128, 'd_ff': 512, 'h': 4, 'd_k': 32, 'd_v': 32, 'W': 4000}
UPDATES, WARMUP, TOKENS = 800, 400, 1600
P_DROP, EPSILON_LS = 0.1, 0.1
BEAM, ALPHA = 4, 0.6
PACKAGE = pathlib.Path(__file__).parents[1] / 'transformer_jax'


# 3.2 Attention
def attention(p, x, memory, mask):
  """Returns MultiHead(x, memory, memory): [B, T, D] attends to memory [B, S, D].

  `memory` is x in self-attention, and the encoder's output in cross-attention. `mask`
  [B or 1, T or 1, S] is True where a query may attend to a key.
  """
  q = jnp.einsum('btd,dhk->bhtk', x, p['W_Q'])
  k = jnp.einsum('bsd,dhk->bhsk', memory, p['W_K'])
  v = jnp.einsum('bsd,dhv->bhsv', memory, p['W_V'])
  scores = jnp.einsum('bhtk,bhsk->bhts', q, k) / q.shape[-1] ** 0.5
  weights = jax.nn.softmax(jnp.where(mask[:, None], scores, -1e9))  # equation 1
  heads = jnp.einsum('bhts,bhsv->bthv', weights, v)
  return jnp.einsum('bthv,hvd->btd', heads, p['W_O'])


# 3.3 Position-wise feed-forward networks
def feed_forward(p, x):
  """Returns max(0, x W_1 + b_1) W_2 + b_2, equation 2."""
  hidden = jax.nn.relu(x @ p['W_1'] + p['b_1'])
  return hidden @ p['W_2'] + p['b_2']


# 3.4 Embeddings, 3.5 positional encoding
def embed(params, ids):
  """Returns sqrt(d_model) times the tokens' embeddings, plus the sinusoids."""
  table = params['embedding']
  length, d_model = ids.shape[1], table.shape[1]
  i = np.arange(d_model) // 2
  angle = np.arange(length)[:, None] / 10000 ** (2 * i / d_model)
  encoding = np.where(np.arange(d_model) % 2, np.cos(angle), np.sin(angle))
  scaled = table[ids] * d_model**0.5
  return scaled + encoding.astype(table.dtype)


# 3.1 Encoder and decoder stacks
def add_and_norm(p, x, sublayer):
  """Returns LayerNorm(x + sublayer)."""
  x = x + sublayer
  mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
  return (x - mean) / jnp.sqrt(variance + 1e-6) * p['scale'] + p['bias']


def layer(p, x, mask, drop, *memory):
  """Returns a layer's output [B, T, D]. A decoder's layer also takes `memory`.

  `memory` is the encoder's output and its mask, as encode() returns them.
  """
  x = add_and_norm(p['norm_1'], x, drop(attention(p['attention'], x, x, mask)))
  if memory:
    x = add_and_norm(p['norm_2'], x, drop(attention(p['cross'], x, *memory)))
  return add_and_norm(p['norm_3'], x, drop(feed_forward(p['feed_forward'], x)))


def encode(params, source, drop=lambda x: x):
  """Returns the encoder's output [B, S, D], and the mask of padding [B, 1, S]."""
  x, mask = drop(embed(params, source)), (source != PAD)[:, None]
  for p in params['encoder']:
    x = layer(p, x, mask, drop)
  return x, mask


def decode(params, memory, target, drop=lambda x: x):
  """Returns each target token's logits [B, T, W], given the earlier ones."""
  shifted = jnp.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=BOS)
  x, causal = drop(embed(params, shifted)), jnp.tri(target.shape[1], dtype=bool)[None]
  for p in params['decoder']:
    x = layer(p, x, causal, drop, *memory)
  return x @ params['embedding'].T  # 3.4: one matrix for source, target and softmax


def initialize(key, N, d_model, d_ff, h, d_k, d_v, W):
  """Returns random parameters: Glorot's for matrices, normal for the embeddings."""
  keys = (jax.random.fold_in(key, n) for n in itertools.count())

  def glorot(shape, fans):
    limit = (6 / sum(fans)) ** 0.5
    return jax.random.uniform(next(keys), shape, minval=-limit, maxval=limit)

  def heads():
    project = lambda d: glorot((d_model, h, d), (d_model, h * d))
    W_O = glorot((h, d_v, d_model), (h * d_v, d_model))
    return {'W_Q': project(d_k), 'W_K': project(d_k), 'W_V': project(d_v), 'W_O': W_O}

  def make_layer(crosses):
    W_1, W_2 = (glorot(s, s) for s in ((d_model, d_ff), (d_ff, d_model)))
    ffn = {'W_1': W_1, 'b_1': jnp.zeros(d_ff), 'W_2': W_2, 'b_2': jnp.zeros(d_model)}
    norm = {'scale': jnp.ones(d_model), 'bias': jnp.zeros(d_model)}
    p = {'attention': heads(), 'feed_forward': ffn, 'norm_1': norm, 'norm_3': norm}
    return p | ({'cross': heads(), 'norm_2': norm} if crosses else {})

  return {
    'embedding': jax.random.normal(next(keys), (W, d_model)) * d_model**-0.5,
    'encoder': [make_layer(crosses=False) for _ in range(N)],
    'decoder': [make_layer(crosses=True) for _ in range(N)],
  }


# 5.4 Regularization: residual dropout and label smoothing
def dropout(rate, key):
  """Returns a function that drops elements, others at each call."""
  keys = (jax.random.fold_in(key, n) for n in itertools.count())

  def drop(x):
    keep = jax.random.bernoulli(next(keys), 1 - rate, x.shape)
    return jnp.where(keep, x / (1 - rate), 0)

  return drop


def loss(params, source, target, epsilon_ls, drop=lambda x: x):
  """Returns the label-smoothed cross-entropy per target token, in nats."""
  logits = decode(params, encode(params, source, drop), target, drop)
  log_p = jax.nn.log_softmax(logits)
  true = jnp.take_along_axis(log_p, target[..., None], -1)[..., 0]
  others = (log_p.sum(-1) - true) / (log_p.shape[-1] - 1)
  cross_entropy = -(1 - epsilon_ls) * true - epsilon_ls * others
  is_token = target != PAD
  return (cross_entropy * is_token).sum() / is_token.sum()


# 5.3 Optimizer
def adam(d_model, warmup_steps):
  """Returns Adam with the learning rate of equation 3."""

  def rate(count):
    step = count + 1.0
    return d_model**-0.5 * jnp.minimum(step**-0.5, step * warmup_steps**-1.5)

  return optax.adam(rate, b1=0.9, b2=0.98, eps=1e-9)


@functools.partial(jax.jit, static_argnames=('optimizer', 'p_drop', 'epsilon_ls'))
def update(params, state, key, source, target, *, optimizer, p_drop, epsilon_ls):
  """Returns parameters and optimizer state after a training step, and its loss."""
  drop = dropout(p_drop, key) if p_drop else lambda x: x
  objective = lambda params: loss(params, source, target, epsilon_ls, drop)
  value, gradient = jax.value_and_grad(objective)(params)
  updates, state = optimizer.update(gradient, state)
  return optax.apply_updates(params, updates), state, value


# 6.1 Beam search
@functools.partial(jax.jit, static_argnames='beam')
def next_log_p(params, memory, hypotheses, length, beam):
  """Returns log P [B, beam, W] of the token after `length` tokens of a hypothesis."""
  memory = [jnp.repeat(x, beam, 0) for x in memory]
  logits = decode(params, memory, hypotheses)[:, length]
  return jax.nn.log_softmax(logits).reshape(-1, beam, logits.shape[-1])


def beam_search(params, source, beam, alpha, extra_length=50):
  """Returns the tokens of each sentence's best translation; a beam of 1 is greedy.

  The score is log P(Y) / ((5 + |Y|) / 6)^alpha (Wu et al. 2016, equation 14). A
  sentence is done when no live hypothesis can reach its best score any more.
  """
  penalty = lambda length: ((5 + length) / 6) ** alpha
  memory = jax.jit(encode)(params, source)
  limits = (source != PAD).sum(1) + extra_length
  dead = (-np.inf, [])
  finished = [dead for _ in source]  # the best score, and its tokens
  live = [[(0.0, [])] + [dead] * (beam - 1) for _ in source]  # log P, tokens
  done = np.zeros(len(source), bool)
  # Each hypothesis can end in one way only, so at most `beam` of the best 2 * beam end,
  # and `beam` stay live. Greedy search takes the best token, EOS or not.
  count = 2 * beam if beam > 1 else 1
  for length in range(limits.max()):
    # The package caches keys and values; here the whole decoder runs at each step.
    width = length // 8 * 8 + 8  # few widths, since each is compiled
    hypotheses = pad([tokens for beams in live for _, tokens in beams], width)
    log_p = np.array(next_log_p(params, memory, hypotheses, length, beam))
    log_p[..., [PAD, BOS]] = -np.inf
    log_p += np.array([[[log_p] for log_p, _ in beams] for beams in live])
    log_p = log_p.reshape(len(source), -1)
    best = np.argpartition(-log_p, count)[:, :count]
    for b in np.flatnonzero(~done):
      grown = []
      for n in sorted(best[b], key=lambda n: -log_p[b, n]):
        parent, token = divmod(int(n), log_p.shape[1] // beam)
        tokens = live[b][parent][1] + [token]
        if token == EOS:
          finished[b] = max(finished[b], (log_p[b, n] / penalty(len(tokens)), tokens))
        else:
          grown.append((log_p[b, n], tokens))
      live[b] = (grown + [dead] * beam)[:beam]
      # log P only falls as a hypothesis grows, and the penalty is largest at the limit:
      # no live hypothesis can end with a better score than this.
      reachable = live[b][0][0] / penalty(limits[b])
      done[b] = length + 1 == limits[b] or finished[b][0] >= reachable
    if done.all():
      break
  return [finished[b][1] or live[b][0][1] for b in range(len(source))]


# 5.1 Training data and batching
def read_corpus():
  """Returns the [English, German] pairs of train, dev and test."""
  lines = lzma.open(PACKAGE / 'prepare/embedded.en-de.tsv.xz', 'rt', encoding='utf-8')
  pairs = [line.rstrip('\n').split('\t') for line in lines]
  return pairs[:-2000], pairs[-2000:-1000], pairs[-1000:]


def learn_vocabulary(pairs, size):
  """Returns a vocabulary of byte-pair encoding for both languages."""
  model = io.BytesIO()
  settings = {'model_type': 'bpe', 'vocab_size': size, 'minloglevel': 2}
  settings |= {'pad_id': PAD, 'eos_id': EOS, 'bos_id': BOS, 'unk_id': 3}
  sentences = itertools.chain(*pairs)
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=sentences, model_writer=model, **settings
  )
  return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def pad(sentences, length):
  """Returns ids [B, length] of sentences, each followed by PAD."""
  return np.array([ids + [PAD] * (length - len(ids)) for ids in sentences], np.int32)


def batches(pairs, tokens):
  """Yields batches of pairs of similar length, without end."""
  classes = {}  # by length; few, since each shape of batch is compiled
  for pair in pairs:
    classes.setdefault(-(-max(map(len, pair)) // 10) * 10, []).append(pair)
  while True:
    epoch = []
    for length, members in classes.items():
      random.shuffle(members)
      rows = tokens // length
      # The rest, less than a batch, is left out of this epoch.
      cuts = range(0, len(members) - rows + 1, rows)
      epoch += [(length, members[i : i + rows]) for i in cuts]
    random.shuffle(epoch)
    for length, batch in epoch:
      yield [pad(side, length) for side in zip(*batch, strict=True)]


def train(pairs):
  """Returns the parameters after UPDATES, the last five checkpoints averaged (6.1)."""
  random.seed(1)
  first_key, key = jax.random.split(jax.random.key(1))
  params, optimizer = initialize(first_key, **SIZES), adam(SIZES['d_model'], WARMUP)
  settings = {'optimizer': optimizer, 'p_drop': P_DROP, 'epsilon_ls': EPSILON_LS}
  state, last, begin = optimizer.init(params), [], time.time()
  for step, batch in zip(range(1, UPDATES + 1), batches(pairs, TOKENS), strict=False):
    drop_key = jax.random.fold_in(key, step)
    params, state, value = update(params, state, drop_key, *batch, **settings)
    if step % 50 == 0:
      last = [*last[-4:], params]
      print(f'step {step} loss {value:.4f} {time.time() - begin:.0f} s', flush=True)
  return jax.tree.map(lambda *arrays: sum(arrays) / len(arrays), *last)


def main():
  train_pairs, _, test_pairs = read_corpus()
  vocabulary = learn_vocabulary(train_pairs, SIZES['W'])
  encode_all = lambda texts: [ids + [EOS] for ids in vocabulary.encode(texts)]
  params = train([encode_all(pair) for pair in train_pairs])
  sources, references = map(list, zip(*test_pairs, strict=True))
  ids, translations = encode_all(sources), []
  begin = time.time()
  for i in range(0, len(ids), 100):
    source = pad(ids[i : i + 100], max(map(len, ids)))
    translations += vocabulary.decode(beam_search(params, source, BEAM, ALPHA))
    count, seconds = len(translations), time.time() - begin
    print(f'{count} of {len(ids)} sentences translated {seconds:.0f} s', flush=True)
  print(sources[0], translations[0], sep='\n')
  print(sacrebleu.corpus_bleu(translations, [references]))


if __name__ == '__main__':
  main()
