"""Preparations that are stopped, in processes of their own; run by test_unfinished.py.

python stopped.py HOW RAW DATA ...: see the functions below.
"""

import itertools
import json
import os
import pathlib
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable

import toy.corpus
from transformer_jax.data import (
  card,
  encoding,
  held_out,
  preparing,
  readers,
  token_files,
  vocabulary,
)
from transformer_jax.machine import files

# Where a process can be killed: before the n-th call of a function.
PLACES = {
  'begun': (files, 'write', 1),
  'before text': (preparing, '_text', 1),
  'in text': (preparing, 'fault', 150),
  'after text': (files, 'write', 2),
  'in noting the text': (files, 'sync', 4),
  'before learning': (vocabulary, 'train', 1),
  'in learning': (vocabulary.sentencepiece.SentencePieceTrainer, 'train', 1),
  'after learning': (files, 'write', 3),
  'before encoding': (encoding, 'encode', 1),
  'in encoding': (token_files.TokenWriter, 'append', 11),
  'between sides': (token_files.TokenWriter, 'append', 12),
  'in syncing': (token_files.TokenWriter, 'sync', 6),
  'after encoding': (held_out, 'write', 1),
  'between dev and test': (held_out, 'write', 2),
  'before the card': (preparing, 'write_card', 1),
  'after the card': (files, 'sync', 20),
  'before the end': (pathlib.Path, 'rename', 2),  # the first is the vocabulary's
  'after the end': (preparing.shutil, 'rmtree', 1),
}
BLOCK, JOURNAL_EVERY = 10, 2


def prepare(raw: pathlib.Path, data_dir: pathlib.Path) -> None:
  corpus = toy.corpus.CORPUS
  preparing.prepare_corpus(corpus, readers.bitexts(corpus, raw, None), data_dir)


def kill_at(owner: object, name: str, call: int) -> None:
  real, calls = getattr(owner, name), itertools.count(1)

  def deadly(*arguments: object, **named: object) -> object:
    if next(calls) == call:
      os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments, **named)

  setattr(owner, name, deadly)


def forked(work: Callable[[], None]) -> int:
  """Starts a process that does something, with nothing on its standard output."""
  process = os.fork()
  if process:
    return process
  os.dup2(2, 1)
  work()
  os._exit(0)


def status(process: int) -> int:
  return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def everywhere(raw: pathlib.Path, data_dir: pathlib.Path) -> None:
  """Kills a process at each place, in DATA/PLACE; prints how they ended."""

  def work(place: str) -> None:
    kill_at(*PLACES[place])
    prepare(raw, data_dir / place)

  print(
    json.dumps({place: status(forked(lambda p=place: work(p))) for place in PLACES})
  )


def at_random(raw: pathlib.Path, data_dir: pathlib.Path) -> None:
  """Kills processes in DATA again and again; prints when the folder was there, whole.

  The first, undisturbed in DATA/whole, tells how long it takes.
  """
  start = time.monotonic()
  assert status(forked(lambda: prepare(raw, data_dir / 'whole'))) == 0
  seconds, rng = time.monotonic() - start, random.Random(0)
  ends, folder = [], data_dir / 'toy'
  for _ in range(12):
    process = forked(lambda: prepare(raw, data_dir))
    time.sleep(rng.uniform(0, 0.7 * seconds))
    os.kill(process, signal.SIGKILL)
    ends.append([status(process), folder.exists()])
    if folder.exists():
      card.verify(folder)
      shutil.rmtree(folder)
      seconds /= 2
  print(json.dumps(ends))


def limited(raw: pathlib.Path, data_dir: pathlib.Path, most: str) -> None:
  """As if the disk were full: no file may have more bytes."""
  resource.setrlimit(resource.RLIMIT_FSIZE, (int(most), resource.RLIM_INFINITY))
  try:
    prepare(raw, data_dir)
  except OSError as error:
    print(json.dumps([error.errno, str(error)]))


def waits(raw: pathlib.Path, data_dir: pathlib.Path) -> None:
  """Says when it has come to learning; goes on when it is told to."""
  real = vocabulary.train

  def train(*arguments: object) -> dict:
    print('learning', flush=True)
    sys.stdin.readline()
    return real(*arguments)

  vocabulary.train = train
  prepare(raw, data_dir)


if __name__ == '__main__':
  encoding.BLOCK, encoding.JOURNAL_EVERY = BLOCK, JOURNAL_EVERY
  os.fsync = lambda file: None  # the machine stays up
  how, raw_dir, prepared_dir, *more = sys.argv[1:]
  ways = {f.__name__: f for f in (everywhere, at_random, limited, waits)}
  ways[how](pathlib.Path(raw_dir), pathlib.Path(prepared_dir), *more)
