"""RPOL, CBO and CONFIG with models and parameters for each output."""

import functools
import zlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import domains, kernels, problems, widths
from tests.oracles import bandit, policies, ucb_policies
from tests.oracles import gaussian_process as gp
from tests.support import panel, steps

HORIZON, TRIALS, SIDE = 45, 2, 12
LENGTH_SCALE, NOISE, TOLERANCE = 0.3, 0.05, 1e-8

KERNELS: dict[str, tuple[Callable[..., Any], Callable[..., np.ndarray]]] = {
    "se": (kernels.SquaredExponential, gp.squared_exponential),
    "matern12": (kernels.Matern12, gp.matern12),
    "matern32": (kernels.Matern32, gp.matern32),
    "matern52": (kernels.Matern52, gp.matern52),
}
Estimator = jaxbandit.estimators.Bounds


@functools.cache
def random_problem(constraints: int, seed: str, *, shift: float = 0.0) -> tuple[problems.Problem, np.ndarray]:
    """Return smooth random functions on a grid, and the grid.

    Each constraint grows with the reward, so that it binds, and holds on 40% of the points, less with ``shift``.
    """
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], SIDE)
    points = np.asarray(domain.points)
    reward, *costs = gp.random_functions(gp.squared_exponential(points, points, LENGTH_SCALE), 1 + constraints, rng)
    costs = [0.8 * reward + 0.6 * cost for cost in costs]
    costs = [cost - np.quantile(cost, 0.4) + shift for cost in costs]
    return problems.from_tables(domain, reward, np.stack(costs), noise=problems.Gaussian(variance=NOISE)), points


def records(run: jaxbandit.Trajectory) -> list[bandit.Record]:
    """One float64 record per trial."""
    fields = (run.indices, run.values, run.initial_indices, run.initial_values)
    indices, values, initial, before = (np.asarray(x) for x in fields)
    return [
        bandit.Record(
            indices=indices[b], values=values[b].astype(np.float64), initial_indices=initial[b], initial_values=before[b].astype(np.float64)
        )
        for b in range(len(indices))
    ]


def check(run: jaxbandit.Trajectory, algorithm: str, model: bandit.Model, **parameters: Any) -> None:
    """Every trial of ``run`` against its replay."""
    for b, record in enumerate(records(run)):
        multipliers = np.asarray(run.multipliers[b], np.float64)
        if algorithm == "config":
            replay: Any = ucb_policies.config(model, record)
            declared = int(run.declared_round[b])
            assert ucb_policies.config_faults(replay, record.indices, declared, TOLERANCE) == []
            assert bool(run.status[b] & jaxbandit.Status.DECLARED_INFEASIBLE) == (declared > 0)
            np.testing.assert_array_equal(multipliers, np.zeros_like(multipliers))
        else:
            replay = getattr(policies, algorithm)(model, record, strategy="bounds", **parameters)
            gaps = bandit.score_gaps(replay.scores, record.indices)
            assert gaps.max() <= TOLERANCE, f"trial {b}, round {gaps.argmax() + 1}: short of the best by {gaps.max():.3g}"
            np.testing.assert_allclose(multipliers, replay.multipliers, rtol=TOLERANCE, atol=TOLERANCE)
        np.testing.assert_allclose(np.asarray(run.widths[b], np.float64), replay.widths, rtol=TOLERANCE, atol=0)
        gain = [gp.information_gain(model.grams[j], np.r_[record.initial_indices, record.indices], model.noise[j]) for j in (0, -1)]
        np.testing.assert_allclose(np.asarray(run.information_gain, np.float64)[b, [0, -1]], gain, rtol=TOLERANCE)


GROWING = widths.SqrtLog(a=2.0, b=3.0)


def growing(t: int, gain: np.ndarray) -> np.ndarray:
    """Return the reward's growing width, and the constraints' of theory."""
    return np.append(bandit.sqrt_log(2.0, 3.0)(t, gain)[:1], bandit.improved_gp_ucb(1.0, 0.2, 0.1, 2.0)(t, gain)[1:])


