"""Sets runs beside each other and beside the paper's Tables 1, 2 and 3.

  python -m scripts.report runs/table3.* results/table1.json --html=report.html

Runs are folders, or result files whose translations (.txt) and curves (.metrics.jsonl)
stand beside them under the same name; Table 1 is a file that scripts.table1 wrote.
Prints Markdown; what is left out is named.
"""

import pathlib

from absl import logging

from transformer_jax.data.flags import data_dir
from transformer_jax.machine import flags
from transformer_jax.report import document, page

FLAGS = flags.Flags(__doc__)
SAMPLES = FLAGS.integer('samples', 5, 'Translations to show of each run.', at_least=0)
TFLOPS = FLAGS.number(
  'sustained_tflops', None, "Of one device, for the paper's estimate of FLOPs."
)
HTML = FLAGS.string('html', None, 'Writes one self-contained page here.')
MARKDOWN = FLAGS.string(
  'markdown', None, 'Writes Markdown here, its pictures beside it, and prints none.'
)
DATA_DIR = data_dir(FLAGS)


def main(argv: list[str]) -> None:
  arguments = FLAGS.parse(argv)
  logging.set_verbosity(logging.WARNING)
  for output in filter(None, (HTML.value, MARKDOWN.value)):
    pathlib.Path(output).parent.mkdir(parents=True, exist_ok=True)
  blocks = document.of_paths(
    [pathlib.Path(argument) for argument in arguments[1:]],
    pathlib.Path(DATA_DIR.value),
    SAMPLES.value,
    TFLOPS.value,
  )
  if HTML.value:
    document.write_html(blocks, pathlib.Path(HTML.value))
  if MARKDOWN.value:
    document.write_markdown(blocks, pathlib.Path(MARKDOWN.value))
  else:
    print(page.markdown(blocks), end='')


if __name__ == '__main__':
  flags.run(main)
