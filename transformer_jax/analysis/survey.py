"""What each head does over a corpus, and what the model loses without it."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import PyTree
from tqdm import tqdm

from transformer_jax.analysis.maps import KINDS, Pair, RunAttention, is_punctuation
from transformer_jax.data.corpus import Sentences
from transformer_jax.data.vocabulary import EOS
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.machine.errors import UserError
from transformer_jax.report import page
from transformer_jax.training.perplexity import Perplexity

Split = tuple[Sentences, Sentences]
NAMED_HEADS = 3  # heads that a table names for each measure


class Measure(NamedTuple):
  """The mean of a quantity over all queries."""

  heads: np.ndarray  # [N, H]
  uniform: float  # the mean for a head that attends to all positions equally


Survey = dict[str, dict[str, Measure]]  # by KINDS, and by the quantity's name


def sample_pairs(split: Split, count: int, longest: int) -> list[Pair]:
  """Returns at most `count` pairs of a split, chosen at random with a fixed seed.

  Args:
    longest: the most tokens of a sentence, EOS counted; longer pairs are left out.
  """
  short = np.maximum(*(text.lengths for text in split)) <= longest
  chosen = np.random.default_rng(0).permutation(np.flatnonzero(short))[:count]
  source, target = split
  return [(source[i], target[i]) for i in sorted(chosen)]


def survey(attention: RunAttention, pairs: Sequence[Pair]) -> Survey:
  """Measures what each head attends to, how far away, and how sharply.

  Each measure is a mean over queries. Weights leave out queries without such a key:

    previous, next, same: the piece before, after or at the query's own position; in the
      decoder, the query's position is that of the piece that it predicts
    ends: </s>; in the decoder, <s>
    punctuation: pieces that are punctuation alone
    distance: how many pieces away, by the weights
    entropy: of the weights, in nats

  Raises:
    UserError: there are no pairs.
  """
  if not pairs:
    raise UserError(f'no pair to survey: all have over {attention.longest} pieces')
  source, target = (
    np.array([is_punctuation(piece) for piece in words.pieces])
    for words in (attention.source, attention.target)
  )
  punctuation = {'encoder': source, 'decoder': target, 'cross': source}
  sums: dict[str, dict[str, list[Any]]] = {kind: {} for kind in KINDS}
  for number, weights in attention.weights(pairs):
    for kind, of_kind in zip(KINDS, weights, strict=True):
      measured = _measure(kind, of_kind, pairs[number], punctuation[kind])
      for name, numbers in measured.items():
        before = sums[kind].setdefault(name, [0.0, 0.0, 0])
        sums[kind][name] = [a + b for a, b in zip(before, numbers, strict=True)]
  return {
    kind: {
      name: Measure(heads / count, uniform / count)
      for name, (heads, uniform, count) in of_kind.items()
      if count
    }
    for kind, of_kind in sums.items()
  }


def _measure(
  kind: str, weights: np.ndarray, pair: Pair, punctuation: np.ndarray
) -> dict[str, tuple[np.ndarray, float, int]]:
  """Returns three sums over a pair's queries for each measure that survey() lists.

  The first is of `weights` [N, H, T, S], as [N, H]; the second of uniform weights; the
  third counts queries. `punctuation` [vocabulary] bool marks the keys' punctuation.
  """
  T, S = weights.shape[-2:]
  visible = np.ones((T, S), bool)
  offset = np.arange(S)[None] - np.arange(T)[:, None]
  keys = np.array(pair[0])
  if kind == 'decoder':
    offset -= 1  # column 0 is <s>, before the first word
    visible = offset < 0
    keys = np.array([EOS, *pair[1][:-1]])  # <s> counts as an end
  masks = {} if kind == 'cross' else {'previous': offset == -1}
  if kind == 'encoder':
    masks |= {'next': offset == 1, 'same': offset == 0}
  masks['ends'] = np.broadcast_to(keys == EOS, (T, S))
  masks['punctuation'] = np.broadcast_to(punctuation[keys], (T, S))
  start = int(kind == 'decoder')  # its first word can attend to nothing but <s>
  uniform = visible / visible.sum(1, keepdims=True)

  def sum_rows(
    rows: np.ndarray, term: Callable[..., np.ndarray]
  ) -> tuple[np.ndarray, float, int]:
    """Returns sums of term(weights) over these rows and all columns."""
    heads, alike = (term(w)[..., rows, :].sum((-2, -1)) for w in (weights, uniform))
    return heads, float(alike), len(rows)

  measured = {}
  for name, mask in masks.items():
    mask = mask & visible
    rows = np.flatnonzero(mask.any(1))
    measured[name] = sum_rows(rows[rows >= start], lambda w, mask=mask: w * mask)
  rows = np.arange(start, T)
  measured['distance'] = sum_rows(rows, lambda w: w * np.abs(offset))
  measured['entropy'] = sum_rows(rows, lambda w: -w * np.log(np.maximum(w, 1e-30)))
  return measured


class Pruning(NamedTuple):
  """Dev perplexity of the whole model, and of the model without each head."""

  whole: float
  without: dict[str, np.ndarray]  # [N, H] by KINDS


def prune(run: LoadedRun, dev: Split) -> Pruning:
  """Measures dev perplexity without the output of each head, one head at a time."""
  perplexity = Perplexity(run.config, run.graph, *dev)
  N, h = run.config.model.N, run.config.model.h
  without = {kind: np.zeros((N, h)) for kind in KINDS}
  heads = [(kind, *at) for kind in KINDS for at in np.ndindex(N, h)]
  for kind, layer, head in tqdm(heads, desc='pruning', unit='head', disable=None):
    params = without_head(run.device_params, kind, layer, head)
    without[kind][layer, head] = perplexity(params)
  return Pruning(perplexity(run.device_params), without)


def without_head(params: PyTree, kind: str, layer: int, head: int) -> PyTree:
  """Returns parameters in which a head's rows of W^O are zero, so it has no output."""
  stack = 'encoder' if kind == 'encoder' else 'decoder'
  part = 'cross' if kind == 'cross' else 'attention'
  of_layer = params[stack][layer]
  output = of_layer[part]['output'].at[head].set(0)
  of_layer = of_layer | {part: of_layer[part] | {'output': output}}
  return params | {stack: params[stack] | {layer: of_layer}}


