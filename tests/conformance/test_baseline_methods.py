"""What the baselines owe the engine: see ``BASELINES`` of ``tests.support.algorithms``."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import (
    delays,
    kernels,
    problems,
)
from tests.support import conformance
from tests.support.algorithms import BASELINES, ON_RANGED_MODELS, TABLES
from tests.support.conformance import CONSTRAINTS

PLAIN = ("cei", "cei-observed", "oco", "random-search", "oracle")  # without confidence widths
MARKS = ("admmbo",)  # whose widths say which function a round evaluates
every_baseline = pytest.mark.parametrize("name", BASELINES)


@every_baseline
def test_valid_and_a_pytree(name: str) -> None:
    conformance.check_default_construction_is_valid_and_named(name)
    algorithm = BASELINES[name]()
    (algorithm if name in ON_RANGED_MODELS else type(algorithm)()).validate(outputs=1 + CONSTRAINTS)
    leaves, structure = jax.tree.flatten(algorithm)
    again = jax.tree.unflatten(structure, leaves)
    assert type(again) is type(algorithm) and jax.tree.structure(jax.jit(lambda x: x)(algorithm)) == structure
    arrays = jaxbandit.canonicalise(algorithm)
    conformance.assert_same(jaxbandit.canonicalise(arrays), arrays, tolerance=0)
    integers = {"seeds"}
    for path, x in jax.tree_util.tree_leaves_with_path(arrays):
        assert jnp.issubdtype(x.dtype, jnp.integer if path[0].name in integers else jnp.floating), path
    with pytest.raises(AttributeError):
        algorithm.name = "other"


@pytest.mark.parametrize("precision", ["float32", "float64"])
@every_baseline
def test_the_state_begins_in_the_engines_type(name: str, precision: str) -> None:
    conformance.check_the_state_begins_in_the_engines_type(name, precision)


@pytest.mark.parametrize("name", TABLES["baselines"])
def test_side_by_side_equals_one_by_one(name: str) -> None:
    """A batch has one loop over candidates for all its trials; a trial by itself has its own."""
    conformance.check_side_by_side_equals_one_by_one(name)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@every_baseline
def test_results_are_finite_and_of_the_engines_type(name: str, precision: str) -> None:
    run = conformance.baseline(name) if precision == "float64" else conformance.among_others(name, "float32")
    assert (run.indices.shape, run.indices.dtype) == ((conformance.TRIALS, conformance.HORIZON), np.int32)
    assert run.widths.shape == (conformance.TRIALS, conformance.HORIZON, 1 + CONSTRAINTS)
    for field in ("values", "multipliers", "widths", "information_gain"):
        array = np.asarray(getattr(run, field))
        assert array.dtype == precision and np.all(np.isfinite(array)), field
    assert np.all(np.asarray(run.multipliers) >= 0) and np.all(np.asarray(run.failed_round) == 0)
    assert np.all((np.asarray(run.widths) > 0) == (name not in PLAIN)) or name in MARKS
    assert np.all((np.asarray(run.indices) >= 0) & (np.asarray(run.indices) < conformance.study()[0].domain.size))
    assert np.all(jaxbandit.metrics.healthy(jnp.asarray(run.status)))
    assert len(np.unique(run.indices)) > 1 or name in ("oracle", "safeopt-lipschitz")


@every_baseline
def test_hyper_parameters_and_seeds_are_data(name: str) -> None:
    for precision in ("float32", "float64"):
        conformance.check_new_values_do_not_compile_again(name, precision)
    conformance.check_a_seed_fixes_every_bit(name)


@pytest.mark.parametrize("name", ["cei-observed", "safeopt", "refitted-rpol"])
def test_no_delay_is_a_delay_of_nothing(name: str) -> None:
    """The same decisions when what is observed takes the way of delayed feedback, and different ones when it is late."""
    with jax.enable_x64(True):
        swept = jaxbandit.sweep(delays.Constant(), {"rounds": [0, 2]})
        run = conformance.simulate(BASELINES[name](), block=conformance.TRIALS, delay=swept)
    at_once, late = (jax.tree.map(lambda x, i=i: x[i], run) for i in range(2))
    for field in ("indices", "multipliers", "widths"):
        expected = getattr(conformance.baseline(name), field)
        np.testing.assert_allclose(getattr(at_once, field), expected, rtol=1e-9, atol=1e-9, err_msg=field)
    assert not np.array_equal(late.indices, conformance.baseline(name).indices)
    assert np.all(jaxbandit.metrics.healthy(late.status))


@pytest.mark.parametrize("name", ["cei", "safeopt"])
def test_without_constraints(name: str) -> None:
    """Every point is safe, and certainly feasible."""
    problem = conformance.study()[0]
    free = problems.from_tables(
        problem.domain, problem.means[0], np.zeros((0, problem.domain.size)), noise=problems.Gaussian(variance=0.05)
    )
    model = jaxbandit.surrogate(free.domain, kernels.SquaredExponential(length_scale=0.3), noise_variance=0.05, outputs=1, form="features")
    run = jaxbandit.simulate(free, BASELINES[name](), model, horizon=6, trials=1, key=jax.random.key(0))
    assert np.all(jaxbandit.metrics.healthy(run.status)) and run.multipliers.shape == (1, 7, 0)
    assert len(np.unique(run.indices)) > 1
