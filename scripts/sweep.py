"""Runs every row of Table 3, or any configs, with several seeds: trains and scores.

  python -m scripts.sweep --rows=base,D1,C1 --mini --seeds=1,2,3 --workdir=runs/table3
  python -m scripts.sweep --rows=all --workdir=runs/table3 --dry_run
  python -m scripts.sweep --config=configs/newsmix.py:en-de --seeds=1,2 \\
    --workdir=runs --raw_dir=DIR -- --config.train_steps=6000

One folder each below WORKDIR, table3.base.mini.seed-1 ... The same command goes on with
what is not done: SIGTERM and SIGINT end it as they end training, with exit code 75, and
a run that fails stops no other (exit code 1 in the end; `--retry_failed`). What follows
`--` goes to the trainer. Scored is as section 6.2 does it: on dev, the last checkpoint
alone. `--per_node=2` runs two at a time, each with half of the cores and GPUs, of which
small models leave much idle. `--submit=slurm` submits instead, through submitit (pip
install submitit):

  python -m scripts.sweep --rows=all --workdir=runs/table3 --submit=slurm \\
    --per_node=8 --slurm=gpus_per_node=8 --slurm=timeout_min=1440
"""

import json
import pathlib
import re
import shlex
import sys
import time

import ml_collections
from absl import app, flags
from ml_collections import config_flags

from scripts import prepare_data
from transformer_jax.machine import errors
from transformer_jax.machine.signals import EXIT_CODE, Interruption
from transformer_jax.model import flops
from transformer_jax.report import paper
from transformer_jax.runs import local, slurm, sweep
from transformer_jax.runs.run import Run

ROWS = flags.DEFINE_list('rows', [], "Table 3's rows to run: base,D1,C1 ..., or all.")
MINI = flags.DEFINE_bool('mini', False, 'The rows in miniature, on Multi30k.')
CONFIG = flags.DEFINE_multi_string('config', [], 'A config to run; may be repeated.')
SEEDS = flags.DEFINE_list('seeds', ['1'], 'Run each with each of these seeds.')
WORKDIR = flags.DEFINE_string('workdir', None, "The folder of the runs' folders.")
SPLIT = flags.DEFINE_enum('split', 'dev', ['dev', 'test'], 'What to score on.')
AVERAGE = flags.DEFINE_integer(
  'average', 1, 'How many checkpoints to average.', lower_bound=1
)
DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Only print what would be run.')
RETRY = flags.DEFINE_bool('retry_failed', False, 'Run those again that failed.')
SUBMIT = flags.DEFINE_enum(
  'submit',
  None,
  ['slurm', 'local'],
  "Submit to Slurm, or to submitit's local stand-in.",
)
PER_NODE = flags.DEFINE_integer(
  'per_node', 1, 'Runs side by side, here or in each submission.', lower_bound=1
)
SLURM = flags.DEFINE_multi_string(
  'slurm', [], "KEY=VALUE of submitit's update_parameters; may be repeated."
)
flags.mark_flags_as_required(['workdir'])
flags.adopt_module_key_flags(prepare_data)

EVERY = 60  # seconds between two lines of progress


def load(name: str, overrides: list[str]) -> ml_collections.ConfigDict:
  """The config that --config=NAME and --config.KEY=VALUE make for the trainer."""
  command = ['train', f'--config={name}', *overrides]
  values = flags.FlagValues()
  config_flags.DEFINE_config_file('config', flag_values=values, sys_argv=command)
  values(command)
  return values['config'].value


def job(name: str, seed: int, rest: list[str]) -> sweep.Job:
  """The run of one config with one seed; `rest` are more of the trainer's flags."""
  overrides = [f'--config.seed={seed}', *rest]
  config = load(name, [x for x in overrides if x.startswith('--config.')])
  path, _, arg = name.partition(':')
  words = [pathlib.Path(path).stem, *re.split('[,/]', arg), f'seed-{seed}']
  workdir = pathlib.Path(WORKDIR.value) / '.'.join(word for word in words if word)
  python = sys.executable, '-m'
  where, data = f'--workdir={workdir}', f'--data_dir={prepare_data.DATA_DIR.value}'
  given = [data]
  for flag in (prepare_data.RAW_DIR, prepare_data.TFDS_DATA_DIR):
    given += [f'--{flag.name}={flag.value}'] if flag.value else []
  train = *python, 'scripts.train', f'--config={name}', *overrides, where, *given
  score = f'--split={SPLIT.value}', f'--average={AVERAGE.value}'
  evaluate = *python, 'scripts.evaluate', where, data, *score
  run = Run(workdir)
  if (workdir / 'config.json').is_file():
    run.check_same(json.loads(config.to_json_best_effort()))
  if AVERAGE.value > config.keep_checkpoints:
    raise app.UsageError(
      f'--average={AVERAGE.value}: {name} keeps {config.keep_checkpoints} checkpoints '
      '(-- --config.keep_checkpoints=...)'
    )
  scored = {
    'split': SPLIT.value,
    'step': config.train_steps,
    'averaged': range(AVERAGE.value),
    'beam': config.beam,
    'alpha': config.alpha,
  }
  result = run.translations(scored, lowercase=False).with_suffix('.json')
  return sweep.Job(
    run, (train, evaluate), config.train_steps, result, flops_of_a_step(config)
  )


