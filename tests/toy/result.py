"""Results as evaluations leave them: a translation's, and a parser's."""

import dataclasses
import json

from configs import quickstart
from transformer_jax.parsing import parses
from transformer_jax.runs.result import VERSION, Result
from transformer_jax.scoring.score import Score

RESULT = Result(
  version=VERSION,
  task='translation',
  row=None,
  split='test',
  text='detokenised',
  step=600,
  averaged=[500, 600],
  beam=4,
  alpha=0.6,
  decode_dtype='float32',
  sacrebleu=Score(50.5, 'nrefs:1|case:mixed|tok:13a', [49.0, 52.0]),
  paper_bleu=Score(51, 'nrefs:1|case:mixed|tok:moses-de', [50, 52.5]),
  parsing=None,
  valid=None,
  repairs=None,
  dev_perplexity=2.5,
  sources_cut=0,
  outputs_cut=1,
  dev_pairs_cut=None,
  parameters=1000,
  target_tokens_seen=10_000,
  wall_seconds=12.5,
  training_device=None,
  training_commit=None,
  device='CPU, 2 cores',
  versions={'jax': '0.10'},
  commit=None,
  corpus='abc',
  config=json.loads(quickstart.get_config().to_json_best_effort()),
)

GOLD = ['(TOP (S (NP (PRP She)) (VP (VBD laughed))))', '(TOP (FRAG (UH Oh)))']
PARSED = dataclasses.replace(
  RESULT,
  task='parsing',
  text='trees',
  sacrebleu=None,
  paper_bleu=None,
  parsing=parses.score(GOLD, [GOLD[0], '(TOP (UH Oh))']),
  valid=50.0,
  repairs={'unclosed': 1},
)
