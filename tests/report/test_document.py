"""The whole report by its script: pages, curves, samples and what is left out."""

import html.parser
import itertools
import json
import pathlib
import shutil

import pytest

from scripts import report as script
from toy.results import cells, changed, family, of_row, scored
from transformer_jax.machine.errors import UserError
from transformer_jax.report import curves, document, grouping, page, tables
from transformer_jax.report.blocks import Bullets, Paragraph, Table
from transformer_jax.report.results import Scored
from transformer_jax.runs.result import Score

TABLE_1 = pathlib.Path(__file__).parents[2] / 'results' / 'table1.json'
RECORDS = [{'step': n, 'loss': 9 / n} for n in (1, 2, 3)]
RECORDS += [{'step': n, 'dev_perplexity': 100 / n} for n in (1, 3)]


class Reader(html.parser.HTMLParser):
  """Checks that tags close in order; collects tags, links and text."""

  VOID = {'meta', 'br', 'path', 'use', 'rect'}

  def __init__(self, source: str):
    super().__init__()
    self.open, self.tags, self.links, self.words = [], [], [], []
    self.feed(source)
    assert not self.open

  def handle_starttag(self, tag: str, attributes: list):
    self.tags.append(tag)
    self.links += [v for k, v in attributes if k in ('src', 'href', 'xlink:href')]
    if tag not in self.VOID:
      self.open.append(tag)

  def handle_startendtag(self, tag: str, attributes: list):
    self.handle_starttag(tag, attributes)
    if tag not in self.VOID:
      self.open.pop()

  def handle_endtag(self, tag: str):
    if tag not in self.VOID:
      assert self.open.pop() == tag

  def handle_data(self, data: str):
    self.words.append(data)


def report(folder: pathlib.Path, prepared, *flags: str) -> None:
  """scripts.report on all in `folder` whose name begins with `run`."""
  names = [str(p) for p in sorted(folder.iterdir()) if p.name.startswith('run')]
  script.main(['report', *names, f'--data_dir={prepared.data_dir}', *flags])


def with_curves(found: list[Scored]) -> list[Scored]:
  return [one._replace(records=RECORDS) for one in found]


# Curves and pages


def test_curves():
  assert curves.curves(family()) == []
  pictures = curves.curves(with_curves(family()))
  assert [p.name for p in pictures] == ['loss', 'perplexity']
  assert pictures == curves.curves(with_curves(family()))
  for picture in pictures:
    assert picture.svg.startswith('<svg') and 'C1.seed1' in picture.svg


def test_scores_over_steps_are_drawn_where_there_are_several():
  found = [scored(changed(of_row(), step=n, averaged=[n])) for n in (2000, 4000)]
  assert [p.name for p in curves.curves(found)] == ['bleu']
  found += [
    s._replace(run='other', result=changed(s.result, corpus='f' * 64)) for s in found
  ]
  (picture,) = curves.curves(found)
  assert 'other†, ' in picture.svg and 'run†' not in picture.svg, 'as in the table'


def test_the_page_is_whole_and_needs_nothing_else():
  found = with_curves(family())
  ((group,), _) = grouping.group(found)
  blocks = tables.comparable(group, None, lambda *_: None)
  source = page.page('Runs', blocks + curves.curves(found))
  reader = Reader(source)
  assert reader.tags.count('svg') == 2 and reader.tags.count('table') == 3
  assert all(link.startswith('#') for link in reader.links)
  assert 'url(http' not in source and '@import' not in source
  assert '<script' not in source


def test_text_is_no_markup():
  bad = 'a<b>c</b> | *d* _e_ snake_case'
  blocks = [Paragraph(bad), Table(['x'], [[bad]]), Bullets([bad, '`a|b_c`'])]
  reader = Reader(page.page('t', blocks))
  assert 'b' not in reader.tags and reader.words.count(bad) == 3
  printed = page.markdown(blocks).splitlines()
  assert printed[0] == r'a\<b\>c\</b\> | \*d\* \_e\_ snake_case'
  assert printed[4] == r'| a\<b\>c\</b\> \| \*d\* \_e\_ snake_case |'
  assert printed[-1] == '- `a|b_c`'


# The script


def test_the_whole_report(prepared, tmp_path: pathlib.Path, capsys):
  for row, seed, word in (('base', 1, 'target'), ('base', 2, 'x'), ('D1', 1, 'y')):
    line = f'<i>{word}</i> sentence {{n}} of some words'
    prepared.run(tmp_path / f'run.{row}.{seed}', line, row, seed)
  (tmp_path / 'run.half').mkdir()
  (tmp_path / 'run.half' / 'result.json').write_text('{"split": ')
  report(tmp_path, prepared, '--samples=2', f'--html={tmp_path / "page.html"}')
  out, err = capsys.readouterr()
  assert 'left out: ' in err and 'run.half/result.json: damaged' in err
  assert 'run.half/result.json: damaged' in out
  assert 0.0 < float(cells(out, 'D1', 1)[6]) < 0.05  # base's seed 1 is the reference
  assert out.count('- source: ') == 6
  assert r'  - translation: \<i\>y\</i\> sentence 3' in out
  reader = Reader((tmp_path / 'page.html').read_text())
  assert 'i' not in reader.tags and '<i>y</i> sentence 3 of some words' in reader.words


def test_markdown_with_its_pictures(prepared, tmp_path: pathlib.Path):
  home = prepared.run(tmp_path / 'run', 'a line').home
  lines = [json.dumps(record) for record in RECORDS] + ['{"step": 4, "lo']
  (home / 'metrics.jsonl').write_text('\n'.join(lines))
  folder = tmp_path / 'new'
  report(tmp_path, prepared, f'--markdown={folder / "table.md"}')
  assert '](table.loss.svg)' in (folder / 'table.md').read_text()
  assert (folder / 'table.loss.svg').read_text().startswith('<?xml')


