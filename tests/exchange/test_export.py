"""Exports are whole or absent, and describe their model; others are refused."""

import json
import pathlib

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


def test_hugging_face_searches_as_the_config_says(marian: pathlib.Path):
  generation = json.loads((marian / 'generation_config.json').read_text())
  assert (generation['num_beams'], generation['length_penalty']) == (4, 0.6)
  assert generation['bad_words_ids'] == [[0], [2]], '<pad> and <s> are never written'
