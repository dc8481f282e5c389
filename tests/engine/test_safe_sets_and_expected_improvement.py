"""Safe sets, expected improvement and duals against dense NumPy replays."""

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_ndtr, ndtr

import jaxbandit
from jaxbandit import Cei, ConstrainedThompson, PrimalDual, SafeOpt, SgpUcb, StageOpt, acquisition, domains, estimators, kernels, problems
from tests.oracles import bandit, expected_improvement, policies, safe_sets
from tests.oracles import gaussian_process as gp
from tests.support import panel, steps

HORIZON, TRIALS, SIDE = 24, 2, 9
LENGTH_SCALE, NOISE = 0.35, 0.05
PRIOR_MEAN = np.array([0.3, -0.2, 0.1])
BETA = np.array([1.5, 1.0, 0.8])
SEEDS = np.array([40, 31])
# The second seed is unsafe.
UNSAFE = np.array([40, 75])
LIPSCHITZ = np.array([2.0, 3.0])
# Relative to max(1, |best|), and how far from the edge of a set a point is surely on its side.
TOLERANCE = {"float32": 1e-3, "float64": 1e-8}
KERNEL = {
    # Beliefs are the reference's, so only the algorithm's steps run.
    "known": (kernels.SquaredExponential, gp.squared_exponential),
    "features": (kernels.Matern52, gp.matern52),
    "product": (kernels.SquaredExponential, gp.squared_exponential),
    "rows": (kernels.Matern52, gp.matern52),
}


@dataclass(frozen=True)
class Case:
    """An algorithm, its reference, and its (constraints, form, precision)."""

    build: Callable[[Any, int], Any]
    told: dict[str, Any]
    run: tuple[int, str, str]
    design: tuple[int, ...] = ()


# Dealt in turn: forms and precisions are the surrogates' own tests, and cases that run alike share a program.
ONE, TWO, BY_ROWS = (1, "product", "float32"), (2, "features", "float64"), (2, "rows", "float64")
# No symmetry of the grid keeps both, so seeds do not tie.
DESIGN = (40, 33)

CASES: dict[str, Case] = {
    "primal-dual": Case(lambda b, m: PrimalDual(estimator=b), {"first": 1.0, "step": 1.0}, ONE),
    "primal-dual-other": Case(
        lambda b, m: PrimalDual(estimator=b, initial_multiplier=np.array([0.5, 2.0]), step=0.3),
        {"first": np.array([0.5, 2.0]), "step": 0.3},
        TWO,
    ),
    "cei": Case(lambda b, m: Cei(), {"incumbent": "mean"}, TWO),
    "cei-design": Case(lambda b, m: Cei(improvement=0.1), {"incumbent": "mean", "improvement": 0.1}, BY_ROWS, DESIGN),
    "cei-augmented": Case(lambda b, m: Cei(augmented=True), {"incumbent": "mean", "augmented": True}, TWO),
    "cei-cautious": Case(lambda b, m: Cei(caution=(0.5, 4.0)), {"incumbent": "mean", "caution": (0.5, 4.0)}, TWO),
    "cei-observed": Case(lambda b, m: Cei(incumbent="observed"), {"incumbent": "observed"}, BY_ROWS, DESIGN),
    "constrained-thompson": Case(
        lambda b, m: ConstrainedThompson(estimator=estimators.Thompson(reward_width=1.5, cost_width=0.7)), {}, TWO
    ),
    "safeopt": Case(lambda b, m: SafeOpt(estimator=b, seeds=SEEDS), {"rule": "safeopt", "seeds": SEEDS}, TWO),
    "safeopt-each": Case(
        lambda b, m: SafeOpt(estimator=b, seeds=SEEDS, together=False), {"rule": "safeopt", "seeds": SEEDS, "together": False}, TWO
    ),
    "safeopt-lipschitz": Case(
        lambda b, m: SafeOpt(estimator=b, seeds=SEEDS, lipschitz=LIPSCHITZ[:m]), {"rule": "safeopt", "seeds": SEEDS, "lipschitz": True}, ONE
    ),
    "stageopt": Case(
        lambda b, m: StageOpt(estimator=b, count=3, exploration=14.0),
        {"rule": "stageopt", "count": 3, "seeds": None, "stage": 14},
        BY_ROWS,
        DESIGN,
    ),
    "stageopt-lipschitz": Case(
        lambda b, m: StageOpt(estimator=b, seeds=SEEDS, exploration=14.0, lipschitz=LIPSCHITZ[:m]),
        {"rule": "stageopt", "seeds": SEEDS, "stage": 14, "lipschitz": True},
        TWO,
    ),
    "safeopt-unsafe-seed": Case(lambda b, m: SafeOpt(estimator=b, seeds=UNSAFE), {"rule": "safeopt", "seeds": UNSAFE}, ONE),
    "sgp-ucb-unsafe-seed": Case(
        lambda b, m: SgpUcb(estimator=b, seeds=UNSAFE, warm_up=12.0), {"rule": "sgp_ucb", "seeds": UNSAFE, "stage": 12}, ONE
    ),
    "sgp-ucb": Case(lambda b, m: SgpUcb(estimator=b, seeds=SEEDS, warm_up=6.0), {"rule": "sgp_ucb", "seeds": SEEDS, "stage": 6}, ONE),
}
KNOWN = (2, "known", "float64")
# One case of each algorithm is played on the reference's beliefs, too, in the quick ring; what else is asked of a case is asked of that
# run, and in the full ring of the engine's for the other cases, whose steps nobody need compile.
QUICK = ["primal-dual", "cei", "constrained-thompson", "safeopt", "safeopt-lipschitz", "safeopt-unsafe-seed", "stageopt", "sgp-ucb"]
RUNS = [
    pytest.param(name, *run, id="-".join([name, *map(str, run)]), marks=() if run == KNOWN else pytest.mark.full)
    for name, case in CASES.items()
    for run in ([KNOWN] if name in QUICK else []) + [case.run]
]
SAFE = [run for run in RUNS if run.values[0].startswith(("safeopt", "stageopt", "sgp"))]
SCORED = [run for run in RUNS if run not in SAFE]


