"""The command line of a script: absl's flags, a config, paths, and one line at the end.

absl keeps the flags of a process in one table, in which two scripts that both have a
--workdir clash. Here each script has its table, so that scripts can be
imported side by side and their main(argv) called any number of times:

  FLAGS = cli.Flags(__doc__)
  SPLIT = FLAGS.enum('split', 'test', ['dev', 'test'], 'Text.')
"""

import contextlib
import difflib
import faulthandler
import functools
import io
import os
import pathlib
import re
import signal
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

import ml_collections
from absl import flags, logging
from ml_collections import config_flags

from transformer_jax.machine import errors
from transformer_jax.machine.errors import UserError

flags.disclaim_key_flags()  # --help lists a flag under the script, not this module
# Keys of a config, and what other programs call them.
ELSEWHERE = {
  'alpha': 'length_penalty lenpen',
  'beam': 'beam_size',
  'checkpoint_every_steps': 'save_steps save_interval_updates',
  'data.max_length': 'max_len',
  'dtype': 'fp16 bf16',
  'epsilon_ls': 'label_smoothing',
  'keep_checkpoints': 'keep_last_epochs keep_interval_updates save_total_limit',
  'model.N': 'num_layers layers encoder_layers decoder_layers',
  'model.P_drop': 'dropout',
  'model.P_drop_attention': 'attention_dropout',
  'model.d_ff': 'ffn_dim filter_size intermediate_size encoder_ffn_embed_dim',
  'model.d_model': 'hidden_size embed_dim encoder_embed_dim',
  'model.h': 'num_heads heads encoder_attention_heads',
  'rate_factor': 'learning_rate lr',
  'tokens_per_batch': 'batch_size max_tokens update_freq',
  'train_steps': 'steps num_steps epochs num_epochs max_epoch max_steps max_update',
  'warmup_steps': 'warmup warmup_updates',
}
# Units of keys that other programs measure in other units.
UNITS = {
  'keep_checkpoints': 'checkpoints, not epochs',
  'rate_factor': 'a factor of Equation 3',
  'tokens_per_batch': 'tokens of an update',
  'train_steps': 'updates, not epochs',
}
HELP = {'--help', '-help', '--helpshort', '-helpshort', '-?'}


