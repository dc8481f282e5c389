"""Models of boxes that fit their hyper-parameters on the way: the fit, the posterior after it, and runs with late feedback."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit as jb
from jaxbandit import domains, kernels
from jaxbandit.surrogates import RefittedBox
from tests.oracles import hyper_parameters
from tests.oracles.gaussian_process import matern52, mean_and_sd, squared_exponential

ROUNDS, FITTED, POINTS = 26, 20, 12
SPAN, SHORTEST, LONGEST = 30.0, 0.005, 100.0
BOX = domains.box({"a": (0.0, 1.0), "b": (0.0, 1.0)}, candidates=8, starts=2, steps=4)
RNG = np.random.default_rng(2)
PLACES, ELSEWHERE = RNG.random((ROUNDS, 2)), RNG.random((5, 2))
FUNCTIONS = np.stack([np.sin(5 * PLACES[:, 0]) + 0.2 * PLACES[:, 1], 5000 + 300 * np.cos(7 * PLACES[:, 1]) * PLACES[:, 0]], axis=1)
VALUES = FUNCTIONS + np.asarray([0.1, 30.0]) * RNG.standard_normal((ROUNDS, 2))
SEEN = np.stack([np.ones(ROUNDS, bool), np.arange(ROUNDS) % 5 != 3], axis=1)  # values of the constraint go missing


def seen_by(output: int, rounds: int) -> np.ndarray:
    return np.flatnonzero(SEEN[:rounds, output])


def standardised(output: int, rounds: int) -> tuple[float, float]:
    own = VALUES[seen_by(output, rounds), output]
    return float(own.mean()), float(own.std())


ALIKE = [(kernels.SquaredExponential(length_scale=0.4), squared_exponential)] * 2
UNLIKE = [(kernels.Matern52(length_scale=0.4), matern52), ALIKE[1]]


@pytest.mark.parametrize(
    ("points", "given_kernels"),
    [pytest.param(64, ALIKE, id="64-alike"), pytest.param(POINTS, UNLIKE, id="12-unlike", marks=pytest.mark.full)],
)
def test_a_fit_has_the_largest_posterior_and_the_belief_is_that_of_a_dense_solve(points: int, given_kernels: list[Any]) -> None:
    """In the outputs' units, of which each fit has its own; of more points than a fit looks at it takes some evenly spaced in time.

    Kernels may be of different classes, which are fitted one after the other.
    """
    noises = [1e-2 * standardised(j, FITTED)[1] ** 2 for j in range(2)]
    with jax.enable_x64(True):
        given = jb.surrogate(BOX, [own for own, _ in given_kernels], noise_variance=noises, precision="float64")
        options: dict[str, Any] = {"every": None, "first": 8, "points": points, "steps": 60, "fit_noise": True}
        model = RefittedBox(
            box=given.with_room(ROUNDS + 3).separate().without_kernels(), prior=jb.Refitted(algorithm=jb.Cei()).prior, span=SPAN, **options
        )

        def one(posterior: Any, given: Any) -> tuple[Any, None]:
            index, posterior = model.place(posterior, given[0])
            return model.observe(posterior, index, given[1], given[2]), None

        def play(*given: Any) -> Any:
            before, _ = jax.lax.scan(one, model.init(), jax.tree.map(lambda x: x[:FITTED], given))
            last, _ = jax.lax.scan(one, model.fitted(before), jax.tree.map(lambda x: x[FITTED:], given))
            return last, model.pool(last), model.predict(last), model.predict_at(last, jnp.asarray(ELSEWHERE))

        last, pool, here, there = jax.tree.map(np.asarray, jax.jit(play)(PLACES, np.where(SEEN, VALUES, np.nan), SEEN))
    found = last.hyper_parameters
    for j in range(2):
        rows, (mean, unit) = seen_by(j, FITTED), standardised(j, FITTED)
        looked_at = rows[np.arange(points) * len(rows) // points] if points < len(rows) else rows
        own = np.asarray([*found.length_scale[j], found.variance[j] / unit**2, found.noise_variance[j] / unit**2])
        least, most = hyper_parameters.NOISES
        low, high = np.asarray([SHORTEST, SHORTEST, 1 / SPAN, least]), np.asarray([LONGEST, LONGEST, SPAN, most])
        kernel = given_kernels[j][1]
        data = PLACES[looked_at], (VALUES[looked_at, j, None] - mean) / unit, np.ones(2), 1.0, 1.0, kernel, hyper_parameters.LEARNING
        starts = [(0.4, 0.4, 1e-2), (3.0, 0.3, 1e-4), (0.3, 3.0, 1e-1), (1.0, 1.0, 0.5)]
        ends = [hyper_parameters.fit(np.asarray([*scales, 1.0, noise]), low, high, *data)[1] for *scales, noise in starts]
        assert hyper_parameters.loss(np.log(own), *data) <= min(ends) + 2e-3, "within what a search does not go on for"
        # What a constant c ~ N(mean, unit^2) is expected to be, by the joint distribution of c and the values.
        gram = found.variance[j] * kernel(PLACES[rows], PLACES[rows], found.length_scale[j])
        together = gram + unit**2 + found.noise_variance[j] * np.eye(len(rows))
        mean += unit**2 * np.linalg.solve(together, VALUES[rows, j] - mean).sum()
        assert last.prior_mean[j] == pytest.approx(mean, abs=1e-9 * unit), "solved with rounding of 1e-12"
        rows = seen_by(j, ROUNDS)
        for at, belief in ((pool, here), (ELSEWHERE, there)):
            everything = np.concatenate([PLACES[rows], at])
            gram = found.variance[j] * kernel(everything, everything, found.length_scale[j])
            want = mean_and_sd(gram, np.arange(len(rows)), VALUES[rows, j], found.noise_variance[j], mean)
            np.testing.assert_allclose(belief.mean[j], want[0][len(rows) :], atol=1e-8 * unit)
            np.testing.assert_allclose(belief.sd[j], want[1][len(rows) :], atol=1e-6 * unit)
    assert np.all(last.flags == 0)


@pytest.mark.full
def test_runs_with_late_feedback_record_a_length_scale_for_each_axis_and_output() -> None:
    problem = jb.problems.on_box(BOX, lambda x: 100 + jnp.sin(5 * x[0]), [lambda x: x[1] - 0.5], noise_variance=1e-3)
    model = jb.surrogate(BOX, kernels.Matern52(length_scale=0.4), noise_variance=1e-3)
    algorithm = jb.Refitted(algorithm=jb.Unconstrained(), at_start=True, every=3, first=4, steps=6)
    initial, late = jb.InitialDesign(random=4), jb.delays.Constant(rounds=1)
    run = jb.simulate(problem, algorithm, model, horizon=8, trials=2, key=jax.random.key(0), initial=initial, delay=late, block=1)
    scales = np.asarray(run.length_scales)
    assert scales.shape == (2, 8, 2, 2)
    changed = np.any(np.diff(scales, axis=1) != 0, axis=(2, 3))
    assert np.all(changed == (np.arange(4 + 1, 4 + 8) % 3 == 0)[None]), "after every third point"
    assert np.all(np.abs(scales[:, 0] - 0.4) > 1e-3), "to the initial design"
    assert np.all(run.status == 0), "nor are values far from the prior, which the first fit moves to them"
    assert np.all(np.asarray(problem.means_of(run.points))[0].max(axis=1) > 100.95)
