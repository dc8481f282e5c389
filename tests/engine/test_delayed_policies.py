"""Posteriors and choices under delayed feedback against dense NumPy."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import delays, domains, estimators, feedback, kernels, problems, widths
from jaxbandit.feedback import Pending
from tests.oracles import bandit, delayed_policies, ucb_policies
from tests.oracles import gaussian_process as gp
from tests.support import panel

TOLERANCE = {"float32": 1e-3, "float64": 1e-8}
LENGTH_SCALE, NOISE = 0.35, 0.05
POLICIES = ("wait", "hallucinate", "censor")


@functools.cache
def domain() -> domains.Domain:
    rng = np.random.default_rng(7)
    return domains.product([np.sort(rng.random(7)), np.sort(rng.random(5))])


def policy_of(name: str, window: int, minimum: Any) -> Any:
    if name == "censor":
        return feedback.Censor(window=window, minimum=minimum)
    return {"wait": feedback.Wait(), "hallucinate": feedback.Hallucinate()}[name]


# The learners by themselves, on points and delays that no algorithm chose.

ROUNDS, WINDOW = 16, 3


@functools.partial(jax.jit, static_argnames=("policy_name", "window", "separate_outputs", "capacity", "one_root"))
def history(
    surrogate: jaxbandit.Surrogate,
    minimum: Any,
    given: tuple[jax.Array, jax.Array, jax.Array, jax.Array],
    *,
    policy_name: str,
    window: int,
    separate_outputs: bool,
    capacity: int,
    one_root: bool,
) -> tuple[Any, Any]:
    """Return predictions before each round, and final covariances.

    ``given``: points ``[B, T]``, values ``[B, T, k]``, rounds of arrival ``[B, T, k]``, the round ``[B]`` at whose end the learner
    starts again.
    """
    learner = policy_of(policy_name, window, minimum).bind(surrogate, separate_outputs=separate_outputs, capacity=capacity, axis="trials")
    learner = jaxbandit.replace(learner, one_root=one_root)
    outputs = surrogate.outputs

    def seen(posterior: Any) -> dict[str, Any]:
        belief = learner.belief(posterior)
        arrived = belief.arrived
        recent = jnp.zeros_like(belief.gain) if belief.recent is None else belief.recent
        return {"mean": belief.mean, "sd": belief.sd, "gain": belief.gain, "recent": recent, "arrived": (arrived.mean, arrived.sd)}

    def one(indices: jax.Array, values: jax.Array, due: jax.Array, restart: jax.Array) -> tuple[Any, Any]:
        def step(carry: Any, now: Any) -> tuple[Any, Any]:
            posterior, pending = carry
            t, index, own, arrives = now
            pending = pending.push(t, index, own, arrives, jnp.int32(ROUNDS))
            posterior = learner.learn(posterior, pending.arriving(t, index, own, arrives))
            posterior = jax.tree.map(lambda new, old: jnp.where(t == restart, new, old), learner.init(), posterior)
            return (posterior, pending), seen(posterior)

        start = learner.init()
        empty = Pending.empty(capacity, outputs, values.dtype)
        rounds = jnp.arange(1, indices.shape[0] + 1, dtype=jnp.int32)
        (posterior, _), after = jax.lax.scan(step, (start, empty), (rounds, indices, values, due))
        everywhere = jnp.arange(surrogate.domain.size, dtype=jnp.int32)
        covariance = jnp.stack([learner.belief(posterior).covariance(j, everywhere) for j in range(outputs)])
        before = jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), seen(start), after)
        return before, covariance

    return jax.vmap(one, axis_name="trials")(*given)


PATTERNS = ("at once", "independent", "shared", "a burst", "three rounds", "one output late", "never", "restarted")


@functools.cache
def pattern_data(outputs: int, whole: bool) -> tuple[np.ndarray, ...]:
    """Points, values, rounds of arrival and restarts of every pattern."""
    rng = np.random.default_rng([outputs, whole])
    rounds = np.arange(1, ROUNDS + 1)[:, None]
    zero = np.zeros((ROUNDS, outputs), int)
    due = {
        "at once": rounds + zero,
        "independent": rounds + rng.geometric(0.3, (ROUNDS, outputs)) - 1,
        "shared": rounds + np.repeat(rng.integers(0, 6, (ROUNDS, 1)), outputs, axis=1),
        # Nine values arrive in one round, and then six.
        "a burst": np.maximum(rounds, np.where(rounds <= 9, 9, 15)) + zero,
        "three rounds": rounds + 3 + zero,
        "one output late": rounds + np.where(np.arange(outputs) == 0, 5, 0),
        "never": rounds + np.where(rng.random((ROUNDS, outputs)) < 0.5, delays.NEVER, 1),
        "restarted": rounds + rng.integers(0, 7, (ROUNDS, outputs)),
    }
    if whole:
        due = {name: np.repeat(x.max(1, keepdims=True), outputs, axis=1) for name, x in due.items()}
    assert tuple(due) == PATTERNS
    indices = rng.integers(0, domain().size, (len(PATTERNS), ROUNDS))
    indices[:, 5] = indices[:, 2]
    values = rng.standard_normal((len(PATTERNS), ROUNDS, outputs))
    return indices, values, np.stack(list(due.values())), np.where(np.array(PATTERNS) == "restarted", 6, 0)


def check_history(
    form: str,
    policy_name: str,
    precision: str,
    outputs: int,
    *,
    window: int = WINDOW,
    whole: bool = False,
    mixed: bool = False,
    by_point: bool = False,
    one_root: bool = False,
) -> None:
    """Check a history.

    With ``mixed`` the last output has another kernel and noise, and with ``by_point`` the noise differs between points.
    """
    indices, values, due, restarts = pattern_data(outputs, whole)
    nothing = np.zeros(0, int), np.zeros((0, outputs))
    prior_mean, minimum = np.array([0.4, -0.3, 0.2])[:outputs], np.array([-1.0, 0.5, -0.2])[:outputs]
    noise, scales = np.full(outputs, NOISE), np.full(outputs, LENGTH_SCALE)
    if mixed:
        noise[-1], scales[-1] = 2 * NOISE, 0.6
    if by_point:
        noise = noise[:, None] * np.random.default_rng(1).uniform(0.2, 5.0, (outputs, domain().size))
    with jax.enable_x64(precision == "float64"):
        covariance = [kernels.SquaredExponential(length_scale=scale) for scale in scales]
        options = {"noise_variance": noise, "outputs": outputs, "prior_mean": list(prior_mean), "form": form}
        surrogate = jaxbandit.surrogate(domain(), covariance, **options, horizon=ROUNDS)
        assert len(surrogate.forms) == (outputs if by_point else 2 if mixed else 1)
        points, arrivals, again = (x.astype(np.int32) for x in (indices, due, restarts))
        given = points, values.astype(precision), arrivals, again
        static = {"policy_name": policy_name, "window": window, "separate_outputs": not whole, "capacity": ROUNDS, "one_root": one_root}
        ours, columns = jax.tree.map(np.asarray, history(surrogate, minimum.astype(precision), given, **static))
    grams = np.stack([gp.squared_exponential(domain().points, domain().points, scale) for scale in scales])
    model = delayed_policies.Model(grams, noise, prior_mean, lambda t, gain, recent: gain)
    policy, wait = delayed_policies.Policy(policy_name, window, minimum), delayed_policies.Policy("wait")
    tolerance = TOLERANCE[precision]
    close = functools.partial(np.testing.assert_allclose, rtol=tolerance, atol=tolerance)
    for b, pattern in enumerate(PATTERNS):
        late = delayed_policies.Late(bandit.Record(indices[b], values[b], *nothing), due[b])
        for t in range(1, ROUNDS + 2):
            oldest = restarts[b] + 1 if 0 < restarts[b] < t else 1
            known = delayed_policies.belief(model, late, policy, t, oldest)
            label = f"{pattern}, before round {t}"
            assert ours["mean"].dtype == precision
            close(ours["mean"][b, t - 1], known.mean, err_msg=f"mean, {label}")
            close(ours["sd"][b, t - 1], known.sd, err_msg=f"sd, {label}")
            close(ours["gain"][b, t - 1], known.gain, err_msg=f"gain, {label}")
            if policy_name == "censor":
                close(ours["recent"][b, t - 1], known.recent, err_msg=f"recent, {label}")
            else:
                # The values that have arrived are those that waiting knows.
                arrived = delayed_policies.belief(model, late, wait, t, oldest)
                close(ours["arrived"][0][b, t - 1], arrived.mean, err_msg=f"arrived mean, {label}")
                close(ours["arrived"][1][b, t - 1], arrived.sd, err_msg=f"arrived sd, {label}")
        close(columns[b], known.covariance, err_msg=f"covariance, {pattern}")


@pytest.mark.full(but=("features",))
@pytest.mark.parametrize(
    ("form", "policy"),
    [*(("features", policy) for policy in POLICIES), ("rows", "hallucinate"), ("rows", "censor"), ("product", "hallucinate")],
)
def test_the_posterior_is_the_dense_one_in_every_round(form: str, policy: str) -> None:
    check_history(form, policy, "float64", 2)


@pytest.mark.full
def test_the_posterior_in_float32() -> None:
    check_history("product", "censor", "float32", 2)


@pytest.mark.full
def test_the_posterior_of_one_output_without_a_window() -> None:
    check_history("features", "censor", "float64", 1, window=0)


@pytest.mark.full
@pytest.mark.parametrize("policy", ["hallucinate", "censor"])
def test_the_posterior_of_outputs_with_models_and_noise_at_each_point_of_their_own(policy: str) -> None:
    check_history("features", policy, "float64", 3, window=5, mixed=True, by_point=True)


@pytest.mark.full(but=("float64",))
@pytest.mark.parametrize(("precision", "form"), [("float64", "features"), ("float32", "product")], ids=["float64", "float32"])
def test_the_posterior_with_one_root(precision: str, form: str) -> None:
    check_history(form, "hallucinate", precision, 2, one_root=True)


@pytest.mark.full
def test_the_posterior_with_one_root_for_each_kernel_where_noise_differs_between_points() -> None:
    check_history("features", "hallucinate", "float64", 3, mixed=True, by_point=True, one_root=True)


@pytest.mark.full
def test_the_posterior_by_rows_where_noise_differs_between_points() -> None:
    check_history("rows", "wait", "float32", 2, by_point=True)


@pytest.mark.full
def test_the_posterior_of_outputs_that_arrive_together() -> None:
    """They share one factor."""
    check_history("features", "hallucinate", "float64", 2, whole=True)


def test_the_patterns_exercise_the_policies() -> None:
    _, _, due, _ = pattern_data(2, False)
    delay = due - np.arange(1, ROUNDS + 1)[None, :, None]
    assert max(np.sum(due[PATTERNS.index("a burst"), :, 0] == t) for t in range(ROUNDS)) == 9
    assert np.any((delay > WINDOW) & (due <= ROUNDS)) and np.any((delay > 0) & (delay <= WINDOW))
    assert np.any(due[..., 0] != due[..., 1])


# Whole runs. The learner's compilation dominates, so algorithms share it.

HORIZON, TRIALS, CONSTRAINTS = 22, 2, 2
REWARD, COST = 2.0, 1.5
CLIPS: dict[str, Any] = {"reward_clip": 2.0, "cost_clip": 1.5, "dual_cap": 4.0}
WINDOW_TERM = {"feedback_bound": 1.3, "scale": 0.2}


def width_pair(policy: str, epochs: bool = False) -> tuple[Any, Any, delayed_policies.Width]:
    """Return widths, and their values in NumPy."""
    reward: Any = REWARD if epochs else widths.ImprovedGPUCB(norm_bound=0.8, noise_scale=0.25, delta=0.2, union=2.0)
    cost: Any = COST
    if policy == "censor":
        reward, cost = (widths.Censored(base=base, **WINDOW_TERM) for base in (reward, cost))

    def theirs(t: int, gain: np.ndarray, recent: np.ndarray) -> np.ndarray:
        beta = np.full_like(gain, REWARD) if epochs else 0.8 + 0.25 * np.sqrt(2 * (gain + 1 + np.log(2.0 / 0.2)))
        beta[1:] = COST
        return beta + (WINDOW_TERM["scale"] * WINDOW_TERM["feedback_bound"] * recent if policy == "censor" else 0)

    return reward, cost, theirs


NAMES = ("rpol", "cbo", "config", "epbo", "unconstrained", "anytime", "se3", "se3 restarted", "thompson", "se2")
EPOCH, GROWTH = {"step": 0.7, "epoch": 5}, 0.4


def members(policy: str) -> dict[str, Any]:
    reward, cost, _ = width_pair(policy)
    bounds = estimators.Bounds(reward_width=reward, cost_width=cost)
    in_epochs = estimators.Bounds(reward_width=width_pair(policy, True)[0])
    thompson = estimators.Thompson(reward_width=reward, cost_width=cost)
    return {
        "rpol": jaxbandit.Rpol(estimator=bounds),
        "cbo": jaxbandit.Cbo(estimator=bounds, **CLIPS),
        "config": jaxbandit.Config(estimator=bounds),
        "epbo": jaxbandit.Epbo(estimator=bounds, penalty=0.8),
        "unconstrained": jaxbandit.Unconstrained(estimator=bounds),
        "anytime": jaxbandit.Anytime(algorithm=jaxbandit.Cbo(estimator=bounds, **CLIPS)),
        "thompson": jaxbandit.Unconstrained(estimator=thompson),
        "se3": jaxbandit.Se3(estimator=in_epochs, **EPOCH),
        "se3 restarted": jaxbandit.Se3(estimator=in_epochs, **EPOCH, restart=True),
        "se2": jaxbandit.Se2(estimator=in_epochs, psi=jaxbandit.penalties.Exponential(c=GROWTH), epoch=EPOCH["epoch"], restart=True),
    }


@functools.cache
def problem() -> problems.Problem:
    """Each constraint grows with the reward, so that it binds."""
    rng = np.random.default_rng(3)
    gram = gp.squared_exponential(domain().points, domain().points, LENGTH_SCALE)
    reward, *costs = gp.random_functions(gram, 1 + CONSTRAINTS, rng)
    costs = [0.8 * reward + 0.6 * cost for cost in costs]
    costs = [cost - np.quantile(cost, 0.4) for cost in costs]
    return problems.from_tables(domain(), reward, np.stack(costs), noise=problems.Gaussian(variance=NOISE))


PRIOR_MEAN, MINIMUM = np.array([0.2, -0.1, 0.1]), np.array([-1.5, -0.8, -0.5])
DELAYS = delays.Empirical(values=np.array([0, 0, 1, 2, 3, 4, 6, 9]))
INITIAL = np.array([4, 30])


@functools.cache
def runs_under(policy: str) -> dict[str, Any]:
    """Return every algorithm's run with outputs that arrive together."""
    with jax.enable_x64(True):
        kernel = kernels.SquaredExponential(length_scale=LENGTH_SCALE)
        options = {"noise_variance": NOISE, "outputs": 1 + CONSTRAINTS, "prior_mean": list(PRIOR_MEAN)}
        return panel.play(
            problem(),
            {name: members(policy)[name] for name in NAMES if name != "se2" or policy == "wait"},
            jaxbandit.surrogate(domain(), kernel, **options, form="product" if policy == "hallucinate" else "features"),
            horizon=HORIZON,
            trials=TRIALS,
            key=jax.random.key(5),
            initial=jaxbandit.InitialDesign(indices=INITIAL),
            delay=DELAYS,
            feedback=policy_of(policy, WINDOW, list(MINIMUM)),
            capacity=HORIZON,
            record="audit",
        )


