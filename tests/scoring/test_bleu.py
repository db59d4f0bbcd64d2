"""The two BLEUs against sacreBLEU and against figures that the Perl scripts printed."""

import hashlib
import itertools
import json
import pathlib
import sys

import pytest
import sacrebleu
import sacremoses
from hypothesis import given
from hypothesis import strategies as st

from transformer_jax.machine.errors import UserError
from transformer_jax.scoring import bleu, moses

DATA = pathlib.Path(__file__).parents[1] / 'fixtures'
GOLDEN = json.loads((DATA / 'paper_bleu.json').read_text('utf-8'))
FIGURES = GOLDEN['figures']
OURS = [figure for figure in FIGURES if figure['folder'] == 'tests/fixtures']
# Characters that replace-unicode-punctuation.perl turns back into these.
UNICODE = str.maketrans(
  {'"': '”', "'": '’', '-': '━', '(': '（', ')': '）', ':': '：', '?': '？', '5': '５'}
)


def perturb(
  lines: list[str],
  drop: int = 0,
  repeat: int = 0,
  swap: int = 0,
  upper: int = 0,
  unicode: bool = False,
) -> list[str]:
  """Hypotheses from references; a number k edits every k-th word of the whole file.

  In this order: leave the word out, upper-case it, repeat it, swap it with the word
  before it in its line; then put Unicode punctuation for ASCII.
  """
  hypotheses, n = [], 0
  for line in lines:
    words: list[str] = []
    for word in line.split(' '):
      n += 1
      if drop and n % drop == 0:
        continue
      words.append(word.upper() if upper and n % upper == 0 else word)
      if repeat and n % repeat == 0:
        words.append(words[-1])
      if swap and n % swap == 0:
        words[-2:] = reversed(words[-2:])
    text = ' '.join(words)
    hypotheses.append(text.replace('...', '…').translate(UNICODE) if unicode else text)
  return hypotheses


def read_lines(path: pathlib.Path) -> list[str]:
  """Lines as Perl reads them: a line ends at LF alone."""
  return path.read_bytes().decode().removesuffix('\n').split('\n')


def sha256(lines: list[str]) -> str:
  return hashlib.sha256(''.join(f'{line}\n' for line in lines).encode()).hexdigest()


def load(figure: dict, folder: pathlib.Path) -> tuple[list[str], list[str]]:
  """Hypotheses and references of a figure, checked by their sums."""
  references = read_lines(folder / figure['references'])
  hypotheses = perturb(references, **figure['edits'])
  assert sha256(references) == figure['references_sha256']
  assert sha256(hypotheses) == figure['hypotheses_sha256']
  return hypotheses, references


def check(figure: dict, folder: pathlib.Path) -> None:
  """Both cases of a figure, to the two decimals that multi-bleu.perl prints."""
  hypotheses, references = load(figure, folder)
  for lowercase, printed in ((False, figure['cased']), (True, figure['lowercased'])):
    if figure['command'] == 'paper':
      language = figure['language']
      ours = bleu.paper_bleu(hypotheses, references, language, lowercase)
    else:
      ours = bleu.tokenized_bleu(hypotheses, references, lowercase)
    assert f'{ours.score:.2f}' == printed


def name(figure: dict) -> str:
  edits = '-'.join(f'{key}{value}' for key, value in figure['edits'].items())
  return f'{figure["references"]}-{edits}'


@pytest.mark.parametrize('figure', OURS, ids=name)
def test_figures_of_the_perl_on_our_own_text(figure):
  check(figure, DATA)


@pytest.mark.parametrize(
  'figure', [figure for figure in FIGURES if figure not in OURS], ids=name
)
def test_figures_of_the_perl_on_shared_data(figure, shared_data):
  check(figure, shared_data)


def test_real_text_that_is_named_has_to_be_there(request, monkeypatch, tmp_path):
  monkeypatch.setenv('TRANSFORMER_JAX_DATA', str(tmp_path / 'none'))
  with pytest.raises(pytest.fail.Exception, match='none: no such folder'):
    request.getfixturevalue('shared_data')


