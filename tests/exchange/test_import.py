"""An exported model comes in as it was; another folder is refused by name."""

import json
import os
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
from transformer_jax.exchange.import_model import STEP, import_model
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build
from transformer_jax.runs.run import Run
from transformer_jax.tasks import TRANSLATION
from transformer_jax.training import checkpoint


def import_toy(
  folder: pathlib.Path, workdir: pathlib.Path, data_dir: pathlib.Path
) -> list[str]:
  config = base.get_config()
  config.data.name = 'toy'
  config.update({'decode_dtype': 'float32', 'extra_length': 6})
  config.keep_checkpoints = 3  # too few to average base's last 5, but there is only one
  return [
    *import_model(folder, workdir, config, TRANSLATION, (data_dir, None, None), False)
  ]


def test_export_and_import(
  workdir: pathlib.Path, marian: pathlib.Path, tmp_path: pathlib.Path
):
  """Vocabulary and parameters are the same to the last bit; the corpus is known."""
  data_dir = workdir.parent / 'data'
  lines = import_toy(marian, tmp_path / 'run', data_dir)
  assert str(data_dir / 'toy') in lines[-1]
  runs = Run(workdir), Run(tmp_path / 'run')
  configs = [run.config() for run in runs]
  sizes = [config.model.to_dict() for config in configs]
  assert [size.pop('P_drop') for size in sizes] == [0.1, 0.1] and sizes[0] == sizes[1]
  params = [
    checkpoint.restore_params(run.checkpoints, step, build.architecture(config)[1])
    for run, step, config in zip(runs, (untrained.STEP, STEP), configs, strict=True)
  ]
  jax.tree.map(np.testing.assert_array_equal, *params)
  runs[1].check_corpus(data_dir / 'toy')


def test_a_corpus_is_encoded_for_it(marian: pathlib.Path, tmp_path: pathlib.Path):
  """--prepare uses the model's vocabulary, so the run can be scored."""
  raw, config = toy.corpus.write_raw(tmp_path / 'raw'), base.get_config()
  files = {split: (split,) for split in ('train', 'dev', 'test')}
  config.data.update({'name': 'new', 'reader': 'files', 'files': files})
  data = tmp_path / 'data', raw, None
  lines = [*import_model(marian, tmp_path / 'run', config, TRANSLATION, data, True)]
  corpus, run = pathlib.Path(lines[-1].removeprefix('corpus: ')), Run(tmp_path / 'run')
  assert corpus.parent == tmp_path / 'data'
  run.check_corpus(corpus)
  assert card.read_card(corpus).vocabulary.from_run


def test_without_a_corpus(marian: pathlib.Path, tmp_path: pathlib.Path):
  lines = import_toy(marian, tmp_path / 'run', tmp_path)
  assert '--prepare' in lines[-1]
  assert card.read_card(tmp_path / 'run').splits == {}
  assert len(Run(tmp_path / 'run').vocabularies().target) == 60
  with pytest.raises(UserError, match='run exists'):
    import_toy(marian, tmp_path / 'run', tmp_path)


def without(*names: str) -> Callable[[pathlib.Path], Any]:
  return lambda folder: [(folder / name).unlink() for name in names]


def cut(name: str) -> Callable[[pathlib.Path], Any]:
  """Keeps half of the file."""
  return lambda folder: os.truncate(folder / name, (folder / name).stat().st_size // 2)


def changed(name: str = 'config.json', **values: Any) -> Callable[[pathlib.Path], Any]:
  def change(folder: pathlib.Path) -> None:
    old = json.loads((folder / name).read_text())
    (folder / name).write_text(json.dumps(old | values))

  return change


def stacks(**sizes: Any) -> Callable[[pathlib.Path], Any]:
  both = {f'{s}_{key}': x for key, x in sizes.items() for s in ('encoder', 'decoder')}
  return changed(**both)


def pickled(folder: pathlib.Path) -> None:
  (folder / 'model.safetensors').rename(folder / 'pytorch_model.bin')


def pieces_alone(folder: pathlib.Path) -> None:
  """Cuts a SentencePiece model between two pieces."""
  path = folder / 'target.spm'
  model = sentencepiece_model_pb2.ModelProto.FromString(path.read_bytes())
  model.ClearField('trainer_spec')
  model.ClearField('normalizer_spec')
  path.write_bytes(model.SerializeToString())


LACKS = 'a Hugging Face Marian model has'
OTHER = 'is not the vocabulary of the model'
NO_SPM = 'no SentencePiece model'
FAULTS: list[tuple[Callable[[pathlib.Path], Any], str]] = [
  (lambda f: [path.unlink() for path in f.iterdir()], LACKS),
  (lambda f: shutil.rmtree(f), 'is no folder'),
  (without('vocab.json'), f'lacks vocab.json: {LACKS}'),
  (pickled, 'pytorch_model.bin, and no such file is opened here'),
  (cut('model.safetensors'), 'model.safetensors: '),
  (cut('config.json'), 'config.json: damaged'),
  (cut('vocab.json'), 'vocab.json: '),
  (cut('source.spm'), f'source.spm: {NO_SPM}'),
  (pieces_alone, f'target.spm: {NO_SPM}'),
  (stacks(ffn_dim=40), 'but config.json says'),
  (stacks(layers=1), 'no such model has'),
  (stacks(attention_heads=5), 'no multiple of the 5 heads'),
  (changed(decoder_layers=3), 'encoder_layers is 2 and decoder_layers 3'),
  (changed(normalize_before=True), 'normalize_before is True: only False'),
  (changed(share_encoder_decoder_embeddings=False), 'share_encoder_decoder'),
  (changed(scale_embedding=False), 'scale_embedding is False: only True'),
  (changed(d_model='24'), 'Expected `int`, got `str` - at `$.d_model`'),
  (changed(eos_token_id=9), f'vocab.json: {OTHER}'),
  (changed(decoder_start_token_id=1), 'decoder_start_token_id=1'),
  (changed('vocab.json', more=60), f'vocab.json: {OTHER}'),
]


@pytest.mark.parametrize(('damage', 'message'), FAULTS)
def test_other_folders_are_refused(
  damage: Callable, message: str, marian: pathlib.Path, tmp_path: pathlib.Path
):
  folder = tmp_path / 'bad'
  shutil.copytree(marian, folder)
  damage(folder)
  with pytest.raises(UserError) as caught:
    import_toy(folder, tmp_path / 'run', tmp_path)
  assert message in str(caught.value) and str(folder) in str(caught.value)
  assert '\n' not in str(caught.value) and not (tmp_path / 'run').exists()
