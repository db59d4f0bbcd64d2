"""A run's folder belongs to one config, one corpus and one trainer at a time."""

import json
import pathlib
import shutil
import socket
import subprocess
import sys

import ml_collections
import pytest
from msgspec.structs import replace

from configs import base
from transformer_jax.data import card, prepare
from transformer_jax.data.corpus import SPLITS, Corpus, Source
from transformer_jax.data.vocabulary import Vocabulary
from transformer_jax.machine.errors import UserError
from transformer_jax.runs.run import Run, RunLocked
from transformer_jax.tasks import TRANSLATION

ROOT = pathlib.Path(__file__).parents[2]
LINES = ['one two three four five', 'six seven eight nine ten']


def prepared(
  data_dir: pathlib.Path, name: str, extra: str = '', own: int = 0
) -> pathlib.Path:
  """A corpus with LINES and an `extra` one as each of its splits."""
  pairs = [(line, line) for line in [*LINES, extra]]
  splits = {split: [Source(split, (), lambda: iter(pairs))] for split in SPLITS}
  corpus = replace(Corpus.of(small_config()), name=name, target_vocab_size=own)
  prepare.write_corpus(corpus, TRANSLATION, splits, data_dir)
  return data_dir / name


def small_config() -> ml_collections.ConfigDict:
  config = base.get_config()
  config.model.vocab_size = 30
  config.data.character_coverage, config.data.byte_fallback = 1.0, False
  config.data.cleaning.drop_untranslated = False
  return config


