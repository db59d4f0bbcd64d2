"""Scoring a run, and comparing it with another one."""

import dataclasses
import json
import os
import pathlib
import shutil

import jax
import numpy as np
import pytest

import toy.corpus
import transformer_jax
from configs import quickstart
from toy import checkpoints, untrained
from toy.config import tiny
from toy.results import RESULT
from transformer_jax.data.corpus import (
  Card,
  Corpus,
  SplitEntry,
  VocabularyEntry,
  write_card,
)
from transformer_jax.decoding.evaluate import (
  DevBleu,
  Evaluation,
  evaluate_files,
  evaluate_run,
)
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.decoding.translate import Translator
from transformer_jax.machine import platform
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import Interruption
from transformer_jax.model import build
from transformer_jax.runs.result import Result
from transformer_jax.runs.run import Run
from transformer_jax.scoring import bleu, significance
from transformer_jax.scoring.output import SystemOutput
from transformer_jax.tasks import TRANSLATION
from transformer_jax.training import checkpoint
from transformer_jax.training.perplexity import Perplexity

STEP = 30
REFERENCES = [f'der Hund und die Haus-Katze „{n}“ lagen im Garten' for n in range(40)]
WORSE = [line.replace('und', 'oder').replace('lagen', 'X') for line in REFERENCES]
HEADER = '1 checkpoint up to step 10, beam 4, alpha 0.6, decoded in float32'
BETTER = [line.replace('Hund', 'Kater') for line in REFERENCES]


@pytest.fixture(autouse=True)
def few_samples(monkeypatch) -> None:
  monkeypatch.setattr(significance, 'SAMPLES', 20)
  monkeypatch.setattr(significance, 'EXCHANGES', 50)


def make_run(folder: pathlib.Path, name: str, hypotheses: list[str]) -> Run:
  """Writes as much of a run that was scored on dev as a comparison reads."""
  config = quickstart.get_config()
  corpus = folder / 'data' / config.data.name
  if not corpus.exists():
    corpus.mkdir(parents=True)
    for side in ('source', 'target'):
      text = ''.join(line + '\n' for line in REFERENCES)
      (corpus / f'dev.{side}.txt').write_text(text)
    write_card(corpus, Card(VocabularyEntry('0'), {'dev': SplitEntry()}))
  run = Run(folder / name)
  checkpoint = run.checkpoints / str(STEP)
  checkpoint.mkdir(parents=True)
  (checkpoint / 'manifest.json').write_text('{}')
  (run.workdir / 'config.json').write_text(config.to_json_best_effort())
  (run.workdir / 'card.json').write_bytes((corpus / 'card.json').read_bytes())
  dtype = platform.decoding_dtype(config.decode_dtype).name
  search = {'split': 'dev', 'step': STEP, 'averaged': [STEP], 'decode_dtype': dtype}
  result = dataclasses.replace(RESULT, **search)
  result.write(run.workdir / 'result.json')
  result.translations(run).parent.mkdir()
  result.write(result.translations(run).with_suffix('.json'))
  result.translations(run).write_text(''.join(line + '\n' for line in hypotheses))
  return run


def compared(run: Run, other: Run, **which: int) -> list[str]:
  """Returns the lines that compare the newest results of two runs on dev."""
  loaded, data_dir = LoadedRun(run, TRANSLATION, average=1, **which), run.workdir.parent
  options = 'dev', other, Interruption()
  return [*evaluate_run(loaded, data_dir / 'data', *options)]


def comparison(ours: list[str], theirs: list[str]) -> list[str]:
  """Returns the lines that compare these texts."""
  outputs = SystemOutput(ours, REFERENCES, 'de', False)
  return [*TRANSLATION.scorer.comparison_lines(outputs, theirs)]


def test_one_run_against_another(tmp_path: pathlib.Path):
  """Translates nothing again; also compares the configs."""
  ours, theirs = make_run(tmp_path, 'a', BETTER), make_run(tmp_path, 'b', WORSE)
  expected = comparison(BETTER, WORSE)
  file = str(ours.translations('dev', STEP, 1, 4, 0.6))
  assert compared(ours, theirs) == [*expected, file]
  path = theirs.translations('dev', STEP, 1, 4, 0.6).with_suffix('.json')
  result = Result.read(path)
  (other,) = {'float32', 'bfloat16'} - {result.decode_dtype}
  changes = {'config': result.config | {'seed': 7}, 'decode_dtype': other}
  dataclasses.replace(result, **changes).write(path)
  differing = [f'config.decode_dtype: {result.decode_dtype} against {other}']
  differing.append('config.seed: 1 against 7')
  assert compared(ours, theirs) == [*differing, *expected, file]


