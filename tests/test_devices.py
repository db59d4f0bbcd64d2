"""The commands of docs/devices.md, word for word, with a model that is small."""

import json
import pathlib
import re
import shlex

import pytest
from programs import TINY, Program, Toy, free_port

from transformer_jax import checkpoint

pytestmark = pytest.mark.slow

DOCS = pathlib.Path(__file__).parents[1] / 'docs' / 'devices.md'
SMALL = TINY | {'slices': 8, 'train_steps': 4, 'checkpoint_every_steps': 2}
SMALL |= {'character_coverage': 1.0, 'byte_fallback': False}  # 60 pieces are too few


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  return Toy(tmp_path_factory.mktemp('toy')).folder


def commands() -> list[list[str]]:
  """What follows `python -m scripts.train` in each of them, as a shell would see it."""
  text = DOCS.read_text().replace('\\\n', ' ')
  found = re.findall(r'^    python -m scripts\.train (.*)$', text, re.M)
  return [shlex.split(line, comments=True) for line in found]


def small(command: list[str], folder: pathlib.Path, **changes: str) -> list[str]:
  """The command on the toy task: only sizes, folders and ports are others."""
  changes = {'workdir': str(folder / 'run'), 'config.slices': '8'} | changes
  kept = [flag for flag in command if flag[2:].partition('=')[0] not in changes]
  given = [f'--{key}={value}' for key, value in changes.items()]
  sizes = [f'--config.{k}={v}' for k, v in SMALL.items() if k != 'slices']
  rest = [*sizes, f'--data_dir={folder / "data"}', f'--raw_dir={folder / "raw"}']
  return sorted([*kept, *given], key=lambda f: not f.startswith('--config=')) + rest


@pytest.mark.parametrize('place, config', [(0, 'base'), (1, 'big')])
def test_on_eight_devices(place: int, config: str, folder: pathlib.Path):
  command = commands()[place]
  assert command[0] == f'--config=configs/{config}.py:en-de'
  workdir = folder / config
  program = Program(
    folder, 'train', *small(command, folder, workdir=str(workdir)), devices=8
  )
  assert program.code() == 0, program.said
  assert 'training on CPU' in program.said and '(8 JAX devices)' in program.said
  assert checkpoint.steps(workdir / 'checkpoints') == [2, 4]
  assert json.loads((workdir / 'config.json').read_text())['average_last'] == 3


@pytest.mark.parametrize('config', ['base', 'big'])
def test_on_two_hosts(config: str, folder: pathlib.Path):
  (command,) = (c for c in commands() if '--process_id=0' in c)
  workdir = folder / f'{config}.two'
  address = f'localhost:{free_port()}'
  both = []
  for number in '01':
    flags = small(
      command,
      folder,
      config=f'configs/{config}.py:en-de',
      workdir=str(workdir),
      coordinator_address=address,
      process_id=number,
    )
    both.append(Program(folder, 'train', *flags, devices=2))
  for program in both:
    assert program.code() == 0, program.said
  assert '4 JAX devices on 2 hosts' in both[0].said and 'step' not in both[1].said
  assert checkpoint.steps(workdir / 'checkpoints') == [2, 4]
