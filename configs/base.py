"""The base model of Table 3, trained as section 5 says, on WMT14.

  python -m scripts.train --config=configs/base.py:en-de --workdir=runs/base.en-de

63.0 M parameters (V=37,000). The paper: 100,000 steps, 12 hours on 8 P100, 25.8 BLEU on
newstest2013, 27.3 (en-de) and 38.1 (en-fr) on newstest2014.
"""

import ml_collections
from ml_collections import config_dict

PAIRS = ('en-de', 'en-fr', 'de-en', 'fr-en')  # source-target


def get_config(pair: str = 'en-de') -> ml_collections.ConfigDict:
  """Returns the config of the base model, with every key. `pair` is one of PAIRS."""
  config = ml_collections.ConfigDict(
    {
      'task': 'translation',  # or 'parsing'
      # The row of Table 3 that the config stands for, or None
      'row': config_dict.FieldReference('base', field_type=str),
      'data': _data(pair),
      # Batches (section 5.1)
      'tokens_per_batch': 25000,  # of the longer side, without padding
      'slices': 8,  # equal parts of a batch, one for each of the paper's GPUs
      'max_shapes': 12,  # different shapes of batches, each of which is compiled
      # Table 3's columns
      'model': {
        'N': 6,
        'd_model': 512,
        'd_ff': 2048,
        'h': 8,
        'd_k': 64,
        'd_v': 64,
        'P_drop': 0.1,
        'P_drop_attention': 0.0,  # of attention's weights; 0.2 in parsing.py:wsj, semi
        'positions': 'sinusoid',  # or 'learned' (row E)
        'max_positions': 256,  # rows of each stack's table when learned
        'vocab_size': 32000 if 'fr' in pair else 37000,
        # Rows of the target's own vocabulary and table; 0: both sides share one, as in
        # section 5.1
        'target_vocab_size': 0,
      },
      'epsilon_ls': 0.1,  # section 5.4
      'train_steps': 100_000,
      # Optimiser (section 5.3)
      'warmup_steps': 4000,
      'rate_factor': 1.0,  # multiplies Equation 3; 1 in the paper
      'adam_b1': 0.9,
      'adam_b2': 0.98,
      'adam_epsilon': 1e-9,
      **_checkpoints(),
      # Decoding (section 6.1)
      'beam': 4,
      'alpha': 0.6,
      'extra_length': 50,  # output limit: source length + this
      'constrained': False,  # a parser's search writes nothing but trees
      # Positions of a batch: of the source in a search, of the longer side when dev
      # perplexity is measured
      'decode_tokens': 4096,
      # Of matrix products, and on accelerators of activations. auto: bfloat16 on
      # accelerators and on CPUs with instructions for it, else float32
      'decode_dtype': 'auto',
      # Running
      'seed': 1,
      'dtype': 'auto',  # the same in training: bfloat16 on accelerators
      'log_every_steps': 100,
    }
  )
  return config.lock()


def _checkpoints() -> dict:
  """Returns the keys that say where training starts and ends, and what is kept."""
  return {
    # Checkpoints: the paper's 10 minutes at 0.4 s a step
    'checkpoint_every_steps': 1500,
    'keep_checkpoints': 20,
    'average_last': 5,  # section 6.1
    # Which checkpoint is kept beside the last ones: the best by dev 'perplexity', by
    # dev 'bleu' (greedy, of dev's first sentences), or '': none
    'best_by': '',
    'bleu_every_checkpoints': 1,  # with best_by='bleu'
    'bleu_sentences': 500,
    # So many checkpoints in a row without a better dev perplexity end the training;
    # 0: none does
    'patience': 0,
    # Another run's checkpoint to start from, which --init_from fills in: the run's
    # folder, the sha256 of the checkpoint's manifest and of the vocabulary
    'init_from': {'run': '', 'step': 0, 'sha256': '', 'vocabulary': ''},
  }


def _data(pair: str) -> dict:
  """Returns the keys that say where pairs come from, and which are left out."""
  if pair not in PAIRS:
    raise ValueError(f'{pair!r} is none of the pairs of languages: {", ".join(PAIRS)}')
  source, target = pair.split('-')
  return {
    'name': f'wmt14.{pair}',  # the folder below --data_dir
    # 'wmt14' (by tfds, or from --raw_dir), 'files' (those below), 'trees' (treebanks,
    # NAME.mrg, below), or 'embedded'
    'reader': 'wmt14',
    'source_language': source,
    'target_language': target,
    'raw_dir': '',  # the folder of the files, without --raw_dir
    # Names of its files without the language: train.en, train.de ... ('drawn:1000'
    # draws so many pairs from train, for dev and test)
    'files': {
      'train': ('train',),
      'dev': ('newstest2013',),
      'test': ('newstest2014',),
    },
    'tags': True,  # trees only: the target has each word's tag; False: XX for all
    'numbers': False,  # trees only: the target has each word's number before its tag
    # Trees only: each source word is one piece; a rare word becomes its class's piece
    'whole_words': False,
    'suffix': '',  # between name and language, such as Multi30k's '.lc.norm.tok'
    'tokenized': False,  # True: the files are tokenised, and scored as they are
    'seed': 1,  # of samples drawn in preparing; config.seed is of training
    # Training pairs beyond these limits are dropped. The paper names no such limits;
    # its code had only max_length.
    'cleaning': {
      'off': False,  # True: none of these limits; what is no text is still dropped
      'max_characters': 5000,  # of either sentence
      'max_ratio': 9.0,  # of the numbers of words, as in Moses's cleaner
      'drop_untranslated': True,  # pairs of equal sentences
      'min_alphanumeric': 0.3,  # fraction of letters and digits; spaces do not count
    },
    # At most so many are kept. They are drawn by a hash of their text, so that they are
    # the same in any order of the corpus
    'train_pairs': 10**9,
    # The vocabulary is learnt from a random sample of so many pairs
    'vocabulary_pairs': 1_000_000,
    'character_coverage': 0.99995,  # rarer characters are spelt in bytes
    'byte_fallback': True,
    'max_length': 256,  # tokens of a sentence, with EOS; longer pairs are dropped
  }
