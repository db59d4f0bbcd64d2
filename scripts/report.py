"""Sets runs beside each other and beside the paper's Tables 1 to 4.

  python -m scripts.report runs/table3.* results/table1.json --html=report.html

Runs are folders, or result files whose translations (.txt) and curves (.metrics.jsonl)
stand beside them under the same name; Table 1 is a file that scripts.table1 wrote, and
a baseline of Table 4 one of scripts.pcfg.
Prints what they say in few lines; --html and --markdown have all of it. What is left
out is named.
"""

import math
import pathlib

from absl import app, flags, logging

from transformer_jax.analysis import views
from transformer_jax.data.corpus import data_dir
from transformer_jax.machine import cli
from transformer_jax.report import document
from transformer_jax.tasks import TASKS

FLAGS = cli.Flags(__doc__, words=True)
SAMPLES = flags.DEFINE_integer(
  'samples',
  5,
  'Sentences of each test set to show with their translations.',
  lower_bound=0,
  flag_values=FLAGS.values,
)
TFLOPS = flags.DEFINE_float(
  'sustained_tflops',
  None,
  "Of one device, for the paper's estimate of FLOPs.",
  flag_values=FLAGS.values,
)
HTML = FLAGS.path('html', None, 'Writes one self-contained page here.')
MARKDOWN = FLAGS.path('markdown', None, 'Writes Markdown here, its pictures beside.')
ATTENTION = flags.DEFINE_bool(
  'attention',
  False,
  "With the pictures in runs' attention folders.",
  FLAGS.values,
)
DATA_DIR = data_dir(FLAGS)


def main(argv: list[str]) -> None:
  arguments = FLAGS.parse(argv)
  if TFLOPS.value is not None and not 0 < TFLOPS.value < math.inf:
    raise app.UsageError(f'--sustained_tflops={TFLOPS.value}: more than 0, and finite')
  logging.set_verbosity(logging.WARNING)
  for output in filter(None, (HTML.value, MARKDOWN.value)):
    output.parent.mkdir(parents=True, exist_ok=True)
  paths = [pathlib.Path(argument) for argument in arguments[1:]]
  report = document.of_paths(
    paths,
    TASKS,
    DATA_DIR.value,
    SAMPLES.value,
    TFLOPS.value,
  )
  if ATTENTION.value:
    report.blocks.extend(views.blocks(paths))
  if HTML.value:
    document.write_html(report.blocks, HTML.value)
  if MARKDOWN.value:
    document.write_markdown(report.blocks, MARKDOWN.value)
  print(report.summary, end='')


if __name__ == '__main__':
  cli.run(main)
