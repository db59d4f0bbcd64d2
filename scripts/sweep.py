"""Trains and scores rows of Table 3, or any configs, with several seeds.

  python -m scripts.sweep --rows=base,A1,D1 --mini --seeds=1,2,3 --workdir=runs/table3
  python -m scripts.sweep --rows=all --workdir=runs/table3 --dry_run
  python -m scripts.sweep --config=configs/multi30k.py:en-de --seeds=1,2 \\
    --workdir=runs --raw_dir=DIR -- --config.train_steps=6000

Each run has a folder in WORKDIR, such as table3.base.mini.seed-1. Flags after `--` go
to the trainer. By default runs are scored as in section 6.2, on dev with the last
checkpoint alone.

A signal ends a sweep as it ends training, with exit code 75. A run that fails does not
stop the others, and the sweep then exits with 1. In both cases the same command goes on
with the runs that are not done.

--jobs=2 runs two at a time, which share the cores and GPUs. --submit=slurm submits each
run to Slurm through submitit:

  python -m scripts.sweep --rows=all --workdir=runs --submit=slurm \\
    --slurm=gpus_per_node=1 --slurm=cpus_per_task=8 --slurm=timeout_min=1440
"""

import sys

from transformer_jax.machine import cli
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import Interruption
from transformer_jax.report.paper import TABLE_3
from transformer_jax.runs import sweep
from transformer_jax.runs.flags import data_flags

FLAGS = cli.Flags(__doc__, positional=True)
ROWS = FLAGS.list('rows', [], 'Rows of Table 3, such as base,D1,C1, or all.')
MINI = FLAGS.bool('mini', False, 'Train the rows in miniature, on Multi30k.')
CONFIG = FLAGS.multi_string('config', [], 'Config to train.')
SEEDS = FLAGS.list('seeds', ['1'], 'Seeds of each run.')
WORKDIR = FLAGS.path(
  'workdir', None, 'Folder that holds the folders of the runs.', True
)
SPLIT = FLAGS.enum('split', 'dev', ['dev', 'test'], 'Split to score.')
AVERAGE = FLAGS.integer('average', 1, 'Number of checkpoints to average.', 1)
DRY_RUN = FLAGS.bool('dry_run', False, 'Print the commands and run nothing.')
JOBS = FLAGS.integer('jobs', 1, 'Number of runs that train at a time.', 1)
SUBMIT = FLAGS.enum('submit', None, ['slurm'], 'Submit the runs to a cluster.')
SLURM = FLAGS.multi_string(
  'slurm', [], "KEY=VALUE of submitit's update_parameters, such as timeout_min=60."
)
DATA = data_flags(FLAGS)


def main(argv: list[str]) -> None:
  trainer_flags = FLAGS.parse(argv)[1:]
  if arguments := [flag for flag in trainer_flags if not flag.startswith('-')]:
    raise UserError(
      f'{arguments[0]!r} is not a flag: --rows=base,D1, -- --config.KEY=VALUE'
    )
  rows = TABLE_3 if ROWS.value == ['all'] else ROWS.value
  mini = ',mini' if MINI.value else ''
  configs = [f'configs/table3.py:{row}{mini}' for row in rows] + CONFIG.value
  if mini and not rows:
    raise UserError('--mini needs --rows; with --config, give table3.py:ROW,mini')
  if SUBMIT.value:
    FLAGS.refuse('--submit', JOBS)
  elif SLURM.value:
    raise UserError('--slurm needs --submit')
  how = cli.integers(SEEDS, 0), SPLIT.value, AVERAGE.value, DATA, trainer_flags
  jobs = sweep.Plan(WORKDIR.value, configs, *how).jobs()
  if DRY_RUN.value:
    sweep.print_commands(jobs)
  elif SUBMIT.value:
    for line in sweep.submit(WORKDIR.value, jobs, SLURM.value):
      print(line)
  else:
    with Interruption() as interruption:
      sys.exit(sweep.run(jobs, JOBS.value, interruption))


if __name__ == '__main__':
  cli.run(main)
