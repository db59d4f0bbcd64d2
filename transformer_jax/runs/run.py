"""A run's folder: config, vocabulary, metrics, checkpoints, results. Imports no JAX."""

import contextlib
import math
import os
import pathlib
import re
import socket
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import ml_collections

from transformer_jax import config as configs
from transformer_jax.data import vocabulary
from transformer_jax.data.corpus import CARD, Corpus, read_card, rename_if_changed
from transformer_jax.data.vocabulary import Vocabularies
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.records import Record, best_step, read_records

MANIFEST = 'manifest.json'  # a folder STEP that has one is a finished checkpoint
ARRAYS = 'parameters.safetensors'  # in params/, where an export wrote the checkpoint


# A run that is resumed may change these. They decide what is kept and logged, and when
# training ends. They change no parameter, but `kernels` changes its rounding.
# best_by may not change: the best step by another measure may have no checkpoint.
RESUMABLE = {*configs.keys_of(configs.Tag.BOOKKEEPING), 'train_steps'} - {
  'row',
  'init_from.run',
  'best_by',
}


class Run(NamedTuple):
  """`workdir/` with config.json, card.json, vocabulary.model, checkpoints/ ..."""

  workdir: pathlib.Path

  @property
  def checkpoints(self) -> pathlib.Path:
    """Returns the folder of the checkpoints, which are named by their steps."""
    return self.workdir / 'checkpoints'

  @property
  def is_started(self) -> bool:
    """Returns True if it has a config and a step; before, the config may change."""
    if not (self.workdir / 'config.json').is_file():
      return False
    recorded = self.metrics.is_file() and self.metrics.stat().st_size > 0
    return recorded or bool(folder_steps(self.checkpoints))

  @property
  def metrics(self) -> pathlib.Path:
    """Returns the file of what training measures."""
    return self.workdir / 'metrics.jsonl'

  def translations(
    self, split: str, step: int, averaged: int, beam: int, alpha: float
  ) -> pathlib.Path:
    """Returns the file of a result's translations.

    `averaged` is the number of checkpoints; `step` is the last of them.
    """
    name = f'{split}.step-{step}.average-{averaged}.beam-{beam}.alpha-{alpha}.txt'
    return self.workdir / 'translations' / name

  def config(self) -> ml_collections.ConfigDict:
    """Returns the run's config, locked; a key that it lacks has its `before` value.

    Raises:
      UserError: the file is missing or damaged, or has a key that
        transformer_jax/config.py does not declare.
    """
    path = self.workdir / 'config.json'
    if not path.is_file():
      raise UserError(
        f'{path}: no such file; is {self.workdir} a run? (scripts.train starts one '
        'with --config=configs/FILE.py)'
      )
    config = configs.complete(files.read_json_object(path))
    try:
      configs.check(config)
    except UserError as error:
      raise UserError(f'{path}: {error}') from error
    return ml_collections.ConfigDict(config).lock()

  def vocabularies(self) -> Vocabularies:
    """Returns the vocabularies the run was started with; UserError if one changed."""
    sums = read_card(self.workdir).sha256
    for name in vocabulary.FILES & sums.keys():
      path = self.workdir / name
      if (actual := files.sha256(path)) != sums[name]:
        raise UserError(
          f"{path} ({actual[:12]}) is not the run's vocabulary ({sums[name][:12]} in "
          f'{CARD}): put back the one of the corpus the run was trained on'
        )
    return vocabulary.read(self.workdir, sums)

  def records(self) -> list[Record]:
    """Returns the records of metrics.jsonl; none before the first step."""
    return read_records(self.metrics)

  def dev_nats(self, step: int) -> float:
    """Returns -log P of a piece of dev's references, as last measured up to `step`.

    It is infinite if none was measured.
    """
    records = (record for record in self.records() if record['step'] <= step)
    measured = (record.get('dev_perplexity') for record in records)
    dev = [perplexity for perplexity in measured if perplexity]
    return math.log(dev[-1]) if dev else math.inf

  def newest_saved(self) -> int:
    """Returns the newest step whose checkpoint was finished, by metrics.jsonl, or 0."""
    return max((r['step'] for r in self.records() if 'saved' in r), default=0)

  def best_step(self) -> int:
    """Returns the step of the checkpoint that was best on dev, by the config's best_by.

    Raises:
      UserError: the config keeps none, or nothing was measured yet.
    """
    by = self.config().best_by
    if (step := best_step(self.records(), by)) is None:
      why = f'no dev {by} was measured yet'
      if not by:
        why = 'it keeps no best checkpoint (train with --config.best_by=bleu)'
      raise UserError(f'{self.workdir}: {why}; give the number of a step')
    return step

  def training_so_far(self, step: int) -> dict[str, Any]:
    """Returns tokens, seconds, devices and commits of training up to `step`.

    They are four entries of result.json. training_device and training_commit name all
    that differ, and are None where a step's was not recorded.
    """
    steps = [r for r in self.records() if 'target_tokens' in r and r['step'] <= step]

    def all_of(key: str) -> str | None:
      names: dict[Any, None] = dict.fromkeys(r.get(key) for r in steps)
      return '; '.join(names) if names and None not in names else None

    return {
      'target_tokens_seen': sum(r['target_tokens'] for r in steps),
      'wall_seconds': round(sum(r['seconds'] for r in steps), 1),
      'training_device': all_of('device'),
      'training_commit': all_of('commit'),
    }

  @contextlib.contextmanager
  def locked(self) -> Iterator[None]:
    """Creates the folder if it is missing, and keeps all other trainers out of it.

    On NFS, the server holds the lock for all hosts (with local_lock=none, the default).

    Raises:
      UserError: another process holds the lock; the message names it.
    """
    self.workdir.mkdir(parents=True, exist_ok=True)
    with (self.workdir / 'lock').open('a+') as file:
      if not files.lock(file):
        file.seek(0)
        raise UserError(
          f'{self.workdir} is in use by {file.read().strip()}: wait for it, stop it, '
          f'or give another --workdir'
        )
      file.truncate(0)
      file.write(f'process {os.getpid()} on {socket.gethostname()}\n')
      file.flush()
      yield

  @classmethod
  def open(
    cls, workdir: pathlib.Path, config: ml_collections.ConfigDict, corpus: Corpus
  ) -> 'Run':
    """Creates the folder, or checks that it holds a run of this config and corpus.

    Raises:
      UserError: the folder holds a run of another config or corpus, or one whose
        checkpoints are gone, or a number of the config is impossible.
    """
    run, settings = cls(workdir), configs.as_json(config)
    run.check_config(settings)
    corpus.check_settings(config)
    run._check_checkpoints()
    if not run.is_started:
      workdir.mkdir(parents=True, exist_ok=True)
      corpus.copy_description(workdir)
    run.vocabularies()
    run._check_identity(corpus)
    files.write_json(workdir / 'config.json', settings)
    return run

  def check_config(self, settings: dict[str, Any]) -> None:
    """Raises UserError if the run can neither start nor go on with these settings.

    If it is started, they may differ from its settings in RESUMABLE alone.
    """
    configs.check(settings)
    if exported_steps(self.checkpoints):
      raise UserError(
        f'{self.workdir} is an exported run, without the state of the optimizer: give '
        f'--init_from={self.workdir} and another --workdir'
      )
    if not self.is_started:
      return
    stored = self.config().to_dict()
    # Scores of other sentences do not tell which checkpoint is the best.
    fixed = {'bleu_sentences'} if stored['best_by'] == 'bleu' else set()
    resumable = RESUMABLE - fixed
    if differ := sorted(configs.differences(stored, settings) - resumable):
      raise UserError(
        f"{self.workdir} holds another config's run; these differ: "
        f'{", ".join(differ)}. Give another --workdir, or leave out --config and '
        "--init_from to go on with the run's own"
      )
    last = max((record['step'] for record in self.records()), default=0)
    if last > settings['train_steps']:
      raise UserError(
        f'{self.workdir} has {last} steps: train_steps={settings["train_steps"]} would '
        'be another run. Give another --workdir, or --config.train_steps of as many or '
        'more'
      )

  def changes(self, config: ml_collections.ConfigDict) -> list[str]:
    """Returns a line for each setting that differs from the run's; [] for a new run."""
    if not self.is_started:
      return []
    settings = configs.as_json(config)
    stored, new = configs.flat(self.config().to_dict()), configs.flat(settings)
    differ = sorted(configs.differences(self.config().to_dict(), settings))
    return [f'{key} is now {new[key]!r}, before {stored[key]!r}' for key in differ]

  def _check_checkpoints(self) -> None:
    """Raises UserError if there were checkpoints and all are gone."""
    rest = self.metrics if self.newest_saved() else self.workdir / 'translations'
    if rest.exists() and not folder_steps(self.checkpoints):
      # Trained anew, the run would take `rest` for its own.
      raise UserError(
        f'{self.checkpoints} has no checkpoint, but {rest} tells of some: put them '
        f'back. To train from the first step, move {rest} elsewhere, or give another '
        '--workdir'
      )

  def open_corpus(self, folder: pathlib.Path) -> Corpus:
    """Returns the corpus that the run is trained on; raises UserError for another."""
    if not (folder / CARD).is_file():
      remedy = 'Give --data_dir, or, to evaluate, files: --source and --references'
      if not exported_steps(self.checkpoints):
        remedy += (
          f'; or prepare it by scripts.train --workdir={self.workdir}, which makes no '
          'more steps if the run has all of them'
        )
      raise UserError(f"{folder}: the run's corpus is missing. {remedy}")
    corpus = Corpus.open(folder)
    self._check_identity(corpus)
    return corpus

  def _check_identity(self, corpus: Corpus) -> None:
    ours, theirs = read_card(self.workdir), corpus.card
    if ours.identity != theirs.identity:
      what = 'text' if ours.vocabulary == theirs.vocabulary else 'vocabulary'
      raise UserError(
        f"{corpus.folder} ({theirs.identity[:12]}) has another {what} than the run's "
        f'corpus ({ours.identity[:12]}): put that back (--data_dir), or give another '
        '--workdir'
      )


