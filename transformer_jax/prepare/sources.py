"""Sources of sentence pairs: files of text, sacreBLEU's test sets, the embedded corpus.

A file is called STEM.LANGUAGE, or the same with .gz, .zst, .bz2 or .xz at its end. Line
n of one language translates line n of the other.
"""

import dataclasses
import functools
import glob
import hashlib
import html
import http.client
import itertools
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from transformer_jax.data import text
from transformer_jax.data.corpus import SACREBLEU, SPLITS, languages
from transformer_jax.data.text import PACKED, read_bytes, read_lines
from transformer_jax.machine.errors import UserError
from transformer_jax.scoring.output import Output

_SEGMENT = re.compile(r'<seg\b[^>]*>(.*?)</seg>', re.IGNORECASE | re.DOTALL)
# WMT also writes a bare & ("R&D"), so an entity must end with a semicolon.
_ENTITY = re.compile(r'&#?\w+;')
# No-break spaces stay: newstest2014 in French has 1,478 of them.
_SPACE = re.compile('[ \t\n\r\f\v]+')

# The embedded corpus: English, a tab and German a line, and the lines of each split.
EMBEDDED = pathlib.Path(__file__).with_name('embedded.en-de.tsv.xz')
EMBEDDED_LINES = {'train': (0, 70_000), 'dev': (70_000, 71_000), 'test': (71_000, None)}

# In a config, `drawn:N` in place of a file's name takes N pairs from training.
DRAW = 'drawn:'
MOST_HELD_OUT = 1000  # pairs of dev or test that are taken from a user's own text
# Characters of a token with 8,000 pieces: 3.3 to 4.5 in English, French and German.
TOKEN = 4.5
# Names of the files of dev in a user's folder; the first that exists counts.
DEV_NAMES = ('dev', 'valid', 'val', 'validation')

# Source and target; None for a sentence that is not UTF-8.
Pair = tuple[str | None, str | None]


class Source(NamedTuple):
  """Sentence pairs of one publication. A split has one or more sources.

  Attributes:
    name: for the card and for messages, without folders.
    files: those that `pairs` reads, if any.
    pairs: returns an iterator over the pairs in order. In training it may yield an
      error in place of a flawed pair.
    is_derived: whether its pairs are made of another source's. A vocabulary of whole
      words does not count their words.
    sample_size: the number of pairs that cleaning.draw() takes from training for dev or
      test, if `pairs` has none.
  """

  name: str
  files: tuple[pathlib.Path, ...]
  pairs: Callable[[], Iterator[Pair | UserError]]
  is_derived: bool = False
  sample_size: int = 0


Sources = dict[str, list[Source]]  # by the splits of a corpus

# Learns a vocabulary of this many pieces from lines, and writes it to a file.
Learner = Callable[[Iterable[str], pathlib.Path, int], None]


@dataclasses.dataclass(frozen=True)
class Reader:
  """What preparation needs of a task.

  Attributes:
    output: the task's other half, which search and scores need too.
    readers: by the config's `data.reader`. Each takes a config, --raw_dir and
      --tfds_data_dir, and returns the text of all splits.
    learners: takes a config; returns the functions that learn the vocabulary of the
      source or of both languages, and that of the target alone.
  """

  output: Output
  readers: Mapping[
    str, Callable[[ConfigDict, pathlib.Path | None, pathlib.Path | None], Sources]
  ]
  learners: Callable[[ConfigDict], tuple[Learner, Learner]]

  def sources(
    self,
    config: ConfigDict,
    raw_dir: pathlib.Path | None,
    tfds_data_dir: pathlib.Path | None,
  ) -> Sources:
    """Returns the sources of every split, as the corpus's reader finds them.

    Raises:
      UserError: the task has no such reader, or the text is missing.
    """
    if config.data.reader not in self.readers:
      known = ' or '.join(map(repr, self.readers))
      raise UserError(f'reader={config.data.reader!r}: {known} (--config.data.reader)')
    return self.readers[config.data.reader](config, raw_dir, tfds_data_dir)


def read_segments(path: pathlib.Path) -> Iterator[str]:
  """Yields the segments of a test set in WMT's SGML, as WMT's plain files have them.

  Replaces entities, and each run of white space by one space.
  """
  for segment in _SEGMENT.findall(read_bytes(path).decode()):
    plain = _ENTITY.sub(lambda entity: html.unescape(entity[0]), segment)
    yield _SPACE.sub(' ', plain).strip(' ')


