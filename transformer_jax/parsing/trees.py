"""Bracketed trees as sequences of tokens, and back (Vinyals et al. 2014, section 3.1).

A tree is its words, and the tokens that a parser writes: `(NP` and `)NP` around a
constituent, and a tag for each word. The root that all trees share has no tokens.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from transformer_jax.machine.errors import UserError

ROOTS = frozenset(('', 'TOP', 'ROOT', 'S1'))  # what treebanks call the root
TRACE = '-NONE-'  # the tag of what was moved or left out, and is no word
ANY_TAG = 'XX'  # stands for every tag where tags are not kept

# Treebanks are split at spaces of ASCII; words may have others.
_SPACE = r' \t\n\v\f\r'
_MARK = re.compile(rf'[()]|[^{_SPACE}()]+')
_WORD = re.compile(rf'[^{_SPACE}]+')
_NAME = re.compile(rf'[^{_SPACE}()]+')  # of a label or tag
_NUMBER = re.compile(r'#[0-9]+')
_BRACKETS = str.maketrans({'(': '-LRB-', ')': '-RRB-'})


class Tree(NamedTuple):
  words: list[str]
  tokens: list[str]  # of all below the root; one that is no bracket is a word's tag

  def __str__(self) -> str:
    """The tree in brackets, in one line; empty without words."""
    if not self.words:
      return ''
    words = iter(self.words)
    parts = ['(TOP']
    for token in self.tokens:
      if token[0] == '(':
        parts.append(f' {token}')
      elif token[0] == ')':
        parts.append(')')
      else:
        parts.append(f' ({token} {next(words)})')
    return ''.join(parts) + ')'


class Repairs(NamedTuple):
  """Counts of the faults that repair() found in a sequence of tokens, by kind."""

  unopened: int = 0  # closing brackets without an opening one: left out
  unclosed: int = 0  # opening brackets without a closing one: one was added
  mislabelled: int = 0  # closing brackets whose label is not open: close the innermost
  hollow: int = 0  # constituents without words: left out
  unread: int = 0  # tokens that are neither bracket nor tag: left out
  lacking: int = 0  # words at the end without a tag: the tag XX was added
  surplus: int = 0  # tags without a word: left out


def words(sentence: str) -> list[str]:
  """The words of a line that is tokenised as a treebank is, brackets spelt -LRB-."""
  return [word.translate(_BRACKETS) for word in _WORD.findall(sentence)]


def parse(lines: Iterable[str], name: str) -> Iterator[Tree]:
  """Yields trees in brackets, several a line or one over many lines, normalised.

  Args:
    name: what error messages call the text.

  Raises:
    UserError: this is no tree, or a flawed one; it names the line.
  """
  for tree in parse_flawed(lines, name):
    if isinstance(tree, UserError):
      raise tree
    yield tree


def parse_flawed(lines: Iterable[str], name: str) -> Iterator[Tree | UserError]:
  """Yields trees as parse() does, and an error in place of each flawed tree.

  The brackets of a flawed tree match, but a bracket in it holds nothing, two words, or
  a word beside another bracket; or the whole tree has no word.

  Raises:
    UserError: brackets do not match, so that nobody knows where a tree ends.
  """
  reading = _Reading(name)
  for number, line in enumerate(lines, 1):
    for mark in _MARK.findall(line):
      if reading.read(mark, number):
        yield reading.tree()
  reading.end()


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
  """The tag of each word."""
  return [token for token in tree.tokens if token[0] not in '()']


def without_tags(tokens: Iterable[str]) -> list[str]:
  """The tokens with one tag for all words."""
  return [token if token[0] in '()' else ANY_TAG for token in tokens]


def numbered(tokens: Iterable[str]) -> Iterator[str]:
  """The tokens with the number of each word, from 1, before its tag: #1 DT #2 NN.

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
  """Whether a token is a word's number, as numbered() writes it.

  No treebank has a tag like #1.
  """
  return _NUMBER.fullmatch(token) is not None


def without_numbers(tokens: Iterable[str]) -> list[str]:
  """The tokens without the numbers of numbered()."""
  return [token for token in tokens if not is_number(token)]


class Span(NamedTuple):
  """Where a constituent's tokens and words begin, and where they have ended."""

  label: str
  parent: str  # the label of the constituent around it; empty if there is none
  token: int
  token_end: int
  word: int
  word_end: int

  def of(self, tree: Tree) -> Tree:
    """The constituent as a tree of its own."""
    words = tree.words[self.word : self.word_end]
    return Tree(words, tree.tokens[self.token : self.token_end])


def constituents(tree: Tree) -> Iterator[Span]:
  """Each constituent, those within another before it."""
  starts: list[tuple[int, int]] = []  # of open constituents: first token and word
  words = 0
  for index, token in enumerate(tree.tokens):
    if token[0] == '(':
      starts.append((index, words))
    elif token[0] == ')':
      first, word = starts.pop()
      parent = tree.tokens[starts[-1][0]][1:] if starts else ''
      yield Span(token[1:], parent, first, index + 1, word, words)
    else:
      words += 1