def test_table_1_stands_behind_the_runs_or_alone(
  prepared, tmp_path: pathlib.Path, capsys
):
  shutil.copy(TABLE_1, tmp_path / 'run.table1.json')
  report(tmp_path, prepared)
  alone = capsys.readouterr().out
  assert alone.startswith('## Table 1, measured') and 'O(n^2 d)' in alone
  prepared.run(tmp_path / 'run.base', 'a line')
  report(tmp_path, prepared)
  out = capsys.readouterr().out
  assert out.endswith(alone) and len(out) > len(alone)


def test_two_measurements_of_table_1(prepared, tmp_path: pathlib.Path, capsys):
  """Each under its name, with its own picture; half of one is named and skipped."""
  values = json.loads(TABLE_1.read_text())
  for cell in values['cells']:
    cell['seconds'] *= 1 + cell['n'] / 1000
  (tmp_path / 'run.1.json').write_text(TABLE_1.read_text())
  (tmp_path / 'run.2.json').write_text(json.dumps(values))
  (tmp_path / 'run.3.json').write_text(json.dumps({'task': 'table1', 'cells': []}))
  halves = {'cells': values['cells'][:5], 'exponents': {}, 'reaches': [], 'counts': 8}
  for n, (key, half) in enumerate(halves.items(), 4):
    (tmp_path / f'run.{n}.json').write_text(json.dumps(values | {key: half}))
  report(tmp_path, prepared, f'--markdown={tmp_path / "two.md"}')
  said = capsys.readouterr().err
  for n in range(3, 8):
    assert f'run.{n}.json: no whole measurement of Table 1' in said
  pictures = sorted(tmp_path.glob('*.svg'))
  assert len(pictures) == len({path.read_text() for path in pictures}) == 2
  text = (tmp_path / 'two.md').read_text()
  assert all(f']({path.name})' in text for path in pictures)
  assert '## Table 1, measured: 1.run.1' in text


def test_translations_that_lack_a_sentence_are_named_and_not_compared(
  prepared, tmp_path: pathlib.Path, capsys
):
  for row, seed in (('base', 1), ('base', 2), ('D1', 1)):
    prepared.run(tmp_path / f'run.{row}.{seed}', 'a line', row, seed)
  folder = tmp_path / 'run.base.1' / 'translations'
  (usual,) = folder.glob('*.txt')
  shutil.copy(folder.parent / 'result.json', usual.with_suffix('.json'))
  greedy = changed(of_row(), corpus=prepared.corpus, beam=1)
  greedy.write(folder / 'greedy.json')
  (folder / 'greedy.txt').write_text('a line\n' * 5)
  report(tmp_path, prepared)
  out = capsys.readouterr().out
  assert 'greedy.txt: 5 translations of 6 sentences' in out
  pieces = [x for x in out.splitlines() if x.startswith('| beam | 4 | 1 |')]
  assert len(pieces) == 1 and pieces[0].endswith('|  |')


def test_lower_case_is_compared_in_lower_case(prepared, tmp_path: pathlib.Path):
  """Two texts that differ in their capitals alone do not differ."""
  line = 'target sentence {n} of some words'
  for case, expected in (('lc', 1.0), ('mixed', 0.0)):
    score = Score(20.0, f'nrefs:1|case:{case}|tok:13a', [19.0, 21.0])
    upper, lower = (
      prepared.run(tmp_path / case / name, text, sacrebleu=score)
      for name, text in (('upper', line.upper().replace('{N}', '{n}')), ('lower', line))
    )
    p = document.paired_p(upper, lower, prepared.data_dir)
    assert p == pytest.approx(expected, abs=0.05)


def test_a_run_is_shown_as_its_config_decodes():
  """At its newest step, whatever else it was decoded with."""
  found = [
    scored(changed(of_row(), step=step, averaged=[step], alpha=alpha))
    for step, alpha in ((3000, 0.6), (3125, 0.6), (3125, 1.0))
  ]
  for order in itertools.permutations(found):
    ((shown, mark),) = document.representatives(order)
    assert (shown.result.step, shown.result.alpha, mark) == (3125, 0.6, '')


def test_another_corpus_gives_neither_test_nor_samples(
  prepared, tmp_path: pathlib.Path, capsys
):
  for row, seed in (('base', 1), ('base', 2), ('D1', 1)):
    home = tmp_path / f'run.{row}.{seed}'
    prepared.run(home, 'a line', row, seed, corpus='of another card')
  report(tmp_path, prepared)
  out = capsys.readouterr().out
  assert cells(out, 'D1', 1)[6] == '' and '- source: ' not in out


def test_a_run_of_no_row_has_a_short_report(prepared, tmp_path: pathlib.Path, capsys):
  home = prepared.run(tmp_path / 'run.1', 'a line').home
  changed(of_row(), corpus=prepared.corpus, row=None).write(home / 'result.json')
  report(tmp_path, prepared, '--samples=1')
  out = capsys.readouterr().out
  assert out.startswith('| run | scored on | step |') and 'Table' not in out
  row = '| run.1 | val+test_2016_flickr | 3,125 | 1 | 4 |'
  assert out.splitlines()[2].startswith(row)
  assert out.count('- source: ') == 1


def test_no_runs(prepared, tmp_path: pathlib.Path):
  with pytest.raises(UserError, match='evaluate one first'):
    report(tmp_path, prepared)
