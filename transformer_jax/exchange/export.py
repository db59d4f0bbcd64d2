"""From a run to a folder for another program, or to a page that translates."""

import contextlib
import pathlib
import re
import shutil
from collections.abc import Iterator

from jaxtyping import PyTree

from transformer_jax import config as configs
from transformer_jax.data.corpus import CARD
from transformer_jax.exchange import huggingface, page
from transformer_jax.machine import files, platform
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build, flops
from transformer_jax.runs.run import Run, chosen_steps
from transformer_jax.training import checkpoint

# The dtypes that a format's weights can have; the first is the default.
DTYPES = {
  'run': ('float32', 'bfloat16'),
  'huggingface': ('float32',),
  'ctranslate2': ('float32', 'float16', 'int8'),
  'page': ('bfloat16',),
}
# Hugging Face's name of the library that loads a format.
_LIBRARIES = {'run': 'jax', 'huggingface': 'transformers', 'ctranslate2': 'ctranslate2'}

PAGE = 'page.html'
_LOADING = """\
In a checkout of Transformer-JAX, after `make install`:

    echo 'A sentence.' | python -m scripts.translate --workdir=FOLDER

```python
import transformer_jax

model = transformer_jax.load('FOLDER')
print(model.translate(['A sentence.']))
```

Commands read this folder like a run. It has no optimizer state, so training can start
from it with `--init_from=FOLDER` but cannot resume. `docs/export.md` lists the arrays
of `parameters.safetensors`.
"""


def export(
  workdir: pathlib.Path,
  format: str,
  output: pathlib.Path,
  dtype: str | None,
  average: int | None,
  step: int | str | None,
) -> str:
  """Writes a run's model to a new folder, or to a page, whole or not at all.

  Args:
    format: one of DTYPES.
    dtype: of the weights; one of DTYPES[format]. None: its first.
    average, step: the checkpoints, as transformer_jax.load() takes them.

  Returns:
    A line on what was written.

  Raises:
    UserError: the run is incomplete, the format cannot express its model,
      `dtype` does not go with `format`, or `output` exists.
  """
  run = Run(workdir)
  config = run.config()
  dtype = dtype or DTYPES[format][0]
  if dtype not in (dtypes := DTYPES[format]):
    raise UserError(f'--dtype={dtype}: --format={format} takes {", ".join(dtypes)}')
  if format == 'page':
    page.check(config)
  elif format != 'run':
    huggingface.check(config.model)
  if format == 'ctranslate2':
    from transformer_jax.exchange import ctranslate2  # whose package is an extra
  spm = [vocabulary.path for vocabulary in run.vocabularies()]
  rights = _of_run_or_parent(run, 'LICENSE')
  with _new(output, PAGE if format == 'page' else '') as folder:
    choose = lambda: chosen_steps(run, config, average, step)
    steps = choose()
    platform.start(config.slices)
    _, shapes = build.architecture(config)
    how = run.checkpoints, steps, choose, shapes
    steps, params = checkpoint.average_kept(*how)
    if format == 'page':
      about = _about(run, steps).replace('`', '')
      page.write_model(folder / PAGE, params, run, steps[-1], about, rights)
      return f'{output}: open it in a browser'
    if format == 'huggingface':
      huggingface.write(params, config, spm, folder)
      loading = huggingface.LOADING
    elif format == 'ctranslate2':
      ctranslate2.write(params, config, spm, dtype, folder)
      loading = ctranslate2.LOADING
    else:
      _write_run(run, steps, params, dtype, folder)
      loading = _LOADING
    lines = _readme(run, steps, _LIBRARIES[format], loading)
    files.write(folder / 'README.md', '\n'.join(lines) + '\n')
    if rights:
      files.write(folder / 'LICENSE', rights)
  return f'{output}: {format}, {dtype}, of steps {steps} of {workdir}'


