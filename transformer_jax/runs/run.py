"""A run's folder: config, vocabulary, metrics, checkpoints, results; no JAX."""

import contextlib
import json
import os
import pathlib
import shutil
import socket
from collections.abc import Callable, Iterator
from typing import NamedTuple

import ml_collections

from transformer_jax.data import card
from transformer_jax.data.corpus import asked
from transformer_jax.data.vocabulary import Vocabulary
from transformer_jax.machine import files

# What numbers of a config may be, in words, and which those are.
SIZES = 'N', 'd_model', 'd_ff', 'h', 'd_k', 'd_v', 'max_positions'
COUNTS = ('slices', 'tokens_per_batch', 'max_shapes', 'train_steps', 'warmup_steps')
COUNTS += ('checkpoint_every_steps', 'keep_checkpoints', 'average_last')
COUNTS += ('log_every_steps', 'beam', 'decode_tokens')
COUNTS += tuple(f'model.{size}' for size in SIZES)
RANGES: dict[str, tuple[Callable[[float], bool], tuple[str, ...]]] = {
  '1 or more': (lambda x: x >= 1, COUNTS),
  '0 or more': (lambda x: x >= 0, ('seed', 'extra_length')),
  'more than 0': (lambda x: x > 0, ('rate_factor', 'adam_epsilon')),
  'from 0 to less than 1': (
    lambda x: 0 <= x < 1,
    ('model.P_drop', 'epsilon_ls', 'adam_b1', 'adam_b2'),
  ),
}

# Without these nothing can be translated or scored.
NEEDED = {'task', 'corpus', 'source_language', 'target_language', 'tokenized', 'model'}
NEEDED |= {'beam', 'alpha', 'extra_length', 'decode_tokens', 'decode_dtype', 'dtype'}
NEEDED |= {'average_last', 'checkpoint_every_steps', 'slices', 'seed'}


class Busy(RuntimeError):
  """Another process trains in this folder."""


