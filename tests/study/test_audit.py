"""Audit traces, checked by dense references from their files alone."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from experiments.__main__ import main as command_line
from jaxbandit import Oracle, RandomSearch, Rpol, SgpUcb, delays, estimators, feedback, informed, kernels, problems
from jaxbandit.core.fields import per_axis, positive
from jaxbandit.rules.widths import Censored
from jaxbandit.study import Run, Study, audit
from tests.oracles import bandit
from tests.oracles import gaussian_process as gp
from tests.support.audit_traces import (
    ALGORITHMS,
    BOUNDS,
    HORIZON,
    SIDE,
    THEORY,
    TOLERANCE,
    TRIALS,
    check_golden_trace,
    companions,
    comparison,
    listed,
    model_and_record,
    played,
    replayed,
    sharing,
    tables,
    through_a_file,
    traced,
    width_of,
)

pytestmark = pytest.mark.full


@pytest.mark.parametrize("name", ["rpol", "cbo_ts"])
def test_every_choice_follows_from_the_arrays(name: str, tmp_path: Path) -> None:
    arrays = through_a_file(traced(name), tmp_path)
    record = model_and_record(arrays)[1]
    assert len(record.indices) == HORIZON and arrays["multipliers"].shape == (HORIZON + 1, 2)
    expected = replayed(arrays)
    gaps = bandit.score_gaps(expected.scores, record.indices)
    assert gaps.max() <= TOLERANCE, f"round {gaps.argmax() + 1}: short of the best by {gaps.max():.3g}"
    error = (np.abs(arrays["multipliers"] - expected.multipliers) / np.maximum(1, np.abs(expected.multipliers))).max(1)
    assert error.max() <= TOLERANCE, f"round {error.argmax() + 1}: multipliers off by {error.max():.3g}"
    # Other arrays do not satisfy the check.
    neighbour = np.where(record.indices % SIDE > 0, record.indices - 1, record.indices + 1)
    assert np.mean(bandit.score_gaps(expected.scores, neighbour) > TOLERANCE) > 0.5


@pytest.mark.parametrize("name", ALGORITHMS)
def test_golden_traces(name: str, golden: Any) -> None:
    check_golden_trace(golden("traces"), name)


@pytest.mark.parametrize("name", ["rpol", "cbo_ucb", "se3"])
def test_the_widths_are_those_described(name: str) -> None:
    arrays = traced(name)
    estimator = json.loads(str(arrays["meta"]))["algorithm"]["estimator"]
    params = json.loads(str(arrays["meta"]))["params"]
    model, record = model_and_record(arrays)
    first = [t - t % params["S"] if params.get("restart") else 0 for t in range(HORIZON)]
    gains = np.array(
        [
            [gp.information_gain(g, record.indices[first[t] : t], lam) for t in range(HORIZON)]
            for g, lam in zip(model.grams, model.noise, strict=True)
        ]
    )
    factor = np.sqrt(1 + np.sum(arrays["multipliers"][:-1].astype(np.float64) ** 2, axis=1)) if name == "se3" else 1.0
    np.testing.assert_allclose(arrays["beta_f_t"], width_of(estimator["reward_width"], gains[0], factor), rtol=TOLERANCE)
    costs = listed(estimator["cost_width"], 2)
    for j in range(2):
        np.testing.assert_allclose(arrays["beta_g_t"][:, j], width_of(costs[j], gains[1 + j]), rtol=TOLERANCE)


@pytest.mark.parametrize("name", ["rpol", "cbo_ts"])
def test_the_arrays_are_as_documented(name: str) -> None:
    arrays = traced(name)
    domain, means = tables()
    size = domain.size
    shapes = {
        "domain": (size, 2),
        "means": (3, size),
        "indices": (HORIZON,),
        "rewards": (HORIZON,),
        "costs": (HORIZON, 2),
        "multipliers": (HORIZON + 1, 2),
        "arr_r": (HORIZON,),
        "arr_c": (HORIZON, 2),
        "beta_f_t": (HORIZON,),
        "beta_g_t": (HORIZON, 2),
        "initial_indices": (0,),
        "initial_values": (0, 3),
        "declared_round": (),
        "status": (),
        "meta": (),
    }
    if name == "cbo_ts":
        shapes |= {"draw_f": (HORIZON, size), "draw_g": (HORIZON, 2, size)}
    assert {key: value.shape for key, value in arrays.items()} == shapes
    np.testing.assert_allclose(arrays["means"], means, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(arrays["arr_r"], np.arange(1, HORIZON + 1))
    np.testing.assert_array_equal(arrays["arr_c"], np.stack([np.arange(1, HORIZON + 1)] * 2, axis=1))
    meta = json.loads(str(arrays["meta"]))
    assert (meta["alg"], meta["study"], meta["seed"], meta["trial"]) == (name, "audit", 5, 1)
    assert meta["params"]["delay"] == {"type": "NoDelay"} and meta["params"]["feedback"] == "wait"
    assert all(value.dtype != object for value in arrays.values()), "loads without pickle"


TOGETHER = ("cbo_ts", "rpol")


@pytest.mark.parametrize("name", TOGETHER)
def test_one_constraint_and_an_initial_design(name: str, tmp_path: Path) -> None:
    """Arrays then lose the axis of constraints."""
    study, run = comparison(name, outputs=2, initial=jaxbandit.InitialDesign(random=4))
    together = played(TOGETHER, outputs=2, design=4)
    arrays = through_a_file(audit(sharing(study, together), run, trial=2), tmp_path)
    assert arrays["beta_g_t"].shape == (HORIZON,) and arrays["initial_values"].shape == (4, 2)
    if name.startswith("cbo"):
        assert arrays["draw_g"].shape == (HORIZON, *arrays["draw_f"].shape[1:])
    expected = replayed(arrays)
    assert bandit.score_gaps(expected.scores, arrays["indices"]).max() <= TOLERANCE
    np.testing.assert_allclose(arrays["multipliers"], expected.multipliers, rtol=TOLERANCE, atol=TOLERANCE)
    np.testing.assert_array_equal(arrays["indices"], together[name].indices[2])


def test_the_check_sees_a_forged_trace(tmp_path: Path) -> None:
    """One wrong reward, draw or parameter, and the choices no longer follow."""
    arrays = through_a_file(traced("cbo_ts"), tmp_path)

    def fits(changed: dict[str, np.ndarray]) -> bool:
        expected = replayed({**arrays, **changed})
        short = bandit.score_gaps(expected.scores, arrays["indices"]).max()
        return bool(short <= TOLERANCE and np.allclose(arrays["multipliers"], expected.multipliers, rtol=TOLERANCE, atol=TOLERANCE))

    def with_params(**changes: Any) -> dict[str, np.ndarray]:
        meta = json.loads(str(arrays["meta"]))
        meta["params"] |= changes
        return {"meta": np.asarray(json.dumps(meta))}

    forged: dict[str, Callable[[], dict[str, np.ndarray]]] = {
        "rho": lambda: with_params(rho=0.5),
        "V": lambda: with_params(V=20.0),
        "B": lambda: with_params(B=0.5),
        "draw_f": lambda: {"draw_f": -arrays["draw_f"]},
        "draw_g": lambda: {"draw_g": arrays["draw_g"][:, ::-1]},
    }
    assert fits({})
    for what, change in forged.items():
        assert not fits(change()), what
    ucb = through_a_file(traced("cbo_ucb"), tmp_path)
    assert bandit.score_gaps(replayed(ucb).scores, ucb["indices"]).max() <= TOLERANCE
    rewards = ucb["rewards"].copy()
    rewards[3] += 1
    assert bandit.score_gaps(replayed({**ucb, "rewards": rewards}).scores, ucb["indices"]).max() > TOLERANCE


# Delayed feedback.

# In each case some values come at once, late, and never.
LATE: dict[str, dict[str, Any]] = {
    "wait": {"delay": delays.Lossy(delay=delays.Poisson(mean=2.0), never=0.2), "feedback": None},
    "hallucinate": {"delay": delays.Geometric(mean=3.0), "feedback": feedback.Hallucinate()},
    "censor": {"delay": delays.PerOutput(delays=(delays.Poisson(mean=4.0),) * 3), "feedback": feedback.Censor(window=4, minimum=-0.7)},
}


def late_trace(policy: str) -> dict[str, np.ndarray]:
    study, run = comparison("rpol")
    if policy == "wait":
        run = dataclasses.replace(run, initial=jaxbandit.InitialDesign(random=4))
    if policy == "censor":
        width = Censored(base=THEORY, feedback_bound=1.5, scale=0.3)
        algorithm = Rpol(estimator=estimators.Bounds(reward_width=width, cost_width=width), penalty_growth=0.5)
        run = dataclasses.replace(run, algorithm=algorithm)
    run = dataclasses.replace(run, trace_name="rpol_late", **LATE[policy])
    return audit(dataclasses.replace(study, runs=(run,)), run, trial=2)


def late_rpol(arrays: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return RPOL's scores and penalties under delay, and summed deviations ``[T, k]``."""
    params = json.loads(str(arrays["meta"]))["params"]
    model, record = model_and_record(arrays)
    horizon, outputs = record.values.shape
    arrival = np.concatenate([arrays["arr_r"][:, None], arrays["arr_c"].reshape(horizon, -1)], axis=1)
    assert arrival.shape == (horizon, outputs) and np.all(arrival >= np.arange(1, horizon + 1)[:, None])
    own = np.arange(1, horizon + 1)[:, None]
    # The values of the design are there before round 1.
    design = len(record.initial_indices)
    points, rows = np.append(record.initial_indices, record.indices), np.concatenate([record.initial_values, record.values])
    in_time = np.concatenate([np.ones((design, outputs), bool), arrival - own <= params.get("m", np.inf)])
    arrival = np.concatenate([np.zeros((design, outputs)), arrival])
    scores, recent, penalties = [], np.zeros((horizon, outputs)), [np.full(outputs - 1, float(params["Q1"]))]
    for t in range(1, horizon + 1):
        known, means, sds = design + t - 1, [], []
        chosen = points[:known]
        for j in range(outputs):
            prior = (model.noise[j], model.prior_mean[j])
            here = arrival[:known, j] < t
            values = rows[:known, j]
            if params["feedback"] == "censor":
                target = np.where(here & in_time[:known, j], values, np.broadcast_to(params["min"], outputs)[j])
                mean, sd = gp.mean_and_sd(model.grams[j], chosen, target, *prior)
                recent[t - 1, j] = sd[chosen[max(design, known - params["m"]) :]].sum()
            else:
                mean, sd = gp.mean_and_sd(model.grams[j], chosen[here], values[here], *prior)
            if params["feedback"] == "hallucinate":
                _, sd = gp.mean_and_sd(model.grams[j], chosen, values, *prior)
            means.append(mean)
            sds.append(sd)
        beta = model.width(t, np.zeros(outputs))
        costs = np.stack([np.maximum(means[j] - beta[j] * sds[j], 0) for j in range(1, outputs)])
        scores.append(means[0] + beta[0] * sds[0] - penalties[-1] @ costs)
        paid = np.where(arrival[:, 1:] == t, np.maximum(rows[:, 1:], 0), 0).sum(axis=0)
        penalties.append(np.maximum(penalties[-1] + paid, params["eta_over_sqrt_t"] * np.sqrt(t)))
    return np.stack(scores), np.stack(penalties), recent


