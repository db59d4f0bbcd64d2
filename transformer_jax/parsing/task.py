"""Constituency parsing (section 6.3) as a task: words in, the tokens of a tree out."""

import dataclasses
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
from ml_collections import ConfigDict

from transformer_jax.data.vocabulary import (
  EOS,
  SPACE,
  SPECIAL,
  UNK,
  Vocabularies,
  Vocabulary,
)
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import evalb, pcfg, treebanks, trees, words
from transformer_jax.parsing.evalb import Parsing
from transformer_jax.parsing.trees import Tree
from transformer_jax.prepare.sources import Reader, Sources, check_folder
from transformer_jax.scoring.output import (
  Mask,
  Output,
  Scorer,
  Section,
  SystemOutput,
)

if TYPE_CHECKING:
  import jax


def _sources(config: ConfigDict, raw_dir: pathlib.Path | None, _: Any) -> Sources:
  folder = check_folder(config, raw_dir)
  return treebanks.read_splits(folder, config.data.files, config.data.seed)


def _target(config: ConfigDict) -> Callable[[str], str]:
  if config.data.whole_words and not config.model.target_vocab_size:
    raise UserError(
      'whole_words needs a vocabulary of the target (--config.model.target_vocab_size)'
    )

  tags, numbers = config.data.tags, config.data.numbers

  def write(line: str) -> str:
    """Returns what the parser learns to write of a pair's tokens, or of a tree."""
    tokens = line.split(' ') if line else []
    if line.startswith(f'({trees.ROOT} '):
      tree = next(trees.parse([line], 'a target'))
      if isinstance(tree, UserError):
        raise tree
      tokens = tree.tokens
    tokens = tokens if tags else trees.without_tags(tokens)
    return ' '.join(trees.number_words(tokens) if numbers else tokens)

  return write


def _source(vocabulary: Vocabulary) -> Callable[[str], str]:
  read = words.reader(vocabulary)
  return lambda line: read(' '.join(trees.words(line)))


def _finish(line: str, output: str) -> tuple[str, bool]:
  tokens = trees.without_numbers(output.split())
  tree = trees.repair(tokens, trees.words(line))
  return str(tree), tree.tokens == tokens


def _references(sources: Sequence[str], targets: Sequence[str]) -> list[str]:
  pairs = zip(sources, targets, strict=True)
  if any(re.search(r'[^\s()]\)', tokens) for tokens in targets):
    raise UserError(
      'the references are trees in brackets: write the trees of your parser with '
      'scripts.translate, and score them with scripts.evalb'
    )
  return [str(Tree(source.split(' '), tokens.split(' '))) for source, tokens in pairs]


def _score(outputs: SystemOutput) -> dict[str, Any]:
  scores = evalb.score(outputs.references, outputs.hypotheses)
  return {
    'text': 'trees',
    'parsing': dataclasses.asdict(scores),
    'valid': 100 * sum(outputs.valid) / len(outputs.valid),
  }


def _score_lines(scores: Mapping[str, Any]) -> Iterator[str]:
  yield from evalb.score_lines(msgspec.convert(scores['parsing'], Parsing))
  yield f'{scores["valid"]:.2f} % of the outputs were trees, before repair'


def _section(*arguments: Any) -> tuple[str, list[Any]]:
  from transformer_jax.parsing import table4  # the report loads slowly

  return table4.section(*arguments)


_NO_TOKEN, _OPEN, _CLOSE, _NUMBER, _TAG = range(5)


