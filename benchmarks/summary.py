"""The few lines of text that say what a benchmark measured."""

from collections.abc import Iterator, Mapping

from benchmarks.interleave import OURS


def lines(result: Mapping) -> Iterator[str]:
  """Yields the lines; `result` is what run.measure() returns."""
  if result['what'] == 'input':
    for name in ('start_seconds', 'median_batch_seconds', 'target_tokens_per_second'):
      yield f'{name:26} {result[name]:12,.4g}'
    return
  if result['what'] == 'training':
    yield from _training(result)
  else:
    yield f'our products take {result["dtype"]}'
    for run in result['runs']:
      yield ''
      yield _setting(run, result['median_length'])
      yield from _columns(run['columns'], 'sentences_per_second', 'sentences/s')
  for name, why in result['absent'].items():
    yield f'{name:22} {why}'


def _columns(columns: Mapping[str, Mapping], of: str, unit: str) -> Iterator[str]:
  """Each program's rates, and how many times as fast ours is."""
  yield f'{"":22} {"target tokens/s":>15} {unit:>12} {"we are":>7}'
  for name, found in columns.items():
    rates = f'{found["target_tokens_per_second"]:15,.0f} {found[of]:12,.4g}'
    ratio = '' if name == OURS else f'{found["ratio"]:6.2f}x'
    yield f'{name:22} {rates} {ratio}'.rstrip()


def _setting(run: Mapping, length: int) -> str:
  rows = 'alone' if 'latency' in run else f'rows of {run["rows"]}'
  return f'beam {run["beam"]}, {run["sentences"]} of {length} tokens, {rows}'


def _training(result: Mapping) -> Iterator[str]:
  yield from _columns(result['columns'], 'steps_per_second', 'steps/s')
  yield ''
  step, start = result['step'], result['start']
  yield (
    f'a step {step["median"]:.4g} s; of {step["of_shape"]}: compute '
    f'{step["compute"]:.4g} s (the loss alone {step["loss"]:.4g} s), exchange '
    f'{step["exchange"]:.4g} s'
  )
  yield (
    f'a batch {step["input"]:.2g} s, waited for {step["waiting_share"]:.2%} of the '
    f'time; padding {result["padding"]:.1%}'
  )
  products = result['matrix_products']
  yield (
    f'model FLOPs utilisation {result["model_flops_utilisation"]:.1%} of '
    f'{products["flops_per_second"] / 1e12:.3g} TFLOP/s ({products["dtype"]})'
  )
  cold, warm = start['cold'], start['warm']
  yield (
    f'{len(result["shapes"])} shapes compiled in {cold["compile_seconds"]:.1f} s, '
    f'{warm["compile_seconds"]:.1f} s when kept; first step after '
    f'{cold["first_step_seconds"]:.1f} s, {warm["first_step_seconds"]:.1f} s'
  )
  yield f'{warm["peak_bytes"] / 1e9:.2f} GB of memory ({warm["memory_of"]})'
