"""Tasks in a worker: each is a call of a picklable function, the *work*, in the settings of whoever gave the task.

The work is kept, with all that it has made, such as compiled programs; those used last, for the tasks that follow.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import jax
import jaxlib

from jaxbandit._version import __version__
from jaxbandit.core.cache import processor
from jaxbandit.core.files import reason_of
from jaxbandit.core.pytree import register

WORKS_KEPT = 4  # in a worker, those used last
PROCESS = os.getpid()  # in which this module was loaded: a forked process has that of its parent

# What results depend on beside the program; a task is done with what is in force where it was given.
SETTINGS = ("jax_enable_x64", "jax_default_matmul_precision", "jax_default_prng_impl", "jax_threefry_partitionable")

VERSIONS = {"jaxbandit": __version__, "jax": jax.__version__, "jaxlib": jaxlib.__version__}
VERSIONS_AND_DEVICE = (*VERSIONS, "device")

Work: TypeAlias = Callable[[Any], Any]


def surroundings() -> dict[str, str]:
    """Return all that results depend on beside the program and its settings: versions, and the kind of device."""
    device = jax.local_devices()[0]
    return {**VERSIONS, "device": f"{device.platform} {processor() if device.platform == 'cpu' else device.device_kind}"}


@dataclass(frozen=True)
class Task:
    """Message to a worker: what to call, by its digest and pickled where the worker may not know it, and with which argument.

    ``wanted`` are the surroundings that it must have, those of versions only until the first worker has said its kind of device.
    """

    digest: str
    work: bytes | None
    argument: Any
    settings: Mapping[str, Any]
    wanted: Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """Message from a worker: its name, its surroundings and the result, or why there is none; ``unknown`` if it lacks the work."""

    worker: str
    surroundings: Mapping[str, str]
    result: Any = None
    unknown: bool = False
    mismatch: str = ""
    error: str = ""


_AT_WORK = threading.Lock()  # a process does one task at a time, whatever its executor's threads
_WORKS: OrderedDict[str, Work] = OrderedDict()


def perform(task: Task) -> Answer:
    """Do a task, in a worker."""
    name = f"process {os.getpid()} on {socket.gethostname()}"
    if os.getpid() != PROCESS:  # before anything of JAX is touched, whose threads a fork does not copy
        forked = "it was forked from a process that had loaded JAX, and could wait for ever; start processes by spawn or forkserver"
        return Answer(name, {}, mismatch=f"{forked}, such as ProcessPoolExecutor(mp_context=multiprocessing.get_context('spawn'))")
    with _AT_WORK, _in_force(task.settings):
        own = surroundings()
        for what, value in task.wanted.items():
            if own[what] != value:
                return Answer(name, own, mismatch=f"its results would differ: it has {what} {own[what]} instead of {value}")
        if task.digest not in _WORKS and task.work is None:
            return Answer(name, own, unknown=True)
        try:
            if task.digest not in _WORKS:
                _WORKS[task.digest], classes = pickle.loads(task.work or b"")
                for kind in classes:
                    register(kind)
            _WORKS.move_to_end(task.digest)
            while len(_WORKS) > WORKS_KEPT:
                _WORKS.popitem(last=False)
            return Answer(name, own, _WORKS[task.digest](task.argument))
        except Exception as error:  # any of a user's function; the caller says which task it was
            return Answer(name, own, error=reason_of(error))


@contextlib.contextmanager
def _in_force(settings: Mapping[str, Any]) -> Iterator[None]:
    """Let settings of JAX be in force, as they are where the task was given."""
    before = {name: getattr(jax.config, name) for name in settings}
    changed = {name for name, value in settings.items() if value != before[name]}
    for name in changed:
        jax.config.update(name, settings[name])
    try:
        yield
    finally:
        for name in changed:
            jax.config.update(name, before[name])
