"""What every algorithm owes the engine. A new algorithm is covered by one row in ``DEFAULTS`` of ``tests.support.algorithms``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import estimators, kernels
from tests.support import conformance
from tests.support.algorithms import DEFAULTS
from tests.support.conformance import HORIZON, TRIALS, assert_same, baseline, no_new_program, scaled, simulate, study

every_algorithm = pytest.mark.parametrize("name", DEFAULTS)


@every_algorithm
def test_default_construction_is_valid_and_named(name: str) -> None:
    conformance.check_default_construction_is_valid_and_named(name)


@every_algorithm
def test_it_is_a_frozen_pytree_of_floats(name: str) -> None:
    conformance.check_it_is_a_frozen_pytree_of_floats(name)


LOOKALIKES = {
    "kernels": [kernels.SquaredExponential(), kernels.Matern12(), kernels.Matern32(), kernels.Matern52()],
    "algorithms": [jaxbandit.Config(), jaxbandit.Unconstrained()],
    "strategies": [estimators.Bounds(), estimators.Thompson()],
    "algorithms by strategy": [jaxbandit.Rpol(), jaxbandit.Rpol(estimator=estimators.Thompson())],
}


@pytest.mark.parametrize("kind", LOOKALIKES)
def test_classes_with_equal_fields_are_different_structures(kind: str) -> None:
    """``jit`` looks programs up by structure: were these equal, one class would now and then run another's program.

    ``jax.tree_util.register_dataclass`` of JAX 0.10.2 makes them equal, with different hashes, so it shows by chance only.
    """
    structures = [jax.tree.structure(x) for x in LOOKALIKES[kind]]
    for i, a in enumerate(structures):
        for j, b in enumerate(structures):
            assert (a == b) == (i == j), f"{a} and {b}"
    assert structures == [jax.tree.structure(x) for x in LOOKALIKES[kind]]


def test_jit_never_takes_one_class_for_another() -> None:
    """420 classes of one field each: with equal structures some 60 of them were answered for by another, by the chance of their hashes.

    No two structures are equal, whatever their hashes; and a program of twenty of them knows each.
    """
    names = [f"Kind{i}" for i in range(420)]
    classes = [jaxbandit.pytree(type(name, (), {"__annotations__": {"value": float}, "value": 1.0})) for name in names]
    structures = [jax.tree.structure(cls()) for cls in classes]
    equal = [(i, j) for i, a in enumerate(structures) for j, b in enumerate(structures) if (a == b) != (i == j)]
    assert equal == []
    which = jax.jit(lambda x: classes.index(type(x)) + 0 * x.value)
    assert [int(which(cls())) for cls in classes[:20]] == list(range(20))


@pytest.mark.parametrize("precision", ["float32", "float64"])
@every_algorithm
def test_the_state_begins_in_the_engines_type(name: str, precision: str) -> None:
    conformance.check_the_state_begins_in_the_engines_type(name, precision)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@every_algorithm
def test_new_values_do_not_compile_again(name: str, precision: str) -> None:
    conformance.check_new_values_do_not_compile_again(name, precision)


def test_a_new_horizon_does_compile_again() -> None:
    """The check of the tests around this one can fail."""
    baseline("rpol")
    with jax.enable_x64(True), no_new_program(), pytest.raises(AssertionError, match="traced"):
        simulate(jaxbandit.Rpol(), horizon=HORIZON - 1)


@pytest.mark.parametrize(("name", "precision"), [*((name, "float64") for name in DEFAULTS), ("rpol", "float32")])
def test_the_type_of_a_number_does_not_matter(name: str, precision: str) -> None:
    """``3``, ``3.0``, NumPy and JAX scalars of either precision are one value and one program."""
    algorithm = DEFAULTS[name]()

    def written_as(kind: Callable[[Any], Any]) -> Any:
        return jax.tree.map(lambda x: kind(x) if np.ndim(x) == 0 and float(x).is_integer() else x, algorithm)

    kinds = (int, float, np.float32, np.float64, lambda x: np.asarray(float(x)), jnp.float32)
    assert any(isinstance(x, int) for x in jax.tree.leaves(written_as(int)))
    with jax.enable_x64(precision == "float64"):
        expected = simulate(algorithm) if precision == "float32" else baseline(name)
        for kind in kinds:
            with no_new_program():
                result = simulate(written_as(kind))
            assert_same(result, expected, tolerance=0)


def test_numpy_integers_are_numbers_too() -> None:
    """As elements of ``numpy.arange`` they turn up in sweeps."""
    expected = simulate(jaxbandit.Rpol(initial_penalty=2.0))
    assert_same(simulate(jaxbandit.Rpol(initial_penalty=np.int64(2))), expected, tolerance=0)
    swept = jaxbandit.sweep(jaxbandit.Rpol(), {"initial_penalty": np.arange(1, 3)})
    assert all(x.dtype == np.float32 for x in jax.tree.leaves(swept))


@every_algorithm
def test_the_default_is_not_the_scaled_one(name: str) -> None:
    """The hyper-parameters reach the run: other values give other numbers."""
    with jax.enable_x64(True):
        other = simulate(scaled(DEFAULTS[name](), 0.5))
    assert not np.array_equal(other.widths, baseline(name).widths)


@every_algorithm
def test_side_by_side_equals_one_by_one(name: str) -> None:
    conformance.check_side_by_side_equals_one_by_one(name)


@every_algorithm
def test_a_seed_fixes_every_bit(name: str) -> None:
    conformance.check_a_seed_fixes_every_bit(name)


@every_algorithm
def test_a_sweep_equals_its_runs(name: str) -> None:
    with jax.enable_x64(True):
        alone = simulate(conformance.variants(name).unstack()[0])
    together = conformance.swept(name)
    assert together.indices.shape == (2, TRIALS, HORIZON)
    assert_same(jax.tree.map(lambda x: x[0], together), alone, tolerance=1e-9)
    assert_same(jax.tree.map(lambda x: x[1], together), baseline(name), tolerance=1e-9)
    assert not np.array_equal(together.widths[0], together.widths[1]), "the swept field acts"


@pytest.mark.parametrize("name", ["rpol-thompson", "anytime-cbo"])
def test_a_sweep_in_a_program_of_its_own(name: str) -> None:
    with jax.enable_x64(True):
        together = simulate(conformance.variants(name), block=TRIALS)  # side by side without padding
    assert_same(together, conformance.swept(name), tolerance=1e-9)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@every_algorithm
def test_results_are_finite_and_of_the_engines_type(name: str, precision: str) -> None:
    conformance.check_results_are_finite_and_of_the_engines_type(name, precision)


@pytest.mark.parametrize("name", ["rpol", "config"])
def test_recording_less_changes_nothing(name: str) -> None:
    with jax.enable_x64(True):
        brief = simulate(DEFAULTS[name](), record="indices")
    assert brief.values is None and brief.multipliers is None and brief.widths is None
    np.testing.assert_array_equal(brief.indices, baseline(name).indices)
    np.testing.assert_array_equal(brief.status, baseline(name).status)


def test_noise_is_common_to_all_algorithms() -> None:
    """Trial ``i`` sees the same noise in round ``t`` whatever was chosen, so differences between algorithms are theirs."""
    means = np.asarray(study()[0].means)
    seen = {}
    for name in DEFAULTS:
        run = baseline(name)
        seen[name] = run.values - np.moveaxis(means[:, run.indices], 0, -1)
    first = next(iter(seen.values()))
    assert 0.8 < first.std() / np.sqrt(0.05) < 1.2  # 135 draws: 5 standard errors of a standard deviation are 0.3
    assert len(np.unique(first)) == first.size
    for name, noise in seen.items():
        np.testing.assert_allclose(noise, first, rtol=0, atol=1e-14, err_msg=name)  # one subtraction's rounding
    assert len({baseline(name).indices.tobytes() for name in DEFAULTS}) > len(DEFAULTS) // 2, "the choices do differ"
