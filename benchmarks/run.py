"""What scripts.benchmark does: one measurement of a config, as one object for JSON."""

import importlib.metadata
import json
import os
import pathlib
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import ml_collections

from benchmarks import decoding, rivals, training, tries
from benchmarks.timing import OURS
from transformer_jax import config as configs
from transformer_jax.data import text
from transformer_jax.data.corpus import Corpus, read_split
from transformer_jax.decoding.translate import split_lines
from transformer_jax.machine import platform
from transformer_jax.machine.errors import UserError
from transformer_jax.prepare import prepare
from transformer_jax.tasks import reader_of
from transformer_jax.training.trainer import Trainer

ROWS = (16, 64)  # in a batch of decoding, by default
Config = ml_collections.ConfigDict
Folders = Sequence[pathlib.Path | None]  # data_dir, raw_dir, tfds_data_dir

PACKAGES = ('jax', 'jaxlib', 'flax', 'optax', 'numpy', 'sentencepiece')
PACKAGES_OF_RIVALS = ('torch', 'transformers', 'ctranslate2')
SETTINGS = ('GLIBC_TUNABLES', 'XLA_FLAGS', 'JAX_PLATFORMS', 'JAX_NUM_CPU_DEVICES')
SETTINGS += ('OMP_NUM_THREADS', 'CT2_USE_MKL', 'XLA_PYTHON_CLIENT_PREALLOCATE')


class Options(NamedTuple):
  """What to time, and for how long.

  Attributes:
    steps: about how many updates are timed: a round has steps / repeats of them,
      rounded down, but at least one.
    repeats: the number of rounds.
    rows: sentences in a batch; None means the corpus's batches in training and ROWS in
      decoding.
    length: tokens of a sentence, where the sentences are random.
    sentences: the number of random sentences to decode.
    text: a file of sentences to decode instead.
    beams: beams to decode with.
    rivals: see rivals.load().
    kernels: whether training is also timed with kernels=plain, as program `plain`.
    tries: names of tries.TRIES. Training is also timed with each of them; its start
      is not timed then.
  """

  steps: int
  repeats: int
  rows: list[int] | None
  length: int
  sentences: int
  text: pathlib.Path | None
  beams: list[int]
  rivals: list[str]
  kernels: bool
  tries: list[str]


def measure(what: str, config: Config, options: Options, folders: Folders) -> dict:
  """Measures 'training' or 'decoding'; lines() shows the result.

  Args:
    folders: what prepare.ensure() takes, if a corpus is needed.

  Raises:
    UserError: what the options say cannot be measured.
  """
  if options.rivals:  # JAX would take most of a GPU's memory, which they need
    os.environ.setdefault('XLA_PYTHON_CLIENT_PREALLOCATE', 'false')
  result = MEASUREMENTS[what](config, options, folders)
  return {
    'what': what,
    'config': config.data.name,
    'model': config.model.to_dict(),
    **result,
    'machine': describe_machine(),
  }


