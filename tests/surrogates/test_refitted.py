"""Models that fit their hyper-parameters on the way: the fit, the posterior after it, and when it happens."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import domains, kernels
from jaxbandit.core.pytree import canonicalise
from jaxbandit.core.status import Status
from jaxbandit.surrogates import RefittedPosterior, RefittedSurrogate
from jaxbandit.surrogates.evidence.density import Collapsed, collapse
from tests.oracles import hyper_parameters
from tests.oracles.gaussian_process import mean_and_sd, squared_exponential

DOMAIN = domains.grid([0.0, 0.0], [2.0, 1.5], [8, 7])
POINTS, SIDES = np.asarray(DOMAIN.points), np.asarray([2.0, 1.5])
LOW, HIGH, NOISE, SPAN, MEANS = 0.3, 1.2, 0.05, 30.0, np.asarray([0.4, -0.3])
LEARNING = SIDES, 1.0, 1.0, squared_exponential, hyper_parameters.LEARNING  # the prior of fits, of the constant too
ROUNDS, FITTED = 30, 24


def data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Points visited [ROUNDS], some again and again, and values [ROUNDS, 2] of draws with different length-scales."""
    rng = np.random.default_rng(seed)
    indices = np.where(np.arange(ROUNDS) % 3 == 0, 11, rng.integers(0, DOMAIN.size, ROUNDS))
    draws = [
        np.linalg.cholesky(squared_exponential(POINTS, POINTS, scale) + 1e-9 * np.eye(DOMAIN.size)) @ rng.standard_normal(DOMAIN.size)
        for scale in (0.45, 0.9)
    ]
    return indices, np.stack(draws, axis=1)[indices] + MEANS + np.sqrt(NOISE) * rng.standard_normal((ROUNDS, 2))


def standard(values: np.ndarray, scales: int) -> tuple[np.ndarray, float, np.ndarray, np.ndarray]:
    """Means and joint standard deviation of ``values [n, j]``, and the least and the largest hyper-parameters in these units."""
    least, most = hyper_parameters.NOISES
    low, high = np.asarray([LOW] * scales + [1 / SPAN, least]), np.asarray([HIGH] * scales + [SPAN, most])
    return values.mean(axis=0), float(np.sqrt(values.var(axis=0).mean())), low, high


@functools.cache
def model_of(separate: bool, per_axis: bool) -> RefittedSurrogate:
    kernel = kernels.SquaredExponential(length_scale=[0.6, 0.6] if per_axis else 0.6)
    ranged = jb.ranged(DOMAIN, kernel, low=LOW, high=HIGH, noise_variance=NOISE, prior_mean=MEANS, tolerance=1e-9)
    ranged = ranged.separate() if separate else ranged
    options = {"every": None, "first": 8, "points": 64, "steps": 60, "fit_noise": True}
    return RefittedSurrogate(
        ranged=canonicalise(ranged.without_kernels()), prior=jb.Refitted(algorithm=jb.Rpol()).prior, span=SPAN, **options
    )


def ready(model: RefittedSurrogate) -> RefittedSurrogate:
    """The same model with its features, which a compiled program computes."""
    return jb.replace(model, ranged=model.ranged.factorised())


def play(model: RefittedSurrogate, indices: Any, values: Any) -> tuple[RefittedPosterior, RefittedPosterior, list[Any]]:
    """The posterior right after a fit to the first values and after all of them, and the predictions of both."""

    model = ready(model)

    def one(posterior: RefittedPosterior, seen: Any) -> tuple[RefittedPosterior, None]:
        return model.observe(posterior, *seen), None

    given = jnp.asarray(indices, jnp.int32), jnp.asarray(values)
    before, _ = jax.lax.scan(one, model.init(), jax.tree.map(lambda x: x[:FITTED], given))
    fitted = model.fitted(before)
    last, _ = jax.lax.scan(one, fitted, jax.tree.map(lambda x: x[FITTED:], given))
    return fitted, last, [model.predict(fitted), model.predict(last)]


