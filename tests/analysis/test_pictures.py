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


@pytest.mark.slow
def test_pictures_of_the_chosen_layers(tmp_path: pathlib.Path):
  """The words are text, whatever fonts are here."""
  choice = pictures.choose(SENTENCES, 'cross', [1, 3], [2], 'da')
  written = pictures.write(tmp_path / 'new', SENTENCES, choice)
  forms = [f'{f}.{end}' for f in ('lines', 'maps') for end in ('svg', 'png')]
  layers = [f'{n}.cross.layer-{layer}' for n in (1, 2) for layer in (1, 3)]
  names = [f'{layer}.{form}' for layer in layers for form in forms]
  assert written == [tmp_path / 'new' / name for name in names]
  assert {*written} == {*(tmp_path / 'new').iterdir()}
  title = 'encoder-decoder attention, layer 3 of 3, head 2'
  for form in 'lines', 'maps':
    svg = (tmp_path / 'new' / f'1.cross.layer-3.{form}.svg').read_text()
    for words in (title, 'Das', '$5$', '&lt;b&gt;fett&lt;/b&gt;', 'שלום'):
      assert f'>{words}</text>' in svg
  svg = lambda n: (tmp_path / 'new' / f'{n}.cross.layer-3.lines.svg').read_text()
  assert svg(1).count('id="patch_') > svg(2).count('id="patch_'), 'squares of a word'


def test_what_is_drawn_by_default():
  """All heads of the last layer but one; a word's weights in a sentence that has it."""
  assert pictures.choose(SENTENCES, 'cross', [], [], None) == (
    *('cross', [1], [0, 1, 2, 3], [None, None]),
  )
  for kind, word, rows in ('cross', 'da', [1, None]), ('encoder', '</s>', [5, 1]):
    assert pictures.choose(SENTENCES, kind, [3], [4], word) == (kind, [2], [3], rows)
  single = [maps._replace(encoder=maps.encoder[:1]) for maps in SENTENCES]
  assert pictures.choose(single, 'encoder', [], [], None).layers == [0]
  for chosen, message in (
    (([4], [], None), '--layers=4: the model has layers 1 to 3'),
    (([], [1, 5], None), '--heads=5: the model has heads 1 to 4'),
    (([], [], 'its'), '--word=its: no sentence has it; the first has: It costs'),
  ):
    with pytest.raises(UserError, match=message):
      pictures.choose(SENTENCES, 'encoder', *chosen)


def test_panels_of_the_figures():
  """A line leads from row to column, as strong as its weight, in its head's colour."""
  weights = np.linspace(0.01, 1.1, H * 12).reshape(H, 3, 4).clip(0, 1.01)
  for heads, chosen, panels in (
    ([0, 1, 2, 3], 0, [([0, 1, 2, 3], 0)]),  # Figure 3
    ([1, 2], 0, [([1], None), ([1, 2], 0)]),  # Figure 4
    ([1], None, [([1], None)]),  # Figure 5
  ):
    figure = pictures.draw_lines(weights, WORDS[:3], WORDS[:4], heads, chosen, '')
    colours = {}
    for axes, (shown, row) in zip(figure.axes, panels, strict=True):
      expected = {
        (head, t, s): min(weights[head, t, s], 1.0)
        for head in shown
        for t in (range(3) if row is None else [row])
        for s in range(4)
        if weights[head, t, s] >= 0.02
      }
      lines = zip(axes.lines, expected.items(), strict=True)
      for line, ((head, t, s), weight) in lines:
        np.testing.assert_array_equal(line.get_xydata(), [(0, t), (1, s)])
        assert line.get_alpha() == weight
        assert (colours.setdefault(head, line.get_color()) == line.get_color()).all()
      squares = [square.get_facecolor() for square in axes.patches]
      of_row = expected.items() if row is not None else ()
      assert squares == [pytest.approx((*colours[h], x)) for (h, *_), x in of_row]
      assert [text.get_text() for text in axes.texts] == WORDS[:3] + WORDS[:4]
    assert len({tuple(colour) for colour in colours.values()}) == len(colours)


def test_heat_maps():
  """Each has its head's weights, from 0 to 1 in all maps."""
  weights, heads = np.linspace(0.1, 0.9, 6 * 6).reshape(6, 2, 3), [0, 1, 2, 3, 5]
  figure = pictures.draw_maps(weights, WORDS[:2], WORDS[:3], heads, 'a title')
  shown = [axes for axes in figure.axes[:-1] if axes.axison]
  for head, axes in zip(heads, shown, strict=True):
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), weights[head])
    assert image.get_clim() == (0, 1) and axes.get_title() == f'head {head + 1}'


@pytest.mark.slow
def test_a_survey(tmp_path: pathlib.Path, capsys):
  workdir = untrained.write(tmp_path)
  options = f'--data_dir={tmp_path / "data"}', f'--output={tmp_path / "survey"}'
  options += f'--workdir={workdir}', '--sentences=5', '--prune'
  script = importlib.import_module('scripts.survey_heads')
  script.main(['survey_heads', *options])
  printed = capsys.readouterr().out
  assert '| encoder-decoder | ends |' in printed
  assert 'without one head it changes by:' in printed
  assert {path.stem for path in (tmp_path / 'survey').iterdir()} == {'heads', 'pruning'}
