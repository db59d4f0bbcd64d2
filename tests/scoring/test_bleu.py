"""Scores against sacreBLEU and figures that the Perl scripts printed; two systems."""

import json
import pathlib
import re
import sys
import unicodedata

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.significance import PairedTest

from transformer_jax.machine.errors import UserError
from transformer_jax.machine.files import sha256_of_lines
from transformer_jax.scoring import bleu, moses, significance, translations
from transformer_jax.scoring.output import SystemOutput

DATA = pathlib.Path(__file__).parents[1] / 'fixtures'
GOLDEN = json.loads((DATA / 'paper_bleu.json').read_text('utf-8'))
FIGURES = GOLDEN['figures']
SAMPLE = next(x for x in FIGURES if x['references'] == 'embedded_sample.de')
METRICS = {x.name: x.of_text('de', False, []) for x in translations.text_metrics()}
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


def load(figure: dict, folder: pathlib.Path) -> tuple[list[str], list[str]]:
  """Returns hypotheses and references of a figure, checked by their sums."""
  references = bleu.read_lines(folder / figure['references'])
  hypotheses = perturb(references, **figure['edits'])
  assert sha256_of_lines(references) == figure['references_sha256']
  assert sha256_of_lines(hypotheses) == figure['hypotheses_sha256']
  return hypotheses, references


def parameters(figure: dict):
  """Returns a figure with its name; those of text that is not here are slow."""
  edits = '-'.join(f'{key}{value}' for key, value in figure['edits'].items())
  marks = () if figure['folder'] == 'tests/fixtures' else pytest.mark.slow
  return pytest.param(figure, marks=marks, id=f'{figure["references"]}-{edits}')


@pytest.mark.parametrize('figure', [*map(parameters, FIGURES)])
def test_figures_of_the_perl(figure: dict, request: pytest.FixtureRequest):
  is_here = figure['folder'] == 'tests/fixtures'
  folder = DATA if is_here else request.getfixturevalue('shared_data')
  texts, tokenized = load(figure, folder), figure['command'] != 'paper'
  metric = bleu.paper_bleu(figure.get('language', 'de'), tokenized)
  assert f'{metric.percent(*texts):.2f}' == figure['cased']


# Tokens as tokenizer.perl printed them (white space at the ends aside).
def test_tokens_are_the_perl_tokenizers():
  for language, line, tokens in (
    ('de', 'Das steht auf S. 3 und S.', 'Das steht auf S. 3 und S .'),
    ('de', 'Am 26. Mai, am 26.', 'Am 26. Mai , am 26 .'),
    ('de', 'Äpfel, Birnen usw. und etc.', 'Äpfel , Birnen usw. und etc .'),
    ('de', 'Und dann ...', 'Und dann ...'),
    ('de', "E-Mail an 'X' & <Y>", 'E-Mail an &apos; X &apos; &amp; &lt; Y &gt;'),
    ('fr_CA', "L'art de M. Roux, l'air.", 'L&apos; art de M. Roux , l&apos; air .'),
    ('fr', '«\u00a0Oui\u202f!\u00a0» à 3,5\u00a0%', '« Oui ! » à 3,5 %'),
    ('en', "It's the 1990's, Mr.", 'It &apos;s the 1990 &apos;s , Mr .'),
    ('de', 'Tofu (豆腐) und 한국어.', 'Tofu ( 豆腐 ) und 한국어 .'),
    ('de', 'ƻ豆ƻ 腐', 'ƻ豆ƻ 腐'),
    ('de', 'a\x1cb \x01 c\td', 'ab c d'),
    ('hi', 'हिन्दी सड़क।', 'हिन ् दी सड ़ क ।'),
    ('zh', '我爱你。他也是。', '我爱你 。 他也是 。'),
    ('it', 'Gli es. 5, Arch. Roma, a.c. X', 'Gli es . 5 , Arch . Roma , a.c. X'),
    ('is', 'Sjá no. Rey, No. Rey, no. 5', 'Sjá no. Rey , No . Rey , no. 5'),
    ('ka', 'No. იავური ობოლო 26. მაკ', 'No. იავური ობოლო 26. მაკ'),
    ('bn', 'ভি. মা', 'ভি . মা'),
    ('ml', 'ഹൃദയം ൎ a', 'ഹൃദയം ൎ a'),
  ):
    assert [*moses.tokenize(line, language)] == tokens.split()


def test_compound_split_is_one_pass_over_bytes():
  for line, split in (
    ('a-b-c-d', 'a ##AT##-##AT## b-c ##AT##-##AT## d'),
    ('a-é-b', 'a ##AT##-##AT## é ##AT##-##AT## b'),
    ('a--b', 'a ##AT##-##AT## -b'),
    ('Ein- und Ausgang - 2', 'Ein- und Ausgang - 2'),
  ):
    assert bleu.split_compounds(line, 'de').decode() == split


