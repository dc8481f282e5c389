"""Work spread over an executor: a pool of :mod:`concurrent.futures`, or the workers of a Dask cluster.

A task is one call of a picklable function, the *work*, which is sent to a worker once and kept there with all that it has made, such as
compiled programs. What a task returns must depend on its argument alone: a task that was lost with its worker is given to another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import importlib.util
import io
import pickle
import queue
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor
from functools import partial
from typing import Annotated, Any, Protocol, TypeAlias

import jax

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import Check, Words, function
from jaxbandit.core.files import reason_of
from jaxbandit.core.pytree import PYTREES
from jaxbandit.core.workers import SETTINGS, VERSIONS, Answer, Task, Work, perform


class DaskClient(Protocol):
    """Part of ``distributed.Client`` for whoever has no Dask, and so no such type."""

    @property
    def dashboard_link(self) -> Any:
        """Address of the page that shows what workers do."""

    def submit(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Give out a task."""


AnyExecutor: TypeAlias = Executor | DaskClient

ATTEMPTS = 3  # of a task, before it counts as failed
TASKS_PER_WORKER = 3  # under way: one is played and the others wait, so that no worker does
TASKS_IN_A_POOL = 256  # under way in a pool, whose number of workers nobody tells
SECONDS_BETWEEN_COUNTS = 5.0  # of the workers of a cluster, which come and go
SECONDS_TO_SEND = 30.0  # what tasks have returned, before it counts as lost with their worker
SECONDS_ALONE = 30.0  # without any worker, before that is said


class WorkersLost(RuntimeError):
    """The executor takes no more tasks; what is finished is kept, and ``resume`` goes on."""


class WorkerMismatch(InvalidArgument):
    """A worker's results would differ from the others': it has other versions, or another kind of device; the message says which."""


class TaskFailed(RuntimeError):
    """A task failed in every attempt.

    Attributes:
      index: number of the task.
      reason: message of its last error.
    """

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"task {index + 1} failed {ATTEMPTS} times: {reason}")
        self.index, self.reason = index, reason


class Future(Protocol):
    """Part of a future that pools and Dask share."""

    def add_done_callback(self, function: Callable[[Any], object], /) -> None:
        """Call a function with the future when it has ended."""

    def cancel(self) -> object:
        """Let go of the task."""


