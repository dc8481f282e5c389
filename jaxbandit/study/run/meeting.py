"""How several processes of one study notice in the directory that they share that all have finished, or that one has gone.

Each locks a file of its own, ``process-I.lock``, which the operating system frees when the process ends, however it ends. The connections
by which the processes have found each other (:mod:`jaxbandit.study.plan.rendezvous`, or JAX's own service in a cluster) are closed before,
as soon as all have come.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from types import TracebackType

from jaxbandit.core.files import CannotWrite
from jaxbandit.study.plan.processes import Processes, ProcessLost
from jaxbandit.study.run.hold import lock_now

SECONDS_BETWEEN_LOOKS = 0.1


class Meeting:
    """The processes of a study in their directory; a context manager, for as long as this process takes part.

    Attributes:
      directory: path of the directory.
      processes: this process among all.
    """

    def __init__(self, directory: Path, processes: Processes) -> None:
        self.directory, self.processes = directory, processes
        self._handle = -1

    def __enter__(self) -> Meeting:
        if self.processes.count == 1:
            return self
        try:
            self.directory.mkdir(parents=True, exist_ok=True)  # who comes first makes it
            self._done(self.processes.index).unlink(missing_ok=True)
            self._handle = os.open(self._lock(self.processes.index), os.O_RDWR | os.O_CREAT, 0o644)
            lock_now(self._handle)
        except OSError as error:
            raise CannotWrite(self._lock(self.processes.index), error) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._handle < 0:
            return
        if error is None:  # otherwise it stays, unlocked, and tells the others
            with contextlib.suppress(OSError):  # the file does no harm: it is unlocked in a moment, and a later run replaces it
                self._lock(self.processes.index).unlink()
        os.close(self._handle)

    def finished(self) -> None:
        """Tell the others that this process has finished its batches; the first one waits for all others to have finished theirs.

        Raises:
          ProcessLost: when one of them has gone before.
        """
        self._done(self.processes.index).touch()
        if self.processes.first:
            for other in range(1, self.processes.count):
                while not self._done(other).exists():
                    self._look_for(other)

    def gathered(self) -> None:
        """Wait until the first process has gathered the results; raises ``ProcessLost`` when it has gone before."""
        while self._lock(0).exists():
            self._look_for(0)

    def _look_for(self, other: int) -> None:
        """Wait a moment; raise ``ProcessLost`` when another process has gone without having finished."""
        path = self._lock(other)
        time.sleep(SECONDS_BETWEEN_LOOKS)
        try:
            handle = os.open(path, os.O_RDWR)
        except OSError:  # it has finished meanwhile
            return
        try:
            lock_now(handle)
        except OSError:  # it is at work
            return
        finally:
            os.close(handle)
        if path.exists() and not self._done(other).exists():
            index, count = self.processes.index, self.processes.count
            raise ProcessLost(f"process {index} of {count}: another process has gone, number {other}; run all of them again with --resume")

    def _lock(self, process: int) -> Path:
        return self.directory / f"process-{process}.lock"

    def _done(self, process: int) -> Path:
        return self.directory / f"process-{process}.done"
