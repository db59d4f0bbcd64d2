"""The forms that an NVIDIA GPU needs of operations: kernels in Pallas, for Triton.

XLA's programs wait for memory, and write arrays that only the next operation reads. A
kernel keeps these in registers. The plain form of an operation is its definition, the
form for other accelerators, and for shapes that the kernel does not take. Comments
count the numbers that each kernel must move; n is the size of an activation.

layers.py explains the names of axes; C are the columns of all heads in one array.
"""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.experimental import pallas as pl

# Deprecated since JAX 0.11, with no date for its end; pyproject.toml asks for less than
# 0.13. Tried in November 2026 in its place: Pallas for Mosaic GPU (Hopper and later; no
# general product, no masked loads), and jax-triton (0.4.1 fails on JAX 0.12.0.1).
from jax.experimental.pallas import triton
from jax.typing import DTypeLike

from transformer_jax.model import ops
from transformer_jax.model.dropout import Dropout, keep_four, threefry_2x32

MOST_TOKENS = 256  # of a text, in attention
# Compute capabilities of GPUs with 163 KB of shared memory for a block, or more.
LARGE = '8.0', '9.0', '10.0', '10.3'
TILES = 4  # that a program of add-and-norm takes in the backward pass
Ref = Any  # an array that a kernel reads or writes
Index = Array | int
Arrays = tuple[Array, ...]
Gradients = tuple[Array | None, ...]  # None: of a mask or of integers
Form = Callable[..., Any]
f32 = jnp.float32
_new = jax.ShapeDtypeStruct
_like = lambda x: _new(x.shape, x.dtype)
_dot = triton.dot  # multiplies float32 as jax_default_matmul_precision has it


class Span(NamedTuple):
  """A block of `size` indices of an axis, of which those below `end` exist.

  Triton's blocks have powers of two elements, so the last one of an axis is masked.
  """

  start: Index
  size: int
  end: int | None = None  # None: all exist

  @classmethod
  def of(cls, number: Index, size: int, count: int) -> 'Span':
    """Returns one of the blocks into which `count` indices are cut."""
    return cls(number * size, size, count if count % size else None)

  def indices(self, axis: int = 0, axes: int = 1) -> Array:
    shape = tuple(self.size if n == axis else 1 for n in range(axes))
    return self.start + jax.lax.broadcasted_iota(jnp.int32, shape, axis)


def _block(ref: Ref, at: tuple[Span | Index, ...]) -> tuple[Any, Array | None]:
  """Returns a block of an array, and which of its elements exist; None: all."""
  spans = [x for x in at if isinstance(x, Span)]
  ends = [(n, x, x.end) for n, x in enumerate(spans) if x.end is not None]
  masks = [x.indices(n, len(spans)) < end for n, x, end in ends]
  # JAX 0.12 refuses a block that it knows to reach beyond the end, so the start is an
  # array, whose value it does not know.
  start = lambda x: jnp.asarray(x.start, jnp.int32)
  index = (pl.ds(start(x), x.size) if isinstance(x, Span) else x for x in at)
  mask = functools.reduce(jnp.logical_and, masks) if masks else None
  return ref.at[tuple(index)], mask


def load(ref: Ref, *at: Span | Index) -> Array:
  """Returns a block of an array, with zeros where it does not exist."""
  block, mask = _block(ref, at)
  other = None if mask is None else jnp.zeros((), ref.dtype)
  return triton.load(block, mask=mask, other=other)


def store(value: Array, ref: Ref, *at: Span | Index) -> None:
  block, mask = _block(ref, at)
  triton.store(block, value.astype(ref.dtype), mask=mask)


def _launch(kernel: Form, grid: tuple[int, ...], warps: int, *results: Any) -> Form:
  return pl.pallas_call(
    kernel,
    grid=grid,
    out_shape=results,
    interpret=ops.kernel_mode.value == 'interpret',
    compiler_params=triton.CompilerParams(num_warps=warps, num_stages=1),
  )


