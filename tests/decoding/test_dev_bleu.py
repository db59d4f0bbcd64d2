"""BLEU of dev while a model is trained."""

import pathlib

import jax
import numpy as np
import pytest

from toy import untrained
from transformer_jax.data import card
from transformer_jax.decoding import dev_bleu
from transformer_jax.decoding.translate import Translator
from transformer_jax.model import build
from transformer_jax.runs.run import Run
from transformer_jax.scoring import bleu
from transformer_jax.tasks import TRANSLATION
from transformer_jax.training import checkpoint


@pytest.mark.slow
def test_greedy_of_the_first_sentences(
  tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  """As the parameters are at each call; nothing is compiled for new ones."""
  run = Run(untrained.write(tmp_path, bleu_sentences=7))
  config, corpus = run.config(), tmp_path / 'data' / 'toy'
  params = checkpoint.average(
    run.checkpoints, [untrained.STEP], build.architecture(config)[1]
  )
  params = jax.tree.map(lambda x: (x + x[::-1]) / 2, params)  # which beams differ by
  sources, references = card.read_text(corpus, 'dev')
  best = lambda: [
    found[0].text
    for found in Translator(config, TRANSLATION, run.vocabularies(), params).translate(
      sources, 1
    )
  ]
  wide = best()
  config.beam = 1
  greedy = best()
  assert greedy[:7] != wide[:7]

  config.beam = 4
  scored: list[dict] = []

  def score(hypotheses: list[str], references: list[str], **how: object) -> bleu.Bleu:
    scored.append({'of': hypotheses, 'references': references} | how)
    return bleu.Bleu(float(len(scored)), '')

  monkeypatch.setattr(dev_bleu.bleu, 'sacre_bleu', score)
  measure = dev_bleu.DevBleu(config, TRANSLATION, corpus)
  assert measure(params) == 1.0
  asked = {'of': greedy[:7], 'references': references[:7], 'lowercase': False}
  asked |= {'tokenized': config.data.tokenized, 'language': config.data.target_language}
  assert scored == [asked]
  compiled = []
  count = lambda event, seconds, **_: compiled.append(event)
  jax.monitoring.register_event_duration_secs_listener(count)
  try:
    measure(jax.tree.map(np.zeros_like, params))
    assert measure(params) == 3.0
  finally:
    jax.monitoring.unregister_event_duration_listener(count)
  assert not [event for event in compiled if 'backend_compile' in event]
  assert scored[1]['of'] != greedy[:7] and scored[2] == scored[0]
