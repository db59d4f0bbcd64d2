"""A config chooses its task; translation keeps a line as it is."""

import pytest

from configs import base
from transformer_jax.machine.errors import UserError
from transformer_jax.tasks import TASKS, TRANSLATION, task_of


def test_a_config_chooses_its_task():
  config = base.get_config()
  assert task_of(config) is TRANSLATION
  config.best_by = 'bleu'
  assert task_of(config) is TRANSLATION
  config.task = 'summarisation'
  with pytest.raises(UserError, match="'translation' or 'parsing' .--config.task"):
    task_of(config)


def test_a_parser_is_not_kept_by_bleu():
  config = base.get_config()
  config.update({'task': 'parsing', 'best_by': 'perplexity'})
  assert task_of(config) is TASKS['parsing']
  config.best_by = 'bleu'
  with pytest.raises(UserError, match='best_by=bleu: parsing has no BLEU'):
    task_of(config)


def test_a_translation_is_one_line_as_it_was_written():
  assert TRANSLATION.source(None)(' a (b') == ' a (b'
  assert TRANSLATION.finish('a', 'b\nc\u2028d') == ('b c d', {})
