"""docs/the_paper.ipynb: its sections and its outputs.

`jupyter-execute --inplace docs/the_paper.ipynb` stores new outputs.
"""

import json
import pathlib

ROOT = pathlib.Path(__file__).parents[1]
PATH = ROOT / 'docs' / 'the_paper.ipynb'
SECTIONS = ('3.1', '3.2', '3.3', '3.4', '3.5', '5.1', '5.2', '5.3', '5.4', '6.1')


def test_sections_and_outputs():
  """Outputs are of one execution from the first cell to the last."""
  cells = json.loads(PATH.read_text())['cells']
  text = '\n'.join(''.join(cell['source']) for cell in cells)
  headings = [line.split()[1] for line in text.splitlines() if line.startswith('## ')]
  assert tuple(headings) == SECTIONS
  cells = [cell for cell in cells if cell['cell_type'] == 'code']
  assert [cell['execution_count'] for cell in cells] == [*range(1, len(cells) + 1)]
  outputs = [output for cell in cells for output in cell['outputs']]
  kinds = [kind for output in outputs for kind in output.get('data', ())]
  assert kinds.count('text/markdown') > len(SECTIONS)
  assert kinds.count('image/png') >= len(SECTIONS)
  assert not [output for output in outputs if output['output_type'] == 'error']
  assert not [output for output in outputs if output.get('name') == 'stderr']
