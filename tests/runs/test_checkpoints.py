"""Which checkpoints a run has and averages; a missing one is named."""

import json
import pathlib
import shutil

import pytest

from toy.config import tiny
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.run import MANIFEST, Run, chosen_steps


def add(folder: pathlib.Path, *numbers: int) -> None:
  """Writes what shows a finished checkpoint: its name and a manifest."""
  for step in numbers:
    (folder / str(step)).mkdir(parents=True)
    (folder / str(step) / MANIFEST).touch()


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
  add(tmp_path / 'checkpoints', 1, 2, 3)
  return tmp_path / 'checkpoints'


def to_average(folder: pathlib.Path, every: int, count=None, last=None) -> list[int]:
  config = tiny(checkpoint_every_steps=every, average_last=2)
  return chosen_steps(Run(folder.parent), config, count, last)


def test_one_that_is_missing_is_not_left_out(folder: pathlib.Path, capsys):
  """Among those to average, or as the newest; --average and --step choose others."""
  assert to_average(folder, 1) == [2, 3], 'as many as the config says'
  add(folder, 4, 5, 6)
  assert to_average(folder, 1, 3) == [4, 5, 6]
  (folder / '5' / MANIFEST).unlink()
  with pytest.raises(UserError, match='no checkpoint of step 5, .* give --average=1 '):
    to_average(folder, 1, 3)
  assert to_average(folder, 1, 1) == [6]
  (folder / '6').rename(folder / '6.damaged')
  (folder / '5').rename(folder / '7')
  with pytest.raises(UserError, match='no .* step 7: give --step one of 1, 2, 3, 4'):
    to_average(folder, 1, 1)
  assert to_average(folder, 1, 2, last=4) == [3, 4]
  with pytest.raises(UserError, match='no checkpoint of step 6'):
    to_average(folder, 1, 1, last=6)
  shutil.rmtree(folder / '7')
  assert to_average(folder, 1, 2) == [3, 4]
  (folder.parent / 'metrics.jsonl').write_text('{"step": 5, "saved": true}\n')
  with pytest.raises(UserError, match='no checkpoint of step 5'):
    to_average(folder, 1, 2)
  assert capsys.readouterr().err == ''


def test_a_training_goes_on_meanwhile(folder: pathlib.Path, monkeypatch):
  """A checkpoint is added, and the oldest is deleted, while steps are chosen."""

  def train(run: Run) -> int:
    if (folder / '1').exists():
      add(folder, 4)
      shutil.rmtree(folder / '1')
    return 0

  monkeypatch.setattr(Run, 'newest_saved', train)
  assert to_average(folder, 1, 3) == [2, 3, 4]


def test_a_short_run_has_fewer_to_average(folder: pathlib.Path, capsys):
  """It averages all, and says so: the newest, and multiples before it."""
  assert to_average(folder, 1, 5) == [1, 2, 3]
  assert capsys.readouterr().err == 'averaging 3 checkpoints: no more were made\n'
  assert to_average(folder, 2, 2) == [2, 3]


def test_the_best_on_dev(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]):
  """It is the best by the config's measure, and alone unless --average is higher."""
  run = Run(folder.parent)

  def choose(best_by: str, count: int | None = None) -> list[int]:
    config = tiny(checkpoint_every_steps=1, average_last=2, best_by=best_by)
    (run.workdir / 'config.json').write_text(config.to_json_best_effort())
    return chosen_steps(run, config, count, 'best')

  lines = [{'step': s, 'dev_perplexity': abs(s - 2), 'dev_bleu': s} for s in (1, 2, 3)]
  run.metrics.write_text(''.join(json.dumps(line) + '\n' for line in lines))
  with pytest.raises(UserError, match='no best checkpoint .train with --config.b'):
    choose('')
  assert choose('perplexity') == [2] and choose('perplexity', 2) == [1, 2]
  assert choose('bleu') == [3] and run.best_step() == 3
  assert not capsys.readouterr().err
  config = tiny(checkpoint_every_steps=1, average_last=2, best_by='perplexity')
  assert chosen_steps(run, config, None, None) == [2, 3]
  config.patience = 1
  assert chosen_steps(run, config, None, None) == [2, 3]
  hint = 'step 2 was the best on dev (--step=best takes it)'
  assert capsys.readouterr().err == f'{run.workdir}: {hint}\n'
  run.metrics.write_text('')
  with pytest.raises(UserError, match='no dev bleu was measured yet'):
    choose('bleu')
