"""Posteriors against the dense reference."""

import functools
import re
import zlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, Sweep, algorithms, domains, kernels, problems
from jaxbandit.surrogates import Posterior, Prediction, Surrogate
from jaxbandit.surrogates.features import square_root_update
from tests.oracles import gaussian_process as gp
from tests.support import posteriors
from tests.support.posteriors import start

KERNELS = {
    "se": (kernels.SquaredExponential, gp.squared_exponential),
    "matern12": (kernels.Matern12, gp.matern12),
    "matern32": (kernels.Matern32, gp.matern32),
    "matern52": (kernels.Matern52, gp.matern52),
}


@jaxbandit.pytree
class AnyOf(kernels.Kernel):
    """Sum of ``KERNELS`` with one weight 1, so they share a program."""

    length_scale: Any
    weights: Any

    def __call__(self, x: Any, y: Any) -> jax.Array:
        values = [
            weight * ours(length_scale=self.length_scale)(x, y) for weight, (ours, _) in zip(self.weights, KERNELS.values(), strict=True)
        ]
        return functools.reduce(jnp.add, values)


FORMS = [(name, form) for name in KERNELS for form in ("features", "rows")] + [("se", "product"), ("se", "auto"), ("matern52", "auto")]

# Worst errors seen in `test_every_form_is_the_dense_posterior`, where the values are white noise of deviation 1, far rougher than any
# function of the kernel: float32 mean 3e-4, sd 2e-5, gain 8e-6; float64 mean 6e-12, sd 5e-13, gain 4e-13.
TOLERANCE = {"float32": {"mean": 1e-3, "sd": 1e-4, "gain": 5e-5}, "float64": {"mean": 1e-10, "sd": 1e-11, "gain": 1e-11}}


PLANE, SQUARE = domains.product([np.linspace(0, 1, 11), np.linspace(-1, 2, 9)]), domains.grid([0.0, 0.0], [1.0, 1.0], 6)
WIDE, LINE = domains.grid([0.0, 0.0], [6.0, 6.0], 15), domains.grid([0.0], [1.0], 20)


@jax.jit
def learned(
    model: Surrogate, before: Posterior | None, indices: jax.Array, values: jax.Array, count: jax.Array
) -> tuple[Posterior, Prediction]:
    """Return the posterior and the beliefs after ``count`` more values."""

    def step(i: jax.Array, posterior: Posterior) -> Posterior:
        return model.condition(posterior, indices[i], values[i])

    posterior = jax.lax.fori_loop(0, count, step, model.init() if before is None else before)
    return posterior, model.belief(posterior).prediction


def learn(model: Surrogate, indices: np.ndarray, values: np.ndarray, before: Posterior | None = None) -> tuple[Posterior, Prediction]:
    """Return the posterior, and beliefs in float64, after all values.

    Equal shapes share one program. Values seen ``before`` come first.
    """
    count, room = len(indices), max(64, len(indices))
    seen = np.zeros(room, np.int32), np.zeros((room, values.shape[1]))
    for padded, given in zip(seen, (indices, values), strict=True):
        padded[:count] = given
    posterior, belief = learned(model, before, *seen, np.int32(count))
    return posterior, jax.tree.map(lambda x: np.asarray(x, np.float64), belief)


def predict(model: Surrogate, indices: np.ndarray, values: np.ndarray) -> Prediction:
    return learn(model, indices, values)[1]


def differentiable(model: Surrogate, indices: np.ndarray, values: Any) -> Posterior:
    """Compute :func:`learned` by a loop of known length, for derivatives."""

    def step(posterior: Posterior, seen: tuple[jax.Array, jax.Array]) -> tuple[Posterior, None]:
        return model.condition(posterior, *seen), None

    return jax.lax.scan(step, model.init(), (jnp.asarray(indices, jnp.int32), jnp.asarray(values)))[0]


