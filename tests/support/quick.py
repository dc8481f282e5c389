"""Tracing and lowering in less time, in the process of tests and in those that run many small programs for them."""

import functools
import gc

import jax


def trace_quickly() -> None:
    """Look for garbage seldom, and lower all programs of this process in one context.

    JAX loads MLIR's dialects for every program that it lowers, 7 ms each time, half of what a small program takes that has been compiled
    before. Of JAX's inside, so only for the versions for which this was tried.
    """
    gc.set_threshold(50_000, 20, 50)  # tracing makes many objects and few cycles
    gc.freeze()  # what has been imported stays
    if jax.__version_info__[:2] == (0, 10):
        from jax._src.interpreters import mlir

        mlir.make_ir_context = functools.cache(mlir.make_ir_context)
