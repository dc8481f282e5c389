"""Choices on boxes beside the best that SciPy finds in float64, from formulas, and regret on boxes beside that on fine grids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.stats import qmc

from jaxbandit import InitialDesign, Rpol, Unconstrained, domains, estimators, kernels, problems, simulate, surrogate
from jaxbandit.algorithms.base import Scored
from jaxbandit.problems import BoxProblem
from tests.oracles.gaussian_process import squared_exponential

NOISE, NOISY, BETA, FIRST, HORIZON, STARTS = 1e-4, 0.01, 2.0, 12, 31, 128
BOUNDS = estimators.Bounds(reward_width=BETA, cost_width=BETA)

Score = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def score_of(seen: np.ndarray, values: np.ndarray, length: float, penalties: np.ndarray) -> Score:
    """``UCB_f - sum_j penalty_j LCB_gj^+`` at points of the unit cube, by a dense posterior, with its gradients."""
    inverse = np.linalg.inv(squared_exponential(seen, seen, length) + NOISE * np.eye(len(seen)))
    weights = inverse @ values

    def at(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        k = squared_exponential(points, seen, length)
        solved = k @ inverse
        sd = np.sqrt(np.maximum(1 - np.sum(k * solved, axis=1), 1e-12))
        mean = k @ weights
        lower = mean[:, 1:] - BETA * sd[:, None]
        prices = penalties * (lower > 0)
        by_k = weights[:, 0] - prices @ weights[:, 1:].T - BETA * ((1 + prices.sum(axis=1)) / sd)[:, None] * solved
        slopes = by_k * k / length**2  # times the differences ``seen - points``
        return mean[:, 0] + BETA * sd - np.sum(prices * lower, axis=1), slopes @ seen - slopes.sum(axis=1)[:, None] * points

    return at


def best_by_scipy(score: Score, many: np.ndarray) -> tuple[float, float]:
    """The best value of L-BFGS-B from the best of each of 128 parts of ``many`` points, and the range of their values.

    All ascend in one call, by the sum of their scores, and the best four go on alone: as good as by a call for each of 64, in a sixth of
    the time. Of 48 scores two were found better by more than 1e-4 of their ranges and two worse.
    """
    values, axes = score(many)[0], many.shape[1]
    starts = many.reshape(STARTS, -1, axes)[np.arange(STARTS), values.reshape(STARTS, -1).argmax(axis=1)]

    def ascended(points: np.ndarray, steps: int) -> np.ndarray:
        def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
            found, slopes = score(x.reshape(-1, axes))
            return -float(found.sum()), -slopes.ravel()

        bounds = [(0, 1)] * points.size
        return minimize(loss, points.ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": steps}).x.reshape(-1, axes)

    ends = ascended(starts, 50)
    alone = [ascended(ends[n], 1000) for n in np.argsort(-score(ends)[0])[:4]]
    return float(score(np.concatenate([many, ends, *alone]))[0].max()), float(np.ptp(values))


def ackley10_of_unit_size() -> BoxProblem:
    raw = problems.ackley10()
    reward, *costs = raw.functions
    scaled = [lambda x, cost=cost, size=size: cost(x) / size for cost, size in zip(costs, (25.0, 5.0), strict=True)]
    return problems.on_box(raw.domain, lambda x: (reward(x) + 13) / 3, scaled, noise_variance=0.0, best=(13 / 3, raw.best.point))


CASES = {
    "gramacy": (problems.gramacy, 0.3, Rpol),
    "hartmann6": (problems.hartmann6, 0.5, Rpol),
    "ackley10": (ackley10_of_unit_size, 0.7, Unconstrained),
}


def played(problem: Any, length: float, rule: type[Scored] = Rpol, *, trials: int = 4, first: int = FIRST, **options: Any) -> Any:
    """A run with points at random first, for by the prior all are equally good, of which the first is chosen."""
    model = surrogate(problem.domain, kernels.SquaredExponential(length_scale=length), outputs=problem.outputs, **options)
    start = {"key": jax.random.key(1), "initial": InitialDesign(random=first)}
    return simulate(problem, rule(estimator=BOUNDS), model, horizon=HORIZON, trials=trials, **start)


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_choices_are_as_good_as_the_best_of_many_ascents_of_scipy(name: str) -> None:
    """Within 1e-3 of the score's range: 98%, 98% and 100% of 128 other choices were. Fewer than 14 of 16 are with a probability of 1%."""
    make, length, rule = CASES[name]
    gaps = gaps_of(make(), length, rule)
    assert np.sum(gaps <= 1e-3) >= 14 and len(gaps) == 16, np.sort(gaps)[::-1]


def gaps_of(problem: BoxProblem, length: float, rule: type[Scored]) -> np.ndarray:
    """By how much the choices of some rounds of four trials miss the best score that SciPy finds, in ranges of the score."""
    run = jax.tree.map(np.asarray, played(problem, length, rule, noise_variance=NOISE, precision="float64"))
    points = np.concatenate([run.initial_points, run.points], axis=1).astype(float)
    values = np.concatenate([run.initial_values, run.values], axis=1).astype(float)
    cube = problem.domain.to_unit(points)
    many, gaps = qmc.Sobol(cube.shape[-1], seed=7).random(4096), []
    for trial in range(4):
        for t in range(0, HORIZON, 10):
            seen = FIRST + t
            penalties = run.multipliers[trial, t] if rule is Rpol else np.zeros(problem.outputs - 1)
            score = score_of(cube[trial, :seen], values[trial, :seen], length, np.asarray(penalties, float))
            best, extent = best_by_scipy(score, many)
            gaps.append((best - score(cube[trial, seen, None])[0][0]) / extent)
    return np.array(gaps)


def reward(x: jax.Array) -> jax.Array:
    return jnp.sin(9 * x[0]) * jnp.cos(3 * x[0])


def cost(x: jax.Array) -> jax.Array:
    return jnp.cos(7 * x[0]) - 0.3 + x[0]


@pytest.mark.full
def test_regret_on_a_box_is_that_on_a_fine_grid() -> None:
    """Mean regret and violation up to half of the rounds and to the last, within four standard errors over 24 trials each, in float32.

    On one axis; choices on several are compared with those of SciPy above.
    """
    box, grid, known = domains.box({"a": (0.0, 1.0)}), domains.grid([0.0], [1.0], 401), {"noise_variance": NOISY}
    curves = []
    for problem in (problems.on_box(box, reward, [cost], **known), problems.from_functions(grid, reward, [cost], **known)):
        data = played(problem, 0.2, trials=24, first=3, **known, precision="float32").to_xarray()
        curves.append(np.stack([data.regret.values[0], data.hard_violation.values[0]])[..., [14, 30]])
    means, errors = [curve.mean(axis=1) for curve in curves], [curve.std(axis=1, ddof=1) / np.sqrt(24) for curve in curves]
    assert np.all(np.abs(means[0] - means[1]) <= 4 * np.hypot(*errors)), (means, errors)