def _training(config: Config, options: Options, folders: Folders) -> dict:
  rivals.check(options.rivals, 'training', config)
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    if options.rows is None:
      corpus = prepare.ensure(config, reader_of(config), *folders)
    elif len(options.rows) > 1:
      raise UserError('--rows: training takes one number')
    else:
      corpus = folder
      config = training.write_corpus(config, *options.rows, options.length, corpus)
    # Other processes; they come before this one occupies the devices.
    start = None if options.tries else training.time_start(config, corpus, folder)
    jax.config.update('jax_compilation_cache_dir', str(folder / 'compiled'))
    platform.start(config.slices)
    if options.kernels and jax.default_backend() != 'gpu':
      raise UserError('--kernels: only NVIDIA GPUs have them')
    others = rivals.load(options.rivals, 'training', config)
    train = read_split(corpus, 'train')
    if options.kernels:
      plain = config.copy_and_resolve_references()
      plain.kernels = 'plain'
      others['plain'] = training.Ours(Trainer(plain, train))
    for name in options.tries:
      try:
        with tries.switched_on(name):
          others[name] = training.Ours(Trainer(config, train))
      except jax.errors.JaxRuntimeError as error:  # XLA may refuse one; others go on
        print(f'--try={name} is left out: {error}', file=sys.stderr)
    each = max(1, options.steps // options.repeats)
    result = training.measure(config, corpus, others, each, options.repeats)
  return result | {'start': start}


def _decoding(config: Config, options: Options, folders: Folders) -> dict:
  rivals.check(options.rivals, 'decoding', config)
  if config.task != 'translation':
    raise UserError(f'--what=decoding: translation is timed, not {config.task}')
  if options.text is None:
    words, size = decoding.NUMBERS, config.model.vocab_size
    texts = decoding.random_sentences(options.sentences, options.length, size)
  else:
    texts = [line for line in split_lines(text.read_bytes(options.text)) if line]
    if not texts:
      raise UserError(f'--text={options.text}: no sentence is in it')
    folder = prepare.ensure(config, reader_of(config), *folders)
    words = Corpus.open(folder).vocabularies()
  platform.start(config.slices)
  result = decoding.measure(
    config,
    words,
    texts,
    rivals.load(options.rivals, 'decoding', config),
    beams=options.beams,
    rows=options.rows or ROWS,
    rounds=options.repeats,
  )
  return result | {'text': options.text and str(options.text)}


MEASUREMENTS = {'training': _training, 'decoding': _decoding}


def describe_machine() -> dict:
  """Returns hardware, libraries and settings of a measurement: one object for JSON."""
  model, flags = platform.processor()
  installed = {d.name.lower() for d in importlib.metadata.distributions() if d.name}
  others = tuple(name for name in PACKAGES_OF_RIVALS if name in installed)
  return {
    'device': platform.describe_device(),
    'processor': model,
    'flags': flags,
    'threads': platform.cores(),  # of each program that was timed
    'load': list(os.getloadavg()),  # over 1, 5 and 15 minutes, this program included
    'versions': platform.versions(PACKAGES + others),
    'commit': platform.commit(),
    'environment': {k: os.environ[k] for k in SETTINGS if k in os.environ},
  }


def read_stored(path: pathlib.Path, what: str, config: Config) -> dict[str, Any]:
  """Returns a stored measurement; raises UserError if it is of another model."""
  try:
    stored = json.loads(path.read_text())
    model = configs.complete(stored['model'], configs.Model)
    measured = stored['what'], model
  except (ValueError, KeyError, TypeError) as error:
    raise UserError(f'--against={path}: no result of scripts.benchmark') from error
  if measured != (what, config.model.to_dict()):
    raise UserError(
      f'--against={path}: it measured {stored["what"]} of {stored["config"]}; give '
      f'its --what and --config, or a file with {what} of this model'
    )
  return stored


def comparison(result: Mapping[str, Any], stored: Mapping[str, Any]) -> Iterator[str]:
  """Yields our rates over those of a stored measurement, and what else differs."""
  result = json.loads(json.dumps(result))  # makes lists of tuples, as in the file
  here, there = result['machine'], stored['machine']
  yield f'against commit {(there["commit"] or "unknown")[:8]}:'
  for ours, theirs, keys in (
    (result, stored, ('dtype', 'shapes', 'text')),
    (here, there, ('device', 'processor', 'versions')),
  ):
    for key in keys:
      if ours.get(key) != theirs.get(key):
        yield f'  not the same {key}: {ours.get(key)} against {theirs.get(key)}'
  before = {_timed(run): run['columns'][OURS] for run in stored.get('runs', [stored])}
  for run in result.get('runs', [result]):
    how = 'beam {}, rows of {}, {} sentences: '.format(*_timed(run)) * ('beam' in run)
    if (old := before.get(_timed(run))) is None:
      yield f'  {how}not measured then'
      continue
    rates = [x['target_tokens_per_second'] for x in (run['columns'][OURS], old)]
    yield f'  {how}{rates[0] / rates[1]:.3f} of its {rates[1]:,.0f} target tokens/s'


def _timed(run: Mapping[str, Any]) -> tuple[int | None, ...]:
  return tuple(run.get(key) for key in ('beam', 'rows', 'sentences'))


def lines(result: Mapping) -> Iterator[str]:
  """Yields the few lines of text that say what measure() measured."""
  if result['what'] == 'training':
    yield from _training_lines(result)
  else:
    yield f'our products take {result["dtype"]}'
    for run in result['runs']:
      rows = 'alone' if 'latency' in run else f'rows of {run["rows"]}'
      length = result['median_length']
      yield ''
      yield f'beam {run["beam"]}, {run["sentences"]} of {length} tokens, {rows}'
      yield from _column_lines(run['columns'], 'sentences_per_second', 'sentences/s')


def _column_lines(columns: Mapping[str, Mapping], of: str, unit: str) -> Iterator[str]:
  """Yields each program's rates, and how many times as fast ours is."""
  yield f'{"":22} {"target tokens/s":>15} {unit:>12} {"we are":>7}'
  for name, column in columns.items():
    rates = f'{column["target_tokens_per_second"]:15,.0f} {column[of]:12,.4g}'
    ratio = '' if name == OURS else f'{column["ratio"]:6.2f}x'
    yield f'{name:22} {rates} {ratio}'.rstrip()


def _training_lines(result: Mapping) -> Iterator[str]:
  yield from _column_lines(result['columns'], 'steps_per_second', 'steps/s')
  start = result['start']
  yield ''
  products = result['matrix_products']
  yield (
    f'model FLOPs utilisation {result["model_flops_utilisation"]:.1%} of '
    f'{products["flops_per_second"] / 1e12:.3g} TFLOP/s ({products["dtype"]})'
  )
  if start is None:
    return
  cold, warm = start['cold'], start['warm']
  yield (
    f'{len(result["shapes"])} shapes compiled in {cold["compile_seconds"]:.1f} s, '
    f'{warm["compile_seconds"]:.1f} s when kept; first step after '
    f'{cold["first_step_seconds"]:.1f} s, {warm["first_step_seconds"]:.1f} s'
  )
  yield f'{warm["peak_bytes"] / 1e9:.2f} GB of memory ({warm["memory_of"]})'
