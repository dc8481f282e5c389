"""What every algorithm owes the engine, with its other strategies and settings."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import Anytime, Bpe, Cbo, Config, Epbo, Rpol, Scgp, Se2, Se3, Unconstrained, estimators, penalties
from tests.support import conformance, panel
from tests.support.algorithms import TRUNCATED, UNIFORM, VARIANTS

every_variant = pytest.mark.parametrize("name", VARIANTS)


@every_variant
def test_valid_and_a_pytree(name: str) -> None:
    conformance.check_default_construction_is_valid_and_named(name)
    conformance.check_it_is_a_frozen_pytree_of_floats(name)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@every_variant
def test_the_state_begins_in_the_engines_type(name: str, precision: str) -> None:
    conformance.check_the_state_begins_in_the_engines_type(name, precision)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@every_variant
def test_new_values_do_not_compile_again(name: str, precision: str) -> None:
    conformance.check_new_values_do_not_compile_again(name, precision)


@every_variant
def test_side_by_side_equals_one_by_one(name: str) -> None:
    conformance.check_side_by_side_equals_one_by_one(name)


@every_variant
def test_a_seed_fixes_every_bit(name: str) -> None:
    conformance.check_a_seed_fixes_every_bit(name)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@every_variant
def test_results_are_finite_and_of_the_engines_type(name: str, precision: str) -> None:
    conformance.check_results_are_finite_and_of_the_engines_type(name, precision)


@every_variant
def test_recording_draws_changes_nothing(name: str) -> None:
    """``record="audit"`` adds what was drawn, and leaves the rest as it was; bounds draw nothing."""
    audited = conformance.among_others(name, "float32")
    without = conformance.among_others(name, "float32", record="all")
    assert without.draws is None
    conformance.assert_same(jaxbandit.replace(audited, draws=None), without, tolerance=0)
    outputs, size = 1 + conformance.CONSTRAINTS, conformance.study()[0].domain.size
    combined = name.startswith(("se2", "se3"))
    for run in (audited, conformance.baseline(name)):
        if "thompson" in name:
            assert run.draws.shape == (conformance.TRIALS, conformance.HORIZON, 1 if combined else outputs, size)
        elif name.endswith(("randomised", "uniform")):
            assert run.draws.shape == (conformance.TRIALS, conformance.HORIZON, 1 if combined else outputs)
        else:
            assert run.draws is None
            continue
        assert np.all(np.isfinite(run.draws))


CLASSES = [Unconstrained, Rpol, Cbo, Config, Epbo, Scgp, Se2, Se3, Bpe]


@functools.cache
def two_rounds(sees_constraints: bool) -> dict[str, jaxbandit.Trajectory]:
    """The runs of all classes without any setting."""
    algorithms = {build.name: build() for build in CLASSES if build().sees_constraints == sees_constraints}
    problem = conformance.study()[1 if sees_constraints else 0]
    return panel.play(problem, algorithms, conformance.surrogate(), horizon=2, trials=1, key=jax.random.key(0))


@pytest.mark.parametrize("build", CLASSES)
def test_the_class_alone_is_valid(build: Callable[[], Any]) -> None:
    algorithm = build()
    algorithm.validate(outputs=1 + conformance.CONSTRAINTS)
    wrapped = Anytime(algorithm=algorithm)
    wrapped.validate(outputs=1 + conformance.CONSTRAINTS)
    run = two_rounds(algorithm.sees_constraints)[algorithm.name]
    assert run.indices.shape == (1, 2) and np.all(jaxbandit.metrics.healthy(run.status))


def test_strategies_alone_are_valid() -> None:
    for build in (
        estimators.Bounds,
        estimators.Thompson,
        estimators.Randomised,
        lambda: TRUNCATED,
        lambda: UNIFORM,
        penalties.Exponential,
        penalties.Polynomial,
        estimators.Gaussian,
        estimators.DiscreteGaussian,
        estimators.DiscreteUniform,
    ):
        item = build()
        item.validate(outputs=1 + conformance.CONSTRAINTS)
        leaves, structure = jax.tree.flatten(item)
        assert jax.tree.unflatten(structure, leaves) == item
