"""A parser from its treebank to the trees of any text and their scores."""

import json
import pathlib
import random

import ml_collections
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import transformer_jax
from configs import parsing
from toy import checkpoints, forms, untrained
from toy.results import GOLD
from toy.runs import state_shapes
from transformer_jax.data import vocabulary
from transformer_jax.data.corpus import Corpus
from transformer_jax.decoding.evaluate import evaluate_run
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.machine import devices
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import Interruption
from transformer_jax.model import build
from transformer_jax.parsing import trees
from transformer_jax.parsing.task import PARSING, TREES
from transformer_jax.prepare import prepare
from transformer_jax.runs.result import Result
from transformer_jax.runs.run import Run, start_from
from transformer_jax.scoring.output import SystemOutput

NOUNS, VERBS = 'dog cat bird worm'.split(), 'sees eats likes'.split()


def sentence(rng: random.Random) -> str:
  noun = lambda: f'(NP (DT the) (NN {rng.choice(NOUNS)}))'
  verb = f'(VBZ {rng.choice(VERBS)})'
  return f'( (S {noun()} (VP {verb} {noun()}) (. .)))'


def config_of(folder: pathlib.Path) -> ml_collections.ConfigDict:
  """Writes a treebank to the folder; returns the config of a small parser."""
  rng = random.Random(0)
  for split, count in (('train', 60), ('dev', 5), ('test', 6)):
    lines = [sentence(rng) + '\n' for _ in range(count)]
    if split == 'test':
      lines[0] = lines[0].strip() + lines[1].replace(' ', '\n ')
      lines[1] = '( (FRAG (UH unheard) (QQ of)))\n'
    (folder / f'{split}.mrg').write_text(''.join(lines))
  config = parsing.get_config('small')
  config.data.files.update({split: (split,) for split in ('train', 'dev', 'test')})
  config.model.update({'N': 1, 'd_model': 16, 'd_ff': 16, 'h': 2, 'd_k': 8, 'd_v': 8})
  config.model.update({'vocab_size': 50, 'target_vocab_size': 20})
  config.update(untrained.SETTINGS | {'beam': 2, 'extra_length': 8})
  config.data.whole_words = False  # words of many pieces are harder
  return config


@pytest.fixture(scope='module')
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
  """Returns a run on the treebank whose parameters are random."""
  folder = tmp_path_factory.mktemp('parsing')
  config = config_of(folder)
  corpus = prepare.ensure(config, TREES, folder / 'data', folder)
  run = Run.open(folder / 'run', config, Corpus.open(corpus))
  params = forms.random_like(state_shapes(config)[0], 0.4, seed=4)
  checkpoints.save(run.checkpoints, untrained.STEP, params, {'count': np.zeros(())})
  return run


def evaluated(run: Run) -> list[str]:
  data_dir, loaded = run.workdir.parent / 'data', LoadedRun(run, PARSING)
  return [*evaluate_run(loaded, data_dir, 'test', None, Interruption())]


@pytest.mark.slow
def test_a_run_is_scored_as_a_parser(run: Run):
  """The seventh tree begins in the first's line, and has unknown words."""
  printed = '\n'.join(evaluated(run))
  result = Result.read(run.workdir / 'result.json')
  assert (result.task, result.text, result.scores) == ('parsing', 'trees', {})
  assert 'F1 ' in printed and '100.00 % of the outputs were trees' in printed
  lines = result.translations(run).read_text().splitlines()
  words = [tree.words for tree in trees.parse(lines, 'output')]
  assert len(words) == len(lines) == 7
  assert words[2] == ['unheard', 'of'] and words[0][-1] == '.'
  assert result.valid == 100
  path = run.workdir / 'config.json'
  constrained = path.read_text()
  path.write_text(json.dumps(json.loads(constrained) | {'constrained': False}))
  printed = '\n'.join(evaluated(run))
  path.write_text(constrained)
  result = Result.read(run.workdir / 'result.json')
  assert result.valid < 100
  assert f'{result.valid:.2f} % of the outputs were trees' in printed, 'repaired'


ODD = ['', 'the dog ( likes ) a cat', 'the ' * 60, 'w', 'x\u2028y', '\u2581']


@pytest.mark.filterwarnings('ignore::UserWarning')  # of unknown and cut text
def test_every_line_gets_a_tree_of_its_words(run: Run, monkeypatch):
  """Brackets, too many words, a word that SentencePiece takes for a space."""
  monkeypatch.setattr(devices, 'LENGTHS', (16,))
  monkeypatch.setattr(build, 'LONGEST', 32)
  model = transformer_jax.load(run.workdir)
  best = [hypothesis for (hypothesis,) in model.hypotheses(ODD, nbest=1)]
  finished = [hypothesis.text for hypothesis in best]
  assert finished[0] == '' and len(finished) == len(ODD)
  # The limit is too short for the longest, and one has no pieces.
  repaired = [line for line, one in zip(ODD, best, strict=True) if not one.valid]
  assert repaired == [ODD[2], ODD[5]]
  for line, one in zip(ODD[1:], best[1:], strict=True):
    (read,) = trees.parse([one.text], 'output')
    assert read.words == trees.words(line)
    if one.valid:  # else it is mended, and has other ids
      for ids in model.target_ids([one.text, ' '.join(read.tokens)]):
        # Training has no word of the last number.
        assert [i for i in ids if i != vocabulary.UNK] == one.tokens
  assert ' -LRB-)' in finished[1]


