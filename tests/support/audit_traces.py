"""Traces of one small study for every algorithm, and their checks."""

import dataclasses
import functools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxbandit
from jaxbandit import consensus, domains, estimators, kernels, penalties, problems
from jaxbandit.rules.widths import ImprovedGPUCB
from jaxbandit.study import Run, Study, audit
from tests.oracles import bandit, policies
from tests.oracles import gaussian_process as gp
from tests.support import panel
from tests.support.golden import Golden

HORIZON, TRIALS, SIDE, NOISE = 23, 3, 7, 0.05
# Relative to max(1, |best|), as in `tests/engine/test_ucb_policies.py`: float32 features and 23 rounds of float32 sums.
TOLERANCE = 1e-3

THEORY = ImprovedGPUCB(norm_bound=0.8, noise_scale=0.25, delta=0.2, union=2.0)
BOUNDS = estimators.Bounds(reward_width=2.0, cost_width=np.array([1.5, 1.0]))
THEORETICAL = estimators.Bounds(reward_width=THEORY, cost_width=THEORY)
THOMPSON = estimators.Thompson(reward_width=1.5, cost_width=0.7)
RANDOMISED = estimators.Randomised(reward_width=1.5, cost_width=0.7, distribution=estimators.DiscreteUniform(points=7))
CLIPS = {"reward_clip": 2.0, "cost_clip": np.array([1.5, 1.0]), "dual_cap": 4.0}

ALGORITHMS: dict[str, Any] = {
    "igp_ucb": jaxbandit.Unconstrained(estimator=THEORETICAL),
    "gp_ts": jaxbandit.Unconstrained(estimator=THOMPSON),
    "randgp_ucb": jaxbandit.Unconstrained(estimator=RANDOMISED),
    "rpol": jaxbandit.Rpol(estimator=THEORETICAL, penalty_growth=0.5),
    "rpol_ts": jaxbandit.Rpol(estimator=THOMPSON, initial_penalty=2.0),
    "cbo_ucb": jaxbandit.Cbo(estimator=BOUNDS, **CLIPS),
    "cbo_ts": jaxbandit.Cbo(estimator=THOMPSON, reward_clip=2.0, cost_clip=1.5, dual_cap=4.0),
    "cbo_rand": jaxbandit.Cbo(estimator=RANDOMISED, reward_clip=2.0, dual_cap=4.0, step_divisor=3.0),
    "config": jaxbandit.Config(estimator=BOUNDS),
    "epbo": jaxbandit.Epbo(estimator=BOUNDS, penalty=np.array([0.5, 3.0])),
    "scgp_1": jaxbandit.Scgp(estimator=THEORETICAL, reward_clip=1.5, slater=0.4),
    "scgp_2": jaxbandit.Scgp(estimator=BOUNDS, reward_clip=1.5, slater=0.8, schedule=2),
    "se2": jaxbandit.Se2(estimator=BOUNDS, psi=penalties.Exponential(c=0.6), epoch=5),
    "se2_ts": jaxbandit.Se2(estimator=THOMPSON, psi=penalties.Polynomial(c=0.5, n=1.5), epoch=5),
    "se3": jaxbandit.Se3(estimator=THEORETICAL, step=1.5, epoch=5, restart=True),
    "se3_rand": jaxbandit.Se3(estimator=RANDOMISED, step=1.5, epoch=5),
    "anytime_cbo": jaxbandit.Anytime(algorithm=jaxbandit.Cbo(estimator=BOUNDS, **CLIPS)),
    "anytime_keep": jaxbandit.Anytime(algorithm=jaxbandit.Cbo(estimator=BOUNDS, **CLIPS), keep_data=True),
}

SEEDS = [24, 17]
BASELINES: dict[str, Any] = {
    "primal_dual": jaxbandit.PrimalDual(estimator=BOUNDS, step=0.5, initial_multiplier=[0.5, 2.0]),
    "cei": jaxbandit.Cei(improvement=0.05),
    "cei_observed": jaxbandit.Cei(incumbent="observed"),
    "constrained_ts": jaxbandit.ConstrainedThompson(estimator=THOMPSON),
    "safeopt": jaxbandit.SafeOpt(estimator=BOUNDS, seeds=SEEDS),
    "safeopt_lipschitz": jaxbandit.SafeOpt(estimator=BOUNDS, seeds=SEEDS, lipschitz=[3.0, 4.0]),
    "stageopt": jaxbandit.StageOpt(estimator=BOUNDS, count=2, exploration=11.0, together=False),
    "sgp_ucb": jaxbandit.SgpUcb(estimator=BOUNDS, seeds=SEEDS, warm_up=5.0),
    "admmbo": jaxbandit.Admmbo(
        penalty=0.5, agreement=consensus.Agreement(absolute=0.1), reward_budget=(4, 2), cost_budget=(4, 2), outer_iterations=3
    ),
    "oco": jaxbandit.Oco(step=0.5, perturbation=0.2),
}
OWN = frozenset(ALGORITHMS)
ALGORITHMS |= BASELINES


