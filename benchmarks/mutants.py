"""Changes a room line by line, and counts the changes that its own tests notice.

  python benchmarks/mutants.py ROOM MINUTES   # or: make mutants ROOM=decoding

mutmut makes the mutants of each function, in a clone of the last commit. This file is
also a plugin of pytest there: it imports the room's tests once, and forks for each
mutant, in random order for MINUTES. The tests of its file run first, long ones last;
`slow` ones don't run, since few would notice their failure before a night.
mutmut's own runs give a mutant only the tests that called its function, and miss those
that use what a fixture has called before. cosmic-ray starts pytest and JAX for each.

A change of a sentence (a string with a space) is no mutant, nor one of strict= in zip.
Constants of modules and functions with decorators have none. results/mutants.json gets
the room's counts by file and the survivors as differences: some are equivalent to the
original.
"""

import ast
import collections
import difflib
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

import hypothesis
import pytest

ROOT = pathlib.Path(__file__).parents[1]
RESULTS = ROOT / 'results' / 'mutants.json'
SETTINGS = '[mutmut]\nsource_paths=transformer_jax/\n'  # mutmut reads setup.cfg
TESTS = ['-n0', '-q', '-p', 'mutants', '-m', 'not (slow or torch or devices)']
KEY = 'MUTANT_UNDER_TEST'  # mutmut's functions read their variant from it
reports: dict[str, tuple[float, bool]] = {}  # of a test: its seconds, and did it fail?


def without_sentences(function: ast.FunctionDef) -> str:
  """Empties strings with a space, and drops strict=; returns the body, to compare."""
  for node in ast.walk(function):
    match node:
      case ast.Constant(value=str(text)) if ' ' in text:
        node.value = ''
      case ast.Call(keywords=keywords):
        node.keywords = [one for one in keywords if one.arg != 'strict']
  return ast.dump(ast.Module(function.body, []))


Functions = tuple[ast.FunctionDef, ast.FunctionDef]  # the original and a mutant


def plant(path: pathlib.Path) -> dict[str, Functions]:
  """Writes all mutants of a file into it, and returns them by their names."""
  # `make mutants` installs it.
  from mutmut.mutation.file_mutation import mutate_file_contents

  mutated = mutate_file_contents(str(path), path.read_text())
  path.write_text(mutated.code)
  functions = {
    node.name: node
    for node in ast.walk(ast.parse(mutated.code))
    if isinstance(node, ast.FunctionDef)
  }
  original = lambda name: functions[name.rpartition('__mutmut_')[0] + '__mutmut_orig']
  module = '.'.join(path.with_suffix('').parts)
  return {
    f'{module}.{name}': (original(name), functions[name])
    for name in mutated.mutant_names
    if without_sentences(functions[name]) != without_sentences(original(name))
  }


def difference(functions: Functions) -> str:
  """Returns the lines that differ, after - and +."""
  before, after = (ast.unparse(function).split('\n')[1:] for function in functions)
  changed = [line for line in difflib.ndiff(before, after) if line[0] in '-+']
  return ' '.join(' '.join(changed).split())


@pytest.hookimpl(trylast=True)  # after conftest's
def pytest_configure() -> None:
  """Has Hypothesis report what fails at once: nobody reads a smaller example."""
  phases = [hypothesis.Phase.explicit, hypothesis.Phase.generate]
  quick = hypothesis.settings(phases=phases, database=None)
  hypothesis.settings.register_profile('no shrinking', quick)
  hypothesis.settings.load_profile('no shrinking')


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
  seconds, failed = reports.get(report.nodeid, (0.0, False))
  reports[report.nodeid] = seconds + report.duration, failed or report.failed