def test_a_parser_is_tuned_to_another_treebank(run: Run, tmp_path: pathlib.Path):
  """It keeps both vocabularies."""
  config = config_of(tmp_path)
  config.model.update({'vocab_size': 40, 'target_vocab_size': 19})
  (tmp_path / 'train.mrg').write_text('(NP (DT a) (NN dog))\n' * 9)
  start_from(config, run.workdir, tmp_path / 'tuned')
  corpus = prepare.ensure(config, TREES, tmp_path / 'data', tmp_path)
  for name in vocabulary.FILES:
    assert (corpus / name).read_bytes() == (run.workdir / name).read_bytes()


def test_a_parser_may_write_numbers_and_read_whole_words(tmp_path: pathlib.Path):
  """Its targets have a number for each word, its sources one piece.

  Words of subtrees do not count: 'rare' occurs once, in several subtrees.
  """
  config = config_of(tmp_path)
  with (tmp_path / 'train.mrg').open('a') as file:
    file.write(sentence(random.Random(0)).replace('NN dog', 'NN rare'))
    file.write('\n' + (tmp_path / 'dev.mrg').read_text())
  config.data.update({'numbers': True, 'whole_words': True})
  config.data.files.train = ('train', 'train+subtrees')
  config.model.update({'vocab_size': 30, 'target_vocab_size': 30})
  corpus = Corpus.open(prepare.ensure(config, TREES, tmp_path / 'data', tmp_path))
  pieces = corpus.vocabularies().source.pieces()
  assert '▁dog' in pieces and '▁rare' not in pieces
  lengths = [side.lengths.tolist() for side in corpus.split('dev')]
  counts = [[len(x.split()) for x in lines] for lines in corpus.text('dev')]
  both = zip(*counts, strict=True)
  assert lengths[0] == [words + 1 for words in counts[0]]
  assert lengths[1] == [words + tokens + 1 for words, tokens in both]
  shared = corpus.card.splits['dev'].overlap['train']
  assert shared.source == shared.target == shared.pair == 5
  with pytest.raises(UserError, match='whole_words needs a vocabulary of the target'):
    config.model.target_vocab_size = 0
    prepare.ensure(config, TREES, tmp_path / 'another', tmp_path)


TOKENS = '(S )S (NP )NP )VP DT NN ( ) (TOP \u2047 (S)'.split()


def test_what_is_a_tree_is_not_mended():
  written = '(S (NP PRP )NP (VP VBD )VP )S'
  tree = '(TOP (S (NP (PRP She)) (VP (VBD laughed))))'
  assert PARSING.finish('She laughed', written) == (tree, True)
  numbered = written.replace('PRP', '#1 PRP').replace('VBD', '#2 VBD')
  assert PARSING.finish('She laughed', numbered) == (tree, True)
  assert PARSING.finish('She laughed', written + ' )S') == (tree, False)


def test_references_in_brackets_are_refused():
  with pytest.raises(UserError, match='trees in brackets: .* scripts.evalb'):
    PARSING.scorer.references(['She laughed'], GOLD[:1])


def test_a_target_is_tokens_or_a_tree():
  """Only spaces of ASCII divide tokens."""
  write = PARSING.target(parsing.get_config('craft'))
  written = '(S (N\u00a0P #1 PRP )N\u00a0P (VP #2 VBD )VP )S'
  assert write('(S (N\u00a0P PRP )N\u00a0P (VP VBD )VP )S') == written
  assert write('(TOP (S (N\u00a0P (PRP She)) (VP (VBD laughed))))') == written
  assert write('') == ''
  with pytest.raises(UserError, match='a target, line 1: .* is not one tag'):
    write('(TOP (S (NP (PRP She laughed))))')


@settings(max_examples=300)
@given(
  st.text('ab()\u00a0\u2028\x85 \t-', max_size=12),
  st.lists(st.sampled_from(TOKENS) | st.text(max_size=3), max_size=12).map(' '.join),
)
def test_any_output_of_any_line_is_a_tree_of_its_words(line: str, output: str):
  finished, _ = PARSING.finish(line, output)
  assert '\n' not in finished
  words = trees.words(line)
  assert [tree.words for tree in trees.parse([finished], 'x')] == [words][: len(words)]


def test_trees_are_scored_with_how_many_were_valid():
  scorer = PARSING.scorer
  targets = ['(S (NP PRP )NP (VP VBD )VP )S', '(FRAG UH )FRAG']
  assert scorer.references(['She laughed', 'Oh'], targets) == GOLD
  flat = '(TOP (XX She) (XX laughed))'
  outputs = SystemOutput([flat, GOLD[1]], GOLD, 'tree', False, [False, True])
  result = scorer.score(outputs)
  assert result['valid'] == 50
  assert result['parsing']['recall'] == 25 and result['parsing']['precision'] == 100
