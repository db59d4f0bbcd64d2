"""Files of translations of any program are scored; two systems are compared."""

import pathlib
import random
import re

import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from transformer_jax.machine.errors import UserError
from transformer_jax.scoring import bleu, significance, translations
from transformer_jax.scoring.output import SystemOutput

WORDS = 'Der Hund, die Haus-Katze und „ihr“ Ball lagen 1990 im Garten am See'.split()


def sentences(count: int) -> list[str]:
  rng = random.Random(0)
  return [' '.join(rng.choices(WORDS, k=rng.randint(4, 12))) for _ in range(count)]


def spoilt(lines: list[str], rate: float, seed: int = 1) -> list[str]:
  """Leaves each word out with the probability `rate`."""
  rng = random.Random(seed)
  return [' '.join(w for w in line.split() if rng.random() > rate) for line in lines]


REFERENCES = sentences(60)
WORSE, BETTER = spoilt(REFERENCES, 0.4), spoilt(REFERENCES, 0.1)
ALIKE = spoilt(REFERENCES, 0.1, seed=2)
METRICS = {x.name: x.of_text('de', False, []) for x in translations.text_metrics()}


@pytest.fixture
def few_exchanges(monkeypatch) -> None:
  monkeypatch.setattr(significance, 'EXCHANGES', 500)


def write(path: pathlib.Path, lines: list[str]) -> pathlib.Path:
  path.write_text('\n'.join([*lines, '']))
  return path


@pytest.fixture
def files(tmp_path: pathlib.Path) -> list[pathlib.Path]:
  """Writes hypotheses, references, and hypotheses of another system."""
  texts = {'hypotheses': BETTER, 'references': REFERENCES, 'worse': WORSE}
  return [write(tmp_path / name, lines) for name, lines in texts.items()]


def numbers(text: str) -> list[float]:
  return [float(x) for x in re.findall(r'[-+]?\d+\.\d+', text)]


def test_scores_with_their_signatures(files: list[pathlib.Path]):
  """Line ends and a byte order mark do not matter."""
  lines = [*translations.score_files(*files[:2], None, 'de', False)]
  for n, (name, metric) in enumerate(METRICS.items()):
    score = metric.score(BETTER, REFERENCES)
    assert lines[2 * n] == f'{name} {score.score:.2f}  {metric.signature}'
    assert numbers(lines[2 * n + 1])[-2:] == pytest.approx(score.interval, abs=0.006)
  assert len(lines) == 6
  files[0].write_bytes(b'\xef\xbb\xbf' + '\r\n'.join(BETTER).encode())
  assert [*translations.score_files(*files[:2], None, 'de', False)] == lines


def test_tokens_are_not_tokenised_again(files: list[pathlib.Path]):
  """The last line says what the text is, also if it is in lower case."""
  lines = [*translations.score_files(*files[:2], None, 'de', True)]
  assert '|case:mixed|eff:no|tok:none|' in lines[0] and '|tok:none|' in lines[2]
  assert lines[6].startswith('The text is tokens as given: ') and len(lines) == 7
  for path, text in zip(files, (BETTER, REFERENCES), strict=False):
    write(path, [line.lower() for line in text])
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


def test_one_file_against_another(files: list[pathlib.Path], few_exchanges):
  printed = [*translations.score_files(*files, 'de', False)]
  compared = printed[-3:]
  assert len(printed) == 9
  for line, (name, metric) in zip(compared, METRICS.items(), strict=True):
    ours, theirs = (metric.score(lines, REFERENCES) for lines in (BETTER, WORSE))
    values = [ours.score, *ours.interval, theirs.score, *theirs.interval]
    values.append(ours.score - theirs.score)
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
  named = [('alike', ALIKE), ('better', BETTER)]
  test = PairedTest(named, {'BLEU': BLEU()}, [REFERENCES], n_samples=500)
  p = bleu.sacrebleu('de', False).paired_p([BETTER], [ALIKE], REFERENCES)
  assert p == test()[1]['BLEU'][1].p_value


def test_p_of_several_runs(few_exchanges):
  """One run beside its own copy is no more evidence than the run alone."""
  metric = bleu.sacrebleu('de', False)
  p = lambda *runs: metric.paired_p(*runs, REFERENCES)
  assert p([BETTER] * 2, [ALIKE] * 2) == p([BETTER], [ALIKE])
  assert p([BETTER, WORSE], [WORSE, BETTER]) == 1.0
