"""Every round of RPOL, CBO and CONFIG against the dense NumPy reference: scores, multipliers, widths, declarations."""

from __future__ import annotations

import contextlib
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

# Relative to max(1, |best|). Over all cases of this file every choice was the reference's own argmax; the worst errors seen were, in
# float32, 2e-5 for CBO's dual (it sums estimates), 3e-7 for RPOL's penalty and 8e-7 for widths, and in float64 3e-12, 0 and 2e-14.
TOLERANCE = {"float32": 1e-3, "float64": 1e-8}

KERNELS: dict[str, tuple[Callable[..., Any], Callable[..., np.ndarray]]] = {
    "se": (kernels.SquaredExponential, gp.squared_exponential),
    "matern12": (kernels.Matern12, gp.matern12),
    "matern32": (kernels.Matern32, gp.matern32),
    "matern52": (kernels.Matern52, gp.matern52),
}
KNOWN = ("se", "known")  # beliefs of the reference: the algorithms' steps alone

Estimator = jaxbandit.estimators.Bounds


def precision_of(name: str) -> contextlib.AbstractContextManager[Any]:
    return jax.enable_x64(name == "float64")


@functools.cache
def random_problem(constraints: int, seed: str, *, shift: float = 0.0) -> tuple[problems.Problem, np.ndarray]:
    """Smooth random functions on a grid of the unit square, and the grid.

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
            indices=indices[b],
            values=values[b].astype(np.float64),
            initial_indices=initial[b],
            initial_values=before[b].astype(np.float64),
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
BETA = np.array([2.0, 1.5, 1.0, 0.5])
# The steps of every algorithm, and each in a program of the engine's own, CONFIG where nothing is feasible; forms and precisions are the
# surrogates' own tests.
ENGINE = [("rpol", "se", "auto", "float32"), ("cbo", "matern52", "auto", "float64")]
CASES = [
    pytest.param(*case, id="-".join(case), marks=() if case[2] == "known" else pytest.mark.full)
    for case in [*((algorithm, *KNOWN, "float64") for algorithm in ALGORITHMS), *ENGINE]
]


def learners(reward_width: Any, cost_width: Any) -> dict[str, Any]:
    bounds = Estimator(reward_width=reward_width, cost_width=cost_width)
    return {name: build(estimator=bounds, **PARAMETERS[name]) for name, build in ALGORITHMS.items()}


def model_of(points: np.ndarray, kernel: str, outputs: int, noise: float, width: bandit.Width) -> bandit.Model:
    """The reference's model."""
    gram = KERNELS[kernel][1](points, points, LENGTH_SCALE)
    return bandit.Model(grams=np.stack([gram] * outputs), noise=np.full(outputs, noise), prior_mean=np.zeros(outputs), width=width)


def by_steps(problem: Any, members: dict[str, Any], model: bandit.Model, *, seed: int, initial: tuple[int, ...] = ()) -> Any:
    """The trials of some algorithms with the reference's beliefs."""
    with precision_of("float64"):
        own = jaxbandit.surrogate(problem.domain, kernels.Matern52(), noise_variance=NOISE, outputs=len(model.grams), form="features")
    options = {"horizon": HORIZON, "trials": TRIALS, "key": jax.random.key(seed), "initial": initial}
    return steps.play(problem, members, model, own, **options)


@functools.cache
def known() -> dict[str, jaxbandit.Trajectory]:
    """The runs of all algorithms by their steps."""
    problem, points = random_problem(2, "control")
    return by_steps(problem, learners(BETA[0], BETA[1:3]), model_of(points, "se", 3, NOISE, bandit.constant(BETA[:3])), seed=5)


def alone(problem: problems.Problem, learner: Any, kernel: str, form: str, outputs: int, precision: str) -> jaxbandit.Trajectory:
    """A run of a program of the algorithm's own."""
    surrogate = jaxbandit.surrogate(
        problem.domain,
        KERNELS[kernel][0](length_scale=LENGTH_SCALE),
        noise_variance=NOISE,
        outputs=outputs,
        form=form,
        horizon=HORIZON,
        precision=precision,
    )
    block = None if form == "rows" else 1  # the branches of rows are others in a batch
    return jaxbandit.simulate(problem, learner, surrogate, horizon=HORIZON, trials=TRIALS, key=jax.random.key(1), block=block)


@pytest.mark.parametrize(("algorithm", "kernel", "form", "precision"), CASES)
def test_every_round_is_the_papers(algorithm: str, kernel: str, form: str, precision: str) -> None:
    constraints = 2 if form == "known" else 1
    problem, points = random_problem(constraints, "control" if form == "known" else f"{kernel}-{form}")
    learner = learners(BETA[0], BETA[1 : 1 + constraints])[algorithm]
    run = known()[algorithm] if form == "known" else alone(problem, learner, kernel, form, 1 + constraints, precision)
    assert run.values.dtype == precision
    model = model_of(points, kernel, 1 + constraints, NOISE, bandit.constant(BETA[: 1 + constraints]))
    check(run, algorithm, model, TOLERANCE[precision], **PARAMETERS[algorithm])


