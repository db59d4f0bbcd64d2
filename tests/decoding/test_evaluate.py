"""Scoring a run, and comparing it with another one."""

import dataclasses
import functools
import json
import os
import pathlib
import shutil

import jax
import numpy as np
import pytest

from toy import checkpoints, corpus, untrained
from toy.corpus import number_lines
from toy.results import RESULT
from transformer_jax.config import as_json
from transformer_jax.data.corpus import Corpus
from transformer_jax.decoding.evaluate import (
  DevBleu,
  Evaluation,
  evaluate_files,
  evaluate_run,
)
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.machine import files, platform
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

STEP = untrained.STEP
pytestmark = pytest.mark.filterwarnings('ignore:cut at the length')
# Of dev, and two systems' outputs.
REFERENCES = [line.decode() for line in number_lines(12, seed=1, order=-1)[1]]
BETTER = [line.replace('drei', 'eins') for line in REFERENCES]
WORSE = [line.replace('eins', 'X').replace('zwei', 'Y') for line in REFERENCES]


@pytest.fixture(autouse=True)
def few_samples(monkeypatch) -> None:
  monkeypatch.setattr(significance, 'SAMPLES', 20)
  monkeypatch.setattr(significance, 'EXCHANGES', 50)


def write_lines(path: pathlib.Path, lines: list[str]) -> None:
  path.write_text(''.join(line + '\n' for line in lines))


@pytest.fixture
def runs(workdir: pathlib.Path, tmp_path: pathlib.Path) -> tuple[Run, Run]:
  """Returns two copies of a run, with the results of BETTER and WORSE on dev."""
  shutil.copytree(workdir.parent / 'data', tmp_path / 'data')
  pair = Run(tmp_path / 'a'), Run(tmp_path / 'b')
  for run, lines in zip(pair, (BETTER, WORSE), strict=True):
    shutil.copytree(workdir, run.workdir)
    search = {'split': 'dev', 'step': STEP, 'averaged': [STEP]}
    result = dataclasses.replace(RESULT, config=as_json(run.config()), **search)
    result.write(run.workdir / 'result.json')
    result.translations(run).parent.mkdir()
    result.write(result.translations(run).with_suffix('.json'))
    write_lines(result.translations(run), lines)
  return pair


def translations(run: Run, average: int = 1, beam: int = 4, step: int = STEP):
  return run.translations('dev', step, average, beam, 0.6)


def compared(run: Run, other: Run, **which: int) -> list[str]:
  """Returns the lines that compare the newest results of two runs on dev."""
  loaded, data_dir = LoadedRun(run, TRANSLATION, average=1, **which), run.workdir.parent
  options = 'dev', other, Interruption()
  return [*evaluate_run(loaded, data_dir / 'data', *options)]


def comparison(ours: list[str], theirs: list[str]) -> list[str]:
  """Returns the lines that compare these texts."""
  outputs = SystemOutput(ours, REFERENCES, 'de', False)
  return [*TRANSLATION.scorer.comparison_lines(outputs, theirs)]


def test_one_run_against_another(runs: tuple[Run, Run]):
  """Translates nothing again; also compares the configs."""
  expected, file = comparison(BETTER, WORSE), str(translations(runs[0]))
  assert compared(*runs) == [*expected, file]
  path = translations(runs[1]).with_suffix('.json')
  result = Result.read(path)
  changes = {'config': result.config | {'seed': 7}, 'decode_dtype': 'bfloat16'}
  dataclasses.replace(result, **changes).write(path)
  differing = ['config.decode_dtype: float32 against bfloat16']
  differing.append('config.seed: 1 against 7')
  assert compared(*runs) == [*differing, *expected, file]


def test_the_result_of_the_same_search_is_taken(runs: tuple[Run, Run], capsys):
  """Without one, that of the last step is, and what differs is listed.

  The times of files, which a copy changes, do not matter.
  """
  ours, theirs = runs
  same = translations(theirs).with_suffix('.json')
  result = Result.read(same)
  os.utime(same, (0, 0))
  others = [(2, 4, {'averaged': [9, STEP]}), (1, 2, {'beam': 2})]
  others.append((1, 1, {'beam': 1, 'step': 9}))
  for time, (average, beam, changes) in enumerate(others):
    path = translations(theirs, average, beam, changes.get('step', STEP))
    write_lines(path, BETTER)
    dataclasses.replace(result, **changes).write(path.with_suffix('.json'))
    os.utime(path.with_suffix('.json'), (time, time))
  file = str(translations(ours))
  assert compared(ours, theirs) == [*comparison(BETTER, WORSE), file]
  assert f'against {translations(theirs)}\n' in capsys.readouterr().err
  same.unlink()
  lines = ['config.average_last: 1 against 2', *comparison(BETTER, BETTER), file]
  assert compared(ours, theirs) == lines
  for path in translations(theirs).parent.glob('*.beam-[42].*.json'):
    path.unlink()
  lines = [f'step: {STEP} against 9', 'config.beam: 4 against 1', *lines[1:]]
  assert compared(ours, theirs) == lines


