"""Models that leave for other programs, and models that come in."""
