"""Every round of every algorithm against the replays of ``oracles.policies``."""

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import Anytime, Cbo, Config, Epbo, Rpol, Scgp, Se2, Se3, Unconstrained, domains, estimators, kernels, penalties, problems
from jaxbandit.core.keys import Stream, round_key, stream_key, trial_key
from jaxbandit.rules.widths import ImprovedGPUCB
from tests.oracles import bandit, policies, ucb_policies
from tests.oracles import gaussian_process as gp
from tests.support import panel, steps

# The 38 rounds are five epochs of 7 and a part, and five stretches and a part.
HORIZON, TRIALS, SIDE = 38, 2, 9
LENGTH_SCALE, NOISE = 0.3, 0.05
KEY = jax.random.key(11)

# Relative to max(1, |best|). Features leave out 1e-6 (float32) or 1e-13 (float64) of the prior variance, and 38 rounds of sums round;
# scores that are closer than that may be ranked either way. No choice seen differed from the reference's best at all.
TOLERANCE = {"float32": 1e-3, "float64": 1e-8}

KERNEL = {
    # Beliefs are the reference's, so only the algorithm's steps run.
    "known": (kernels.SquaredExponential, gp.squared_exponential),
    "features": (kernels.Matern52, gp.matern52),
    "product": (kernels.SquaredExponential, gp.squared_exponential),
    "rows": (kernels.Matern52, gp.matern52),
}
BETA = np.array([2.0, 1.5, 1.0, 0.5])
NORM, SCALE, DELTA = 0.8, 0.25, 0.2


@dataclass(frozen=True)
class Case:
    """An algorithm and how to replay it."""

    constraints: int
    # It makes an algorithm of a strategy.
    build: Callable[[Any], Any]
    # It maps (model, record, draws=, samples=) to a Replay.
    replay: Callable[..., bandit.Replay]
    strategy: str = "bounds"
    distribution: Any = estimators.Gaussian()
    improved: bool = False
    # Constraints may be "noiseless", or "shared" or "independent" samples.
    problem: str = "noisy"


def strategy_of(case: Case) -> Any:
    """The case's exploration strategy, with its widths."""
    theory = ImprovedGPUCB(norm_bound=NORM, noise_scale=SCALE, delta=DELTA, union=1.0)
    reward, cost = (theory, theory) if case.improved else (BETA[0], BETA[1 : 1 + case.constraints])
    if case.strategy == "randomised":
        return estimators.Randomised(reward_width=reward, cost_width=cost, distribution=case.distribution)
    return {"bounds": estimators.Bounds, "thompson": estimators.Thompson}[case.strategy](reward_width=reward, cost_width=cost)


def theory(gain: float, factor: float = 1.0) -> float:
    """Improved GP-UCB with ``c = 1`` for noise ``factor`` times as large."""
    return NORM + SCALE * factor * np.sqrt(2 * (gain + 1 + np.log(1 / DELTA)))


def replayed(function: Callable[..., bandit.Replay], **parameters: Any) -> Callable[..., bandit.Replay]:
    """Return a replay without samples, because only SCGP-UCB sees them."""

    def replay(model: bandit.Model, record: bandit.Record, draws: Any, samples: Any) -> bandit.Replay:
        return function(model, record, draws=draws, **parameters)

    return replay


def scgp(strategy: str, schedule: int) -> Callable[..., bandit.Replay]:
    def replay(model: bandit.Model, record: bandit.Record, draws: Any, samples: Any) -> bandit.Replay:
        return policies.scgp(model, record, strategy=strategy, samples=samples, draws=draws, bound=1.5, slater=0.4, schedule=schedule)

    return replay


# The clips lie inside the estimates' range, so they act.
CLIPS = {"reward_clip": 2.0, "cost_clip": 1.5, "dual_cap": 4.0}
THEIRS = {"reward_bound": 2.0, "cost_bound": 1.5, "cap": 4.0}


def doubled(strategy: str, keep_data: bool, divisor: float | None = None) -> Callable[..., bandit.Replay]:
    inner = functools.partial(policies.cbo, strategy=strategy, divisor=divisor, **THEIRS)
    return replayed(functools.partial(policies.anytime, inner), keep_data=keep_data)


