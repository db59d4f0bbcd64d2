"""How a result must have been made to stand in one of the paper's tables."""

from collections.abc import Iterator

from transformer_jax.report import paper
from transformer_jax.report.results import Scored


def unmet_by_table_3(scored: Scored) -> Iterator[str]:
  """What keeps a result from Table 3: dev, with the last checkpoint alone."""
  if scored.pair != 'en-de':
    yield f'{scored.pair}, not en-de'
  if scored.result.split != 'dev':
    yield f'scored on {scored.test_set}, which is {scored.result.split}, not dev'
  yield from _unmet(scored, 1)


def unmet_by_table_2(scored: Scored) -> Iterator[str]:
  """What keeps one from Table 2: newstest2014, with 5 (base) or 20 (big) averaged."""
  if scored.pair not in paper.VOCABULARY:
    yield f'{scored.pair}, not {" or ".join(paper.VOCABULARY)}'
  if scored.test_set != paper.TEST_SETS['test'][0]:
    yield f'scored on {scored.test_set}, not {paper.TEST_SETS["test"][0]}'
  yield from _unmet(scored, paper.TRAINING[scored.result.row].averaged)


def _unmet(scored: Scored, average: int) -> Iterator[str]:
  """What either table asks of a result."""
  result, lines = scored.result, scored.translations
  for name, sentences in paper.TEST_SETS.values():
    if scored.test_set == name and lines is not None and len(lines) != sentences:
      yield f'{len(lines)} translations, {name} has {sentences} sentences'
  if (result.beam, result.alpha) != (paper.BEAM, paper.ALPHA):
    decoded = f'beam {result.beam}, alpha {result.alpha}'
    yield f'{decoded}, not beam {paper.BEAM}, alpha {paper.ALPHA}'
  if len(result.averaged) != average:
    yield f'{len(result.averaged)} checkpoints averaged, not {average}'
  if result.step != scored.config['train_steps']:
    yield f'step {result.step:,} of {scored.config["train_steps"]:,}'
  if result.lowercase:
    yield 'scored in lower case'
