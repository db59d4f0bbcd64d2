"""Where lines were lost is found, nearly always."""

import pathlib
import random

import pytest

from transformer_jax.data.misalignment import suspicious


def sides_of(path: pathlib.Path) -> list[list[str]]:
  """English and German."""
  return [
    path.with_name(f'{path.name}.{language}').read_bytes().decode().split('\n')[:-1]
    for language in ('en', 'de')
  ]


@pytest.mark.parametrize('missing', [1, 2, 40])
@pytest.mark.parametrize(
  'stem',
  [
    'multi30k/val',
    'newstest/en-de/newstest2013',
    'multi30k/test_2016_flickr.lc.norm.tok',
  ],
)
def test_lines_lost_in_one_place(stem: str, missing: int, shared_data):
  """Of either side."""
  whole = sides_of(shared_data / stem)
  rng = random.Random(missing)
  wrong = []
  for trial in range(10):
    sides = [list(side) for side in whole]
    place = rng.randrange(len(whole[0]) - missing)
    del sides[trial % 2][place : place + missing]
    wrong.append(abs(suspicious(*sides) - (place + 1)))
  assert sorted(wrong)[8] <= 30, wrong


def test_lines_lost_in_several_places(shared_data):
  """The first of the places is what is named."""
  whole = sides_of(shared_data / 'newstest/en-de/newstest2014')
  rng = random.Random(0)
  wrong = []
  for trial in range(10):
    sides = [list(side) for side in whole]
    places = sorted(rng.sample(range(3000), 4))
    for place in reversed(places):
      del sides[trial % 2][place]
    wrong.append(abs(suspicious(*sides) - (places[0] + 1)))
  assert sorted(wrong)[8] <= 30, wrong


@pytest.mark.slow
def test_a_line_lost_among_sorted_ones(shared_data):
  """newsmix's Tatoeba part is sorted by length, which then tells nothing."""
  whole = sides_of(shared_data / 'newsmix/en-de/train')
  rng = random.Random(5)
  wrong = []
  for trial in range(4):
    sides = [list(side) for side in whole]
    place = rng.randrange(100_000, 240_000)
    del sides[trial % 2][place]
    wrong.append(abs(suspicious(*sides) - (place + 1)))
  assert sorted(wrong)[2] <= 100, wrong


@pytest.mark.parametrize('counts', [(1, 2), (0, 1), (1, 0), (9, 0), (3, 50), (50, 3)])
def test_tiny_sides(counts: tuple[int, int]):
  """A line that is no text is as good as an empty one."""
  for line in ('a', '', None):
    found = suspicious(*([line] * count for count in counts))
    assert 1 <= found <= max(counts)


def test_by_numbers_and_names_alone():
  """Lines of one length: what stays the same in a translation tells."""
  rng = random.Random(1)
  rows = [f'{rng.randrange(10**6):06}' for _ in range(300)]
  sides = [f'On line {row}' for row in rows], [f'In Zeile {row}' for row in rows]
  for place in (0, 100, 250):
    short = sides[0][:place] + sides[0][place + 1 :]
    assert abs(suspicious(short, sides[1]) - (place + 1)) <= 5
