"""The package's parameters under the names of examples/one_file.py."""

from typing import Any


def renamed(params: Any) -> Any:
  """Returns the package's parameters, or gradients, under the names of one_file.py."""
  heads = {'W_Q': 'query', 'W_K': 'key', 'W_V': 'value', 'W_O': 'output'}

  def layer(p: Any) -> dict[str, Any]:
    inner, outer = p['feed_forward']['inner'], p['feed_forward']['outer']
    layer = {
      'norm_1': p['attention_norm']['norm'],
      'norm_3': p['feed_forward_norm']['norm'],
    }
    layer['feed_forward'] = {'W_1': inner['kernel'], 'b_1': inner['bias']}
    layer['feed_forward'] |= {'W_2': outer['kernel'], 'b_2': outer['bias']}
    if 'cross' in p:
      layer['norm_2'] = p['cross_norm']['norm']
    for name in {'attention', 'cross'} & p.keys():
      layer[name] = {W: p[name][package] for W, package in heads.items()}
    return layer

  stack = lambda layers: [layer(layers[n]) for n in range(len(layers))]
  encoder, decoder = stack(params['encoder']), stack(params['decoder'])
  return {'embedding': params['embedding'], 'encoder': encoder, 'decoder': decoder}