def check_late_trace(arrays: dict[str, np.ndarray]) -> None:
    scores, penalties, _ = late_rpol(arrays)
    gaps = bandit.score_gaps(scores, arrays["indices"])
    assert gaps.max() <= TOLERANCE, f"round {gaps.argmax() + 1}: short of the best by {gaps.max():.3g}"
    np.testing.assert_allclose(arrays["multipliers"], penalties, rtol=TOLERANCE, atol=TOLERANCE)
    # Other arrivals do not satisfy the check.
    early, _, _ = late_rpol({**arrays, "arr_r": np.arange(1, len(gaps) + 1)})
    assert bandit.score_gaps(early, arrays["indices"]).max() > TOLERANCE


@pytest.mark.parametrize("policy", LATE)
def test_every_choice_under_delay_follows_from_the_arrays(policy: str, tmp_path: Path) -> None:
    arrays = through_a_file(late_trace(policy), tmp_path)
    check_late_trace(arrays)
    params = json.loads(str(arrays["meta"]))["params"]
    assert arrays["initial_indices"].shape == ((4,) if policy == "wait" else (0,))
    assert params["feedback"] == policy and params["delay"]["type"] == type(LATE[policy]["delay"]).__name__
    own = np.arange(1, HORIZON + 1)
    late = np.concatenate([arrays["arr_r"][:, None], arrays["arr_c"]], axis=1) - own[:, None]
    assert arrays["arr_c"].shape == (HORIZON, 2) and np.any(late == 0) and np.any(late > 0)
    assert np.any(arrays["arr_r"] == delays.NEVER) == (policy == "wait")
    if policy == "censor":
        assert (params["m"], params["min"]) == (4, -0.7) and np.any(late > 4)
        _, _, recent = late_rpol(arrays)
        model, record = model_and_record(arrays)
        grams = zip(model.grams, model.noise, strict=True)
        gains = [np.array([gp.information_gain(g, record.indices[:t], lam) for t in range(HORIZON)]) for g, lam in grams]
        theory = dataclasses.asdict(THEORY) | {"type": "ImprovedGPUCB"}
        want = [width_of(theory, gain) for gain in gains]
        got = np.concatenate([arrays["beta_f_t"][:, None], arrays["beta_g_t"]], axis=1)
        np.testing.assert_allclose(got, np.stack(want, axis=1) + 0.3 * 1.5 * recent, rtol=TOLERANCE)