@functools.cache
def problem_of(constraints: int) -> problems.Problem:
    """Return smooth functions, half feasible, with seeds feasible by a margin."""
    rng = np.random.default_rng(zlib.crc32(f"{constraints}".encode()))
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], SIDE)
    points = np.asarray(domain.points)
    tables = gp.random_functions(gp.squared_exponential(points, points, LENGTH_SCALE), 1 + constraints, rng)
    costs = np.stack([np.where(cost[SEEDS[0]] > np.median(cost), -1, 1) * cost for cost in tables[1:]])
    costs = costs - np.maximum(np.median(costs, axis=1), costs[:, SEEDS].max(1) + 0.4)[:, None]
    return problems.from_tables(domain, tables[0], costs, noise=problems.Gaussian(variance=NOISE))


@functools.cache
def believed(constraints: int, form: str) -> bandit.Model:
    points = np.asarray(problem_of(constraints).domain.points)
    outputs = 1 + constraints
    return bandit.Model(
        grams=np.stack([KERNEL[form][1](points, points, LENGTH_SCALE)] * outputs),
        noise=np.full(outputs, NOISE),
        prior_mean=PRIOR_MEAN[:outputs],
        width=bandit.constant(BETA[:outputs]),
    )


@functools.cache
def played(constraints: int, form: str, precision: str, design: tuple[int, ...]) -> dict[str, jaxbandit.Trajectory]:
    """The trials of all cases that run so, from one program."""
    problem, outputs = problem_of(constraints), 1 + constraints
    run = constraints, form, precision
    names = [name for name, case in CASES.items() if case.design == design and (name in QUICK if run == KNOWN else run == case.run)]
    bounds = estimators.Bounds(reward_width=BETA[0], cost_width=BETA[1:outputs])
    algorithms = {name: CASES[name].build(bounds, constraints) for name in names}
    options = {"horizon": HORIZON, "trials": TRIALS, "key": jax.random.key(7 if run == KNOWN else 9)}
    if run == KNOWN:
        with jax.enable_x64(True):
            own = jaxbandit.surrogate(problem.domain, kernels.Matern52(), noise_variance=NOISE, outputs=outputs, form="features")
        return steps.play(problem, algorithms, believed(constraints, form), own, initial=design, **options)
    with jax.enable_x64(precision == "float64"):
        surrogate = jaxbandit.surrogate(
            problem.domain,
            KERNEL[form][0](length_scale=LENGTH_SCALE),
            noise_variance=NOISE,
            prior_mean=PRIOR_MEAN[:outputs],
            outputs=outputs,
            form=form,
            horizon=HORIZON + len(design),
        )
        initial = jaxbandit.InitialDesign(indices=np.array(design)) if design else None
        return panel.play(problem, algorithms, surrogate, record="audit", initial=initial, **options)


