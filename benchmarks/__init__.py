"""How fast training and decoding are, and other programs in the same run."""
