"""How a result must have been scored to stand in a table of the paper's."""

from collections.abc import Iterator

from transformer_jax.report import paper
from transformer_jax.report.results import Scored, is_lowercase


def against_table_3(scored: Scored) -> Iterator[str]:
  """Why a result cannot stand in Table 3: newstest2013, the last checkpoint alone."""
  if _pair(scored) != 'en-de':
    yield f'{_pair(scored)}, not en-de'
  yield from _otherwise(scored, 'dev', 1)


def against_table_2(scored: Scored, row: str) -> Iterator[str]:
  """Why it cannot in Table 2: newstest2014, 5 (base) or 20 (big) averaged."""
  if _pair(scored) not in paper.VOCABULARY:
    yield f'{_pair(scored)}, not {" or ".join(paper.VOCABULARY)}'
  yield from _otherwise(scored, 'test', paper.TRAINING[row].averaged)


def test_set(scored: Scored) -> str:
  """The name of the text it was scored on, as its config tells it."""
  config, split = scored.config, scored.result['split']
  if config['reader'] == 'embedded' or split not in config['files']:
    return f'{config["corpus"]} {split}'
  names = config['files'][split]
  names = [names] if isinstance(names, str) else names
  return '+'.join(name.rpartition('/')[2] for name in names)


def _pair(scored: Scored) -> str:
  return f'{scored.config["source_language"]}-{scored.config["target_language"]}'


def _otherwise(scored: Scored, split: str, average: int) -> Iterator[str]:
  result = scored.result
  name, sentences = paper.TEST_SETS[split]
  if result['task'] != 'translation':
    yield f'its task is {result["task"]}'
  if result['split'] != split or test_set(scored) != name:
    yield f'scored on {test_set(scored)}, not {name}'
  else:
    lines = scored.translations
    if lines is not None and len(lines) != sentences:
      yield f'{len(lines)} translations, {name} has {sentences} sentences'
  if (result['beam'], result['alpha']) != (paper.BEAM, paper.ALPHA):
    decoded = f'beam {result["beam"]}, alpha {result["alpha"]}'
    yield f'{decoded}, not beam {paper.BEAM}, alpha {paper.ALPHA}'
  if len(result['averaged']) != average:
    yield f'{len(result["averaged"])} checkpoints averaged, not {average}'
  if result['step'] != scored.config['train_steps']:
    yield f'step {result["step"]:,} of {scored.config["train_steps"]:,}'
  if is_lowercase(result):
    yield 'scored in lower case'