def read_pairs(
  source: pathlib.Path,
  target: pathlib.Path,
  read: Callable[[pathlib.Path], Iterable[str | None]] = read_lines,
) -> Iterator[Pair]:
  """Yields the pairs of two files, whose lines `read` yields.

  Reads both to their ends, to notice all damage and to count all lines.

  Raises:
    UserError: a file is damaged, or, after the last pair, a file has more lines.
  """
  end, counts = object(), [0, 0]
  lines: Any = read(source), read(target)
  for pair in itertools.zip_longest(*lines, fillvalue=end):
    counts[0] += pair[0] is not end
    counts[1] += pair[1] is not end
    if counts[0] == counts[1]:
      yield pair
  if counts[0] != counts[1]:
    raise UserError(
      f'{source} has {counts[0]} lines and {target} has {counts[1]}: they must pair up'
    )


def find_files(folder: pathlib.Path, name: str) -> list[pathlib.Path]:
  """Returns which files exist of folder/NAME and its packed forms, such as NAME.gz.

  Raises UserError for a name that exists but cannot be read, such as a link to nowhere,
  or NAME.zip alone.
  """
  named = folder / name
  paths = [named.with_name(named.name + end) for end in ('', *PACKED)]
  paths = [path for path in paths if os.path.lexists(path)]
  for path in paths:
    if not path.is_file():
      raise UserError(f'{path}: neither a file nor a link to one: put it right')
  if not paths and (
    others := sorted(named.parent.glob(f'{glob.escape(named.name)}.*'))
  ):
    raise UserError(
      f'{others[0]}: its ending is none that is read ({", ".join(PACKED)}): unpack or '
      'rename it'
    )
  return paths


def is_there(folder: pathlib.Path, stem: str, languages: Iterable[str]) -> bool:
  """Returns True for a file in either language; the reader raises if one is missing."""
  return any(find_files(folder, f'{stem}.{language}') for language in languages)


def find_file(folder: pathlib.Path, name: str) -> pathlib.Path:
  """Returns the file folder/NAME, packed or not; raises UserError unless it is one."""
  paths = find_files(folder, name)
  if not paths:
    raise UserError(
      f'{folder / name}: no such file, nor {", ".join(name + end for end in PACKED)}'
    )
  if len(paths) > 1:
    names = ' and '.join(path.name for path in paths)
    raise UserError(f'{folder} has {names}: keep one of them')
  return paths[0]


def file_source(folder: pathlib.Path, stem: str, languages: tuple[str, str]) -> Source:
  """Returns the pairs of folder/STEM.SOURCE and folder/STEM.TARGET."""
  source, target = paths = tuple(
    find_file(folder, f'{stem}.{language}') for language in languages
  )
  name = ' and '.join(path.name for path in paths)
  return Source(name, paths, functools.partial(read_pairs, source, target))


def sacrebleu_source(stem: str, languages: tuple[str, str]) -> Source:
  """Returns the test set `sacrebleu:SET` in its official order.

  Reads its SGML, since the text that sacreBLEU extracts from it has entities and lacks
  no-break spaces. sacreBLEU downloads a set when it is first used.

  Raises:
    UserError: sacreBLEU has no such set in SGML, or cannot download it.
  """
  import sacrebleu.dataset
  from sacrebleu import utils

  name, pair = stem.removeprefix(SACREBLEU), '-'.join(languages)
  dataset = sacrebleu.dataset.DATASETS.get(name)
  members = dataset.langpairs.get(pair, ()) if dataset else ()
  if (
    dataset is None
    or len(members) != 2
    or not all(str(member).endswith('.sgm') for member in members)
  ):
    raise UserError(
      f'{stem}: sacreBLEU has no such set of two SGML files in {pair}. It has some up '
      'to WMT18; `sacrebleu --list` names them. If you mean files of your own, give '
      f'their folder as --raw_dir, and leave out {SACREBLEU!r}'
    )
  folder = pathlib.Path(utils.SACREBLEU_DIR, name)
  paths = tuple(folder / 'raw' / member for member in members)
  if not all(path.is_file() for path in paths):
    try:
      dataset.maybe_download()
      if not all(path.is_file() for path in paths):
        raise OSError('its archive is there, but was not unpacked')
    # It exits if a sum is wrong.
    except (OSError, EOFError, SystemExit, http.client.HTTPException) as error:
      raise UserError(
        f'{stem} could not be downloaded ({error}). Delete {folder} and try again, set '
        'SACREBLEU to a folder that has the set, or name other files in '
        '--config.data.files'
      ) from error
  source, target = paths
  read = functools.partial(read_pairs, source, target, read_segments)
  return Source(' and '.join(path.name for path in paths), paths, read)


# Readers of whole corpora


