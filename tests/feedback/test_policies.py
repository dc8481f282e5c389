"""Policies of late feedback."""

import functools
import inspect
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jaxbandit as jb
from jaxbandit import Rpol, delays, domains, feedback, fields, kernels, problems, simulate, testing
from jaxbandit.core.declare import Array
from jaxbandit.core.keys import trial_key
from jaxbandit.engine.learner import policy_key
from jaxbandit.feedback import Feedback, Pending, Wait
from jaxbandit.kernels import SquaredExponential
from tests.oracles import gaussian_process as gp
from tests.oracles.gaussian_process import Matrix, matern52, mean_and_sd
from tests.support.delayed_runs import HORIZON, POLICIES, surrogate

# Arrivals of one round.


def some_feedback(rng: np.random.Generator, capacity: int, outputs: int) -> dict[str, np.ndarray]:
    """Return arrivals of a round that chose the point 3."""
    ages = rng.permutation(capacity)
    return {
        "indices": np.where(ages == 0, 3, rng.integers(0, 30, capacity)),
        "values": rng.standard_normal((capacity, outputs)),
        "ages": ages,
        "present": rng.random((capacity, outputs)) < 0.6,
    }


@functools.cache
def learning(policy: str) -> tuple[Any, Any, Any]:
    """A learner with some history, and its compiled ``learn``."""
    learner = POLICIES[policy].bind(surrogate(), separate_outputs=True, capacity=40, axis=None)
    step = jax.jit(learner.learn)
    posterior, rng = jax.jit(learner.init)(), np.random.default_rng(5)
    for _ in range(9):
        posterior = step(posterior, as_feedback(some_feedback(rng, 7, 2)))
    return learner, step, posterior


def as_feedback(given: dict[str, np.ndarray]) -> Feedback:
    own = int(np.argmin(given["ages"]))
    return Feedback(
        index=jnp.int32(3),
        own_values=jnp.asarray(given["values"][own]),
        own_present=jnp.asarray(given["present"][own]),
        indices=jnp.asarray(given["indices"], jnp.int32),
        values=jnp.asarray(given["values"]),
        ages=jnp.asarray(given["ages"], jnp.int32),
        present=jnp.asarray(given["present"]),
    )


@pytest.mark.full
@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), rubbish=st.sampled_from([np.nan, np.inf, 1e30]))
def test_the_order_of_arrivals_within_a_round_does_not_matter(policy: str, seed: int, rubbish: float) -> None:
    """Values of slots that do not arrive do not matter either."""
    rng = np.random.default_rng(seed)
    with jax.enable_x64(True):
        learner, step, before = learning(policy)
        arrivals = some_feedback(rng, 7, 2)
        order = rng.permutation(7)
        shuffled = {name: x[order] for name, x in arrivals.items()}
        shuffled["values"] = np.where(shuffled["present"], shuffled["values"], rubbish)
        a, b = (learner.belief(step(before, as_feedback(x))).prediction for x in (arrivals, shuffled))
    np.testing.assert_allclose(a.mean, b.mean, rtol=0, atol=1e-11)
    np.testing.assert_allclose(a.sd, b.sd, rtol=0, atol=1e-11)
    np.testing.assert_allclose(a.gain, b.gain, rtol=1e-12)


@pytest.mark.parametrize("policy", POLICIES)
def test_values_of_choices_before_a_restart_are_not_conditioned_on(policy: str) -> None:
    """The belief was the prior at the start of the round."""
    arrivals = {"indices": np.array([3, 7, 9]), "values": np.array([[1.0, -1.0], [9.0, 9.0], [5.0, 5.0]]), "ages": np.arange(3)}
    present = np.array([[True, True], [True, True], [False, False]])
    with jax.enable_x64(True):
        learner = POLICIES[policy].bind(surrogate(), separate_outputs=True, capacity=3, axis=None)
        step = jax.jit(lambda feedback: learner.belief(learner.learn(learner.init(), feedback)).prediction)
        masks = present, present & (arrivals["ages"] == 0)[:, None]
        late, own = (jax.device_get(step(as_feedback(arrivals | {"present": mask}))) for mask in masks)
    assert abs(own.mean[0, 3]) > 0.5, "the value of the round itself counts"
    np.testing.assert_array_equal(late.mean, own.mean)
    np.testing.assert_array_equal(late.sd, own.sd)


