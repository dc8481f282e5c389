"""A line about what takes longer than a moment, on a terminal or in a notebook; pipes and continuous integration stay as they are."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator

AFTER, EVERY = 2.0, 0.5  # seconds until the line is shown, and until it is shown anew


def is_watched() -> bool:
    """Return whether somebody sees standard error while it is written."""
    stream = sys.stderr
    in_notebook = type(stream).__module__.partition(".")[0] == "ipykernel"
    return stream is not None and not os.environ.get("CI") and (in_notebook or (not stream.closed and stream.isatty()))


@contextlib.contextmanager
def shown(line: Callable[[float], str]) -> Iterator[None]:
    """Show a line, a function of the seconds that have passed, while the block goes on; it disappears with its end."""
    if not is_watched():
        yield
        return
    stream, width, begun, ended = sys.stderr, max(shutil.get_terminal_size().columns - 1, 20), time.monotonic(), threading.Event()

    def show() -> None:
        wait = AFTER
        while not ended.wait(wait):
            stream.write("\r" + line(time.monotonic() - begun)[:width].ljust(width))
            stream.flush()
            wait = EVERY
        if wait == EVERY:
            stream.write("\r" + " " * width + "\r")
            stream.flush()

    thread = threading.Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
