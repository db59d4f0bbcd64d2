"""Links lead somewhere, commands parse, and scores are in results/."""

import ast
import functools
import importlib
import json
import pathlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator

import pytest

from transformer_jax.data import batches
from transformer_jax.model import flops
from transformer_jax.report.paper import TABLE_3
from transformer_jax.runs.result import Result

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / 'results'
FOLDERS = '', 'docs/', 'pretrained/*/'
PAGES = [page for folder in FOLDERS for page in sorted(ROOT.glob(f'{folder}*.md'))]
SOURCES = sorted(p for f in ('configs', 'scripts') for p in (ROOT / f).glob('*.py'))

named = lambda path: str(path.relative_to(ROOT))


@functools.cache
def anchors(page: pathlib.Path) -> set[str]:
  """Returns the anchors that GitHub gives the headings of a page."""
  text = re.sub(r'```.*?```', '', page.read_text(), flags=re.S)
  text = re.sub(r'\[([^]]*)\]\([^)]*\)', r'\1', text)
  headings = re.findall(r'^#+ (.*)$', text, re.M)
  return {re.sub(r'[^\w -]', '', h.lower()).replace(' ', '-') for h in headings}


@pytest.mark.parametrize('page', PAGES, ids=named)
def test_links_lead_somewhere(page: pathlib.Path):
  for link in re.findall(r'\]\(([^)]+)\)', page.read_text()):
    link = re.sub(r'\s+', '', link)
    if not re.match(r'https?:|../../actions/', link):
      path, _, anchor = link.partition('#')
      to = page.parent / path if path else page
      assert to.exists() and (not anchor or anchor in anchors(to)), link


def commands_of(text: str) -> list[str]:
  """Returns NAME FLAGS of each indented line `python -m scripts.NAME FLAGS`."""
  lines = re.findall(r'^ .*', re.sub(r'\\\n\s*', '', text), re.M)
  commands = [c for line in lines for c in line.split('-m scripts.')[1:]]
  ends = r'\s([<>|&#]|\.\.\.)\s.*|\s[<>|&#].*|\)$|\s\.\.\.$'
  return [re.sub(ends, '', c).replace('[', '').replace(']', '') for c in commands]


@functools.cache
def commands() -> dict[str, list[str]]:
  """Returns all commands by the page, docstring, result or make target with them."""
  texts = {named(page): page.read_text() for page in PAGES}
  for path in SOURCES:
    doc = ast.get_docstring(ast.parse(path.read_text()), clean=False) or ''
    texts[named(path)] = doc.replace('\npython', '\n  python')
  for path in RESULTS.glob('*.json'):
    run = re.findall('"command": "(.*)"', path.read_text())
    texts[named(path)] = ''.join(f'  {command}\n' for command in run)
  for target in ('quickstart', 'evidence') if shutil.which('make') else ():
    make = ['make', '-n', '-C', str(ROOT), target, 'RAW_DIR=.']
    printed = subprocess.run(make, capture_output=True, text=True, check=True).stdout
    texts[f'make {target}'] = re.sub(r'^(echo.*\n|)', '  ', printed, flags=re.M)
  by_place = {place: commands_of(text) for place, text in texts.items()}
  return {place: listed for place, listed in by_place.items() if listed}


def parse(command: str) -> None:
  """Reads a command's flags and config; raises what the user would see."""
  command = re.sub(r'--config=C\b', '--config=configs/base.py:en-de', command)
  command = re.sub(r'=(\$\w+|[A-Z]\b)', '=1', command)
  if command.count("'") % 2:  # the end of bash -c '...'
    command = command.replace("'", '')
  name, *words = shlex.split(command)
  script = importlib.import_module(f'scripts.{name}')
  rest = script.FLAGS.parse([name, *words])[1:]
  if name == 'sweep':
    rows = TABLE_3 if script.ROWS.value == ['all'] else script.ROWS.value
    for config in script.CONFIG.value + [f'configs/table3.py:{row}' for row in rows]:
      parse(shlex.join(['train', '--workdir=x', f'--config={config}', *rest]))
  elif hasattr(script, 'CONFIG') and script.CONFIG.value is not None:
    assert script.CONFIG.value.task  # a config that cannot be loaded says so only now


@pytest.mark.parametrize('place', sorted(commands()))
def test_commands_parse(place: str, in_the_checkout, tmp_path: pathlib.Path):
  """Scripts, flags, their values, configs and keys of configs exist."""
  for language in ('de', 'en'):
    (tmp_path / f'train.{language}').write_text('1\n')
  page = (ROOT / 'docs' / 'own_data.md').read_text()
  (config,) = re.findall('```python\n# configs/mine.py\n([^`]*)```', page)
  (tmp_path / 'mine.py').write_text(config)
  for command in commands()[place]:
    command = command.replace('configs/mine.py', f'{tmp_path}/mine.py')
    parse(command.replace(',DIR', f',{tmp_path}'))


def test_scores_are_those_of_their_translations():
  """A result has the score that links to its translations."""
  pattern = r'\[\**([\d.]+)\**\]\(([^)]+)\.txt(?:\.gz)?\)'
  links = [(page, *x) for page in PAGES for x in re.findall(pattern, page.read_text())]
  assert links
  for page, score, link in links:
    result = Result.read((page.parent / f'{link}.json').resolve())
    f1 = result.parsing and result.parsing['f1']['score']
    ours = result.scores['sacrebleu'].score if result.scores else f1
    assert score == f'{ours:.2f}', (page, link)


