"""Precision of models and ranks of their factorisations."""

import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import Rpol, domains, kernels, simulate, sweep
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.pytree import canonicalise, replace
from jaxbandit.engine.programs import play_all
from jaxbandit.host import memory
from jaxbandit.surrogates import Surrogate, arithmetic, features
from jaxbandit.surrogates.features import Effort, expected_columns
from jaxbandit.surrogates.precision import needed

LENGTH_SCALE = 1.0
Choice = str


def points_of(side: int) -> np.ndarray:
    axis = np.linspace(0.0, 6.0, side)
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)


def kernel_matrix(points: np.ndarray, rough: bool) -> np.ndarray:
    squared = np.sum((points[:, None] - points[None]) ** 2, axis=-1) / LENGTH_SCALE**2
    return np.exp(-np.sqrt(squared)) if rough else np.exp(-0.5 * squared)


def chosen(rule: Choice, rounds: int, function: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    size = len(function)
    if rule == "random":
        return rng.integers(0, size, rounds)
    if rule == "one point":
        return np.full(rounds, size // 2)
    if rule == "bursts":
        return np.repeat(rng.integers(0, size, rounds // 50 + 1), 50)[:rounds]
    # Choices concentrate on the best points, as after many rounds.
    share = np.exp(-np.arange(size) / 15.0)
    indices = np.argsort(-function)[rng.choice(size, rounds, p=share / share.sum())]
    indices[:100] = rng.integers(0, size, 100)
    return indices


def reference(matrix: np.ndarray, indices: np.ndarray, values: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and deviation [M] by averaged repeats of distinct points."""
    count = np.bincount(indices, minlength=len(matrix))
    seen = np.flatnonzero(count)
    average = np.bincount(indices, values, len(matrix))[seen] / count[seen]
    triangle = np.linalg.cholesky(matrix[np.ix_(seen, seen)] + np.diag(noise / count[seen]))
    half = np.linalg.solve(triangle, matrix[seen])
    return half.T @ np.linalg.solve(triangle, average), np.sqrt(np.diag(matrix) - np.sum(half**2, axis=0))


@jax.jit
def learned(model: Surrogate, indices: jax.Array, values: jax.Array) -> tuple[jax.Array, jax.Array]:
    def observe(posterior: jaxbandit.surrogates.Posterior, seen: tuple[jax.Array, jax.Array]) -> tuple[object, None]:
        return model.condition(posterior, seen[0], seen[1][None]), None

    belief = model.belief(jax.lax.scan(observe, model.init(), (indices, values))[0]).prediction
    return belief.mean[0], belief.sd[0]


def believed(model: Surrogate, indices: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    with arithmetic([model.precision]):
        given = indices.astype(np.int32), values.astype(model.dtype)
        mean, sd = learned(canonicalise(replace(model, kernels=())), *given)
        return np.asarray(mean, np.float64), np.asarray(sd, np.float64)


CASES = [
    # Columns: noise variance, choices, rounds, prior mean, kernel, and the expected use.
    pytest.param(2.5e-3, "random", 3000, 0.0, False, "float32", id="2.5e-3-random"),
    pytest.param(2.5e-3, "best", 3000, 0.0, False, "float32", id="2.5e-3-best"),
    pytest.param(1e-4, "random", 3000 + 3, 0.0, False, "float32", id="1e-4-random"),
    pytest.param(1e-4, "best", 3000 + 3, 0.0, False, "float32", id="1e-4-best"),
    pytest.param(1e-4, "bursts", 3000 + 3, 0.0, False, "float32", id="1e-4-bursts-between-refreshes"),
    pytest.param(1e-6, "random", 3000, 0.0, False, "float64", id="1e-6-random"),
    pytest.param(1e-6, "best", 3000, 0.0, False, "float64", id="1e-6-best"),
    pytest.param(1e-4, "best", 600, 0.0, True, "float64", id="1e-4-rough"),
    pytest.param(0.05, "one point", 100_000, 0.0, False, "float64", id="one-point"),
    pytest.param(0.05, "best", 1000, 1e4, False, "float32", id="prior-mean-1e4"),
    pytest.param(0.05, "best", 1000, 1e6, False, "float64", id="prior-mean-1e6"),
]


@pytest.mark.full
@pytest.mark.parametrize(("noise", "rule", "rounds", "prior_mean", "rough", "precision"), CASES)
def test_beliefs_are_right(
    noise: float, rule: Choice, rounds: int, prior_mean: float, rough: bool, precision: str, request: pytest.FixtureRequest
) -> None:
    if rounds >= 3000:
        request.getfixturevalue("optimised")
    side, rng = (6 if rounds > 10_000 else 14 if rough else 20), np.random.default_rng(3)
    matrix = kernel_matrix(points_of(side), rough)
    function = np.linalg.cholesky(matrix + 1e-10 * np.eye(len(matrix))) @ rng.standard_normal(len(matrix))
    indices = chosen(rule, rounds, function, rng)
    values = function[indices] + np.sqrt(noise) * rng.standard_normal(rounds)
    mean, sd = reference(matrix, indices, values, noise)

    domain = jaxbandit.domains.product([np.linspace(0.0, 6.0, side)] * 2)
    kernel = (kernels.Matern12 if rough else kernels.SquaredExponential)(length_scale=LENGTH_SCALE)
    form = "rows" if rough else "auto"
    model = jaxbandit.surrogate(domain, kernel, noise_variance=noise, outputs=1, prior_mean=prior_mean, form=form, horizon=rounds)
    assert model.precision == precision
    ours, deviation = believed(model, indices, values + prior_mean)
    assert np.max(np.abs(ours - prior_mean - mean) / sd) <= 0.1
    assert np.max(np.abs(deviation / sd - 1)) <= 0.1


@pytest.mark.full
def test_the_rule_is_needed() -> None:
    """Float32 without refreshing is wrong there, so the tests above can fail."""
    rng, matrix = np.random.default_rng(3), kernel_matrix(points_of(20), False)
    function = np.linalg.cholesky(matrix + 1e-10 * np.eye(len(matrix))) @ rng.standard_normal(len(matrix))
    indices = chosen("best", 3000, function, rng)
    values = function[indices] + 1e-2 * rng.standard_normal(3000)
    _, sd = reference(matrix, indices, values, 1e-4)
    domain = jaxbandit.domains.product([np.linspace(0.0, 6.0, 20)] * 2)
    model = jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=LENGTH_SCALE), noise_variance=1e-4, outputs=1, horizon=3000)
    assert model.refresh > 0
    _, deviation = believed(replace(model, refresh=0), indices, values)
    assert np.max(np.abs(deviation / sd - 1)) > 0.3


def problem_of(noise: float) -> jaxbandit.problems.Problem:
    return jaxbandit.problems.sine(7, noise_variance=noise)


def model_of(noise: float, **options: object) -> Surrogate:
    return jaxbandit.surrogate(problem_of(noise).domain, kernels.SquaredExponential(length_scale=1.0), noise_variance=noise, **options)


@pytest.mark.full
def test_a_run_is_in_the_precision_of_its_model() -> None:
    problem, options = problem_of(1e-6), {"horizon": 12, "trials": 1, "key": jax.random.key(0), "block": 1}
    model = model_of(1e-6, horizon=12)
    assert (model.precision, model_of(0.05).precision) == ("float64", "float32")
    run = simulate(problem, Rpol(), model, **options)
    assert run.values.dtype == run.information_gain.dtype == np.float64
    with jax.enable_x64(True):
        whole = simulate(problem, Rpol(), model_of(1e-6), **options)
    np.testing.assert_array_equal(run.indices, whole.indices)
    assert "precision float64" in model.describe()
    assert "refreshed every 16 rounds" in model_of(1e-4, horizon=1000).describe()


def test_float32_where_it_is_not_enough_warns() -> None:
    with pytest.warns(UserWarning, match=r"^precision: float32 resolves too little here: the prior variance is 1e\+06 times"):
        model = model_of(1e-6, precision="float32")
    with pytest.warns(UserWarning, match=r"horizon=3 and precision='auto'"):
        simulate(problem_of(1e-6), Rpol(), model, horizon=3, key=jax.random.key(0))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="precision")
        simulate(problem_of(1e-4), Rpol(), model_of(1e-4), horizon=3, key=jax.random.key(0))


def test_misuse_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"^precision: .*auto"):
        model_of(0.05, precision="double")
    with jax.enable_x64(True), pytest.raises(InvalidArgument, match=r"^precision: 'float32', but jax_enable_x64 is on"):
        model_of(0.05, precision="float32")
    with pytest.raises(InvalidArgument, match=r"^surrogate.precision: 'float64', but"):
        model_of(1e-6).init()


def test_what_float64_cannot_hold_is_refused_or_warned_of() -> None:
    domain, kernel = domains.product([np.linspace(0, 1, 4)]), kernels.SquaredExponential()
    with pytest.raises(InvalidArgument, match=r"prior_mean: must be at most 3\.6e\+13 .* got 1e\+300"):
        jaxbandit.surrogate(domain, kernel, noise_variance=0.1, prior_mean=1e300)
    with pytest.warns(UserWarning, match=r"noise_variance: below 1e-10, over 1000 rounds, .* rounding even .* got 9e-11"):
        jaxbandit.surrogate(domain, kernel, noise_variance=9e-11)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        jaxbandit.surrogate(domain, kernel, noise_variance=2e-10, prior_mean=1e13)


@pytest.mark.full
def test_a_refreshed_variance_is_one_branch_in_a_batch() -> None:
    model = canonicalise(replace(model_of(1e-4, horizon=3000), kernels=()))

    def observe(posterior: jaxbandit.surrogates.Posterior) -> jaxbandit.surrogates.Posterior:
        return model.condition(posterior, jnp.int32(3), jnp.ones(2))

    alone = jax.tree.map(np.asarray, jax.jit(model.init)())
    after = jax.tree.map(lambda x: np.broadcast_to(x, (4, *x.shape)), alone)
    step, many = jax.jit(observe), jax.jit(jax.vmap(observe))
    steps = [equation.primitive.name for equation in jax.make_jaxpr(jax.vmap(observe))(after).eqns]
    assert steps.count("cond") == 1, "it would be a selection where trials had a branch each"
    for _ in range(model.refresh):
        after, alone = many(after), step(alone)
    np.testing.assert_allclose(after.variance[2], alone.variance, rtol=1e-3)
    spread = jax.jit(lambda posterior: model.forms[0].spread(posterior.factors[0]))(alone)
    np.testing.assert_allclose(np.asarray(alone.variance)[0], spread, rtol=1e-5)


@pytest.mark.full
def test_a_sweep_refreshes_as_its_least_noise_needs() -> None:
    """It shares the program of a sweep of low noise."""
    problem, model = problem_of(1e-2), model_of(1e-2)
    options = {"horizon": 40, "trials": 2, "key": jax.random.key(0)}
    before = play_all._cache_size()
    swept, low = (simulate(problem, Rpol(), sweep(model, {"noise_variance": [[first], [1e-4]]}), **options) for first in (1e-2, 2e-4))
    assert play_all._cache_size() == before + 1
    assert swept.values.dtype == np.float32
    np.testing.assert_array_equal(swept.indices[1], low.indices[1])


def test_the_rule_is_monotone() -> None:
    """Less noise, more rounds and a larger prior mean never need less."""
    order = {"float32": 0, "float64": 1}

    def need(ratio: float = 20.0, mean: float = 0.0, horizon: int = 1000) -> tuple[int, float]:
        found = needed([ratio], [1.0], [mean], horizon, refreshable=True)
        return order[found.precision], 1 / found.refresh if found.refresh else 0.0

    by_ratio = [need(ratio=ratio) for ratio in 10.0 ** np.arange(0, 10, 0.5)]
    by_horizon = [need(horizon=int(horizon)) for horizon in 10.0 ** np.arange(1, 8, 0.5)]
    by_mean = [need(mean=mean) for mean in 10.0 ** np.arange(0, 8, 0.5)]
    for needs in (by_ratio, by_horizon, by_mean):
        assert needs == sorted(needs) and needs[0] == (0, 0.0) and needs[-1][0] == 1


def test_a_factorisation_nobody_asked_for_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    assert features.affordable_rank(100_000) == 632
    domain = jaxbandit.domains.product([np.linspace(0.0, 6.0, 8)] * 2)
    rough = kernels.Matern52(length_scale=3.0)
    assert jaxbandit.surrogate(domain, rough, noise_variance=0.05).forms[0].name == "features"
    # The work allows ten columns.
    monkeypatch.setattr(Effort, "max_work", 64 * 10**2 / 2)
    assert jaxbandit.surrogate(domain, rough, noise_variance=0.05).forms[0].name == "rows"
    assert jaxbandit.surrogate(domain, rough, noise_variance=0.05, form="features").forms[0].rank > 10


EXPONENTIAL = np.exp(-0.05 * np.arange(400))
POWER = np.arange(1.0, 400.0) ** -2


def test_an_exponential_fall_is_foreseen_exactly_and_a_power_from_below() -> None:
    # After so many columns 1e-6 is left.
    needed = np.log(1e6) / 0.05
    for done in (128, 256):
        assert expected_columns(EXPONENTIAL[:done], 1e-6) == pytest.approx(needed, rel=0.02)
    seen = [expected_columns(POWER[:done], 1e-8) for done in (128, 256)]
    assert seen[0] < seen[1] < 1e4, "a power needs 10,000 columns"
    assert expected_columns(np.ones(128), 1e-6) == np.inf
    assert expected_columns(np.full(128, 1e-9) + EXPONENTIAL[:128] * 1e-9, 1e-6) == 128, "there already"


def test_a_rough_kernel_in_six_dimensions_is_given_up_soon() -> None:
    """Features of 4,096 points took minutes and were dropped."""
    points, kernel = domains.grid([0.0] * 6, [1.0] * 6, 4).points, kernels.Matern52(length_scale=0.5)
    phi, chosen, residual = features.pivots(kernel, points, 1e-8, 3125)
    assert phi.shape[1] == len(chosen) <= 4 * Effort.first_check and residual > 1e-3
    asked: list[float] = []
    further, _, _ = features.pivots(kernel, points, 1e-8, phi.shape[1] + 1, asked.append)
    assert asked and min(asked) > Effort.first_check and further.shape[1] == phi.shape[1] + 1, "what is asked for goes on"
    np.testing.assert_array_equal(phi, further[:, :-1], err_msg="the columns so far are what they would have been")


def test_only_what_takes_long_is_looked_at() -> None:
    asked: list[float] = []
    features.pivots(kernels.Matern12(), domains.grid([0.0], [1.0], 300).points, 1e-12, 300, asked.append)
    assert not asked, "as all small domains were built before"


def test_the_forms_are_chosen_by_what_building_them_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    domain, smooth = domains.grid([0.0], [1.0], 150), kernels.SquaredExponential(length_scale=0.3)

    def build(form: str) -> str:
        model = jaxbandit.surrogate(domain, kernels.SquaredExponential(), noise_variance=0.1, form=form, horizon=100)
        return str(model.forms[0].name)

    assert build("auto") == "product"
    with monkeypatch.context() as patch:
        patch.setattr(Effort, "max_cubes", 1e6)
        assert build("auto") == "features" and build("product") == "product"
    monkeypatch.setattr(Effort, "checked_work", 0)
    monkeypatch.setattr(Effort, "first_check", 2)
    monkeypatch.setattr(memory, "host_memory", lambda: 1000)
    with pytest.raises(InvalidArgument, match=r"^domain: the .* on an axis of 150 points would take .* a larger low= or a smoother kernel"):
        jaxbandit.ranged(domain, smooth, low=0.2, high=0.4, noise_variance=0.1)
    with pytest.raises(
        InvalidArgument, match=r"^form: the .* 'features' needs on 150 points would take .* form='rows' with horizon=, fewer"
    ):
        build("features")
    with pytest.raises(InvalidArgument, match=r"^form: the eigenvectors of an axis of 150 points .*form='rows' with horizon="):
        build("product")
    monkeypatch.setattr(features, "host_memory", lambda: 1000)
    assert build("rows") == "rows" and features.product_features(smooth, domain, 1e-6, 10, asked=False) is None


def test_rows_that_do_not_fit_are_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    def build(**options: Any) -> jaxbandit.Surrogate:
        domain = domains.grid([0.0], [1.0], 150)
        return jaxbandit.surrogate(domain, kernels.Matern12(), noise_variance=0.1, form="rows", **options)

    assert build(horizon=5).forms[0].trial_bytes < 100_000 < build().forms[0].trial_bytes
    monkeypatch.setattr(memory, "host_memory", lambda: 100_000)
    build(horizon=5)
    with pytest.raises(InvalidArgument, match=r"^form: the rows of one trial on 150 points would take .* give horizon=, .* \(now 150"):
        build()
