"""A text as sentences, and their hypotheses as lines: N in, N or N times K out."""

import math
import pathlib
import sys
from collections.abc import Iterable, Iterator

from transformer_jax.data import text
from transformer_jax.decoding.translate import Hypothesis

# Lines that are translated and written together: no more are lost if it is stopped.
TOGETHER = 10_000


def read(path: pathlib.Path) -> bytes:
  """All of a file, plain or compressed; of stdin if its name is -."""
  return (
    sys.stdin.buffer.read() if str(path) == '-' else b''.join(text.read_blocks(path))
  )


def split_lines(content: bytes) -> list[str]:
  """The lines of a text, which end at LF alone; the last may lack its LF.

  Bytes that are not UTF-8 become U+FFFD, so that no line is lost; stderr tells of it.
  """
  try:
    text = content.decode('utf-8-sig')
  except UnicodeDecodeError:
    damaged = sum(map(_is_damaged, content.split(b'\n')))
    print(f'lines with bytes that are not UTF-8: {damaged:,}', file=sys.stderr)
    text = content.decode('utf-8-sig', errors='replace')
  lines = text.split('\n')
  if lines[-1] == '':
    lines.pop()
  # NUL would end a string for SentencePiece; CR is the rest of a CRLF.
  return [line.removesuffix('\r').replace('\x00', ' ').strip() for line in lines]


def _is_damaged(line: bytes) -> bool:
  try:
    line.decode()
  except UnicodeDecodeError:
    return True
  return False


def parts(lines: list[str]) -> Iterator[list[str]]:
  """The lines in parts of at most TOGETHER, in order."""
  for start in range(0, len(lines), TOGETHER):
    yield lines[start : start + TOGETHER]


def written(lines: int) -> str:
  """What to tell of so many translated lines when a signal ends the program."""
  return f'{lines:,} lines are translated.' if lines else 'No line was written.'


def output_lines(
  found: Iterable[list[Hypothesis]], nbest: int, scores: bool, first: int = 1
) -> Iterator[str]:
  """Exactly `nbest` lines for each sentence, empty ones if it has fewer hypotheses.

  If there are several, each starts with its sentence's number, counted from `first`,
  and a tab. With `scores`, its score and a tab follow.
  """
  for number, hypotheses in enumerate(found, first):
    none = [Hypothesis('', -math.inf, [])] * (nbest - len(hypotheses))
    for hypothesis in hypotheses[:nbest] + none:
      fields = [str(number)] if nbest > 1 else []
      fields += [f'{hypothesis.score:.4f}'] if scores else []
      yield '\t'.join([*fields, hypothesis.text])
