"""The page computes what the package computes, and shows it."""

import base64
import importlib
import json
import math
import pathlib
import re
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import sentencepiece

import transformer_jax
from toy import browser, untrained
from transformer_jax.analysis.maps import KINDS, RunAttention
from transformer_jax.analysis.survey import without_head
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.exchange import page
from transformer_jax.exchange.export import export
from transformer_jax.model import flops

ROOT = pathlib.Path(__file__).parents[2]
PRETRAINED = ROOT / 'pretrained/tatoeba.en-de'
DEV = ROOT / 'tests/fixtures/tatoeba.dev.en'  # the first 200 sentences of its dev


@pytest.fixture(scope='module')
def published(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  """Returns the page of the published model."""
  path = tmp_path_factory.mktemp('published') / 'page.html'
  export(PRETRAINED, 'page', path, None, None, None)
  return path


def rounded(workdir: pathlib.Path) -> LoadedRun:
  """Returns a run in float32 whose parameters are rounded to bfloat16."""
  run = transformer_jax.load(workdir, decode_dtype='float32')
  bfloat16 = lambda x: np.asarray(x).astype(ml_dtypes.bfloat16).astype(np.float32)
  run.params = jax.tree.map(bfloat16, run.params)
  return run


def compare(
  path: pathlib.Path, run: LoadedRun, lines: Sequence[str], heads: bool = True
) -> None:
  """Compares pieces, tokens, scores and, with `heads`, the weights of all heads."""
  theirs = browser.translate(path, lines)
  ours = [best for (best,) in run.hypotheses(lines, nbest=1)]
  sources, names = run.source_ids(lines), [v.pieces() for v in run.vocabularies]
  for best, source, output in zip(ours, sources, theirs, strict=True):
    assert output['source'] == [names[0][i] for i in source]
    assert (output['tokens'], output['text']) == (best.tokens, best.text)
    assert output['score'] == pytest.approx(best.score, abs=1e-4)
  if not heads:
    return
  ends = [best.tokens if best.tokens[-1] == 1 else [*best.tokens, 1] for best in ours]
  weights = RunAttention(run).weights([*zip(sources, ends, strict=True)])
  for number, of_pair in weights:
    for kind, expected in zip(KINDS, of_pair, strict=True):
      np.testing.assert_allclose(theirs[number]['weights'][kind], expected, atol=1e-3)


def read_parameters(model: dict, tree: Any) -> Any:
  """Returns a tree of spans as the tree of what they hold."""
  content = base64.b64decode(model['parameters'])
  numbers = np.frombuffer(content, ml_dtypes.bfloat16).astype(np.float32)
  leaf = lambda x: isinstance(x, list)
  return jax.tree.map(lambda span: numbers[slice(*span)], tree, is_leaf=leaf)


def transposed(path: tuple, x: np.ndarray) -> np.ndarray:
  """Returns [outputs, inputs] of a weight; heads and d_k or d_v are one axis."""
  names = {part.key for part in path}
  if 'output' in names:
    return x.transpose(2, 0, 1)  # [H, d_v, D]
  return np.moveaxis(x, 0, -1) if names & {'query', 'key', 'value', 'kernel'} else x


def test_what_a_page_holds(workdir: pathlib.Path, tmp_path: pathlib.Path):
  """The run's parameters, vocabularies and settings, and what is shown at first."""
  changes = {'model.positions': 'learned', 'model.max_positions': 64, 'model.N': 3}
  changes |= {'model.vocab_size': 320, 'model.target_vocab_size': 310}
  changes |= {f'data.{name}': True for name in ('byte_fallback', 'nfc', 'lowercase')}
  other, path = untrained.write(tmp_path, **changes), tmp_path / 'page.html'
  config = (other / 'config.json').read_text()
  (other / 'config.json').write_text(config.replace('"de"', '"xx"'))
  (other / 'LICENSE').write_text('</script> of mine')
  dev = '{"step": 1, "dev_perplexity": %s}\n' * 3 % (9.0, math.e, 'null')
  (other / 'metrics.jsonl').write_text(dev)
  for folder, title in (workdir, 'English to German'), (other, 'English to xx'):
    printed = export(folder, 'page', path, None, None, None)
    assert printed.startswith(f'{path}: ')
    content, run = browser.scripts(path), rounded(folder)
    path.unlink()
    shown, model = (json.loads(content[name]) for name in ('shown', 'model'))
    config, is_other = run.config, folder == other
    for (name, ours), theirs in zip(
      jax.tree.flatten_with_path(run.params)[0],
      jax.tree.leaves(read_parameters(model, model.pop('tree'))),
      strict=True,
    ):
      expected = transposed(name, np.asarray(ours)).ravel()
      np.testing.assert_array_equal(theirs, expected, str(name))
    vocabularies = [*run.vocabularies][: 1 + is_other]
    for ours, theirs in zip(vocabularies, model.pop('vocabularies'), strict=True):
      spm = sentencepiece.SentencePieceProcessor(model_file=str(ours.path))
      assert theirs == {
        'pieces': ours.pieces(),
        'scores': [*map(spm.get_score, range(len(spm)))],
        'bytes': spm.piece_to_id('<0x00>') if is_other else None,
        'nfc': is_other,
        'lowercase': is_other,
      }
    del model['parameters']
    sizes = 'N', 'd_model', 'h', 'd_k', 'd_v'
    assert model == {
      'sizes': {name: config.model[name] for name in sizes},
      **{name: config[name] for name in ('beam', 'alpha', 'extra_length')},
      'language': 'en',
      'longest': 64 if is_other else 512,
      'max_positions': 64 if is_other else None,
      'nats': 1.0 if is_other else None,
    }
    about = shown.pop('about')
    assert f'{flops.parameters(config.model):,} parameters' in about
    assert '`' not in about
    assert shown == {
      'title': title,
      'rights': '</script> of mine' if is_other else '',
      'languages': ['en', config.data.target_language],
      'text': 'Where is the nearest station?',
      **{'beam': 4, 'alpha': 0.6, 'sentences': [], 'N': config.model.N, 'H': 3},
      **{'kind': 'cross', 'layer': int(is_other), 'heads': [0, 1, 2], 'word': None},
    }


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore:less probable than references')
def test_the_published_model(published: pathlib.Path):
  assert published.stat().st_size < 8_000_000
  lines = DEV.read_text().splitlines()
  assert len(lines) == 200
  compare(published, rounded(PRETRAINED), lines)


@pytest.mark.slow
@pytest.mark.parametrize(
  'changes',
  [
    {},
    {'model.positions': 'learned', 'model.max_positions': 64},
    {'model.target_vocab_size': 40},
    {
      'model.vocab_size': 320,
      'data.byte_fallback': True,
      'data.nfc': True,
      'data.lowercase': True,
    },
  ],
)
@pytest.mark.filterwarnings('ignore::UserWarning')
def test_other_models(changes: dict, tmp_path: pathlib.Path):
  """Untrained, with learned positions, a vocabulary for each side, bytes."""
  workdir, path = untrained.write(tmp_path, **changes), tmp_path / 'page.html'
  export(workdir, 'page', path, None, None, None)
  lines = 'One, two "five"', ' seven-up  six\u00a0', 'six Ω \u00e9 e\u0301', 'ten'
  compare(path, rounded(workdir), lines, heads=bool(changes))


@pytest.mark.slow
def test_what_is_switched_off(published: pathlib.Path):
  """A head without output is one whose rows of W^O are zero."""
  run = rounded(PRETRAINED)
  run.params = without_head(jax.tree.map(jnp.asarray, run.params), 'cross', 3, 4)
  ((best,),) = run.hypotheses(['I saw you there.'], nbest=1)
  (output,) = browser.translate(published, ['I saw you there.'], ['cross.3.4'])
  assert output['tokens'] == best.tokens
  assert output['score'] == pytest.approx(best.score, abs=1e-4)


@pytest.mark.slow
def test_the_page_in_a_browser(published: pathlib.Path, tmp_path: pathlib.Path):
  text = lambda id: f'document.getElementById("{id}").textContent'
  with browser.open_tab(tmp_path) as tab:
    tab.open(published)
    tab.wait_for(f'{text("translation")} === "Wo ist der nächste Bahnhof?"')
    tab.evaluate('document.getElementById("text").select()')
    tab.send('Input.insertText', text='Tom is <b>Ω</b>.')
    tab.wait_for(f'{text("notices")}.includes("outside the vocabulary")')
    tab.evaluate('document.getElementById("text").select()')
    tab.send('Input.insertText', text='I saw you there.')
    tab.wait_for(f'{text("translation")} === "Ich habe dich dort gesehen."')
    assert (
      text_of(tab, '#target span') == '▁Ich ▁habe ▁dich ▁dort ▁gesehen . </s>'.split()
    )
    assert text_of(tab, '#tree .best span:first-child')[-2:] == ['.', '</s>']
    tab.click('#maps button:nth-child(9)')
    assert tab.evaluate('chosen("layer") + " " + chosen("head")') == '1 0'
    tab.click('#rows button:nth-child(4)')
    assert tab.evaluate(text('told')).startswith('\u2068▁dort\u2069 \u2013 head 1: ')
    tab.click('[value=positions]')
    tab.wait_for(f'{text("trained")} === "As trained: Ich habe dich dort gesehen."')
    assert tab.evaluate(text('translation')) != 'Ich habe dich dort gesehen.'
    link = tab.evaluate('location.hash')
    assert 'off=positions' in link and 'text=I+saw' in link
    for width, scheme in ((1200, 'light'), (390, 'dark')):
      shot = tmp_path / f'{width}.png'
      tab.screenshot(shot, width, scheme)
      assert shot.stat().st_size > 20_000
      assert tab.evaluate('document.documentElement.scrollWidth') <= width
    other = tab.evaluate(text('translation'))
    tab.open(published, link)
    tab.wait_for(f'{text("translation")} === {other!r}')
    tab.evaluate('document.getElementById("text").select()')
    tab.send('Input.insertText', text=' ')
    tab.wait_for(f'{text("translation")} === ""')


def text_of(tab: browser.Tab, selector: str) -> list[str]:
  """Returns the text of all elements that a selector names."""
  return tab.evaluate(
    f'[...document.querySelectorAll("{selector}")].map(x => x.textContent)'
  )


def test_a_page_of_stored_sentences(tmp_path: pathlib.Path):
  """It holds all weights and needs no network, whatever the words are."""
  words, path = ['</script>', '<b>', '@PAGE@', '"שלום'], tmp_path / 'page.html'
  rng = np.random.default_rng(0)
  draw = lambda: rng.uniform(-0.5, 1.5, (2, 3, 4, 4)).clip(-0.003, 1.003)  # rounded
  stored = {kind: (draw(), words, words) for kind in KINDS}
  first = {'kind': 'cross', 'layer': 0, 'heads': [0, 1, 2], 'word': None}
  page.write_sentences(path, [stored], 'run <x>', first)
  text = path.read_text()
  assert text.count('<script') == 4 and '<b>' not in text
  assert not re.search(r'(src|href)="|@import|url\(|fetch|XMLHttp|import ', text)
  whole = json.loads(browser.scripts(path)['shown'])
  (shown,) = whole.pop('sentences')
  assert whole == first | {'title': 'Attention', 'about': 'run <x>', 'N': 2, 'H': 3}
  for kind, (weights, *_) in stored.items():
    assert shown[kind]['rows'] == shown[kind]['columns'] == words
    read = np.frombuffer(base64.b64decode(shown[kind]['weights']), np.uint8)
    ours = read.reshape(weights.shape) / 255
    np.testing.assert_allclose(ours, weights.clip(0, 1), atol=0.002)


@pytest.mark.slow
def test_stored_sentences_in_a_browser(workdir: pathlib.Path, tmp_path: pathlib.Path):
  path = tmp_path / 'page.html'
  script = importlib.import_module('scripts.plot_attention')
  options = ['--text=one two\teins zwei', '--text=three\tdrei', '--word=two']
  options += [f'--html={path}', f'--output={tmp_path / "out"}']
  script.main(['plot_attention', f'--workdir={workdir}', *options])
  with browser.open_tab(tmp_path) as tab:
    tab.open(path)
    assert text_of(tab, '#rows button') == ['one', 'two', '</s>']
    assert text_of(tab, '#told')[0].startswith('\u2068two\u2069 \u2013 head 1: ')
    tab.evaluate('(x => (x.value = 1, x.onchange()))(document.all.sentences)')
    tab.click('[value=decoder]')
    assert text_of(tab, '#columns span') == ['<s>', 'drei']
