"""Constituency parsing (section 6.3) as a task: words in, the tokens of a tree out."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from transformer_jax.data import sources
from transformer_jax.data.corpus import Corpus, Splits
from transformer_jax.data.task import Constraint, Outputs, Scorer, Section, Task
from transformer_jax.data.vocabulary import Vocabulary
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import evalb, pcfg, treebanks, trees, words
from transformer_jax.parsing.evalb import Parsing
from transformer_jax.parsing.tree_mask import TreeMask
from transformer_jax.parsing.trees import REPAIRS, Tree
from transformer_jax.runs.result import Result


def _splits(corpus: Corpus, raw_dir: pathlib.Path | None, _: Any) -> Splits:
  folder = sources.check_folder(corpus, raw_dir)
  return treebanks.read_splits(folder, corpus.files, corpus.seed)


def _target(corpus: Corpus) -> Callable[[str], str]:
  if corpus.whole_words and not corpus.target_vocab_size:
    raise UserError(
      'whole_words needs a vocabulary of the target (--config.model.target_vocab_size)'
    )
  return treebanks.target(corpus.tags, corpus.numbers)


def _source(vocabulary: Vocabulary) -> Callable[[str], str]:
  read = words.reader(vocabulary)
  return lambda line: read(' '.join(trees.words(line)))


def _finish(line: str, output: str) -> tuple[str, dict[str, int]]:
  tokens = trees.without_numbers(output.split())
  tree, repairs = trees.repair(tokens, trees.words(line))
  return str(tree), repairs


def _references(sources: Sequence[str], targets: Sequence[str]) -> list[str]:
  pairs = zip(sources, targets, strict=True)
  return [str(Tree(source.split(' '), tokens.split(' '))) for source, tokens in pairs]


def _score(outputs: Outputs) -> dict[str, Any]:
  repairs = outputs.repairs
  scores = evalb.score(outputs.references, outputs.hypotheses)
  return {
    'text': 'trees',
    'parsing': dataclasses.asdict(scores),
    'valid': 100 * sum(not one for one in repairs) / len(repairs),
    'repairs': {kind: sum(one.get(kind, 0) for one in repairs) for kind in REPAIRS},
  }


def _score_lines(result: Result) -> Iterator[str]:
  yield from evalb.score_lines(Parsing.from_json(result.parsing))
  if result.valid == 100:
    yield 'all outputs were trees'
    return
  if result.valid:
    yield f'{result.valid:.2f} % of the outputs were trees, the others were repaired:'
  else:
    yield 'no output was a tree; all were repaired:'
  for kind, count in result.repairs.items():
    if count:
      yield f'  {count} {REPAIRS[kind]}'


def _comparison_lines(outputs: Outputs, others: Sequence[str]) -> Iterator[str]:
  return evalb.comparison_lines(outputs.references, outputs.hypotheses, others)


def _section(
  scored: Sequence[Any],
  baselines: Sequence[pcfg.Baseline],
  texts: Any,
  samples: int,
) -> tuple[str, list]:
  from transformer_jax.parsing import table4  # it draws, which loads slowly

  blocks = table4.blocks(scored, baselines, texts, samples)
  return table4.summary(scored, baselines), blocks


PARSING = Task(
  name='parsing',
  readers={'trees': _splits},
  target=_target,
  learners=words.learners,
  source=_source,
  finish=_finish,
  scorer=Scorer(
    has_bleu=False,
    check=lambda tokenized, language: None,
    references=_references,
    score=_score,
    score_lines=_score_lines,
    comparison_lines=_comparison_lines,
  ),
  constraint=Constraint(size=lambda line: len(trees.words(line)), mask=TreeMask.of),
  section=Section(read_baseline=pcfg.read_baseline, write=_section),
)
