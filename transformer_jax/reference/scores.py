"""BLEU of the kit's translations, as it should be and by usual mistakes."""

from collections.abc import Sequence

from sacrebleu.metrics.bleu import BLEU

from transformer_jax.scoring import bleu, moses

Lines = Sequence[str]


def right(hypotheses: Lines, references: Lines) -> dict[str, float]:
  """Returns both BLEUs of German text."""
  texts = hypotheses, references
  return {
    'bleu.paper_bleu': bleu.paper_bleu('de', tokenized=False).percent(*texts),
    'bleu.sacrebleu': bleu.sacrebleu('de', tokenized=False).percent(*texts),
  }


def wrong(hypotheses: Lines, references: Lines) -> dict[str, float]:
  """Returns what usual mistakes yield."""
  tokens = lambda lines: [' '.join(moses.tokenize(line, 'de')) for line in lines]
  replaced = [*map(moses.replace_unicode_punctuation, hypotheses)]
  unsmoothed = BLEU(tokenize='none', smooth_method='none', force=True)
  at_spaces, default = BLEU(tokenize='none', force=True), BLEU(trg_lang='de')
  add_one = BLEU(smooth_method='add-k', smooth_value=1)
  of_sentences = BLEU(effective_order=True)
  corpus = lambda metric, texts: metric.corpus_score(texts[0], [texts[1]]).score
  both = lambda function: [[*map(function, x)] for x in (hypotheses, references)]
  texts = hypotheses, references
  exact = default.corpus_score(hypotheses, [references])
  sentences = [
    of_sentences.sentence_score(x, [y]).score for x, y in zip(*texts, strict=True)
  ]
  scores = {f'{name}, lower-cased': x for name, x in right(*both(str.lower)).items()}
  exchanged = right(references, hypotheses).items()
  scores |= {f'{name}, hypotheses and references exchanged': x for name, x in exchanged}
  return scores | {
    "the paper's BLEU without splitting compounds": corpus(
      unsmoothed, (tokens(replaced), tokens(references))
    ),
    'sacreBLEU with tokenised references': corpus(
      default, (hypotheses, tokens(references))
    ),
    'sacreBLEU of text that is tokenised already': corpus(
      default, (tokens(hypotheses), tokens(references))
    ),
    'BLEU of words split at spaces alone': corpus(at_spaces, texts),
    'BLEU with add-one smoothing': corpus(add_one, texts),
    "the mean of the sentences' BLEU": sum(sentences) / len(sentences),
    'BLEU without the brevity penalty': exact.score / exact.bp,
  }
