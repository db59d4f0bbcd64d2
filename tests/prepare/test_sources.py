"""Pairs of two files and of WMT's sets, and what they refuse."""

import gzip
import pathlib
from unittest import mock

import pytest
import sacrebleu.dataset
from sacrebleu import utils

from transformer_jax.machine.errors import UserError
from transformer_jax.prepare import sources


def written(path: pathlib.Path, content: bytes) -> pathlib.Path:
  path.write_bytes(content)
  return path


def test_the_only_file_of_a_name(tmp_path: pathlib.Path):
  source = lambda: sources.file_source(tmp_path, 'train', ('en', 'de'))
  with pytest.raises(UserError, match='train.en: no such file, nor train.en.gz, '):
    source()
  written(tmp_path / 'train.en.gz', gzip.compress(b'one\n'))
  written(tmp_path / 'train.de', b'eins\n')
  assert source().name == 'train.en.gz and train.de'
  assert [*source().pairs()] == [*source().pairs()] == [('one', 'eins')]
  written(tmp_path / 'train.en', b'one\n')
  with pytest.raises(UserError, match='train.en and train.en.gz: keep one of them'):
    source()


SGML = """<refset><doc docid="a"><hl>
<seg id="1">  R&D &amp; &quot;so&quot;
 on\xa0&#228; </seg></hl><p><SEG id=2>two</SEG></p></doc></refset>"""


def test_a_set_of_sacrebleu(tmp_path: pathlib.Path, monkeypatch):
  monkeypatch.setattr(utils, 'SACREBLEU_DIR', str(tmp_path))
  dataset = sacrebleu.dataset.DATASETS['wmt14/full']
  for error in (OSError('no network'), SystemExit(1)):
    monkeypatch.setattr(dataset, 'maybe_download', mock.Mock(side_effect=error))
    with pytest.raises(UserError, match=f'could not be downloaded .*Delete {tmp_path}'):
      sources.sacrebleu_source('sacrebleu:wmt14/full', ('en', 'de'))
  files = dataset.langpairs['en-de']
  for name, word in zip(files, ('two', 'zwei'), strict=True):
    path = tmp_path / 'wmt14/full/raw' / name
    path.parent.mkdir(parents=True, exist_ok=True)
    written(path, SGML.replace('two', word).encode())
  source = sources.sacrebleu_source('sacrebleu:wmt14/full', ('en', 'de'))
  first = 'R&D & "so" on\xa0ä'
  assert [*source.pairs()] == [(first, first), ('two', 'zwei')]
  assert source.name == 'newstest2014-deen-src.en.sgm and newstest2014-deen-ref.de.sgm'
  written(path, b'<seg id="1">eins</seg>')
  with pytest.raises(UserError, match='has 2 lines and .* has 1: they must pair up'):
    [*source.pairs()]


def test_sets_that_cannot_be_read():
  for name, target in (('wmt99', 'de'), ('wmt13', 'xx'), ('wmt21', 'de')):
    with pytest.raises(UserError, match=f'{name}: .* no such set .* in en-{target}'):
      sources.sacrebleu_source(f'sacrebleu:{name}', ('en', target))
