"""Moments of exploration strategies and of observation noise."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import jaxbandit
from jaxbandit import InvalidArgument, RandomSearch, Rpol, domains, estimators, kernels, problems
from jaxbandit.core.keys import Stream, round_key, stream_key, trial_key
from jaxbandit.rules.estimators import Bounds, DiscreteGaussian, DiscreteUniform, Gaussian, Randomised, Thompson
from jaxbandit.surrogates.features import DenseFeatures, ProductFeatures
from tests.oracles import gaussian_process as gp
from tests.support import panel
from tests.support.unchecked import unchecked

DRAWS, RISK = 20_000, 1e-6
NOISE = 0.1
BETA = np.array([1.5, 0.5, 2.0])
PRIOR_MEAN = np.array([0.4, -0.3, 0.0])
INDICES = np.array([0, 5, 5, 9, 2, 11])
ROUND = jnp.int32(1 + len(INDICES))


def standard_errors(count: int) -> float:
    """Return the standard errors that a family of two-sided checks may need."""
    return float(stats.norm.isf(RISK / (2 * count)))


@functools.cache
def setting(form: str, separate: bool) -> tuple[jaxbandit.Surrogate, Any, np.ndarray, np.ndarray]:
    """Return a surrogate, its posterior, and the dense mean and covariance.

    The mean is ``[k, M]``. With ``separate`` every function has a kernel of its own; otherwise they share a factor.
    """
    rng = np.random.default_rng(4)
    domain = domains.product([np.sort(rng.random(4)), np.sort(rng.random(3))])
    points = np.asarray(domain.points)
    scales = [0.3, 0.5, 0.8] if separate else [0.4] * 3
    values = rng.standard_normal((len(INDICES), 3))
    with jax.enable_x64(True):
        model = jaxbandit.surrogate(
            domain,
            [kernels.SquaredExponential(length_scale=scale) for scale in scales],
            noise_variance=NOISE,
            outputs=3,
            prior_mean=PRIOR_MEAN,
            form=form,
        )
        assert len(model.forms) == (3 if separate else 1)
        posterior = model.init()
        for index, value in zip(INDICES, values, strict=True):
            posterior = model.condition(posterior, jnp.int32(index), jnp.asarray(value))
    dense = [
        gp.posterior(gp.squared_exponential(points, points, scale), INDICES, values[:, j], NOISE, PRIOR_MEAN[j])
        for j, scale in enumerate(scales)
    ]
    mean, covariance = (np.stack(x) for x in zip(*dense, strict=True))
    return model, posterior, mean, covariance


def drawn(strategy: Any, form: str = "features", *, separate: bool = False, weights: Any = None, seed: int = 0) -> estimators.Estimate:
    """Return ``DRAWS`` estimates, of the combination when there are weights."""
    model, posterior, *_ = setting(form, separate)
    with jax.enable_x64(True):
        strategy = jaxbandit.canonicalise(strategy)
        keys = jax.random.split(jax.random.key(seed), DRAWS)
        if weights is None:
            estimate = jax.jit(jax.vmap(lambda key: strategy.estimate(model.belief(posterior), ROUND, key)))(keys)
        else:
            estimate = jax.jit(jax.vmap(lambda key: strategy.combination(model.belief(posterior), jnp.asarray(weights), ROUND, key)))(keys)
    return jax.tree.map(np.asarray, estimate)


def assert_gaussian(draws: np.ndarray, mean: np.ndarray, covariance: np.ndarray) -> None:
    """Check every entry of both moments of ``draws [n, d]``."""
    count, size = draws.shape
    variance = np.diag(covariance)
    checks = size + size * (size + 1) // 2
    k = standard_errors(checks)
    # Features leave out 1e-13 of the prior variance.
    tiny = 1e-12
    assert np.all(np.abs(draws.mean(0) - mean) <= k * np.sqrt(variance / count) + tiny)
    empirical = np.cov(draws.T)
    # Var of an entry of a Wishart's mean: (c_ii c_jj + c_ij^2) / (n - 1).
    error = np.sqrt((variance[:, None] * variance[None, :] + covariance**2) / (count - 1))
    assert np.all(np.abs(empirical - covariance) <= k * error + tiny)
    # Together, more sharply: whitened draws are d chi-square numbers each.
    values, vectors = np.linalg.eigh(covariance)
    kept = values > 1e-8 * values[-1]
    z = (draws - mean) @ vectors[:, kept] / np.sqrt(values[kept])
    total = np.sum(z**2, axis=1)
    assert abs(total.mean() - kept.sum()) <= standard_errors(2) * np.sqrt(2 * kept.sum() / count)
    # Normal, not only of these moments: a Kolmogorov-Smirnov test of the leading direction.
    assert stats.kstest(z[:, -1], "norm").pvalue > RISK


@pytest.mark.full
@pytest.mark.parametrize(("form", "separate"), [("features", False), ("product", False), ("features", True)])
def test_thompson_draws_have_the_posteriors_law(form: str, separate: bool) -> None:
    """Blocks are ``beta_j^2 k_j`` on the diagonal, and functions are independent."""
    *_, mean, covariance = setting(form, separate)
    outcome = drawn(Thompson(reward_width=BETA[0], cost_width=BETA[1:]), form, separate=separate)
    np.testing.assert_allclose(outcome.widths, np.broadcast_to(BETA, (DRAWS, 3)))
    np.testing.assert_array_equal(outcome.draws, np.concatenate([outcome.reward[:, None], outcome.costs], axis=1))
    size = mean.shape[1]
    whole = np.zeros((3 * size, 3 * size))
    for j in range(3):
        whole[j * size : (j + 1) * size, j * size : (j + 1) * size] = BETA[j] ** 2 * covariance[j]
    assert_gaussian(outcome.draws.reshape(DRAWS, -1), mean.reshape(-1), whole)


@pytest.mark.full
@pytest.mark.parametrize("form", ["features", "product"])
def test_thompson_draw_of_a_combination(form: str) -> None:
    """The draw has the reward's width."""
    *_, mean, covariance = setting(form, False)
    weights = np.array([1.0, -2.0, -0.5])
    outcome = drawn(Thompson(reward_width=BETA[0], cost_width=BETA[1:]), form, weights=weights, seed=1)
    np.testing.assert_array_equal(outcome.draws[:, 0], outcome.reward)
    assert outcome.draws.shape[1] == 1
    assert_gaussian(outcome.reward, weights @ mean, BETA[0] ** 2 * covariance[0])


