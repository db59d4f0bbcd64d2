"""The report as its script writes it."""

import pathlib
import re
import shutil
from typing import NamedTuple

import pytest

from scripts import report as script
from toy.results import CARD, cells, changed, of_row, written
from transformer_jax.data.corpus import Overlap, read_card, write_card
from transformer_jax.machine import files
from transformer_jax.machine.errors import UserError
from transformer_jax.report import comparison, paper, results
from transformer_jax.report import report as module
from transformer_jax.report.results import HeldOut, ScoredRun
from transformer_jax.scoring import significance, translations
from transformer_jax.scoring.bleu import Score, TextMetric
from transformer_jax.scoring.output import SystemOutput
from transformer_jax.scoring.translations import (
  PAPER_BLEU,
  PERPLEXITY,
  SACREBLEU,
  Metric,
)
from transformer_jax.tasks import OUTPUTS

SENTENCES = 6


class Prepared(NamedTuple):
  data_dir: pathlib.Path
  corpus: str  # its hash

  def run(
    self, home: pathlib.Path, line: str, row: str = 'base', seed: int = 1, **fields
  ) -> ScoredRun:
    """Writes a run of the miniature that translates sentence n to `line` with {n}."""
    result = of_row(row, seed, 5.0 + seed / 10)
    result = changed(result, **{'corpus': self.corpus} | fields)
    lines = (line.format(n=n) + '\n' for n in range(SENTENCES))
    return written(result, home, ''.join(lines))


@pytest.fixture
def prepared(tmp_path: pathlib.Path, monkeypatch) -> Prepared:
  """Writes sentences '<i>source</i> sentence {n} of some words' and references."""
  folder = tmp_path / 'data' / of_row().config['data']['name']
  folder.mkdir(parents=True)
  for side in ('source', 'target'):
    lines = (f'<i>{side}</i> sentence {n} of some words\n' for n in range(SENTENCES))
    (folder / f'dev.{side}.txt').write_text(''.join(lines))
  write_card(folder, CARD)
  monkeypatch.setattr(significance, 'EXCHANGES', 1000)
  return Prepared(folder.parent, read_card(folder).identity)


def report(folder: pathlib.Path, prepared, *flags: str) -> None:
  """Runs scripts.report on all in `folder` whose name begins with `run`."""
  names = [str(p) for p in sorted(folder.iterdir()) if p.name.startswith('run')]
  script.main(['report', *names, f'--data_dir={prepared.data_dir}', *flags])


def whole(folder: pathlib.Path, prepared, *flags: str) -> str:
  """Returns the report in Markdown."""
  path = folder / 'new' / 'whole.md'
  report(folder, prepared, f'--markdown={path}', *flags)
  return path.read_text()


def test_the_whole_report(prepared, tmp_path: pathlib.Path, capsys):
  shared = {'train': Overlap(3, 2, 1)}
  for row, seed, word, bleu in (
    ('base', 1, 'target', 20.0),
    ('base', 2, 'x', 20.1),
    ('D1', 1, 'y', 15.0),
  ):
    line = f'<i>{word}</i> sentence {{n}} of some words'
    score = Score(bleu, 'tok:moses-de', [bleu - 1, bleu + 1])
    home = tmp_path / f'run.{row}.{seed}'
    prepared.run(home, line, row, seed, paper_bleu=score, overlap=shared)
  (tmp_path / 'run.half').mkdir()
  (tmp_path / 'run.half' / 'result.json').write_text('{"split": ')
  mine = tmp_path / 'mine.jsonl'
  mine.write_text('{"step": 1, "lr": 0.1}\n')
  with pytest.raises(UserError, match='mine.jsonl: no line such as'):
    whole(tmp_path, prepared, f'--curve={mine}')
  mine.write_text('{"step": 1, "loss": 9}\n{"step": 2, "loss": 8, "val": 3}\n')
  pages = f'--html={tmp_path / "page.html"}', f'--curve={mine}'
  text = whole(tmp_path, prepared, '--samples=2', *pages)
  assert 'mine.jsonl' in (tmp_path / 'new/whole.curves.svg').read_text()
  overlap = 'source sentences 3 (50.0%) in train; of its references 2 (33.3%) in train'
  assert f'Of its {overlap}; of its pairs 1 (16.7%) in train. ' in text
  assert 'run.half/result.json: damaged' in text
  assert 'left out: ' in (err := capsys.readouterr().err)
  assert 'run.half/result.json: damaged' in err
  assert (
    0.0 < float(cells(text, 'D1')[5].strip('< ')) < 0.05
  )  # base's seed 1 is the reference
  assert text.count('| reference |') == 2
  assert text.count('| run.base.2 |') == 1, 'one seed of a row is sampled'
  assert r'| run.D1.1 | \<i\>y\</i\> sentence 3 of some words |' in text
  assert '(whole.table3.bleu.svg)' in text
  assert (tmp_path / 'new/whole.table3.bleu.svg').read_text().startswith('<?xml')
  source = (tmp_path / 'page.html').read_text()
  assert not re.search('url.http|@import|<script', source)
  assert '<i>' not in source and '&lt;i&gt;y&lt;/i&gt; sentence 3 of some' in source
  headings = [line for line in text.splitlines() if line.startswith('## ')]
  assert headings[0] == '## What the runs say'
  assert headings[-2:] == ['## Left out', '## How it was scored']