def tokens_alone(line: str, language: str) -> bytes:
  return ' '.join(moses.tokenize(line, language)).encode()


def plain_sacremoses(line: str, language: str) -> list[str]:
  return sacremoses.MosesTokenizer(language).tokenize(line)


@pytest.mark.parametrize(
  ('sample', 'module', 'function', 'mutant'),
  [
    ('embedded_sample', bleu, 'split_compounds', tokens_alone),
    ('embedded_sample', moses, 'replace_unicode_punctuation', str),
    ('abbreviations', moses, 'tokenize', plain_sacremoses),
  ],
)
@pytest.mark.parametrize('language', ['de', 'fr'])
def test_each_mutant_misses_the_figures(
  sample, module, function, mutant, language, monkeypatch
):
  monkeypatch.setattr(module, function, mutant)
  for figure in OURS:
    if figure['references'] == f'{sample}.{language}':
      score = bleu.paper_bleu(*load(figure, DATA), language).score
      assert abs(score - float(figure['cased'])) > 0.1


@pytest.mark.parametrize('figure', OURS, ids=name)
def test_lower_cased_references_miss_the_figures(figure):
  hypotheses, references = load(figure, DATA)
  references = [line.lower() for line in references]
  score = bleu.paper_bleu(hypotheses, references, figure['language']).score
  assert abs(score - float(figure['cased'])) > 0.1


# Tokens as tokenizer.perl printed them (white space at the ends aside).
@pytest.mark.parametrize(
  ('language', 'line', 'tokens'),
  [
    ('de', 'Das steht auf S. 3 und S.', 'Das steht auf S. 3 und S .'),
    ('de', 'Am 26. Mai, am 26.', 'Am 26. Mai , am 26 .'),
    ('de', 'Äpfel, Birnen usw. und etc.', 'Äpfel , Birnen usw. und etc .'),
    ('de', 'Vgl. Dr. Wu, z.B. usw....', 'Vgl . Dr. Wu , z.B. usw ....'),
    ('de', 'Und dann ...', 'Und dann ...'),
    ('de', "E-Mail an 'X' & <Y>", 'E-Mail an &apos; X &apos; &amp; &lt; Y &gt;'),
    ('fr', "L'art de M. Roux, l'air.", 'L&apos; art de M. Roux , l&apos; air .'),
    ('fr', "C'est 5'.", 'C&apos; est 5 &apos; .'),
    ('fr', '«\u00a0Oui\u202f!\u00a0» à 3,5\u00a0%', '« Oui ! » à 3,5 %'),
    ('en', "It's the 1990's, Mr.", 'It &apos;s the 1990 &apos;s , Mr .'),
    ('de', 'Tofu (豆腐) und 한국어.', 'Tofu ( 豆腐 ) und 한국어 .'),
    ('de', 'ƻ豆ƻ 腐', 'ƻ豆ƻ 腐'),
    ('de', 'a\x1cb \x01 c\td', 'ab c d'),
    ('de', '', ''),
    ('de', '.', '.'),
  ],
)
def test_tokens_are_the_perl_tokenizers(language, line, tokens):
  assert [*moses.tokenize(line, language)] == tokens.split()


@pytest.mark.parametrize('language', sorted(moses.UNFAITHFUL))
def test_languages_with_rules_that_sacremoses_lacks_say_so(language):
  """They are scored all the same: a run's other scores need none of these rules."""
  line = "EU:n är d'aigua a b c"
  found = bleu.paper_bleu([line], [line], language)
  assert found.score == pytest.approx(100)
  assert f'moses-{language}-partly-sacremoses-' in found.signature


