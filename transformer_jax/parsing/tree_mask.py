"""Masks that keep a search to the trees of a sentence (He & Choi 2023).

A parser's output is a sequence of tokens, and few sequences are trees. The mask of a
prefix forbids each next token after which the output could not become a tree of the
sentence's words any more: brackets match, no constituent is empty, each word has one
tag, and the brackets close before the length limit. At least one token is always
permitted, so every hypothesis that ends is a tree. There are no new parameters.

Axes: B sentences, K beams, L longest output, W tokens of the target's vocabulary.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from transformer_jax.data.vocabulary import EOS, SPECIAL
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import trees

_NO_TOKEN, _OPEN, _CLOSE, _NUMBER, _TAG = range(5)
_SPACE = '\u2581'  # SentencePiece's


class TreeMask(NamedTuple):
  """What each token of a vocabulary of trees is: [W] of each.

  Attributes:
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
    """Reads the tokens of a vocabulary, `pieces` by id.

    Raises:
      UserError: the vocabulary is not one of whole tokens.
    """
    names = [piece.removeprefix(_SPACE) for piece in pieces]
    opened, closed = ({n[1:] for n in names if n[:1] == bracket} for bracket in '()')
    labels = sorted((opened & closed) - trees.ROOTS)
    label_ids = {label: i for i, label in enumerate(labels)}
    kind, value = np.zeros((2, len(names)), np.int32)
    for token, (piece, name) in enumerate(zip(pieces, names, strict=True)):
      if token < SPECIAL or not piece.startswith(_SPACE) or not name:
        continue  # special and spare pieces occur in no text
      if name[0] in '()':
        if name[1:] in label_ids:
          kind[token] = _OPEN if name[0] == '(' else _CLOSE
          value[token] = label_ids[name[1:]]
      elif trees.is_number(name):
        kind[token], value[token] = _NUMBER, int(name[1:])
      elif name != trees.TRACE:
        kind[token] = _TAG
    is_token = [piece[0] in f'{_SPACE}<' for piece in pieces]
    if not all(is_token) or not (kind == _TAG).any():
      raise UserError(
        'constrained=True needs a vocabulary of the target alone, whose pieces are the '
        'tokens of trees: prepare it with --config.model.target_vocab_size'
      )
    return cls(kind, value, 2 if (kind == _NUMBER).any() else 1)

  def __call__(
    self,
    tokens: jax.Array,
    position: jax.Array,
    words: jax.Array,
    limits: jax.Array,
  ) -> jax.Array:
    """Returns what is to be added to the next token's logits: 0 or -inf, [B, K, W].

    Args:
      tokens: [B, K, L], the hypotheses so far.
      position: [], how many tokens of them count.
      words: [B], the words of each sentence. If its limit is too short for all of
        them, the tree is of as many of the first as fit.
      limits: [B], the most tokens of an output, EOS included.
    """
    fitting = jnp.maximum(limits - 1, 0) // self.per_word
    words = jnp.minimum(words, fitting)[:, None]
    written = (jnp.arange(tokens.shape[-1]) < position)[None, None]
    kinds = jnp.where(written, jnp.asarray(self.kind)[tokens], _NO_TOKEN)
    values = jnp.asarray(self.value)[tokens]
    depths = jnp.cumsum((kinds == _OPEN).astype(jnp.int32) - (kinds == _CLOSE), -1)
    depth = depths[..., -1]
    # The innermost open bracket: the last one after which the depth is that of now.
    opened = (kinds == _OPEN) & (depths == depth[..., None])
    innermost = _last(opened)
    label = jnp.take_along_axis(values, innermost[..., None], -1)
    last = jnp.take(kinds, jnp.maximum(position - 1, 0), axis=-1)
    numbered = last == _NUMBER  # a number whose tag is missing
    left = words - jnp.sum(kinds == _TAG, -1)
    next_word = words - left + 1
    # The fewest tokens to the end, EOS included.
    needed = left * self.per_word - numbered + depth + 1
    room = limits[:, None] - position - needed

    kind, value = self.kind[None, None], self.value[None, None]  # [1, 1, W]
    ids = np.arange(kind.size)[None, None]
    is_next = (kind == _NUMBER) & (value == next_word[..., None])
    # A number beyond the vocabulary is left out.
    awaits_tag = numbered | ~is_next.any(-1)
    permitted = [
      (kind == _OPEN, (left > 0) & ~numbered & (room >= 2)),  # it must also close
      ((kind == _CLOSE) & (value == label), (depth > 0) & (last != _OPEN) & ~numbered),
      (is_next, (left > 0) & ~numbered),
      (kind == _TAG, (left > 0) & awaits_tag),
      (ids == EOS, (left == 0) & (depth == 0)),
    ]
    allowed = jnp.zeros((*depth.shape, kind.size), bool)
    for which, now in permitted:
      allowed |= which & now[..., None]
    return jnp.where(allowed, 0.0, -jnp.inf)


def _last(marks: jax.Array) -> jax.Array:
  """Returns the index of the last that is true along the last axis; 0 if none is."""
  return jnp.max(jnp.where(marks, jnp.arange(marks.shape[-1])[None, None], 0), -1)