WORDS = st.sampled_from(['der', 'Der', 'Hund', 'hund', 'Ä', 'ä', 'a-b', '.', ','])
LINES = st.lists(WORDS, max_size=12).map(' '.join)
PAIRS = st.lists(st.tuples(LINES, LINES), min_size=1)


@given(PAIRS)
def test_both_are_sacrebleus(pairs):
  hypotheses, references = zip(*pairs, strict=True)
  plain = bleu.sacrebleu('de', False)
  theirs = sacrebleu.corpus_bleu(hypotheses, [references])
  assert plain.percent(hypotheses, references) == theirs.score
  for make, smooth in ((bleu.sacrebleu, 'exp'), (bleu.paper_bleu, 'none')):
    how = {'tokenize': 'none', 'smooth_method': smooth, 'force': True}
    theirs = sacrebleu.metrics.BLEU(**how).corpus_score(hypotheses, [references])
    score = make('de', True).percent(hypotheses, references)
    assert score == pytest.approx(theirs.score)


def test_intervals_are_sacrebleus():
  texts = load(SAMPLE, DATA)
  for name, metric, how in (
    ('sacrebleu', sacrebleu.metrics.BLEU(), 'mixed|eff:no|tok:13a|smooth:exp'),
    ('chrf', sacrebleu.metrics.CHRF(), 'mixed|eff:yes|nc:6|nw:0|space:no'),
  ):
    result = METRICS[name].score(*texts)
    expected = metric.corpus_score(texts[0], texts[1:], 1000)
    assert result.score == expected.score > 20
    ends = expected._mean - expected._ci, expected._mean + expected._ci
    assert result.interval == pytest.approx(ends, abs=1e-4)
    version = sacrebleu.__version__
    assert result.signature == f'nrefs:1|case:{how}|version:{version}'
  one_of_two = ['Er', 'geht'], ['Er', 'kommt']  # some samples score 0
  assert METRICS['chrf'].score(*one_of_two).interval[0] < 50


def test_whose_punctuation_is_replaced():
  """That of hypotheses, unless they are tokens."""
  curly, plain = ['Er sagt “ ja ” und geht weg'], ['Er sagt " ja " und geht weg']
  script = bleu.paper_bleu('de', False)
  assert script.percent(curly, plain) == pytest.approx(100)
  assert script.percent(plain, curly) < 100
  assert bleu.paper_bleu('de', True).percent(curly, plain) < 100


JAPANESE = ['彼女は来週の月曜日に、赤い自転車で駅まで行くつもりです。']
FINNISH = ['Kolmivaihekilowattituntimittari on rakennuksen kellarissa.'] * 9


def test_tokens_of_a_language(capsys):
  """Text with hardly a space is counted by characters, and that is said."""
  for language, text, tokens in (
    ('zh_TW', JAPANESE, 'zh'),
    ('yue', [], 'zh'),
    ('th', [], 'char'),
    ('de', FINNISH, '13a'),
    ('de', ['x' * 20], '13a'),  # short lines say nothing
    ('xx', ['x' * 21], 'char'),
    ('xx', JAPANESE, 'char'),
  ):
    assert f'|tok:{tokens}|' in bleu.sacrebleu(language, False, text).signature
    said = 'xx text has hardly a space, so BLEU counts' in capsys.readouterr().err
    assert said == (language == 'xx')


def test_a_tokeniser_that_is_not_installed(monkeypatch):
  monkeypatch.setitem(sys.modules, 'MeCab', None)
  with pytest.raises(UserError, match=r"pip install 'sacrebleu\[ja\]'"):
    bleu.sacrebleu('ja', False)


def test_accents_in_two_forms_are_said(capsys):
  """Composed against decomposed ones, where normalising changes the score."""
  lines = ['Über Äpfel und Öl', 'ein Haus am See ist schön']
  apart = [unicodedata.normalize('NFD', line) for line in lines]
  low = translations.score(SystemOutput(lines, apart, 'de', False))['sacrebleu'].score
  said = capsys.readouterr().err
  assert low < 60 and f'sacrebleu {low:.2f} to 100.00, paper_bleu' in said
  translations.score(SystemOutput(lines, lines, 'de', False))
  translations.score(SystemOutput(apart, apart, 'de', False))
  assert capsys.readouterr().err == ''


# Files of translations, and two systems

REFERENCES = bleu.read_lines(DATA / 'embedded_sample.de')[:60]
WORSE, BETTER, ALIKE = (perturb(REFERENCES, drop=n) for n in (2, 9, 10))


