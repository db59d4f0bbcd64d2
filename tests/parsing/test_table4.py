"""Table 4: the paper's rows, a run and a baseline."""

import dataclasses
import json
import pathlib

from configs import parsing
from toy.results import GOLD, PARSED, cells, changed, scored
from transformer_jax.machine import files
from transformer_jax.parsing import evalb, table4
from transformer_jax.parsing.pcfg import Baseline
from transformer_jax.report import page, paper
from transformer_jax.report.report import make_report
from transformer_jax.report.results import HeldOut
from transformer_jax.tasks import OUTPUTS

OTHER_TEXT = "No run here was scored on the paper's test set"
FLAT = ['(TOP (XX She) (XX laughed))', '(TOP (UH Oh))']
CONFIG = json.loads(parsing.get_config('gum').to_json_best_effort())
RUN = dataclasses.replace(PARSED, config=CONFIG, split='dev')
BASELINE = Baseline(
  kind='baseline of parsing',
  parser='PCFG',
  train=['gum/train'],
  test='gum/dev',
  parsing=evalb.score(GOLD, FLAT),
  device='a CPU',
  commit=None,
)


def test_all_parsers_stand_in_one_table(tmp_path: pathlib.Path, monkeypatch):
  """Each test set has F1 by length and label."""
  monkeypatch.setattr(table4, 'MIN_BRACKETS', 1)
  (tmp_path / 'run').mkdir()
  RUN.write(tmp_path / 'run/result.json')
  files.write_json(tmp_path / 'pcfg.json', dataclasses.asdict(BASELINE))
  paths = [tmp_path / 'run', tmp_path / 'pcfg.json']
  summary, blocks = make_report(paths, OUTPUTS, HeldOut(tmp_path), 3)
  text = page.markdown(blocks, 'x')
  assert text.count('| the paper |') == len(paper.TABLE_4)
  ours = cells(text, 'run (600 of 36,000 updates)')
  pcfg = cells(text, 'PCFG of gum/train')
  assert ours[2:4] == ['gum/dev', f'{RUN.parsing["f1"]["score"]:.2f}']
  names = 'recall', 'precision', 'complete_match', 'tagging'
  parts = [RUN.parsing[name] for name in names]
  assert ours[5:9] == [f'{part:.2f}' for part in parts] and len({*parts}) > 2
  assert ours[9] == '50.00'
  assert OTHER_TEXT in text and '| NP | 1 | 100.00 | 0.00 |' in text
  assert pcfg[1:4] == ['gum/train', 'gum/dev', '0.00'] and pcfg[9] == ''
  assert 'gum/dev (agreement with a parser): PCFG of gum/train' in summary
  other = evalb.score(GOLD[:1], GOLD[:1])
  journal = {'data.files': {'train': ['a'], 'test': ['wsj.23']}}
  journal = changed(RUN, journal, split='test', parsing=dataclasses.asdict(other))
  runs = [scored(RUN), scored(journal, 'journal')]
  text = page.markdown(table4.section(runs, [])[1], 'x')
  assert OTHER_TEXT not in text and '### F1 by words, wsj.23' in text
  assert '| parser | 1-10 (2) |' in text and '| parser | 1-10 (1) |' in text
