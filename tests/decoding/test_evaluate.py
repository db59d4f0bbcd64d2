"""Scoring files translated elsewhere, and one run or file against another."""

import dataclasses
import json
import os
import pathlib
import random
import re
import shutil

import jax
import numpy as np
import pytest
import sacrebleu

import toy.corpus
import transformer_jax
from configs import quickstart
from toy import untrained
from toy.programs import Program
from toy.results import RESULT
from transformer_jax.data import card, token_files
from transformer_jax.decoding.evaluate import Evaluation, Options, evaluate_run
from transformer_jax.decoding.translate import Translator
from transformer_jax.machine import files, platform
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import Interruption
from transformer_jax.model import build
from transformer_jax.runs.result import Result
from transformer_jax.runs.run import Run
from transformer_jax.scoring import bleu, significance
from transformer_jax.tasks import TRANSLATION
from transformer_jax.training import checkpoint
from transformer_jax.training.perplexity import Perplexity

WORDS = 'Der Hund, die Haus-Katze und „ihr“ Ball lagen 1990 im Garten am See'.split()


def sentences(count: int) -> list[str]:
  rng = random.Random(0)
  return [' '.join(rng.choices(WORDS, k=rng.randint(4, 12))) for _ in range(count)]


def spoilt(lines: list[str], share: float) -> list[str]:
  """Each word left out with the probability `share`."""
  rng = random.Random(1)
  return [
    ' '.join(word for word in line.split() if rng.random() > share) for line in lines
  ]


REFERENCES = sentences(60)
WORSE, BETTER = spoilt(REFERENCES, 0.4), spoilt(REFERENCES, 0.1)


class Evaluate:
  """scripts.evaluate, given files of lines."""

  def __init__(self, folder: pathlib.Path):
    self.folder = folder

  def file(self, name: str, lines: list[str], end: str = '\n') -> str:
    path = self.folder / name
    path.write_bytes(end.join([*lines, '']).encode())
    return str(path)

  def __call__(self, *options: str) -> tuple[int, str]:
    """Exit code, and all that it prints."""
    program = Program(self.folder, 'evaluate', *options)
    return program.code(), program.said


@pytest.fixture
def evaluate(tmp_path: pathlib.Path) -> Evaluate:
  return Evaluate(tmp_path)


def numbers(text: str) -> list[float]:
  return [float(x) for x in re.findall(r'[-+]?\d+\.\d+', text)]


def intervals(said: str) -> list[list[float]]:
  """Of both scores."""
  lines = [line for line in said.splitlines() if line.startswith('  95 %')]
  return [numbers(line) for line in lines]


def test_a_file(evaluate: Evaluate):
  """Both scores with their signatures; line ends do not matter, nor the last one."""
  options = ['--references=' + evaluate.file('ref', REFERENCES), '--target_language=de']
  code, said = evaluate('--hypotheses=' + evaluate.file('hyp', BETTER), *options)
  assert code == 0 and 'of detokenised' not in said
  sacre, paper = (
    bleu.sacre_bleu(BETTER, REFERENCES),
    bleu.paper_bleu(BETTER, REFERENCES, 'de'),
  )
  for kind, score in (('sacrebleu', sacre), ('paper_bleu', paper)):
    assert f'{kind} {score.score:.2f}  {score.signature}\n' in said
  theirs = sacrebleu.metrics.BLEU().corpus_score(BETTER, [REFERENCES], n_bootstrap=1000)
  low, high = theirs._mean - theirs._ci, theirs._mean + theirs._ci
  found = intervals(said)
  assert found[0] == pytest.approx([low, high], abs=0.006)
  assert found[1][0] < paper.score < found[1][1]
  (evaluate.folder / 'hyp').write_bytes('\r\n'.join(BETTER).encode())
  assert evaluate(f'--hypotheses={evaluate.folder / "hyp"}', *options) == (0, said)


def test_tokens_given(evaluate: Evaluate):
  """They are not tokenised again, and --lowercase is said."""
  hypotheses = [line.upper() for line in BETTER]
  code, said = evaluate(
    '--hypotheses=' + evaluate.file('hyp', hypotheses),
    '--references=' + evaluate.file('ref', REFERENCES),
    *('--target_language=de', '--tokenized', '--lowercase'),
  )
  score = bleu.tokenized_bleu(hypotheses, REFERENCES, lowercase=True)
  assert code == 0 and f'paper_bleu {score.score:.2f}  {score.signature}\n' in said
  sacre = bleu.sacre_bleu(hypotheses, REFERENCES, lowercase=True, tokenized=True)
  assert f'sacrebleu {sacre.score:.2f}  {sacre.signature}\n' in said
  assert said.count('tok:none|') == 2 and 'case:lc|' in said and 'tok:13a' not in said
  assert 'of tokens as given: ' in said and 'of tokens as given, lower' not in said


