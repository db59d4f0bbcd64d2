"""Writes a run's model for another program, or without Adam's state (docs/export.md).

  python -m scripts.export --workdir=RUN --format=huggingface --output=FOLDER
  python -m scripts.export --workdir=RUN --format=run --dtype=bfloat16 --output=FOLDER

transformers.MarianMTModel and MarianTokenizer load the format huggingface,
ctranslate2.Translator loads ctranslate2, and the commands of this project load run.
"""

import itertools

from transformer_jax.exchange import export
from transformer_jax.machine import cli
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs.run import checkpoint_flags

FLAGS = cli.Flags(__doc__)
WORKDIR = FLAGS.path('workdir', None, 'Folder of the run.', required=True)
FORMAT = FLAGS.enum('format', 'huggingface', [*export.LIBRARIES], 'Output format.')
OUTPUT = FLAGS.path('output', None, 'Folder to create.', required=True)
DTYPE = FLAGS.enum(
  'dtype',
  'float32',
  sorted({*itertools.chain(*export.DTYPES.values())}),
  'Dtype of the weights: bfloat16 for run; float16 or int8 for ctranslate2.',
)
AVERAGE, STEP = checkpoint_flags(FLAGS)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  model = WORKDIR.value, FORMAT.value, OUTPUT.value, DTYPE.value
  with Interruption() as interruption:
    # A signal waits for the few seconds, so that no half of a folder is left.
    with interruption.deferred():
      cli.say(export.export(*model, AVERAGE.value, STEP.value))
    interruption.last_words = lambda: f'{OUTPUT.value} is written.'
    interruption.leave_if_requested()


if __name__ == '__main__':
  cli.run(main)
