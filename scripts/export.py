"""Writes a run's model for another program (docs/export.md).

  python -m scripts.export --workdir=RUN --format=huggingface --output=FOLDER
  python -m scripts.export --workdir=RUN --format=ctranslate2 --quantization=int8 \\
    --output=FOLDER

huggingface: what transformers.MarianMTModel and MarianTokenizer load. ctranslate2: what
ctranslate2.Translator loads. safetensors: an archive of our own names and shapes.
"""

from absl import flags, logging

from transformer_jax.exchange import export
from transformer_jax.machine import cli
from transformer_jax.machine.signals import Interruption
from transformer_jax.runs import checkpoints

FLAGS = cli.Flags(__doc__)
WORKDIR = FLAGS.path('workdir', None, "The run's folder.", required=True)
FORMAT = flags.DEFINE_enum(
  'format', 'huggingface', [*export.LIBRARIES], 'What loads it.', FLAGS.values
)
OUTPUT = FLAGS.path('output', None, 'A new folder.', required=True)
QUANTIZATION = flags.DEFINE_enum(
  'quantization',
  'float32',
  export.QUANTIZATIONS,
  "Of ctranslate2's weights.",
  FLAGS.values,
)
AVERAGE, STEP = checkpoints.define_flags(FLAGS)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  logging.set_verbosity(logging.WARNING)
  model = WORKDIR.value, FORMAT.value, OUTPUT.value, QUANTIZATION.value
  # A signal waits for the few seconds, so that no half of a folder is left.
  with Interruption() as interruption, interruption.deferred():
    print(export.export(*model, AVERAGE.value, STEP.value))


if __name__ == '__main__':
  cli.run(main)
