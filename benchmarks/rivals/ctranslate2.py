"""CTranslate2 with huggingface.py's Marian model, converted: the same weights."""

import functools
import pathlib
import tempfile
from collections.abc import Sequence

import ctranslate2
import ml_collections
import torch
from ctranslate2.converters.transformers import BartLoader

from benchmarks.rivals import huggingface
from transformer_jax.data.vocabulary import BOS, EOS, UNK
from transformer_jax.machine.errors import UserError

# The types that it computes in, by the kind of device.
TYPES = {'cpu': ('float32', 'int8'), 'cuda': ('float16', 'int8_float16')}


def decoding(
  config: ml_collections.ConfigDict, threads: int, device: str
) -> dict[str, 'Decoding']:
  """Returns a Decoding for each of its types.

  Raises:
    UserError: CTranslate2 has no such device.
  """
  if device == 'cuda' and not ctranslate2.get_cuda_device_count():
    raise UserError(f'CTranslate2 {ctranslate2.__version__} sees no GPU')
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    convert(config, folder)
    of = functools.partial(ctranslate2.Translator, name, device=device)
    parts = {'intra_threads': 1, 'inter_threads': threads if device == 'cpu' else 1}
    return {
      f'ctranslate2.{kind}': Decoding(
        of(compute_type=kind, intra_threads=threads),
        of(compute_type=kind, **parts),
        config,
      )
      for kind in TYPES[device]
    }


def convert(config: ml_collections.ConfigDict, folder: pathlib.Path) -> None:
  """Writes huggingface.Decoding's model in CTranslate2's format."""
  model = huggingface.without_eos(huggingface.marian(config, 'cpu')).train(False)
  # Converted as a BART model: the converter for Marian drops the last word of the
  # vocabulary and embeds BOS as zeros, as trained Marian models want it.
  model.config.normalize_before = model.config.normalize_embedding = False
  with torch.no_grad():
    spec = BartLoader().get_model_spec(model)
  words = [str(i) for i in range(config.model.vocab_size)]
  spec.register_source_vocabulary(words)
  spec.register_target_vocabulary(words)
  spec.config.bos_token = spec.config.decoder_start_token = str(BOS)
  spec.config.eos_token, spec.config.unk_token = str(EOS), str(UNK)
  spec.validate()
  spec.optimize()
  spec.save(str(folder))


class Decoding:
  """All threads translate one sentence; of several, on a CPU, each translates a part.

  The latter is what CTranslate2's authors advise for throughput.
  """

  def __init__(
    self,
    whole: ctranslate2.Translator,
    parts: ctranslate2.Translator,
    config: ml_collections.ConfigDict,
  ):
    self._whole, self._parts, self._alpha = whole, parts, config.alpha
    self._words = [str(i) for i in range(config.model.vocab_size)]

  def translate(
    self, sources: Sequence[Sequence[int]], beam: int, length: int
  ) -> list[list[int]]:
    translator = self._parts if len(sources) > 1 else self._whole
    results = translator.translate_batch(
      [[self._words[i] for i in ids] for ids in sources],
      beam_size=beam,
      length_penalty=self._alpha,
      max_decoding_length=length,
      max_input_length=0,
      max_batch_size=-(-len(sources) // translator.num_translators),
    )
    return [[int(word) for word in result.hypotheses[0]] for result in results]
