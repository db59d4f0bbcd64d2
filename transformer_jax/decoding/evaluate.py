"""Evaluates a trained run: searches, scores, compares and writes (section 6.1)."""

import pathlib
import sys
import time
from collections.abc import Iterator, Sequence

import ml_collections
from jaxtyping import PyTree
from tqdm import tqdm

from transformer_jax import config as configs
from transformer_jax.data.corpus import Corpus, read_card
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.decoding.translate import Translator
from transformer_jax.machine import files, platform
from transformer_jax.machine.errors import UserError
from transformer_jax.machine.signals import Interruption
from transformer_jax.model import flops
from transformer_jax.runs.result import VERSION, Result, overlap_of_today
from transformer_jax.runs.run import Run
from transformer_jax.scoring import bleu
from transformer_jax.scoring.output import Output, SystemOutput
from transformer_jax.scoring.translations import perplexity_text
from transformer_jax.training.perplexity import Perplexity

PACKAGES = ('jax', 'flax', 'optax', 'sentencepiece', 'sacrebleu', 'sacremoses')
SAMPLES = 3  # translations that training shows


class Evaluation:
  """Searches for a run's outputs for dev or test, scores, compares and writes them."""

  def __init__(self, loaded: LoadedRun, data_dir: pathlib.Path, split: str):
    """Raises UserError if the split cannot be scored, before the long work."""
    config, scorer = loaded.config, loaded.output.scorer
    scorer.check(config.data.tokenized, config.data.target_language)
    self._loaded, self._split = loaded, split
    self._corpus = loaded.run.open_corpus(data_dir / config.data.name)
    self._references = scorer.references(*self._corpus.text(split))

  @property
  def translations(self) -> pathlib.Path:
    """Returns the file of the outputs, which may not exist yet."""
    loaded = self._loaded
    searched = len(loaded.steps), loaded.config.beam, loaded.config.alpha
    return loaded.run.translations(self._split, loaded.steps[-1], *searched)

  def evaluate(self) -> tuple[Result, list[str]]:
    """Returns the result of a search, and the output of each sentence."""
    loaded, config, run = self._loaded, self._loaded.config, self._loaded.run
    sources, _ = self._corpus.text(self._split)
    card = self._corpus.card
    files.ensure_writable(self.translations.parent)
    files.ensure_writable(run.workdir)
    translator = loaded.translator  # reads the checkpoints
    _say(f'checkpoints averaged: {len(loaded.steps)}, up to step {loaded.steps[-1]}')
    perplexity = Perplexity(config, loaded.graph, *self._corpus.split('dev'))
    _say(f'translating {len(sources):,} sentences; each length is compiled first')
    start = time.monotonic()
    texts, valid = _translate(loaded, sources)
    seconds = round(time.monotonic() - start, 1)
    for line in perplexity.warnings:
      print(line, file=sys.stderr)
    _say('scoring, with intervals')
    scores = loaded.output.scorer.score(self._outputs(texts, valid))
    _say('measuring dev perplexity')
    result = Result(
      version=VERSION,
      task=config.task,
      row=config.row,
      split=self._split,
      step=loaded.steps[-1],
      averaged=loaded.steps,
      beam=config.beam,
      alpha=config.alpha,
      decode_dtype=translator.dtype.name,
      **scores,
      dev_perplexity=perplexity(loaded.device_params),
      sources_cut=translator.cut_sources,
      outputs_cut=translator.cut_outputs,
      dev_pairs_cut=perplexity.cut_pairs,
      parameters=flops.parameters(config.model),
      **run.training_so_far(loaded.steps[-1]),
      device=platform.describe_device(),
      search_seconds=seconds,
      versions=platform.versions(PACKAGES),
      commit=platform.commit(),
      corpus=card.identity,
      references=card.sha256[f'{self._split}.target.txt'],
      overlap=overlap_of_today(card.splits[self._split].overlap),
      config=configs.as_json(run.config()),  # without the options of this search
    )
    return result, texts

  def _outputs(self, texts: list[str], valid: Sequence[bool] = ()) -> SystemOutput:
    """Returns outputs with the references that the task scores them against."""
    data = self._loaded.config.data
    return SystemOutput(
      texts, self._references, data.target_language, data.tokenized, valid
    )

  def is_current(self) -> bool:
    """Returns True if outputs of this search exist, and their result."""
    path = self.translations.with_suffix('.json')
    if not (self.translations.is_file() and path.is_file()):
      return False
    dtype = platform.decoding_dtype(self._loaded.config.decode_dtype).name
    try:
      result = Result.read(path)
    except UserError:  # damaged, so it is made again
      return False
    stored = configs.as_json(self._loaded.run.config())
    search = lambda config: configs.values(config, configs.Tag.SEARCH)
    return result.decode_dtype == dtype and search(result.config) == search(stored)

  def write(self, result: Result, outputs: Sequence[str]) -> None:
    """Writes outputs and result to translations/, and the result to result.json."""
    files.write(self.translations, ''.join(line + '\n' for line in outputs))
    result.write(self.translations.with_suffix('.json'))
    result.write(self._loaded.run.workdir / 'result.json')

  def baseline(self, other: Run) -> tuple[Result, list[str]]:
    """Returns another run's result of the same search, and its outputs.

    Where it has none, its result of the last step is taken.
    """
    run, config = self._loaded.run, self._loaded.config
    folder = other.workdir / 'translations'
    paths = {path.resolve() for path in folder.glob(f'{self._split}.*.json')}
    paths -= {self.translations.resolve().with_suffix('.json')}
    command = f'scripts.evaluate --workdir={other.workdir} --split={self._split}'
    if not paths and other.workdir.resolve() == run.workdir.resolve():
      raise UserError(
        f'{folder}: no other result of this run: give --against another run, or '
        'evaluate this one with another --step, --average, --beam or --alpha'
      )
    if not paths:
      remedy = f'python -m {command}, or give --source and --references'
      raise UserError(f'{folder}: no result to compare with: {remedy}')
    search = len(self._loaded.steps), config.beam, config.alpha
    is_like = lambda r: (len(r.averaged), r.beam, r.alpha) == search
    try:
      results = [Result.read(path) for path in sorted(paths)]
    except UserError as error:
      raise UserError(f'{error}: python -m {command}') from error
    # Not by the time of the file, which a copy may have lost.
    result = max(results, key=lambda r: (is_like(r), r.step, len(r.averaged)))
    path = result.translations(other)
    name = f'{self._split}.target.txt'
    sums = [read_card(r.workdir).sha256[name] for r in (run, other)]
    if sums[0] != sums[1]:
      raise UserError(
        f'{run.workdir} and {other.workdir} are not of the same {self._split} set'
      )
    print(f'against {path}', file=sys.stderr)
    lines = bleu.read_lines(path)
    bleu.check_lines(path, lines, self._corpus.folder / name, self._references)
    return result, lines

  def compare(self, other: Result, baseline: Sequence[str]) -> Iterator[str]:
    """Yields how checkpoint and config differ, and how much better our outputs are."""
    ours = bleu.read_lines(self.translations)
    results = Result.read(self.translations.with_suffix('.json')), other
    if results[0].step != other.step:
      yield f'step: {results[0].step} against {other.step}'
    a, b = (configs.flat(result.config | result.search()) for result in results)
    paths = {'data.raw_dir', 'init_from.run'}  # which an export leaves out
    for key in sorted(configs.differences(a, b) - paths):
      yield f'config.{key}: {a.get(key)} against {b.get(key)}'
    scorer = self._loaded.output.scorer
    yield from scorer.comparison_lines(self._outputs(ours), baseline)


