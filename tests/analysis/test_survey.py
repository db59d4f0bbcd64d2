"""The survey recognises heads that attend to known positions; pruning removes one."""

import pathlib
import random
from collections.abc import Iterator
from types import SimpleNamespace

import numpy as np
import pytest

from toy import untrained
from toy.corpus import write_tokens
from transformer_jax.analysis import survey
from transformer_jax.analysis.maps import KINDS, Pair, Weights
from transformer_jax.data.corpus import Sentences, read_split
from transformer_jax.data.vocabulary import EOS
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.runs.run import Run
from transformer_jax.tasks import TRANSLATION
from transformer_jax.training.perplexity import Perplexity

PIECES = ['<pad>', '</s>', '<s>', '<unk>', '▁a', '.', '▁b', '▁c', '▁d', '▁e']


def pairs(count: int) -> list[Pair]:
  """Returns pairs whose target is the source backwards, with n + 10 for piece n."""
  rng = random.Random(0)
  sources = [rng.sample(range(4, 10), rng.randint(2, 6)) for _ in range(count)]
  return [([*s, EOS], [*(i + 10 for i in s[::-1]), EOS]) for s in sources]


class KnownHeads:
  """In place of RunAttention: one layer, whose four heads attend to known positions.

  They are the one before, the one after, </s> or <s>, and all alike.
  """

  longest = 100

  def __init__(self) -> None:
    self.pieces = PIECES + [p if p == '.' else p + 'x' for p in PIECES]
    without = lambda i: [p if n != i else '▁x' for n, p in enumerate(self.pieces)]
    # Each side has the full stop at an id of its own: 5, and 15 for the target.
    self.source = SimpleNamespace(pieces=without(15))
    self.target = SimpleNamespace(pieces=without(5))

  def weights(self, sample: list[Pair]) -> Iterator[tuple[int, Weights]]:
    for number, (source, target) in enumerate(sample):
      S, T = len(source), len(target)
      encoder, decoder, cross = (
        np.zeros((1, 4, *shape)) for shape in ((S, S), (T, T), (T, S))
      )
      for s in range(S):
        encoder[0, 0, s, max(s - 1, 0)] = encoder[0, 1, s, min(s + 1, S - 1)] = 1
      encoder[0, 2, :, S - 1] = decoder[0, 2, :, 0] = cross[0, 2, :, S - 1] = 1
      for t in range(T):
        decoder[0, :2, t, t] = 1
        cross[0, :2, t, S - 2 - t if t < T - 1 else S - 1] = 1
        decoder[0, 3, t, : t + 1] = 1 / (t + 1)
      encoder[0, 3], cross[0, 3] = 1 / S, 1 / S
      yield number, (encoder, decoder, cross)


def split_of(folder: pathlib.Path, sample: list[Pair]) -> tuple[Sentences, Sentences]:
  """Returns a split of these pairs."""
  for name, texts in zip(('source', 'target'), zip(*sample, strict=True), strict=True):
    write_tokens(folder / f'x.{name}', [ids[:-1] for ids in texts])
  return read_split(folder, 'x')


def test_heads_are_known_by_what_they_attend_to():
  surveyed = survey.survey(KnownHeads(), pairs(60))
  encoder, decoder, cross = (
    {name: m.heads[0].round(6) for name, m in surveyed[kind].items()} for kind in KINDS
  )
  assert encoder['previous'][0] == encoder['next'][1] == encoder['ends'][2] == 1
  assert decoder['previous'][0] == decoder['ends'][2] == 1
  assert cross['ends'][2] == 1 and encoder['same'][3] < 1
  assert 0 < encoder['distance'][0] < 1 and decoder['distance'][0] == 1
  for kind in KINDS:
    for name, measure in surveyed[kind].items():
      assert measure.heads[0, 3] == pytest.approx(measure.uniform), (kind, name)
    assert surveyed[kind]['entropy'].heads[0, 2] == pytest.approx(0)


def test_the_same_pairs_are_chosen_each_time(tmp_path: pathlib.Path):
  sample, long = pairs(50), ([6, EOS], [*range(14, 20), EOS])
  split = split_of(tmp_path, [*sample, long])
  chosen = survey.sample_pairs(split, 7, 128)
  assert chosen == survey.sample_pairs(split, 7, 128) and len(chosen) == 7
  assert survey.sample_pairs(split, 99, 128) == [*sample, long]
  assert all(len(a) <= 4 >= len(b) for a, b in survey.sample_pairs(split, 99, 4))


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