# Checkpoints


def finished_steps(checkpoints: pathlib.Path) -> list[int]:
  """Returns the steps that have a finished checkpoint, ascending."""
  is_finished = lambda step: (checkpoints / str(step) / MANIFEST).is_file()
  return [*filter(is_finished, folder_steps(checkpoints))]


def folder_steps(checkpoints: pathlib.Path) -> list[int]:
  """Returns the steps that folders are named by, ascending, finished or not."""
  names = os.listdir(checkpoints) if checkpoints.exists() else []
  return sorted(int(name) for name in names if re.fullmatch('[1-9][0-9]*', name))


def exported_steps(checkpoints: pathlib.Path) -> list[int]:
  """Returns the steps whose average an exported run holds; [] for a trained run."""
  newest = checkpoints / str(max(finished_steps(checkpoints), default=0))
  if not (newest / 'params' / ARRAYS).is_file():
    return []
  return files.read_json_object(newest / MANIFEST)['averaged']


def averaged_steps(last: int, every: int, count: int) -> list[int]:
  """Returns the `count` steps to average up to `last`; fewer in a short run.

  All but `last` are multiples of `every`, the steps between two checkpoints. So an
  average spans as many steps in a run that was stopped and resumed as in any other.
  """
  before = (last - 1) // every  # multiples of `every`
  return [n * every for n in range(max(1, before - count + 2), before + 1)] + [last]


