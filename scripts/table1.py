"""Measures time, memory, FLOPs and paths of the layer types of Table 1.

  python -m scripts.table1 --output=results/table1.json

The command prints Markdown: the table beside the paper's complexities, and the ratio of
recurrence to self-attention. It writes the measurements to --output, and a picture
beside it (.svg). It takes minutes on two CPU cores, which should do nothing else.
Accelerators need larger --n and --d.
"""

from benchmarks import run
from benchmarks.layer_types import measuring
from transformer_jax.machine import cli, files, platform
from transformer_jax.machine.errors import UserError

FLAGS = cli.Flags(__doc__)
OUTPUT = FLAGS.path('output', None, 'JSON file to write.', required=True)
N = FLAGS.list(
  'n', ['64', '128', '256', '512', '1024', '2048', '4096'], 'Sequence lengths.'
)
D = FLAGS.list('d', ['64', '128', '256', '512', '1024'], 'Vector widths.')


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  from benchmarks.layer_types import table  # here, since matplotlib is an extra
  from transformer_jax.report import page

  if OUTPUT.value.suffix == '.svg':
    raise UserError(
      f'--output={OUTPUT.value}: this file gets JSON, and a .svg stands beside it'
    )
  sizes = [sorted({*cli.integers(flag)}) for flag in (N, D)]
  if min(map(len, sizes)) < 2:
    raise UserError('--n and --d need two different numbers or more: 64,128')
  path = OUTPUT.value
  path.parent.mkdir(parents=True, exist_ok=True)  # before minutes of measuring
  platform.start(1)
  about = run.describe_machine()  # with the load of the minutes before
  measurements = {'task': 'table1'} | about | measuring.table(*sizes)
  files.write_json(path, measurements)
  blocks = table.blocks(measurements)
  for block in blocks:
    if isinstance(block, page.Picture):
      block.write(path.with_suffix('.svg'))
  print(page.markdown(blocks), end='')


if __name__ == '__main__':
  cli.run(main)