def epochs(function: Callable[..., bandit.Replay], **parameters: Any) -> Callable[..., bandit.Replay]:
    return replayed(function, **({"epoch": 7} | parameters))


EXP, POLY = penalties.Exponential(c=0.7), penalties.Polynomial(c=0.5, n=1.5)
PSI_EXP, PSI_POLY = policies.exponential(0.7), policies.polynomial(0.5, 1.5)
FLAT = {"width": lambda gain: BETA[0]}
FLAT3 = {"width": lambda gain, factor: BETA[0]}

CASES: dict[str, Case] = {
    "igp-ucb": Case(2, lambda s: Unconstrained(estimator=s), replayed(policies.unconstrained, strategy="bounds"), improved=True),
    "gp-ts": Case(1, lambda s: Unconstrained(estimator=s), replayed(policies.unconstrained, strategy="thompson"), "thompson"),
    "randgp-ucb": Case(1, lambda s: Unconstrained(estimator=s), replayed(policies.unconstrained, strategy="randomised"), "randomised"),
    "rpol-ucb": Case(2, lambda s: Rpol(estimator=s), replayed(policies.rpol, strategy="bounds")),
    "rpol-ts": Case(2, lambda s: Rpol(estimator=s), replayed(policies.rpol, strategy="thompson"), "thompson", improved=True),
    "rpol-rand": Case(
        2,
        lambda s: Rpol(estimator=s, initial_penalty=2.0, penalty_growth=0.5),
        replayed(policies.rpol, strategy="randomised", first=2.0, growth=0.5),
        "randomised",
        estimators.DiscreteUniform(points=5),
    ),
    "cbo-ucb": Case(2, lambda s: Cbo(estimator=s, **CLIPS), replayed(policies.cbo, strategy="bounds", **THEIRS), improved=True),
    "cbo-ts": Case(2, lambda s: Cbo(estimator=s, **CLIPS), replayed(policies.cbo, strategy="thompson", **THEIRS), "thompson"),
    "cbo-rand": Case(
        1,
        lambda s: Cbo(estimator=s, step_divisor=3.0, **CLIPS),
        replayed(policies.cbo, strategy="randomised", divisor=3.0, **THEIRS),
        "randomised",
        estimators.DiscreteGaussian(low=-1.0, high=2.0, points=7),
    ),
    "scgp-1": Case(2, lambda s: Scgp(estimator=s, reward_clip=1.5, slater=0.4), scgp("bounds", 1), improved=True, problem="shared"),
    "scgp-2": Case(2, lambda s: Scgp(estimator=s, reward_clip=1.5, slater=0.4, schedule=2), scgp("bounds", 2), problem="independent"),
    "scgp-ts": Case(
        2, lambda s: Scgp(estimator=s, reward_clip=1.5, slater=0.4, schedule=2), scgp("thompson", 2), "thompson", problem="shared"
    ),
    "se2-exp": Case(
        1, lambda s: Se2(estimator=s, psi=EXP, epoch=7), epochs(policies.se2, psi=PSI_EXP, restart=False, **FLAT), problem="noiseless"
    ),
    "se2-exp-restart": Case(
        2,
        lambda s: Se2(estimator=s, psi=EXP, epoch=7, restart=True),
        epochs(policies.se2, psi=PSI_EXP, restart=True, width=theory),
        improved=True,
        problem="noiseless",
    ),
    "se2-poly": Case(
        2,
        lambda s: Se2(estimator=s, psi=POLY, epoch=7),
        epochs(policies.se2, psi=PSI_POLY, restart=False, width=theory),
        improved=True,
        problem="noiseless",
    ),
    "se2-poly-restart": Case(
        1,
        lambda s: Se2(estimator=s, psi=POLY, epoch=7, restart=True),
        epochs(policies.se2, psi=PSI_POLY, restart=True, **FLAT),
        problem="noiseless",
    ),
    "se2-ts": Case(
        2,
        lambda s: Se2(estimator=s, psi=POLY, epoch=7),
        epochs(policies.se2, psi=PSI_POLY, restart=False, strategy="thompson", **FLAT),
        "thompson",
        problem="noiseless",
    ),
    "se3": Case(2, lambda s: Se3(estimator=s, epoch=7, step=1.5), epochs(policies.se3, step=1.5, restart=False, **FLAT3)),
    "se3-restart": Case(
        1, lambda s: Se3(estimator=s, epoch=7, step=1.5, restart=True), epochs(policies.se3, step=1.5, restart=True, **FLAT3)
    ),
    "se3-improved": Case(
        1, lambda s: Se3(estimator=s, epoch=7, step=1.5), epochs(policies.se3, step=1.5, restart=False, width=theory), improved=True
    ),
    "se3-improved-restart": Case(
        2,
        lambda s: Se3(estimator=s, epoch=7, step=1.5, restart=True),
        epochs(policies.se3, step=1.5, restart=True, width=theory),
        improved=True,
    ),
    "se3-rand": Case(
        2,
        lambda s: Se3(estimator=s, epoch=7, step=1.5),
        epochs(policies.se3, step=1.5, restart=False, width=theory, strategy="randomised"),
        "randomised",
        improved=True,
    ),
    "epbo": Case(
        3,
        lambda s: Epbo(estimator=s, penalty=np.array([0.5, 2.0, 6.0])),
        replayed(policies.epbo, strategy="bounds", penalty=np.array([0.5, 2.0, 6.0])),
    ),
    "epbo-ts": Case(
        2, lambda s: Epbo(estimator=s, penalty=3.0), replayed(policies.epbo, strategy="thompson", penalty=np.full(2, 3.0)), "thompson"
    ),
    "anytime-cbo": Case(1, lambda s: Anytime(algorithm=Cbo(estimator=s, **CLIPS)), doubled("bounds", keep_data=False), improved=True),
    "anytime-cbo-keep": Case(2, lambda s: Anytime(algorithm=Cbo(estimator=s, **CLIPS), keep_data=True), doubled("bounds", keep_data=True)),
    "anytime-cbo-ts": Case(
        2,
        lambda s: Anytime(algorithm=Cbo(estimator=s, step_divisor=3.0, **CLIPS)),
        doubled("thompson", keep_data=False, divisor=3.0),
        "thompson",
    ),
}
EPOCHS = [name for name in CASES if name.startswith("se")]
# An algorithm sees means, deviations and gains, whatever form gives them; forms and precisions are the surrogates' own tests. Every case is
# played by the engine in one form and precision, dealt in turn; cases on problems of one shape, which may differ in their noise, share a
# program. One case of each algorithm and of each strategy is played on the reference's beliefs, too, in the quick ring; what else is asked
# of a case is asked of that run, and in the full ring of the engine's for the other cases, whose steps nobody need compile.
# These are the forms of problems of one shape.
FORMS = {
    (1, "hidden"): ("features", "float64"),
    (2, "hidden"): ("product", "float64"),
    (3, "hidden"): ("rows", "float32"),
    (2, "shared"): ("features", "float64"),
    (2, "independent"): ("features", "float32"),
}


