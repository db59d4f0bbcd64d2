"""The core never imports a sibling, and its layers import downwards only."""

import ast
import pathlib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = 'transformer_jax'
# The core, lowest first: each imports itself and those of lower layers.
LAYERS = (
  ('machine',),
  ('config',),  # a module, the others are subpackages
  ('data',),
  ('scoring',),
  ('runs', 'model'),
  ('training',),
  ('decoding', 'report'),
)
CORE = {name for layer in LAYERS for name in layer}
# Siblings import the core and never each other, but a task's reader what reads text.
SIBLINGS = {'analysis', 'exchange', 'parsing', 'prepare', 'reference', 'scale'}


def imported(path: pathlib.Path) -> Iterator[str]:
  """Yields dotted names of what a file imports, inside functions too."""
  for node in ast.walk(ast.parse(path.read_text(), str(path))):
    if isinstance(node, ast.Import):
      yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
      yield from (f'{node.module}.{alias.name}' for alias in node.names)


def allowed(name: str) -> set[str]:
  """Returns the subpackages that the subpackage `name` may import."""
  if name in SIBLINGS:
    return CORE | {name} | ({'prepare'} if name == 'parsing' else set())
  level = next(n for n, layer in enumerate(LAYERS) if name in layer)
  return {name}.union(*LAYERS[:level])


def test_every_subpackage_has_a_place():
  subpackages = {path.parent.name for path in (ROOT / PACKAGE).glob('*/__init__.py')}
  assert subpackages == CORE - {'config'} | SIBLINGS


@pytest.mark.parametrize('name', sorted(CORE | SIBLINGS))
def test_imports_go_downwards(name: str):
  home = ROOT / PACKAGE
  for path in [*home.glob(f'{name}.py'), *(home / name).rglob('*.py')]:
    for module in imported(path):
      package, *rest = module.split('.')
      if package == PACKAGE:
        assert rest[0] in allowed(name), f'{path} imports {module}'
      assert package not in ('benchmarks', 'configs', 'scripts', 'tests'), path
