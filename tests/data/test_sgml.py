"""WMT's test sets come out of their SGML as they are known, or are refused by line."""

import html
import pathlib

import hypothesis
import pytest
from hypothesis import strategies as st
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

from transformer_jax.data import sgml
from transformer_jax.machine.errors import UserError

Documents = dict[str, list[str]]

HEADS = {
  'src': '<srcset setid="newstest2014" srclang="any">',
  'ref': '<refset trglang="de" setid="newstest2014" srclang="any">',
}


def wrapped(documents: Documents, role: str = 'src') -> bytes:
  """As WMT14 wraps a test set."""
  system = 'sysid="ref" ' if role == 'ref' else ''
  lines = [HEADS[role]]
  for name, texts in documents.items():
    lines.append(f'<doc {system}docid="{name}" genre="news" origlang="de">')
    lines += [f'<seg id="{n}">{text}</seg>' for n, text in enumerate(texts, 1)]
    lines.append('</doc>')
  return '\n'.join([*lines, f'</{HEADS[role][1:7]}>', '']).encode()


def texts(content: bytes) -> list[str]:
  return [segment.text for segment in sgml.segments(content, 'x.sgm')]


PLAIN = st.text(
  st.characters(exclude_categories=['Cs', 'Cc'], exclude_characters='\u2028'),
  min_size=1,
).map(lambda text: ' '.join(text.split(' ')).strip(' '))


@hypothesis.given(st.lists(st.lists(PLAIN, max_size=4), max_size=4).filter(any))
def test_text_comes_back(documents: list[list[str]]):
  """Whatever its letters, once escaped; in order, and told apart by its document."""
  spaced = {
    str(number): [' '.join(filter(None, text.split(' '))) for text in document]
    for number, document in enumerate(documents)
  }
  escaped = {name: [*map(html.escape, lines)] for name, lines in spaced.items()}
  expected = [
    (name, str(number), text)
    for name, lines in spaced.items()
    for number, text in enumerate(lines, 1)
  ]
  assert [*sgml.segments(wrapped(escaped), 'x.sgm')] == expected


@pytest.mark.parametrize(
  'inside, text',
  [
    ('  two   spaces\t', 'two spaces'),
    ('over\r\ntwo lines', 'over two lines'),
    ('\n', ''),
    ('5\xa0000 \u2009m\u3000', '5\xa0000 \u2009m\u3000'),
    ('Standard & Poor\'s, R&D, AT&T; "&"', 'Standard & Poor\'s, R&D, AT&T; "&"'),
    ('A &amp; B &lt;c&gt; &quot;d&quot; &#228;&#xE4;', 'A & B <c> "d" ää'),
    ('&amp;lt; is no tag, &copy nor an entity', '&lt; is no tag, &copy nor an entity'),
    ('3 < 4 <b>5</b> > 2 <segment>', '3 < 4 <b>5</b> > 2 <segment>'),
  ],
)
def test_what_stands_inside(inside: str, text: str):
  assert texts(wrapped({'a': [inside]})) == [text]


def test_markup_of_other_years():
  content = (
    b'\xef\xbb\xbf<?xml version="1.0"?><DOC genre=news DocID=a><hl><SEG ID = 7 >b</SEG>'
    b'</hl><p><seg x="id" id="8">c</seg></p></DOC><doc><seg>d</seg></doc>'
  )
  assert [*sgml.segments(content, 'x.sgm')] == [
    ('a', '7', 'b'),
    ('a', '8', 'c'),
    ('', '', 'd'),
  ]


def test_sacrebleu_reads_the_same(tmp_path: pathlib.Path):
  content = wrapped({'a': ['one', ' two  &  three ', '"4" < 5'], 'b': ['\tsix\t7']})
  (tmp_path / 'in').write_bytes(content)
  sacrebleu = FakeSGMLDataset.__new__(FakeSGMLDataset)
  sacrebleu._convert_format(str(tmp_path / 'in'), str(tmp_path / 'out'))
  assert texts(content) == (tmp_path / 'out').read_text().splitlines()


@pytest.mark.parametrize('languages', [('en', 'de'), ('en', 'fr')])
def test_newstest_byte_for_byte(languages: tuple[str, str], shared_data: pathlib.Path):
  """Wrapped as it is published: nothing escaped, & bare."""
  folder = shared_data / 'newstest' / '-'.join(languages)
  plain = [(folder / f'newstest2014.{l}').read_bytes() for l in languages]
  sides = []
  for role, content in zip(('src', 'ref'), plain, strict=True):
    lines = content.decode().split('\n')[:-1]
    documents = {str(at): lines[at : at + 20] for at in range(0, len(lines), 20)}
    sides.append(wrapped(documents, role))
  pairs = sgml.pairs(*sides, ('src.sgm', 'ref.sgm'))
  assert len(pairs) == 3003
  for side, content in zip(zip(*pairs, strict=True), plain, strict=True):
    assert ''.join(line + '\n' for line in side).encode() == content


# What is refused

GOOD = wrapped({'a': ['one', 'two'], 'b': ['three']})


@pytest.mark.parametrize(
  'old, new, message',
  [
    (b'one</seg>', b'one', r'line 4: <seg id="2"> is out of place'),
    (b'one</seg>', b'one<seg>', r'line 3: <seg> is out of place'),
    (b'<seg id="1">one', b'one', r'line 3: </seg> is out of place'),
    (b'two</seg>', b'two', r'line 5: </doc> is out of place'),
    (b'two</seg>\n</doc>', b'two', r'line 5: <doc docid="b".*> is out of place'),
    (b'three</seg>\n</doc>', b'three', r'line 7: <seg id="1"> does not end'),
    (b'two', b'\xff', r'line 4: not UTF-8'),
    (GOOD, b'', 'no <seg>'),
    (GOOD, b'<html>404</html>', 'no <seg>'),
    (GOOD, wrapped({'a': []}), 'no <seg>'),
  ],
)
def test_bad_markup(old: bytes, new: bytes, message: str):
  assert GOOD.count(old) == 1
  with pytest.raises(UserError, match=f'x.sgm.*{message}'):
    texts(GOOD.replace(old, new))


def test_cut_anywhere():
  """It is refused or gives the segments before the cut, none of them shortened."""
  whole = texts(GOOD)
  for end in range(len(GOOD)):
    try:
      assert texts(GOOD[:end]) == whole[: GOOD[:end].count(b'</seg>')]
    except UserError as error:
      assert 'x.sgm' in str(error)


OTHERS = {
  'en.sgm has segment 2 of document a where de.sgm has segment 1 of document b': {
    'a': ['one'],
    'b': ['two', 'three'],
  },
  'en.sgm has segment 1 of document b where de.sgm has segment 1 of document c': {
    'a': ['one', 'two'],
    'c': ['three'],
  },
  'en.sgm has 3 segments and de.sgm has 2: segment 1 of document b has no other': {
    'a': ['one', 'two'],
  },
  'de.sgm has 4 segments and en.sgm has 3: segment 2 of document b has no other': {
    'a': ['one', 'two'],
    'b': ['three', 'four'],
  },
}


@pytest.mark.parametrize('message', OTHERS)
def test_sides_that_do_not_go_together(message: str):
  with pytest.raises(UserError, match=message):
    sgml.pairs(GOOD, wrapped(OTHERS[message], 'ref'), ('en.sgm', 'de.sgm'))
