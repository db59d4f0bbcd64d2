"""docs/devices.md: its commands, word for word, with a small model; and its figures."""

import itertools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import types

import jax
import ml_collections
import numpy as np
import pytest

from configs import base, big
from scripts import train
from toy.hlo import Hlo
from toy.programs import Program, free_port
from toy.runs import Toy
from toy.task import TINY
from transformer_jax.machine import parallel
from transformer_jax.model import build, flops
from transformer_jax.training import checkpoint
from transformer_jax.training.step import StepInput, TrainState, on_devices
from transformer_jax.training.trainer import adam

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / 'docs' / 'devices.md'
SMALL = TINY | {'slices': 8, 'train_steps': 4, 'checkpoint_every_steps': 2}
SMALL |= {'character_coverage': 1.0, 'byte_fallback': False}  # 60 pieces are too few
# What tells base from big is left to their files.
for key in ('average_last', 'keep_checkpoints', 'model.P_drop'):
  del SMALL[key]


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  return Toy(tmp_path_factory.mktemp('toy')).folder


def blocks() -> list[str]:
  """Its pieces of shell."""
  found = re.findall(r'(?:^    .*\n|^\n(?=    ))+', DOCS.read_text(), re.M)
  return [re.sub('^    ', '', block, flags=re.M).strip('\n') for block in found]


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


@pytest.mark.parametrize('name', ['#SBATCH', 'mpirun', 'gcloud', 'for id in', 'make'])
def test_every_script_is_one(name: str):
  """As bash reads it; those for a cluster can be run in none of our tests."""
  found = [block for block in blocks() if name in block]
  assert found
  for block in found:
    subprocess.run(['bash', '-n'], input=block, text=True, check=True)


def test_every_training_command_has_flags_that_there_are(monkeypatch):
  """Also those inside of scripts for a cluster, whose variables are all 1 here."""
  monkeypatch.chdir(ROOT)
  text = re.sub(r'\\\n *', '', '\n'.join(blocks()))
  found = re.findall(r'python -m scripts\.train ([^\'#\n&]+)', text)
  assert len(found) == 8
  for command in found:
    words = shlex.split(re.sub(r'\$\w+', '1', command))
    assert train.FLAGS.parse(['train', *words]) == ['train']


@pytest.mark.slow
@pytest.mark.parametrize(
  'place, config, theirs', [(0, 'base', (5, 8, 0.1)), (1, 'big', (20, 16, 0.3))]
)
def test_on_eight_devices(place: int, config: str, theirs: tuple, folder: pathlib.Path):
  command = commands()[place]
  assert command[0] == f'--config=configs/{config}.py:en-de'
  workdir = folder / config
  program = Program(
    folder, 'train', *small(command, folder, workdir=str(workdir)), devices=8
  )
  assert program.code() == 0, program.said
  assert 'training on CPU' in program.said and '(8 JAX devices)' in program.said
  assert checkpoint.steps(workdir / 'checkpoints') == [2, 4]
  kept = json.loads((workdir / 'config.json').read_text())
  assert (kept['average_last'], kept['model']['h'], kept['model']['P_drop']) == theirs


@pytest.mark.slow
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
  assert '4 JAX devices in 2 processes' in both[0].said and 'step' not in both[1].said
  assert checkpoint.steps(workdir / 'checkpoints') == [2, 4]


@pytest.mark.slow
def test_two_processes_without_accelerators(folder: pathlib.Path):
  """The loop as it stands there; sizes, folders and the port are others."""
  (loop,) = (block for block in blocks() if block.startswith('for id in 0 1'))
  sizes = small([], folder, workdir=str(folder / 'two'))
  changed = {
    'python': sys.executable,
    ' --workdir=runs/two': '',
    'localhost:1234': f'localhost:{free_port()}',
    '--process_id=$id': f'--process_id=$id {shlex.join(sizes)}',
  }
  for old, new in changed.items():
    assert loop.count(old) == 1
    loop = loop.replace(old, new)
  environment = os.environ | {'XDG_CACHE_HOME': str(folder / 'cache')}
  environment.pop('JAX_NUM_CPU_DEVICES', None)
  ended = subprocess.run(
    ['bash', '-c', loop], cwd=ROOT, env=environment, capture_output=True, text=True
  )
  assert '8 JAX devices in 2 processes' in ended.stderr, ended.stderr
  assert checkpoint.steps(folder / 'two' / 'checkpoints') == [2, 4]


