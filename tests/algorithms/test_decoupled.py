"""UCB-D and COBAR against dense references, and single evaluations."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import delays, domains, estimators, feedback, kernels, metrics, problems
from jaxbandit.algorithms import Decision, Traits
from jaxbandit.report.plots import posterior_after
from tests.oracles import bandit, decoupled
from tests.oracles import gaussian_process as gp

SIDE, LENGTH_SCALE, NOISE, HORIZON, TRIALS, WIDTH = 6, 0.35, 0.05, 30, 2, 1.5
BOUNDS = estimators.Bounds(reward_width=WIDTH, cost_width=WIDTH)
LATE = delays.Geometric(mean=2.0)
# The reward of a third problem varies little, so that constraints are evaluated beside it.
CASES: dict[str, tuple[Any, Callable[..., decoupled.Rounds], Any, float, float]] = {
    "ucb-d": (jb.UcbD(estimator=BOUNDS), functools.partial(decoupled.ucbd, width=WIDTH), None, 0.3, 1.0),
    "ucb-d-late": (jb.UcbD(estimator=BOUNDS), functools.partial(decoupled.ucbd, width=WIDTH), LATE, 0.3, 1.0),
    "ucb-d-guard": (jb.UcbD(estimator=BOUNDS, guard=2.0), functools.partial(decoupled.ucbd, width=WIDTH, guard=2.0), None, 0.6, 0.05),
    "ucb-c": (jb.UcbD(estimator=BOUNDS, coupled=True), functools.partial(decoupled.ucbd, width=WIDTH, coupled=True), None, -2.5, 1.0),
    "cobar": (jb.Cobar(estimator=BOUNDS), functools.partial(decoupled.cobar, width=WIDTH), None, 0.3, 1.0),
    "cobar-late": (
        jb.Cobar(estimator=BOUNDS, decoupled=True),
        functools.partial(decoupled.cobar, width=WIDTH, decoupled=True),
        LATE,
        0.3,
        1.0,
    ),
    "cobar-infeasible": (jb.Cobar(estimator=BOUNDS), functools.partial(decoupled.cobar, width=WIDTH), None, -2.5, 1.0),
}
every_case = pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n == "ucb-d-late" else pytest.mark.full) for n in CASES])


@functools.cache
def played(name: str) -> tuple[bandit.Model, jb.Trajectory, jb.Surrogate]:
    """Return the model and a run in float64.

    Constraints lie lower by the case's slack.
    """
    algorithm, _, delay, slack, scale = CASES[name]
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], SIDE)
    points = np.asarray(domain.points)
    gram = gp.matern52(points, points, LENGTH_SCALE)
    means = gp.random_functions(gram, 3, np.random.default_rng(3)) * [[scale], [1], [1]] - [[0], [slack], [slack]]
    problem = problems.from_tables(domain, means[0], means[1:], noise_variance=NOISE * np.array([scale**2, 1, 1]))
    with jax.enable_x64(True):
        own = [variance * kernels.Matern52(length_scale=LENGTH_SCALE) for variance in (scale**2, 1.0, 1.0)]
        model = jb.surrogate(domain, own, noise_variance=[NOISE * scale**2, NOISE, NOISE], outputs=3, form="features")
        run = jb.simulate(problem, algorithm, model, horizon=HORIZON, trials=TRIALS, key=1, delay=delay, initial=jb.InitialDesign(random=2))
    believed = bandit.Model(
        grams=np.stack([gram * scale**2, gram, gram]),
        noise=np.array([NOISE * scale**2, NOISE, NOISE]),
        prior_mean=np.zeros(3),
        width=bandit.constant(WIDTH),
    )
    return believed, jax.tree.map(np.asarray, run), model


@every_case
def test_every_choice_of_point_and_function(name: str) -> None:
    model, run, _ = played(name)
    assert np.all(metrics.healthy(run.status))
    for trial in range(TRIALS):
        record = bandit.Record(run.indices[trial], run.values[trial], run.initial_indices[trial], run.initial_values[trial])
        at_once = decoupled.arrivals(record)
        expected = CASES[name][1](model, record, at_once if run.arrivals is None else run.arrivals[trial])
        assert bandit.score_gaps(expected.scores, run.indices[trial]).max() < 1e-8
        np.testing.assert_array_equal(~np.isnan(run.values[trial]), expected.outputs)
        if run.shown is not None:
            assert run.shown["recommended"][trial] == expected.recommended
        if run.arrivals is not None:
            assert np.all((run.arrivals[trial] >= delays.NEVER) == ~expected.outputs), "hidden values never arrive"
            assert np.any((run.arrivals[trial] > at_once) & expected.outputs), "values were late"
    evaluated = ~np.isnan(run.values)
    shares = evaluated.mean((0, 1))
    assert {
        "ucb-d": evaluated.sum(-1).max() == 1 and 0 < shares.min() < shares.max() < 1,
        "ucb-d-late": evaluated.sum(-1).max() == 1 and shares.min() > 0,
        "ucb-d-guard": evaluated.sum(-1).max() > 1 and evaluated.sum(-1).min() == 1,
        "ucb-c": {*np.unique(evaluated.sum(-1))} == {1, 3},
        "cobar-late": evaluated.sum(-1).max() == 1 and shares.min() > 0,
        "cobar-infeasible": np.all(run.status & int(jb.Status.DECLARED_INFEASIBLE)),
    }.get(name, evaluated.all()), shares


def test_the_check_sees_another_rule() -> None:
    model, run, own = played("ucb-d-late")
    record = bandit.Record(run.indices[0], run.values[0], run.initial_indices[0], run.initial_values[0])
    wrong = decoupled.ucbd(model, record, decoupled.arrivals(record), width=WIDTH)
    assert bandit.score_gaps(wrong.scores, run.indices[0]).max() > 1e-3, "values count when they arrive"
    # Beliefs after the run are of the evaluated values, too.
    lower, upper = decoupled.intervals(model, record, run.arrivals[0], WIDTH, HORIZON + 1)
    after = posterior_after(own, run.trial(0), [HORIZON])
    np.testing.assert_allclose(after.mean[0], (lower + upper) / 2, atol=1e-8)
    np.testing.assert_allclose(after.sd[0], (upper - lower) / (2 * WIDTH), atol=1e-6)


def test_curves_by_evaluations() -> None:
    nan = np.nan
    values = [[1.0, nan], [1.0, 2.0], [nan, 3.0]]
    found = metrics.by_evaluations([10.0, 20.0, 30.0], values, horizon=5)
    np.testing.assert_array_equal(found, [10, 10, 20, 30, nan])
    twice = metrics.by_evaluations([[10.0, 20.0]], [[[1.0, 2.0], [1.0, 2.0]]], horizon=3)
    np.testing.assert_array_equal(twice, [[nan, 10, 10]])


@jb.pytree
class Some(jb.Algorithm):
    """Evaluate the reward alone, without saying so in the traits."""

    name = "some"

    def select(self, arena: Any, state: Any, t: Any, key: Any) -> Any:
        return Decision(index=jnp.int32(0), widths=jnp.zeros(3, arena.dtype), outputs=jnp.array([True, False, False])), state


@jb.pytree
class Said(Some):
    """The same, with the trait."""

    traits = Traits(decoupled=True)


def test_what_is_refused() -> None:
    domain = domains.grid([0.0], [1.0], 5)
    problem = problems.from_tables(domain, np.zeros(5), np.zeros((2, 5)), noise_variance=NOISE)
    model = jb.surrogate(domain, kernels.Matern52(), noise_variance=NOISE, outputs=3)
    given = {"horizon": 2, "key": 0}
    with pytest.raises(jb.InvalidArgument, match=r"Some\.select chose some outputs; give the class traits"):
        jb.simulate(problem, Some(), model, **given)
    with pytest.raises(jb.InvalidArgument, match="evaluates some outputs alone, which only Wait knows"):
        jb.simulate(problem, Said(), model, delay=LATE, feedback=feedback.Hallucinate(), **given)
    sums = jb.simulate(problem, Said(), model, **given)
    assert np.isnan(sums.values[..., 1:]).all() and np.isfinite(sums.values[..., 0]).all()
    hidden = jb.algorithms.Observation(index=jnp.int32(0), values=jnp.array([1.0, jnp.nan]), present=jnp.array([True, False]))
    np.testing.assert_array_equal([hidden.total(), hidden.largest(), hidden.count], [[1, 0], [1, -np.inf], [1, 0]])
