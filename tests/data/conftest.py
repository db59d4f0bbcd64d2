"""Files to prepare a corpus from, as in tests/prepare."""

from toy.corpus import machine_stays_up, raw  # noqa: F401
