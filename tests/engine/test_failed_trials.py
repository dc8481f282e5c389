"""Trials that go wrong are flagged, and spoil nothing else."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InitialDesign, Status, domains, estimators, kernels, metrics, problems
from jaxbandit.core.keys import Stream, round_key, stream_key, trial_key
from jaxbandit.core.status import FAILED

HORIZON, TRIALS, SIZE = 15, 8, 20
# Some trials of eight are spoiled, and some are not.
RATE = 0.02
KEY = jax.random.key(0)


@jaxbandit.pytree
class Faulty(problems.Noise):
    """Gaussian noise with ``fault`` in some rounds of one output.

    All numbers are data, so runs share programs.
    """

    rate: Any = 0.0
    fault: Any = float("nan")
    output: Any = 0
    scale: Any = 0.1

    def draw(self, key: jax.Array, outputs: int, dtype: Any) -> jax.Array:
        noise = self.scale * jax.random.normal(key, (outputs,), dtype)
        struck = self.strikes(key) & (jnp.arange(outputs) == jnp.asarray(self.output, jnp.int32))
        return jnp.where(struck, self.fault, noise)

    def strikes(self, key: jax.Array) -> jax.Array:
        return jax.random.uniform(jax.random.fold_in(key, 1)) < self.rate

    def apply(self, drawn: jax.Array, index: jax.Array) -> jax.Array:
        return drawn


def problem(noise: Any, *, shift: float = -0.5) -> problems.Problem:
    rng = np.random.default_rng(1)
    domain = domains.product([np.sort(rng.random(SIZE))])
    x = np.asarray(domain.points)[:, 0]
    return problems.from_tables(domain, np.sin(7 * x), np.stack([np.cos(5 * x) + shift, x - 0.8 + shift]), noise=noise)


def surrogate(of: problems.Problem) -> jaxbandit.Surrogate:
    return jaxbandit.surrogate(of.domain, kernels.Matern52(length_scale=0.3), noise_variance=0.01, outputs=3, form="features")


def simulate(of: problems.Problem, algorithm: Any, **options: Any) -> jaxbandit.Trajectory:
    """A run in two blocks."""
    options = {"horizon": HORIZON, "trials": TRIALS, "key": KEY, "block": 4} | options
    return jax.tree.map(np.asarray, jaxbandit.simulate(of, algorithm, surrogate(of), **options))


@jax.jit
def struck(noise: Faulty) -> jax.Array:
    """Return the faulty rounds of each trial from the keys alone."""

    def strikes(trial: jax.Array, t: jax.Array) -> jax.Array:
        return noise.strikes(round_key(stream_key(trial_key(KEY, trial), Stream.NOISE), t))

    rounds = jnp.arange(1, HORIZON + 1, dtype=jnp.int32)
    return jax.vmap(lambda trial: jax.vmap(lambda t: strikes(trial, t))(rounds))(jnp.arange(TRIALS, dtype=jnp.int32))


def first_strikes(noise: Faulty) -> np.ndarray:
    """The first round with a fault in each trial, 0 for none."""
    found = np.asarray(struck(noise))
    return np.where(found.any(1), found.argmax(1) + 1, 0)


ALGORITHMS = {
    "rpol": jaxbandit.Rpol,
    "cbo": jaxbandit.Cbo,
    "config": jaxbandit.Config,
    "thompson": lambda: jaxbandit.Rpol(estimator=estimators.Thompson()),
}


@pytest.mark.full(but=("rpol", "config"))
@pytest.mark.parametrize("fault", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("output", [0, 2])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_bad_observation_flags_its_trial_only(name: str, output: int, fault: float) -> None:
    sick = Faulty(rate=RATE, fault=fault, output=output)
    run = simulate(problem(sick), ALGORITHMS[name]())
    well = simulate(problem(Faulty(rate=0.0, fault=fault, output=output)), ALGORITHMS[name]())
    expected = first_strikes(sick)
    failed = expected > 0
    assert 2 <= failed.sum() <= TRIALS - 2, "the rate must spoil some trials and spare some"

    np.testing.assert_array_equal(run.failed_round, expected)
    status = np.asarray(run.status)
    np.testing.assert_array_equal((status & Status.NONFINITE_FEEDBACK) != 0, failed)
    np.testing.assert_array_equal(metrics.healthy(run.status), ~failed)
    np.testing.assert_array_equal(well.failed_round, np.zeros(TRIALS))
    assert np.all(metrics.healthy(well.status))
    for path, x in jax.tree_util.tree_leaves_with_path(run):
        y = dict(jax.tree_util.tree_leaves_with_path(well))[path]
        label = jax.tree_util.keystr(path)
        np.testing.assert_array_equal(np.asarray(x)[~failed], np.asarray(y)[~failed], err_msg=label)
        assert np.all(np.isfinite(np.asarray(x)[~failed])), label
    # Before its fault a trial is unchanged.
    for trial in np.flatnonzero(failed):
        before = slice(None, expected[trial] - 1)
        np.testing.assert_array_equal(run.values[trial][before], well.values[trial][before])
        np.testing.assert_array_equal(run.indices[trial][before], well.indices[trial][before])
        assert not np.isfinite(run.values[trial, expected[trial] - 1, output])
    assert np.all((np.asarray(run.indices) >= 0) & (np.asarray(run.indices) < SIZE)), "a NaN score still names a point of the domain"


def test_a_nan_score_is_flagged() -> None:
    """A trial that goes on has both flags."""
    sick = Faulty(rate=RATE)
    run = simulate(problem(sick), jaxbandit.Rpol())
    early = (first_strikes(sick) > 0) & (first_strikes(sick) < HORIZON)
    assert early.any()
    both = int(Status.NONFINITE_FEEDBACK | Status.NONFINITE_SCORE)
    np.testing.assert_array_equal((np.asarray(run.status) & both == both), early)
    words = jaxbandit.explain(int(np.asarray(run.status)[early][0]))
    assert "the problem returned NaN" in words and "score was NaN" in words


def test_nan_is_no_declaration_of_infeasibility() -> None:
    """A NaN lower bound is not above 0."""
    sick = Faulty(rate=RATE, output=2)
    well = simulate(problem(Faulty(rate=0.0, output=2)), jaxbandit.Config())
    assert np.all(np.asarray(well.declared_round) == 0)
    run = simulate(problem(sick), jaxbandit.Config())
    assert np.any(np.asarray(run.failed_round) > 0)
    np.testing.assert_array_equal(run.declared_round, np.zeros(TRIALS))
    assert not np.any(np.asarray(run.status) & Status.DECLARED_INFEASIBLE)


def test_nan_in_the_initial_design_is_flagged() -> None:
    run = simulate(problem(Faulty(rate=1.0)), jaxbandit.Rpol(), initial=InitialDesign(indices=np.array([2, 5])))
    assert np.all(np.isnan(np.asarray(run.initial_values)[..., 0]))
    assert np.all(np.asarray(run.status) & Status.NONFINITE_FEEDBACK)
    np.testing.assert_array_equal(run.failed_round, np.ones(TRIALS))
    clean = simulate(problem(Faulty(rate=0.0)), jaxbandit.Rpol(), initial=InitialDesign(indices=np.array([2, 5])))
    np.testing.assert_array_equal(clean.status, np.zeros(TRIALS))


@pytest.mark.full(but=("rpol", "config"))
@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_problem_without_a_feasible_point_runs_and_says_so(name: str) -> None:
    impossible, possible = problem(Faulty(), shift=3.0), problem(Faulty())
    run, other = simulate(impossible, ALGORITHMS[name]()), simulate(possible, ALGORITHMS[name]())
    assert np.all(np.asarray(run.status) & Status.NO_FEASIBLE_POINT)
    assert not np.any(np.asarray(other.status) & Status.NO_FEASIBLE_POINT)
    assert np.all(metrics.healthy(run.status)), "infeasibility is no failure"
    assert np.all(np.isfinite(run.values)) and np.all(np.isfinite(run.multipliers))
    curves, feasible = metrics.curves(impossible, run.indices), metrics.curves(possible, other.indices)
    assert np.isnan(np.asarray(metrics.optimum(impossible).value))
    for field in ("regret", "positive_regret", "best_constrained_regret"):
        assert np.all(np.isnan(getattr(curves, field))), field
        assert np.all(np.isfinite(getattr(feasible, field))), field
    # The violation is defined nevertheless.
    means = np.asarray(impossible.means)[1:, np.asarray(run.indices)]
    np.testing.assert_allclose(curves.hard_violation, np.cumsum(np.maximum(means, 0).sum(0), axis=-1), rtol=1e-5)


def test_config_declares_and_goes_on() -> None:
    impossible = problem(Faulty(), shift=3.0)
    run = simulate(impossible, jaxbandit.Config())
    declared = np.asarray(run.declared_round)
    assert np.all((declared > 1) & (declared <= HORIZON)), "not before data, and before the end"
    np.testing.assert_array_equal(run.status, np.full(TRIALS, Status.DECLARED_INFEASIBLE | Status.NO_FEASIBLE_POINT))
    np.testing.assert_array_equal(run.failed_round, np.zeros(TRIALS))
    assert jaxbandit.explain(int(run.status[0])) == (
        "the algorithm declared the problem infeasible; the problem has no feasible point, so regret is undefined"
    )
    # From then on it goes to where the worst constraint looks least: 2.60 to 2.75 were seen, of 2.60 to 3.99 on the domain.
    worst = np.asarray(impossible.means)[1:].max(0)
    assert np.all(worst[np.asarray(run.indices)[:, -1]] <= np.quantile(worst, 0.4))
    longer = simulate(impossible, jaxbandit.Config(), horizon=2 * HORIZON)
    # The first declaration counts.
    np.testing.assert_array_equal(longer.declared_round, declared)
    feasible = simulate(problem(Faulty()), jaxbandit.Config())
    np.testing.assert_array_equal(feasible.declared_round, np.zeros(TRIALS))
    np.testing.assert_array_equal(feasible.status, np.zeros(TRIALS))


def test_a_false_declaration_is_flagged_as_such() -> None:
    """The widths are far too small, and a feasible point exists."""
    tight = problem(Faulty(scale=2.0))
    run = simulate(tight, jaxbandit.Config(estimator=estimators.Bounds(reward_width=1e-3, cost_width=1e-3)))
    status = np.asarray(run.status)
    gave_up = np.asarray(run.declared_round) > 0
    assert gave_up.any()
    np.testing.assert_array_equal((status & Status.DECLARED_INFEASIBLE) != 0, gave_up)
    assert not np.any(status & Status.NO_FEASIBLE_POINT)


def test_every_flag_has_words() -> None:
    for flag in Status:
        if flag:
            assert jaxbandit.explain(int(flag)) not in ("", "ok"), flag
    assert jaxbandit.explain(0) == "ok"
    users = (
        Status.NONFINITE_TRUTH
        | Status.NEGATIVE_DELAY
        | Status.NO_SUCH_POINT
        | Status.NEGATIVE_WIDTH
        | Status.NONFINITE_STATE
        | Status.OUT_OF_RANGE
    )
    assert Status.NONFINITE_FEEDBACK | Status.NONFINITE_SCORE | users == FAILED