@pytest.mark.usefixtures('no_pictures')
def test_what_the_runs_say_on_a_terminal(prepared, tmp_path: pathlib.Path, capsys):
  """Two rows are missing, a run was not evaluated, and one is not as its row."""
  for n, row in enumerate(paper.TABLE_3):
    for seed in (1, 2):
      score = Score(20.0 + n / 10 + seed / 50, 'nrefs:1|paper_bleu', [19, 21])
      result = changed(of_row(row, seed, 5.0 + n / 9 + seed / 50), paper_bleu=score)
      if row not in ('A1', 'E'):
        written(result, tmp_path / f'run.{row}.{seed}')
  (tmp_path / 'run.started').mkdir()
  written(changed(of_row('A1'), split='test'), tmp_path / 'run.odd')
  written(changed(of_row(), row='B3'), tmp_path / 'run.same')
  report(tmp_path, prepared)
  out, err = capsys.readouterr()
  lines = out.splitlines()
  assert 'run.started' in err
  assert max(len(line) for line in lines if 'sacreBLEU, ' not in line) <= 96
  text, joined = '\n'.join(lines), ' '.join(' '.join(lines).split())
  assert re.search(r'Table 3 +Base, 2 seeds: perplexity 5.03 ± ', text)
  assert re.search(r'Claims +Of 7 claims .* 2 were not run', text)
  assert re.search(r'Missing rows +A1, E\n', text)
  assert 'run.odd (row A1) is not in Table 3: ' in joined
  assert re.search(
    r'\n  (agrees|disagrees|undecided) +Smaller attention keys hurt', text
  )
  assert 'sacreBLEU: nrefs:1|sacrebleu; BLEU: nrefs:1|paper_bleu' in joined
  scores = [line for line in lines if 'sacreBLEU, ' in line]
  assert len(scores) == 2 and scores[0].endswith(': run.odd'), 'in no table'
  assert 'run.same (row B3) is not in Table 3: the paper has no such row' in joined


def test_without_table_3_every_run_is_listed(prepared, tmp_path: pathlib.Path, capsys):
  for n in range(4):
    result = changed(of_row(), row=None, corpus=f'{n}' * 40)
    written(result, tmp_path / f'run.{n}')
  report(tmp_path, prepared)
  out = capsys.readouterr().out
  for n, mark in enumerate('¹²³⁴'):
    score = rf'19\.50 \[19\.0, 20\.0\] sacreBLEU, 20\.00 BLEU, 19\.50 chrF{mark}, '
    assert re.search(rf'{score}step +3,125, .*: run.{n}\n', out)
  text = whole(tmp_path, prepared, '--samples=1')
  assert 'Table' not in text and 'What the runs say' not in text


@pytest.mark.usefixtures('no_pictures')
def test_one_entry_adds_a_metric(prepared, tmp_path: pathlib.Path, monkeypatch, capsys):
  """It is computed, compared, kept in the result, and has a column of each table."""
  words = lambda *_: TextMetric('nrefs:1|mine', translations.Chrf(word_order=2))
  entry = Metric('chrf2', 'chrF++', 'with words', 'percent', 1, words)
  monkeypatch.setattr(translations, 'METRICS', (*translations.METRICS, entry))
  outputs = SystemOutput(['a b c d', 'e'], ['a b c d', 'f'], 'de', False)
  fields = OUTPUTS['translation'].scorer.score(outputs)
  lines = [*OUTPUTS['translation'].scorer.score_lines(fields)]
  assert [x for x in lines if x.startswith('chrf2 ')] == ['chrf2 93.33  nrefs:1|mine']
  lines = OUTPUTS['translation'].scorer.comparison_lines(outputs, ['a', 'e'])
  assert any(re.match(r'chrf2 93\.33 .* against .*, p = ', line) for line in lines)
  for seed in 1, 2:
    prepared.run(tmp_path / f'run.{seed}', 'x', seed=seed, **fields)
  older = {name: fields['scores'][name] for name in ('sacrebleu', 'paper_bleu')}
  prepared.run(tmp_path / 'run.older', 'x', 'C1', **fields | {'scores': older})
  text = whole(tmp_path, prepared)
  names = 'sacreBLEU', 'chrF', 'with words'
  assert f'| BLEU | {" | ".join(names)} | parameters (paper) |' in text
  chrf = fields['scores']['chrf'].score
  assert cells(text, 'base')[9:11] == [f'{chrf:.2f} (sd 0.00)', '93.33 (sd 0.00)']
  assert cells(text, 'C1', 1)[9:11] == ['–', '–']
  assert 'chrF: nrefs:1|case:mixed|eff:yes|nc:6|nw:0|' in text.replace('\\', '')
  assert 'chrF++: nrefs:1' in text and '¹' in text and '²' not in text
  script.main(['report', *map(str, tmp_path.glob('run.[1-9]'))])
  assert '93.33 with words' in capsys.readouterr().out