SCHEDULES: dict[str, tuple[Any, bandit.Width]] = {
    "improved": (widths.ImprovedGPUCB(norm_bound=0.8, noise_scale=0.25, delta=0.2, union=3.0), bandit.improved_gp_ucb(0.8, 0.25, 0.2, 3.0)),
    "sqrt_log": (widths.SqrtLog(a=0.5, b=3.0), bandit.sqrt_log(0.5, 3.0)),
    "constant": (1.75, bandit.constant(1.75)),
}
SCHEDULED = [(algorithm, schedule) for algorithm in ALGORITHMS for schedule in ("improved", "sqrt_log")] + [("rpol", "constant")]


def schedule_model(schedule: str) -> bandit.Model:
    return model_of(random_problem(2, "schedules")[1], "se", 3, 1 + 2 / HORIZON, SCHEDULES[schedule][1])


@functools.cache
def scheduled() -> dict[str, jaxbandit.Trajectory]:
    """The runs of algorithms under schedules, by "algorithm-schedule", from one program."""
    problem, _ = random_problem(2, "schedules")
    with precision_of("float64"):
        kernel = kernels.SquaredExponential(length_scale=LENGTH_SCALE)
        surrogate = jaxbandit.surrogate(problem.domain, kernel, noise_variance=1 + 2 / HORIZON, outputs=3, form="product")
        members = {f"{name}-{schedule}": learners(*[SCHEDULES[schedule][0]] * 2)[name] for name, schedule in SCHEDULED}
        return panel.play(problem, members, surrogate, horizon=HORIZON, trials=TRIALS, key=jax.random.key(2))


@pytest.mark.full
@pytest.mark.parametrize(("algorithm", "schedule"), SCHEDULED)
def test_width_schedules(algorithm: str, schedule: str) -> None:
    run = scheduled()[f"{algorithm}-{schedule}"]
    check(run, algorithm, schedule_model(schedule), TOLERANCE["float64"], **PARAMETERS[algorithm])


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
    bounds = Estimator(reward_width=theory, cost_width=theory)
    with precision_of("float64"):
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
        width=bandit.improved_gp_ucb(1.0, 0.2, 0.1, 2.0),
    )
    check(run, algorithm, model, TOLERANCE["float64"], **PER_CONSTRAINT[algorithm])


@pytest.mark.parametrize("form", ["known", pytest.param("rows", marks=pytest.mark.full)])
def test_config_on_an_infeasible_problem(form: str) -> None:
    """Declares in the right round, and goes on at the point of least worst-case lower bound."""
    problem, points = random_problem(2, "infeasible", shift=4.0)
    model = model_of(points, "matern52" if form == "rows" else "se", 3, NOISE, bandit.constant(1.0))
    learner = jaxbandit.Config(estimator=Estimator(reward_width=1.0, cost_width=np.ones(2)))
    run = (
        by_steps(problem, {"config": learner}, model, seed=4)["config"]
        if form == "known"
        else alone(problem, learner, "matern52", form, 3, "float64")
    )
    declared = np.asarray(run.declared_round)
    assert np.all((declared > 1) & (declared < HORIZON)), "the case must visit both branches"
    check(run, "config", model, TOLERANCE["float64"])


def one_run(algorithm: str) -> tuple[list[bandit.Record], bandit.Model]:
    points = random_problem(2, "control")[1]
    return records(known()[algorithm]), model_of(points, "se", 3, NOISE, bandit.constant(BETA[:3]))


@pytest.mark.parametrize("algorithm", ["rpol", "cbo"])
def test_the_check_sees_a_wrong_choice(algorithm: str) -> None:
    """The scores are not so flat that any point would pass: a neighbour of the chosen point is caught in most rounds."""
    (record, *_), model = one_run(algorithm)
    replay = getattr(ucb_policies, algorithm)(model, record, **PARAMETERS[algorithm])
    assert bandit.score_gaps(replay.scores, record.indices).max() <= 1e-8
    neighbour = np.where(record.indices % SIDE > 0, record.indices - 1, record.indices + 1)
    caught = bandit.score_gaps(replay.scores, neighbour) > TOLERANCE["float32"]
    assert caught.mean() > 0.7


def test_the_check_sees_a_wrong_config() -> None:
    (record, *_), model = one_run("config")
    replay = ucb_policies.config(model, record)
    assert ucb_policies.config_faults(replay, record.indices, 0, 1e-8) == []
    neighbour = np.where(record.indices % SIDE > 0, record.indices - 1, record.indices + 1)
    assert len(ucb_policies.config_faults(replay, neighbour, 0, 1e-3)) > 0.7 * HORIZON
    assert any("declared" in fault for fault in ucb_policies.config_faults(replay, record.indices, 7, 1e-3))
    # The constraint matters: the unconstrained best point would break the rule in some round.
    assert ucb_policies.config_faults(replay, replay.ucb.argmax(1), 0, 1e-3) != []


def test_the_cases_exercise_the_clips() -> None:
    """CBO's truncation and projection act in the runs above, and do not swallow everything."""
    (record, *_), model = one_run("cbo")
    rounds = list(ucb_policies.bounds(model, record))
    ucb, lcb = np.stack([b.ucb for b in rounds]), np.stack([b.lcb for b in rounds])
    clipped = [np.mean(np.abs(ucb) > PARAMETERS["cbo"]["reward_clip"]), np.mean(np.abs(lcb) > PARAMETERS["cbo"]["cost_clip"])]
    assert all(0.01 < share < 0.9 for share in clipped)
    dual = ucb_policies.cbo(model, record, **PARAMETERS["cbo"]).multipliers
    assert np.any(dual[1:] == 0) and np.any(dual > 0.1)
