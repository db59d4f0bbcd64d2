"""Lines in and out of a translation: one for each, as soon as it is read."""

import gzip
import os
import pathlib
import sys

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import scripts.translate
from transformer_jax.data import text
from transformer_jax.data.vocabulary import EOS
from transformer_jax.decoding import translate
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.decoding.translate import Hypothesis, line_batches, split_lines
from transformer_jax.machine.errors import UserError

BYTES = st.binary(max_size=60) | st.text('a \n\r\u2028\x00\x85é\ufeff').map(str.encode)


def test_lines_in(capsys):
  content = b'\xef\xbb\xbfone\r\n\n two\x00x \ncaf\xe9\na\xe2\x80\xa8b\nc\rd\n\nlast'
  expected = ['one', '', ' two\x00x ', 'caf\ufffd', 'a\u2028b', 'c\rd', '', 'last']
  assert split_lines(content) == expected
  assert capsys.readouterr().err == 'lines with bytes that are not UTF-8: 1\n'


@settings(max_examples=100)
@example(content=b'\xef\xbb\xbfone\n', cuts=[1])
@given(content=BYTES, cuts=st.lists(st.integers(0, 60), max_size=4))
def test_lines_from_stdin_do_not_depend_on_its_blocks(content: bytes, cuts: list[int]):
  """Blocks end anywhere, with pauses; at most LINES_AT_ONCE lines come at once.

  There are as many as LFs, for any bytes; the last line may lack its LF.
  """
  edges = [0, *sorted(cuts), len(content)]
  blocks = [content[a:b] for a, b in zip(edges, edges[1:], strict=False)]
  assume(not text.packing(blocks[0]))  # which is refused
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(translate, 'LINES_AT_ONCE', 3)
    patch.setattr(translate, '_stdin_blocks', lambda: iter(blocks))
    batches = [*line_batches(pathlib.Path('-'))]
  assert [line for batch in batches for line in batch] == split_lines(content)
  assert all(0 < len(batch) <= 3 for batch in batches)
  content = content.removeprefix(b'\xef\xbb\xbf')
  ends = content.count(b'\n') + (content[-1:] not in (b'', b'\n'))
  assert sum(map(len, batches)) == ends


def test_lines_come_at_a_pause_of_stdin(monkeypatch, capsys):
  """A line without its LF waits; a file is read in the same way."""
  out, into = os.pipe()
  with os.fdopen(out) as stdin:
    monkeypatch.setattr(sys, 'stdin', stdin)
    os.write(into, b'one\ntwo\nthr')
    batches = line_batches(pathlib.Path('-'))
    assert next(batches) == ['one', 'two']
    os.write(into, b'ee\xff')
    os.close(into)
    assert [*batches] == [['three\ufffd']]
  assert capsys.readouterr().err == 'lines with bytes that are not UTF-8: 1\n'


def test_compressed_text(monkeypatch, tmp_path: pathlib.Path):
  """A file is unpacked, stdin is refused with the name that it should have."""
  path = tmp_path / 'lines.gz'
  path.write_bytes(gzip.compress(b'one\r\ntwo'))
  assert [*line_batches(path)] == [['one', 'two']]
  for start, remedy in (
    (path.read_bytes(), r', or give --input=FILE\.gz'),
    (b'PK\3\4', ''),
  ):
    path.write_bytes(start)
    with path.open() as stdin, pytest.raises(UserError, match=f'unpack it{remedy}$'):
      monkeypatch.setattr(sys, 'stdin', stdin)
      next(line_batches(pathlib.Path('-')))


def test_lines_out():
  """A line for each hypothesis; an empty sentence has one."""
  hypotheses = [
    [Hypothesis('a', -0.5, [4, EOS]), Hypothesis('b', -1.25, [5, EOS])],
    [Hypothesis('', 0.0, [])],
    [Hypothesis('é c', -2.0, [6])],
  ]
  for nbest, scores, expected in (
    (1, False, ['a', 'b', '', 'é c']),
    (2, False, ['7\ta', '7\tb', '8\t', '9\té c']),
    (2, True, ['7\t-0.5000\ta', '7\t-1.2500\tb', '8\t0.0000\t', '9\t-2.0000\té c']),
  ):
    assert [*translate.output_lines(hypotheses, nbest, scores, 7)] == expected


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore:cut at the length')
def test_hypotheses_of_a_file(
  model: LoadedRun, monkeypatch, tmp_path: pathlib.Path, capsys
):
  """They are numbered through all batches, and are those of the model in Python."""
  monkeypatch.setattr(translate, 'LINES_AT_ONCE', 2)
  sentences = ['one', '', 'three']
  path = tmp_path / 'lines'
  path.write_text(''.join(line + '\n' for line in sentences))
  flags = f'--workdir={model.run.workdir}', f'--input={path}', '--nbest=2', '--scores'
  scripts.translate.main(['translate', *flags])
  expected = [
    f'{number}\t{hypothesis.score:.4f}\t{hypothesis.text}'
    for number, both in enumerate(model.hypotheses(sentences, nbest=2), 1)
    for hypothesis in both
  ]
  assert capsys.readouterr().out.splitlines() == expected
  with pytest.raises(UserError, match='--nbest=2 needs --beam=2 or more'):
    scripts.translate.main(['translate', *flags, '--beam=1'])