@pytest.mark.full
def test_the_law_is_checked_sharply() -> None:
    """Small faults of width, mean and covariance do not pass."""
    *_, mean, covariance = setting("features", False)
    right = drawn(Thompson(reward_width=BETA[0], cost_width=BETA[1:])).reward
    target = BETA[0] ** 2 * covariance[0]
    assert_gaussian(right, mean[0], target)
    deviation = np.sqrt(np.diag(target))
    for wrong in (1.02 * (right - mean[0]) + mean[0], right + 0.1 * deviation, mean[0] + deviation * stats.zscore(right[:, :1])):
        with pytest.raises(AssertionError):
            assert_gaussian(wrong, mean[0], target)
    points = np.asarray(setting("features", False)[0].domain.points)
    with pytest.raises(AssertionError):
        assert_gaussian(right, mean[0], BETA[0] ** 2 * gp.squared_exponential(points, points, 0.4))


def test_thompson_needs_a_form_with_joint_draws() -> None:
    domain = domains.grid([0.0], [1.0], 9)
    problem = problems.from_tables(domain, np.arange(9.0), np.arange(9.0) - 4)
    model = jaxbandit.surrogate(domain, kernels.Matern52(), noise_variance=NOISE, form="rows")
    with pytest.raises(InvalidArgument, match=r"form 'rows' has no joint draws"):
        jaxbandit.simulate(problem, jaxbandit.Rpol(estimator=Thompson()), model, horizon=2, key=jax.random.key(0))


# RandGP-UCB.

DISTRIBUTIONS = {
    "gaussian": Gaussian(),
    "uniform": DiscreteUniform(),
    "uniform-of-3": DiscreteUniform(points=3),
    "discrete-gaussian": DiscreteGaussian(),
    "discrete-gaussian-wide": DiscreteGaussian(low=-1.5, high=2.5, sd=0.6, points=9),
}


