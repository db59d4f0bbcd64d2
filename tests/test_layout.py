"""What may import what, how long files may be, and what no file may contain."""

import ast
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest

from configs import base

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = 'transformer_jax'

# Lowest first: a room imports only from lower floors and from itself.
FLOORS = (
  ('machine',),
  ('data', 'scoring'),
  ('runs', 'model'),
  ('training',),
  ('decoding', 'report', 'exchange'),
  ('benchmark',),
)
# These rooms, and these modules of other rooms, never need JAX.
WITHOUT_JAX = ('data', 'scoring', 'runs', 'report')
MODULES_WITHOUT_JAX = (
  'machine.errors',
  'machine.files',
  'machine.processor',
  'machine.provenance',
  'machine.signals',
  'model.flops',
  'training.log',
  'training.metrics',
)
ACCELERATED = {'jax', 'jaxlib', 'flax', 'optax', 'orbax'}
# Names that only one module may use, by module.
RESERVED = {
  'machine/parallel.py': {
    'pmap',
    'shard_map',
    'device_put',
    'device_put_sharded',
    'device_put_replicated',
    'sharding',
    'Mesh',
    'NamedSharding',
  },
  'machine/hosts.py': {
    'process_index',
    'process_count',
    'distributed',
    'multihost_utils',
  },
}
# Modules and rooms that see a config.
WITH_CONFIG = (
  'benchmark/',
  'data/corpus.py',
  'data/preparing.py',
  'decoding/dev_bleu.py',
  'decoding/evaluate.py',
  'decoding/head_survey.py',
  'decoding/positions.py',
  'decoding/restored.py',
  'decoding/trained.py',
  'decoding/translate.py',
  'exchange/export.py',
  'exchange/importing.py',
  'exchange/outgoing.py',
  'machine/flags.py',
  'model/build.py',
  'runs/',
  'training/perplexity.py',
  'training/train.py',
  'training/trainer.py',
)


def rooms() -> list[str]:
  folders = (path for path in (ROOT / PACKAGE).iterdir() if path.is_dir())
  return sorted(path.name for path in folders if (path / '__init__.py').is_file())


def floor(room: str) -> int:
  return next(n for n, names in enumerate(FLOORS) if room in names)


def sources(*folders: str) -> list[pathlib.Path]:
  """Files of code below the folders; by default, all but the tests."""
  found = []
  for folder in folders or (PACKAGE, 'scripts', 'configs'):
    found += (ROOT / folder).rglob('*.py')
  return sorted(found)


def without_jax() -> list[pathlib.Path]:
  modules = (ROOT / PACKAGE / f'{m.replace(".", "/")}.py' for m in MODULES_WITHOUT_JAX)
  return [*modules, *sources(*(f'{PACKAGE}/{room}' for room in WITHOUT_JAX))]


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


