"""RPOL, CBO and CONFIG against the dense NumPy reference."""

import functools
import zlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import domains, kernels, problems, widths
from tests.oracles import bandit, ucb_policies
from tests.oracles import gaussian_process as gp
from tests.support import panel, steps

HORIZON, TRIALS, SIDE = 45, 2, 12
LENGTH_SCALE, NOISE = 0.3, 0.05

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


def check(run: jaxbandit.Trajectory, algorithm: str, model: bandit.Model, tolerance: float, **parameters: Any) -> None:
    """Every trial of ``run`` against its replay."""
    for b, record in enumerate(records(run)):
        multipliers = np.asarray(run.multipliers[b], np.float64)
        if algorithm == "config":
            replay = ucb_policies.config(model, record)
            declared = int(run.declared_round[b])
            assert ucb_policies.config_faults(replay, record.indices, declared, tolerance) == []
            assert bool(run.status[b] & jaxbandit.Status.DECLARED_INFEASIBLE) == (declared > 0)
            np.testing.assert_array_equal(multipliers, np.zeros_like(multipliers))
        else:
            replay = getattr(ucb_policies, algorithm)(model, record, **parameters)
            gaps = bandit.score_gaps(replay.scores, record.indices)
            assert gaps.max() <= tolerance, f"trial {b}, round {gaps.argmax() + 1}: short of the best by {gaps.max():.3g}"
            assert multipliers.shape == replay.multipliers.shape
            error = np.abs(multipliers - replay.multipliers) / np.maximum(1, np.abs(replay.multipliers))
            assert error.max() <= tolerance, f"trial {b}: multipliers off by {error.max():.3g}"
        np.testing.assert_allclose(np.asarray(run.widths[b], np.float64), replay.widths, rtol=tolerance, atol=0)
        gain = [gp.information_gain(model.grams[j], np.r_[record.initial_indices, record.indices], model.noise[j]) for j in (0, -1)]
        np.testing.assert_allclose(np.asarray(run.information_gain, np.float64)[b, [0, -1]], gain, rtol=tolerance)


ALGORITHMS: dict[str, Callable[..., Any]] = {"rpol": jaxbandit.Rpol, "cbo": jaxbandit.Cbo, "config": jaxbandit.Config}
# CBO's clips lie inside the range of the bounds, so that they act, and its step is small enough for the dual not to sit at a cap.
PARAMETERS: dict[str, dict[str, Any]] = {"rpol": {}, "cbo": {"reward_clip": 2.0, "cost_clip": 1.5, "dual_cap": 4.0}, "config": {}}
BETA = np.array([2.0, 1.5, 1.0])
GROWING = widths.SqrtLog(a=2.0, b=3.0)


def learners(reward_width: Any, cost_width: Any) -> dict[str, Any]:
    bounds = Estimator(reward_width=reward_width, cost_width=cost_width)
    return {name: build(estimator=bounds, **PARAMETERS[name]) for name, build in ALGORITHMS.items()}


def model_of(points: np.ndarray, width: bandit.Width) -> bandit.Model:
    """The reference's model."""
    gram = gp.squared_exponential(points, points, LENGTH_SCALE)
    return bandit.Model(grams=np.stack([gram] * 3), noise=np.full(3, NOISE), prior_mean=np.zeros(3), width=width)


def growing(rest: bandit.Width) -> bandit.Width:
    """Return the reward's growing width, and the constraints' ``rest``."""
    first = bandit.sqrt_log(2.0, 3.0)
    return lambda t, gain: np.append(first(t, gain)[:1], rest(t, gain)[1:])


def by_steps(problem: Any, members: dict[str, Any], model: bandit.Model, *, seed: int) -> Any:
    """The trials of some algorithms with the reference's beliefs: their steps alone."""
    with jax.enable_x64(True):
        own = jaxbandit.surrogate(problem.domain, kernels.Matern52(), noise_variance=NOISE, outputs=len(model.grams), form="features")
    options = {"horizon": HORIZON, "trials": TRIALS, "key": jax.random.key(seed)}
    return steps.play(problem, members, model, own, **options)


