"""The report's tables of the recipe's pieces."""

from configs import quickstart
from toy.results import cells, changed, of_config, scored
from transformer_jax.report import page, tables
from transformer_jax.report.results import Evaluation


def decoded(
  name: str, seed: int, score: float, config: dict | None = None, **fields: object
) -> Evaluation:
  """Returns a quickstart's result with these changes."""
  usual = quickstart.get_config()
  result = of_config(usual, seed, bleu=score, average=usual.average_last)
  return scored(changed(result, config, **fields), name)


def printed(runs: list[Evaluation], p: float | None = None) -> str:
  return page.markdown(tables.recipe(runs, lambda a, b: p))


def test_each_piece_has_its_own_table():
  hard = {'epsilon_ls': 0.0}
  text = printed(
    [
      decoded('usual', 1, 90.0),
      decoded('greedy', 1, 88.5, beam=1),
      decoded('last', 1, 89.0, averaged=[800]),
      decoded('alpha', 1, 90.25, alpha=1.0),
      decoded('hard', 1, 87.0, hard),
      decoded('two at once', 1, 10.0, beam=1, alpha=1.0),
      decoded('another step', 1, 10.0, beam=1, step=300),
      decoded('another seed', 2, 10.0, beam=1),
    ],
    0.04,
  )
  beam = ['800', '4', '1', '1', '88.50', '90.00', '-1.50', '0.040']
  assert cells(text, 'beam')[1:] == beam
  average = str(quickstart.get_config().average_last)
  last = cells(text, 'checkpoints averaged')
  assert last[2:8] == [average, '1', '1', '89.00', '90.00', '-1.00']
  assert cells(text, 'alpha')[2:4] == ['0.6', '1'] and '+0.25' in text
  assert cells(text, 'epsilon_ls')[2:8] == ['0.1', '0', '1', '87.00', '90.00', '-3.00']
  assert '10.00' not in text


def test_the_ends_of_seeds_are_pooled_where_patience_ended_them():
  """Each is compared at its own end; scores before it count for their step alone."""
  runs = []
  for seed, end in ((1, 300), (2, 600)):
    for beam, score in ((4, 90.0), (1, 88.0 - seed)):
      runs.append(decoded(f'{seed}.{beam}', seed, score, beam=beam, step=end))
  for beam, score in ((4, 50.0), (1, 45.0)):
    runs.append(decoded(f'way.{beam}', 2, score, beam=beam, step=300))
  text = printed(runs)
  lines = [cells(text, 'beam', n)[1:] for n in range(3)]
  assert [line[0] for line in lines] == ['300', '600', '300, 600']
  assert lines[0][3:5] == ['2', '66.00'] and lines[1][3:5] == ['1', '86.00']
  assert lines[2][3:6] == ['2', '86.50', '90.00'] and lines[2][6].startswith('-3.50')


def test_seeds_are_paired():
  runs = []
  for seed, usual, greedy in ((1, 90.0, 89.0), (2, 80.0, 78.0), (3, 85.0, 82.0)):
    runs.append(decoded(f'{seed}', seed, usual))
    runs.append(decoded(f'{seed}.greedy', seed, greedy, beam=1))
  runs.append(decoded('again', 3, 10.0, beam=1))
  # Differences -1, -2, -3: sd 1, t(2) = 4.303, so +- 4.303 / sqrt(3).
  expected = ['3', '83.00', '85.00', '-2.00 ± 2.48', '']
  assert cells(printed(runs), 'beam')[4:] == expected


def test_other_corpora_and_sizes_are_not_compared():
  other = decoded('other', 1, 10.0, beam=1, corpus='another')
  smaller = decoded('smaller', 1, 10.0, {'model.N': 1}, beam=1)
  runs = [decoded('usual', 1, 90.0), other, smaller]
  assert not tables.recipe(runs, lambda *_: 0)