def data(seed: str, size: int, count: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points and values, a third of them at five points."""
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    favourites = rng.integers(size, size=5)
    indices = np.where(rng.random(count) < 1 / 3, rng.choice(favourites, count), rng.integers(size, size=count))
    return indices, rng.standard_normal((count, outputs))


def plane_model(name: str, form: str, noise: float, prior_mean: Any = 0.0) -> Surrogate:
    """Return a model of two outputs on the points of ``PLANE``."""
    scales = np.array([0.4, 1.1])
    own = np.asarray([name == other for other in KERNELS], np.float64)
    kernel = AnyOf(length_scale=scales, weights=own) if form == "rows" else KERNELS[name][0](length_scale=scales)
    return jaxbandit.surrogate(PLANE, 1.7 * kernel, noise_variance=noise, prior_mean=prior_mean, form=form, horizon=60)


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize(("name", "form"), FORMS)
def test_every_form_is_the_dense_posterior(name: str, form: str, precision: str) -> None:
    points, noise, prior = np.asarray(PLANE.points), 0.05, np.array([0.5, -1.0])
    gram = 1.7 * KERNELS[name][1](points, points, np.array([0.4, 1.1]))
    indices, values = data(f"{name}-{form}", len(points), 60, 2)
    with jax.enable_x64(precision == "float64"):
        model = plane_model(name, form, noise, prior)
        assert len(model.forms) == 1
        counts = (0, 1, 2, 20, 60)
        beliefs = [predict(model, indices[:n], values[:n]) for n in counts]
    limit = TOLERANCE[precision]
    for n, belief in zip(counts, beliefs, strict=True):
        for j in range(2):
            mean, sd = gp.mean_and_sd(gram, indices[:n], values[:n, j], noise, prior[j])
            np.testing.assert_allclose(belief.mean[j], mean, rtol=0, atol=limit["mean"], err_msg=f"mean of output {j} after {n}")
            np.testing.assert_allclose(belief.sd[j], sd, rtol=0, atol=limit["sd"], err_msg=f"sd of output {j} after {n}")
            gain = gp.information_gain(gram, indices[:n], noise)
            np.testing.assert_allclose(belief.gain[j], gain, rtol=limit["gain"], err_msg=f"gain of output {j} after {n}")


MARKS = (500, 2000, 5000)  # rounds


@functools.cache
def long_history(noise: float) -> tuple[np.ndarray, np.ndarray, dict[int, tuple[np.ndarray, np.ndarray]]]:
    """Return a history of 5,000 rounds and dense posteriors at ``MARKS``."""
    points = np.asarray(wide_model("product").domain.points)
    gram = gp.squared_exponential(points, points, 1.0)
    rng = np.random.default_rng(0)
    count, favourites = MARKS[-1], rng.integers(len(points), size=40)
    indices = np.where(rng.random(count) < 0.5, rng.choice(favourites, count), rng.integers(len(points), size=count))
    truth = -np.sin(points[:, 0]) - points[:, 1]
    values = (truth[indices] + noise**0.5 * rng.standard_normal(count))[:, None]
    return indices, values, {n: gp.mean_and_sd(gram, *gp.aggregated(indices[:n], values[:n, 0], noise)) for n in MARKS}


@functools.cache
def wide_model(form: str) -> Surrogate:
    """Return a model of 2,500 points, built once for all noises."""
    domain = domains.grid([0.0, 0.0], [6.0, 6.0], 50)
    return jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=1.0), noise_variance=1.0, outputs=1, form=form)


@pytest.mark.full
@pytest.mark.usefixtures("optimised")
@pytest.mark.parametrize("form", ["product", "features", "rows"])
@pytest.mark.parametrize(("noise", "mean_limit", "sd_limit"), [(0.0025, 3e-3, 2e-4), (1.0, 1e-4, 1e-4)])
def test_float32_holds_over_5000_rounds(noise: float, mean_limit: float, sd_limit: float, form: str) -> None:
    """Compare with a float64 solve by distinct points at several rounds.

    The limits are the library's promise. Worst seen: at ``lambda = 0.0025`` mean 2.5e-4 and sd 7e-5, at 1 mean 3.2e-5 and sd 7e-6.
    """
    indices, values, expected = long_history(noise)
    (model,) = jaxbandit.sweep(wide_model(form), {"noise_variance": [[noise]]}).unstack()
    assert jnp.asarray(model.noise_variance).dtype == np.float32 and np.asarray(model.noise_variance) == np.float32(noise)
    posterior = start(model)
    for n in range(500, MARKS[-1] + 1, 500):
        posterior, belief = learn(model, indices[n - 500 : n], values[n - 500 : n], posterior)
        if n not in MARKS:
            continue
        mean, sd = expected[n]
        assert np.abs(belief.mean[0] - mean).max() <= mean_limit
        assert np.abs(belief.sd[0] - sd).max() <= sd_limit


def test_aggregated_data_give_the_same_posterior() -> None:
    """The reference of the test above, against the plain dense solve."""
    points = np.linspace(0, 1, 8)[:, None]
    gram = gp.matern52(points, points, 0.3)
    indices, values = data("aggregated", 8, 50, 1)
    for whole, brief in zip(
        gp.mean_and_sd(gram, indices, values[:, 0], 0.3), gp.mean_and_sd(gram, *gp.aggregated(indices, values[:, 0], 0.3)), strict=True
    ):
        np.testing.assert_allclose(brief, whole, atol=1e-12)


@pytest.mark.full
@pytest.mark.parametrize(("name", "form"), [("se", "features"), ("se", "product"), ("matern52", "rows")])
def test_outputs_that_share_a_factor_equal_separate_ones(name: str, form: str) -> None:
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], 9)
    indices, values = data(form, domain.size, 40, 3)
    with jax.enable_x64(True):
        kernel = KERNELS[name][0](length_scale=0.5)
        prior = [0.3, 0.0, -0.7]
        shared = jaxbandit.surrogate(domain, kernel, noise_variance=0.1, outputs=3, form=form, prior_mean=prior)
        assert shared.groups == (0, 0, 0) and len(shared.forms) == 1
        together = predict(shared, indices, values)
        for j in range(3):
            single = jaxbandit.surrogate(domain, kernel, noise_variance=0.1, outputs=1, form=form, prior_mean=prior[j])
            alone = predict(single, indices, values[:, j : j + 1])
            # The same sums in the same order, up to fusion: equal bits were seen.
            np.testing.assert_allclose(together.mean[j], alone.mean[0], atol=1e-12)
            np.testing.assert_allclose(together.sd[j], alone.sd[0], atol=1e-12)
            np.testing.assert_allclose(together.gain[j], alone.gain[0], rtol=1e-12)


def test_groups_are_by_kernel_and_noise() -> None:
    se, rough = kernels.SquaredExponential(length_scale=0.2), kernels.Matern52(length_scale=0.2)
    model = jaxbandit.surrogate(LINE, [se, rough, se, se], noise_variance=[0.1, 0.1, 0.1, 0.5], outputs=4)
    assert model.groups == (0, 1, 0, 2)
    indices, values = data("groups", 20, 15, 4)
    belief = predict(model, indices, values)
    np.testing.assert_array_equal(belief.sd[0], belief.sd[2])
    points = np.asarray(LINE.points)
    for j, (function, noise) in enumerate(zip(["se", "matern52", "se", "se"], [0.1, 0.1, 0.1, 0.5], strict=True)):
        mean, sd = gp.mean_and_sd(KERNELS[function][1](points, points, 0.2), indices, values[:, j], noise)
        np.testing.assert_allclose(belief.mean[j], mean, atol=TOLERANCE["float32"]["mean"])
        np.testing.assert_allclose(belief.sd[j], sd, atol=TOLERANCE["float32"]["sd"])


@pytest.mark.parametrize(("name", "form"), [("se", "features"), ("se", "product"), ("matern32", "rows")])
def test_the_order_of_the_data_changes_rounding_only(name: str, form: str) -> None:
    indices, values = data(f"order-{form}", PLANE.size, 50, 2)
    order = np.random.default_rng(1).permutation(50)
    with jax.enable_x64(True):
        model = plane_model(name, form, 0.02)
        a, b = predict(model, indices, values), predict(model, indices[order], values[order])
        other = predict(model, indices, values[order])
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        # The largest difference seen was 3e-14.
        np.testing.assert_allclose(x, y, atol=1e-10)
    assert np.abs(other.mean - a.mean).max() > 1e-3


@pytest.mark.parametrize("form", ["features", "product"])
def test_joint_draws_have_the_posterior_mean_and_covariance(form: str) -> None:
    # With 72 means and 3,888 covariances, 3 of 1,000 seeds give a false alarm.
    draws, standard_errors = 6000, 5.0
    points, scale = np.asarray(SQUARE.points), np.array([1.5, 0.7])
    indices, values = data("draws", SQUARE.size, 12, 2)
    with jax.enable_x64(True):
        kernel = kernels.SquaredExponential(length_scale=0.5)
        model = jaxbandit.surrogate(SQUARE, kernel, noise_variance=0.1, form=form)

        def drawn() -> jax.Array:
            keys = jax.random.split(jax.random.key(0), draws)
            belief = model.belief(differentiable(model, indices, values))
            return jax.vmap(lambda key: belief.draw(key, jnp.asarray(scale)))(keys)

        sample = np.asarray(jax.jit(drawn)())  # [n, 2, M]
    gram = gp.squared_exponential(points, points, 0.5)
    means, covariances = [], []
    for j in range(2):
        mean, covariance = gp.posterior(gram, indices, values[:, j], 0.1)
        means.append(mean)
        covariances.append(scale[j] ** 2 * covariance)
        error = np.sqrt(np.diag(covariances[j]) / draws)
        assert np.all(np.abs(sample[:, j].mean(0) - mean) <= standard_errors * error)
    centred = sample - np.stack(means)
    for i, j in ((0, 0), (1, 1), (0, 1)):
        # Draws of different outputs are independent.
        expected = covariances[i] if i == j else np.zeros_like(gram)
        # This is the variance of one product of two Gaussians.
        variance = np.outer(np.diag(covariances[i]), np.diag(covariances[j])) + expected**2
        empirical = centred[:, i].T @ centred[:, j] / draws
        assert np.all(np.abs(empirical - expected) <= standard_errors * np.sqrt(variance / draws))


def test_row_cache_has_no_joint_draws() -> None:
    model = jaxbandit.surrogate(LINE, kernels.Matern52(), noise_variance=0.1, form="rows")
    with pytest.raises(jaxbandit.InvalidArgument, match="form='features'"):
        jax.eval_shape(lambda: model.belief(model.init()).draw(jax.random.key(0), jnp.ones(2)))


@pytest.mark.parametrize("form", ["features", "product"])
def test_too_small_a_rank_is_refused(form: str) -> None:
    kernel = kernels.SquaredExponential(length_scale=1.0)
    with pytest.raises(jaxbandit.InvalidArgument, match=r"rank=10 leaves out .* raise rank"):
        jaxbandit.surrogate(WIDE, kernel, noise_variance=0.1, form=form, rank=10)
    loose = jaxbandit.surrogate(WIDE, kernel, noise_variance=0.1, form=form, rank=10, tolerance=0.999)
    assert loose.forms[0].rank <= 10
    assert jaxbandit.surrogate(WIDE, kernel, noise_variance=0.1, form=form, rank=225).forms[0].rank < 225


def test_describe_says_what_was_chosen() -> None:
    se, rough = kernels.SquaredExponential(length_scale=0.5), kernels.Matern52(length_scale=0.5)
    model = jaxbandit.surrogate(SQUARE, [se, se, rough], noise_variance=[0.1, 0.1, 0.2], outputs=3, form="features")
    first, second, precision = model.describe().splitlines()
    assert first.startswith(f"reward, constraint 1: form 'features', rank {model.forms[0].rank} of 36 points, residual ")
    assert float(first.rsplit(" ", 1)[1]) <= 1e-6
    assert second.startswith("constraint 2: form 'features', rank 36 of 36 points, residual ")
    assert precision == "precision float32"
    assert "exact at visited points\n" in jaxbandit.surrogate(SQUARE, rough, noise_variance=0.1, form="rows").describe()
    assert "form 'product'" in jaxbandit.surrogate(SQUARE, se, noise_variance=0.1, form="product").describe()


def test_auto_picks_product_for_smooth_and_rows_for_rough_kernels() -> None:
    domain = domains.grid([0.0, 0.0], [6.0, 6.0], 30)
    smooth = jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=1.0), noise_variance=0.05, horizon=200)
    assert smooth.forms[0].name == "product" and "form 'product'" in smooth.describe()
    rough = jaxbandit.surrogate(domain, kernels.Matern52(length_scale=1.0), noise_variance=0.05, horizon=200)
    assert rough.forms[0].name == "rows"
    assert [form.capacity for form in rough.forms] == [200]


def test_arms_with_an_explicit_gram_matrix() -> None:
    rng = np.random.default_rng(3)
    factor = rng.standard_normal((7, 9))
    gram = factor @ factor.T / 9
    indices, values = data("arms", 7, 25, 2)
    for form in ("features", "rows", "auto"):
        model = jaxbandit.surrogate(domains.arms(7), kernels.Gram(matrix=gram), noise_variance=0.3, form=form)
        belief = predict(model, indices, values)
        for j in range(2):
            mean, sd = gp.mean_and_sd(gram, indices, values[:, j], 0.3)
            np.testing.assert_allclose(belief.mean[j], mean, atol=TOLERANCE["float32"]["mean"])
            np.testing.assert_allclose(belief.sd[j], sd, atol=TOLERANCE["float32"]["sd"])
    with pytest.raises(jaxbandit.InvalidArgument, match="must be positive semi-definite"):
        kernels.Gram(matrix=gram - 2 * np.eye(7))
    with pytest.raises(jaxbandit.InvalidArgument, match="must be symmetric"):
        kernels.Gram(matrix=gram + np.triu(np.ones((7, 7)), 1))


@pytest.mark.full
@pytest.mark.parametrize("form", ["features", "product", "rows"])
def test_a_sweep_over_the_noise_variance(form: str) -> None:
    rng = np.random.default_rng(4)
    # Scores do not tie, because the grid has no symmetry.
    domain = domains.product([np.sort(rng.random(8)), np.sort(rng.random(9))])
    points = np.asarray(domain.points)
    gram = gp.squared_exponential(points, points, 0.4)
    noises = [0.01, 0.1, 1.0]
    reward, cost = gp.random_functions(gram, 2, rng)
    problem = problems.from_tables(domain, reward, cost, noise=problems.Gaussian(variance=0.1))
    with jax.enable_x64(True):
        base = jaxbandit.surrogate(domain, kernels.SquaredExponential(length_scale=0.4), noise_variance=0.5, form=form)
        swept = jaxbandit.sweep(base, {"noise_variance": [[v] for v in noises]})
        assert isinstance(swept, Sweep)
        options: dict[str, Any] = {"horizon": 15, "trials": 2, "key": jax.random.key(0), "record": "indices", "block": 1}
        run = jaxbandit.simulate(problem, jaxbandit.Rpol(), swept, **options)
        indices, gains = np.asarray(run.indices), np.asarray(run.information_gain)
        assert indices.shape == (3, 2, 15)
        for i, (noise, model) in enumerate(zip(noises, swept.unstack(), strict=True)):
            alone = jaxbandit.simulate(problem, jaxbandit.Rpol(), model, **options)
            np.testing.assert_array_equal(indices[i], alone.indices)
            np.testing.assert_allclose(gains[i], alone.information_gain, rtol=1e-12)
            for b in range(2):
                np.testing.assert_allclose(gains[i, b, 0], gp.information_gain(gram, indices[i, b], noise), rtol=1e-9)
    assert len({*gains[:, 0, 0].tolist()}) == 3


@pytest.mark.parametrize("form", ["features", "product"])
def test_gradients_with_respect_to_the_noise_variance(form: str) -> None:
    """``jax.grad`` through many conditionings equals central differences of the dense reference."""
    points = np.asarray(SQUARE.points)
    gram = gp.squared_exponential(points, points, 0.4)
    indices, values = data("gradient", SQUARE.size, 20, 2)
    rng = np.random.default_rng(5)
    a, b = rng.standard_normal((2, 2, SQUARE.size))

    def theirs(noise: float) -> float:
        total = gp.information_gain(gram, indices, noise)
        for j in range(2):
            mean, sd = gp.mean_and_sd(gram, indices, values[:, j], noise)
            total += a[j] @ mean + b[j] @ sd
        return total

    with jax.enable_x64(True):
        kernel = kernels.SquaredExponential(length_scale=0.4)
        model = jaxbandit.surrogate(SQUARE, kernel, noise_variance=0.1, form=form)

        def ours(noise: jax.Array) -> jax.Array:
            swapped = jaxbandit.replace(model, noise_variance=noise[None])
            belief = swapped.belief(differentiable(swapped, indices, values)).prediction
            return jnp.sum(a * belief.mean + b * belief.sd) + belief.gain[0]

        both = jax.jit(jax.value_and_grad(ours))
        for noise in (0.05, 0.3):
            value, slope = both(noise)
            step = 1e-4 * noise
            expected = (theirs(noise + step) - theirs(noise - step)) / (2 * step)
            np.testing.assert_allclose(value, theirs(noise), rtol=1e-9)
            # The truncation error of the difference, step^2 f''' / 6, is of order 1e-7.
            np.testing.assert_allclose(slope, expected, rtol=1e-5)


def test_gradients_with_respect_to_the_prior_mean_and_the_values() -> None:
    """The posterior mean is linear in both, so one-sided differences are exact."""
    indices, values = data("linear", LINE.size, 6, 1)
    with jax.enable_x64(True):
        model = jaxbandit.surrogate(LINE, kernels.Matern52(length_scale=0.3), noise_variance=0.1, outputs=1, form="features")

        def mean_at(prior: jax.Array, seen: jax.Array) -> jax.Array:
            swapped = jaxbandit.replace(model, prior_mean=prior[None])
            return swapped.belief(differentiable(swapped, indices, seen)).mean[0, 4]

        by_prior, by_values = jax.jit(jax.grad(mean_at, (0, 1)))(0.2, values)
    by_values, points = np.asarray(by_values), np.asarray(LINE.points)
    gram = gp.matern52(points, points, 0.3)

    def theirs(prior: float, seen: np.ndarray) -> float:
        return float(gp.mean_and_sd(gram, indices, seen[:, 0], 0.1, prior)[0][4])

    np.testing.assert_allclose(by_prior, theirs(1.2, values) - theirs(0.2, values), atol=1e-9)
    for i in range(6):
        np.testing.assert_allclose(by_values[i, 0], theirs(0.2, values + np.eye(6)[:, [i]]) - theirs(0.2, values), atol=1e-9)


def test_one_square_root_update_is_the_conditional_covariance() -> None:
    rng = np.random.default_rng(6)
    root, phi, noise = rng.standard_normal((5, 5)), rng.standard_normal(5), 0.2
    with jax.enable_x64(True):
        new, u, s = map(np.asarray, jax.jit(square_root_update)(root, phi, noise))
    before = root @ root.T
    np.testing.assert_allclose(u, before @ phi, atol=1e-12)
    np.testing.assert_allclose(s, noise + phi @ before @ phi, atol=1e-12)
    np.testing.assert_allclose(new @ new.T, before - np.outer(before @ phi, before @ phi) / (noise + phi @ before @ phi), atol=1e-12)


def test_features_reproduce_the_kernel_matrix() -> None:
    """The reported residual is the largest omitted share of prior variance."""
    points = np.asarray(WIDE.points)
    gram = gp.squared_exponential(points, points, 1.0)
    for form in ("features", "product"):
        with jax.enable_x64(True):
            kernel = kernels.SquaredExponential(length_scale=1.0)
            built: Any = jaxbandit.surrogate(WIDE, kernel, noise_variance=0.1, form=form, tolerance=1e-3).forms[0]
            phi = np.asarray(jax.jit(lambda form: jax.vmap(form.row, (None, 0))(form.init(), jnp.arange(WIDE.size)))(built))
        residual = np.diag(gram) - (phi**2).sum(1)
        assert 1e-6 < residual.max() <= 1e-3
        np.testing.assert_allclose(built.residual, residual.max(), rtol=1e-6)
        np.testing.assert_array_equal(built.prior_variance, np.diag(gram))
        np.testing.assert_allclose(built.left_out, residual, atol=1e-12)
        assert np.abs(gram - phi @ phi.T).max() <= 1.001 * residual.max()


SIDE, ROUNDS, NOISE = 7, 12, 0.05
DOMAIN = domains.grid([0.0, 0.0], [1.0, 1.0], SIDE)
PARTIAL_FORMS = ("features", "product", "rows")
# The tolerance is absolute, of covariances below 2, of which features leave out 1e-6 or 1e-13.
PARTIAL_TOLERANCE = {"float32": 2e-5, "float64": 1e-11}
INDICES = np.random.default_rng(3).integers(0, DOMAIN.size, ROUNDS)
VALUES = np.random.default_rng(4).standard_normal((ROUNDS, 3))


def gram(form: str) -> np.ndarray:
    kernel = gp.squared_exponential if form == "product" else gp.matern52
    return 1.5 * kernel(DOMAIN.points, DOMAIN.points, 0.4)


def surrogate(form: str, noise: list[float]) -> Surrogate:
    kernel = kernels.SquaredExponential(length_scale=0.4) if form == "product" else kernels.Matern52(length_scale=0.4)
    return jaxbandit.surrogate(DOMAIN, 1.5 * kernel, noise_variance=noise, outputs=3, form=form, prior_mean=[0.3, 0.0, -0.2])


@jax.jit
def conditioned(model: Surrogate, indices: jax.Array, values: jax.Array, present: jax.Array | None = None) -> Posterior:
    def step(posterior: Posterior, seen: tuple) -> tuple[Posterior, None]:
        return model.condition(posterior, *seen), None

    given = (indices, values) if present is None else (indices, values, present)
    return jax.lax.scan(step, model.init(), given)[0]


def covariances(model: Surrogate, posterior: Posterior, some: np.ndarray, more: np.ndarray) -> tuple[list[np.ndarray], np.ndarray]:
    """Return some covariances of every output, and more of the first."""

    @jax.jit
    def columns(model: Surrogate, posterior: Posterior) -> tuple[list[jax.Array], jax.Array]:
        belief = model.belief(posterior)
        return [belief.covariance(k, jnp.asarray(some)) for k in range(3)], belief.covariance(0, jnp.asarray(more))

    return jax.device_get(columns(model, posterior))


@pytest.mark.full(but=("features",))
@pytest.mark.parametrize("precision", PARTIAL_TOLERANCE)
@pytest.mark.parametrize("form", PARTIAL_FORMS)
def test_covariance_columns_are_the_dense_ones(form: str, precision: str) -> None:
    with jax.enable_x64(precision == "float64"):
        model = surrogate(form, [NOISE, NOISE, 2 * NOISE])
        posterior = conditioned(model, jnp.asarray(INDICES, jnp.int32), jnp.asarray(VALUES))
        some = np.asarray([0, 48, 17, 17, int(INDICES[0])], np.int32)
        ours, everything = covariances(model, posterior, some, np.arange(DOMAIN.size, dtype=np.int32))
    for k, noise in enumerate([NOISE, NOISE, 2 * NOISE]):
        expected = gp.posterior(gram(form), INDICES, VALUES[:, k], noise)[1]
        assert ours[k].dtype == precision
        np.testing.assert_allclose(ours[k], expected[np.asarray(some)], rtol=0, atol=PARTIAL_TOLERANCE[precision])
    np.testing.assert_allclose(everything, everything.T, rtol=0, atol=PARTIAL_TOLERANCE[precision])
    np.testing.assert_allclose(np.diag(everything), np.asarray(posterior.variance)[0], rtol=0, atol=PARTIAL_TOLERANCE[precision])


@pytest.mark.full(but=("product",))
@pytest.mark.parametrize("form", PARTIAL_FORMS)
def test_outputs_observed_apart(form: str) -> None:
    """Values of other outputs may be anything."""
    present = np.random.default_rng(5).random((ROUNDS, 3)) < 0.5
    assert np.all(present.sum(0) > 2) and not np.any(present.all(0))
    with jax.enable_x64(True):
        shared = surrogate(form, [NOISE, NOISE, NOISE])
        assert len(shared.forms) == 1
        model = shared.separate()
        values = np.where(present, VALUES, np.nan)
        posterior = conditioned(model, jnp.asarray(INDICES, jnp.int32), jnp.asarray(values), jnp.asarray(present))
        belief = jax.device_get(posteriors.predict(model, posterior))
        covariance = covariances(model, posterior, np.asarray([5], np.int32), np.asarray([0], np.int32))[0][2]
        again = model.separate()
    assert again.groups == model.groups == (0, 1, 2)
    for k, prior_mean in enumerate([0.3, 0.0, -0.2]):
        seen = present[:, k]
        mean, dense = gp.posterior(gram(form), INDICES[seen], VALUES[seen, k], NOISE, prior_mean)
        np.testing.assert_allclose(belief.mean[k], mean, rtol=0, atol=1e-10)
        np.testing.assert_allclose(belief.sd[k], np.sqrt(np.maximum(np.diag(dense), 0)), rtol=0, atol=1e-6)
        gain = gp.information_gain(gram(form), INDICES[seen], NOISE)
        np.testing.assert_allclose(np.asarray(posterior.gain)[k], gain, rtol=1e-9)
        if k == 2:
            np.testing.assert_allclose(covariance[0], dense[5], rtol=0, atol=1e-10)


def test_everything_present_is_an_ordinary_observation() -> None:
    with jax.enable_x64(True):
        model = surrogate("features", [NOISE, NOISE, NOISE]).separate()
        given = (jnp.asarray(INDICES, jnp.int32), jnp.asarray(VALUES))
        masked = conditioned(model, *given, jnp.ones((ROUNDS, 3), bool))
        plain = conditioned(model, *given)
    for a, b in zip(jax.tree.leaves(masked), jax.tree.leaves(plain), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("form", PARTIAL_FORMS)
def test_what_is_absent_adds_nothing_to_the_gain(form: str) -> None:
    """Values that are present add the reference's gain."""
    noise = 0.052
    assert noise * (1 / noise) != 1
    present = np.zeros((ROUNDS, 3), bool)
    present[4, 2] = True
    with jax.enable_x64(True):
        model = surrogate(form, [noise] * 3).separate()
        gains = np.asarray(conditioned(model, jnp.asarray(INDICES, jnp.int32), jnp.asarray(VALUES), jnp.asarray(present)).gain)
    np.testing.assert_array_equal(gains[:2], 0)
    np.testing.assert_allclose(gains[2], gp.information_gain(gram(form), INDICES[4:5], noise), rtol=1e-9)


def test_outputs_that_share_a_factor_go_together() -> None:
    """One group observed, the other not."""
    with jax.enable_x64(True):
        model = surrogate("features", [NOISE, NOISE, 2 * NOISE])
        assert model.groups == (0, 0, 1)
        prior, seen = posteriors.start(model), (np.int32(17), np.asarray([1.0, -1.0, 0.5]))
        both = posteriors.condition(model, prior, *seen, np.asarray([True, True, False]))
        neither = posteriors.condition(model, prior, *seen, np.asarray([False, False, False]))
        everything = posteriors.condition(model, prior, *seen)
    np.testing.assert_allclose(np.asarray(both.shift)[:2], np.asarray(everything.shift)[:2], rtol=1e-12)
    np.testing.assert_array_equal(np.asarray(both.shift)[2], np.asarray(prior.shift)[2])
    np.testing.assert_array_equal(neither.shift, prior.shift)
    gains = np.asarray(both.gain)
    assert np.all(np.asarray(neither.gain) == 0) and gains[0] > 0 and gains[1] == 0


NOISY_ROUNDS = 24
NOISY_DOMAIN = domains.product([np.linspace(0, 1, 7), np.linspace(-1, 1, 5)])
POINTS = np.asarray(NOISY_DOMAIN.points)
PRIOR = np.array([0.5, -1.0])
# The reward's noise is a hundred times as large at one end as at the other, and the constraint's has no order.
TABLE = np.stack([0.01 * 10 ** (2 * POINTS[:, 0]), np.random.default_rng(0).uniform(0.02, 0.5, NOISY_DOMAIN.size)])
# The largest errors seen were 1e-5 and 5e-14.
NOISY_TOLERANCE = {"float32": 1e-4, "float64": 1e-11}


@jax.jit
def every_round(model: Surrogate, indices: jax.Array, values: jax.Array) -> Prediction:
    """The predictions after 1, 2, ... observations."""

    def step(posterior: Any, seen: Any) -> tuple[Any, Prediction]:
        posterior = model.condition(posterior, *seen)
        return posterior, model.belief(posterior).prediction

    return jax.lax.scan(step, model.init(), (indices, values))[1]


@pytest.mark.parametrize("precision", NOISY_TOLERANCE)
@pytest.mark.parametrize("form", ["features", "product", "rows"])
def test_every_form_is_the_dense_posterior_in_every_round(form: str, precision: str) -> None:
    rng = np.random.default_rng(3)
    indices, values = rng.integers(NOISY_DOMAIN.size, size=NOISY_ROUNDS), rng.standard_normal((NOISY_ROUNDS, 2))
    indices[5:9] = indices[4]
    gram = gp.squared_exponential(POINTS, POINTS, 0.5)
    with jax.enable_x64(precision == "float64"):
        kernel = kernels.SquaredExponential(length_scale=0.5)
        noise = [lambda x: 0.01 * 10 ** (2 * x[0]), TABLE[1]]
        model = jaxbandit.surrogate(NOISY_DOMAIN, kernel, noise_variance=noise, prior_mean=PRIOR, form=form, horizon=NOISY_ROUNDS)
        assert model.noise_variance.shape == (2, NOISY_DOMAIN.size) and model.dtype == precision
        found = every_round(model, jnp.asarray(indices, jnp.int32), jnp.asarray(values, model.dtype))
    for n in range(1, NOISY_ROUNDS + 1):
        seen = indices[:n]
        for j in range(2):
            mean, sd = gp.mean_and_sd(gram, seen, values[:n, j], TABLE[j][seen], PRIOR[j])
            gain = gp.information_gain(gram, seen, TABLE[j][seen])
            close = {"rtol": NOISY_TOLERANCE[precision], "atol": NOISY_TOLERANCE[precision]}
            np.testing.assert_allclose(found.mean[n - 1, j], mean, err_msg=f"mean of output {j} after {n}", **close)
            np.testing.assert_allclose(found.sd[n - 1, j], sd, err_msg=f"sd of output {j} after {n}", **close)
            np.testing.assert_allclose(found.gain[n - 1, j], gain, err_msg=f"gain of output {j} after {n}", **close)


def model_with(noise: Any, **options: Any) -> Surrogate:
    return jaxbandit.surrogate(NOISY_DOMAIN, kernels.SquaredExponential(length_scale=0.5), noise_variance=noise, **options)


def test_a_noise_variance_is_a_number_a_table_or_a_function() -> None:
    assert model_with(0.1).noise_variance.shape == (1,)
    assert model_with([0.1, 0.2]).noise_variance.shape == (2,)
    shared = model_with(TABLE[0])
    assert shared.groups == (0, 0) and shared.noise_variance.shape == (1, NOISY_DOMAIN.size)
    np.testing.assert_allclose(shared.noise_variance[0], TABLE[0], rtol=1e-6)
    np.testing.assert_array_equal(shared.noise_variance, model_with(lambda x: 0.01 * 10 ** (2 * x[0])).noise_variance)
    apart = model_with([0.1, TABLE[1]])
    assert apart.groups == (0, 1) and np.ptp(np.asarray(apart.noise_variance[0])) == 0
    assert "0.02" in apart.describe() and "by point" in apart.describe()
    apart.validate()
    np.testing.assert_array_equal(shared.separate().noise_at(1, jnp.asarray([3, 1])), shared.noise_variance[0][jnp.asarray([3, 1])])


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        (algorithms.Bpe(width=algorithms.Elimination()), "Bpe.width"),
        (algorithms.Refitted(algorithm=jaxbandit.Rpol()), "surrogate.noise_variance: Refitted"),
    ],
    ids=lambda item: type(item).__name__,
)
def test_algorithms_that_need_one_noise_variance_say_so(algorithm: Any, words: str) -> None:
    kernel = kernels.SquaredExponential(length_scale=0.5)
    model = jaxbandit.ranged(NOISY_DOMAIN, kernel, low=0.4, high=0.6, noise_variance=TABLE, tolerance=0.1)
    problem = problems.from_tables(NOISY_DOMAIN, POINTS[:, 0], POINTS[:, 1])
    with pytest.raises(InvalidArgument, match=re.escape(words)):
        jaxbandit.simulate(problem, algorithm, model, horizon=3, trials=1, key=jax.random.key(0))