def shape_of(name: str) -> tuple[int, str]:
    """Return a case's number of constraints, and its samples."""
    kind = CASES[name].problem
    return CASES[name].constraints, kind if kind in ("shared", "independent") else "hidden"


ENGINE = [(name, *FORMS[shape_of(name)]) for name in CASES]
QUICK = ["igp-ucb", "rpol-ucb", "rpol-rand", "cbo-ts", "scgp-1", "se2-poly", "se2-poly-restart", "se3", "epbo", "anytime-cbo-keep"]
STEPS = [(name, "known", "float64") for name in QUICK]
RUNS = [pytest.param(*run, id="-".join(run), marks=() if run in STEPS else pytest.mark.full) for run in STEPS + ENGINE]


def at_hand(name: str) -> tuple[str, str]:
    """Return form and precision of a run that another test plays."""
    return ("known", "float64") if name in QUICK else FORMS[shape_of(name)]


def marked(name: str, *given: str) -> Any:
    """Return a test's parameters, full where the engine runs."""
    return pytest.param(*(given or (name,)), marks=() if name in QUICK else pytest.mark.full)


@functools.cache
def problem_of(constraints: int, kind: str) -> Any:
    """Return smooth functions whose constraints grow with the reward.

    The constraints bind, and 40% of the points satisfy each.
    """
    rng = np.random.default_rng(zlib.crc32(f"{constraints}".encode()))
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], SIDE)
    points = np.asarray(domain.points)
    reward, *costs = gp.random_functions(gp.squared_exponential(points, points, LENGTH_SCALE), 1 + constraints, rng)
    costs = [0.8 * reward + 0.6 * cost for cost in costs]
    tables = np.stack([cost - np.quantile(cost, 0.4) for cost in costs])
    variance = np.array([NOISE] + [0.0 if kind == "noiseless" else NOISE] * constraints)
    problem = problems.from_tables(domain, reward, tables, noise=problems.Gaussian(variance=variance))
    return problems.full_information(problem, noise=kind) if kind in ("shared", "independent") else problem


