"""The embedded corpus comes in like any other, in either direction."""

import re

import pytest

from transformer_jax import quickstart_corpus
from transformer_jax.data.card import SPLITS
from transformer_jax.machine.errors import UserError
from transformer_jax.quickstart_corpus import embedded


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(quickstart_corpus, 'SIZES', {'train': 40, 'dev': 5, 'test': 5})


@pytest.mark.parametrize('pair', ['en-de', 'de-en', 'en-fr', 'fr-en'])
def test_sides(pair: str):
  """Source and target are the languages asked for, in that order."""
  languages = pair.split('-')
  [train] = embedded.bitexts(*languages, 1)['train']
  articles = {
    'en': r'\bthe\b',
    'de': r'\b(der|die|das|dem|den)\b',
    'fr': r'\b(le|la|les)\b',
  }
  for lines, language in zip(zip(*train.pairs(), strict=True), languages, strict=True):
    assert len(lines) == 40
    text = ' '.join(lines).lower()
    counts = {name: len(re.findall(words, text)) for name, words in articles.items()}
    assert max(counts, key=counts.get) == language


@pytest.mark.parametrize('pair', ['de-fr', 'en-en', 'en-es', 'es-en'])
def test_pairs_there_are_not(pair: str):
  with pytest.raises(UserError, match='embedded corpus'):
    embedded.bitexts(*pair.split('-'), 1)


def test_all_splits_with_their_origin():
  splits = embedded.bitexts('de', 'en', 7)
  assert tuple(splits) == SPLITS
  made = quickstart_corpus.sentence_pairs('de', 7)
  for split, [bitext] in splits.items():
    assert bitext.name == 'embedded corpus, seed 7'
    for _ in range(2):
      assert list(bitext.pairs()) == [pair[::-1] for pair in made[split]]
    for about in bitext.origin().values():
      assert about['lines'] == len(made[split])
      assert about['versions'].keys() == {'babel', 'num2words'}


def test_stamp():
  """Another seed or another library is another corpus."""
  stamp = lambda seed: [
    bitext.stamp() for bitext in embedded.bitexts('en', 'de', seed)['dev']
  ]
  assert stamp(1) == stamp(1) != stamp(2)
  versions = embedded.bitexts('en', 'de', 1)['dev'][0].origin()['source']['versions']
  assert versions in [about['versions'] for about in stamp(1)[0][1].values()]
