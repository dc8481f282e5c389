"""Work spread over an executor: a pool of :mod:`concurrent.futures`, or the workers of a Dask cluster.

A task is one call of a picklable function, the *work*, which a worker keeps with all that it has made, such as compiled programs. What a
task returns must depend on its argument alone: a task that was lost with its worker is given to another one.
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
from jaxbandit.core.cache import processor
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import Check, Words, function
from jaxbandit.core.files import reason_of
from jaxbandit.core.memory import cores
from jaxbandit.core.own import LOADED, run_all
from jaxbandit.core.pytree import PYTREES, register

if TYPE_CHECKING:
    from distributed import Client

WORKS_KEPT = 4  # in a worker, those used last
PROCESS = os.getpid()  # in which this module was loaded: a forked process has that of its parent

# What results depend on beside the program; a task is done with what is in force where it was given.
SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_default_prng_impl", "jax_threefry_partitionable")

VERSIONS = {"jaxbandit": __version__, "jax": jax.__version__, "jaxlib": jaxlib.__version__}
VERSIONS_AND_DEVICE = (*VERSIONS, "device")

Work: TypeAlias = Callable[[Any], Any]


class DaskClient(Protocol):
    """Part of ``distributed.Client`` for whoever has no Dask, and so no such type."""

    @property
    def dashboard_link(self) -> Any:
        """Address of the page that shows what workers do."""

    def submit(self, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Give out a task."""


AnyExecutor: TypeAlias = Executor | DaskClient


def surroundings() -> dict[str, str]:
    """Return all that results depend on beside the program and its settings: versions, and the kind of device."""
    device = jax.local_devices()[0]
    return {**VERSIONS, "device": f"{device.platform} {processor() if device.platform == 'cpu' else device.device_kind}"}


@dataclasses.dataclass(frozen=True)
class Task:
    """Message to a worker: the argument, settings of JAX, and the surroundings that it must have.

    Surroundings are those of versions only until the first worker has said its kind of device.
    """

    argument: Any
    settings: Mapping[str, Any]
    wanted: Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class Answer:
    """Message from a worker: its name, its surroundings and the result, or why there is none."""

    worker: str
    surroundings: Mapping[str, str]
    result: Any = None
    mismatch: str = ""
    error: str = ""


ATTEMPTS = 3  # of a task, before it counts as failed
TASKS_PER_WORKER = 3  # under way: one is played and the others wait, so that no worker does
TASKS_IN_A_POOL = 256  # under way in a pool, whose number of workers nobody tells
SECONDS_BETWEEN_COUNTS = 5.0  # of the workers of a cluster, which come and go
SECONDS_TO_SEND = 30.0  # what a task has returned, before it counts as lost with its worker


class WorkersLost(RuntimeError):
    """The executor takes no more tasks; what is finished is kept, and ``resume`` goes on."""


class WorkerMismatch(InvalidArgument):
    """A worker's results would differ from the others': it has other versions, or another kind of device; the message says which."""


class TaskFailed(RuntimeError):
    """A task, by its ``index``, failed in every attempt; ``reason`` is the message of its last error."""

    def __init__(self, index: int, reason: str) -> None:
        super().__init__(f"task {index + 1} failed {ATTEMPTS} times: {reason}")
        self.index, self.reason = index, reason


class _Pool:
    """Front of an executor of :mod:`concurrent.futures`."""

    def __init__(self, executor: Executor, work: bytes) -> None:
        self.executor, self.work = executor, work

    def submit(self, task: Task) -> Future[Answer]:
        return self.executor.submit(perform, task, self.work)

    def room(self) -> int:
        return TASKS_IN_A_POOL

    def gone(self) -> str:
        return ""


class _Cluster:
    """Front of a client of Dask, whose scheduler gives tasks of lost workers to others."""

    def __init__(self, client: Any, work: bytes) -> None:
        self.client, self.count, self.counted = client, 0, -SECONDS_BETWEEN_COUNTS
        try:
            workers = client.scheduler_info(n_workers=-1)["workers"].values()
            self.work = client.submit(bytes, work, pure=False)  # which workers send each other
        except Exception as error:  # of several kinds, where the scheduler has just gone
            raise WorkersLost("the scheduler does not answer") from error
        self.options = {"resources": {"GPU": 1}} if any(worker["resources"].get("GPU") for worker in workers) else {}

    def submit(self, task: Task) -> Any:
        # Impure: an equal task that failed would be answered by its remembered failure.
        return self.client.submit(perform, task, self.work, pure=False, **self.options)

    def room(self) -> int:
        """Return how many tasks should be under way."""
        if time.monotonic() - self.counted >= SECONDS_BETWEEN_COUNTS:
            with contextlib.suppress(Exception):  # of several kinds, while the scheduler does not answer
                self.count = len(self.client.nthreads())
            self.counted = time.monotonic()
        return TASKS_PER_WORKER * self.count

    def gone(self) -> str:
        return "" if self.client.status in ("running", "connecting") else "the scheduler has gone"


