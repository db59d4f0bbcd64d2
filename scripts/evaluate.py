"""Scores a run: average, beam search, both BLEUs, perplexity -> result.json.

  python -m scripts.evaluate --workdir=runs/quickstart --split=test
  python -m scripts.evaluate --workdir=runs/a --split=dev --against=runs/b
  python -m scripts.evaluate --hypotheses=FILE --references=FILE --target_language=de \\
    [--against_hypotheses=FILE]

The translations and this result stay under WORKDIR/translations/, whatever was
evaluated before; WORKDIR/result.json is the newest. `--against` compares a run with the
newest result of another (and translates only what is not translated yet),
`--against_hypotheses` a file with another: sacreBLEU's paired bootstrap. Files are
detokenised text, a sentence a line, translated anywhere.
"""

import json
import pathlib
import sys
from collections.abc import Sequence
from typing import NamedTuple

import ml_collections
from absl import app, logging
from tqdm import tqdm

from transformer_jax.data import card, held_out, token_files
from transformer_jax.data.flags import data_dir
from transformer_jax.decoding.translate import Translator
from transformer_jax.machine import files, flags, parallel, platform, provenance
from transformer_jax.machine.signals import Interruption
from transformer_jax.model import flops
from transformer_jax.model.build import architecture
from transformer_jax.report.results import is_lowercase
from transformer_jax.runs.run import Run
from transformer_jax.scoring import bleu, moses, significance
from transformer_jax.training import checkpoint
from transformer_jax.training.perplexity import Perplexity

FLAGS = flags.Flags(__doc__)
WORKDIR = FLAGS.string('workdir', None, "The run's folder.")
SPLIT = FLAGS.choice('split', 'test', ['dev', 'test'], 'What to score on.')
AVERAGE = FLAGS.integer(
  'average',
  None,
  "How many checkpoints to average; the config's by default.",
  at_least=1,
)
STEP = FLAGS.integer('step', None, 'The last of them; the newest by default.')
BEAM = FLAGS.integer('beam', None, "Beam size; the config's by default.", at_least=1)
ALPHA = FLAGS.number('alpha', None, "Length penalty; the config's by default.")
LOWERCASE = FLAGS.boolean('lowercase', 'Ignore case in BLEU, and say so.')
AGAINST = FLAGS.string(
  'against', None, "Another run's folder, to compare its newest translations with."
)
HYPOTHESES = FLAGS.string('hypotheses', None, 'Score this file, not a run.')
REFERENCES = FLAGS.string('references', None, 'What --hypotheses should say.')
TARGET_LANGUAGE = FLAGS.string('target_language', None, 'Of --hypotheses: de.')
TOKENIZED = FLAGS.boolean('tokenized', 'The files hold tokens already.')
AGAINST_HYPOTHESES = FLAGS.string(
  'against_hypotheses', None, 'Another file, to compare --hypotheses with.'
)

PACKAGES = ('jax', 'flax', 'optax', 'sentencepiece', 'sacrebleu', 'sacremoses')
DATA_DIR = data_dir(FLAGS)


class Text(NamedTuple):
  """Sentences that should be translated like the references."""

  hypotheses: list[str]
  references: list[str]
  language: str
  tokenized: bool  # tokens given are not tokenised again

  @property
  def kind(self) -> str:
    """What is scored: no signature tells that there are no capitals to score."""
    kind = 'tokens as given' if self.tokenized else 'detokenised'
    return kind + (', lower-cased' if '\n'.join(self.references).islower() else '')


def scores(text: Text) -> dict:
  """Both BLEUs, their 95 % intervals by sacreBLEU's bootstrap, and of what text."""
  sacre = bleu.sacre_bleu(*text[:2], LOWERCASE.value, text.tokenized)
  if text.tokenized:
    paper = bleu.tokenized_bleu(*text[:2], LOWERCASE.value)
  else:
    paper = bleu.paper_bleu(*text[:3], LOWERCASE.value)
  intervals = significance.bootstrap_intervals(*text, LOWERCASE.value)
  return {
    kind: vars(score) | {'interval': [round(x, 4) for x in intervals[kind]]}
    for kind, score in (('sacrebleu', sacre), ('paper_bleu', paper))
  } | {'text': text.kind}


