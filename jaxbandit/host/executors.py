"""Executors of tasks: pools of :mod:`concurrent.futures` and clusters of Dask.

A task is one call of a picklable function, the *work*. A worker keeps the work with all that it has made, such as compiled programs. The
result of a task must depend on its argument alone, because a task that is lost with its worker goes to another worker.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import io
import logging
import os
import pickle
import queue
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeAlias, cast

import jax
import jaxlib

from jaxbandit._version import __version__
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.codec import LOADED
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import Check, Words, function
from jaxbandit.core.pytree import PYTREES, register
from jaxbandit.host.cache import processor
from jaxbandit.host.files import reason_of
from jaxbandit.host.memory import cores
from jaxbandit.host.user_code import run_all

if TYPE_CHECKING:
    from distributed import Client

PROCESS = os.getpid()

VERSIONS = {"jaxbandit": __version__, "jax": jax.__version__, "jaxlib": jaxlib.__version__}

TaskFunction: TypeAlias = Callable[[Any], Any]


class DaskClient(Protocol):
    """Part of ``distributed.Client``, for type checkers without Dask."""

    @property
    def dashboard_link(self) -> Any:
        """Address of the page that shows the workers."""

    def submit(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Submit a task."""


def _is_executor(value: object) -> bool:
    dask = sys.modules.get("distributed")
    return isinstance(value, Executor) or (dask is not None and isinstance(value, dask.Client))


AnyExecutor: TypeAlias = Annotated[
    Executor | DaskClient, Check("an executor of concurrent.futures, or a client of Dask, distributed.Client", _is_executor)
]


def surroundings() -> dict[str, str]:
    """Return the versions and the kind of device that results depend on."""
    device = jax.local_devices()[0]
    return {**VERSIONS, "device": f"{device.platform} {processor() if device.platform == 'cpu' else device.device_kind}"}


@dataclasses.dataclass(frozen=True)
class Task:
    """Message to a worker: an argument, settings of JAX and wanted surroundings."""

    argument: Any
    settings: Mapping[str, Any]
    wanted: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Answer:
    """Message from a worker: its surroundings, and a result or an error."""

    worker: str
    surroundings: Mapping[str, str]
    result: Any = None
    mismatch: str = ""
    error: str = ""


class Patience:
    """Number of attempts, and seconds to wait for a cluster."""

    attempts, seconds_between_counts, seconds_to_answer = 3, 5.0, 30.0
    # A result that takes longer counts as lost with its worker.
    seconds_to_send = 30.0


class WorkersLost(RuntimeError):
    """Error of lost workers, with finished tasks stored for ``resume``."""


class WorkerMismatch(InvalidArgument):
    """Error of a worker whose versions or device would change results."""


