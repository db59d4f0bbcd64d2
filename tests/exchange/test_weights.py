"""Exported weights mean what they mean here: in NumPy, and in CTranslate2."""

import json
import pathlib

import numpy as np
import pytest
import sentencepiece
from safetensors.numpy import load_file

import transformer_jax
from transformer_jax.data.vocabulary import EOS
from transformer_jax.exchange import huggingface
from transformer_jax.exchange.export import export
from transformer_jax.runs.run import Run

ACTIVATIONS = {'relu': lambda x: np.maximum(x, 0)}


class Marian:
  """transformers' MarianMTModel as its config.json and its weights describe it.

  Attributes:
    epsilons: what a stack's first norm adds to the variance, and what the others add.
  """

  epsilons = 1e-5, 1e-5

  def __init__(self, folder: pathlib.Path):
    self.config = json.loads((folder / 'config.json').read_text())
    weights = load_file(folder / 'model.safetensors')
    self.weights = {name: x.astype(np.float64) for name, x in weights.items()}

  def linear(self, x: np.ndarray, name: str) -> np.ndarray:
    return x @ self.weights[f'{name}.weight'].T + self.weights[f'{name}.bias']

  def norm(self, x: np.ndarray, name: str) -> np.ndarray:
    epsilon = self.epsilons['.layers.0.self_attn_layer_norm' not in name]
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + epsilon)
    return x * self.weights[f'{name}.weight'] + self.weights[f'{name}.bias']

  def attend(
    self, x: np.ndarray, memory: np.ndarray, name: str, h: int, is_causal: bool
  ) -> np.ndarray:
    heads = lambda x, part: np.array(np.split(self.linear(x, f'{name}.{part}'), h, 1))
    q, k, v = heads(x, 'q_proj'), heads(memory, 'k_proj'), heads(memory, 'v_proj')
    scores = np.exp(q @ k.swapaxes(1, 2) / np.sqrt(q.shape[2]))
    scores = np.tril(scores) if is_causal else scores
    attended = scores / scores.sum(2, keepdims=True) @ v
    return self.linear(np.concatenate([*attended], 1), f'{name}.out_proj')

  def stack(
    self, kind: str, ids: list[int], memory: np.ndarray | None = None
  ) -> np.ndarray:
    D, h = self.config['d_model'], self.config[f'{kind}_attention_heads']
    angles = np.arange(len(ids))[:, None] / 10_000 ** (np.arange(0, D, 2) / D)
    embedded = self.weights['model.shared.weight'][ids]
    scale = np.sqrt(D) if self.config['scale_embedding'] else 1
    x = embedded * scale + np.concatenate([np.sin(angles), np.cos(angles)], 1)
    activation = ACTIVATIONS[self.config['activation_function']]
    for n in range(self.config[f'{kind}_layers']):
      at = f'model.{kind}.layers.{n}'
      attended = self.attend(x, x, f'{at}.self_attn', h, memory is not None)
      x = self.norm(x + attended, f'{at}.self_attn_layer_norm')
      if memory is not None:
        attended = self.attend(x, memory, f'{at}.encoder_attn', h, False)
        x = self.norm(x + attended, f'{at}.encoder_attn_layer_norm')
      inner = activation(self.linear(x, f'{at}.fc1'))
      x = self.norm(x + self.linear(inner, f'{at}.fc2'), f'{at}.final_layer_norm')
    return x

  def logits(self, source: list[int], target: list[int]) -> np.ndarray:
    shifted = [self.config['decoder_start_token_id'], *target[:-1]]
    x = self.stack('decoder', shifted, self.stack('encoder', source))
    logits = x @ self.weights['model.shared.weight'].T
    return logits + self.weights['final_logits_bias']

  def score(self, source: list[int], target: list[int]) -> np.ndarray:
    """Returns the log probability of each token of the target."""
    logits = self.logits(source, target)
    log_sums = np.log(np.exp(logits).sum(1))
    return logits[np.arange(len(target)), target] - log_sums

  def greedy(self, source: list[int], limit: int) -> list[int]:
    """Returns the most probable tokens, one after the other, without EOS."""
    target: list[int] = []
    while len(target) < limit:
      best = int(self.logits(source, [*target, EOS])[-1].argmax())
      if best == EOS:
        break
      target.append(best)
    return target


TEXTS = 'one two', 'eins zwei drei'


@pytest.fixture(scope='module')
def pair(workdir: pathlib.Path) -> list[list[int]]:
  """Returns the ids of TEXTS, each with EOS."""
  both = zip(Run(workdir).vocabularies(), TEXTS, strict=True)
  return [[*vocabulary.encode([text])[0], EOS] for vocabulary, text in both]


def test_exported_weights_score_as_the_run_does(
  workdir: pathlib.Path, marian: pathlib.Path, pair: list[list[int]]
):
  model = transformer_jax.load(workdir, decode_dtype='float32')
  (ours,) = model.score(*([text] for text in TEXTS))
  theirs = Marian(marian).score(*pair)
  np.testing.assert_allclose(ours.log_probabilities, theirs, atol=1e-5)


def test_a_larger_epsilon_has_a_16th_of_its_effect(
  workdir: pathlib.Path, marian: pathlib.Path, pair: list[list[int]]
):
  """Where a norm reads what norms have written; the first one reads embeddings."""
  scaled, plain = Marian(marian), Marian(marian)
  arrays = huggingface.to_marian(transformer_jax.load(workdir).params)
  plain.weights = {name: x.astype(np.float64) for name, x in arrays.items()}
  scaled.epsilons, plain.epsilons = (0.5, 8.0), (0.5, 0.5)
  ours, theirs = (model.score(*pair) for model in (scaled, plain))
  np.testing.assert_allclose(ours, theirs, atol=1e-9)


@pytest.mark.parametrize('dtype', ['float32', 'float16'])
def test_ctranslate2_writes_the_same(
  dtype: str, workdir: pathlib.Path, marian: pathlib.Path, pair, tmp_path: pathlib.Path
):
  ctranslate2 = pytest.importorskip('ctranslate2')
  folder, ours, (ids, target) = tmp_path / 'out', Marian(marian), pair
  printed = export(workdir, 'ctranslate2', folder, dtype, None, None)
  assert printed.startswith(f'{folder}: ctranslate2, {dtype}, ')
  config = json.loads((folder / 'config.json').read_text())
  assert (
    config['layer_norm_epsilon'] == pytest.approx(1e-6) and config['add_source_eos']
  )
  size, floats = (folder / 'model.bin').stat().st_size, ours.weights.values()
  assert (size > 5 * sum(x.size for x in floats)) == (dtype == 'float32')
  theirs = ctranslate2.Translator(str(folder))
  spm = [
    sentencepiece.SentencePieceProcessor(model_file=str(folder / f'{side}.spm'))
    for side in ('source', 'target')
  ]
  cut = [[x.encode(text, out_type=str)] for x, text in zip(spm, TEXTS, strict=True)]
  (scored,) = theirs.score_batch(*cut)
  tolerance = 1e-5 if dtype == 'float32' else 0.05
  np.testing.assert_allclose(scored.log_probs, ours.score(ids, target), atol=tolerance)
  if dtype == 'float32':
    (best,) = theirs.translate_batch(cut[0], beam_size=1, max_decoding_length=12)
    (pieces,) = best.hypotheses
    assert [*map(spm[1].piece_to_id, pieces)] == ours.greedy(ids, 12) and pieces
  page = (folder / 'README.md').read_text()
  assert (
    'beam_size=4, length_penalty=0.6,' in page and 'library_name: ctranslate2' in page
  )
