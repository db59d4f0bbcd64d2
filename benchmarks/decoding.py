"""How fast decoding is, beside other programs: from text to text, at forced lengths.

An untrained model translates. EOS never wins (see without_eos), and a hypothesis may
have as many tokens as its source. So every program generates that many, about as many
as a trained model would.
"""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import ml_collections
import numpy as np
from jaxtyping import PyTree

from benchmarks.timing import OURS, columns, interleave
from benchmarks.training import random_words
from transformer_jax.data.vocabulary import EOS, Vocabularies
from transformer_jax.decoding import translate
from transformer_jax.machine import platform
from transformer_jax.machine.devices import padded_length
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build
from transformer_jax.tasks import output_of

Program = Callable[[Sequence[str]], list[str]]  # from texts to translations


class Numbers:
  """A vocabulary whose text is the ids themselves: '17 4 802'."""

  is_unknown = np.zeros(0, bool)

  def encode(self, sentences: Sequence[str]) -> list[list[int]]:
    return [[int(word) for word in sentence.split()] for sentence in sentences]

  def decode(self, ids: Sequence[Sequence[int]]) -> list[str]:
    return [' '.join(map(str, sequence)) for sequence in ids]


NUMBERS = Vocabularies(Numbers(), Numbers())  # of source and target


class Rival(Protocol):
  """Another program's untrained model of our sizes, in which EOS never wins."""

  def translate(
    self, sources: Sequence[Sequence[int]], beam: int, length: int
  ) -> list[list[int]]:
    """Returns the best hypothesis, of `length` ids, for each source of one batch.

    Args:
      sources: ids, EOS included.
    """


def random_sentences(count: int, length: int, vocab_size: int) -> list[str]:
  """Returns random text for NUMBERS, of `length` tokens a sentence, EOS included."""
  return Numbers().decode(random_words(count, length, vocab_size, seed=0))


def without_eos(params: PyTree) -> PyTree:
  """Changes untrained parameters so that no search will ever choose EOS.

  The last layer norm gets a bias of 2 sqrt(d_model) on the first coordinate, where only
  EOS has an embedding, -1. As the norm's own output there is at most sqrt(d_model), the
  logit of EOS is below -sqrt(d_model). The other words only lose that coordinate.
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
  """Our Translator, with forced lengths.

  Args:
    rows: sentences of `length` tokens in a batch; of longer sentences there are fewer.
  """

  def __init__(
    self,
    config: ml_collections.ConfigDict,
    words: Vocabularies,
    beam: int,
    rows: int,
    length: int,
  ):
    config = config.copy_and_resolve_references()
    config.update({'beam': beam, 'extra_length': 0})
    config.decode_tokens = decode_tokens(rows, length, build.longest_text(config))
    _, params = build.transformer(config)
    self.translator = translate.Translator(
      config, output_of(config), words, without_eos(params)
    )

  def __call__(self, texts: Sequence[str]) -> list[str]:
    """Returns the best translation of each text."""
    return [best.text for (best,) in self.translator.translate(texts, nbest=1)]


def decode_tokens(rows: int, length: int, longest: int) -> int:
  """Returns a config's decode_tokens for `rows` sentences of `length` tokens a batch.

  `longest` is the most that the model takes.
  """
  return rows * padded_length(length, longest)


def from_text(
  rival: Rival, words: Vocabularies, beam: int, tokens: int, longest: int
) -> Program:
  """Returns a rival from text to text, with the batches that our Translator makes.

  Args:
    tokens: the size of a batch, from decode_tokens().
    longest: the most tokens that the model takes.
  """

  def run(texts: Sequence[str]) -> list[str]:
    ids = [[*sentence, EOS] for sentence in words.source.encode(texts)]
    translations: list[list[int]] = [[]] * len(ids)
    order = sorted(range(len(ids)), key=lambda i: -len(ids[i]))
    while order:
      most = len(ids[order[0]])
      rows = max(1, tokens // padded_length(most, longest))
      chosen, order = order[:rows], order[rows:]
      batch = rival.translate([ids[i] for i in chosen], beam, most)
      for i, translation in zip(chosen, batch, strict=True):
        translations[i] = translation[: len(ids[i])]
    return words.target.decode(translations)

  return run


def measure(
  config: ml_collections.ConfigDict,
  words: Vocabularies,
  texts: Sequence[str],
  rivals: Mapping[str, Rival],
  *,
  beams: Sequence[int],
  rows: Sequence[int],
  rounds: int,
) -> dict:
  """Times the texts at each beam and number of rows, and one text alone.

  Returns:
    One object for JSON.

  Raises:
    UserError: a text is longer than what we would translate uncut.
  """
  lengths = [len(ids) + 1 for ids in words.source.encode(texts)]
  longest = build.longest_text(config)
  if max(lengths) > longest:
    number = lengths.index(max(lengths)) + 1
    raise UserError(
      f'sentence {number} has {max(lengths)} tokens: {longest} are the most that are '
      'translated uncut (--length, --text)'
    )
  usual = round(statistics.median(lengths))
  alone = lengths.index(min(lengths, key=lambda n: abs(n - usual)))
  runs = []
  for beam in beams:
    for some, count in [
      *((range(len(texts)), count) for count in rows),
      ([alone], 1),
    ]:
      programs: dict[str, Program] = {OURS: Ours(config, words, beam, count, usual)}
      size = decode_tokens(count, usual, longest)
      for name, rival in rivals.items():
        programs[name] = from_text(rival, words, beam, size, longest)
      tokens = sum(lengths[i] for i in some)
      timed = _time(programs, [texts[i] for i in some], tokens, rounds)
      run = {'beam': beam, 'rows': count, 'sentences': len(some), 'columns': timed}
      runs.append(run)
    runs[-1]['latency'] = True
  return {
    'dtype': platform.decoding_dtype(config.decode_dtype).name,
    'forced_lengths': 'as many target tokens as source tokens, EOS counted',
    'sentences': len(texts),
    'target_tokens': sum(lengths),
    'median_length': usual,
    'runs': runs,
  }


def _time(
  programs: Mapping[str, Program], texts: Sequence[str], tokens: int, rounds: int
) -> dict[str, dict]:
  for program in programs.values():  # warm-up, which compiles
    program(texts)
  calls = {name: lambda _, p=p: p(texts) for name, p in programs.items()}
  work = {'sentences': [len(texts)] * rounds, 'target_tokens': [tokens] * rounds}
  return columns(interleave(calls, rounds), work)