@pytest.mark.parametrize(
  ('regional', 'language', 'line'),
  [
    ('fr_CA', 'fr', "L'homme d'État, env. 3 fois."),
    ('pt_BR', 'pt', 'O Sr. Silva, a Sra. Lima.'),
    ('de_AT', 'de', 'Am 26. Mai, usw. und etc.'),
    ('sv_SE', 'sv', 'EU:n är här.'),
  ],
)
def test_a_region_changes_no_rule(regional: str, language: str, line: str):
  """Its tokens are the language's, and so is the signature."""
  assert moses.tokenize(line, regional) == moses.tokenize(line, language)
  assert moses.has_rules(regional)
  found = bleu.paper_bleu([line], [line], regional)
  assert found == bleu.paper_bleu([line], [line], language)


@pytest.mark.parametrize(
  ('line', 'plain'),
  [
    ('„Ja“, sagte sie … ’s', '„Ja", sagte sie ... \'s'),
    ('１２３４５６７８９０％（～）', '1234567890%(~)'),
    ('《a》「b」【c】〈d〉', '"a""b"[c]<d>'),
    ('a。   b．c、d，e', 'a. b. c,d,e'),
    ('–—‚‘«»', '–—‚‘«»'),
  ],
)
def test_unicode_punctuation(line, plain):
  assert moses.replace_unicode_punctuation(line) == plain


@pytest.mark.parametrize(
  ('line', 'split'),
  [
    ('rich-text', 'rich ##AT##-##AT## text'),
    ('ab-cd-ef', 'ab ##AT##-##AT## cd ##AT##-##AT## ef'),
    ('a-b-c-d', 'a ##AT##-##AT## b-c ##AT##-##AT## d'),
    ('a-é-b', 'a ##AT##-##AT## é ##AT##-##AT## b'),
    ('a--b', 'a ##AT##-##AT## -b'),
    ('Ein- und Ausgang - 2', 'Ein- und Ausgang - 2'),
  ],
)
def test_compound_split_is_one_pass_over_bytes(line, split):
  assert bleu.split_compounds(line, 'de').decode() == split


WORDS = st.sampled_from(['der', 'Der', 'Hund', 'hund', 'Ä', 'ä', 'a-b', '.', ','])
LINES = st.lists(WORDS, max_size=12).map(' '.join)
PAIRS = st.lists(st.tuples(LINES, LINES), min_size=1)


@given(PAIRS)
def test_tokens_given_are_counted_as_sacrebleu_counts_them(pairs):
  hypotheses, references = zip(*pairs, strict=True)
  theirs = sacrebleu.metrics.BLEU(tokenize='none', smooth_method='none', force=True)
  expected = theirs.corpus_score(hypotheses, [references]).score
  assert bleu.tokenized_bleu(hypotheses, references).score == pytest.approx(expected)


@given(PAIRS, st.booleans())
def test_sacre_bleu_is_sacrebleus_to_the_last_bit(pairs, lowercase):
  hypotheses, references = zip(*pairs, strict=True)
  theirs = sacrebleu.corpus_bleu(hypotheses, [references], lowercase=lowercase)
  assert bleu.sacre_bleu(hypotheses, references, lowercase).score == theirs.score


@pytest.mark.parametrize('figure', OURS, ids=name)
def test_sacre_bleu_on_our_own_text(figure):
  hypotheses, references = load(figure, DATA)
  score = bleu.sacre_bleu(hypotheses, references)
  assert score.score == sacrebleu.corpus_bleu(hypotheses, [references]).score
  assert score.signature == (
    f'nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:{sacrebleu.__version__}'
  )
  assert 'case:lc' in bleu.sacre_bleu(hypotheses, references, True).signature


def test_sacre_bleu_of_tokens_given_leaves_them(caplog):
  tokens = [
    'der hund &amp; die haus-katze , hier .',
    "l' art .",
    'am 26. mai sah er sie .',
  ] * 40  # from 100 lines on sacreBLEU warns of tokens
  spoilt = [line.replace('hier', 'dort') for line in tokens]
  score = bleu.sacre_bleu(spoilt, tokens, tokenized=True)
  assert score.score == pytest.approx(bleu.tokenized_bleu(spoilt, tokens).score)
  assert not caplog.records
  assert score.score != pytest.approx(bleu.sacre_bleu(spoilt, tokens).score, abs=0.1)
  assert '|case:mixed|eff:no|tok:none|smooth:exp|' in score.signature
  assert 'case:lc' in bleu.sacre_bleu(spoilt, tokens, True, True).signature


