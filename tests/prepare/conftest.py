"""Files to prepare a corpus from."""

from toy.corpus import machine_stays_up, raw  # noqa: F401
