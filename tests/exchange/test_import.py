"""What was exported comes in as it was; what is no such model is refused by name."""

import json
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from sentencepiece import sentencepiece_model_pb2

import toy.corpus
from configs import base
from toy import untrained
from transformer_jax.data import card
from transformer_jax.exchange.importing import STEP, import_model
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build
from transformer_jax.runs.run import Run
from transformer_jax.training import checkpoint


def come_in(
  folder: pathlib.Path, workdir: pathlib.Path, data_dir: pathlib.Path
) -> list[str]:
  config = base.get_config()
  config.data.name = 'toy'
  config.update({'decode_dtype': 'float32', 'extra_length': 6})
  config.keep_checkpoints = 3  # too few to average base's last 5, but there is only one
  return [*import_model(folder, workdir, config, (data_dir, None, None), False)]


def test_there_and_back(
  workdir: pathlib.Path, marian: pathlib.Path, tmp_path: pathlib.Path
):
  """Vocabulary and parameters are the same to the last bit; the corpus is known."""
  data_dir = workdir.parent / 'data'
  said = come_in(marian, tmp_path / 'run', data_dir)
  assert str(data_dir / 'toy') in said[-1]
  runs = Run(workdir), Run(tmp_path / 'run')
  configs = [run.config() for run in runs]
  sizes = [config.model.to_dict() for config in configs]
  assert [size.pop('P_drop') for size in sizes] == [0.1, 0.1] and sizes[0] == sizes[1]
  params = [
    checkpoint.restore_params(run.checkpoints, step, build.architecture(config)[1])
    for run, step, config in zip(runs, (untrained.STEP, STEP), configs, strict=True)
  ]
  jax.tree.map(np.testing.assert_array_equal, *params)
  runs[1].check_vocabulary(data_dir / 'toy')
  runs[1].check_held_out(data_dir / 'toy', 'test')


def test_a_corpus_is_encoded_for_it(marian: pathlib.Path, tmp_path: pathlib.Path):
  """With --prepare: by the model's vocabulary, so that the run can be scored on it."""
  raw, config = toy.corpus.write_raw(tmp_path / 'raw'), base.get_config()
  files = {split: (split,) for split in ('train', 'dev', 'test')}
  config.data.update({'name': 'new', 'reader': 'files', 'files': files})
  data = tmp_path / 'data', raw, None
  said = [*import_model(marian, tmp_path / 'run', config, data, True)]
  corpus, run = pathlib.Path(said[-1].removeprefix('corpus: ')), Run(tmp_path / 'run')
  assert corpus.parent == tmp_path / 'data'
  run.check_vocabulary(corpus)
  run.check_held_out(corpus, 'dev')
  assert card.read_card(corpus)['vocabulary']['given']


def test_without_a_corpus(marian: pathlib.Path, tmp_path: pathlib.Path):
  said = come_in(marian, tmp_path / 'run', tmp_path)
  assert '--prepare' in said[-1]
  assert card.read_card(tmp_path / 'run')['splits'] == {}
  assert len(Run(tmp_path / 'run').vocabularies().target) == 60
  with pytest.raises(UserError, match='is there already'):
    come_in(marian, tmp_path / 'run', tmp_path)


def without(*names: str) -> Callable[[pathlib.Path], None]:
  return lambda folder: [(folder / name).unlink() for name in names] and None


def pickled(folder: pathlib.Path) -> None:
  (folder / 'model.safetensors').rename(folder / 'pytorch_model.bin')


def cut(name: str) -> Callable[[pathlib.Path], Any]:
  def spoil(folder: pathlib.Path) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])

  return spoil


def says(name: str = 'config.json', **values: Any) -> Callable[[pathlib.Path], Any]:
  def spoil(folder: pathlib.Path) -> None:
    found = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(found | values))

  return spoil


def other_pieces(folder: pathlib.Path) -> None:
  found = json.loads((folder / 'vocab.json').read_text())
  found = {piece if row < 4 else f'x{row}': row for piece, row in found.items()}
  (folder / 'vocab.json').write_text(json.dumps(found))


def pieces_alone(folder: pathlib.Path) -> None:
  model = sentencepiece_model_pb2.ModelProto()
  model.ParseFromString((folder / 'target.spm').read_bytes())
  model.ClearField('trainer_spec')
  model.ClearField('normalizer_spec')
  (folder / 'target.spm').write_bytes(model.SerializeToString())


