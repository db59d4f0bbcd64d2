"""The last leg of a run: average, search, score, compare and write (section 6.1)."""

import json
import pathlib
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tqdm import tqdm

from transformer_jax.data import card, token_files
from transformer_jax.data.corpus import folder_of
from transformer_jax.data.task import Outputs, Task
from transformer_jax.decoding.translate import Hypothesis, Translator
from transformer_jax.machine import environment, files, platform
from transformer_jax.machine.devices import replicate_read_only
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import Interruption
from transformer_jax.model import build, flops
from transformer_jax.runs.result import SCORES, VERSION, Result
from transformer_jax.runs.run import Run, chosen_steps
from transformer_jax.scoring import text
from transformer_jax.training import checkpoint
from transformer_jax.training.perplexity import Perplexity

PACKAGES = ('jax', 'flax', 'optax', 'sentencepiece', 'sacrebleu', 'sacremoses')


class Options(NamedTuple):
  """What to evaluate a run on, and how; None means what its config says."""

  split: str  # 'dev' or 'test'
  average: int | None  # how many checkpoints
  step: int | str | None  # the last of them; 'best': the best on dev; None: the newest
  beam: int | None
  alpha: float | None
  lowercase: bool  # whether scores ignore case


class Evaluation:
  """An evaluation of a run, which starts the devices; scores are computed on request.

  Attributes:
    translations: the file of the outputs, there or not.
  """

  def __init__(self, run: Run, task: Task, data_dir: pathlib.Path, options: Options):
    """Raises UserError if the run is not whole, or has no such checkpoint."""
    config = run.config_to_search(options.beam, options.alpha)
    if options.lowercase and not task.scorer.has_bleu:
      raise UserError(f'--lowercase: scores of {config.task} know no case')
    # Before the long work.
    task.scorer.check(config.data.tokenized, config.data.target_language)
    self._run, self._config, self._options = run, config, options
    self._task = task
    self._corpus = folder_of(config.data.name, data_dir)
    self._steps = chosen_steps(run, config, options.average, options.step)
    platform.start(config.slices)
    searched = self._steps[-1], len(self._steps), config.beam, config.alpha
    self.translations = run.translations(options.split, *searched, options.lowercase)

  def evaluate(self) -> tuple[Result, list[str]]:
    """Averages, searches and scores: the result, and the output of each sentence.

    Raises:
      UserError, OSError: the run's corpus is not there, or its folder is read-only.
    """
    config, options, run = self._config, self._options, self._run
    run.check_corpus(self._corpus)
    run.check_vocabulary(self._corpus)
    for split in dict.fromkeys((options.split, 'dev')):  # a result has dev's perplexity
      run.check_held_out(self._corpus, split)
    files.writable(self.translations.parent)
    graph, shapes = build.architecture(config)
    _say(f'averaging {len(self._steps)} checkpoints up to step {self._steps[-1]}')
    params = checkpoint.average(run.checkpoints, self._steps, shapes)
    params = replicate_read_only(params)
    held = card.read_text(self._corpus, options.split)
    translator = Translator(config, self._task, run.vocabularies(), params)
    perplexity = Perplexity(config, graph, *token_files.read_split(self._corpus, 'dev'))
    bar = lambda items: tqdm(items, desc='translating', unit='batch', disable=None)
    _say(f'translating {len(held[0]):,} sentences; each length is compiled first')
    searched = translator.translate(held[0], nbest=1, progress=bar)
    best = [found for (found,) in searched]
    outputs = [one.text for one in best]
    for line in (*translator.cuts(), *perplexity.cuts()):
      print(line, file=sys.stderr)
    _say('scoring, with intervals')
    scores = self._task.scorer.score(self._outputs(outputs, held, best))
    _say('measuring dev perplexity')
    about = card.read_card(self._corpus)
    result = Result(
      version=VERSION,
      task=config.task,
      row=config.row,
      split=options.split,
      step=self._steps[-1],
      averaged=self._steps,
      beam=config.beam,
      alpha=config.alpha,
      decode_dtype=translator.dtype.name,
      **dict.fromkeys(SCORES) | scores,
      dev_perplexity=perplexity(params),
      sources_cut=translator.cut_sources,
      outputs_cut=translator.cut_outputs,
      dev_pairs_cut=perplexity.cut_pairs,
      parameters=flops.parameters(config.model),
      **run.training_so_far(self._steps[-1]),
      device=platform.describe_device(),
      versions=environment.versions(PACKAGES),
      commit=environment.commit(),
      corpus=about.identity,
      references=about.sha256[f'{options.split}.target.txt'],
      config=json.loads(run.config().to_json_best_effort()),  # without the options
    )
    return result, outputs

  def _outputs(
    self,
    outputs: Sequence[str],
    held: tuple[list[str], list[str]],
    best: Sequence[Hypothesis] = (),
  ) -> Outputs:
    """Outputs beside what the task scores them against."""
    return Outputs(
      [*outputs],
      self._task.scorer.references(*held),
      self._config.data.target_language,
      self._config.data.tokenized,
      self._options.lowercase,
      [one.repairs for one in best],
    )

  def is_made(self) -> bool:
    """Whether there are outputs of a search with the config's present settings."""
    path = self.translations.with_suffix('.json')
    if not (self.translations.is_file() and path.is_file()):
      return False
    made, config = Result.read(path), self._config
    dtype = platform.decoding_dtype(config.decode_dtype).name
    length = made.config['extra_length'] if 'extra_length' in made.config else None
    return (made.decode_dtype, length) == (dtype, config.extra_length)

  def write(self, result: Result, outputs: Sequence[str]) -> None:
    """Writes the outputs and the result under translations/, and the run's newest."""
    files.write(self.translations, ''.join(line + '\n' for line in outputs))
    result.write(self.translations.with_suffix('.json'))
    result.write(self._run.workdir / 'result.json')

  def show(self, result: Result) -> Iterator[str]:
    """The result for a reader."""
    yield from self._task.scorer.score_lines(result)
    yield f'dev perplexity {result.dev_perplexity:.3f} per piece'

  def baseline(self, other: Run) -> list[str]:
    """The newest outputs of a run, to compare with.

    Raises:
      UserError: there are none, or they are of another test set, or are our own.
    """
    path, split = other.workdir / 'result.json', self._options.split
    try:
      result = Result.read(path)
    except UserError as error:
      raise UserError(f'no result to compare with: {error}') from error
    if result.split != split:
      raise UserError(
        f'{path} is of {result.split}: evaluate it with --split={split} first'
      )
    theirs = result.translations(other)
    if theirs.resolve() == self.translations.resolve():
      raise UserError(
        f'{path} is of {self.translations} itself: evaluate the other result of this '
        'run again, so that it is the newest'
      )
    self._run.check_held_out(self._corpus, split)
    name = f'{split}.target.txt'
    sums = [card.read_card(run.workdir).sha256[name] for run in (self._run, other)]
    if sums[0] != sums[1]:
      raise UserError(
        f'{self._run.workdir} and {other.workdir} are not of the same {split} set'
      )
    print(f'against {theirs}', file=sys.stderr)
    return text.read_lines(theirs)

  def compare(self, baseline: Sequence[str]) -> Iterator[str]:
    """How much better the outputs that were written are than others, for a reader."""
    ours = text.read_lines(self.translations)
    outputs = self._outputs(ours, card.read_text(self._corpus, self._options.split))
    return self._task.scorer.comparison_lines(outputs, baseline)


def _say(doing: str) -> None:
  print(doing, file=sys.stderr, flush=True)


def evaluate_run(
  run: Run,
  task: Task,
  data_dir: pathlib.Path,
  against: pathlib.Path | None,
  options: Options,
  interruption: Interruption,
) -> Iterator[str]:
  """Evaluates a run and yields, line by line, what was found and where it stands.

  Args:
    against: another run's folder. The run is then compared with the other's newest
      result, and evaluated only if it was not yet.

  Raises:
    UserError: the run cannot be evaluated, or not be compared.
  """
  interruption.last_words = lambda: 'No result was written.'
  evaluation = Evaluation(run, task, data_dir, options)
  translations = evaluation.translations
  # Read before ours is written, which may become the newest of the same folder.
  baseline = None if against is None else evaluation.baseline(Run(against))
  if baseline is None or not evaluation.is_made():
    result, outputs = evaluation.evaluate()
    with interruption.deferred():
      evaluation.write(result, outputs)
    interruption.last_words = lambda: f'{translations} is written, and its result.'
    yield from evaluation.show(result)
  if baseline is not None:
    interruption.leave_if_requested()
    yield from evaluation.compare(baseline)
  yield str(translations)
