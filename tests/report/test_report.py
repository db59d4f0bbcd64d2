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
from transformer_jax.report import comparison, results
from transformer_jax.report import report as module
from transformer_jax.report.results import HeldOut, ScoredRun
from transformer_jax.scoring import significance, translations
from transformer_jax.scoring.bleu import Score, TextMetric
from transformer_jax.scoring.output import SystemOutput
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
  for row, seed, word, bleu, beam in (
    ('base', 1, 'target', 20.0, 4),
    ('base', 2, 'x', 20.1, 4),
    ('D1', 1, 'y', 15.0, 4),
    ('E', 1, 'v', 19.9, 4),
    ('A1', 1, 'z', 19.0, 1),
  ):
    line = f'<i>{word}</i> sentence {{n}} of some words'
    score = Score(bleu, 'tok:moses-de', [bleu - 1, bleu + 1])
    fields = {'paper_bleu': score, 'overlap': shared, 'beam': beam}
    prepared.run(tmp_path / f'run.{row}.{seed}', line, row, seed, **fields)
  (tmp_path / 'run.started').mkdir()
  (tmp_path / 'run.half').mkdir()
  (tmp_path / 'run.half' / 'result.json').write_text('{"split": ')
  mine = tmp_path / 'mine.jsonl'
  with pytest.raises(UserError, match='mine.jsonl: no such file'):
    whole(tmp_path, prepared, f'--curve={mine}')
  mine.write_text('{"step": 1, "lr": 0.1}\n')
  with pytest.raises(UserError, match='mine.jsonl: no line such as'):
    whole(tmp_path, prepared, f'--curve={mine}')
  mine.write_text('{"step": 1, "loss": 9}\n{"step": 2, "loss": 8, "val": 3}\n')
  other = tmp_path / 'other' / 'mine.jsonl'
  other.parent.mkdir()
  shutil.copy(mine, other)
  pages = f'--html={tmp_path / "page.html"}', f'--curve={mine},{other}'
  text = whole(tmp_path, prepared, '--samples=2', *pages)
  assert 'other/mine.jsonl' in (tmp_path / 'new/whole.curves.svg').read_text()
  overlap = 'source sentences 3 (50.0%) in train; of its references 2 (33.3%) in train'
  assert f'Of its {overlap}; of its pairs 1 (16.7%) in train. ' in text
  assert 'run.half/result.json: damaged' in text
  # Base's seed 1 is the reference.
  assert 0.0 < float(cells(text, 'D1')[5].strip('< ')) < 0.05
  assert text.count('| reference |') == 2
  assert text.count('| run.base.2 |') == 1, 'one seed of a row is sampled'
  assert r'| run.D1.1 | \<i\>y\</i\> sentence 3 of some words |' in text
  assert '(whole.table3.bleu.svg)' in text
  picture = (tmp_path / 'new/whole.table3.bleu.svg').read_text()
  assert all(words in picture for words in ('var(--ink)', 'better →', 'the paper'))
  source = (tmp_path / 'page.html').read_text()
  assert not re.search('url.http|@import|<script', source)
  assert '<i>' not in source and '&lt;i&gt;y&lt;/i&gt; sentence 3 of some' in source
  out, err = capsys.readouterr()
  assert 'run.half/result.json: damaged' in err and 'run.started' in err
  (alone,) = [line for line in out.splitlines() if 'sacreBLEU, ' in line]
  assert '19.50 [19.0, 20.0] sacreBLEU, 19.00 BLEU, 19.50 chrF' in alone
  summary = ' '.join(out.split())
  for part in (
    'Table 3 Base, 2 seeds: perplexity 5.15 ± ',
    'Claims Of 7 claims 2 are undecided, 5 were not run.',
    f'{module.POWER} E: ',
    'Missing rows A1, A2, ',
    'run.A1.1 (row A1) is not in Table 3: beam 1, ',
    'undecided Dropout helps against over-fitting.',
  ):
    assert part in summary