def from_files(
  config: ConfigDict, raw_dir: pathlib.Path | None, _: pathlib.Path | None = None
) -> Sources:
  """Reads files of text in `raw_dir`, test sets of sacreBLEU, and pairs of training."""
  raw_dir = check_folder(config, raw_dir)
  pair, seed = languages(config), config.data.seed
  splits: Sources = {}
  for split in SPLITS:
    stems = config.data.files[split]
    if split != 'train' and any(stem.startswith(DRAW) for stem in stems):
      number = stems[0].removeprefix(DRAW)
      if len(stems) > 1 or not number.isdecimal() or not int(number):
        raise UserError(
          f'data.files.{split}={tuple(stems)}: {DRAW} and a number, which stands '
          f"alone, such as ('{DRAW}1000',)"
        )
      name = f'{number} pairs drawn from training, seed {seed}'
      splits[split] = [Source(name, (), lambda: iter(()), sample_size=int(number))]
      continue
    splits[split] = [
      sacrebleu_source(stem, pair)
      if stem.startswith(SACREBLEU)
      else file_source(raw_dir, stem + config.data.suffix, pair)
      for stem in stems
    ]
  return splits


def check_folder(config: ConfigDict, raw_dir: pathlib.Path | None) -> pathlib.Path:
  """Returns the folder of the raw text; raises UserError if there is none."""
  if raw_dir is None:
    raise UserError(
      f'{config.data.name} is not prepared in --data_dir: give --raw_dir to prepare it'
    )
  if not raw_dir.is_dir():
    raise UserError(f'{raw_dir}: no such folder (--raw_dir)')
  return raw_dir


def embedded(config: ConfigDict, *_: pathlib.Path | None) -> Sources:
  """Reads the quickstart's corpus, a file of the package (docs/quickstart.md)."""
  pair = languages(config)
  if {*pair} != {'en', 'de'}:
    raise UserError(f'{"-".join(pair)}: the embedded corpus is en-de')
  order = 1 if pair[0] == 'en' else -1

  def read(start: int, stop: int | None) -> Iterator[Pair]:
    for line in itertools.islice(read_lines(EMBEDDED), start, stop):
      source, target = str(line).split('\t')[::order]
      yield source, target

  source = lambda *lines: Source(
    EMBEDDED.name, (EMBEDDED,), functools.partial(read, *lines)
  )
  return {split: [source(*lines)] for split, lines in EMBEDDED_LINES.items()}


# A user's folder


def find_user_text(argument: str) -> tuple[dict[str, Any], int, int]:
  """Returns keys of `data` for the text that 'SOURCE-TARGET,DIR' names, and its size.

  The size is the number of pairs of train, and an estimate of its target tokens without
  dev and test, which are drawn from train if they have no files of their own.

  Raises:
    UserError: the argument has another form, or train is missing or damaged.
  """
  pair, _, name = argument.partition(',')
  languages = tuple(pair.split('-'))
  if len(languages) != 2 or not name:
    raise UserError(
      f'{argument or "my.py"}: give two languages and the folder of the text, '
      '--config=configs/my.py:SOURCE-TARGET,DIR, such as my.py:de-en,texts; a region '
      'is written with _, as in my.py:zh_Hant-en,texts'
    )
  for language in languages:
    text.check_code(language)
  if len({*languages}) == 1:
    raise UserError(f'my.py:{argument}: two different languages, such as de-en')
  folder = pathlib.Path(name).expanduser().resolve()
  paths = [find_file(folder, f'train.{language}') for language in languages]
  pairs, tokens = _measure(paths[1])
  files = {'train': ('train',)}
  count = max(1, min(MOST_HELD_OUT, pairs // 10))
  for split, stems in (('dev', DEV_NAMES), ('test', ('test',))):
    dev_or_test = next((x for x in stems if is_there(folder, x, languages)), None)
    files[split] = (dev_or_test or f'{DRAW}{count}',)
    tokens -= 0 if dev_or_test else tokens * count // max(1, pairs)
  path = hashlib.sha256(str(folder).encode()).hexdigest()[:6]
  data = {'name': f'my.{folder.name}.{path}.{pair}', 'files': files}
  data |= {'source_language': languages[0], 'target_language': languages[1]}
  return data | {'reader': 'files', 'raw_dir': str(folder)}, pairs, tokens


@functools.cache
def _measure(path: pathlib.Path) -> tuple[int, int]:
  """Returns the number of lines of a file, and of their tokens, approximately."""
  lines = characters = 0
  for line in read_lines(path):
    lines += 1
    # A letter of a script without spaces is worth three.
    characters += len(line or '') + 2 * len(text.UNSPACED_LETTER.findall(line or ''))
  return lines, int(characters / TOKEN)
