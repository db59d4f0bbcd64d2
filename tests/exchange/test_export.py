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
  """Its model, its dtype."""
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
  for format, dtypes in (
    ('run', 'float32, bfloat16'),
    ('huggingface', 'float32'),
    ('ctranslate2', 'float32, float16, int8'),
    ('page', 'bfloat16'),
  ):
    message = f'--dtype=int4: --format={format} takes {dtypes}$'
    with pytest.raises(UserError, match=message):
      export(workdir, format, out, 'int4', None, None)
  assert not out.exists() and len([*tmp_path.iterdir()]) == 1


def test_a_page_reads_byte_pairs_alone(workdir: pathlib.Path, tmp_path: pathlib.Path):
  run = shutil.copytree(workdir, tmp_path / 'run')
  path, card = run / 'vocabulary.model', json.loads((run / 'card.json').read_text())
  model = PROTO.ModelProto.FromString(path.read_bytes())
  model.trainer_spec.model_type = PROTO.TrainerSpec.UNIGRAM
  path.write_bytes(model.SerializeToString())
  card['sha256'][path.name] = files.sha256(path)
  (run / 'card.json').write_text(json.dumps(card))
  with pytest.raises(UserError, match=f'^{path}: a page reads byte pairs alone'):
    export(run, 'page', tmp_path / 'page.html', None, None, None)
  assert [*tmp_path.iterdir()] == [run]


@pytest.mark.parametrize(
  ('key', 'value', 'sentence'),
  [
    ('tokenized', True, 'Its text is tokenised, source and target.'),
    ('lowercase', True, 'It reads small letters alone: lower-case a sentence first.'),
  ],
)
def test_the_page_tells_how_text_enters(key, value, sentence, workdir, tmp_path):
  shutil.copytree(workdir, run := tmp_path / 'run')
  config = json.loads((run / 'config.json').read_text())
  config['data'][key] = value
  (run / 'config.json').write_text(json.dumps(config))
  printed = export(run, 'run', tmp_path / 'out', None, None, None)
  assert printed == f'{tmp_path / "out"}: run, float32, of steps [10] of {run}'
  page = (tmp_path / 'out/README.md').read_text()
  assert sentence in page.splitlines() and 'library_name: jax' in page
  assert page.count('lower-case') + page.count('tokenised') == 1
  assert '`toy`: ' in page and 'parameters, step 10.' in page


def test_hugging_face_reads_and_searches_as_the_config_says(marian: pathlib.Path):
  """`</s>` in a text is text, no </s> is added at the limit; no <pad>, no <s> comes."""
  read = lambda name: json.loads((marian / f'{name}.json').read_text())
  ids = {'pad_token_id': 0, 'eos_token_id': 1, 'bos_token_id': 2}
  ids['decoder_start_token_id'] = 2
  stacks = {'layers': 2, 'attention_heads': 3, 'ffn_dim': 32}
  sizes = {f'{x}_{k}': n for x in ('encoder', 'decoder') for k, n in stacks.items()}
  assert read('config') == ids | sizes | {
    'architectures': ['MarianMTModel'],
    **{'model_type': 'marian', 'is_encoder_decoder': True, 'scale_embedding': True},
    **{'d_model': 24, 'vocab_size': 60, 'max_position_embeddings': 1024},
    **{'activation_function': 'relu', 'dropout': 0.1, 'attention_dropout': 0.0},
    **{'dtype': 'float32', 'forced_eos_token_id': None},
  }
  assert read('generation_config') == ids | {
    'bad_words_ids': [[0], [2]],
    **{'num_beams': 4, 'length_penalty': 0.6, 'max_length': 512},
  }
  names = {'bos': '<s>', 'eos': '</s>', 'pad': '<pad>', 'unk': '<unk>'}
  assert read('tokenizer_config') == {
    'tokenizer_class': 'MarianTokenizer',
    **{'source_lang': 'en', 'target_lang': 'de', 'model_max_length': 512},
    **{'clean_up_tokenization_spaces': False, 'split_special_tokens': True},
    **{f'{name}_token': token for name, token in names.items()},
  }
  vocabulary = {row: piece for piece, row in read('vocab').items()}
  spm = sentencepiece.SentencePieceProcessor(model_file=str(marian / 'target.spm'))
  assert vocabulary == {row: spm.id_to_piece(row) for row in range(60)}
  assert (marian / 'source.spm').read_bytes() == (marian / 'target.spm').read_bytes()
  page = (marian / 'README.md').read_text()
  head = '---\nlanguage:\n- en\n- de\npipeline_tag: translation\n'
  assert page.startswith(f'{head}library_name: transformers\n---\n\n# run: en to de\n')
  assert "MarianMTModel.from_pretrained('FOLDER')" in page