def model_of(policy: str, epochs: bool = False) -> delayed_policies.Model:
    grams = np.stack([gp.squared_exponential(domain().points, domain().points, LENGTH_SCALE)] * (1 + CONSTRAINTS))
    return delayed_policies.Model(grams, np.full(1 + CONSTRAINTS, NOISE), PRIOR_MEAN, width_pair(policy, epochs)[2])


def recorded(run: Any, trial: int) -> delayed_policies.Late:
    indices, values, initial, before = (x[trial] for x in (run.indices, run.values, run.initial_indices, run.initial_values))
    return delayed_policies.Late(
        bandit.Record(indices, values.astype(float), initial, before.astype(float)), run.arrivals[trial].astype(int)
    )


def replay(name: str, policy: str, late: delayed_policies.Late) -> Any:
    model, rule = model_of(policy, name.startswith("se3")), delayed_policies.Policy(policy, WINDOW, MINIMUM)
    parameters: dict[str, Any] = {
        "cbo": CLIPS,
        "anytime": {**CLIPS, "doubling": True},
        "epbo": {"penalty": 0.8},
        "se3": {**EPOCH, "restart": False},
        "se3 restarted": {**EPOCH, "restart": True},
    }
    function = {"anytime": "cbo", "se3 restarted": "se3"}.get(name, name)
    return getattr(delayed_policies, function)(model, late, rule, **parameters.get(name, {}))


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES[:-2])
@pytest.mark.parametrize("policy", POLICIES)
def test_every_choice_is_the_best(policy: str, name: str) -> None:
    """Values pending at a restart are not learnt."""
    run = runs_under(policy)[name]
    for trial in range(TRIALS):
        late = recorded(run, trial)
        expected = replay(name, policy, late)
        assert np.all(np.isfinite(run.values[trial])) and np.all(run.lost[trial] == 0)
        assert np.all(late.arrivals == late.arrivals[:, :1])
        if name == "config":
            faults = ucb_policies.config_faults(expected, late.record.indices, int(run.declared_round[trial]), 1e-8)
            assert faults == []
        else:
            gaps = bandit.score_gaps(expected.scores, late.record.indices)
            assert gaps.max() <= 1e-8, f"trial {trial}, round {gaps.argmax() + 1}: short of the best by {gaps.max():.3g}"
            np.testing.assert_allclose(run.multipliers[trial], expected.multipliers, rtol=1e-8, atol=1e-8)
        columns = slice(0, 1) if name.startswith("se3") else slice(None)
        np.testing.assert_allclose(run.widths[trial][:, columns], expected.widths[:, columns], rtol=1e-8)


