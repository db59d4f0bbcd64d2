"""What runs say to the conclusions that the paper draws from Table 3."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from transformer_jax.report import paper
from transformer_jax.report.blocks import Block, Facts, Heading, Paragraph
from transformer_jax.report.differences import Differences, paper_differences

# In words, of one and of several.
VERDICTS = {
  'agrees': ('agrees', 'agree'),
  'disagrees': ('disagrees', 'disagree'),
  'undecided': ('is undecided', 'are undecided'),
  'not run': ('was not run', 'were not run'),
}


class Judged(NamedTuple):
  """A claim beside our runs."""

  claim: paper.Claim
  verdict: str  # of VERDICTS
  rows: dict[str, tuple[str, str]]  # verdicts in perplexity and BLEU of each row run


def judge(found: Differences) -> list[Judged]:
  """Each of the paper's claims, judged by what it says of its rows."""
  return [_judge(claim, found) for claim in paper.CLAIMS]


def _judge(claim: paper.Claim, found: Differences) -> Judged:
  """A claim agrees if no row disagrees, and perplexity and BLEU agree in a row each."""
  rows = {
    row: tuple(ours.verdict(s) for s, ours in zip(signs, found[row], strict=True))
    for row, signs in claim.rows.items()
    if row in found
  }
  all_said = {verdict for both in rows.values() for verdict in both}
  if not rows:
    verdict = 'not run'
  elif 'disagrees' in all_said and 'agrees' not in all_said:
    verdict = 'disagrees'
  elif 'disagrees' not in all_said and all(
    'agrees' in measure for measure in zip(*rows.values(), strict=True)
  ):
    verdict = 'agrees'
  else:
    verdict = 'undecided'
  return Judged(claim, verdict, rows)


def counted(judged: Sequence[Judged]) -> str:
  """'Of 7 claims 3 agree, 1 disagrees, 2 are undecided, 1 was not run.'"""
  return f'Of {len(judged)} claims {_counts(one.verdict for one in judged)}.'


def _counts(verdicts: Iterable[str]) -> str:
  count = Counter(verdicts)
  said = (
    f'{count[verdict]} {one if count[verdict] == 1 else many}'
    for verdict, (one, many) in VERDICTS.items()
    if count[verdict]
  )
  return ', '.join(said)


def in_short(judged: Judged, found: Differences) -> str:
  """The claim with its rows' differences, or with verdict counts if over two rows."""
  text = judged.claim.text
  if len(judged.rows) > 2:
    each = [verdict for both in judged.rows.values() for verdict in both]
    return f'{text} Of {len(each)} differences {_counts(each)}.'
  for row in judged.rows:
    (ppl, bleu), (papers_ppl, papers_bleu) = found[row], paper_differences(row)
    text += f' {row}: {ppl.mean:+.2f} PPL (paper {papers_ppl:+.2f}),'
    text += f' {bleu.mean:+.1f} BLEU ({papers_bleu:+.1f}).'
  return text


def blocks(judged: Sequence[Judged], found: Differences) -> list[Block]:
  """Each claim with its verdict, and each of its rows beside the paper's."""
  return [
    Heading(3, "The paper's claims"),
    Paragraph(
      f"{counted(judged)} Differences from base, the paper's in brackets. A row is "
      'judged by the direction that the claim says, with the intervals and tests of '
      'the table below. A claim agrees where nothing disagrees, and perplexity agrees '
      'in some row and BLEU in some row; it disagrees where something disagrees and '
      'nothing agrees; else it is undecided.'
    ),
    Facts([_fact(one, found) for one in judged]),
  ]


def _fact(judged: Judged, found: Differences) -> tuple[str, str]:
  said = []
  for row, verdicts in judged.rows.items():
    (ppl, bleu), (papers_ppl, papers_bleu) = found[row], paper_differences(row)
    said.append(
      f'{row}: perplexity {ppl.mean:+.2f} ({papers_ppl:+.2f}) {verdicts[0]}, '
      f'BLEU {bleu.mean:+.2f} ({papers_bleu:+.1f}) {verdicts[1]}.'
    )
  text, section = judged.claim.text.removesuffix('.'), judged.claim.section
  rows = ', '.join(judged.claim.rows)
  return f'{judged.verdict.capitalize()}: {text} ({section})', ' '.join(said) or rows
