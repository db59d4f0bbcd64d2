"""Parsing as a task: its input, its output and its scores."""

import pathlib

from hypothesis import given, settings
from hypothesis import strategies as st

import toy.corpus
from toy.config import tiny
from toy.results import GOLD
from transformer_jax.data import batches, vocabulary
from transformer_jax.data.corpus import read_text, verify_corpus
from transformer_jax.data.task import Outputs
from transformer_jax.parsing import trees
from transformer_jax.parsing.task import PARSING

TOKENS = '(S )S (NP )NP )VP DT NN ( ) (TOP \u2047 (S)'.split()


def test_a_sentence_is_read_as_treebanks_spell_it(tmp_path: pathlib.Path):
  path = tmp_path / 'vocabulary.model'
  vocabulary.learn_pieces(['She laughed'], path, 20, 1.0, False)
  read = PARSING.source(vocabulary.Vocabulary(path))
  assert read('  She (\tlaughed ) ') == 'She -LRB- laughed -RRB-'


def test_what_is_a_tree_is_not_mended():
  written = '(S (NP PRP )NP (VP VBD )VP )S'
  tree = '(TOP (S (NP (PRP She)) (VP (VBD laughed))))'
  assert PARSING.finish('She laughed', written) == (tree, {})
  numbered = '(S (NP #1 PRP )NP (VP #2 VBD )VP )S'
  assert PARSING.finish('She laughed', numbered) == (tree, {})
  assert PARSING.finish('She laughed', written + ' )S') == (tree, {'unopened': 1})


@settings(max_examples=300)
@given(
  st.text('ab()\u00a0\u2028\x85 \t-', max_size=12),
  st.lists(st.sampled_from(TOKENS) | st.text(max_size=3), max_size=12).map(' '.join),
)
def test_any_output_of_any_line_is_a_tree_of_its_words(line: str, output: str):
  """It has one line, which LF alone ends."""
  finished, _ = PARSING.finish(line, output)
  assert '\n' not in finished
  words = trees.words(line)
  assert [tree.words for tree in trees.parse([finished], 'x')] == [words][: len(words)]


def test_trees_are_scored_with_how_many_were_mended():
  scorer = PARSING.scorer
  sources, targets = (
    ['She laughed', 'Oh'],
    ['(S (NP PRP )NP (VP VBD )VP )S', '(FRAG UH )FRAG'],
  )
  assert scorer.references(sources, targets) == GOLD
  flat = '(TOP (XX She) (XX laughed))'
  repairs = [{'lacking': 2}, {}]
  outputs = Outputs([flat, GOLD[1]], GOLD, 'tree', False, False, repairs)
  result = scorer.score(outputs)
  assert (result['valid'], result['repairs']['lacking']) == (50, 2)
  assert result['parsing']['recall'] == 25 and result['parsing']['precision'] == 100
  lines = [*scorer.comparison_lines(outputs, GOLD)]
  assert lines[0].startswith('F1 40.00 against 100.00: -60.00')


def test_a_treebank_is_prepared(tmp_path: pathlib.Path):
  """Sources are words and targets tokens of trees, each with its vocabulary."""
  raw = tmp_path / 'raw'
  raw.mkdir()
  for split, count in (('train', 200), ('dev', 5), ('test', 5)):
    sentences = (line.decode().split() for line in toy.corpus.number_lines(count)[0])
    trees = (f'( (S (CD {") (CD ".join(words)})))\n' for words in sentences)
    (raw / f'{split}.mrg').write_text(''.join(trees))
  config = tiny(**{'data.reader': 'trees', 'data.target_language': 'tree'})
  config.model.update(vocab_size=50, target_vocab_size=9)
  config.data.cleaning.off = True
  about = toy.corpus.prepare(raw, config, PARSING)
  folder = tmp_path / 'data' / 'toy'
  verify_corpus(folder)
  assert about.splits['train'].kept == 200
  sources, targets = read_text(folder, 'test')
  expected = [f'(S{" CD" * len(source.split())} )S' for source in sources]
  assert targets == expected
  counts = sum(len(target.split()) for target in targets)
  assert about.splits['test'].tokens['target'] == counts

  config.data.update(name='untagged', tags=False)
  untagged = toy.corpus.prepare(raw, config, PARSING)
  folder = tmp_path / 'data' / 'untagged'
  assert read_text(folder, 'test') == (sources, targets), 'the treebank has tags'
  pieces = vocabulary.read(folder, own_target=True).target.pieces()
  assert '\u2581XX' in pieces and '\u2581CD' not in pieces
  tokens = batches.read_split(folder, 'test')[1].tokens
  assert vocabulary.UNK not in tokens and len(tokens) == counts
  assert untagged.splits['dev'].overlap == about.splits['dev'].overlap
