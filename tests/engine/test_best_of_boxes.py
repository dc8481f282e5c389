"""Choices on boxes beside the best that SciPy finds in float64, from formulas, and regret on boxes beside that on fine grids."""

from __future__ import annotations

from collections.abc import Callable

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

NOISE, NOISY, BETA, FIRST, STARTS = 1e-4, 0.01, 2.0, 12, 64
BOUNDS = estimators.Bounds(reward_width=BETA, cost_width=BETA)

Score = Callable[[np.ndarray], tuple[float, np.ndarray]]


def score_of(seen: np.ndarray, values: np.ndarray, length: float, penalties: np.ndarray) -> Score:
    """``UCB_f - sum_j penalty_j LCB_gj^+`` at a point of the unit cube, by a dense posterior, with its gradient."""
    inverse = np.linalg.inv(squared_exponential(seen, seen, length) + NOISE * np.eye(len(seen)))
    weights = inverse @ values

    def at(x: np.ndarray) -> tuple[float, np.ndarray]:
        k = squared_exponential(x[None], seen, length)[0]
        slopes = (seen - x) * k[:, None] / length**2  # of k, [n, d]
        sd = np.sqrt(max(1 - k @ inverse @ k, 1e-12))
        mean, by_mean, by_sd = k @ weights, weights.T @ slopes, -(inverse @ k) @ slopes / sd
        lower, by_lower = mean[1:] - BETA * sd, by_mean[1:] - BETA * by_sd
        value = mean[0] + BETA * sd - penalties @ np.maximum(lower, 0)
        return float(value), by_mean[0] + BETA * by_sd - (penalties * (lower > 0)) @ by_lower

    return at


def best_by_scipy(score: Score, many: np.ndarray) -> tuple[float, float]:
    """The best value of L-BFGS-B from the best of each of 64 parts of ``many`` points, and the range of their values."""
    values = np.array([score(x)[0] for x in many])
    starts = many.reshape(STARTS, -1, many.shape[1])[np.arange(STARTS), values.reshape(STARTS, -1).argmax(axis=1)]
    bounds = [(0, 1)] * many.shape[1]
    ends = [minimize(lambda x: tuple(-part for part in score(x)), x, jac=True, method="L-BFGS-B", bounds=bounds).fun for x in starts]
    return max(values.max(), -min(ends)), float(np.ptp(values))


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


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_choices_are_as_good_as_the_best_of_many_ascents_of_scipy(name: str) -> None:
    """Within 1e-3 of the score's range: 100%, 94% and 91% of 128 other choices were. Fewer than 12 of 16 are with a probability of 1%."""
    make, length, rule = CASES[name]
    gaps = gaps_of(make(), length, rule)
    assert np.sum(gaps <= 1e-3) >= 12 and len(gaps) == 16, np.sort(gaps)[::-1]


def gaps_of(problem: BoxProblem, length: float, rule: type[Scored], trials: int = 4, horizon: int = 31, every: int = 10) -> np.ndarray:
    """By how much the choices of some rounds miss the best score that SciPy finds, in ranges of the score."""
    model = surrogate(problem.domain, kernels.SquaredExponential(length_scale=length), noise_variance=NOISE, outputs=problem.outputs)
    first = InitialDesign(random=FIRST, counted=True)
    run = simulate(problem, rule(estimator=BOUNDS), model, horizon=horizon, trials=trials, key=jax.random.key(1), initial=first)
    points = np.concatenate([run.initial_points, run.points], axis=1).astype(float)
    values = np.concatenate([run.initial_values, run.values], axis=1).astype(float)
    cube = problem.domain.to_unit(points)
    many, gaps = qmc.Sobol(cube.shape[-1], seed=7).random(512), []
    for trial in range(trials):
        for t in range(0, horizon, every):
            seen = FIRST + t
            penalties = run.multipliers[trial, t] if rule is Rpol else np.zeros(problem.outputs - 1)
            score = score_of(cube[trial, :seen], values[trial, :seen], length, np.asarray(penalties, float))
            best, extent = best_by_scipy(score, many)
            gaps.append((best - score(cube[trial, seen])[0]) / extent)
    return np.array(gaps)


def reward(x: jax.Array) -> jax.Array:
    return jnp.sin(9 * x[0]) * jnp.cos(3 * x[-1])


def cost(x: jax.Array) -> jax.Array:
    return jnp.cos(7 * x[0]) - 0.3 + x[-1]


@pytest.mark.full
@pytest.mark.parametrize(("axes", "count"), [(1, 401), (2, 61)])
def test_regret_on_a_box_is_that_on_a_fine_grid(axes: int, count: int) -> None:
    """Mean regret and violation up to half of the rounds and to the last, within four standard errors over 24 trials each.

    After points at random, for by the prior all are equally good, of which the first is chosen.
    """
    low, high = [0.0] * axes, [1.0] * axes
    on_box = problems.on_box(domains.box(dict.fromkeys("ab"[:axes], (0.0, 1.0))), reward, [cost], noise_variance=NOISY)
    on_grid = problems.from_functions(domains.grid(low, high, count), reward, [cost], noise_variance=NOISY)
    curves = []
    for problem in (on_box, on_grid):
        model = surrogate(problem.domain, kernels.SquaredExponential(length_scale=0.2), noise_variance=NOISY, precision="float32")
        run = simulate(
            problem, Rpol(estimator=BOUNDS), model, horizon=30, trials=24, key=jax.random.key(3), initial=InitialDesign(random=3)
        )
        data = run.to_xarray()
        curves.append(np.stack([np.asarray(data[name]) for name in ("regret", "hard_violation")]).reshape(2, 24, 30)[:, :, [14, 29]])
    means, errors = [curve.mean(axis=1) for curve in curves], [curve.std(axis=1, ddof=1) / np.sqrt(24) for curve in curves]
    assert np.all(np.abs(means[0] - means[1]) <= 4 * np.hypot(*errors)), (means, errors)
