"""Translates lines with a run: N lines in, N lines out (N times K with --nbest=K).

  echo 'A man rides a horse.' | python -m scripts.translate --workdir=runs/multi30k
  python -m scripts.translate --workdir=runs/multi30k

At a terminal it asks for a line and translates it at once; Ctrl-D ends it. With
--nbest=K above 1 each line starts with the number of its sentence and a tab.
"""

from transformer_jax.machine.signals import Interruption

if __name__ == '__main__':  # so that a signal also ends the slow imports below
  Interruption().install()
