"""All results beside each other, each with its mark, and samples of translations."""

import pathlib
from collections.abc import Sequence

from transformer_jax.report.blocks import (
  Block,
  Bullets,
  Heading,
  Paragraph,
  Sample,
  Table,
)
from transformer_jax.report.results import Scored

HEADER = ('run', 'scored on', 'step', 'averaged', 'beam', 'alpha', 'sacreBLEU', 'BLEU')
HEADER += ('dev PPL', 'parameters', 'target tokens', 'minutes')
MARKS = '†‡§¶'


def overview(found: Sequence[Scored]) -> list[Block]:
  """One row a result. Scores that cannot be compared with the first are marked."""
  marks = _marks(found)
  kinds = [*marks]
  rows = [_row(scored, marks[_kind(scored)]) for scored in found]
  blocks: list[Block] = [Table(HEADER, rows)]
  if len(kinds) > 1:
    blocks.append(
      Paragraph(
        'Scores with different marks are of different corpora, vocabularies, test sets '
        'or scorers: they cannot be compared.'
      )
    )
  keys = [f'{marks[k]} ' if marks[k] else '' for k in kinds]
  blocks.append(
    Bullets(
      [
        f'{key}{k[0]}, corpus {k[1][:12]}, {k[2]:,} pieces. sacreBLEU: `{k[3]}`; '
        f'BLEU: `{k[4]}`'
        for key, k in zip(keys, kinds, strict=True)
      ]
    )
  )
  return blocks


def marks(found: Sequence[Scored]) -> list[str]:
  """The mark of each result, which stands behind its scores wherever they are shown."""
  each = _marks(found)
  return [each[_kind(scored)] for scored in found]


def _marks(found: Sequence[Scored]) -> dict[tuple, str]:
  kinds = dict.fromkeys(map(_kind, found))
  return {kind: _mark(n) for n, kind in enumerate(kinds)}


def _kind(scored: Scored) -> tuple[str, str, int, str, str]:
  """Test set, corpus, vocabulary, scorers: equal if scores can be compared."""
  vocab_size = scored.config['model']['vocab_size']
  return scored.test_set, scored.result.corpus, vocab_size, *scored.signatures


def _mark(n: int) -> str:
  """The first kind has no mark, the next have † ‡ § ¶, later ones a number."""
  return ('', *MARKS)[n] if n <= len(MARKS) else f'({n})'


def _row(scored: Scored, mark: str) -> list[str]:
  result = scored.result
  return [
    scored.run,
    scored.test_set,
    f'{result.step:,}',
    f'{len(result.averaged)}',
    f'{result.beam}',
    f'{result.alpha}',
    f'{scored.sacrebleu:.2f}{mark}',
    f'{scored.bleu:.2f}{mark}',
    f'{scored.perplexity:.3f}{mark}',
    f'{result.parameters / 1e6:.1f} M',
    f'{result.target_tokens_seen / 1e6:.1f} M',
    f'{result.wall_seconds / 60:.1f}',
  ]


def samples(scored: Scored, data_dir: pathlib.Path, count: int) -> list[Block]:
  """Translations of evenly spaced sentences, if the text is at hand."""
  hypotheses = scored.translations
  held_out = scored.held_out(data_dir)
  if not count or hypotheses is None or held_out is None:
    return []
  sources, references = held_out
  if len(hypotheses) != len(sources):
    return []
  step = max(1, len(sources) // count)
  return [
    Heading(3, f'Sample translations of {scored.run}, {scored.test_set}'),
    *(
      Sample(sources[i], hypotheses[i], references[i])
      for i in range(0, len(sources), step)[:count]
    ),
  ]