@pytest.mark.full(but=("one fit, a scale an axis",))
@pytest.mark.parametrize(("separate", "per_axis"), [(True, False), (False, True)], ids=["one fit an output", "one fit, a scale an axis"])
def test_the_fit_has_the_largest_posterior_and_the_belief_is_that_of_a_dense_solve(separate: bool, per_axis: bool) -> None:
    sets = [data(0), data(1)]
    with jax.enable_x64(True):
        model = model_of(separate, per_axis)
        batched = jax.jit(jax.vmap(lambda indices, values: play(model, indices, values)))
        fitted, last, beliefs = jax.tree.map(np.asarray, batched(*(jnp.asarray(np.stack(part)) for part in zip(*sets, strict=True))))
    found = fitted.hyper_parameters
    np.testing.assert_array_equal(found.length_scale, last.hyper_parameters.length_scale)
    at_bound = [False, False]
    for number, (indices, values) in enumerate(sets):
        for j in range(2):
            group = j if separate else 0
            members = [j] if separate else [0, 1]
            scales = found.length_scale[number, group]
            variance, noise = found.variance[number, group], found.noise_variance[number, group]
            (means, unit, low, high), visits = standard(values[:FITTED][:, members], len(scales)), indices[:FITTED]
            own = np.asarray([*scales, variance / unit**2, noise / unit**2])
            assert np.all((own >= low * (1 - 1e-9)) & (own <= high * (1 + 1e-9)))
            at_bound[number] |= bool(np.any((own < 1.0005 * low)[:-1] | (own > high / 1.0005)[:-1]))
            seen = POINTS[visits], (values[:FITTED][:, members] - means) / unit, *LEARNING
            starts = [np.asarray([0.6] * len(scales) + [1.0, noise]) for noise in (NOISE, 1e-3)]
            least = min(hyper_parameters.fit(start, low, high, *seen)[1] for start in starts)
            assert hyper_parameters.loss(np.log(own), *seen) <= least + 1e-3
            # What a constant c ~ N(mean, unit^2) is expected to be, by the joint distribution of c and the values.
            gram, place = variance * squared_exponential(POINTS, POINTS, scales), members.index(j)
            together = gram[np.ix_(visits, visits)] + unit**2 + noise * np.eye(FITTED)
            prior_mean = means[place] + unit**2 * np.linalg.solve(together, values[:FITTED, j] - means[place]).sum()
            np.testing.assert_allclose(fitted.prior_mean[number, j], prior_mean, atol=1e-5)
            for belief, rounds in zip(beliefs, (FITTED, ROUNDS), strict=True):
                mean, sd = mean_and_sd(gram, indices[:rounds], values[:rounds, j], noise, prior_mean)
                np.testing.assert_allclose(belief.mean[number, j], mean, atol=1e-5)
                np.testing.assert_allclose(belief.sd[number, j], sd, atol=1e-4)
                visited = gram[np.ix_(indices[:rounds], indices[:rounds])]
                gain = 0.5 * np.linalg.slogdet(np.eye(rounds) + visited / noise)[1]
                np.testing.assert_allclose(belief.gain[number, j], gain, rtol=1e-6)
    np.testing.assert_array_equal(fitted.flags, np.where(at_bound, int(Status.FIT_AT_BOUND), 0))
    np.testing.assert_array_equal(last.flags, fitted.flags)
    assert len(np.unique(found.length_scale)) > 1, "data sets and outputs have fits of their own"


STARTS = np.asarray([[0.6, 0.6, 1.0, NOISE], [HIGH, HIGH, 0.3, 1.4], [LOW, HIGH, 20.0, 0.002]])  # as made, all noise, at bounds


