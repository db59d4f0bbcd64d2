"""What scripts.benchmark does: one measurement of a config, as one object for JSON."""

import os
import pathlib
import sys
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

import jax
import ml_collections

from benchmarks import (
  decoding,
  environment,
  fixed_shape,
  input_pipeline,
  rivals,
  startup,
  training,
)
from transformer_jax.data import card, preparing
from transformer_jax.data.corpus import train_batches
from transformer_jax.decoding import pipe
from transformer_jax.machine import platform
from transformer_jax.machine.environment import cores
from transformer_jax.machine.errors import UserError
from transformer_jax.tasks import task_of

ROWS = (16, 64)  # in a batch of decoding, unless asked otherwise
Config = ml_collections.ConfigDict
Folders = Sequence[pathlib.Path | None]  # data_dir, raw_dir, tfds_data_dir


class Options(NamedTuple):
  """What to time, and for how long.

  Attributes:
    steps: batches of input that are timed; or about so many updates, since a round has
      steps / repeats of them, rounded down, but one at least.
    repeats: the number of rounds.
    rows: sentences in a batch; None means the corpus's batches in training and ROWS in
      decoding.
    length: tokens of a sentence, where the sentences are random.
    sentences: the number of random sentences to decode.
    text: a file of sentences to decode instead.
    beams: beams to decode with.
    rivals: see rivals.load().
  """

  steps: int
  repeats: int
  rows: list[int] | None
  length: int
  sentences: int
  text: pathlib.Path | None
  beams: list[int]
  rivals: list[str]


def measure(what: str, config: Config, options: Options, folders: Folders) -> dict:
  """Measures 'training', 'decoding' or 'input'; summary.lines() tells the result.

  Args:
    folders: what preparing.prepare() takes, if a corpus is needed.

  Raises:
    UserError: what is asked for cannot be measured.
  """
  if options.rivals:  # JAX would take most of a GPU's memory, which they need
    os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  found = MEASUREMENTS[what](config, options, folders)
  return {
    'what': what,
    'config': config.data.name,
    'model': config.model.to_dict(),
    **found,
    'machine': environment.describe(),
  }


def _training(config: Config, options: Options, folders: Folders) -> dict:
  rivals.check(options.rivals, config)
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    if options.rows is None:
      corpus = preparing.prepare(config, task_of(config), *folders)
    elif len(options.rows) > 1:
      raise UserError('--rows: training takes one number')
    else:
      corpus = folder
      config = fixed_shape.write_corpus(config, *options.rows, options.length, corpus)
    cache = folder / 'compiled'
    # Other processes; they come before this one occupies the devices.
    started = startup.measure(_start_command(config, corpus, folder), cache)
    jax.config.update('jax_compilation_cache_dir', str(cache))
    platform.start(config.slices)
    there, absent = rivals.load(options.rivals, 'training', config, len(cores()))
    each = max(1, options.steps // options.repeats)
    found = training.measure(config, corpus, there, each, options.repeats)
  return found | {'start': started, 'absent': absent}


def _start_command(
  config: Config, corpus: pathlib.Path, folder: pathlib.Path
) -> list[str]:
  path = folder / 'config.json'
  path.write_text(config.to_json_best_effort())
  return [sys.executable, '-m', startup.__name__, str(path), str(corpus)]


def _decoding(config: Config, options: Options, folders: Folders) -> dict:
  rivals.check(options.rivals, config)
  if options.text is None:
    words, size = decoding.NUMBERS, config.model.vocab_size
    texts = decoding.random_sentences(options.sentences, options.length, size)
  else:
    texts = [line for line in pipe.split_lines(options.text.read_bytes()) if line]
    if not texts:
      raise UserError(f'--text={options.text}: no sentence is in it')
    words = card.vocabularies(preparing.prepare(config, task_of(config), *folders))
  platform.start(config.slices)
  there, absent = rivals.load(options.rivals, 'decoding', config, len(cores()))
  found = decoding.measure(
    config,
    words,
    texts,
    there,
    beams=options.beams,
    rows=options.rows or ROWS,
    rounds=options.repeats,
  )
  return found | {'text': options.text and str(options.text), 'absent': absent}


def _input(config: Config, options: Options, folders: Folders) -> dict:
  if options.rivals:
    raise UserError('--rivals: no other program makes batches of ours (--what=input)')
  corpus = preparing.prepare(config, task_of(config), *folders)
  return input_pipeline.measure(lambda: train_batches(config, corpus), options.steps)


MEASUREMENTS = {'training': _training, 'decoding': _decoding, 'input': _input}
