"""Decides whether training uses GPU kernels: only if they agree with plain forms.

model/ops_gpu.py has the kernels. Before the first update, loss and gradient of one
slice of real text are computed with them and without, at the parameters of step 0.
Rounding alone may explain a difference of u sqrt(n): each of n roundings in turn errs
by u at most, and independent errors add in quadrature.
"""

import functools
import hashlib
import json
import math
import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import jaxlib.version
import ml_collections
import numpy as np
from flax import nnx
from jaxtyping import PyTree

from transformer_jax.config import target_pieces
from transformer_jax.data.batches import Batch, Shape
from transformer_jax.machine import files, hosts, platform
from transformer_jax.machine.errors import UserError
from transformer_jax.model import ops
from transformer_jax.model.dropout import DropoutKey
from transformer_jax.training.step import loss_and_gradient

# u, the unit roundoff. A GPU multiplies float32 as TF32.
ROUNDING = {'bfloat16': 2**-8, 'float32': 2**-11}
# n of a sub-layer: its products, weights, heads, sum and norm, forward and backward.
ROUNDINGS = 12
# A difference is divided by at least this part of the whole gradient's norm.
SMALL = 0.01
Say = Callable[[str], None]
Program = TypeVar('Program')


class Kernels:
  """The form of operations that a training compiles, on these devices.

  Attributes:
    mode: ops.kernel_mode of the training's programs.
  """

  def __init__(self, config: ml_collections.ConfigDict, device_platform: str):
    wanted = device_platform == 'gpu' and config.kernels == 'auto'
    self.mode = 'cuda' if wanted else 'plain'
    self._config = config
    self._dtype = platform.training_dtype(config.dtype, device_platform)

  def compile(self, make_program: Callable[[], Program], say: Say) -> Program:
    """Returns make_program(), without kernels if one of them does not compile."""
    try:
      with ops.kernel_mode(self.mode):
        return make_program()
    # XLA raises JaxRuntimeError. Pallas has its errors too: RuntimeError for a GPU that
    # is not in its list, ImportError without its compiler, NotImplementedError. An
    # error that no kernel causes comes again without them.
    except Exception as error:
      if self.mode == 'plain':
        raise
      say(
        'compiled without kernels (--config.kernels=plain), since: '
        f'{_first_line(error)}'
      )
    return make_program()

  def check(
    self,
    model: Callable[[], tuple[nnx.GraphDef[Any], PyTree]],
    slices: Batch,
    say: Say,
  ) -> None:
    """Compares kernels with plain forms; the mode becomes 'plain' if they differ.

    The comparison is kept beside JAX's compiled programs, for the same card, JAX, code,
    model and shape. The first host decides.

    Args:
      model: makes the graph, and the parameters of step 0: a trained model's gradient
        differs more by rounding. It is called if no comparison was kept.
      slices: a batch, of which the first slice is taken.
    """
    path = self._path(slices.shape)
    kept = _read(path) if path and hosts.is_first_host() else math.nan
    difference = float(hosts.from_first_host(np.float32(kept)))
    if math.isnan(difference):
      difference = self._difference(*model(), slices, say)
      difference = float(hosts.from_first_host(np.float32(difference)))
      if path and hosts.is_first_host() and math.isfinite(difference):
        files.write_json(path, {'difference': difference})
    bound = ROUNDING[self._dtype.name] * math.sqrt(ROUNDINGS * 5 * self._config.model.N)
    text = (
      f'loss and gradient of a slice differ by {difference:.2g} with kernels, where '
      f'rounding explains {bound:.2g}'
    )
    if difference <= bound:
      say(text)
    else:
      self.mode = 'plain'
      say(f'training without kernels (--config.kernels=plain): {text}')

  def _path(self, shape: Shape) -> pathlib.Path | None:
    """Returns where a comparison is kept; None: it is not."""
    if (folder := platform.compilation_cache()) is None:
      return None
    code = [*pathlib.Path(ops.__file__).parent.glob('*.py'), pathlib.Path(__file__)]
    parts = [path.read_text() for path in sorted(code)]
    client = jax.devices()[0].client
    parts += [jax.__version__, jaxlib.version.__version__, client.platform_version]
    parts += [jax.devices()[0].device_kind, os.environ.get('XLA_FLAGS', ''), self.mode]
    parts += [self._dtype.name, str(shape), self._config.model.to_json_best_effort()]
    digest = hashlib.sha256('\0'.join(parts).encode()).hexdigest()
    return folder / f'kernels-{digest[:16]}.json'

  def _difference(
    self, graph: nnx.GraphDef[Any], params: PyTree, slices: Batch, say: Say
  ) -> float:
    """Returns the largest relative difference, of the loss and of each gradient.

    It is infinite if kernels fail. An error that they do not cause is raised by the
    plain forms, which run first.
    """
    compute = functools.partial(
      loss_and_gradient, graph=graph, epsilon_ls=self._config.epsilon_ls
    )
    seed, step = jnp.int32(self._config.seed), jnp.int32(0)
    key = DropoutKey(seed, step, jnp.arange(1))
    inputs = params, slices.source[0], slices.target[0], key
    with ops.kernel_mode('plain'):
      plain = jax.block_until_ready(jax.jit(compute)(*inputs))
    try:
      with ops.kernel_mode(self.mode):
        ours = jax.jit(compute)(*inputs)
      return float(jax.jit(_largest_difference)(ours, plain))
    except Exception as error:  # as in compile()
      if 'CUDA_ERROR' in str(error):  # then no program of this process runs any more
        raise UserError(
          f'a kernel broke the GPU: {_first_line(error)}: give --config.kernels=plain'
        ) from error
      say(f'kernels were not compared: {_first_line(error)}')
      return math.inf

  def plain_forms(self, shapes: Sequence[Shape], slices_per_pass: int) -> Iterator[str]:
    """Yields the operations whose plain form is compiled, though kernels are on."""
    if self.mode == 'plain':
      return
    from transformer_jax.model import ops_gpu  # here, since Pallas takes 0.3 s

    model = self._config.model
    keys = ops_gpu.longest_keys(model.d_k, model.d_v, self._dtype)
    longest = max(max(shape.source, shape.target) for shape in shapes)
    positions = slices_per_pass * max(shape.rows * shape.target for shape in shapes)
    tokens = target_pieces(model)
    if model.P_drop_attention:
      yield f'attention (P_drop_attention={model.P_drop_attention})'
    elif longest > keys:
      over = f' of more than {keys} tokens' if keys else ''
      yield f'attention{over} (d_k={model.d_k}, d_v={model.d_v})'
    if not ops_gpu.takes_width(model.d_model):
      yield f'add-and-norm (d_model={model.d_model})'
    if not ops_gpu.takes_logits(positions, tokens):
      yield f'the loss ({positions:,} positions of {tokens:,} logits)'


def _first_line(error: Exception) -> str:
  return next(iter(str(error).splitlines()), type(error).__name__)


def _read(path: pathlib.Path) -> float:
  """Returns the difference that a file keeps, or NaN without one."""
  try:
    return float(json.loads(path.read_bytes())['difference'])
  except (OSError, ValueError, KeyError, TypeError):
    return math.nan


def _largest_difference(ours: PyTree, plain: PyTree) -> jax.Array:
  """Returns the largest |ours - plain| / max(|plain|, SMALL |gradient|) of all arrays.

  A norm that is not finite makes it infinite.
  """
  norm = lambda x: jnp.linalg.norm(x.astype(jnp.float32).ravel())
  pairs = [*zip(*map(jax.tree.leaves, (ours, plain)), strict=True)]
  norms = jnp.stack([norm(expected) for _, expected in pairs])
  of_gradient = jnp.linalg.norm(jnp.stack([*map(norm, jax.tree.leaves(plain[0]))]))
  differences = jnp.stack([norm(x - expected) for x, expected in pairs])
  relative = differences / jnp.maximum(norms, SMALL * of_gradient)
  return jnp.where(jnp.isfinite(relative), relative, jnp.inf).max()