class TreeMask(NamedTuple):
  """Masks that keep a search to the trees of a sentence (He & Choi 2023).

  The mask of a prefix forbids each next token after which the output could not become a
  tree of the sentence's words any more: one constituent has all words (a lone word may
  be a tag alone), brackets match, no constituent is empty, each word has one tag, and
  the brackets close before the length limit. At least one token is always permitted, so
  every hypothesis that ends is a tree.

  Axes: B sentences, K beams, L longest output, W tokens of the target's vocabulary.

  Attributes (`kind` and `value` of each token, [W]):
    kind: whether a token opens or closes a constituent, is a word's number or a tag.
      The kind of all others, such as EOS, is _NO_TOKEN.
    value: the label of a bracket, as a number; the word's number of a number; else 0.
    per_word: the tokens of a word: 2 if targets have numbers, else 1.
  """

  kind: np.ndarray
  value: np.ndarray
  per_word: int

  @classmethod
  def of(cls, pieces: Sequence[str]) -> 'TreeMask':
    """Reads `pieces` by id; raises UserError unless they are whole tokens."""
    names = [piece.removeprefix(SPACE) for piece in pieces]
    opened, closed = ({n[1:] for n in names if n[:1] == bracket} for bracket in '()')
    labels = sorted((opened & closed) - trees.ROOTS)
    label_ids = {label: i for i, label in enumerate(labels)}
    kind, value = np.zeros((2, len(names)), np.int32)
    for token, (piece, name) in enumerate(zip(pieces, names, strict=True)):
      if token < SPECIAL or not piece.startswith(SPACE) or not name:
        continue  # special and spare pieces occur in no text
      if name[0] in '()':
        if name[1:] in label_ids:
          kind[token] = _OPEN if name[0] == '(' else _CLOSE
          value[token] = label_ids[name[1:]]
      elif trees.is_number(name):
        kind[token], value[token] = _NUMBER, int(name[1:])
      elif name != trees.TRACE:
        kind[token] = _TAG
    is_token = [piece[0] in f'{SPACE}<' for piece in pieces]
    if not all(is_token) or not (kind == _TAG).any():
      raise UserError(
        'constrained=True needs a vocabulary of the target alone, whose pieces are the '
        'tokens of trees: prepare it with --config.model.target_vocab_size'
      )
    return cls(kind, value, 2 if (kind == _NUMBER).any() else 1)

  def __call__(
    self,
    tokens: 'jax.Array',
    position: 'jax.Array',
    words: 'jax.Array',
    limits: 'jax.Array',
  ) -> 'jax.Array':
    """Returns the mask to add to the next token's logits: 0 or -inf, [B, K, W].

    Args:
      tokens: [B, K, L], the hypotheses so far.
      position: [], how many tokens of them count.
      words: [B], the number of words of each sentence. If its limit is too short for
        all, the tree has the first ones, as many as fit.
      limits: [B], the most tokens of an output, EOS included.
    """
    import jax.numpy as jnp  # here, since JAX takes seconds that a report saves

    room = jnp.maximum(limits - 1, 0)  # without EOS
    fitting = jnp.maximum((room - 2) // self.per_word, (room >= self.per_word))
    words = jnp.minimum(words, fitting)[:, None]
    index = jnp.arange(tokens.shape[-1])[None, None]
    kinds = jnp.where(index < position, jnp.asarray(self.kind)[tokens], _NO_TOKEN)
    values = jnp.asarray(self.value)[tokens]
    depths = jnp.cumsum((kinds == _OPEN).astype(jnp.int32) - (kinds == _CLOSE), -1)
    depth = depths[..., -1]
    # The innermost open bracket: the last one after which the depth is that of now.
    opened = (kinds == _OPEN) & (depths == depth[..., None])
    innermost = jnp.where(opened, index, 0).max(-1)
    label = jnp.take_along_axis(values, innermost[..., None], -1)
    last = jnp.take(kinds, jnp.maximum(position - 1, 0), axis=-1)
    numbered = last == _NUMBER  # a number whose tag is missing
    untagged = words - jnp.sum(kinds == _TAG, -1)
    next_word = words - untagged + 1
    # The fewest tokens to the end, EOS included.
    needed = untagged * self.per_word - numbered + depth + 1
    room = limits[:, None] - position - needed

    kind, value = self.kind[None, None], self.value[None, None]  # [1, 1, W]
    ids = np.arange(kind.size)[None, None]
    is_next = (kind == _NUMBER) & (value == next_word[..., None])
    # A number beyond the vocabulary is left out.
    awaits_tag = numbered | ~is_next.any(-1)
    # One root: of several words none is at the top, and the root closes after the last.
    awaits_word = (untagged > 0) & ((depth > 0) | (words == 1))
    closes = (depth > 1) | ((depth == 1) & (untagged == 0))
    permitted = [
      (kind == _OPEN, (untagged > 0) & ~numbered & (room >= 2)),  # it must also close
      ((kind == _CLOSE) & (value == label), closes & (last != _OPEN) & ~numbered),
      (is_next, awaits_word & ~numbered),
      (kind == _TAG, awaits_word & awaits_tag),
      (ids == EOS, (untagged == 0) & (depth == 0)),
    ]
    allowed = jnp.zeros((*depth.shape, kind.size), bool)
    for which, now in permitted:
      allowed |= which & now[..., None]
    return jnp.where(allowed, 0.0, -jnp.inf)


def _constraint(vocabularies: Vocabularies) -> Mask:
  """Returns the mask of trees whose words are those of the source's ids."""
  source, mask = vocabularies.source, TreeMask.of(vocabularies.target.pieces())
  # In a vocabulary of whole words, unknown words have the piece UNK.
  starts_word = [piece.startswith(SPACE) for piece in source.pieces()]
  starts_word[UNK] = source.has_whole_tokens
  counts = np.array(starts_word, np.int32)

  def tree_mask(
    tokens: 'jax.Array', position: 'jax.Array', ids: 'jax.Array', limits: 'jax.Array'
  ) -> 'jax.Array':
    import jax.numpy as jnp

    return mask(tokens, position, jnp.asarray(counts)[ids].sum(-1), limits)

  return tree_mask


PARSING = Output(
  name='parsing',
  target=_target,
  source=_source,
  finish=_finish,
  scorer=Scorer(
    has_bleu=False,
    check=lambda tokenized, language: None,
    references=_references,
    score=_score,
    score_lines=_score_lines,
    comparison_lines=lambda outputs, others: evalb.comparison_lines(
      outputs.references, outputs.hypotheses, others
    ),
  ),
  constraint=_constraint,
  section=Section(read_baseline=pcfg.read_baseline, write=_section),
)
TREES = Reader(output=PARSING, readers={'trees': _sources}, learners=words.learners)
