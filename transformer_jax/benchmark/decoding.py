"""Decoding: text in to text out, with lengths forced so that all do equal work.

An untrained model translates. It is made so that EOS never wins (see without_eos), and
every sentence may have as many target tokens as its source has: so many it gets, as it
would about get from a trained model.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import ml_collections
import numpy as np

from transformer_jax.benchmark import fixed
from transformer_jax.benchmark.interleave import OURS, columns, interleave
from transformer_jax.data.vocabulary import EOS, Vocabulary
from transformer_jax.decoding import translate
from transformer_jax.machine import platform
from transformer_jax.model import build

Tree = Any


class Numbers:
  """Ids as the text they stand in for, where there is no vocabulary: '17 4 802'."""

  def encode(self, sentences: Sequence[str]) -> list[list[int]]:
    return [[int(word) for word in sentence.split()] for sentence in sentences]

  def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
    return [' '.join(map(str, sequence)) for sequence in ids]


class Rival(Protocol):
  """Another program's untrained model of our sizes, in which EOS never wins either."""

  def translate(
    self, sources: Sequence[Sequence[int]], beam: int, length: int
  ) -> list[list[int]]:
    """Of ids with EOS, one batch; the best of `beam` hypotheses, `length` ids each."""


def sentences(count: int, length: int, vocab_size: int) -> list[str]:
  """Random words; with EOS each has `length` tokens."""
  words = fixed.ids(count, length, vocab_size, seed=0)
  return Numbers().decode(words)


def without_eos(params: Tree) -> Tree:
  """The same untrained parameters, but for EOS, which no search will ever choose.

  The last norm's bias puts a constant, 2 sqrt(d_model), on the first coordinate, in
  which EOS alone has an embedding, -1. The norm's own output there is sqrt(d_model) at
  most, so that EOS's logit is below -sqrt(d_model); the other words' do not change but
  for that coordinate.
  """
  embedding = np.array(params['embedding'])
  d_model = embedding.shape[1]
  embedding[:, 0], embedding[EOS] = 0.0, 0.0
  embedding[EOS, 0] = -1.0
  decoder = dict(params['decoder'])
  last = max(decoder)
  norm = decoder[last]['feed_forward_norm']['norm']
  bias = np.array(norm['bias'])
  bias[0] = 2 * d_model**0.5
  changed = {'feed_forward_norm': {'norm': norm | {'bias': bias}}}
  decoder[last] = decoder[last] | changed
  return params | {'embedding': embedding, 'decoder': decoder}


class Ours:
  """The Translator as scripts.translate has it, with forced lengths.

  Args:
    rows: of a batch of sentences of `length` tokens; longer ones come in fewer rows.
  """

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    vocabulary: Vocabulary | Numbers,
    beam: int,
    rows: int,
    length: int,
  ):
    config = config.copy_and_resolve_references()
    config.update({'beam': beam, 'extra_length': 0})
    config.decode_tokens = decode_tokens(rows, length)
    _, params = build.transformer(config)
    self.translator = translate.Translator(config, vocabulary, without_eos(params))

  def __call__(self, texts: Sequence[str]) -> list[str]:
    """The best translation of each."""
    return [found[0].text for found in self.translator.translate(texts)]


def bucket(length: int) -> int:
  return min(n for n in translate.SOURCE_LENGTHS if n >= length)


def decode_tokens(rows: int, length: int) -> int:
  """The config's key, for so many rows of sentences of `length` tokens."""
  return rows * bucket(length)


def through(
  rival: Rival, vocabulary: Vocabulary | Numbers, beam: int, tokens: int
) -> Callable[[Sequence[str]], list[str]]:
  """A rival from text to text: sorted and batched as our Translator does.

  Args:
    tokens: decode_tokens().
  """

  def run(texts: Sequence[str]) -> list[str]:
    ids = [[*words, EOS] for words in vocabulary.encode(texts)]
    found: list[list[int]] = [[]] * len(ids)
    order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
    while order:
      longest = len(ids[order[0]])
      rows = max(1, tokens // bucket(longest))
      chosen, order = order[:rows], order[rows:]
      given = [ids[i] for i in chosen]
      for i, words in zip(chosen, rival.translate(given, beam, longest), strict=True):
        found[i] = words[: len(ids[i])]
    return vocabulary.decode(found)

  return run


def measure(
  config: ml_collections.ConfigDict,
  vocabulary: Vocabulary | Numbers,
  texts: Sequence[str],
  rivals: Mapping[str, Rival],
  *,
  beams: Sequence[int],
  rows: Sequence[int],
  rounds: int,
) -> dict:
  """All texts for each beam and number of rows, then one alone; one object for JSON.

  Raises:
    ValueError: a text is longer than what we would translate whole.
  """
  lengths = [len(words) + 1 for words in vocabulary.encode(texts)]
  most = translate.longest_source(config)
  if max(lengths) > most:
    raise ValueError(
      f'sentence {lengths.index(max(lengths)) + 1} has {max(lengths)} tokens: {most} '
      'are the most that are translated uncut (--length, --text)'
    )
  usual = round(statistics.median(lengths))
  alone = [texts[lengths.index(min(lengths, key=lambda n: abs(n - usual)))]]
  runs = []
  for beam in beams:
    of = lambda texts, count, beam=beam: _run(
      config, vocabulary, texts, rivals, beam, count, usual, rounds
    )
    runs += [of(texts, count) for count in rows]
    runs.append(of(alone, 1) | {'latency': True})
  return {
    'dtype': platform.decoding_dtype(config.decode_dtype).name,
    'forced_lengths': 'as many target tokens as source tokens, EOS counted',
    'sentences': len(texts),
    'target_tokens': sum(lengths),
    'median_length': usual,
    'runs': runs,
  }


def _run(
  config: ml_collections.ConfigDict,
  vocabulary: Vocabulary | Numbers,
  texts: Sequence[str],
  rivals: Mapping[str, Rival],
  beam: int,
  rows: int,
  length: int,
  rounds: int,
) -> dict:
  contestants = {OURS: Ours(config, vocabulary, beam, rows, length)}
  tokens = decode_tokens(rows, length)
  for name, rival in rivals.items():
    contestants[name] = through(rival, vocabulary, beam, tokens)
  for program in contestants.values():  # compiles
    program(texts)
  timed = {name: lambda _, p=p: p(texts) for name, p in contestants.items()}
  seconds = interleave(timed, rounds)
  count = sum(len(words) + 1 for words in vocabulary.encode(texts))
  work = {'sentences': [len(texts)] * rounds, 'target_tokens': [count] * rounds}
  return {
    'beam': beam,
    'rows': rows,
    'sentences': len(texts),
    'columns': columns(seconds, work),
  }
