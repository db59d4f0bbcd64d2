"""Trains a config: prepares the corpus if it is missing, resumes what is there.

python -m scripts.train --config=configs/quickstart.py --workdir=runs/quickstart
"""

import pathlib

from absl import app, flags, logging
from ml_collections import config_flags

from scripts import prepare_data
from transformer_jax import parallel
from transformer_jax.train import train

CONFIG = config_flags.DEFINE_config_file('config', None, 'What to train.')
WORKDIR = flags.DEFINE_string('workdir', None, "The run's folder.")
flags.mark_flags_as_required(['config', 'workdir'])


def main(_: list[str]) -> None:
  config = CONFIG.value
  logging.set_verbosity(logging.WARNING)  # Orbax tells its whole life at INFO
  parallel.start(config.slices)
  corpus = prepare_data.prepare(config)
  train(config, pathlib.Path(WORKDIR.value), corpus)


if __name__ == '__main__':
  app.run(main)