# Another kernel, regulariser and prior mean for every output; points seen before round 1; per-constraint parameters.
SEPARATE_KERNELS, SCALES = ["matern52", "se", "matern12", "matern32"], [0.3, 0.25, 0.6, 0.4]
SEPARATE_NOISE, PRIOR_MEAN = [0.05, 0.08, 0.05, 0.2], [0.5, -0.25, 0.0, 0.1]
FIRST, CLIP, DIVISOR = np.array([0.5, 1.0, 3.0]), np.array([0.1, 0.3, 2.0]), np.array([2.0, 3.0, 9.0])
ALGORITHMS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "rpol": (functools.partial(jaxbandit.Rpol, initial_penalty=FIRST, penalty_growth=0.4), {"first": FIRST, "growth": 0.4}),
    "cbo": (
        functools.partial(jaxbandit.Cbo, reward_clip=1.5, cost_clip=CLIP, dual_cap=0.1, step_divisor=DIVISOR),
        {"reward_bound": 1.5, "cost_bound": CLIP, "cap": 0.1, "divisor": DIVISOR},
    ),
    "config": (jaxbandit.Config, {}),
}
INITIAL = np.array([3, 77, 3, 140])


@functools.cache
def separate() -> dict[str, jaxbandit.Trajectory]:
    problem, _ = random_problem(3, "separate")
    theory = widths.ImprovedGPUCB(norm_bound=1.0, noise_scale=0.2)
    bounds = Estimator(reward_width=GROWING, cost_width=theory)
    with jax.enable_x64(True):
        covariances = [KERNELS[name][0](length_scale=scale) for name, scale in zip(SEPARATE_KERNELS, SCALES, strict=True)]
        options = {"noise_variance": SEPARATE_NOISE, "outputs": 4, "prior_mean": PRIOR_MEAN}
        surrogate = jaxbandit.surrogate(problem.domain, covariances, **options, form="features")
        assert len(surrogate.forms) == 4
        members = {name: build(estimator=bounds) for name, (build, _) in ALGORITHMS.items()}
        options = {"horizon": HORIZON, "trials": TRIALS, "key": jax.random.key(3), "initial": jaxbandit.InitialDesign(indices=INITIAL)}
        return panel.play(problem, members, surrogate, **options)


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_separate_models_and_an_initial_design(algorithm: str) -> None:
    run, (_, points) = separate()[algorithm], random_problem(3, "separate")
    np.testing.assert_array_equal(run.initial_indices, [INITIAL] * TRIALS)
    if algorithm == "cbo":
        assert np.isclose(run.multipliers, 0.1).any(), "the dual must reach its cap"
    model = bandit.Model(
        grams=np.stack([KERNELS[name][1](points, points, scale) for name, scale in zip(SEPARATE_KERNELS, SCALES, strict=True)]),
        noise=np.array(SEPARATE_NOISE),
        prior_mean=np.array(PRIOR_MEAN),
        width=growing,
    )
    check(run, algorithm, model, **ALGORITHMS[algorithm][1])


@pytest.mark.parametrize("kind", ["alone", "together"])
def test_config_on_an_infeasible_problem(kind: str) -> None:
    """Constraints hold nowhere alone, or nowhere together (Algorithm 1, line 4)."""
    problem, points = random_problem(2, "infeasible", shift=4.0)
    if kind == "together":
        reward, cost, _ = np.asarray(problem.means)
        problem = jaxbandit.replace(problem, means=np.stack([reward, cost - 4.0, 6.0 - cost]))
    gram = gp.squared_exponential(points, points, LENGTH_SCALE)
    model = bandit.Model(grams=np.stack([gram] * 3), noise=np.full(3, NOISE), prior_mean=np.zeros(3), width=bandit.constant(1.0))
    learner = jaxbandit.Config(estimator=Estimator(reward_width=1.0, cost_width=np.ones(2)))
    with jax.enable_x64(True):
        own = jaxbandit.surrogate(problem.domain, kernels.Matern52(), noise_variance=NOISE, outputs=3, form="features")
    options = {"horizon": HORIZON, "trials": TRIALS, "key": jax.random.key(4)}
    run = steps.play(problem, {"config": learner}, model, own, **options)["config"]
    declared = np.asarray(run.declared_round)
    assert np.all((declared > 1) & (declared < HORIZON)), "the case must visit both branches"
    check(run, "config", model)
