"""Parses a treebank's sentences by a PCFG, as a baseline for runs.

  python -m scripts.pcfg --train=gum/train.mrg --test=gum/test.mrg --output=trees.mrg

The command reads rules from the trees of --train, and parses the sentences of --test by
CKY with a beam. It writes a tree a line to --output, and the scores for the report
beside it (.json). It also prints the scores.
"""

import pathlib

from transformer_jax.machine import cli
from transformer_jax.parsing import pcfg

FLAGS = cli.Flags(__doc__)
TRAIN = FLAGS.list('train', [], 'Treebank files to read the rules from.')
TEST = FLAGS.path('test', None, 'Treebank file to parse.', required=True)
OUTPUT = FLAGS.path('output', None, 'File to write the trees to.', required=True)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  train = [pathlib.Path(name) for name in TRAIN.value]
  for line in pcfg.score_file(train, TEST.value, OUTPUT.value):
    print(line)


if __name__ == '__main__':
  cli.run(main)