def test_sums_over_arrivals() -> None:
    present = np.array([[True, False, False], [True, True, False], [False, False, False]])
    values = np.where(present, np.array([[1.0, np.nan, 9], [-4, 2, 9], [np.nan, 7, 9]]), np.nan)
    seen = as_feedback({"indices": np.array([3, 1, 2]), "values": values, "ages": np.array([0, 1, 2]), "present": present})
    np.testing.assert_array_equal(seen.total(), [-3, 2, 0])
    np.testing.assert_array_equal(seen.map(lambda x: jnp.maximum(x, 0)).total(), [1, 2, 0])
    np.testing.assert_array_equal(seen.count, [2, 1, 0])
    np.testing.assert_array_equal(seen.largest(), [1, 2, -np.inf])
    np.testing.assert_array_equal(seen.map(jnp.negative).largest(), [4, -2, -np.inf])
    doubled = seen.map(lambda x: 2 * x)
    np.testing.assert_array_equal(doubled.total(), [-6, 4, 0])
    np.testing.assert_array_equal(doubled.own_values, 2 * values[0])


# The buffer.


@functools.partial(jax.jit, static_argnames="capacity")
def through_the_buffer(due: jax.Array, horizon: jax.Array, *, capacity: int) -> tuple[Pending, Feedback]:
    """Run ``HORIZON`` rounds with points ``10 t`` and values ``t`` and ``-t``."""

    def step(pending: Pending, now: tuple[jax.Array, jax.Array]) -> tuple[Pending, Feedback]:
        t, arrives = now
        index, own = 10 * t, jnp.stack([t, -t]).astype(jnp.float32)
        pending = pending.push(t, index, own, arrives, horizon)
        return pending, pending.arriving(t, index, own, arrives)

    rounds = jnp.arange(1, due.shape[0] + 1, dtype=jnp.int32)
    return jax.lax.scan(step, Pending.empty(capacity, 2, jnp.float32), (rounds, due))


late_by = st.one_of(st.integers(0, 15), st.just(int(delays.NEVER)), st.just(int(delays.LONGEST_DELAY)))


@settings(max_examples=60)
@given(
    taus=st.lists(st.tuples(late_by, late_by), min_size=HORIZON, max_size=HORIZON),
    capacity=st.sampled_from([1, 2, 5, HORIZON, HORIZON + 4]),
    beyond=st.integers(0, 3),
)
def test_every_value_arrives_once_or_is_counted_as_lost(taus: list[tuple[int, int]], capacity: int, beyond: int) -> None:
    # A horizon may be longer than the run.
    rounds, horizon = np.arange(1, HORIZON + 1), HORIZON + beyond
    due = rounds[:, None] + np.array(taus)
    pending, seen = jax.device_get(through_the_buffer(due.astype(np.int32), np.int32(horizon), capacity=capacity))
    arrived: dict[tuple[int, int], int] = {}
    for t in rounds:
        present, ages, values, points = (x[t - 1] for x in (seen.present, seen.ages, seen.values, seen.indices))
        for slot, output in np.argwhere(present):
            s = t - int(ages[slot])
            assert points[slot] == 10 * s and values[slot, output] == (s if output == 0 else -s)
            assert (s, int(output)) not in arrived, "once only"
            arrived[s, int(output)] = int(t)
        np.testing.assert_array_equal(seen.own_present[t - 1], due[t - 1] == t)
        assert int(seen.index[t - 1]) == 10 * t and int(seen.own_values[t - 1, 0]) == t
    lost = [0, 0]
    for s in rounds:
        for output in range(2):
            when = due[s - 1, output]
            # Round s + capacity takes the slot.
            in_time = when <= HORIZON and when < s + capacity
            assert arrived.get((s, output)) == (when if in_time else None)
            lost[output] += bool(s + capacity <= HORIZON and s + capacity <= when <= horizon)
    np.testing.assert_array_equal(pending.lost, lost)
    if capacity > max(min(tau, HORIZON) for pair in taus for tau in pair):
        assert len(arrived) == np.sum(due <= HORIZON) and lost == [0, 0]


