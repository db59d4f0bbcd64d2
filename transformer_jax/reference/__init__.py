"""Numbers to check another Transformer against, and the mistakes that it may have."""
