"""The check of algorithms."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit import domains
from jaxbandit.algorithms import Algorithm, Arena, Observation
from jaxbandit.core.checks import is_traced
from jaxbandit.core.pytree import canonicalise
from jaxbandit.kernels import SquaredExponential
from jaxbandit.problems import AbstractProblem
from jaxbandit.surrogates import Surrogate, ranged, surrogate
from jaxbandit.testing.common import ensure, made, survives


def check_algorithm(
    algorithm: Algorithm | Callable[[], Algorithm], *, model: Surrogate | None = None, rounds: int = 4, precision: str | None = None
) -> Algorithm:
    """Check that an algorithm is a pytree with pure methods.

    Methods must keep the types of the state. Programs that differ between traces show that a method depends on Python's variables.

    Args:
      algorithm: the algorithm. The problem of the check has 30 points and two constraints.
      model: a model of three outputs; default a model that fits the algorithm.
      rounds: number of rounds of the two trials, ``>= 0``.
      precision: "float32" or "float64"; default both.

    Raises:
      AssertionError: if the algorithm breaks a promise.
    """
    algorithm = made(algorithm, Algorithm)
    name = survives(algorithm, outputs=3)
    for each in ("float32", "float64") if precision is None else (precision,):
        with jax.enable_x64(each == "float64"):
            _check_round(name, algorithm, model or _model_for(algorithm), each)
    if rounds:
        _check_run(name, algorithm, model or _model_for(algorithm), rounds)
    return algorithm


def _model_for(algorithm: Algorithm) -> Surrogate:
    """Return a model of three outputs on 30 points without symmetry."""
    rng = np.random.default_rng(0)
    domain, kernel = domains.product([np.sort(rng.random(6)), np.sort(rng.random(5))]), SquaredExponential(length_scale=0.3)
    if algorithm.traits.refits:
        return ranged(domain, kernel, low=0.2, high=0.6, noise_variance=0.05, outputs=3).separate()
    return surrogate(domain, kernel, noise_variance=0.05, outputs=3, form="features")


def _check_round(name: str, algorithm: Algorithm, model: Surrogate, precision: str) -> None:
    """Check types and programs of the methods of a round."""
    algorithm = canonicalise(algorithm)
    arena = Arena(surrogate=canonicalise(model), horizon=jnp.int32(9))
    size, outputs = arena.surrogate.size, arena.constraints + 1
    key, t = jax.random.key(0), jnp.int32(1)
    values, sample = (jax.ShapeDtypeStruct(shape, precision) for shape in ((outputs,), (outputs - 1, size)))
    states: list[tuple[str, Any]] = []

    def after(method: str, function: Callable[..., Any], *given: Any) -> Any:
        """Return the types of a method's result, and require one program."""
        # More than two traces find a method whose program changes seldom, as by a count divided by 3.
        traced = [_program(function, algorithm, arena, *given) for _ in range(4)]
        words = "must be a pure function, but gives another program each time that it is traced"
        way = "keep what changes in the state, not in Python's variables, and draw random numbers by the key"
        ensure(len({program for program, _ in traced}) == 1, name, f"{method} {words}; {way}")
        return traced[0][1]

    def state_after(method: str, function: Callable[..., Any], *given: Any) -> Any:
        states.append((method, after(method, function, *given)))
        return states[-1][1]

    state = state_after("init", lambda own, arena: own.init(arena))
    observation = lambda values: Observation(index=jnp.int32(0), values=values)  # noqa: E731
    state_after("learn", lambda own, arena, s, v: own.learn(arena, s, observation(v)), state, values)
    state_after("begin", lambda own, arena, s: own.begin(arena, s), state)
    if algorithm.traits.sees_constraints:
        state_after("reveal", lambda own, arena, s, shown, t: own.reveal(arena, s, shown, t), state, sample, t)
    decision, chosen = after("select", lambda own, arena, s, t, key: own.select(arena, s, t, key), state, t, key)
    states.append(("select", chosen))
    state_after("update", lambda own, arena, s, v, t: own.update(arena, s, observation(v), t), chosen, values, t)
    shown = after("diagnose", lambda own, arena, s: dict(own.diagnose(s)), state)
    for leaf in jax.tree.leaves(state):
        if jnp.issubdtype(leaf.dtype, jnp.floating):
            ensure(leaf.dtype == precision, name, f"init must give a state of {precision}, got {leaf.dtype}")
        ensure(not leaf.weak_type, name, "init must give arrays of a type of their own: give jnp.zeros a dtype")
    for method, other in states[1:]:
        structure: Any = jax.tree.structure(state)
        same = structure == jax.tree.structure(other)
        ensure(same, name, f"{method} must keep the structure of the state, {structure}")
        pairs = zip(jax.tree_util.tree_leaves_with_path(other), jax.tree.leaves(state), strict=True)
        for (path, leaf), start in pairs:
            words = f"{method} must keep the type of state{jax.tree_util.keystr(path)}, {start.dtype} {list(start.shape)}"
            ensure((leaf.shape, leaf.dtype) == (start.shape, start.dtype), name, f"{words}, got {leaf.dtype} {list(leaf.shape)}")
    promised = (("index", decision.index, (), "integer"), ("widths", decision.widths, (outputs,), precision))
    for field, leaf, shape, kind in promised:
        right = leaf.shape == shape and kind in (str(leaf.dtype), "integer" if jnp.issubdtype(leaf.dtype, jnp.integer) else "")
        ensure(right, name, f"select must give {field} as {kind} {list(shape)}, got {leaf.dtype} {list(leaf.shape)}")
    multipliers = shown.get("multipliers", jax.ShapeDtypeStruct((outputs - 1,), precision))
    right = (multipliers.shape, multipliers.dtype) == ((outputs - 1,), precision)
    ensure(right, name, f"diagnose must give multipliers as {precision} [{outputs - 1}], got {multipliers}")
    for flags in (decision.flags, shown.get("flags", jnp.int32(0))):
        ensure(jnp.shape(flags) == () and jnp.issubdtype(jnp.result_type(flags), jnp.integer), name, f"flags must be int32 [], got {flags}")


