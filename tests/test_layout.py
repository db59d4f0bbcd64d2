"""The floors: what may import what, and a few things that may stand in no file."""

import ast
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = 'transformer_jax'

FLOORS = (
  (
    'vocabulary',
    'token_files',
    'batches',
    'durable',
    'lock',
    'corpora',
    'embedded_corpus',
    'moses',
    'bleu',
    'cost',
    'paper',
    'significance',
    'report',
    'run',
    'log',
    'meter',
    'sweep',
    'side_by_side',
    'submission',
    'interruption',
    'refusal',
    'processor',
    'provenance',
  ),
  (
    'products',
    'layers',
    'model',
    'loss',
    'best_words',
    'beam_search',
    'table1',
  ),
  ('parallel', 'checkpoint'),
  ('translate', 'step'),
  ('train',),
  ('benchmark',),
)
# Within the floor without JAX.
BESIDE = {
  'token_files': {'durable', 'vocabulary'},
  'batches': {'token_files', 'vocabulary'},
  'corpora': {
    'durable',
    'lock',
    'processor',
    'token_files',
    'vocabulary',
    'embedded_corpus',
  },
  'bleu': {'moses'},
  'significance': {'bleu', 'moses'},
  'report': {
    'bleu',
    'corpora',
    'cost',
    'durable',
    'moses',
    'paper',
    'run',
    'significance',
  },
  'run': {'corpora', 'durable', 'lock', 'vocabulary'},
  'log': {'durable', 'run'},
  'submission': {'side_by_side', 'sweep'},
  'side_by_side': {'processor', 'sweep'},
  'sweep': {'durable', 'interruption', 'lock', 'run'},
  'layers': {'products'},
  'loss': {'products'},
  'best_words': {'products'},
  'beam_search': {'best_words'},
  'model': {'layers', 'products'},
  'table1': {'layers'},
}
ACCELERATED = {'jax', 'jaxlib', 'flax', 'optax', 'orbax'}
ONE_MODULES = {
  'pmap',
  'shard_map',
  'device_put',
  'device_put_sharded',
  'device_put_replicated',
  'process_index',
  'process_count',
  'distributed',
  'sharding',
  'Mesh',
  'NamedSharding',
  'multihost_utils',
}


def modules() -> list[str]:
  """The package's modules; one that is a folder counts as one."""
  inside = [path.relative_to(ROOT / PACKAGE) for path in sources(PACKAGE)]
  return sorted({p.parts[0].removesuffix('.py') for p in inside} - {'__init__'})


def floor(module: str) -> int:
  return next(n for n, names in enumerate(FLOORS) if module in names)


def sources(*folders: str) -> list[pathlib.Path]:
  """Files of code below the folders; by default, all but the tests."""
  found = []
  for folder in folders or (PACKAGE, 'scripts', 'configs'):
    found += (ROOT / folder).rglob('*.py')
  return sorted(found)


def files(module: str) -> list[pathlib.Path]:
  file = ROOT / PACKAGE / f'{module}.py'
  return [file] if file.is_file() else sources(f'{PACKAGE}/{module}')


def tree(path: pathlib.Path) -> ast.Module:
  return ast.parse(path.read_text(), str(path))


def imports(path: pathlib.Path) -> Iterator[str]:
  """Dotted names of what a file imports, inside functions too."""
  folder = path.relative_to(ROOT).parent.parts
  for node in ast.walk(tree(path)):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      within = folder[: len(folder) + 1 - node.level] if node.level else ()
      origin = '.'.join([*within, *([node.module] if node.module else [])])
      yield from (f'{origin}.{alias.name}' for alias in node.names)


def packages(path: pathlib.Path) -> set[str]:
  return {name.split('.')[0] for name in imports(path)}


def names(path: pathlib.Path) -> Iterator[str]:
  """Every identifier and attribute of a file's code, but not of its strings."""
  for node in ast.walk(tree(path)):
    if isinstance(node, ast.Name):
      yield node.id
    elif isinstance(node, ast.Attribute):
      yield node.attr
    elif isinstance(node, ast.alias):
      yield from node.name.split('.')
    elif isinstance(node, ast.ImportFrom) and node.module:
      yield from node.module.split('.')


def test_every_module_has_a_floor():
  listed = {name for names in FLOORS for name in names}
  assert {*modules()} <= listed, 'say in FLOORS where a new module belongs'


@pytest.mark.parametrize('module', modules())
def test_imports_come_from_lower_floors(module: str):
  allowed = {module} | (BESIDE[module] if module in BESIDE else set())
  for path in files(module):
    for name in imports(path):
      package, *rest = name.split('.')
      if package == PACKAGE:
        lower = floor(rest[0]) < floor(module)
        assert lower or rest[0] in allowed, f'{path} imports {name}'


def test_the_floor_without_jax_names_none_of_it():
  for module in modules():
    if floor(module) == 0:
      for path in files(module):
        assert not packages(path) & ACCELERATED, path


def test_the_floor_without_jax_loads_without_it():
  """Nor does a library that it imports bring it (tensorboardX loads torch if any)."""
  lowest = [f'{PACKAGE}.{module}' for module in modules() if floor(module) == 0]
  code = f'import sys, {", ".join(lowest)}; print(*sys.modules)'
  done = subprocess.run(
    [sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True
  )
  loaded = {*done.stdout.split()}
  assert {*lowest} <= loaded
  assert not {'jax', 'flax', 'optax', 'tensorflow'} & loaded


def test_nothing_imports_upwards_out_of_the_package():
  for path in sources(PACKAGE):
    assert not packages(path) & {'configs', 'scripts', 'tests'}, path
  for path in sources('configs'):
    assert packages(path) <= {'configs', 'ml_collections'}, path
  for path in sources('scripts'):
    assert not packages(path) & {'configs', 'tests'}, path


def test_one_module_knows_of_more_than_one_device():
  for path in sources():
    if path.stem != 'parallel':
      assert not ONE_MODULES & {*names(path)}, path


def test_functions_are_short():
  for path in sources(PACKAGE, 'scripts', 'configs', 'tests'):
    for node in ast.walk(tree(path)):
      if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        length = node.end_lineno - node.lineno + 1
        assert length <= 60, f'{path}:{node.lineno} {node.name} has {length} lines'


def test_no_file_for_odds_and_ends():
  for path in sources():
    assert not re.search('util|helper|common|misc', path.stem), path


def test_no_key_of_a_config_has_a_default():
  for path in sources():
    for node in ast.walk(tree(path)):
      if isinstance(node, ast.Attribute) and node.attr in ('get', 'setdefault'):
        owner = ast.unparse(node.value)
        assert 'config' not in owner.lower(), f'{path}:{node.lineno}: {owner}'


def test_nothing_that_was_read_is_run():
  """No pickles, no eval: a checkpoint or a corpus from elsewhere is data."""
  banned = {'pickle', 'cloudpickle', 'dill', 'marshal', 'shelve', 'eval', 'exec'}
  for path in sources():
    assert not banned & {*names(path)}, path
    for node in ast.walk(tree(path)):
      if isinstance(node, ast.keyword):
        assert node.arg not in ('allow_pickle', 'shell'), f'{path}:{node.value.lineno}'
