"""Runs of algorithms by name on one small problem."""

import contextlib
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import domains, kernels, problems
from jaxbandit.engine import programs
from tests.support import panel
from tests.support.algorithms import ALGORITHMS, BASELINES, REPRESENTATIVES

HORIZON, TRIALS, CONSTRAINTS = 9, 5, 2
WITHOUT_WIDTHS = ("cei", "cei-observed", "oco", "random-search", "oracle", "admmbo")


@functools.cache
def study() -> tuple[problems.Problem, problems.FullInformation]:
    """Return a problem without ties, and the same with revealed constraints."""
    rng = np.random.default_rng(0)
    domain = domains.product([np.sort(rng.random(6)), np.sort(rng.random(5))])
    tables = rng.standard_normal((1 + CONSTRAINTS, domain.size))
    problem = problems.from_tables(domain, tables[0], tables[1:] - 0.3, noise=problems.Gaussian(variance=0.05))
    return problem, problems.full_information(problem)


def surrogate(algorithm: Any = None, form: str = "features", constraints: int = CONSTRAINTS) -> jaxbandit.Surrogate:
    """Return the model, ranged where the algorithm needs that."""
    return _surrogate(jax.config.read("jax_enable_x64"), isinstance(algorithm, jaxbandit.Refitted), form, constraints)


@functools.cache
def _surrogate(double: bool, has_range: bool, form: str, constraints: int) -> jaxbandit.Surrogate:
    kernel = kernels.SquaredExponential(length_scale=0.3)
    if has_range:
        ranged = jaxbandit.ranged(study()[0].domain, kernel, low=0.2, high=0.6, noise_variance=0.05, outputs=1 + constraints)
        # Outputs then have fits of their own, as under late values.
        return ranged.separate()
    return jaxbandit.surrogate(study()[0].domain, kernel, noise_variance=0.05, outputs=1 + constraints, form=form)


def constraints_of(algorithm: Any) -> int:
    """Return the number of constraints of an algorithm's runs.

    It is one where a program has a fit for each output.
    """
    return 1 if isinstance(algorithm, jaxbandit.Refitted) else CONSTRAINTS


def simulate(algorithm: Any, *, seed: int = 0, trials: Any = TRIALS, **options: Any) -> jaxbandit.Trajectory:
    """Return a run in blocks of two trials, with padding."""
    first = algorithm.pick(0) if isinstance(algorithm, jaxbandit.Sweep) else algorithm
    problem, constraints = study()[1 if first.traits.sees_constraints else 0], constraints_of(first)
    if constraints < CONSTRAINTS:
        problem = jaxbandit.replace(problem, means=problem.means[: 1 + constraints])
    options = {"horizon": HORIZON, "block": 2, "record": "audit", **options}
    model = surrogate(first, constraints=constraints)
    return jaxbandit.simulate(problem, algorithm, model, trials=trials, key=jax.random.key(seed), **options)


def beside(names: Iterable[str], precision: str, *, form: str = "features", factor: float = 1.0, seed: int = 0, **options: Any) -> Any:
    """Return runs of several algorithms by name, from one program."""
    options = {"horizon": HORIZON, "trials": TRIALS, "record": "audit", "key": jax.random.key(seed), "block": 100} | options
    with jax.enable_x64(precision == "float64"):
        algorithms = {name: scaled(ALGORITHMS[name](), factor) for name in names}
        full = any(algorithm.traits.sees_constraints for algorithm in algorithms.values())
        return panel.play(study()[int(full)], algorithms, surrogate(form=form), **options)


@functools.cache
def baseline(name: str) -> jaxbandit.Trajectory:
    """Five trials in float64, from a program of the algorithm's own."""
    return again(name)


def again(name: str, *, factor: float = 1.0, **changes: Any) -> jaxbandit.Trajectory:
    """A run of the program of :func:`baseline` on other data."""
    with jax.enable_x64(True):
        return jax.tree.map(np.asarray, simulate(scaled(ALGORITHMS[name](), factor), **changes))


