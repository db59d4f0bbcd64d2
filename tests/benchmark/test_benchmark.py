"""A benchmark's numbers are what they say: counts, ratios, forced lengths, rivals."""

import functools
import itertools
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest
from absl import flags
from absl.testing import flagsaver
from flax import nnx
from jax.experimental.compilation_cache import compilation_cache

import toy.corpus
from configs import base
from scripts import benchmark as script
from transformer_jax.benchmark import (
  decoding,
  fixed,
  interleave,
  machine,
  rate,
  rivals,
  start,
  table,
  training,
)
from transformer_jax.data import batches, token_files
from transformer_jax.data.vocabulary import EOS, PAD
from transformer_jax.machine import platform, processor, provenance
from transformer_jax.model import build, flops
from transformer_jax.training.trainer import Trainer

SIZES = {'N': 1, 'd_model': 16, 'd_ff': 24, 'h': 2, 'd_k': 8, 'd_v': 8}
CHECKOUT = 'TRANSFORMER_JAX_FLAX'  # says where a checkout of google/flax is


def tiny(**changes: Any) -> ml_collections.ConfigDict:
  config = base.get_config()
  config.model.update(SIZES | {'vocab_size': 60})
  config.update({'tokens_per_batch': 128, 'max_shapes': 2, 'slices': 8})
  config.update({'decode_dtype': 'float32'} | changes)
  return config


