"""A benchmark's numbers are what they say: counts, ratios, forced lengths, rivals."""

import contextlib
import importlib.util
import itertools
import json
import os
import pathlib
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest
from flax import nnx
from jax.experimental.compilation_cache import compilation_cache

import toy.corpus
from benchmarks import (
  decoding,
  environment,
  fixed_shape,
  input_pipeline,
  interleave,
  matmul_rate,
  rivals,
  run,
  startup,
  summary,
  training,
)
from configs import base
from transformer_jax.data import batches, card, token_files
from transformer_jax.data.vocabulary import EOS, PAD
from transformer_jax.machine import environment as machine
from transformer_jax.machine import platform
from transformer_jax.machine.errors import UserError
from transformer_jax.model import build, flops
from transformer_jax.training import step
from transformer_jax.training.trainer import Trainer

SIZES = {'N': 1, 'd_model': 16, 'd_ff': 24, 'h': 2, 'd_k': 8, 'd_v': 8}
CHECKOUT = 'TRANSFORMER_JAX_FLAX'  # says where a checkout of google/flax is
OPTIONS = run.Options(
  steps=4, repeats=2, rows=None, length=5, sentences=3, text=None, beams=[1], rivals=[]
)


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
  """Stands still except where a program lets it go on."""

  def __init__(self):
    self.now = 0.0

  def __call__(self) -> float:
    return self.now

  def takes(self, *seconds: float) -> Any:
    """A program that takes these seconds in its rounds."""

    def program(number: int) -> None:
      self.now += seconds[number]

    return program


# Rounds, medians, ratios


def test_everyone_has_each_turn():
  seen = []
  programs = {name: lambda _, name=name: seen.append(name) for name in 'abc'}
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


def test_rate_of_products(monkeypatch: pytest.MonkeyPatch):
  """By a clock that goes on by a second whenever it is read."""
  clock = itertools.count()
  monkeypatch.setattr(time, 'perf_counter', lambda: float(next(clock)))
  found = matmul_rate.measure(jnp.dtype('float32'), sizes=(8, 16))
  of_size = {str(n): jax.device_count() * 2.0 * n**3 for n in (8, 16)}
  rate = of_size['16']
  assert found == {'dtype': 'float32', 'flops_per_second': rate, 'of_size': of_size}


# Training


def test_a_fixed_shape_is_full(tmp_path: pathlib.Path):
  config = fixed_shape.write_corpus(tiny(), 24, 7, tmp_path)
  made = Trainer(config, tmp_path).batches
  assert made.shapes == [(3, 7, 7)] and made.steps_per_epoch == 1 and made.padding == 0
  for side in made.batch(0)[:2]:
    assert side.shape == (8, 3, 7) and side.max() < 60
    assert (side[..., -1] == EOS).all()
    assert (side[..., :-1] >= fixed_shape.FIRST_WORD).all()
  with pytest.raises(UserError, match='--rows=12 must be a multiple of slices=8'):
    fixed_shape.write_corpus(tiny(), 12, 7, tmp_path)


def test_targets_have_words_of_their_own_vocabulary(tmp_path: pathlib.Path):
  config = tiny()
  config.model.target_vocab_size = 9
  made = Trainer(fixed_shape.write_corpus(config, 24, 7, tmp_path), tmp_path).batches
  source, target = made.batch(0)[:2]
  assert source.max() > 9 > target.max() >= fixed_shape.FIRST_WORD


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


@pytest.fixture
def quick_products(monkeypatch: pytest.MonkeyPatch) -> None:
  monkeypatch.setattr(matmul_rate, 'SIZES', {'cpu': (16,)})
  monkeypatch.setattr(matmul_rate, 'MIN_SECONDS', 0.0)


