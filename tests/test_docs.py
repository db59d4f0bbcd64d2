"""What README and docs name is there: links, commands, flags, code, predicted hours."""

import ast
import collections
import functools
import importlib
import json
import pathlib
import re
import shlex
import shutil
import subprocess

import pytest

from transformer_jax.model import flops
from transformer_jax.report import paper
from transformer_jax.runs.result import Result

ROOT = pathlib.Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob('*.md')), *sorted((ROOT / 'docs').glob('*.md'))]
NOTEBOOK = ROOT / 'docs' / 'quickstart.ipynb'
SOURCES = sorted(p for f in ('configs', 'scripts') for p in (ROOT / f).glob('*.py'))
SCRIPTS = sorted(p.stem for p in (ROOT / 'scripts').glob('[!_]*.py'))
# Flags that a script cannot do without, for commands that leave them out.
NEEDED = {
  '--config': ('--config=configs/base.py:en-de', ('benchmark', 'describe', 'train')),
  '--workdir': ('--workdir=RUN', ('sweep', 'train', 'translate')),
  '--output': ('--output=FILE', ('table1',)),
}
TARGETS = 'quickstart', 'evidence'  # of the Makefile, that run scripts
# Vendors' TFLOP/s of reproduce.md's columns, and the share that it assumes.
RATES, SHARE = {'P100': 9.5, 'A100': 312, 'H100': 989}, 0.3

named = lambda path: str(path.relative_to(ROOT))


@functools.cache
def sources() -> list[str]:
  folders = ('configs', 'scripts', 'tests', 'transformer_jax')
  return [named(path) for folder in folders for path in (ROOT / folder).rglob('*.py')]


def prose(text: str) -> str:
  """Without blocks of code."""
  text = re.sub(r'^```.*?^```', '', text, flags=re.MULTILINE | re.DOTALL)
  return re.sub(r'^( {4,}).*\n', '\n', text, flags=re.MULTILINE)


def spans(text: str) -> list[str]:
  """What stands between backticks, on one line each."""
  found = re.findall(r'`([^`]+)`', prose(text))
  return [' '.join(span.split()).replace(r'\|', '|') for span in found]


def commands(text: str) -> list[str]:
  """NAME FLAGS of each `python -m scripts.NAME FLAGS`, and of spans `NAME FLAGS`."""
  joined = re.sub(r'\\\n\s*', '', text)
  lines = [line for line in joined.splitlines() if re.match(r'\s', line)]
  found = [c for line in [*lines, *spans(text)] for c in line.split('-m scripts.')[1:]]
  found = [c for c in found if not c.startswith('NAME')]
  short = [s for s in spans(text) if s.split()[0] in SCRIPTS and '--' in s]
  ends = r'\s([<>|&#]|\.\.\.)\s.*|\s[<>|&#].*|\)$|\s\.\.\.$'
  return [re.sub(ends, '', c).replace('[', '').replace(']', '') for c in found + short]


def arguments(command: str) -> tuple[str, list[str]]:
  """A script's name and its flags, with examples for what stands in capitals."""
  command = re.sub(r'--config=C\b', '--config=configs/base.py:en-de', command)
  command = re.sub(r'=(\$\w+|[A-Z]\b)', '=1', command)
  if command.count("'") % 2:  # the end of bash -c '...'
    command = command.replace("'", '')
  name, *flags = shlex.split(command)
  for flag, (example, scripts) in NEEDED.items():
    if name in scripts and not any(f.startswith(flag + '=') for f in flags):
      flags.insert(0, example)
  return name, flags


def slug(heading: str) -> str:
  """The anchor that GitHub gives a heading."""
  return re.sub(r'[^\w\- ]', '', heading.lower()).replace(' ', '-')


def anchors(page: pathlib.Path) -> set[str]:
  return {
    slug(heading)
    for heading in re.findall(r'^#+ (.+)', page.read_text(), flags=re.MULTILINE)
  }


@pytest.mark.parametrize('page', PAGES, ids=named)
def test_links_lead_somewhere(page: pathlib.Path):
  for link in re.findall(r'\]\(([^)]+)\)', page.read_text()):
    link = re.sub(r'\s+', '', link)
    if re.match(r'https?:', link):
      continue
    path, _, anchor = link.partition('#')
    there = (page.parent / path).resolve() if path else page
    assert there.exists(), link
    assert not anchor or anchor in anchors(there), link


