"""Posteriors on boxes against dense ones in NumPy: at the points of the pool, anywhere else, and along gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxbandit import InvalidArgument, domains, kernels, surrogate
from jaxbandit.surrogates import BoxSurrogate, Posterior
from jaxbandit.surrogates.boxes.pool import MIN_LOOPED_POINTS, ROOM_STEP, PoolState, padded_product
from tests.oracles.gaussian_process import matern52, posterior, squared_exponential

DIMENSION, SEEN, ELSEWHERE = 3, 20, 7  # observations in more than one block
NOISES, MEANS = (0.05, 0.2, 0.1, 0.3), (0.5, -0.25, 0.1, -0.4)
BOX = domains.box({"dose": (-1.0, 3.0), "rate": domains.log(1e-3, 1e-1), "layers": domains.integers(1, 9)}, candidates=32)
# All outputs but the second are alike: computed as 0, 2, 3 and 1, an order that is not its own inverse, as those of three are.
SCALES = {0: np.array([0.3, 0.5, 0.4]), 2: np.array([0.5, 0.3, 0.6]), 3: np.array([0.4, 0.6, 0.3])}
KERNELS = [kernels.Matern52(length_scale=SCALES[0]), 2.0 * kernels.SquaredExponential(length_scale=0.6)]


def gram_of(points: np.ndarray, output: int) -> np.ndarray:
    return np.asarray(matern52(points, points, SCALES[output]) if output in SCALES else 2.0 * squared_exponential(points, points, 0.6))


def data(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points observed, one of them twice, their values ``[n, 2]``, and points elsewhere."""
    rng = np.random.default_rng(seed)
    seen = rng.uniform(size=(SEEN, DIMENSION))
    seen[5] = seen[2]
    return seen, rng.standard_normal((SEEN, 2)) + 1.0, rng.uniform(size=(ELSEWHERE, DIMENSION))


predicted = jax.jit(lambda model, belief, points: (model.predict_at(belief, points), model.predict(belief)))


@jax.jit
def taught(model: BoxSurrogate, seen: jax.Array, values: jax.Array) -> Posterior:
    """The posterior that has placed and observed the points, one after the other."""

    def one(belief: Posterior, given: tuple[jax.Array, jax.Array]) -> tuple[Posterior, None]:
        index, belief = model.place(belief, given[0])
        return model.condition(belief, index, given[1]), None

    return jax.lax.scan(one, model.init(), (seen, values))[0]


@pytest.mark.parametrize("precision", ["float32", pytest.param("float64", marks=pytest.mark.full)])
def test_means_and_deviations_are_those_of_a_dense_posterior(precision: str) -> None:
    """At the candidates, at the trial's own points, and at points of no pool; of four outputs with a kernel and noise of their own."""
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
    """Those that are alike are computed side by side: 2.6 lines an output, which were 430 when each was computed by itself."""
    lines = []
    for outputs in (3, 13):
        given = [kernels.Matern52(length_scale=0.3 + 0.01 * n) for n in range(outputs)]
        model = surrogate(BOX, given, noise_variance=0.1, outputs=outputs).with_room(SEEN).without_kernels()
        lines.append(taught.lower(model, *(np.zeros((SEEN, n), model.dtype) for n in (DIMENSION, outputs))).as_text().count("\n"))
    assert lines[1] - lines[0] < 10 * 5


def test_room_that_is_not_used_changes_no_bit() -> None:
    """Of a posterior, in steps as simulations make them."""
    seen, values, elsewhere = data(1)
    beliefs = []
    for room in (64, 128):
        model = surrogate(BOX, KERNELS[0], noise_variance=0.1).with_room(room)
        belief = taught(model, seen.astype(model.dtype), values.astype(model.dtype))
        beliefs.append(predicted(model, belief, elsewhere.astype(model.dtype))[0])
    for first, second in zip(*map(jax.tree.leaves, beliefs), strict=True):
        assert np.array_equal(first, second)


