"""Scores a parser's trees beside a treebank's, as EVALB does under COLLINS.prm.

  python -m scripts.evalb --gold=gold.mrg --test=parsed.mrg

Both files have a tree a line, in the same order. The command prints what EVALB prints:
figures of each sentence, totals of all sentences, and totals of those of at most 40
words. With --against=other.mrg it also prints the difference in F1, on the treebank's
tags, with a p by approximate randomisation over sentences.
"""

import pathlib

from transformer_jax.machine import cli
from transformer_jax.parsing import evalb, treebanks

FLAGS = cli.Flags(__doc__)
GOLD = FLAGS.path('gold', None, 'Trees of the treebank.', required=True)
TEST = FLAGS.path('test', None, 'Trees to score.', required=True)
AGAINST = FLAGS.path('against', None, 'Trees of another parser to compare with.')


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  others = _trees(AGAINST.value) if AGAINST.value else None
  for line in evalb.score_files(GOLD.value, TEST.value):
    print(line)
  if others is not None:
    ours = _trees(TEST.value)
    for line in evalb.comparison_lines(_trees(GOLD.value), ours, others):
      print(line)


def _trees(path: pathlib.Path) -> list[str]:
  return [*map(str, treebanks.read_whole(path))]


if __name__ == '__main__':
  cli.run(main)
