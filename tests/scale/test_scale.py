"""Programs compiled for accelerators that are not there, and what is read in them."""

import importlib.util
import json
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from configs import base
from scripts import describe
from toy.compiled import results_of
from transformer_jax.machine.errors import UserError
from transformer_jax.model import flops
from transformer_jax.report import paper
from transformer_jax.scale import chips, estimate
from transformer_jax.scale.program import Program, array_bytes

ROOT = pathlib.Path(__file__).parents[2]
SAME_AS_BASE = 'D2', 'D3', 'D4'
TEXT = """HloModule jit_step, is_scheduled=true

%rows (p.0: f32[1000,8], p.1: s32[4,1]) -> f32[4,8] {
  %p.0 = f32[1000,8]{1,0} parameter(0)
  %p.1 = s32[4,1]{1,0} parameter(1)
  ROOT %gather.1 = f32[4,8]{1,0} gather(%p.0, %p.1), offset_dims={1}
}

%rows_of_a_view (p.6: f32[8000], p.7: s32[4,1]) -> f32[4,8] {
  %p.6 = f32[8000]{0} parameter(0)
  %p.7 = s32[4,1]{1,0} parameter(1)
  %view = f32[1000,8]{1,0} bitcast(%p.6)
  ROOT %gather.2 = f32[4,8]{1,0} gather(%view, %p.7), offset_dims={1}
}

%write (p.2: bf16[50,16], p.3: bf16[1,16], p.4: s32[]) -> bf16[50,16] {
  %p.2 = bf16[50,16]{1,0} parameter(0)
  %p.3 = bf16[1,16]{1,0} parameter(1)
  %p.4 = s32[] parameter(2)
  ROOT %update.1 = bf16[50,16]{1,0} dynamic-update-slice(%p.2, %p.3, %p.4, %p.4)
}

%add (x: f32[], y: f32[]) -> f32[] {
  %x = f32[] parameter(0)
  %y = f32[] parameter(1)
  ROOT %add.1 = f32[] add(%x, %y)
}

%sum (p.5: f32[64]) -> f32[64] {
  %p.5 = f32[64]{0} parameter(0)
  ROOT %all-reduce.1 = f32[64]{0} all-reduce(%p.5), to_apply=%add
}

%body (state: (f32[64], s32[])) -> (f32[64], s32[]) {
  %state = (f32[64]{0}, s32[]) parameter(0)
  %array = f32[64]{0} get-tuple-element(%state), index=0
  %count = s32[] get-tuple-element(%state), index=1
  %fusion.1 = f32[64]{0} fusion(%array), kind=kLoop, calls=%sum
  ROOT %tuple.1 = (f32[64]{0}, s32[]) tuple(%fusion.1, %count)
}

ENTRY %main (a: f32[1000,8], b: s32[4,1], c: bf16[50,16], d: bf16[1,16], e: s32[], f: f32[64]) -> f32[64] {
  %a = f32[1000,8]{1,0:T(8,128)} parameter(0)
  %b = s32[4,1]{1,0} parameter(1)
  %c = bf16[50,16]{1,0} parameter(2)
  %d = bf16[1,16]{1,0} parameter(3)
  %e = s32[] parameter(4)
  %f = f32[64]{0} parameter(5)
  LINES
  %tuple.2 = (f32[64]{0}, /*index=1*/s32[]) tuple(%f, %e)
  %while.1 = (f32[64]{0}, s32[]) while(%tuple.2), condition=%never, body=%body, backend_config={"known_trip_count":{"n":"3"}}
  ROOT %result = f32[64]{0} get-tuple-element(%while.1), index=0
}
"""  # noqa: E501
LOOP = 3 * (64 + 64) * 4  # bytes that the loop reads and writes