def law(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return support and probabilities of a discrete distribution.

    Zhou and Ji 2022, App. D.4; Vaswani et al. 2020.
    """
    low, high, sd, points = {
        "uniform": (0.0, 2.0, np.inf, 20),
        "uniform-of-3": (0.0, 2.0, np.inf, 3),
        "discrete-gaussian": (0.0, 2.0, 1.0, 20),
        "discrete-gaussian-wide": (-1.5, 2.5, 0.6, 9),
    }[name]
    support = np.linspace(low, high, points)
    weight = np.exp(-(support**2) / (2 * sd**2))
    return support, weight / weight.sum()


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_randomised_draws_have_their_law(name: str) -> None:
    *_, mean, covariance = setting("features", False)
    outcome = drawn(Randomised(reward_width=BETA[0], cost_width=BETA[1:], distribution=DISTRIBUTIONS[name]))
    sd = np.sqrt(np.stack([np.diag(c) for c in covariance]))
    estimates = np.concatenate([outcome.reward[:, None], outcome.costs], axis=1)  # [n, k, M]
    # One scalar for all points of a function: what is recorded is what every point got.
    np.testing.assert_allclose((estimates - mean) / sd, np.broadcast_to(outcome.draws[:, :, None], estimates.shape), rtol=0, atol=1e-9)
    # Costs are mu - Z sigma, optimistic under a one-sided law.
    z = outcome.draws / (BETA * np.array([1.0, -1.0, -1.0]))
    for j in range(3):
        if name == "gaussian":
            assert stats.kstest(z[:, j], "norm").pvalue > RISK / 3
            continue
        support, probability = law(name)
        nearest = np.abs(z[:, j, None] - support).argmin(1)
        np.testing.assert_allclose(z[:, j], support[nearest], rtol=0, atol=1e-12)
        counts = np.bincount(nearest, minlength=len(support))
        expected = DRAWS * probability
        # The chi-square distribution is then a good approximation.
        assert expected.min() > 0.5 and np.sum(expected[expected < 5]) < 0.001 * DRAWS
        assert stats.chisquare(counts, expected).pvalue > RISK / 3
        error = np.sqrt((probability @ support**2 - (probability @ support) ** 2) / DRAWS)
        assert abs(z[:, j].mean() - probability @ support) <= standard_errors(3) * error
    # Reward and constraints are independent: correlations of n pairs have standard error 1 / sqrt(n).
    correlation = np.corrcoef(z.T)[np.triu_indices(3, 1)]
    assert np.all(np.abs(correlation) <= standard_errors(3) / np.sqrt(DRAWS))


@pytest.mark.parametrize("wrong", ["uniform", "other-sd", "shifted"])
def test_the_law_of_a_discrete_gaussian_is_checked_sharply(wrong: str) -> None:
    """Numbers of another law do not pass the chi-square test."""
    support, probability = law("discrete-gaussian")
    weight = {"uniform": np.ones(20), "other-sd": np.exp(-(support**2) / (2 * 1.1**2)), "shifted": np.roll(probability, 1)}[wrong]
    counts = np.random.default_rng(0).multinomial(DRAWS, weight / weight.sum())
    assert stats.chisquare(counts, DRAWS * probability).pvalue < RISK


def test_randomised_combination_draws_one_scalar() -> None:
    *_, mean, covariance = setting("features", False)
    weights = np.array([1.0, -2.0, -0.5])
    outcome = drawn(Randomised(reward_width=BETA[0], cost_width=BETA[1:], distribution=DiscreteUniform(points=3)), weights=weights)
    assert outcome.draws.shape == (DRAWS, 1)
    sd = np.sqrt(np.diag(covariance[0]))
    np.testing.assert_allclose(outcome.reward, weights @ mean + outcome.draws * sd, rtol=0, atol=1e-9)
    support, counts = np.unique(np.round(outcome.draws[:, 0] / BETA[0], 12), return_counts=True)
    np.testing.assert_allclose(support, [0.0, 1.0, 2.0], rtol=0, atol=1e-12)
    assert stats.chisquare(counts).pvalue > RISK


@pytest.mark.full
def test_draws_are_fresh_every_round_and_trial() -> None:
    """No number comes twice in the recorded runs of a continuous law."""
    rng = np.random.default_rng(5)
    domain = domains.product([np.sort(rng.random(5))])
    problem = problems.from_tables(domain, rng.random(5), rng.random((2, 5)) - 0.5)
    model = jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=0.4), noise_variance=NOISE, outputs=3, form="features")
    algorithms = {shape: jaxbandit.Rpol(estimator=own) for own, shape in ((Randomised(), (6, 20, 3)), (Thompson(), (6, 20, 3, 5)))}
    for shape, run in panel.play(problem, algorithms, model, horizon=20, trials=6, key=jax.random.key(0), record="audit").items():
        assert run.draws.shape == shape
        assert len(np.unique(run.draws)) == np.size(run.draws)

    def bounds(key: jax.Array) -> jaxbandit.Trajectory:
        return jaxbandit.simulate(problem, jaxbandit.Rpol(estimator=Bounds()), model, horizon=2, key=key, record="audit")

    assert jax.eval_shape(bounds, jax.random.key(0)).draws is None


BAD = {
    "one point of the uniform": (unchecked(DiscreteUniform, points=1), "Rpol.estimator.distribution.points: must be a whole number >= 2"),
    "half points": (
        unchecked(DiscreteUniform, points=2.5),
        "Rpol.estimator.distribution.points: must be a whole number from 2 to 1000000, got 2.5",
    ),
    "one point": (unchecked(DiscreteGaussian, points=1), "Rpol.estimator.distribution.points: must be a whole number >= 2"),
    "bounds the wrong way round": (unchecked(DiscreteGaussian, low=2.0, high=1.0), "Rpol.estimator.distribution.high - low: must be > 0"),
    "equal bounds": (unchecked(DiscreteGaussian, low=1.0, high=1.0), "Rpol.estimator.distribution.high - low: must be > 0"),
    "nothing optimistic left": (unchecked(DiscreteGaussian, low=-2.0, high=0.0), "Rpol.estimator.distribution.high: must be > 0"),
    "infinite bound": (unchecked(DiscreteGaussian, high=np.inf), "Rpol.estimator.distribution.high: 1 of 1 values are NaN or infinite"),
    "NaN bound": (unchecked(DiscreteGaussian, low=np.nan), "Rpol.estimator.distribution.low: 1 of 1 values are NaN or infinite"),
    "no spread": (unchecked(DiscreteGaussian, sd=0.0), "Rpol.estimator.distribution.sd: must be > 0"),
    "negative spread": (unchecked(DiscreteGaussian, sd=-1.0), "Rpol.estimator.distribution.sd: must be > 0"),
    "bounds for three": (unchecked(DiscreteGaussian, low=np.zeros(3)), "Rpol.estimator.distribution.low: "),
    "spreads for two": (unchecked(DiscreteGaussian, sd=np.ones(2)), "Rpol.estimator.distribution.sd: "),
}


# Cost.


def draw_of(form: Any) -> Any:
    """A joint draw, lowered."""
    return jax.jit(lambda form, *given: form.draw(*given)).lower(form, jax.eval_shape(form.init), jax.random.key(0))


def operations(stage: Any) -> float:
    """Floating-point operations of a draw, as it is lowered or compiled."""
    analysis = stage.cost_analysis()
    return float((analysis[0] if isinstance(analysis, list) else analysis)["flops"])


def dense(size: int, rank: int) -> Any:
    """Features of any values: the cost does not look at them."""
    phi = np.random.default_rng(0).standard_normal((size, rank)).astype(np.float32)
    return jaxbandit.canonicalise(DenseFeatures(phi=phi, prior_variance=np.sum(phi**2, axis=1), residual=0.0))


def product(size: int, rank: int) -> Any:
    """Return products of 6 by 6 features on grids of 40 columns."""
    rng = np.random.default_rng(0)
    axes = tuple(rng.standard_normal((n, 6)).astype(np.float32) for n in (size // 40, 40))
    columns = np.stack(np.unravel_index(np.arange(rank), (6, 6))).astype(np.int32)
    slots = np.where(np.arange(36) < rank, np.arange(36), rank).reshape(6, 6).astype(np.int32)
    form = ProductFeatures(axes=axes, columns=columns, slots=slots, prior_variance=np.ones(size, np.float32), residual=0.0)
    return jaxbandit.canonicalise(form)


@pytest.mark.full
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("build", [dense, product])
def test_a_draw_costs_points_times_rank(build: Any) -> None:
    """No term and no temporary grows with the square of the points."""
    sizes = np.array([4000, 8000, 16000])
    lowered = [draw_of(build(size, 30)) for size in sizes]
    flops, compiled = np.array([operations(draw) for draw in lowered]), lowered[-1].compile()
    ratios = flops[1:] / flops[:-1]
    assert np.all((ratios > 1.6) & (ratios <= 2.01)), ratios
    # Second differences of a straight line vanish; M^2 operations at the largest size would be 16000^2 = 2.6e8.
    slopes = np.diff(flops) / np.diff(sizes)
    np.testing.assert_allclose(slopes, slopes[0], rtol=0.01)
    assert max(flops[-1], operations(compiled)) < 4 * 30 * sizes[-1] + 40 * 30**2 + 5000
    assert compiled.memory_analysis().temp_size_in_bytes < 64 * (sizes[-1] + 30**2)


@pytest.mark.full
@pytest.mark.usefixtures("optimised")
def test_a_draw_of_features_costs_the_rank_too() -> None:
    """Operations are proportional to the rank."""
    low, high = (operations(draw_of(dense(16000, rank))) for rank in (30, 60))
    assert 1.9 < high / low < 2.1


# Moments of the noise. Every threshold is five standard errors, passed by chance once in two million.

NOISE_DRAWS = 40_000


def samples(noise, outputs, seed=0):
    keys = jax.random.split(jax.random.key(seed), NOISE_DRAWS)
    return np.asarray(jax.vmap(lambda key: noise.draw(key, outputs, np.float32))(keys), np.float64)


def noise_drawn(draw, key, trials, rounds):
    """Return the noise of a run's trials and rounds, ``[trials, rounds, ...]``."""

    def one(trial, t):
        return draw(round_key(stream_key(trial_key(key, trial), Stream.NOISE), t))

    every = jax.jit(jax.vmap(jax.vmap(one, (None, 0)), (0, None)))
    return np.asarray(every(np.arange(trials), np.arange(1, rounds + 1)), np.float64)


def check_moments(values, variance):
    """Check mean 0, the variance, no skew and a Gaussian's fourth moment."""
    count = len(values)
    assert abs(values.mean()) < 5 * np.sqrt(variance / count)
    assert abs(values.var() / variance - 1) < 5 * np.sqrt(2 / count)
    scaled = values / np.sqrt(variance)
    # The variance of z^3 is 15.
    assert abs(np.mean(scaled**3)) < 5 * np.sqrt(15 / count)
    # The variance of z^4 is 105 - 9.
    assert abs(np.mean(scaled**4) - 3) < 5 * np.sqrt(96 / count)


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
    assert np.all(np.abs(correlations) < 5 / np.sqrt(NOISE_DRAWS))


def test_variance_and_sd_are_not_mixed_up():
    np.testing.assert_allclose(problems.Gaussian.from_sd(0.05).variance, 0.0025)
    np.testing.assert_allclose(problems.Gaussian.from_sd([0.1, 0.2]).variance, [0.01, 0.04])


def test_zero_variance_is_no_noise():
    np.testing.assert_array_equal(samples(problems.Gaussian(variance=0.0), 2), np.zeros((NOISE_DRAWS, 2)))
    np.testing.assert_array_equal(samples(problems.Noiseless(), 2), np.zeros((NOISE_DRAWS, 2)))


@pytest.mark.full
def test_noise_is_independent_across_rounds_trials_and_outputs():
    """Correlations of neighbours would shrink every interval."""
    trials, rounds = 60, 400
    noise = problems.Gaussian(variance=0.3)
    values = noise_drawn(lambda key: noise.draw(key, 2, np.float32), jax.random.key(11), trials, rounds)  # [trials, rounds, outputs]
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
        # The diagonal is the same number twice, and both triangles have the same pairs.
        if name.startswith("trial i's"):
            above = np.triu_indices(trials, 1)
            one_side, other = one_side[above], other[above]
        correlation = np.mean(one_side * other) / 0.3
        assert abs(correlation) < 5 / np.sqrt(one_side.size), name
    # A mean over rounds, which is what a study averages, has the variance of independent rounds.
    means = values.mean(axis=1).ravel()
    assert abs(means.var() / (0.3 / rounds) - 1) < 5 * np.sqrt(2 / means.size)
    # Numbers repeat only by float32's own coincidences.
    assert len(np.unique(values)) > 0.99 * values.size


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
    # Near 7 the subtraction of the mean loses float32's last digits.
    np.testing.assert_allclose(rpol, random, atol=2e-6)
    np.testing.assert_allclose(noise_of(Rpol(), [2, 0, 1], key), rpol[[2, 0, 1]], atol=2e-6)
    np.testing.assert_allclose(rpol, noise_drawn(problem.draw, key, 3, 6), atol=2e-6)
    # Another key gives other numbers in all 36 places.
    assert np.min(np.abs(noise_of(Rpol(), 3, jax.random.key(9)) - rpol)) > 1e-5
