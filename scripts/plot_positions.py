"""Draws a run's positional encodings (section 3.5), learnt ones beside sinusoids.

  python -m scripts.plot_positions --workdir=runs/multi30k

Prints how well M_k PE(pos) equals PE(pos + k), and how alike positions are that are k
apart. Draws the encodings, M_k, and similarity over distance (SVG, PNG).
"""

from transformer_jax.machine.signals import Interruption

if __name__ == '__main__':  # so that a signal also ends the slow imports below
  Interruption().install()

from absl import logging

from transformer_jax.analysis import attention_pictures, position_pictures, positions
from transformer_jax.machine import cli
from transformer_jax.report import page
from transformer_jax.runs import checkpoints

FLAGS = cli.Flags(__doc__)
WORKDIR = FLAGS.path('workdir', None, "The run's folder.", required=True)
OUTPUT = FLAGS.path('output', None, 'Folder to write; attention in the run by default.')
AVERAGE, STEP = checkpoints.define_flags(FLAGS)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  logging.set_verbosity(logging.WARNING)
  Interruption().install()
  tables = positions.encodings(WORKDIR.value, AVERAGE.value, STEP.value)
  folder = OUTPUT.value or WORKDIR.value / 'attention'
  folder.mkdir(parents=True, exist_ok=True)
  for name, figure in (
    ('encodings', position_pictures.encodings_figure(tables)),
    ('shifts', position_pictures.shifts_figure(tables['sinusoids'])),
    ('similarity', position_pictures.similarity_figure(tables)),
  ):
    attention_pictures.save(figure, folder / f'positions.{name}')
  print(page.markdown(position_pictures.blocks(tables)), end='')


if __name__ == '__main__':
  cli.run(main)
