"""result.json is read as it was written, and anything else is refused."""

import dataclasses
import json
import math
import pathlib

import pytest

from toy.results import PARSED, RESULT, changed
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.result import VERSION, Result
from transformer_jax.scoring.bleu import Score


def test_what_is_written_is_read(tmp_path: pathlib.Path):
  path = tmp_path / 'result.json'
  RESULT.write(path)
  assert Result.read(path) == RESULT
  assert path.read_text() == RESULT.to_json()
  assert list(json.loads(path.read_text())) == [
    field.name for field in dataclasses.fields(Result)
  ]


def test_what_is_written_is_json(tmp_path: pathlib.Path):
  """NaN becomes null, with which a result is refused."""
  path = tmp_path / 'result.json'
  dataclasses.replace(RESULT, dev_perplexity=math.nan).write(path)
  assert 'NaN' not in path.read_text() and '"dev_perplexity": null' in path.read_text()
  with pytest.raises(UserError, match=r'`\$.dev_perplexity`'):
    Result.read(path)


def test_a_parsers_result_needs_no_bleu(tmp_path: pathlib.Path):
  path = tmp_path / 'result.json'
  PARSED.write(path)
  assert Result.read(path) == PARSED and not PARSED.lowercase


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'sacrebleu': None}, 'without its scores'),
    ({'paper_bleu': None}, 'without its scores'),
    ({'averaged': ['1']}, 'averaged'),
    ({'paper_bleu': Score(51, '', [1, None])}, 'paper_bleu.interval'),
    ({'config': {'model.P_drop': 'much'}}, 'model.P_drop'),
    *(({'version': v}, f'version {v}, not {VERSION}') for v in (VERSION + 1, None)),
  ],
)
def test_what_is_refused(change: dict, message: str, tmp_path: pathlib.Path):
  """The message names the file and advises to evaluate again."""
  path = tmp_path / 'result.json'
  path.write_text(changed(RESULT, **change).to_json())
  with pytest.raises(UserError) as error:
    Result.read(path)
  for words in (str(path), message, 'evaluate the run again'):
    assert words in str(error.value)


@pytest.mark.parametrize('content', ['', '{"task"', '[1]'])
def test_what_is_no_result(content: str, tmp_path: pathlib.Path):
  path = tmp_path / 'result.json'
  path.write_text(content)
  with pytest.raises(UserError, match='result.json: damaged'):
    Result.read(path)
  path.unlink()
  with pytest.raises(UserError, match='result.json: no such file'):
    Result.read(path)


def test_lowercase_is_in_the_signature():
  assert not RESULT.lowercase
  ignored = Score(50.5, 'nrefs:1|case:lc|tok:13a', [49.0, 52.0])
  assert dataclasses.replace(RESULT, sacrebleu=ignored).lowercase