@pytest.mark.parametrize(
  'line, moved',
  [
    ('', 0),
    # An addition reads both operands and writes the result.
    ('%y = f32[64]{0} add(%f, %f2)', 3 * 64 * 4),
    # Of a table only the rows that are looked up are read.
    ('%y = f32[4,8]{1,0} fusion(%a, %b), kind=kLoop, calls=%rows', 2 * 32 * 4 + 4 * 4),
    (
      '%v = f32[8000]{0} bitcast(%a)\n'
      '  %y = f32[4,8]{1,0} fusion(%v, %b), kind=kLoop, calls=%rows_of_a_view',
      2 * 32 * 4 + 4 * 4,
    ),
    # An update in place leaves the rest.
    ('%y = bf16[50,16] fusion(%c, %d, %e), kind=kLoop, calls=%write', 2 * 16 * 2 + 4),
    # What goes into a TPU's VMEM is read, and not written.
    ('%y = (f32[64]{0:S(1)}, f32[64]{0}, u32[]{:S(2)}) copy-start(%f)', 64 * 4),
    ('%y = f32[64]{0:T(128)S(1)} negate(%f)', 64 * 4),
    ('%y = (f32[64]{0}, f32[1]{0}) tuple(%f, %f2)', 0),
    ('%y = f32[8,8]{1,0} bitcast(%f)', 0),
  ],
)
def test_bytes_that_a_line_moves(line: str, moved: int):
  lines = f'%f2 = f32[64]{{0}} bitcast(%f)\n  {line}'
  assert Program(TEXT.replace('LINES', lines)).bytes_moved() == LOOP + moved


def test_collectives_are_counted_in_loops_and_fusions():
  assert Program(TEXT.replace('LINES', '')).collectives() == {'all-reduce': 3 * 64 * 4}


def test_bytes_of_a_type():
  text = '(f32[3,5]{1,0:T(8,128)S(1)}, /*index=1*/pred[7]{0}, bf16[], token[])'
  assert array_bytes(text) == 7 + 2
  assert array_bytes(text, everywhere=True) == 60 + 7 + 2


def test_a_program_of_xla_is_read():
  a, b = jnp.zeros((64, 32)), jnp.zeros((32, 16))
  text = jax.jit(jnp.matmul).lower(a, b).compile().as_text()
  assert Program(text).bytes_moved() == 4 * (64 * 32 + 32 * 16 + 64 * 16)


@pytest.mark.parametrize(
  'name, count, seconds',
  [
    # 2 (n - 1) / n bytes over half of a v5e's ports, which a corner of 2x4 has.
    ('v5e:2x4', 8, 2 * 7 / 8 / (200e9 / 2)),
    ('v5e:16x16', 256, 2 * 255 / 256 / 200e9),  # rings
    ('v5p:2x2x2', 8, 2 * 7 / 8 / (600e9 / 2)),
    ('v4:4x4x4', 64, 2 * 63 / 64 / 300e9),
    ('h100:8', 8, 2 * 7 / 8 / 450e9),
    ('h100:64', 64, 2 * 7 / 8 / 8 / 50e9),  # between hosts, each GPU an eighth
    ('h200:1', 1, 0),
    ('v5e:1x1', 1, 0),
  ],
)
def test_the_sum_over_devices(name: str, count: int, seconds: float):
  topology = chips.topology(name)
  assert topology.count == count
  assert topology.all_reduce_seconds(1) == pytest.approx(seconds)


@pytest.mark.parametrize('name', ['v5e', 'v5e:8', 'v5e:2x0', 'a100:8', 'h100:12', ''])
def test_an_unknown_topology_names_those_there_are(name: str):
  with pytest.raises(UserError, match='v5e:2x4'):
    chips.topology(name)


def test_the_least_time_of_a_step():
  step = {'fits': True, 'flops': 197e9, 'bytes_moved': 1.638e9, 'rows': 98}
  step |= {'length': 32, 'collectives': {'all-reduce': 1e8}}
  compiled = {'step': step, 'slices': 8}
  result = estimate.least_time(chips.topology('v5e:2x4'), compiled, 100_000)
  assert result['seconds'] == pytest.approx(
    {'compute': 1e-3, 'memory': 2e-3, 'links': 1.75e-3, 'step': 2e-3}
  )
  assert result['binds'] == 'memory'
  assert result['target_tokens_per_second'] == pytest.approx(8 * 98 * 32 / 2e-3)
  assert result['hours'] == pytest.approx(100_000 * 2e-3 / 3600)
  step['fits'] = False
  assert estimate.least_time(chips.topology('v5e:2x4'), compiled, 100_000) == {}


