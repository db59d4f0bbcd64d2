"""Pictures of weights."""

import importlib
import pathlib

import numpy as np
import pytest

from toy import untrained
from transformer_jax.analysis import pictures
from transformer_jax.analysis.maps import Maps
from transformer_jax.machine.errors import UserError

N, H = 3, 4
WORDS = ['It', 'costs', '$5$', '<b>fett</b>', 'שלום', '</s>']


def sentence(source: list[str], target: list[str], seed: int = 0) -> Maps:
  """Returns random weights of the three attentions."""
  rng = np.random.default_rng(seed)

  def random(rows: list[str], columns: list[str]) -> np.ndarray:
    weights = np.exp(2 * rng.normal(size=(N, H, len(rows), len(columns))))
    return weights / weights.sum(-1, keepdims=True)

  texts = (source, source), (target, target), (target, source)
  return Maps(source, target, *(random(*pair) for pair in texts))


SENTENCES = [sentence(WORDS, ['Das', 'da', '</s>']), sentence(['a', '</s>'], ['</s>'])]


def test_pictures_of_the_chosen_layers(tmp_path: pathlib.Path):
  choice = pictures.choose(SENTENCES, 'cross', [1, 3], [2], None)
  written = pictures.write(tmp_path, SENTENCES, choice)
  assert {*written} == {*tmp_path.iterdir()}
  layers = [f'{n}.cross.layer-{layer}' for n in (1, 2) for layer in (1, 3)]
  forms = [f'{f}.{end}' for f in ('lines', 'maps') for end in ('svg', 'png')]
  names = {f'{layer}.{form}' for layer in layers for form in forms}
  assert {path.name for path in written} == names
  svg = (tmp_path / '1.cross.layer-3.lines.svg').read_text()
  for word in ('$5$', '&lt;b&gt;fett&lt;/b&gt;', 'שלום'):
    assert word in svg  # as text, whatever fonts are here


@pytest.mark.parametrize(
  ('heads', 'chosen', 'lines', 'squares'),
  [
    ([0, 1, 2, 3], 0, [12], [12]),  # Figure 3
    ([1], 0, [9, 3], [0, 3]),
    ([1, 2], 0, [9, 6], [0, 6]),  # Figure 4
    ([1], None, [9], [0]),  # Figure 5
  ],
)
def test_panels_of_the_figures(heads, chosen, lines, squares):
  """Of a head for all words, and of heads for a word, with a square for each weight.

  The weights are the strengths of lines and squares.
  """
  weights = np.linspace(0.1, 0.9, H * 9).reshape(H, 3, 3)
  figure = pictures.draw_lines(weights, WORDS[:3], WORDS[:3], heads, chosen, '')
  strengths = lambda parts: [part.get_alpha() for part in parts]
  assert [len(axes.lines) for axes in figure.axes] == lines
  *_, last = figure.axes
  shown = weights[heads] if chosen is None else weights[heads, chosen]
  assert strengths(last.lines) == [*shown.flat]
  if chosen is not None:
    assert strengths(last.patches) == [*shown.flat]
  assert [len(axes.patches) for axes in figure.axes] == squares


def test_heat_maps():
  """Each of a head's weights, from 0 to 1 in all maps, with the words beside them."""
  weights = np.linspace(0.1, 0.9, H * 6).reshape(H, 2, 3)
  figure = pictures.draw_maps(weights, WORDS[:2], WORDS[:3], [1, 3], 'a title')
  first, second, bar = figure.axes
  for head, axes in (2, first), (4, second):
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), weights[head - 1])
    assert image.get_clim() == (0, 1) and axes.get_title() == f'head {head}'
  names = lambda labels: [label.get_text() for label in labels]
  assert names(first.get_xticklabels()) == WORDS[:3]
  assert names(first.get_yticklabels()) == WORDS[:2]
  assert figure.get_suptitle() == 'a title' and bar.get_ylabel() == 'weight'
  assert len(pictures.draw_maps(weights, WORDS[:2], WORDS[:3], [0], '').axes) == 2


def test_messages():
  for chosen, message in (
    (([4], [], None), '--layers=4: the model has layers 1 to 3'),
    (([], [1, 5], None), '--heads=5: the model has heads 1 to 4'),
    (([], [], 'its'), '--word=its: no sentence has it; the first has: It costs'),
  ):
    with pytest.raises(UserError, match=message):
      pictures.choose(SENTENCES, 'encoder', *chosen)


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
  return untrained.write(tmp_path_factory.mktemp('scripts')).parent


def call(folder: pathlib.Path, name: str, *options: str) -> None:
  script = importlib.import_module(f'scripts.{name}')
  script.main([name, f'--workdir={folder / "run"}', *options])


@pytest.mark.slow
def test_sentences_to_pictures(folder: pathlib.Path, tmp_path, monkeypatch, capsys):
  """--text may have a translation behind a tab; empty texts are left out."""
  monkeypatch.chdir(tmp_path)
  text = ['--text=one, two\teins zwei', '--text=', '--text=three\tdrei', '--word=three']
  call(folder, 'plot_attention', *text, '--layers=2', '--heads=2,3')
  written = [pathlib.Path(line) for line in capsys.readouterr().out.split()]
  assert len(written) == 1 + 2 * 4 and all(path.is_file() for path in written)
  assert written[0] == pathlib.Path('attention', 'run', 'attention.html')


@pytest.mark.slow
def test_a_survey(folder: pathlib.Path, capsys):
  options = f'--data_dir={folder / "data"}', f'--output={folder / "survey"}'
  call(folder, 'survey_heads', *options, '--sentences=5', '--prune')
  printed = capsys.readouterr().out
  assert '| encoder-decoder | ends |' in printed
  assert 'without one head it changes by:' in printed
  assert {path.stem for path in (folder / 'survey').iterdir()} == {'heads', 'pruning'}
