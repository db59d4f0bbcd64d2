"""CTranslate2 computes what we compute, with exported weights."""

import json
import pathlib

import numpy as np
import pytest
import sentencepiece
from safetensors.numpy import load_file

import transformer_jax
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.exchange import huggingface
from transformer_jax.exchange.export import export

ctranslate2 = pytest.importorskip('ctranslate2')

TEXTS = 'one two', 'eins zwei drei'


@pytest.fixture(scope='module')
def model(workdir: pathlib.Path) -> LoadedRun:
  return transformer_jax.load(workdir, decode_dtype='float32')


def assert_same_scores(folder: pathlib.Path, model: LoadedRun, tolerance: float):
  pieces = []
  for side, text in zip(('source', 'target'), TEXTS, strict=True):
    spm = sentencepiece.SentencePieceProcessor(model_file=str(folder / f'{side}.spm'))
    pieces.append([spm.encode(text, out_type=str)])
  (ours,) = model.score(*([text] for text in TEXTS))
  (theirs,) = ctranslate2.Translator(str(folder)).score_batch(*pieces)
  np.testing.assert_allclose(theirs.log_probs, ours.log_probabilities, atol=tolerance)


@pytest.mark.parametrize(('dtype', 'tolerance'), [('float32', 1e-5), ('float16', 0.05)])
def test_ctranslate2_scores_as_the_run_does(
  dtype: str, tolerance: float, workdir: pathlib.Path, model: LoadedRun, tmp_path
):
  folder = tmp_path / 'out'
  printed = export(workdir, 'ctranslate2', folder, dtype, None, None)
  assert printed.startswith(f'{folder}: ctranslate2, {dtype}, ')
  assert_same_scores(folder, model, tolerance)
  parameters = sum(x.size for x in huggingface.to_marian(model.params).values())
  size = (folder / 'model.bin').stat().st_size
  assert (size > 5 * parameters) == (dtype == 'float32')
  config = json.loads((folder / 'config.json').read_text())
  assert config['layer_norm_epsilon'] == pytest.approx(1e-6)
  assert 'beam_size=4, length_penalty=0.6,' in (folder / 'README.md').read_text()


def test_hugging_face_gets_the_same_model(
  workdir: pathlib.Path, marian: pathlib.Path, model: LoadedRun, tmp_path, monkeypatch
):
  """CTranslate2 computes with the arrays; transformers itself needs PyTorch."""
  arrays = load_file(marian / 'model.safetensors')
  assert not arrays['final_logits_bias'].any()
  monkeypatch.setattr(huggingface, 'to_marian', lambda _: arrays)
  export(workdir, 'ctranslate2', tmp_path / 'out', None, None, None)
  assert_same_scores(tmp_path / 'out', model, 1e-5)