def scores(value: object, name: str = '') -> Iterator[float]:
  """Yields scores, their intervals' ends and dev perplexities of a result."""
  if isinstance(value, float) and name in ('score', 'interval', 'dev_perplexity'):
    yield value
  elif isinstance(value, dict):
    for key, inner in value.items():
      yield from scores(inner, key)
  elif isinstance(value, list):
    for inner in value:
      yield from scores(inner, name)


# Perplexities and BLEU of the paper and of other programs.
OTHERS = {'4.92', '4.33', '29.29', '41.02'}


def scores_in_tables(text: str) -> Iterator[str]:
  for block in re.findall(r'(?:^\|.*\n)+', text, re.M):
    header, *rows = ([*map(str.strip, x.split('|'))] for x in block.splitlines())
    for name, *cells in zip(header, *rows, strict=False):
      if re.search('BLEU|F1|perplexity|PPL|trees', name):
        if not re.search("mean|minus|paper's|predicted", name):
          yield ' '.join(cells)


def scores_in_prose(text: str) -> Iterator[str]:
  text = re.sub(r'```.*?```|`[^`]*`', '', text, flags=re.S)
  for block in re.split(r'\n\s*\n|\n(?=[-|#])', text):
    if re.search('BLEU|F1|perplexity', block) and not re.match(r'\n*(\||    )', block):
      yield block


def test_scores_are_in_results():
  """Those of two or three decimals, in prose from 1 on, but no differences.

  What no result has, such as a mean over seeds, is in figures.json, by its page.
  """
  known = {*OTHERS}
  for path in RESULTS.rglob('*.json*'):
    if path.suffix == '.json':
      found = [*scores(json.loads(path.read_text()))]
    else:  # a curve's lowest and last
      records = map(json.loads, path.read_text().splitlines())
      found = [x['dev_perplexity'] for x in records if 'dev_perplexity' in x]
      found = [min(found), found[-1]] if found else []
    known |= {f'{x:.{n}f}' for x in found for n in (2, 3)}
  figures = json.loads((RESULTS / 'figures.json').read_text())
  assert {*figures} <= {*map(named, PAGES)}
  for page in PAGES:
    text = re.sub(r'\]\([^)]*\)', '', page.read_text())
    own = {x for entry in figures.get(named(page), ()) for x in entry['figures']}
    assert all(x in text for x in own), page
    figure = r'\d*\.\d{2,3}(?![\d.])'
    seen = re.findall(r'(?<![\d.,+-])\d' + figure, ' '.join(scores_in_tables(text)))
    seen += re.findall(r'(?<![\d.,+-])[1-9]' + figure, ' '.join(scores_in_prose(text)))
    assert not {*seen} - known - own, page


def test_readme_rounds_what_its_pages_say():
  """Its results, and the scores of the model to try."""
  seen: list[str] = []
  for line in (ROOT / 'README.md').read_text().splitlines():
    links = re.findall(r'\]\(([\w./-]+\.md)\)', line)
    if re.match(r'\| \[|\[This model', line):
      pages = ' '.join((ROOT / link).read_text() for link in links)
      exact = {*map(float, re.findall(r'\d+\.\d+', pages))}
      ours = re.findall(r'\d+\.\d(?! M)', ' '.join(line.split('|')[:3]))
      for figure in map(float, ours):
        assert any(abs(figure - x) < 0.0501 for x in exact), line
      seen += ours
  assert seen


def test_results_are_small():
  files = filter(pathlib.Path.is_file, RESULTS.rglob('*'))
  assert sum(path.stat().st_size for path in files) <= 8_000_000


def test_hours():
  """reproduce.md's FLOPs, and its hours at the speed measured on one H200."""
  text = (ROOT / 'docs' / 'reproduce.md').read_text()
  rows = re.findall(r'^\| `(\w+)\.py:([^`]+)` \| (.*) \|$', text, re.M)
  assert rows

  def costs(file: str, argument: str) -> tuple[int, int]:
    """Returns FLOPs of a target token, and of all updates."""
    config = importlib.import_module(f'configs.{file}').get_config(argument)
    each = flops.flops_per_target_token(config.model.to_dict())
    return each, each * batches.PAPER_TOKENS * config.train_steps

  speeds = {}  # FLOPs a second
  for name in 'base', 'big':
    path = ROOT / 'results' / f'benchmark-{name}.784x32.h200.json'
    rate = json.loads(path.read_text())['columns']['ours']['target_tokens_per_second']
    speeds[name] = rate * costs(name, 'en-de')[0]
  for file, argument, cells in rows:
    each, total = costs(file, argument)
    hours = total / speeds['big' if 'big' in (file, argument) else 'base'] / 3600
    expected = f'{each / 1e6:,.0f} M | {total:.2e} | {hours:.2f}'
    assert cells == expected, argument


def test_speeds_are_measured():
  """Each row of docs/speed.md has the rates and ratios of the benchmark it links to."""
  text = (ROOT / 'docs' / 'speed.md').read_text()
  lines = [x for x in text.splitlines() if '](../results/benchmark-' in x]
  assert lines
  for line in lines:
    ours, link, others = re.search(r'\[([\d,]+)\]\(([^)]+)\)(.*)', line).groups()
    result = json.loads((ROOT / 'docs' / link).read_text())
    runs = [run['columns'] for run in result.get('runs', [result])]
    rate = lambda column: f'{column["target_tokens_per_second"]:,.0f}'
    (columns,) = [run for run in runs if rate(run['ours']) == ours]
    known = {f'{rate(c)} ({c["ratio"]:.2f}x)' for c in columns.values()}
    assert {*re.findall(r'[\d,]+ \([\d.]+x\)', others)} <= known, line
