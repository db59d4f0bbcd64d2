"""What runs say to the paper's claims, row by row and together."""

import pytest

from toy.results import family
from transformer_jax.report import claims, differences, grouping, page
from transformer_jax.report.claims import Judged

# Perplexity and BLEU of one run of a row beside family()'s base, of 5.0 and 20.0, whose
# seeds can tell differences of 0.50 and 0.99.
WORSE, BETTER, SAME = (7.0, 16.0), (3.0, 24.0), (5.1, 20.1)


def judged(*rows: tuple) -> tuple[dict[str, Judged], differences.Differences]:
  """By the first words of each claim; family() has a C1 that is worse."""
  (group,), _ = grouping.group(family(*((row, 1, *scores) for row, scores in rows)))
  found = differences.differences(group, lambda *_: 0.01)
  return {one.claim.text.split()[0]: one for one in claims.judge(found)}, found


@pytest.mark.parametrize(
  'claim, rows, verdict',
  [
    ('One', [('A1', WORSE)], 'agrees'),
    ('One', [('A1', BETTER)], 'disagrees'),
    ('One', [('A1', SAME)], 'undecided'),
    ('One', [('A1', (7.0, 20.1))], 'undecided'),  # BLEU tells nothing
    ('One', [('A1', (7.0, 24.0))], 'undecided'),  # one for, one against
    ('One', [('A1', (5.1, 24.0))], 'disagrees'),
    ('One', [], 'not run'),
    ('Smaller', [('B1', WORSE), ('B2', SAME)], 'agrees'),
    ('Smaller', [('B1', WORSE), ('B2', BETTER)], 'undecided'),
    ('Bigger', [], 'agrees'),  # by C1
    ('Bigger', [('C3', BETTER)], 'agrees'),
    ('Bigger', [('C3', WORSE)], 'undecided'),  # although the paper's BLEU fell, too
    ('Learned', [('E', SAME)], 'undecided'),
    ('Learned', [('E', BETTER)], 'disagrees'),
    ('Label', [('D3', (3.0, 16.0))], 'agrees'),
    ('Label', [('D3', WORSE)], 'undecided'),
  ],
)
def test_verdict_of_a_claim(claim: str, rows: list[tuple], verdict: str):
  assert judged(*rows)[0][claim].verdict == verdict


def test_claims_are_counted_and_their_effects_told():
  by_claim, found = judged(('A1', WORSE), ('B1', BETTER), ('C3', SAME), ('C2', WORSE))
  each = [*by_claim.values()]
  assert claims.counted(each) == ('Of 7 claims 2 agree, 1 disagrees, 4 were not run.')
  text = page.markdown(claims.blocks(each, found))
  assert (
    '- **Agrees: One head is worse than eight (section 6.2)**: A1: perplexity +2.00 '
    '(+0.37) agrees, BLEU -4.00 (-0.9) agrees.\n'
  ) in text
  assert '- **Not run: Too many heads are worse, too (section 6.2)**: A4\n' in text
  assert claims.in_short(by_claim['One'], found) == (
    'One head is worse than eight. A1: +2.00 PPL (paper +0.37), -4.0 BLEU (-0.9).'
  )
  assert claims.in_short(by_claim['Bigger'], found).endswith(
    'Of 6 differences 4 agree, 2 are undecided.'
  )
