"""A run in Python: its translations, scores and attention maps."""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

import transformer_jax
from transformer_jax.data.vocabulary import EOS
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.machine.errors import UserError

SENTENCES = ['one, two "five"', '']


def test_scores_are_log_probabilities_of_pieces(model: LoadedRun, log_probs):
  """They equal those of each pair alone; pairs fill several batches."""
  model = LoadedRun(model.run, model.output)
  model.config.decode_tokens = 64
  sources = [' '.join(['one,'] * (n % 4)) for n in range(20)]
  targets = [' '.join(['zwei'] * (n % 5)) for n in range(20)]
  ids = [model.vocabularies.source.encode(side) for side in (sources, targets)]
  for source, target, scored in zip(*ids, model.score(sources, targets), strict=True):
    expected = log_probs([*source, EOS], [*target, EOS])
    np.testing.assert_allclose(scored.log_probabilities, expected, rtol=1e-4, atol=1e-4)
    assert scored.total == pytest.approx(float(expected.sum()), rel=1e-5)
    assert len(scored.pieces) == len(target) + 1 and scored.pieces[-1] == '</s>'


def test_refused(model: LoadedRun, workdir: pathlib.Path):
  load, score = transformer_jax.load, model.score
  for call, error, message in (
    (lambda: model.translate('one two'), TypeError, 'a list of sentences'),
    (lambda: score(['one'] * 2, ['eins', 'eins ' * 600]), UserError, 'pair 2 has'),
    (lambda: score(['one'] * 2, ['eins']), ValueError, '2 sources and 1 targets'),
    (lambda: model.hypotheses(SENTENCES, nbest=5), ValueError, 'nbest=5: 1 to 4'),
    (lambda: load(workdir, beam=0), UserError, 'beam'),
  ):
    with pytest.raises(error, match=message):
      call()


def test_text_that_cannot_be_translated_well_warns_once(workdir: pathlib.Path):
  """In all calls of a model."""
  record = {'step': 10, 'dev_perplexity': 1.0001, 'seconds': 1.0, 'target_tokens': 1}
  (workdir / 'metrics.jsonl').write_text(json.dumps(record) + '\n')
  try:
    model = transformer_jax.load(workdir)
    with pytest.warns(UserWarning) as caught:
      model.translate(['one ж ж', SENTENCES[0]])
      model.translate(['one ж ж', SENTENCES[0]])
  finally:
    (workdir / 'metrics.jsonl').unlink()
  kinds = [str(one.message).partition(':')[0] for one in caught]
  assert kinds[0] == 'characters outside the vocabulary' and len({*kinds}) == len(kinds)
  assert kinds[-1] == 'less probable than references of dev'
  assert caught[0].filename == __file__


@pytest.mark.filterwarnings('ignore::UserWarning')
def test_a_hypothesis_and_its_pieces(model: LoadedRun):
  (best,), (empty,) = model.hypotheses(SENTENCES, nbest=1)
  assert [best.text, ''] == model.translate(SENTENCES) and not empty.tokens
  assert model.vocabularies.target.decode([best.tokens]) == [best.text]
  pieces = model.pieces(best)
  assert len(pieces) == sum(token != EOS for token in best.tokens)
  assert ''.join(pieces).replace('▁', ' ').split() == best.text.split()
  assert any(text.startswith('cut at the length') for text in model.warnings())


@pytest.mark.filterwarnings('ignore:cut at the length')
def test_documented_code_runs(workdir: pathlib.Path, monkeypatch):
  page = pathlib.Path(transformer_jax.__file__).parents[1] / 'docs' / 'python.md'
  blocks = re.findall('```python\n(.*?)```', page.read_text(), re.DOTALL)
  monkeypatch.chdir(workdir)
  names = {'sources': ['one'], 'targets': ['eins']}
  code = '\n'.join(blocks).replace('runs/quickstart', str(workdir))
  # Texts of the toy's words are shorter, so that fewer programs are compiled.
  code = code.replace("'When did my sister wait for him?'", repr(SENTENCES[0]))
  exec(code.replace("'Paul worked in Nairobi.'", repr(SENTENCES[1])), names)
  assert names['model'].translate(['']) == ['']
  assert (workdir / 'cross.png').is_file()


def test_importing_the_package_is_quick():
  """JAX takes seconds; load() imports it, and neither the report nor prepare_data."""
  names = 'sys, transformer_jax, scripts.report, scripts.prepare_data'
  check = f'import {names}; sys.exit("jax" in sys.modules)'
  assert subprocess.run([sys.executable, '-c', check]).returncode == 0