def chosen_steps(
  run: Run,
  config: ml_collections.ConfigDict,
  average: int | None,
  last: int | str | None,
) -> list[int]:
  """Returns the steps of the checkpoints to average (section 6.1), ascending.

  Args:
    average: how many; None is what the config says, and 1 where `last` is 'best'.
    last: the last of them; 'best' is run.best_step(), None the newest that was saved.

  Raises:
    UserError: `average` is less than 1, a step has no finished checkpoint, or the run
      is exported, which leaves no choice, and `average` or `last` is given.
  """
  if exported := exported_steps(run.checkpoints):
    if average is not None or last is not None:
      raise UserError(
        f'{run.workdir} is an exported run, which has one average alone, of steps '
        f'{exported}: leave out --average and --step'
      )
    return exported
  if average is None:
    average = 1 if last == 'best' else config.average_last
  if average < 1:
    raise UserError(f'average={average}: give 1 or more (--average)')
  folder, finished = run.checkpoints, finished_steps(run.checkpoints)
  if not finished:
    raise UserError(f'{folder}: no finished checkpoint; train the run first')
  while True:
    newest = run.best_step() if isinstance(last, str) else last
    if newest is None:
      newest = max(*folder_steps(folder), run.newest_saved())
    wanted = averaged_steps(newest, config.checkpoint_every_steps, average)
    missing = [step for step in wanted if step not in finished]
    before, finished = finished, finished_steps(folder)
    if finished == before:  # no training adds and deletes checkpoints just now
      break
  if newest in missing:
    steps = ', '.join(map(str, finished))
    raise UserError(
      f'{folder} has no checkpoint of step {newest}: give --step one of {steps}'
    )
  if missing:
    after = len(wanted) - 1 - wanted.index(missing[-1])
    raise UserError(
      f'{folder} has no checkpoint of step {missing[-1]}, one of the {len(wanted)} to '
      f'average up to step {newest}: give --average={after} '
      f'(training keeps the last keep_checkpoints={config.keep_checkpoints})'
    )
  if len(wanted) < average:
    print(f'averaging {len(wanted)} checkpoints: no more were made', file=sys.stderr)
  if last is None and config.patience:
    best = best_step(run.records(), config.best_by) or newest
    if best < newest:
      hint = f'{run.workdir}: step {best} was the best on dev (--step=best takes it)'
      print(hint, file=sys.stderr)
  return wanted


