"""The survey measures what heads attend to; pruning removes one."""

import collections
import math
import pathlib
import random
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from toy import untrained
from toy.corpus import write_tokens
from toy.results import cells
from transformer_jax.analysis import pictures, survey
from transformer_jax.analysis.maps import KINDS, Pair, Weights
from transformer_jax.data.corpus import Sentences, read_split
from transformer_jax.data.vocabulary import EOS
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.run import Run
from transformer_jax.tasks import TRANSLATION
from transformer_jax.training.perplexity import Perplexity

PIECES = ['<pad>', '</s>', '<s>', '<unk>', '▁a', '.', '▁b', '▁c', '▁d', '▁e']


def pairs(count: int) -> list[Pair]:
  """Returns pairs whose target is the source backwards, with n + 10 for piece n."""
  rng = random.Random(0)
  sources = [rng.sample(range(4, 10), rng.randint(2, 6)) for _ in range(count)]
  return [([*s, EOS], [*(i + 10 for i in s[::-1]), EOS]) for s in sources]


class RandomHeads:
  """In place of RunAttention: one layer, whose last head attends to all alike."""

  longest = 100

  def __init__(self) -> None:
    pieces = PIECES + [p if p == '.' else p + 'x' for p in PIECES]
    without = lambda i: [p if n != i else '▁x' for n, p in enumerate(pieces)]
    # Each side has the full stop at an id of its own: 5, and 15 for the target.
    self.source = SimpleNamespace(pieces=without(15))
    self.target = SimpleNamespace(pieces=without(5))

  def weights(self, sample: list[Pair]) -> Iterator[tuple[int, Weights]]:
    rng = np.random.default_rng(0)
    for number, (source, target) in enumerate(sample):
      S, T = len(source), len(target)
      every = [rng.random((1, 3, *shape)) for shape in ((S, S), (T, T), (T, S))]
      for weights in every:
        weights[:, -1] = 1
      every[1] *= np.tri(T)
      yield number, tuple(x / x.sum(-1, keepdims=True) for x in every)


def split_of(folder: pathlib.Path, sample: list[Pair]) -> tuple[Sentences, Sentences]:
  """Returns a split of these pairs."""
  for name, texts in zip(('source', 'target'), zip(*sample, strict=True), strict=True):
    write_tokens(folder / f'x.{name}', [ids[:-1] for ids in texts])
  return read_split(folder, 'x')


def measured_in_loops(kind: str, sample: list[Pair]) -> dict[str, np.ndarray]:
  """Returns means over queries, of each head, a query and a key at a time."""
  known, queries = RandomHeads(), collections.defaultdict(list)
  pieces = (known.target if kind == 'decoder' else known.source).pieces
  is_decoder = int(kind == 'decoder')  # whose columns begin with <s>
  for number, weights in known.weights(sample):
    source, target = sample[number]
    keys = [EOS, *target[:-1]] if is_decoder else source
    (heads,) = weights[[*KINDS].index(kind)]
    for t in range(is_decoder, heads.shape[1]):
      seen = range(t + 1) if is_decoder else range(len(keys))
      offsets = {s: s - is_decoder - t for s in seen}
      chosen = {'ends': [s for s in seen if keys[s] == EOS]}
      chosen['punctuation'] = [s for s in seen if pieces[keys[s]] == '.']
      for name, offset in ('previous', -1), ('next', 1), ('same', 0):
        if kind == 'encoder' or (is_decoder and offset == -1):
          chosen[name] = [s for s in seen if offsets[s] == offset]
      for name, some in chosen.items():
        if some:
          queries[name].append(heads[:, t, some].sum(-1))
      away = [heads[:, t, s] * abs(offset) for s, offset in offsets.items()]
      queries['distance'].append(sum(away))
      terms = [[-w * math.log(w) for w in row if w] for row in heads[:, t]]
      queries['entropy'].append([*map(sum, terms)])
  return {name: np.mean(rows, 0) for name, rows in queries.items()}


@pytest.mark.parametrize('kind', KINDS)
def test_measures_are_means_over_queries(kind: str):
  measures = survey.survey(RandomHeads(), sample := pairs(60))[kind]
  expected = measured_in_loops(kind, sample)
  assert {*measures} == {*expected} and len(expected) > 3
  for name, heads in expected.items():
    np.testing.assert_allclose(measures[name].heads[0], heads, atol=1e-9)
    assert measures[name].uniform == pytest.approx(heads[-1])
  with pytest.raises(UserError, match='no pair to survey: all have over 100 pieces'):
    survey.survey(RandomHeads(), [])


