"""Compares arrays of another Transformer with reference/, and names its mistake.

  python -m scripts.check_mine MINE.safetensors

MINE.safetensors (or an .npz) has arrays of docs/check_yours.md under their names, as
your code computes them from reference/parameters.safetensors and
reference/inputs.safetensors, in float32 or float64. The command prints the first array
that differs, in the order of computation, and the known mistake that explains it. Its
exit code is 0 if all arrays are equal.
"""

import pathlib
import sys

from transformer_jax.machine import cli
from transformer_jax.machine.errors import UserError
from transformer_jax.reference import check

FLAGS = cli.Flags(__doc__, positional=True)


def main(argv: list[str]) -> None:
  rest = FLAGS.parse(argv)
  if len(rest) != 2:
    raise UserError('give one file: python -m scripts.check_mine MINE.safetensors')
  mine = check.read_arrays(pathlib.Path(rest[1]))
  for line in check.report(mine):
    print(line)
  if check.first_difference(mine, ()) < len(mine):
    cli.check_output()
    sys.exit(1)


if __name__ == '__main__':
  cli.run(main)
