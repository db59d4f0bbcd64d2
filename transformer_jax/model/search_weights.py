"""A Transformer's parameters in the form that is fast in a search.

layers.py has the glossary of shapes.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Float

Array = jax.Array | np.ndarray
Tree = Any


class SearchWeights(NamedTuple):
  """A Transformer's parameters as a search takes them, prepared once for all batches.

  The layers' matrices are cast to the dtype of products. Those that step() multiplies
  by are also transposed, [out, in]: step() has few rows, and in this layout a CPU need
  not repack a matrix in each product. Other matrices keep their layout. Vectors, and
  tables of embeddings and positions, are copies in their own dtype.
  """

  params: Tree
  table: Float[Array, 'W D']  # the embedding matrix in the dtype of products


def search_weights(params: Tree, dtype: DTypeLike) -> SearchWeights:
  """Prepares parameters for searches that multiply in `dtype`."""

  def prepare(path: tuple, x: Array) -> Array:
    names = [part.key for part in path]
    if x.ndim < 2 or names[-1].endswith(('embedding', 'positions')):
      return jnp.copy(x)  # a training may give up its own to its next update
    x = x.astype(dtype)
    if names[0] != 'decoder' or names[-2:] in (['cross', 'key'], ['cross', 'value']):
      return x
    inputs = 2 if names[-1] == 'output' else 1  # the first axes of the matrix
    return x.transpose(*range(inputs, x.ndim), *range(inputs))

  prepared = jax.tree_util.tree_map_with_path(prepare, params)
  return SearchWeights(prepared, params['embedding'].astype(dtype))
