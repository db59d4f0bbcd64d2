"""A task's output: how a line is read and written, its scores, its report's section."""

import dataclasses
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer_jax.data.vocabulary import Vocabularies, Vocabulary


class SystemOutput(NamedTuple):
  """What a system writes for a test set, one line per sentence."""

  hypotheses: list[str]
  references: list[str]
  language: str  # of the text
  tokenized: bool  # whether the lines are tokens, which are scored as they are
  valid: Sequence[bool] = ()  # of each line, as Output.finish returns it


@dataclasses.dataclass(frozen=True)
class Scorer:
  """The functions that score and compare outputs of a task.

  Attributes:
    has_bleu: whether scores are BLEU, which can choose checkpoints.
    check: takes whether the text is tokenized and its language; raises UserError if
      the scorer of such a text is not installed.
    references: takes a held-out set's two texts; returns the outputs' references.
    score: returns fields of runs.result.Result.
    score_lines: takes these fields; returns the lines that show them to a user.
    comparison_lines: takes outputs and those of another system; returns the lines that
      compare the two.
  """

  has_bleu: bool
  check: Callable[[bool, str], Any]
  references: Callable[[Sequence[str], Sequence[str]], list[str]]
  score: Callable[[SystemOutput], dict[str, Any]]
  score_lines: Callable[[Any], Iterator[str]]
  comparison_lines: Callable[[SystemOutput, Sequence[str]], Iterator[str]]


@dataclasses.dataclass(frozen=True)
class Section:
  """A task's part of the report.

  Attributes:
    read_baseline: takes a file; returns the scores of another program's system, or
      None if the file is something else.
    write: takes the task's results (report.results.ScoredRun) and its baselines;
      returns lines for a terminal and the blocks.
  """

  read_baseline: Callable[[pathlib.Path], Any]
  write: Callable[[Sequence[Any], Sequence[Any]], tuple[str, list[Any]]]


# Takes tokens [B, K, L], the number of tokens so far, the padded ids of the sources
# [B, S] and the limit of each output [B]; returns what to add to the logits of the next
# token: 0 or -inf [B, K, W]. All are arrays of JAX, which is not imported here because
# that takes long.
Mask = Callable[[Any, Any, Any, Any], Any]


@dataclasses.dataclass(frozen=True)
class Output:
  """What decoding, scoring and the report need of a task.

  `transformer_jax/tasks.py` chooses it by the config, and the core gets it as an
  argument.

  Attributes:
    name: the config's `task`.
    target: takes a config; returns the map from a target line to the text that the
      model learns to write. Raises UserError if the config's keys are of another
      task.
    source: takes the source's vocabulary; returns the map from a source line to the
      text that the model reads.
    finish: takes a line and the model's output for it; returns the output as one line,
      and whether it needed no repair.
    constraint: takes the vocabularies; returns the mask of a search with `constrained`.
      None if outputs are free.
    section: of the report; None if results stand in the paper's Tables 2 and 3.
  """

  name: str
  target: Callable[[ConfigDict], Callable[[str], str]]
  source: Callable[[Vocabulary], Callable[[str], str]]
  finish: Callable[[str, str], tuple[str, bool]]
  scorer: Scorer
  constraint: Callable[[Vocabularies], Mask] | None
  section: Section | None
