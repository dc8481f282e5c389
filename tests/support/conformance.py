"""Checks of what every algorithm owes the engine, of one algorithm by name, on one small problem."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import domains, kernels, problems
from jaxbandit.algorithms import Arena
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.engine import programs
from tests.support import panel
from tests.support.algorithms import ALGORITHMS, DEFAULTS, IN_PANELS, TABLES

HORIZON, TRIALS, CONSTRAINTS = 9, 5, 2


@functools.cache
def study() -> tuple[problems.Problem, problems.FullInformation]:
    """A small problem without symmetry, so that scores do not tie, and the same with constraint functions revealed."""
    rng = np.random.default_rng(0)
    domain = domains.product([np.sort(rng.random(6)), np.sort(rng.random(5))])
    tables = rng.standard_normal((1 + CONSTRAINTS, domain.size))
    problem = problems.from_tables(domain, tables[0], tables[1:] - 0.3, noise=problems.Gaussian(variance=0.05))
    return problem, problems.full_information(problem)


def surrogate(algorithm: Any = None) -> jaxbandit.Surrogate:
    """The model, in the engine's current precision; one of ``jaxbandit.ranged`` where the algorithm needs that."""
    return _surrogate(jax.config.read("jax_enable_x64"), isinstance(algorithm, jaxbandit.Refitted))


@functools.cache
def _surrogate(double: bool, has_range: bool) -> jaxbandit.Surrogate:
    kernel = kernels.SquaredExponential(length_scale=0.3)
    if has_range:
        ranged = jaxbandit.ranged(study()[0].domain, kernel, low=0.2, high=0.6, noise_variance=0.05, outputs=1 + CONSTRAINTS)
        return ranged.separate()  # with a fit for each output, as it is when values come late
    return jaxbandit.surrogate(study()[0].domain, kernel, noise_variance=0.05, outputs=1 + CONSTRAINTS, form="features")


def simulate(algorithm: Any, *, seed: int = 0, trials: Any = TRIALS, **options: Any) -> jaxbandit.Trajectory:
    """A run in the engine's current precision: with the options as they are, of the program that :func:`baseline` compiles."""
    first = algorithm.pick(0) if isinstance(algorithm, jaxbandit.Sweep) else algorithm
    problem = study()[1 if first.sees_constraints else 0]
    options = {"horizon": HORIZON, "block": 2, "record": "audit", **options}
    return jaxbandit.simulate(problem, algorithm, surrogate(first), trials=trials, key=jax.random.key(seed), **options)


@functools.cache
def baseline(name: str) -> jaxbandit.Trajectory:
    """Five trials in float64; compiled once for all tests of an algorithm.

    In blocks of two, with padding, or for those ``IN_PANELS`` side by side with others.
    """
    return again(name)


def again(name: str, *, factor: float = 1.0, seed: int = 0, trials: Any = TRIALS) -> jaxbandit.Trajectory:
    """A run of the program of :func:`baseline` on other data."""
    if name in IN_PANELS:
        return among_others(name, "float64", factor=factor, seed=seed, trials=trials)
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, simulate(scaled(ALGORITHMS[name](), factor), seed=seed, trials=trials))


@functools.cache
def beside(
    table: str, sees_constraints: bool, precision: str, *, factor: float = 1.0, seed: int = 0, **options: Any
) -> dict[str, jaxbandit.Trajectory]:
    """The runs of the algorithms of one of ``TABLES`` that see the constraint functions, or of those that do not, from one program."""
    options = {"horizon": HORIZON, "trials": TRIALS, "record": "audit", "key": jax.random.key(seed)} | options
    with jax.enable_x64(precision == "float64"):
        algorithms = {name: scaled(build(), factor) for name, build in TABLES[table].items()}
        algorithms = {name: algorithm for name, algorithm in algorithms.items() if algorithm.sees_constraints == sees_constraints}
        return panel.play(study()[1 if sees_constraints else 0], algorithms, surrogate(), **options)


def among_others(name: str, precision: str, *, factor: float = 1.0, **options: Any) -> jaxbandit.Trajectory:
    """An algorithm's run from the program that it shares with others of its table, or from its own if it is in none."""
    table = next((table for table, names in TABLES.items() if name in names), None)
    if table is None:
        with jax.enable_x64(precision == "float64"):
            return jax.tree.map(np.asarray, simulate(scaled(ALGORITHMS[name](), factor), **options))
    return beside(table, ALGORITHMS[name]().sees_constraints, precision, factor=factor, **options)[name]