@functools.cache
def tables() -> tuple[domains.Domain, np.ndarray]:
    """A grid and the reward's and two constraints' values on it."""
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], SIDE)
    points = np.asarray(domain.points)
    rng = np.random.default_rng(8)
    reward, *costs = gp.random_functions(gp.squared_exponential(points, points, 0.3), 3, rng)
    costs = [0.8 * reward + 0.6 * cost for cost in costs]
    return domain, np.stack([reward, *(cost - np.quantile(cost, 0.4) for cost in costs)])


def comparison(name: str, outputs: int = 3, **options: Any) -> tuple[Study, Run]:
    """Return a study of one algorithm on ``outputs - 1`` constraints.

    Kernels and noise variances differ where they may.
    """
    domain, means = tables()
    algorithm = ALGORITHMS[name]
    shared = name.startswith("se2") or name.startswith("se3")
    covariances = (
        [1.5 * kernels.Matern52(length_scale=0.35)] * outputs
        if shared
        else [1.5 * kernels.Matern52(length_scale=0.35), kernels.SquaredExponential(length_scale=0.3), kernels.Matern32(length_scale=0.5)]
    )[:outputs]
    variances = [0.06] * outputs if shared else [0.06, 0.05, 0.08][:outputs]
    surrogate = jaxbandit.surrogate(
        domain, covariances, noise_variance=variances, outputs=outputs, prior_mean=[0.3, -0.1, 0.0][:outputs], form="features"
    )
    noise = problems.Gaussian(variance=np.array([NOISE] + [0.0 if name.startswith("se2") else NOISE] * (outputs - 1)))
    problem: Any = problems.from_tables(domain, means[0], means[1:outputs], noise=noise)
    if name.startswith("scgp"):
        problem = problems.full_information(problem)
    run = Run(name.upper(), problem, algorithm, surrogate, trace_name=name, **options)
    return Study(name="audit", runs=(run,), horizon=HORIZON, trials=TRIALS, seed=5), run


# These algorithms learn otherwise than a panel can.
ALONE = ("admmbo", "oco")


def companions(name: str) -> tuple[str, ...]:
    """Return algorithms whose problems differ in noise alone, with one model."""
    if name in ALONE:
        return (name,)

    def kind(name: str) -> tuple[str, bool]:
        return next((start for start in ("se2", "se3", "scgp") if name.startswith(start)), "")[:2], name in OWN

    return tuple(other for other in ALGORITHMS if other not in ALONE and kind(other) == kind(name))


@functools.cache
def played(names: tuple[str, ...], outputs: int = 3, design: int = 0, like: str = "") -> dict[str, jaxbandit.Trajectory]:
    """Return all trials of some algorithms on one problem, from one program.

    The problem is that of the first algorithm unless it is ``like`` another's.
    """
    study, run = comparison(like or names[0], outputs, initial=jaxbandit.InitialDesign(random=design))
    algorithms = {name: ALGORITHMS[name] for name in names}
    options = {"horizon": study.horizon, "trials": study.trials, "key": jax.random.key(study.seed), "record": "audit"}
    return panel.play(run.problem, algorithms, run.model, initial=run.initial, **options)


def sharing(study: Study, runs: Mapping[str, jaxbandit.Trajectory]) -> Study:
    """Return the study with trajectories of a shared program."""

    class Shared(Study):
        def trajectory(self, run: Run, *, trials: Any = None, record: str = "all", algorithm: Any = None) -> jaxbandit.Trajectory:
            assert record == "audit" and algorithm is None
            return jax.tree.map(lambda x: x[trials], runs[run.trace_name])

    return Shared(**{field.name: getattr(study, field.name) for field in dataclasses.fields(study)})


@functools.cache
def traced(name: str) -> dict[str, np.ndarray]:
    """Return the trace of one trial."""
    study, run = comparison(name)
    if len(companions(name)) > 1:
        names = companions(name)
        study = sharing(study, played(names, like=next(other for other in names if other[:3] == name[:3])))
    return audit(study, run, trial=1)