# What a step computes and moves


def table(first: str) -> list[list[str]]:
  """The cells of the table whose heading's line begins so, below that line."""
  _, _, rest = DOCS.read_text().partition(f'\n{first}')
  lines = itertools.takewhile(lambda line: line[:1] == '|', rest.splitlines()[2:])
  return [[cell.strip() for cell in line.strip('|').split('|')] for line in lines]


def step_of(config: ml_collections.ConfigDict) -> tuple[jax.stages.Compiled, int, int]:
  """A config's step for 8 devices, 125 pairs of 25 tokens each; bytes of its state.

  Those on each device: of these 8, and where nothing is shared.
  """
  graph, params = build.architecture(config)
  transform = adam(config)
  devices = parallel.Devices(8)
  zero = jax.ShapeDtypeStruct((), np.int32)
  shape = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype)
  whole = jax.eval_shape(transform.init, params)
  opt_state = jax.eval_shape(devices.shares.split, whole)
  state = jax.tree.map(shape, TrainState(zero, params, opt_state))
  side, wishes, seed = (
    jax.ShapeDtypeStruct((8, 1, *n), np.int32) for n in ((125, 25), (2,), ())
  )
  share = StepInput(side, side, wishes, seed)
  step = on_devices(devices, graph, params, transform, 0.1, at_once=1)
  compiled = step.lower(state, share).compile()
  bytes_of = lambda x: x.size * x.dtype.itemsize
  own = lambda x: bytes_of(x) // (8 if devices.shares.has(x) else 1)
  rest = sum(map(bytes_of, jax.tree.leaves(state[:2])))
  shared, all_of_it = (sum(map(f, jax.tree.leaves(whole))) for f in (own, bytes_of))
  return compiled, rest + shared, rest + all_of_it


@pytest.mark.slow
@pytest.mark.parametrize('place, module', [(1, base), (2, big)])
def test_what_a_step_computes_and_moves(
  place: int, module: types.ModuleType, monkeypatch: pytest.MonkeyPatch
):
  """As the compiled program has it, to the digits that are printed.

  The program has an accelerator's forms of the operations. A CPU's form of the loss is
  a loop over its rows, and XLA counts the FLOPs of a loop as if it ran once.
  """
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  printed, summed, collected, numbers, held, whole = (
    row[place] for row in table('| | base | big |')
  )
  config = module.get_config()
  compiled, shared, state = step_of(config)
  found = compiled.cost_analysis()
  by_arithmetic = 3125 * flops.flops_per_target_token(config.model, 25)
  assert printed == f'{found["flops"]:.2e} ({by_arithmetic:.2e})'.replace('e+', 'e')
  told = Hlo(compiled.as_text()).told()
  kinds = 'reduce-scatter', 'all-gather', 'all-reduce'
  assert set(told) == set(kinds)
  scatters, gathers, reduces = (told[kind] for kind in kinds)
  assert summed == f'{8 * sum(scatters) + sum(reduces):,}'
  assert collected == f'{sum(gathers):,}'
  assert numbers == f'{len(scatters)}; {len(gathers)}; {len(reduces)}'
  assert held == f'{shared / 1e6:,.4g} MB'
  assert whole == f'{state / 1e6:,.4g} MB'


PEAK = {'H100': 989e12, 'TPU v5p': 459e12}  # FLOP/s
USED = 0.4  # of it
BETWEEN = {'H100': (450e9, 400e9), 'TPU v5p': (600e9, 600e9)}  # bytes/s: of 8; of more


def test_what_that_predicts():
  """Each row of the second table from the first and the vendors' figures."""
  flops, summed, *_ = table('| | base | big |')
  rows, name = table('| | n | compute'), ''
  assert len(rows) == 12
  for row in rows:
    name = row[0] or name
    model, kind = name.split(', ')
    place, n = {'base': 1, 'big': 2}[model], int(row[1])
    compute = 8 * float(flops[place].split()[0]) / n / (USED * PEAK[kind])
    moved = int(summed[place].replace(',', ''))
    communicate = 2 * (n - 1) / n * moved / BETWEEN[kind][n > 8]
    step = compute + communicate
    expected = f'{1e3 * compute:.2f} {1e3 * communicate:.2f} {1e3 * step:.1f}'
    expected += f' {25_000 / step / 1e6:.1f} {100 * compute / step:.0f}'
    assert [cell.split()[0] for cell in row[2:]] == expected.split(), row
