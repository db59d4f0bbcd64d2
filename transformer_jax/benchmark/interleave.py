"""Programs timed in turn, so that whatever else a machine does falls on all alike."""

import operator
import statistics
import time
from collections.abc import Callable, Mapping, Sequence

OURS = 'ours'


def interleave(
  contestants: Mapping[str, Callable[[int], object]],
  rounds: int,
  clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
  """Seconds of each contestant in each round, which it is told the number of.

  In each round another one comes first: none always runs in the wake of the same.
  """
  names = list(contestants)
  seconds = {name: [] for name in names}
  for number in range(rounds):
    first = number % len(names)
    for name in names[first:] + names[:first]:
      begin = clock()
      contestants[name](number)
      seconds[name].append(clock() - begin)
  return seconds


def columns(
  seconds: Mapping[str, Sequence[float]], work: Mapping[str, Sequence[float]]
) -> dict[str, dict]:
  """What each contestant did in a second, and how many times as fast we are.

  Args:
    seconds: of each contestant in each round; one of them is OURS.
    work: of each round, by what is counted: {'sentences': [64, 64, 64]}.

  Returns:
    By contestant, medians over the rounds: '..._per_second' of each kind of work, and
    the `ratio` of its seconds to ours in the same round. `seconds` are all of them.
  """
  found = {}
  for name, taken in seconds.items():
    rate = lambda amounts, taken=taken: statistics.median(
      map(operator.truediv, amounts, taken)
    )
    found[name] = {
      **{f'{what}_per_second': rate(amounts) for what, amounts in work.items()},
      'ratio': statistics.median(map(operator.truediv, taken, seconds[OURS])),
      'seconds': list(taken),
    }
  return found
