"""Delay models."""

import inspect
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from jaxbandit import canonicalise, delays, replace, sweep, testing

DRAWS = 20_000
OBSERVED = np.array([0, 3, 3, 8])


class Floor:
    """The integer part of a continuous variable, as scipy's discrete distributions are."""

    def __init__(self, continuous):
        self.continuous = continuous

    def cdf(self, n):
        return self.continuous.cdf(n + 1)

    def ppf(self, q):
        return np.ceil(self.continuous.ppf(q)) - 1


# Model, its distribution function, and its mean and standard deviation where it has them.
MODELS = {
    "constant": (delays.Constant(rounds=4), stats.randint(4, 5)),
    "poisson": (delays.Poisson(mean=15.0), stats.poisson(15)),
    "poisson-small": (delays.Poisson(mean=0.3), stats.poisson(0.3)),
    "geometric": (delays.Geometric(mean=7.0), stats.geom(1 / 8, loc=-1)),
    "uniform": (delays.Uniform(low=2, high=9), stats.randint(2, 10)),
    "batches": (delays.Batches(size=10), stats.randint(0, 10)),
    "lognormal": (delays.LogNormal(median=6.0, sigma=0.7), Floor(stats.lognorm(0.7, scale=6))),
    "pareto": (delays.Pareto(shape=2.5, scale=3.4), Floor(stats.pareto(2.5, scale=3.4))),
    "pareto-heavy": (delays.Pareto(shape=0.8), Floor(stats.pareto(0.8))),
    "empirical": (delays.Empirical(values=OBSERVED), stats.rv_discrete(values=([0, 3, 8], [0.25, 0.5, 0.25]))),
}


def stack(swept):
    """One model whose leaves have the variants as leading axis."""
    return jax.jit(jax.vmap(swept.pick))(np.arange(swept.size))


@partial(jax.jit, static_argnums=(1, 2))
def draw_many(models, outputs, draws):
    return [jax.vmap(lambda key, model=model: model.draw(key, outputs))(jax.random.split(jax.random.key(0), draws)) for model in models]


def samples(*models, outputs=2, draws=DRAWS):
    """Return delays ``[draws, outputs]`` of all models from one program."""
    for model in models:
        model.validate(outputs=outputs)
    drawn = draw_many([canonicalise(model) for model in models], outputs, draws)
    assert all(one.dtype == jnp.int32 and one.shape == (draws, outputs) for one in drawn)
    return [np.asarray(one) for one in drawn]


@cache
def samples_of_models():
    return dict(zip(MODELS, samples(*(model for model, _ in MODELS.values())), strict=True))


@cache
def compiled_means():
    return dict(
        zip(
            MODELS,
            jax.jit(lambda models: [model.mean for model in models])(canonicalise([model for model, _ in MODELS.values()])),
            strict=True,
        )
    )


@pytest.mark.parametrize("name", MODELS)
def test_draws_follow_the_distribution(name):
    law, drawn = MODELS[name][1], samples_of_models()[name]
    assert drawn.min() >= 0
    for n in (0, 1, 2, 3, 5, 8, 12, 15, 20, 40):
        expected = float(law.cdf(n))
        error = 5 * np.sqrt(expected * (1 - expected) / DRAWS)
        assert np.all(np.abs(np.mean(drawn <= n, axis=0) - expected) <= error + 1e-6), n


@pytest.mark.full(but=("geometric",))
@pytest.mark.parametrize("name", ["poisson", "geometric", "lognormal", "empirical"])
def test_outputs_are_independent_unless_shared(name):
    model = MODELS[name][0]
    # Ranks are compared, because a heavy tail has no correlation.
    ranks = stats.rankdata(samples_of_models()[name], axis=0)
    assert abs(np.corrcoef(ranks.T)[0, 1]) < 5 / np.sqrt(DRAWS)
    (together,) = samples(replace(model, shared=True), draws=1000)
    np.testing.assert_array_equal(together, np.broadcast_to(together[:, :1], together.shape))
    assert len(np.unique(together)) > 1


@pytest.mark.parametrize("name", [name for name in MODELS if name != "pareto-heavy"])
def test_the_mean_is_that_of_the_distribution(name):
    """It is the sum of ``P(tau > n)``, with Pareto's integral."""
    model, law = MODELS[name]
    n = np.arange(50_000)
    expected = np.sum(1 - law.cdf(n.astype(np.float64)))
    if name == "pareto":
        expected += 3.4**2.5 / 1.5 * n.size**-1.5
    assert float(model.mean) == pytest.approx(expected, rel=2e-5)
    assert float(compiled_means()[name]) == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize(("median", "sigma"), [(0.2, 0.3), (50.0, 1.0), (4096.0, 0.01), (30_000.0, 0.2)])
