"""sacreBLEU's sets as dev and test: had, fetched from a host here, or refused."""

import hashlib
import io
import pathlib
import tarfile
from collections.abc import Iterator

import pytest
import sacrebleu.dataset
from sacrebleu import utils
from sacrebleu.dataset import base, fake_sgml

import toy.host
from transformer_jax.data import downloads, sacrebleu_sets
from transformer_jax.machine.errors import UserError

LANGUAGES = ('en', 'de')
MEMBERS = ['test/src.en.sgm', 'test/ref.de.sgm']
LINES = {'en': ['R&amp;D\xa0now', 'two'], 'de': ['FuE  jetzt', 'zwei']}
PAIRS = [('R&D\xa0now', 'FuE jetzt'), ('two', 'zwei')]


def sgm(lines: list[str]) -> bytes:
  segments = (f'<seg id="{n}">{line}</seg>\n' for n, line in enumerate(lines, 1))
  return f'<srcset>\n<doc docid="a">\n{"".join(segments)}</doc>\n</srcset>\n'.encode()


def archive() -> bytes:
  file = io.BytesIO()
  with tarfile.open(fileobj=file, mode='w:gz') as tar:
    for name, language in zip(MEMBERS, LANGUAGES, strict=True):
      info = tarfile.TarInfo(name)
      info.size = len(content := sgm(LINES[language]))
      tar.addfile(info, io.BytesIO(content))
  return file.getvalue()


@pytest.fixture
def host(tmp_path: pathlib.Path) -> Iterator[toy.host.Host]:
  (tmp_path / 'www').mkdir()
  (tmp_path / 'www' / 'test.tgz').write_bytes(archive())
  host = toy.host.Host(tmp_path / 'www')
  yield host
  host.close()


@pytest.fixture
def cache(host: toy.host.Host, tmp_path: pathlib.Path, monkeypatch) -> pathlib.Path:
  """An empty folder of sacreBLEU, which knows the set toy/full of the host."""
  folder = tmp_path / 'sacrebleu'
  for module in (utils, base):
    monkeypatch.setattr(module, 'SACREBLEU_DIR', str(folder))
  monkeypatch.setattr(downloads, 'LIMIT', 1)
  monkeypatch.setattr(downloads, 'STALLED', 1)
  made = fake_sgml.FakeSGMLDataset(
    'toy/full',
    data=[host.url('test.tgz')],
    md5=[hashlib.md5(archive()).hexdigest()],
    langpairs={'en-de': MEMBERS, 'cs-en': [*MEMBERS, 'x'], 'de-en': ['a.xml', 'b.xml']},
  )
  monkeypatch.setitem(sacrebleu.dataset.DATASETS, 'toy/full', made)
  return folder


def read() -> list[tuple[str, str]]:
  return list(sacrebleu_sets.bitext('sacrebleu:toy/full', *LANGUAGES).pairs())


def test_fetched_once(cache: pathlib.Path, host: toy.host.Host):
  """Its text is that of the SGML, as from WMT's archives."""
  assert read() == PAIRS
  host.close()
  assert read() == PAIRS
  found = sacrebleu_sets.bitext('sacrebleu:toy/full', *LANGUAGES)
  [*found.pairs()]
  path = cache / 'toy' / 'full' / 'raw' / MEMBERS[0]
  digest = hashlib.sha256(path.read_bytes()).hexdigest()
  about = {'file': 'src.en.sgm', 'sha256': digest, 'lines': 2}
  assert found.origin()['source'] == about


@pytest.mark.parametrize(
  ('name', 'pair', 'message'),
  [
    ('wmt1', ('en', 'de'), 'sacrebleu:wmt1: sacreBLEU has no such set'),
    ('wmt13', ('de', 'fr'), 'sacrebleu:wmt13: sacreBLEU has it in cs-en, .*en-de'),
    ('toy/full', ('cs', 'en'), 'only sets of two SGML files'),
    ('toy/full', ('de', 'en'), 'only sets of two SGML files'),
  ],
)
@pytest.mark.usefixtures('cache')
def test_no_such_set(name: str, pair: tuple[str, str], message: str):
  with pytest.raises(UserError, match=message):
    sacrebleu_sets.bitext(f'sacrebleu:{name}', *pair)


def test_the_papers_sets_are_known():
  for name in ('wmt13', 'wmt14/full'):
    pairs = sacrebleu.dataset.DATASETS[name].langpairs
    for pair in ('en-de', 'de-en', 'en-fr', 'fr-en'):
      assert [path[-4:] for path in pairs[pair]] == ['.sgm', '.sgm']


@pytest.mark.parametrize('fault', ['503', 'silent', 'cut', 'stalled', 'closed'])
def test_a_host_that_fails(fault: str, cache: pathlib.Path, host: toy.host.Host):
  """One line with the address, the folder and the ways out; then it works."""
  if fault == 'closed':
    host.close()
  host.faults[''] = fault
  with pytest.raises(UserError) as caught:
    read()
  message = str(caught.value)
  assert message.count('\n') == 0 and message.startswith('sacrebleu:toy/full ')
  for part in (host.url('test.tgz'), str(cache / 'toy/full'), '--config.data.files'):
    assert part in message
  if fault != 'closed':
    host.faults.clear()
    assert read() == PAIRS


def test_another_archive(cache: pathlib.Path, host: toy.host.Host):
  """sacreBLEU leaves it lying, and would take it for the right one."""
  (host.folder / 'test.tgz').write_bytes(b'something else')
  folder = cache / 'toy/full'
  with pytest.raises(UserError, match=f'not what sacreBLEU expects. Delete {folder}'):
    read()
  with pytest.raises(UserError, match=f'{folder} lacks src.en.sgm: delete it to have'):
    read()