def compare(text: Text, baseline: list[str]) -> None:
  """Prints how much better than the baseline's translations, by paired bootstrap."""
  hypotheses, *rest = text
  paired = significance.paired_bootstrap(hypotheses, baseline, *rest, LOWERCASE.value)
  for kind, found in paired.items():
    print(
      f'{kind} {found.score:.2f} [{_between(found.interval)}] against '
      f'{found.baseline:.2f} [{_between(found.baseline_interval)}]: '
      f'{found.score - found.baseline:+.2f}, p = {found.p:.4f}  {found.signature}'
    )


def _between(interval: Sequence[float]) -> str:
  return f'{interval[0]:.2f}, {interval[1]:.2f}'


def show(result: dict) -> None:
  for kind in ('sacrebleu', 'paper_bleu'):
    print(f'{kind} {result[kind]["score"]:.2f}  {result[kind]["signature"]}')
    print(f'  95 % interval: {_between(result[kind]["interval"])}')
  if result['text'] != 'detokenised':
    print(f'of {result["text"]}: to be compared with scores of the same text alone')


def steps_asked(run: Run, config: ml_collections.ConfigDict) -> list[int]:
  """The checkpoints that --average and --step mean."""
  average = config.average_last if AVERAGE.value is None else AVERAGE.value
  steps = checkpoint.to_average(
    run.checkpoints, config.checkpoint_every_steps, average, STEP.value
  )
  if len(steps) < average:
    print(f'averaging {len(steps)} checkpoints: no more are there', file=sys.stderr)
  return steps


def evaluate(
  run: Run, config: ml_collections.ConfigDict, steps: list[int]
) -> tuple[dict, list[str]]:
  """The result of --split with the average of `steps`, and its translations."""
  corpus = pathlib.Path(DATA_DIR.value) / config.corpus
  run.check_vocabulary(corpus)
  run.check_held_out(corpus, SPLIT.value)
  graph, shapes = architecture(config)
  params = parallel.everywhere(checkpoint.average(run.checkpoints, steps, shapes))
  sources, references = held_out.text(corpus, SPLIT.value)
  translator = Translator(config, run.vocabulary(), params)
  bar = lambda items: tqdm(items, desc='translating', unit='batch', disable=None)
  found = translator.translate(sources, bar)
  hypotheses = [best[0].text for best in found]
  perplexity = Perplexity(config, graph, *token_files.read_split(corpus, 'dev'))
  for line in (*translator.cuts(), *perplexity.cuts()):
    print(line, file=sys.stderr)
  model = config.model.to_dict()
  del model['P_drop']
  result = {
    'task': config.task,
    'split': SPLIT.value,
    'step': steps[-1],
    'averaged': steps,
    'beam': config.beam,
    'alpha': config.alpha,
    'decode_dtype': translator.dtype.name,
    **scores(Text(hypotheses, references, config.target_language, config.tokenized)),
    'dev_perplexity': perplexity(params),
    'sources_cut': translator.cut_sources,
    'outputs_cut': translator.cut_outputs,
    'dev_pairs_cut': perplexity.cut_pairs,
    'parameters': flops.parameters(**model),
    **run.training_so_far(steps[-1]),
    'device': platform.describe_device(),
    'versions': provenance.versions(PACKAGES),
    'commit': provenance.commit(),
    'corpus': card.read_card(corpus)['corpus'],
    'config': json.loads(run.config().to_json_best_effort()),  # without the flags
  }
  return result, hypotheses


def read(path: str) -> list[str]:
  """A file's lines; the last may lack its end."""
  try:
    text = pathlib.Path(path).read_bytes().decode('utf-8-sig')  # without a BOM
  except (OSError, UnicodeDecodeError) as error:
    sys.exit(f'{path}: {error}')
  lines = text.removesuffix('\n').split('\n') if text else []
  return [line.removesuffix('\r') for line in lines]


def score_files() -> None:
  """--hypotheses and --against_hypotheses, by --references."""
  language = TARGET_LANGUAGE.value
  if REFERENCES.value is None or language is None:
    raise app.UsageError('--hypotheses needs --references and --target_language')
  if not TOKENIZED.value and not moses.has_rules(language):
    print(f'no abbreviations of {language} are known: English ones', file=sys.stderr)
  references = read(REFERENCES.value)
  found = []
  for path in filter(None, (HYPOTHESES.value, AGAINST_HYPOTHESES.value)):
    lines = read(path)
    if len(lines) != len(references) or not lines:
      sys.exit(
        f'{path} has {len(lines)} lines, {REFERENCES.value} has {len(references)}: '
        'a translation has one line for each of the references'
      )
    found.append(lines)
  text = Text(found[0], references, language, TOKENIZED.value)
  show(scores(text))
  if AGAINST_HYPOTHESES.value is not None:
    compare(text, found[1])


