"""Features on boxes against weight-space solves in NumPy after 2,000 observations, and against the exact form: beliefs and choices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbandit import Cei, ConstrainedThompson, InitialDesign, domains, kernels, simulate, surrogate
from jaxbandit.surrogates import BoxSurrogate, Posterior
from tests.oracles.gaussian_process import mean_and_sd, squared_exponential
from tests.support import box_runs

SEEN, LENGTHS, NOISES, MEANS = 2000, (1.0, 1.4), np.asarray([0.05, 0.2]), np.asarray([0.5, -0.25])
KERNELS = [kernels.SquaredExponential(length_scale=length) for length in LENGTHS]
BOX = domains.box({"a": (0.0, 1.0), "b": (0.0, 1.0)}, candidates=256)
RNG = np.random.default_rng(0)
POINTS, ELSEWHERE = RNG.uniform(size=(SEEN, 2)), RNG.uniform(size=(40, 2))
VALUES = np.stack([np.sin(5 * POINTS.sum(1)), POINTS[:, 0]], axis=1) + np.sqrt(NOISES) * RNG.standard_normal((SEEN, 2))


@jax.jit
def taught(model: BoxSurrogate, points: jax.Array, values: jax.Array, elsewhere: jax.Array) -> tuple[object, ...]:
    """Pool, beliefs there and elsewhere, and draws at the pool made in two ways, once the points are placed and observed in turn."""

    def one(belief: Posterior, given: tuple[jax.Array, jax.Array]) -> tuple[Posterior, None]:
        index, belief = model.place(belief, given[0])
        return model.condition(belief, index, given[1]), None

    belief = jax.lax.scan(one, model.init(), (points, values))[0]
    pool, key, scale = model.pool(belief), jax.random.key(0), jnp.asarray([1.0, 0.5], points.dtype)
    draws = model.draw(belief, key, scale), model.draw_at(belief, key, scale, pool)
    some = jax.vmap(lambda key: model.draw_at(belief, key, scale, elsewhere[:3]))(jax.random.split(key, 2000))
    return pool, model.predict(belief), model.predict_at(belief, elsewhere), draws, some


def by_weights(output: int, pivots: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean, deviation and covariance of the weights' part at points (Rasmussen and Williams 2006, eq. 2.11 and 8.14)."""
    root = np.linalg.cholesky(squared_exponential(pivots, pivots, LENGTHS[output]))
    phi, there = (np.linalg.solve(root, squared_exponential(pivots, x, LENGTHS[output])).T for x in (POINTS, at))
    inverse = np.linalg.inv(phi.T @ phi / NOISES[output] + np.eye(len(pivots)))
    mean = MEANS[output] + there @ inverse @ phi.T @ (VALUES[:, output] - MEANS[output]) / NOISES[output]
    covariance = there @ inverse @ there.T
    return mean, np.sqrt(np.diag(covariance) + 1 - np.sum(there**2, axis=1)), covariance


@pytest.mark.parametrize("precision", ["float64", pytest.param("float32", marks=pytest.mark.full)])
def test_beliefs_after_many_observations_are_those_of_the_weights_and_of_a_dense_posterior(precision: str) -> None:
    """In float64 those of coarse features, but for rounding; in float32 the exact ones.

    In float32 features leave out 1e-6 of the variance, and means are off by 0.06 deviations: 0.01 by that, the rest by rounding.
    """
    coarse = precision == "float64"
    with jax.enable_x64(coarse):
        model = surrogate(
            BOX,
            KERNELS,
            noise_variance=NOISES,
            prior_mean=MEANS,
            form="features",
            tolerance=1e-3 if coarse else None,
            precision=precision,
            horizon=SEEN,
        ).with_room(SEEN)
        given = (x.astype(model.dtype) for x in (POINTS, VALUES, ELSEWHERE))
        pool, here, there, draws, some = jax.tree.map(np.asarray, taught(model.without_kernels(), *given))
    ranks = [len(form.pivots) for form in model.forms]
    assert ranks[0] > ranks[1] and model.forms[1].rank == ranks[0], "of two groups, the second is padded"
    np.testing.assert_allclose(pool[len(BOX.points) :], POINTS, atol=1e-7)
    at = np.concatenate([pool[::8], ELSEWHERE])
    for output, form in enumerate(model.forms):
        own_mean, own_sd = (np.concatenate([getattr(here, part)[output][::8], getattr(there, part)[output]]) for part in ("mean", "sd"))
        mean, sd, covariance = by_weights(output, np.asarray(form.pivots, np.float64), at)
        covariance = covariance[-len(ELSEWHERE) :, -len(ELSEWHERE) :]
        if not coarse:
            gram = squared_exponential(*[np.concatenate([POINTS, at])] * 2, LENGTHS[output])
            mean, sd = mean_and_sd(gram, np.arange(SEEN), VALUES[:, output], NOISES[output], MEANS[output], wanted=slice(SEEN, None))
        assert np.max(np.abs(own_mean - mean) / sd) < (1e-9 if coarse else 0.1)
        np.testing.assert_allclose(own_sd, sd, rtol=1e-9 if coarse else 0.01)
        drawn = np.cov(some[:, output].T, ddof=0) / [1.0, 0.25][output]
        spread = np.sqrt(np.outer(*[np.diag(covariance)[:3]] * 2) * 2 / len(some))
        assert np.all(np.abs(drawn - covariance[:3, :3]) < 5 * spread), "5 standard errors, of which each is this at most"
    assert np.max(np.abs(draws[0] - draws[1]) / here.sd) < (1e-9 if coarse else 0.1)


def test_what_a_trial_holds_grows_with_its_points_and_with_no_square_of_them() -> None:
    model = surrogate(BOX, KERNELS[0], noise_variance=0.05, form="features")
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(model.with_room(room).init))) for room in (64, 128, 64 * 1024)]
    assert sizes[2] - sizes[0] == 1023 * (sizes[1] - sizes[0])
    assert model.needs(2000).precision == "float32"


@pytest.mark.full
def test_choices_of_a_run_are_those_of_the_exact_form() -> None:
    """Points differ by 21 times the 1e-6 of the variance that features leave out (measured), in sides of 2, and may by 100 times.

    By constrained EI, which goes by beliefs at its own points, too; no algorithm sees more of a form than predictions.
    """
    box = box_runs.small_box(candidates=512, steps=24)
    chosen = []
    for given in ({}, {"form": "features", "tolerance": 1e-6}):
        model = surrogate(box, kernels.SquaredExponential(length_scale=0.3), noise_variance=0.01, precision="float64", **given)
        start = {"horizon": 14, "key": 1, "initial": InitialDesign(random=4), "record": "indices", "block": 1}
        chosen.append(simulate(box_runs.valley(box), Cei(), model, trials=[1], **start).points)
    np.testing.assert_allclose(*chosen, atol=1e-4)


@pytest.mark.full
def test_trials_alone_and_in_a_batch_and_runs_of_any_length_have_the_same_bits() -> None:
    """By Thompson sampling, whose draws are ascended; with room for 64 points, all in use, and for 128."""
    box = box_runs.small_box(candidates=96)
    model = surrogate(box, KERNELS[0], noise_variance=0.05, form="features")
    start = {"key": 2, "record": "indices"}
    several, alone = (
        simulate(box_runs.valley(box), ConstrainedThompson(), model, horizon=horizon, trials=trials, **start).points
        for horizon, trials in ((64, 3), (70, [2]))
    )
    assert np.array_equal(several[2], alone[0, :64])
