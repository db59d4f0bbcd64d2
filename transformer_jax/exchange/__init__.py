"""Models for other programs (docs/export.md)."""