def is_policy(kind: type) -> bool:
    """Return whether a class is a policy that can be made."""
    return issubclass(kind, feedback.Policy) and not inspect.isabstract(kind)


@jb.pytree
class Impatient(Wait):
    """Take in no value that is more than ``patience`` rounds late."""

    name = "impatient"
    patience: Annotated[float, fields.nonnegative] = 0.0

    def taken(self, feedback: Feedback, chosen: Array) -> Array:
        return super().taken(feedback, chosen) & (feedback.ages.astype(jnp.asarray(self.patience).dtype) <= self.patience)[:, None]


@pytest.mark.parametrize("name", [name for name, kind in vars(feedback).items() if inspect.isclass(kind) and is_policy(kind)])
def test_every_policy_keeps_its_promises(name: str) -> None:
    testing.check_policy(getattr(feedback, name))


@pytest.mark.full
def test_a_policy_of_a_user_keeps_its_promises_as_late_as_it_is_patient() -> None:
    testing.check_policy(Impatient(patience=3), late=3)
    with pytest.raises(AssertionError, match="Impatient: is Wait once nothing is under way"):
        testing.check_policy(Impatient(patience=2), late=3)


@pytest.mark.full
def test_a_policy_that_takes_in_less_is_one_method() -> None:
    problem = problems.sine(6)
    model = jb.surrogate(problem.domain, SquaredExponential(length_scale=1.0), noise_variance=0.05)

    def play(policy: Wait, delay: int) -> np.ndarray:
        late = delays.Constant(rounds=delay)
        given = {"horizon": 8, "trials": 2, "key": jax.random.key(0), "capacity": 8, "block": 1}
        return simulate(problem, Rpol(), model, delay=late, feedback=policy, **given).indices

    assert np.array_equal(play(Impatient(patience=3), 3), play(Wait(), 3))
    assert np.array_equal(play(Impatient(patience=2), 3), play(Wait(), 7)), "nothing is taken in before the last round"
    assert not np.array_equal(play(Wait(), 3), play(Wait(), 7))


ROUNDS, FIRST, CAPACITY, WINDOW, MINIMUM = 9, 2, 6, 3, -1.5
LENGTH_SCALE, NOISE, MEANS = np.asarray([0.5, 0.3]), 0.02, np.asarray([0.4, -0.3])
# Features are coarse, at two of eight candidates.
FORMS: dict[str, dict[str, Any]] = {"exact": {}, "features": {"form": "features", "tolerance": 0.9}}
BOX_POLICIES = {"wait": feedback.Wait(), "hallucinate": feedback.Hallucinate(), "censor": feedback.Censor(window=WINDOW, minimum=MINIMUM)}
CASES = [(name, form) for name in BOX_POLICIES for form in FORMS]
RNG = np.random.default_rng(3)
POINTS, VALUES = RNG.random((FIRST + ROUNDS, 2)), RNG.standard_normal((FIRST + ROUNDS, 2))
ELSEWHERE = np.concatenate([RNG.random((4, 2)), POINTS[-1:] + 1e-3])
DELAYS = np.asarray([[0, 0], [1, 3], [5, 0], [2, 4], [20, 1], [0, 20], [3, 3], [1, 0], [0, 2]])
DUE = np.arange(1, ROUNDS + 1)[:, None] + DELAYS


@functools.cache
def model(form: str) -> Any:
    box = domains.box({"a": (0.0, 1.0), "b": (0.0, 1.0)}, candidates=8)
    kernel = kernels.Matern52(length_scale=LENGTH_SCALE)
    made = jb.surrogate(box, kernel, noise_variance=NOISE, prior_mean=MEANS, precision="float64", **FORMS[form])
    return made.with_room(FIRST + ROUNDS + 2)


