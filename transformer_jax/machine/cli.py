"""The flags of one script, apart from those of other scripts.

absl keeps the flags of a process in one table, in which two scripts that both have a
--workdir clash. Here each script has a table of its own, so that scripts can be
imported side by side and their main(argv) called any number of times.
"""

import difflib
import itertools
import os
import pathlib
import re
import sys
from collections.abc import Callable, Collection, Sequence

import ml_collections
from absl import app, flags
from ml_collections import config_flags

from transformer_jax.machine import errors, streams

flags.disclaim_key_flags()  # help lists a flag under the module that asks for it here
HELP = {'--help', '-help', '--helpshort', '-helpshort', '-?'}
HELP_FULL = {'--helpfull', '-helpfull'}


Settle = Callable[
  [ml_collections.ConfigDict, ml_collections.ConfigDict, Collection[str]], None
]


class Flags:
  """A script's flags, and absl's own beside them.

  Each method defines a flag; its `value` can be read once a command line is parsed.
  """

  def __init__(self, doc: str, words: bool = False):
    """A script's flags.

    Args:
      doc: the script's docstring, which --help shows.
      words: it also takes words that are no flags.
    """
    self._doc, self._words = doc, words
    self._argv: list[str] = []
    self._values = flags.FlagValues()
    self._values.append_flag_values(flags.FLAGS)
    self._config: flags.FlagHolder | None = None
    self._required: list[str] = []

  def config(
    self, about: str, settle: Settle, required: bool = True
  ) -> flags.FlagHolder[ml_collections.ConfigDict]:
    """--config=FILE[:ARGUMENT], and --config.KEY=VALUE for each of its keys.

    `settle` is called if keys are overridden. It is given the config, the config
    without the overrides, and the overridden keys. It may change the config.
    """
    self._settle = settle
    self._config = config_flags.DEFINE_config_file(
      'config', None, about, flag_values=self._values, sys_argv=self._argv
    )
    if required:
      self._required.append('config')
    return self._config

  def string(self, name: str, default: str | None, about: str) -> flags.FlagHolder[str]:
    return flags.DEFINE_string(name, default, about, flag_values=self._values)

  def path(
    self, name: str, default: str | None, about: str, required: bool = False
  ) -> flags.FlagHolder[pathlib.Path]:
    """A file or a folder; an empty name is refused."""
    if required:
      self._required.append(name)
    return flags.DEFINE(
      _PathParser(),
      name,
      default,
      about,
      flag_values=self._values,
      serializer=flags.ArgumentSerializer(),
    )

  def boolean(self, name: str, about: str) -> flags.FlagHolder[bool]:
    """False by default."""
    return flags.DEFINE_bool(name, False, about, flag_values=self._values)

  def integer(
    self, name: str, default: int | None, about: str, at_least: int | None = None
  ) -> flags.FlagHolder[int]:
    return flags.DEFINE_integer(
      name, default, about, lower_bound=at_least, flag_values=self._values
    )

  def integer_or(self, name: str, word: str, about: str) -> flags.FlagHolder[int | str]:
    """An integer or one word; None by default."""
    return flags.DEFINE(
      _IntegerOrParser(word),
      name,
      None,
      about,
      flag_values=self._values,
      serializer=flags.ArgumentSerializer(),
    )

  def number(
    self, name: str, default: float | None, about: str
  ) -> flags.FlagHolder[float]:
    return flags.DEFINE_float(name, default, about, flag_values=self._values)

  def choice(
    self, name: str, default: str | None, choices: Sequence[str], about: str
  ) -> flags.FlagHolder[str]:
    return flags.DEFINE_enum(name, default, choices, about, flag_values=self._values)

  def items(
    self, name: str, default: list[str] | None, about: str
  ) -> flags.FlagHolder[list[str]]:
    """Words with commas between them."""
    return flags.DEFINE_list(name, default, about, flag_values=self._values)

  def repeated(self, name: str, about: str) -> flags.FlagHolder[list[str]]:
    """A flag that may be given several times, or not at all."""
    return flags.DEFINE_multi_string(name, [], about, flag_values=self._values)

  def parse(self, argv: Sequence[str]) -> list[str]:
    """Sets all flags anew from a command line, whose first word is the program.

    Returns: what of `argv` is no flag, the program first.

    Raises:
      flags.Error: a flag is unknown or has a value that it cannot have.
      UserError: a flag is missing, a key of the config is unknown, or there is a word
        that is no flag, and the script takes none.
      SystemExit: help was asked for, and printed.
    """
    if (HELP | HELP_FULL) & {*argv}:
      self._show_help(full=bool(HELP_FULL & {*argv}))
    self._forget_overrides()
    self._argv[:] = argv
    try:
      rest = self._values(argv)
    except Exception:
      self._refuse_unknown_keys(argv)
      raise
    if rest[1:] and not self._words:
      raise errors.UserError(f'{rest[1]!r} is no flag; flags begin with --')
    missing = [name for name in self._required if self._values[name].value is None]
    if missing:
      names = ' and '.join(f'--{name}' for name in missing)
      raise errors.UserError(f'give {names} (--help tells of all flags)')
    if any(name.startswith('config.') for name in self._values):
      flag = self._values['config']
      plain = flag.parser.parse(config_flags.get_config_filename(flag))
      self._settle(flag.value, plain, config_flags.get_override_values(flag).keys())
    return rest

  def _forget_overrides(self) -> None:
    """Removes the flags --config.KEY that a command line before has defined."""
    for name in [name for name in self._values if name.startswith('config.')]:
      delattr(self._values, name)
    self._values.unparse_flags()

  def _refuse_unknown_keys(self, argv: Sequence[str]) -> None:
    """Raises UserError if one of --config.KEY is none of the config's."""
    if self._config is None:
      before = itertools.takewhile(lambda word: word != '--', argv)
      orphan = next((w for w in before if re.match('--?config[.]', w)), None)
      if orphan and 'config' in self._values:
        raise errors.UserError(f'{orphan}: give it behind all other flags and a --')
      return
    self._forget_overrides()
    self._argv[:] = argv[:1]
    self._values(argv, known_only=True)
    if self._config.value is None:
      if orphan := next((w for w in argv if re.match('--?config[.]', w)), None):
        raise errors.UserError(f'{orphan} changes a config: give --config=FILE too')
      return
    known = _names(self._config.value)
    for word in argv:
      given = re.match('--?config[.]([^=]*)', word)
      if given and given[1] not in known:
        near = ', '.join(_nearest(given[1], known))
        there = f'the nearest: {near}' if near else 'configs/base.py has them all'
        raise errors.UserError(f'--config.{given[1]}: no such key; {there}')

  def _show_help(self, full: bool) -> None:
    about = self._values.get_help(include_special_flags=False)
    print(self._doc, 'flags:', about, sep='\n')
    print(flags.FLAGS.get_help() if full else 'Try --helpfull for a list of all flags.')
    sys.exit(0)


