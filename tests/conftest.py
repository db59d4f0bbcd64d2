"""One CPU device, or eight for tests of several devices; strict ranks; real text.

A test of several devices has the marker `devices`. It runs where eight are configured:
`JAX_NUM_CPU_DEVICES=8 pytest -m devices`, as `make test` does after all other tests.
"""

import gc
import os
import pathlib

import pytest

os.environ.setdefault('JAX_NUM_CPU_DEVICES', '1')
if os.environ.get('JAX_PLATFORMS') != 'cuda':  # the tests of kernels, on a GPU
  os.environ['JAX_PLATFORMS'] = 'cpu'

pytest.register_assert_rewrite('toy')
ROOT = pathlib.Path(__file__).parents[1]
# Shapes and dtypes in signatures of these are checked at every call that a test makes.
MODEL = ('attention', 'dropout', 'layers', 'ops', 'ops_cpu', 'transformer')
CHECKED = [f'transformer_jax.model.{name}' for name in MODEL]
CHECKED.append('transformer_jax.training.step')


def pytest_configure(config: pytest.Config) -> None:
  if not config.getoption('numprocesses', None):  # else workers run the tests
    set_up()


def set_up() -> None:
  """Sets JAX and Hypothesis up, before any test is imported."""
  import hypothesis
  import jax
  import jaxtyping

  from transformer_jax.machine import platform

  if os.environ.get('JAX_DISABLE_MOST_OPTIMIZATIONS'):  # these halve the rest
    quick = (
      'use_fusion_emitters=false'
      if jax.__version_info__ < (0, 11)
      else 'opt_preset=CPU_OPT_PRESET_FAST_COMPILE'
    )
    whole = '--xla_cpu_parallel_codegen_split_count=1'  # small programs, on busy cores
    flags = os.environ.get('XLA_FLAGS', '')
    os.environ['XLA_FLAGS'] = f'{flags} --xla_cpu_{quick} {whole}'
  hypothesis.settings.register_profile(  # cores may be busy
    'no clock', deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
  )
  hypothesis.settings.load_profile('no clock')
  jax.config.update('jax_numpy_rank_promotion', 'raise')
  # Programs that tests compile are kept for the next run, but not among the user's own.
  # `pytest --cache-clear` deletes them.
  cache = ROOT / '.pytest_cache/d/compiled'
  jax.config.update('jax_compilation_cache_dir', str(cache))
  jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.1)
  platform.set_cpu_flags()
  jaxtyping.install_import_hook(CHECKED, 'beartype.beartype')
  # JAX makes millions of objects: the search for cycles took a fifth of the time.
  gc.set_threshold(100_000, 20, 100)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
  if int(os.environ['JAX_NUM_CPU_DEVICES']) < 8:
    skip = pytest.mark.skip(reason='needs JAX_NUM_CPU_DEVICES=8')
    for item in items:
      if item.get_closest_marker('devices'):
        item.add_marker(skip)


def pytest_collection_finish() -> None:
  gc.freeze()  # imported modules stay


@pytest.fixture
def in_the_checkout(monkeypatch) -> None:
  """Has the working directory of a user's commands, who names configs/FILE.py."""
  monkeypatch.chdir(ROOT)


@pytest.fixture
def shared_data() -> pathlib.Path:
  """Returns the folder of real text; skips the test if there is none."""
  variable = os.environ.get('TRANSFORMER_JAX_DATA')
  folder = pathlib.Path(variable) if variable else ROOT.parent / 'shared' / 'data'
  if not folder.is_dir():
    if variable:
      pytest.fail(f'TRANSFORMER_JAX_DATA={variable}: no such folder')
    pytest.skip(f'no real text at {folder}')
  return folder
