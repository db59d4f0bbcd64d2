"""The perplexity of held-out text, by one pair at a time."""

import math
import pathlib
import random

import jax
import numpy as np
import pytest
from flax import nnx

from toy import forms
from toy.corpus import write_tokens
from toy.steps import VOCABULARY, tiny_config
from transformer_jax.data.corpus import Sentences
from transformer_jax.data.vocabulary import EOS, PAD
from transformer_jax.machine.devices import replicate_read_only
from transformer_jax.model import build
from transformer_jax.training.perplexity import Perplexity

TABLE = 12  # rows of learned positions


def test_equals_one_pair_at_a_time(tmp_path: pathlib.Path):
  """Cut to the table; PAD counts nowhere, EOS does."""
  rng = random.Random(3)
  draw = lambda: rng.choices(range(3, VOCABULARY), k=rng.randint(0, 15))
  pairs = [(draw(), draw()) for _ in range(40)]
  for name, ids in zip('st', zip(*pairs, strict=True), strict=True):
    write_tokens(tmp_path / name, ids)
  sizes = {'model.positions': 'learned', 'model.max_positions': TABLE}
  config = tiny_config(decode_tokens=256, **sizes)
  graph, shapes = build.architecture(config)
  params = forms.random_like(shapes, 0.4, seed=4)
  texts = (Sentences(tmp_path / name) for name in 'st')
  perplexity = Perplexity(config, graph, *texts)
  measured = perplexity(replicate_read_only(params))
  cut = sum(max(map(len, pair)) >= TABLE for pair in pairs)
  assert perplexity.cut_pairs == cut > 0
  message = f'pairs cut for the perplexity because they were too long: {cut}'
  assert perplexity.warnings == [message]
  logits_of = jax.jit(lambda params, *pair: nnx.merge(graph, params)(*pair).logits)
  total, count = 0.0, 0
  for pair in pairs:
    ids = [[*side[: TABLE - 1], EOS] for side in pair]
    padded = [np.array([side + [PAD] * (TABLE - len(side))]) for side in ids]
    log_p = jax.nn.log_softmax(logits_of(params, *padded)[0])
    total += float(np.asarray(log_p)[np.arange(len(ids[1])), ids[1]].sum())
    count += len(ids[1])
  assert measured == pytest.approx(math.exp(-total / count), rel=1e-5)


@pytest.mark.devices
def test_on_eight_devices(tmp_path: pathlib.Path):
  assert jax.local_device_count() == 8
  test_equals_one_pair_at_a_time(tmp_path)
