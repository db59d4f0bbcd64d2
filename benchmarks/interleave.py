"""Timing several programs in turn, so that other load on the machine hits all alike."""

import operator
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

OURS = 'ours'


def interleave(
  programs: Mapping[str, Callable[[int], object]],
  rounds: int,
  clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
  """Calls every program once in every round, with the round's number.

  Each round starts with another program, so that none always follows the same one.

  Returns:
    The seconds of each program, by round.
  """
  names = list(programs)
  seconds = {name: [] for name in names}
  for number in range(rounds):
    first = number % len(names)
    for name in names[first:] + names[:first]:
      begin = clock()
      programs[name](number)
      seconds[name].append(clock() - begin)
  return seconds


def columns(
  seconds: Mapping[str, Sequence[float]], work: Mapping[str, Sequence[float]]
) -> dict[str, dict]:
  """How fast each program was, and how many times as fast we were.

  Args:
    seconds: of each program, by round; one of the programs is OURS.
    work: what was done in each round, by kind: {'sentences': [64, 64, 64]}.

  Returns:
    For each program its `seconds`, the median rate of each kind of work as
    'KIND_per_second', and `ratio`, the median of its seconds over ours.
  """
  found = {}
  for name, taken in seconds.items():
    rate = lambda amounts, taken=taken: statistics.median(
      map(operator.truediv, amounts, taken)
    )
    found[name] = {
      **{f'{kind}_per_second': rate(amounts) for kind, amounts in work.items()},
      'ratio': statistics.median(map(operator.truediv, taken, seconds[OURS])),
      'seconds': list(taken),
    }
  return found
