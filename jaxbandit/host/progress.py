"""A line about long work, on a terminal or in a notebook."""

from __future__ import annotations

import contextlib
import contextvars
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

# Seconds until the line appears, and between its updates.
WAITS = (2.0, 0.5)


def in_notebook() -> bool:
    """Return whether standard error goes to a notebook."""
    ipykernel = sys.modules.get("ipykernel.iostream")
    return ipykernel is not None and isinstance(sys.stderr, ipykernel.OutStream)


def is_watched() -> bool:
    """Return whether somebody sees standard error while it is written."""
    stream = sys.stderr
    return stream is not None and not os.environ.get("CI") and (in_notebook() or (not stream.closed and stream.isatty()))


def _writer() -> Callable[[str], None]:
    """Return a function that replaces the shown line, by nothing if empty."""
    stream, width = sys.stderr, max(shutil.get_terminal_size().columns - 1, 20)

    def on_terminal(line: str) -> None:
        stream.write("\r" + line[:width].ljust(width) + ("" if line else "\r"))
        stream.flush()

    handles: list[Any] = []

    def in_display(line: str) -> None:
        from IPython.display import display

        bundle = {"text/plain": line}
        if handles:
            handles[0].update(bundle, raw=True)
        else:
            handles.append(display(bundle, raw=True, display_id=True))  # type: ignore[no-untyped-call]

    return in_display if in_notebook() else on_terminal


@contextlib.contextmanager
def shown(line: Callable[[float], str]) -> Iterator[None]:
    """Show ``line(seconds)`` while the block runs, with the seconds since its start."""
    if not is_watched():
        yield
        return
    write, begun, ended = _writer(), time.monotonic(), threading.Event()

    def show() -> None:
        wait, every = WAITS
        while not ended.wait(wait):
            write(line(time.monotonic() - begun))
            wait = every
        if wait == every:
            write("")

    # The context knows the display of a notebook's cell.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(show,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