def _names(config: ml_collections.ConfigDict) -> list[str]:
  """The dotted names of all that a config holds."""
  names = []
  for key, value in config.items():
    inner = _names(value) if isinstance(value, ml_collections.ConfigDict) else []
    names += [key, *(f'{key}.{name}' for name in inner)]
  return names


def _nearest(key: str, names: Sequence[str]) -> list[str]:
  """At most three names that were perhaps meant, by all of them or by their ends."""
  spelt = {spelling.casefold(): n for n in names for spelling in (n.split('.')[-1], n)}
  near = difflib.get_close_matches(key.casefold(), spelt, cutoff=0.5)
  return [*dict.fromkeys(spelt[spelling] for spelling in near)]


class _PathParser(flags.ArgumentParser):
  def parse(self, argument: str | pathlib.Path) -> pathlib.Path:
    if argument == '':
      raise ValueError('is empty')
    # A shell leaves the ~ of --flag=~/FOLDER as it is.
    return pathlib.Path(os.path.expanduser(argument))


class _IntegerOrParser(flags.ArgumentParser):
  def __init__(self, word: str):
    self._word = word

  def parse(self, argument: str | int) -> int | str:
    if argument == self._word:
      return argument
    if not str(argument).removeprefix('-').isdecimal():
      raise ValueError(f'a whole number, or {self._word}')
    return int(argument)


def run(main: Callable[[list[str]], None]) -> None:
  """Calls main() with the process's command line, and ends the process."""

  def guarded(argv: list[str]) -> None:
    with errors.in_one_line(), streams.standard():
      main(argv)

  def parse(argv: list[str]) -> list[str]:
    with errors.in_one_line():
      return _parse_absls(argv)

  app.run(guarded, flags_parser=parse)


def _parse_absls(argv: list[str]) -> list[str]:
  """Parses the flags that absl heeds before main(), such as --pdb; main() the rest."""
  flags.FLAGS([word for word in argv if word not in HELP | HELP_FULL], known_only=True)
  return argv


def counts(flag: flags.FlagHolder[list[str]]) -> list[int]:
  """The numbers of a flag that is a list, each 1 or more; UsageError otherwise."""
  if not flag.value or not all(x.isdecimal() and int(x) for x in flag.value):
    given = ','.join(flag.value)
    raise app.UsageError(f'--{flag.name}={given}: numbers of 1 or more, such as 16,64')
  return [int(text) for text in flag.value]
