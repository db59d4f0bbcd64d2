"""result.json: what was written is read, and nothing else is taken for a result."""

import dataclasses
import json
import math
import pathlib
from typing import Any

import pytest

from toy.results import PARSED, RESULT
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.result import OF_TASK, VERSION, Result
from transformer_jax.scoring.score import Score


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
  with pytest.raises(UserError, match='of another type: dev_perplexity;'):
    Result.read(path)


def test_each_task_needs_its_own_scores(tmp_path: pathlib.Path):
  path = tmp_path / 'result.json'
  PARSED.write(path)
  assert Result.read(path) == PARSED and not PARSED.lowercase
  for result in (RESULT, PARSED):
    for name in OF_TASK[result.task]:
      lacks = json.loads(dataclasses.replace(result, **{name: None}).to_json())
      assert f': {name}; ' in refusal(path, lacks)
  unknown = dataclasses.replace(RESULT, task='summarisation')
  assert ': task; ' in refusal(path, json.loads(unknown.to_json()))


def test_a_result_of_before_there_was_parsing(tmp_path: pathlib.Path):
  path = tmp_path / 'result.json'
  older = json.loads(RESULT.to_json())
  path.write_text(json.dumps({k: older[k] for k in older.keys() - LATER}))
  assert Result.read(path) == RESULT


# Fields that older results lack.
LATER = {*OF_TASK['parsing'], 'training_commit'}


@pytest.mark.parametrize(
  'key', [k for k in json.loads(RESULT.to_json()) if k not in LATER]
)
def test_every_field_is_needed(key: str, tmp_path: pathlib.Path):
  result = json.loads(RESULT.to_json())
  del result[key]
  assert key in refusal(tmp_path / 'result.json', result)


@pytest.mark.parametrize(
  ('key', 'value'),
  [
    ('row', 3),
    ('split', None),
    ('text', []),
    ('step', 1.5),
    ('step', True),
    ('step', 10**25),
    ('averaged', ['1']),
    ('averaged', {}),
    ('alpha', '0.6'),
    ('dev_perplexity', float('inf')),
    ('versions', {'jax': 1}),
    ('sacrebleu', 27.3),
    ('sacrebleu.score', float('nan')),
    ('sacrebleu.signature', None),
    ('paper_bleu.interval', [1, None]),
    ('config', []),
    ('config.data.files', {'train': [1]}),
    ('config.data.tokenized', 1),
    ('config.model', None),
    ('config.model.P_drop', 'much'),
    ('config.model.N', 6.5),
  ],
)
def test_another_type_is_named(key: str, value: Any, tmp_path: pathlib.Path):
  message = refusal(tmp_path / 'result.json', replaced(key, value))
  assert f'missing or of another type: {key}; ' in message


@pytest.mark.parametrize('content', ['', '{"task"', '[1]', 'null', '[' * 100_000])
def test_what_is_no_result(content: str, tmp_path: pathlib.Path):
  path = tmp_path / 'result.json'
  path.write_text(content)
  with pytest.raises(UserError, match='result.json: '):
    Result.read(path)
  path.unlink()
  with pytest.raises(UserError, match='result.json: damaged or missing'):
    Result.read(path)


def test_another_version(tmp_path: pathlib.Path):
  """What an older or a newer program wrote is refused with what to do."""
  path = tmp_path / 'result.json'
  assert 'evaluate the run again' in refusal(path, replaced('version', VERSION + 1))
  older = json.loads(RESULT.to_json())
  del older['version']
  assert 'evaluate the run again' in refusal(path, older)


def test_a_result_of_before_targets_had_their_own_vocabulary(tmp_path: pathlib.Path):
  path = tmp_path / 'result.json'
  older = json.loads(RESULT.to_json())
  del older['config']['model']['target_vocab_size']
  path.write_text(json.dumps(older))
  assert Result.read(path) == RESULT


def test_lowercase_is_in_the_signature():
  assert not RESULT.lowercase
  ignored = Score(50.5, 'nrefs:1|case:lc|tok:13a', [49.0, 52.0])
  assert dataclasses.replace(RESULT, sacrebleu=ignored).lowercase