@pytest.mark.slow
def test_training(corpus: pathlib.Path, quick_products: None):
  """Two rounds of three updates: tokens, rates, utilisation, and what a rival sees."""
  rival = Recorder()
  found = training.measure(tiny(), corpus, {'them': rival}, each=3, rounds=2)
  found = json.loads(json.dumps(found))
  made = Trainer(tiny(), corpus).batches
  target = token_files.read_split(corpus, 'train')[1]
  # Counted by pair in the token files, which know nothing of padding.
  pairs = [made.batch(step).pairs for step in range(6)]
  counts = [int(target.lengths[p[p >= 0]].sum()) for p in pairs]
  tokens, ours = [sum(counts[:3]), sum(counts[3:])], found['columns']['ours']
  assert found['target_tokens'] == tokens
  assert 0 < found['padding'] < 1 and len(found['shapes']) == 2
  rate = np.median(np.divide(tokens, ours['seconds']))
  assert ours['target_tokens_per_second'] == pytest.approx(rate)

  flops_per_token = flops.training_flops_per_target_token(
    **SIZES, vocab_size=60, length=round(target.lengths.mean())
  )
  assert found['flops_per_target_token'] == flops_per_token
  share = rate * flops_per_token / found['matrix_products']['flops_per_second']
  assert found['model_flops_utilisation'] == pytest.approx(share)

  step = found['step']
  assert step['median'] == pytest.approx(np.median(ours['seconds']) / 3)
  assert min(step['compute'], step['input'], step['loss']) > 0
  assert 0 <= step['waiting_share'] < 1 and step['of_shape'] in found['shapes']

  warm_up, timed = rival.given[:2], rival.given[2:]
  shapes = [[len(s) // 8, s.shape[1], t.shape[1]] for s, t in warm_up]
  assert shapes == found['shapes']
  assert len(timed) == 6 and rival.waits == 2 + 2
  for number, sides in enumerate(timed):
    for side, whole in zip(sides, made.batch(number)[:2], strict=True):
      np.testing.assert_array_equal(side, whole.reshape(-1, whole.shape[-1]))


@pytest.mark.slow
def test_without_exchange(corpus: pathlib.Path):
  """Without the sum, what comes out is the first device's own; then it is back."""
  kept, trainer = step.sum_over_devices, Trainer(tiny(), corpus)
  batch, state = trainer.batch(0), trainer.initial()
  with training.without_exchange(), trainer.compile(state, [batch.shape]) as programs:
    programs.wait_for_all()
  _, sums = trainer.step(state, batch)
  own = (batch.target != PAD).sum((1, 2))
  assert own.sum() > int(sums.tokens) == own[0]
  assert step.sum_over_devices is kept


def nothing_to_compile(*_: Any) -> contextlib.AbstractContextManager:
  return contextlib.nullcontext(SimpleNamespace(wait_for_all=lambda: None))


@pytest.mark.parametrize('ready', [True, False])
def test_waiting_for_input(ready: bool, monkeypatch: pytest.MonkeyPatch):
  """Counted where the update before was over; never for the first one of a round."""
  clock = Clock()
  monkeypatch.setattr(time, 'perf_counter', clock)

  class SlowInput:
    initial = lambda self: None
    compile = nothing_to_compile

    def batch(self, step: int) -> int:
      clock.now += 10.0**step
      return step

    def step(self, state: None, batch: int) -> tuple[None, Any]:
      return None, SimpleNamespace(tokens=SimpleNamespace(is_ready=lambda: ready))

  updates = training.Updates(SlowInput(), each=2, shapes=[])
  updates.round(0)
  updates.round(1)
  assert updates.assembling == [1.0, 10.0, 100.0, 1000.0]
  assert updates.waiting == (1010.0 if ready else 0.0)


@pytest.mark.slow
def test_the_loss_takes_longer_for_more_words():
  seconds = []
  for vocab_size in (100, 20_000):
    config = tiny()
    config.model.vocab_size = vocab_size
    seconds.append(training.loss_seconds(config, batches.Shape(8, 20, 32), 3))
  assert seconds[1] > 3 * seconds[0] > 0


# Startup


def test_startup_is_timed_up_to_the_first_step(tmp_path: pathlib.Path):
  code = 'import os, time; print("first step", flush=True); time.sleep(0.6); '
  code += 'print(\'{"cache": "\' + os.environ["JAX_COMPILATION_CACHE_DIR"] + \'"}\')'
  begin = time.perf_counter()
  found = startup.measure([sys.executable, '-c', code], tmp_path)
  taken = time.perf_counter() - begin
  assert [*found] == ['cold', 'warm']
  assert all(each['cache'] == str(tmp_path) for each in found.values())
  # Both sleep for longer than that, since we may be late to read that they are there.
  assert 0 < sum(each['first_step_seconds'] for each in found.values()) < taken - 0.6
  with pytest.raises(UserError, match='failed: exit code 0'):
    startup.measure([sys.executable, '-c', 'print(1)'], tmp_path)


def test_a_step_of_every_shape(
  corpus: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
):
  monkeypatch.setattr(platform, 'start', lambda slices: None)
  taken = []
  note = lambda self, state, batch: taken.append(batch) or (state, 0)
  monkeypatch.setattr(Trainer, 'step', note)
  monkeypatch.setattr(Trainer, 'compile', nothing_to_compile)
  startup.take_steps(tiny(), corpus)
  first, result = capsys.readouterr().out.splitlines()
  assert first == startup.FIRST_STEP
  assert json.loads(result)['compile_seconds'] >= 0
  assert json.loads(result)['peak_bytes'] > 1e6
  shapes = Trainer(tiny(), corpus).batches.shapes
  assert sorted(b.shape for b in taken) == sorted(shapes)
  assert all((b[side] != PAD).all() for b in taken[1:] for side in (0, 1))


# Decoding


def test_eos_never_wins():
  graph, params = build.transformer(tiny())
  changed = decoding.without_eos(params)
  ids = np.random.default_rng(0).integers(1, 60, (2, 5, 9))
  logits = jax.jit(lambda params, *ids: nnx.merge(graph, params)(*ids))(changed, *ids)
  others = np.delete(logits, EOS, axis=-1)
  assert logits[..., EOS].max() < -(SIZES['d_model'] ** 0.5)
  assert others.min() > logits[..., EOS].max() + 1
  same = jax.tree.map(lambda a, b: np.array_equal(a, b), params, changed)
  assert jax.tree.leaves(same).count(False) == 2  # the embedding, one bias


@pytest.mark.parametrize('beam', [1, 3])
def test_forced_lengths(beam: int):
  """Every hypothesis has as many tokens as its source, EOS counted."""
  texts = ['5', '9 8 7 6 5 4 3 9 8 7', '7 7 7', '11 12 13 14 15']
  program = decoding.Ours(tiny(), decoding.NUMBERS, beam, rows=2, length=4)
  found = program.translator.translate(texts, beam)
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
  tokens = decoding.decode_tokens(rows=2, length=20, longest=512)
  found = decoding.from_text(rival, decoding.NUMBERS, 4, tokens, 512)(texts)
  expected = [[*reversed(words.encode([text])[0]), 7] for text in texts]
  assert found == words.decode(expected)
  assert rival.batches == [[31, 21], [17, 16], [4, 2]]  # of 32, 32 and 16 tokens


def measure_decoding(
  config: ml_collections.ConfigDict, texts: list[str], rounds: int = 1, **there: Any
) -> dict:
  options = {'beams': [2], 'rows': [2], 'rounds': rounds}
  return decoding.measure(config, decoding.NUMBERS, texts, there, **options)


def test_decoding_counts_sentences_and_tokens():
  texts = ['4 5 6', '7 8', '9 10 11 12']
  found = measure_decoding(tiny(), texts, rounds=3, them=Reverser())
  found = json.loads(json.dumps(found))
  assert found['dtype'] == 'float32'
  assert (found['sentences'], found['target_tokens']) == (3, 4 + 3 + 5)
  whole, alone = found['runs']
  assert (whole['beam'], whole['rows'], whole['sentences']) == (2, 2, 3)
  assert (alone['rows'], alone['sentences'], alone['latency']) == (1, 1, True)
  for each, tokens in ((whole, 12), (alone, 4)):
    for column in each['columns'].values():
      assert len(column['seconds']) == 3
      rate = np.median(tokens / np.array(column['seconds']))
      assert column['target_tokens_per_second'] == pytest.approx(rate)


def test_what_would_be_cut_is_not_timed():
  """Or tokens would be counted that nobody translates."""
  texts = decoding.random_sentences(2, 513, 60)
  with pytest.raises(UserError, match='sentence 1 has 513 tokens: 512 are the most'):
    measure_decoding(tiny(), texts)
  learned = tiny()
  learned.model.update(positions='learned', max_positions=8)
  texts = [text for n in (8, 9) for text in decoding.random_sentences(1, n, 60)]
  with pytest.raises(UserError, match='sentence 2 has 9 tokens: 8 are the most'):
    measure_decoding(learned, texts)


# The environment, the rivals that are not there, the summary


def test_settings_are_recorded(monkeypatch: pytest.MonkeyPatch):
  monkeypatch.setenv('GLIBC_TUNABLES', 'glibc.malloc.hugetlb=1')
  found = json.loads(json.dumps(environment.describe()))
  assert found['environment']['GLIBC_TUNABLES'] == 'glibc.malloc.hugetlb=1'
  assert found['threads'] == len(machine.cores()) >= 1
  assert found['versions']['jax'] == jax.__version__


@pytest.mark.devices
def test_rivals_run_where_we_do(monkeypatch: pytest.MonkeyPatch):
  assert rivals.device() == 'cpu'  # though there are eight
  monkeypatch.setattr(jax, 'default_backend', lambda: 'gpu')
  with pytest.raises(UserError, match='CUDA_VISIBLE_DEVICES=0 leaves one'):
    rivals.device()
  monkeypatch.setattr(jax, 'device_count', lambda: 1)
  assert rivals.device() == 'cuda'
  monkeypatch.setattr(jax, 'default_backend', lambda: 'tpu')
  with pytest.raises(UserError, match='on CPUs or on one GPU'):
    rivals.device()


def test_a_rival_that_is_not_there(
  monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
):
  for name in ('torch', 'transformers', 'ctranslate2'):
    monkeypatch.setitem(sys.modules, name, None)
  for name in ('huggingface', 'ctranslate2'):
    module = f'benchmarks.rivals.{name}'
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.delattr(rivals, name, raising=False)
  asked = ['huggingface', 'ctranslate2', f'flax_wmt={tmp_path}']
  there, absent = rivals.load(asked, 'training', tiny(), 1)
  assert not there and list(absent) == ['huggingface', 'ctranslate2', 'flax_wmt']
  assert 'pip install torch==2.13.0' in absent['huggingface']
  assert 'checkout of github.com/google/flax' in absent['flax_wmt']
  there, absent = rivals.load(asked[:2], 'decoding', tiny(), 1)
  assert not there and absent['ctranslate2'].endswith("'ctranslate2>=4.8,<5'")


def test_rivals_make_no_batches():
  with pytest.raises(UserError, match='--rivals: no other program makes batches'):
    run.measure('input', tiny(), OPTIONS._replace(rivals=['huggingface']), [])


@pytest.mark.parametrize('what', ['training', 'decoding'])
def test_rivals_are_looked_at_first(what: str, monkeypatch, capsys):
  """Before anything is prepared or started."""
  stop = lambda *_: pytest.fail('too late')
  monkeypatch.setattr(run.preparing, 'prepare', stop)
  monkeypatch.setattr(platform, 'start', stop)
  asked = OPTIONS._replace(rivals=['marian'], text=pathlib.Path('x'))
  with pytest.raises(UserError, match='--rivals=marian: there are huggingface'):
    run.measure(what, tiny(), asked, [])
  for key, value, said in (
    ('target_vocab_size', 9, 'target_vocab_size=9, but with 0'),
    ('activation', 'swish', "activation=swish, but with 'relu'"),
    ('P_drop_attention', 0.1, 'P_drop_attention=0.1, but with 0.0'),
    ('d_v', 5, 'huggingface needs h d_k = h d_v = d_model'),
  ):
    other = tiny()
    other.model[key] = value
    with pytest.raises(UserError, match=said):
      run.measure(what, other, asked._replace(rivals=['huggingface']), [])
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  rivals.check(['huggingface', 'flax_wmt=x'], tiny())
  told = capsys.readouterr().err.splitlines()
  assert told[0] == 'huggingface will be left out: no torch, transformers here'
  assert told[1].startswith('flax_wmt will be left out: it takes a checkout of')


def test_summary_of_training():
  columns = {
    'ours': {'target_tokens_per_second': 8730.4, 'steps_per_second': 2.14},
    'huggingface': {
      'target_tokens_per_second': 7000.0,
      'steps_per_second': 1.71,
      'ratio': 1.25,
    },
  }
  step = {'median': 0.4667, 'input': 0.0012, 'waiting_share': 0.0005}
  step |= {'of_shape': [32, 16, 16], 'compute': 0.44, 'exchange': 0.021, 'loss': 0.1234}
  start = {'compile_seconds': 20.04, 'first_step_seconds': 30.0}
  start |= {'peak_bytes': 1.5e9, 'memory_of': 'process'}
  found = {
    'what': 'training',
    'shapes': [[32, 16]],
    'padding': 0.097,
    'columns': columns,
    'step': step,
    'matrix_products': {'flops_per_second': 2.5e11, 'dtype': 'float32'},
    'model_flops_utilisation': 0.321,
    'start': {'cold': start, 'warm': start | {'compile_seconds': 3.0}},
    'absent': {'flax_wmt': 'it takes a checkout'},
  }
  assert '\n'.join(summary.lines(found)).endswith(
    'ours                             8,730         2.14\n'
    'huggingface                      7,000         1.71   1.25x\n\n'
    'a step 0.4667 s; of [32, 16, 16]: compute 0.44 s (the loss alone 0.1234 s), '
    'exchange 0.021 s\n'
    'a batch 0.0012 s, waited for 0.05% of the time; padding 9.7%\n'
    'model FLOPs utilisation 32.1% of 0.25 TFLOP/s (float32)\n'
    '1 shapes compiled in 20.0 s, 3.0 s when kept; first step after 30.0 s, 30.0 s\n'
    '1.50 GB of memory (process)\n'
    'flax_wmt               it takes a checkout'
  )


# Whole measurements


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
  """JAX runs already, and the user's folder of compiled programs is not for tests."""
  monkeypatch.setattr(platform, 'start', lambda slices: None)
  kept = jax.config.jax_compilation_cache_dir
  yield
  jax.config.update('jax_compilation_cache_dir', kept)
  compilation_cache.reset_cache()  # JAX would go on writing to the first folder


def test_a_measurement_of_input(corpus: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
  """By a clock that goes on with every look at it: by 1, 4, 9, 16 ... seconds."""
  now = itertools.accumulate(n * n for n in itertools.count())
  monkeypatch.setattr(run.preparing, 'prepare', lambda *_: corpus)
  monkeypatch.setattr(input_pipeline.time, 'perf_counter', lambda: float(next(now)))
  found = run.measure('input', tiny(), OPTIONS, [])
  made = Trainer(tiny(), corpus).batches
  tokens = sum(made.batch(step).target_tokens for step in range(1, 5))
  assert (found['steps'], found['pairs']) == (4, len(made.source))
  assert found['padding'] == made.padding
  taken = [16, 36, 64, 100]  # the looks before these are at the start and first batch
  assert found['median_batch_seconds'] == statistics.median(taken)
  assert found['target_tokens_per_second'] == tokens / sum(taken)
  assert len([*summary.lines(found)]) == 3


@pytest.mark.slow
def test_a_measurement_of_decoding_a_text(
  started: None, corpus: pathlib.Path, tmp_path: pathlib.Path, monkeypatch
):
  monkeypatch.setattr(run.preparing, 'prepare', lambda *_: corpus)
  text = tmp_path / 'text'
  text.write_bytes(b'one two\r\n\r\nthree four five\n')
  found = run.measure('decoding', tiny(), OPTIONS._replace(text=text, rows=[2]), [])
  words = card.vocabularies(corpus).source.encode(['one two', 'three four five'])
  assert found['text'] == str(text) and found['sentences'] == 2
  assert found['target_tokens'] == sum(len(ids) + 1 for ids in words)
  text.write_bytes(b'\n\n')
  with pytest.raises(UserError, match='no sentence is in it'):
    run.measure('decoding', tiny(), OPTIONS._replace(text=text), [])


@pytest.mark.slow
def test_a_measurement_of_decoding(started: None):
  found = run.measure('decoding', tiny(), OPTIONS._replace(rows=[2]), [])
  assert (found['what'], found['sentences'], found['target_tokens']) == (
    *('decoding', 3, 15),
  )
  assert found['model']['d_model'] == SIZES['d_model'] and found['absent'] == {}
  lines = [*summary.lines(json.loads(json.dumps(found)))]
  assert 'our products take float32' in lines
  assert 'beam 1, 3 of 5 tokens, rows of 2' in lines
  assert 'beam 1, 1 of 5 tokens, alone' in lines


@pytest.mark.slow
def test_a_measurement_of_training_on_one_shape(started: None, quick_products: None):
  """Its startup too, which other processes measure."""
  found = run.measure('training', tiny(), OPTIONS._replace(rows=[16]), [])
  assert found['target_tokens'] == [2 * 16 * 5] * 2 and found['padding'] == 0
  cold, warm = (found['start'][name] for name in ('cold', 'warm'))
  assert cold['compile_seconds'] > warm['compile_seconds'] > 0
  assert cold['first_step_seconds'] > cold['compile_seconds']
  assert any('target tokens/s' in line for line in summary.lines(found))
  with pytest.raises(UserError, match='--rows: training takes one number'):
    run.measure('training', tiny(), OPTIONS._replace(rows=[16, 32]), [])


# Rivals that are there


@pytest.mark.torch
def test_hugging_face_learns():
  torch, _ = pytest.importorskip('torch'), pytest.importorskip('transformers')
  from benchmarks.rivals import huggingface

  made = huggingface.marian(tiny(), 'cpu')
  trained = sum(p.numel() for p in made.parameters() if p.requires_grad)
  attention_biases = 3 * SIZES['N'] * 4 * SIZES['d_model']
  assert trained == flops.parameters(tiny().model) + attention_biases
  rival = huggingface.Training(tiny(), threads=1, half=False, device='cpu')
  source, target = np.random.default_rng(0).integers(4, 60, (2, 8, 6), np.int32)
  target[:, 3:] = PAD
  losses = losses_of(rival, source, target)
  assert losses[0] == pytest.approx(np.log(60), rel=0.1) and losses[-1] < losses[0]
  assert torch.get_num_threads() == 1


def losses_of(rival: Any, source: np.ndarray, target: np.ndarray) -> list[float]:
  losses = []
  for _ in range(30):
    rival.step(source, target)
    losses.append(rival.wait())
  return losses


@pytest.mark.torch
@pytest.mark.parametrize('beam', [1, 4])
def test_hugging_face_and_ctranslate2_decode(beam: int):
  """Forced lengths, and as one is made of the other: the same tokens."""
  pytest.importorskip('transformers')
  from benchmarks.rivals import huggingface

  random = np.random.default_rng(1)
  sources = [[*random.integers(4, 60, n - 1).tolist(), EOS] for n in (9, 5, 2)]
  there = huggingface.decoding(tiny(), threads=1, device='cpu')
  assert list(there) == ['huggingface.float32', 'huggingface.bfloat16']
  found, rough = (one.translate(sources, beam, 9) for one in there.values())
  for ids in (*found, *rough):
    assert len(ids) == 9 and EOS not in ids
  pytest.importorskip('ctranslate2')
  from benchmarks.rivals import ctranslate2

  there = ctranslate2.decoding(tiny(), threads=1, device='cpu')
  exact, rough = there.values()
  assert list(there) == ['ctranslate2.float32', 'ctranslate2.int8']
  assert exact.translate(sources, beam, 9) == found
  assert [len(ids) for ids in rough.translate(sources, beam, 9)] == [9, 9, 9]


def test_flax_wmt_learns():
  if CHECKOUT not in os.environ:
    pytest.skip(f'{CHECKOUT} does not name a checkout of google/flax')
  from benchmarks.rivals import flax_wmt

  rival = flax_wmt.Training(tiny(warmup_steps=10), pathlib.Path(os.environ[CHECKOUT]))
  assert not {'train', 'models', 'decode', 'tensorflow'} & {*sys.modules}
  source, target = np.random.default_rng(0).integers(4, 60, (2, 16, 6), np.int32)
  losses = losses_of(rival, source, target)
  assert losses[-1] < losses[0]
