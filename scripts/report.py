"""Compares runs with each other and with the paper's Tables 2 to 4.

  python -m scripts.report runs/table3.* --html=report.html
  python -m scripts.report results/table3/*.json --references=dev.de

Arguments are run folders, or result files with their translations (.txt) beside them. A
baseline of Table 4 is a file that scripts.pcfg wrote. Paired tests need the references:
those of the prepared corpus in --data_dir, or of --references. The command prints a
summary and names what it leaves out. --html and --markdown write the whole report.
"""

import pathlib

from transformer_jax.machine import cli, files
from transformer_jax.runs.flags import data_dir
from transformer_jax.tasks import OUTPUTS

FLAGS = cli.Flags(__doc__, positional=True)
SAMPLES = FLAGS.integer(
  'samples', 5, 'Number of sentences of each test set to show.', 0
)
HTML = FLAGS.path('html', None, 'HTML page to write, in one file.')
MARKDOWN = FLAGS.path(
  'markdown', None, 'Markdown file to write, with pictures beside it.'
)
CURVE = FLAGS.list(
  'curve',
  [],
  "Files like metrics.jsonl, of training with any program, to draw over the runs'.",
)
REFERENCES = FLAGS.list('references', [], 'Reference files, if no corpus is prepared.')
AVERAGE = FLAGS.integer(
  'average', 1, 'Checkpoints averaged in a result of Table 3; 1 in the paper.', 1
)
DATA_DIR = data_dir(FLAGS)


def main(argv: list[str]) -> None:
  arguments = FLAGS.parse(argv)
  from transformer_jax.report import page, report  # here, since matplotlib is an extra
  from transformer_jax.report.results import HeldOut

  if not HTML.value and not MARKDOWN.value:
    FLAGS.refuse('a summary alone: it needs --html or --markdown', SAMPLES, CURVE)
  for output in filter(None, (HTML.value, MARKDOWN.value)):
    output.parent.mkdir(parents=True, exist_ok=True)
  paths = [pathlib.Path(argument) for argument in arguments[1:]]
  texts = HeldOut(DATA_DIR.value, map(pathlib.Path, REFERENCES.value))
  curves = [pathlib.Path(name) for name in CURVE.value]
  summary, blocks = report.make_report(
    paths, OUTPUTS, texts, SAMPLES.value, curves, AVERAGE.value
  )
  blocks = [page.heading(1, report.TITLE), *blocks]
  if HTML.value:
    files.write(HTML.value, page.page(report.TITLE, blocks))
  if MARKDOWN.value:
    page.write_markdown(blocks, MARKDOWN.value)
  print(summary, end='')


if __name__ == '__main__':
  cli.run(main)
