"""WMT14's archives give their pairs whole and in order, or are refused by name.

They are made here with the names that the members have in those that WMT gives out.
"""

import gzip
import hashlib
import os
import pathlib
import random
import tarfile
import tracemalloc
from collections.abc import Sequence

import hypothesis
import pytest
import sacrebleu
from hypothesis import strategies as st
from tensorflow_datasets.core.download import checksums

from transformer_jax.data import archived, archives, tars
from transformer_jax.data.lines import Bitext, Unequal
from transformer_jax.machine.errors import UserError

Members = dict[str, bytes]

EUROPARL = 'training-parallel-europarl-v7.tgz'
NEWS = 'training-parallel-nc-v9.tgz'
GIGA = 'training-giga-fren.tar'
NEWS_MEMBER = 'training/news-commentary-v9.de-en.'

# For each pair of languages: archive, members, what the bitext is called.
TRAIN = {
  'de': [
    (EUROPARL, 'training/europarl-v7.de-en.{}', 'europarl-v7.de-en'),
    ('training-parallel-commoncrawl.tgz', 'commoncrawl.de-en.{}', 'commoncrawl.de-en'),
    (NEWS, NEWS_MEMBER + '{}', 'news-commentary-v9.de-en'),
  ],
  'fr': [
    (EUROPARL, 'training/europarl-v7.fr-en.{}', 'europarl-v7.fr-en'),
    ('training-parallel-commoncrawl.tgz', 'commoncrawl.fr-en.{}', 'commoncrawl.fr-en'),
    ('training-parallel-un.tgz', 'un/undoc.2000.fr-en.{}', 'undoc.2000.fr-en'),
    (NEWS, 'training/news-commentary-v9.fr-en.{}', 'news-commentary-v9.fr-en'),
    (GIGA, 'giga-fren.release2.fixed.{}.gz', 'giga-fren.release2.fixed'),
  ],
}


def tar(members: Members | Sequence[tuple[tarfile.TarInfo, bytes]]) -> bytes:
  """A tar file; of TarInfos, the sizes are written as they say."""
  if isinstance(members, dict):
    members = [(info(name, len(data)), data) for name, data in members.items()]
  blocks = [
    about.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % tarfile.BLOCKSIZE)
    for about, data in members
  ]
  return b''.join(blocks) + bytes(2 * tarfile.BLOCKSIZE)


def info(name: str, size: int, **about: str | bytes) -> tarfile.TarInfo:
  made = tarfile.TarInfo(name)
  made.size = size
  for key, value in about.items():
    setattr(made, key, value)
  return made


def long_names(size: int, count: int) -> bytes:
  """A tar file whose one member has many names, each said to be of a size."""
  name = info('././@LongLink', size, type=tarfile.GNUTYPE_LONGNAME)
  return tar([(name, b'x')] * count)


def text(what: str, language: str, count: int = 20) -> list[str]:
  """Lines that say where they are from; some with a bare CR, as news-commentary has."""
  return [f'{what} {n}\r in {language} ä' for n in range(count)]


def encoded(lines: Sequence[str]) -> bytes:
  return ''.join(line + '\n' for line in lines).encode()


def sgm(lines: Sequence[str]) -> bytes:
  segments = (f'<seg id="{n}">{line}</seg>\n' for n, line in enumerate(lines, 1))
  return f'<srcset>\n<doc docid="a">\n{"".join(segments)}</doc>\n</srcset>\n'.encode()


def dev_members(folder: str = 'dev') -> Members:
  """newstest2014, and 2013 where it is in one archive with it."""
  members: Members = {}
  for other in ('de', 'fr'):
    for language in (other, 'en'):
      if folder == 'dev':
        members[f'dev/newstest2013.{language}'] = encoded(text('2013', language))
      for role in ('src', 'ref'):
        name = f'{folder}/newstest2014-{other}en-{role}.{language}.sgm'
        members[name] = sgm(
          [f'{folder} {other}en {role} {language} {n}' for n in '123']
        )
  return members


