"""The toy task: English number words to German ones, in reverse order."""

import pathlib
import random

ENGLISH = 'zero one two three four five six seven eight nine'.split()
GERMAN = 'null eins zwei drei vier fünf sechs sieben acht neun'.split()
SETTINGS = {
  'data.reader': 'files',
  'data.name': 'toy',
  'data.files.dev': ('dev',),
  'data.files.test': ('test',),
  'model.N': 1,
  'model.d_model': 64,
  'model.d_ff': 128,
  'model.d_k': 16,
  'model.d_v': 16,
  'model.P_drop': 0.0,
  'model.vocab_size': 60,
  'slices': 2,
  'max_shapes': 1,
  'tokens_per_batch': 1000,
  'train_steps': 500,
  'warmup_steps': 150,
  'rate_factor': 0.7,
  'checkpoint_every_steps': 100,
  'average_last': 2,
}

# A model that trains in a second; no word is learnt.
TINY = SETTINGS | {
  'model.d_model': 16,
  'model.d_ff': 16,
  'model.d_k': 4,
  'model.d_v': 4,
  'model.P_drop': 0.1,
  'slices': 2,
  'tokens_per_batch': 64,
  'train_steps': 30,
  'checkpoint_every_steps': 5,
  'keep_checkpoints': 3,
  'average_last': 3,
  'log_every_steps': 2,
}


def write_raw(folder: pathlib.Path, sizes: dict[str, int]) -> pathlib.Path:
  """train, dev and test files of the toy task; no line is in two of them."""
  folder.mkdir()
  rng, seen = random.Random(0), set()
  for split, size in sizes.items():
    goal, rows = len(seen) + size, []
    while len(seen) < goal:
      row = tuple(rng.choices(range(10), k=rng.randint(2, 7)))
      if row not in seen:
        seen.add(row)
        rows.append(row)
    for language, words, order in (('en', ENGLISH, 1), ('de', GERMAN, -1)):
      lines = (' '.join(words[i] for i in row[::order]) + '\n' for row in rows)
      (folder / f'{split}.{language}').write_text(''.join(lines), encoding='utf-8')
  return folder