def test_products_leave_out_nothing_that_is_observed() -> None:
    """And their derivatives, whatever part of the last panel of observations is in use."""
    rng, size = np.random.default_rng(7), 2 * ROOM_STEP + 22
    rows, inverse = rng.standard_normal((3, size)), np.tril(rng.standard_normal((size, size)))

    @jax.jit
    def both(rows: jax.Array, inverse: jax.Array, count: jax.Array) -> tuple[jax.Array, jax.Array]:
        value, pull = jax.vjp(lambda rows: padded_product(rows, inverse.T, inverse, count), rows)
        return value, pull(value)[0]

    for count in (1, ROOM_STEP, ROOM_STEP + 1, 2 * ROOM_STEP, size):
        held = np.where(np.arange(size)[:, None] < count, inverse, 0)
        value, slope = both(*(x.astype(np.float32) for x in (rows, held)), np.int32(count))
        assert np.asarray(value) == pytest.approx(rows @ held.T, abs=1e-4)
        assert np.asarray(slope) == pytest.approx(rows @ held.T @ held, abs=1e-2)


def test_outputs_that_were_not_observed_learn_nothing() -> None:
    """Of a point whose second value is missing, the second output's belief stays as it is."""
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
        [form] = model.forms_in_force
        state, weights, gain = form.each(lambda form, *own: form.conditioned(*own), state, noise[None], values[None])
        return state.rows, weights[0], gain[0], form.each(lambda form, own: form.weights_at(own, points), state)[0]

    rows, weights, gain, parts = anew(other, belief.factors[0], np.float32(0.3), padded, where)
    mean = np.asarray(weights) @ np.asarray(parts).T
    assert mean == pytest.approx(np.asarray(predicted(other, want, where)[0].mean), abs=2e-4)
    assert np.asarray(rows) == pytest.approx(np.asarray(want.factors[0].rows), abs=2e-4)
    assert float(gain) == pytest.approx(float(want.gain[0]), abs=1e-3)


def test_draws_at_many_points_are_the_functions_drawn_at_few() -> None:
    """Sums over blocks of observations and of features in loops are those of one product, to the rounding of float32."""
    seen, values, _ = data(4)
    model = surrogate(BOX, KERNELS, noise_variance=list(NOISES[:2])).with_room(SEEN + 3)
    belief = taught(model, seen.astype(model.dtype), values.astype(model.dtype))
    many = np.random.default_rng(5).uniform(size=(MIN_LOOPED_POINTS, DIMENSION)).astype(model.dtype)
    drawn = jax.jit(lambda belief, points: model.draw_at(belief, jax.random.key(6), jnp.ones(2, model.dtype), points))
    assert np.asarray(drawn(belief, many))[:, :ELSEWHERE] == pytest.approx(np.asarray(drawn(belief, many[:ELSEWHERE])), abs=2e-4)


def test_units_there_and_back() -> None:
    """Points of the cube stand for points in the units of the axes, and back; whole numbers are rounded to the middle of their part."""
    cube = np.random.default_rng(3).uniform(size=(50, DIMENSION))
    points, traced = BOX.from_unit(cube), jax.jit(BOX.from_unit)(cube)
    assert points == pytest.approx(np.asarray(traced), rel=1e-5)
    assert np.all((points[:, 0] >= -1) & (points[:, 0] <= 3)) and np.all((points[:, 1] >= 1e-3) & (points[:, 1] <= 1e-1))
    assert points[:, 0] == pytest.approx(-1 + 4 * cube[:, 0], abs=1e-5)
    assert np.log10(points[:, 1]) == pytest.approx(-3 + 2 * cube[:, 1], abs=1e-5)
    assert np.array_equal(points[:, 2], 1 + np.floor(9 * cube[:, 2]))
    assert BOX.to_unit(points)[:, 2] == pytest.approx((points[:, 2] - 0.5) / 9)  # the middle of each ninth
    back = BOX.to_unit(points)
    assert back == pytest.approx(BOX.snapped(cube), abs=1e-9)
    assert np.asarray(jax.jit(BOX.to_unit)(points)) == pytest.approx(back, abs=1e-5)
    assert BOX.from_unit(back) == pytest.approx(points, rel=1e-9)


def test_categories_are_equal_to_themselves_in_every_program() -> None:
    """Their shares are the same numbers on the host and in programs of either precision, and no rounding takes one for another."""
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
