"""What a run reads and writes as a filter: a line for each line."""

import gzip
import pathlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transformer_jax.data.vocabulary import EOS
from transformer_jax.decoding import pipe
from transformer_jax.decoding.translate import Hypothesis
from transformer_jax.machine.errors import UserError


@settings(max_examples=200)
@given(st.binary(max_size=60) | st.text('a \n\r\u2028\x00\x85é\ufeff').map(str.encode))
def test_a_line_for_each_lf(content: bytes):
  """Whatever the bytes: invalid UTF-8, NUL, BOM, CR; a last line may lack its LF."""
  found = pipe.split_lines(content)
  content = content.removeprefix(b'\xef\xbb\xbf')
  assert len(found) == content.count(b'\n') + (content[-1:] not in (b'', b'\n'))
  assert not any(set('\n\x00') & set(line) for line in found)


def test_a_compressed_file(tmp_path: pathlib.Path):
  path = tmp_path / 'test.de.gz'
  path.write_bytes(gzip.compress(b'eins\nzwei\n'))
  assert pipe.read(path) == b'eins\nzwei\n'
  path.write_bytes(path.read_bytes()[:-9])
  with pytest.raises(UserError, match='test.de.gz: truncated or damaged'):
    pipe.read(path)
  with pytest.raises(FileNotFoundError):
    pipe.read(tmp_path / 'none')
  with pytest.raises(NotADirectoryError):
    pipe.read(path / 'none.gz')


def test_lines_in(capsys: pytest.CaptureFixture):
  content = b'\xef\xbb\xbfone\r\n\n two\x00x \ncaf\xe9\na\xe2\x80\xa8b\nc\rd\n\nlast'
  expected = ['one', '', 'two x', 'caf\ufffd', 'a\u2028b', 'c\rd', '', 'last']
  assert pipe.split_lines(content) == expected
  assert capsys.readouterr().err == 'lines with bytes that are not UTF-8: 1\n'


@pytest.mark.parametrize(
  ('nbest', 'scores', 'expected'),
  [
    (1, False, ['a', '', 'é c']),
    (2, False, ['1\ta', '1\tb', '2\t', '2\t', '3\té c', '3\t']),
    (
      2,
      True,
      ['1\t-0.5000\ta', '1\t-1.2500\tb', '2\t0.0000\t', '2\t-inf\t']
      + ['3\t-2.0000\té c', '3\t-inf\t'],
    ),
  ],
)
def test_lines_out(nbest: int, scores: bool, expected: list[str]):
  """As many lines for every sentence, which they number, whatever hypotheses it has."""
  found = [
    [Hypothesis('a', -0.5, [4, EOS]), Hypothesis('b', -1.25, [5, EOS])],
    [Hypothesis('', 0.0, [])],
    [Hypothesis('é c', -2.0, [6])],
  ]
  assert [*pipe.output_lines(found, nbest, scores)] == expected


def test_lines_are_translated_in_parts(monkeypatch: pytest.MonkeyPatch):
  monkeypatch.setattr(pipe, 'TOGETHER', 3)
  lines = [str(n) for n in range(7)]
  assert [*pipe.parts(lines)] == [lines[:3], lines[3:6], lines[6:]]
  assert [*pipe.parts([])] == []
  assert pipe.written(0) == 'No line was written.'
  assert pipe.written(12_345) == '12,345 lines are translated.'
