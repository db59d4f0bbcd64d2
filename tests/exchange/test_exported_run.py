"""An exported run does what the run does, and lacks Adam's state alone."""

import json
import pathlib
import shutil

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import transformer_jax
from toy import checkpoints, forms, untrained
from toy.config import tiny
from transformer_jax.data.corpus import Corpus
from transformer_jax.exchange.export import export
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build
from transformer_jax.prepare import prepare
from transformer_jax.runs.run import Run, start_from
from transformer_jax.tasks import LINES
from transformer_jax.training.trainer import Trainer

STEPS = [10, 20]
PRETRAINED = pathlib.Path(__file__).parents[2] / 'pretrained/tatoeba.en-de'


@pytest.fixture(scope='module')
def trained(workdir: pathlib.Path, tmp_path_factory) -> pathlib.Path:
  """Returns a run of three checkpoints, which is exported in two dtypes beside it.

  The exports hold the average of the first two.
  """
  run = tmp_path_factory.mktemp('exported') / 'run'
  shutil.copytree(workdir, run)
  shapes = build.architecture(Run(run).config())[1]
  for step in (20, 30):
    params = forms.random_like(shapes, 0.4, seed=step)
    checkpoints.save(run / 'checkpoints', step, params, {'count': np.zeros(())})
  record = {'target_tokens': 7, 'seconds': 2.0, 'device': 'CPU', 'commit': 'c0ffee'}
  lines = (json.dumps({'step': step} | record) + '\n' for step in (10, 20, 30))
  (run / 'metrics.jsonl').write_text(''.join(lines))
  for dtype in ('float32', 'bfloat16'):
    export(run, 'run', run.parent / dtype, dtype, 2, 20)
  return run


@pytest.fixture
def exported(trained: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
  """Returns a copy of the export in float32."""
  return shutil.copytree(trained.parent / 'float32', tmp_path / 'copy')


@pytest.mark.parametrize('dtype', ['float32', 'bfloat16'])
def test_its_parameters_are_the_same_but_for_their_dtype(
  dtype: str, trained: pathlib.Path
):
  ours = transformer_jax.load(trained, average=2, step=20)
  folder = trained.parent / dtype
  theirs = transformer_jax.load(folder)
  assert theirs.steps == ours.steps == STEPS
  records = Run(folder).records()
  assert records == [r for r in Run(trained).records() if r['step'] <= STEPS[-1]]
  rounded = jax.tree.map(lambda x: x.astype(dtype), ours.params)
  jax.tree.map(np.testing.assert_array_equal, theirs.params, rounded)
  assert {x.dtype.name for x in jax.tree.leaves(theirs.params)} == {'float32'}
  (file,) = folder.rglob('*.safetensors')
  assert {x.dtype.name for x in load_file(file).values()} == {dtype}


def test_training_starts_from_it(trained: pathlib.Path, workdir, tmp_path):
  exported = trained.parent / 'bfloat16'
  config = tiny(**untrained.SIZES | {'model.d_model': 24, 'tokens_per_batch': 64})
  config.data.raw_dir = str(workdir.parent / 'raw')
  start_from(config, exported, tmp_path / 'new')
  assert config.init_from.step == STEPS[-1]
  corpus = Corpus.open(prepare.ensure(config, LINES, tmp_path / 'data'))
  params = Trainer(config, corpus.split('train')).initialize().params
  expected = transformer_jax.load(exported).params
  jax.tree.map(np.testing.assert_array_equal, params, expected)
  assert {x.dtype.name for x in jax.tree.leaves(params)} == {'float32'}


def test_training_does_not_resume(exported: pathlib.Path):
  """It has no checkpoints to choose, either."""
  run = Run(exported)
  with pytest.raises(UserError, match=f'give --init_from={exported} and another'):
    run.check_config(run.config().to_dict())
  with pytest.raises(UserError, match='Give --data_dir, or, to evaluate, files'):
    run.open_corpus(exported / 'none')  # training would not prepare it
  for which in {'average': 2}, {'step': 20}, {'step': 'best'}:
    with pytest.raises(UserError, match='leave out --average and --step'):
      transformer_jax.load(exported, **which)


def test_parameters_that_do_not_fit_its_config(exported: pathlib.Path):
  path = exported / 'config.json'
  config = json.loads(path.read_text())
  path.write_text(json.dumps(config | {'model': config['model'] | {'d_ff': 8}}))
  with pytest.raises(UserError, match=r'inner\.bias is \(\d+,\), not \(8,\)'):
    _ = transformer_jax.load(exported).params
  (file,) = exported.rglob('*.safetensors')
  file.write_bytes(file.read_bytes()[:-1] + b'x')
  with pytest.raises(
    UserError, match=r'damaged or missing: .*\.safetensors: put it back$'
  ):
    _ = transformer_jax.load(exported).params


def test_the_readme_of_a_published_model(tmp_path: pathlib.Path):
  folder = shutil.copytree(PRETRAINED, tmp_path / 'run')
  config = json.loads((folder / 'config.json').read_text())
  config['data'] |= {'nfc': True}
  (folder / 'config.json').write_text(json.dumps(config))
  export(folder, 'huggingface', tmp_path / 'out', None, None, None)
  readme = (tmp_path / 'out/README.md').read_text()
  assert 'license: cc-by-2.0-fr' in readme.partition('\n---\n')[0]
  assert 'in NFC: normalise a sentence first' in readme
  assert 'Tatoeba' in (tmp_path / 'out/LICENSE').read_text()
  # A model that was tuned from it keeps its licence and names it, without our paths.
  tuned = shutil.copytree(folder, tmp_path / 'tuned')
  for name in 'README.md', 'LICENSE':
    (tuned / name).unlink()
  config['data'] |= {'raw_dir': str(tmp_path)}
  config['init_from'] |= {'run': str(folder), 'step': 8000}
  (tuned / 'config.json').write_text(json.dumps(config))
  export(tuned, 'run', tmp_path / 'published', None, None, None)
  readme = (tmp_path / 'published/README.md').read_text()
  assert 'license: cc-by-2.0-fr' in readme and 'tuned from run, step 8,000' in readme
  assert 'Tatoeba' in (tmp_path / 'published/LICENSE').read_text()
  assert str(tmp_path) not in (tmp_path / 'published/config.json').read_text()