class Flags:
  """A script's flags, and absl's beside them.

  Attributes:
    values: absl's table of them.
    plain: the config as its file has it, without the command line's overrides.
  """

  def __init__(self, doc: str, positional: bool = False):
    """Makes a table without flags of the script.

    Args:
      doc: the script's docstring, which --help shows.
      positional: whether the script also takes positional arguments.
    """
    self._doc, self._positional = doc, positional
    self._argv: list[str] = []
    self.values = flags.FlagValues()
    self.values.append_flag_values(flags.FLAGS)
    self._required: list[flags.FlagHolder[Any]] = []
    self._config: flags.FlagHolder[ml_collections.ConfigDict] | None = None
    self._keys: Collection[str] = ()
    self.plain: ml_collections.ConfigDict | None = None

  def config(
    self,
    about: str,
    keys: Collection[str],
    resolve: Callable[..., None],
    required: bool = True,
  ) -> flags.FlagHolder[ml_collections.ConfigDict]:
    """Defines --config=FILE[:ARGUMENT], and --config.KEY=VALUE for each of `keys`.

    resolve(config, the config without overrides, names of overridden keys) may change
    the config.
    """
    self._keys, self._resolve = keys, resolve
    self._config = config_flags.DEFINE_config_file(
      'config', None, about, flag_values=self.values, sys_argv=self._argv
    )
    self._required += [self._config] if required else []
    return self._config

  def path(
    self, name: str, default: str | None, about: str, required: bool = False
  ) -> flags.FlagHolder[pathlib.Path]:
    """Defines a flag that names a file or a folder of this machine."""
    flag = self.define(flags.DEFINE, _PathParser(), name, default, about)
    self._required += [flag] if required else []
    return flag

  def define(
    self, define: Callable[..., flags.FlagHolder[Any]], *arguments: Any
  ) -> flags.FlagHolder[Any]:
    """Calls one of absl's functions, such as flags.DEFINE, for this table."""
    return define(*arguments, flag_values=self.values)

  def refuse(self, mode: str, *holders: flags.FlagHolder[Any]) -> None:
    """Raises UserError if the command line has one of these flags.

    `mode` is what ignores them, such as '--hypotheses'.
    """
    for flag in holders:
      if self.values[flag.name].present:
        raise UserError(f'--{flag.name} does not go with {mode}')

  def parse(self, argv: Sequence[str]) -> list[str]:
    """Sets all flags anew from a command line, whose first item is the program.

    Returns: the positional arguments of `argv`, the program first.

    Raises:
      flags.Error: a flag is unknown, or has a value that it cannot have.
      UserError: a flag is missing, a key of the config is unknown, or there is a
        positional argument and the script takes none.
      SystemExit: help was asked for, and printed.
    """
    if HELP & {*argv}:
      about = self.values.get_help(include_special_flags=False)
      print(self._doc, 'flags:', about, sep='\n')
      sys.exit(0)
    logging.set_verbosity(logging.WARNING)  # libraries log, at length, what goes well
    # Those --config.KEY that a command line before has defined
    for name in [name for name in self.values if name.startswith('config.')]:
      delattr(self.values, name)
    self.values.unparse_flags()
    self._argv[:] = argv
    for argument in argv:
      key = re.match('--?config[.]([^=]*)', argument)
      if key and self._keys and key[1] not in self._keys:
        hint = _key_elsewhere(key[1]) or _nearest(key[1], self._keys)
        hint = hint or 'transformer_jax/config.py has all keys'
        raise UserError(f'--config.{key[1]}: no such key; {hint}')
      if self._keys and (file := re.match('--?config=([^:]+[.]py)', argument)):
        _check_config_file(pathlib.Path(file[1]))
      if self._keys and re.fullmatch('--?config=.*[.]json', argument):
        raise UserError(f'{argument}: give the Python file, such as configs/base.py')
    try:
      rest = self.values(argv)
    except flags.UnrecognizedFlagError as error:
      if self._keys and error.flagname.startswith('config.'):
        raise UserError(f'--{error.flagname} needs --config=FILE') from error
      name = error.flagname
      near = '' if 'Did you mean' in str(error) else _nearest(name, self._keys)
      if self._keys and (hint := _key_elsewhere(name) or near):
        raise UserError(f'--{name}: no such flag; {hint}') from error
      raise
    for flag in self._required:
      if flag.value is None:
        raise UserError(f'give --{flag.name}: {self.values[flag.name].help}')
    if rest[1:] and not self._positional:
      raise UserError(f'{rest[1]!r} is not a flag; flags begin with --')
    self.plain = None
    if self._config is not None and self._config.value is not None:
      parsed: Any = self.values['config']
      self.plain = parsed.parser.parse(config_flags.get_config_filename(parsed))
      overrides = config_flags.get_override_values(parsed)
      # ml_collections reads None as a string.
      absent = {key: None for key, value in overrides.items() if value == 'None'}
      parsed.value.update_from_flattened_dict(absent)
      self._resolve(parsed.value, self.plain, overrides.keys())
    return rest

  # As absl defines them: name, default, choices of an enum, help, a number's least.
  string = functools.partialmethod(define, flags.DEFINE_string)
  multi_string = functools.partialmethod(define, flags.DEFINE_multi_string)
  enum = functools.partialmethod(define, flags.DEFINE_enum)
  integer = functools.partialmethod(define, flags.DEFINE_integer)
  # Below, these names would stand for these methods and not for Python's types.
  float = functools.partialmethod(define, flags.DEFINE_float)
  bool = functools.partialmethod(define, flags.DEFINE_bool)
  list = functools.partialmethod(define, flags.DEFINE_list)


def _key_elsewhere(name: str) -> str:
  """Returns a sentence on the key that other programs call `name`, or ''."""
  last = name.rpartition('.')[2].casefold().replace('-', '_')
  for key, names in ELSEWHERE.items():
    if last in names.split():
      unit = f', {UNITS[key]}' if key in UNITS else ''
      return f'here it is --config.{key}{unit} (docs/coming_from.md)'
  return ''


def _nearest(name: str, keys: Collection[str]) -> str:
  """Returns a hint at keys whose names, or last parts, are spelt like `name`, or ''."""
  spelt = {s.casefold(): key for key in keys for s in (key, key.rpartition('.')[2])}
  ways = difflib.get_close_matches(name.casefold(), spelt, cutoff=0.75)
  near = ' or '.join(dict.fromkeys(f'--config.{spelt[way]}' for way in ways))
  return f'did you mean {near}?' if near else ''


def _check_config_file(path: pathlib.Path) -> None:
  """Raises UserError, with the names of similar files, if a file is missing."""
  if not path.is_file():
    folder = path.parent if path.parent.is_dir() else pathlib.Path('configs')
    names = difflib.get_close_matches(path.name, [x.name for x in folder.glob('*.py')])
    near = ' or '.join(str(folder / name) for name in names)
    hint = f'did you mean {near}?' if near else 'configs/ has our configs'
    raise UserError(f'--config={path}: no such file; {hint}')