def test_lower_cased_text_is_named_so(evaluate: Evaluate):
  """Signatures cannot tell: to them it is case:mixed text."""
  lower = lambda lines: [line.lower() for line in lines]
  options = ['--references=' + evaluate.file('ref', lower(REFERENCES))]
  options += ['--hypotheses=' + evaluate.file('hyp', lower(BETTER))]
  options.append('--target_language=de')
  assert 'of detokenised, lower-cased: ' in evaluate(*options)[1]
  assert 'of tokens as given, lower-cased: ' in evaluate(*options, '--tokenized')[1]


def test_a_language_without_rules_is_said(evaluate: Evaluate):
  """It is tokenised with English ones, as tokenizer.perl does."""
  options = ['--references=' + evaluate.file('ref', REFERENCES)]
  options.append('--hypotheses=' + evaluate.file('hyp', BETTER))
  for language in ('hsb', 'de'):
    code, said = evaluate(*options, f'--target_language={language}')
    assert code == 0
    assert ('no abbreviations of hsb are known' in said) == (language == 'hsb')
  for code in ('zh-CN', 'zho', 'ZH', 'chinese'):
    status, said = evaluate(*options, f'--target_language={code}')
    assert status == 1 and code in said and 'code' in said
  code, said = evaluate(*options, '--target_language=sv')
  assert code == 0 and "lacks some of the Moses script's rules for sv" in said


def test_one_file_against_another(evaluate: Evaluate):
  """The paired bootstrap's intervals are those that each has alone."""
  options = ['--references=' + evaluate.file('ref', REFERENCES), '--target_language=de']
  names = [evaluate.file('better', BETTER), evaluate.file('worse', WORSE)]
  _, worse = evaluate(f'--hypotheses={names[1]}', *options)
  code, said = evaluate(
    f'--hypotheses={names[0]}', f'--against_hypotheses={names[1]}', *options
  )
  assert code == 0
  lines = [line for line in said.splitlines() if ' against ' in line]
  assert [line.split()[0] for line in lines] == ['sacrebleu', 'paper_bleu']
  expected = significance.paired_bootstrap(BETTER, WORSE, REFERENCES, 'de')
  both = zip(lines, expected.values(), intervals(said), intervals(worse), strict=True)
  for line, paired, ours, theirs in both:
    found = numbers(line)
    assert found[:3] == [round(paired.score, 2), *ours]
    assert found[3:6] == [round(paired.baseline, 2), *theirs]
    assert found[6] == pytest.approx(paired.score - paired.baseline, abs=0.006)
    assert found[7] == round(paired.p, 4) < 0.01
  _, said = evaluate(
    f'--hypotheses={names[0]}', f'--against_hypotheses={names[0]}', *options
  )
  assert said.count(': +0.00, p = 1.0000') == 2


def test_wrong_line_counts(evaluate: Evaluate):
  """Whichever of the files it is; both counts are told."""
  options = ['--references=' + evaluate.file('ref', REFERENCES), '--target_language=de']
  right = '--hypotheses=' + evaluate.file('right', BETTER)
  short = evaluate.file('short', BETTER[1:])
  for given in ([f'--hypotheses={short}'], [right, f'--against_hypotheses={short}']):
    code, said = evaluate(*given, *options)
    assert code == 1 and 'bleu' not in said
    assert f'{short} has 59 lines, {evaluate.folder / "ref"} has 60' in said
  empty = evaluate.file('empty', [])
  pathlib.Path(empty).write_bytes(b'')
  options[0] = f'--references={empty}'
  code, said = evaluate(f'--hypotheses={empty}', *options)
  assert code == 1 and 'has 0 lines' in said


def test_a_byte_order_mark_is_no_word(evaluate: Evaluate):
  name, marked = evaluate.file('ref', REFERENCES), evaluate.folder / 'marked'
  marked.write_bytes(b'\xef\xbb\xbf' + pathlib.Path(name).read_bytes())
  options = f'--references={name}', '--target_language=de'
  code, said = evaluate(f'--hypotheses={marked}', *options)
  assert code == 0 and 'sacrebleu 100.00' in said


