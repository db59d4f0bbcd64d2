"""Trains a config. Prepares its corpus if it is missing, and resumes a run that exists.

  python -m scripts.train --config=configs/quickstart.py --workdir=runs/quickstart
  python -m scripts.train --workdir=runs/quickstart
  python -m scripts.train --config=C --init_from=runs/quickstart --workdir=runs/tuned

The second command resumes a run with the config that it keeps. The third starts from
another run's model (docs/own_data.md).

At SIGTERM, SIGINT, SIGHUP, SIGUSR1 (`sbatch --signal=USR1@120`), SIGUSR2 and SIGXCPU
training saves a checkpoint and ends with exit code 75. The same command resumes it.
docs/devices.md explains several devices and hosts.
"""

import numpy as np
from absl import logging

from transformer_jax import config as configs
from transformer_jax.data.corpus import Corpus
from transformer_jax.decoding.evaluate import DevBleu
from transformer_jax.machine import cli, errors, hosts, platform
from transformer_jax.machine.signals import Interruption
from transformer_jax.prepare import prepare
from transformer_jax.runs.flags import config_flag, data_flags
from transformer_jax.runs.run import Run, start_from
from transformer_jax.tasks import reader_of
from transformer_jax.training.loop import train

FLAGS = cli.Flags(__doc__)
CONFIG = config_flag(FLAGS, "Config to train; default: the run's config.", False)
WORKDIR = FLAGS.path('workdir', None, 'Folder of the run.', required=True)
INIT_FROM = FLAGS.path(
  'init_from',
  None,
  'Run whose model and vocabulary to start from: RUN, RUN:STEP or RUN:best.',
)
DETERMINISTIC = FLAGS.bool(
  'deterministic',
  False,
  'Make training on a GPU bit-for-bit reproducible, which is slower.',
)
ADDRESS = FLAGS.string(
  'coordinator_address', None, 'HOST:PORT of process 0, if no cluster sets it.'
)
COUNT = FLAGS.integer(
  'process_count',
  None,
  'Number of processes, if no cluster sets it; 1: ignore the cluster.',
  1,
)
NUMBER = FLAGS.integer('process_id', None, 'Index of this process, from 0.', 0)
DATA = data_flags(FLAGS)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  run = Run(WORKDIR.value)
  config = CONFIG.value or run.config()
  logging.set_verbosity(logging.FATAL)  # Orbax logs, at length, what it raises too
  if INIT_FROM.value:
    start_from(config, INIT_FROM.value, WORKDIR.value)
  if CONFIG.value:
    configs.check_row(config, FLAGS.plain)
  reader = reader_of(config)
  if DETERMINISTIC.value:  # some operations of a GPU sum in an order that changes
    platform.set_xla_flag('--xla_gpu_deterministic_ops=true')
  with Interruption() as interruption:
    hosts.join_hosts(ADDRESS.value, COUNT.value, NUMBER.value)
    platform.start(config.slices)
    with hosts.abort_all_hosts_on_error(), errors.report_user_errors():
      if first := hosts.is_first_host():
        run.check_config(configs.as_json(config))
      goes_on = bool(hosts.from_first_host(np.int32(first and run.is_started)))
      folders = (*(flag.value for flag in DATA), WORKDIR.value if goes_on else None)
      if not first:
        hosts.wait_for_all('prepared')
      corpus = Corpus.open(prepare.ensure(config, reader, *folders))
      if first:
        hosts.wait_for_all('prepared')
      bleu = None
      if config.best_by == 'bleu':
        bleu = DevBleu(config, reader.output, corpus)
      train(config, WORKDIR.value, corpus, interruption, bleu)


if __name__ == '__main__':
  cli.run(main)
