"""As many lines out as in, each the same whatever it is translated together with."""

import functools
import math
import pathlib
import random

import jax
import ml_collections
import numpy as np
import pytest
from absl.testing import flagsaver
from flax import nnx
from hypothesis import given, settings
from hypothesis import strategies as st

from configs import base
from scripts import translate as script
from transformer_jax import batches, parallel, translate, vocabulary
from transformer_jax.translate import Hypothesis, Perplexity, Translator
from transformer_jax.vocabulary import BOS, EOS, PAD, Vocabulary

WORDS = 'one two three four five six seven eight nine ten'.split()


def tiny_config(**changes) -> ml_collections.ConfigDict:
  config = base.get_config()
  config.model.update(
    {'N': 1, 'd_model': 16, 'd_ff': 32, 'h': 2, 'd_k': 8, 'd_v': 8, 'vocab_size': 50}
  )
  config.update({'decode_tokens': 16, 'beam': 3, 'extra_length': 6})
  config.model.update(changes.pop('model', {}))
  config.update(changes)
  return config


@functools.cache
def model(positions: str = 'sinusoid', max_positions: int = 12) -> tuple:
  """A graph, and parameters wild enough that sentences end at different lengths."""
  config = tiny_config(model={'positions': positions, 'max_positions': max_positions})
  made = {}

  def shapes():
    made['graph'], params = translate.transformer(config)
    return params

  rng = np.random.default_rng(4)
  fill = lambda x: rng.normal(size=x.shape, scale=0.4).astype(np.float32)
  return made['graph'], jax.tree.map(fill, jax.eval_shape(shapes)) if False else (
    _fill(shapes, fill, made)
  )


@pytest.fixture(scope='module')
def words(tmp_path_factory: pytest.TempPathFactory) -> Vocabulary:
  path = tmp_path_factory.mktemp('vocabulary') / 'vocabulary.model'
  rng = random.Random(0)
  vocabulary.train((' '.join(rng.choices(WORDS, k=5)) for _ in range(300)), path, 50)
  return Vocabulary(path)
