"""The kit in reference/: a tiny Transformer with the numbers that it computes.

  python -m transformer_jax.reference.kit

writes it again. docs/check_yours.md lists its files.
"""

import functools
import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from safetensors import numpy as safetensors

from transformer_jax.reference import compute, scores, torch_names
from transformer_jax.reference.compute import Arrays

FOLDER = compute.ONE_FILE.parents[1] / 'reference'
SIZES = {'N': 2, 'd_model': 32, 'd_ff': 64, 'h': 4, 'd_k': 8, 'd_v': 8, 'W': 60}
CONFIG = SIZES | {
  'PAD': 0,
  'EOS': 1,
  'BOS': 2,
  'norm_epsilon': 1e-6,
  'epsilon_ls': compute.EPSILON_LS,
  'P_drop': 0.0,
  'warmup_steps': compute.WARMUP,
  'beta_1': 0.9,
  'beta_2': 0.98,
  'adam_epsilon': 1e-9,
  'extra_length': compute.EXTRA_LENGTH,
}
BASE = {'d_model': 512, 'warmup': 4000, 'count': 10_000}  # of the learning rates
SEED = 1
# Tokens of each sentence before EOS
LENGTHS = {'source': (5, 3, 0), 'target': (6, 1, 3)}
# Sentences whose translations each mistake of the search changes
SENTENCES: list[list[int]] = [
  [21, 5, 47, 43, 47],
  [51, 10, 25, 39],
  [29, 13, 48],
  [42, 10],
  [8, 51, 51, 29, 24],
  [],
]
BEAMS, ALPHAS = (1, 4), (0.0, 0.6, 1.0)
SEARCHES = [
  f'search.beam_{beam}.alpha_{alpha}'
  for beam, alpha in itertools.product(BEAMS, ALPHAS)
]


def parameters() -> Arrays:
  """Returns random parameters, exact in float32, with which mistakes show."""
  one_file, rng = compute.load(), np.random.default_rng(SEED)
  make = lambda key: one_file.initialize(key, **SIZES)
  shapes = compute.flatten(jax.eval_shape(make, jax.random.key(0)))
  arrays = {}
  for name, x in shapes.items():
    last = name.rpartition('.')[2]
    sigma = 0.2 if len(x.shape) == 1 else SIZES['d_model'] ** -0.5
    arrays[name] = rng.normal(size=x.shape) * sigma + (last == 'scale')
    if name.startswith('decoder') and last == 'scale':
      arrays[name] *= rng.choice([-1, 1], x.shape)  # else a token predicts itself
  # Small activations show the epsilon of the next norm. A small W_2 makes W_1's
  # gradient small, which shows Adam's epsilon.
  for name in ('norm_1.scale', 'norm_1.bias', 'feed_forward.b_2'):
    arrays[f'encoder.0.{name}'] *= 0.05
  arrays['encoder.0.feed_forward.W_2'] *= 1e-4
  # Probabilities are far from equal, and that of EOS is larger by the bias.
  for name in ('scale', 'bias'):
    arrays[f'decoder.1.norm_3.{name}'] *= 3
  bias = arrays['decoder.1.norm_3.bias']
  arrays['embedding'][CONFIG['EOS']] += 5 * bias / (bias @ bias)
  return {name: x.astype(np.float32) for name, x in arrays.items()}


def inputs() -> Arrays:
  """Returns ids: `source` and `target` of a batch, and `sentences` to translate."""
  rng, pad = np.random.default_rng(SEED), compute.load().pad

  def padded(sentences: Sequence[Sequence[int]]) -> np.ndarray:
    rows = [[*sentence, CONFIG['EOS']] for sentence in sentences]
    return pad(rows, max(map(len, rows))).astype(np.int64)

  draw: Callable[[int], list[int]] = lambda n: rng.integers(4, SIZES['W'], n).tolist()
  arrays = {}
  for side, lengths in LENGTHS.items():
    arrays[side] = padded([draw(n) for n in lengths])
  return arrays | {'sentences': padded(SENTENCES)}


# Keeps all hypotheses that end, and searches to the limit.
KEEP_ALL = [
  ('done = np.zeros(', 'ended = [[] for _ in source]\n  done = np.zeros('),
  ('grown = []', 'grown, ended[b] = [], []'),
  ('EOS:\n', 'EOS:\n          ended[b].append((log_p[b, n], tokens))\n'),
  (' or finished[b][0] >= reachable', ''),
]