def believed(case: Case, form: str) -> bandit.Model:
    """The reference's model of a case."""
    points = np.asarray(problem_of(case.constraints, case.problem).domain.points)
    gram = KERNEL[form][1](points, points, LENGTH_SCALE)
    outputs = 1 + case.constraints
    width = bandit.improved_gp_ucb(NORM, SCALE, DELTA, 1.0) if case.improved else bandit.constant(BETA[:outputs])
    return bandit.Model(grams=np.stack([gram] * outputs), noise=np.full(outputs, NOISE), prior_mean=PRIOR_MEAN[:outputs], width=width)


PRIOR_MEAN = np.array([0.3, -0.2, 0.1, 0.0])


@dataclass(frozen=True)
class Run:
    """A recorded run, and what SCGP-UCB saw."""

    trajectory: jaxbandit.Trajectory
    records: list[bandit.Record]
    draws: list[np.ndarray | None]
    samples: list[np.ndarray | None]


@functools.cache
def played(names: tuple[str, ...], kind: str, form: str, precision: str, initial: tuple[int, ...]) -> dict[str, jaxbandit.Trajectory]:
    """Return trajectories of several cases from one program."""
    case = CASES[names[0]]
    problem, outputs = problem_of(case.constraints, kind), 1 + case.constraints
    if form == "known":
        algorithms = {name: CASES[name].build(strategy_of(CASES[name])) for name in names}
        return steps.play(
            problem, algorithms, believed(case, form), own_model(case.constraints), horizon=HORIZON, trials=TRIALS, key=KEY, initial=initial
        )
    with jax.enable_x64(precision == "float64"):
        surrogate = jaxbandit.surrogate(
            problem.domain,
            KERNEL[form][0](length_scale=LENGTH_SCALE),
            noise_variance=NOISE,
            prior_mean=PRIOR_MEAN[:outputs],
            outputs=outputs,
            form=form,
            horizon=HORIZON + len(initial),
        )
        algorithms = {name: CASES[name].build(strategy_of(CASES[name])) for name in names}
        design = jaxbandit.InitialDesign(indices=np.array(initial)) if initial else None
        options = {"horizon": HORIZON, "trials": TRIALS, "key": KEY, "record": "audit", "initial": design}
        if len(names) > 1:
            return panel.play(problem, algorithms, surrogate, **options)
        # Branches of rows differ in a batch.
        block = None if form == "rows" else 1
        return {names[0]: jax.tree.map(np.asarray, jaxbandit.simulate(problem, algorithms[names[0]], surrogate, block=block, **options))}


@functools.cache
def own_model(constraints: int) -> jaxbandit.Surrogate:
    """Return the model for algorithms, when beliefs are the reference's."""
    with jax.enable_x64(True):
        kernel, options = kernels.SquaredExponential(length_scale=LENGTH_SCALE), {"outputs": 1 + constraints, "form": "features"}
        return jaxbandit.surrogate(problem_of(constraints, "noisy").domain, kernel, noise_variance=NOISE, **options)


DESIGN = (3, 40, 77, 22, 22, 65)
# These know the design in every round of their steps.
KNOWING = ["igp-ucb", "cbo-ts", "scgp-1", "se2-poly", "se3", "anytime-cbo-keep"]
STARTING_AFRESH = ["se2-poly-restart", "se3-restart", "anytime-cbo"]


def trajectory(name: str, form: str, precision: str, initial: tuple[int, ...] = ()) -> jaxbandit.Trajectory:
    """Return the case's trajectory, by its steps or a shared program."""
    names = [name] if form == "known" else [other for other in CASES if shape_of(other) == shape_of(name)]
    return played(tuple(names), CASES[name].problem, form, precision, initial)[name]


