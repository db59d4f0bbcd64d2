"""Parsing as a task: how a line goes in, how an output comes out, how it is scored."""

import dataclasses
import pathlib
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import toy.corpus
from toy.corpus import CORPUS
from toy.results import PARSED
from transformer_jax.data import card, token_files, vocabulary
from transformer_jax.data.task import Outputs
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import trees
from transformer_jax.parsing.task import PARSING
from transformer_jax.parsing.trees import REPAIRS

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
  """One line by LF, which is what ends lines where trees are read."""
  finished, _ = PARSING.finish(line, output)
  assert '\n' not in finished
  words = trees.words(line)
  assert [tree.words for tree in trees.parse([finished], 'x')] == [words][: len(words)]


GOLD = ['(TOP (S (NP (PRP She)) (VP (VBD laughed))))', '(TOP (FRAG (UH Oh)))']


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
  found = scorer.score(outputs)
  assert (found['valid'], found['repairs']['lacking']) == (50, 2)
  assert found['parsing']['recall'] == 25 and found['parsing']['precision'] == 100
  lines = [*scorer.comparison_lines(outputs, GOLD)]
  assert lines[0].startswith('F1 40.00 against 100.00: -60.00')


@pytest.mark.parametrize(
  ('valid', 'repairs', 'lines'),
  [
    (100, {}, ['all outputs were trees']),
    (
      92.5,
      {'lacking': 3, 'hollow': 1},
      [
        '92.50 % of the outputs were trees, the others were repaired:',
        '  1 constituents without words: left out',
        '  3 words without a tag: tagged XX',
      ],
    ),
    (0, {}, ['no output was a tree; all were repaired:']),
  ],
)
def test_repairs_are_told_in_words(
  valid: float, repairs: dict[str, int], lines: list[str]
):
  counts = dict.fromkeys(REPAIRS, 0) | repairs
  result = dataclasses.replace(PARSED, valid=valid, repairs=counts)
  assert [*PARSING.scorer.score_lines(result)][-len(lines) :] == lines


def test_a_tree_of_other_words_is_no_output():
  with pytest.raises(UserError, match='tree 2 has not the words'):
    PARSING.scorer.score(
      Outputs([GOLD[0], '(TOP (UH Ah))'], GOLD, 'tree', False, False, [{}, {}])
    )


def test_a_treebank_is_prepared(tmp_path: pathlib.Path):
  """Words in, the tokens of trees out, each side in its own vocabulary."""
  rng, raw = random.Random(0), tmp_path / 'raw'
  raw.mkdir()
  for split, count in (('train', 200), ('dev', 5), ('test', 5)):
    rows = [rng.choices(toy.corpus.WORDS, k=rng.randint(1, 5)) for _ in range(count)]
    trees = (f'( (S {" ".join(f"(CD {word})" for word in row)}))' for row in rows)
    (raw / f'{split}.mrg').write_text('\n'.join(trees))
  corpus = replace(CORPUS, reader='trees', target_language='tree', vocab_size=50)
  corpus = replace(corpus, cleaning=replace(corpus.cleaning, off=True))
  corpus = replace(corpus, target_vocab_size=9)
  about = toy.corpus.prepare(raw, corpus, PARSING)
  folder = tmp_path / 'data' / 'toy'
  card.verify(folder)
  assert about.splits['train'].kept == 200
  sources, targets = card.read_text(folder, 'test')
  expected = [f'(S{" CD" * len(source.split())} )S' for source in sources]
  assert targets == expected
  counts = sum(len(target.split()) for target in targets)
  assert about.splits['test'].tokens['target'] == counts

  untagged = toy.corpus.prepare(
    raw, replace(corpus, name='untagged', tags=False), PARSING
  )
  folder = tmp_path / 'data' / 'untagged'
  assert card.read_text(folder, 'test') == (sources, targets), 'the treebank has tags'
  pieces = vocabulary.read(folder, own_target=True).target.pieces()
  assert '\u2581XX' in pieces and '\u2581CD' not in pieces
  tokens = token_files.read_split(folder, 'test')[1].tokens
  assert vocabulary.UNK not in tokens and len(tokens) == counts
  assert untagged.splits['dev'].in_train == about.splits['dev'].in_train


def test_sections_of_the_wall_street_journal(tmp_path: pathlib.Path):
  for number in range(2, 24):
    folder = tmp_path / 'WSJ' / f'{number:02}'
    folder.mkdir(parents=True)
    (folder / 'wsj.mrg').touch()
  files = {'train': ('wsj.02-21',), 'dev': ('wsj.22',), 'test': ('wsj.23',)}
  corpus = replace(CORPUS, reader='trees', files=files)
  found = PARSING.splits(corpus, tmp_path, None)
  assert [one.name for [one] in found.values()] == ['WSJ 02 to 21', 'WSJ 22', 'WSJ 23']
  with pytest.raises(UserError, match='give --raw_dir'):
    PARSING.splits(corpus, None, None)
