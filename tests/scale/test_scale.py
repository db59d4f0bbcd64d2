"""Memory on devices that are not here, and hours on those that are."""

import importlib.util
import json
import pathlib
import re

import pytest

from configs import base
from scripts import describe, prepare_data
from toy.corpus import write_raw
from toy.runs import TINY
from transformer_jax.data.batches import Shape, train_batches
from transformer_jax.data.corpus import read_split
from transformer_jax.machine import platform
from transformer_jax.machine.errors import UserError
from transformer_jax.model import flops
from transformer_jax.scale import compile, topologies


def test_topologies():
  """Axes of a TPU; hosts of 8 GPUs, or some of one; the others are refused."""
  gpus = {'h100:1': (1, 1), 'h100:2': (1, 2), 'h100:64': (8, 8)}
  for name, shape in ({'v4:4x4x4': (4, 4, 4), 'v5e:2x4': (2, 4)} | gpus).items():
    assert topologies.topology(name).shape == shape
  for name in 'v5e v5e:8 v5e:2x0 v5e:2x4x a100:8 h100:3 h100:2x8'.split():
    with pytest.raises(UserError, match=f'^--topology={name}: .* such as'):
      topologies.topology(name)


@pytest.mark.skipif(
  bool(importlib.util.find_spec('jax_cuda12_plugin')), reason='is installed'
)
def test_a_missing_compiler_is_named():
  with pytest.raises(UserError, match=r"h100:8 needs .*: pip install -e '\.\[topology"):
    describe.main(['', '--config=configs/base.py:en-de', '--topology=h100:8'])


@pytest.mark.slow
def test_a_compiler_that_ends_says_why(monkeypatch):
  monkeypatch.setitem(compile.COMPILERS, 'gpu', (['jax'], ''))
  config, target = base.get_config(), topologies.topology('h100:8')
  with pytest.raises(UserError, match='^h100:8: the compiler ended:\n(.|\n)*Error'):
    compile.compile_in_subprocess(config, target, 32)


def test_a_full_shape_has_the_config_s_tokens():
  assert compile.full_shape(base.get_config(), 32) == Shape(98, 32, 32)
  assert compile.full_shape(base.get_config(), 10_000) == Shape(1, 10_000, 10_000)


def test_needs_in_words():
  """Of a step that fits, and of a search that the compiler refuses."""
  step = {'arguments': 2.5e9, 'temporaries': 7.25e9, 'fits': True}
  counts = 'topology devices processes slices slices_per_pass rows length'.split()
  result = {'memory': 63.7e9, 'flops': 1.5e12, 'all_reduce_bytes': 4e8, 'step': step}
  result |= dict.fromkeys(counts, 8) | {'search': {'refused': 'why'}}
  *_, fits, refused, last = compile.lines(result)
  assert re.findall(r'\d+[.]\d+', fits + last) == ['2.50', '7.25', '1.500', '0.40']
  assert fits.endswith('; fits') and refused.endswith(': why')


@pytest.mark.slow
@pytest.mark.usefixtures('in_the_checkout')
def test_the_commonest_shape_is_timed(monkeypatch, capsys, tmp_path: pathlib.Path):
  monkeypatch.setattr(platform, 'start', lambda slices: None)  # JAX has started
  raw = write_raw(tmp_path / 'raw', 100, 5, 5)
  options = ['', '--config=configs/quickstart.py', f'--data_dir={tmp_path / "data"}']
  tiny = TINY | {'max_shapes': 3}
  options += [f'--config.{key}={value}' for key, value in tiny.items()]
  prepare_data.main([*options, f'--raw_dir={raw}'])
  corpus = pathlib.Path(capsys.readouterr().out.strip())
  options += [f'--config.data.name={corpus.name}', '--time', '--json']
  describe.main(options)
  described = json.loads(capsys.readouterr().out)
  time = described['time']
  batches = train_batches(describe.CONFIG.value, read_split(corpus, 'train'))
  shapes = [batches.batch(step).shape for step in range(100)]
  assert time['shape'][1:] == [*max(shapes, key=shapes.count)]
  assert len({*shapes}) > 1 and time['shape'] in described['batch_shapes']
  steps = described['cells']['train_steps']
  assert 0 < time['hours'] == pytest.approx(steps * time['seconds'] / 3600)


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec('libtpu'), reason='needs libtpu')
def test_base_compiles_for_eight_tpus_of_two_hosts_and_fits(monkeypatch, capsys):
  """The step and the search, which only a TPU's compiler may refuse."""
  monkeypatch.setenv('JAX_EXEC_TIME_OPTIMIZATION_EFFORT', '-1')  # compiles faster
  describe.main(['', '--config=configs/base.py:en-de', '--topology=v5e:2x4', '--json'])
  (result,) = json.loads(capsys.readouterr().out)['topologies']
  assert (result['devices'], result['processes'], result['slices']) == (8, 2, 8)
  step, search = result['step'], result['search']
  assert step['fits'] and search['fits']
  floats = flops.parameters(base.get_config().model.to_dict())
  assert step['arguments'] == pytest.approx(3 * 4 * floats, rel=0.01)
  assert result['all_reduce_bytes'] == 4 * floats