def test_the_mean_of_a_lognormal_of_any_size(median, sigma):
    n = np.arange(1.0, median * np.exp(8 * sigma) + 2)
    expected = np.sum(stats.norm.cdf(np.log(median / n) / sigma))
    assert float(delays.LogNormal(median=median, sigma=sigma).mean) == pytest.approx(expected, rel=2e-5, abs=1e-6)


def test_infinite_means():
    assert np.isinf([float(delays.Pareto(shape=1.0).mean), float(delays.Pareto(shape=0.5, scale=9.0).mean)]).all()
    assert float(delays.Lossy(delay=delays.Poisson(mean=3.0), never=1e-3).mean) == np.inf
    assert float(delays.Lossy(delay=delays.Poisson(mean=3.0), never=0.0).mean) == 3.0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("q", [1e-6, 0.1, 0.25, 0.5, 0.75, 0.9, 0.999, 1 - 1e-6])
def test_quantiles_are_scipys(name, q):
    model, law = MODELS[name]
    assert model.quantile(q) == min(max(int(law.ppf(q)), 0), delays.LONGEST_DELAY)


@pytest.mark.parametrize(
    ("model", "survival"),
    [
        (delays.Poisson(mean=15.0), stats.poisson(15).sf),
        (delays.Poisson(mean=5000.0), stats.poisson(5000).sf),
        (delays.Geometric(mean=50.0), lambda n: (50 / 51) ** (n + 1.0)),
        (delays.LogNormal(median=6.0, sigma=0.7), lambda n: stats.lognorm(0.7, scale=6).sf(n + 1)),
        (delays.Pareto(shape=2.5, scale=3.0), lambda n: (3 / (n + 1.0)) ** 2.5),
    ],
    ids=["poisson", "poisson-large", "geometric", "lognormal", "pareto"],
)
def test_quantiles_far_in_the_tail(model, survival):
    for rest in (1e-6, 1e-9, 1e-12):
        n = model.quantile(1 - rest)
        assert survival(n) <= rest * 1.001 and survival(n - 1) > rest * 0.999, rest


def test_quantiles_of_bounded_models_and_of_the_heaviest():
    assert delays.NoDelay().quantile(1 - 1e-12) == 0
    assert delays.Constant(rounds=0).quantile(0.5) == 0 and delays.Constant(rounds=7).quantile(1e-9) == 7
    assert delays.Uniform(low=2, high=9).quantile(1 - 1e-12) == 9
    assert delays.Empirical(values=OBSERVED).quantile(1 - 1e-12) == 8
    assert delays.Pareto(shape=0.1).quantile(1 - 1e-12) == delays.LONGEST_DELAY
    assert delays.Poisson(mean=0.0).quantile(1 - 1e-12) == delays.Geometric(mean=0.0).quantile(1 - 1e-12) == 0


def test_the_quantile_of_a_sweep_is_its_largest():
    stacked = stack(sweep(delays.Poisson(), {"mean": [0.0, 25.0, 50.0]}))
    assert stacked.quantile(1 - 1e-12) == delays.Poisson(mean=50.0).quantile(1 - 1e-12)


def test_a_maximum_cuts_draws_and_quantiles():
    models, maxima = [MODELS[name][0] for name in ("geometric", "pareto-heavy", "uniform")], (9, 3, 3)
    cuts = [replace(model, maximum=maximum) for model, maximum in zip(models, maxima, strict=True)]
    drawn = samples(*models, *cuts, draws=1000)
    for model, cut, maximum, whole, less in zip(models, cuts, maxima, drawn[:3], drawn[3:], strict=True):
        np.testing.assert_array_equal(less, np.minimum(whole, maximum), err_msg=repr(cut))
        for q in (0.01, 0.5, 1 - 1e-12):
            assert cut.quantile(q) == min(model.quantile(q), maximum)


def test_draws_stay_below_never_however_heavy_the_tail():
    (drawn,) = samples(delays.Pareto(shape=0.01))
    assert drawn.max() == delays.LONGEST_DELAY < delays.NEVER and drawn.min() >= 1


def test_no_delay_at_the_edges():
    models = (delays.NoDelay(), delays.Poisson(mean=0.0), delays.Geometric(mean=0.0), delays.Constant(rounds=0))
    for model, drawn in zip(models, samples(*models, draws=1000), strict=True):
        assert not drawn.any() and model.mean == 0
        assert model.sub_exponential[0] < 2


def test_one_trace_sweeps_the_mean():
    """Stacked leaves run under ``vmap`` as in a study."""
    means, traces = [0.0, 5.0, 25.0, 50.0], []

    @jax.jit
    def draws(stacked):
        traces.append(1)
        keys = jax.random.split(jax.random.key(0), 1000)
        return jax.vmap(lambda model: jax.vmap(lambda key: model.draw(key, 2))(keys))(stacked)

    drawn = np.asarray(draws(stack(sweep(delays.Poisson(), {"mean": means}))), np.float64)
    assert drawn.shape == (4, 1000, 2)
    assert np.all(np.abs(drawn.mean((1, 2)) - means) <= 5 * np.sqrt(np.asarray(means) / 2000))
    draws(stack(sweep(delays.Poisson(), {"mean": [1, 2, 3, 4]})))
    assert len(traces) == 1


