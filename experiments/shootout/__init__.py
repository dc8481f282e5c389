"""The shoot-out of every algorithm on every problem that fits.

No paper draws this table.
"""
