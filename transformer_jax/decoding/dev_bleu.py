"""BLEU of dev while a model is trained: greedy, of dev's first sentences."""

import pathlib
from typing import Any

import ml_collections

from transformer_jax.data import card
from transformer_jax.data.task import Task
from transformer_jax.decoding.translate import Translator
from transformer_jax.scoring import bleu

Tree = Any


class DevBleu:
  """sacreBLEU of greedy translations of dev's first `bleu_sentences`.

  Call it with parameters on this host's devices. Programs are compiled once.
  """

  def __init__(
    self, config: ml_collections.ConfigDict, task: Task, corpus: pathlib.Path
  ):
    """UserError if the target's tokeniser is not installed."""
    self._config = config.copy_and_resolve_references()
    self._config.beam = 1
    self._task = task
    self._how = {
      'lowercase': False,
      'tokenized': config.data.tokenized,
      'language': config.data.target_language,
    }
    bleu.sacre_metric(**self._how)
    self._vocabularies = card.vocabularies(corpus)
    sides = card.read_text(corpus, 'dev')
    self._sources, self._references = (s[: config.bleu_sentences] for s in sides)
    self._translator: Translator | None = None

  def __call__(self, params: Tree) -> float:
    if self._translator is None:
      self._translator = Translator(
        self._config, self._task, self._vocabularies, params
      )
    else:
      self._translator.use(params)
    searched = self._translator.translate(self._sources, nbest=1)
    found = [best.text for (best,) in searched]
    return bleu.sacre_bleu(found, self._references, **self._how).score
