"""Table 1 measured: what its layer types cost, and how far signals go in them."""
