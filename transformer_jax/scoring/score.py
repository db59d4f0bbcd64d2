"""A score of a test set, as any scorer gives it and result.json keeps it."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Score:
  """One score of a test set."""

  score: float  # percent
  signature: str  # how it was computed; scores of another signature do not compare
  interval: list[float]  # both ends of the 95 % interval, by bootstrap over sentences
