"""transformers computes what we compute, with our models."""

import pathlib
from collections.abc import Sequence

import numpy as np
import pytest

import transformer_jax
from toy import corpus
from transformer_jax.data.vocabulary import EOS

torch = pytest.importorskip('torch')
transformers = pytest.importorskip('transformers')

pytestmark = pytest.mark.torch

SOURCES, TARGETS = ([s.decode() for s in side] for side in corpus.number_lines(12, 7))
SPECIALS = '<pad>', '</s>', '<s>', '<unk>'
SPECIAL_TEXTS = [
  *(f'one {token} two' for token in SPECIALS),
  *(f'{token}five{token} {token}' for token in SPECIALS),
  ' '.join(SPECIALS),
]
TOLERANCE = 1e-4  # nats a piece


class HuggingFace:
  def __init__(self, folder: pathlib.Path):
    self._model = transformers.MarianMTModel.from_pretrained(folder).eval()
    self._tokenizer = transformers.MarianTokenizer.from_pretrained(folder)

  def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[np.ndarray]:
    """Returns the log probability of each piece, by teacher forcing."""
    config, options = self._model.config, {'return_tensors': 'pt', 'padding': True}
    batch = self._tokenizer([*sources], text_target=[*targets], **options)
    labels = batch.pop('labels')
    start = config.decoder_start_token_id
    shifted = torch.nn.functional.pad(labels[:, :-1], (1, 0), value=start)
    with torch.no_grad():
      logits = self._model(**batch, decoder_input_ids=shifted).logits
    outputs = logits.log_softmax(-1).gather(-1, labels[..., None])[..., 0]
    real = labels != config.pad_token_id
    return [row[mask].numpy() for row, mask in zip(outputs, real, strict=True)]

  def greedy(self, sources: Sequence[str], limit: int) -> list[list[str]]:
    """Returns the pieces of each translation, of `limit` tokens at most."""
    batch = self._tokenizer([*sources], return_tensors='pt', padding=True)
    options = {'num_beams': 1, 'max_length': None, 'forced_eos_token_id': None}
    outputs = self._model.generate(**batch, max_new_tokens=limit, **options)
    return [self._tokenizer.convert_ids_to_tokens(row[1:]) for row in outputs]


@pytest.mark.filterwarnings('ignore:cut at the length limit')
def test_hugging_face_computes_the_same(workdir: pathlib.Path, marian: pathlib.Path):
  """`</s>` and the like in a text are text, alone or within a word."""
  ours, theirs = transformer_jax.load(workdir, beam=1), HuggingFace(marian)
  pairs = (SOURCES, TARGETS), (SPECIAL_TEXTS, SPECIAL_TEXTS[::-1])
  for sources, targets in pairs:
    both = ours.score(sources, targets), theirs.score(sources, targets)
    for scored, row in zip(*both, strict=True):
      np.testing.assert_allclose(scored.log_probabilities, row, atol=TOLERANCE)
  # Greedy translations, up to the limit of ours.
  both = zip(ours.hypotheses(SOURCES), theirs.greedy(SOURCES, 30), strict=True)
  for (best, *_), row in both:
    expected = ours.pieces(best)
    assert row[: len(expected)] == expected and len(best.tokens) > 5
    assert best.tokens[-1] != EOS or row[len(expected) :][:1] in ([], ['</s>'])
