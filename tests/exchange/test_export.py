"""Exports are whole or absent, and describe their model; others are refused."""

import json
import pathlib
import shutil

import pytest

from transformer_jax.exchange import huggingface
from transformer_jax.exchange.export import export
from transformer_jax.machine.errors import UserError


def test_the_page_has_the_head_that_hugging_face_reads(marian: pathlib.Path):
  page = (marian / 'README.md').read_text()
  head = '---\nlanguage:\n- en\n- de\npipeline_tag: translation\n'
  assert page.startswith(f'{head}library_name: transformers\n---\n')


def test_a_failed_export_leaves_no_folder(
  workdir: pathlib.Path, tmp_path: pathlib.Path, monkeypatch
):
  monkeypatch.setattr(huggingface, 'SPM', ('source.spm', 'none/target.spm'))
  with pytest.raises(FileNotFoundError):
    export(workdir, 'huggingface', tmp_path / 'out', 'float32', None, None)
  assert not [*tmp_path.iterdir()]
  with pytest.raises(UserError, match='exists: delete it, or give another name'):
    export(workdir, 'huggingface', tmp_path, 'float32', None, None)


def test_models_that_marian_cannot_be(workdir: pathlib.Path, tmp_path: pathlib.Path):
  for key, value, message in (
    ('d_k', 4, 'model.h x model.d_k is 12, but 24 in a Marian model'),
    ('positions', 'learned', 'model.positions is learned'),
    ('target_vocab_size', 60, 'model.target_vocab_size is 60'),
  ):
    config = json.loads((workdir / 'config.json').read_text())
    config['model'][key] = value
    (tmp_path / 'config.json').write_text(json.dumps(config))
    with pytest.raises(UserError, match=message):
      export(tmp_path, 'huggingface', tmp_path / 'out', 'float32', None, None)


def test_a_dtype_that_a_format_lacks(workdir: pathlib.Path, tmp_path: pathlib.Path):
  for format, dtypes in (('run', 'float32, bfloat16'), ('huggingface', 'float32')):
    message = f'--dtype=int8: --format={format} takes {dtypes}$'
    with pytest.raises(UserError, match=message):
      export(workdir, format, tmp_path / 'out', 'int8', None, None)
  assert not [*tmp_path.iterdir()]


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
  read = lambda name: json.loads((marian / f'{name}.json').read_text())
  tokenizer, vocabulary = read('tokenizer_config'), read('vocab')
  assert (tokenizer['source_lang'], tokenizer['target_lang']) == ('en', 'de')
  assert tokenizer['split_special_tokens'], 'a text has no </s> of its own'
  assert not tokenizer['clean_up_tokenization_spaces']
  ids = [vocabulary[tokenizer[f'{name}_token']] for name in ('pad', 'eos', 'bos')]
  assert ids == [0, 1, 2] and vocabulary[tokenizer['unk_token']] == 3
  config = read('config')
  assert config['decoder_start_token_id'] == 2 and config['eos_token_id'] == 1
  assert (config['model_type'], config['dropout']) == ('marian', 0.1)
  assert config['forced_eos_token_id'] is None, 'the length limit adds no </s>'
  page = (marian / 'README.md').read_text()
  assert "MarianMTModel.from_pretrained('FOLDER')" in page
  generation = read('generation_config')
  assert (generation['num_beams'], generation['length_penalty']) == (4, 0.6)
  assert generation['bad_words_ids'] == [[0], [2]], '<pad> and <s> are never written'