class _Pool:
    """Front of an executor of :mod:`concurrent.futures`; all of its workers go by one name."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    def submit(self, task: Task, worker: str) -> Future:
        """Give out a task."""
        return self.executor.submit(perform, task)

    def outcomes(self, futures: Sequence[Any]) -> list[Answer | Exception]:
        """Return what the tasks of futures that have ended came to."""
        return [_outcome(future.result) for future in futures]

    def workers(self) -> dict[str, int]:
        """Return how many tasks each worker should have under way."""
        return {"": TASKS_IN_A_POOL}

    def gone(self) -> str:
        """Return why nothing is to be expected any more, empty unless that is known."""
        return ""


class _Cluster:
    """Front of a client of Dask: it prefers workers that know a program, and others take over when these have too much to do."""

    def __init__(self, client: Any) -> None:
        self.client, self.counts = client, dict[str, int]()
        try:
            found = client.scheduler_info(n_workers=-1)["workers"].values()
        except Exception as error:  # of several kinds, where the scheduler has just gone
            raise WorkersLost("the scheduler does not answer") from error
        self.options: dict[str, Any] = {"resources": {"GPU": 1}} if any(one["resources"].get("GPU") for one in found) else {}

    def submit(self, task: Task, worker: str) -> Future:
        """Give out a task, to a worker unless it is lost or has too much to do."""
        # Impure: an equal task that failed would be answered by its remembered failure.
        future: Future = self.client.submit(perform, task, pure=False, workers=[worker], allow_other_workers=True, **self.options)
        return future

    def outcomes(self, futures: Sequence[Any]) -> list[Answer | Exception]:
        """Return what the tasks of futures that have ended came to."""
        finished = [future for future in futures if future.status == "finished"]
        try:  # in one message
            gathered = self.client.sync(lambda: self.client.gather(finished, asynchronous=True), callback_timeout=SECONDS_TO_SEND)
            together = dict(zip((one.key for one in finished), gathered, strict=True))
        except (Exception, asyncio.CancelledError):  # some were lost meanwhile: each is asked for by itself
            together = {}
        return [together[one.key] if one.key in together else _outcome(partial(one.result, SECONDS_TO_SEND)) for one in futures]

    def workers(self) -> dict[str, int]:
        """Return how many tasks each worker should have under way."""
        with contextlib.suppress(Exception):  # of several kinds, while the scheduler does not answer
            self.counts = dict.fromkeys(self.client.nthreads(), TASKS_PER_WORKER)
        return self.counts

    def gone(self) -> str:
        """Return why nothing is to be expected any more, empty unless that is known."""
        return "" if self.client.status in ("running", "connecting") else "the scheduler has gone"


def _outcome(result: Callable[[], Answer]) -> Answer | Exception:
    try:
        return result()
    except asyncio.CancelledError as error:  # Dask's own kind of cancellation
        return RuntimeError(f"it was cancelled {error}".strip())
    except Exception as error:
        return error


def _is_executor(value: Any) -> bool:
    """Return whether a value is a pool, or a client of Dask, which is loaded by whoever has made one."""
    dask = sys.modules.get("distributed")
    return isinstance(value, Executor) or (dask is not None and isinstance(value, dask.Client))


EXECUTOR = Check("an executor of concurrent.futures, or a client of Dask, distributed.Client", _is_executor)


def dashboard_of(executor: AnyExecutor) -> str:
    """Return the address of the page that shows what workers do, empty where there is none."""
    return "" if isinstance(executor, Executor) else executor.dashboard_link or ""


@checked
def spread(
    executor: Annotated[AnyExecutor, EXECUTOR],
    work: Annotated[Work, function("(argument)")],
    arguments: Sequence[Any],
    *,
    group: Annotated[Callable[[Any], Hashable], function("(argument)")] = lambda argument: None,
    wanted: Annotated[Mapping[str, str], Words("a mapping from names to text")] | None = None,
    note: Annotated[Callable[[str], None], function("(line)")] = lambda line: None,
) -> Generator[tuple[int, Answer]]:
    """Do ``work(argument)`` for all arguments and give the number and the answer of each, in the order they come.

    Args:
      executor: pool or client of Dask.
      work: picklable function, whose results depend on its argument alone.
      arguments: picklable arguments.
      group: arguments of one group are done by the same worker first, such as those that need one compiled program.
      wanted: surroundings that workers must have; default those of the first worker, with the versions that are here.
      note: called with a line of text where there is something to say.

    Raises:
      TaskFailed: when a task has failed ``ATTEMPTS`` times, after all others that were under way have been given.
      WorkerMismatch: when a worker's results would differ from the others'.
      WorkersLost: when the executor takes no more tasks.
    """
    front = _Pool(executor) if isinstance(executor, Executor) else _Cluster(executor)
    with _Window(front, work, arguments, group, wanted, note) as window:
        yield from window.results()


def map_tasks(executor: AnyExecutor | None, work: Work, arguments: Sequence[Any]) -> list[Any]:
    """Return ``work(argument)`` for all arguments, in their order, by workers if there are any; raises as :func:`spread`."""
    if executor is None:
        return [work(argument) for argument in arguments]
    found = {number: answer.result for number, answer in spread(executor, work, arguments)}
    return [found[number] for number in range(len(arguments))]


class _Window:
    """Tasks under way, as many as keep all workers busy; a context manager, which cancels what is left."""

    def __init__(
        self,
        front: _Pool | _Cluster,
        work: Work,
        arguments: Sequence[Any],
        group: Callable[[Any], Hashable],
        wanted: Mapping[str, str] | None,
        note: Callable[[str], None],
    ) -> None:
        self.front, self.arguments, self.group, self.note = front, arguments, group, note
        self.wanted = dict(VERSIONS if wanted is None else wanted)
        self.settings = {name: getattr(jax.config, name) for name in SETTINGS}
        self.work = pickled(work)
        self.digest = hashlib.sha256(self.work).hexdigest()
        self.left: dict[Hashable, deque[int]] = {}
        for index, argument in enumerate(arguments):
            self.left.setdefault(group(argument), deque()).append(index)
        self.waiting = len(arguments)
        self.attempts = Counter[int]()
        self.unknown: set[int] = set()  # tasks whose worker did not know the work
        self.under_way: dict[Any, tuple[int, str]] = {}  # the number of the task, and the worker that was to do it, of each future
        self.busy = Counter[str]()  # tasks under way of each worker
        self.knows: dict[str, dict[Hashable, None]] = {}  # groups whose tasks a worker was given, the latest last
        self.known_by = Counter[Hashable]()  # how many workers that is of each group
        self.counts: dict[str, int] = {}
        self.counted = self.alone = -SECONDS_BETWEEN_COUNTS
        self.ended: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __enter__(self) -> _Window:
        return self

    def __exit__(self, *_: object) -> None:
        for future in self.under_way:
            with contextlib.suppress(Exception):  # of an executor that has gone
                future.cancel()

    def results(self) -> Iterator[tuple[int, Answer]]:
        """Give answers until all tasks are done."""
        failed: TaskFailed | None = None
        while self.under_way or (self.waiting and failed is None):
            failed = self._count() or failed
            if failed is None:
                self._fill()
            for future, outcome in self._ended():
                index, worker = self.under_way.pop(future)
                self.busy[worker] -= 1
                if isinstance(outcome, Answer) and not (outcome.unknown or outcome.error):
                    self._check(outcome)
                    yield index, outcome
                else:
                    failed = self._again(index, outcome) or failed
        if failed is not None:
            raise failed

    def _ended(self) -> list[tuple[Any, Answer | Exception]]:
        """Return the futures that have ended, after waiting for a while for one, and what they came to."""
        found: list[Any] = []
        with contextlib.suppress(queue.Empty):  # none has ended for a while: workers are counted anew
            found.append(self.ended.get(timeout=SECONDS_BETWEEN_COUNTS))
            while True:
                found.append(self.ended.get_nowait())
        if not found and self.front.gone():
            raise WorkersLost(self.front.gone())
        found = [future for future in dict.fromkeys(found) if future in self.under_way]  # an executor may answer twice
        return list(zip(found, self.front.outcomes(found), strict=True))

    def _check(self, answer: Answer) -> None:
        """Raise :class:`WorkerMismatch` unless a worker is like those before; the first one says which kind of device all must have."""
        differs = [what for what, value in answer.surroundings.items() if self.wanted.get(what, value) != value]
        if answer.mismatch or differs:
            other = "".join(f"; its results would differ: it has {what} {answer.surroundings[what]}" for what in differs)
            raise WorkerMismatch(f"executor: {answer.worker} cannot take part: {answer.mismatch or other.removeprefix('; ')}")
        self.wanted |= answer.surroundings

    def _again(self, index: int, outcome: Answer | Exception) -> TaskFailed | None:
        """Put a task back that has no result; return its error where it has failed too often."""
        if isinstance(outcome, Answer):
            self._check(outcome)
            reason = outcome.error
        else:
            reason = reason_of(outcome)
            if self.front.gone() or isinstance(outcome, BrokenExecutor):
                raise WorkersLost(self.front.gone() or f"the pool of processes is broken: {reason}")
        if isinstance(outcome, Answer) and outcome.unknown:
            self.unknown.add(index)
        else:
            self.attempts[index] += 1
            if self.attempts[index] >= ATTEMPTS:
                return TaskFailed(index, reason)
            self.note(f"task {index + 1} is given out again: {reason}")
        self._put_back(index)
        return None

    def _put_back(self, index: int) -> None:
        self.left[self.group(self.arguments[index])].appendleft(index)
        self.waiting += 1

    def _count(self) -> TaskFailed | None:
        """Count the workers now and then, and put back what was given to those that have gone.

        Dask gives that to others by itself, but for ever to nobody where it had no other worker at that moment. Only the task that a worker
        had begun has failed with it; return its error where it has failed too often.
        """
        now = time.monotonic()
        if now - self.counted < SECONDS_BETWEEN_COUNTS:
            return None
        self.counts, self.counted = self.front.workers(), now
        if self.counts:
            self.alone = now
        elif now - self.alone > SECONDS_ALONE:
            self.note("there are no workers; waiting for some")
            self.alone = now
        failed: TaskFailed | None = None
        for future, (index, worker) in list(self.under_way.items()):
            if worker in self.counts:
                continue
            del self.under_way[future]
            future.cancel()
            if worker in self.busy:  # the first one of the worker
                failed = self._again(index, RuntimeError("its worker has gone")) or failed
                del self.busy[worker]
            else:
                self._put_back(index)
        return failed

    def _fill(self) -> None:
        """Give tasks to workers that have fewer than they should."""
        for worker, most in self.counts.items():
            while self.waiting and self.busy[worker] < most:
                self._give(worker)

    def _give(self, worker: str) -> None:
        """Give a worker a task of a group that it knows, or else of one that few workers know and of which much is left."""
        known = self.knows.setdefault(worker, {})
        name = next((name for name in reversed(known) if self.left[name]), None)
        if name is None or not self.left[name]:
            name = max(self.left, key=lambda name: len(self.left[name]) / (1 + self.known_by[name]))
        index = self.left[name].popleft()
        self.waiting -= 1
        # Whoever was given the work before knows it; a worker that has taken over a task, or was started again, says if it does not.
        task = Task(
            self.digest,
            self.work if not known or not worker or index in self.unknown else None,
            self.arguments[index],
            self.settings,
            self.wanted,
        )
        if name not in known:
            known[name] = None
            self.known_by[name] += 1
        try:
            future = self.front.submit(task, worker)
        except RuntimeError as error:  # of an executor that has been shut down, or whose processes have ended
            raise WorkersLost(f"the executor takes no more tasks: {reason_of(error)}") from error
        self.under_way[future] = (index, worker)
        self.busy[worker] += 1
        future.add_done_callback(self.ended.put)


def pickled(work: Work) -> bytes:
    """Return a function pickled, and all classes of pytrees within.

    Classes of scripts and notebooks go by their contents where ``cloudpickle`` is there, as with Dask; nobody has registered them then.
    """
    classes: list[type] = []
    buffer = io.BytesIO()
    try:
        if importlib.util.find_spec("cloudpickle") is None:
            return pickle.dumps((work, classes))
        import cloudpickle

        class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # of a package without types
            def reducer_override(self, item: Any) -> Any:
                if isinstance(item, type) and item in PYTREES:
                    classes.append(item)
                return super().reducer_override(item)

        Pickler(buffer).dump((work, classes))
        return buffer.getvalue()
    except Exception as error:  # any of a user's class
        raise InvalidArgument(f"executor: what is to be done cannot be sent to workers ({reason_of(error)}); run without one") from error