class TaskFailed(RuntimeError):
    """Error of task ``index`` in its last attempt, with the ``reason``."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"task {index + 1} failed {Patience.attempts} times: {reason}")
        self.index, self.reason = index, reason


class _Pool:
    """Front of an executor of :mod:`concurrent.futures`."""

    def __init__(self, executor: Executor, work: bytes) -> None:
        self.executor, self.work = executor, work

    def submit(self, task: Task) -> Future[Answer]:
        return self.executor.submit(perform, task, self.work)

    def room(self) -> int:
        # A pool does not give its number of workers.
        return 256

    def gone(self) -> str:
        return ""


class _Cluster:
    """Front of a Dask client that redistributes tasks of lost workers."""

    def __init__(self, client: Any, work: bytes) -> None:
        self.client, self.count, self.counted = client, 0, -Patience.seconds_between_counts
        try:
            workers = client.scheduler_info(n_workers=-1)["workers"].values()
            self.work = client.submit(bytes, work, pure=False)
        except Exception as error:
            # Dask raises errors of several kinds when the scheduler has just gone.
            raise WorkersLost("the scheduler does not answer") from error
        self.options = {"resources": {"GPU": 1}} if any(worker["resources"].get("GPU") for worker in workers) else {}

    def submit(self, task: Task) -> Any:
        # To a pure task Dask would answer with the stored failure of an equal task.
        return self.client.submit(perform, task, self.work, pure=False, **self.options)

    def room(self) -> int:
        """Return how many tasks should be under way."""
        if time.monotonic() - self.counted >= Patience.seconds_between_counts:
            with contextlib.suppress(Exception):
                self.count = len(self.client.nthreads())
            self.counted = time.monotonic()
        # Tasks wait at each worker, so that no worker is idle.
        return 3 * self.count

    def gone(self) -> str:
        return "" if self.client.status in ("running", "connecting") else "the scheduler has gone"


def _outcome(future: Future[Answer]) -> Answer | Exception:
    import asyncio

    try:
        return future.result(Patience.seconds_to_send)
    except asyncio.CancelledError as error:
        return RuntimeError(f"it was cancelled {error}".strip())
    except Exception as error:
        return error


@checked
def spread(
    executor: AnyExecutor,
    work: Annotated[TaskFunction, function("(argument)")],
    arguments: Sequence[Any],
    *,
    wanted: Annotated[Mapping[str, str], Words("a mapping from names to text")] | None = None,
    note: Annotated[Callable[[str], None], function("(line)")] = lambda line: None,
) -> Generator[tuple[int, Answer]]:
    """Yield the index and answer of ``work(argument)`` for all arguments.

    The order is the one in which tasks end. Enough tasks are under way to keep all workers busy; a caller who stops early cancels them.

    Args:
      executor: pool or client of Dask.
      work: picklable function, whose results depend on its argument alone.
      arguments: picklable arguments; arguments for one compiled program should follow each other.
      wanted: surroundings that workers must have; default the first worker's, with the versions of this process.
      note: called with a line of text on every event.

    Raises:
      TaskFailed: when a task has failed three times, after the answers of all others that were under way.
      WorkerMismatch: when a worker's results would differ from the others'.
      WorkersLost: when the executor takes no more tasks.
    """
    sent = pickled(work)
    front = _Pool(executor, sent) if isinstance(executor, Executor) else _Cluster(executor, sent)
    # Results depend on these settings of JAX. A worker runs a task under the settings of this process.
    names = ("jax_enable_x64", "jax_default_matmul_precision", "jax_default_prng_impl", "jax_threefry_partitionable")
    agreed, settings = dict(VERSIONS if wanted is None else wanted), {name: getattr(jax.config, name) for name in names}
    left, attempts = deque(range(len(arguments))), Counter[int]()
    under_way: dict[Future[Answer], int] = {}
    ended = queue.SimpleQueue[Future[Answer]]()
    failed: TaskFailed | None = None
    alone = False
    try:
        while under_way or (left and failed is None):
            if not front.room() and not alone:
                note("there are no workers; waiting for some")
            alone = not front.room()
            while left and failed is None and len(under_way) < front.room():
                try:
                    future = front.submit(Task(arguments[left[0]], settings, agreed))
                except RuntimeError as error:
                    raise WorkersLost(f"the executor takes no more tasks: {reason_of(error)}") from error
                under_way[future] = left.popleft()
                future.add_done_callback(ended.put)
            try:
                future = ended.get(timeout=Patience.seconds_between_counts)
            except queue.Empty:
                if front.gone():
                    raise WorkersLost(front.gone()) from None
                continue
            # An executor may answer twice.
            if future not in under_way:
                continue
            index, outcome = under_way.pop(future), _outcome(future)
            if isinstance(outcome, Answer):
                differs = outcome.mismatch or _differs(outcome.surroundings, agreed)
                if differs:
                    raise WorkerMismatch(f"executor: {outcome.worker} cannot take part: {differs}")
                agreed = {**agreed, **outcome.surroundings}
                if not outcome.error:
                    yield index, outcome
                    continue
            elif front.gone() or isinstance(outcome, BrokenExecutor):
                raise WorkersLost(front.gone() or f"the pool of processes is broken: {reason_of(outcome)}")
            reason = outcome.error if isinstance(outcome, Answer) else reason_of(outcome)
            attempts[index] += 1
            if attempts[index] >= Patience.attempts:
                failed = TaskFailed(index, reason)
            else:
                note(f"task {index + 1} is given out again: {reason}")
                left.appendleft(index)
    finally:
        for future in under_way:
            with contextlib.suppress(Exception):
                future.cancel()
    if failed is not None:
        raise failed


def _differs(here: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """Return in words how a worker's surroundings differ from the wanted ones."""
    unlike = ((what, value) for what, value in wanted.items() if here[what] != value)
    return next((f"its results would differ: it has {what} {here[what]} instead of {value}" for what, value in unlike), "")


def pickled(work: TaskFunction) -> bytes:
    """Return a function pickled with all classes of pytrees within.

    With ``cloudpickle`` the classes of scripts and notebooks are sent by their contents, as in Dask, and workers have to register them.
    """
    classes: list[type] = []
    buffer = io.BytesIO()
    try:
        if importlib.util.find_spec("cloudpickle") is None:
            pickle.dump((work, classes), buffer)
        else:
            import cloudpickle

            class Pickler(cloudpickle.Pickler):  # type: ignore[misc]
                def reducer_override(self, item: Any) -> Any:
                    if isinstance(item, type) and item in PYTREES:
                        classes.append(item)
                    return super().reducer_override(item)

            Pickler(buffer).dump((work, classes))
        # A worker runs the user's files first.
        return pickle.dumps((list(LOADED.values()), buffer.getvalue()))
    except Exception as error:
        raise InvalidArgument(f"executor: what is to be done cannot be sent to workers ({reason_of(error)}); run without one") from error


