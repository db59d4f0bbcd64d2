"""The commands: python -m scripts.NAME, in the checkout."""
