"""A run in Python: what it translates, how it scores, and where it looks."""

import functools
import os
import pathlib
import re
import subprocess
import sys

import jax
import numpy as np
import pytest
from flax import nnx

import transformer_jax
from toy import untrained
from transformer_jax.data.vocabulary import EOS
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build
from transformer_jax.runs.run import Run

SENTENCES = ['one, two "five"', '', 'four. seven-up eight six six ten nine']


@pytest.fixture(scope='module')
def workdir(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  return untrained.write(tmp_path_factory.mktemp('trained'))


@pytest.fixture(scope='module')
def model(workdir: pathlib.Path) -> LoadedRun:
  return transformer_jax.load(str(workdir), beam=3, alpha=0.0)


def test_best_translations(model: LoadedRun):
  found = model.hypotheses(SENTENCES)
  assert model.translate(SENTENCES) == [best.text for best, *_ in found]
  assert [len(hypotheses) for hypotheses in found] == [3, 1, 3]
  assert found[1][0].text == '' and model.translate([]) == []
  assert model.hypotheses(SENTENCES, nbest=2) == [some[:2] for some in found]


def test_scores_do_not_depend_on_the_batch(model: LoadedRun):
  """More pairs than are computed together, in two orders."""
  sources = [' '.join(['one,'] * (1 + n % 4)) for n in range(20)]
  targets = [' '.join(['zwei'] * (1 + n % 5)) for n in range(20)]
  forth = model.score(sources, targets)
  back = model.score(sources[::-1], targets[::-1])[::-1]
  for one, other in zip(forth, back, strict=True):
    assert one.pieces == other.pieces
    each = one.log_probabilities, other.log_probabilities
    np.testing.assert_allclose(*each, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize('nbest', [0, 4])
def test_no_more_hypotheses_than_beams(model: LoadedRun, nbest: int):
  with pytest.raises(ValueError, match=f'^nbest={nbest}: 1 to 3, which is the beam$'):
    model.hypotheses(SENTENCES, nbest=nbest)


@pytest.mark.slow
def test_alpha_is_the_one_asked_for(workdir: pathlib.Path):
  """It changes no greedy translation, but divides its score by the penalty."""
  plain, penalised = (
    transformer_jax.load(workdir, beam=1, alpha=alpha).hypotheses(SENTENCES)
    for alpha in (0.0, 1.0)
  )
  for (one,), (other,) in zip(plain, penalised, strict=True):
    assert one.tokens == other.tokens
    penalty = (5 + len(one.tokens)) / 6
    assert one.score == pytest.approx(other.score * penalty, rel=1e-5)
  assert plain[0][0].score < 0


def test_scores_are_log_probabilities_of_pieces(model: LoadedRun):
  """As JAX's log_softmax has them of each pair alone, unpadded."""
  targets = ['eins "fünf"', 'zwei', '']
  words = Run(model.run.workdir).vocabularies()
  transformer, _ = build.architecture(model.config)
  params = jax.tree.map(np.asarray, model.params)
  found = model.score(SENTENCES, targets)
  for source, target, scored in zip(SENTENCES, targets, found, strict=True):
    ids = [[*words.source.encode([source])[0], EOS]]
    out = [[*words.target.encode([target])[0], EOS]]
    logits = nnx.merge(transformer, params)(np.array(ids), np.array(out)).logits
    expected = jax.nn.log_softmax(logits[0])[np.arange(len(out[0])), np.array(out[0])]
    np.testing.assert_allclose(scored.log_probabilities, expected, rtol=1e-4)
    assert scored.total == pytest.approx(float(expected.sum()), rel=1e-5)
    assert len(scored.pieces) == len(out[0]) and scored.pieces[-1] == '</s>'


def test_attention_of_given_and_of_searched_translations(model: LoadedRun):
  given = transformer_jax.attention(model, ['one two'], ['acht'])
  searched = transformer_jax.attention(model, ['one two'])
  for (maps,) in (given, searched):
    assert maps.cross.shape == (2, 3, len(maps.target), len(maps.source))
    np.testing.assert_allclose(maps.cross.sum(-1), 1, atol=1e-6)
  assert ''.join(given[0].target) == '\u2581acht</s>'
  assert searched[0].target[:-1] == model.pieces(model.hypotheses(['one two'])[0][0])


def test_a_string_is_not_a_list_of_sentences(model: LoadedRun):
  attention = lambda line: transformer_jax.attention(model, line)
  for call in (model.translate, attention, lambda x: model.score(x, ['eins'])):
    with pytest.raises(TypeError, match='a list of sentences'):
      call('one two')


def test_what_cannot_be(model: LoadedRun, workdir: pathlib.Path):
  with pytest.raises(UserError, match='pair 2 has a text of over'):
    model.score(['one', 'one'], ['eins', 'eins ' * 600])
  with pytest.raises(ValueError, match='2 sources and 1 targets'):
    model.score(['one', 'one'], ['eins'])
  with pytest.raises(UserError, match='is .* a run'):
    transformer_jax.load(workdir.parent)
  with pytest.raises(UserError, match='beam'):
    transformer_jax.load(workdir, beam=0)
  with pytest.raises(UserError, match='step'):
    transformer_jax.load(workdir, step=3)


def test_documented_code_runs(workdir: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
  """That of docs/python.md."""
  page = pathlib.Path(transformer_jax.__file__).parents[1] / 'docs' / 'python.md'
  blocks = re.findall('```python\n(.*?)```', page.read_text(), re.DOTALL)
  monkeypatch.chdir(workdir)
  names = {'sources': ['one'], 'targets': ['eins']}
  exec('\n'.join(blocks).replace('runs/quickstart', str(workdir)), names)
  assert names['model'].translate(['']) == ['']
  assert (workdir / 'cross.png').is_file()


@pytest.mark.slow
def test_two_models_in_a_program_that_uses_jax(
  workdir: pathlib.Path, tmp_path: pathlib.Path
):
  """In a process of its own, without the flags of these tests, and from elsewhere."""
  program = f"""if True:
    import jax.numpy as jnp, transformer_jax
    jnp.zeros(3).block_until_ready()
    found = [transformer_jax.load({str(workdir)!r}).translate(['one']) for _ in 'ab']
    print(found[0] == found[1])"""
  environment = {k: v for k, v in os.environ.items() if k != 'JAX_NUM_CPU_DEVICES'}
  environment['XDG_CACHE_HOME'] = str(tmp_path)
  environment['PYTHONPATH'] = str(pathlib.Path(transformer_jax.__file__).parents[1])
  command = [sys.executable, '-c', program]
  run = functools.partial(subprocess.run, capture_output=True, text=True)
  done = run(command, cwd=workdir, env=environment)
  assert done.stdout == 'True\n', done.stderr


def test_importing_the_package_is_quick():
  """JAX takes seconds, and is loaded with a model."""
  check = 'import sys, transformer_jax; sys.exit("jax" in sys.modules)'
  assert subprocess.run([sys.executable, '-c', check]).returncode == 0