def _outcome(future: Future[Answer]) -> Answer | Exception:
    import asyncio  # here because commands without an executor should not pay for it

    try:
        return future.result(SECONDS_TO_SEND)
    except asyncio.CancelledError as error:  # Dask's own kind of cancellation
        return RuntimeError(f"it was cancelled {error}".strip())
    except Exception as error:
        return error


def _is_executor(value: object) -> bool:
    dask = sys.modules.get("distributed")  # which is loaded by whoever has made a client
    return isinstance(value, Executor) or (dask is not None and isinstance(value, dask.Client))


EXECUTOR = Check("an executor of concurrent.futures, or a client of Dask, distributed.Client", _is_executor)


@checked
def spread(
    executor: Annotated[AnyExecutor, EXECUTOR],
    work: Annotated[Work, function("(argument)")],
    arguments: Sequence[Any],
    *,
    wanted: Annotated[Mapping[str, str], Words("a mapping from names to text")] | None = None,
    note: Annotated[Callable[[str], None], function("(line)")] = lambda line: None,
) -> Generator[tuple[int, Answer]]:
    """Do ``work(argument)`` for all arguments and give the number and the answer of each, in the order they come.

    As many tasks are under way as keep all workers busy; whoever stops early cancels them.

    Args:
      executor: pool or client of Dask.
      work: picklable function, whose results depend on its argument alone.
      arguments: picklable arguments; those that need one compiled program should follow each other.
      wanted: surroundings that workers must have; default those of the first worker, with the versions that are here.
      note: called with a line of text where there is something to say.

    Raises:
      TaskFailed: when a task has failed ``ATTEMPTS`` times, after all others that were under way have been given.
      WorkerMismatch: when a worker's results would differ from the others'.
      WorkersLost: when the executor takes no more tasks.
    """
    sent = pickled(work)
    front = _Pool(executor, sent) if isinstance(executor, Executor) else _Cluster(executor, sent)
    agreed, settings = dict(VERSIONS if wanted is None else wanted), {name: getattr(jax.config, name) for name in SETTINGS}
    left, attempts = deque(range(len(arguments))), Counter[int]()
    under_way: dict[Future[Answer], int] = {}
    ended = queue.SimpleQueue[Future[Answer]]()
    failed: TaskFailed | None = None
    alone = False  # without any worker, which is said once
    try:
        while under_way or (left and failed is None):
            if not front.room() and not alone:
                note("there are no workers; waiting for some")
            alone = not front.room()
            while left and failed is None and len(under_way) < front.room():
                try:
                    future = front.submit(Task(arguments[left[0]], settings, agreed))
                except RuntimeError as error:  # of an executor that has been shut down, or whose processes have ended
                    raise WorkersLost(f"the executor takes no more tasks: {reason_of(error)}") from error
                under_way[future] = left.popleft()
                future.add_done_callback(ended.put)
            try:
                future = ended.get(timeout=SECONDS_BETWEEN_COUNTS)
            except queue.Empty:  # none has ended in that time: workers are counted anew
                if front.gone():
                    raise WorkersLost(front.gone()) from None
                continue
            if future not in under_way:  # an executor may answer twice
                continue
            index, outcome = under_way.pop(future), _outcome(future)
            if isinstance(outcome, Answer):
                differs = outcome.mismatch or _differs(outcome.surroundings, agreed)
                if differs:
                    raise WorkerMismatch(f"executor: {outcome.worker} cannot take part: {differs}")
                agreed = {**agreed, **outcome.surroundings}  # of which the first worker says its kind of device
                if not outcome.error:
                    yield index, outcome
                    continue
            elif front.gone() or isinstance(outcome, BrokenExecutor):
                raise WorkersLost(front.gone() or f"the pool of processes is broken: {reason_of(outcome)}")
            reason = outcome.error if isinstance(outcome, Answer) else reason_of(outcome)
            attempts[index] += 1
            if attempts[index] >= ATTEMPTS:
                failed = TaskFailed(index, reason)
            else:
                note(f"task {index + 1} is given out again: {reason}")
                left.appendleft(index)
    finally:
        for future in under_way:
            with contextlib.suppress(Exception):  # of an executor that has gone
                future.cancel()
    if failed is not None:
        raise failed


