"""Tracing and lowering in less time, in the process of tests and in those that run many small programs for them."""

import atexit
import functools
import gc
import os
import types
import zlib
from collections.abc import Callable
from typing import Any

import jax


def roomy(function: Callable[[], Any]) -> Any:
    """Call a function with room for thousands of frames.

    Python keeps frames in pieces of 16 kB, and gives one back to the system as soon as it is empty: what is called in a loop at the end of
    a piece takes and returns one each time, 60,000 times in ten seconds of tracing. The frame of this function makes one piece of 16 MB,
    of which only what is used takes memory.
    """
    return function()


roomy.__code__ = roomy.__code__.replace(co_stacksize=1_000_000)


def keep_to_a_core(worker: int) -> None:
    """Keep this process, and its children, to one core: XLA starts as many threads as it may use cores, which wait by looking for work.

    Workers that have all cores take a tenth more time. Systems other than Linux leave it to the scheduler.
    """
    if hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[worker % len(cores)]})


def trace_quickly() -> None:
    """Look for garbage seldom, batch loops at once, and lower all programs of this process in one context.

    JAX loads MLIR's dialects for every program that it lowers, 7 ms each time, half of what a small program takes that has been compiled
    before. Of JAX's inside, so only for the versions for which this was tried; the programs are the same.
    """
    gc.set_threshold(50_000, 20, 50)  # tracing makes many objects and few cycles
    gc.freeze()  # what has been imported stays
    if jax.__version_info__[:2] == (0, 10):
        from jax._src import api, compilation_cache, config
        from jax._src.interpreters import batching, mlir, partial_eval
        from jax._src.lax.control_flow import loops

        mlir.make_ir_context = functools.cache(mlir.make_ir_context)
        mlir._cached_lowering_miss = functools.partial(_lowered_before, mlir._cached_lowering_miss, {})
        compilation_cache.compress_executable = functools.partial(zlib.compress, level=1)
        traced = functools.cache(lambda settings, function, kinds: partial_eval.trace_to_jaxpr_dynamic(function, kinds, lower=True))
        once = {"trace_to_jaxpr_dynamic": lambda function, kinds, lower: traced(config.trace_context(), function, tuple(kinds))}
        mlir.pe = types.SimpleNamespace(**vars(partial_eval) | once)  # random numbers, of which a program draws in many places
        atexit.unregister(api.clean_up)  # a process that ends need not let go of thousands of programs one by one
        for loop in (loops.scan_p, loops.while_p):
            batching.fancy_primitive_batchers[loop] = functools.partial(_batch_at_once, batching.fancy_primitive_batchers[loop])


def _lowered_before(lower: Any, known: dict[Any, Any], ctx: Any, eqn: Any, key: Any, avals_in: Any, **params: Any) -> Any:
    """Lower an operation as an earlier program did: JAX keeps what it has lowered for one program, of operations that are copied inline."""
    from jax._src import config, core

    if eqn.effects or ctx.host_callbacks or next(core.jaxprs_in_params(params), None) is not None:
        return lower(ctx, eqn, key, avals_in, **params)
    place = (key, config.trace_context(), ctx.axis_context, ctx.lowering_parameters, tuple(ctx.shape_poly_state.dim_vars))
    if place not in known:
        entry = lower(ctx, eqn, key, avals_in, **params)
        if not entry.inline or entry.const_args or "call @" in str(entry.func):  # what refers to its program is of no use to others
            return entry
        known[place] = entry
    return ctx.lowering_cache.setdefault(key, known[place])


def _batch_at_once(rule: Any, axis: Any, arguments: Any, axes: Any, **params: Any) -> Any:
    """Batch a loop whose carry starts as it will end: JAX batches the whole body again whenever it finds one more part to be batched."""
    from jax._src.interpreters import batching

    before = [place is not None for place in axes]
    after = _carried(params, before)
    changed = [now and not was for now, was in zip(after, before, strict=True)]
    arguments = [
        batching.broadcast(x, axis.size, 0, axis.explicit_mesh_axis) if new else x for x, new in zip(arguments, changed, strict=True)
    ]
    return rule(axis, arguments, [0 if new else place for place, new in zip(axes, changed, strict=True)], **params)


def _carried(params: Any, given: list[bool]) -> list[bool]:
    """Which arguments of a loop depend on those given, after any number of rounds."""
    if "body_jaxpr" in params:
        head, body, first = params["cond_nconsts"], params["body_jaxpr"], params["body_nconsts"]
        count = len(given) - head - first
    else:
        head, body, first, count = 0, params["jaxpr"], params["num_consts"], params["num_carry"]
    start, end = head + first, head + first + count
    while True:
        found = _reached(body.jaxpr, given[head:])[:count]
        carry = [a or b for a, b in zip(given[start:end], found, strict=True)]
        if carry == given[start:end]:
            return given
        given = [*given[:start], *carry, *given[end:]]


def _reached(jaxpr: Any, given: list[bool]) -> list[bool]:
    """Which results of a program depend on the arguments given; not those of parts that are neither loops nor functions."""
    known = dict(zip(jaxpr.invars, given, strict=True))

    def of(variables: Any) -> list[bool]:
        return [not hasattr(variable, "val") and known.get(variable, False) for variable in variables]

    for equation in jaxpr.eqns:
        name, params, inputs = equation.primitive.name, equation.params, of(equation.invars)
        if not any(inputs):
            continue
        if name == "jit":
            outputs = _reached(params["jaxpr"].jaxpr, inputs)
        elif name == "scan":
            outputs = _reached(params["jaxpr"].jaxpr, _carried(params, inputs))
        elif name == "while":
            head, first = params["cond_nconsts"], params["body_nconsts"]
            carry = _carried(params, inputs)[head + first :]
            (on,) = _reached(params["cond_jaxpr"].jaxpr, [*inputs[:head], *carry])
            outputs = [on or one for one in carry]
        elif name == "cond":
            branches = [_reached(branch.jaxpr, inputs[1:]) for branch in params["branches"]]
            outputs = [inputs[0] or any(of_each) for of_each in zip(*branches, strict=True)]
        else:
            outputs = [not any(part.endswith("jaxpr") for part in params)] * len(equation.outvars)
        known.update(zip(equation.outvars, outputs, strict=True))
    return of(jaxpr.outvars)


def dask_setup(_: Any) -> None:
    """Trace quickly in a worker of Dask to which this module is named."""
    trace_quickly()
