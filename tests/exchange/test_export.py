"""Exports are whole or absent, and describe their model; others are refused."""

import dataclasses
import json
import pathlib
import shutil

import pytest

from toy import untrained
from toy.results import PARSED, RESULT
from transformer_jax.exchange import huggingface
from transformer_jax.exchange.export import export
from transformer_jax.machine.errors import UserError


def test_the_page_has_scores(workdir: pathlib.Path, tmp_path: pathlib.Path):
  run = tmp_path / 'run'
  shutil.copytree(workdir, run)
  (run / 'translations').mkdir()
  ours = dataclasses.replace(RESULT, averaged=[untrained.STEP], split='dev')
  ours.write(run / 'translations' / 'dev.json')
  parsed = dataclasses.replace(PARSED, averaged=[untrained.STEP], split='test')
  parsed.write(run / 'translations' / 'test.json')
  RESULT.write(run / 'translations' / 'other.json')
  export(run, 'huggingface', tmp_path / 'out', 'float32', None, None)
  page = (tmp_path / 'out' / 'README.md').read_text()
  assert '- dev: 12 pairs (dev.en and dev.de); 3 in train too' in page
  assert '| dev | 4 | 0.6 | 50.50 sacrebleu | 49.00 to 52.00 |' in page
  f1 = PARSED.parsing['f1']['score']
  assert f'| test | {PARSED.beam} | {PARSED.alpha} | {f1:.2f} F1 |' in page
  assert page.count('| test |') == 1, 'not of another checkpoint'


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
