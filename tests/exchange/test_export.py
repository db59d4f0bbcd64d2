"""Folders for other programs: whole or not at all, described, and refused by name."""

import dataclasses
import json
import pathlib
import shutil
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

from toy import untrained
from toy.results import PARSED, RESULT
from transformer_jax import exchange
from transformer_jax.exchange import huggingface, marian
from transformer_jax.exchange.export import export
from transformer_jax.exchange.outgoing import Outgoing
from transformer_jax.machine.errors import UserError
from transformer_jax.model import flops
from transformer_jax.runs.run import Run


def test_archive_is_described(workdir: pathlib.Path, tmp_path: pathlib.Path):
  """Every array stands on the page with its shape, and all of them are the model."""
  export(workdir, 'safetensors', tmp_path / 'out', 'float32', None, None)
  arrays = load_file(tmp_path / 'out' / 'model.safetensors')
  page = (tmp_path / 'out' / 'README.md').read_text()
  for name, array in arrays.items():
    assert f'| `{name}` | {" x ".join(map(str, array.shape))} |' in page
  model = Outgoing.read(Run(workdir), None, None)
  for name, array in marian.named(model.params).items():
    np.testing.assert_array_equal(arrays[name], array)
  kept = (tmp_path / 'out' / 'vocabulary.model').read_bytes()
  assert kept == (workdir / 'vocabulary.model').read_bytes()
  config = json.loads((tmp_path / 'out' / 'run.config.json').read_text())
  assert config == json.loads((workdir / 'config.json').read_text())
  assert len([*(tmp_path / 'out').iterdir()]) == 4
  parameters = sum(array.size for array in arrays.values())
  assert parameters == flops.parameters(Run(workdir).config().model)
  assert f'{parameters:,} parameters' in page and 'not been evaluated' in page


def test_page_has_scores_of_the_same_checkpoints(
  workdir: pathlib.Path, tmp_path: pathlib.Path
):
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
  assert '| dev | 4 | 0.6 | 50.50 sacrebleu | 49.00 to 52.00 |' in page
  f1 = PARSED.parsing['f1']['score']
  assert f'| test | {PARSED.beam} | {PARSED.alpha} | {f1:.2f} F1 |' in page
  assert page.count('| test |') == 1 and 'library_name: transformers' in page


def test_nothing_is_left_of_half_an_export(
  workdir: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  monkeypatch.setattr(huggingface, '_tokenizer', lambda config: 1 / 0)
  with pytest.raises(ZeroDivisionError):
    export(workdir, 'huggingface', tmp_path / 'out', 'float32', None, None)
  assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize('there', ['out', 'out.partial'])
def test_what_is_there_is_left_alone(
  there: str, workdir: pathlib.Path, tmp_path: pathlib.Path
):
  (tmp_path / there).mkdir()
  with pytest.raises(UserError, match=f'{there} is .*delete it, or give another name'):
    export(workdir, 'huggingface', tmp_path / 'out', 'float32', None, None)
  assert [path.name for path in tmp_path.iterdir()] == [there]


@pytest.mark.parametrize(
  ('key', 'value', 'named'),
  [
    ('d_k', 4, 'model.h x model.d_k is 12 and model.d_model 24'),
    ('positions', 'learned', "model.positions='learned'"),
    ('target_vocab_size', 60, 'model.target_vocab_size=60'),
  ],
)
@pytest.mark.parametrize('kind', ['huggingface', 'ctranslate2'])
def test_what_cannot_be_said_is_named(
  kind: str, key: str, value: object, named: str, workdir: pathlib.Path, tmp_path
):
  """Before anything is read: a copy of the config is enough."""
  config = json.loads((workdir / 'config.json').read_text())
  config['model'][key] = value
  (tmp_path / 'config.json').write_text(json.dumps(config))
  with pytest.raises(UserError, match=named):
    export(tmp_path, kind, tmp_path / 'out', 'float32', None, None)


def test_hugging_face_searches_as_the_config_says(marian: pathlib.Path):
  found = json.loads((marian / 'generation_config.json').read_text())
  assert (found['num_beams'], found['length_penalty']) == (4, 0.6)
  assert found['bad_words_ids'] == [[0], [2]], 'padding and <s> are never written'


def test_quantization_is_ctranslate2s(workdir: pathlib.Path, tmp_path: pathlib.Path):
  with pytest.raises(UserError, match='int8 goes with --format=ctranslate2'):
    export(workdir, 'huggingface', tmp_path / 'out', 'int8', None, None)


def test_ctranslate2_is_asked_for(
  workdir: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
):
  for name in [name for name in sys.modules if 'ctranslate2' in name]:
    monkeypatch.delitem(sys.modules, name)
  monkeypatch.delattr(exchange, 'ctranslate2', raising=False)
  monkeypatch.setitem(sys.modules, 'ctranslate2.converters', None)
  monkeypatch.setitem(sys.modules, 'ctranslate2', None)
  with pytest.raises(UserError, match="pip install 'ctranslate2"):
    export(workdir, 'ctranslate2', tmp_path / 'out', 'float32', None, None)
