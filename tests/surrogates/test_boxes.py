"""Models of boxes: exact forms and features against dense solves in NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbandit import Cei, ConstrainedThompson, InitialDesign, InvalidArgument, domains, kernels, replace, simulate, surrogate
from jaxbandit.surrogates import BoxSurrogate, Posterior
from jaxbandit.surrogates.boxes.pool import PoolState, Sizes, padded_product
from tests.oracles.gaussian_process import matern52, mean_and_sd, posterior, squared_exponential
from tests.support import box_runs

# The observations fill more than one block.
DIMENSION, SEEN, ELSEWHERE = 3, 20, 7
NOISES, MEANS = (0.05, 0.2, 0.1, 0.3), (0.5, -0.25, 0.1, -0.4)
BOX = domains.box({"dose": (-1.0, 3.0), "rate": domains.log(1e-3, 1e-1), "layers": domains.integers(1, 9)}, candidates=32)
# All outputs but the second are alike: computed as 0, 2, 3 and 1, an order that is not its own inverse, as those of three are.
SCALES = {0: np.array([0.3, 0.5, 0.4]), 2: np.array([0.5, 0.3, 0.6]), 3: np.array([0.4, 0.6, 0.3])}
KERNELS = [kernels.Matern52(length_scale=SCALES[0]), 2.0 * kernels.SquaredExponential(length_scale=0.6)]


def gram_of(points: np.ndarray, output: int) -> np.ndarray:
    return np.asarray(matern52(points, points, SCALES[output]) if output in SCALES else 2.0 * squared_exponential(points, points, 0.6))


def data(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return points with a repeat, values ``[n, 2]``, and other points."""
    rng = np.random.default_rng(seed)
    seen = rng.uniform(size=(SEEN, DIMENSION))
    seen[5] = seen[2]
    return seen, rng.standard_normal((SEEN, 2)) + 1.0, rng.uniform(size=(ELSEWHERE, DIMENSION))


predicted = jax.jit(lambda model, belief, points: (model.predict_at(belief, points), model.belief(belief).prediction))


@jax.jit
def taught(model: BoxSurrogate, seen: jax.Array, values: jax.Array) -> Posterior:
    """Return the posterior after it placed and observed the points in turn."""

    def one(belief: Posterior, given: tuple[jax.Array, jax.Array]) -> tuple[Posterior, None]:
        index, belief = model.place(belief, given[0])
        return model.condition(belief, index, given[1]), None

    return jax.lax.scan(one, model.init(), (seen, values))[0]


@pytest.mark.parametrize("precision", ["float32", pytest.param("float64", marks=pytest.mark.full)])
def test_means_and_deviations_are_those_of_a_dense_posterior(precision: str) -> None:
    """The points are candidates, the trial's own, and points of no pool."""
    seen, values, elsewhere = data(0)
    values = np.concatenate([values, 1 - values], axis=1)
    tolerance = {"float32": 2e-4, "float64": 1e-10}[precision]
    with jax.enable_x64(precision == "float64"):
        given = [*KERNELS, *(kernels.Matern52(length_scale=SCALES[output]) for output in (2, 3))]
        model = surrogate(BOX, given, noise_variance=list(NOISES), prior_mean=list(MEANS), outputs=4, precision=precision)
        assert isinstance(model, BoxSurrogate)
        model = model.with_room(SEEN + 4)
        belief = taught(model, seen.astype(model.dtype), values.astype(model.dtype))
        there, pool = predicted(model, belief, elsewhere.astype(model.dtype))
        points = np.asarray(model.pool(belief), np.float64)
    assert points.shape == (len(BOX.points) + SEEN + 4, DIMENSION)
    assert points[len(BOX.points) :][:SEEN] == pytest.approx(seen, abs=1e-6)
    for output, (noise, mean) in enumerate(zip(NOISES, MEANS, strict=True)):
        for where, got in ((points, pool), (elsewhere, there)):
            everything = np.concatenate([seen, where])
            want, covariance = posterior(gram_of(everything, output), np.arange(SEEN), values[:, output], noise, mean)
            assert np.asarray(got.mean)[output] == pytest.approx(want[SEEN:], abs=tolerance)
            assert np.asarray(got.sd)[output] == pytest.approx(np.sqrt(np.diag(covariance))[SEEN:], abs=tolerance)