def _translate(
  loaded: LoadedRun, sources: Sequence[str]
) -> tuple[list[str], list[bool]]:
  """Returns the output of each sentence, and whether it needed no repair."""
  bar = lambda items: tqdm(items, desc='translating', unit='batch', disable=None)
  best = [h for (h,) in loaded.translator.translate(sources, nbest=1, progress=bar)]
  for line in loaded.warnings():
    print(line, file=sys.stderr)
  return [h.text for h in best], [h.valid for h in best]


def _say(message: str) -> None:
  print(message, file=sys.stderr, flush=True)


def evaluate_run(
  loaded: LoadedRun,
  data_dir: pathlib.Path,
  split: str,
  against: Run | None,
  interruption: Interruption,
) -> Iterator[str]:
  """Evaluates a run and yields, line by line, its scores and the file of its outputs.

  Args:
    split: 'dev' or 'test'.
    against: another run to compare with, by its result of the same search. The run is
      then evaluated only if it has no such result yet.
  """
  interruption.last_words = lambda: 'No result was written.'
  evaluation = Evaluation(loaded, data_dir, split)
  # Read before ours is written, which may become the newest of the same folder.
  baseline = None if against is None else evaluation.baseline(against)
  if baseline is None or not evaluation.is_current():
    result, outputs = evaluation.evaluate()
    with interruption.deferred():
      evaluation.write(result, outputs)
    last_words = f'{evaluation.translations} is written, and its result.'
    interruption.last_words = lambda: last_words
    yield f'{split}: {_search(loaded)}'
    yield from loaded.output.scorer.score_lines(vars(result))
    pieces = configs.target_pieces(loaded.config.model)
    perplexity = perplexity_text(result.dev_perplexity, pieces, 3)
    yield f'dev perplexity {perplexity} per piece'
    for other, overlap in (result.overlap or {}).items():
      if any(overlap.counts().values()):
        yield f'{other} has {overlap} of this text, too'
  if baseline is not None:
    interruption.leave_if_requested()
    yield from evaluation.compare(*baseline)
  yield str(evaluation.translations)