def first_field(algorithm: Any) -> tuple[str, float]:
    """The name of a scalar hyper-parameter, as ``sweep`` writes it, and its value."""
    for path, value in jax.tree_util.tree_leaves_with_path(algorithm):
        if all(isinstance(step, jax.tree_util.GetAttrKey) for step in path) and np.ndim(value) == 0:
            return ".".join(step.name for step in path), float(value)
    raise AssertionError("the algorithm has no scalar hyper-parameter")


def variants(name: str) -> jaxbandit.Sweep:
    """An algorithm with half of a hyper-parameter's value, and with its own."""
    algorithm = ALGORITHMS[name]()
    field, value = first_field(algorithm)
    return jaxbandit.sweep(algorithm, {field: [0.5 * value, value]})


@functools.cache
def _swept_beside(sees_constraints: bool) -> dict[str, jaxbandit.Trajectory]:
    names = [name for name, build in DEFAULTS.items() if build().sees_constraints == sees_constraints]
    options = {"horizon": HORIZON, "trials": TRIALS, "record": "audit", "key": jax.random.key(0), "block": 1}
    with jax.enable_x64(True):
        sweeps = {name: variants(name) for name in names}
        return panel.play(study()[1 if sees_constraints else 0], sweeps, surrogate(), **options)


def swept(name: str) -> jaxbandit.Trajectory:
    """The runs of the :func:`variants` of one of ``DEFAULTS`` in float64, from one program of all, one trial at a time."""
    return _swept_beside(DEFAULTS[name]().sees_constraints)[name]


def one_by_one(name: str) -> jaxbandit.Trajectory:
    """One trial at a time, in float64, from a program with other algorithms if a panel can play it."""
    if name in DEFAULTS:
        return jax.tree.map(lambda x: x[1], swept(name))
    return among_others(name, "float64", block=1)


def assert_same(a: Any, b: Any, *, tolerance: float) -> None:
    """Equal integers, and floats within ``tolerance`` of each other; the fields are named in the failure."""
    left, right = jax.tree_util.tree_leaves_with_path(a), jax.tree_util.tree_leaves_with_path(b)
    assert [path for path, _ in left] == [path for path, _ in right]
    for (path, x), (_, y) in zip(left, right, strict=True):
        x, y = np.asarray(x), np.asarray(y)
        assert x.dtype == y.dtype and x.shape == y.shape, path
        if np.issubdtype(x.dtype, np.integer) or tolerance == 0:
            np.testing.assert_array_equal(x, y, err_msg=jax.tree_util.keystr(path))
        else:
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance, err_msg=jax.tree_util.keystr(path))


def named(run: jaxbandit.Trajectory) -> dict[str, Any]:
    """The arrays of a trajectory by name."""
    return {jax.tree_util.keystr(path): x for path, x in jax.tree_util.tree_leaves_with_path(run)}


