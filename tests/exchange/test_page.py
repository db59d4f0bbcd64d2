"""The page computes what the package computes, and shows it."""

import base64
import importlib
import json
import math
import pathlib
import re
import shutil
import subprocess
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import transformer_jax
from toy import untrained
from transformer_jax.analysis.maps import KINDS, RunAttention
from transformer_jax.analysis.survey import without_head
from transformer_jax.decoding.loaded_run import LoadedRun
from transformer_jax.exchange import page
from transformer_jax.exchange.export import export
from transformer_jax.model import flops
from transformer_jax.runs.run import Run

ROOT = pathlib.Path(__file__).parents[2]
PRETRAINED = ROOT / 'pretrained/tatoeba.en-de'
DEV = ROOT / 'tests/fixtures/tatoeba.dev.en'  # the first 200 sentences of its dev

TRANSLATE = """
const {model, lines, off} = JSON.parse(require('fs').readFileSync(0, 'utf8'));
load(model).then(loaded => console.log(JSON.stringify(lines.map(line => {
  const {beam, alpha} = loaded;
  const search = translate(loaded, line, {off, beam, alpha});
  let step;
  do step = search.next(); while (!step.done);
  const {steps, end, ...output} = step.value;
  return output;
}))));
"""
# At the end of a page; its answer is a line of the browser's log.
ACT = """<script>(async () => {
  const wait = () => new Promise(go => setTimeout(go, 50));
  const shows = async (id, text) => {
    while (!at(id).textContent.includes(text)) await wait();
  };
  const type = text => at('text').oninput(at('text').value = text);
  const press = selector => document.querySelector(selector).click();
  const texts = selector =>
    [...document.querySelectorAll(selector)].map(x => x.textContent);
  BODY
})().catch(String).then(x => console.log(`ANSWER ${JSON.stringify(x)} END`))</script>"""
FLAGS = (
  '--headless --no-sandbox --disable-gpu --disable-quic --no-first-run '
  '--disable-background-networking --disable-component-update --disable-sync '
  '--enable-logging=stderr --remote-debugging-port=0'
).split()


def scripts(path: pathlib.Path) -> dict[str, str]:
  """Returns the content of a page's <script> elements that have an id."""
  found = re.findall(r'<script[^>]* id="(\w+)">(.*?)</script>', path.read_text(), re.S)
  return dict(found)


def translate(
  path: pathlib.Path, lines: Sequence[str], off: Sequence[str] = ()
) -> list[dict[str, Any]]:
  """Returns what the model of a page makes of each line, by Node."""
  if not shutil.which('node'):
    pytest.skip('Node is not installed')
  content = scripts(path)
  sent = json.dumps({'model': content['model'], 'lines': [*lines], 'off': [*off]})
  command = ['node', '-e', content['transformer'] + TRANSLATE]
  done = subprocess.run(command, input=sent, capture_output=True, text=True)
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


def act(path: pathlib.Path, folder: pathlib.Path, body: str, link: str = '') -> Any:
  """Returns what an async function of this body returns in a page, in Chromium."""
  program = shutil.which('chromium') or shutil.which('chromium-browser')
  if program is None:
    pytest.skip('Chromium is not installed')
  copy = folder / 'with_actions.html'
  copy.write_text(path.read_text() + ACT.replace('BODY', body))
  command = [program, *FLAGS, f'--user-data-dir={folder / "chromium"}']
  command.append(f'{copy.as_uri()}{link}')
  with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as browser:
    try:
      answers = (re.search('ANSWER (.*) END', line) for line in browser.stderr)
      return json.loads(next(filter(None, answers))[1])
    finally:
      browser.kill()


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


def compare(path: pathlib.Path, run: LoadedRun, lines: Sequence[str]) -> None:
  """Compares pieces, tokens, scores and the weights of all heads."""
  theirs = translate(path, lines)
  ours = [best for (best,) in run.hypotheses(lines, nbest=1)]
  sources, names = run.source_ids(lines), [v.pieces() for v in run.vocabularies]
  for best, source, output in zip(ours, sources, theirs, strict=True):
    assert output['source'] == [names[0][i] for i in source]
    assert (output['tokens'], output['text']) == (best.tokens, best.text)
    assert output['score'] == pytest.approx(best.score, abs=1e-4)
  ends = [best.tokens if best.tokens[-1] == 1 else [*best.tokens, 1] for best in ours]
  pairs = [*zip(sources, ends, strict=True)]
  for number, of_pair in RunAttention(run).weights(pairs):
    for kind, expected in zip(KINDS, of_pair, strict=True):
      weights = theirs[number]['weights'][kind]
      np.testing.assert_allclose(weights, expected.ravel(), atol=1e-3)


