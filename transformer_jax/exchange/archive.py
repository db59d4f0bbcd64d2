"""An archive of our parameters under our own names, with a page that describes them."""

import json
import pathlib
import shutil
from collections.abc import Iterator

from safetensors.numpy import save

from transformer_jax.exchange import marian
from transformer_jax.exchange.huggingface import WEIGHTS
from transformer_jax.exchange.outgoing import Outgoing

CONFIG = 'run.config.json'

LOADING = """\
```python
from safetensors.numpy import load_file

arrays = load_file('FOLDER/model.safetensors')
```

`run.config.json` is the run's config. `vocabulary.model` is a SentencePiece model;
`vocabulary.target.model`, if it is there, is the target's. In both, `<pad>`, `</s>`,
`<s>` and `<unk>` are 0, 1, 2 and 3.
"""

LETTERS = """\
D is d_model, F is d_ff, H the number of heads, K is d_k, V is d_v and W the vocabulary.
A query of head i is x W_i with x [D] and W_i = `query`[:, i, :]; `kernel` is [in, out].
Embeddings are multiplied by sqrt(D) where words are looked up, and not for the logits.
Sinusoids, which are not stored, are interleaved: sine, cosine, sine ...
"""

# What each array is: by the end of its name.
ABOUT = {
  'source_embedding': 'W D: of the source, where it has a vocabulary of its own',
  'embedding': 'W D: embeds words, and makes the logits',
  'source_positions': 'L D: learned positions of the source',
  'target_positions': 'L D: learned positions of the target',
  'logits_bias': 'W: is added to the logits',
  'query': 'D H K: W^Q of every head',
  'key': 'D H K: W^K',
  'value': 'D H V: W^V',
  'output': 'H V D: W^O',
  'query_bias': 'H K, in one axis',
  'key_bias': 'H K, in one axis',
  'value_bias': 'H V, in one axis',
  'output_bias': 'D',
  'norm.scale': 'D: of the LayerNorm after the sum',
  'norm.bias': 'D',
  'inner.kernel': 'D F: W_1 of equation 2',
  'inner.bias': 'F: b_1',
  'outer.kernel': 'F D: W_2',
  'outer.bias': 'D: b_2',
}


def write(model: Outgoing, folder: pathlib.Path) -> None:
  """Writes all files but the page."""
  (folder / WEIGHTS).write_bytes(save(marian.named(model.params)))
  for path in {*model.spm}:
    shutil.copyfile(path, folder / path.name)
  text = json.dumps(model.config, indent=1) + '\n'
  (folder / CONFIG).write_text(text, encoding='utf-8')


def listing(model: Outgoing) -> Iterator[str]:
  """The lines of the page that describe every array."""
  yield from ('## Names and shapes', '', LETTERS, '| array | shape | what |')
  yield '|---|---|---|'
  for name, array in marian.named(model.params).items():
    end = max((end for end in ABOUT if f'.{name}'.endswith(f'.{end}')), key=len)
    yield f'| `{name}` | {" x ".join(map(str, array.shape))} | {ABOUT[end]} |'