@pytest.mark.full
def test_se2_starts_every_epoch_afresh() -> None:
    """A late cost of an earlier epoch still counts."""
    run, model, wait = runs_under("wait")["se2"], model_of("wait"), delayed_policies.Policy("wait")
    late = recorded(run, 0)
    model = delayed_policies.Model(model.grams, model.noise, PRIOR_MEAN, lambda t, gain, recent: np.full_like(gain, REWARD))
    expected = delayed_policies.se2(model, late, wait, c=GROWTH, epoch=EPOCH["epoch"], restart=True)
    assert bandit.score_gaps(expected.scores, late.record.indices).max() <= 1e-8
    np.testing.assert_allclose(run.multipliers[0], expected.multipliers, rtol=1e-9)
    through = delayed_policies.se2(model, late, wait, c=GROWTH, epoch=EPOCH["epoch"], restart=False)
    assert bandit.score_gaps(through.scores, late.record.indices).max() > 1e-3, "the restart must matter"


@pytest.mark.full
@pytest.mark.parametrize("policy", POLICIES)
def test_thompson_draws_follow_the_posterior(policy: str) -> None:
    """Whitened draws are standard normal under no other policy's posterior."""
    run = runs_under(policy)["thompson"]
    numbers, likelihood = [], dict.fromkeys(POLICIES, 0.0)
    for trial in range(TRIALS):
        late = recorded(run, trial)
        np.testing.assert_array_equal(run.draws[trial][:, 0].argmax(1), late.record.indices)
        own = delayed_policies.Policy(policy, WINDOW, MINIMUM)
        numbers.append(delayed_policies.whitened(model_of(policy), late, own, run.draws[trial]))
        for name in POLICIES if trial == 0 else ():
            rule = delayed_policies.Policy(name, WINDOW, MINIMUM)
            likelihood[name] += delayed_policies.log_likelihood(model_of(policy), late, rule, run.draws[trial])
    z = np.concatenate(numbers)
    assert z.size > 2000
    assert abs(z.mean()) < 5 / np.sqrt(z.size)
    assert abs(z.var() - 1) < 5 * np.sqrt(2 / z.size)
    assert all(likelihood[policy] > likelihood[other] + 30 for other in POLICIES if other != policy), likelihood


