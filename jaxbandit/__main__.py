"""The command line, as ``python -m jaxbandit`` and as ``jaxbandit``."""

import atexit
import gc
import importlib.metadata
import sys

from jaxbandit._version import __version__


def start() -> int:
    """Run the command line and return the exit status."""
    if sys.argv[1:] == ["--version"]:
        print(f"jaxbandit {__version__}, JAX {importlib.metadata.version('jax')}")
        return 0
    if sys.argv[1:2] == ["session"] and sys.argv[2:3] != ["watch"]:
        # Garbage collection would be half of a step's time.
        gc.disable()
        atexit.register(gc.freeze)
    try:
        from jaxbandit.cli import main

        return main()
    except ModuleNotFoundError as error:
        if (error.name or "jaxbandit").partition(".")[0] == "jaxbandit":
            raise
        print(f'error: the command line needs {error.name}; install it with pip install "jaxbandit[study]"', file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(start())