@functools.cache
def told() -> list[tuple[str, str]]:
  """Every command with the place that tells it."""
  texts = {named(page): page.read_text() for page in PAGES}
  for path in SOURCES:
    doc = ast.get_docstring(ast.parse(path.read_text()), clean=False) or ''
    texts[named(path)] = doc.replace('\npython', '\n  python')
  cells = json.loads(NOTEBOOK.read_text())['cells']
  texts[named(NOTEBOOK)] = ''.join('\n  ' + ''.join(c['source']) for c in cells)
  for target in TARGETS if shutil.which('make') else ():
    make = ['make', '-n', '-C', str(ROOT), target, 'RAW_DIR=.']
    lines = subprocess.run(make, capture_output=True, text=True, check=True).stdout
    runs = [line for line in lines.splitlines() if not line.startswith('echo')]
    texts[f'make {target}'] = ''.join(f'  {line}\n' for line in runs)
  return [(where, c) for where, text in texts.items() for c in commands(text)]


def give(command: str) -> None:
  """Has the script read its flags and its config; raises what the user would see."""
  name, flags = arguments(command)
  script = importlib.import_module(f'scripts.{name}')
  rest = script.FLAGS.parse([name, *flags])[1:]
  if name == 'sweep':
    rows = paper.TABLE_3 if script.ROWS.value == ['all'] else script.ROWS.value
    for config in script.CONFIG.value + [f'configs/table3.py:{row}' for row in rows]:
      give(' '.join(['train', f'--config={config}', *rest]))
  elif hasattr(script, 'CONFIG') and script.CONFIG.value is not None:
    assert script.CONFIG.value.task  # a config that cannot be loaded says so only now


