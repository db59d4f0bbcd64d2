"""BLEU in two ways: as sacreBLEU has it, and as the script that the paper used."""

import importlib.metadata
import re
from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU
from sacrebleu.tokenizers.tokenizer_base import BaseTokenizer

from transformer_jax.machine.errors import UserError
from transformer_jax.scoring import moses

# Thai, Lao, Khmer and Burmese: without spaces between words, and without a tokeniser of
# their own in sacreBLEU.
UNSPACED = {'th', 'lo', 'km', 'my'}
# Written in Chinese characters, but unknown to sacreBLEU: they get the tokens of 'zh'.
CHINESE = {'gan', 'hak', 'lzh', 'wuu', 'yue'}


@dataclass(frozen=True)
class Bleu:
  score: float  # percent, unrounded
  signature: str  # how it was computed


class PaperTokenizer(BaseTokenizer):
  """Splits a line as get_ende_bleu.sh does, for sacreBLEU to count.

  The script's Perl splits bytes at ASCII spaces and ignores the case of A to Z alone;
  sacreBLEU splits at every space of Unicode. So each token is spelt in hexadecimal
  digits, which have neither spaces nor case.
  """

  def __init__(self, language: str | None, lowercase: bool):
    """Without a language, lines are taken for tokens with spaces between them."""
    self.language, self.lowercase = language, lowercase

  def signature(self) -> str:
    if self.language is None:
      return 'none'
    partly = '' if moses.is_faithful(self.language) else '-partly'
    version = importlib.metadata.version('sacremoses')
    return f'moses-{moses.base(self.language)}{partly}-sacremoses-{version}'

  def __call__(self, line: str) -> str:
    split = split_compounds(line, self.language) if self.language else line.encode()
    folded = split.lower() if self.lowercase else split
    return ' '.join(token.hex() for token in folded.split())


def sacre_metric(lowercase: bool, tokenized: bool, language: str | None) -> BLEU:
  """sacreBLEU's default: exponential smoothing, 13a tokens but for ja, ko and zh.

  Languages of UNSPACED are scored by characters, those of CHINESE by the tokens of zh,
  which is not sacreBLEU's default.

  Args:
    tokenized: the text is tokens already, which are scored as they are.
    language: of the text, such as 'zh' or 'zh_TW'; None for 13a.

  Raises:
    UserError: what cuts this language into words is not installed.
  """
  if tokenized:  # force: sacreBLEU would warn of text that is tokenized
    return BLEU(lowercase=lowercase, tokenize='none', force=True)
  short = moses.base(language or '')
  if short in UNSPACED:
    return BLEU(lowercase=lowercase, tokenize='char')
  if short in CHINESE:
    return BLEU(lowercase=lowercase, tokenize='zh')
  try:
    return BLEU(lowercase=lowercase, trg_lang=short)
  except RuntimeError as error:
    raise UserError(
      f'BLEU of {language} needs a program that finds its words: pip install '
      f"'sacrebleu[{short}]', then give the command again"
    ) from error


def paper_metric(language: str | None, lowercase: bool) -> BLEU:
  """multi-bleu.perl: sacreBLEU's formula without smoothing, over PaperTokenizer."""
  metric = BLEU(tokenize='none', smooth_method='none', force=True)
  metric.tokenizer = PaperTokenizer(language, lowercase)
  return metric


def sacre_bleu(
  hypotheses: Sequence[str],
  references: Sequence[str],
  lowercase: bool = False,
  tokenized: bool = False,
  language: str | None = None,
) -> Bleu:
  """sacreBLEU of detokenised text, or of tokens as given.

  Raises UserError for no sentences or unequal numbers of them.
  """
  metric = sacre_metric(lowercase, tokenized, language)
  score = _corpus_score(metric, hypotheses, references)
  return Bleu(score, str(metric.get_signature()))


def paper_bleu(
  hypotheses: Sequence[str],
  references: Sequence[str],
  language: str,
  lowercase: bool = False,
) -> Bleu:
  """The paper's BLEU (tensor2tensor's get_ende_bleu.sh) of detokenised text.

  Only the hypotheses have their Unicode punctuation replaced, as in that script. Where
  the signature says "partly", some of the script's rules for the language are missing.
  Raises UserError for no sentences or unequal numbers of them.
  """
  plain = [moses.replace_unicode_punctuation(line) for line in hypotheses]
  score = _corpus_score(paper_metric(language, lowercase), plain, references)
  return Bleu(score, paper_signature(language, lowercase))


def tokenized_bleu(
  hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False
) -> Bleu:
  """multi-bleu.perl alone, of text that is tokenised already.

  Raises UserError for no sentences or unequal numbers of them.
  """
  score = _corpus_score(paper_metric(None, lowercase), hypotheses, references)
  return Bleu(score, paper_signature(None, lowercase))


def paper_signature(language: str | None, lowercase: bool) -> str:
  """How paper_bleu scores a language; without one, how tokenized_bleu scores."""
  parts = ['nrefs:1', 'case:lc-ascii' if lowercase else 'case:mixed']
  tokens = f'tok:{PaperTokenizer(language, lowercase).signature()}'
  if language is None:
    parts.append(tokens)
  else:
    parts += ['punct:unicode-replaced-in-hyp', tokens, 'compounds:##AT##-##AT##']
  return '|'.join([*parts, 'smooth:none', 'formula:multi-bleu'])


def split_compounds(line: str, language: str) -> bytes:
  """Moses tokens with hyphens split off as ##AT##-##AT##, in UTF-8.

  The script's `perl -p` works on bytes, in one pass whose matches do not overlap: of
  "a-b-c" only the first hyphen is split off, of "a-é-b", whose é is two bytes, both.
  """
  tokens = ' '.join(moses.tokenize(line, language)).encode()
  return re.sub(rb'(\S)-(\S)', rb'\1 ##AT##-##AT## \2', tokens)


def check_lengths(hypotheses: Sequence[str], references: Sequence[str]) -> None:
  """Raises UserError for no sentences or unequal numbers of them."""
  if len(hypotheses) != len(references):
    raise UserError(
      f'{len(hypotheses)} hypotheses but {len(references)} references: '
      'BLEU needs one reference for each'
    )
  if not hypotheses:
    raise UserError('no sentences to score')


def _corpus_score(
  metric: BLEU, hypotheses: Sequence[str], references: Sequence[str]
) -> float:
  check_lengths(hypotheses, references)
  return metric.corpus_score(hypotheses, [references]).score
