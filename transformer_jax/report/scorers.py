"""The same translations under every scorer, to show how much scorers differ."""

import pathlib
import sys
from collections.abc import Sequence

from transformer_jax.machine.errors import UserError
from transformer_jax.report.blocks import Block, Heading, Paragraph, Table
from transformer_jax.report.results import Scored
from transformer_jax.scoring import bleu, moses

HEADER = ('run', 'scored on', 'sacreBLEU', 'sacreBLEU, lower-cased', 'Moses tokens')
HEADER += ("the paper's: and compounds split", "the paper's, lower-cased")


def scorers(found: Sequence[Scored], data_dir: pathlib.Path) -> list[Block]:
  """One row a result whose text is at hand and was not tokenised before."""
  rows = []
  for scored in found:
    hypotheses, held_out = scored.translations, scored.held_out(data_dir)
    if scored.config['data']['tokenized'] or hypotheses is None or held_out is None:
      continue
    if len(hypotheses) != len(held_out[1]):
      continue
    try:
      scores = all_scores(
        hypotheses, held_out[1], scored.config['data']['target_language']
      )
    except UserError as error:  # what cuts the language into words is not installed
      print(f'{scored.run} is not scored anew: {error}', file=sys.stderr)
      continue
    rows.append([scored.run, scored.test_set, *(f'{x:.2f}' for x in scores)])
  if not rows:
    return []
  note = (
    'BLEU of the same lines, those of the highest score above on each test set. Moses '
    "tokens are scored by multi-bleu.perl's formula, without and with compounds split "
    'at their hyphens, as ##AT##-##AT##.'
  )
  return [
    Heading(2, 'The same translations under every scorer'),
    Table(HEADER, rows),
    Paragraph(note),
  ]


def all_scores(
  hypotheses: Sequence[str], references: Sequence[str], language: str
) -> list[float]:
  """BLEU in percent under each of HEADER's scorers; text is detokenised."""
  tokens = lambda lines: [' '.join(moses.tokenize(line, language)) for line in lines]
  plain = [moses.replace_unicode_punctuation(line) for line in hypotheses]
  texts = hypotheses, references
  return [
    bleu.sacre_bleu(*texts, language=language).score,
    bleu.sacre_bleu(*texts, lowercase=True, language=language).score,
    bleu.tokenized_bleu(tokens(plain), tokens(references)).score,
    bleu.paper_bleu(*texts, language).score,
    bleu.paper_bleu(*texts, language, lowercase=True).score,
  ]