def flops_of_a_step(config: ml_collections.ConfigDict) -> float:
  """About what a step takes."""
  each = flops.flops_per_target_token(config.model.to_dict())
  return float(each * config.tokens_per_batch)


def asked(rest: list[str]) -> list[sweep.Job]:
  """All runs, seed after seed, so that every row is there before any has two."""
  rows = [*paper.TABLE_3] if ROWS.value == ['all'] else ROWS.value
  option = ',mini' if MINI.value else ''
  names = [f'configs/table3.py:{row}{option}' for row in rows] + CONFIG.value
  if not names:
    raise app.UsageError('give --rows, or --config')
  if not SEEDS.value or not all(seed.isdecimal() for seed in SEEDS.value):
    raise app.UsageError(f'--seeds={",".join(SEEDS.value)}: numbers, such as 1,2,3')
  jobs = [job(name, int(seed), rest) for seed in SEEDS.value for name in names]
  if len({one.run.workdir for one in jobs}) < len(jobs):
    raise app.UsageError('a row, a config or a seed is given twice')
  return jobs


class Bar:
  """The sweep's progress: a line a minute, or one line on a terminal."""

  def __init__(self, jobs: list[sweep.Job]):
    self._jobs, self._next = jobs, time.monotonic()
    self._terminal = sys.stderr.isatty()

  def tick(self) -> None:
    if time.monotonic() >= self._next:
      self.show()

  def show(self) -> None:
    self._next = time.monotonic() + (1 if self._terminal else EVERY)
    line = str(sweep.progress(self._jobs, PER_NODE.value))
    # To the line's start, and what is right of the text deleted.
    end = '\x1b[K\r' if self._terminal else '\n'
    print(line, end=end, file=sys.stderr, flush=True)

  def say(self, text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def dry_run(jobs: list[sweep.Job]) -> None:
  """How it stands on stderr; on stdout the commands, and so a shell script."""
  for one in jobs:
    found = sweep.state(one)
    print(f'{found:8}{one.name}', file=sys.stderr)
    if found is sweep.State.WAITING or (found is sweep.State.FAILED and RETRY.value):
      print(*map(shlex.join, one.commands), sep='\n')
  print(sweep.progress(jobs, PER_NODE.value), file=sys.stderr)


def parameters() -> dict[str, int | str]:
  """Of --slurm=KEY=VALUE."""
  pairs = [word.partition('=') for word in SLURM.value]
  for key, equals, _ in pairs:
    if not key or not equals:
      raise app.UsageError(f'--slurm={key}: KEY=VALUE, such as timeout_min=1440')
  if SUBMIT.value == 'slurm' and 'timeout_min' not in {key for key, _, _ in pairs}:
    raise app.UsageError('--submit=slurm needs --slurm=timeout_min=MINUTES')
  return {k: int(v) if v.isdecimal() else v for k, _, v in pairs}


def submit(jobs: list[sweep.Job], rest: list[str]) -> None:
  given = parameters()
  # Runs that begin at one time would all prepare what they share.
  for name in {one.commands[0][3].removeprefix('--config=') for one in jobs}:
    prepare_data.prepare(load(name, [x for x in rest if x.startswith('--config.')]))
  folder = pathlib.Path(WORKDIR.value) / 'submitit'
  lines = slurm.submit(jobs, SUBMIT.value, folder, PER_NODE.value, given)
  for line in lines:
    print(line)
  for one in jobs:
    if sweep.state(one) is sweep.State.FAILED:
      print(sweep.failure(one), file=sys.stderr)
  print(sweep.progress(jobs, PER_NODE.value), file=sys.stderr)


def main(arguments: list[str]) -> None:
  interruption = Interruption().install()
  rest = arguments[1:]
  jobs = asked(rest)
  if DRY_RUN.value:
    return dry_run(jobs)
  if RETRY.value:
    for one in jobs:
      sweep.forgive(one)
  if SUBMIT.value:
    return submit(jobs, rest)
  bar = Bar(jobs)
  with interruption.deferred():
    ended = local.run(
      jobs, PER_NODE.value, lambda: interruption.asked, bar.tick, bar.say
    )
    bar.show()
    if interruption.asked:
      interruption.last_words = lambda: 'The same command goes on.'
      interruption.leave()
  if sweep.State.FAILED in ended.values():
    sys.exit(1)
  if {*ended.values()} != {sweep.State.DONE}:
    sys.exit(EXIT_CODE)


if __name__ == '__main__':
  errors.run(main)