@pytest.fixture(scope='session')
def published() -> dict[str, bytes]:
  """Archives as they are given out, small, by name."""
  members: dict[str, Members] = {'dev.tgz': {'dev/readme': b'', **dev_members()}}
  members['test-full.tgz'] = dev_members('test-full')
  for other, rows in TRAIN.items():
    for archive, pattern, name in rows:
      inside = members.setdefault(archive, {'training/other.cs-en.cs': b'ahoj\n' * 99})
      for language in (other, 'en'):
        content = encoded(text(name, language))
        if archive == GIGA:
          content = gzip.compress(content)
        inside[pattern.format(language)] = content
  return {
    name: tar(inside) if name == GIGA else gzip.compress(tar(inside))
    for name, inside in members.items()
  }


@pytest.fixture
def raw(published: dict[str, bytes], tmp_path: pathlib.Path) -> pathlib.Path:
  for name, content in published.items():
    (tmp_path / name).write_bytes(content)
  return tmp_path


def news(raw: pathlib.Path) -> Bitext:
  return archives.bitexts(raw, 'en', 'de')['train'][2]


def write_news(raw: pathlib.Path, tar_file: bytes) -> None:
  (raw / NEWS).write_bytes(gzip.compress(tar_file, 1))


NEWS_MEMBERS = {
  NEWS_MEMBER + language: encoded(text('news', language)) for language in ('de', 'en')
}
NEWS_PAIRS = [*zip(text('news', 'en'), text('news', 'de'), strict=True)]


# What comes out


@pytest.mark.parametrize('languages', ['en-de', 'de-en', 'en-fr', 'fr-en'])
def test_corpora_in_order(languages: str, raw: pathlib.Path, capsys):
  source, target = languages.split('-')
  other = source if target == 'en' else target
  found = archives.bitexts(raw, source, target)
  assert [*found] == ['train', 'dev', 'test']
  assert [bitext.name for bitext in found['train']] == [row[2] for row in TRAIN[other]]
  for bitext, (archive, pattern, name) in zip(
    found['train'], TRAIN[other], strict=True
  ):
    expected = [*zip(text(name, source), text(name, target), strict=True)]
    for _ in range(2):
      assert [*bitext.pairs()] == expected
    about = {
      'file': archive,
      'sha256': hashlib.sha256((raw / archive).read_bytes()).hexdigest(),
      'published': False,
      'lines': 20,
    }
    assert bitext.origin() == {
      'source': {**about, 'member': pattern.format(source)},
      'target': {**about, 'member': pattern.format(target)},
    }
  [dev], [test] = found['dev'], found['test']
  assert (dev.name, test.name) == ('newstest2013', f'newstest2014-{other}en')
  expected = zip(text('2013', source), text('2013', target), strict=True)
  assert [*dev.pairs()] == [*expected]
  stem = f'test-full {other}en'
  assert [*test.pairs()] == [
    (f'{stem} src {source} {n}', f'{stem} ref {target} {n}') for n in '123'
  ]
  warned = capsys.readouterr().err.splitlines()
  assert len(warned) == len(TRAIN[other]) + 2, 'one for an archive'
  assert all('is whole, but not as published' in line for line in warned)


def test_without_wmt14s_own_test_set(raw: pathlib.Path):
  (raw / 'test-full.tgz').unlink()
  [test] = archives.bitexts(raw, 'en', 'de')['test']
  assert next(test.pairs()) == ('dev deen src en 1', 'dev deen ref de 1')


def test_other_ways_to_pack_the_same(raw: pathlib.Path):
  """Unpacked on the way here, packed in pieces, filled up, names after `./`."""
  whole = tar(NEWS_MEMBERS)
  half = len(whole) // 2
  dotted = {f'./{name}': data for name, data in NEWS_MEMBERS.items()}
  for content in (
    whole,
    gzip.compress(whole[:half]) + gzip.compress(whole[half:]) + bytes(999),
    gzip.compress(b'') + bytes(7) + gzip.compress(whole),
    gzip.compress(tar(dotted)),
  ):
    (raw / NEWS).write_bytes(content)
    assert [*news(raw).pairs()] == NEWS_PAIRS


