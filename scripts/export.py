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