def recorded(name: str, form: str, precision: str) -> Run:
    """Return the case's trials."""
    return trials_of(name, form, precision, DESIGN if form == "known" and name in KNOWING else ())


@functools.cache
def trials_of(name: str, form: str, precision: str, initial: tuple[int, ...]) -> Run:
    """The case's trials, with draws and constraint samples, in float64 NumPy."""
    problem, whole = problem_of(CASES[name].constraints, CASES[name].problem), trajectory(name, form, precision, initial)
    assert whole.values.dtype == precision
    with jax.enable_x64(precision == "float64"):
        samples = [shown(problem, b) if problem.reveals_constraints else None for b in range(TRIALS)]
    records = [
        bandit.Record(
            indices=whole.indices[b],
            values=whole.values[b].astype(np.float64),
            initial_indices=whole.initial_indices[b],
            initial_values=whole.initial_values[b].astype(np.float64),
        )
        for b in range(TRIALS)
    ]
    draws = [None if whole.draws is None else whole.draws[b].astype(np.float64) for b in range(TRIALS)]
    return Run(trajectory=whole, records=records, draws=draws, samples=samples)


def shown(problem: problems.FullInformation, trial: int) -> np.ndarray:
    """Return the constraint functions ``[T, m, M]`` shown in a trial."""
    return np.asarray(all_shown(jaxbandit.canonicalise(problem), np.int32(trial)), np.float64)


@jax.jit
def all_shown(problem: problems.FullInformation, trial: jax.Array) -> jax.Array:
    stream, rounds = stream_key(trial_key(KEY, trial), Stream.NOISE), jnp.arange(1, HORIZON + 1, dtype=jnp.int32)
    return jax.vmap(lambda t: problem.constraint_sample(problem.draw(round_key(stream, t))))(rounds)


def replay(name: str, form: str, run: Run, trial: int) -> bandit.Replay:
    """A trial's replay."""
    case = CASES[name]
    return case.replay(believed(case, form), run.records[trial], draws=run.draws[trial], samples=run.samples[trial])


def multiplier_errors(theirs: np.ndarray, ours: np.ndarray) -> np.ndarray:
    assert ours.shape == theirs.shape
    return (np.abs(ours - theirs) / np.maximum(1, np.abs(theirs))).max(-1)


def neighbours(indices: np.ndarray) -> np.ndarray:
    return np.where(indices % SIDE > 0, indices - 1, indices + 1)


@pytest.mark.parametrize(("name", "form", "precision"), RUNS)
def test_every_round_is_the_papers(name: str, form: str, precision: str) -> None:
    run, tolerance = recorded(name, form, precision), TOLERANCE[precision]
    for b, record in enumerate(run.records):
        expected = replay(name, form, run, b)
        gaps = bandit.score_gaps(expected.scores, record.indices)
        assert gaps.max() <= tolerance, f"trial {b}, round {gaps.argmax() + 1}: short of the best by {gaps.max():.3g}"
        error = multiplier_errors(expected.multipliers, np.asarray(run.trajectory.multipliers[b], np.float64))
        # Another test checks the rounds of restarts.
        if name.startswith("anytime"):
            error[policies.stretch_starts(HORIZON) - 1] = 0
        assert error.max() <= tolerance, f"trial {b}, round {error.argmax() + 1}: multipliers off by {error.max():.3g}"
        widths = np.asarray(run.trajectory.widths[b], np.float64)
        if name in EPOCHS and not name.startswith("scgp"):
            # The combination's widths count, and the constraints' are unused.
            widths = widths[:, :1]
        np.testing.assert_allclose(widths, expected.widths, rtol=tolerance, atol=0)
        # The scores are not so flat that any point would pass, a neighbour, say.
        assert np.mean(bandit.score_gaps(expected.scores, neighbours(record.indices)) > tolerance) > 0.5


