"""result.json: what was written is read, and nothing else is taken for a result."""

import dataclasses
import json
import math
import pathlib
from typing import Any

import pytest

from toy.results import PARSED, RESULT
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.result import VERSION, Result
from transformer_jax.scoring.bleu import Score


def replaced(key: str, value: Any) -> dict:
  """The result as JSON has it, with another value at a dotted key."""
  result = json.loads(RESULT.to_json())
  *outer, last = key.split('.')
  owner = result
  for name in outer:
    owner = owner[name]
  owner[last] = value
  return result


def refusal(path: pathlib.Path, result: object) -> str:
  path.write_text(json.dumps(result))
  with pytest.raises(UserError) as caught:
    Result.read(path)
  assert str(path) in str(caught.value)
  return str(caught.value)


def test_what_is_written_is_read(tmp_path: pathlib.Path):
  path = tmp_path / 'result.json'
  RESULT.write(path)
  assert Result.read(path) == RESULT
  assert path.read_text() == RESULT.to_json()
  assert list(json.loads(path.read_text())) == [
    field.name for field in dataclasses.fields(Result)
  ]


def test_what_is_written_is_json(tmp_path: pathlib.Path):
  """Which has no NaN: it is null, and no result's."""
  path = tmp_path / 'result.json'
  dataclasses.replace(RESULT, dev_perplexity=math.nan).write(path)
  assert 'NaN' not in path.read_text() and '"dev_perplexity": null' in path.read_text()
  with pytest.raises(UserError, match=r'`\$.dev_perplexity`'):
    Result.read(path)


def test_a_translation_needs_its_scores(tmp_path: pathlib.Path):
  path = tmp_path / 'result.json'
  PARSED.write(path)
  assert Result.read(path) == PARSED and not PARSED.lowercase
  for name in ('sacrebleu', 'paper_bleu'):
    assert 'without its scores' in refusal(path, replaced(name, None))


@pytest.mark.parametrize(
  ('key', 'value'),
  [
    ('split', None),
    ('averaged', ['1']),
    ('sacrebleu', 27.3),
    ('paper_bleu.interval', [1, None]),
    ('config.model', None),
    ('config.model.P_drop', 'much'),
  ],
)
def test_another_type_is_named(key: str, value: Any, tmp_path: pathlib.Path):
  message = refusal(tmp_path / 'result.json', replaced(key, value))
  assert key.removeprefix('config.') in message and 'evaluate the run again' in message


@pytest.mark.parametrize('content', ['', '{"task"', '[1]'])
def test_what_is_no_result(content: str, tmp_path: pathlib.Path):
  path = tmp_path / 'result.json'
  path.write_text(content)
  with pytest.raises(UserError, match='result.json: damaged'):
    Result.read(path)
  path.unlink()
  with pytest.raises(UserError, match='result.json: not there'):
    Result.read(path)


@pytest.mark.parametrize('version', [VERSION + 1, 1, None])
def test_another_version(version: int | None, tmp_path: pathlib.Path):
  """What an older or a newer program wrote is refused with what to do."""
  message = refusal(tmp_path / 'result.json', replaced('version', version))
  assert f'version {version}, not {VERSION}' in message
  assert 'evaluate the run again' in message


def test_lowercase_is_in_the_signature():
  assert not RESULT.lowercase
  ignored = Score(50.5, 'nrefs:1|case:lc|tok:13a', [49.0, 52.0])
  assert dataclasses.replace(RESULT, sacrebleu=ignored).lowercase