def test_whole_numbers_are_swept_too():
    swept = [sweep(delays.Uniform(), {"low": [0, 3], "high": [2, 3]}, zipped=True), sweep(delays.Constant(), {"rounds": [0, 11]})]
    draws = jax.vmap(lambda model: draw_many([model], 1, 300)[0])
    uniform, constant = map(np.asarray, jax.jit(lambda stacked: [draws(models) for models in stacked])([stack(each) for each in swept]))
    assert set(uniform[0].ravel()) == {0, 1, 2} and set(uniform[1].ravel()) == {3}
    assert set(constant[0].ravel()) == {0} and set(constant[1].ravel()) == {11}


def log_generating(model, h, terms=300):
    """``log E exp(h (tau - E[tau]))`` by summation, for each ``h``."""
    tail = np.array([float(model._exceeds(n)) for n in range(-1, terms)])
    mass, n = tail[:-1] - tail[1:], np.arange(terms)
    return np.log(np.sum(mass[mass > 0] * np.exp(h[:, None] * (n[mass > 0] - float(model.mean))), axis=1))


@pytest.mark.parametrize(
    "model",
    [
        delays.Poisson(mean=0.5),
        delays.Poisson(mean=50.0),
        delays.Geometric(mean=0.2),
        delays.Geometric(mean=5.0),
        delays.Uniform(low=3, high=12),
        delays.Empirical(values=OBSERVED),
        delays.Poisson(mean=4.0, xi=9.0, b=1.0),
        delays.PerOutput(delays=(delays.Poisson(mean=3.0), delays.Constant(rounds=5))),
    ],
    ids=lambda model: type(model).__name__,
)
def test_the_sub_exponential_pair_bounds_the_generating_function(model):
    xi, b = (float(value) for value in model.sub_exponential)
    parts = model.delays if isinstance(model, delays.PerOutput) else (model,)
    h = np.concatenate([np.linspace(-1, 1, 21), [1e-3]]) / b
    for part in parts:
        np.testing.assert_array_less(log_generating(part, h), h**2 * xi**2 / 2 * (1 + 1e-5) + 1e-9)


def test_the_pair_of_the_papers_delays():
    """Vakili et al. have xi = 9, b = 1 for Poisson(50)."""
    xi, b = delays.Poisson(mean=50.0).sub_exponential
    assert (xi, b) == (pytest.approx(8.47515, abs=1e-5), 1.0)
    assert delays.Poisson(mean=50.0, xi=9.0, b=1.0).sub_exponential == (9.0, 1.0)
    assert float(jax.jit(lambda model: model.sub_exponential[0])(delays.Poisson(mean=50.0))) == pytest.approx(xi)


def test_heavy_tails_have_no_pair_of_their_own():
    heavy = (delays.LogNormal(), delays.Pareto(), delays.Lossy(), delays.PerOutput(delays=(delays.Pareto(), delays.NoDelay())))
    assert [model.sub_exponential for model in heavy] == [None] * 4
    assert delays.Pareto(maximum=10, xi=5.0, b=5.0).sub_exponential == (5.0, 5.0)
    assert delays.Constant(rounds=9).sub_exponential == (0.0, 0.0)


LOSSY = [delays.Lossy(delay=delays.Geometric(mean=4.0), never=0.3, shared=shared) for shared in (False, True)]
LOSSY += [delays.Lossy(never=1.0), delays.Lossy(never=0.0), delays.Lossy(delay=delays.Uniform(high=9, maximum=2), never=0.5)]


@cache
def samples_of_lossy():
    return samples(*LOSSY)


@pytest.mark.parametrize("shared", [False, True])
def test_lossy_loses_its_share_and_leaves_the_rest(shared):
    model, drawn = LOSSY[shared], samples_of_lossy()[shared]
    lost = drawn == delays.NEVER
    assert np.all(np.abs(lost.mean(0) - 0.3) < 5 * np.sqrt(0.21 / DRAWS))
    kept = drawn[~lost]
    assert abs(kept.mean() - 4) < 5 * np.sqrt(20 / kept.size) and kept.max() < 100
    assert np.all(lost[:, 0] == lost[:, 1]) == shared
    assert model.quantile(0.99) == model.delay.quantile(0.99)


def test_lossy_loses_all_or_nothing():
    _, _, everything, nothing, _ = samples_of_lossy()
    assert (everything == delays.NEVER).all() and not nothing.any()