def recorded(name: str, constraints: int, form: str, precision: str) -> jaxbandit.Trajectory:
    """The trials of a case."""
    run = played(constraints, form, precision, CASES[name].design)[name]
    assert run.values.dtype == precision
    return run


def record_of(run: jaxbandit.Trajectory, trial: int) -> bandit.Record:
    return bandit.Record(
        indices=run.indices[trial],
        values=run.values[trial].astype(np.float64),
        initial_indices=run.initial_indices[trial],
        initial_values=run.initial_values[trial].astype(np.float64),
    )


def scores_of(name: str, constraints: int, form: str, run: jaxbandit.Trajectory, trial: int, **changes: Any) -> np.ndarray:
    """Return the reference's scores, and check multipliers and doubt."""
    told, model, record = CASES[name].told | changes, believed(constraints, form), record_of(run, trial)
    if name.startswith("primal"):
        replay = policies.primal_dual(model, record, first=np.broadcast_to(told["first"], constraints), step=told["step"])
        if not changes:
            np.testing.assert_allclose(run.multipliers[trial], replay.multipliers, rtol=1e-4, atol=1e-4)
            np.testing.assert_allclose(run.widths[trial], replay.widths, rtol=1e-6)
        return replay.scores
    if name.startswith("cei"):
        replay = expected_improvement.cei(model, record, tolerance=1e-3, **told)
        assert changes or not replay.doubtful.any(), "the case must not hang on rounding"
        return replay.scores
    return policies.constrained_thompson(run.draws[trial].astype(np.float64))


@pytest.mark.parametrize(("name", "constraints", "form", "precision"), SCORED)
def test_every_choice_is_the_best(name: str, constraints: int, form: str, precision: str) -> None:
    run = recorded(name, constraints, form, precision)
    for trial in range(TRIALS):
        scores = scores_of(name, constraints, form, run, trial)
        gaps = bandit.score_gaps(scores, run.indices[trial])
        assert gaps.max() <= TOLERANCE[precision], f"trial {trial}, round {gaps.argmax() + 1}: short of the best by {gaps.max():.3g}"
        neighbour = np.where(run.indices[trial] % SIDE > 0, run.indices[trial] - 1, run.indices[trial] + 1)
        assert np.mean(bandit.score_gaps(scores, neighbour) > TOLERANCE[precision]) > 0.5
    assert np.all(jaxbandit.metrics.healthy(run.status))


def faults(name: str, constraints: int, form: str, precision: str, trial: int, **changes: Any) -> list[str]:
    run, told = recorded(name, constraints, form, precision), CASES[name].told | changes
    if told.get("lipschitz") is True:
        told = told | {"lipschitz": LIPSCHITZ[:constraints]}
    points = np.asarray(problem_of(constraints).domain.points)
    return safe_sets.safe_faults(believed(constraints, form), record_of(run, trial), points=points, margin=TOLERANCE[precision], **told)


@pytest.mark.parametrize(("name", "constraints", "form", "precision"), SAFE)
def test_every_choice_is_from_its_set(name: str, constraints: int, form: str, precision: str) -> None:
    for trial in range(TRIALS):
        assert faults(name, constraints, form, precision, trial) == []
    run = recorded(name, constraints, form, precision)
    assert np.all(jaxbandit.metrics.healthy(run.status))
    assert len(np.unique(run.indices)) > 4, "the safe set grew"
    np.testing.assert_allclose(run.widths, np.broadcast_to(BETA[: 1 + constraints], run.widths.shape), rtol=1e-6)