@pytest.mark.skipif(
  bool(importlib.util.find_spec('jax_cuda12_plugin')), reason='is installed'
)
def test_without_a_compiler_one_sentence_tells():
  with pytest.raises(UserError, match=r"h100:8 needs .*: pip install '\.\[topology"):
    describe.main(['', '--config=configs/base.py:en-de', '--topology=h100:8'])


def row(name: str, result: dict[str, Any]) -> str:
  """Returns a row of the first table of docs/scale.md."""
  step, ms = result['step'], {k: 1e3 * x for k, x in result['seconds'].items()}
  return (
    f'| {name} | {result["topology"]} '
    f'| {step["arguments"] / 1e9:.2f} + {step["temporaries"] / 1e9:.2f} of '
    f'{result["memory"] / 1e9:.1f} | {ms["compute"]:.2f} | {ms["memory"]:.2f} '
    f'| {ms["links"]:.2f} | **{ms["step"]:.2f}** '
    f'| {result["target_tokens_per_second"] / 1e6:.2f} M | {result["hours"]:.2f} |'
  )


def row_of_table_3(name: str, results: list[dict[str, Any]]) -> str:
  """Returns a row of the second table of docs/scale.md."""
  cells = [f'{1e3 * r["seconds"]["step"]:.2f} {r["binds"][0]}' for r in results]
  (step,) = [r['step'] for r in results if r['topology'] == 'h100:8']
  memory = (step['arguments'] + step['temporaries']) / 1e9
  return f'| {" | ".join([name, *cells])} | {memory:.2f} |'


def test_the_tables_of_the_docs_are_the_results():
  text = (ROOT / 'docs' / 'scale.md').read_text()
  for name in 'base', 'big':
    for result in results_of(name).values():
      assert row(name, result) in text
  columns = re.search(r'^\| row \| (.*) \| GB \|$', text, re.M)[1].split(' | ')
  for name in paper.TABLE_3:
    if name not in ('big', *SAME_AS_BASE):
      results = results_of(name)
      assert row_of_table_3(name, [results[column] for column in columns]) in text


def test_rows_that_change_constants_alone_are_base_s_program():
  for name in SAME_AS_BASE:
    for topology, result in results_of(name).items():
      step, expected = result['step'], results_of('base')[topology]['step']
      assert step['memory'] == pytest.approx(expected['memory'], rel=1e-4)
      assert step['bytes_moved'] == pytest.approx(expected['bytes_moved'], rel=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(not importlib.util.find_spec('libtpu'), reason='needs libtpu')
def test_base_compiles_for_eight_tpus_of_two_hosts_and_fits(monkeypatch, capsys):
  """The step and the search, which only a TPU's compiler may refuse."""
  monkeypatch.setenv('JAX_EXEC_TIME_OPTIMIZATION_EFFORT', '-1')  # compiles faster
  config, name = base.get_config(), 'v5e:2x4'
  describe.main(['', '--config=configs/base.py:en-de', f'--topology={name}', '--json'])
  (result,) = json.loads(capsys.readouterr().out)['topologies']
  assert (result['devices'], result['processes'], result['slices']) == (8, 2, 8)
  assert result['slices_of_first_process'] == [0, 4]
  step, search = result['step'], result['search']
  assert step['fits'] and search['fits']
  # Parameters and Adam's two averages come in, each a float32.
  floats = flops.parameters(config.model.to_dict())
  assert step['arguments'] == pytest.approx(3 * 4 * floats, rel=0.01)
  # The gradient is summed over devices once, and nothing else is but a few numbers.
  assert step['collectives'] == {'all-reduce': pytest.approx(4 * floats, rel=1e-5)}