def loaded_by(*modules: str) -> set[str]:
  """All that a process has imported once it has imported these modules."""
  code = f'import sys, {", ".join(modules)}; print(*sys.modules)'
  done = subprocess.run(
    [sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True
  )
  return {*done.stdout.split()}


def test_every_room_has_a_floor_and_nothing_stands_outside():
  assert rooms() == sorted(name for names in FLOORS for name in names)
  assert [path.name for path in (ROOT / PACKAGE).glob('*.py')] == ['__init__.py']


@pytest.mark.parametrize('room', rooms())
def test_imports_come_from_lower_floors(room: str):
  for path in sources(f'{PACKAGE}/{room}'):
    for name in imports(path):
      package, *rest = name.split('.')
      if package == PACKAGE:
        assert rest[0] == room or floor(rest[0]) < floor(room), f'{path} imports {name}'


def test_what_needs_no_jax_does_not_import_it():
  for path in without_jax():
    assert not packages(path) & ACCELERATED, path


def test_what_needs_no_jax_loads_without_it():
  """A library that it imports could load JAX, as tensorboardX loads torch if any."""
  relative = (path.relative_to(ROOT).with_suffix('') for path in without_jax())
  names = ['.'.join(p.parts).removesuffix('.__init__') for p in relative]
  loaded = loaded_by(*names)
  assert {*names} <= loaded
  assert not {'jax', 'flax', 'optax', 'tensorflow'} & loaded


def test_reading_a_run_is_quick():
  """Libraries that only prepare corpora are not loaded."""
  loaded = loaded_by('transformer_jax.runs.run', 'transformer_jax.runs.result')
  assert not {'pyarrow', 'babel', 'num2words', 'tensorflow_datasets'} & loaded


def test_nothing_imports_upwards_out_of_the_package():
  for path in sources(PACKAGE):
    assert not packages(path) & {'configs', 'scripts', 'tests'}, path
  for path in sources('configs'):
    # A config of the user's own text looks into its folder.
    looks = {'transformer_jax'} if path.stem == 'my' else set()
    assert packages(path) <= {'configs', 'ml_collections'} | looks, path
  for path in sources('scripts'):
    assert not packages(path) & {'configs', 'tests'}, path


@pytest.mark.parametrize('module, reserved', RESERVED.items())
def test_one_module_places_arrays_and_one_counts_hosts(module: str, reserved: set[str]):
  owner = ROOT / PACKAGE / module
  assert reserved & {*names(owner)}
  for path in sources():
    assert path == owner or not reserved & {*names(path)}, path


def reads_a_config(path: pathlib.Path) -> bool:
  """Whether a key is taken from what is called `config`, as an attribute."""
  keys = set(base.get_config().keys())
  for node in ast.walk(tree(path)):
    if isinstance(node, ast.Attribute) and node.attr in keys:
      of = node.value.func if isinstance(node.value, ast.Call) else node.value
      name = of.id if isinstance(of, ast.Name) else getattr(of, 'attr', '')
      if name in ('config', '_config'):
        return True
  return False


def test_few_modules_see_a_config():
  """The others take numbers and arrays."""
  seeing = [
    path
    for path in sources(PACKAGE)
    if 'ml_collections' in packages(path) or reads_a_config(path)
  ]
  inside = {path.relative_to(ROOT / PACKAGE).as_posix() for path in seeing}
  assert {path for path in inside if not path.startswith(WITH_CONFIG)} == set()


def test_no_script_and_no_test_imports_another():
  for path in sources('scripts'):
    assert 'scripts' not in packages(path), path
  for path in sources('tests'):
    parts = [part for name in imports(path) for part in name.split('.')]
    assert not any(part.startswith('test_') for part in parts), path


def test_files_are_short():
  for folder, most in ((PACKAGE, 350), ('scripts', 80)):
    for path in sources(folder):
      length = len(path.read_text().splitlines())
      assert length <= most, f'{path} has {length} lines'


def test_one_module_knows_what_a_cpu_needs():
  """Others in the model's way neither import its forms nor ask what JAX runs on."""
  for path in sources():
    if path.stem != 'ops':
      assert not any('ops_cpu' in name for name in imports(path)), path
  asking = {'on_cpu', 'default_backend'}
  rooms = (f'{PACKAGE}/{room}' for room in ('model', 'training', 'decoding'))
  for path in sources(*rooms):
    if path.stem != 'ops':
      assert not asking & {*names(path)}, path


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
  """No pickles, no eval: a model, a checkpoint or a corpus from elsewhere is data."""
  banned = {'pickle', 'cloudpickle', 'dill', 'marshal', 'shelve', 'eval', 'exec'}
  for path in sources():
    assert not banned & {*names(path)}, path
    assert not {'yaml', 'joblib'} & packages(path), path
    for node in ast.walk(tree(path)):
      if isinstance(node, ast.keyword):
        assert node.arg not in ('allow_pickle', 'shell'), f'{path}:{node.value.lineno}'
      if isinstance(node, ast.Attribute) and node.attr == 'load':
        assert ast.unparse(node.value) not in ('torch', 'np'), f'{path}:{node.lineno}'
