"""Models that fit their hyper-parameters on the way, on grids and boxes."""

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
from jaxbandit.surrogates import RefittedBox, RefittedPosterior, RefittedSurrogate
from jaxbandit.surrogates.evidence.density import Collapsed, collapse
from tests.oracles import hyper_parameters
from tests.oracles.gaussian_process import matern52, mean_and_sd, squared_exponential

DOMAIN = domains.grid([0.0, 0.0], [2.0, 1.5], [8, 7])
POINTS, SIDES = np.asarray(DOMAIN.points), np.asarray([2.0, 1.5])
LOW, HIGH, NOISE, SPAN, MEANS = 0.3, 1.2, 0.05, 30.0, np.asarray([0.4, -0.3])
LEARNING = SIDES, 1.0, 1.0, squared_exponential, hyper_parameters.LEARNING
ROUNDS, FITTED = 30, 24


def data(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points [ROUNDS] with repeats, and values [ROUNDS, 2] of draws."""
    rng = np.random.default_rng(seed)
    indices = np.where(np.arange(ROUNDS) % 3 == 0, 11, rng.integers(0, DOMAIN.size, ROUNDS))
    draws = [
        np.linalg.cholesky(squared_exponential(POINTS, POINTS, scale) + 1e-9 * np.eye(DOMAIN.size)) @ rng.standard_normal(DOMAIN.size)
        for scale in (0.45, 0.9)
    ]
    return indices, np.stack(draws, axis=1)[indices] + MEANS + np.sqrt(NOISE) * rng.standard_normal((ROUNDS, 2))


def standard(values: np.ndarray, scales: int) -> tuple[np.ndarray, float, np.ndarray, np.ndarray]:
    """Return standardising constants and the range of hyper-parameters."""
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
        ranged=canonicalise(jb.replace(ranged, kernels=())), prior=jb.Refitted(algorithm=jb.Rpol()).prior, span=SPAN, **options
    )


def ready(model: RefittedSurrogate) -> RefittedSurrogate:
    """Compute the model's features in a program."""
    return jb.replace(model, ranged=model.ranged.factorised())


def play(model: RefittedSurrogate, indices: Any, values: Any) -> tuple[RefittedPosterior, RefittedPosterior, list[Any]]:
    """Return posteriors and predictions after a fit and after all values."""

    model = ready(model)

    def one(posterior: RefittedPosterior, seen: Any) -> tuple[RefittedPosterior, None]:
        return model.observe(posterior, *seen), None

    given = jnp.asarray(indices, jnp.int32), jnp.asarray(values)
    before, _ = jax.lax.scan(one, model.init(), jax.tree.map(lambda x: x[:FITTED], given))
    fitted = model.fitted(before)
    last, _ = jax.lax.scan(one, fitted, jax.tree.map(lambda x: x[FITTED:], given))
    return fitted, last, [model.belief(fitted).prediction, model.belief(last).prediction]


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
            # The constant's expectation follows from the joint distribution of c ~ N(mean, unit^2) and the values.
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


# The starts are the built model, all noise, and bounds.
STARTS = np.asarray([[0.6, 0.6, 1.0, NOISE], [HIGH, HIGH, 0.3, 1.4], [LOW, HIGH, 20.0, 0.002]])


@pytest.mark.full
def test_a_fit_of_the_default_steps_ends_near_the_best_of_many_searches() -> None:
    """The loss is at most 0.1 nats in 95% of fits."""
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
    low[-1] = 1e-3
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
            return posterior, own.belief(posterior).mean

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


BOX_ROUNDS, BOX_FITTED, BOX_POINTS = 26, 20, 12
BOX_SPAN, SHORTEST, LONGEST = 30.0, 0.005, 100.0
BOX = domains.box({"a": (0.0, 1.0), "b": (0.0, 1.0)}, candidates=8, starts=2, steps=4)
RNG = np.random.default_rng(2)
PLACES, ELSEWHERE = RNG.random((BOX_ROUNDS, 2)), RNG.random((5, 2))
FUNCTIONS = np.stack([np.sin(5 * PLACES[:, 0]) + 0.2 * PLACES[:, 1], 5000 + 300 * np.cos(7 * PLACES[:, 1]) * PLACES[:, 0]], axis=1)
VALUES = FUNCTIONS + np.asarray([0.1, 30.0]) * RNG.standard_normal((BOX_ROUNDS, 2))
SEEN = np.stack([np.ones(BOX_ROUNDS, bool), np.arange(BOX_ROUNDS) % 5 != 3], axis=1)


def seen_by(output: int, rounds: int) -> np.ndarray:
    return np.flatnonzero(SEEN[:rounds, output])


def standardised(output: int, rounds: int) -> tuple[float, float]:
    own = VALUES[seen_by(output, rounds), output]
    return float(own.mean()), float(own.std())


ALIKE = [(kernels.SquaredExponential(length_scale=0.4), squared_exponential)] * 2
UNLIKE = [(kernels.Matern52(length_scale=0.4), matern52), ALIKE[1]]


@pytest.mark.parametrize(
    ("points", "given_kernels"),
    [pytest.param(64, ALIKE, id="64-alike"), pytest.param(BOX_POINTS, UNLIKE, id="12-unlike", marks=pytest.mark.full)],
)
def test_a_fit_has_the_largest_posterior_and_the_belief_is_that_of_a_dense_solve(points: int, given_kernels: list[Any]) -> None:
    """Outputs have units of their own, and long histories are thinned.

    Kernels may be of different classes, and these are fitted one after the other.
    """
    noises = [1e-2 * standardised(j, BOX_FITTED)[1] ** 2 for j in range(2)]
    with jax.enable_x64(True):
        given = jb.surrogate(BOX, [own for own, _ in given_kernels], noise_variance=noises, precision="float64")
        options: dict[str, Any] = {"every": None, "first": 8, "points": points, "steps": 60, "fit_noise": True}
        model = RefittedBox(
            box=jb.replace(given.with_room(BOX_ROUNDS + 3).separate(), kernels=()),
            prior=jb.Refitted(algorithm=jb.Cei()).prior,
            span=BOX_SPAN,
            **options,
        )

        def one(posterior: Any, given: Any) -> tuple[Any, None]:
            index, posterior = model.place(posterior, given[0])
            return model.observe(posterior, index, given[1], given[2]), None

        def play(*given: Any) -> Any:
            before, _ = jax.lax.scan(one, model.init(), jax.tree.map(lambda x: x[:BOX_FITTED], given))
            last, _ = jax.lax.scan(one, model.fitted(before), jax.tree.map(lambda x: x[BOX_FITTED:], given))
            return last, (belief := model.belief(last)).pool, belief.prediction, belief.at(jnp.asarray(ELSEWHERE)).prediction

        last, pool, here, there = jax.tree.map(np.asarray, jax.jit(play)(PLACES, np.where(SEEN, VALUES, np.nan), SEEN))
    found = last.hyper_parameters
    for j in range(2):
        rows, (mean, unit) = seen_by(j, BOX_FITTED), standardised(j, BOX_FITTED)
        looked_at = rows[np.arange(points) * len(rows) // points] if points < len(rows) else rows
        own = np.asarray([*found.length_scale[j], found.variance[j] / unit**2, found.noise_variance[j] / unit**2])
        least, most = hyper_parameters.NOISES
        low, high = np.asarray([SHORTEST, SHORTEST, 1 / BOX_SPAN, least]), np.asarray([LONGEST, LONGEST, BOX_SPAN, most])
        kernel = given_kernels[j][1]
        data = PLACES[looked_at], (VALUES[looked_at, j, None] - mean) / unit, np.ones(2), 1.0, 1.0, kernel, hyper_parameters.LEARNING
        starts = [(0.4, 0.4, 1e-2), (3.0, 0.3, 1e-4), (0.3, 3.0, 1e-1), (1.0, 1.0, 0.5)]
        ends = [hyper_parameters.fit(np.asarray([*scales, 1.0, noise]), low, high, *data)[1] for *scales, noise in starts]
        assert hyper_parameters.loss(np.log(own), *data) <= min(ends) + 2e-3, "within what a search does not go on for"
        # The constant's expectation follows from the joint distribution of c ~ N(mean, unit^2) and the values.
        gram = found.variance[j] * kernel(PLACES[rows], PLACES[rows], found.length_scale[j])
        together = gram + unit**2 + found.noise_variance[j] * np.eye(len(rows))
        mean += unit**2 * np.linalg.solve(together, VALUES[rows, j] - mean).sum()
        assert last.prior_mean[j] == pytest.approx(mean, abs=1e-9 * unit), "solved with rounding of 1e-12"
        rows = seen_by(j, BOX_ROUNDS)
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