# The checks are sharp: the same runs do not pass for what they are not.
WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "dual of another step": ("primal-dual", {"step": 0.5}),
    "dual from zero": ("primal-dual", {"first": 0.0}),
    "observed incumbent": ("cei", {"incumbent": "observed"}),
    "incumbent by mean": ("cei-observed", {"incumbent": "mean"}),
    "caution for both alike": ("cei-cautious", {"caution": 4.0}),
    "no improvement asked": ("cei-design", {"improvement": 0.0}),
    "no Lipschitz constant": ("safeopt-lipschitz", {"lipschitz": None}),
    "a Lipschitz constant": ("safeopt", {"lipschitz": np.array([9.0, 9.0])}),
    "constraints by themselves": ("safeopt", {"together": False}),
    "constraints together": ("safeopt-each", {"together": True}),
    "other seeds": ("safeopt", {"seeds": np.array([0, 80])}),
    "StageOpt": ("safeopt", {"rule": "stageopt", "stage": 14}),
    "SafeOpt": ("stageopt", {"rule": "safeopt"}),
    "shorter stage": ("stageopt", {"stage": 10}),
    "fewer seeds": ("stageopt", {"count": 1}),
    "one seed less": ("safeopt-unsafe-seed", {"seeds": UNSAFE[:1]}),
    "shorter warm-up": ("sgp-ucb", {"stage": 2}),
}


@pytest.mark.parametrize("what", [pytest.param(what, marks=() if WRONG[what][0] in QUICK else pytest.mark.full) for what in WRONG])
def test_the_check_sees_another_algorithm(what: str) -> None:
    name, changes = WRONG[what]
    constraints, form, precision = KNOWN if name in QUICK else CASES[name].run
    run = recorded(name, constraints, form, precision)
    if name.startswith(("safeopt", "stageopt", "sgp")):
        assert any(faults(name, constraints, form, precision, trial, **changes) for trial in range(TRIALS))
        return
    gaps = [
        bandit.score_gaps(scores_of(name, constraints, form, run, trial, **changes), run.indices[trial]).max() for trial in range(TRIALS)
    ]
    assert max(gaps) > TOLERANCE["float32"]


def test_a_seed_is_left_once_values_show_that_it_is_unsafe() -> None:
    run, model = recorded("safeopt-unsafe-seed", *KNOWN), believed(2, "known")
    assert np.all(run.status & int(jaxbandit.Status.SEED_UNSAFE) != 0)
    for b in range(TRIALS):
        known = list(safe_sets.knowledge(model, record_of(run, b)))
        is_left = np.asarray([not safe_sets.trusted(one, np.isin(np.arange(81), UNSAFE), 0.0)[UNSAFE[1]] for one in known])
        assert is_left.any() and not is_left.all() and not np.any(run.indices[b][is_left] == UNSAFE[1])


def test_the_cases_exercise_what_they_should() -> None:
    """The runs reach both phases and branches, and expanders."""
    found = np.concatenate(
        [
            expected_improvement.cei(believed(2, "known"), record_of(recorded("cei", *KNOWN), b), incumbent="mean").feasible
            for b in range(TRIALS)
        ]
    )
    assert found.any() and not found.all()
    run = recorded("constrained-thompson", *KNOWN)
    some = np.any(np.all(run.draws[:, :, 1:] <= 0, axis=2), axis=-1)
    assert some.any()
    points = np.asarray(problem_of(2).domain.points)
    kinds = {"maximiser": 0, "expander": 0}
    run = recorded("safeopt", *KNOWN)
    mask = np.isin(np.arange(len(points)), SEEDS)
    for b in range(TRIALS):
        for chosen, known in zip(run.indices[b], safe_sets.knowledge(believed(2, "known"), record_of(run, b)), strict=True):
            s = safe_sets.sets(believed(2, "known"), known, mask, 1e-8, points=points, lipschitz=None, together=True)
            kinds["maximiser" if s.maximisers[1][chosen] else "expander"] += 1
    assert min(kinds.values()) >= 3, kinds
    assert np.all(recorded("primal-dual", *KNOWN).multipliers >= 0)
    assert np.any(recorded("primal-dual", *KNOWN).multipliers == 0), "the dual meets its floor"


# Values of constrained EI.

# All functions are evaluated at this number of points.
Z = np.concatenate([np.linspace(-12, 12, 481), -np.logspace(1, 5, 60), np.logspace(1, 5, 20)])