@functools.cache
def known() -> tuple[dict[str, jaxbandit.Trajectory], bandit.Model]:
    """The runs of all algorithms by their steps, and the reference's model."""
    problem, points = random_problem(2, "control")
    model = model_of(points, growing(bandit.constant(BETA)))
    return by_steps(problem, learners(GROWING, BETA[1:]), model, seed=5), model


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_round_is_the_papers(algorithm: str) -> None:
    runs, model = known()
    check(runs[algorithm], algorithm, model, 1e-8, **PARAMETERS[algorithm])


# Another kernel, regulariser and prior mean for every output; points seen before round 1; per-constraint parameters.
SEPARATE_KERNELS, SCALES = ["matern52", "se", "matern12", "matern32"], [0.3, 0.25, 0.6, 0.4]
SEPARATE_NOISE, PRIOR_MEAN = [0.05, 0.08, 0.05, 0.2], [0.5, -0.25, 0.0, 0.1]
PER_CONSTRAINT: dict[str, dict[str, Any]] = {
    "rpol": {"initial_penalty": np.array([0.5, 1.0, 3.0]), "penalty_growth": 0.4},
    "cbo": {"reward_clip": 1.5, "cost_clip": np.array([0.1, 0.3, 2.0]), "dual_cap": 0.1, "step_divisor": np.array([2.0, 3.0, 9.0])},
    "config": {},
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
        members = {name: build(estimator=bounds, **PER_CONSTRAINT[name]) for name, build in ALGORITHMS.items()}
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
        width=growing(bandit.improved_gp_ucb(1.0, 0.2, 0.1, 2.0)),
    )
    check(run, algorithm, model, 1e-8, **PER_CONSTRAINT[algorithm])


def test_config_on_an_infeasible_problem() -> None:
    """It declares in the right round, and minimises the worst bound."""
    problem, points = random_problem(2, "infeasible", shift=4.0)
    model = model_of(points, bandit.constant(1.0))
    learner = jaxbandit.Config(estimator=Estimator(reward_width=1.0, cost_width=np.ones(2)))
    run = by_steps(problem, {"config": learner}, model, seed=4)["config"]
    declared = np.asarray(run.declared_round)
    assert np.all((declared > 1) & (declared < HORIZON)), "the case must visit both branches"
    check(run, "config", model, 1e-8)


def test_the_check_sees_a_wrong_config() -> None:
    runs, model = known()
    record, *_ = records(runs["config"])
    replay = ucb_policies.config(model, record)
    assert ucb_policies.config_faults(replay, record.indices, 0, 1e-8) == []
    neighbour = np.where(record.indices % SIDE > 0, record.indices - 1, record.indices + 1)
    assert len(ucb_policies.config_faults(replay, neighbour, 0, 1e-3)) > 0.7 * HORIZON
    assert any("declared" in fault for fault in ucb_policies.config_faults(replay, record.indices, 7, 1e-3))
    # The constraint matters: the unconstrained best point would break the rule in some round.
    assert ucb_policies.config_faults(replay, replay.ucb.argmax(1), 0, 1e-3) != []


def test_the_cases_exercise_the_clips() -> None:
    """Truncation and projection act, and do not cut everything."""
    runs, model = known()
    record, *_ = records(runs["cbo"])
    rounds = list(ucb_policies.bounds(model, record))
    ucb, lcb = np.stack([b.ucb for b in rounds]), np.stack([b.lcb for b in rounds])
    clipped = [np.mean(np.abs(ucb) > PARAMETERS["cbo"]["reward_clip"]), np.mean(np.abs(lcb) > PARAMETERS["cbo"]["cost_clip"])]
    assert all(0.01 < share < 0.9 for share in clipped)
    dual = ucb_policies.cbo(model, record, **PARAMETERS["cbo"]).multipliers
    assert np.any(dual[1:] == 0) and np.any(dual > 0.1)
