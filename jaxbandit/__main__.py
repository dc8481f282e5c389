"""The command line, as ``python -m jaxbandit`` and as ``jaxbandit``."""

import sys

from jaxbandit.core.memory import address_limit
from jaxbandit.limited import run_apart


def start() -> int:
    """Run the command line, in a process of its own where the memory that may be used is limited; return the exit status."""
    limit = address_limit()
    if limit is not None:
        return run_apart(sys.argv[1:], limit)
    from jaxbandit.cli import main

    return main()


if __name__ == "__main__":
    raise SystemExit(start())
