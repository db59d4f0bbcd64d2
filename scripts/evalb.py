"""Scores a parser's trees beside a treebank's, as EVALB does under COLLINS.prm.

  python -m scripts.evalb --gold=gold.mrg --test=parsed.mrg

Both files have a tree a line, in the same order. Prints what EVALB prints: the figures
of each sentence, and the totals of all and of those of --cut_off words at most.
"""

from transformer_jax.machine import flags
from transformer_jax.scoring import evalb

FLAGS = flags.Flags(__doc__)
GOLD = FLAGS.path('gold', None, "The treebank's trees.", required=True)
TEST = FLAGS.path('test', None, 'The trees to score.', required=True)
CUT_OFF = FLAGS.integer('cut_off', evalb.CUT_OFF, 'Words.', at_least=0)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  for line in evalb.score_files(GOLD.value, TEST.value, CUT_OFF.value):
    print(line)


if __name__ == '__main__':
  flags.run(main)
