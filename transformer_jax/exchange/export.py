"""From a run to a folder for another program, with a page that describes the model."""

import contextlib
import json
import pathlib
import shutil
from collections.abc import Iterator

from safetensors.numpy import save_file

from transformer_jax.exchange import huggingface, marian
from transformer_jax.machine import files, platform
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build, flops
from transformer_jax.report import page
from transformer_jax.runs.result import Result
from transformer_jax.runs.run import Run, chosen_steps
from transformer_jax.training import checkpoint

# The formats, and Hugging Face's name of the library that loads each.
LIBRARIES = {
  'huggingface': 'transformers',
  'ctranslate2': 'ctranslate2',
  'safetensors': 'jax',
}
QUANTIZATIONS = ('float32', 'float16', 'int8')
ARCHIVED_CONFIG = 'run.config.json'

_LOAD_ARCHIVE = """\
```python
from safetensors.numpy import load_file

arrays = load_file('FOLDER/model.safetensors')
```

`run.config.json` is the run's config. `vocabulary.model` is a SentencePiece model;
the target's is `vocabulary.target.model`, if the folder has that. In both, `<pad>`,
`</s>`, `<s>` and `<unk>` are 0, 1, 2 and 3.
"""


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
    format: one of LIBRARIES.
    quantization: one of QUANTIZATIONS; other than float32 for ctranslate2 alone.
    average, step: the checkpoints, as transformer_jax.load() takes them.

  Returns:
    A line on what was written.

  Raises:
    UserError: the run is incomplete, the format cannot express its model,
      `quantization` does not go with `format`, or `output` exists.
  """
  run = Run(workdir)
  config = run.config()
  if format != 'safetensors':
    marian.check(config.model)
  if format == 'ctranslate2':
    from transformer_jax.exchange import ctranslate2  # whose package is an extra
  elif quantization != 'float32':
    raise UserError(
      f'--quantization={quantization} goes with --format=ctranslate2 only'
    )
  spm = run.vocabulary_files()
  with _new_folder(output) as folder:
    steps = chosen_steps(run, config, average, step)
    platform.start(config.slices)
    _, shapes = build.architecture(config)
    params = checkpoint.average(run.checkpoints, steps, shapes)
    if format == 'huggingface':
      huggingface.write(params, config, spm, folder)
      loading = huggingface.LOADING
    elif format == 'ctranslate2':
      ctranslate2.write(params, config, spm, quantization, folder)
      loading = ctranslate2.LOADING
    else:
      save_file(marian.name_arrays(params), folder / huggingface.WEIGHTS)
      for path in {*spm}:
        shutil.copyfile(path, folder / path.name)
      files.write_json(folder / ARCHIVED_CONFIG, config.to_dict())
      loading = _LOAD_ARCHIVE
    lines = _page(run, steps, LIBRARIES[format], loading)
    files.write(folder / 'README.md', '\n'.join(lines) + '\n')
  return f'{output}: {format}, {quantization}, of steps {steps} of {workdir}'


@contextlib.contextmanager
def _new_folder(path: pathlib.Path) -> Iterator[pathlib.Path]:
  """Yields a folder to write into, and renames it to `path` when the block ends.

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
    yield partial
    partial.rename(path)
  finally:
    shutil.rmtree(partial, ignore_errors=True)


def _page(run: Run, steps: list[int], library: str, loading: str) -> Iterator[str]:
  """Yields the lines of README.md, with the head that Hugging Face reads.

  Args:
    loading: how the model is loaded; BEAM and ALPHA stand for the config's.
  """
  config = run.config()
  source, target = config.data.source_language, config.data.target_language
  for word, value in (('BEAM', config.beam), ('ALPHA', config.alpha)):
    loading = loading.replace(word, str(value))
  yield from ('---', 'language:', f'- {source}')
  if config.task == 'translation':  # a tree is of no language
    yield from (f'- {target}', 'pipeline_tag: translation')
  yield from (f'library_name: {library}', '---', '')
  yield from (f'# {run.workdir.resolve().name}: {source} to {target}', '')
  which = f'step {steps[0]:,}'
  if len(steps) > 1:
    which = f'the average of {len(steps)} checkpoints, steps {steps[0]:,}'
    which += f' to {steps[-1]:,}'
  yield (
    'A Transformer (Vaswani et al. 2017), trained by Transformer-JAX on '
    f'`{config.data.name}`: {flops.parameters(config.model):,} parameters, {which}.'
  )
  if config.data.tokenized:
    yield 'Its text is tokenised, source and target.'
  yield from ('', loading, '## Scores', '', *_scores(run, steps), '')
  commit = platform.commit() or '(no checkout)'
  yield from ('## Config', '', f'Exported by commit {commit}.', '')
  yield from ('```json', json.dumps(config.to_dict(), indent=1), '```', '')


def _scores(run: Run, steps: list[int]) -> Iterator[str]:
  """Yields a table of the run's evaluations of the same checkpoints."""
  rows, trained, evaluated = [], {}, {}
  for path in sorted((run.workdir / 'translations').glob('*.json')):
    result = Result.read(path)
    for kind, score in result.scores() if result.averaged == steps else ():
      trained[result.training_commit or '(not recorded)'] = None
      evaluated[result.commit or '(no checkout)'] = None
      low, high = score.interval
      numbers = f'{score.score:.2f} {kind}', f'{low:.2f} to {high:.2f}'
      search = result.split, str(result.beam), str(result.alpha)
      rows.append((*search, *numbers, score.signature))
  if not rows:
    yield 'These checkpoints have not been evaluated.'
    return
  header = ('set', 'beam', 'alpha', 'score', '95 % interval', 'signature')
  yield page.table(header, rows)
  commits = ', '.join(trained), ', '.join(evaluated)
  yield '\nTrained by commit {}, evaluated by commit {}.'.format(*commits)
