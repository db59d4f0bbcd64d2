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

  The layers' matrices have the dtype of products. Those that step() multiplies by are
  transposed, [out, in]: it has few rows, and a CPU then does not arrange a matrix anew
  in each product. All others are as the other methods take them. Vectors and tables of
  embeddings, which are added or looked up, are copies.
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
