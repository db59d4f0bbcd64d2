"""Moses tokens: sacremoses, corrected where it differs from the Perl scripts.

Tokens were compared with tokenizer.perl's (mosesdecoder 34452895, default options, perl
5.36) on newstest2013 and 2014, Multi30k, 484,000 lines of mixed German and French, and
random lines in 73 languages. Three differences remain: a few signs of Telugu and
Tibetan, which newer versions of Unicode have changed; the literal word DOTMULTI; and a
line of white space alone, which tokenizer.perl counts as a token unless all of it is
ASCII spaces.
"""

import functools
import re

import regex
import sacremoses

# Languages with rules of their own in tokenizer.perl that sacremoses lacks. Some of
# their tokens differ from Perl's, such as Swedish words with a colon inside.
UNFAITHFUL = frozenset({'ca', 'fi', 'ga', 'so', 'sv', 'tdt'})

# Abbreviations of sacremoses that tokenizer.perl lists with a space behind them. So it
# never finds them, and splits off their full stop.
_NOT_FOUND = {
  'as': {'ভি'},
  'bn': {'ভি'},
  'es': {'Fil', 'gr'},
  'it': {'Amn', 'Arch', 'a.c', 'all', 'es'},
  'ml': {'പി'},
  'mni': {'ভি'},
  'nl': {'Nrs'},
  'sk': {'Pf'},
}
# Perl deletes these before it splits at spaces; to Python some of them are spaces.
_CONTROL = re.compile('[\x00-\x08\x0e-\x1f]')
_ALPHANUMERIC = regex.compile(r'[\p{Alphabetic}\p{Nd}]')  # Perl's IsAlnum
_GEORGIAN = range(0x10D0, 0x1100)
_STAND_IN = 'ƻ'  # a letter without case, to Perl and to sacremoses


# Returns a line with East Asian marks and curly quotes as ASCII, as does
# replace-unicode-punctuation.perl. sacremoses differs from it only where a full-width
# full stop is followed by white space other than an ASCII space.
replace_unicode_punctuation = sacremoses.MosesPunctNormalizer().replace_unicode_punct


def base(language: str) -> str:
  """Returns a language without its region: 'fr' for 'fr_CA'."""
  return language.partition('_')[0]


def has_rules(language: str) -> bool:
  """Returns True if abbreviations of a language are known; else English ones count."""
  known = sacremoses.corpus.NonbreakingPrefixes().available_langs.values()
  return base(language) in known


def is_faithful(language: str) -> bool:
  """Returns True if we have all of tokenizer.perl's rules for a language."""
  return base(language) not in UNFAITHFUL


class _Corrections(dict[int, str]):
  """A table for str.translate: what replaces each character in sacremoses.

  `known` are the letters and digits of sacremoses. It would cut words at letters that
  it does not know, so these become _STAND_IN. Signs that it wrongly takes for letters
  get spaces around them: viramas, nuktas, and 。 in Chinese.
  """

  def __init__(self, known: str):
    self._known = frozenset(known)

  def __missing__(self, code: int) -> str:
    character = chr(code)
    if (character in self._known) == bool(_ALPHANUMERIC.match(character)):
      self[code] = character
    else:
      self[code] = f' {character} ' if character in self._known else _STAND_IN
    return self[code]


@functools.cache
def _tokenizer(language: str) -> tuple[sacremoses.MosesTokenizer, _Corrections]:
  tokenizer = sacremoses.MosesTokenizer(language)
  lost = _NOT_FOUND.get(language, ())
  known = [word for word in tokenizer.NONBREAKING_PREFIXES if word not in lost]
  tokenizer.NONBREAKING_PREFIXES = known
  # Small letters since Unicode 11.
  tokenizer.IsLower += ''.join(filter(str.isalpha, map(chr, _GEORGIAN)))
  if language == 'is':  # "no" is in Perl's list twice, and the last one counts
    tokenizer.NUMERIC_ONLY_PREFIXES.remove('no')
  return tokenizer, _Corrections(tokenizer.IsAlnum)


@functools.lru_cache(maxsize=2**14)  # a text is scored several times
def tokenize(line: str, language: str) -> tuple[str, ...]:
  """Returns the tokens of tokenizer.perl -l LANGUAGE, which escapes XML characters.

  A region is dropped, because tokenizer.perl does not know 'fr_CA'.
  """
  tokenizer, corrections = _tokenizer(base(language))
  line = _CONTROL.sub('', line)
  masked = line if line.isascii() else line.translate(corrections)
  tokens = tokenizer.tokenize(masked)
  if _STAND_IN in masked:
    letters = (c for c in line if corrections[ord(c)] == _STAND_IN)
    tokens = [re.sub(_STAND_IN, lambda _: next(letters), token) for token in tokens]
  # A full stop that ends the line is a token even after an abbreviation, a number
  # or an initial ("etc.", "26.", "S."); only "..." stays whole.
  if tokens and tokens[-1].endswith('.') and tokens[-1].strip('.'):
    tokens[-1:] = [tokens[-1][:-1], '.']
  return tuple(tokens)
