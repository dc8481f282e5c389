"""Memory and processors of the machine, and checks that arrays fit."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Hashable
from pathlib import Path
from typing import ClassVar

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import InvalidArgument

CONTAINER_LIMIT = Path("/sys/fs/cgroup/memory.max")


class Programs:
    """Compiled programs of this process."""

    # Linux allows a process 65,530 maps of memory; a program on a box has up to 2,000.
    maps, max_maps = Path("/proc/self/maps"), 32_000
    # JAX keeps the programs with these identities, compiled for later calls, until it clears its caches.
    made: ClassVar = set[Hashable]()
    compiled = threading.Event()

    @classmethod
    def note(cls, event: str, duration_secs: float, **about: str | int) -> None:
        """Note that JAX has compiled a program."""
        if event == "/jax/core/compile/backend_compile_duration":
            cls.compiled.set()

    @classmethod
    def bound(cls) -> None:
        """Clear JAX's programs, before the compiler runs out of memory maps."""
        if cls.compiled.is_set():
            cls.compiled.clear()
            if cls.maps.exists() and cls.maps.read_bytes().count(b"\n") > cls.max_maps:
                jax.clear_caches()
                cls.made.clear()


jax.monitoring.register_event_duration_secs_listener(Programs.note)


def host_memory() -> int:
    """Return the memory of the machine, or of the container, in bytes."""
    bounds = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with contextlib.suppress(OSError, ValueError):
        bounds.append(int(CONTAINER_LIMIT.read_text()))
    return min(bounds)


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def device_memory() -> int:
    """Return the memory of all local devices, or of a CPU's machine."""
    limits = [(device.memory_stats() or {}).get("bytes_limit", 0) for device in jax.local_devices()]
    return sum(limits) if all(limits) else host_memory()


def in_units(size: int) -> str:
    """Return a number of bytes in words: ``1.5 GiB``."""
    for power, unit in ((5, "PiB"), (4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size >= 1024**power:
            return f"{size // 1024**power:,} {unit}" if size >= 10 * 1024**power else f"{size / 1024**power:.1f} {unit}"
    return f"{size} bytes"


def check_fits(name: str, size: int, what: str, remedy: str) -> None:
    """Raise ``InvalidArgument`` when ``size`` bytes are more than the machine has."""
    if size > host_memory():
        raise InvalidArgument(f"{name}: {what} would take {in_units(size)}, and this machine has {in_units(host_memory())}; {remedy}")


def tree_bytes(tree: object) -> int:
    """Return the bytes of all arrays of a tree, also abstract ones."""
    leaves = [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array | np.ndarray | jax.ShapeDtypeStruct)]
    sized = [leaf for leaf in leaves if not jnp.issubdtype(leaf.dtype, jax.dtypes.extended)]
    return int(sum(int(np.prod(leaf.shape)) * np.dtype(leaf.dtype).itemsize for leaf in sized))