@functools.partial(jax.jit, static_argnames="name")
def played(name: str, model: Any, points: Any, values: Any, due: Any) -> Any:
    """Return the learner's final beliefs, its pool and draws."""
    learner = BOX_POLICIES[name].bind(model, separate_outputs=True, capacity=CAPACITY, axis=None)

    def first(posterior: Any, seen: Any) -> tuple[Any, None]:
        index, posterior = learner.place(posterior, seen[0])
        return learner.condition(posterior, index, seen[1]), None

    def one(now: Any, given: Any) -> tuple[Any, None]:
        (posterior, pending), (t, point, own, arrival) = now, given
        index, posterior = learner.place(posterior, point)
        pending = pending.push(t, index, own, arrival, jnp.int32(ROUNDS))
        return (learner.learn(posterior, pending.arriving(t, index, own, arrival)), pending), None

    start = learner.init()
    start, _ = jax.lax.scan(first, start, (points[:FIRST], values[:FIRST]))
    rounds = (jnp.arange(1, ROUNDS + 1, dtype=jnp.int32), points[FIRST:], values[FIRST:], due.astype(jnp.int32))
    (posterior, _), _ = jax.lax.scan(one, (start, feedback.Pending.empty(CAPACITY, 2, values.dtype)), rounds)
    # A point under way is in the pool without a value.
    _, posterior = learner.place(posterior, jnp.asarray(ELSEWHERE[0]))
    belief, key, scale = learner.belief(posterior), jax.random.key(1), jnp.asarray([1.0, 0.5])
    draws = belief.draw(key, scale), belief.at(belief.pool).draw(key, scale)
    return belief.pool, belief.prediction, belief.at(jnp.asarray(ELSEWHERE)).prediction, draws


def gram_of(form: str, points: Matrix) -> Matrix:
    if form == "exact":
        return matern52(points, points, LENGTH_SCALE)
    pivots = np.asarray(model(form).forms[0].pivots)
    cross = matern52(points, pivots, LENGTH_SCALE)
    return cross @ np.linalg.solve(matern52(pivots, pivots, LENGTH_SCALE), cross.T)


def expected(name: str, at: Matrix, form: str) -> tuple[Matrix, Matrix]:
    """Return means and deviations ``[2, n]`` of fresh factorisations."""
    means, deviations = [], []
    gram, chosen = gram_of(form, np.concatenate([POINTS, at])), np.arange(len(POINTS))
    left_out = 1 - np.diag(gram)[len(POINTS) :]
    # Ages are rounds since each choice, at the end.
    ages = ROUNDS - np.arange(1, ROUNDS + 1)
    for j in range(2):
        arrives = DELAYS[:, j] <= np.minimum(ages, WINDOW if name == "censor" else CAPACITY - 1)
        arrived = np.flatnonzero(np.append(np.ones(FIRST, bool), arrives))
        filled = np.where(np.isin(chosen, arrived), VALUES[:, j], MINIMUM)
        seen, target = (chosen, filled) if name == "censor" else (arrived, VALUES[arrived, j])
        mean, sd = mean_and_sd(gram, seen, target, NOISE, MEANS[j])
        if name == "hallucinate":
            _, sd = mean_and_sd(gram, chosen, filled, NOISE)
        means.append(mean[len(POINTS) :])
        deviations.append(np.sqrt(sd[len(POINTS) :] ** 2 + left_out))
    return np.stack(means), np.stack(deviations)


@pytest.mark.full(but=("hallucinate exact",))
@pytest.mark.parametrize(("name", "form"), CASES, ids=map(" ".join, CASES))
def test_beliefs_on_a_box_are_those_of_dense_solves_at_its_pool_and_elsewhere(name: str, form: str) -> None:
    with jax.enable_x64(True):
        pool, here, there, draws = jax.tree.map(np.asarray, played(name, jb.replace(model(form), kernels=()), POINTS, VALUES, DUE))
    assert np.allclose(pool[8:][: len(POINTS)], POINTS)
    for at, belief in ((pool, here), (ELSEWHERE, there)):
        for found, want in zip((belief.mean, belief.sd), expected(name, at, form), strict=True):
            assert np.allclose(found, want, atol=1e-9), "dense solve"
        if name == "censor":
            assert np.allclose(belief.recent, expected(name, POINTS[-WINDOW:], form)[1].sum(1), atol=1e-9)
    assert np.allclose(*draws, atol=1e-9), "one function for one key"
    assert draws[0].std() > 0.1


# Both outputs lack values, at different points.
MISSING = np.where(np.arange(2 * len(VALUES)).reshape(-1, 2) % 5 == 3, np.nan, VALUES)