def test_translations_that_lack_a_sentence_are_refused(
  prepared, tmp_path: pathlib.Path
):
  for row, seed in (('base', 1), ('base', 2), ('D1', 1)):
    one = prepared.run(tmp_path / f'run.{row}.{seed}', 'a line', row, seed)
  one.text.write_text('a line\n' * 5)
  message = f'{one.text}: 5 translations of 6 sentences; evaluate the run again'
  with pytest.raises(UserError, match=re.escape(message)):
    report(tmp_path, prepared)


@pytest.mark.usefixtures('no_pictures')
def test_references_in_a_file_replace_the_corpus(prepared, tmp_path: pathlib.Path):
  """The file must have the references that were scored."""
  path = tmp_path / 'references.de'
  (folder,) = prepared.data_dir.iterdir()
  shutil.copy(folder / 'dev.target.txt', path)
  line, identity = '<i>{}</i> sentence {{n}} of some words', files.sha256(path)
  runs = [
    [prepared.run(tmp_path / word, line.format(word), references=identity)]
    for word in ('target', 'x')
  ]
  p = lambda texts: module.paired_p(PAPER_BLEU, *runs, texts)
  expected = p(HeldOut(prepared.data_dir))
  assert p(HeldOut(tmp_path, [path])) == expected < 0.05
  assert p(HeldOut(tmp_path)) is None
  assert not [*HeldOut(tmp_path, [path]).unused(runs[0])]
  path.write_text('another line\n' * 6)
  assert p(HeldOut(tmp_path, [path])) is None
  assert [*HeldOut(tmp_path, [path]).unused(runs[0])] == [path]


ROOT = pathlib.Path(__file__).parents[2]
PUBLISHED = {'tatoeba': 'More text', 'table3': 'Captions'}  # sections of table3.md
LEDGER = {'agrees': 'verified', 'disagrees': 'falsified', 'undecided': 'inconclusive'}


def published(folder: str, references: pathlib.Path | None = None):
  """Returns the group of published results, with the differences of its rows."""
  paths = sorted((ROOT / 'results' / folder).glob('*.json'))
  runs = results.read(paths, OUTPUTS).evaluations
  (group,), omissions = results.group(runs)
  assert len(group.members) == len(runs) and not omissions + group.omissions
  texts = HeldOut(ROOT, filter(None, [references]))
  compare = lambda *both: module.paired_p(*both, texts)
  return group, comparison.differences(group, compare)


def test_readme_and_page_say_what_the_report_says():
  """Without the references, as whoever clones the project has it."""
  page = (ROOT / 'docs/table3.md').read_text()
  readme = (ROOT / 'README.md').read_text()
  columns = []
  for folder, name in PUBLISHED.items():
    _, ours = published(folder)
    judged = comparison.judge(ours)
    printed = f'{name}: {comparison.count_verdicts(judged)}'
    assert printed in page, printed
    told = lambda x: f'**{LEDGER[x.verdict]}**: {x.ours}' if x.ours else x.verdict
    columns.append([*map(told, judged)])
  for claim, *ours in zip(paper.CLAIMS, *columns, strict=True):
    both = page.splitlines(), readme.splitlines()
    in_page, in_readme = (
      [x for x in y if x.startswith(f'| {claim.text} ')] for y in both
    )
    assert in_page[0].split(' | ')[2:4] == ours
    verdicts = [cell.partition(':')[0].strip('*') for cell in ours]
    assert in_readme[0].split(' | ')[1:3] == verdicts


@pytest.mark.parametrize(('folder', 'section'), PUBLISHED.items())
def test_the_rows_of_table_3_are_their_results(folder: str, section: str):
  page = (ROOT / 'docs/table3.md').read_text()
  text = page.partition(f'## {section}, row by row')[2].partition('\n## ')[0]
  group, ours = published(folder)
  for row, runs in group.table_3.items():
    metrics = PERPLEXITY, SACREBLEU, PAPER_BLEU
    each = [comparison.values(runs, metric) for metric in metrics]
    printed = [', '.join(f'{value:.2f}' for value in values) for values in each]
    line = cells(text, row)
    assert line[2:6] == [f'{len(runs)}', *printed], row
    for one, cell in zip(ours[row], line[6:9:2], strict=True):
      assert cell == ('' if row == 'base' else f'{one}, {one.verdict}'), row


@pytest.mark.slow
def test_the_p_of_table_3(shared_data, tmp_path: pathlib.Path):
  captions, path = shared_data / 'multi30k', tmp_path / 'dev.de'
  names = 'val.de', 'test_2016_flickr.de'
  path.write_bytes(b''.join((captions / name).read_bytes() for name in names))
  text = (ROOT / 'docs/table3.md').read_text().partition('Captions, row by row')[2]
  for row, (_, bleu) in published('table3', path)[1].items():
    assert cells(text, row)[9] == ('' if row == 'base' else module.p_text(bleu.p))
