"""The shoot-out: every algorithm on every problem that it fits. No paper draws this table."""