@functools.partial(jax.jit, static_argnames=("name", "at_once"))
def taught(name: str, at_once: bool, model: Any, points: Any, values: Any, count: Any) -> Any:
    """Return beliefs after values at once or one by one."""
    learner = BOX_POLICIES[name].bind(model, separate_outputs=True, capacity=CAPACITY, axis=None)
    indices = model.domain.size + jnp.arange(len(points), dtype=jnp.int32)

    def one(row: Any, posterior: Any) -> Any:
        index, posterior = learner.place(posterior, points[row])
        return learner.condition(posterior, index, values[row])

    posterior = learner.conditioned(indices, points, values, count) if at_once else jax.lax.fori_loop(0, count, one, learner.init())
    index, later = learner.place(posterior, points[0] + 0.1)
    t, now = jnp.int32(1), jnp.ones(2, jnp.int32)
    pending = feedback.Pending.empty(CAPACITY, 2, values.dtype).push(t, index, jnp.asarray([1.0, -1.0]), now, jnp.int32(ROUNDS))
    later = learner.learn(later, pending.arriving(t, index, jnp.asarray([1.0, -1.0]), now))
    key, scale = jax.random.key(1), jnp.asarray([1.0, 0.5])
    return [
        (
            belief.pool,
            belief.prediction,
            belief.at(jnp.asarray(ELSEWHERE)).prediction,
            belief.draw(key, scale),
        )
        for belief in map(learner.belief, (posterior, later))
    ]


@pytest.mark.full(but=("hallucinate exact",))
@pytest.mark.parametrize(("name", "form"), CASES, ids=map(" ".join, CASES))
def test_many_values_at_once_are_believed_as_one_after_the_other(name: str, form: str) -> None:
    """Some values are missing, and one more arrives later."""
    count = len(POINTS) - 1
    with jax.enable_x64(True):
        given = jb.replace(model(form), kernels=()), POINTS, MISSING, np.int32(count)
        at_once, in_turn = (jax.tree.map(np.asarray, taught(name, how, *given)) for how in (True, False))
    jax.tree.map(functools.partial(np.testing.assert_allclose, atol=1e-10), at_once, in_turn)
    if form == "exact":
        points = np.concatenate([POINTS[:count], ELSEWHERE])
        gram, told = matern52(points, points, LENGTH_SCALE), MISSING[:count]
        for j, values in enumerate(told.T):
            there, filled = np.flatnonzero(~np.isnan(values)), np.nan_to_num(values, nan=MINIMUM)
            of_mean = there if name != "censor" else np.arange(count)
            of_sd = there if name == "wait" else np.arange(count)
            mean, _ = mean_and_sd(gram, of_mean, filled[of_mean], NOISE, MEANS[j], slice(count, None))
            _, sd = mean_and_sd(gram, of_sd, filled[of_sd], NOISE, MEANS[j], slice(count, None))
            np.testing.assert_allclose(at_once[0][2].mean[j], mean, atol=1e-9)
            np.testing.assert_allclose(at_once[0][2].sd[j], sd, atol=1e-9)


# One belief.


def test_every_learner_gives_an_algorithm_the_same_class_of_belief() -> None:
    """Only models of boxes have beliefs at other points."""
    domain = domains.product([np.linspace(0.0, 1.0, 6), np.linspace(0.0, 1.0, 5)])
    ranged = jb.ranged(domain, SquaredExponential(length_scale=0.3), low=0.2, high=0.6, noise_variance=0.05).separate()
    box = jb.replace(model("exact").with_room(16), kernels=())
    for own_model in (ranged, box):
        late = [policy.bind(own_model, separate_outputs=False, capacity=3, axis=None) for policy in POLICIES.values()]
        for learner, algorithm in [
            *((learner, Rpol()) for learner in (own_model, *late)),
            *((own_model, one) for one in (jb.Refitted(algorithm=Rpol()), jb.Anytime(algorithm=jb.Cei()))),
        ]:

            def seen(arena: Any, algorithm: Any = algorithm, own_model: Any = own_model) -> Any:
                belief = algorithm.belief(arena, algorithm.init(arena))
                there = belief.at(jnp.zeros((4, 2))) if own_model is box else belief
                drawn, column = belief.draw(jax.random.key(0), jnp.ones(2)), belief.covariance(0, jnp.arange(3))
                assert isinstance(belief, jb.surrogates.Belief) and isinstance(belief.model, type(own_model))
                return belief.mean, belief.sd, drawn, column, belief.gain, there.mean, there.sd

            with jax.enable_x64(True):
                arena = jb.canonicalise(jb.algorithms.Arena(surrogate=learner, horizon=jnp.int32(9)))
                shapes = [found.shape for found in jax.eval_shape(seen, arena)]
            size = own_model.size
            assert shapes[:5] == [(2, size), (2, size), (2, size), (3, size), (2,)]
            assert shapes[5:] == [(2, 4 if own_model is box else size)] * 2