# A process runs one task at a time, even if its executor has threads.
_AT_WORK = threading.Lock()


@functools.lru_cache(4)
def _loaded(work: bytes) -> TaskFunction:
    """Return the unpickled work, with its files run and its pytrees registered."""
    sources, inner = pickle.loads(work)
    run_all(sources)
    loaded, classes = pickle.loads(inner)
    for kind in classes:
        register(kind)
    return cast(TaskFunction, loaded)


def perform(task: Task, work: bytes) -> Answer:
    """Run a task of the pickled ``work`` under the task's settings."""
    name = f"process {os.getpid()} on {socket.gethostname()}"
    # A forked process has its parent's PROCESS, but not JAX's threads, so that this comes before any use of JAX.
    if os.getpid() != PROCESS:
        forked = "it was forked from a process that had loaded JAX, and could wait for ever; start processes by spawn or forkserver"
        return Answer(name, {}, mismatch=f"{forked}, such as ProcessPoolExecutor(mp_context=multiprocessing.get_context('spawn'))")
    with _AT_WORK, contextlib.ExitStack() as stack:
        for setting, value in task.settings.items():
            if (before := getattr(jax.config, setting)) != value:
                jax.config.update(setting, value)
                stack.callback(jax.config.update, setting, before)
        here = surroundings()
        if differs := _differs(here, task.wanted):
            return Answer(name, here, mismatch=differs)
        try:
            return Answer(name, here, _loaded(work)(task.argument))
        except Exception as error:
            return Answer(name, here, error=reason_of(error))


# Clusters of Dask, as the command line names them.


@checked
@contextlib.contextmanager
def connected(where: str | None) -> Iterator[Client | None]:
    """Yield a client of the cluster that ``where`` names, or ``None``.

    A cluster of this machine ends with the block. With a client this process runs no trials and leaves accelerators to the workers.

    Args:
      where: ``"local"``, for a worker for each GPU of this machine, or else for each processor; the address of a scheduler, such as
        ``tcp://host:8786``; or the path of a scheduler file, which all machines see.

    Raises:
      InvalidArgument: when Dask is not installed, or no scheduler answers.
    """
    if where is None:
        yield None
        return
    for package, module in (("Dask", "distributed"), *([("cryptography", "cryptography")] if where == "local" else [])):
        if importlib.util.find_spec(module) is None:
            raise InvalidArgument(f"dask: {package} is not installed; pip install 'jaxbandit[cluster]'")
    dask: Any = importlib.import_module("distributed")
    # A caller in Python may have started a device before.
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_platforms", "cpu")
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
    with contextlib.ExitStack() as stack:
        try:
            if where == "local":
                client = dask.Client(stack.enter_context(local_cluster()), set_as_default=False)
            else:
                named: dict[str, Any] = {"scheduler_file": where} if Path(where).is_file() else {"address": where}
                # A default client would write xarray's files.
                client = dask.Client(**named, timeout=Patience.seconds_to_answer, set_as_default=False)
        except Exception as error:
            raise InvalidArgument(
                f"dask: no scheduler answers at {where} ({reason_of(error)}); give its address, its file, or local"
            ) from error
        yield stack.enter_context(client)


def local_cluster() -> Any:
    """Return a cluster on this machine, one process per GPU or processor.

    Whoever reaches a scheduler can run programs as its owner, and all users of a machine reach its ports. So certificates that end with the
    cluster admit only this process and its workers.
    """
    dask: Any = importlib.import_module("distributed")
    # Counting must not start a GPU.
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    numbered = sorted(path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")) if given is None else given.split(",")
    gpus = [gpu for gpu in numbered if gpu and gpu != "-1"]
    each = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus] or [{"JAX_PLATFORMS": "cpu", "NPROC": "1"}] * cores()
    security = dask.security.Security.temporary()
    inside: dict[str, Any] = {"host": "127.0.0.1", "protocol": "tls://", "security": security}
    # The profiler looks at every frame of the stack, and JAX traces hundreds deep.
    config = {"distributed.worker.profile.enabled": False}
    options = {"nthreads": 1, "memory_limit": 0, "resources": {"GPU": 1} if gpus else {}, "silence_logs": logging.ERROR, **inside}
    return dask.SpecCluster(
        workers={number: {"cls": dask.Nanny, "options": {**options, "config": config, "env": env}} for number, env in enumerate(each)},
        scheduler={"cls": dask.Scheduler, "options": {**inside, "port": 0, "dashboard_address": "127.0.0.1:0"}},
        security=security,
        silence_logs=logging.ERROR,
    )