@pytest.mark.full
@pytest.mark.parametrize("policy", POLICIES)
def test_the_check_sees_another_policy(policy: str) -> None:
    """Other scores, windows and rounds of arrival are caught."""
    run = runs_under(policy)["rpol"]
    late = recorded(run, 0)
    model = model_of(policy)

    def gap(rule: delayed_policies.Policy, seen: delayed_policies.Late = late) -> float:
        return bandit.score_gaps(delayed_policies.rpol(model, seen, rule).scores, late.record.indices).max()

    own = delayed_policies.Policy(policy, WINDOW, MINIMUM)
    assert gap(own) <= 1e-8
    for other in POLICIES:
        if other != policy:
            assert gap(delayed_policies.Policy(other, WINDOW, MINIMUM)) > 1e-3
    own_rounds = np.arange(1, HORIZON + 1)[:, None]
    early = delayed_policies.Late(late.record, np.maximum(late.arrivals - 1, own_rounds))
    assert gap(own, early) > 1e-3
    if policy == "censor":
        assert gap(delayed_policies.Policy(policy, WINDOW - 1, MINIMUM)) > 1e-3
        assert gap(delayed_policies.Policy(policy, WINDOW, 0.0)) > 1e-3


@pytest.mark.full
def test_delays_vary_and_several_values_arrive_at_once() -> None:
    run = runs_under("censor")["rpol"]
    delay = run.arrivals - np.arange(1, HORIZON + 1)[:, None]
    assert {1, 4, 6, 9} <= set(np.unique(delay)) <= set(np.asarray(DELAYS.values)), "of three draws the longest counts"
    assert max(np.bincount(run.arrivals[trial, :, 0]).max() for trial in range(TRIALS)) >= 3
