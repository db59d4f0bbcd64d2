"""A whole training: from a config, a corpus and a folder to the last checkpoint."""

import contextlib
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import ml_collections
import numpy as np

from transformer_jax.data import batches, card, token_files
from transformer_jax.machine import hosts, platform
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs import run
from transformer_jax.runs.metrics import Patience, best_step
from transformer_jax.training import checkpoint
from transformer_jax.training.compilation import Programs
from transformer_jax.training.log import Log, Silent
from transformer_jax.training.loop import Cadence, Dev, Loop
from transformer_jax.training.perplexity import Perplexity
from transformer_jax.training.trainer import Trainer

Tree = Any


def train(
  config: ml_collections.ConfigDict,
  workdir: pathlib.Path,
  corpus: pathlib.Path,
  interruption: Interruption | None = None,
  bleu: Callable[[Tree], float] | None = None,
) -> None:
  """Trains to config.train_steps, going on from the newest checkpoint in `workdir`.

  The first host alone reads and writes `workdir`. `bleu` measures it on dev, by
  parameters on this host's devices, for configs that ask for it.

  Raises:
    SystemExit: a signal asked it to stop; all is saved.
    UserError: `workdir` is in use, holds another config's run, or cannot be read or
      written, or the training diverges.
  """
  first = hosts.is_first_host()
  folder = run.Run(workdir)
  with contextlib.ExitStack() as stack:
    if first:
      stack.enter_context(folder.locked())
      run.Run.open(workdir, config, corpus)
      checkpoint.tidy(folder.checkpoints)
      print('making the model', file=sys.stderr, flush=True)
    hosts.check_same(config.to_json_best_effort() + card.read_card(corpus).identity)
    trainer = Trainer(config, corpus)
    state = trainer.restore(folder.checkpoints)
    start = int(state.step)
    records = [r for r in folder.records() if r['step'] <= start] if first else []
    unmeasured = _unmeasured(config, start, records)
    ended = _ended(config, start, records)
    if ended and not unmeasured:
      if first:
        print(f'{workdir} has {ended}: nothing to do')
      return
    log = Log(folder, start, config.train_steps) if first else Silent()
    stack.enter_context(log)
    log.say(f'training on {platform.describe_device()}')
    log.say(mean_batch(trainer.batches, config.tokens_per_batch))
    best = lambda: best_step(folder.records(), config.best_by)
    kept = config.checkpoint_every_steps, config.keep_checkpoints
    writer = stack.enter_context(
      checkpoint.Writer(folder.checkpoints, *kept, log.saved, best)
    )
    interruption = interruption or Interruption()
    if first:
      interruption.last_words = log.last_words = writer.newest
    log.note_start()
    dev = Perplexity(config, trainer.graph, *token_files.read_split(corpus, 'dev'))
    for line in dev.cuts():
      log.say(line)
    if not ended:
      shapes = trainer.batches.shapes_from(start)
      log.compiling(len(shapes))
      _wait_to_begin(stack.enter_context(trainer.compile(state, shapes)), shapes[0])
      log.started()
    loop = Loop(trainer, _cadence(config), records, log, writer, interruption)
    loop.run(state, start, Dev(dev, bleu), unmeasured)
    writer.finish()


def _wait_to_begin(programs: Programs, first: batches.Shape) -> None:
  """Waits for the first program; of several hosts, for all programs of all of them.

  None of several hosts may come late to a step: the others would not wait long.
  """
  if hosts.count() == 1:
    programs.wait(first)
  else:
    programs.wait_for_all()
    hosts.wait_for_all('compiled')


def _cadence(config: ml_collections.ConfigDict) -> Cadence:
  return Cadence(
    config.train_steps,
    config.checkpoint_every_steps,
    config.log_every_steps,
    config.bleu_every_checkpoints,
    config.patience,
  )


def _ended(
  config: ml_collections.ConfigDict, step: int, records: list[dict]
) -> str | None:
  """How many steps the run has, in words, if it makes no more; None if it does."""
  made = f'{step} of {config.train_steps} steps'
  if config.patience:
    patience = Patience.of(records, config.patience)
    if hosts.from_first_host(np.int32(patience.ended)):
      return f'{made}, where its patience ended'
  return made if step >= config.train_steps else None


def _unmeasured(
  config: ml_collections.ConfigDict, step: int, records: list[dict]
) -> bool:
  """Whether the dev perplexity of a checkpoint is missing: a stop came before it."""
  due = step == config.train_steps or step and step % config.checkpoint_every_steps == 0
  there = any(r['step'] == step and 'dev_perplexity' in r for r in records)
  return bool(hosts.from_first_host(np.int32(due and not there)))


def mean_batch(of: batches.Batches, asked: int) -> str:
  """How many tokens a batch has, beside the paper's 25,000 a side (section 5.1)."""
  source, target = of.mean_tokens
  beyond = (
    f', above tokens_per_batch={asked:,}: each of {of.slices} slices holds a pair'
  )
  return (
    f'a batch is {source:,.0f} source and {target:,.0f} target tokens on average, '
    f"{100 * max(source, target) / batches.PAPER_TOKENS:.0f} % of the paper's "
    f'{batches.PAPER_TOKENS:,}{beyond if max(source, target) > 1.5 * asked else ""}'
  )
