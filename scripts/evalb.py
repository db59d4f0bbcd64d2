"""Scores a parser's trees beside a treebank's, as EVALB does under COLLINS.prm.

  python -m scripts.evalb --gold=gold.mrg --test=parsed.mrg

Both files have a tree a line, in the same order. Prints what EVALB prints: the figures
of each sentence, and the totals of all and of those of --cut_off words at most. With
--against=other.mrg it also says how much better the trees of --test are than those of
other.mrg, and how surely: F1 as `evaluate` has it, on the treebank's tags, and a paired
bootstrap over sentences.
"""

import pathlib

from absl import flags

from transformer_jax.machine import cli
from transformer_jax.parsing import evalb, treebanks

FLAGS = cli.Flags(__doc__)
GOLD = FLAGS.path('gold', None, "The treebank's trees.", required=True)
TEST = FLAGS.path('test', None, 'The trees to score.', required=True)
AGAINST = FLAGS.path('against', None, "Another parser's trees, to compare them with.")
CUT_OFF = flags.DEFINE_integer(
  'cut_off',
  evalb.CUT_OFF,
  'Most words, see above.',
  lower_bound=0,
  flag_values=FLAGS.values,
)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  others = _trees(AGAINST.value) if AGAINST.value else None
  for line in evalb.score_files(GOLD.value, TEST.value, CUT_OFF.value):
    print(line)
  if others is not None:
    ours = _trees(TEST.value)
    for line in evalb.comparison_lines(_trees(GOLD.value), ours, others):
      print(line)


def _trees(path: pathlib.Path) -> list[str]:
  return [*map(str, treebanks.read(path))]


if __name__ == '__main__':
  cli.run(main)