def test_a_result_that_is_damaged_or_of_other_settings_is_made_again(runs):
  run, _ = runs
  path, config = translations(run).with_suffix('.json'), run.config().to_dict()
  data = run.workdir.parent / 'data'
  is_current = lambda: Evaluation(LoadedRun(run, TRANSLATION), data, 'dev').is_current()
  result = Result.read(path)
  assert is_current()
  for name, value in (('extra_length', 9), ('constrained', True), ('seed', 9)):
    (run.workdir / 'config.json').write_text(json.dumps(config | {name: value}))
    assert is_current() == (name == 'seed')
  dataclasses.replace(result, decode_dtype='bfloat16').write(path)
  assert not is_current()
  path.write_text('{"version": 2')
  assert not is_current()
  for missing in path, translations(run):
    result.write(path)
    assert is_current()
    missing.unlink()
    assert not is_current()


def test_other_runs_and_references_are_refused(runs: tuple[Run, Run]):
  """Before a search, for which the checkpoint would have to be whole."""
  ours, theirs = runs
  shutil.rmtree(ours.checkpoints / str(STEP) / 'params')
  translations(ours).unlink()
  result, card = translations(theirs).with_suffix('.json'), theirs.workdir / 'card.json'
  references = ours.workdir.parent / 'data' / 'toy' / 'dev.target.txt'
  other_card = json.loads(card.read_text())
  other_card['sha256']['dev.target.txt'] = '0'
  for path, text, message in (
    (result, '{"ver', f'{result}: .*: python -m scripts.evaluate --workdir='),
    (card, json.dumps(other_card), 'are not of the same dev set'),
    (translations(theirs), 'eins\n', 'has 1 lines'),
    (references, 'eins\n', f'not on the card: {references.name}'),
  ):
    before = path.read_text()
    path.write_text(text)
    with pytest.raises(UserError, match=message):
      compared(ours, theirs)
    path.write_text(before)
  result.unlink()
  with pytest.raises(
    UserError, match=f'no result to compare with: .*{theirs.workdir} '
  ):
    compared(ours, theirs)


def test_a_run_against_itself(runs: tuple[Run, Run]):
  """It can be compared with its other results, but not with the same one."""
  run, _ = runs
  greedy, wide = translations(run, beam=1), translations(run)
  write_lines(greedy, WORSE)
  shutil.copy(wide.with_suffix('.json'), greedy.with_suffix('.json'))
  assert compared(run, run, beam=1) == [*comparison(WORSE, BETTER), str(greedy)]
  greedy.with_suffix('.json').unlink()
  with pytest.raises(UserError, match='no other result of this run: give --against'):
    compared(run, run)


@pytest.fixture(scope='module')
def greedy(workdir: pathlib.Path, tmp_path_factory) -> LoadedRun:
  """Returns the mean of two checkpoints, searched with a beam of 1."""
  folder = tmp_path_factory.mktemp('greedy')
  shutil.copytree(workdir.parent, folder, dirs_exist_ok=True)
  run = Run(folder / 'run')
  _, shapes = build.architecture(run.config())
  one = checkpoint.restore_params(run.checkpoints, STEP, shapes)
  other = jax.tree.map(lambda x: (3 * x + 8 * x[::-1]) / 5, one)
  checkpoints.save(run.checkpoints, 2 * STEP, other, {'count': np.zeros(())})
  made = {'loss': 2.0, 'seconds': 1.5, 'device': 'a GPU', 'commit': '0' * 40}
  records = [made | {'step': n * STEP, 'target_tokens': 7} for n in (1, 2, 3)]
  run.metrics.write_text(''.join(json.dumps(record) + '\n' for record in records))
  loaded = LoadedRun(run, TRANSLATION, average=2, beam=1)
  mean = jax.tree.map(lambda a, b: (a + b) / 2, one, other)
  close = functools.partial(np.testing.assert_allclose, atol=1e-6)
  jax.tree.map(close, loaded.params, mean)
  jax.tree.map(close, LoadedRun(run, TRANSLATION, average=1).params, other)
  return loaded