class Run(NamedTuple):
  """`workdir/` with config.json, card.json, vocabulary.model, checkpoints/ ..."""

  workdir: pathlib.Path

  @property
  def checkpoints(self) -> pathlib.Path:
    return self.workdir / 'checkpoints'

  @property
  def metrics(self) -> pathlib.Path:
    return self.workdir / 'metrics.jsonl'

  def translations(self, result: dict, lowercase: bool) -> pathlib.Path:
    """Where the translations behind a result stand, by whether case was ignored."""
    name = f'{result["split"]}.step-{result["step"]}.average-{len(result["averaged"])}'
    name += f'.beam-{result["beam"]}.alpha-{result["alpha"]}'
    name += '.lowercase.txt' if lowercase else '.txt'
    return self.workdir / 'translations' / name

  def config(self) -> ml_collections.ConfigDict:
    """The config the run was started with, locked; ValueError if it is not whole.

    Runs that were started before configs had a `row` are read with a row of None.
    """
    kept = {'row': None} | self._kept()
    if missing := ', '.join(sorted(NEEDED - kept.keys())):
      raise ValueError(
        f'{self.workdir}/config.json lacks {missing}: another version of this code '
        'wrote it. Take that version, or write in what configs/base.py has'
      )
    return ml_collections.ConfigDict(kept).lock()

  def _kept(self) -> dict:
    path = self.workdir / 'config.json'
    if not path.is_file():
      raise FileNotFoundError(f'{path}: not there; is {self.workdir} a run?')
    try:
      return json.loads(path.read_bytes())
    except ValueError as error:
      raise ValueError(f'{path}: damaged ({error})') from error

  def vocabulary(self) -> Vocabulary:
    """The vocabulary the run was started with; ValueError if it is another now."""
    path = self.workdir / 'vocabulary.model'
    found = files.sha256(path)
    listed = card.read_card(self.workdir)['vocabulary']['sha256']
    if found != listed:
      raise ValueError(
        f"{path} ({found[:12]}) is not the run's vocabulary ({listed[:12]} in "
        f'{card.CARD}): put back the one of the corpus the run was trained on'
      )
    return Vocabulary(path)

  def records(self) -> list[dict]:
    """What metrics.jsonl holds; none before the first step."""
    return read_records(self.metrics)

  def training_so_far(self, step: int) -> dict:
    """Target tokens, seconds and devices of the training steps up to `step`."""
    steps = [r for r in self.records() if 'target_tokens' in r and r['step'] <= step]
    devices = dict.fromkeys(r['device'] if 'device' in r else None for r in steps)
    known = devices and None not in devices
    return {
      'target_tokens_seen': sum(r['target_tokens'] for r in steps),
      'wall_seconds': round(sum(r['seconds'] for r in steps), 1),
      'training_device': '; '.join(devices) if known else None,
    }

  @contextlib.contextmanager
  def locked(self) -> Iterator[None]:
    """Keeps all other trainers out of the folder, which is made if it is not there.

    The system lifts the lock when the process ends, however it does. On NFS the server
    keeps it, for all hosts that mount it with locks (local_lock=none, the default).

    Raises:
      Busy: another process has it; it is named.
    """
    self.workdir.mkdir(parents=True, exist_ok=True)
    with (self.workdir / 'lock').open('a+') as file:
      clash = lambda e: print(f'{file.name}: no lock ({e}); two trainers would clash')
      if not files.claim_lock(file, clash):
        file.seek(0)
        raise Busy(
          f'{self.workdir} is in use by {file.read().strip()}: wait for it, stop it, '
          f'or give another --workdir'
        )
      file.truncate(0)
      file.write(f'process {os.getpid()} on {socket.gethostname()}\n')
      file.flush()
      yield

  @classmethod
  def open(
    cls, workdir: pathlib.Path, config: ml_collections.ConfigDict, corpus: pathlib.Path
  ) -> 'Run':
    """Makes the folder, or makes sure that it is this config's and this corpus's run.

    Raises:
      ValueError: the folder holds a run of another config or another vocabulary, or
        results of steps that are no longer there, or the config says what none can be.
    """
    run = cls(workdir)
    given = json.loads(config.to_json_best_effort())
    check_numbers(given)
    card.check_asked(corpus, asked(config))
    path = workdir / 'config.json'
    if path.is_file():
      run.check_same(given)
      run._check_steps(given['train_steps'])
    else:
      workdir.mkdir(parents=True, exist_ok=True)
      shutil.copy(corpus / 'vocabulary.model', workdir / 'vocabulary.model')
      shutil.copy(corpus / card.CARD, workdir / card.CARD)
    run.check_vocabulary(corpus)
    files.write(path, json.dumps(given, indent=1) + '\n')
    return run

  def check_same(self, given: dict) -> None:
    """Raises ValueError if the folder holds a run of another config than `given`.

    A run may be prolonged, and one from before configs had a `row` is given it;
    anything else that differs makes it another run.
    """
    kept = {'row': given['row']} | self._kept()
    differ = sorted(_differences(kept, given) - {'train_steps'})
    if differ:
      raise ValueError(
        f"{self.workdir} holds another config's run; these differ: "
        f'{", ".join(differ)}. Give another --workdir, or the config in '
        f'{self.workdir}/config.json'
      )

  def _check_steps(self, train_steps: int) -> None:
    """Raises ValueError if more were made, or results are of some that are gone."""
    made = max((record['step'] for record in self.records()), default=0)
    if made > train_steps:
      raise ValueError(
        f'{self.workdir} has {made} steps: train_steps={train_steps} would be another '
        'run. Give another --workdir, or --config.train_steps of as many or more'
      )
    results = self.workdir / 'translations'
    if results.is_dir() and not (
      self.checkpoints.is_dir() and any(self.checkpoints.iterdir())
    ):
      raise ValueError(
        f'{results} are of checkpoints that are gone: move them elsewhere to train '
        'from the first step on, or give another --workdir'
      )

  def check_vocabulary(self, corpus: pathlib.Path) -> None:
    """Raises ValueError unless run and corpus share their vocabulary."""
    ours = self.vocabulary().sha256
    theirs = Vocabulary(corpus / 'vocabulary.model').sha256
    if ours != theirs:
      raise ValueError(
        f"{corpus} was encoded with another vocabulary ({theirs[:12]}) than the run's "
        f'({ours[:12]}): use the corpus the run was trained on'
      )

  def check_held_out(self, corpus: pathlib.Path, split: str) -> None:
    """Raises ValueError unless dev or test are as they were when the run was begun."""
    listed = card.read_card(self.workdir)['sha256']
    for side in ('source', 'target'):
      name = f'{split}.{side}.txt'
      if files.sha256(corpus / name) != listed[name]:
        raise ValueError(
          f'{corpus / name} is not that of {self.workdir / card.CARD}: use the '
          'corpus the run was trained on'
        )


def check_numbers(given: dict) -> None:
  """Raises ValueError for a number of a config that no run can have."""
  flat = given | {f'model.{key}': value for key, value in given['model'].items()}
  for words, (holds, keys) in RANGES.items():
    for key in keys:
      if not holds(flat[key]):
        raise ValueError(f'{key}={flat[key]}: {words} (--config.{key})')
  keep, average = given['keep_checkpoints'], given['average_last']
  if keep < average:
    raise ValueError(
      f'keep_checkpoints={keep} are too few to average the last {average} '
      '(--config.keep_checkpoints, --config.average_last)'
    )


def read_records(metrics: pathlib.Path) -> list[dict]:
  """What a metrics.jsonl holds, if it is there; not a last line that is not whole.

  Such a line was being written when its process was killed, or is at this moment.

  Raises:
    ValueError: a line is no record of a step; it is named.
  """
  if not metrics.is_file():
    return []
  found = []
  for number, line in enumerate(metrics.read_text().splitlines(), 1):
    if line.endswith('}'):
      try:
        record = json.loads(line)
      except (ValueError, RecursionError) as error:
        raise ValueError(f'{metrics}, line {number}: {error}') from error
      if not isinstance(record, dict) or not isinstance(record.get('step'), int):
        raise ValueError(f'{metrics}, line {number}: no record of a step')
      found.append(record)
  return found


def _differences(a: dict, b: dict, prefix: str = '') -> set[str]:
  """Dotted names of the entries in which two nested dictionaries differ."""
  found = set()
  for key in a.keys() | b.keys():
    name = f'{prefix}{key}'
    if isinstance(a.get(key), dict) and isinstance(b.get(key), dict):
      found |= _differences(a[key], b[key], f'{name}.')
    elif key not in a or key not in b or a[key] != b[key]:
      found.add(name)
  return found