def test_what_cannot_be_scored(evaluate: Evaluate):
  name = evaluate.file('hyp', BETTER)
  code, said = evaluate(f'--hypotheses={name}')
  assert code == 1 and 'needs --references and --target_language' in said
  code, said = evaluate(f'--hypotheses={name}', '--workdir=w')
  assert code == 1 and 'give --workdir, or --hypotheses' in said
  options = f'--references={evaluate.folder / "none"}', '--target_language=de'
  code, said = evaluate(f'--hypotheses={name}', *options)
  assert code == 1 and 'No such file' in said
  for given in ('--against=r', '--beam=1', '--average=2', '--alpha=0'):
    code, said = evaluate(f'--hypotheses={name}', *options, given)
    assert code == 1 and f'{given.partition("=")[0]} does not go with --hyp' in said
  code, said = evaluate('--workdir=r', '--tokenized')
  assert code == 1 and '--tokenized does not go with --workdir' in said
  code, said = evaluate('--workdir=r', options[0])
  assert code == 1 and '--references does not go with --workdir' in said
  for given in ('--hypotheses=', '--against_hypotheses='):
    code, said = evaluate(f'--hypotheses={name}', *options, given)
    assert code == 1 and f'flag {given}: is empty' in said
  (evaluate.folder / 'none').write_bytes(b'caf\xe9\n')
  code, said = evaluate(f'--hypotheses={name}', *options)
  assert code == 1 and f'{evaluate.folder / "none"}: ' in said and 'utf-8' in said


# Runs


STEP = 30


def make_run(folder: pathlib.Path, name: str, hypotheses: list[str]) -> Run:
  """A run that was trained and scored on dev, as far as a comparison looks at it."""
  config = quickstart.get_config()
  corpus = folder / 'data' / config.data.name
  if not corpus.exists():
    corpus.mkdir(parents=True)
    for side in ('source', 'target'):
      text = ''.join(line + '\n' for line in REFERENCES)
      (corpus / f'dev.{side}.txt').write_text(text)
    card.write_card(corpus, card.Card(card.VocabularyEntry('0'), {}))
  run = Run(folder / name)
  checkpoint = run.checkpoints / str(STEP)
  checkpoint.mkdir(parents=True)
  (checkpoint / 'manifest.json').write_text('{}')
  (run.workdir / 'config.json').write_text(config.to_json_best_effort())
  (run.workdir / 'card.json').write_bytes((corpus / 'card.json').read_bytes())
  dtype = platform.decoding_dtype(config.decode_dtype).name
  result = dataclasses.replace(RESULT, split='dev', step=STEP, averaged=[STEP])
  result = dataclasses.replace(result, decode_dtype=dtype)
  result.write(run.workdir / 'result.json')
  result.translations(run).parent.mkdir()
  result.write(result.translations(run).with_suffix('.json'))
  result.translations(run).write_text(''.join(line + '\n' for line in hypotheses))
  return run


def test_one_run_against_another(evaluate: Evaluate):
  """What is translated already is not translated again."""
  folder = evaluate.folder
  ours, theirs = make_run(folder, 'a', BETTER), make_run(folder, 'b', WORSE)
  options = [
    f'--workdir={ours.workdir}',
    '--split=dev',
    f'--data_dir={folder / "data"}',
  ]
  options += [f'--against={theirs.workdir}', '--average=1']
  code, said = evaluate(*options)
  assert code == 0
  expected = significance.paired_bootstrap(BETTER, WORSE, REFERENCES, 'de')
  for kind, paired in expected.items():
    line = next(line for line in said.splitlines() if line.startswith(kind))
    found = numbers(line)
    assert (found[0], found[3]) == (round(paired.score, 2), round(paired.baseline, 2))
    assert f'p = {paired.p:.4f}' in line

  result = theirs.workdir / 'result.json'
  kept = result.read_text()
  result.write_text(kept.replace('"dev"', '"test"'))
  code, said = evaluate(*options)
  assert code == 1 and 'is of test: evaluate it with --split=dev first' in said
  result.write_text(kept[:20])
  code, said = evaluate(*options)
  assert code == 1 and f'no result to compare with: {result}: ' in said
  result.write_text(kept)
  card = json.loads((theirs.workdir / 'card.json').read_text())
  card['sha256']['dev.target.txt'] = '0'
  (theirs.workdir / 'card.json').write_text(json.dumps(card))
  code, said = evaluate(*options)
  assert code == 1 and 'are not of the same dev set' in said