def test_what_cannot_be_compared_is_refused_before_the_search(tmp_path: pathlib.Path):
  """The run has yet to be evaluated; its checkpoint could not even be read."""
  ours, theirs = make_run(tmp_path, 'a', BETTER), make_run(tmp_path, 'b', WORSE)
  shutil.rmtree(ours.workdir / 'translations')
  shutil.rmtree(theirs.workdir / 'translations')
  with pytest.raises(UserError, match='no result to compare with'):
    compared(ours, theirs)


def test_the_result_of_the_same_search_is_taken(tmp_path: pathlib.Path):
  """Without one, that of the last step is, and what differs is listed.

  The times of files, which a copy changes, do not matter.
  """
  ours, theirs = make_run(tmp_path, 'a', BETTER), make_run(tmp_path, 'b', WORSE)
  same = theirs.translations('dev', STEP, 1, 4, 0.6)
  result = Result.read(same.with_suffix('.json'))
  os.utime(same.with_suffix('.json'), (0, 0))
  others = [(2, 4, {'averaged': [9, STEP]}), (1, 2, {'beam': 2})]
  others.append((1, 1, {'beam': 1, 'step': 9}))
  for time, (average, beam, changes) in enumerate(others):
    path = theirs.translations('dev', changes.get('step', STEP), average, beam, 0.6)
    path.write_text(''.join(line + '\n' for line in BETTER))
    dataclasses.replace(result, **changes).write(path.with_suffix('.json'))
    os.utime(path.with_suffix('.json'), (time, time))
  file = str(ours.translations('dev', STEP, 1, 4, 0.6))
  assert compared(ours, theirs) == [*comparison(BETTER, WORSE), file]
  same.with_suffix('.json').unlink()
  lines = ['config.average_last: 1 against 2', *comparison(BETTER, BETTER), file]
  assert compared(ours, theirs) == lines


def test_a_result_that_is_damaged_or_of_other_settings_is_made_again(tmp_path):
  run = make_run(tmp_path, 'a', BETTER)
  load = lambda: LoadedRun(run, TRANSLATION, average=1)
  config, evaluation = run.config(), Evaluation(load(), tmp_path / 'data', 'dev')
  result = dataclasses.replace(RESULT, config=json.loads(config.to_json_best_effort()))
  path = evaluation.translations.with_suffix('.json')
  dtype = platform.decoding_dtype(config.decode_dtype).name
  dataclasses.replace(result, decode_dtype=dtype).write(path)
  assert evaluation.is_current()
  for name, value in (('extra_length', 0), ('constrained', True), ('seed', 9)):
    changed = config.to_dict() | {name: value}
    (run.workdir / 'config.json').write_text(json.dumps(changed))
    assert evaluation.is_current() == (name == 'seed')
  (other,) = {'float32', 'bfloat16'} - {dtype}
  dataclasses.replace(result, decode_dtype=other).write(path)
  assert not evaluation.is_current()
  path.write_text('{"version": 2')
  assert not evaluation.is_current()


def test_other_runs_and_references_are_refused(tmp_path: pathlib.Path):
  ours, theirs = make_run(tmp_path, 'a', BETTER), make_run(tmp_path, 'b', WORSE)
  result = theirs.translations('dev', STEP, 1, 4, 0.6).with_suffix('.json')
  card = theirs.workdir / 'card.json'
  (references,) = (tmp_path / 'data').glob('*/dev.target.txt')
  other_card = json.loads(card.read_text())
  other_card['sha256']['dev.target.txt'] = '0'
  kept = result.read_text()
  for path, text, message in (
    (result, kept[:20], f'{result}: .*: python -m scripts.evaluate --workdir='),
    (card, json.dumps(other_card), 'are not of the same dev set'),
    (references, 'eins\n', f'not on the card: {references.name}'),
  ):
    before = path.read_text()
    path.write_text(text)
    with pytest.raises(UserError, match=message):
      compared(ours, theirs)
    path.write_text(before)


@pytest.mark.slow
def test_the_options_reach_the_scores(tmp_path: pathlib.Path):
  """The mean of two checkpoints, searched with this beam and this alpha."""
  workdir = untrained.write(tmp_path)
  run, corpus = Run(workdir), tmp_path / 'data' / 'toy'
  graph, shapes = build.architecture(run.config())
  one = checkpoint.restore_params(run.checkpoints, untrained.STEP, shapes)
  other = jax.tree.map(lambda x: (3 * x + 8 * x[::-1]) / 5, one)
  checkpoints.save(run.checkpoints, 2 * untrained.STEP, other, {'count': np.zeros(())})
  mean = jax.tree.map(lambda a, b: (a + b) / 2, one, other)

  loaded = LoadedRun(run, TRANSLATION, average=2, beam=1, alpha=0.0)
  result, outputs = Evaluation(loaded, corpus.parent, 'test').evaluate()
  dev = Perplexity(run.config(), graph, *Corpus.open(corpus).split('dev'))
  assert result.averaged == [untrained.STEP, 2 * untrained.STEP]
  assert result.dev_perplexity == pytest.approx(dev(mean), rel=1e-5)
  assert abs(dev(other) / result.dev_perplexity - 1) > 0.01
  sources = Corpus.open(corpus).text('test')[0]
  config = run.config()
  config.beam, config.alpha = 1, 0.0
  search = Translator(config, TRANSLATION, run.vocabularies(), mean)
  assert outputs == [best.text for (best,) in search.translate(sources, 1)]
  for average, expected in ((2, mean), (1, other)):
    loaded = transformer_jax.load(workdir, average=average).params
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), loaded, expected
    )