@contextlib.contextmanager
def no_new_program() -> Iterator[None]:
    """Fail when trials are traced, which a program that is compiled already does not need."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "advance", chex.assert_max_traces(programs.advance, n=0))
        yield


def scaled(algorithm: Any, factor: float) -> Any:
    """The algorithm with ``factor`` times its hyper-parameters, but for the numbers of points."""
    if factor == 1.0:
        return algorithm
    return jax.tree_util.tree_map_with_path(lambda path, x: x if path[-1].name in ("seeds", "index") else x * factor, algorithm)


def check_default_construction_is_valid_and_named(name: str) -> None:
    algorithm = ALGORITHMS[name]()
    algorithm.validate(outputs=1 + CONSTRAINTS)
    assert isinstance(algorithm.name, str) and algorithm.name == type(algorithm).__name__.lower()


def check_it_is_a_frozen_pytree_of_floats(name: str) -> None:
    algorithm = ALGORITHMS[name]()
    leaves, structure = jax.tree.flatten(algorithm)
    assert leaves, "hyper-parameters are leaves"
    again = jax.tree.unflatten(structure, leaves)
    assert type(again) is type(algorithm) and again == algorithm
    # Nothing on the way in or out of a transformation converts, checks or loses a field.
    assert jax.tree.structure(jax.jit(lambda x: x)(algorithm)) == structure
    assert all(x is None for x in jax.tree.leaves(jax.tree.unflatten(structure, [None] * len(leaves)), is_leaf=lambda x: x is None))
    arrays = jaxbandit.canonicalise(algorithm)
    assert all(jnp.issubdtype(x.dtype, jnp.floating) for x in jax.tree.leaves(arrays))
    assert_same(jaxbandit.canonicalise(arrays), arrays, tolerance=0)
    with pytest.raises(AttributeError):
        algorithm.estimator = None
    with pytest.raises(InvalidArgument, match=r"^replace\.no_such_field: unknown field"):
        jaxbandit.replace(algorithm, no_such_field=1)


def check_the_state_begins_in_the_engines_type(name: str, precision: str) -> None:
    """``init`` gives floats of the engine's type, none of them weak, for which a scan over rounds would be traced twice.

    That ``select`` and ``update`` give a state of the same structure, shapes and types is what every scan asks of them: runs in both
    precisions are refused otherwise.
    """
    with jax.enable_x64(precision == "float64"):
        algorithm = jaxbandit.canonicalise(ALGORITHMS[name]())
        arena = Arena(surrogate=surrogate(algorithm), horizon=jnp.int32(HORIZON))
        start = jax.eval_shape(algorithm.init, arena)
        floats = [x for x in jax.tree.leaves(start) if jnp.issubdtype(x.dtype, jnp.floating)]
        assert floats and all(x.dtype == precision for x in floats)
        assert not any(x.weak_type for x in jax.tree.leaves(start))


def check_new_values_do_not_compile_again(name: str, precision: str) -> None:
    """Hyper-parameters, seeds, tables and trial numbers are data; the horizon is not."""

    def run(**changes: Any) -> jaxbandit.Trajectory:
        return again(name, **changes) if precision == "float64" else among_others(name, "float32", **changes)

    run()
    with no_new_program():
        run(factor=0.75)
        run(seed=1)
        run(trials=(7, 1, 3, 30, 5))


def check_side_by_side_equals_one_by_one(name: str) -> None:
    """Trials in blocks, and one at a time; for those not ``IN_PANELS`` in a program of the algorithm's own, and in one with others."""
    # Equal bits were seen on a CPU; matrix products may sum in other orders elsewhere.
    run = baseline(name)
    shown = {"candidates": None, "candidate_count": None, "optimum_kept": None}  # which a panel does not show
    assert_same(one_by_one(name), jaxbandit.replace(run, **shown), tolerance=1e-9)
    if run.candidates is not None:
        with jax.enable_x64(True):
            assert_same(simulate(ALGORITHMS[name](), block=1), run, tolerance=1e-9)
    assert len({x.tobytes() for x in run.values}) == TRIALS, "trials differ from each other"


def check_a_seed_fixes_every_bit(name: str) -> None:
    """Check that a trial is the same whatever other trials run."""
    others, other = again(name, trials=(4, 2, 0, 9, 1)), again(name, seed=1)
    for here, there in ((0, 4), (1, 2), (2, 0), (4, 1)):
        assert_same(jax.tree.map(lambda x, i=here: x[i], others), jax.tree.map(lambda x, i=there: x[i], baseline(name)), tolerance=0)
    assert not np.any(np.asarray(other.values) == baseline(name).values)


def check_results_are_finite_and_of_the_engines_type(name: str, precision: str) -> None:
    run = baseline(name) if precision == "float64" else among_others(name, "float32")
    assert run.values.shape == (TRIALS, HORIZON, 1 + CONSTRAINTS)
    assert run.multipliers.shape == (TRIALS, HORIZON + 1, CONSTRAINTS)
    assert run.widths.shape == (TRIALS, HORIZON, 1 + CONSTRAINTS)
    assert (run.indices.shape, run.indices.dtype) == ((TRIALS, HORIZON), np.int32)
    for field in ("values", "multipliers", "widths", "information_gain"):
        array = np.asarray(getattr(run, field))
        assert array.dtype == precision, field
        assert np.all(np.isfinite(array)), field
    assert np.all(np.asarray(run.widths) > 0) and np.all(np.asarray(run.multipliers) >= 0)
    assert np.all((np.asarray(run.indices) >= 0) & (np.asarray(run.indices) < study()[0].domain.size))
    assert np.all(np.asarray(run.failed_round) == 0)
    assert np.all(jaxbandit.metrics.healthy(jnp.asarray(run.status)))
    # Not stuck: in nine rounds a learner looks at more than one point.
    assert len(np.unique(run.indices)) > 2
