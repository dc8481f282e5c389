"""Commands under a limit of memory (``ulimit -v``), which run in a process of their own so that an abrupt end can be told in words.

JAX's compiler and runtime end the process at once when the operating system refuses them memory; Python is not asked.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from functools import partial
from types import FrameType

from jaxbandit.core.memory import in_units
from jaxbandit.core.processes import end_with_parent

ENDED_FOR_WANT_OF_MEMORY = {signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGKILL}


def run_apart(arguments: list[str], limit: int) -> int:
    """Run the command line in a process of its own and return its exit status; 1, after a line that says so, if memory did not suffice."""
    command = [sys.executable, "-c", "from jaxbandit.cli import main; raise SystemExit(main())", *arguments]
    child = subprocess.Popen(command, preexec_fn=end_with_parent if sys.platform == "linux" else None)
    # The terminal sends an interrupt to both, and the child says what is to be said.
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, partial(_pass_on, child))
    try:
        status = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if status >= 0:
        return status
    ended = signal.Signals(-status)
    if ended in ENDED_FOR_WANT_OF_MEMORY:
        print(
            f"error: ended by {ended.name}, as happens when memory does not suffice: the limit (ulimit -v) is {in_units(limit)}; raise it."
            " A run that had begun goes on with --resume",
            file=sys.stderr,
        )
        return 1
    return 128 - status


def _pass_on(child: subprocess.Popen[bytes], number: int, frame: FrameType | None) -> None:
    child.send_signal(number)
