"""Scoring a run, and comparing it with another one."""

import dataclasses
import json
import pathlib
import shutil

import jax
import numpy as np
import pytest

from toy import checkpoints, forms, untrained
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
    result.translations(run).parent.mkdir()
    result.write(result.translations(run).with_suffix('.json'))
    write_lines(result.translations(run), lines)
  return pair


def translations(run: Run, average: int = 1, beam: int = 4, step: int = STEP):
  return run.translations('dev', step, average, beam, 0.6)


def compared(run: Run, other: Run) -> list[str]:
  """Returns the lines that compare the newest results of two runs on dev."""
  loaded, data_dir = LoadedRun(run, TRANSLATION, average=1), run.workdir.parent
  options = 'dev', other, Interruption()
  return [*evaluate_run(loaded, data_dir / 'data', *options)]


def comparison(ours: list[str], theirs: list[str]) -> list[str]:
  """Returns the lines that compare these texts."""
  outputs = SystemOutput(ours, REFERENCES, 'de', False)
  return [*TRANSLATION.scorer.comparison_lines(outputs, theirs)]


def test_one_run_against_another(runs: tuple[Run, Run], capsys):
  """Translates nothing again; takes the result of the same search.

  Without one, that of the last step is taken, and what differs is listed.
  """
  ours, theirs = runs
  file, same = str(translations(ours)), translations(theirs).with_suffix('.json')
  result = Result.read(same)
  config = {'config': result.config | {'seed': 7}, 'decode_dtype': 'bfloat16'}
  for average, beam, changes in (
    (2, 4, {'averaged': [9, STEP]}),
    (1, 1, {'beam': 1, 'step': 9} | config),
  ):
    path = translations(theirs, average, beam, changes.get('step', STEP))
    write_lines(path, BETTER)
    dataclasses.replace(result, **changes).write(path.with_suffix('.json'))
  assert compared(ours, theirs) == [*comparison(BETTER, WORSE), file]
  assert f'against {translations(theirs)}\n' in capsys.readouterr().err
  same.unlink()
  lines = [*comparison(BETTER, BETTER), file]
  assert compared(ours, theirs) == ['config.average_last: 1 against 2', *lines]
  translations(theirs, 2).with_suffix('.json').unlink()
  assert compared(ours, theirs) == [
    f'step: {STEP} against 9',
    'config.beam: 4 against 1',
    'config.decode_dtype: float32 against bfloat16',
    'config.seed: 1 against 7',
    *lines,
  ]


def test_a_result_that_is_damaged_or_of_other_settings_is_made_again(runs):
  run, _ = runs
  path, config = translations(run).with_suffix('.json'), run.config().to_dict()
  data = run.workdir.parent / 'data'
  is_current = lambda: Evaluation(LoadedRun(run, TRANSLATION), data, 'dev').is_current()
  result = Result.read(path)
  for name, value in (('extra_length', 9), ('constrained', True), ('seed', 9)):
    (run.workdir / 'config.json').write_text(json.dumps(config | {name: value}))
    assert is_current() == (name == 'seed')
  dataclasses.replace(result, decode_dtype='bfloat16').write(path)
  assert not is_current()
  path.write_text('{"version": 2')
  assert not is_current()
  result.write(path)
  assert is_current()
  translations(run).unlink()
  assert not is_current()


def test_what_is_not_compared(runs: tuple[Run, Run]):
  """It is refused before a search, for which the checkpoint would have to be whole."""
  ours, theirs = runs
  shutil.rmtree(ours.checkpoints / str(STEP) / 'params')
  translations(ours).unlink()
  result, card = translations(theirs).with_suffix('.json'), theirs.workdir / 'card.json'
  other_card = json.loads(card.read_text())
  other_card['sha256']['dev.target.txt'] = '0'
  for path, text, message in (
    (result, '{"ver', f'{result}: .*: python -m scripts.evaluate --workdir='),
    (card, json.dumps(other_card), 'are not of the same dev set'),
    (translations(theirs), 'eins\n', 'has 1 lines'),
  ):
    before = path.read_text()
    path.write_text(text)
    with pytest.raises(UserError, match=message):
      compared(ours, theirs)
    path.write_text(before)
  result.unlink()
  with pytest.raises(UserError, match=f'no result to compare .*{theirs.workdir} '):
    compared(ours, theirs)
  with pytest.raises(UserError, match='no other result of this run: give --against'):
    compared(ours, ours)


