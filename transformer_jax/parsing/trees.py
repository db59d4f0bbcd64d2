"""Bracketed trees as sequences of tokens, and back (Vinyals et al. 2014, section 2.2).

A tree is its words, and the tokens that a parser writes: `(NP` and `)NP` around a
constituent, and a tag for each word. The root that all trees share has no tokens.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from transformer_jax.machine.errors import UserError

ROOT = 'TOP'  # as we call the root
ROOTS = frozenset(('', ROOT, 'ROOT', 'S1'))  # as treebanks do
TRACE = '-NONE-'  # the tag of a trace, which stands for moved words and is not a word
ANY_TAG = 'XX'  # stands for every tag where tags are not kept

# Treebanks are split at spaces of ASCII; words may have others.
_MARK = re.compile(r'[()]|[^\s()]+', re.ASCII)
_WORD = re.compile(r'\S+', re.ASCII)
_NAME = re.compile(r'[^\s()]+', re.ASCII)  # of a label or tag
# A part of a tree whose marks have single spaces between them: a tag with its word, the
# start or the end of a constituent, or what is none of these.
_PART = re.compile(
  r' ?(?:\( (?P<tag>[^ ()]+) (?P<word>[^ ()]+) \)'
  r'|(?P<start>\()(?P<label> [^ ()]+)?(?= \()'
  r'|(?P<end>\))|(?P<flaw>\(?[^()]+\)?))'
)
_NUMBER = re.compile(r'#[0-9]+')
_BRACKETS = str.maketrans({'(': '-LRB-', ')': '-RRB-'})


class Tree(NamedTuple):
  """A tree of the words of one sentence."""

  words: list[str]
  tokens: list[str]  # of all below the root: brackets, and the tag of each word

  def __str__(self) -> str:
    """Returns the tree in brackets, in one line; empty without words."""
    if not self.words:
      return ''
    words = iter(self.words)
    parts = [f'({ROOT}']
    for token in self.tokens:
      if token[0] == '(':
        parts.append(f' {token}')
      elif token[0] == ')':
        parts.append(')')
      else:
        parts.append(f' ({token} {next(words)})')
    return ''.join(parts) + ')'


def words(sentence: str) -> list[str]:
  """Returns the words of a line tokenised as a treebank is, brackets spelt -LRB-."""
  return [word.translate(_BRACKETS) for word in _WORD.findall(sentence)]


def parse(lines: Iterable[str | None], name: str) -> Iterator[Tree | UserError]:
  """Yields normalised trees, and an error for each flawed tree.

  A line may have several trees, and a tree several lines. The brackets of a flawed tree
  match, but a bracket in it holds nothing, two words, or a word beside another bracket;
  or the whole tree has no word.

  Args:
    name: what error messages call the text; they also name the line.

  Raises:
    UserError: brackets do not match, so that nobody knows where a tree ends, or a line
      is None, which stands for bytes that are not UTF-8.
  """
  marks: list[str] = []  # of the current tree
  depth = start = 0
  for number, line in enumerate(lines, 1):
    if line is None:
      raise UserError(f'{name}, line {number}: not UTF-8')
    for mark in _MARK.findall(line):
      if not marks:
        start = number
        if mark != '(':
          raise UserError(f'{name}, line {number}: {mark!r} stands outside brackets')
      marks.append(mark)
      depth += (mark == '(') - (mark == ')')
      if not depth:
        yield _tree(marks, f'{name}, line {start}')
        marks = []
  if marks:
    raise UserError(f'{name}, line {start}: the tree that starts here is not closed')


def _tree(marks: Sequence[str], where: str) -> Tree | UserError:
  """Returns the normalised tree of brackets, labels and words, or its first flaw."""
  words: list[str] = []
  tokens: list[str] = []
  labels: list[str] = []  # of open constituents
  for part in _PART.finditer(' '.join(marks)):
    if part['tag']:
      tokens.append(part['tag'])
      words.append(part['word'])
    elif part['start']:
      label = (part['label'] or '')[1:]
      if labels and label in ROOTS:
        raise UserError(f'{where}: the tree that starts here lacks a bracket')
      labels.append(label)
      tokens.append(f'({label}')
    elif part['end']:
      tokens.append(f'){labels.pop()}')
    else:
      return UserError(f'{where}: {part["flaw"]!r} is not one tag with one word')
  tree = normalise(Tree(words, tokens))
  return tree if tree.words else UserError(f'{where}: a tree without words')


def normalise(tree: Tree) -> Tree:
  """Removes root, traces, emptied constituents, and functions and indices of labels."""
  tagged = zip(tree.words, tags(tree), strict=True)
  kept = [word for word, tag in tagged if tag != TRACE]
  tokens: list[str] = []
  for token in tree.tokens:
    if token[0] == ')' and tokens[-1][0] == '(':
      tokens.pop()
    elif token[0] in '()':
      tokens.append(token[0] + _category(token[1:]))
    elif token != TRACE:
      tokens.append(token)
  if tokens and tokens[0][0] == '(' and tokens[0][1:] in ROOTS:
    tokens = tokens[1:-1]
  return Tree(kept, tokens)


def tags(tree: Tree) -> list[str]:
  """Returns the tag of each word."""
  return [token for token in tree.tokens if token[0] not in '()']


def without_tags(tokens: Iterable[str]) -> list[str]:
  """Returns the tokens with one tag for all words."""
  return [token if token[0] in '()' else ANY_TAG for token in tokens]


def number_words(tokens: Iterable[str]) -> Iterator[str]:
  """Yields the tokens, and before each tag the number of its word: #1 DT #2 NN.

  A parser that writes numbers does not have to count its tags to know which word is
  next, and learns sooner where to look.
  """
  number = 0
  for token in tokens:
    if token[0] not in '()':
      number += 1
      yield f'#{number}'
    yield token


def is_number(token: str) -> bool:
  """Returns True if a token is a number of number_words(); no treebank's tag is."""
  return _NUMBER.fullmatch(token) is not None


