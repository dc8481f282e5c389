"""The command line, as ``python -m jaxbandit`` and as ``jaxbandit``."""

import gc
import importlib.metadata
import os
import sys

from jaxbandit._version import __version__


def start() -> int:
    """Run the command line and return the exit status."""
    if sys.argv[1:] == ["--version"]:  # which needs no extra, and no command
        print(f"jaxbandit {__version__}, JAX {importlib.metadata.version('jax')}")
        return 0
    if sys.argv[1:2] == ["session"]:  # whose sums are so short that a second thread of NumPy's does nothing but wait
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.disable()  # what is imported stays, and to look for garbage in it again and again takes a tenth of a second of a short command
    try:
        from jaxbandit.cli import main

        gc.freeze()
        gc.enable()
        return main()  # commands load some of what they need themselves
    except ModuleNotFoundError as error:
        if (error.name or "jaxbandit").partition(".")[0] == "jaxbandit":
            raise
        print(f'error: the command line needs {error.name}; install it with pip install "jaxbandit[study]"', file=sys.stderr)
        return 2


if __name__ == "__main__":
    raise SystemExit(start())