@pytest.mark.full
def test_a_fit_of_the_default_steps_ends_near_the_best_of_many_searches() -> None:
    """In float32, wherever the last fit has left it: 95% are within 0.1 nats of the maximum posterior that SciPy finds."""
    seen = [
        (POINTS[indices[:n]], (values[:n] - values[:n].mean(0)) / standard(values[:n], 2)[1])
        for indices, values in map(data, range(3))
        for n in (8, 16, ROUNDS)
    ]
    sets = [jb.replace(collapse(*each).padded(ROUNDS), constant=1.0) for each in seen]
    with jax.enable_x64(True):
        model = jax.tree.map(np.asarray, jb.replace(model_of(False, True), steps=jb.Refitted(algorithm=jb.Rpol()).steps))

    def one(given: Collapsed, start: Any) -> Any:
        kernel = kernels.Scale(kernel=kernels.SquaredExponential(length_scale=start[:2]), variance=start[2])
        return canonicalise(model)._fit(given, kernel, start[3])[0]

    each_start = jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))
    found = jax.jit(each_start)(canonicalise(jax.tree.map(lambda *parts: np.stack(parts), *sets)), jnp.asarray(STARTS))
    places = np.log(np.concatenate([found.length_scale, found.variance[..., None], found.noise_variance[..., None]], axis=-1, dtype=float))
    _, _, low, high = standard(seen[0][1], 2)
    low[-1] = 1e-3  # the least noise variance in float32
    gaps = []
    for each, ends in zip(seen, places, strict=True):
        least = min(hyper_parameters.fit(start, low, high, *each, *LEARNING)[1] for start in [*STARTS, [LOW, LOW, 1.0, 0.02]])
        gaps += [hyper_parameters.loss(end, *each, *LEARNING) - least for end in ends]
    assert np.mean(np.asarray(gaps) < 0.1) >= 0.95, np.round(gaps, 2)


@pytest.mark.parametrize(
    ("every", "first", "rounds"),
    [(None, 3, [3, 6, 12, 24]), (5, 8, [10, 15, 20, 25, 30]), (5, 1, [5, 10, 15, 20, 25, 30]), (None, 1, [1, 2, 4, 8, 16])],
)
def test_fits_follow_the_schedule(every: int | None, first: int, rounds: list[int]) -> None:
    with jax.enable_x64(True):
        model = jb.replace(model_of(False, False), every=every, first=first)
        due = np.asarray(jax.vmap(model._is_due)(jnp.arange(31, dtype=jnp.int32)))
    assert np.flatnonzero(due).tolist() == rounds


@pytest.mark.full
def test_a_fit_looks_at_the_points_visited_most_and_can_leave_the_noise_alone() -> None:
    indices, values = data(2)
    kept = np.isin(indices, [11]) | (np.arange(ROUNDS) % 2 == 0)
    indices, values = np.concatenate([indices[kept], indices[kept]]), np.concatenate([values[kept], values[kept] + 0.1])
    rare = [i for i in range(DOMAIN.size) if i not in indices][:3]
    with jax.enable_x64(True):
        count = len(np.unique(indices))
        model = jb.replace(model_of(True, False), points=count, fit_noise=False)

        def fit(with_rare: jax.Array) -> tuple[RefittedPosterior, jax.Array]:
            own = ready(model)
            chosen = jnp.asarray(np.concatenate([indices, np.asarray(rare)]), jnp.int32)
            seen = jnp.asarray(np.concatenate([values, np.full((len(rare), 2), 3.0)]))
            here = (jnp.arange(len(chosen)) < len(indices)) | with_rare

            def one(posterior: RefittedPosterior, given: Any) -> tuple[RefittedPosterior, None]:
                index, value, present = given
                return own.observe(posterior, index, value, jnp.broadcast_to(present, (2,))), None

            posterior = own.fitted(jax.lax.scan(one, own.init(), (chosen, seen, here))[0])
            return posterior, own.predict(posterior).mean

        found, means = jax.tree.map(np.asarray, jax.jit(lambda both: jax.lax.map(fit, both))(jnp.asarray([False, True])))
    np.testing.assert_allclose(found.hyper_parameters.noise_variance, NOISE, rtol=1e-12)
    for with_rare, j in itertools.product((0, 1), (0, 1)):
        everything = np.append(values[:, j], [3.0] * len(rare) * with_rare)
        mean, unit, low, high = standard(everything[:, None], 1)
        low[-1], high[-1] = (NOISE / unit**2 * (1 + share) for share in (-1e-9, 1e-9))
        seen = POINTS[indices], (values[:, j : j + 1] - mean) / unit, *LEARNING
        _, least = hyper_parameters.fit(np.asarray([0.6, 1.0, NOISE / unit**2]), low, high, *seen)
        scale, variance = found.hyper_parameters.length_scale[with_rare, j, 0], found.hyper_parameters.variance[with_rare, j]
        assert hyper_parameters.loss(np.log([scale, variance / unit**2, NOISE / unit**2]), *seen) <= least + 1e-3
    assert np.all(means[1][:, rare[0]] > means[0][:, rare[0]]), "the posterior takes in all points"