def test_trace_of_the_delayed_study(tmp_path: Path) -> None:
    """The command of the documentation, at reduced size."""
    small = ["--trials", "4", "--horizon", "50", "--points-per-axis", "10"]
    trace = tmp_path / "trace.npz"
    assert command_line(["trace", "rpol-delayed", "--algorithm", "rpol-censored", "--trial", "3", *small, "--out", str(trace)]) == 0
    with np.load(trace) as file:
        arrays = {name: file[name] for name in file.files}
    meta = json.loads(str(arrays["meta"]))
    assert meta["alg"] == "rpol_censored" and arrays["arr_c"].shape == (50,)
    assert meta["params"]["delay"]["mean"] == 15.0 and (meta["params"]["feedback"], meta["params"]["m"]) == ("censor", 30)
    assert np.any(arrays["arr_r"] != arrays["arr_c"])
    check_late_trace(arrays)
    _, _, recent = late_rpol(arrays)
    np.testing.assert_allclose(arrays["beta_f_t"], 3 + 0.01 * recent[:, 0], rtol=TOLERANCE)


def test_there_is_no_such_trial() -> None:
    study, run = comparison("rpol")
    for trial in (TRIALS, -1, 0.5):
        with pytest.raises(jaxbandit.InvalidArgument, match="trial"):
            audit(study, run, trial)


