"""A config compiled for devices that one does not have, and timed on one's own."""
