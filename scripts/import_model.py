"""Makes a run of a Hugging Face Marian model (docs/export.md).

  python -m scripts.import_model --input=FOLDER --config=configs/newsmix.py:en-de \\
    --workdir=runs/imported

The config has the languages, the search, and the corpus to score and fine-tune on; the
model comes from FOLDER. --prepare encodes that corpus with the model's vocabulary.
Without it the run can translate, but not be scored.
"""

from absl import flags, logging

from transformer_jax.data.corpus import DataFlags, rename_if_changed
from transformer_jax.exchange.import_model import import_model
from transformer_jax.machine import cli
from transformer_jax.machine.signals import Interruption
from transformer_jax.tasks import task_of

FLAGS = cli.Flags(__doc__)
INPUT = FLAGS.path('input', None, "The model's folder.", required=True)
CONFIG = FLAGS.config('Languages, search and corpus of the run.', rename_if_changed)
WORKDIR = FLAGS.path('workdir', None, 'A new folder.', required=True)
PREPARE = flags.DEFINE_bool(
  'prepare', False, "Encode the config's corpus with its vocabulary.", FLAGS.values
)
DATA = DataFlags(FLAGS)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  logging.set_verbosity(logging.FATAL)  # Orbax logs, at length, what it raises too
  interruption = Interruption()
  interruption.last_words = lambda: 'Nothing was written: give the same command again.'
  model = INPUT.value, WORKDIR.value, CONFIG.value, task_of(CONFIG.value)
  with interruption:
    for line in import_model(*model, DATA.folders(), PREPARE.value):
      print(line)


if __name__ == '__main__':
  cli.run(main)
