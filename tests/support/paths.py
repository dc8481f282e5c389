"""Where things are."""

from pathlib import Path

TESTS = Path(__file__).parent.parent
ROOT = TESTS.parent  # of the repository
