"""Writes a run's model for another program or a browser, or without Adam's state.

  python -m scripts.export --workdir=RUN --format=huggingface --output=FOLDER
  python -m scripts.export --workdir=RUN --format=run --dtype=bfloat16 --output=FOLDER
  python -m scripts.export --workdir=RUN --format=page --output=page.html

transformers.MarianMTModel and MarianTokenizer load the format huggingface,
ctranslate2.Translator loads ctranslate2, and the commands of this project load run. A
page translates in a browser and shows where its heads look (docs/export.md).
"""

import itertools

from transformer_jax.exchange import export
from transformer_jax.machine import cli
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs.flags import checkpoint_flags

FLAGS = cli.Flags(__doc__)
WORKDIR = FLAGS.path('workdir', None, 'Folder of the run.', required=True)
FORMAT = FLAGS.enum('format', 'huggingface', [*export.DTYPES], 'Output format.')
OUTPUT = FLAGS.path(
  'output', None, 'Folder to create; of a page, the file.', required=True
)
DTYPE = FLAGS.enum(
  'dtype',
  None,
  sorted({*itertools.chain(*export.DTYPES.values())}),
  'Dtype of the weights: also bfloat16 for run, and float16 or int8 for ctranslate2; '
  'bfloat16 for page. Default: float32 where it can be.',
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
