"""A table of all results, footnotes on how they were scored, sample translations."""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from transformer_jax.report import recipe
from transformer_jax.report.blocks import Block, Bullets, Heading, Table
from transformer_jax.report.results import Scored

HEADER = ('run', 'sacreBLEU', 'BLEU', 'dev PPL', 'scored on', 'step', 'averaged')
HEADER += ('beam', 'alpha', 'parameters', 'target tokens', 'minutes')
SUPERSCRIPTS = str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹')


class Kind(NamedTuple):
  """What a score is of, and how it was made: equal if scores can be compared."""

  test_set: str
  text: str | None  # such as 'detokenised'
  corpus: str
  pieces: int
  signatures: tuple[str, str]


def kind(scored: Scored) -> Kind:
  pieces = scored.config['model']['vocab_size']
  result = scored.result
  return Kind(scored.test_set, result.text, result.corpus, pieces, scored.signatures)


def marks(found: Sequence[Scored]) -> dict[Kind, str]:
  """The superscript number of each kind's footnote, which follows the kind's scores."""
  kinds = dict.fromkeys(map(kind, found))
  return {one: f'{n}'.translate(SUPERSCRIPTS) for n, one in enumerate(kinds, 1)}


def footnotes(found: Sequence[Scored]) -> list[Block]:
  """A footnote for each kind of score; each pair of signatures is spelt out once."""
  first: dict[tuple[str, str], str] = {}
  items = []
  for one, mark in marks(found).items():
    of = one.test_set if one.text is None else f'{one.test_set}, {one.text}'
    text = f'{mark} {of}, corpus {one.corpus[:12]}, {one.pieces:,} pieces. '
    if one.signatures in first:
      text += f'Scored as {first[one.signatures]}.'
    else:
      text += 'sacreBLEU: {}; BLEU: {}.'.format(*one.signatures)
    first.setdefault(one.signatures, mark)
    items.append(text)
  return [Heading(2, 'How it was scored'), Bullets(items)]


def table(found: Sequence[Scored]) -> Table:
  """One row a result."""
  each = marks(found)
  return Table(HEADER, [_row(scored, each[kind(scored)]) for scored in found])


def _row(scored: Scored, mark: str) -> list[str]:
  result = scored.result
  return [
    scored.run_and_origin,
    f'{scored.sacrebleu:.2f}{mark}',
    f'{scored.bleu:.2f}{mark}',
    f'{scored.perplexity:.3f}',
    scored.test_set,
    f'{result.step:,}',
    f'{len(result.averaged)}',
    f'{result.beam}',
    f'{result.alpha}',
    f'{result.parameters / 1e6:.1f} M',
    f'{result.target_tokens_seen / 1e6:.1f} M',
    f'{result.wall_seconds / 60:.1f}',
  ]


def representatives(found: Sequence[Scored]) -> list[Scored]:
  """For each run and kind, a result of the newest step, as configured if possible."""
  best: dict[tuple, tuple] = {}
  for scored in found:
    key = scored.home, kind(scored)
    rank = scored.result.step, recipe.as_configured(scored)
    if key not in best or rank >= best[key][0]:
      best[key] = rank, scored
  return [scored for _, scored in best.values()]


def best(found: Sequence[Scored]) -> list[Scored]:
  """Of each kind the representative with the highest sacreBLEU."""
  highest: dict[Kind, Scored] = {}
  for scored in representatives(found):
    own = kind(scored)
    if own not in highest or scored.sacrebleu > highest[own].sacrebleu:
      highest[own] = scored
  return [*highest.values()]


def samples(found: Sequence[Scored], data_dir: pathlib.Path, count: int) -> list[Block]:
  """Evenly spaced sentences of each test set whose text is at hand.

  Of the runs of a row the one of the lowest seed translates them.
  """
  alike: dict[tuple, dict[str, Scored]] = {}
  for scored in sorted(representatives(found), key=lambda scored: scored.seed):
    text, lines = scored.held_out(data_dir), scored.translations
    if text is not None and lines is not None and len(lines) == len(text[0]):
      runs = alike.setdefault((scored.test_set, scored.result.corpus), {})
      runs.setdefault(scored.result.row or scored.run, scored)
  made: list[Block] = []
  for (test_set, _), runs in alike.items() if count else ():
    shown = [scored for scored in found if scored in runs.values()]
    sources, references = shown[0].held_out(data_dir)
    made.append(Heading(2, f'Sample translations of {test_set}'))
    for i in range(0, len(sources), max(1, len(sources) // count))[:count]:
      lines = [(scored.run, scored.translations[i]) for scored in shown]
      made.append(Table(('source', sources[i]), [('reference', references[i]), *lines]))
  return made