def test_an_evaluation(greedy: LoadedRun, capsys):
  """What it prints, writes and records."""
  run, interruption = greedy.run, Interruption()
  folder = run.workdir.parent / 'data' / 'toy'
  prepared = Corpus.open(folder)
  sources, references = prepared.text('test')
  header, *lines, path = evaluate_run(greedy, folder.parent, 'test', None, interruption)
  how = '2 checkpoints up to step 20, beam 1, alpha 0.6, decoded in float32'
  assert header == f'test: {how}'
  assert path in interruption.last_words()
  cut, outputs = greedy.translator.cut_outputs, greedy.translate(sources)
  assert bleu.read_lines(pathlib.Path(path)) == outputs
  perplexity = Perplexity(run.config(), greedy.graph, *prepared.split('dev'))
  scores = TRANSLATION.scorer.score(SystemOutput(outputs, references, 'de', False))
  result = Result.read(run.workdir / 'result.json')
  assert result == Result.read(pathlib.Path(path).with_suffix('.json'))
  assert result.translations(run) == pathlib.Path(path)
  assert 0 < result.search_seconds < 600 and result.versions['jax'] == jax.__version__
  assert vars(result) == vars(result) | scores | {
    'task': 'translation',
    'row': run.config().row,
    'split': 'test',
    'step': 2 * STEP,
    'averaged': [STEP, 2 * STEP],
    'beam': 1,
    'alpha': 0.6,
    'decode_dtype': 'float32',
    'dev_perplexity': pytest.approx(perplexity(greedy.params), rel=1e-5),
    'sources_cut': 0,
    'outputs_cut': cut,
    'dev_pairs_cut': 0,
    'parameters': sum(x.size for x in jax.tree.leaves(greedy.params)),
    'target_tokens_seen': 14,
    'wall_seconds': 3.0,
    'training_device': 'a GPU',
    'training_commit': '0' * 40,
    'device': platform.describe_device(),
    'commit': platform.commit(),
    'corpus': prepared.card.identity,
    'references': files.sha256(folder / 'test.target.txt'),
    'overlap': prepared.card.splits['test'].overlap,
    'config': json.loads((run.workdir / 'config.json').read_text()),
  }
  shown = [*TRANSLATION.scorer.score_lines(scores)]
  shown.append('dev perplexity > 60: worse than guessing per piece')
  assert lines[: len(shown)] == shown
  too = [line.split()[0] for line in lines[len(shown) :]]
  assert too == [name for name, n in result.overlap.items() if any(n.counts().values())]
  said = capsys.readouterr().err
  for part in 'averaged: 2, up to step 20', '12 sentences', f'end: {cut} translations':
    assert part in said


def test_another_corpus_is_refused(workdir: pathlib.Path, tmp_path: pathlib.Path):
  corpus.prepare(corpus.write_raw(tmp_path / 'raw'))
  with pytest.raises(UserError, match='has another vocabulary than'):
    Evaluation(LoadedRun(Run(workdir), TRANSLATION), tmp_path / 'data', 'test')


def test_scores_of_files_equal_those_of_the_split(greedy: LoadedRun, capsys):
  """A file's references are recognised; two runs are compared; nothing is written."""
  workdir = greedy.run.workdir
  before = {*workdir.rglob('*')}
  paths = [
    workdir.parent / f'data/toy/test.{side}.txt' for side in ('source', 'target')
  ]
  recognised, *lines = evaluate_files(greedy, *paths, greedy)
  known = 'target.txt has the references of test (test.en and test.de) of this run'
  assert recognised.endswith(known) and {*workdir.rglob('*')} == before
  sources, references = map(bleu.read_lines, paths)
  outputs = SystemOutput(greedy.translate(sources), references, 'de', False)
  scorer = TRANSLATION.scorer
  expected = [*scorer.score_lines(scorer.score(outputs))]
  half = len(expected) + 1
  for own in lines[:half], lines[half : 2 * half]:
    assert own[0].startswith(f'{workdir}: 2 checkpoints') and own[1:] == expected
  compared = [*scorer.comparison_lines(outputs, outputs.hypotheses)]
  assert lines[2 * half :] == compared and len(compared) == 3
  assert capsys.readouterr().err.count(f'{workdir} translates 12 sentences') == 2
  other = workdir.parent / 'other.txt'
  other.write_text('\n'.join([*references[:-1], 'zwei']))
  assert 'has the references' not in next(evaluate_files(greedy, paths[0], other))
  other.write_text('zwei\n')
  for pair in (paths[0], other), (other, paths[1]):
    with pytest.raises(UserError, match='has 1[2 ].* has 1'):
      next(evaluate_files(greedy, *pair))


@pytest.mark.slow
def test_bleu_of_dev_in_training(greedy: LoadedRun):
  """Greedy, of the first sentences, with the parameters of each call."""
  config, folder = greedy.run.config(), greedy.run.workdir.parent / 'data' / 'toy'
  sources, references = Corpus.open(folder).text('dev')
  translations = greedy.translate(sources)
  measure = DevBleu(config, TRANSLATION, Corpus.open(folder))
  score, samples = measure(greedy.params)
  assert [[text] for text in translations] == [
    [h.text for h in best] for best in greedy.hypotheses(sources)
  ]
  metric = bleu.sacrebleu('de', False)
  assert score == metric.percent(translations[:9], references[:9])
  lines = zip(sources, translations, references, strict=True)
  assert samples == [*lines][:9:3]
  assert measure(jax.tree.map(np.zeros_like, greedy.params)) != (score, samples)
  assert measure(greedy.params) == (score, samples)