def without_numbers(tokens: Iterable[str]) -> list[str]:
  """Returns the tokens without the numbers of number_words()."""
  return [token for token in tokens if not is_number(token)]


class Node(NamedTuple):
  """A constituent, or a word with its tag as label; also the root, labelled ROOT."""

  label: str
  children: list['Node']  # none of a word
  token: int  # the first of the tree's tokens that it has
  token_end: int  # the token after its last
  word: int
  word_end: int

  def of(self, tree: Tree) -> Tree:
    """Returns the constituent as a tree."""
    words = tree.words[self.word : self.word_end]
    return Tree(words, tree.tokens[self.token : self.token_end])

  def constituents(self) -> Iterator[tuple['Node', str]]:
    """Yields constituents in post-order, each with its parent's label."""
    for child in self.children:
      if child.children:
        yield from child.constituents()
        yield child, self.label


def nest(tree: Tree) -> Node:
  """Returns the root of a tree."""
  levels: list[list[Node]] = [[]]  # the children of each open constituent
  starts: list[tuple[int, int]] = []  # its first token and word
  words = 0
  for index, token in enumerate(tree.tokens):
    if token[0] == '(':
      starts.append((index, words))
      levels.append([])
    elif token[0] == ')':
      first, word = starts.pop()
      node = Node(token[1:], levels.pop(), first, index + 1, word, words)
      levels[-1].append(node)
    else:
      levels[-1].append(Node(token, [], index, index + 1, words, words + 1))
      words += 1
  return Node(ROOT, levels[0], 0, len(tree.tokens), 0, words)


def repair(tokens: Sequence[str], words: Sequence[str]) -> Tree:
  """Returns a tree of the words, with the tokens that fit.

  If the tokens are a tree of these words, none is changed. A closing bracket without
  an open one of its label closes the innermost constituent, and one of an outer
  constituent also those within it. What stays open is closed. Constituents without
  words, tags without a word, and other tokens are left out. Words without a tag become
  the last ones of the last constituent below the root.
  """
  kept: list[str] = []
  labels: list[str] = []  # of open constituents
  untagged = len(words)

  def close() -> None:
    label = labels.pop()
    if kept[-1][0] == '(':
      kept.pop()
    else:
      kept.append(f'){label}')

  for token in tokens:
    is_bracket = token[:1] in ('(', ')')
    label = token[1:] if is_bracket else token
    if not _NAME.fullmatch(label) or label in ROOTS or token == TRACE:
      continue
    if token[0] == '(':
      labels.append(label)
      kept.append(token)
    elif is_bracket and labels:
      while label in labels and labels[-1] != label:
        close()
      close()
    elif not is_bracket and untagged:
      untagged -= 1
      kept.append(token)
  while labels:
    close()
  if untagged:
    end = len(kept) - (bool(kept) and kept[-1][0] == ')')
    kept[end:end] = [ANY_TAG] * untagged
  return Tree([*words], kept)


def _category(label: str) -> str:
  """Returns a label without functions and indices: NP of NP-SBJ-1 and NP=2."""
  return re.split('[-=]', label)[0] or label