# Attention: softmax(Q K^T / sqrt(d_k)) V (equation 1) of one head of a sentence. It
# takes q, k and v from arrays [B, T, C] as their products write them, and writes heads
# as W^O takes them: 4 n numbers forward, 7 n backward. It saves the copies that
# transpose q, k, v and their gradients, and all arrays of [B, H, T, M].


class _Heads(NamedTuple):
  """Sizes of an attention."""

  is_self: bool  # one array has the columns of q, k and v; else q has its own
  h: int
  d_k: int
  d_v: int
  T: int
  M: int

  @property
  def keys(self) -> Span:
    return Span.of(0, max(16, pl.next_power_of_2(self.M)), self.M)

  def columns(self) -> list[Span]:
    """Returns this program's columns of q, k, v and the output, in their arrays."""
    head, all_q = pl.program_id(1), self.h * self.d_k
    k = all_q if self.is_self else 0
    firsts, widths = (0, k, k + all_q, 0), (self.d_k,) * 2 + (self.d_v,) * 2
    return [Span(n + head * d, d) for n, d in zip(firsts, widths, strict=True)]

  def call(self, is_forward: bool, *inputs: Array, results: Iterable[Any]) -> Arrays:
    kernel = functools.partial(_attention_kernel, of=self, is_forward=is_forward)
    warps = 2 if self.keys.size <= 32 else 4 if self.keys.size <= 128 else 8
    return _launch(kernel, (len(inputs[0]), self.h), warps, *results)(*inputs)

  def weights(
    self, q: Array, k: Array, mask: Ref, at: tuple[Index, Span]
  ) -> tuple[Array, Array]:
    """Returns the weights of a block of queries, and which may differ from 0."""
    sentence = at[0] * (mask.shape[0] > 1)  # one mask may be that of all sentences
    rows = at[1] if mask.shape[1] > 1 else Span(0, 1)
    allowed = load(mask, sentence, rows, self.keys)
    scores = jnp.where(allowed, _dot(q, k, trans_b=True) * self.d_k**-0.5, -1e9)
    exponentials = jnp.exp(scores - scores.max(1, keepdims=True))
    if self.keys.end is not None:  # else padding counts where no key is allowed
      exist = self.keys.indices(1, 2) < self.M
      exponentials = jnp.where(exist, exponentials, 0)
    return exponentials / exponentials.sum(1, keepdims=True), allowed


def _attention_kernel(*refs: Ref, of: _Heads, is_forward: bool) -> None:
  """Writes the output, or computes the weights again and writes the gradients.

  `refs`: arrays, mask, output; backward: arrays, mask, gradients of output and arrays.
  """
  arrays, (mask, output, *by_arrays) = refs[: 2 - of.is_self], refs[2 - of.is_self :]
  sentence = pl.program_id(0)
  q_columns, k_columns, v_columns, head_columns = of.columns()
  k = load(arrays[-1], sentence, of.keys, k_columns)
  v = load(arrays[-1], sentence, of.keys, v_columns)
  # Fewer queries at a time where there are many keys, for the sake of registers.
  size = min(max(16, pl.next_power_of_2(of.T)), 64 if of.keys.size <= 64 else 32)

  def attend(number: Array, sums: Arrays) -> Arrays:
    at = sentence, Span.of(number, size, of.T)
    q = load(arrays[0], *at, q_columns)
    weights, allowed = of.weights(q, k, mask, at)
    rounded = weights.astype(v.dtype)
    if is_forward:
      store(_dot(rounded, v), output, *at, head_columns)
      return sums
    by_heads = load(output, *at, head_columns)
    by_weights = _dot(by_heads, v, trans_b=True)
    change = by_weights - (weights * by_weights).sum(1, keepdims=True)
    by_scores = jnp.where(allowed, weights * change * of.d_k**-0.5, 0).astype(q.dtype)
    store(_dot(by_scores, k), by_arrays[0], *at, q_columns)
    new = _dot(by_scores, q, trans_a=True), _dot(rounded, by_heads, trans_a=True)
    return tuple(map(jnp.add, sums, new))

  zeros = () if is_forward else (jnp.zeros(k.shape, f32), jnp.zeros(v.shape, f32))
  sums = jax.lax.fori_loop(0, pl.cdiv(of.T, size), attend, zeros)
  for gradient, columns in zip(sums, (k_columns, v_columns), strict=False):
    store(gradient, by_arrays[-1], sentence, of.keys, columns)