@jaxbandit.pytree
class Cauchy(kernels.Kernel):
    length_scale: Annotated[Any, positive, per_axis] = 1.0
    inner: kernels.Kernel | None = None
    of: Any = jaxbandit.static(default=np.square)

    def __call__(self, x: Any, y: Any) -> Any:
        away = (jnp.asarray(x)[:, None] - jnp.asarray(y)[None]) / jnp.asarray(self.length_scale)
        return 1 / (1 + jnp.sum(away * away, axis=-1))


def test_a_users_kernel_is_audited_without_a_table_of_kernels() -> None:
    problem = problems.sine(3)
    inner = kernels.SquaredExponential(length_scale=np.array([1.0, 2.0]))
    kernel = 2.0 * Cauchy(length_scale=0.5, inner=inner)
    model = jaxbandit.surrogate(problem.domain, [kernel, kernels.Constant(variance=3.0)], noise_variance=0.1)
    run = Run("mine", problem, jaxbandit.RandomSearch(), model, trace_name="mine")
    study = Study("own", runs=(run,), trials=1, horizon=2)
    arrays = audit(study, run, 0)
    # Random search has no widths and no draws.
    assert np.all(arrays["beta_f_t"] == 0) and not {"draw_f", "length_scales"} & set(arrays)
    params = json.loads(str(arrays["meta"]))["params"]
    inside = {"name": "se", "var": 1.0, "u": [1.0, 2.0]}
    assert params["kernel"] == {"name": "cauchy", "var": 2.0, "u": 0.5, "inner": inside, "of": "numpy.square"}
    assert params["kernel_g"] == {"name": "constant", "var": 3.0}


def test_length_scales_that_are_fitted_on_the_way_are_in_the_trace() -> None:
    study, run = comparison("rpol")
    scales = np.arange(TRIALS * HORIZON * 2.0).reshape(TRIALS, HORIZON, 2, 1)
    fitted = dataclasses.replace(played(companions("rpol"))["rpol"], length_scales=scales)
    np.testing.assert_array_equal(audit(sharing(study, {"rpol": fitted}), run, 2)["length_scales"], scales[2])


def test_what_a_study_tells_of_an_instance_is_in_the_trace() -> None:
    study, run = comparison("sgp_ucb")
    told = dataclasses.replace(run, algorithm=SgpUcb(estimator=BOUNDS, warm_up=50.0), informed=informed.SafestSeeds(count=3))
    arrays = audit(dataclasses.replace(study, runs=(told,)), told, trial=2)
    params = json.loads(str(arrays["meta"]))["params"]
    assert sorted(params["seeds"]) == sorted(np.argsort(arrays["means"][1:].max(0))[:3].tolist())
    assert set(arrays["indices"]) == set(params["seeds"])


@pytest.mark.parametrize(("algorithm", "hook"), [(RandomSearch(), informed.FeasiblePoints()), (Oracle(), informed.BestPoint())])
def test_the_floor_and_the_ceiling_can_be_traced(algorithm: Any, hook: Any) -> None:
    study, run = comparison("cei")
    told = dataclasses.replace(run, algorithm=algorithm, informed=hook)
    arrays = audit(dataclasses.replace(study, runs=(told,)), told, trial=0)
    feasible = np.all(arrays["means"][1:] <= 0, axis=0)
    assert np.all(feasible[arrays["indices"]])
    assert np.all(arrays["beta_f_t"] == 0) and "draw_f" not in arrays