def test_another_corpus_is_refused(tmp_path: pathlib.Path):
  workdir = untrained.write(tmp_path)
  data_dir = workdir.parent / 'data'
  loaded = LoadedRun(Run(workdir), TRANSLATION, average=1)
  shutil.rmtree(data_dir)
  toy.corpus.prepare(tmp_path / 'raw', tiny(**{'model.vocab_size': 50}))
  with pytest.raises(UserError, match='has another vocabulary than'):
    Evaluation(loaded, data_dir, 'test')


def test_a_run_against_itself(tmp_path: pathlib.Path):
  """It can be compared with its other results, but not with the same one."""
  run = make_run(tmp_path, 'a', WORSE)
  greedy, wide = (run.translations('dev', STEP, 1, beam, 0.6) for beam in (1, 4))
  greedy.write_text(''.join(line + '\n' for line in BETTER))
  shutil.copy(wide.with_suffix('.json'), greedy.with_suffix('.json'))
  assert compared(run, run, beam=1) == [*comparison(BETTER, WORSE), str(greedy)]
  greedy.with_suffix('.json').unlink()
  with pytest.raises(UserError, match='no other result of this run: give --against'):
    compared(run, run)


@pytest.mark.parametrize(
  ('split', 'lines', 'message'),
  [('sources', ['a'], 'has 1 lines'), ('references', ['a', 'b'], 'has 2: ')],
)
def test_unequal_files_are_refused_before_the_search(split, lines, message, tmp_path):
  loaded = LoadedRun(make_run(tmp_path, 'a', BETTER), TRANSLATION)
  paths = [tmp_path / name for name in ('sources', 'references')]
  for path in paths:
    text = lines if path.name == split else ['a', 'b', 'c']
    path.write_text(''.join(line + '\n' for line in text))
  with pytest.raises(UserError, match=message):
    next(evaluate_files(loaded, *paths))


@pytest.mark.slow
def test_scores_of_files_equal_those_of_the_split(tmp_path: pathlib.Path):
  """Both name the dtype; a file's references are recognised, and nothing is written."""
  workdir = untrained.write(tmp_path, **{'model.N': 1})
  corpus, run = tmp_path / 'data', LoadedRun(Run(workdir), TRANSLATION)
  paths = [corpus / 'toy' / f'test.{side}.txt' for side in ('source', 'target')]
  first, *lines = evaluate_files(run, *paths, run)
  scores, comparisons = lines[:-3], lines[-3:]
  assert not (workdir / 'translations').exists()
  assert first.endswith(
    'target.txt has the references of test (test.en and test.de) of this run'
  )
  options = corpus, 'test', None, Interruption()
  header, *expected, _, _, _ = evaluate_run(run, *options)
  assert header == 'test: ' + HEADER
  assert scores == [f'{workdir}: {HEADER}', *expected] * 2
  assert all(': +0.00, p = 1.0000' in line for line in comparisons)


@pytest.mark.slow
def test_bleu_of_dev_in_training(tmp_path: pathlib.Path):
  """Greedy, of the first sentences, with the parameters of each call."""
  run = Run(untrained.write(tmp_path, bleu_sentences=7))
  config, corpus = run.config(), tmp_path / 'data' / 'toy'
  loaded = LoadedRun(run, TRANSLATION)
  params = jax.tree.map(lambda x: (x + x[::-1]) * 0.8, loaded.params)
  sources, references = Corpus.open(corpus).text('dev')
  config.beam = 1
  rest = TRANSLATION, run.vocabularies(), params
  greedy = [one.text for (one,) in Translator(config, *rest).translate(sources, 1)]
  metric = bleu.sacrebleu('de', False)
  expected = metric.percent(greedy[:7], references[:7])
  config.beam = 4
  measure = DevBleu(config, TRANSLATION, Corpus.open(corpus))
  score, samples = measure(params)
  assert score == expected
  lines = zip(sources, greedy, references, strict=True)
  assert samples == [*lines][:7:3]
  measure(jax.tree.map(np.zeros_like, params))
  assert measure(params) == (score, samples)
