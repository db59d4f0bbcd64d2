"""Scores a run: average, beam search, both BLEUs, perplexity -> result.json.

  python -m scripts.evaluate --workdir=runs/quickstart --split=test
  python -m scripts.evaluate --workdir=runs/a --split=dev --against=runs/b
  python -m scripts.evaluate --hypotheses=FILE --references=FILE --target_language=de \\
    [--against_hypotheses=FILE]

Translations and result stay under WORKDIR/translations/; WORKDIR/result.json is the
newest result. `--against` compares a run with the newest result of another, and
`--against_hypotheses` a file with another, by sacreBLEU's paired bootstrap. Files are
detokenised text, a sentence a line.
"""

from transformer_jax.machine.signals import Interruption

if __name__ == '__main__':  # so that a signal also ends the slow imports below
  Interruption().install()