def _differs(here: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """Return how a worker's surroundings differ from those that it must have, empty where they do not."""
    unlike = ((what, value) for what, value in wanted.items() if here[what] != value)
    return next((f"its results would differ: it has {what} {here[what]} instead of {value}" for what, value in unlike), "")


def pickled(work: Work) -> bytes:
    """Return a function pickled, and all classes of pytrees within.

    Classes of scripts and notebooks go by their contents where ``cloudpickle`` is there, as with Dask; nobody has registered them then.
    """
    classes: list[type] = []
    buffer = io.BytesIO()
    try:
        if importlib.util.find_spec("cloudpickle") is None:
            return _sent(pickle.dumps((work, classes)))
        import cloudpickle

        class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # of a package without types
            def reducer_override(self, item: Any) -> Any:
                if isinstance(item, type) and item in PYTREES:
                    classes.append(item)
                return super().reducer_override(item)

        Pickler(buffer).dump((work, classes))
        return _sent(buffer.getvalue())
    except Exception as error:  # any of a user's class
        raise InvalidArgument(f"executor: what is to be done cannot be sent to workers ({reason_of(error)}); run without one") from error


def _sent(work: bytes) -> bytes:
    """Return what was pickled after the files of a user's own classes, which a worker has to run before."""
    return pickle.dumps((list(LOADED.values()), work))


# In a worker.

_AT_WORK = threading.Lock()  # a process does one task at a time, whatever its executor's threads


@functools.lru_cache(WORKS_KEPT)
def _loaded(work: bytes) -> Work:
    """Return what was pickled, with the pytrees within known to JAX, once files of the user's own classes have run."""
    sources, inner = pickle.loads(work)
    run_all(sources)
    loaded, classes = pickle.loads(inner)
    for kind in classes:
        register(kind)
    return cast(Work, loaded)


def perform(task: Task, work: bytes) -> Answer:
    """Do a task of the pickled ``work``, in a worker, with JAX's settings as they are where the task was given."""
    name = f"process {os.getpid()} on {socket.gethostname()}"
    if os.getpid() != PROCESS:  # before anything of JAX is touched, whose threads a fork does not copy
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
        except Exception as error:  # any of a user's function; the caller says which task it was
            return Answer(name, here, error=reason_of(error))


# Clusters of Dask, as the command line names them.

LOCAL = "local"
WORKERS = "let workers of Dask play: local for some of this machine, or the address or the scheduler file of a cluster"
SECONDS_TO_ANSWER = 30.0


@checked
@contextlib.contextmanager
def connected(where: str | None) -> Iterator[Client | None]:
    """Give a client of the cluster that ``where`` names, ``None`` for none; a cluster of this machine's own ends with the block.

    This process plays nothing then, and leaves accelerators to the workers.

    Args:
      where: ``"local"``, for a worker for each GPU of this machine, or else for each processor; the address of a scheduler, such as
        ``tcp://host:8786``; or the path of a scheduler file, which all machines see.

    Raises:
      InvalidArgument: when Dask is not installed, or no scheduler answers.
    """
    if where is None:
        yield None
        return
    for package, module in (("Dask", "distributed"), *([("cryptography", "cryptography")] if where == LOCAL else [])):
        if importlib.util.find_spec(module) is None:
            raise InvalidArgument(f"dask: {package} is not installed; pip install 'jaxbandit[cluster]'")
    dask: Any = importlib.import_module("distributed")
    with contextlib.suppress(RuntimeError):  # a device has been started: a caller in Python has chosen it
        jax.config.update("jax_platforms", "cpu")
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # whose errors are raised, too
    with contextlib.ExitStack() as stack:
        try:
            if where == LOCAL:
                client = dask.Client(stack.enter_context(local_cluster()), set_as_default=False)
            else:
                named: dict[str, Any] = {"scheduler_file": where} if Path(where).is_file() else {"address": where}
                client = dask.Client(**named, timeout=SECONDS_TO_ANSWER, set_as_default=False)  # xarray would use it to write files
        except Exception as error:  # of many kinds, for what is no address or no such file
            raise InvalidArgument(
                f"dask: no scheduler answers at {where} ({reason_of(error)}); give its address, its file, or {LOCAL}"
            ) from error
        yield stack.enter_context(client)


def local_cluster() -> Any:
    """Return a cluster of this machine, a process for each GPU, or else for each processor.

    Whoever reaches a scheduler has programs run as its owner, and all users of a machine reach its ports. So certificates that end with
    the cluster let in only who has them: this process and its workers.
    """
    dask: Any = importlib.import_module("distributed")
    given = os.environ.get("CUDA_VISIBLE_DEVICES")  # no GPU is started to count them
    numbered = sorted(path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*")) if given is None else given.split(",")
    gpus = [gpu for gpu in numbered if gpu and gpu != "-1"]
    each = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus] or [{"JAX_PLATFORMS": "cpu", "NPROC": "1"}] * cores()
    security = dask.security.Security.temporary()
    inside: dict[str, Any] = {"host": "127.0.0.1", "protocol": "tls://", "security": security}
    config = {"distributed.worker.profile.enabled": False}  # which looks at every frame of the stack, and JAX traces hundreds deep
    options = {"nthreads": 1, "memory_limit": 0, "resources": {"GPU": 1} if gpus else {}, "silence_logs": logging.ERROR, **inside}
    return dask.SpecCluster(
        workers={number: {"cls": dask.Nanny, "options": {**options, "config": config, "env": env}} for number, env in enumerate(each)},
        scheduler={"cls": dask.Scheduler, "options": {**inside, "port": 0, "dashboard_address": "127.0.0.1:0"}},
        security=security,
        silence_logs=logging.ERROR,
    )
