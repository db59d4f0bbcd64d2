"""What each head does over a corpus, and what the model loses without it."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from transformer_jax.analysis.attention_maps import KINDS, LONGEST, Watcher, is_mark
from transformer_jax.data import token_files
from transformer_jax.data.vocabulary import EOS
from transformer_jax.decoding.alignment import Aligner
from transformer_jax.decoding.restored import Pair, Restored
from transformer_jax.machine.errors import UserError
from transformer_jax.training.perplexity import Perplexity

Sides = tuple[token_files.Side, token_files.Side]
LEARNT = 10_000  # pairs of the training text that the aligner learns from


class Measure(NamedTuple):
  """The mean of something over all words that look."""

  heads: np.ndarray  # [N, H]
  uniform: float  # what it would be if every word looked everywhere alike


Survey = dict[str, dict[str, Measure]]  # by KINDS, and by what is measured


def sample_pairs(sides: Sides, count: int, longest: int) -> list[Pair]:
  """At most `count` pairs of a split, drawn with a fixed seed.

  Args:
    longest: tokens of a side, EOS counted; pairs with a longer one are not drawn.
  """
  short = np.maximum(*(side.lengths for side in sides)) <= longest
  chosen = np.random.default_rng(0).permutation(np.flatnonzero(short))[:count]
  read = lambda side, i: [*map(int, side.tokens[side.offsets[i] : side.ends[i]]), EOS]
  return [tuple(read(side, i) for side in sides) for i in sorted(chosen)]


def survey(watcher: Watcher, pairs: Sequence[Pair], training: Sides) -> Survey:
  """Measures what each head attends to, how far away, and how sharply.

  Each entry is a mean over queries. Weights count only queries that have such a key:

    previous, next, same: the piece before, after or at the query's own place; in the
      decoder, the query's place is that of the piece that it predicts
    ends: </s>; in the decoder, <s>
    punctuation: pieces that are punctuation alone
    aligned: in cross-attention, the piece that Model 1 links with the one being written
    distance: how many pieces away, by the weights
    entropy: of the weights, in nats

  Args:
    training: text for the aligner to learn from, beside `pairs`.
  """
  text = lambda pair: (pair[0][:-1], pair[1][:-1])
  aligner = Aligner(
    [text(pair) for pair in [*sample_pairs(training, LEARNT, LONGEST), *pairs]]
  )
  are_marks = lambda words: np.array([is_mark(piece) for piece in words.pieces])
  source, target = map(are_marks, (watcher.source, watcher.target))
  marks = {'encoder': source, 'decoder': target, 'cross': source}
  sums: dict[str, dict[str, list]] = {kind: {} for kind in KINDS}
  for pair, weights in zip(pairs, watcher.weights(pairs), strict=True):
    links = aligner.links(*text(pair))
    for kind, of_kind in zip(KINDS, weights, strict=True):
      for name, found in _measured(kind, of_kind, pair, marks[kind], links).items():
        before = sums[kind].setdefault(name, [0.0, 0.0, 0])
        sums[kind][name] = [a + b for a, b in zip(before, found, strict=True)]
  return {
    kind: {
      name: Measure(heads / count, uniform / count)
      for name, (heads, uniform, count) in found.items()
      if count
    }
    for kind, found in sums.items()
  }


def _measured(
  kind: str,
  weights: np.ndarray,
  pair: Pair,
  marks: np.ndarray,
  links: np.ndarray,
) -> dict[str, tuple[np.ndarray, float, int]]:
  """Of one pair: sums over pieces [N, H], the same of uniform weights, and a count."""
  T, S = weights.shape[-2:]
  seen = np.ones((T, S), bool)
  offset = np.arange(S)[None] - np.arange(T)[:, None]
  columns = np.array(pair[0])
  if kind == 'decoder':
    offset -= 1  # column 0 is <s>, before the first word
    seen = offset < 0
    columns = np.array([EOS, *pair[1][:-1]])  # <s> counts as an end
  targets = {'previous': offset == -1, 'next': offset == 1, 'same': offset == 0}
  if kind == 'decoder':
    del targets['next'], targets['same']
  if kind == 'cross':
    targets = {'aligned': np.pad(links, ((0, 1), (0, 1)))}
  targets['ends'] = np.broadcast_to(columns == EOS, (T, S))
  targets['punctuation'] = np.broadcast_to(marks[columns], (T, S))
  start = int(kind == 'decoder')  # its first word can look nowhere but at <s>
  uniform = seen / seen.sum(1, keepdims=True)
  found = {}
  for name, target in targets.items():
    target = target & seen
    rows = np.flatnonzero(target.any(1))
    rows = rows[rows >= start]
    looked = [_over_rows(w * target, rows) for w in (weights, uniform)]
    found[name] = looked[0], float(looked[1]), len(rows)
  rows = np.arange(start, T)
  far = [_over_rows(w * np.abs(offset), rows) for w in (weights, uniform)]
  found['distance'] = far[0], float(far[1]), len(rows)
  terms = [-w * np.log(np.maximum(w, 1e-30)) for w in (weights, uniform)]
  spread = [_over_rows(term, rows) for term in terms]
  found['entropy'] = spread[0], float(spread[1]), len(rows)
  return found


def _over_rows(values: np.ndarray, rows: np.ndarray) -> np.ndarray:
  """The sums over these rows of [..., T, S], and over all columns: [...]."""
  return values[..., rows, :].sum((-2, -1))


def between(
  watcher: Watcher, pairs: Iterable[Pair], query: str, key: str
) -> tuple[dict[str, np.ndarray], dict[str, int]]:
  """How much the word `query` looks at the word `key`: means [N, H], and of how many.

  Raises:
    UserError: no pair has both in a place from which one can look at the other.
  """
  sums, counts = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0)
  source, target = watcher.source, watcher.target
  both = [
    pair
    for pair in pairs
    if {query, key} <= {*source.names(pair[0], True), *target.names(pair[1], True)}
  ]
  for pair, weights in zip(both, watcher.weights(both), strict=True):
    maps = watcher.named(pair, weights, True)
    for kind in KINDS:
      found, rows, columns = maps.of(kind)
      for row in (n for n, word in enumerate(rows) if word == query):
        places = [n for n, word in enumerate(columns) if word == key]
        if kind == 'decoder':
          places = [place for place in places if place <= row]
        if places:
          sums[kind] = sums[kind] + found[:, :, row, places].sum(-1)
          counts[kind] += 1
  if not any(counts.values()):
    raise UserError(f'--query={query} --key={key}: no sentence has both')
  return {k: sums[k] / n for k, n in counts.items() if n}, counts


class Pruning(NamedTuple):
  """Dev perplexity of the whole model, and of the model without each head."""

  whole: float
  without: dict[str, np.ndarray]  # [N, H] by KINDS


def prune(restored: Restored, dev: Sides, progress: Any = iter) -> Pruning:
  """Measures what each head is worth: its output is set to zero, one head at a time.

  A head has no output if its rows of W^O are zero.
  """
  perplexity = Perplexity(restored.config, restored.graph, *dev)
  sizes = restored.config.model
  without = {kind: np.zeros((sizes.N, sizes.h)) for kind in KINDS}
  places = [(k, n, h) for k in KINDS for n in range(sizes.N) for h in range(sizes.h)]
  for kind, layer, head in progress(places):
    params = without_head(restored.params, kind, layer, head)
    without[kind][layer, head] = perplexity(params)
  return Pruning(perplexity(restored.params), without)


def without_head(params: Any, kind: str, layer: int, head: int) -> Any:
  """The parameters of the same model, in which this head has no output."""
  stack = 'encoder' if kind == 'encoder' else 'decoder'
  part = 'cross' if kind == 'cross' else 'attention'
  of_layer = params[stack][layer]
  output = of_layer[part]['output'].at[head].set(0)
  of_layer = of_layer | {part: of_layer[part] | {'output': output}}
  return params | {stack: params[stack] | {layer: of_layer}}
