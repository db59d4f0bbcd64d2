"""Writes a run's model for another program (docs/export.md).

  python -m scripts.export --workdir=RUN --format=huggingface --output=FOLDER
  python -m scripts.export --workdir=RUN --format=ctranslate2 --quantization=int8 \\
    --output=FOLDER

huggingface: what transformers.MarianMTModel and MarianTokenizer load. ctranslate2: what
ctranslate2.Translator loads. safetensors: an archive of our own names and shapes.
"""

from transformer_jax.machine.signals import Interruption

if __name__ == '__main__':  # so that a signal also ends the slow imports below
  Interruption().install()

from absl import logging

from transformer_jax.exchange import export
from transformer_jax.machine import cli
from transformer_jax.runs import checkpoints

FLAGS = cli.Flags(__doc__)
WORKDIR = FLAGS.path('workdir', None, "The run's folder.", required=True)
FORMAT = FLAGS.choice('format', 'huggingface', [*export.LIBRARIES], 'What loads it.')
OUTPUT = FLAGS.path('output', None, 'A new folder.', required=True)
QUANTIZATION = FLAGS.choice(
  'quantization', 'float32', export.QUANTIZATIONS, "Of ctranslate2's weights."
)
AVERAGE, STEP = checkpoints.define_flags(FLAGS)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  logging.set_verbosity(logging.WARNING)
  interruption = Interruption()
  interruption.install()
  model = WORKDIR.value, FORMAT.value, OUTPUT.value, QUANTIZATION.value
  with interruption.deferred():  # it takes seconds, and a stop would leave a half
    print(export.export(*model, AVERAGE.value, STEP.value))


if __name__ == '__main__':
  cli.run(main)