def test_the_published_archive(raw: pathlib.Path, monkeypatch, capsys):
  """It is known by its digest, without a warning, and read no further than needed."""
  content = (raw / NEWS).read_bytes()
  expected = [*news(raw).pairs()]
  capsys.readouterr()
  cut = content + gzip.compress(b'more')[:-5]
  (raw / NEWS).write_bytes(cut)
  refused(raw, 'damaged')
  for algorithm in ('sha256', 'md5'):
    digest = hashlib.new(algorithm, cut).hexdigest()
    monkeypatch.setitem(
      archives.ARCHIVES, NEWS, archives.ARCHIVES[NEWS]._replace(digest=digest)
    )
    bitext = news(raw)
    assert [*bitext.pairs()] == expected
    assert bitext.origin()['source']['published'] is True
  assert not capsys.readouterr().err


def test_stamp_tells_of_another_archive(raw: pathlib.Path):
  stamp = news(raw).stamp()
  assert stamp == news(raw).stamp()
  assert stamp != archives.bitexts(raw, 'de', 'en')['train'][2].stamp()
  (raw / NEWS).write_bytes((raw / NEWS).read_bytes() + bytes(1))
  assert news(raw).stamp() != stamp


# Archives that are refused


def test_missing_archives_are_all_named(raw: pathlib.Path):
  for name in (EUROPARL, 'training-parallel-un.tgz', 'dev.tgz', 'test-full.tgz'):
    (raw / name).unlink()
  with pytest.raises(UserError) as german:
    archives.bitexts(raw, 'en', 'de')
  assert str(german.value) == (
    f'{raw} lacks archives of WMT14: {EUROPARL} (get it from '
    f'http://www.statmt.org/wmt13/{EUROPARL}), dev.tgz (get it from '
    f'http://data.statmt.org/wmt19/translation-task/dev.tgz)'
  )
  with pytest.raises(UserError, match='wmt13/training-parallel-un.tgz'):
    archives.bitexts(raw, 'fr', 'en')


@pytest.mark.parametrize(
  'languages', [('en', 'cs'), ('de', 'fr'), ('en', 'en'), ('ru', 'en')]
)
def test_other_languages(languages: tuple[str, str], raw: pathlib.Path):
  with pytest.raises(UserError, match='-'.join(languages)):
    archives.bitexts(raw, *languages)


def refused(raw: pathlib.Path, message: str) -> None:
  """news() is, before any pair, and the archive named with where the right one is."""
  with pytest.raises(UserError, match=message) as error:
    next(news(raw).pairs())
  assert str(error.value).startswith(f'{raw / NEWS} is truncated, damaged or another')
  assert f'http://www.statmt.org/wmt14/{NEWS} and has 80418416' in str(error.value)