@pytest.mark.parametrize("name", [marked(name) for name in CASES if CASES[name].problem in ("shared", "independent")])
def test_what_is_shown_is_what_is_paid(name: str) -> None:
    """Only independent noise differs between points."""
    form, precision = at_hand(name)
    run, rounding = recorded(name, form, precision), {"float32": 1e-6, "float64": 1e-12}[precision]
    means = np.asarray(problem_of(CASES[name].constraints, CASES[name].problem).means)[1:]
    for record, samples in zip(run.records, run.samples, strict=True):
        paid = samples[np.arange(HORIZON), :, record.indices]
        np.testing.assert_allclose(record.values[:, 1:], paid, rtol=0, atol=rounding)
        noise = samples - means
        spread = noise.std(-1)
        assert np.all(spread < rounding) if CASES[name].problem == "shared" else np.all(spread > 0.1)
        # The noise has variance 0.05. The mean square of at least 38 numbers lies within 5 standard errors.
        independent = noise[..., 0].ravel()
        assert abs(np.mean(independent**2) / NOISE - 1) < 5 * np.sqrt(2 / independent.size)


def test_config_with_several_constraints() -> None:
    """Three constraints have different widths."""
    model = believed(Case(3, Config, policies.epbo), "known")
    learner = Config(estimator=estimators.Bounds(reward_width=BETA[0], cost_width=BETA[1:]))
    options = {"horizon": HORIZON, "trials": TRIALS, "key": KEY}
    run = steps.play(problem_of(3, "noisy"), {"config": learner}, model, own_model(3), **options)["config"]
    active = np.zeros(3)
    for b in range(TRIALS):
        record = bandit.Record(
            indices=run.indices[b], values=run.values[b], initial_indices=np.zeros(0, int), initial_values=np.zeros((0, 4))
        )
        expected = ucb_policies.config(model, record)
        assert ucb_policies.config_faults(expected, record.indices, int(run.declared_round[b]), TOLERANCE["float64"]) == []
        np.testing.assert_allclose(run.widths[b], expected.widths, rtol=TOLERANCE["float64"])
        others = np.stack([np.delete(expected.lcb, j, 1).max(1) <= 0 for j in range(3)], 1)
        active += np.any(others & (expected.lcb > 0), axis=(0, 2))
        # Neighbours, a declaration and the best point without constraints break the rule.
        assert len(ucb_policies.config_faults(expected, neighbours(record.indices), 0, 1e-3)) > 0.7 * HORIZON
        assert any("declared" in fault for fault in ucb_policies.config_faults(expected, record.indices, 7, 1e-3))
        assert ucb_policies.config_faults(expected, expected.ucb.argmax(1), 0, 1e-3) != []
    assert np.all(active > 0), "each constraint rules out points that the others allow"


# The checks above are sharp: the same runs do not pass for what they are not.
WRONG: dict[str, tuple[str, Callable[..., bandit.Replay]]] = {
    "pessimism": ("igp-ucb", lambda m, r, draws, samples: policies.unconstrained(flipped(m), r, strategy="bounds")),
    "unsigned draw": (
        "cbo-rand",
        lambda m, r, draws, samples: policies.cbo(m, r, strategy="randomised", draws=abs(draws), divisor=3.0, **THEIRS),
    ),
    "one draw for all": (
        "rpol-rand",
        lambda m, r, draws, samples: policies.rpol(m, r, strategy="randomised", draws=draws[:, :1] + 0 * draws, first=2.0, growth=0.5),
    ),
    "draw of another round": (
        "cbo-ts",
        lambda m, r, draws, samples: policies.cbo(m, r, strategy="thompson", draws=np.roll(draws, 1, axis=0), **THEIRS),
    ),
    "no clip": (
        "cbo-ts",
        lambda m, r, draws, samples: policies.cbo(m, r, strategy="thompson", draws=draws, **(THEIRS | {"reward_bound": 99.0})),
    ),
    "other schedule": ("scgp-2", scgp("bounds", 1)),
    "mean in place of sample": ("scgp-2", lambda m, r, draws, samples: scgp("bounds", 2)(m, r, draws, 0 * samples + samples.mean(0))),
    "re-use": ("se2-exp-restart", epochs(policies.se2, psi=PSI_EXP, restart=False, width=theory)),
    "no re-use": ("se2-exp", epochs(policies.se2, psi=PSI_EXP, restart=True, **FLAT)),
    "other psi": ("se2-poly", epochs(policies.se2, psi=policies.polynomial(0.5, 1.3), restart=False, width=theory)),
    "other epoch": ("se3", epochs(policies.se3, epoch=6, step=1.5, restart=False, **FLAT3)),
    "other step": ("se3", epochs(policies.se3, step=1.4, restart=False, **FLAT3)),
    "no re-use in 3": ("se3-improved", epochs(policies.se3, step=1.5, restart=True, width=theory)),
    "linear penalty, positive part": ("se3", lambda m, r, draws, samples: positive_part(m, r)),
    "one penalty for all": ("epbo", replayed(policies.epbo, strategy="bounds", penalty=np.full(3, 2.0))),
    "kept data": ("anytime-cbo", doubled("bounds", keep_data=True)),
    "lost data": ("anytime-cbo-keep", doubled("bounds", keep_data=False)),
    "no restart": ("anytime-cbo-keep", replayed(policies.cbo, strategy="bounds", **THEIRS)),
}


