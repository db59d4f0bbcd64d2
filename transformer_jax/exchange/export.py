"""From a run to a folder for another program."""

import pathlib
import types

from transformer_jax.exchange import archive, folders, huggingface, marian, model_card
from transformer_jax.exchange.outgoing import Outgoing
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.run import Run

FORMATS = ('huggingface', 'ctranslate2', 'safetensors')
# By the names that Hugging Face's pages have for them.
LIBRARIES = dict(zip(FORMATS, ('transformers', 'ctranslate2', 'jax'), strict=True))
QUANTIZATIONS = ('float32', 'float16', 'int8')


def export(
  workdir: pathlib.Path,
  format: str,
  output: pathlib.Path,
  quantization: str,
  average: int | None,
  step: int | str | None,
) -> str:
  """Writes a run's model to a new folder, whole or not at all.

  Args:
    format: one of FORMATS.
    quantization: one of QUANTIZATIONS; other than float32 for ctranslate2 alone.
    average: how many checkpoints to average; None is what the config says.
    step: the last of them; 'best' is the best on dev, None the newest.

  Returns: a line on what was written.

  Raises:
    UserError: the run is incomplete, the format cannot express its model, CTranslate2
      is needed and missing, `quantization` does not go with `format`, or `output` is
      there already.
  """
  run = Run(workdir)
  sizes = run.config().model.to_dict()
  if format != 'safetensors':
    try:
      marian.check(sizes)
    except UserError as error:
      raise UserError(
        f'{workdir} cannot be exported with --format={format}: {error}'
      ) from error
  if format == 'ctranslate2':
    ctranslate2 = _ctranslate2()
  elif quantization != 'float32':
    raise UserError(
      f'--quantization={quantization} goes with --format=ctranslate2 only'
    )
  with folders.written(output) as folder:
    model = Outgoing.read(run, average, step)
    if format == 'safetensors':
      archive.write(model, folder)
      loading, rest = archive.LOADING, archive.listing(model)
    else:
      arrays, rest = marian.to_marian(model.params), iter(())
      if format == 'huggingface':
        huggingface.write(model, arrays, folder)
        loading = huggingface.LOADING
      else:
        ctranslate2.write(model, arrays, quantization, folder)
        loading = ctranslate2.LOADING
    text = model_card.page(model, LIBRARIES[format], loading, rest)
    files.write(folder / 'README.md', text)
  return f'{output}: {format}, {quantization}, of steps {model.steps} of {workdir}'


def _ctranslate2() -> types.ModuleType:
  try:
    from transformer_jax.exchange import ctranslate2
  except ImportError as error:
    raise UserError(
      f'--format=ctranslate2 needs CTranslate2 ({error}): pip install '
      "'ctranslate2>=4.8,<5'"
    ) from error
  return ctranslate2