@pytest.mark.usefixtures('no_pictures')
def test_one_entry_adds_a_metric(prepared, tmp_path: pathlib.Path, monkeypatch):
  """It is computed, kept in the result, and has a column of each table."""
  words = lambda *_: TextMetric('nrefs:1|mine', translations.Chrf(word_order=2))
  entry = translations.Metric('chrf2', 'chrF++', 'with words', 'percent', 1, words)
  monkeypatch.setattr(translations, 'METRICS', (*translations.METRICS, entry))
  outputs = SystemOutput(['a b c d', 'e'], ['a b c d', 'f'], 'de', False)
  fields = OUTPUTS['translation'].scorer.score(outputs)
  for seed in 1, 2:
    prepared.run(tmp_path / f'run.{seed}', 'x', seed=seed, **fields)
  older = {name: fields['scores'][name] for name in ('sacrebleu', 'paper_bleu')}
  prepared.run(tmp_path / 'run.older', 'x', 'C1', **fields | {'scores': older})
  text = whole(tmp_path, prepared)
  assert '| BLEU | sacreBLEU | chrF | with words | parameters (paper) |' in text
  assert cells(text, 'base')[10] == '93.33 (sd 0.00)'
  assert cells(text, 'C1', 1)[9:11] == ['–', '–']
  assert '¹' in text and '²' not in text, 'they are scored alike'


def test_translations_that_lack_a_sentence_are_refused(prepared, tmp_path):
  one = prepared.run(tmp_path / 'run', 'a line')
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
  p = lambda texts: module.paired_p(translations.PAPER_BLEU, *runs, texts)
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


def published(folder: str, references: pathlib.Path | None = None, averaged: int = 1):
  """Returns the group of published results, with the differences of its rows."""
  paths = sorted((ROOT / 'results' / folder).glob('*.json'))
  runs = results.read(paths, OUTPUTS).evaluations
  (group,), omissions = results.group(runs, averaged)
  assert len(group.members) == len(runs) and not omissions + group.omissions
  texts = HeldOut(ROOT, filter(None, [references]))
  compare = lambda *both: module.paired_p(*both, texts)
  return group, comparison.differences(group, compare)


@pytest.mark.parametrize(('n', 'folder'), [*enumerate(PUBLISHED)])
def test_readme_and_page_say_what_the_report_says(n: int, folder: str):
  """Without the references, as whoever clones the project has it."""
  page, readme = ((ROOT / name).read_text() for name in ('docs/table3.md', 'README.md'))
  group, ours = published(folder)
  assert 'checkpoints averaged' not in module.about(group)
  judged = comparison.judge(ours)
  text = page.partition(f'## {PUBLISHED[folder]}, row by row')[2].partition('\n## ')[0]
  check_rows(text, group, ours)
  if folder == 'tatoeba':  # E is judged with averaged checkpoints (report.md, Power)
    group, averaged = published('tatoeba/averaged', averaged=5)
    check_rows(text.partition('checkpoints averaged')[2], group, averaged)
    assert 'with 5 checkpoints averaged, the paper with one.' in module.about(group)
    judged = comparison.judge({**ours, 'E': averaged['E']})
  assert f'{PUBLISHED[folder]}: {comparison.count_verdicts(judged)}' in page
  for one in judged:
    in_page, in_readme = (
      re.search(rf'^\| {re.escape(one.claim.text)} .*', text, re.M)[0].split(' | ')
      for text in (page, readme)
    )
    verdict = LEDGER[one.verdict] if one.ours else one.verdict
    assert in_page[2 + n] == (f'**{verdict}**: {one.ours}' if one.ours else verdict)
    assert in_readme[1 + n] == verdict


def check_rows(text: str, group: results.Group, ours: comparison.Differences) -> None:
  """Compares a page's first table with the results of its rows."""
  for row, runs in group.table_3.items():
    metrics = translations.PERPLEXITY, translations.SACREBLEU, translations.PAPER_BLEU
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
