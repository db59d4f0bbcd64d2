"""Programs for all shapes are made in other threads, in the order they are needed."""

import threading

import pytest

from transformer_jax.data.batches import Shape
from transformer_jax.training import compilation
from transformer_jax.training.compilation import Programs

SHAPES = [Shape(rows, 8, 9) for rows in range(1, 9)]


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
  """Which are one thread that compiles."""
  monkeypatch.setattr(compilation.platform, 'compiling_threads', lambda: 1)


class Compiler:
  """Compiles nothing; waits for `go`."""

  def __init__(self, bad: Shape | None = None):
    self.begun: list[Shape] = []
    self.go = threading.Event()
    self._bad = bad

  def __call__(self, shape: Shape) -> Shape:
    self.begun.append(shape)
    assert self.go.wait(60)
    if shape == self._bad:
      raise MemoryError('of the device')
    return shape


def test_each_shape_has_its_own():
  compiler = Compiler()
  compiler.go.set()
  with Programs(compiler, SHAPES) as programs:
    assert [programs[shape] for shape in SHAPES] == SHAPES
    programs.wait_for_all()
  assert compiler.begun == SHAPES
  assert programs[SHAPES[-1]] == SHAPES[-1]
  with pytest.raises(KeyError):
    programs[Shape(9, 8, 9)]


def test_waiting_can_be_given_up():
  compiler, looks = Compiler(), iter([False, False, True])
  with Programs(compiler, SHAPES) as programs:
    programs.wait(SHAPES[-1], lambda: next(looks))
    assert next(looks, None) is None
    compiler.go.set()
    programs.wait(SHAPES[-1], lambda: False)
    assert programs[SHAPES[-1]] == SHAPES[-1]


def test_what_is_not_begun_is_dropped():
  """What is begun is waited for: it may not go on in a process that ends."""
  compiler = Compiler()
  with Programs(compiler, SHAPES):
    threading.Timer(0.1, compiler.go.set).start()
  assert compiler.go.is_set()
  assert len(compiler.begun) < len(SHAPES)


def test_an_error_is_raised_where_the_program_is_used():
  compiler = Compiler(bad=SHAPES[1])
  compiler.go.set()
  with Programs(compiler, SHAPES) as programs:
    assert programs[SHAPES[0]] == SHAPES[0]
    for use in (lambda: programs[SHAPES[1]], programs.wait_for_all):
      with pytest.raises(MemoryError, match='of the device'):
        use()


def test_memory_is_given_back_after_each(monkeypatch: pytest.MonkeyPatch):
  """This comes before the program can be used, since an update needs memory too."""
  compiler, given_back = Compiler(), []
  compiler.go.set()
  monkeypatch.setattr(compilation.memory, 'give_back', lambda: given_back.append(1))
  with Programs(compiler, SHAPES) as programs:
    programs.wait_for_all()
    assert len(given_back) == len(SHAPES)
