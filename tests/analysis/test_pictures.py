"""Pictures of weights, and the page, which a browser tries if one is installed."""

import base64
import importlib
import json
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

from toy import untrained
from transformer_jax.analysis import figures
from transformer_jax.analysis.figures import View
from transformer_jax.analysis.maps import KINDS, Maps
from transformer_jax.machine.errors import UserError
from transformer_jax.model.layers import sinusoids

N, H = 3, 4
WORDS = ['It', 'costs', '$5$', '<b>fett</b>', '</script>', '@DATA@', 'שלום', '</s>']
BROWSER = shutil.which('chromium') or shutil.which('google-chrome')


def sentence(source: list[str], target: list[str], seed: int = 0) -> Maps:
  """Returns random weights of the three attentions."""
  rng = np.random.default_rng(seed)

  def random(rows: list[str], columns: list[str]) -> np.ndarray:
    weights = np.exp(2 * rng.normal(size=(N, H, len(rows), len(columns))))
    return weights / weights.sum(-1, keepdims=True)

  texts = (source, source), (target, target), (target, source)
  return Maps(source, target, *(random(*pair) for pair in texts))


SENTENCES = [sentence(WORDS, ['Das', 'da', '</s>']), sentence(['a', '</s>'], ['</s>'])]


def view(kind: str = 'encoder', layers=(), heads=(), word=None) -> View:
  return View(kind, layers, heads, word)


def data_of(page: pathlib.Path) -> dict:
  text = page.read_text()
  return json.loads(re.search(r'type="application/json"[^>]*>(.*?)</script>', text)[1])


def test_pictures_of_the_chosen_layers(tmp_path: pathlib.Path):
  written = figures.write(tmp_path, SENTENCES, 'x', view('cross', [1, 3], [2]))
  names = {path.name for path in written}
  assert names == {path.name for path in tmp_path.iterdir()}
  pictures = {
    f'{n}.cross.layer-{layer}.{form}.{ending}'
    for n in (1, 2)
    for layer in (1, 3)
    for form in ('lines', 'maps')
    for ending in ('svg', 'png')
  }
  assert names == pictures | {'attention.html'}
  svg = (tmp_path / '1.cross.layer-3.lines.svg').read_text()
  for word in ('$5$', '&lt;b&gt;fett&lt;/b&gt;', 'שלום'):
    assert word in svg  # as text, whatever fonts are here
  by_default = figures.write(tmp_path, SENTENCES[:1], 'x', view('encoder'))
  assert {p.name.split('.')[2] for p in by_default[1:]} == {f'layer-{N - 1}'}


def test_the_strength_of_a_line_is_its_weight():
  weights = SENTENCES[0].encoder[1]
  figure = figures.draw_lines(weights, WORDS, WORDS, [0, 2], 3, 'x')
  (axes,) = figure.axes
  assert all(line.get_ydata()[0] == 3 for line in axes.lines)
  assert len({line.get_color() for line in axes.lines}) == 2
  visible = [weights[h, 3, c] for h in (0, 2) for c in range(len(WORDS))]
  visible = [w for w in visible if w >= figures.FAINTEST]
  assert sorted(line.get_alpha() for line in axes.lines) == pytest.approx(
    sorted(visible)
  )
  one_head = figures.draw_lines(weights, WORDS, WORDS, [1], 3, 'x')
  whole, one = ({line.get_ydata()[0] for line in axes.lines} for axes in one_head.axes)
  assert whole == {*range(len(WORDS))} and one == {3}


@pytest.mark.parametrize(
  ('chosen', 'message'),
  [
    (view(layers=[4]), '--layers=4: the model has layers 1 to 3'),
    (view(heads=[1, 5]), '--heads=5: the model has heads 1 to 4'),
    (view(word='its'), '--word=its: no sentence has it; the first has: It costs'),
  ],
)
def test_messages(chosen: View, message: str, tmp_path: pathlib.Path):
  with pytest.raises(UserError, match=re.escape(message)):
    figures.write(tmp_path, SENTENCES, 'x', chosen)
  assert not [*tmp_path.iterdir()]


def test_the_page_holds_all_weights_and_needs_no_network(tmp_path: pathlib.Path):
  page, *_ = figures.write(tmp_path, SENTENCES, 'run <x>', view(word='It'))
  text, data = page.read_text(), data_of(page)
  assert text.count('<script') == 2 and '<b>' not in text
  assert not re.search(r'(src|href)=|@import|url\(|fetch|innerHTML', text)
  assert set(re.findall(r'https?://[\w./]+', text)) == {'http://www.w3.org/2000/svg'}
  assert data['word'] == 0 and data['layer'] == 1 and data['about'] == 'run <x>'
  for maps, page_maps in zip(SENTENCES, data['sentences'], strict=True):
    for kind in KINDS:
      weights, rows, columns = maps.of(kind)
      assert page_maps[kind]['rows'] == rows and page_maps[kind]['columns'] == columns
      read = np.frombuffer(base64.b64decode(page_maps[kind]['weights']), np.uint8)
      np.testing.assert_allclose(read.reshape(weights.shape) / 255, weights, atol=0.002)


