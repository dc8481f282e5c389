"""Settings of how a process uses its machine, to be made before JAX starts its first device."""

from __future__ import annotations

import os

import jax


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


def compile_quickly() -> None:
    """Let XLA compile without most of its passes, for runs so short that compiling takes longer than running."""
    given = os.environ.get("XLA_FLAGS", "")
    wanted = (*QUICK_FLAGS, *QUICK_FLAGS_BY_VERSION.get(jax.__version_info__[:2], ()))
    missing = [flag for flag in wanted if flag.split("=")[0] not in given]
    os.environ["XLA_FLAGS"] = " ".join([given, *missing]).strip()
