"""BLEU of dev while a model is trained."""

import pathlib

import jax
import numpy as np

from toy import untrained
from transformer_jax.data import held_out
from transformer_jax.decoding.dev_bleu import DevBleu
from transformer_jax.decoding.translate import Translator
from transformer_jax.model import build
from transformer_jax.runs.run import Run
from transformer_jax.scoring import bleu
from transformer_jax.training import checkpoint


def test_greedy_of_the_first_sentences(tmp_path: pathlib.Path):
  """As the parameters are at each call; nothing is compiled for new ones."""
  run = Run(untrained.write(tmp_path, bleu_sentences=7))
  config, corpus = run.config(), tmp_path / 'data' / 'toy'
  params = checkpoint.average(
    run.checkpoints, [untrained.STEP], build.architecture(config)[1]
  )
  sides = held_out.text(corpus, 'dev')
  config.beam = 1
  translator = Translator(config, run.vocabularies(), params)
  found = [best[0].text for best in translator.translate(sides[0][:7])]
  expected = bleu.sacre_bleu(found, sides[1][:7]).score

  config.beam = 4
  measure = DevBleu(config, corpus)
  assert measure(params) == expected
  compiled = []
  count = lambda event, seconds, **_: compiled.append(event)
  jax.monitoring.register_event_duration_secs_listener(count)
  try:
    measure(jax.tree.map(np.zeros_like, params))
    assert measure(params) == expected
  finally:
    jax.monitoring.unregister_event_duration_listener(count)
  assert not [event for event in compiled if 'backend_compile' in event]