def test_truncated(raw: pathlib.Path):
  content = (raw / NEWS).read_bytes()
  for twelfths in range(12):
    (raw / NEWS).write_bytes(content[: len(content) * twelfths // 12])
    refused(raw, '.')
    (raw / NEWS).write_bytes(content[: -1 - twelfths])
    refused(raw, 'ended before the end-of-stream marker')


@hypothesis.settings(
  deadline=None,
  max_examples=200,
  suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture],
)
@hypothesis.given(place=st.integers(0), bit=st.integers(0, 7))
def test_altered(place: int, bit: int, raw: pathlib.Path, published: dict[str, bytes]):
  """A flipped bit is found, but for a few of gzip's that change nothing."""
  content = bytearray(published[NEWS])
  place %= len(content)
  content[place] ^= 1 << bit
  (raw / NEWS).write_bytes(content)
  name = 'news-commentary-v9.de-en'
  expected = [*zip(text(name, 'en'), text(name, 'de'), strict=True)]
  try:
    assert [*news(raw).pairs()] == expected
    assert gzip.decompress(content) == gzip.decompress(published[NEWS])
  except UserError:
    refused(raw, '.')


def test_altered_behind_what_is_needed(raw: pathlib.Path):
  packed = gzip.compress(tar({**NEWS_MEMBERS, 'training/zz': b'z' * 9999}))
  for place in (-1, -5, -9):
    content = bytearray(packed)
    content[place] ^= 1
    (raw / NEWS).write_bytes(content)
    refused(raw, '.')


def test_inner_gzip_file_altered(raw: pathlib.Path):
  """giga-fren is a plain tar: damage is found where it is read."""
  content = bytearray((raw / GIGA).read_bytes())
  start = content.index(b'\x1f\x8b')
  content[start + 30] ^= 1
  (raw / GIGA).write_bytes(content)
  giga = archives.bitexts(raw, 'fr', 'en')['train'][4]
  with pytest.raises(UserError, match=f'{GIGA}, giga-.*gz.*: truncated or damaged'):
    [*giga.pairs()]


@pytest.mark.parametrize(
  'content, message',
  [
    (b'', 'empty file'),
    (b'<!DOCTYPE html><title>503 Service Unavailable</title>', 'truncated header'),
    (b'<!DOCTYPE html>' * 999, 'invalid header|bad checksum'),
  ],
)
def test_no_archive(content: bytes, message: str, raw: pathlib.Path):
  (raw / NEWS).write_bytes(content)
  refused(raw, message)


TARS = {
  'no tar': (b'text ' * 999, 'invalid header|bad checksum'),
  'no member': (tar({}), 'holds no training/news-commentary-v9.de-en.de, but nothing'),
  'other members': (
    tar({'training/news-commentary-v8.de-en.de': b'', '\x1b[2J': b''}),
    r"no training/news.*v9.de-en.de, but 'training/news.*v8.de-en.de', '\\x1b\[2J'",
  ),
  'half': (tar({NEWS_MEMBER + 'de': b'a'}), 'holds no .*v9.de-en.en'),
  # One long name of half a gigabyte, or many one after another.
  'long name': (long_names(1 << 29, 1), 'has a header of over 16,384 bytes'),
  'long names': (long_names(9, 1000), 'has a header of over 16,384 bytes'),
}
for kind, field in {
  'symbolic link': {'type': tarfile.SYMTYPE, 'linkname': '/etc/x'},
  'hard link': {'type': tarfile.LNKTYPE, 'linkname': NEWS_MEMBER + 'de'},
  'device': {'type': tarfile.CHRTYPE},
  'pipe': {'type': tarfile.FIFOTYPE},
  'folder': {'type': tarfile.DIRTYPE},
  'file with holes': {'type': tarfile.GNUTYPE_SPARSE},
}.items():
  english = info(NEWS_MEMBER + 'en', 0, **field)
  both = tar([(info(NEWS_MEMBER + 'de', 2), b'a\n'), (english, b'')])
  TARS[kind] = both, 'its training/news-commentary-v9.de-en.en is no regular file'
for name in (
  f'/{NEWS_MEMBER}en',
  f'../{NEWS_MEMBER}en',
  f'training/../../{NEWS_MEMBER}en',
  '/etc/cron.d/x',
  'training/..',
  '..',
  r'..\x',
  r'C:\x',
  'C:/x',
  r'\\host\x',
):
  for where, members in (
    ('before', {name: b'a\n'} | NEWS_MEMBERS),
    ('after', NEWS_MEMBERS | {name: b'a\n'}),
  ):
    TARS[f'{name} {where}'] = tar(members), 'it holds .*, a path that leads out of it'
for size, message in (
  (1 << 50, 'unexpected end'),
  (1 << 30, 'unexpected end'),
  (9999, 'unexpected end'),
  (-512, 'points backwards|holds no'),  # newer Pythons take it for the end
  (-(1 << 40), 'points backwards|holds no'),
):
  for name in (NEWS_MEMBER + 'en', 'training/other'):
    rest = [(info(name, len(data)), data) for name, data in NEWS_MEMBERS.items()]
    first = info('training/first', 1), b'1'
    TARS[f'{name} of {size}'] = tar([first, (info(name, size), b'a\n'), *rest]), message


@pytest.mark.parametrize('what', TARS)
def test_refused_archives(what: str, raw: pathlib.Path):
  """Wrong ones, and such as were made to do harm."""
  content, message = TARS[what]
  write_news(raw, content)
  refused(raw, message)


def test_links_that_are_not_read_do_no_harm(raw: pathlib.Path):
  link = info('training/link', 0, type=tarfile.SYMTYPE, linkname='/etc/passwd')
  rest = [(info(name, len(data)), data) for name, data in NEWS_MEMBERS.items()]
  write_news(raw, tar([(link, b''), *rest]))
  assert [*news(raw).pairs()] == NEWS_PAIRS


def test_bomb(raw: pathlib.Path, monkeypatch):
  monkeypatch.setattr(archived, 'MOST_UNPACKED', 1 << 20)
  for size, at in ((1 << 21, 'training/zeros'), (1 << 23, NEWS_MEMBER + 'zz')):
    write_news(raw, tar({at: bytes(size), **NEWS_MEMBERS}))
    refused(raw, 'unpacks to over 1,[0-9]{3},[0-9]{3} bytes')
  (raw / NEWS).write_bytes(gzip.compress(tar(NEWS_MEMBERS) + bytes(1 << 23)))
  refused(raw, 'unpacks to over')


def test_bomb_in_an_inner_gzip_file(raw: pathlib.Path, monkeypatch):
  monkeypatch.setattr(archived, 'MOST_UNPACKED', 1 << 20)
  bombs = {
    f'giga-fren.release2.fixed.{language}.gz': gzip.compress(b'a\n' * (1 << 22))
    for language in ('fr', 'en')
  }
  (raw / GIGA).write_bytes(tar(bombs))
  giga = archives.bitexts(raw, 'en', 'fr')['train'][4]
  with pytest.raises(UserError, match=f'{GIGA}, giga-.*gz: .*unpacks to over'):
    [*giga.pairs()]


def test_honest_archives_are_within_the_limits(raw: pathlib.Path, monkeypatch):
  """Many members, and more text than a bomb may have of so few packed bytes."""
  monkeypatch.setattr(archived, 'MOST_UNPACKED', 1 << 20)
  rng = random.Random(0)
  lines = encoded([rng.randbytes(20).hex() for _ in range(40_000)])
  others = {f'training/{n}': b'x' for n in range(40)}
  sides = {NEWS_MEMBER + language: lines for language in ('de', 'en')}
  write_news(raw, tar(others | sides))
  assert sum(1 for _ in news(raw).pairs()) == 40_000


def test_the_published_archives_are_those_of_tfds_and_sacrebleu():
  known = checksums.get_all_url_infos()
  for archive in archives.ARCHIVES.values():
    if archive.size != '?':
      found = known[archive.url]
      assert (archive.size, archive.digest) == (str(int(found.size)), found.checksum)
  full = sacrebleu.dataset.DATASETS['wmt14/full']
  assert full.md5 == [archives.ARCHIVES['test-full.tgz'].digest]


def test_members_without_end(raw: pathlib.Path, monkeypatch):
  monkeypatch.setattr(archived, 'MOST_MEMBERS', 9)
  others = {f'training/{n}': b'' for n in range(7)}
  write_news(raw, tar(others | NEWS_MEMBERS))
  assert [*news(raw).pairs()] == NEWS_PAIRS
  write_news(raw, tar({'training/more': b''} | others | NEWS_MEMBERS))
  refused(raw, 'holds over 9 members')


def test_test_set_without_end(raw: pathlib.Path, monkeypatch):
  monkeypatch.setattr(archived, 'MOST_SGML', 99)
  [test] = archives.bitexts(raw, 'en', 'de')['test']
  with pytest.raises(UserError, match='test-full.tgz.*deen.*sgm has .* bytes, as no'):
    [*test.pairs()]


def test_memory_stays_flat(raw: pathlib.Path):
  """However long the members are, and however long a line of zeros."""
  lines = b'a sentence of some length that is the same throughout\n' * 200_000
  zeros = {NEWS_MEMBER + 'de': b'a', NEWS_MEMBER + 'en': bytes(100_000_000)}
  write_news(raw, tar({NEWS_MEMBER + language: lines for language in ('de', 'en')}))
  tracemalloc.start()
  try:
    assert sum(1 for _ in news(raw).pairs()) == 200_000
    assert tracemalloc.get_traced_memory()[1] < 12_000_000
    tracemalloc.stop()
    write_news(raw, tar(zeros))
    tracemalloc.start()
    with pytest.raises(UserError, match=f'{NEWS}, {NEWS_MEMBER}en, line 1: over 1,000'):
      list(news(raw).pairs())
    assert tracemalloc.get_traced_memory()[1] < 12_000_000
  finally:
    tracemalloc.stop()


# Archives that change, text that is refused


def test_unequal_sides(raw: pathlib.Path):
  write_news(raw, tar({NEWS_MEMBER + 'en': b'a\nb\n', NEWS_MEMBER + 'de': b'c\nd\ne'}))
  with pytest.raises(Unequal, match=f'{NEWS}, .*de-en.en has 2 .*de-en.de has 3'):
    [*news(raw).pairs()]


def test_unequal_test_set(raw: pathlib.Path):
  members = dev_members('test-full')
  name = 'test-full/newstest2014-deen-ref.de.sgm'
  members[name] = members[name].replace(b'id="3"', b'id="4"')
  (raw / 'test-full.tgz').write_bytes(gzip.compress(tar(members)))
  [test] = archives.bitexts(raw, 'en', 'de')['test']
  with pytest.raises(UserError, match='test-full.tgz.*segment 3 of document a where'):
    next(test.pairs())


def test_archive_that_changes_while_it_is_read(raw: pathlib.Path):
  bitext = news(raw)
  pairs = bitext.pairs()
  next(pairs)
  (raw / NEWS).write_bytes((raw / NEWS).read_bytes() + bytes(9))
  with pytest.raises(UserError, match=f'{NEWS}.* changed while it was read'):
    list(pairs)


@pytest.mark.parametrize('packed', [True, False])
@pytest.mark.parametrize('left', [0.3, 0])
def test_archive_that_is_cut_while_it_is_read(
  packed: bool, left: float, raw: pathlib.Path, monkeypatch
):
  """Right after it was checked; a test set is long then, for more than one read."""
  segments = [random.Random(n).randbytes(300_000).hex() for n in range(3)]
  stem = 'test-full/newstest2014-deen-{}.sgm'
  members = {stem.format(end): sgm(segments) for end in ('src.en', 'ref.de')}
  path = raw / 'test-full.tgz'
  path.write_bytes(gzip.compress(tar(members), 1) if packed else tar(members))
  [test] = archives.bitexts(raw, 'en', 'de')['test']
  assert list(test.pairs()) == [(segment, segment) for segment in segments]
  check = tars.Tar.check

  def check_then_cut(archive: tars.Tar) -> None:
    check(archive)
    os.truncate(path, int(path.stat().st_size * left))

  monkeypatch.setattr(tars.Tar, 'check', check_then_cut)
  with pytest.raises(UserError, match='test-full.tgz: it changed while it was read'):
    list(test.pairs())


def test_archive_that_changes_between(raw: pathlib.Path):
  """Is looked at anew: what was found in the old one does not hold for it."""
  bitext = news(raw)
  assert [*bitext.pairs()] != NEWS_PAIRS
  write_news(raw, tar(NEWS_MEMBERS))
  assert [*bitext.pairs()] == NEWS_PAIRS
  digest = hashlib.sha256((raw / NEWS).read_bytes()).hexdigest()
  assert bitext.origin()['source']['sha256'] == digest
  (raw / NEWS).write_bytes(b'gone wrong')
  with pytest.raises(UserError, match=NEWS):
    next(bitext.pairs())
  (raw / NEWS).unlink()
  with pytest.raises(UserError, match=NEWS):
    next(bitext.pairs())