@pytest.mark.parametrize('where', sorted({where for where, _ in told()}))
def test_commands_can_be_given(
  where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
  """Their scripts, flags, values, configs and keys of configs are there."""
  monkeypatch.chdir(ROOT)
  for language in ('de', 'en'):
    (tmp_path / f'train.{language}').write_text('1\n')
  for place, command in told():
    if place == where:
      give(command.replace(',DIR', f',{tmp_path}'))


def test_commands_are_found():
  places = [where for where, _ in told()]
  assert places.count('README.md') > 10 and places.count('docs/reproduce.md') > 10
  assert {'configs/table3.py', 'scripts/sweep.py', 'docs/devices.md'} <= {*places}
  assert places.count('docs/quickstart.ipynb') == 2
  if shutil.which('make'):
    assert places.count('make quickstart') == 3 and places.count('make evidence') > 5


@pytest.mark.parametrize(
  'command',
  [
    'train --workdri=x',
    'train --config.model.M=1',
    'train --config.model.N=many',
    'describe --config=configs/no.py',
    'sweep --rows=A9',
    'sweep --rows=A1 -- --config.epsilon=0',
    'evaluate --split=newstest2013',
  ],
)
def test_a_wrong_command_is_noticed(command: str, monkeypatch: pytest.MonkeyPatch):
  monkeypatch.chdir(ROOT)
  with pytest.raises((Exception, SystemExit)):
    give(command)


@pytest.mark.parametrize('page', PAGES, ids=named)
def test_code_that_is_named_is_there(page: pathlib.Path):
  text = page.read_text()
  tests = ''.join((ROOT / path).read_text() for path in sources() if 'test_' in path)
  for span in spans(text):
    if re.fullmatch(r'[\w/]+\.py', span):
      assert any(f'/{path}'.endswith(f'/{span}') for path in sources()), span
    if re.fullmatch(r'test_[a-z]\w+', span):
      assert f'def {span}(' in tests, span
  makefile = (ROOT / 'Makefile').read_text()
  for path in re.findall(r'tests/[\w/]+\.py', makefile):
    assert (ROOT / path).is_file(), path
  code = [*spans(text), *re.findall(r'^ {4}(.*)', text, flags=re.MULTILINE)]
  for target in re.findall(r'^make ([a-z][\w-]*)', '\n'.join(code), flags=re.MULTILINE):
    assert f'\n{target}:' in makefile, target


def test_scores_are_those_of_their_translations():
  """A score that links to translations stands in the result beside them."""
  pattern = r'\[\**([\d.]+)\**\]\(([^)]+\.txt)\)'
  found = [(page, *x) for page in PAGES for x in re.findall(pattern, page.read_text())]
  assert len(found) > 50
  for page, score, link in found:
    made = Result.read((page.parent / link).resolve().with_suffix('.json'))
    one = made.sacrebleu or made.parsing.f1
    assert score == f'{one.score:.2f}', (page, link)


def test_the_rows_of_table_3_are_their_results():
  text = (ROOT / 'docs' / 'table3.md').read_text()
  by_row = collections.defaultdict(list)
  for path in sorted((ROOT / 'results' / 'table3').glob('*.json')):
    by_row[path.name.partition('.')[0]].append(Result.read(path))
  for row, results in by_row.items():
    each = lambda number, found=results: ', '.join(f'{number(x):.2f}' for x in found)
    columns = (
      each(lambda x: x.dev_perplexity),
      each(lambda x: x.sacrebleu.score),
      each(lambda x: x.paper_bleu.score),
    )
    expected = f'| {len(results)} | {" | ".join(columns)} |'
    (line,) = re.findall(rf'^\| {row} \| [^|]*(\| \d .*)$', text, re.M)
    assert line.startswith(expected), row


def test_readme_is_short():
  assert len((ROOT / 'README.md').read_text().splitlines()) <= 120


def test_predicted_hours(monkeypatch: pytest.MonkeyPatch):
  """reproduce.md's hours and FLOPs, by its formula and the configs that it names."""
  text = (ROOT / 'docs' / 'reproduce.md').read_text()
  configs = 'base|big|table3|parsing'
  rows = re.findall(rf'^\| `((?:{configs})\.py:[^`]+)` \| (.*) \|$', text, re.M)
  assert len(rows) == 4 + len(paper.TABLE_3) + 1
  sums = 0.0
  for name, cells in rows:
    file, _, argument = name.partition('.py:')
    config = importlib.import_module(f'configs.{file}').get_config(argument)
    each = flops.flops_per_target_token(config.model.to_dict())
    total = each * paper.BATCH_TOKENS * config.train_steps
    sums += total if file == 'table3' else 0
    expected = [f'{each / 1e6:,.0f} M', f'{total:.2e}', *hours(total)]
    if file == 'table3':
      printed = paper.TABLE_3[argument]
      expected += [f'{printed.perplexity:.2f}', f'{printed.bleu}']
    assert cells.split(' | ') == expected, name
  assert f'| {sums:.2e} | {" | ".join(hours(sums))} |' in text


def hours(total: float) -> list[str]:
  """On eight and on one of each device, with three digits or two decimals."""
  found = []
  for devices in (8, 1):
    for rate in RATES.values():
      h = total / (devices * rate * 1e12 * SHARE) / 3600
      found.append(f'{h:,.0f}' if h >= 100 else f'{h:.1f}' if h >= 10 else f'{h:.2f}')
  return found


def test_commits_that_are_named_are_there():
  """What documentation and results say they were made by is in this history."""
  git = lambda *words, **given: (
    subprocess.run(
      ['git', '-C', str(ROOT), *words], capture_output=True, text=True, **given
    ).stdout
  )
  where = git('rev-parse', '--show-toplevel', '--is-shallow-repository').split()
  if where != [str(ROOT), 'false']:
    pytest.skip('no checkout with its history')
  commits = set()
  for path in PAGES:
    words = r'\b(?=\w*[a-f])(?=\w*\d)[0-9a-f]{7}\b'
    commits |= {*re.findall(words, path.read_text())}
  for path in (ROOT / 'results').rglob('*.json'):
    made = re.findall(r'"(?:training_)?commit": "([0-9a-f; ]+)"', path.read_text())
    commits |= {*'; '.join(made).split('; ')} - {''}
  assert len(commits) > 20
  asked = ''.join(f'{commit}^{{commit}}\n' for commit in sorted(commits))
  told = git('cat-file', '--batch-check', input=asked)
  assert [line for line in told.splitlines() if ' commit ' not in line] == []