def test_a_table_names_heads():
  """Those with the most of a measure; of distance and entropy those with the least."""
  heads = np.array([[3, 1.5, 2], [0, 4, 1]])
  measures = {name: survey.Measure(heads, 2) for name in ('ends', 'distance')}
  most = '2.2 (4.00), 1.1 (3.00), 1.3 (2.00)'
  least = '2.1 (0.00), 2.3 (1.00), 1.2 (1.50)'
  text = survey.survey_table({'cross': measures}, 'x')
  assert [cells(text, 'encoder-decoder', n) for n in range(3)] == [
    ['encoder-decoder', 'ends', '2.00', most],
    ['encoder-decoder', 'distance', '2.00', most],
    ['encoder-decoder', 'distance, least', '2.00', least],
  ]


COSTS = np.array([[-0.1, 1.0], [0.0, 0.5], [0.02, -0.25]])
PRUNED = survey.Pruning(5.0, {kind: 5 + n * COSTS for n, kind in enumerate(KINDS, 1)})


def test_a_table_has_the_costs_of_heads():
  text = survey.pruning_table(PRUNED)
  most = '1.2 (+1.000), 2.2 (+0.500), 3.1 (+0.020)'
  least = '3.2 (-0.250), 1.1 (-0.100), 2.1 (+0.000)'
  assert cells(text, 'encoder self') == ['encoder self', most, least, '3 of 6']
  most = '1.2 (+3.000), 2.2 (+1.500), 3.1 (+0.060)'
  assert cells(text, 'encoder-decoder')[1] == most
  assert 'is 5.000;' in text


def test_maps_have_the_numbers_of_heads():
  axes = pictures.draw_pruning(PRUNED).axes
  for n, (kind, of_kind) in enumerate(zip(KINDS, axes, strict=True), 1):
    np.testing.assert_allclose(of_kind.images[0].get_array(), n * COSTS)
    assert of_kind.get_title() == KINDS[kind]
  surveyed = survey.survey(RandomHeads(), pairs(60))
  panels = iter([x for x in pictures.draw_survey(surveyed).axes if x.axison])
  for kind, measures in surveyed.items():
    for name, measure in measures.items():
      assert (axes := next(panels)).get_title() == f'{KINDS[kind]}: {name}'
      np.testing.assert_array_equal(axes.images[0].get_array(), measure.heads)


def test_the_same_pairs_are_chosen_each_time(tmp_path: pathlib.Path):
  sample, long = pairs(50), ([6, EOS], [*range(14, 20), EOS])
  split = split_of(tmp_path, [*sample, long])
  chosen = survey.sample_pairs(split, 7, 128)
  assert chosen == survey.sample_pairs(split, 7, 128) and len(chosen) == 7
  assert chosen != sample[:7]
  assert survey.sample_pairs(split, 99, 128) == [*sample, long]
  short = [pair for pair in sample if max(map(len, pair)) <= 4]
  assert survey.sample_pairs(split, 99, 4) == short


@pytest.mark.slow
def test_pruning_removes_one_head(tmp_path: pathlib.Path):
  """A head whose values are zero has no output either."""
  run = LoadedRun(Run(untrained.write(tmp_path)), TRANSLATION)
  dev = split_of(tmp_path, [([6, 7, 8, EOS], [9, 7, 8, EOS])])
  pruning = survey.prune(run, dev)
  perplexity = Perplexity(run.config, run.graph, *dev)
  assert pruning.whole == perplexity(run.device_params)
  for kind, layer, head in (('encoder', 1, 2), ('decoder', 0, 0), ('cross', 1, 1)):
    stack = 'encoder' if kind == 'encoder' else 'decoder'
    part = 'cross' if kind == 'cross' else 'attention'
    attention = dict(run.device_params[stack][layer][part])
    attention['value'] = attention['value'].at[:, head].set(0)
    of_layer = run.device_params[stack][layer] | {part: attention}
    layers = run.device_params[stack] | {layer: of_layer}
    expected = perplexity(run.device_params | {stack: layers})
    assert pruning.without[kind][layer, head] == pytest.approx(expected, rel=1e-5)
    assert pruning.without[kind][layer, head] != pruning.whole
