"""Trains a config: prepares the corpus if it is missing, resumes what is there.

  python -m scripts.train --config=configs/quickstart.py --workdir=runs/quickstart

SIGTERM, SIGINT and SIGUSR1 (`sbatch --signal=USR1@120`) save and end it with exit code
75: the same command goes on from there. docs/devices.md: several devices and hosts.
"""

import json
import pathlib

from absl import flags, logging
from ml_collections import config_flags

from scripts import prepare_data
from transformer_jax.machine import errors, hosts, platform
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs import config_checks
from transformer_jax.training.train import train

CONFIG = config_flags.DEFINE_config_file('config', None, 'What to train.')
WORKDIR = flags.DEFINE_string('workdir', None, "The run's folder.")
DETERMINISTIC = flags.DEFINE_bool(
  'deterministic', False, 'The same bits in every run on a GPU too, and slower.'
)
ADDRESS = flags.DEFINE_string(
  'coordinator_address',
  None,
  'HOST:PORT of process 0, where no Slurm, Open MPI, Kubernetes or TPU pod tells it.',
)
COUNT = flags.DEFINE_integer(
  'process_count', None, 'How many processes there are; 1: this one, whatever they say.'
)
NUMBER = flags.DEFINE_integer('process_id', None, 'Which of them this is, from 0.')
flags.mark_flags_as_required(['config', 'workdir'])
flags.adopt_module_key_flags(prepare_data)


def main(_: list[str]) -> None:
  config = CONFIG.value
  logging.set_verbosity(logging.WARNING)  # Orbax tells its whole life at INFO
  config_checks.check_numbers(json.loads(config.to_json_best_effort()))
  interruption = Interruption().install()
  if DETERMINISTIC.value:
    platform.deterministic()
  hosts.join_hosts(ADDRESS.value, COUNT.value, NUMBER.value)
  platform.start(config.slices)
  with hosts.one_error_ends_all(), errors.in_one_line():
    corpus = hosts.first_host_first(lambda: prepare_data.prepare(config))
    train(config, pathlib.Path(WORKDIR.value), corpus, interruption)


if __name__ == '__main__':
  errors.run(main)