def _program(function: Callable[..., Any], *given: Any) -> tuple[tuple[str, tuple[bytes, ...]], Any]:
    """Return a function's program as text with constants, and result types."""
    # JAX caches the trace of a function. Therefore each call traces a new function.
    made, shapes = jax.make_jaxpr(lambda *given: function(*given), return_shape=True)(*given)
    constants = [x for x in made.consts if not is_traced(x) and not jnp.issubdtype(x.dtype, jax.dtypes.extended)]
    return (re.sub(r" at 0x[0-9a-f]+", "", str(made.jaxpr)), tuple(np.asarray(value).tobytes() for value in constants)), shapes


def _check_run(name: str, algorithm: Algorithm, model: Surrogate, rounds: int) -> None:
    """Check that two trials run without a fault, and equally each time."""
    from jaxbandit import problems
    from jaxbandit.engine import simulate
    from jaxbandit.results.metrics import healthy

    rng = np.random.default_rng(3)
    tables = rng.standard_normal((model.outputs, model.domain.size))
    problem: AbstractProblem = problems.from_tables(model.domain, tables[0], tables[1:] - 0.3, noise_variance=0.05)
    if algorithm.traits.sees_constraints:
        problem = problems.full_information(problem)
    run, again = (simulate(problem, algorithm, model, horizon=rounds, trials=2, key=0, block=1) for _ in range(2))
    ensure(bool(np.all(healthy(run.status))), name, f"must play {rounds} rounds without a fault, flags {np.asarray(run.status)}")
    ensure(np.array_equal(run.indices, again.indices), name, f"must choose the same for the same key: {run.indices}, {again.indices}")