@pytest.fixture(scope='module')
def corpus(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  return prepared(tmp_path_factory.mktemp('data'), 'toy')


@pytest.fixture(scope='module')
def other_corpus(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  extra = 'nine nine nine nine one'
  return prepared(tmp_path_factory.mktemp('data'), 'other', extra)


@pytest.fixture
def config() -> ml_collections.ConfigDict:
  return small_config()


@pytest.fixture
def run(tmp_path: pathlib.Path, config, corpus: pathlib.Path) -> Run:
  return Run.open(tmp_path / 'runs' / 'new', config, corpus)


@pytest.fixture
def begun(run: Run) -> Run:
  """The same run after its first steps."""
  run.metrics.write_text('{"step": 5, "loss": 1.0}\n')
  return run


def edit_config(run: Run, **values: object) -> None:
  """Changes values of config.json, or deletes those that are '-'."""
  path = run.workdir / 'config.json'
  config = json.loads(path.read_text()) | values
  kept = {key: value for key, value in config.items() if value != '-'}
  path.write_text(json.dumps(kept))


# Opened


def test_a_new_run(run: Run, corpus, config):
  names = sorted(path.name for path in run.workdir.iterdir())
  assert names == ['card.json', 'config.json', 'vocabulary.model']
  assert run.config().to_dict() == json.loads(config.to_json_best_effort())
  assert run.config().is_locked
  listed = card.read_card(corpus)
  assert run.vocabularies().source.sha256 == listed.vocabulary.sha256
  assert (run.workdir / 'card.json').read_bytes() == (corpus / 'card.json').read_bytes()


def test_the_same_run_is_opened_again_and_may_be_prolonged(run: Run, corpus, config):
  before = (run.workdir / 'config.json').read_bytes()
  Run.open(run.workdir, config, corpus)
  assert (run.workdir / 'config.json').read_bytes() == before
  config.train_steps += 5
  Run.open(run.workdir, config, corpus)
  assert run.config().train_steps == config.train_steps


def test_the_run_of_another_config_is_refused(begun: Run, corpus, config):
  """All that differ are named, train_steps is not, and nothing is written."""
  edit_config(begun, beam=3)
  before = (begun.workdir / 'config.json').read_bytes()
  config.model.P_drop = 0.25
  config.seed = 2
  config.train_steps += 1
  with pytest.raises(UserError) as caught:
    Run.open(begun.workdir, config, corpus)
  message = str(caught.value)
  differ = 'beam, model.P_drop, seed'
  assert f"holds another config's run; these differ: {differ}. " in message
  assert '--workdir' in message
  assert (begun.workdir / 'config.json').read_bytes() == before


def test_a_run_of_another_version(run: Run, config, corpus):
  """What it lacks, or has too much, is named where it is read."""
  for edit, said in (
    ({'beam': '-'}, 'config.json: the config lacks beam,'),
    ({'gates': 1}, 'config.json: the config has gates, which this version does not'),
  ):
    edit_config(run, **edit)
    with pytest.raises(UserError, match=said):
      run.config()
    Run.open(run.workdir, config, corpus)  # which is not started, and so may change


@pytest.mark.parametrize(
  ('key', 'value'),
  [
    ('data.max_length', 9),
    ('data.source_language', 'fr'),
    ('data.target_language', 'x'),
    ('model.vocab_size', 31),
  ],
)
def test_a_corpus_of_another_config(key, value, corpus, config, tmp_path: pathlib.Path):
  config.update_from_flattened_dict({key: value})
  key = key.rpartition('.')[2]
  with pytest.raises(UserError, match=rf'toy was prepared with {key}=.*says {value}:'):
    Run.open(tmp_path / 'run', config, corpus)
  assert not (tmp_path / 'run').exists()


def test_numbers_that_no_run_can_have(corpus, config, tmp_path: pathlib.Path):
  """They are refused before there is a folder, which would hold another's run then."""
  config.beam = 0
  with pytest.raises(UserError, match='^beam=0: expected a whole number >= 1'):
    Run.open(tmp_path / 'run', config, corpus)
  assert not (tmp_path / 'run').exists()


def test_another_vocabulary_is_one_clear_sentence(begun: Run, config, other_corpus):
  for check in (
    lambda: Run.open(begun.workdir, config, other_corpus),
    lambda: begun.check_corpus(other_corpus),
  ):
    with pytest.raises(UserError) as caught:
      check()
    assert "has another vocabulary than the run's corpus" in str(caught.value)
    assert '\n' not in str(caught.value)


def test_a_run_goes_on_with_its_own_text_alone(begun: Run, corpus, config, tmp_path):
  """Batches would be others with other pairs, and dev's curve with another dev."""
  folder = tmp_path / 'data' / 'toy'
  for split in ('train', 'dev'):
    shutil.copytree(corpus, folder)
    listed = json.loads((folder / 'card.json').read_text())
    name = next(name for name in listed['sha256'] if name.startswith(split))
    listed['sha256'][name] = 'f' * 64
    listed['identity'] = 'f' * 64
    (folder / 'card.json').write_text(json.dumps(listed))
    with pytest.raises(
      UserError, match='toy .* has another text than the run.s corpus'
    ):
      Run.open(begun.workdir, config, folder)
    shutil.rmtree(folder)
  Run.open(begun.workdir, config, corpus)


def test_before_its_first_step_a_run_may_change(run: Run, config, other_corpus):
  """As after an error that advises another config, such as of memory."""
  config.slices = 4
  Run.open(run.workdir, config, other_corpus)
  assert run.config().slices == 4
  assert (run.workdir / 'card.json').read_bytes() == (
    other_corpus / 'card.json'
  ).read_bytes()
  run.check_corpus(other_corpus)


def test_a_corpus_to_score_a_run_on(begun: Run, corpus, tmp_path: pathlib.Path):
  begun.check_corpus(corpus)
  train = f'by scripts.train --workdir={begun.workdir}'
  with pytest.raises(UserError, match=f"none: the run's corpus is not there.*{train}"):
    begun.check_corpus(tmp_path / 'none')
  listed = json.loads((begun.workdir / 'card.json').read_text())
  (begun.workdir / 'card.json').write_text(json.dumps(listed | {'splits': {}}))
  given = begun.config().to_dict()
  for check in (lambda: begun.check_corpus(corpus), lambda: begun.check_config(given)):
    with pytest.raises(UserError, match='was imported without a corpus.*--prepare'):
      check()


def test_a_vocabulary_of_the_targets_own(config, tmp_path: pathlib.Path):
  """It is copied into the run, and neither may be another."""
  folder = prepared(tmp_path, 'apart', own=20)
  config.model.target_vocab_size = 20
  run = Run.open(tmp_path / 'run', config, folder)
  assert [*map(len, run.vocabularies())] == [30, 20]
  assert run.vocabularies().target.sha256 == card.vocabularies(folder).target.sha256
  shutil.copy(run.workdir / 'vocabulary.model', run.workdir / 'vocabulary.target.model')
  with pytest.raises(UserError, match=r"target.model \(.*is not the run's vocabulary"):
    run.vocabularies()


def test_a_swapped_vocabulary_is_refused(begun: Run, config, corpus, other_corpus):
  """A good one of another corpus, which would decode to other words, and a torn one."""
  path = begun.workdir / 'vocabulary.model'
  ours = path.read_bytes()
  for content in ((other_corpus / 'vocabulary.model').read_bytes(), ours[:-1], b''):
    path.write_bytes(content)
    for use in (
      begun.vocabularies,
      lambda: Run.open(begun.workdir, config, corpus),
    ):
      with pytest.raises(UserError, match="is not the run's vocabulary") as caught:
        use()
      assert str(path) in str(caught.value) and '\n' not in str(caught.value)
  path.write_bytes(ours)
  assert len(begun.vocabularies().source) == 30


def test_held_out_text_that_was_edited(run: Run, corpus, tmp_path: pathlib.Path):
  folder = shutil.copytree(corpus, tmp_path / 'copy')
  run.check_corpus(folder, ['dev'])
  with (folder / 'dev.source.txt').open('a') as file:
    file.write('more')
  with pytest.raises(UserError, match=r'dev\.source\.txt is not that of .*card\.json'):
    run.check_corpus(folder, ['dev'])


def test_fewer_steps_than_were_made(run: Run, corpus, config):
  run.metrics.write_text('{"step": 30}\n')
  kept = (run.workdir / 'config.json').read_bytes()
  config.train_steps = 29
  with pytest.raises(UserError, match='has 30 steps: train_steps=29 would be another'):
    Run.open(run.workdir, config, corpus)
  assert (run.workdir / 'config.json').read_bytes() == kept
  config.train_steps = 30
  Run.open(run.workdir, config, corpus)


SAVED = '{"step": 57, "loss": 1.0}\n{"step": 50, "saved": true}\n'


@pytest.mark.parametrize('rest', ['metrics.jsonl', 'translations'])
def test_checkpoints_that_are_gone(rest: str, run: Run, corpus, config):
  """Trained anew, the run would take the metrics and results of before for its own."""
  run.metrics.write_text(SAVED)
  (run.workdir / 'translations').mkdir()
  (run.checkpoints / '50').mkdir(parents=True)
  Run.open(run.workdir, config, corpus)
  (run.checkpoints / '50').rename(run.checkpoints / '50.damaged')
  if rest != 'metrics.jsonl':
    run.metrics.unlink()
  for _ in range(2):
    with pytest.raises(UserError, match=f'holds no checkpoint, and .*{rest} tells of'):
      Run.open(run.workdir, config, corpus)
  shutil.rmtree(run.workdir / 'translations')
  run.metrics.unlink(missing_ok=True)
  Run.open(run.workdir, config, corpus)


def test_before_the_first_checkpoint_a_run_begins_anew(run: Run, corpus, config):
  """It was killed then, and nothing is gone."""
  run.metrics.write_text('{"step": 5, "loss": 1.0}\n{"step": 5, "dev_perplexity": 2}\n')
  Run.open(run.workdir, config, corpus)
  assert run.newest_saved() == 0


def test_no_corpus_and_no_run(config, tmp_path: pathlib.Path):
  with pytest.raises(UserError, match=r'card\.json: not there; run script'):
    Run.open(tmp_path / 'run', config, tmp_path / 'nowhere')
  assert not (tmp_path / 'run').exists()
  with pytest.raises(UserError, match='is .* a run'):
    Run(tmp_path).config()


def test_a_kill_while_the_run_is_made(corpus, config, tmp_path: pathlib.Path):
  """config.json comes last: what is torn before is made again."""
  (tmp_path / 'run').mkdir()
  (tmp_path / 'run' / 'vocabulary.model').write_bytes(b'torn')
  run = Run.open(tmp_path / 'run', config, corpus)
  assert (
    run.vocabularies().source.sha256 == Vocabulary(corpus / 'vocabulary.model').sha256
  )


# Read


@pytest.mark.parametrize('content', ['', '[]', '{"a":'])
def test_a_damaged_config(content: str, tmp_path: pathlib.Path):
  (tmp_path / 'config.json').write_text(content)
  with pytest.raises(UserError, match='config.json: damaged '):
    Run(tmp_path).config()


def test_training_so_far_is_up_to_the_step(tmp_path: pathlib.Path):
  """Of a run that went on after the checkpoint that is scored."""
  record = {'target_tokens': 5, 'seconds': 2.0, 'device': 'one'}
  commits = {10: 'a', 20: 'b', 30: 'c'}
  records = [{'step': step, 'commit': c} | record for step, c in commits.items()]
  records.insert(2, {'step': 20, 'dev_perplexity': 9.0})
  text = ''.join(json.dumps(line) + '\n' for line in records)
  (tmp_path / 'metrics.jsonl').write_text(text)
  assert Run(tmp_path).training_so_far(20) == {
    'target_tokens_seen': 10,
    'wall_seconds': 4.0,
    'training_device': 'one',
    'training_commit': 'a; b',
  }


def test_a_report_needs_neither_jax_nor_readers_of_raw_text():
  """They are slow to import."""
  check = """
import sys
import transformer_jax.report.report
print(*sorted({'pyarrow', 'babel', 'num2words', 'jax'} & sys.modules.keys()))
"""
  command = [sys.executable, '-c', check]
  done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
  assert done.stdout.split() == []


# Locked

HOLD = """
import pathlib, sys
from transformer_jax.runs.run import Run
with Run(pathlib.Path(sys.argv[1])).locked():
  print('locked', flush=True)
  sys.stdin.read()
"""


def holder(workdir: pathlib.Path) -> subprocess.Popen:
  return subprocess.Popen(
    [sys.executable, '-c', HOLD, str(workdir)],
    cwd=ROOT,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
  )


def test_a_folder_has_one_trainer(tmp_path: pathlib.Path):
  """Who has it is named; no lock outlives its process, however that ended."""
  run = Run(tmp_path / 'runs' / 'one')
  process = holder(run.workdir)
  assert process.stdout.readline() == b'locked\n'
  with pytest.raises(RunLocked) as caught, run.locked():
    pass
  named = f'in use by process {process.pid} on {socket.gethostname()}:'
  assert named in str(caught.value) and str(run.workdir) in str(caught.value)
  process.kill()
  process.communicate()
  with run.locked():
    pass
  process = holder(run.workdir)
  assert process.communicate() == (b'locked\n', None) and process.returncode == 0