ACTIONS = """
const log = [];
const press = (key, what) => document.querySelector(`[data-key="${key}"]`)[what]();
const type = (element, key) => element.dispatchEvent(
  new KeyboardEvent('keydown', {key, bubbles: true}));
const note = () => log.push([
  document.querySelectorAll('#lines line').length,
  [...document.querySelectorAll('#rows [aria-pressed=true]')].map(e => e.textContent),
  document.querySelectorAll('#heads [aria-pressed=true]').length,
  document.querySelectorAll('#maps button').length,
  document.getElementById('told').textContent]);
note();
press('word 1', 'click'); note();
type(document.querySelector('[data-key="word 1"]'), 'ArrowDown'); note();
press('head 0', 'click'); press('kind cross', 'click'); note();
press('map 2 3', 'click'); note();
const chooser = document.getElementById('sentences');
chooser.value = 1; chooser.dispatchEvent(new Event('change')); note();
log.push(document.documentElement.scrollWidth <= innerWidth);
document.body.textContent = JSON.stringify(log);
"""


@pytest.mark.skipif(BROWSER is None, reason='no Chromium here')
def test_the_page_in_a_browser(tmp_path: pathlib.Path):
  """Clicks and keys choose words, heads, attentions, maps and sentences."""
  page, *_ = figures.write(tmp_path, SENTENCES, 'x', view())
  tried = page.read_text().replace('</body>', f'<script>{ACTIONS}</script></body>')
  page.write_text(tried)
  command = [BROWSER, '--headless', '--no-sandbox', '--disable-gpu', '--no-first-run']
  command += ['--disable-background-networking', f'--user-data-dir={tmp_path / "home"}']
  command += ['--window-size=500,900', '--dump-dom', page.as_uri()]
  done = subprocess.run(command, capture_output=True, text=True, timeout=120)
  body = re.search(r'<body>(.*)</body>', done.stdout, re.DOTALL)[1]
  *log, narrow = json.loads(body.replace('&lt;', '<').replace('&gt;', '>'))
  whole, clicked, moved, cross, mapped, other = log
  size = len(WORDS)
  assert whole[0] > clicked[0] > 0 and whole[1] == [] and whole[2] == H + 1
  assert clicked[1] == ['costs'] and clicked[4].startswith('\u2068costs\u2069')
  assert moved[1] == ['$5$'] and moved[0] <= H * size
  assert cross[2] == H - 1 and cross[1] == [] and cross[0] <= 3 * size * (H - 1)
  assert mapped[2] == 1 and mapped[0] <= 3 * size
  assert other[3] == N * H and other[0] <= 2 and narrow


def test_sinusoids_are_as_similar_as_they_are_near():
  """Section 3.5: PE(pos + k) depends on PE(pos) by k alone; learnt ones need not."""
  learnt = np.random.default_rng(0).normal(size=(9, 12))
  figure = figures.draw_similarity({'sinusoids': sinusoids(20, 12), 'learned': learnt})
  first, second, *_ = figure.axes
  assert np.ptp(np.diagonal(first.images[0].get_array(), 9)) < 1e-5
  assert np.ptp(np.diagonal(second.images[0].get_array(), 1)) > 0.1


# The scripts, from flags to files


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  folder = tmp_path_factory.mktemp('scripts')
  untrained.write(folder)
  return folder


def call(folder: pathlib.Path, name: str, *options: str) -> None:
  script = importlib.import_module(f'scripts.{name}')
  script.main([name, f'--workdir={folder / "run"}', *options])


def test_sentences_to_pictures(folder: pathlib.Path, capsys):
  """--text may have a translation behind a tab; empty texts are left out."""
  text = ['--text=one, two\teins zwei', '--text=', '--text=three', '--word=three']
  call(folder, 'plot_attention', *text, '--layers=1,2', '--heads=2,3')
  written = [pathlib.Path(line) for line in capsys.readouterr().out.split()]
  assert len(written) == 1 + 2 * 2 * 4 and all(path.is_file() for path in written)
  assert written[0] == folder / 'run' / 'attention' / 'attention.html'
  with pytest.raises(UserError, match='no sentence to show'):
    call(folder, 'plot_attention', '--text=', '--text= ')


@pytest.mark.slow
def test_a_survey(folder: pathlib.Path, capsys):
  options = f'--data_dir={folder / "data"}', f'--output={folder / "survey"}'
  call(folder, 'survey_heads', *options, '--sentences=5', '--prune')
  printed = capsys.readouterr().out
  assert 'Means over 5 sentences of dev.' in printed
  assert '| encoder-decoder | ends |' in printed
  assert 'without one head it changes by:' in printed
  assert {path.name for path in (folder / 'survey').iterdir()} == {
    f'{name}.{ending}' for name in ('heads', 'pruning') for ending in ('svg', 'png')
  }
  call(folder, 'survey_heads', *options, '--query=zwei', '--key=two')
  assert '## From zwei to two' in capsys.readouterr().out