def _write_run(
  run: Run, steps: list[int], params: PyTree, dtype: str, folder: pathlib.Path
) -> None:
  """Writes all files but README.md: of a run without the state of the optimizer."""
  exported = Run(folder)
  checkpoint.export(exported.checkpoints, steps, params, dtype)
  vocabularies = (vocabulary.path.name for vocabulary in run.vocabularies())
  for name in {CARD, *vocabularies}:
    shutil.copyfile(run.workdir / name, folder / name)
  config = run.config().unlock()
  config.data.raw_dir = ''  # a path of this machine, as the parent's is
  config.init_from.run = pathlib.Path(config.init_from.run).name
  files.write(folder / 'config.json', files.as_json(configs.as_json(config)))
  records = (files.as_json(r) for r in run.records() if r['step'] <= steps[-1])
  files.write(exported.metrics, ''.join(f'{record}\n' for record in records))


@contextlib.contextmanager
def _new(path: pathlib.Path, name: str) -> Iterator[pathlib.Path]:
  """Yields a folder to write into, and renames it to `path` when the block ends.

  With a `name`, `path` becomes the folder's file of that name.

  If the block raises, the folder is deleted. A killed process leaves PATH.partial,
  which the next call replaces.

  Raises:
    UserError: `path` exists.
  """
  if path.exists():
    raise UserError(f'{path} exists: delete it, or give another name')
  partial = path.absolute().with_name(f'{path.name}.partial')
  shutil.rmtree(partial, ignore_errors=True)
  partial.mkdir(parents=True)
  try:
    with files.with_filename(path):
      yield partial
    (partial / name).rename(path)
  finally:
    shutil.rmtree(partial, ignore_errors=True)


def _of_run_or_parent(run: Run, name: str) -> str:
  """Returns a file of a published model, or of the nearest it was tuned from, or ''."""
  path, parent = run.workdir / name, pathlib.Path(run.config().init_from.run)
  if path.is_file():
    return path.read_text('utf-8')
  # An exported run keeps its parent's name, not its path.
  if not parent.is_absolute() or not (parent / 'config.json').is_file():
    return ''
  return _of_run_or_parent(Run(parent), name)


def _about(run: Run, steps: list[int]) -> str:
  """Returns a sentence on the model."""
  config = run.config()
  which = f'step {steps[0]:,}'
  if len(steps) > 1:
    which = f'the average of {len(steps)} checkpoints, steps {steps[0]:,}'
    which += f' to {steps[-1]:,}'
  if (parent := config.init_from).run:
    which += f', fine-tuned from {pathlib.Path(parent.run).name}, step {parent.step:,}'
  return (
    'A Transformer (Vaswani et al. 2017), trained by Transformer-JAX on '
    f'`{config.data.name}`: {flops.parameters(config.model):,} parameters, {which}.'
  )


def _readme(run: Run, steps: list[int], library: str, loading: str) -> Iterator[str]:
  """Yields the lines of README.md, with the head that Hugging Face reads.

  Args:
    loading: how the model is loaded, with the fields {beam} and {alpha}.
  """
  config = run.config()
  source, target = config.data.source_language, config.data.target_language
  loading = loading.format(beam=config.beam, alpha=config.alpha)
  head = _of_run_or_parent(run, 'README.md').partition('\n---\n')[0]
  yield from ('---', 'language:', f'- {source}')
  if config.task == 'translation':  # a tree is of no language
    yield from (f'- {target}', 'pipeline_tag: translation')
  yield from re.findall('^license: .*', head, re.M)
  yield from (f'library_name: {library}', '---', '')
  yield from (f'# {run.workdir.resolve().name}: {source} to {target}', '')
  yield _about(run, steps)
  if config.data.tokenized:
    yield 'Its text is tokenised, source and target.'
  if library != 'jax':  # this project's commands do both
    if config.data.lowercase:
      yield 'It was trained on lowercase text: lowercase a sentence first.'
    if config.data.nfc:
      yield 'It was trained on text in NFC: normalise a sentence first.'
  yield from ('', loading)