class _PathParser(flags.ArgumentParser[pathlib.Path]):
  def parse(self, argument: str | pathlib.Path) -> pathlib.Path:
    if argument == '':
      raise ValueError('is empty')
    if scheme := re.match(r'[A-Za-z][A-Za-z0-9+.-]*:/', str(argument)):
      raise ValueError(
        f'{scheme[0]}/ is not on this machine: mount it or copy its files'
      )
    # A shell leaves the ~ of --flag=~/FOLDER as it is.
    return pathlib.Path(os.path.expanduser(argument))


def integers(flag: flags.FlagHolder[list[str]], minimum: int = 1) -> list[int]:
  """Returns the numbers of a list flag; raises UserError for one below `minimum`."""
  if not flag.value or not all(x.isdecimal() and int(x) >= minimum for x in flag.value):
    value = ','.join(flag.value)
    raise UserError(
      f'--{flag.name}={value}: give numbers of {minimum} or more, such as 16,64'
    )
  return [int(text) for text in flag.value]


# Standard streams


class _Messages:
  """stderr. A message that cannot be written is dropped, and the work goes on."""

  def __init__(self, stream: Any):
    self._stream = stream

  def __getattr__(self, name: str) -> Any:
    return getattr(self._stream, name)

  def write(self, text: str) -> int:
    """Writes text, or drops it."""
    # Without a buffer, which would keep what could not be written.
    rest = text.encode(self._stream.encoding, 'backslashreplace')
    with contextlib.suppress(OSError):
      while rest:
        rest = rest[os.write(self._stream.fileno(), rest) :]
    return len(text)

  def flush(self) -> None:
    """Does nothing, since write() has no buffer."""


class _Output:
  """stdout. A write that fails stops no work; check_output() raises its error.

  Attributes:
    error: of the first write that failed; what follows it is dropped.
    is_lost: whether output other than say()'s was dropped.
  """

  def __init__(self, stream: Any):
    self._stream, self.is_lost = stream, False
    self.error: OSError | None = None

  def __getattr__(self, name: str) -> Any:
    return getattr(self._stream, name)

  def write(self, text: str) -> int:
    """Writes output."""
    self.is_lost |= self.error is not None
    self._attempt(lambda: self._stream.write(text))
    return len(text)

  def flush(self) -> None:
    """Writes output that is in the buffer."""
    self._attempt(self._stream.flush)

  def say(self, line: str) -> None:
    """Writes a line that may be lost."""
    self.flush()
    before = self.is_lost
    self._attempt(lambda: print(line, file=self._stream, flush=True))
    self.is_lost = before

  def _attempt(self, write: Callable[[], Any]) -> None:
    try:
      write()
    except OSError as error:
      error.filename = 'stdout'
      self.error, self.is_lost = error, True
      # The buffer keeps what could not be written, and Python flushes it at the end.
      os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())


def say(line: object) -> None:
  """Prints a line that may be lost, such as the name of a file that was written."""
  if isinstance(sys.stdout, _Output):
    sys.stdout.say(str(line))
  else:
    print(line)


def check_output() -> None:
  """Raises the OSError of output that could not be written to stdout so far."""
  output = sys.stdout
  output.flush()
  if isinstance(output, _Output) and output.is_lost and output.error:
    raise output.error


def run(main: Callable[[list[str]], None]) -> None:
  """Calls main() with the process's command line, as the whole of a program.

  A user's error ends the process with one line. Messages that cannot be written are
  dropped. If output to stdout was lost, the process ends with an error at
  check_output(), or when main() returns. If its reader has left, as `| head` does, the
  exit code is a shell's for SIGPIPE, and no line is printed.
  """
  # Python has no stream where a shell closed it (2>&-).
  sys.stdout = sys.stdout or open(os.devnull, 'w')
  sys.stderr = sys.stderr or open(os.devnull, 'w')
  if isinstance(sys.stdout, io.TextIOWrapper):  # text is UTF-8 in every locale
    sys.stdout.reconfigure(encoding='utf-8', errors=sys.stdout.errors)
  faulthandler.enable()  # if a library crashes, Python says where
  # Python flushes sys.__stdout__ and sys.__stderr__ at exit; types call them final.
  streams: Any = sys
  output = streams.stdout = streams.__stdout__ = _Output(sys.stdout)
  streams.stderr = streams.__stderr__ = _Messages(sys.stderr)
  with errors.report_user_errors():
    try:
      main(sys.argv)
      check_output()
    except BrokenPipeError as error:
      if error is not output.error:
        raise
      sys.exit(128 + signal.SIGPIPE)
