"""Compiled programs of studies, compiled together where several are needed, and how a process uses its machine.

Those that were used last stay in this process, as the programs of ``jax.jit`` do, so that a study which is run again compiles nothing.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

import jax

from jaxbandit.core.pytree import float_dtype
from jaxbandit.engine.programs import advance_all, play_all
from jaxbandit.results.measured import measure_all

Lower: TypeAlias = Callable[[], jax.stages.Lowered]

# Each takes memory; on two cores four of them wait, so that no core is idle while the longest is compiled.
MAX_COMPILED_TOGETHER = 6
MOST_KEPT = 48  # programs: each holds memory maps, of which a process has few
KEPT: OrderedDict[Hashable, jax.stages.Compiled] = OrderedDict()
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


def compiled(
    name: Hashable, later: Callable[[], Iterable[tuple[Hashable, Lower | None]]], note: Callable[[str], None] = lambda line: None
) -> jax.stages.Compiled:
    """Return a program, compiled unless it is known.

    Args:
      name: name of the program.
      later: gives the names of all programs that will be asked for, this one first, with what lowers them, ``None`` for what cannot
        be lowered yet. The first that are missing are compiled together.
      note: called with a line of text before and after.
    """
    settings = str(float_dtype()), tuple((option, str(value)) for option, value in jax.config.values.items())
    if (name, settings) not in KEPT:
        missing = {other: lower for other, lower in later() if lower is not None and (other, settings) not in KEPT}
        rounds = -(-len(missing) // (MAX_COMPILED_TOGETHER if cores() > 1 else 1))
        chosen = dict(itertools.islice(missing.items(), -(-len(missing) // rounds)))
        words = f"{len(chosen)} program{'s' * (len(chosen) > 1)}"
        note(f"compiling {words}")
        start = time.perf_counter()
        with ThreadPoolExecutor(min(len(chosen), cores())) as pool:
            # Traced and lowered here, for that depends on settings of this thread, while those before are compiled.
            futures = {other: pool.submit(lower().compile) for other, lower in chosen.items()}
        KEPT.update({(other, settings): future.result() for other, future in futures.items()})
        note(f"compiled {words} in {time.perf_counter() - start:.1f} s")
    KEPT.move_to_end((name, settings))
    while len(KEPT) > MOST_KEPT:
        KEPT.popitem(last=False)
        for function in (play_all, advance_all, measure_all):  # let JAX's own caches drop what is not held here
            function.clear_cache()  # type: ignore[attr-defined]  # the stub lacks it
    return KEPT[name, settings]


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