def flipped(model: bandit.Model) -> bandit.Model:
    return bandit.Model(grams=model.grams, noise=model.noise, prior_mean=model.prior_mean, width=lambda t, gain: -model.width(t, gain))


def positive_part(model: bandit.Model, record: bandit.Record) -> bandit.Replay:
    """Algorithm 3 as if the penalty were the observed violation."""
    values = np.concatenate([record.values[:, :1], np.maximum(record.values[:, 1:], 0)], axis=1)
    changed = bandit.Record(
        indices=record.indices, values=values, initial_indices=record.initial_indices, initial_values=record.initial_values
    )
    return policies.se3(model, changed, step=1.5, epoch=7, restart=False, **FLAT3)


@pytest.mark.parametrize("what", [marked(WRONG[what][0], what) for what in WRONG])
def test_the_check_sees_another_algorithm(what: str) -> None:
    name, wrong = WRONG[what]
    form, precision = at_hand(name)
    run = recorded(name, form, precision)
    worst = 0.0
    for b, record in enumerate(run.records):
        other = wrong(believed(CASES[name], form), record, draws=run.draws[b], samples=run.samples[b])
        worst = max(worst, bandit.score_gaps(other.scores, record.indices).max())
    assert worst > TOLERANCE["float32"]


@pytest.mark.full
def test_the_width_grows_with_the_combined_noise() -> None:
    """Algorithm 3's theory width grows once ``kappa > 0``."""
    for name in ("se3-improved", "se3-improved-restart", "se3-rand"):
        form, precision = at_hand(name)
        run = recorded(name, form, precision)
        for b, record in enumerate(run.records):
            plain = policies.se3(
                believed(CASES[name], form),
                record,
                step=1.5,
                epoch=7,
                restart="restart" in name,
                width=lambda gain, factor: theory(gain),
                strategy=CASES[name].strategy,
                draws=run.draws[b],
            )
            kappa = plain.multipliers[:-1]
            assert np.any(kappa > 0.2)
            ours = np.asarray(run.trajectory.widths[b, :, :1])
            np.testing.assert_allclose(ours[:7], plain.widths[:7], rtol=1e-8)
            assert np.all((ours > 1.002 * plain.widths)[np.any(kappa > 0.2, axis=1)])


@pytest.mark.parametrize("name", [marked(name) for name in CASES])
def test_the_cases_exercise_what_they_should(name: str) -> None:
    """Penalties move, and clips and caps act without cutting everything."""
    case, run = CASES[name], recorded(name, *at_hand(name))
    moved = np.ptp(run.trajectory.multipliers, axis=1)
    none = name.startswith(("igp", "gp", "rand", "epbo"))
    assert np.all(moved == 0) if none else np.all(moved.max(-1) > 0.05)
    # A clip that cuts every estimate is possible in CBO with a large draw before any data.
    assert np.all(run.trajectory.status & ~int(jaxbandit.Status.ALL_CLIPPED) == 0)
    if case.strategy == "bounds":
        assert run.draws[0] is None
    else:
        functions = 1 if name.startswith(("se2", "se3")) else 1 + case.constraints
        size = (SIDE**2,) if case.strategy == "thompson" else ()
        assert run.draws[0].shape == (HORIZON, functions, *size)


