"""Changes a room line by line, and counts the changes that its own tests notice.

  python tests/mutants.py ROOM MINUTES   # or: make mutants ROOM=decoding

mutmut makes the mutants in a copy of the last commit. It imports the tests once and
forks for each mutant; cosmic-ray starts pytest for each, which imports JAX. mutmut
changes bodies of functions alone, no constants of modules.

results/mutants.json gets the room's counts by file, and the mutants that survived; what
MINUTES did not suffice for is `not checked`.

mutmut counts what a fixture of a module calls as calls of the first test that uses it,
and runs no other test against it. So plant a survivor by hand before you believe it.
"""

import collections
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / 'results' / 'mutants.json'
SETTINGS = """\
[mutmut]
source_paths=transformer_jax/
only_mutate=
    transformer_jax/{room}/*
pytest_add_cli_args_test_selection=
    tests/{room}
pytest_add_cli_args=
    -n0
    -m
    not slow and not torch and not devices
process_isolation=forkserver
also_copy=
    benchmarks
    configs
    docs
    pretrained
    results
    scripts
"""


def run(room: str, minutes: float, folder: pathlib.Path) -> None:
  """Runs mutmut in a clone of the checkout, for so many minutes at most."""
  subprocess.run(['git', 'clone', '-q', '--shared', ROOT, folder], check=True)
  (folder / 'setup.cfg').write_text(SETTINGS.format(room=room))
  command = [pathlib.Path(sys.executable).with_name('mutmut'), 'run']
  env = os.environ | {'JAX_DISABLE_MOST_OPTIMIZATIONS': '1'}
  process = subprocess.Popen(command, cwd=folder, env=env, start_new_session=True)
  try:
    process.wait(60 * minutes)
  except subprocess.TimeoutExpired:
    os.killpg(process.pid, signal.SIGTERM)
    process.wait()


def counts(folder: pathlib.Path) -> dict[str, dict]:
  """Returns how many mutants of each file ended how, and the names of survivors."""
  from mutmut.stats import status_by_exit_code  # only `make mutants` installs it

  files = {}
  for path in sorted(folder.glob('mutants/transformer_jax/**/*.meta')):
    if not (ended := json.loads(path.read_text())['exit_code_by_key']):
      continue
    status = {name: status_by_exit_code[code] for name, code in ended.items()}
    survived = [name for name, how in status.items() if how == 'survived']
    name = str(path.relative_to(folder / 'mutants').with_suffix(''))
    files[name] = {**collections.Counter(status.values()), 'survivors': survived}
  return files


def main(room: str, minutes: str) -> None:
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name) / 'checkout'
    run(room, float(minutes), folder)
    head = ['git', '-C', str(folder), 'rev-parse', 'HEAD']
    commit = subprocess.run(head, capture_output=True, text=True, check=True).stdout
    rooms = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    rooms[room] = {'commit': commit.strip(), 'files': counts(folder)}
  RESULTS.write_text(json.dumps(dict(sorted(rooms.items())), indent=1) + '\n')
  for file, count in rooms[room]['files'].items():
    print(file, *(f'{n} {how}' for how, n in count.items() if how != 'survivors'))


if __name__ == '__main__':
  main(*sys.argv[1:])