def newest(run: Run, config: ml_collections.ConfigDict, path: pathlib.Path) -> Text:
  """The newest translations of --against, if of the test set that is asked for.

  `path`: where ours are, or will be.
  """
  other = Run(pathlib.Path(AGAINST.value))
  result = other.workdir / 'result.json'
  try:
    theirs = json.loads(result.read_text())
    lowercase = is_lowercase(theirs)
    split, translations = theirs['split'], other.translations(theirs, lowercase)
  except (OSError, ValueError, KeyError, TypeError) as error:
    sys.exit(f'{result}: no result to compare with ({error!r})')
  if split != SPLIT.value:
    sys.exit(f'{result} is of {split}: evaluate it with --split={SPLIT.value} first')
  if translations.resolve() == path.resolve():
    sys.exit(
      f'{result} is of {path} itself: evaluate the other result of this run again, so '
      'that it is the newest'
    )
  name = f'{split}.target.txt'
  sums = [card.read_card(one.workdir)['sha256'][name] for one in (run, other)]
  if sums[0] != sums[1]:
    sys.exit(f'{run.workdir} and {other.workdir} are not of the same {split} set')
  corpus = pathlib.Path(DATA_DIR.value) / config.corpus
  run.check_held_out(corpus, split)
  _, references = held_out.text(corpus, split)
  print(f'against {translations}', file=sys.stderr)
  lines = read(str(translations))
  return Text(lines, references, config.target_language, config.tokenized)


def write(
  run: Run, result: dict, hypotheses: list[str], interruption: Interruption
) -> None:
  translations = run.translations(result, LOWERCASE.value)
  translations.parent.mkdir(exist_ok=True)
  text = json.dumps(result, indent=1) + '\n'
  with interruption.deferred():
    files.write(translations, ''.join(line + '\n' for line in hypotheses))
    files.write(translations.with_suffix('.json'), text)
    files.write(run.workdir / 'result.json', text)


def check_flags() -> None:
  """Those of runs and those of files are for one of them alone."""
  if (WORKDIR.value is None) == (HYPOTHESES.value is None):
    raise app.UsageError('give --workdir, or --hypotheses, to say what to score')
  for flag in (WORKDIR, AGAINST, HYPOTHESES, REFERENCES, AGAINST_HYPOTHESES):
    if flag.value == '':
      raise app.UsageError(f'--{flag.name}= is empty')
  of_files = REFERENCES, TARGET_LANGUAGE, AGAINST_HYPOTHESES
  of_runs = AGAINST, AVERAGE, STEP, BEAM, ALPHA
  given, other = ('workdir', of_files) if WORKDIR.value else ('hypotheses', of_runs)
  for flag in other:
    if flag.value is not None:
      raise app.UsageError(f'--{flag.name} does not go with --{given}')


def main(argv: list[str]) -> None:
  FLAGS.parse(argv)
  logging.set_verbosity(logging.WARNING)
  interruption = Interruption()
  interruption.last_words = lambda: 'No result was written.'
  interruption.install()
  check_flags()
  if WORKDIR.value is None:
    return score_files()
  run = Run(pathlib.Path(WORKDIR.value))
  config = run.config()
  for key, flag in (('beam', BEAM), ('alpha', ALPHA)):
    if flag.value is not None:
      config[key] = flag.value
  platform.start(config.slices)
  steps = steps_asked(run, config)
  asked = {'split': SPLIT.value, 'step': steps[-1], 'averaged': steps}
  asked |= {'beam': config.beam, 'alpha': config.alpha}
  path = run.translations(asked, LOWERCASE.value)
  # Before ours is written, which may become the newest of the same folder.
  baseline = None if AGAINST.value is None else newest(run, config, path)
  if baseline is None or not path.is_file():
    result, hypotheses = evaluate(run, config, steps)
    write(run, result, hypotheses, interruption)
    interruption.last_words = lambda: f'{path} is written, and its result.'
    show(result)
    print(f'dev perplexity {result["dev_perplexity"]:.3f} per piece')
  if baseline is not None:
    if interruption.asked:  # while it wrote
      interruption.leave()
    compare(baseline._replace(hypotheses=read(str(path))), baseline.hypotheses)
  print(path)


if __name__ == '__main__':
  flags.run(main)