LACKS = 'a Hugging Face Marian model has'
BAD: dict[str, tuple[Callable[[pathlib.Path], Any], str]] = {
  'no model': (lambda f: [path.unlink() for path in f.iterdir()], LACKS),
  'no folder': (lambda f: shutil.rmtree(f), 'is no folder'),
  'no vocabulary': (without('vocab.json'), f'lacks vocab.json: {LACKS}'),
  'no target': (without('target.spm'), f'lacks target.spm: {LACKS}'),
  'a pickle': (pickled, 'pytorch_model.bin, and no such file is opened here'),
  "CTranslate2's": (lambda f: (f / 'model.bin').touch(), 'is a model of CTranslate2'),
  'an archive': (lambda f: (f / 'run.config.json').touch(), 'of our own names'),
  'half the weights': (cut('model.safetensors'), 'model.safetensors: '),
  'half a config': (cut('config.json'), 'config.json: damaged'),
  'empty weights': (lambda f: (f / 'model.safetensors').write_bytes(b''), 'safetens'),
  'half a vocabulary': (cut('source.spm'), 'source.spm: no SentencePiece model'),
  'an empty vocabulary': (
    lambda f: (f / 'source.spm').write_bytes(b''),
    'source.spm: no SentencePiece model',
  ),
  'a vocabulary cut between two pieces': (
    pieces_alone,
    'target.spm: no SentencePiece model',
  ),
  'other sizes': (
    says(encoder_ffn_dim=40, decoder_ffn_dim=40),
    r'but config.json says',
  ),
  'more layers': (
    says(encoder_layers=3, decoder_layers=3),
    'it lacks model.decoder.lay',
  ),
  'fewer layers': (says(encoder_layers=1, decoder_layers=1), 'no such model has'),
  'another kind': (says(model_type='bart'), 'model_type is "bart": only "marian"'),
  'pre-norm': (says(normalize_before=True), 'normalize_before is true'),
  'gelu': (says(activation_function='gelu'), "activation_function is 'gelu'"),
  'uneven': (says(decoder_layers=3), 'encoder_layers is 2 and decoder_layers 3'),
  'no size': (says(d_model='24'), "d_model is '24': a whole number"),
  'no end of layers': (
    says(encoder_layers=10**9),
    'encoder_layers is 1000000000: a wh',
  ),
  'heads': (says(encoder_attention_heads=5, decoder_attention_heads=5), 'no multiple'),
  'dropout': (says(dropout=2.0), 'dropout is 2.0: from 0 to less than 1'),
  'dropout in words': (says(attention_dropout='0.1'), "attention_dropout is '0.1'"),
  'activations': (says(activation_function=['relu']), "is ['relu']: only"),
  'two tables': (says(share_encoder_decoder_embeddings=False), 'share_encoder_decoder'),
  'other ends': (
    says(eos_token_id=9),
    'vocab.json: is not the vocabulary of the model',
  ),
  'start': (says(decoder_start_token_id=1), 'first word are neither'),
  'more pieces': (says('vocab.json', more=60), 'vocab.json: is not the vocabulary'),
  'another vocabulary': (
    other_pieces,
    'source.spm: is not the vocabulary of the model',
  ),
}


@pytest.mark.parametrize('kind', BAD)
def test_what_is_no_such_model_is_refused(
  kind: str, marian: pathlib.Path, tmp_path: pathlib.Path
):
  spoil, said = BAD[kind]
  folder = tmp_path / 'bad'
  shutil.copytree(marian, folder)
  spoil(folder)
  with pytest.raises(UserError) as caught:
    come_in(folder, tmp_path / 'run', tmp_path)
  assert said in str(caught.value) and str(folder) in str(caught.value)
  assert '\n' not in str(caught.value) and not (tmp_path / 'run').exists()


def test_half_an_export_is_refused(marian: pathlib.Path, tmp_path: pathlib.Path):
  shutil.copytree(marian, tmp_path / 'out.partial')
  with pytest.raises(UserError, match='half of an export'):
    come_in(tmp_path / 'out.partial', tmp_path / 'run', tmp_path)
