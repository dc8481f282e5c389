"""The checks of ``test_conformance`` for the other strategies and settings of every algorithm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import test_conformance as conformance

import jaxbandit
from jaxbandit import Anytime, Bpe, Cbo, Config, Epbo, Rpol, Scgp, Se2, Se3, Unconstrained, estimators, penalties

THOMPSON, RANDOMISED = estimators.Thompson(), estimators.Randomised()
UNIFORM = estimators.Randomised(distribution=estimators.DiscreteUniform(points=5))
TRUNCATED = estimators.Randomised(distribution=estimators.DiscreteGaussian(points=9))

# Clips are roomy, as in `test_conformance`, so that scores seldom tie; combinations of outputs are drawn in Se2 and Se3.
VARIANTS: dict[str, Callable[[], Any]] = {
    "unconstrained-thompson": lambda: Unconstrained(estimator=THOMPSON),
    "unconstrained-randomised": lambda: Unconstrained(estimator=RANDOMISED),
    "rpol-randomised": lambda: Rpol(estimator=TRUNCATED),
    "cbo-thompson": lambda: Cbo(estimator=THOMPSON, reward_clip=4.0),
    "cbo-uniform": lambda: Cbo(estimator=UNIFORM, reward_clip=8.0, cost_clip=8.0),
    "epbo-thompson": lambda: Epbo(estimator=THOMPSON),
    "config-randomised": lambda: Config(estimator=RANDOMISED),
    "scgp-2-thompson": lambda: Scgp(estimator=THOMPSON, reward_clip=6.0, schedule=2),
    "se2-polynomial-restart": lambda: Se2(psi=penalties.Polynomial(c=0.5), epoch=3, restart=True),
    "se2-thompson": lambda: Se2(estimator=THOMPSON, epoch=2),
    "se3-randomised": lambda: Se3(estimator=RANDOMISED, epoch=3),
    "bpe": lambda: Bpe(width=0.5),
    "bpe-code": lambda: Bpe(lengths="code", ties="random"),
    "anytime-cbo-keep": lambda: Anytime(algorithm=Cbo(reward_clip=4.0), keep_data=True),
    "anytime-se3-keep": lambda: Anytime(algorithm=Se3(epoch=3), keep_data=True),
}
every_variant = pytest.mark.parametrize("name", VARIANTS)
# One of every kind of draw, restart and wrapper: what stands side by side does not depend on the rest.
KINDS = (
    "unconstrained-thompson",
    "cbo-uniform",
    "scgp-2-thompson",
    "se2-polynomial-restart",
    "se3-randomised",
    "bpe-code",
    "anytime-se3-keep",
)


@pytest.fixture(autouse=True)
def table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks look algorithms up by name; none of these names is in their own table."""
    assert not VARIANTS.keys() & conformance.ALGORITHMS.keys()
    for name, build in VARIANTS.items():
        monkeypatch.setitem(conformance.ALGORITHMS, name, build)


@every_variant
def test_valid_and_a_pytree(name: str) -> None:
    conformance.test_default_construction_is_valid_and_named(name)
    conformance.test_it_is_a_frozen_pytree_of_floats(name)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@every_variant
def test_the_carry_is_stable(name: str, precision: str) -> None:
    conformance.test_the_carry_is_stable(name, precision)


@every_variant
def test_new_values_do_not_compile_again(name: str) -> None:
    conformance.test_new_values_do_not_compile_again(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_side_by_side_equals_one_by_one(name: str) -> None:
    conformance.test_side_by_side_equals_one_by_one(name)


@every_variant
def test_a_seed_fixes_every_bit(name: str) -> None:
    conformance.test_a_seed_fixes_every_bit(name)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@every_variant
def test_results_are_finite_and_of_the_engines_type(name: str, precision: str) -> None:
    conformance.test_results_are_finite_and_of_the_engines_type(name, precision)


@every_variant
def test_recording_draws_changes_nothing(name: str) -> None:
    """``record="audit"`` adds what was drawn, and leaves the rest as it was; bounds draw nothing."""
    with jax.enable_x64(True):
        audited = conformance.simulate(VARIANTS[name](), block=conformance.TRIALS, record="audit")
    without = jaxbandit.replace(audited, draws=None)
    conformance.assert_same(without, conformance.baseline(name), tolerance=0)
    outputs, size = 1 + conformance.CONSTRAINTS, conformance.study()[0].domain.size
    combined = name.startswith(("se2", "se3"))
    if "thompson" in name:
        assert audited.draws.shape == (conformance.TRIALS, conformance.HORIZON, 1 if combined else outputs, size)
    elif name.endswith(("randomised", "uniform")):
        assert audited.draws.shape == (conformance.TRIALS, conformance.HORIZON, 1 if combined else outputs)
    else:
        assert audited.draws is None
        return
    assert np.all(np.isfinite(audited.draws))


@pytest.mark.parametrize("build", [Unconstrained, Rpol, Cbo, Config, Epbo, Scgp, Se2, Se3, Bpe])
def test_the_class_alone_is_valid(build: Callable[[], Any]) -> None:
    algorithm = build()
    algorithm.validate(conformance.CONSTRAINTS)
    wrapped = Anytime(algorithm=algorithm)
    wrapped.validate(conformance.CONSTRAINTS)
    run = conformance.simulate(algorithm, horizon=2, trials=1)
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
