"""Safe algorithms with each rule of safe sets, and the rules' promises."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import CSafeOpt, Goose, MSafeOpt, SafeOpt, SgpUcb, StageOpt, Status, domains, estimators, kernels, problems, safety
from jaxbandit.algorithms import Arena
from jaxbandit.core.checks import InvalidArgument
from tests.oracles import bandit, csafeopt, goose, msafeopt, safe_rules
from tests.oracles import gaussian_process as gp
from tests.support import steps

SIDE, HORIZON, TRIALS, NOISE, LENGTH_SCALE = 7, 20, 2, 0.02, 0.4
WIDTHS = estimators.Bounds(reward_width=1.5, cost_width=1.0)
# These points have the least value of the first axis.
SEEDS = np.arange(SIDE)
BOUND = np.full((2, 1), 0.05)
CONFORMAL = {"alpha": 0.6, "eta": 0.5, "w_max": 2.0, "w_1": 1.0, "omega": 0.1}


@functools.cache
def problem_of() -> problems.Problem:
    """Return smooth functions with constraints that grow along the first axis."""
    domain, rng = domains.grid([0.0, 0.0], [1.0, 1.0], SIDE), np.random.default_rng(2)
    points = np.asarray(domain.points)
    tables = gp.random_functions(gp.squared_exponential(points, points, LENGTH_SCALE), 3, rng)
    costs = 0.15 * tables[1:] + 1.4 * points[:, 0] - 0.8
    return problems.from_tables(domain, tables[0], costs, noise=problems.Uniform(half_width=0.05))


@functools.cache
def constants() -> np.ndarray:
    """The least Lipschitz constant of each constraint on the grid."""
    points, costs = np.asarray(problem_of().domain.points), np.asarray(problem_of().means)[1:]
    away = safe_rules.distances(points) + np.eye(len(points))
    return np.max(np.abs(costs[:, :, None] - costs[:, None, :]) / away, axis=(1, 2))


def rules() -> dict[str, tuple[safety.SafeSet, dict[str, Any]]]:
    lipschitz = safety.Lipschitz(constant=constants(), noise_bound=0.05)
    conformal = safety.Conformal(**{name: value for name, value in CONFORMAL.items() if name != "omega"}, noise_bound=0.1)
    balls = {"constant": constants(), "bound": BOUND}
    return {
        "confidence": (safety.Confidence(), {}),
        "lipschitz": (lipschitz, {"rule": "lipschitz", "how": balls}),
        "conformal": (conformal, {"rule": "conformal", "how": CONFORMAL}),
        "monotone": (safety.Monotone(axis="x1"), {"rule": "monotone", "how": {"axis": 0, "rule": "confidence"}}),
        "monotone-lipschitz": (
            safety.Monotone(axis=0, rule=lipschitz),
            {"rule": "monotone", "how": balls | {"axis": 0, "rule": "lipschitz"}},
        ),
    }


def one_by_one(score: Any) -> Any:
    return lambda model, record, **told: np.stack([score(known, safe) for known, safe in safe_rules.rounds(model, record, **told)])


CASES: dict[str, tuple[Any, str, Any, dict[str, Any]]] = {
    "csafeopt": (CSafeOpt(epsilon=0.3, zeta=0.05), "confidence", csafeopt.scores, {"epsilon": 0.3, "zeta": 0.05}),
    "csafeopt-lipschitz": (CSafeOpt(epsilon=0.3), "lipschitz", csafeopt.scores, {"epsilon": 0.3}),
    "csafeopt-conformal": (CSafeOpt(epsilon=0.3), "conformal", csafeopt.scores, {"epsilon": 0.3}),
    "goose": (Goose(lipschitz=[2.0, 3.0]), "confidence", goose.scores, {"lipschitz": [2.0, 3.0]}),
    "goose-monotone": (Goose(lipschitz=2.0, epsilon=0.2), "monotone", goose.scores, {"lipschitz": 2.0, "epsilon": 0.2}),
    "msafeopt": (MSafeOpt(slope=0.8), "confidence", msafeopt.scores, {"slope": 0.8}),
    "msafeopt-each": (MSafeOpt(axis="x1", rise=2.0, each=True), "confidence", msafeopt.scores, {"rise": 2.0, "each": True}),
    "msafeopt-monotone": (MSafeOpt(slope=0.8), "monotone-lipschitz", msafeopt.scores, {"slope": 0.8}),
    "sgpucb-conformal": (SgpUcb(warm_up=0.0), "conformal", one_by_one(safe_rules.sgp_ucb), {}),
    "sgpucb-monotone": (SgpUcb(warm_up=0.0), "monotone", one_by_one(safe_rules.sgp_ucb), {}),
    "safeopt-lipschitz": (SafeOpt(), "lipschitz", one_by_one(lambda k, s: safe_rules.safeopt(k, s, constants())), {}),
    "stageopt-lipschitz": (StageOpt(exploration=0.0), "lipschitz", one_by_one(safe_rules.sgp_ucb), {}),
}


@functools.cache
def model_of() -> bandit.Model:
    points = np.asarray(problem_of().domain.points)
    gram = gp.matern52(points, points, LENGTH_SCALE)
    return bandit.Model(grams=np.stack([gram] * 3), noise=np.full(3, NOISE), prior_mean=np.zeros(3), width=bandit.constant(1.0))


@functools.cache
def played(name: str) -> jaxbandit.Trajectory:
    domain = problem_of().domain
    with jax.enable_x64(True):
        own = jaxbandit.surrogate(domain, kernels.Matern52(length_scale=LENGTH_SCALE), noise_variance=NOISE, outputs=3, form="features")
    kind, rule, _, _ = CASES[name]
    given = {name: jaxbandit.replace(kind, estimator=WIDTHS, safety=rules()[rule][0], seeds=None if "msafe" in name else SEEDS)}
    options: dict[str, Any] = {"horizon": HORIZON, "trials": TRIALS, "key": jax.random.key(3), "initial": (3, 0)}
    return steps.play(problem_of(), given, model_of(), own, **options)[name]


def scores_of(name: str, trial: int, **changes: Any) -> tuple[bandit.Record, np.ndarray]:
    run, (_, rule, scores, told) = played(name), CASES[name]
    record = bandit.Record(run.indices[trial], run.values[trial], run.initial_indices[trial], run.initial_values[trial])
    known = bandit.Model(model_of().grams, model_of().noise, model_of().prior_mean, lambda t, gain: run.widths[trial][t - 1])
    seeds = {} if "msafe" in name else {"seeds": SEEDS}
    return record, scores(known, record, **(seeds | rules()[rule][1] | told | changes))


# Cases of other rules and algorithms are like these.
QUICK = (
    "csafeopt",
    "csafeopt-lipschitz",
    "goose",
    "msafeopt",
    "msafeopt-monotone",
    "sgpucb-conformal",
    "sgpucb-monotone",
    "safeopt-lipschitz",
)


@pytest.mark.parametrize("name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.full) for name in CASES])
def test_every_choice_is_the_best_of_its_set(name: str) -> None:
    for trial in range(TRIALS):
        record, scores = scores_of(name, trial)
        assert bandit.score_gaps(scores, record.indices).max() < 1e-8
        if CASES[name][1] == "conformal":
            widths = safe_rules.conformal_widths(record.values[:, 1:], **CONFORMAL, horizon=HORIZON)
            np.testing.assert_allclose(played(name).widths[trial][:, 1], widths[:-1], atol=1e-12)
    run = played(name)
    assert np.all(jaxbandit.metrics.healthy(run.status)) and len(np.unique(run.indices)) > 1
    assert not set(np.unique(run.indices)) <= set(SEEDS), "the safe set grew"


WRONG = {
    "other threshold": ("csafeopt", {"epsilon": 0.6}),
    "no safe set": ("csafeopt", {"seeds": np.arange(SIDE**2)}),
    "another rule of sets": ("csafeopt-lipschitz", {"rule": "confidence"}),
    "other constant": ("goose", {"lipschitz": 6.0}),
    "other slope": ("msafeopt", {"slope": 8.0}),
    "other rise": ("msafeopt", {"rise": 0.0}),
    "second form": ("msafeopt", {"each": True}),
    "other axis": ("sgpucb-monotone", {"how": {"axis": 1, "rule": "confidence"}}),
}


@pytest.mark.parametrize("what", WRONG)
def test_the_check_sees_another_rule(what: str) -> None:
    name, changes = WRONG[what]
    gaps = [bandit.score_gaps(scores, record.indices).max() for record, scores in (scores_of(name, trial, **changes) for trial in range(2))]
    assert max(gaps) > 1e-3


# Promises of the rules.


@jaxbandit.pytree
class Waves(problems.Family):
    """Sines as constraints, with slopes up to 6."""

    domain: Any
    noise: Any
    name: str = jaxbandit.static(default="waves")
    constraints = 1

    def sample(self, key: jax.Array) -> problems.Problem:
        w, p, c = jax.random.uniform(key, (3,), minval=jnp.array([1.0, 0.0, -0.6]), maxval=jnp.array([6.0, 6.3, 0.6]))
        x = jnp.asarray(self.domain.points)[:, 0]
        return problems.Problem(domain=self.domain, means=jnp.stack([x, jnp.sin(w * x + p) + c]), noise=self.noise)


@functools.cache
def unsafe_in_waves(constant: float) -> tuple[np.ndarray, np.ndarray]:
    """Return unsafe trials with a safe seed, and their numbers of points."""
    domain = domains.grid([0.0], [3.0], 120)
    family = Waves(domain=domain, noise=problems.Uniform(half_width=0.05))
    # The model is sure of wrong things: intervals of the constraint are a hundredth of its deviations.
    model = jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=1.0), noise_variance=1e-3, outputs=2)
    narrow = estimators.Bounds(reward_width=3.0, cost_width=0.01)
    rule, seeds = safety.Lipschitz(constant=constant, noise_bound=0.05), jaxbandit.informed.SafestSeeds(count=1)
    run = jaxbandit.simulate(
        family, SgpUcb(estimator=narrow, warm_up=0.0, safety=rule), model, horizon=30, trials=200, key=1, informed=seeds, record="indices"
    )
    violation = run.to_xarray(family).hard_violation.isel(algorithm=0, round=-1).values
    safe = np.asarray(run.status) & int(Status.NO_FEASIBLE_POINT) == 0
    return violation[safe] > 0, np.array([len(np.unique(row)) for row in np.asarray(run.indices)[safe]])


@pytest.mark.filterwarnings("ignore:simulate")
def test_a_lipschitz_set_is_safe_whatever_the_model() -> None:
    unsafe, points = unsafe_in_waves(6.0)
    assert not unsafe.any() and (points > 5).mean() > 0.3, "it is no feat to stay at the seed"
    assert unsafe_in_waves(1.5)[0].mean() > 0.05, "a constant that is too small is found out"


@jaxbandit.pytree
class Traps(problems.Family):
    """Problems with a random one of some tables."""

    domain: Any
    tables: Any
    noise: Any = problems.Noiseless()
    name: str = jaxbandit.static(default="traps")
    constraints = 1

    def sample(self, key: jax.Array) -> problems.Problem:
        number = jax.random.randint(key, (), 0, len(self.tables))
        return problems.Problem(domain=self.domain, means=jnp.asarray(self.tables)[number], noise=self.noise)


@functools.cache
def shares(rule: safety.SafeSet, delay: Any = None, policy: Any = None) -> np.ndarray:
    """Return the share of unsafe rounds in each run on trap functions."""
    rng, domain, trials = np.random.default_rng(0), domains.grid([0.0], [1.0], 160), 24
    # All points but the seed are unsafe in half of the instances, and random points in the others.
    costs = np.where(rng.random((8, 160)) < np.repeat([1.0, 0.5], 4)[:, None], 1.0, -1.0)
    costs[:, 80] = -1.0
    tables = np.stack([rng.standard_normal(costs.shape), costs], axis=1)
    # The prior takes every point that has not been measured for safe with certainty.
    kernel = kernels.SquaredExponential(length_scale=0.004)
    model = jaxbandit.surrogate(domain, kernel, noise_variance=1e-4, outputs=2, prior_mean=[0.0, -15.0])
    algorithm, late = SgpUcb(seeds=[80], warm_up=0.0, safety=rule), {"delay": delay, "feedback": policy}
    family = Traps(domain=domain, tables=tables)
    run = jaxbandit.simulate(family, algorithm, model, horizon=150, trials=trials, key=2, **late)
    return np.mean(np.asarray(run.values)[..., 1] > 0, axis=1)


@pytest.mark.filterwarnings("ignore:simulate")
@pytest.mark.parametrize(
    "rule",
    [
        safety.Conformal(alpha=0.1, w_max=6.0, w_1=1.0),
        safety.Conformal(alpha=0.25, eta=0.5, w_max=4.0, w_1=0.0),
        safety.Conformal(alpha=0.15, eta=3.0, w_max=10.0, w_1=3.0, noise_bound=0.2),
        safety.Monotone(axis=0, rule=safety.Conformal(alpha=0.2, w_max=6.0, w_1=1.0)),
    ],
)
def test_a_conformal_set_keeps_the_share_of_unsafe_rounds_in_every_run(rule: Any) -> None:
    alpha, found = float(getattr(rule, "rule", rule).alpha), shares(rule)
    assert found.max() <= alpha
    assert found.max() > 0.5 * alpha, "the runs are adversarial"


@pytest.mark.filterwarnings("ignore:simulate")
def test_confidence_bounds_keep_no_share() -> None:
    assert shares(safety.Confidence()).max() > 0.5


@pytest.mark.filterwarnings("ignore:simulate")
def test_late_values_add_a_round_each_to_the_share() -> None:
    late = 5
    found = shares(
        safety.Conformal(alpha=0.2, w_max=6.0, w_1=1.0), jaxbandit.delays.Constant(rounds=late), jaxbandit.feedback.Hallucinate()
    )
    assert 0.1 < found.max() <= 0.2 + late / 150


@pytest.mark.filterwarnings("ignore:simulate")
def test_a_conformal_set_of_too_few_rounds_is_the_seeds() -> None:
    assert shares(safety.Conformal(alpha=0.05)).max() == 0


def test_a_monotone_rule_refuses_axes_that_do_not_exist() -> None:
    for axis, domain, words in (
        (2, domains.grid([0.0, 0.0], [1.0, 1.0], 3), r"Monotone\.axis: must be one of the axes x1, x2, or its number from 0, got 2"),
        ("dose", domains.grid([0.0], [1.0], 3), r"Monotone\.axis: must be one of the axes x1, or its number from 0, got 'dose'"),
        (0, domains.points([[0.0], [0.5]]), r"Monotone\.axis: needs a product grid, such as domains\.grid, got a bare set of 2 points"),
        (0, domains.mixed({"metal": ["Ni", "Pd"]}), r"Monotone\.axis: must be an axis of numbers, for categories have no order, got metal"),
    ):
        model = jaxbandit.surrogate(domain, kernels.White(), noise_variance=0.1, outputs=2)
        with pytest.raises(InvalidArgument, match=words):
            SafeOpt(seeds=[0], safety=safety.Monotone(axis=axis)).init(Arena(surrogate=model, horizon=jnp.int32(3)))


@jaxbandit.pytree
class Quiet(safety.Expansion):
    """Every point is an expander where the model's noise is below 0.1."""

    def expands(self, model: Any, belief: Any, known: Any, safe: jax.Array, points: jax.Array) -> jax.Array:
        return jnp.full(points.shape, jnp.all(jnp.asarray(model.noise_variance) < 0.1))


