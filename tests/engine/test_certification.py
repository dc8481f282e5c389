"""Probabilities of violations under right and wrong models, with exact intervals."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxbandit
from jaxbandit import InvalidArgument, SafeOpt, SgpUcb, certify, domains, kernels, problems
from jaxbandit.engine.certification import CONDITIONS

UNSAFE = 0.1


@jaxbandit.pytree
class Coin(problems.Family):
    """A safe point, and a better one, unsafe with probability ``UNSAFE``."""

    domain: Any
    noise: Any = problems.Noiseless()
    name: str = jaxbandit.static(default="coin")
    constraints = 1

    def sample(self, key: jax.Array) -> problems.Problem:
        cost = jnp.where(jax.random.uniform(key) < UNSAFE, 1.0, -1.0)
        return problems.Problem(domain=self.domain, means=jnp.array([[0.0, 1.0], [-1.0, 0.0]]).at[1, 1].set(cost), noise=self.noise)


@functools.cache
def coin() -> tuple[Any, ...]:
    """Return the algorithm, the family, and a model that trusts both points."""
    domain = domains.grid([0.0], [1.0], 2)
    kernel = kernels.SquaredExponential(length_scale=0.1)
    model = jaxbandit.surrogate(domain, kernel, noise_variance=0.01, outputs=2, prior_mean=[0.0, -10.0])
    return SgpUcb(seeds=[0], warm_up=0.0), Coin(domain=domain), model


@pytest.mark.full
def test_the_interval_covers_the_truth_in_95_percent() -> None:
    trials, repeats = 30, 200
    rows = [certify(*coin(), horizon=4, trials=trials, key=key, conditions=["as modelled"]).rows[0] for key in range(repeats)]
    covered = np.mean([row["low"] <= UNSAFE <= row["high"] for row in rows])
    # How often the exact interval covers the truth, which is at least 95%.
    counts = np.arange(trials + 1)
    ends = [stats.binomtest(int(k), trials).proportion_ci(0.95, method="exact") for k in counts]
    exact = sum(stats.binom.pmf(k, trials, UNSAFE) for k, end in zip(counts, ends, strict=True) if end.low <= UNSAFE <= end.high)
    assert exact >= 0.95 and covered >= 0.95
    assert abs(covered - exact) < 4 * np.sqrt(exact * (1 - exact) / repeats)
    shares = [row["probability"] for row in rows]
    assert abs(np.mean(shares) - UNSAFE) < 4 * np.sqrt(UNSAFE * (1 - UNSAFE) / (trials * repeats)), "it is the share of trials"
    assert {row["trials"] for row in rows} == {trials} and max(row["largest_share"] for row in rows) == 0.25


def test_a_row_has_the_interval_of_clopper_and_pearson() -> None:
    (row,) = certify(*coin(), horizon=4, trials=100, conditions=["as modelled"]).rows
    k = row["violated"]
    assert 0 < k < 30 and row["probability"] == k / 100
    assert row["low"] == pytest.approx(stats.beta.ppf(0.025, k, 101 - k)) and row["high"] == pytest.approx(
        stats.beta.ppf(0.975, k + 1, 100 - k)
    )


@functools.cache
def drawn() -> tuple[Any, jaxbandit.SafetyTable]:
    domain = domains.grid([0.0], [1.0], 40)
    family = problems.gp_draws(domain=domain, kernel=kernels.SquaredExponential(length_scale=0.2), noise=problems.Gaussian(variance=0.01))
    return family, certify(SafeOpt(), family, horizon=20, trials=200)


class Simulated(Exception):
    """Raised in place of a simulation."""


def test_conditions_change_one_thing_each(monkeypatch: pytest.MonkeyPatch) -> None:
    def given(**run: Any) -> None:
        raise Simulated(run)

    monkeypatch.setattr("jaxbandit.engine.certification.simulate", given)
    algorithm, family, _ = coin()
    loud = jaxbandit.replace(family, noise=problems.Gaussian(variance=0.01))
    model = jaxbandit.surrogate(family.domain, kernels.Scale(kernel=kernels.Matern52(length_scale=0.1), variance=2.0), noise_variance=0.01)
    found: dict[str, Any] = {}
    for name in CONDITIONS:
        with pytest.raises(Simulated) as run:
            certify(algorithm, loud, model, trials=2, horizon=2, conditions=[name])
        found[name] = run.value.args[0]
    scales = [float(run["surrogate"].kernels[0].kernel.length_scale) for run in found.values()]
    drawn = [run["problem"].noise.apply(run["problem"].noise.draw(jax.random.key(0), 2, jnp.float32), 1) for run in found.values()]
    late = [getattr(run.get("delay"), "mean", 0) for run in found.values()]
    assert scales == pytest.approx([0.1, 0.05, 0.2, 0.1, 0.1, 0.1]) and late == [0, 0, 0, 0, 0, 5]
    for number, factor in enumerate([1, 1, 1, 3, None, 1]):
        assert factor is None or drawn[number] == pytest.approx(factor * drawn[0])
    heavy = found["heavy tails"]["problem"].noise
    assert isinstance(heavy, problems.StudentT) and heavy.df == 3 and heavy.scale == pytest.approx([np.sqrt(0.01 / 3)] * 2)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:simulate")
def test_wrong_models_leave_the_safe_points_more_often() -> None:
    family, table = drawn()
    frame = table.to_dataframe().set_index("condition")
    assert list(frame.index) == ["as modelled", "length-scale x 0.5", "length-scale x 2", "noise x 3", "heavy tails", "late values"]
    assert np.all(frame.trials == 200) and np.all((frame.low <= frame.probability) & (frame.probability <= frame.high))
    assert frame.probability["length-scale x 2"] > frame.high["as modelled"]
    assert frame.probability["noise x 3"] > frame.probability["as modelled"]
    assert frame.probability["length-scale x 0.5"] <= frame.probability["as modelled"] <= 0.05
    head, _, *lines = repr(table).splitlines()
    assert head.split() == ["condition", "trials", "violated", "probability", "95%", "interval", "largest", "share"] and len(lines) == 6
    assert "<caption" in table._repr_html_()
    # The row of the right model is a run with the same key.
    run = jaxbandit.simulate(
        family, SafeOpt(), family.model(horizon=20), horizon=20, trials=200, key=0, informed=jaxbandit.informed.SafestSeeds()
    )
    violated = np.asarray(run.to_xarray().violating_rounds.isel(algorithm=0, round=-1)) > 0
    assert frame.violated["as modelled"] == violated.sum()


def test_what_cannot_be_certified_is_refused() -> None:
    domain = domains.grid([0.0], [1.0], 4)
    free = problems.from_tables(domain, np.arange(4.0), np.zeros((0, 4)), noise=problems.Gaussian(variance=0.1))
    model = jaxbandit.surrogate(domain, kernels.White(), noise_variance=0.1, outputs=1)
    with pytest.raises(InvalidArgument, match=r"^family: must have constraints, or every point is safe"):
        certify(SafeOpt(seeds=[0]), free, model)
    with pytest.raises(InvalidArgument, match=r"^conditions\[0\]: must be one of as modelled, .*late values; got 'wrong'"):
        certify(*coin(), conditions=["wrong"])
    algorithm, family, _ = coin()
    rough = jaxbandit.surrogate(family.domain, kernels.White(), noise_variance=0.1, outputs=2)
    with pytest.raises(InvalidArgument, match=r"^conditions: the model has no kernel with a length-scale to change"):
        certify(algorithm, family, rough, trials=2, horizon=2, conditions=["length-scale x 2"])
