"""The model card of an exported folder: its README.md, as Hugging Face shows it."""

import json
from collections.abc import Iterator

from transformer_jax.exchange.outgoing import Outgoing
from transformer_jax.machine import provenance
from transformer_jax.model import flops
from transformer_jax.runs.result import Result


def page(model: Outgoing, library: str, loading: str, rest: Iterator[str]) -> str:
  """Markdown, with the head that Hugging Face reads.

  Args:
    library: which loads it.
    loading: how it is loaded; BEAM and ALPHA stand for the config's.
    rest: what else is to be told, line by line.
  """
  config = model.config
  source, target = config['data']['source_language'], config['data']['target_language']
  for word, value in (('BEAM', config['beam']), ('ALPHA', config['alpha'])):
    loading = loading.replace(word, str(value))
  lines = [
    *_head(library, source, target, config['task']),
    f'# {model.run.workdir.resolve().name}: {source} to {target}',
    '',
    f'A Transformer (Vaswani et al. 2017), {_origin(model)}: '
    f'{flops.parameters(config["model"]):,} parameters, {_steps(model.steps)}.',
    *(['Its text is tokenised, on both sides.'] if config['data']['tokenized'] else []),
    '',
    loading,
    '## Scores',
    '',
    *_scores(model.results),
    '',
    '## Config',
    '',
    f'Exported by commit {provenance.commit() or "(no checkout)"}.',
    '',
    '```json',
    json.dumps(config, indent=1),
    '```',
    '',
    *rest,
  ]
  return '\n'.join(lines) + '\n'


def _head(library: str, source: str, target: str, task: str) -> list[str]:
  languages, kind = [f'- {source}'], [f'library_name: {library}']
  if task == 'translation':  # a tree is of no language
    languages.append(f'- {target}')
    kind.append('pipeline_tag: translation')
  return ['---', 'language:', *languages, *kind, '---', '']


def _origin(model: Outgoing) -> str:
  if model.imported:
    return f'imported into Transformer-JAX from a folder `{model.imported}`'
  return f'trained by Transformer-JAX on `{model.config["data"]["name"]}`'


def _steps(steps: list[int]) -> str:
  if len(steps) == 1:
    return f'step {steps[0]:,}'
  return f'the average of {len(steps)} checkpoints, steps {steps[0]:,} to {steps[-1]:,}'


def _scores(results: list[Result]) -> Iterator[str]:
  if not results:
    yield 'These checkpoints have not been evaluated.'
    return
  yield '| set | beam | alpha | score | 95 % interval | signature |'
  yield '|---|---|---|---|---|---|'
  for result in results:
    for kind, score in result.scores():
      low, high = score.interval
      search = f'{result.beam} | {result.alpha}'
      signature = score.signature.replace('|', r'\|')
      yield (
        f'| {result.split} | {search} | {score.score:.2f} {kind} | '
        f'{low:.2f} to {high:.2f} | `{signature}` |'
      )
  trained = dict.fromkeys(result.training_commit for result in results)
  evaluated = dict.fromkeys(result.commit for result in results)
  yield ''
  yield (
    f'Trained by commit {", ".join(c or "(not recorded)" for c in trained)}, '
    f'evaluated by commit {", ".join(c or "(no checkout)" for c in evaluated)}.'
  )