def test_case_is_kept_unless_asked_and_named():
  lines = ['Der Hund sieht den Ball .']
  shouted = [lines[0].upper()]
  for score in (
    lambda *args: bleu.paper_bleu(lines, shouted, 'de', *args),
    lambda *args: bleu.tokenized_bleu(lines, shouted, *args),
  ):
    assert score().score == 0 and '|case:mixed|' in score().signature
    assert score(True).score == pytest.approx(100)
    assert '|case:lc-ascii|' in score(True).signature


def test_lower_casing_is_the_perls_ascii_only():
  assert bleu.tokenized_bleu(['Ä B C D E'], ['ä b c d e'], True).score < 100


def test_the_papers_signature_names_every_choice():
  signature = bleu.paper_bleu(['a b c d'], ['a b c d'], 'fr').signature
  keys = dict(part.split(':', 1) for part in signature.split('|'))
  assert set(keys) >= {'case', 'punct', 'tok', 'compounds', 'smooth', 'formula'}
  assert keys['tok'].startswith('moses-fr-sacremoses-')
  assert keys['formula'] == 'multi-bleu'


def test_only_the_hypothesis_has_its_punctuation_replaced():
  curly, plain = ['Er sagt “ja” und geht weg'], ['Er sagt "ja" und geht weg']
  assert bleu.paper_bleu(curly, plain, 'de').score == pytest.approx(100)
  assert bleu.paper_bleu(plain, curly, 'de').score < 100


def test_no_match_of_four_words_or_no_words_is_zero():
  assert bleu.tokenized_bleu(['a b c x e f g'], ['a b c d e f g']).score == 0
  assert bleu.tokenized_bleu([''], ['a b c d']).score == 0
  assert bleu.tokenized_bleu(['a b c d'], ['']).score == 0


@pytest.mark.parametrize(
  ('score', 'extra'),
  [
    (bleu.sacre_bleu, []),
    (bleu.paper_bleu, ['de']),
    (bleu.tokenized_bleu, []),
  ],
)
def test_unequal_or_empty_input_is_refused_with_both_counts(score, extra):
  with pytest.raises(UserError, match='3 hypotheses but 2 references'):
    score(['a'] * 3, ['a'] * 2, *extra)
  with pytest.raises(UserError, match='no sentences'):
    score([], [], *extra)


def test_figures_cover_both_languages_cases_and_corpora():
  paper = [figure for figure in FIGURES if figure['command'] == 'paper']
  seen = {(figure['folder'], figure['language']) for figure in paper}
  assert seen >= set(itertools.product(['tests/fixtures', 'shared/data'], ['de', 'fr']))
  assert all(figure['cased'] != figure['lowercased'] for figure in paper)


# Languages whose words have no spaces between them


def test_the_tokeniser_fits_the_language():
  """Chinese is counted by characters, as sacreBLEU does it when told the language."""
  lines, others = ['我爱你们。', '他来了吗?'], ['我爱他们。', '他来了。']
  found = bleu.sacre_bleu(lines, others, language='zh_TW')
  assert '|tok:zh|' in found.signature and found.score > 10
  assert bleu.sacre_bleu(lines, others, language='yue') == found
  assert '|tok:13a|' in bleu.sacre_bleu(lines, others, language='de').signature
  lines, others = ['ฉันรักพวกคุณ'], ['ฉันรักพวกเขา']
  found = bleu.sacre_bleu(lines, others, language='th')
  assert '|tok:char|' in found.signature and 50 < found.score < 100


def test_a_tokeniser_that_is_not_installed(monkeypatch: pytest.MonkeyPatch):
  monkeypatch.setitem(sys.modules, 'MeCab', None)
  with pytest.raises(UserError, match=r"pip install 'sacrebleu\[ja\]'"):
    bleu.sacre_bleu(['a'], ['a'], language='ja')
