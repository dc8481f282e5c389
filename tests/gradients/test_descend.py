"""Descent."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.gradients import SmoothedLoss, SubjectTo, descend, regret
from tests.support.toy_losses import Follow, toy

matplotlib.use("Agg")

BUDGET: dict[str, Any] = {"steps": 8, "screen": 1, "validate": 32, "every": 4}


def quadratic(params: Any) -> Any:
    return 0.4 * jnp.sum((params["x"] - jnp.asarray([0.5, -0.25])) ** 2) - 0.5


def loss_of(function: Any, spread: float, pairs: int = 16) -> SmoothedLoss:
    problem, model = toy()

    def build(params: Any) -> tuple[Follow, jb.Surrogate]:
        return Follow(place=function(params), spread=spread), model

    return SmoothedLoss(problem, build, horizon=2, pairs=pairs, step=0.1, measure=regret)


START = {"x": jnp.asarray([0.1, 0.1])}


@functools.cache
def bowl() -> SmoothedLoss:
    """One loss for all tests, whose programs they share."""
    return loss_of(quadratic, 0.02)


@pytest.mark.full
def test_it_finds_the_minimum_and_says_how_much_is_won() -> None:
    import optax

    found = descend(bowl(), START, jax.random.key(0), optimizer=optax.sgd(1.0), **BUDGET)
    np.testing.assert_allclose(found.best["x"], [0.5, -0.25], atol=0.05)
    won = 0.4 * (0.4**2 + 0.35**2)
    assert found.interval[0] <= won * 1.1 and found.interval[1] >= won * 0.9 and found.interval[0] > 0
    assert [candidate.found for candidate in found.candidates] == ["start", "screened", "step 4", "step 8", "mean of the last steps"]
    assert found.history["value"].shape == (8,) and found.history["params"].shape == (8, 2)
    data = found.to_xarray()
    assert data.sizes["step"] == 8 and data.attrs["improvement"] == found.improvement
    axes = found.plot()
    assert axes.get_xlabel() == "step" and len(axes.lines) >= 1


@pytest.mark.full
def test_screening_leaves_a_bad_start() -> None:
    """The gradient is 0 there, far from a narrow valley."""

    def valley(params: Any) -> Any:
        return -0.5 * jnp.exp(-2 * jnp.sum((params["x"] - 1.2) ** 2))

    loss = loss_of(valley, 0.0)
    away = {"x": jnp.asarray([-2.0, -2.0])}
    alone = descend(loss, away, jax.random.key(1), **(BUDGET | {"steps": 4}))
    screened = descend(loss, away, jax.random.key(1), **(BUDGET | {"steps": 4, "screen": 64, "reach": 4.0}))
    np.testing.assert_array_equal(alone.best["x"], away["x"])
    assert screened.improvement > 0.1


@pytest.mark.full
def test_noise_alone_is_no_improvement() -> None:
    loss = loss_of(lambda params: 0 * params["x"][0], 0.3)
    for seed in range(5):
        found = descend(loss, START, jax.random.key(seed), **BUDGET)
        np.testing.assert_array_equal(found.best["x"], START["x"])
        assert found.improvement == 0 and found.interval == (0.0, 0.0)


@pytest.mark.full
def test_it_is_never_worse_than_the_start() -> None:
    """Steps are too long, so the start comes back."""
    import optax

    best = {"x": jnp.asarray([0.5, -0.25])}
    found = descend(bowl(), best, jax.random.key(2), optimizer=optax.sgd(-1.0), **BUDGET)
    np.testing.assert_array_equal(found.best["x"], best["x"])
    assert all(candidate.loss >= found.candidates[0].loss for candidate in found.candidates)


@jb.pytree
class Twice(Follow):
    """Choose regrets ``1 + place[0]`` and then ``1 + place[1]``."""

    name = "twice"

    def select(self, arena: Any, state: Any, t: Any, key: Any) -> Any:
        return jb.replace(self, place=self.place[t - 1])._followed(arena, state, t, key)

    def _followed(self, arena: Any, state: Any, t: Any, key: Any) -> Any:
        return super().select(arena, state, t, key)


def first_round(measures: Any) -> Any:
    return measures.regret[0]


def second_round(measures: Any) -> Any:
    return measures.regret[1] - measures.regret[0]


@functools.cache
def bounded(budget: float = 0.1, multiplier: float = 0.0) -> SmoothedLoss:
    """Return a loss of two parameters and its budget.

    The loss is ``0.4 |z - (1, 0)|^2`` subject to ``0.4 |z + (1, 0)|^2 <= 0.9``, z = (x, y). The best z is (0.5, 0), and its multiplier 1/3.
    """
    problem, model = toy()

    def build(params: Any) -> tuple[Follow, jb.Surrogate]:
        about = jnp.asarray([[1.0, 0.0], [-1.0, 0.0]])
        return Twice(place=0.4 * jnp.sum((jnp.append(params["x"], params["y"])[None] - about) ** 2, axis=1) - 1, spread=0.02), model

    measure = SubjectTo(multiplier=multiplier, budget=budget, objective=first_round, violation=second_round)
    return SmoothedLoss(problem, build, horizon=2, pairs=16, step=0.1, measure=measure)


@pytest.mark.full
def test_a_multiplier_that_rises_keeps_the_violation_within_the_budget() -> None:
    import optax

    loss, start = bounded(budget=0.9), {"x": jnp.asarray([-0.2]), "y": jnp.asarray(0.3)}
    options: dict[str, Any] = {"steps": 40, "screen": 1, "validate": 64, "every": 4, "optimizer": optax.sgd(0.4), "dual_step": 0.5}
    found = descend(loss, start, jax.random.key(5), **options)
    np.testing.assert_allclose(found.history["multiplier"][-10:].mean(), 1 / 3, atol=0.08)
    np.testing.assert_allclose(found.history["violation"][-10:].mean(), 0.9, atol=0.05)
    assert {name: value.shape for name, value in found.best.items()} == {"x": (1,), "y": ()}
    best = np.append(found.best["x"], found.best["y"])
    np.testing.assert_allclose(best, [0.5, 0.0], atol=0.1)
    assert 0.4 * np.sum((best + np.array([1.0, 0.0])) ** 2) <= 0.92
    assert found.interval[0] > 0 and found.history["multiplier"][0] == 0
    alone = descend(loss, start, jax.random.key(5), **(options | {"dual_step": None}))
    np.testing.assert_allclose(np.append(alone.best["x"], alone.best["y"]), [1.0, 0.0], atol=0.1)
    beyond = {
        "x": jnp.asarray([1.0]),
        "y": jnp.asarray(0.0),
    }
    # Points within the budget are better than the start beyond it.
    within = descend(loss, beyond, jax.random.key(6), **options)
    assert within.improvement < 0 and within.best["x"][0] < 0.6
    for step, message in ((-1.0, "^dual_step: .*-1"), ("much", "^dual_step: ")):
        with pytest.raises(InvalidArgument, match=message):
            descend(loss, start, jax.random.key(5), **(options | {"dual_step": step}))
    with pytest.raises(InvalidArgument, match=r"^dual_step: .*SubjectTo"):
        descend(bowl(), START, jax.random.key(5), **(BUDGET | {"dual_step": 0.1}))