# The randomised kriging believer.


def test_every_choice_of_believe_is_of_one_joint_draw_of_the_pending_values() -> None:
    horizon, width, noise, length_scale, rounds = 16, 2.0, 0.05, 0.3, 3
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], 6)
    gram = gp.squared_exponential(domain.points, domain.points, length_scale)
    means = gp.random_functions(gram, 2, np.random.default_rng(0))
    problem = problems.from_tables(domain, means[0], means[1:] - 0.5, noise_variance=noise)
    rule = jb.Config(estimator=jb.estimators.Bounds(reward_width=width, cost_width=width))
    with jax.enable_x64(True):
        kernel = kernels.SquaredExponential(length_scale=length_scale)
        model = jb.surrogate(domain, kernel, noise_variance=noise, outputs=2, form="features")
        given = {"horizon": horizon, "trials": 2, "key": 3, "delay": delays.Constant(rounds=rounds), "capacity": 5}
        run, mean = (jb.simulate(problem, rule, model, feedback=policy, **given) for policy in (feedback.Believe(), feedback.Hallucinate()))
        assert not np.array_equal(run.indices, mean.indices), "the values are drawn"
        same = jb.simulate(problem, rule, model, feedback=feedback.Believe(random=False), **given)
        np.testing.assert_array_equal(same.indices, mean.indices)
        keys = [[jax.random.fold_in(policy_key(trial_key(jax.random.key(3), n), t), 1) for t in range(1, horizon + 1)] for n in range(2)]
        slots = 5
        normals = [[np.asarray(jax.random.normal(key, (2, slots))) for key in row] for row in keys]
    for trial in range(2):
        indices, values = np.asarray(run.indices[trial]), np.asarray(run.values[trial])
        for t in range(1, horizon + 1):
            late = [s for s in range(1, t) if s + rounds >= t]
            early = [s for s in range(1, t) if s + rounds < t]
            bounds = []
            for j in range(2):
                seen = indices[[s - 1 for s in early]], values[[s - 1 for s in early], j]
                mu, sigma = gp.posterior(gram, *seen, noise)
                points = indices[[s - 1 for s in late]]
                covariance = sigma[np.ix_(points, points)]
                # The draw has the order of the buffer's slots.
                order = np.argsort([(s - 1) % slots for s in late])
                jitter = 10 * np.finfo(float).eps * (1 + np.trace(covariance)) * np.eye(len(points))
                root = np.linalg.cholesky(covariance[np.ix_(order, order)] + jitter)
                drawn = mu[points]
                drawn[order] += root @ normals[trial][t - 1][j][[(late[n] - 1) % slots for n in order]]
                everything = np.concatenate([seen[0], points]), np.concatenate([seen[1], drawn])
                average, deviation = gp.mean_and_sd(gram, *everything, noise)
                bounds.append((average + width * deviation, average - width * deviation))
            fine = bounds[1][1] <= 0
            score = np.where(fine, bounds[0][0], -1e9) if fine.any() else -bounds[1][1]
            assert score.max() - score[indices[t - 1]] < 1e-7, f"trial {trial}, round {t}"


def test_where_believe_cannot_draw() -> None:
    problem = problems.sine(5)
    model = jb.surrogate(problem.domain, kernels.Matern52(), noise_variance=0.05)
    late = delays.Lossy(delay=delays.Constant(rounds=2), never=0.1)
    with pytest.raises(jb.InvalidArgument, match="values that all arrive"):
        jb.simulate(problem, jb.Rpol(), model, horizon=3, key=0, delay=late, feedback=feedback.Believe())
