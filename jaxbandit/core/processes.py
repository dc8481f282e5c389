"""Processes that this one starts."""

from __future__ import annotations

import ctypes
import signal
import sys

PR_SET_PDEATHSIG = 1  # of Linux's prctl


def end_with_parent() -> None:
    """Ask the operating system to kill this process when its parent ends, however it ends; for ``preexec_fn``, and on Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
