"""A config chooses its task; translation keeps a line as it is."""

import pytest

from configs import base
from transformer_jax.machine.errors import UserError
from transformer_jax.tasks import OUTPUTS, TRANSLATION, output_of


def test_a_config_chooses_its_task():
  config = base.get_config()
  config.best_by = 'bleu'
  assert output_of(config) is TRANSLATION
  config.task = 'summarisation'
  with pytest.raises(UserError, match="'translation' or 'parsing' .--config.task"):
    output_of(config)
  config.task = 'parsing'
  with pytest.raises(UserError, match='best_by=bleu: parsing has no BLEU'):
    output_of(config)
  config.best_by = 'perplexity'
  assert output_of(config) is OUTPUTS['parsing']


def test_a_translation_is_one_line_as_it_was_written():
  assert TRANSLATION.source(None)(' a (b') == ' a (b'
  for end in ('\n', '\r', '\r\n', '\x0b', '\x0c', '\x1c', '\x85', '\u2028', '\u2029'):
    assert TRANSLATION.finish('a', f'b{end}c') == ('b c', True)
