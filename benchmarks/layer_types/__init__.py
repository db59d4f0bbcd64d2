"""Table 1 measured: what its layer types cost, and how long their paths are."""