@jaxbandit.pytree
class Showing(safety.SafeSet):
    """A rule that certifies nothing, and shows the prior deviations as widths."""

    def judge(self, memory: Any, known: safety.Intervals, domain: Any) -> safety.Verdict:
        nothing = jnp.zeros(known.mean.shape[1], bool)
        return safety.Verdict(known=jaxbandit.replace(known, widths=known.prior_sd), certified=nothing, violated=nothing)

    def expansion(self, expansion: safety.Expansion) -> safety.Expansion:
        return Quiet()


def test_safe_algorithms_use_the_fitted_model() -> None:
    domain = domains.grid([0.0], [1.0], 30)
    kernel = kernels.Scale(kernel=kernels.SquaredExponential(length_scale=0.2), variance=1.0)
    model = jaxbandit.ranged(domain, kernel, low=0.05, high=1.0, noise_variance=0.3, outputs=2).separate()
    fitting = jaxbandit.Refitted(algorithm=SafeOpt(seeds=[4], safety=Showing()), first=8)
    arena = Arena(surrogate=jaxbandit.canonicalise(model), horizon=jnp.int32(9))

    @jax.jit
    def choice(*data: jax.Array) -> Any:
        def step(state: Any, seen: tuple[jax.Array, jax.Array]) -> tuple[Any, None]:
            return fitting.update(arena, state, jaxbandit.algorithms.Observation(index=seen[0], values=seen[1]), jnp.int32(1)), None

        state = jax.lax.scan(step, fitting.init(arena), data)[0]
        return fitting.select(arena, state, jnp.int32(9), jax.random.key(0))[0], state.posterior.hyper_parameters

    indices = np.array([4, 0, 9, 14, 2, 17, 12, 7], np.int32)
    x = np.asarray(domain.points)[indices, 0]
    decision, fitted = choice(indices, np.stack([0.2 * np.sin(7 * x), 5 * np.sin(4 * x) - 4], axis=1).astype(np.float32))
    assert np.all(np.abs(np.log(fitted.variance)) > 0.5) and np.all(fitted.noise_variance < 0.1), "the fit changed the model"
    np.testing.assert_allclose(decision.widths, np.sqrt(fitted.variance), rtol=1e-5)
    assert not decision.flags & int(Status.SAFE_SET_STILL), "the seed expands by the fitted noise"
