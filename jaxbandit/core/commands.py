"""How commands end: by an exit status, and a line that says why."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable, Mapping

import jax

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.files import CannotWrite, reason_of


def ended(command: Callable[[], int | None], *, go_on: str, less: str, further: Mapping[type[Exception], int] | None = None) -> int:
    """Run a command and return its exit status; what was not foreseen is raised.

    The status is the command's own (0 for ``None``), 1 for what cannot be written or fit memory, 2 for arguments that cannot be used, and
    130 for a command that its user has interrupted.

    Args:
      command: what to run.
      go_on: how to go on with a command that was interrupted.
      less: how to ask for less memory.
      further: statuses of other errors, whose messages are printed, too.
    """
    status: dict[type[Exception], int] = {CannotWrite: 1, InvalidArgument: 2, **(further or {})}
    for stream in (sys.stdout, sys.stderr):  # labels may hold letters that the terminal lacks
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            return command() or 0
        finally:
            if sys.stdout is not None:  # it is None where the caller has closed it
                sys.stdout.flush()  # here, where it can be said that the output cannot be written
    except KeyboardInterrupt:
        print(f"interrupted; {go_on}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever reads the output has had enough of it
        _drop_output()
        return 0
    except tuple(status) as error:
        print("error:", " ".join(str(error).split("\n")), file=sys.stderr)
        return next(number for kind, number in status.items() if isinstance(error, kind))
    except OSError as error:
        _drop_output()
        print(f"error: cannot read or write {error.filename or 'the output'}: {reason_of(error)}", file=sys.stderr)
        return 1
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not isinstance(error, MemoryError) and "RESOURCE_EXHAUSTED" not in str(error):
            raise
        words = reason_of(error) if str(error) else "there is none left"
        print(f"error: memory does not suffice ({words}); {less}, or free some", file=sys.stderr)
        return 1


def _drop_output() -> None:
    """Let what is still to be written to standard output go nowhere, so that Python does not try again when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    # No output to turn: it is closed, or a caller in Python has put its own in place.
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