@pytest.fixture(scope='module')
def greedy(workdir: pathlib.Path, tmp_path_factory) -> LoadedRun:
  """Returns the mean of two checkpoints, searched with a beam of 1."""
  folder = tmp_path_factory.mktemp('greedy')
  shutil.copytree(workdir.parent, folder, dirs_exist_ok=True)
  run = Run(folder / 'run')
  other = forms.random_like(build.architecture(run.config())[1], seed=5)
  checkpoints.save(run.checkpoints, 2 * STEP, other, {'count': np.zeros(())})
  made = {'loss': 2.0, 'seconds': 1.5, 'device': 'a GPU', 'commit': '0' * 40}
  records = [made | {'step': n * STEP, 'target_tokens': 7} for n in (1, 2, 3)]
  run.metrics.write_text(''.join(json.dumps(record) + '\n' for record in records))
  return LoadedRun(run, TRANSLATION, average=2, beam=1)


def test_an_evaluation(greedy: LoadedRun, capsys):
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
  assert f'end: {cut} translations' in capsys.readouterr().err


def test_scores_of_files_equal_those_of_the_split(greedy: LoadedRun):
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
  assert lines[2 * half :] == [*scorer.comparison_lines(outputs, outputs.hypotheses)]
  other = workdir.parent / 'other.txt'
  other.write_text('\n'.join([*references[:-1], 'zwei']))
  assert 'has the references' not in next(evaluate_files(greedy, paths[0], other))
  lowercase = LoadedRun(greedy.run, greedy.output)
  lowercase.config.data.lowercase = True
  message = 'data.lowercase is False in one run and True in the other'
  with pytest.raises(UserError, match=message):
    next(evaluate_files(greedy, *paths, lowercase))
  lowercase.config.data.tokenized = True
  other.write_text('\n'.join(references).upper())
  outputs = SystemOutput(lowercase.translate(sources), references, 'de', True)
  scored = [*evaluate_files(lowercase, paths[0], other)]
  assert scored[-len(expected) :] == [*scorer.score_lines(scorer.score(outputs))]


def test_tokens_are_scored_as_given(runs: tuple[Run, Run]):
  ours, theirs = runs
  loaded = LoadedRun(ours, TRANSLATION, average=1)
  loaded.config.data.tokenized = True
  options = 'dev', theirs, Interruption()
  lines = [*evaluate_run(loaded, ours.workdir.parent / 'data', *options)]
  outputs = SystemOutput(BETTER, REFERENCES, 'de', True)
  expected = [*TRANSLATION.scorer.comparison_lines(outputs, WORSE)]
  assert {*expected} <= {*lines} and expected != comparison(BETTER, WORSE)


@pytest.mark.slow
def test_bleu_of_dev_in_training(greedy: LoadedRun):
  """Greedy, of the first sentences, with the parameters of each call."""
  config, folder = greedy.run.config(), greedy.run.workdir.parent / 'data' / 'toy'
  sources, references = Corpus.open(folder).text('dev')
  translations = greedy.translate(sources)
  measure = DevBleu(config, TRANSLATION, Corpus.open(folder))
  score, samples = measure(greedy.params)
  metric = bleu.sacrebleu('de', False)
  assert score == metric.percent(translations[:9], references[:9])
  lines = zip(sources, translations, references, strict=True)
  assert samples == [*lines][:9:3]
  assert measure(jax.tree.map(np.zeros_like, greedy.params)) != (score, samples)
  assert measure(greedy.params) == (score, samples)