def check_golden_trace(golden: Golden, name: str) -> None:
    """Compare a trace with the golden one, choices by JAX's version."""
    arrays = traced(name)
    golden.check(f"{name} arrays", {key: [list(array.shape), array.dtype.kind] for key, array in sorted(arrays.items())})
    golden.check(f"{name} meta", json.loads(str(arrays["meta"])))
    golden.check_bits(f"{name} choices", arrays["indices"])


def through_a_file(arrays: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """The data that a reader of the file has."""
    np.savez(folder / "trace.npz", **arrays)
    with np.load(folder / "trace.npz") as file:
        return {name: file[name] for name in file.files}


# From here on, arrays only.

KERNELS = {"se": gp.squared_exponential, "matern52": gp.matern52, "matern32": gp.matern32}


def listed(value: Any, count: int) -> list[Any]:
    return value if isinstance(value, list) else [value] * count


def matrix(array: np.ndarray) -> np.ndarray:
    """``[T]`` for one constraint as ``[T, 1]``."""
    return array.astype(np.float64).reshape(len(array), -1) if array.ndim < 3 else array.astype(np.float64)


def model_and_record(arrays: dict[str, np.ndarray]) -> tuple[bandit.Model, bandit.Record]:
    """Return kernels, regularisers and data under the recorded widths."""
    params, points = json.loads(str(arrays["meta"]))["params"], arrays["domain"].astype(np.float64)
    constraints = arrays["costs"].shape[1]
    records = [params["kernel"], *listed(params["kernel_g"], constraints)]
    beta = np.concatenate([matrix(arrays["beta_f_t"]), matrix(arrays["beta_g_t"])], axis=1)
    model = bandit.Model(
        grams=np.stack([r["var"] * KERNELS[r["name"]](points, points, r["u"]) for r in records]),
        noise=np.array([params["lam"], *listed(params["lam_g"], constraints)]),
        prior_mean=np.array(params["prior_mean"]),
        width=lambda t, gain: beta[t - 1],
    )
    record = bandit.Record(
        indices=arrays["indices"],
        values=np.concatenate([arrays["rewards"][:, None], arrays["costs"]], axis=1).astype(np.float64),
        initial_indices=arrays["initial_indices"],
        initial_values=arrays["initial_values"].astype(np.float64),
    )
    return model, record


def drawn(arrays: dict[str, np.ndarray]) -> tuple[str, np.ndarray | None]:
    """Return the strategy that the arrays show, and its draws.

    The draws are ``[T, k]`` or ``[T, k, M]``.
    """
    if "draw_f" not in arrays:
        return "bounds", None
    reward = arrays["draw_f"].astype(np.float64)[:, None]
    if "draw_g" not in arrays:
        return ("thompson" if reward.ndim == 3 else "randomised"), reward
    costs = arrays["draw_g"].astype(np.float64)
    costs = costs[:, None] if costs.ndim < reward.ndim else costs
    return ("thompson" if reward.ndim == 3 else "randomised"), np.concatenate([reward, costs], axis=1)


def replayed(arrays: dict[str, np.ndarray]) -> bandit.Replay:
    """Return scores and multipliers of RPOL's or CBO's rounds."""
    meta = json.loads(str(arrays["meta"]))
    params, kind = meta["params"], meta["algorithm"]["type"]
    model, record = model_and_record(arrays)
    strategy, draws = drawn(arrays)
    given = {"strategy": strategy, "draws": draws}
    if kind == "Rpol":
        return policies.rpol(model, record, first=params["Q1"], growth=params["eta_over_sqrt_t"], **given)
    assert kind == "Cbo"
    limits = {"reward_bound": params["B"], "cost_bound": params["G"], "cap": params["rho"], "divisor": params["V"]}
    return policies.cbo(model, record, **limits, **given)


def width_of(description: Any, gain: np.ndarray, factor: np.ndarray | float = 1.0) -> np.ndarray:
    """Return the value of a width in ``meta`` at information gains ``[T]``."""
    if isinstance(description, dict):
        assert description["type"] == "ImprovedGPUCB"
        norm, scale = description["norm_bound"], description["noise_scale"] * factor
        return norm + scale * np.sqrt(2 * (gain + 1 + np.log(description["union"] / description["delta"])))
    return np.full(len(gain), description)
