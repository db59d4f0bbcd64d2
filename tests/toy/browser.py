"""The page's JavaScript, run by Node."""

import json
import pathlib
import shutil
import subprocess
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from transformer_jax.exchange import page

TRANSFORMER = pathlib.Path(page.__file__).with_name('transformer.js')
TRANSLATE = """
const {model, lines, options} = JSON.parse(require('fs').readFileSync(0, 'utf8'));
const loaded = load(JSON.stringify(model));
console.log(JSON.stringify(lines.map(line => {
  const search = translate(loaded, line, options);
  let step;
  do step = search.next(); while (!step.done);
  const {source, target} = step.value;
  const weights = Object.values(attentionWeights(loaded, AS_TRAINED, source, target));
  return {...step.value, weights: weights.map(rows => rows.map(row => [...row]))};
})));
"""


def run_node(code: str, given: Any) -> Any:
  """Returns the JSON that transformer.js, followed by `code`, prints."""
  if not shutil.which('node'):
    pytest.skip('Node is not installed')
  script = TRANSFORMER.read_text() + code
  done = subprocess.run(
    ['node', '-e', script], input=json.dumps(given), capture_output=True, text=True
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


def translate(model: dict[str, Any], lines: Sequence[str]) -> list[dict[str, Any]]:
  """Returns what the page's model makes of each line."""
  outputs = run_node(TRANSLATE, {'model': model, 'lines': [*lines], 'options': {}})
  N, h = model['sizes']['N'], model['sizes']['h']
  for output in outputs:
    weights = (np.array(kind, np.float32) for kind in output['weights'])
    T, S = len(output['target']), len(output['source'])
    shapes = (S, S), (T, T), (T, S)
    output['weights'] = [
      x.reshape(N, h, *shape) for x, shape in zip(weights, shapes, strict=True)
    ]
  return outputs
