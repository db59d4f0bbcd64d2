"""Exports are whole or absent, and describe their model; others are refused."""

import json
import pathlib
import shutil

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2 as PROTO

from transformer_jax.exchange import huggingface
from transformer_jax.exchange.export import export
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError


def test_a_failed_export_leaves_no_folder(
  workdir: pathlib.Path, tmp_path: pathlib.Path, monkeypatch
):
  monkeypatch.setattr(huggingface, 'SPM', ('source.spm', 'none/target.spm'))
  with pytest.raises(FileNotFoundError):
    export(workdir, 'huggingface', tmp_path / 'out', 'float32', None, None)
  assert not [*tmp_path.iterdir()]
  with pytest.raises(UserError, match='exists: delete it, or give another name'):
    export(workdir, 'huggingface', tmp_path, 'float32', None, None)


def test_what_a_format_cannot_be(workdir: pathlib.Path, tmp_path: pathlib.Path):
  stored, out = json.loads((workdir / 'config.json').read_text()), tmp_path / 'out'
  for format, sizes, message in (
    ('huggingface', {'d_k': 4}, 'model.h x model.d_k is 12, but 24 in a Marian model'),
    ('ctranslate2', {'d_v': 4}, 'model.h x model.d_v is 12, but 24 in a Marian model'),
    ('huggingface', {'positions': 'learned'}, 'model.positions is learned'),
    ('huggingface', {'target_vocab_size': 60}, 'model.target_vocab_size is 60'),
    ('page', {'N': 8, 'd_ff': 65536}, r'51,[\d,]+ parameters: a page has 30,000,000 '),
  ):
    config = stored | {'model': stored['model'] | sizes}
    (tmp_path / 'config.json').write_text(json.dumps(config))
    with pytest.raises(UserError, match=message):
      export(tmp_path, format, out, None, None, None)
  (tmp_path / 'config.json').write_text(json.dumps(stored | {'task': 'parsing'}))
  with pytest.raises(UserError, match='a page translates, and task=parsing'):
    export(tmp_path, 'page', out, None, None, None)
  message = '--dtype=int4: --format=ctranslate2 takes float32, float16, int8$'
  with pytest.raises(UserError, match=message):
    export(workdir, 'ctranslate2', out, 'int4', None, None)
  assert not out.exists() and len([*tmp_path.iterdir()]) == 1


@pytest.mark.parametrize(
  ('spec', 'name', 'value'),
  [
    ('trainer_spec', 'model_type', PROTO.TrainerSpec.UNIGRAM),
    ('normalizer_spec', 'add_dummy_prefix', False),
    ('normalizer_spec', 'remove_extra_whitespaces', False),
  ],
)
def test_a_page_reads_byte_pairs_alone(
  spec: str, name: str, value: int, workdir: pathlib.Path, tmp_path: pathlib.Path
):
  run = shutil.copytree(workdir, tmp_path / 'run')
  path, card = run / 'vocabulary.model', json.loads((run / 'card.json').read_text())
  model = PROTO.ModelProto.FromString(path.read_bytes())
  setattr(getattr(model, spec), name, value)
  path.write_bytes(model.SerializeToString())
  card['sha256'][path.name] = files.sha256(path)
  (run / 'card.json').write_text(json.dumps(card))
  with pytest.raises(UserError, match=f'^{path}: a page reads byte pairs alone'):
    export(run, 'page', tmp_path / 'page.html', None, None, None)
  assert [*tmp_path.iterdir()] == [run]


def test_hugging_face_searches_as_the_config_says(marian: pathlib.Path):
  """No </s> is added at the limit; no <pad> and no <s> comes."""
  read = lambda name: json.loads((marian / f'{name}.json').read_text())
  search = {'num_beams': 4, 'length_penalty': 0.6, 'bad_words_ids': [[0], [2]]}
  generation = read('generation_config')
  assert generation | search == generation
  config = {'activation_function': 'relu', 'scale_embedding': True}
  config |= {'decoder_start_token_id': 2, 'forced_eos_token_id': None}
  config |= {'architectures': ['MarianMTModel'], 'd_model': 24, 'vocab_size': 60}
  assert read('config') | config == read('config')
  tokenizer = {'source_lang': 'en', 'target_lang': 'de', 'split_special_tokens': True}
  assert read('tokenizer_config') | tokenizer == read('tokenizer_config')
  vocabulary = {row: piece for piece, row in read('vocab').items()}
  spm = sentencepiece.SentencePieceProcessor(model_file=str(marian / 'target.spm'))
  assert vocabulary == {row: spm.id_to_piece(row) for row in range(60)}