def test_other_references_than_the_runs_are_refused(evaluate: Evaluate):
  """Those in the data folder, in another order, say."""
  ours, theirs = (make_run(evaluate.folder, n, BETTER) for n in 'ab')
  (path,) = (evaluate.folder / 'data').glob('*/dev.target.txt')
  path.write_text(''.join(line + '\n' for line in REFERENCES[::-1]))
  options = f'--workdir={ours.workdir}', f'--against={theirs.workdir}', '--average=1'
  code, said = evaluate(*options, '--split=dev', f'--data_dir={path.parents[1]}')
  assert code == 1 and f'{path} is not that of {ours.workdir / "card.json"}' in said


@pytest.mark.slow
def test_what_is_asked_for_is_what_is_measured(tmp_path: pathlib.Path):
  """The mean of two checkpoints, searched with this beam and this alpha."""
  workdir = untrained.write(tmp_path)
  run, corpus = Run(workdir), tmp_path / 'data' / 'toy'
  graph, shapes = build.architecture(run.config())
  one = checkpoint.restore_params(run.checkpoints, untrained.STEP, shapes)
  other = jax.tree.map(lambda x: x[::-1].copy(), one)
  checkpoint.save(run.checkpoints, 2 * untrained.STEP, other, {'count': np.zeros(())})
  mean = jax.tree.map(lambda a, b: (a + b) / 2, one, other)

  options = Options('test', 2, None, 1, 0.0, False)
  result, outputs = Evaluation(run, TRANSLATION, corpus.parent, options).evaluate()
  dev = Perplexity(run.config(), graph, *token_files.read_split(corpus, 'dev'))
  assert result.averaged == [untrained.STEP, 2 * untrained.STEP]
  assert result.dev_perplexity == pytest.approx(dev(mean), rel=1e-5)
  assert abs(dev(other) / result.dev_perplexity - 1) > 0.01
  sources = card.read_text(corpus, 'test')[0]
  config = run.config()
  config.beam, config.alpha = 1, 0.0
  greedy = Translator(config, TRANSLATION, run.vocabularies(), mean).translate(
    sources, 1
  )
  assert outputs == [best[0].text for best in greedy]
  wide = Translator(run.config(), TRANSLATION, run.vocabularies(), mean).translate(
    sources, 1
  )
  assert outputs != [best[0].text for best in wide]

  for average, expected in ((2, mean), (1, other)):
    loaded = transformer_jax.load(workdir, average=average).params
    jax.tree.map(
      lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), loaded, expected
    )


def test_another_corpus_is_refused(tmp_path: pathlib.Path):
  """Another test set; another dev set, whose perplexity stands in each result."""
  workdir = untrained.write(tmp_path)
  data_dir = workdir.parent / 'data'
  options = Options('test', 1, None, None, None, False)
  evaluation = Evaluation(Run(workdir), TRANSLATION, data_dir, options)
  for name in ('dev.source', 'dev.target', 'test.source', 'test.target'):
    path = data_dir / 'toy' / f'{name}.txt'
    kept = path.read_text()
    path.write_text(kept + 'one more\n')
    with pytest.raises(UserError, match=f'{path} is not that of'):
      evaluation.evaluate()
    path.write_text(kept)
  shutil.rmtree(data_dir)
  with pytest.raises(UserError, match="toy: the run's corpus is not there"):
    evaluation.evaluate()
  toy.corpus.prepare(tmp_path / 'raw', toy.corpus.CORPUS._replace(vocab_size=50))
  with pytest.raises(UserError, match='was encoded with another vocabulary'):
    evaluation.evaluate()


def test_a_folder_that_is_read_only(tmp_path: pathlib.Path, monkeypatch):
  """Such as another user's run: it is said before the long work."""
  workdir = untrained.write(tmp_path)
  options = Options('test', 1, None, None, None, False)
  evaluation = Evaluation(Run(workdir), TRANSLATION, workdir.parent / 'data', options)
  monkeypatch.setattr(files.os, 'access', lambda path, mode: not mode & os.W_OK)
  with pytest.raises(PermissionError, match=f"written there: '{workdir}/transl"):
    evaluation.evaluate()


