"""Moses tokens: sacremoses, corrected where it differs from the Perl scripts.

Checked line by line against tokenizer.perl (mosesdecoder 34452895, default options,
perl 5.36) on newstest2013 and 2014, Multi30k and 484,000 lines of mixed German and
French: one line differs, by a Devanagari virama. Left as they are: letters and signs
of scripts that sacremoses' tables miss, the literal word DOTMULTI, and a line of
no-break spaces alone, which tokenizer.perl counts as a token.
"""

import functools
import re

import sacremoses

# Languages with rules of their own in tokenizer.perl that sacremoses lacks. Some of
# their tokens differ from Perl's, such as Swedish words with a colon inside.
UNFAITHFUL = frozenset({'ca', 'fi', 'ga', 'so', 'sv', 'tdt'})

_NORMALIZER = sacremoses.MosesPunctNormalizer()
# Perl deletes these before it splits at spaces; to Python some of them are spaces.
_CONTROL = re.compile('[\x00-\x08\x0e-\x1f]')
# sacremoses does not know these as letters and cuts them apart, so another letter
# stands in for each while it works.
_CJK_LETTER = re.compile('[ƻ々\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff]')
_STAND_IN = 'ƻ'  # a letter to both, without case


def replace_unicode_punctuation(line: str) -> str:
  """replace-unicode-punctuation.perl: East Asian marks and curly quotes to ASCII.

  sacremoses differs from it only where a full-width full stop is followed by white
  space that is no ASCII space.
  """
  return _NORMALIZER.replace_unicode_punct(line)


def base(language: str) -> str:
  """The language whose rules count: 'fr' for 'fr_CA'."""
  return language.partition('_')[0]


def has_rules(language: str) -> bool:
  """Whether its abbreviations are known; if not, English ones count, as in Perl."""
  known = sacremoses.corpus.NonbreakingPrefixes().available_langs.values()
  return base(language) in known


def is_faithful(language: str) -> bool:
  """Whether all rules of tokenizer.perl for the language are here."""
  return base(language) not in UNFAITHFUL


@functools.cache
def _tokenizer(language: str) -> sacremoses.MosesTokenizer:
  return sacremoses.MosesTokenizer(language)


@functools.lru_cache(maxsize=2**14)  # a text is scored several times
def tokenize(line: str, language: str) -> tuple[str, ...]:
  """tokenizer.perl -l LANGUAGE: tokens, XML characters escaped as it escapes them.

  A region is left out: tokenizer.perl would not know the language of 'fr_CA'.
  """
  line = _CONTROL.sub('', line)
  letters = iter(_CJK_LETTER.findall(line))
  masked = _CJK_LETTER.sub(_STAND_IN, line)
  tokens = _tokenizer(base(language)).tokenize(masked)
  if masked != line:
    tokens = [re.sub(_STAND_IN, lambda _: next(letters), token) for token in tokens]
  # A full stop that ends the line is a token even after an abbreviation, a number
  # or an initial ("etc.", "26.", "S."); only "..." stays whole.
  if tokens and tokens[-1].endswith('.') and tokens[-1].strip('.'):
    tokens[-1:] = [tokens[-1][:-1], '.']
  return tuple(tokens)