@pytest.fixture(scope='module')
def corpus(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  raw = toy.corpus.write_raw(tmp_path_factory.mktemp('toy') / 'raw')
  toy.corpus.prepare(raw)
  return raw.parent / 'data' / 'toy'


class Clock:
  """Stands still but where someone lets it go on."""

  def __init__(self):
    self.now = 0.0

  def __call__(self) -> float:
    return self.now

  def takes(self, *seconds: float) -> Any:
    """A program that takes so long in each of its rounds."""

    def run(number: int) -> None:
      self.now += seconds[number]

    return run


# Rounds, medians, ratios


def test_everyone_has_each_turn():
  seen = []
  programs = {
    name: functools.partial(lambda n, i: seen.append(n), name) for name in 'abc'
  }
  interleave.interleave(programs, 3)
  assert ''.join(seen) == 'abcbcacab'


def test_medians_and_ratios():
  clock = Clock()
  programs = {'ours': clock.takes(2.0, 1.0, 4.0), 'them': clock.takes(2.0, 3.0, 8.0)}
  seconds = interleave.interleave(programs, 3, clock)
  assert seconds == {'ours': [2.0, 1.0, 4.0], 'them': [2.0, 3.0, 8.0]}
  found = interleave.columns(seconds, {'tokens': [10, 10, 80]})
  assert found['ours']['tokens_per_second'] == 10.0  # of 5, 10, 20
  assert found['them']['tokens_per_second'] == 5.0  # of 5, 3.3, 10
  assert (found['ours']['ratio'], found['them']['ratio']) == (1.0, 2.0)  # of 1, 3, 2


# Training


def test_a_fixed_shape_is_full(tmp_path: pathlib.Path):
  config = fixed.corpus(tiny(), 24, 7, tmp_path)
  made = Trainer(config, tmp_path).batches
  assert made.shapes == [(3, 7)] and made.steps_per_epoch == 1 and made.padding == 0
  for side in made.batch(0)[:2]:
    assert side.shape == (8, 3, 7)
    assert (side[..., -1] == EOS).all() and (side[..., :-1] >= fixed.FIRST_WORD).all()
    assert side.max() < 60
  with pytest.raises(ValueError, match='--rows=12 must be a multiple of slices=8'):
    fixed.corpus(tiny(), 12, 7, tmp_path)


class Recorder:
  """A rival that only writes down what it is given."""

  def __init__(self):
    self.given: list[tuple[np.ndarray, np.ndarray]] = []
    self.waits = 0

  def step(self, source: np.ndarray, target: np.ndarray) -> None:
    self.given.append((source, target))

  def wait(self) -> float:
    self.waits += 1
    return 0.0


@pytest.fixture(scope='module')
def measured(corpus: pathlib.Path) -> tuple[dict, Recorder]:
  """Two rounds of three updates; products of a size that is quick."""
  rival, patch = Recorder(), pytest.MonkeyPatch()
  with patch.context() as patched:
    patched.setattr(rate, 'SIZES', {'cpu': (16,)})
    patched.setattr(rate, 'ENOUGH', 0.0)
    found = training.measure(tiny(), corpus, {'them': rival}, each=3, rounds=2)
  return json.loads(json.dumps(found)), rival


def test_tokens_are_those_of_the_batches(
  measured: tuple[dict, Recorder], corpus: pathlib.Path
):
  """Counted by pair in the token files, which know nothing of padding."""
  found, _ = measured
  lengths = token_files.read_split(corpus, 'train')[1].lengths
  made = Trainer(tiny(), corpus).batches
  pairs = [made.batch(step).pairs for step in range(6)]
  counts = [int(lengths[p[p >= 0]].sum()) for p in pairs]
  assert found['target_tokens'] == [sum(counts[:3]), sum(counts[3:])]
  assert 0 < found['padding'] < 1 and len(found['shapes']) == 2
  ours = found['columns']['ours']
  rates = [n / s for n, s in zip(found['target_tokens'], ours['seconds'], strict=True)]
  assert ours['target_tokens_per_second'] == pytest.approx(np.median(rates))
  assert found['step']['median'] == pytest.approx(np.median(ours['seconds']) / 3)


def test_a_rival_sees_the_same_batches(
  measured: tuple[dict, Recorder], corpus: pathlib.Path
):
  found, rival = measured
  made = Trainer(tiny(), corpus).batches
  warm_up, timed = rival.given[:2], rival.given[2:]
  assert [list(s.shape) for s, _ in warm_up] == [[8 * r, n] for r, n in found['shapes']]
  assert len(timed) == 6 and rival.waits == 2 + 2
  for step, sides in enumerate(timed):
    for side, whole in zip(sides, made.batch(step)[:2], strict=True):
      np.testing.assert_array_equal(side, whole.reshape(-1, whole.shape[-1]))


def test_utilisation_is_of_costs_flops(
  measured: tuple[dict, Recorder], corpus: pathlib.Path
):
  found, _ = measured
  target = token_files.read_split(corpus, 'train')[1]
  expected = flops.training_flops_per_target_token(
    **SIZES, vocab_size=60, length=round(target.lengths.mean())
  )
  assert found['flops_per_target_token'] == expected
  achieved = found['columns']['ours']['target_tokens_per_second'] * expected
  share = achieved / found['matrix_products']['flops_per_second']
  assert found['model_flops_utilisation'] == pytest.approx(share)


def test_what_a_step_goes_to(measured: tuple[dict, Recorder]):
  step = measured[0]['step']
  assert step['compute'] > 0 and step['input'] > 0
  assert 0 <= step['waiting_share'] < 1 and step['of_shape'] in measured[0]['shapes']


def test_no_exchange(corpus: pathlib.Path):
  """Without the sum, what comes out is the first device's own; then it is back."""
  kept, trainer = jax.lax.psum, Trainer(tiny(), corpus)
  batch, state = trainer.batch(0), trainer.initial()
  trainer.batches.shapes = [batches.Shape(*batch.source.shape[1:])]
  with training.no_exchange():
    trainer.compile(state, iter)
  _, sums = trainer.step(state, batch)
  own = (batch.target != PAD).sum((1, 2))
  assert own.sum() > int(sums.tokens) == own[0]
  assert jax.lax.psum is kept


@pytest.mark.parametrize('ready', [True, False])
def test_waiting_for_input(ready: bool, monkeypatch: pytest.MonkeyPatch):
  """Counted where the update before was over; never for the first one of a round."""
  clock = Clock()
  monkeypatch.setattr(training.time, 'perf_counter', clock)

  class Slow:
    initial = compile = lambda self, *_: None

    def batch(self, step: int) -> int:
      clock.now += 10.0**step
      return step

    def step(self, state: None, batch: int) -> tuple[None, Any]:
      return None, SimpleNamespace(tokens=SimpleNamespace(is_ready=lambda: ready))

  monkeypatch.setattr(training.jax, 'device_get', lambda x: x)
  monkeypatch.setattr(training.jax, 'block_until_ready', lambda x: x)
  updates = training.Updates(Slow(), each=2)
  updates.round(0)
  updates.round(1)
  assert updates.made == [1.0, 10.0, 100.0, 1000.0]
  assert updates.waited == (1010.0 if ready else 0.0)


def test_rate_of_products(monkeypatch: pytest.MonkeyPatch):
  """By a clock that goes on by a second whenever it is read."""
  clock = itertools.count()
  monkeypatch.setattr(rate.time, 'perf_counter', lambda: float(next(clock)))
  found = rate.matrix_products(jnp.dtype('float32'), sizes=(8, 16))
  of_size = {str(n): jax.device_count() * 2.0 * n**3 for n in (8, 16)}
  assert found == {
    'dtype': 'float32',
    'flops_per_second': of_size['16'],
    'of_size': of_size,
  }


# Start


def test_start_is_timed_up_to_the_first_step(tmp_path: pathlib.Path):
  code = 'import os, time; print("first step", flush=True); time.sleep(0.3); '
  code += 'print(\'{"cache": "\' + os.environ["JAX_COMPILATION_CACHE_DIR"] + \'"}\')'
  begin = interleave.time.perf_counter()
  found = start.measure([sys.executable, '-c', code], tmp_path)
  taken = interleave.time.perf_counter() - begin
  assert [*found] == ['cold', 'warm']
  assert all(run['cache'] == str(tmp_path) for run in found.values())
  assert 0 < sum(run['first_step_seconds'] for run in found.values()) < taken - 0.6
  with pytest.raises(RuntimeError, match='failed'):
    start.measure([sys.executable, '-c', 'print(1)'], tmp_path)


def test_steps_of_every_shape(
  corpus: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
  monkeypatch.setattr(platform, 'start', lambda slices: None)
  taken = []
  note = lambda self, state, batch: taken.append(batch) or (state, 0)
  monkeypatch.setattr(Trainer, 'step', note)
  monkeypatch.setattr(Trainer, 'compile', lambda *_: None)
  start.take_steps(tiny(), corpus)
  first, result = capsys.readouterr().out.splitlines()
  assert first == start.FIRST_STEP
  assert json.loads(result)['compile_seconds'] >= 0
  assert json.loads(result)['peak_bytes'] > 1e6
  shapes = Trainer(tiny(), corpus).batches.shapes
  assert sorted(b.target.shape[1:] for b in taken) == sorted(shapes)
  assert all((b.target != PAD).all() for b in taken[1:])


# Decoding


def test_eos_never_wins():
  config = tiny()
  graph, params = build.transformer(config)
  changed = decoding.without_eos(params)
  ids = np.random.default_rng(0).integers(1, 60, (2, 5, 9))
  run = jax.jit(lambda params, *ids: nnx.merge(graph, params)(*ids))
  logits = np.asarray(run(changed, *ids))
  assert logits[..., EOS].max() < -(SIZES['d_model'] ** 0.5)
  others = np.delete(logits, EOS, axis=-1)
  assert others.min() > logits[..., EOS].max() + 1
  same = jax.tree.map(lambda a, b: np.array_equal(a, b), params, changed)
  assert jax.tree.leaves(same).count(False) == 2  # the embedding, one bias


@pytest.mark.parametrize('beam', [1, 3])
def test_forced_lengths(beam: int):
  """Every hypothesis has as many tokens as its source, EOS counted."""
  texts = ['5', '9 8 7 6 5 4 3 9 8 7', '7 7 7', '11 12 13 14 15']
  program = decoding.Ours(tiny(), decoding.Numbers(), beam, rows=2, length=4)
  found = program.translator.translate(texts)
  for text, hypotheses in zip(texts, found, strict=True):
    assert len(hypotheses) == beam
    for hypothesis in hypotheses:
      assert len(hypothesis.tokens) == len(text.split()) + 1
      assert EOS not in hypothesis.tokens
  assert program(texts) == [hypotheses[0].text for hypotheses in found]


class Reverser:
  """A rival whose translation of a sentence is its words turned round, to length."""

  def __init__(self):
    self.batches: list[list[int]] = []

  def translate(
    self, sources: Sequence[Sequence[int]], beam: int, length: int
  ) -> list[list[int]]:
    assert all(ids[-1] == EOS for ids in sources)
    assert length == max(map(len, sources))
    self.batches.append([len(ids) for ids in sources])
    return [[*reversed(ids[:-1]), *[7] * length][:length] for ids in sources]


def test_a_rival_from_text_to_text():
  """In the batches that our Translator makes, and back in order, cut to length."""
  rival, words = Reverser(), decoding.Numbers()
  lengths = (3, 30, 15, 16, 1, 20)
  texts = [' '.join(str(10 + i) for i in range(n)) for n in lengths]
  tokens = decoding.decode_tokens(rows=2, length=20)
  found = decoding.through(rival, words, 4, tokens)(texts)
  expected = [[*reversed(words.encode([text])[0]), 7] for text in texts]
  assert found == words.decode(expected)
  assert rival.batches == [[31, 21], [17, 16], [4, 2]]  # of 32, 32 and 16 tokens


def test_decoding_counts_sentences_and_tokens():
  texts = ['4 5 6', '7 8', '9 10 11 12']
  found = decoding.measure(
    tiny(),
    decoding.Numbers(),
    texts,
    {'them': Reverser()},
    beams=[2],
    rows=[2],
    rounds=3,
  )
  found = json.loads(json.dumps(found))
  assert found['dtype'] == 'float32'
  assert (found['sentences'], found['target_tokens']) == (3, 4 + 3 + 5)
  whole, alone = found['runs']
  assert (whole['beam'], whole['rows'], whole['sentences']) == (2, 2, 3)
  assert (alone['rows'], alone['sentences']) == (1, 1)
  for run, tokens in ((whole, 12), (alone, 4)):
    for column in run['columns'].values():
      taken = np.array(column['seconds'])
      assert len(taken) == 3
      assert column['target_tokens_per_second'] == pytest.approx(
        np.median(tokens / taken)
      )


# The machine, the rivals that are not there, the table


def test_processor(tmp_path: pathlib.Path):
  text = (
    'processor\t: 0\nmodel name\t: A Chip 3000\nflags\t\t: fpu avx2 avx512f amx_bf16\n'
  )
  (tmp_path / 'cpuinfo').write_text(text)
  expected = 'A Chip 3000', ['amx_bf16', 'avx2', 'avx512f']
  assert processor.describe(tmp_path / 'cpuinfo') == expected
  assert processor.describe(tmp_path / 'none')[1] == []


def test_settings_are_recorded(monkeypatch: pytest.MonkeyPatch):
  monkeypatch.setenv('GLIBC_TUNABLES', 'glibc.malloc.hugetlb=1')
  found = json.loads(json.dumps(machine.describe()))
  assert found['environment']['GLIBC_TUNABLES'] == 'glibc.malloc.hugetlb=1'
  assert found['threads'] == len(processor.cores()) >= 1
  assert found['versions']['jax'] == jax.__version__


def test_the_commit_of_a_checkout(tmp_path: pathlib.Path):
  """Clean, changed, none; of another's repository that holds an installation none."""
  who = '-c', 'user.name=a', '-c', 'user.email=a@b'
  git = lambda *words: subprocess.run(
    ['git', *words], cwd=tmp_path, check=True, capture_output=True, text=True
  ).stdout.strip()
  package = tmp_path / 'package'
  package.mkdir()
  assert provenance.commit(package) is None
  (package / 'a.py').write_text('1')
  git('init')
  git('add', '.')
  git(*who, 'commit', '-m', 'a')
  head = git('rev-parse', 'HEAD')
  assert provenance.commit(package) == head
  (package / 'a.py').write_text('2')
  assert provenance.commit(package) == head + '+'
  installed = tmp_path / '.venv' / 'package'
  installed.mkdir(parents=True)
  (installed / 'a.py').touch()
  assert provenance.commit(installed) is None


def test_rivals_run_where_we_do(monkeypatch: pytest.MonkeyPatch):
  assert rivals.device() == 'cpu'  # though there are eight
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  with pytest.raises(ValueError, match='CUDA_VISIBLE_DEVICES=0 leaves one'):
    rivals.device()
  monkeypatch.setattr(jax, 'device_count', lambda: 1)
  assert rivals.device() == 'cuda'
  monkeypatch.setattr(jax, 'default_backend', lambda: 'tpu')
  with pytest.raises(ValueError, match='on CPUs or on one GPU'):
    rivals.device()


def test_what_would_be_cut_is_not_timed():
  """Or tokens would be counted that nobody translates."""
  options = {'beams': [1], 'rows': [2], 'rounds': 1}
  texts = decoding.sentences(2, 513, 60)
  with pytest.raises(ValueError, match='sentence 1 has 513 tokens: 512 are the most'):
    decoding.measure(tiny(), decoding.Numbers(), texts, {}, **options)
  learned = tiny()
  learned.model.update(positions='learned', max_positions=8)
  texts = [*decoding.sentences(1, 8, 60), *decoding.sentences(1, 9, 60)]
  with pytest.raises(ValueError, match='sentence 2 has 9 tokens: 8 are the most'):
    decoding.measure(learned, decoding.Numbers(), texts, {}, **options)


def test_the_loss_alone_takes_longer_for_more_words():
  small, large = tiny(), tiny()
  small.model.vocab_size, large.model.vocab_size = 100, 20_000
  shape = batches.Shape(8, 32)
  assert 0 < training.loss_seconds(small, shape, 3)
  times = [training.loss_seconds(config, shape, 3) for config in (small, large)]
  assert times[1] > 3 * times[0]


def test_a_rival_that_is_not_there(
  monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
  for name in ('torch', 'transformers', 'ctranslate2'):
    monkeypatch.setitem(sys.modules, name, None)
  for name in ('huggingface', 'ctranslate2'):
    monkeypatch.delitem(
      sys.modules, f'transformer_jax.benchmark.rivals.{name}', raising=False
    )
    monkeypatch.delattr(rivals, name, raising=False)
  asked = ['huggingface', 'ctranslate2', f'flax_wmt={tmp_path}']
  there, absent = rivals.load(asked, 'training', tiny(), 1)
  assert not there and list(absent) == ['huggingface', 'ctranslate2', 'flax_wmt']
  assert 'pip install torch==2.13.0' in absent['huggingface']
  assert 'checkout of github.com/google/flax' in absent['flax_wmt']
  there, absent = rivals.load(asked[:2], 'decoding', tiny(), 1)
  assert not there and absent['ctranslate2'].endswith("'ctranslate2>=4.8,<5'")
  with pytest.raises(ValueError, match='--rivals=marian: there are huggingface'):
    rivals.load(['marian'], 'training', tiny(), 1)


def column(tokens: float, other: str, rate: float, ratio: float) -> dict:
  return {'target_tokens_per_second': tokens, other: rate, 'ratio': ratio}


def test_table_of_training():
  started = {'compile_seconds': 20.04, 'first_step_seconds': 30.0}
  started |= {'peak_bytes': 1.5e9, 'memory_of': 'process'}
  step = {'median': 0.4667, 'input': 0.0012, 'waiting_share': 0.0005}
  step |= {'of_shape': [32, 16], 'compute': 0.44, 'exchange': 0.021}
  step |= {'loss': 0.1234}
  text = '\n'.join(
    table.lines(
      {
        'what': 'training',
        'shapes': [[32, 16]],
        'padding': 0.097,
        'columns': {
          'ours': column(8730.4, 'steps_per_second', 2.14, 1.0),
          'huggingface': column(7000.0, 'steps_per_second', 1.71, 1.25),
        },
        'step': step,
        'matrix_products': {'flops_per_second': 2.5e11, 'dtype': 'float32'},
        'model_flops_utilisation': 0.321,
        'start': {'cold': started, 'warm': started | {'compile_seconds': 3.0}},
        'absent': {'flax_wmt': 'it takes a checkout'},
      }
    )
  )
  assert 'ours                             8,730         2.14\n' in text
  assert 'huggingface                      7,000         1.71   1.25x\n' in text
  assert (
    'a step 0.4667 s; of [32, 16]: compute 0.44 s (the loss alone 0.1234 s), exchange '
    '0.021 s' in text
  )
  assert 'a batch 0.0012 s, waited for 0.05% of the time; padding 9.7%' in text
  assert 'model FLOPs utilisation 32.1% of 0.25 TFLOP/s (float32)' in text
  assert '1 shapes compiled in 20.0 s, 3.0 s when kept' in text
  assert (
    '1.50 GB of memory (process)\nflax_wmt               it takes a checkout' in text
  )


# The script


@pytest.fixture
def quiet_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
  """JAX runs already, and the user's folder of compiled programs is not for tests."""
  monkeypatch.setattr(platform, 'start', lambda slices: None)
  kept = jax.config.jax_compilation_cache_dir
  flags.FLAGS.mark_as_parsed()
  yield
  jax.config.update('jax_compilation_cache_dir', kept)
  compilation_cache.reset_cache()  # JAX would go on writing to the first folder


@pytest.mark.slow
def test_script_decodes(
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  quiet_start: None,
  capsys: Any,
):
  monkeypatch.setattr(script, 'CONFIG', SimpleNamespace(value=tiny()))
  output = tmp_path / 'out.json'
  given = {'what': 'decoding', 'rows': ['2'], 'beams': ['1'], 'sentences': 3}
  with flagsaver.flagsaver(**given, length=4, repeats=1, output=str(output)):
    script.main([])
  found = json.loads(output.read_text())
  assert (found['what'], found['sentences'], found['target_tokens']) == (
    'decoding',
    3,
    12,
  )
  assert found['model']['d_model'] == SIZES['d_model'] and found['absent'] == {}
  out = capsys.readouterr().out
  assert 'our products take float32' in out
  assert 'beam 1, 3 of 4 tokens, rows of 2' in out
  assert 'beam 1, 1 of 4 tokens, alone' in out


@pytest.mark.slow
def test_script_trains_on_one_shape(
  tmp_path: pathlib.Path,
  monkeypatch: pytest.MonkeyPatch,
  quiet_start: None,
  capsys: Any,
):
  monkeypatch.setattr(script, 'CONFIG', SimpleNamespace(value=tiny()))
  monkeypatch.setattr(rate, 'SIZES', {'cpu': (16,)})
  started = {'compile_seconds': 2.0, 'first_step_seconds': 3.0}
  started |= {'peak_bytes': 1e9, 'memory_of': 'process'}
  commands = []
  measure = lambda command, _: (
    commands.append(command) or dict.fromkeys(('cold', 'warm'), started)
  )
  monkeypatch.setattr(start, 'measure', measure)
  with flagsaver.flagsaver(rows=['16'], length=5, steps=4, repeats=2):
    script.main([])
  out = capsys.readouterr().out
  found = json.loads(out[out.index('{') :])
  assert found['target_tokens'] == [2 * 16 * 5] * 2 and found['padding'] == 0
  assert commands[0][-1] == '--what=start' and 'target tokens/s' in out


# Rivals that are there


@pytest.mark.torch
def test_hugging_face_learns():
  torch, _ = pytest.importorskip('torch'), pytest.importorskip('transformers')
  from transformer_jax.benchmark.rivals import huggingface

  rival = huggingface.Training(tiny(), threads=1, half=False, device='cpu')
  model = rival._model
  attention_biases = 3 * SIZES['N'] * 4 * SIZES['d_model']
  trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
  sizes = {k: v for k, v in tiny().model.items() if k != 'P_drop'}
  expected = flops.parameters(**sizes) + attention_biases
  assert trained == expected
  random = np.random.default_rng(0)
  source, target = random.integers(4, 60, (2, 8, 6), np.int32)
  target[:, 3:] = PAD
  losses = []
  for _ in range(30):
    rival.step(source, target)
    losses.append(rival.wait())
  assert losses[0] == pytest.approx(np.log(60), rel=0.1) and losses[-1] < losses[0]
  assert torch.get_num_threads() == 1


def random_sources(*lengths: int) -> list[list[int]]:
  random = np.random.default_rng(1)
  return [[*random.integers(4, 60, n - 1).tolist(), EOS] for n in lengths]


@pytest.mark.torch
@pytest.mark.parametrize('beam', [1, 4])
def test_hugging_face_and_ctranslate2_decode(beam: int):
  """Forced lengths, and as one is made of the other: the same tokens."""
  pytest.importorskip('transformers')
  from transformer_jax.benchmark.rivals import huggingface

  sources = random_sources(9, 5, 2)
  there = huggingface.decoding(tiny(), threads=1, device='cpu')
  assert list(there) == ['huggingface.float32', 'huggingface.bfloat16']
  found, rough = (one.translate(sources, beam, 9) for one in there.values())
  for ids in (*found, *rough):
    assert len(ids) == 9 and EOS not in ids
  pytest.importorskip('ctranslate2')
  from transformer_jax.benchmark.rivals import ctranslate2

  there = ctranslate2.decoding(tiny(), threads=1, device='cpu')
  exact, rough = there.values()
  assert list(there) == ['ctranslate2.float32', 'ctranslate2.int8']
  assert exact.translate(sources, beam, 9) == found
  assert [len(ids) for ids in rough.translate(sources, beam, 9)] == [9, 9, 9]


def test_flax_wmt_learns():
  if CHECKOUT not in os.environ:
    pytest.skip(f'{CHECKOUT} does not name a checkout of google/flax')
  from transformer_jax.benchmark.rivals import flax_wmt

  rival = flax_wmt.Training(tiny(warmup_steps=10), pathlib.Path(os.environ[CHECKOUT]))
  assert not {'train', 'models', 'decode', 'tensorflow'} & {*sys.modules}
  random = np.random.default_rng(0)
  source, target = random.integers(4, 60, (2, 16, 6), np.int32)
  losses = []
  for _ in range(30):
    rival.step(source, target)
    losses.append(rival.wait())
  assert losses[-1] < losses[0]
