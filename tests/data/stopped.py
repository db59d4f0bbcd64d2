"""Prepares the toy corpus in processes that are killed; run by test_unfinished.py.

python stopped.py RAW DATA: prepares it in DATA.
python stopped.py RAW DATA killed: prepares it in DATA/1, DATA/2 ..., where process n is
killed as it is about to make, rename or delete its n-th file; the last is not.
"""

import itertools
import os
import pathlib
import signal
import sys

from toy.corpus import CORPUS
from transformer_jax.data import preparing
from transformer_jax.tasks import TRANSLATION

CHANGES = {'os.rename', 'os.mkdir', 'os.remove', 'os.rmdir', 'shutil.rmtree'}


def prepare(raw: pathlib.Path, data_dir: pathlib.Path) -> None:
  splits = TRANSLATION.splits(CORPUS, raw, None)
  preparing.prepare_corpus(CORPUS, TRANSLATION, splits, data_dir)


def kill_at(number: int) -> None:
  """Kills this process before its n-th change of what is in a folder."""
  numbers = itertools.count(1)

  def hook(event: str, arguments: tuple) -> None:
    made = event == 'open' and 'w' in (arguments[1] or '')
    if (made or event in CHANGES) and next(numbers) == number:
      os.kill(os.getpid(), signal.SIGKILL)

  sys.addaudithook(hook)


def killed(raw: pathlib.Path, data_dir: pathlib.Path) -> None:
  for number in itertools.count(1):
    process = os.fork()
    if not process:
      data_dir.joinpath(str(number)).mkdir()
      kill_at(number)
      prepare(raw, data_dir / str(number))
      os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if status == 0:
      return
    assert status == -signal.SIGKILL, status


if __name__ == '__main__':
  os.fsync = lambda file: None  # the machine stays up
  raw_dir, prepared_dir, *how = sys.argv[1:]
  (killed if how else prepare)(pathlib.Path(raw_dir), pathlib.Path(prepared_dir))