@pytest.mark.parametrize('change', [{'decode_dtype': 'float32'}, {'extra_length': 5}])
def test_a_search_by_other_settings_is_another(change: dict, tmp_path: pathlib.Path):
  """Its outputs do not stand for those of the config as it is today."""
  run = make_run(tmp_path, 'a', BETTER)
  options = Options('dev', 1, None, None, None, False)
  assert Evaluation(run, TRANSLATION, tmp_path / 'data', options).is_made()
  path = run.translations('dev', STEP, 1, 4, 0.6).with_suffix('.json')
  made = dataclasses.replace(Result.read(path), decode_dtype='bfloat16')
  made.write(path)
  config = json.loads((run.workdir / 'config.json').read_text())
  config |= {'decode_dtype': 'bfloat16'}
  (run.workdir / 'config.json').write_text(json.dumps(config))
  assert Evaluation(run, TRANSLATION, tmp_path / 'data', options).is_made()
  (run.workdir / 'config.json').write_text(json.dumps(config | change))
  assert not Evaluation(run, TRANSLATION, tmp_path / 'data', options).is_made()
  path.unlink()
  (run.workdir / 'config.json').write_text(json.dumps(config))
  assert not Evaluation(run, TRANSLATION, tmp_path / 'data', options).is_made(), (
    'a kill came before'
  )


@pytest.mark.slow
def test_a_run_is_evaluated_and_then_compared(tmp_path: pathlib.Path):
  """With what was the newest result of the same folder before."""
  workdir = untrained.write(tmp_path)
  greedy = Options('test', 1, None, 1, None, True)

  def go(options: Options, against: pathlib.Path | None) -> list[str]:
    ask = Run(workdir), TRANSLATION, tmp_path / 'data', against, options, Interruption()
    return [*evaluate_run(*ask)]

  first = go(greedy._replace(beam=2), None)
  said = go(greedy, workdir)
  compared = [line.split()[0] for line in said if ' against ' in line]
  assert compared == ['sacrebleu', 'paper_bleu']
  assert 'beam-2.' in first[-1] and 'beam-1.' in said[-1]
  assert Result.read(workdir / 'result.json').lowercase


def test_lower_case_stands_beside(evaluate: Evaluate):
  """It is another result of the same run, and takes no other's place."""
  run = make_run(evaluate.folder, 'a', BETTER)
  searched = 'dev', STEP, 1, 4, 0.6
  cased, lower = (run.translations(*searched, lowercase) for lowercase in (False, True))
  lower.write_text(''.join(line.lower() + '\n' for line in WORSE))
  shutil.copy(cased.with_suffix('.json'), lower.with_suffix('.json'))
  options = [f'--workdir={run.workdir}', f'--against={run.workdir}', '--lowercase']
  options += ['--split=dev', '--average=1', f'--data_dir={evaluate.folder / "data"}']
  code, said = evaluate(*options)
  assert code == 0 and f'against {cased}' in said and said.split()[-1] == str(lower)
  small = [line.lower() for line in WORSE]
  expected = significance.paired_bootstrap(
    small, BETTER, REFERENCES, 'de', lowercase=True
  )
  for paired in expected.values():
    assert f'p = {paired.p:.4f}  {paired.signature}' in said


def test_a_run_against_itself(evaluate: Evaluate):
  """Another result of the same folder can be compared with; the same one cannot."""
  run = make_run(evaluate.folder, 'a', WORSE)
  greedy, wide = (run.translations('dev', STEP, 1, beam, 0.6) for beam in (1, 4))
  greedy.write_text(''.join(line + '\n' for line in BETTER))
  shutil.copy(wide.with_suffix('.json'), greedy.with_suffix('.json'))
  options = [f'--workdir={run.workdir}', f'--against={run.workdir}', '--split=dev']
  options += [f'--data_dir={evaluate.folder / "data"}', '--average=1']
  code, said = evaluate(*options, '--beam=1')
  expected = significance.paired_bootstrap(BETTER, WORSE, REFERENCES, 'de')
  assert code == 0 and f'p = {expected["sacrebleu"].p:.4f}' in said
  assert f'against {wide}' in said
  code, said = evaluate(*options)
  assert code == 1 and 'evaluate the other result of this run again' in said
