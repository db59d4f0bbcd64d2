"""The report's tables of the recipe's pieces and of scorers, from made results."""

import json
import pathlib

import pytest
import test_report
from test_report import line, of_config, prepared, result  # noqa: F401

from configs import quickstart
from transformer_jax.data import held_out
from transformer_jax.report import page, recipe, results, scorers
from transformer_jax.scoring import bleu


def scored(folder: pathlib.Path, name: str, values: dict) -> results.Scored:
  path = folder / f'{name}.json'
  path.write_text(json.dumps(values))
  found, left_out = results.read(str(path))
  assert not left_out
  return found[0]


def decoded(seed: int, score: float, **changes: object) -> dict:
  """A quickstart's result, as its config decodes but for the changes."""
  config = quickstart.get_config()
  values = of_config(config, seed, score=score)
  last = config.train_steps
  values['averaged'] = [last - n for n in range(config.average_last)]
  epsilon = changes.pop('epsilon_ls', None)
  if epsilon is not None:
    values['config']['epsilon_ls'] = epsilon
  return values | changes


def printed(found: list[results.Scored], p: float | None = None) -> str:
  return page.markdown(recipe.recipe(found, lambda a, b: p))


def test_each_piece_is_told_by_itself(tmp_path: pathlib.Path):
  made = {
    'usual': decoded(1, 90.0),
    'greedy': decoded(1, 88.5, beam=1),
    'last': decoded(1, 89.0, averaged=[600]),
    'alpha': decoded(1, 90.25, alpha=1.0),
    'hard': decoded(1, 87.0, epsilon_ls=0.0),
    'two at once': decoded(1, 10.0, beam=1, alpha=1.0),
    'another step': decoded(1, 10.0, beam=1, step=300),
    'another seed': decoded(2, 10.0, beam=1),
  }
  text = printed([scored(tmp_path, *item) for item in made.items()], 0.04)
  assert line(text, 'beam')[1:] == ['4', '1', '1', '88.50', '90.00', '-1.50', '0.040']
  average = str(quickstart.get_config().average_last)
  cells = line(text, 'checkpoints averaged')
  assert cells[1:7] == [average, '1', '1', '89.00', '90.00', '-1.00']
  assert line(text, 'alpha')[1:3] == ['0.6', '1'] and '+0.25' in text
  assert line(text, 'epsilon_ls')[1:7] == ['0.1', '0', '1', '87.00', '90.00', '-3.00']
  assert '10.00' not in text


def test_seeds_are_paired_and_their_spread_told(tmp_path: pathlib.Path):
  made = []
  for seed, usual, greedy in ((1, 90.0, 89.0), (2, 80.0, 78.0), (3, 85.0, 82.0)):
    made.append(scored(tmp_path, f'{seed}', decoded(seed, usual)))
    made.append(scored(tmp_path, f'{seed}.greedy', decoded(seed, greedy, beam=1)))
  made.append(scored(tmp_path, 'again', decoded(3, 10.0, beam=1)))
  cells = line(printed(made), 'beam')
  # Differences -1, -2, -3: sd 1, t(2) = 4.303, so +- 4.303 / sqrt(3).
  assert cells[3:] == ['3', '83.00', '85.00', '-2.00 ± 2.48', '']


def test_other_corpora_and_sizes_are_not_compared(tmp_path: pathlib.Path):
  other = decoded(1, 10.0, beam=1) | {'corpus': 'another'}
  smaller = decoded(1, 10.0, beam=1)
  smaller['config']['model']['N'] = 1
  made = {'usual': decoded(1, 90.0), 'other': other, 'smaller': smaller}
  assert not recipe.recipe([scored(tmp_path, *i) for i in made.items()], lambda *_: 0)


@pytest.fixture
def translated(prepared: tuple, tmp_path: pathlib.Path) -> results.Scored:  # noqa: F811
  data, hash_ = prepared
  values = test_report.result('base', 1) | {'corpus': hash_}
  made = test_report.made(values, tmp_path, 'run')
  made.text.parent.mkdir()
  lines = (
    f'<i>Target</i> sentence-{n} “of” some words\n'
    for n in range(test_report.SENTENCES)
  )
  made.text.write_text(''.join(lines))
  return test_report.made(values, tmp_path, 'run')


def test_scorers(
  translated: results.Scored,
  prepared: tuple,  # noqa: F811
):
  blocks = scorers.scorers([translated], ['†'], prepared[0])
  cells = [
    float(x.removesuffix('†')) for x in line(page.markdown(blocks), 'run', 1)[2:]
  ]
  lines = translated.translations
  _, references = held_out.text(prepared[0] / 'newsmix.en-de.mini', 'dev')
  assert cells[0] == round(bleu.sacre_bleu(lines, references).score, 2)
  assert cells[3] == round(bleu.paper_bleu(lines, references, 'de').score, 2)
  assert cells[1] > cells[0] and cells[4] > cells[3] and cells[2] != cells[3]


def test_no_scorers_without_text(translated: results.Scored, tmp_path: pathlib.Path):
  assert scorers.scorers([translated], [''], tmp_path / 'elsewhere') == []