@jax.jit
def ours(mean: jax.Array, sd: jax.Array, best: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Return logarithms of EI and of feasibility.

    EI is by the first row of ``mean [3, M]`` and ``sd [3, M]``, feasibility by the others.
    """
    return acquisition.log_expected_improvement(mean[0], sd[0], best), acquisition.log_feasibility(mean[1:], sd[1:])


def botorch(mean: np.ndarray, sd: np.ndarray, best: float) -> np.ndarray:
    """``ExpectedImprovement`` of BoTorch: ``sigma (phi(u) + u Phi(u))``."""
    u = (mean - best) / sd
    return sd * (np.exp(-0.5 * u**2) / np.sqrt(2 * np.pi) + u * ndtr(u))


@pytest.mark.parametrize("precision", TOLERANCE)
def test_constrained_ei_is_botorchs(precision: str) -> None:
    """BoTorch multiplies EI by ``prod_j Phi((0 - mu_j) / sigma_j)``."""
    rng = np.random.default_rng(0)
    mean, sd = rng.normal(0, 2, (3, len(Z))), rng.uniform(0.3, 2, (3, len(Z)))
    expected = botorch(mean[0], sd[0], 0.7) * np.prod(ndtr(-mean[1:] / sd[1:]), axis=0)
    with jax.enable_x64(precision == "float64"):
        value = sum(np.asarray(part, np.float64) for part in ours(mean, sd, 0.7))
    ordinary = expected > 1e-12
    assert np.mean(ordinary) > 0.5
    np.testing.assert_allclose(np.exp(value)[ordinary], expected[ordinary], rtol={"float32": 2e-4, "float64": 1e-9}[precision])


@pytest.mark.parametrize("precision", TOLERANCE)
def test_log_ei_where_ei_underflows(precision: str) -> None:
    """Certain improvements and a hundred thousand deviations are covered."""
    # A second constraint holds for certain.
    with jax.enable_x64(precision == "float64"):
        found = ours(np.stack([Z, Z, np.full_like(Z, -99.0)]), np.ones((3, len(Z))), 0.0)
    for values, expected in zip(found, (expected_improvement.log_expected_improvement(Z, np.ones_like(Z), 0.0), log_ndtr(-Z)), strict=True):
        error = np.abs(np.asarray(values, np.float64) - expected) / np.maximum(1, np.abs(expected))
        assert error.max() < {"float32": 2e-6, "float64": 2e-12}[precision]
    improvement = np.asarray(found[0], np.float64)
    assert np.all(np.diff(improvement[:481]) > 0) and np.all(np.isfinite(improvement))


def test_slopes_of_log_ei_and_of_feasibility() -> None:
    """The slopes are ``phi / Phi`` and ``Phi / h``."""

    @jax.jit
    def slopes(z: jax.Array) -> jax.Array:
        one = jnp.ones_like(z)
        gain = jax.grad(lambda z: jnp.sum(acquisition.log_expected_improvement(z, one, 0.0)))(z)
        return jnp.stack([gain, jax.grad(lambda z: jnp.sum(acquisition.log_feasibility(-z[None], one[None])))(z)])

    expected = [
        log_ndtr(Z) - expected_improvement.log_expected_improvement(Z, np.ones_like(Z), 0.0),
        -(Z**2) / 2 - np.log(2 * np.pi) / 2 - log_ndtr(Z),
    ]
    with jax.enable_x64(True):
        found = slopes(Z)
    # Farther away the difference of logarithms is rounding.
    told = np.abs(Z) < 300
    for values, logarithms in zip(found, expected, strict=True):
        np.testing.assert_allclose(values[told], np.exp(logarithms[told]), rtol=1e-10)


def test_logarithms_of_all_sizes() -> None:
    """EI at the incumbent's mean is ``sd phi(0)``."""
    sizes = np.concatenate([[1.0], np.logspace(-150, 300, 60), np.linspace(0.5, 2, len(Z) - 61)])
    with jax.enable_x64(True):
        found = np.asarray(ours(np.zeros((3, len(Z))), np.stack([sizes, *np.ones((2, len(Z)))]), 0.0)[0])
        strange = np.asarray(ours(np.zeros((3, len(Z))), np.stack([np.resize([np.inf, np.nan], len(Z)), *np.ones((2, len(Z)))]), 0.0)[0])
    np.testing.assert_allclose(found - found[0], np.log(sizes), rtol=1e-15, atol=1e-15)
    assert strange[0] == np.inf and np.isnan(strange[1])


def test_log_ei_of_a_point_that_is_known() -> None:
    """Zero deviations give no NaN."""
    mean = np.resize([1.0, -1.0, 0.0], (3, len(Z)))
    value, possible = (np.asarray(part)[:3] for part in ours(mean, np.zeros_like(mean), 0.0))
    assert abs(value[0]) < 1e-5 and value[1] < -1e30 and value[2] < -20 and not np.any(np.isnan(value))
    assert possible[0] < -1e30 and possible[1] == 0 and not np.any(np.isnan(possible))
