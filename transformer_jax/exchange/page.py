"""An HTML page that needs no network: a model that translates, or stored sentences.

page.html has the page, transformer.js the model, and page.js what shows it.
"""

import base64
import json
import math
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import jax
import ml_collections
import ml_dtypes
import numpy as np
from jaxtyping import PyTree
from sentencepiece import sentencepiece_model_pb2

from transformer_jax.data.vocabulary import Vocabularies
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build, flops

_PROTO: Any = sentencepiece_model_pb2  # whose classes have no types
# A browser keeps a page's text and, in float32, its parameters: 10 bytes for each.
MOST_PARAMETERS = 30_000_000


def write(
  path: pathlib.Path, shown: Mapping[str, Any], model: Mapping[str, Any] | None = None
) -> None:
  """Writes the page.

  Args:
    shown: what page.js reads: title, about, kinds of attention, sizes, sentences.
    model: from model_of(). None: the page shows stored sentences.
  """
  read = lambda name: pathlib.Path(__file__).with_name(name).read_text('utf-8')
  # Escaped, so that no text can end the <script> element around it.
  as_json = lambda value: json.dumps(value, ensure_ascii=False).replace('<', r'\u003c')
  parts = {'SHOWN': as_json(shown), 'MODEL': as_json(model), 'PAGE': read('page.js')}
  parts['TRANSFORMER'] = read('transformer.js') if model else ''
  page = re.sub('@([A-Z]+)@', lambda name: parts[name[1]], read('page.html'))
  files.write(path, page)


def check(config: ml_collections.ConfigDict) -> None:
  """Raises UserError for a model that no page translates with."""
  size = flops.parameters(config.model)
  if config.task != 'translation':
    raise UserError(
      f'task={config.task}: a page translates text; --format=run takes any'
    )
  if size > MOST_PARAMETERS:
    raise UserError(
      f'{size:,} parameters: a page has {MOST_PARAMETERS:,} at most, for a browser '
      'keeps them in memory; --format=run takes any'
    )


def model_of(
  params: PyTree,
  config: ml_collections.ConfigDict,
  vocabularies: Vocabularies,
  nats: float,
) -> dict[str, Any]:
  """Returns the model as transformer.js loads it, in bfloat16.

  Args:
    nats: -log P of a piece of dev's references; infinite if it is not known.
  """
  leaves, structure = jax.tree.flatten(
    jax.tree_util.tree_map_with_path(_outputs_first, params)
  )
  ends = np.cumsum([0, *(x.size for x in leaves)]).tolist()
  spans = [*zip(ends[:-1], ends[1:], strict=True)]
  flat = np.concatenate([x.ravel() for x in leaves]).astype(ml_dtypes.bfloat16)
  model = config.model.to_dict()
  is_learned = model['positions'] == 'learned'
  own = vocabularies if model['target_vocab_size'] else vocabularies[:1]
  return {
    'sizes': {name: model[name] for name in ('N', 'd_model', 'h', 'd_k', 'd_v')},
    **{name: config[name] for name in ('beam', 'alpha', 'extra_length')},
    'language': config.data.source_language,
    'longest': build.longest_text(config),
    'max_positions': model['max_positions']
    if model['positions'] == 'learned'
    else None,
    'nats': nats if math.isfinite(nats) else None,
    'vocabularies': [_vocabulary(v.path, config.data.nfc) for v in own],
    'tree': jax.tree.unflatten(structure, spans),
    'parameters': base64.b64encode(flat.tobytes()).decode(),
  }


def _outputs_first(path: tuple[Any, ...], x: np.ndarray) -> np.ndarray:
  """Returns a matrix [inputs..., outputs...] as [outputs, inputs]."""
  name = path[-1].key
  if name == 'output':
    return x.reshape(-1, x.shape[-1]).T
  return x.reshape(len(x), -1).T if name in ('query', 'key', 'value', 'kernel') else x


def _vocabulary(path: pathlib.Path, nfc: bool) -> dict[str, Any]:
  model = _PROTO.ModelProto.FromString(path.read_bytes())
  kind = _PROTO.TrainerSpec.ModelType.Name(model.trainer_spec.model_type).lower()
  normaliser = model.normalizer_spec
  if kind not in ('bpe', 'unigram', 'word') or normaliser.precompiled_charsmap:
    raise UserError(
      f'{path}: a vocabulary of type {kind} with the normaliser {normaliser.name}; '
      'a page has bpe, unigram or word with identity'
    )
  byte = _PROTO.ModelProto.SentencePiece.BYTE
  is_byte = [piece.type == byte for piece in model.pieces]
  return {
    'type': kind,
    'pieces': [piece.piece for piece in model.pieces],
    'scores': [piece.score for piece in model.pieces],
    'bytes': is_byte.index(True) if any(is_byte) else None,
    'nfc': nfc,
  }


def weights_of(
  weights: np.ndarray, rows: list[str], columns: list[str]
) -> dict[str, Any]:
  """Returns a stored sentence's weights: bytes in base64, where 255 stands for 1."""
  quantised = np.rint(255 * np.clip(weights, 0, 1)).astype(np.uint8)
  text = base64.b64encode(quantised.tobytes()).decode()
  return {'rows': rows, 'columns': columns, 'weights': text}