def survey_table(surveyed: Survey, about: str) -> str:
  """Returns Markdown: the heads with the most of each measure, and the uniform value.

  For distance and entropy it also has the heads with the least.
  """
  rows = []
  for kind, measures in surveyed.items():
    for name, (heads, uniform) in measures.items():
      rows.append((KINDS[kind], name, f'{uniform:.2f}', _first(-heads, heads)))
      if name in ('distance', 'entropy'):
        least = _first(heads, heads)
        rows.append((KINDS[kind], f'{name}, least', f'{uniform:.2f}', least))
  header = ('attention', 'looks at', 'uniform', 'heads with the most (layer.head)')
  return _section('What heads look at', about, header, rows)


def pruning_table(pruning: Pruning) -> str:
  """Returns Markdown: the heads without which dev perplexity is highest, and lowest."""
  rows = []
  for kind, perplexity in pruning.without.items():
    cost = perplexity - pruning.whole
    most, least = _first(-cost, cost, '+.3f'), _first(cost, cost, '+.3f')
    rows.append((KINDS[kind], most, least, f'{(cost <= 0).sum()} of {cost.size}'))
  header = ('attention', 'costs most', 'costs least', 'costs nothing')
  text = f'Dev perplexity per piece is {pruning.whole:.3f}; without one head it changes'
  return _section('What a head is worth', f'{text} by:', header, rows)


def _first(order: np.ndarray, shown: np.ndarray, form: str = '.2f') -> str:
  """Returns the first heads in ascending order, as LAYER.HEAD (NUMBER), ..."""
  best = np.argsort(order, axis=None, kind='stable')[:NAMED_HEADS]
  at = zip(*np.unravel_index(best, order.shape), strict=True)
  return ', '.join(f'{n + 1}.{h + 1} ({shown[n, h]:{form}})' for n, h in at)


def _section(
  title: str, text: str, header: Sequence[str], rows: Sequence[Sequence[str]]
) -> str:
  parts = page.heading(2, title), page.paragraph(text), page.table(header, rows)
  return '\n\n'.join(parts)
