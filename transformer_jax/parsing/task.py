"""Constituency parsing (section 6.3) as a task: words in, the tokens of a tree out."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from transformer_jax.data import readers
from transformer_jax.data.corpus import Corpus
from transformer_jax.data.origin import Splits
from transformer_jax.data.task import Outputs, Scorer, Section, Task
from transformer_jax.machine.errors import UserError
from transformer_jax.parsing import baseline, parses, treebanks, trees
from transformer_jax.parsing.parses import Parsing
from transformer_jax.parsing.trees import Repairs, Tree
from transformer_jax.runs.result import Result


def _splits(corpus: Corpus, raw_dir: pathlib.Path | None, _: Any) -> Splits:
  folder = readers.check_folder(corpus, raw_dir)
  return treebanks.bitexts(folder, corpus.files, corpus.seed)


def _target(corpus: Corpus) -> Callable[[str], str]:
  if corpus.whole_words and not corpus.target_vocab_size:
    raise UserError('whole_words needs a vocabulary of the target: target_vocab_size')
  return treebanks.target(corpus.tags, corpus.numbers)


def _read(line: str) -> str:
  return ' '.join(trees.words(line))


def _finish(line: str, output: str) -> tuple[str, dict[str, int]]:
  tokens = trees.without_numbers(output.split())
  tree, repairs = trees.repair(tokens, trees.words(line))
  return str(tree), {kind: n for kind, n in repairs._asdict().items() if n}


def _references(sources: Sequence[str], targets: Sequence[str]) -> list[str]:
  pairs = zip(sources, targets, strict=True)
  return [str(Tree(words.split(' '), tokens.split(' '))) for words, tokens in pairs]


def _score(outputs: Outputs) -> dict[str, Any]:
  repairs = outputs.repairs
  scores = parses.score(outputs.references, outputs.hypotheses)
  return {
    'text': 'trees',
    'parsing': dataclasses.asdict(scores),
    'valid': 100 * sum(not one for one in repairs) / len(repairs),
    'repairs': {
      kind: sum(one.get(kind, 0) for one in repairs) for kind in Repairs._fields
    },
  }


def _score_lines(result: Result) -> Iterator[str]:
  yield from parses.score_lines(Parsing.from_json(result.parsing))
  counts = ', '.join(f'{n} {kind}' for kind, n in result.repairs.items() if n)
  repaired = f', all after repair ({counts})' if counts else ''
  yield f'{result.valid:.2f} % of the outputs were trees{repaired}'


def _comparison_lines(outputs: Outputs, others: Sequence[str]) -> Iterator[str]:
  return parses.comparison_lines(outputs.references, outputs.hypotheses, others)


def _section(
  scored: Sequence[Any],
  baselines: Sequence[baseline.Baseline],
  data_dir: pathlib.Path,
  samples: int,
) -> tuple[str, list]:
  from transformer_jax.parsing import table4  # it draws, which loads slowly

  blocks = table4.blocks(scored, baselines, data_dir, samples)
  return table4.summary(scored, baselines), blocks


PARSING = Task(
  name='parsing',
  readers={'trees': _splits},
  target=_target,
  target_has_tokens=True,
  read=_read,
  finish=_finish,
  scorer=Scorer(
    has_bleu=False,
    check=lambda tokenized, language: None,
    references=_references,
    score=_score,
    score_lines=_score_lines,
    comparison_lines=_comparison_lines,
  ),
  section=Section(read_baseline=baseline.read, write=_section),
)