def pytest_runtestloop(session: pytest.Session) -> bool:
  """Runs the tests on the original, and then on mutants, each in a fork."""
  wanted = json.loads(pathlib.Path('mutants.json').read_text())
  began = time.monotonic()
  _wait({_fork(session, ''): ('', began + 3600)})
  whole = time.monotonic() - began
  original = json.loads(pathlib.Path('reports.json').read_text())
  # Where mutmut's own frames are in the way, such as of a warning's line.
  print('not used:', *(name for name, (_, failed) in original.items() if failed))
  session.items = [item for item in session.items if not original[item.nodeid][1]]
  session.items.sort(key=lambda item: original[item.nodeid][0])
  names, end = wanted['names'], time.monotonic() + 60 * wanted['minutes']
  running: dict[int, tuple[str, float]] = {}
  ended: dict[str, str] = {}
  while (more := bool(names) and time.monotonic() < end) or running:
    if more and len(running) < len(os.sched_getaffinity(0)):
      name = names.pop()
      running[_fork(session, name)] = name, time.monotonic() + 60 + 4 * whole
    else:
      ended |= _wait(running)
      pathlib.Path('ended.json').write_text(json.dumps(ended))
  return True


def _fork(session: pytest.Session, name: str) -> int:
  if pid := os.fork():
    return pid
  os.setsid()
  os.environ[KEY] = name
  module = name.rpartition('.x')[0].rpartition('.')[2]
  of_it = lambda item: item.path.stem == f'test_{module}'
  items = sorted(session.items, key=of_it, reverse=True) if name else session.items
  for item, following in zip(items, [*items[1:], None], strict=True):
    item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
    if name and session.testsfailed:
      os._exit(1)
  if not name:
    pathlib.Path('reports.json').write_text(json.dumps(reports))
  os._exit(0)


def _wait(running: dict[int, tuple[str, float]]) -> dict[str, str]:
  """Waits until one of these processes ends or its time is over; removes it."""
  while True:
    for pid, (name, limit) in running.items():
      if late := time.monotonic() > limit:
        os.killpg(pid, signal.SIGKILL)
      done, status = os.waitpid(pid, 0 if late else os.WNOHANG)
      if done:
        del running[pid]
        return {name: 'timeout' if late else 'killed' if status else ''}
    time.sleep(0.02)


def main(room: str, minutes: str) -> None:
  packages = ROOT.glob('transformer_jax/*/__init__.py')
  rooms = sorted(path.parent.name for path in packages)
  if room not in rooms:
    sys.exit(f'ROOM={room}: not one of {", ".join(rooms)}')
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name) / 'checkout'
    subprocess.run(['git', 'clone', '-q', '--shared', ROOT, folder], check=True)
    head = ['git', '-C', str(folder), 'rev-parse', 'HEAD']
    commit = subprocess.check_output(head, text=True).strip()
    (folder / 'setup.cfg').write_text(SETTINGS)
    os.chdir(folder)
    mutants: dict[str, Functions] = {}
    files: dict[str, str] = {}
    for path in sorted(pathlib.Path('transformer_jax', room).glob('*.py')):
      planted = plant(path)
      mutants |= planted
      files |= dict.fromkeys(planted, str(path))
    names = sorted(mutants)
    random.Random(commit).shuffle(names)
    wanted = {'minutes': float(minutes), 'names': names}
    pathlib.Path('mutants.json').write_text(json.dumps(wanted))
    env = os.environ | {'PYTHONPATH': f'{folder}:{folder}/benchmarks'}
    env['JAX_DISABLE_MOST_OPTIMIZATIONS'] = '1'
    tests = [sys.executable, '-m', 'pytest', *TESTS, f'tests/{room}']
    log = ROOT / 'runs' / 'mutants.log'
    log.parent.mkdir(exist_ok=True)
    with log.open('w') as out:
      subprocess.run(tests, env=env, stdout=out, stderr=out)
    ended = json.loads(pathlib.Path('ended.json').read_text())
  counts: dict[str, collections.Counter[str]] = {}
  for name, file in files.items():
    how = (ended[name] or 'survived') if name in ended else 'not tried'
    counts.setdefault(file, collections.Counter())[how] += 1
  alive = [name for name in sorted(ended) if not ended[name]]
  survivors = [f'{name}: {difference(mutants[name])}' for name in alive]
  results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
  results[room] = {'commit': commit, 'files': counts, 'survivors': survivors}
  RESULTS.write_text(json.dumps(dict(sorted(results.items())), indent=1) + '\n')
  for file, count in counts.items():
    print(file, *(f'{n} {how}' for how, n in sorted(count.items())))


if __name__ == '__main__':
  main(*sys.argv[1:])