def first_field(algorithm: Any) -> tuple[str, float]:
    """Return a scalar hyper-parameter by its name in ``sweep``."""
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
def _swept() -> dict[str, jaxbandit.Trajectory]:
    options = {"horizon": HORIZON, "trials": TRIALS, "record": "audit", "key": jax.random.key(0), "block": 1}
    with jax.enable_x64(True):
        return panel.play(study()[0], {name: variants(name) for name in REPRESENTATIVES}, surrogate(), **options)


def swept(name: str) -> jaxbandit.Trajectory:
    """Return runs of a representative's :func:`variants`, one trial at a time."""
    return _swept()[name]


def one_by_one(name: str) -> jaxbandit.Trajectory:
    """One trial at a time, of one of ``REPRESENTATIVES``."""
    return jax.tree.map(lambda x: x[1], swept(name))


def assert_same(a: Any, b: Any, *, tolerance: float) -> None:
    """Check equal integers, and floats within ``tolerance``."""
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
    """Fail when trials are traced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "advance", chex.assert_max_traces(programs.advance, n=0))
        yield


def scaled(algorithm: Any, factor: float) -> Any:
    """Return the algorithm with scaled hyper-parameters."""
    if factor == 1.0:
        return algorithm
    return jax.tree_util.tree_map_with_path(lambda path, x: x if path[-1].name in ("seeds", "index") else x * factor, algorithm)


def assert_healthy(run: jaxbandit.Trajectory, precision: str, name: str, record: str = "audit") -> None:
    """Check five trials: no fault, finite numbers, several points."""
    if record != "indices":
        constraints = constraints_of(ALGORITHMS[name]())
        assert run.values.shape == run.widths.shape == (TRIALS, HORIZON, 1 + constraints)
        assert run.multipliers.shape == (TRIALS, HORIZON + 1, constraints)
        for field in ("values", "multipliers", "widths", "information_gain"):
            array = np.asarray(getattr(run, field))
            hidden = field == "values" and ALGORITHMS[name]().traits.decoupled
            assert array.dtype == precision and np.all(np.isfinite(array) | hidden), (name, field)
        assert np.all((run.widths > 0) == (name not in WITHOUT_WIDTHS)), name
        assert np.all(run.multipliers >= 0), name
    assert (run.indices.shape, run.indices.dtype) == ((TRIALS, HORIZON), np.int32)
    assert np.all((run.indices >= 0) & (run.indices < study()[0].domain.size)), name
    assert np.all(run.failed_round == 0) and np.all(jaxbandit.metrics.healthy(jnp.asarray(run.status))), name
    # Not stuck: in nine rounds a learner looks at more than one point.
    assert len(np.unique(run.indices)) > (0 if name == "oracle" else 1 if name in BASELINES else 2) or name == "safeopt-lipschitz", name


def shape_of_draws(name: str) -> tuple[int, ...] | None:
    """Return the shape of a strategy's draws in a round."""
    outputs = 1 if name.startswith(("se2", "se3")) else 1 + CONSTRAINTS
    if "thompson" in name:
        return outputs, study()[0].domain.size
    return (outputs,) if name.endswith(("randomised", "uniform")) else None


def assert_draws(run: jaxbandit.Trajectory, name: str) -> None:
    shape = shape_of_draws(name)
    assert (run.draws is None) == (shape is None), name
    assert shape is None or (run.draws.shape == (TRIALS, HORIZON, *shape) and np.all(np.isfinite(run.draws))), name


def assert_seeded(run: jaxbandit.Trajectory, others: jaxbandit.Trajectory, other: jaxbandit.Trajectory) -> None:
    """Check that ``others`` change no trial, and ``other`` seeds do.

    The trials of ``others`` are 4, 2, 0, 9 and 1.
    """
    for here, there in ((0, 4), (1, 2), (2, 0), (4, 1)):
        assert_same(jax.tree.map(lambda x, i=here: x[i], others), jax.tree.map(lambda x, i=there: x[i], run), tolerance=0)
    if run.values is not None:
        assert not np.any(other.values == run.values)
        assert len({x.tobytes() for x in run.values}) == TRIALS, "trials differ from each other"
