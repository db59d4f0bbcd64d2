"""The commands, python -m scripts.NAME."""