def repair(tokens: Sequence[str], words: Sequence[str]) -> tuple[Tree, Repairs]:
  """A tree of the words from any tokens, which are kept where a tree has room for them.

  A bracket that closes an outer constituent closes those within it. Words without a tag
  become the last ones of the last constituent below the root.
  """
  repairing = _Repairing(words)
  for token in tokens:
    repairing.add(token)
  return repairing.tree()


def _category(label: str) -> str:
  """A label without functions and indices: NP of NP-SBJ-1 and NP=2."""
  return re.split('[-=]', label)[0] or label


class _Reading:
  """Reads marks of brackets and words one by one, with all that may be wrong there."""

  def __init__(self, name: str):
    self._name = name
    self._start()

  def _start(self) -> None:
    self._words: list[str] = []
    self._tokens: list[str] = []
    self._open: list[str] = []  # labels
    # What stands since the last bracket was opened: [], [label] or [label, word]
    self._here: list[str] | None = None
    self._lines = 0, 0  # of the first and the last mark
    self._flaw: UserError | None = None  # the first one of this tree

  def _error(self, what: str) -> UserError:
    first, last = self._lines
    start = f' (the tree begins in line {first})' if first != last else ''
    return UserError(f'{self._name}, line {last}: {what}{start}')

  def _note(self, flaw: str) -> None:
    self._flaw = self._flaw or self._error(flaw)

  def read(self, mark: str, line: int) -> bool:
    """Whether a tree ends with the mark."""
    self._lines = self._lines[0] or line, line
    if mark == '(':
      self._descend()
      self._here = []
    elif mark == ')':
      return self._close()
    elif self._here is None and not self._open:
      raise self._error(f'{mark!r} stands outside brackets')
    elif self._here is None:
      self._note(f'{mark!r} stands in no brackets of its own')
    elif len(self._here) == 2:
      self._note(f'two words, {self._here[1]!r} and {mark!r}, in one bracket')
    else:
      self._here.append(mark)
    return False

  def _descend(self) -> None:
    """The last bracket is that of a constituent, as another opens in it."""
    if self._here is None:
      return
    if len(self._here) == 2:
      self._note(f'{self._here[1]!r} stands beside a bracket')
    label = ''.join(self._here[:1])
    if self._open and label in ROOTS:
      raise self._error(
        f'a root {label!r} inside a tree: a bracket before it is not closed'
      )
    self._open.append(label)
    self._tokens.append(f'({label}')

  def _close(self) -> bool:
    if self._here is not None:
      if len(self._here) == 2:
        tag, word = self._here
        self._tokens.append(tag)
        self._words.append(word)
      else:
        self._note('nothing in a bracket')
      self._here = None
    elif not self._open:
      raise self._error('a bracket closes that was not opened')
    else:
      self._tokens.append(f'){self._open.pop()}')
    return not self._open

  def tree(self) -> Tree | UserError:
    """Returns the tree that has ended, or its first flaw."""
    tree = Tree(self._words, self._tokens)
    if not self._flaw:
      tree = normalise(tree)
      if not tree.words:
        self._note('a tree without words')
    flaw = self._flaw
    self._start()
    return flaw or tree

  def end(self) -> None:
    """Raises UserError if a tree has not ended."""
    if self._lines[0]:
      raise UserError(
        f'{self._name}, line {self._lines[0]}: the tree that begins here is not closed'
      )


class _Repairing:
  """Takes tokens one by one and keeps what makes a tree."""

  def __init__(self, words: Sequence[str]):
    self._words = list(words)
    self._left = len(words)  # words without a tag
    self._tokens: list[str] = []
    self._open: list[str] = []
    self._counts = dict.fromkeys(Repairs._fields, 0)

  def add(self, token: str) -> None:
    kind, label = (token[:1], token[1:]) if token[:1] in ('(', ')') else ('', token)
    if not _NAME.fullmatch(label) or label in ROOTS or token == TRACE:
      self._counts['unread'] += 1
    elif kind == '(':
      self._open.append(label)
      self._tokens.append(token)
    elif not kind and self._left:
      self._left -= 1
      self._tokens.append(token)
    elif not kind:
      self._counts['surplus'] += 1
    elif label in self._open:
      while self._open[-1] != label:
        self._counts['unclosed'] += 1
        self._close()
      self._close()
    elif self._open:
      self._counts['mislabelled'] += 1
      self._close()
    else:
      self._counts['unopened'] += 1

  def _close(self) -> None:
    label = self._open.pop()
    if self._tokens[-1][0] == '(':
      self._tokens.pop()
      self._counts['hollow'] += 1
    else:
      self._tokens.append(f'){label}')

  def tree(self) -> tuple[Tree, Repairs]:
    while self._open:
      self._counts['unclosed'] += 1
      self._close()
    self._counts['lacking'] = self._left
    within = bool(self._tokens) and self._tokens[-1][0] == ')'
    at = len(self._tokens) - within
    self._tokens[at:at] = [ANY_TAG] * self._left
    return Tree(self._words, self._tokens), Repairs(**self._counts)
