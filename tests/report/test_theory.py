"""Claims beside runs: against dense posteriors and curves of known exponents."""

import jax
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit.report.theory import CLAIMS, TheoryCheck, _slopes
from tests.oracles import gaussian_process as gp

PROBLEM = jb.problems.sine(9)
MODEL = PROBLEM.model(jb.kernels.SquaredExponential(length_scale=1.0))


@pytest.fixture(scope="module")
def run() -> jb.Trajectory:
    return jb.simulate(PROBLEM, jb.Config(), MODEL, horizon=15, trials=3, key=2, initial=jb.InitialDesign(random=2))


def test_gain_bands_and_informative_rounds_are_those_of_a_dense_posterior(run: jb.Trajectory) -> None:
    checked = jb.theory.check(run, MODEL, batch=1)
    x = np.asarray(PROBLEM.domain.points, np.float64)
    gram = gp.squared_exponential(x, x, length_scale=1.0)
    noise, truth = float(np.asarray(MODEL.noise_variance).ravel()[0]), np.asarray(PROBLEM.means, np.float64)
    for trial in range(3):
        points = np.concatenate([run.initial_indices[trial], run.indices[trial]])
        values = np.concatenate([run.initial_values[trial], run.values[trial]]).astype(np.float64)
        informative, total = 0, np.zeros(2)
        for t in range(15):
            told, chosen = points[: 2 + t], points[2 + t]
            solved = np.linalg.solve(gram[np.ix_(told, told)] + noise * np.eye(len(told)), np.c_[gram[told, chosen], values[: 2 + t]])
            variance, mean = gram[chosen, chosen] - gram[chosen, told] @ solved[:, 0], gram[chosen, told] @ solved[:, 1:]
            total += 0.5 * np.log1p(variance / noise)
            informative += variance >= noise / 2
            np.testing.assert_allclose(checked.gain[trial, t], total, rtol=2e-3)
            held = np.abs(truth[:, chosen] - mean) <= np.asarray(run.widths)[trial, t] * np.sqrt(variance)
            np.testing.assert_array_equal(checked.held[trial, t], held)
        assert checked.informative is not None and checked.informative[trial] == informative
    assert "at most" in repr(checked) and "Theorem 4.3" in repr(checked)


def test_exponents_are_those_of_powers() -> None:
    t = np.arange(1.0, 401.0)
    np.testing.assert_allclose(_slopes(np.stack([3 * t**0.5, 0.1 * t, 7 + 0 * t, -t])), [0.5, 1.0, 0.0, 0.0], atol=1e-12)


def test_claims_grow_as_their_words_say(run: jb.Trajectory) -> None:
    rounds = np.arange(1, 101)
    gain = np.ones((2, 100, 2))
    exponents = {"rpol": [0.5, 0.5], "cbo": [0.5, 0.5], "config": [0.5, 0.5], "se2": [0.75, 0.5], "se3": [0.75, 0.75], "bpe": [0.5]}
    exponents["unconstrained"] = [0.5]
    assert set(exponents) == set(CLAIMS)
    for name, expected in exponents.items():
        bounds = np.stack([claim.bound(rounds, gain.max(axis=2)) * np.ones((2, 100)) for claim in CLAIMS[name]])
        np.testing.assert_allclose([_slopes(bound)[0] for bound in bounds], expected)
        assert isinstance(jb.ALGORITHMS[name], type)
    figure = jb.theory.check(run, MODEL).plot()
    assert [axis.get_xscale() for axis in figure.axes] == ["log", "log"] and "regret" in figure.axes[0].get_ylabel()
    bare = TheoryCheck("mine", (), {}, gain, gain > 0)
    with pytest.raises(jb.InvalidArgument, match="there is no claim for 'mine'"):
        bare.plot()


def test_runs_that_cannot_be_replayed_are_refused(run: jb.Trajectory) -> None:
    with pytest.raises(jb.InvalidArgument, match="does not know its problem"):
        jb.theory.check(jax.tree.map(np.asarray, run), MODEL)
    with pytest.raises(jb.InvalidArgument, match="must have trials"):
        jb.theory.check(run.trial(0), MODEL)
    late = jb.simulate(PROBLEM, jb.Config(), MODEL, horizon=15, trials=3, key=2, delay=jb.delays.Poisson(mean=2.0))
    with pytest.raises(jb.InvalidArgument, match="feedback at once"):
        jb.theory.check(late, MODEL)
