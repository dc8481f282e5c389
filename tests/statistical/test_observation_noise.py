"""The moments of observation noise, and its independence of rounds, trials and algorithms."""

import jax
import numpy as np
import pytest

import jaxbandit
from jaxbandit import RandomSearch, Rpol, domains, kernels, problems
from jaxbandit.core.keys import Stream, round_key, stream_key, trial_key

# -- moments of the noise; every threshold is five standard errors, passed by chance once in two million -------------------------------

DRAWS = 40_000


def samples(noise, outputs, seed=0):
    keys = jax.random.split(jax.random.key(seed), DRAWS)
    return np.asarray(jax.vmap(lambda key: noise.draw(key, outputs, np.float32))(keys), np.float64)


def drawn(draw, key, trials, rounds):
    """What ``draw`` makes of the key of each round of each trial of a run with ``key``, ``[trials, rounds, ...]``."""

    def one(trial, t):
        return draw(round_key(stream_key(trial_key(key, trial), Stream.NOISE), t))

    every = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))
    return np.asarray(every(np.arange(trials), np.arange(1, rounds + 1)), np.float64)


def check_moments(values, variance):
    """Mean 0, the given variance, no skew and the fourth moment of a Gaussian."""
    count = len(values)
    assert abs(values.mean()) < 5 * np.sqrt(variance / count)
    assert abs(values.var() / variance - 1) < 5 * np.sqrt(2 / count)
    scaled = values / np.sqrt(variance)
    assert abs(np.mean(scaled**3)) < 5 * np.sqrt(15 / count)  # Var z^3 = 15
    assert abs(np.mean(scaled**4) - 3) < 5 * np.sqrt(96 / count)  # Var z^4 = 105 - 9


@pytest.mark.parametrize(
    ("noise", "variances"),
    [
        (problems.Gaussian(), [1.0, 1.0]),
        (problems.Gaussian(variance=0.05), [0.05, 0.05]),
        (problems.Gaussian.from_sd(0.5), [0.25, 0.25]),
        (problems.Gaussian(variance=np.array([0.01, 4.0])), [0.01, 4.0]),
        (problems.Gaussian.from_sd([0.1, 2.0]), [0.01, 4.0]),
        (problems.Gaussian(variance=np.array([0.01, 0.25, 4.0])), [0.01, 0.25, 4.0]),
    ],
    ids=["default", "variance", "sd", "variance per output", "sd per output", "two constraints"],
)
def test_gaussian_noise_has_the_variance_asked_for(noise, variances):
    noise.validate(outputs=len(variances))
    values = samples(noise, len(variances))
    for column, variance in zip(values.T, variances, strict=True):
        check_moments(column, variance)
    correlations = np.corrcoef(values.T)[np.triu_indices(len(variances), 1)]
    assert np.all(np.abs(correlations) < 5 / np.sqrt(DRAWS))


def test_variance_and_sd_are_not_mixed_up():
    np.testing.assert_allclose(problems.Gaussian.from_sd(0.05).variance, 0.0025)
    np.testing.assert_allclose(problems.Gaussian.from_sd([0.1, 0.2]).variance, [0.01, 0.04])


def test_zero_variance_is_no_noise():
    np.testing.assert_array_equal(samples(problems.Gaussian(variance=0.0), 2), np.zeros((DRAWS, 2)))
    np.testing.assert_array_equal(samples(problems.Noiseless(), 2), np.zeros((DRAWS, 2)))


@pytest.mark.full
def test_noise_is_independent_across_rounds_trials_and_outputs():
    """Check the keys that trials use: a correlation of neighbouring rounds, trials or outputs would shrink every interval."""
    trials, rounds = 60, 400
    noise = problems.Gaussian(variance=0.3)
    values = drawn(lambda key: noise.draw(key, 2, np.float32), jax.random.key(11), trials, rounds)  # [trials, rounds, outputs]
    check_moments(values.ravel(), 0.3)
    pairs = {
        "outputs": (values[..., 0], values[..., 1]),
        "rounds": (values[:, :-1], values[:, 1:]),
        "trials": (values[:-1], values[1:]),
        "rounds and outputs": (values[:, :-1, 0], values[:, 1:, 1]),
        "trials and rounds": (values[:-1, :-1], values[1:, 1:]),
        "trial i's round t and trial t's round i": (values[:, :trials], values[:, :trials].swapaxes(0, 1)),
    }
    for name, (one_side, other) in pairs.items():
        if name.startswith("trial i's"):  # the diagonal is the same number twice, the two triangles are the same pairs
            above = np.triu_indices(trials, 1)
            one_side, other = one_side[above], other[above]
        correlation = np.mean(one_side * other) / 0.3
        assert abs(correlation) < 5 / np.sqrt(one_side.size), name
    # A mean over rounds, which is what a study averages, has the variance of independent rounds.
    means = values.mean(axis=1).ravel()
    assert abs(means.var() / (0.3 / rounds) - 1) < 5 * np.sqrt(2 / means.size)
    assert len(np.unique(values)) > 0.99 * values.size  # no number comes twice, but for float32's own coincidences


def test_streams_share_no_numbers():
    trial = trial_key(jax.random.key(0), 3)
    keys = {tuple(np.asarray(jax.random.key_data(round_key(stream_key(trial, s), t)))) for s in Stream for t in range(50)}
    assert len(keys) == 50 * len(Stream)


@pytest.mark.full
def test_trials_of_any_algorithm_see_the_same_noise():
    domain = domains.grid([0.0, 0.0], [6.0, 6.0], 4)
    problem = jaxbandit.replace(problems.sine(4, noise_variance=[0.04, 0.25]), domain=domain)
    model = jaxbandit.surrogate(domain, kernels.SquaredExponential(), noise_variance=0.1, form="features")
    key, options = jax.random.key(8), {"horizon": 6, "devices": jax.devices()[:1], "block": 1}

    def noise_of(algorithm, trials, key):
        run = jax.tree.map(np.asarray, jaxbandit.simulate(problem, algorithm, model, trials=trials, key=key, **options))
        return run.values - np.moveaxis(problem.means[:, run.indices], 0, -1)

    rpol, random = (noise_of(algorithm, 3, key) for algorithm in (Rpol(), RandomSearch()))
    np.testing.assert_allclose(rpol, random, atol=2e-6)  # values near 7 lose float32's last digits when the mean is taken off
    np.testing.assert_allclose(noise_of(Rpol(), [2, 0, 1], key), rpol[[2, 0, 1]], atol=2e-6)
    np.testing.assert_allclose(rpol, drawn(problem.draw, key, 3, 6), atol=2e-6)
    # another key, other numbers in all 36 places
    assert np.min(np.abs(noise_of(Rpol(), 3, jax.random.key(9)) - rpol)) > 1e-5
