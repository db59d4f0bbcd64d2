"""The weights of a Marian model mean in NumPy what they mean here."""

import json
import pathlib

import numpy as np
from safetensors.numpy import load_file

import transformer_jax
from transformer_jax.data.vocabulary import EOS

ACTIVATIONS = {'relu': lambda x: np.maximum(x, 0)}


class Marian:
  """transformers' MarianMTModel as its config.json and its weights describe it."""

  def __init__(self, folder: pathlib.Path):
    self.config = json.loads((folder / 'config.json').read_text())
    weights = load_file(folder / 'model.safetensors')
    self.weights = {name: x.astype(np.float64) for name, x in weights.items()}

  def linear(self, x: np.ndarray, name: str) -> np.ndarray:
    return x @ self.weights[f'{name}.weight'].T + self.weights[f'{name}.bias']

  def norm(self, x: np.ndarray, name: str) -> np.ndarray:
    x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
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

  def score(self, source: list[int], target: list[int]) -> np.ndarray:
    """Returns the log probability of each token of the target."""
    shifted = [self.config['decoder_start_token_id'], *target[:-1]]
    x = self.stack('decoder', shifted, self.stack('encoder', source))
    logits = x @ self.weights['model.shared.weight'].T
    logits += self.weights['final_logits_bias']
    log_sums = np.log(np.exp(logits).sum(1))
    return logits[np.arange(len(target)), target] - log_sums


def test_exported_weights_score_as_the_run_does(
  workdir: pathlib.Path, marian: pathlib.Path
):
  model = transformer_jax.load(workdir, decode_dtype='float32')
  texts = 'one two', 'eins zwei drei'
  (ours,) = model.score(*([text] for text in texts))
  source, target = (
    [*vocabulary.encode([text])[0], EOS]
    for vocabulary, text in zip(model.run.vocabularies(), texts, strict=True)
  )
  theirs = Marian(marian).score(source, target)
  np.testing.assert_allclose(ours.log_probabilities, theirs, atol=1e-4)
