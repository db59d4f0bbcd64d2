"""Draws where a run's heads look: Figures 3 to 5 for any sentence, and a page.

  echo 'A man rides a horse.' | python -m scripts.plot_attention --workdir=runs/multi30k
  python -m scripts.plot_attention --workdir=RUN --text='It is spilling.' \\
    --attention=encoder --layers=5 --heads=5,6 --word=It

The command writes an interactive page, and pictures (SVG, PNG) of the layers and heads
that the flags name. A line is a sentence. Beam search translates it, unless a
tab and its translation follow. Pieces are merged into words: their weights are summed
over keys and averaged over queries.
"""

import pathlib
import sys

import transformer_jax
from transformer_jax.analysis.maps import KINDS, RunAttention
from transformer_jax.decoding.translate import split_lines
from transformer_jax.exchange import page
from transformer_jax.machine import cli
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.flags import checkpoint_flags

FLAGS = cli.Flags(__doc__)
WORKDIR = FLAGS.path('workdir', None, 'Folder of the run.', required=True)
TEXT = FLAGS.multi_string('text', [], 'Sentence; default: the lines of stdin.')
OUTPUT = FLAGS.path('output', None, 'Folder of pictures; default: attention/RUN.')
HTML = FLAGS.path('html', None, 'Page to write; default: attention.html in the folder.')
KIND = FLAGS.enum('attention', 'encoder', [*KINDS], 'Attention to draw.')
LAYERS = FLAGS.list('layers', [], 'Layers to draw, from 1; default: the last but one.')
HEADS = FLAGS.list('heads', [], 'Heads to draw, from 1; default: all.')
WORD = FLAGS.string('word', None, 'Query word to draw; default: all words.')
PIECES = FLAGS.bool('pieces', False, 'Show pieces instead of words.')
AVERAGE, STEP = checkpoint_flags(FLAGS)


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  from transformer_jax.analysis import pictures  # here, since matplotlib is an extra

  layers, heads = (cli.integers(f) if f.value else [] for f in (LAYERS, HEADS))
  run = transformer_jax.load(WORKDIR.value, average=AVERAGE.value, step=STEP.value)
  text = '\n'.join(TEXT.value).encode() if TEXT.value else sys.stdin.buffer.read()
  lines = [line.partition('\t') for line in split_lines(text) if line.strip()]
  if not lines:
    raise UserError('no sentence to show: --text=SENTENCE, or lines on stdin')
  pairs = [(source, target if tab else None) for source, tab, target in lines]
  sentences, translations = zip(*pairs, strict=True)
  maps = RunAttention(run).maps(sentences, translations, merge=not PIECES.value)
  choice = pictures.choose(maps, KIND.value, layers, heads, WORD.value)
  folder = OUTPUT.value or pathlib.Path('attention', WORKDIR.value.resolve().name)
  html = HTML.value or folder / 'attention.html'
  stored = [{kind: of.of(kind) for kind in KINDS} for of in maps]
  first = {'kind': choice.kind, 'layer': choice.layers[0], 'heads': choice.heads}
  written = pictures.write(folder, maps, choice)
  page.write_sentences(
    html, stored, str(WORKDIR.value), first | {'word': choice.rows[0]}
  )
  for path in (html, *written):
    cli.say(path)
  for line in run.translator.warnings():
    print(line, file=sys.stderr)


if __name__ == '__main__':
  cli.run(main)