def test_what_a_page_shows_at_first(tmp_path: pathlib.Path):
  changes = {'model.positions': 'learned', 'model.max_positions': 64, 'model.N': 3}
  workdir, path = untrained.write(tmp_path, **changes), tmp_path / 'page.html'
  config = workdir / 'config.json'
  config.write_text(config.read_text().replace('"de"', '"xx"'))
  (workdir / 'LICENSE').write_text('</script> of mine')
  dev = '{"step": 1, "dev_perplexity": %s}\n' * 3 % (9.0, math.e, 'null')
  (workdir / 'metrics.jsonl').write_text(dev)
  export(workdir, 'page', path, None, None, None)
  shown, model = (json.loads(scripts(path)[name]) for name in ('shown', 'model'))
  assert (model['longest'], model['nats']) == (64, 1.0)
  size = flops.parameters(Run(workdir).config().model)
  assert len(zlib.decompress(base64.b64decode(model['parameters']))) == 2 * size
  assert f'{size:,} parameters' in shown.pop('about')
  expected = {'title': 'English to xx', 'rights': '</script> of mine', 'N': 3, 'H': 3}
  expected |= {'beam': 4, 'alpha': 0.6, 'kind': 'cross', 'layer': 1, 'heads': [0, 1, 2]}
  expected |= {'languages': ['en', 'xx'], 'sentences': [], 'word': None}
  assert shown == expected | {'text': 'Where is the nearest station?'}


@pytest.mark.slow
@pytest.mark.filterwarnings('ignore:less probable than references')
def test_the_published_model(published: pathlib.Path):
  assert published.stat().st_size < 8_000_000
  lines = DEV.read_text().splitlines()[::2]
  assert len(lines) == 100
  compare(published, rounded(PRETRAINED), lines)


@pytest.mark.slow
@pytest.mark.parametrize(
  'changes',
  [
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
  """Untrained, with learned positions, a vocabulary of each language, bytes."""
  workdir, path = untrained.write(tmp_path, **changes), tmp_path / 'page.html'
  export(workdir, 'page', path, None, None, None)
  lines = 'One, two "five"', ' seven-up  six\u00a0', 'six Ω \u00e9 e\u0301', 'ten'
  compare(path, rounded(workdir), lines)


@pytest.mark.slow
def test_what_is_switched_off(published: pathlib.Path):
  """A head without output is one whose rows of W^O are zero."""
  run = rounded(PRETRAINED)
  run.params = without_head(jax.tree.map(jnp.asarray, run.params), 'cross', 3, 4)
  ((best,),) = run.hypotheses(['I saw you there.'], nbest=1)
  (output,) = translate(published, ['I saw you there.'], ['cross.3.4'])
  assert output['tokens'] == best.tokens
  assert output['score'] == pytest.approx(best.score, abs=1e-4)


@pytest.mark.slow
def test_the_page_in_a_browser(published: pathlib.Path, tmp_path: pathlib.Path):
  body = """
    await shows('translation', 'Wo ist der nächste Bahnhof?');
    type('Tom is <b>Ω</b>.');
    await shows('notices', 'outside the vocabulary');
    type('I saw you there.');
    await shows('translation', 'Ich habe dich dort gesehen.');
    press('#maps button:nth-child(9)');
    press('#rows button:nth-child(4)');
    const target = texts('#target span').join(' '), [told] = texts('#told');
    const best = texts('#tree .best span:first-child');
    const head = `${chosen('layer')} ${chosen('head')}`;
    press('[value=positions]');
    await shows('trained', 'As trained: Ich habe dich dort gesehen.');
    const [other] = texts('#translation'), link = location.hash;
    return {target, best, head, told, other, link};
  """
  seen = act(published, tmp_path, body)
  assert seen['target'] == '▁Ich ▁habe ▁dich ▁dort ▁gesehen . </s>'
  assert seen['best'][-2:] == ['.', '</s>'] and seen['head'] == '1 0'
  assert seen['told'].startswith('\u2068▁dort\u2069 \u2013 head 1: ')
  assert (other := seen['other']) != 'Ich habe dich dort gesehen.'
  body = f"await shows('translation', {other!r}); return texts('#translation')"
  assert act(published, tmp_path, body, seen['link']) == [other]


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
  whole = json.loads(scripts(path)['shown'])
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
  options = ['--text=one two\teins zwei', '--text=', '--text=three\tdrei']
  options += ['--layers=2', '--heads=1,3', '--word=two']
  options += [f'--html={path}', f'--output={tmp_path / "out"}']
  script.main(['plot_attention', f'--workdir={workdir}', *options])
  assert len([*(tmp_path / 'out').iterdir()]) == 2 * 4
  body = """
    const before = [texts('#rows button'), texts('#told')];
    at('sentences').onchange(at('sentences').value = 1);
    press('[value=decoder]');
    return [...before, texts('#columns span')];
  """
  rows, (told,), columns = act(path, tmp_path, body)
  assert rows == ['one', 'two', '</s>'] and columns == ['<s>', 'drei']
  assert told.startswith('\u2068two\u2069 \u2013 head 1: ')