def test_programs_grow_by_an_output_by_its_numbers_alone() -> None:
    """An output has 2.6 lines, and had 430 when computed by itself."""
    lines = []
    for outputs in (3, 13):
        given = [kernels.Matern52(length_scale=0.3 + 0.01 * n) for n in range(outputs)]
        model = replace(surrogate(BOX, given, noise_variance=0.1, outputs=outputs).with_room(SEEN), kernels=())
        lines.append(taught.lower(model, *(np.zeros((SEEN, n), model.dtype) for n in (DIMENSION, outputs))).as_text().count("\n"))
    assert lines[1] - lines[0] < 10 * 5


def test_room_that_is_not_used_changes_no_bit() -> None:
    seen, values, elsewhere = data(1)
    beliefs = []
    for room in (64, 128):
        model = surrogate(BOX, KERNELS[0], noise_variance=0.1).with_room(room)
        belief = taught(model, seen.astype(model.dtype), values.astype(model.dtype))
        beliefs.append(predicted(model, belief, elsewhere.astype(model.dtype))[0])
    for first, second in zip(*map(jax.tree.leaves, beliefs), strict=True):
        assert np.array_equal(first, second)


def test_products_leave_out_nothing_that_is_observed() -> None:
    """Derivatives agree too, however full the last panel of observations is."""
    rng, size = np.random.default_rng(7), 2 * Sizes.room + 22
    rows, inverse = rng.standard_normal((3, size)), np.tril(rng.standard_normal((size, size)))

    @jax.jit
    def both(rows: jax.Array, inverse: jax.Array, count: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, pull = jax.vjp(lambda rows: padded_product(rows, inverse.T, inverse, count), rows)
        return value, pull(value)[0]

    for count in (1, Sizes.room, Sizes.room + 1, 2 * Sizes.room, size):
        held = np.where(np.arange(size)[:, None] < count, inverse, 0)
        value, slope = both(*(x.astype(np.float32) for x in (rows, held)), np.int32(count))
        assert np.asarray(value) == pytest.approx(rows @ held.T, abs=1e-4)
        assert np.asarray(slope) == pytest.approx(rows @ held.T @ held, abs=1e-2)


def test_outputs_that_were_not_observed_learn_nothing() -> None:
    model = surrogate(BOX, KERNELS, noise_variance=list(NOISES[:2])).with_room(2)

    @jax.jit
    def half_taught(model: BoxSurrogate) -> tuple[Posterior, Posterior]:
        index, before = model.place(model.init(), jnp.full(DIMENSION, 0.4))
        return before, model.condition(before, index, jnp.array([1.0, 9.0]), jnp.array([True, False]))

    nowhere = np.full((1, DIMENSION), 0.5, np.float32)
    before, after = (predicted(model, belief, nowhere)[1] for belief in half_taught(model))
    assert np.array_equal(np.asarray(before.mean)[1], np.asarray(after.mean)[1])
    assert np.array_equal(np.asarray(before.sd)[1], np.asarray(after.sd)[1])
    assert not np.allclose(np.asarray(before.mean)[0], np.asarray(after.mean)[0])


def test_a_posterior_under_another_kernel_is_that_of_a_model_with_it() -> None:
    """Computed anew from all observations at once, as one after the other."""
    seen, values, elsewhere = data(2)
    model, other = (
        surrogate(BOX, kernel, noise_variance=noise).with_room(SEEN + 3) for kernel, noise in zip(KERNELS, (0.1, 0.3), strict=True)
    )
    points, table = seen.astype(model.dtype), values.astype(model.dtype)
    belief, want = taught(model, points, table), taught(other, points, table)
    padded, where = np.pad(table.T, ((0, 0), (0, 3))), elsewhere.astype(model.dtype)

    @jax.jit
    def anew(model: BoxSurrogate, state: PoolState, noise: jax.Array, values: jax.Array, points: jax.Array) -> tuple[jax.Array, ...]:
        [form] = model.grouped.batched()
        state, weights, gain = form.each(lambda form, *own: form.conditioned(*own), state, noise[None], values[None])
        return state.rows, weights[0], gain[0], form.each(lambda form, own: form.weights_at(own, points), state)[0]

    rows, weights, gain, parts = anew(other, belief.factors[0], np.float32(0.3), padded, where)
    mean = np.asarray(weights) @ np.asarray(parts).T
    assert mean == pytest.approx(np.asarray(predicted(other, want, where)[0].mean), abs=2e-4)
    assert np.asarray(rows) == pytest.approx(np.asarray(want.factors[0].rows), abs=2e-4)
    assert float(gain) == pytest.approx(float(want.gain[0]), abs=1e-3)


def test_draws_at_many_points_are_the_functions_drawn_at_few() -> None:
    """Sums in loops differ from one product by the rounding of float32."""
    seen, values, _ = data(4)
    model = surrogate(BOX, KERNELS, noise_variance=list(NOISES[:2])).with_room(SEEN + 3)
    belief = taught(model, seen.astype(model.dtype), values.astype(model.dtype))
    many = np.random.default_rng(5).uniform(size=(Sizes.looped_points, DIMENSION)).astype(model.dtype)
    drawn = jax.jit(lambda belief, points: model.draw_at(belief, jax.random.key(6), jnp.ones(2, model.dtype), points))
    assert np.asarray(drawn(belief, many))[:, :ELSEWHERE] == pytest.approx(np.asarray(drawn(belief, many[:ELSEWHERE])), abs=2e-4)


def test_units_there_and_back() -> None:
    """Whole numbers are rounded to the middle of their part."""
    cube = np.random.default_rng(3).uniform(size=(50, DIMENSION))
    points, traced = BOX.from_unit(cube), jax.jit(BOX.from_unit)(cube)
    assert points == pytest.approx(np.asarray(traced), rel=1e-5)
    assert np.all((points[:, 0] >= -1) & (points[:, 0] <= 3)) and np.all((points[:, 1] >= 1e-3) & (points[:, 1] <= 1e-1))
    assert points[:, 0] == pytest.approx(-1 + 4 * cube[:, 0], abs=1e-5)
    assert np.log10(points[:, 1]) == pytest.approx(-3 + 2 * cube[:, 1], abs=1e-5)
    assert np.array_equal(points[:, 2], 1 + np.floor(9 * cube[:, 2]))
    assert BOX.to_unit(points)[:, 2] == pytest.approx((points[:, 2] - 0.5) / 9)
    back = BOX.to_unit(points)
    assert back == pytest.approx(BOX.snapped(cube), abs=1e-9)
    assert np.asarray(jax.jit(BOX.to_unit)(points)) == pytest.approx(back, abs=1e-5)
    assert BOX.from_unit(back) == pytest.approx(points, rel=1e-9)


def test_categories_are_equal_to_themselves_in_every_program() -> None:
    """Host and programs of either precision compute the same shares."""
    box = domains.box({"dose": (0.0, 1.0), "metal": ["Pd", "Ni", "Cu", "Fe", "Co", "Zn", "Ag"]}, candidates=128)
    codes = box.points[:, 1]
    assert {*codes} == {*map(float, range(7))} and box.label(0).startswith("dose=")
    host = box.to_unit(box.points)[:, 1]
    for double in (False, True):
        with jax.enable_x64(double):
            shares = np.asarray(jax.jit(box.to_unit)(box.points.astype(np.float64 if double else np.float32)))
            again = np.asarray(jax.jit(box.snapped)(shares))
        assert np.array_equal(shares[:, 1], host.astype(shares.dtype)) and np.array_equal(again[:, 1], shares[:, 1])
    with pytest.raises(InvalidArgument, match="metal"):
        surrogate(box, kernels.Matern52(), noise_variance=0.1)
    surrogate(
        box,
        kernels.OnAxes(kernel=kernels.Matern52(), axes=(0,)) * kernels.OnAxes(kernel=kernels.Categorical(), axes=(1,)),
        noise_variance=0.1,
    )


FEATURE_SEEN, LENGTHS, FEATURE_NOISES, FEATURE_MEANS = 2000, (1.0, 1.4), np.asarray([0.05, 0.2]), np.asarray([0.5, -0.25])
FEATURE_KERNELS = [kernels.SquaredExponential(length_scale=length) for length in LENGTHS]
FEATURE_BOX = domains.box({"a": (0.0, 1.0), "b": (0.0, 1.0)}, candidates=256)
RNG = np.random.default_rng(0)
POINTS, FEATURE_ELSEWHERE = RNG.uniform(size=(FEATURE_SEEN, 2)), RNG.uniform(size=(40, 2))
VALUES = np.stack([np.sin(5 * POINTS.sum(1)), POINTS[:, 0]], axis=1) + np.sqrt(FEATURE_NOISES) * RNG.standard_normal((FEATURE_SEEN, 2))


@jax.jit
def feature_taught(model: BoxSurrogate, points: jax.Array, values: jax.Array, elsewhere: jax.Array) -> tuple[object, ...]:
    """Return beliefs and draws made in two ways after all observations."""

    def one(belief: Posterior, given: tuple[jax.Array, jax.Array]) -> tuple[Posterior, None]:
        index, belief = model.place(belief, given[0])
        return model.condition(belief, index, given[1]), None

    belief = jax.lax.scan(one, model.init(), (points, values))[0]
    pool, key, scale = model.pool(belief), jax.random.key(0), jnp.asarray([1.0, 0.5], points.dtype)
    draws = model.belief(belief).draw(key, scale), model.draw_at(belief, key, scale, pool)
    some = jax.vmap(lambda key: model.draw_at(belief, key, scale, elsewhere[:3]))(jax.random.split(key, 2000))
    return pool, model.belief(belief).prediction, model.predict_at(belief, elsewhere), draws, some


def by_weights(output: int, pivots: np.ndarray, at: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return mean, deviation and covariance of the weights' part at points.

    Rasmussen and Williams 2006, eq. 2.11 and 8.14.
    """
    root = np.linalg.cholesky(squared_exponential(pivots, pivots, LENGTHS[output]))
    phi, there = (np.linalg.solve(root, squared_exponential(pivots, x, LENGTHS[output])).T for x in (POINTS, at))
    inverse = np.linalg.inv(phi.T @ phi / FEATURE_NOISES[output] + np.eye(len(pivots)))
    mean = FEATURE_MEANS[output] + there @ inverse @ phi.T @ (VALUES[:, output] - FEATURE_MEANS[output]) / FEATURE_NOISES[output]
    covariance = there @ inverse @ there.T
    return mean, np.sqrt(np.diag(covariance) + 1 - np.sum(there**2, axis=1)), covariance


@pytest.mark.parametrize("precision", ["float64", pytest.param("float32", marks=pytest.mark.full)])
def test_beliefs_after_many_observations_are_those_of_the_weights_and_of_a_dense_posterior(precision: str) -> None:
    """Features are coarse in float64 and almost exact in float32.

    In float32 features leave out 1e-6 of the variance, and means are off by 0.06 deviations: 0.01 by that, the rest by rounding.
    """
    coarse = precision == "float64"
    with jax.enable_x64(coarse):
        model = surrogate(
            FEATURE_BOX,
            FEATURE_KERNELS,
            noise_variance=FEATURE_NOISES,
            prior_mean=FEATURE_MEANS,
            form="features",
            tolerance=1e-3 if coarse else None,
            precision=precision,
            horizon=FEATURE_SEEN,
        ).with_room(FEATURE_SEEN)
        given = (x.astype(model.dtype) for x in (POINTS, VALUES, FEATURE_ELSEWHERE))
        pool, here, there, draws, some = jax.tree.map(np.asarray, feature_taught(replace(model, kernels=()), *given))
    ranks = [len(form.pivots) for form in model.forms]
    assert ranks[0] > ranks[1] and model.forms[1].rank == ranks[0], "of two groups, the second is padded"
    np.testing.assert_allclose(pool[len(FEATURE_BOX.points) :], POINTS, atol=1e-7)
    at = np.concatenate([pool[::8], FEATURE_ELSEWHERE])
    for output, form in enumerate(model.forms):
        own_mean, own_sd = (np.concatenate([getattr(here, part)[output][::8], getattr(there, part)[output]]) for part in ("mean", "sd"))
        mean, sd, covariance = by_weights(output, np.asarray(form.pivots, np.float64), at)
        covariance = covariance[-len(FEATURE_ELSEWHERE) :, -len(FEATURE_ELSEWHERE) :]
        if not coarse:
            gram = squared_exponential(*[np.concatenate([POINTS, at])] * 2, LENGTHS[output])
            mean, sd = mean_and_sd(
                gram,
                np.arange(FEATURE_SEEN),
                VALUES[:, output],
                FEATURE_NOISES[output],
                FEATURE_MEANS[output],
                wanted=slice(FEATURE_SEEN, None),
            )
        assert np.max(np.abs(own_mean - mean) / sd) < (1e-9 if coarse else 0.1)
        np.testing.assert_allclose(own_sd, sd, rtol=1e-9 if coarse else 0.01)
        drawn = np.cov(some[:, output].T, ddof=0) / [1.0, 0.25][output]
        spread = np.sqrt(np.outer(*[np.diag(covariance)[:3]] * 2) * 2 / len(some))
        assert np.all(np.abs(drawn - covariance[:3, :3]) < 5 * spread), "5 standard errors, of which each is this at most"
    assert np.max(np.abs(draws[0] - draws[1]) / here.sd) < (1e-9 if coarse else 0.1)


def test_what_a_trial_holds_grows_with_its_points_and_with_no_square_of_them() -> None:
    model = surrogate(FEATURE_BOX, FEATURE_KERNELS[0], noise_variance=0.05, form="features")
    sizes = [sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(model.with_room(room).init))) for room in (64, 128, 64 * 1024)]
    assert sizes[2] - sizes[0] == 1023 * (sizes[1] - sizes[0])
    assert model.needs(2000).precision == "float32"


@pytest.mark.full
def test_choices_of_a_run_are_those_of_the_exact_form() -> None:
    """Points may differ by 1e-4 of the sides, and differ by 2e-5.

    The measured difference is 21 times the 1e-6 of the variance that features leave out, in sides of 2. Constrained EI uses beliefs at
    its own points, too, and no algorithm uses more of a form than predictions.
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
    """Rooms of 64 and 128 points are compared under Thompson sampling."""
    box = box_runs.small_box(candidates=96)
    model = surrogate(box, FEATURE_KERNELS[0], noise_variance=0.05, form="features")
    start = {"key": 2, "record": "indices"}
    several, alone = (
        simulate(box_runs.valley(box), ConstrainedThompson(), model, horizon=horizon, trials=trials, **start).points
        for horizon, trials in ((64, 3), (70, [2]))
    )
    assert np.array_equal(several[2], alone[0, :64])
