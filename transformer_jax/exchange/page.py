"""An HTML page that needs no network: a model that translates, or stored sentences.

page.html is the page, transformer.js computes, and page.js shows what it computes.
"""

import base64
import json
import math
import pathlib
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import ml_collections
import ml_dtypes
import numpy as np
from jaxtyping import PyTree
from sentencepiece import sentencepiece_model_pb2

from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build, flops
from transformer_jax.runs.run import Run

_PROTO: Any = sentencepiece_model_pb2  # whose classes have no types
# A browser keeps a page's text, and its parameters in float32: 8 bytes a parameter.
MOST_PARAMETERS = 30_000_000
_LANGUAGES = {'en': 'English', 'de': 'German', 'fr': 'French'}
_EXAMPLES = {'en': 'Where is the nearest station?', 'de': 'Wo ist der nächste Bahnhof?'}

# Weights [N, H, T, S] by kind of attention, each with the words of T and of S.
Stored = Mapping[str, tuple[np.ndarray, list[str], list[str]]]


def write_model(
  path: pathlib.Path, params: PyTree, run: Run, step: int, about: str, rights: str
) -> None:
  """Writes the page that translates with a run's model.

  Args:
    step: the last of the averaged checkpoints.
    about: a sentence on the model.
    rights: the text of its licence, or ''.
  """
  config = run.config()
  languages = config.data.source_language, config.data.target_language
  shown = {
    'title': ' to '.join(_LANGUAGES.get(code, code) for code in languages),
    'about': f'{about} It translates in this page as you type, and sends nothing.',
    'rights': rights,
    'languages': languages,
    'text': _EXAMPLES.get(languages[0], ''),
    **{'beam': config.beam, 'alpha': config.alpha},
    **{'N': config.model.N, 'H': config.model.h, 'sentences': []},
    # At first: all heads of the last layer but one, as in the paper's figures.
    **{'kind': 'cross', 'layer': max(config.model.N - 2, 0), 'word': None},
    'heads': [*range(config.model.h)],
  }
  _write(path, shown, model_of(params, run, step))


def write_sentences(
  path: pathlib.Path, sentences: Sequence[Stored], about: str, first: Mapping[str, Any]
) -> None:
  """Writes the page of stored sentences.

  Args:
    about: the text below the title.
    first: what is shown at first: kind, layer and heads (from 0), and word, the row of
      the first sentence that is chosen, or None.
  """
  N, H = sentences[0]['encoder'][0].shape[:2]
  stored = [{kind: _as_json(*of) for kind, of in x.items()} for x in sentences]
  shown = {**first, 'title': 'Attention', 'about': about, 'N': N, 'H': H}
  _write(path, shown | {'sentences': stored}, None)


def _write(path: pathlib.Path, shown: Mapping[str, Any], model: Any) -> None:
  read = lambda name: pathlib.Path(__file__).with_name(name).read_text('utf-8')
  # Escaped, so that no text can end the <script> element around it.
  as_json = lambda value: json.dumps(value, ensure_ascii=False).replace('<', r'\u003c')
  parts = {'SHOWN': as_json(shown), 'MODEL': as_json(model), 'PAGE': read('page.js')}
  parts['H'] = str(shown['H'])
  parts['TRANSFORMER'] = read('transformer.js') if model else ''
  files.write(
    path, re.sub('@([A-Z]+)@', lambda name: parts[name[1]], read('page.html'))
  )


def _as_json(
  weights: np.ndarray, rows: list[str], columns: list[str]
) -> dict[str, Any]:
  """Returns an object for JSON. Weights are bytes in base 64; 255 stands for 1."""
  quantised = np.rint(255 * np.clip(weights, 0, 1)).astype(np.uint8)
  text = base64.b64encode(quantised.tobytes()).decode()
  return {'rows': rows, 'columns': columns, 'weights': text}


def check(config: ml_collections.ConfigDict) -> None:
  """Raises UserError for a model that no page translates with."""
  size = flops.parameters(config.model)
  if config.task != 'translation':
    raise UserError(
      f'a page translates, and task={config.task}: --format=run takes any'
    )
  if size > MOST_PARAMETERS:
    raise UserError(
      f'{size:,} parameters: a page has {MOST_PARAMETERS:,} at most, for a browser '
      'keeps them in memory. --format=run takes any'
    )


def model_of(params: PyTree, run: Run, step: int) -> dict[str, Any]:
  """Returns a run's model as transformer.js loads it, with parameters in bfloat16.

  The high bytes (sign and exponent) have few values, so they compress well once the low
  bytes are not between them.
  """
  config, nats = run.config(), run.dev_nats(step)
  leaves, structure = jax.tree.flatten(
    jax.tree_util.tree_map_with_path(_outputs_first, params)
  )
  ends = np.cumsum([0, *(x.size for x in leaves)]).tolist()
  spans = [*zip(ends[:-1], ends[1:], strict=True)]
  flat = np.concatenate([x.ravel() for x in leaves]).astype(ml_dtypes.bfloat16)
  low_and_high = flat.view(np.uint8).reshape(-1, 2).T
  model = config.model
  is_learned = model.positions == 'learned'
  vocabularies = run.vocabularies()[: 2 if model.target_vocab_size else 1]
  return {
    'sizes': {name: model[name] for name in ('N', 'd_model', 'h', 'd_k', 'd_v')},
    **{name: config[name] for name in ('beam', 'alpha', 'extra_length')},
    'language': config.data.source_language,
    'longest': build.longest_text(config),
    'max_positions': model.max_positions if is_learned else None,
    'nats': nats if math.isfinite(nats) else None,
    'vocabularies': [_vocabulary(v.path, config.data) for v in vocabularies],
    'tree': jax.tree.unflatten(structure, spans),
    'parameters': base64.b64encode(zlib.compress(low_and_high.tobytes(), 9)).decode(),
  }


def _outputs_first(path: tuple[Any, ...], x: np.ndarray) -> np.ndarray:
  """Returns a matrix [inputs..., outputs...] as [outputs, inputs]."""
  name = path[-1].key
  if name == 'output':
    return x.reshape(-1, x.shape[-1]).T
  return x.reshape(len(x), -1).T if name in ('query', 'key', 'value', 'kernel') else x


def _vocabulary(path: pathlib.Path, data: ml_collections.ConfigDict) -> dict[str, Any]:
  """Returns a vocabulary for JSON; raises UserError for one that no page can use."""
  model = _PROTO.ModelProto.FromString(path.read_bytes())
  trainer, spec = model.trainer_spec, model.normalizer_spec
  kind = _PROTO.ModelProto.SentencePiece
  is_bpe = trainer.model_type == _PROTO.TrainerSpec.BPE
  spaces = (
    *(spec.add_dummy_prefix, spec.remove_extra_whitespaces, spec.escape_whitespaces),
    not trainer.treat_whitespace_as_suffix,
  )
  own = any(piece.type == kind.USER_DEFINED for piece in model.pieces)
  if not is_bpe or spec.precompiled_charsmap or not all(spaces) or own:
    raise UserError(
      f'{path}: a page reads byte pairs alone, with the spaces of SentencePiece by '
      'default, without a normaliser and without pieces that a user defined'
    )
  return {
    'pieces': [piece.piece for piece in model.pieces],
    'scores': [piece.score for piece in model.pieces],
    # The id of byte 0, which the others follow.
    'bytes': next((i for i, x in enumerate(model.pieces) if x.type == kind.BYTE), None),
    'nfc': data.nfc,
    'lowercase': data.lowercase,
  }
