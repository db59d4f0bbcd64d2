"""A table of all results, footnotes on how they were scored, sample translations."""

from collections.abc import Sequence
from typing import NamedTuple

from transformer_jax.report import recipe
from transformer_jax.report.page import heading, table
from transformer_jax.report.results import HeldOut, Scored
from transformer_jax.report.table3 import SACREBLEU

HEADER = ('run', 'sacreBLEU', 'BLEU', 'dev PPL', 'scored on', 'step', 'averaged')
HEADER += ('beam', 'alpha', 'parameters', 'target tokens', 'minutes')
SUPERSCRIPTS = str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹')


class Kind(NamedTuple):
  """What a score is of, and how it was computed: equal if scores can be compared."""

  test_set: str
  text: str | None  # such as 'detokenised'
  corpus: str
  pieces: int
  signatures: tuple[str, str]


def kind(scored: Scored) -> Kind:
  pieces = scored.config['model']['vocab_size']
  result = scored.result
  return Kind(scored.test_set, result.text, result.corpus, pieces, scored.signatures)


def marks(results: Sequence[Scored]) -> dict[Kind, str]:
  """Returns the superscript number of each kind's footnote."""
  kinds = dict.fromkeys(map(kind, results))
  return {one: f'{n}'.translate(SUPERSCRIPTS) for n, one in enumerate(kinds, 1)}


def footnotes(results: Sequence[Scored]) -> list[str]:
  """Returns a footnote for each kind of score; spells each signature out once."""
  first: dict[tuple[str, str], str] = {}
  items = []
  for one, mark in marks(results).items():
    of = one.test_set if one.text is None else f'{one.test_set}, {one.text}'
    text = f'{mark} {of}, corpus {one.corpus[:12]}, {one.pieces:,} pieces. '
    if one.signatures in first:
      text += f'Scored as {first[one.signatures]}.'
    else:
      text += 'sacreBLEU: {}; BLEU: {}.'.format(*one.signatures)
    first.setdefault(one.signatures, mark)
    items.append(text)
  return items


def every_result(results: Sequence[Scored]) -> list[str]:
  """Returns a table with one row a result."""
  each = marks(results)
  rows = [_row(scored, each[kind(scored)]) for scored in results]
  return [heading(2, 'Every result'), table(HEADER, rows)]


def _row(scored: Scored, mark: str) -> list[str]:
  result = scored.result
  return [
    scored.run_with_parent,
    f'{result.sacrebleu.score:.2f}{mark}',
    f'{scored.bleu:.2f}{mark}',
    f'{result.dev_perplexity:.3f}',
    scored.test_set,
    f'{result.step:,}',
    f'{len(result.averaged)}',
    f'{result.beam}',
    f'{result.alpha}',
    f'{result.parameters / 1e6:.1f} M',
    f'{result.target_tokens_seen / 1e6:.1f} M',
    f'{result.wall_seconds / 60:.1f}',
  ]


def representatives(results: Sequence[Scored]) -> list[Scored]:
  """Returns a result for each run and kind: the newest step, as configured if any."""
  best: dict[tuple, tuple] = {}
  for scored in results:
    key = scored.home, kind(scored)
    rank = scored.result.step, recipe.as_configured(scored)
    if key not in best or rank >= best[key][0]:
      best[key] = rank, scored
  return [scored for _, scored in best.values()]


def best_scores(results: Sequence[Scored]) -> list[Scored]:
  """Returns the representative of each kind with the highest sacreBLEU."""
  alike: dict[Kind, list[Scored]] = {}
  for scored in representatives(results):
    alike.setdefault(kind(scored), []).append(scored)
  return [max(of_kind, key=SACREBLEU) for of_kind in alike.values()]


def samples(results: Sequence[Scored], texts: HeldOut, count: int) -> list[str]:
  """Returns evenly spaced sentences of each test set whose corpus is prepared.

  Their translations are of each row's run of the lowest seed.
  """
  alike: dict[tuple, dict[str, Scored]] = {}
  for scored in sorted(representatives(results), key=lambda scored: scored.seed):
    text, lines = texts.text(scored), scored.translations
    if text is not None and lines is not None and len(lines) == len(text[0]):
      runs = alike.setdefault((scored.test_set, scored.corpus), {})
      runs.setdefault(scored.row or scored.run, scored)
  blocks: list[str] = []
  for (test_set, _), runs in alike.items() if count else ():
    shown = [scored for scored in results if scored in runs.values()]
    sources, references = texts.text(shown[0])
    blocks.append(heading(2, f'Sample translations of {test_set}'))
    for i in range(0, len(sources), max(1, len(sources) // count))[:count]:
      lines = [(scored.run, scored.translations[i]) for scored in shown]
      rows = [('reference', references[i]), *lines]
      blocks.append(table(('source', sources[i]), rows))
  return blocks
