"""Compiled programs of studies, compiled together where several are needed, and how a process uses its machine.

Those that were used last stay in this process, as the programs of ``jax.jit`` do, so that a study which is run again compiles nothing.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

import jax

from jaxbandit.core.pytree import float_dtype, signature

Call: TypeAlias = tuple[Any, tuple[Any, ...], Mapping[str, Any]]
"""A jitted function, its arguments, and those that are static."""

# Each takes memory; on two cores four of them wait, so that no core is idle while the longest is compiled.
MAX_COMPILED_TOGETHER = 6
MOST_KEPT = 48  # programs: each holds memory maps, of which a process has few
KEPT: OrderedDict[tuple[Any, ...], jax.stages.Compiled] = OrderedDict()
"""Programs of the studies of this process by what they are made of, those used last at the end."""

# Flags of XLA for CPUs, by which it compiles in a third of the time: without the passes that emit fused loops and in one piece instead of
# 32, by its preset for quick compilation, and without optimising. XLA ends a process that gives it a flag which it does not know.
QUICK_FLAGS = ("--xla_backend_optimization_level=0",)
QUICK_FLAGS_BY_VERSION = {
    (0, 10): (
        "--xla_cpu_opt_preset=CPU_OPT_PRESET_FAST_COMPILE",
        "--xla_cpu_use_fusion_emitters=false",
        "--xla_cpu_parallel_codegen_split_count=1",
    )
}


def compiled(call: Call, coming: Callable[[], Iterable[Call]], note: Callable[[str], None]) -> jax.stages.Compiled:
    """Return the program of a call, compiled with the first of those to come unless it is known; ``note`` is told of that."""
    name = _made_of(call)
    if name not in KEPT:
        missing = {other: wanted for other, wanted in ((_made_of(one), one) for one in (call, *coming())) if other not in KEPT}
        rounds = -(-len(missing) // (MAX_COMPILED_TOGETHER if cores() > 1 else 1))
        chosen = dict(itertools.islice(missing.items(), -(-len(missing) // rounds)))
        words = f"{len(chosen)} program{'s' * (len(chosen) > 1)}"
        note(f"compiling {words}")
        start = time.perf_counter()
        with ThreadPoolExecutor(min(len(chosen), cores())) as pool:
            # Traced and lowered here, for that depends on settings of this thread, while those before are compiled.
            futures = {other: pool.submit(f.lower(*args, **static).compile) for other, (f, args, static) in chosen.items()}
        KEPT.update({other: future.result() for other, future in futures.items()})
        note(f"compiled {words} in {time.perf_counter() - start:.1f} s")
    KEPT.move_to_end(name)
    while len(KEPT) > MOST_KEPT:
        made_of, _ = KEPT.popitem(last=False)
        made_of[0].clear_cache()  # let JAX's own caches drop what is not held here
    return KEPT[name]


def _made_of(call: Call) -> tuple[Any, ...]:
    """Return all that a program depends on: function, structure of its arguments, devices and settings."""
    function, args, static = call
    devices = {device for x in jax.tree.leaves(args) if isinstance(x, jax.Array) for device in x.devices()}
    settings = str(float_dtype()), tuple((option, str(value)) for option, value in jax.config.values.items())
    return function, signature(args), tuple(static.items()), frozenset(devices), settings


def cores() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_all_cores() -> int:
    """Give every CPU core its own JAX device, so that trials are spread over them; returns the number of cores.

    One device per core runs trials about 1.8 times faster on two cores than one device with XLA's own threads does. Where there is
    an accelerator JAX prefers it and this changes nothing. Raises ``RuntimeError`` when JAX has started its devices already.
    """
    jax.config.update("jax_num_cpu_devices", cores())
    return cores()


def compile_quickly() -> None:
    """Let XLA compile without most of its passes, for runs so short that compiling takes longer than running."""
    given = os.environ.get("XLA_FLAGS", "")
    wanted = (*QUICK_FLAGS, *QUICK_FLAGS_BY_VERSION.get(jax.__version_info__[:2], ()))
    missing = [flag for flag in wanted if flag.split("=")[0] not in given]
    os.environ["XLA_FLAGS"] = " ".join([given, *missing]).strip()
