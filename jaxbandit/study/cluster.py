"""Clusters of Dask, as the command line names them."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import checked
from jaxbandit.core.files import reason_of
from jaxbandit.study.programs import cores

if TYPE_CHECKING:
    from distributed import Client

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
    if importlib.util.find_spec("distributed") is None:
        raise InvalidArgument("dask: Dask is not installed; pip install 'jaxbandit[cluster]'")
    from distributed import Client

    with contextlib.suppress(RuntimeError):  # a device has been started: a caller in Python has chosen it
        jax.config.update("jax_platforms", "cpu")
    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # whose errors are raised, too
    with contextlib.ExitStack() as stack:
        try:
            if where == LOCAL:
                client = Client(stack.enter_context(local_cluster()), set_as_default=False)
            else:
                named: dict[str, Any] = {"scheduler_file": where} if Path(where).is_file() else {"address": where}
                client = Client(**named, timeout=SECONDS_TO_ANSWER, set_as_default=False)  # xarray would use it to write files
        except Exception as error:  # of many kinds, for what is no address or no such file
            raise InvalidArgument(
                f"dask: no scheduler answers at {where} ({reason_of(error)}); give its address, its file, or {LOCAL}"
            ) from error
        yield stack.enter_context(client)


def local_cluster() -> Any:
    """Return a cluster of this machine, which others cannot reach: a process for each GPU, or else for each processor."""
    from distributed import Nanny, Scheduler, SpecCluster

    gpus = visible_gpus()
    each = [{"CUDA_VISIBLE_DEVICES": gpu} for gpu in gpus] or [{"JAX_PLATFORMS": "cpu", "NPROC": "1"}] * cores()
    inside: dict[str, Any] = {"host": "127.0.0.1"}
    options = {"nthreads": 1, "memory_limit": 0, "resources": {"GPU": 1} if gpus else {}, "silence_logs": logging.ERROR, **inside}
    return SpecCluster(
        workers={number: {"cls": Nanny, "options": {**options, "env": env}} for number, env in enumerate(each)},
        scheduler={"cls": Scheduler, "options": {**inside, "port": 0, "dashboard_address": "127.0.0.1:0"}},
        silence_logs=logging.ERROR,
    )


def visible_gpus() -> list[str]:
    """Return the numbers of the GPUs of NVIDIA that processes of this one may use, without starting any of them."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    if given is not None:
        return [gpu for gpu in given.split(",") if gpu and gpu != "-1"]
    return sorted(path.name.removeprefix("nvidia") for path in Path("/dev").glob("nvidia[0-9]*"))