def hypotheses(params: Any, source: np.ndarray, beam: int) -> list[list[Any]]:
  """Returns each sentence's steps of a search that goes on to the limit.

  A step has the `live` hypotheses after it, best first, and those that `ended` at it.
  Each hypothesis is its log P and its tokens.
  """
  sentences: list[list[Any]] = [[] for _ in source]
  listed = lambda beams: [[float(log_p), tokens] for log_p, tokens in beams if tokens]

  def see(frame: Any, value: Any) -> None:
    search = frame.f_back if frame.f_code.co_name == 'pad' else frame
    if search.f_code.co_name == 'beam_search':
      now = search.f_locals
      for steps, live, ended, limit in zip(
        sentences, now['live'], now['ended'], now['limits'], strict=True
      ):
        step = {'live': listed(live), 'ended': listed(ended)}
        if any(step.values()) and len(steps) < limit:
          steps.append(step)

  module = compute.load_in_numpy(KEEP_ALL)
  search = params, source, beam, 0.0, compute.EXTRA_LENGTH
  compute.observe(lambda: module.beam_search(*search), see)
  return sentences


def search(module: Any, params: Any, sentences: np.ndarray, group: str) -> Arrays:
  """Returns the best translations, padded, and their scores.

  `group` is one of SEARCHES: `search.beam_4.alpha_0.6`.
  """
  beam, alpha = group.removeprefix('search.beam_').split('.alpha_')
  arrays = compute.search(module, params, sentences, int(beam), float(alpha))
  return {f'{group}.{name}': x for name, x in arrays.items()}


@functools.cache
def read(name: str) -> Arrays:
  """Returns the arrays of a file of the kit."""
  return safetensors.load_file(FOLDER / f'{name}.safetensors')


def read_json(name: str) -> Any:
  """Returns the content of a JSON file of the kit."""
  return json.loads((FOLDER / f'{name}.json').read_text())


def write_json(name: str, value: Any) -> None:
  """Writes a JSON file of the kit."""
  text = json.dumps(value, ensure_ascii=False)
  (FOLDER / f'{name}.json').write_text(f'{text}\n', encoding='utf-8')


def write() -> None:
  """Writes the kit; the texts of bleu.json stay."""
  params, ids = parameters(), inputs()
  tree = compute.unflatten({name: x.astype(np.float64) for name, x in params.items()})
  batch, sentences = (ids['source'], ids['target']), ids['sentences']
  module, compiled = compute.load_in_numpy(), compute.load()
  gradient = compute.gradient(compiled, tree, *batch)
  updates = compute.updates(compiled, compiled, tree, *batch)
  # In float32, to keep the kit small.
  backward = {name: x.astype(np.float32) for name, x in (gradient | updates).items()}
  backward['learning_rate'] = compute.learning_rates(module, **BASE)
  files = {
    'parameters': params,
    'torch': torch_names.to_torch(params),
    'inputs': ids,
    'forward': compute.forward(module, tree, *batch),
    'backward': backward,
  }
  FOLDER.mkdir(exist_ok=True)
  for name, arrays in files.items():
    arrays = {key: np.array(x, order='C') for key, x in arrays.items()}
    data = safetensors.save(arrays)
    (FOLDER / f'{name}.safetensors').write_bytes(data)
  best = [search(module, tree, sentences, group) for group in SEARCHES]
  searched = {
    'sentences': [[int(x) for x in row if x] for row in sentences],
    'longest': [int(n) for n in (sentences != 0).sum(1) + compute.EXTRA_LENGTH],
    'steps': {f'beam_{beam}': hypotheses(tree, sentences, beam) for beam in BEAMS},
    'best': {name: x.tolist() for group in best for name, x in group.items()},
  }
  texts = {key: read_json('bleu')[key] for key in ('hypotheses', 'references')}
  bleu = {**texts, 'right': scores.right(**texts), 'wrong': scores.wrong(**texts)}
  for name, value in {'config': CONFIG, 'search': searched, 'bleu': bleu}.items():
    write_json(name, value)


if __name__ == '__main__':
  write()