def evaluate_files(
  loaded: LoadedRun,
  source: pathlib.Path,
  references: pathlib.Path,
  against: LoadedRun | None = None,
) -> Iterator[str]:
  """Translates a file by a run, and yields its scores, line by line.

  Writes nothing.

  Args:
    source, references: text, a sentence a line; it need not be of the run's corpus.
    against: another run, which translates the same file and is compared.

  Raises:
    UserError: a file is not UTF-8, the two differ in length, or the task
      cannot score them.
  """
  sources, targets = map(bleu.read_lines, (source, references))
  bleu.check_lines(source, sources, references, targets)
  data, scorer = loaded.config.data, loaded.output.scorer
  targets = [line.lower() if data.lowercase else line for line in targets]
  scorer.check(data.tokenized, data.target_language)
  expected = scorer.references(sources, targets)
  other = against.config.data if against else data
  for key in ('target_language', 'tokenized', 'lowercase'):
    if other[key] != data[key]:
      raise UserError(
        f'data.{key} is {data[key]} in one run and {other[key]} in the other, so their '
        'scores cannot be compared'
      )
  card = read_card(loaded.run.workdir)
  for name, split in card.splits.items():
    if card.sha256.get(f'{name}.target.txt') == files.sha256_of_lines(targets):
      names = ', '.join(entry.name for entry in split.sources)
      yield f'{references} has the references of {name} ({names}) of this run'
  how = data.target_language, data.tokenized
  outputs = []
  for model in filter(None, (loaded, against)):
    _say(f'{model.run.workdir} translates {len(sources):,} sentences')
    texts, valid = _translate(model, sources)
    outputs.append(SystemOutput(texts, expected, *how, valid))
    yield f'{model.run.workdir}: {_search(model)}'
    yield from scorer.score_lines(scorer.score(outputs[-1]))
  if against:
    yield from scorer.comparison_lines(outputs[0], outputs[1].hypotheses)


def _search(loaded: LoadedRun) -> str:
  """Returns the settings that a score depends on, as text."""
  config, steps = loaded.config, loaded.steps
  count = f'{len(steps)} checkpoints' if len(steps) > 1 else '1 checkpoint'
  return (
    f'{count} up to step {steps[-1]}, beam {config.beam}, alpha {config.alpha}, '
    f'decoded in {loaded.translator.dtype.name}'
  )


class DevBleu:
  """sacreBLEU of greedy translations of dev's first `bleu_sentences`, in training.

  Call it with parameters on this host's devices. Programs are compiled once.
  """

  def __init__(self, config: ml_collections.ConfigDict, output: Output, corpus: Corpus):
    """Raises UserError if the target's tokeniser is not installed."""
    self._config, self._output = config.copy_and_resolve_references(), output
    self._config.beam = 1
    data = config.data
    self._vocabularies = corpus.vocabularies()
    texts = corpus.text('dev')
    self._sources, self._references = (t[: config.bleu_sentences] for t in texts)
    self._metric = bleu.sacrebleu(
      data.target_language, data.tokenized, self._references
    )
    self._translator: Translator | None = None

  def __call__(self, params: PyTree) -> tuple[float, list[tuple[str, str, str]]]:
    """Returns BLEU in percent, and a few sources, translations and references."""
    if self._translator is None:
      self._translator = Translator(
        self._config, self._output, self._vocabularies, params
      )
    else:
      self._translator.replace_params(params)
    translations = self._translator.translate(self._sources, nbest=1)
    best = [hypothesis.text for (hypothesis,) in translations]
    lines = zip(self._sources, best, self._references, strict=True)
    samples = [*lines][:: -(-len(best) // SAMPLES)]  # evenly spaced
    return self._metric.percent(best, self._references), samples