def _attend_forward(heads: _Heads, mask: Array, *arrays: Array) -> tuple[Array, Arrays]:
  output = _new((*arrays[0].shape[:2], heads.h * heads.d_v), arrays[0].dtype)
  return heads.call(True, *arrays, mask, results=[output])[0], (*arrays, mask)


def _attend_backward(heads: _Heads, residuals: Arrays, by_output: Array) -> Gradients:
  results = map(_like, residuals[:-1])
  return None, *heads.call(False, *residuals, by_output, results=results)


_attend = ops.with_vjp(_attend_forward, _attend_backward, static=1)


def longest_keys(d_k: int, d_v: int, dtype: DTypeLike) -> int:
  """Returns how many keys the kernel takes at most; 0: it does not take the widths."""
  if not all(16 <= d == pl.next_power_of_2(d) for d in (d_k, d_v)):
    return 0
  # Shared memory must hold k and v, rounded up, and their gradients. In bfloat16 it
  # holds 256 keys of width 64, 128 of width 128, and 32 of row A1's width 512, and half
  # as many where a block has 99 KB, as on an RTX 4090.
  capability = getattr(jax.devices()[0], 'compute_capability', LARGE[0])
  room = 2**15 if capability in LARGE else 2**14
  return min(MOST_TOKENS, room // (max(d_k, d_v) * jnp.dtype(dtype).itemsize))


def attention(
  plain: Form,
  x: Array,
  memory: Array | tuple[Array, Array] | None,
  matrices: tuple[Array, Array, Array],
  mask: Array,
  dropout: Dropout,
  *,
  h: int,
  dtype: DTypeLike,
) -> Array:
  """The form of attend() in attention.py."""
  as_plain = functools.partial(
    plain, x, memory, matrices, mask, dropout, h=h, dtype=dtype
  )
  if isinstance(memory, tuple) or dropout.drops_attention:
    return as_plain()
  query, key, value = matrices
  widths, M = (query.shape[2], value.shape[2]), mask.shape[2]
  if x.shape[1] > MOST_TOKENS or M > longest_keys(*widths, dtype):
    return as_plain()

  def product(x: Array, *weights: Array) -> Array:
    w = jnp.concatenate([w.astype(dtype).reshape(len(w), -1) for w in weights], 1)
    return jnp.matmul(x.astype(dtype), w, preferred_element_type=x.dtype)

  sizes = *query.shape[1:], value.shape[2], x.shape[1], M
  if memory is None:
    return _attend(_Heads(True, *sizes), mask, product(x, *matrices))
  arrays = product(x, query), product(memory, key, value)
  return _attend(_Heads(False, *sizes), mask, *arrays)


# Cross-entropy of a row of logits z, which stays in registers: log sum exp z, z_true,
# and the smoothed loss's gradient w.r.t. z. It reads 4 bytes a logit and writes 2; XLA
# alone reads 4 three times.


def _row_kernel(*refs: Ref, W: int, epsilon: float) -> None:
  """`weights` are 1 where a row counts, else 0. z has W logits, then padding."""
  z, labels, weights, by_z, normalizers, trues = refs
  row, log2_e = pl.program_id(0), 1.4426950408889634
  sizes = [2**n for n in reversed(range(17)) if z.shape[1] & 2**n]
  spans = [Span(sum(sizes[:n]), size) for n, size in enumerate(sizes)]
  hide = lambda x, span, value: (
    jnp.where(span.indices() < W, x, value) if span.start + span.size > W else x
  )
  logits = [hide(load(z, row, span), span, -jnp.inf) for span in spans]
  top = functools.reduce(jnp.maximum, [x.max() for x in logits])
  exponentials = [jnp.exp2(x * log2_e - top * log2_e) for x in logits]
  total = sum(x.sum() for x in exponentials)
  label, weight = labels[row], weights[row]
  normalizers[row], trues[row] = top + jnp.log(total), z[row, label]
  of_label, of_others = weight * (1 - epsilon), weight * (epsilon / (W - 1))
  for span, x in zip(spans, exponentials, strict=True):
    target = jnp.where(span.indices() == label, of_label, of_others)
    store(hide(x * (weight / total) - target, span, 0), by_z, row, span)


def _cross_entropy_forward(
  epsilon: float, x: Array, table: Array, labels: Array, real: Array
) -> tuple[Arrays, Arrays]:
  W, rows = len(table), x.reshape(-1, x.shape[-1]).astype(table.dtype)
  tiles = jnp.pad(table, ((0, -W % ops.TILE), (0, 0)))
  z = jnp.matmul(rows, tiles.T, preferred_element_type=f32)
  by_z, number = _new(z.shape, table.dtype), _new(z.shape[:1], f32)
  warps = min(16, max(4, pl.next_power_of_2(z.shape[1]) // 4096))
  of_rows = functools.partial(_row_kernel, W=W, epsilon=epsilon)
  kernel = _launch(of_rows, z.shape[:1], warps, by_z, number, number)
  by_z, normalizer, true = kernel(z, labels.ravel(), real.ravel().astype(f32))
  off = epsilon / (W - 1)
  sum_of_z = (rows * table.sum(0, dtype=f32)[None]).sum(1)
  smoothed = normalizer - (1 - epsilon - off) * true - off * sum_of_z
  over_real = lambda rows: jnp.where(real.ravel(), rows, 0).sum()
  return (over_real(smoothed), over_real(normalizer - true)), (by_z, x, tiles, table)


def _cross_entropy_backward(
  epsilon: float, residuals: Arrays, gradients: Arrays
) -> Gradients:
  by_z, x, tiles, table = residuals
  rows = x.reshape(-1, x.shape[-1]).astype(table.dtype)
  by_x = jnp.matmul(by_z, tiles, preferred_element_type=x.dtype).reshape(x.shape)
  by_table = jnp.matmul(by_z.T, rows, preferred_element_type=table.dtype)[: len(table)]
  return *((g * gradients[0]).astype(g.dtype) for g in (by_x, by_table)), None, None


_cross_entropy = ops.with_vjp(_cross_entropy_forward, _cross_entropy_backward, static=1)


def takes_logits(rows: int, W: int) -> bool:
  """Returns whether the kernel takes so many rows of W logits."""
  # 80 logits a thread; Pallas counts elements in 32 bits.
  return W <= 40 * 1024 and rows * (W + ops.TILE) < 2**31


def cross_entropy(
  plain: Form, x: Array, table: Array, labels: Array, real: Array, *, epsilon: float
) -> Arrays:
  """The form of ops.smoothed_cross_entropy()."""
  if not takes_logits(labels.size, len(table)):
    return plain(x, table, labels, real, epsilon=epsilon)
  return _cross_entropy(epsilon, x, table, labels, real)


# LayerNorm(x + Dropout(y)) of rows: 4 n numbers forward (x, y, their sum, the result)
# and 4 n backward. It saves the mask of dropout, and reading the sum more than once.


class _Rows(NamedTuple):
  """Sizes of [slices, rows, D]; dropout decides by quarters of a slice's rows."""

  rows: int
  D: int
  drop: int  # of 65536 elements

  @property
  def tile(self) -> int:
    """Rows at a time, of each quarter."""
    return max(1, 1024 // self.D)

  def call(self, kernel: Form, tiles: int, *inputs: Array) -> Arrays:
    grid = len(inputs[0]), pl.cdiv(self.rows, 4 * self.tile * tiles)
    results = [_like(inputs[0])] * 2 + [_new((*grid, self.D), f32)] * (2 * (tiles > 1))
    return _launch(kernel, grid, 4, *results)(*inputs)

  def quarters(
    self, slice_index: Array, number: Index, stream: Ref, tiles: int
  ) -> Iterator[tuple[tuple[Index | Span, ...], Form]]:
    """Yields a tile of each quarter of a slice, and a function that drops elements."""
    first, columns, quarter = number * self.tile, Span(0, self.D), pl.cdiv(self.rows, 4)
    row = Span(first, self.tile).indices(0, 2)
    block = (row * self.D + columns.indices(1, 2)).astype(jnp.uint32)
    seed, step, slice_stream = (stream[slice_index, n] for n in range(3))
    words = threefry_2x32((seed, step), (block, slice_stream))
    scale, is_cut = 65536 / (65536 - self.drop), self.rows % (4 * self.tile * tiles)
    for n, keep in enumerate(keep_four(words, self.drop)):
      end = min((n + 1) * quarter, self.rows) if is_cut else None
      drop = lambda y, keep=keep: jnp.where(keep, y.astype(f32) * scale, 0)
      at = slice_index, Span(n * quarter + first, self.tile, end), columns
      yield at, drop if self.drop else lambda y: y

  def normalize(self, z: Array) -> tuple[Array, Array]:
    """Returns (z - mean) / deviation, and 1 / deviation."""
    z = z.astype(f32)
    mean = z.sum(1, keepdims=True) / self.D
    variance = (z * z).sum(1, keepdims=True) / self.D - mean * mean
    factor = jax.lax.rsqrt(jnp.maximum(variance, 0) + ops.NORM_EPSILON)
    return (z - mean) * factor, factor

  def forward_kernel(self, *refs: Ref) -> None:
    x, y, stream, scale, bias, result, total = refs
    for at, drop in self.quarters(pl.program_id(0), pl.program_id(1), stream, 1):
      z = load(x, *at) + drop(load(y, *at)).astype(y.dtype)
      store(z, total, *at)
      normal, _ = self.normalize(z)
      store(normal * scale[...][None] + bias[...][None], result, *at)

  def backward_kernel(self, *refs: Ref) -> None:
    by_result, total, stream, scale, by_x, by_y, by_scale, by_bias = refs
    slice_index, program = pl.program_id(0), pl.program_id(1)

    def add(n: Array, sums: tuple[Array, Array]) -> tuple[Array, Array]:
      for at, drop in self.quarters(slice_index, program * TILES + n, stream, TILES):
        gradient = load(by_result, *at).astype(f32)
        normal, factor = self.normalize(load(total, *at))
        scaled = gradient * scale[...][None]
        mean = lambda x: x.sum(1, keepdims=True) / self.D
        by_total = factor * (scaled - mean(scaled) - normal * mean(scaled * normal))
        store(by_total, by_x, *at)
        store(drop(by_total), by_y, *at)
        sums = sums[0] + (gradient * normal).sum(0), sums[1] + gradient.sum(0)
      return sums

    sums = jax.lax.fori_loop(0, TILES, add, (jnp.zeros(self.D, f32),) * 2)
    for ref, vector in zip((by_scale, by_bias), sums, strict=True):
      store(vector, ref, slice_index, program, Span(0, self.D))


def _norm_forward(sizes: _Rows, *inputs: Array) -> tuple[Array, Arrays]:
  result, total = sizes.call(sizes.forward_kernel, 1, *inputs)
  return result, (total, *inputs[2:4])


def _norm_backward(sizes: _Rows, residuals: Arrays, by_result: Array) -> Gradients:
  by_x, by_y, *sums = sizes.call(sizes.backward_kernel, TILES, by_result, *residuals)
  return by_x, by_y, None, *(x.sum((0, 1)) for x in sums)


_norm_of_sum = ops.with_vjp(_norm_forward, _norm_backward, static=1)


def takes_width(D: int) -> bool:
  """Returns whether the kernel takes rows of D elements."""
  return 64 <= D == pl.next_power_of_2(D) <= 4096


def add_and_norm(
  plain: Form, x: Array, y: Array, scale: Array, bias: Array, dropout: Dropout
) -> Array:
  """The form of add_and_norm() in layers.py."""
  D = x.shape[-1]
  # Without dropout this is not training, and no backward pass reads the sum.
  if dropout.key is None or not takes_width(D):
    return plain(x, y, scale, bias, dropout)
  stream, drop = dropout.stream()
  slices = [z.reshape(len(stream), -1, D) for z in (x, y)]
  sizes = _Rows(slices[0].shape[1], D, drop)
  return _norm_of_sum(sizes, *slices, stream, scale, bias).reshape(x.shape)