@pytest.fixture
def few_exchanges(monkeypatch) -> None:
  monkeypatch.setattr(significance, 'EXCHANGES', 500)


@pytest.fixture
def files(tmp_path: pathlib.Path) -> list[pathlib.Path]:
  """Writes hypotheses, references, and hypotheses of another system."""
  texts = {'hypotheses': BETTER, 'references': REFERENCES, 'worse': WORSE}
  for name, lines in texts.items():
    (tmp_path / name).write_text('\n'.join([*lines, '']))
  return [tmp_path / name for name in texts]


def numbers(text: str) -> list[float]:
  return [float(x) for x in re.findall(r'[-+]?\d+\.\d+', text)]


def test_tokens_are_not_tokenised_again(files: list[pathlib.Path]):
  """The last line says what the text is, also if it is in lower case."""
  lines = [*translations.score_files(*files[:2], None, 'de', True)]
  assert '|case:mixed|eff:no|tok:none|' in lines[0] and '|tok:none|' in lines[2]
  assert lines[6].startswith('The text is tokens as given: ') and len(lines) == 7
  for path in files:
    path.write_text(path.read_text().lower())
  last = [*translations.score_files(*files[:2], None, 'de', True)][-1]
  assert last.startswith('The text is tokens as given, lower-cased: ')


def test_warning_of_missing_rules(files: list[pathlib.Path], capsys):
  for language, message in (
    ('hsb', 'no abbreviations of hsb are known'),
    ('sv_SE', "lacks some of the Moses script's rules for sv"),
    ('fr_CA', ''),
  ):
    assert next(translations.score_files(*files[:2], None, language, False))
    err = capsys.readouterr().err
    assert message in err and bool(message) == bool(err)
    is_partly = '-partly-sacremoses-' in bleu.paper_bleu(language, False).signature
    assert is_partly == ('rules' in err)


def test_scores_of_a_file_and_against_another(files, few_exchanges):
  """Each has its signature."""
  printed = [*translations.score_files(*files, 'de', False)]
  assert len(printed) == 9
  for n, (name, metric) in enumerate(METRICS.items()):
    ours, theirs = (metric.score(lines, REFERENCES) for lines in (BETTER, WORSE))
    assert printed[2 * n] == f'{name} {ours.score:.2f}  {metric.signature}'
    assert numbers(printed[2 * n + 1])[-2:] == pytest.approx(ours.interval, abs=0.006)
    line, difference = printed[6 + n], ours.score - theirs.score
    values = [ours.score, *ours.interval, theirs.score, *theirs.interval, difference]
    assert numbers(line)[:7] == pytest.approx(values, abs=0.006)
    p = metric.paired_p([BETTER], [WORSE], REFERENCES)
    assert f'p = {p:.4f}' in line and p < 0.01 and line.startswith(f'{name} ')
    signature = metric.signature.replace('nrefs:1', 'nrefs:1|ar:500|seed:12345')
    assert line.endswith(signature)
  same = SystemOutput(BETTER, REFERENCES, 'de', False)
  for line in translations.comparison_lines(same, BETTER):
    assert ': +0.00, p = 1.0000' in line


@pytest.mark.parametrize(
  ('wrong', 'content', 'message'),
  [
    (0, b'eins\n', 'hypotheses has 1 lines, .*references has 60'),
    (2, b'eins\n', 'worse has 1 lines, .*references has 60'),
    (1, b'', 'hypotheses has 60 lines, .*references has 0'),
    (0, b'caf\xe9\n', 'hypotheses, line 1: not UTF-8'),
  ],
)
def test_what_cannot_be_scored(wrong: int, content: bytes, message: str, files):
  files[wrong].write_bytes(content)
  with pytest.raises(UserError, match=message):
    next(translations.score_files(*files, 'de', False))


def test_p_is_sacrebleus(few_exchanges):
  named, metrics = [('alike', ALIKE), ('better', BETTER)], {'BLEU': sacrebleu.BLEU()}
  test = PairedTest(named, metrics, [REFERENCES], n_samples=500)
  p = bleu.sacrebleu('de', False).paired_p([BETTER], [ALIKE], REFERENCES)
  assert p == test()[1]['BLEU'][1].p_value


def test_p_of_several_runs(few_exchanges):
  """One run beside its own copy is no more evidence than the run alone."""
  metric = bleu.sacrebleu('de', False)
  p = lambda *runs: metric.paired_p(*runs, REFERENCES)
  assert p([BETTER] * 2, [ALIKE] * 2) == p([BETTER], [ALIKE])
  assert p([BETTER, WORSE], [WORSE, BETTER]) == 1.0
