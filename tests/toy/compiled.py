"""The published results of compiled programs."""

import json
import pathlib
from typing import Any

PUBLISHED = pathlib.Path(__file__).parents[2] / 'results' / 'scale'


def results_of(name: str) -> dict[str, dict[str, Any]]:
  """Returns a config's results by topology, from a file of results/scale."""
  described = json.loads((PUBLISHED / f'{name}.json').read_text())
  return {result['topology']: result for result in described['topologies']}