def test_a_cut_does_not_bring_lost_feedback_back():
    drawn = samples_of_lossy()[-1]
    assert set(np.unique(drawn)) <= {0, 1, 2, delays.NEVER} and (drawn == delays.NEVER).any()


def test_never_can_be_added_to_a_round():
    assert (np.int32(2**29) + samples_of_lossy()[2]).min() > 2**30


def test_per_output_gives_each_output_its_model():
    model = delays.PerOutput(delays=(delays.Uniform(high=30), delays.NoDelay(), delays.Lossy(delay=delays.Constant(rounds=6), never=0.2)))
    (drawn,) = samples(model, outputs=3)
    assert abs(drawn[:, 0].mean() - 15) < 5 * np.sqrt(80 / DRAWS)
    assert not drawn[:, 1].any() and set(drawn[:, 2]) == {6, delays.NEVER}
    assert float(model.mean) == np.inf and model.quantile(0.01) == 6 and model.quantile(0.99) == 30
    two = delays.PerOutput(delays=(delays.Uniform(high=30), delays.Uniform(high=6)))
    assert float(two.mean) == 15 and abs(np.corrcoef(samples(two)[0].T)[0, 1]) < 5 / np.sqrt(DRAWS)


PER_OUTPUT = delays.PerOutput(delays=(delays.Poisson(mean=3.0), delays.Constant(rounds=5)))
SPECIAL = {"Empirical": delays.Empirical(values=OBSERVED), "Mirrored": delays.Mirrored(delay=delays.Geometric(), doubled=(0,))}
SPECIAL |= {"PerOutput": PER_OUTPUT, "Constant": delays.Constant(rounds=4), "Pareto": delays.Pareto(shape=3.5, scale=3.0)}
KINDS = [name for name in delays.__all__ if inspect.isclass(getattr(delays, name)) and name != "Delay"]


@pytest.mark.parametrize("name", KINDS)
def test_every_model_keeps_its_promises(name):
    testing.check_delay(SPECIAL.get(name, getattr(delays, name)))


IN_BATCHES = [
    (delays.Batches(size=4), [3, 3]),
    (delays.PerOutput(delays=(delays.NoDelay(), delays.Batches(size=4))), [0, 3]),
    (delays.Lossy(delay=delays.Batches(size=4), never=0.0), [3, 3]),
    (delays.Mirrored(delay=delays.Batches(size=4), doubled=(0,)), [3, 3]),
    (delays.Failing(delay=delays.Batches(size=4)), [3, 3]),
]


@pytest.mark.parametrize(("model", "first"), IN_BATCHES, ids=lambda value: type(value).__name__)
def test_values_of_a_batch_arrive_at_its_end(model, first):
    """Batches may be parts of other models."""
    rounds = np.arange(1, 10)
    drawn = jax.vmap(lambda t: model.draw_in_round(jax.random.key(0), 2, t))(rounds)
    expected = np.where(np.array(first) > 0, (4 * np.ceil(rounds / 4) - rounds)[:, None], 0)
    np.testing.assert_array_equal(drawn, expected)


# Geometric delays compile in less time than Poisson's.
JOINT = [
    (delays.NoDelay(), True),
    (delays.Geometric(), False),
    (delays.Geometric(shared=True), True),
    (delays.Lossy(), False),
    (delays.Lossy(shared=True), True),
    (delays.Lossy(delay=delays.Geometric(shared=True)), False),
    (delays.Lossy(delay=delays.Geometric(), shared=True), False),
    (delays.Lossy(delay=delays.Geometric(shared=True), shared=True), True),
    (delays.Mirrored(delay=delays.Geometric(), doubled=(1,)), False),
    (delays.Mirrored(delay=delays.Geometric(shared=True), doubled=(1,)), True),
    (delays.PerOutput(delays=(delays.NoDelay(), delays.NoDelay())), False),
]


@cache
def samples_of_joint():
    """Return draws of all of ``JOINT``."""

    @jax.jit
    def draws(keys):
        return [jax.vmap(lambda key, model=model: model.draw(key, 2 + isinstance(model, delays.Mirrored)))(keys) for model, _ in JOINT]

    return draws(jax.random.split(jax.random.key(0), 200))


@pytest.mark.parametrize(
    ("number", "joint"), [(number, joint) for number, (_, joint) in enumerate(JOINT)], ids=[repr(model) for model, _ in JOINT]
)
def test_joint_says_that_values_arrive_together(number, joint):
    model, drawn = JOINT[number][0], np.asarray(samples_of_joint()[number])
    assert bool(model.joint) is joint
    if joint:
        np.testing.assert_array_equal(drawn, np.broadcast_to(drawn[:, :1], drawn.shape))
    elif not isinstance(model, delays.PerOutput):
        # It cannot know, whatever its models are.
        assert np.any(drawn != drawn[:, :1])
