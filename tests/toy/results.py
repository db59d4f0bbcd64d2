"""Results as evaluations write them, and cells of a report's Markdown."""

import copy
import dataclasses
import pathlib

import ml_collections

from configs import quickstart, table3
from transformer_jax.config import as_json
from transformer_jax.data.corpus import Card, VocabularyEntry
from transformer_jax.parsing import evalb
from transformer_jax.report import results
from transformer_jax.report.results import ScoredRun
from transformer_jax.runs.result import VERSION, Result
from transformer_jax.runs.run import Run
from transformer_jax.scoring.bleu import Score
from transformer_jax.scoring.translations import JUDGED, text_metrics
from transformer_jax.tasks import OUTPUTS

CARD = Card(VocabularyEntry(''), {})  # as little as a card can say


def scores(value: float) -> dict[str, Score]:
  """Returns scores of a translation; those without a verdict are lower by 0.5."""
  values = {one.name: value - 0.5 * (one not in JUDGED) for one in text_metrics()}
  return {k: Score(x, f'nrefs:1|{k}', [x - 0.5, x + 0.5]) for k, x in values.items()}


def of_row(row: str = 'base', seed: int = 1, ppl: float = 5.0, bleu: float = 20.0):
  """Returns what evaluating a run of the miniature writes, as Table 3 wants it."""
  return of_config(table3.get_config(f'{row},mini'), seed, ppl, bleu)


def of_config(
  config: ml_collections.ConfigDict,
  seed: int = 1,
  ppl: float = 5.0,
  bleu: float = 20.0,
  average: int = 1,
) -> Result:
  settings = as_json(config) | {'seed': seed}
  last = settings['train_steps']
  return Result(
    version=VERSION,
    task='translation',
    row=settings['row'],
    split='dev',
    text='detokenised',
    step=last,
    averaged=[last - n for n in range(average)][::-1],
    beam=4,
    alpha=0.6,
    decode_dtype='float32',
    scores=scores(bleu),
    parsing=None,
    valid=None,
    dev_perplexity=ppl,
    sources_cut=0,
    outputs_cut=0,
    dev_pairs_cut=0,
    parameters=2_400_000,
    target_tokens_seen=10_000_000,
    wall_seconds=12 * 3600.0,
    training_device='CPU, 2 cores (2 JAX devices)',
    training_commit='0' * 40,
    device='CPU, 2 cores (2 JAX devices)',
    search_seconds=30.0,
    versions={},
    commit=None,
    corpus='c0ffee' * 10,
    references=None,
    overlap=None,
    config=settings,
  )


# The quickstart's, and a parser's.
RESULT = dataclasses.replace(
  of_config(quickstart.get_config(), average=2),
  split='test',
  step=600,
  averaged=[500, 600],
  scores=scores(51.0),
  dev_perplexity=2.5,
  dev_pairs_cut=None,
  training_device=None,
  training_commit=None,
)
GOLD = ['(TOP (S (NP (PRP She)) (VP (VBD laughed))))', '(TOP (FRAG (UH Oh)))']
PARSED = dataclasses.replace(
  RESULT,
  task='parsing',
  text='trees',
  scores={},
  parsing=dataclasses.asdict(evalb.score(GOLD, [GOLD[0], '(TOP (UH Oh))'])),
  valid=50.0,
)


def changed(result: Result, config: dict | None = None, **fields: object) -> Result:
  """Returns a copy with other fields, and other values at the config's dotted keys.

  A field that is the name of a metric is its score.
  """
  names = [one.name for one in text_metrics() if one.name in fields]
  of_metrics = {name: fields.pop(name) for name in names}
  fields = {
    'scores': {k: v for k, v in (result.scores | of_metrics).items() if v}
  } | fields
  settings = copy.deepcopy(result.config)
  for key, value in (config or {}).items():
    *outer, last = key.split('.')
    owner = settings
    for name in outer:
      owner = owner[name]
    owner[last] = value
  return dataclasses.replace(result, config=settings, **fields)


def scored(result: Result, name: str = 'run') -> ScoredRun:
  """As if read from runs/NAME, without translations."""
  home = pathlib.Path('/runs') / name
  return ScoredRun(name, result, home / 'result.json', home, None)


def written(result: Result, home: pathlib.Path, lines: str | None = None) -> ScoredRun:
  """Writes a run's folder with this result and these translations; reads it."""
  home.mkdir(parents=True, exist_ok=True)
  result.write(home / 'result.json')
  if lines is not None:
    text = result.translations(Run(home))
    text.parent.mkdir(exist_ok=True)
    text.write_text(lines)
  contents = results.read([home], OUTPUTS)
  assert not contents.omissions
  return contents.evaluations[0]


def family(*more: tuple) -> list[ScoredRun]:
  """Returns base with 3 seeds, C1 clearly worse as the paper has it, and `more`."""
  entries = [('base', 1, 5.0, 20.0), ('base', 2, 5.1, 20.2), ('base', 3, 4.9, 19.8)]
  entries += [('C1', 1, 7.0, 16.0), *more]
  return [scored(of_row(*one), f'{one[0]}.seed{one[1]}') for one in entries]


def cells(markdown: str, start: str, table: int = 0) -> list[str]:
  """Returns the cells of the (table+1)-th line of a table that begins with `start`."""
  lines = [x for x in markdown.splitlines() if x.startswith(f'| {start} |')]
  return [cell.strip() for cell in lines[table].strip('|').split('|')]
