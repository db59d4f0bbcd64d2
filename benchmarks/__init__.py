"""Programs that measure: our speed and that of others, the tests, a fault of XLA."""