@pytest.mark.full
@pytest.mark.parametrize("name", [name for name in CASES if CASES[name].strategy == "thompson" and not name.startswith(("se2", "anytime"))])
def test_draws_inside_runs_have_the_posteriors_law(name: str) -> None:
    """Whitened draws of every round are independent standard normals.

    Given the past every number is a standard normal independent of the ones before, so sums over rounds have standard errors at once.
    """
    form, precision = FORMS[shape_of(name)]
    run, model = recorded(name, form, precision), believed(CASES[name], form)
    rounds = [policies.whitened(model, record, draws) for record, draws in zip(run.records, run.draws, strict=True)]
    z = np.concatenate([x for trial in rounds for x in trial])
    assert z.size > 5000
    assert abs(z.mean()) < 5 / np.sqrt(z.size)
    assert abs(np.mean(z**2) - 1) < 5 * np.sqrt(2 / z.size)
    # The variance of z^4 is 105 - 9.
    assert abs(np.mean(z**4) - 3) < 5 * np.sqrt(96 / z.size)
    outputs = 1 + CASES[name].constraints
    pairs = [(trial[i], trial[i + 1]) for trial in rounds for i in range(len(trial) - 1)]
    # Neighbours in the list belong to other outputs or other rounds.
    product = np.concatenate([a[: len(b)] * b[: len(a)] for a, b in pairs])
    assert abs(product.mean()) < 5 / np.sqrt(product.size)
    assert all(len(trial) == outputs * HORIZON for trial in rounds)


@pytest.mark.parametrize("name", [marked(name) for name in CASES if name.startswith("anytime")])
def test_anytime_records_the_multipliers_in_force(name: str) -> None:
    """After a restart they are the fresh ones."""
    form, precision = at_hand(name)
    run = recorded(name, form, precision)
    for b in range(TRIALS):
        expected = replay(name, form, run, b).multipliers
        np.testing.assert_allclose(run.trajectory.multipliers[b], expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", [marked(name) for name in STARTING_AFRESH])
def test_a_fresh_start_at_round_1_does_not_forget_the_initial_design(name: str) -> None:
    """Nothing is forgotten before the first stretch."""
    form = "known"
    run = trials_of(name, form, "float64", DESIGN)
    first = 1 if name.startswith("anytime") else 7
    for b, record in enumerate(run.records):
        gaps = bandit.score_gaps(replay(name, form, run, b).scores, record.indices)[:first]
        assert gaps.max() <= TOLERANCE["float64"], f"trial {b}, round {gaps.argmax() + 1}: short of the best by {gaps.max():.3g}"


def test_anytime_shows_a_full_information_algorithm_its_samples() -> None:
    """SCGP-UCB inside Anytime sees samples, or the pair is refused."""
    problem = problem_of(2, "shared")
    with jax.enable_x64(True):
        kernel = kernels.Matern52(length_scale=LENGTH_SCALE)
        surrogate = jaxbandit.surrogate(problem.domain, kernel, noise_variance=NOISE, outputs=3, form="features")
        learner = Anytime(algorithm=Scgp(estimator=estimators.Bounds(reward_width=2.0), reward_clip=1.5, slater=0.4))
        try:
            run = jaxbandit.simulate(problem, learner, surrogate, horizon=HORIZON, trials=1, key=KEY, block=1)
        except jaxbandit.InvalidArgument:
            return
        samples = shown(problem, 0)
    record = bandit.Record(
        indices=np.asarray(run.indices)[0],
        values=np.asarray(run.values)[0],
        initial_indices=np.zeros(0, int),
        initial_values=np.zeros((0, 3)),
    )
    model = bandit.Model(
        grams=np.stack([gp.matern52(np.asarray(problem.domain.points), np.asarray(problem.domain.points), LENGTH_SCALE)] * 3),
        noise=np.full(3, NOISE),
        prior_mean=np.zeros(3),
        width=bandit.constant(2.0),
    )

    def inner(model: bandit.Model, stretch: bandit.Record, draws: Any, horizon: int) -> bandit.Replay:
        rounds = slice(horizon - 1, horizon - 1 + len(stretch.indices))
        return policies.scgp(model, stretch, strategy="bounds", samples=samples[rounds], bound=1.5, slater=0.4, schedule=1)

    gaps = bandit.score_gaps(policies.anytime(inner, model, record, keep_data=False).scores, record.indices)
    assert gaps.max() <= TOLERANCE["float64"], f"round {gaps.argmax() + 1}: short of the best by {gaps.max():.3g}"