# Fine-tuning


def start_from(
  config: ml_collections.ConfigDict, parent: pathlib.Path, workdir: pathlib.Path
) -> None:
  """Makes a config start from a checkpoint of a run, with the run's vocabularies.

  A run in `workdir` that already started from `parent` keeps its checkpoint.

  Args:
    parent: RUN for its newest checkpoint, RUN:STEP or RUN:best.

  Raises:
    UserError: `parent` is not a run with this checkpoint, or its task or model is not
      the config's.
  """
  chosen = ''
  if not parent.is_dir() and ':' in str(parent):
    folder, _, chosen = str(parent).rpartition(':')
    parent = pathlib.Path(folder)
  run, resumed = Run(parent), Run(workdir)
  if resumed.is_started and not parent.exists():
    raise UserError(
      f'{parent} is gone, and {workdir} goes on without it: leave out --config and '
      '--init_from'
    )
  plain, before = config.copy_and_resolve_references(), run.config()
  config.model.vocab_size = before.model.vocab_size
  config.model.target_vocab_size = before.model.target_vocab_size
  config.init_from.run = str(parent.resolve())
  sums = (x.sha256 for x in run.vocabularies())
  config.init_from.vocabulary = ' '.join(dict.fromkeys(sums))
  rename_if_changed(config, plain, ())  # another vocabulary encodes its corpus
  if resumed.is_started:
    init_from = resumed.config().init_from
    is_chosen = chosen in ('', 'best', str(init_from.step))
    if init_from.run == config.init_from.run and is_chosen:
      config.init_from.update(step=init_from.step, sha256=init_from.sha256)
      return
  of_model = (configs.values(c.to_dict(), configs.Tag.MODEL) for c in (config, before))
  settings, required = of_model
  if differ := sorted(configs.differences(settings, required)):
    give = ' '.join(f'--config.{name}={required[name]}' for name in differ)
    raise UserError(
      f'{parent} has another task or model ({", ".join(differ)}) than the config: give '
      f'{give}'
    )
  finished = finished_steps(run.checkpoints)
  if not finished:
    raise UserError(
      f'{run.checkpoints}: no finished checkpoint to start from; train it first'
    )
  of_name = {str(step): step for step in finished} | {'': finished[-1]}
  step = run.best_step() if chosen == 'best' else of_name.get(chosen)
  if step not in finished:
    raise UserError(
      f'--init_from={parent}:{chosen}: no such checkpoint; the steps are '
      f'{", ".join(map(str, finished))}'
    )
  config.init_from.step = step
  config.init_from.sha256 = files.sha256(_manifest(run, step))


def find_parent(init_from: ml_collections.ConfigDict) -> tuple[Run, int]:
  """Returns the run and the step that a config's `init_from` names.

  Raises:
    UserError: the checkpoint is missing, or has changed.
  """
  run = Run(pathlib.Path(init_from.run))
  path = _manifest(run, init_from.step)
  if not path.is_file() or files.sha256(path) != init_from.sha256:
    raise UserError(
      f'{path.parent} is missing, or not the checkpoint that this run was to start '
      'from: put it back, or begin a new run (--init_from, another --workdir)'
    )
  return run, init_from.step


def _manifest(run: Run, step: int) -> pathlib.Path:
  return run.checkpoints / str(step) / MANIFEST
