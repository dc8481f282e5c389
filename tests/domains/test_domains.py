"""Domains."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import jaxbandit
from jaxbandit import InvalidArgument, domains, kernels
from jaxbandit.domains.boxes import PartOfBox
from jaxbandit.domains.regions import limits_of
from jaxbandit.surrogates.evidence.ranges import with_length_scale
from tests.oracles import gaussian_process as gp

SETTINGS = settings(max_examples=50, derandomize=True, database=None)


def test_grid_is_evenly_spaced_with_its_ends():
    domain = domains.grid([0.0, -1.0], [6.0, 1.0], [4, 3])
    np.testing.assert_array_equal(domain.axes[0], [0.0, 2.0, 4.0, 6.0])
    np.testing.assert_array_equal(domain.axes[1], [-1.0, 0.0, 1.0])
    assert (domain.size, domain.dimension, domain.grid_shape) == (12, 2, (4, 3))
    assert domain.points.dtype == np.float64


def test_one_count_serves_all_axes():
    domain = domains.grid([0.0, 0.0, 0.0], [1.0, 2.0, 3.0], 3)
    assert domain.grid_shape == (3, 3, 3)
    np.testing.assert_array_equal(domain.points[-1], [1.0, 2.0, 3.0])


def test_grid_on_a_line_takes_scalar_corners():
    domain = domains.grid(0.0, 1.0, 5)
    np.testing.assert_array_equal(domain.points, np.linspace(0, 1, 5)[:, None])


def test_last_axis_varies_fastest():
    axes = [[0.0, 1.0], [10.0, 20.0, 30.0], [5.0, 7.0]]
    domain = domains.product(axes)
    np.testing.assert_array_equal(domain.points, list(itertools.product(*axes)))


@SETTINGS
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4), data=st.data())
def test_position_on_a_product_grid_is_the_ravelled_multi_index(sizes, data):
    axes = [np.arange(n) * 10.0**a for a, n in enumerate(sizes)]
    domain = domains.product(axes)
    assert domain.size == np.prod(sizes)
    assert domain.dimension == len(sizes)
    where = tuple(data.draw(st.integers(0, n - 1)) for n in sizes)
    index = int(np.ravel_multi_index(where, domain.grid_shape))
    np.testing.assert_array_equal(domain.points[index], [axis[i] for axis, i in zip(axes, where, strict=True)])


def test_product_takes_uneven_and_single_point_axes():
    domain = domains.product([[0.0, 0.1, 5.0], [2.0]])
    np.testing.assert_array_equal(domain.points, [[0.0, 2.0], [0.1, 2.0], [5.0, 2.0]])
    assert domain.grid_shape == (3, 1)


def test_bare_points_keep_their_order_and_have_no_axes():
    table = np.array([[3.0, 1.0], [0.0, 0.0], [2.0, -1.0]])
    domain = domains.points(table)
    np.testing.assert_array_equal(domain.points, table)
    assert (domain.size, domain.dimension, domain.axes, domain.grid_shape) == (3, 2, (), ())


def test_arms_are_their_own_numbers():
    domain = domains.arms(4)
    np.testing.assert_array_equal(domain.points, [[0.0], [1.0], [2.0], [3.0]])
    assert domain.axes == ()
    assert domains.arms(1).size == 1


def test_a_domain_is_a_pytree_of_its_tables():
    domain = domains.grid([0.0, 0.0], [1.0, 1.0], [2, 3])
    leaves, structure = jax.tree.flatten(domain)
    assert [np.shape(leaf) for leaf in leaves] == [(6, 2), (2,), (3,)]
    assert jax.tree.unflatten(structure, leaves).grid_shape == (2, 3)


def test_nearest_is_the_closest_point_and_the_first_of_equals():
    domain = domains.grid([0.0, 0.0], [2.0, 2.0], 3)
    assert domain.nearest([0.1, 1.9]) == 2
    assert domain.nearest([50.0, 50.0]) == 8
    # Points 0, 1, 3 and 4 are all at the same distance.
    assert domain.nearest([0.5, 0.5]) == 0
    assert isinstance(domain.nearest([0.0, 0.0]), int)
    for index, point in enumerate(domain.points):
        assert domain.nearest(point) == index


@SETTINGS
@given(target=st.lists(st.floats(-10, 10), min_size=2, max_size=2))
def test_nothing_is_nearer_than_nearest(target):
    domain = domains.points([[0.0, 0.0], [3.0, -4.0], [-7.0, 2.0], [6.5, 6.5]])
    distances = np.linalg.norm(domain.points - np.asarray(target), axis=1)
    # The search compares squares, and this test roots.
    assert distances[domain.nearest(target)] <= distances.min() * (1 + 1e-12)


@pytest.mark.parametrize("domain", [domains.grid([0.0, 1.0], [2.0, 3.0], 4), domains.box({"x": (0.0, 1.0)}, candidates=8)])
def test_points_can_be_indexed_by_a_number_that_is_traced(domain):
    points = np.asarray(domain.points, np.float32)
    np.testing.assert_array_equal(jax.jit(lambda index: domain.points[index])(3), points[3])
    np.testing.assert_array_equal(jax.vmap(lambda index: domain.points[index, 0])(np.arange(3)), points[:3, 0])
    assert type(domain.points[3]) is np.ndarray and domain.points[3].dtype == np.float64


MIXED = domains.mixed({"dose": [0.1, 0.4, 0.9], "catalyst": ["Pd", "Ni", "Cu"], "stirred": ("no", "yes")})
POINTS = np.asarray(MIXED.points)
GRAM = np.array([[1.0, 0.7, 0.1], [0.7, 1.0, 0.3], [0.1, 0.3, 1.0]])
DOSE = kernels.OnAxes(kernel=kernels.SquaredExponential(length_scale=0.5), axes=(0,))
KERNELS = {
    "hamming": DOSE * kernels.OnAxes(kernel=kernels.Categorical(length_scale=[2.0, 0.5]), axes=(1, 2)),
    "gram": 1.5
    * (DOSE * kernels.OnAxes(kernel=kernels.Gram(matrix=GRAM), axes=(1,)))
    * kernels.OnAxes(kernel=kernels.Categorical.from_correlation(0.4), axes=(2,)),
    "additive": DOSE + kernels.OnAxes(kernel=kernels.Gram(matrix=GRAM), axes=(1,)),
}


@jax.jit
def seen(model: Any, indices: Any, values: Any) -> Any:
    """The prediction after ``values [n]`` of one output."""

    def step(posterior: Any, now: Any) -> Any:
        return model.condition(posterior, *now), None

    return model.belief(jax.lax.scan(step, model.init(), (indices, values[:, None]))[0]).prediction


def dense(name: str) -> np.ndarray:
    """The kernel matrix of the domain, in NumPy."""
    dose, catalyst, stirred = POINTS.T
    smooth = gp.squared_exponential(dose[:, None], dose[:, None], 0.5)
    known = GRAM[np.ix_(catalyst.astype(int), catalyst.astype(int))]
    other = [1.0 * (codes[:, None] != codes[None]) for codes in (catalyst, stirred)]
    return {
        "hamming": smooth * np.exp(-other[0] / 2.0 - other[1] / 0.5),
        "gram": 1.5 * smooth * known * 0.4 ** other[1],
        "additive": smooth + known,
    }[name]


def test_points_of_a_mixed_domain_and_their_labels() -> None:
    assert MIXED.names == ("dose", "catalyst", "stirred") and MIXED.grid_shape == (3, 3, 2)
    np.testing.assert_array_equal(POINTS[:5], [[0.1, 0, 0], [0.1, 0, 1], [0.1, 1, 0], [0.1, 1, 1], [0.1, 2, 0]])
    assert MIXED.label(9) == "dose=0.4, catalyst=Ni, stirred=yes"
    assert [MIXED.is_categorical(axis) for axis in range(3)] == [False, True, True]
    plain = domains.mixed({"a": [1, 2], "b": [0.5, 0.75]})
    assert plain.categories == () and plain.label(3) == "a=2, b=0.75" and domains.grid([0.0], [1.0], 3).label(1) == "x1=0.5"
    assert hash(jax.tree.structure(MIXED)) != hash(jax.tree.structure(plain))
    with pytest.raises(InvalidArgument, match=r"index: .*17"):
        MIXED.label(18)


@pytest.mark.full(but=("additive",))
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize(("name", "form"), [("hamming", "product"), ("gram", "product"), ("additive", "features"), ("gram", "rows")])
def test_the_posterior_on_a_mixed_domain_is_the_dense_one(name: str, form: str, precision: str) -> None:
    rng = np.random.default_rng(0)
    indices, values = rng.integers(MIXED.size, size=12), rng.standard_normal(12)
    with jax.enable_x64(precision == "float64"):
        kernel = KERNELS[name]
        matrix, diagonal = jax.jit(lambda points: (kernel(points, points), kernel.diag(points)))(POINTS)
        np.testing.assert_allclose(matrix, dense(name), atol=1e-6 if precision == "float32" else 1e-14)
        np.testing.assert_allclose(diagonal, np.diag(dense(name)), atol=1e-6)
        auto = jaxbandit.surrogate(MIXED, kernel, noise_variance=0.05, outputs=1, horizon=12)
        # Features serve where the kernel is no product.
        assert auto.forms[0].name in ("product", form)
        model = jaxbandit.surrogate(MIXED, kernel, noise_variance=0.05, outputs=1, form=form, horizon=12)
        found = seen(model, jnp.asarray(indices, jnp.int32), jnp.asarray(values, model.dtype))
    mean, sd = gp.mean_and_sd(dense(name), indices, values, 0.05)
    tolerance = 2e-4 if precision == "float32" else 1e-11
    np.testing.assert_allclose(found.mean[0], mean, atol=tolerance)
    np.testing.assert_allclose(found.sd[0], sd, atol=tolerance)


def test_a_range_of_length_scales_on_some_axes() -> None:
    kernel = DOSE * kernels.OnAxes(kernel=kernels.Gram(matrix=GRAM), axes=(1,))
    moved = with_length_scale(kernel, np.array([0.7, 9.0]))
    assert kernels.same(moved, kernels.OnAxes(kernel=kernels.SquaredExponential(length_scale=np.array([0.7])), axes=(0,)) * kernel.right)
    both = kernels.OnAxes(kernel=kernels.SquaredExponential(length_scale=[0.5, 0.6]), axes=(0, 2))
    with pytest.raises(InvalidArgument, match="kernel: a kernel of some axes must have one length-scale"):
        jaxbandit.ranged(domains.grid([0.0] * 3, [1.0] * 3, 2), both, low=0.3, high=0.8, noise_variance=0.1)


def test_sobol_points_fill_the_box_evenly() -> None:
    low, high = [0.0, -2.0, 5.0], [1.0, 2.0, 6.0]
    domain = domains.sobol(low, high, 64, jax.random.key(1))
    assert domain.points.shape == (64, 3) and domain.axes == ()
    unit = (np.asarray(domain.points) - low) / (np.asarray(high) - low)
    # Each 64th of every axis has one point.
    for axis in unit.T:
        np.testing.assert_array_equal(np.sort((axis * 64).astype(int)), np.arange(64))
    np.testing.assert_array_equal(domain.points, domains.sobol(low, high, 64, jax.random.key(1)).points)
    np.testing.assert_array_equal(domains.sobol(low, high, 40, jax.random.key(1)).points, domain.points[:40])
    assert not np.array_equal(domain.points, domains.sobol(low, high, 64, 2).points)
    assert domains.sobol([0.0], [1.0], 1, 0).size == 1
    with pytest.raises(InvalidArgument, match="low, high"):
        domains.sobol([0.0, 1.0], [1.0, 1.0], 8, 0)
    with pytest.raises(InvalidArgument, match="low, high: must have at most 21,201 axes, got 21,202"):
        domains.sobol(np.zeros(21_202), np.ones(21_202), 1, 0)


@pytest.mark.parametrize(
    ("kernel", "form"),
    [(kernels.SquaredExponential(length_scale=20.0), "features"), (kernels.Matern52(length_scale=0.5), "rows")],
    ids=["smooth", "rough"],
)
def test_a_model_in_ten_dimensions(kernel: Any, form: str) -> None:
    """Smooth kernels have features, and rough ones are exact by rows."""
    domain, rng = domains.sobol([0.0] * 10, [1.0] * 10, 1024, 0), np.random.default_rng(0)
    model = jaxbandit.surrogate(domain, kernel, noise_variance=0.01, outputs=1, horizon=10)
    assert {made.name for made in model.forms} == {form}
    indices, values = rng.integers(domain.size, size=10), rng.standard_normal(10)
    found = seen(model, jnp.asarray(indices, jnp.int32), jnp.asarray(values, model.dtype))
    points, shape = np.asarray(domain.points), {"features": (gp.squared_exponential, 20.0), "rows": (gp.matern52, 0.5)}[form]
    mean, sd = gp.mean_and_sd(shape[0](points, points, shape[1]), indices, values, 0.01)
    # The values are noise, a hundred times as rough as the model's.
    np.testing.assert_allclose(found.mean[0], mean, atol=2e-3)
    np.testing.assert_allclose(found.sd[0], sd, atol=1e-4)


NAMES = ["a", "b", "feed rate"]
SIMPLEX = {name: (0.0, 1.0) for name in "abcde"}


@pytest.mark.parametrize(
    ("text", "factors", "bound", "is_equality"),
    [
        ("a + b <= 1", (1, 1, 0), 1, False),
        ("a <= 2 * b", (1, -2, 0), 0, False),
        ("a >= b / 4 + .5", (-1, 0.25, 0), -0.5, False),
        ("2*(a - feed rate) + 3 = 1e1 - b", (2, 1, -2), 7, True),
        ("-a == -0.5", (-1, 0, 0), -0.5, True),
    ],
)
def test_a_text_is_a_linear_constraint(text, factors, bound, is_equality):
    [limit] = limits_of([text], NAMES)
    assert (limit.factors, limit.bound, limit.is_equality) == (factors, bound, is_equality)


def test_a_chain_is_several_constraints():
    low, high = limits_of(["0.1 <= a + b <= 0.9"], NAMES)
    assert (low.factors, low.bound, high.factors, high.bound) == ((-1, -1, 0), -0.1, (1, 1, 0), 0.9)


def test_a_finite_domain_has_only_points_that_satisfy_constraints():
    whole = domains.grid([0, 0, 0], [1, 1, 1], 11)
    part = domains.grid([0, 0, 0], [1, 1, 1], 11, such_that=["x1 + x2 + x3 = 1", "x1 <= 2 * x2", lambda x3: x3 - 0.5])
    x = np.asarray(whole.points).round(1)
    own = x[(np.abs(x.sum(axis=1) - 1) < 1e-6) & (x[:, 0] <= 2 * x[:, 1] + 1e-6) & (x[:, 2] <= 0.5)]
    np.testing.assert_array_equal(np.asarray(part.points).round(1), own)
    mixed = domains.mixed({"dose": [1, 2, 3], "kind": ["x", "y"]}, such_that=["dose >= 2", lambda dose, kind: dose * kind - 2])
    assert [mixed.label(index) for index in range(mixed.size)] == ["dose=2, kind=x", "dose=2, kind=y", "dose=3, kind=x"]
    assert domains.product([[0, 1], [0, 1]], such_that=["x1 <= 5"]).size == 4


def shares(box, points):
    """The excesses of the constraints of a box of sides (0, 1)."""
    return np.asarray(points) @ np.asarray(box.region.rows).T - np.asarray(box.region.bounds)


@pytest.mark.parametrize(
    "such_that",
    [["a + b + c + d + e <= 1"], ["a + b + c + d + e = 1"], ["a + b + c + d + e = 1", "a <= 2 * b", "0.1 <= a + b <= 0.6", "a + c = 0.4"]],
)
def test_all_candidates_of_a_part_of_a_box_are_inside_and_fill_it(such_that):
    box = domains.box(SIMPLEX, such_that=such_that)
    assert isinstance(box, PartOfBox) and box.size == domains.box(SIMPLEX).size and np.min(box.points) >= 0
    excess, equal = shares(box, box.points), np.asarray(box.region.equal)
    assert np.max(np.abs(excess[:, equal]), initial=0) < 1e-14 and np.max(excess[:, ~equal], initial=-1) < 0
    assert len(np.unique(np.asarray(box.points).round(9), axis=0)) > 0.99 * box.size
    if such_that == [
        "a + b + c + d + e = 1"
        # The mean of a uniform point is 1 / 5, and each share is below 0.1 with probability 1 - 0.9^4.
    ]:
        inner = np.asarray(box.points)[: 2 * box.size // 3]
        np.testing.assert_allclose(inner.mean(axis=0), 0.2, atol=0.015)
        np.testing.assert_allclose((inner < 0.1).mean(axis=0), 1 - 0.9**4, atol=0.04)


def test_points_move_to_the_nearest_point_inside():
    box, points = domains.box(SIMPLEX, such_that=["a + b + c + d + e = 1"]), np.random.default_rng(0).uniform(size=(20, 5))
    moved = box.snapped(points)
    # Sorting gives the projection onto a simplex (Duchi et al. 2008).
    for one, there in zip(points, moved, strict=True):
        descending = np.sort(one)[::-1]
        thresholds = (np.cumsum(descending) - 1) / np.arange(1, 6)
        np.testing.assert_allclose(there, np.maximum(one - thresholds[descending > thresholds][-1], 0), atol=1e-12)
    several = domains.box(SIMPLEX, such_that=["a + b + c + d + e = 1", "a <= 2 * b", "a + b <= 0.6"])
    rows, bounds = np.asarray(several.region.rows), np.asarray(several.region.bounds)
    for one, there in zip(points[:5], several.snapped(points[:5]), strict=True):
        limits = [{"type": "eq" if n == 0 else "ineq", "fun": lambda x, n=n: bounds[n] - rows[n] @ x} for n in range(3)]
        found = minimize(lambda x, one=one: np.sum((x - one) ** 2), several.points[0], bounds=[(0, 1)] * 5, constraints=limits)
        np.testing.assert_allclose(np.sum((there - one) ** 2), found.fun, atol=1e-5)
    np.testing.assert_allclose(jax.jit(box.snapped)(jnp.asarray(points, jnp.float32)), moved, atol=1e-6)


def test_whole_numbers_categories_logarithms_and_functions_are_respected():
    axes = {"a": (0.0, 10.0), "n": domains.integers(1, 8), "kind": ["x", "y"], "r": domains.log(1e-3, 1.0)}
    box = domains.box(axes, such_that=["a + n <= 6", "r <= a", lambda a, r: a * r - 1])

    def worst(points):
        a, n, kind, r = np.asarray(points, np.float64).T
        assert set(n) <= {1, 2, 3, 4, 5, 6} and set(kind) == {0, 1}
        return max(np.max(a + n - 6), np.max(r - a), np.max(a * r - 1))

    assert worst(box.points) < 1e-9
    outside = np.random.default_rng(0).uniform(size=(2000, 4))
    assert worst(box.from_unit(box.snapped(outside))) < 1e-9
    whole = domains.box({"n": domains.integers(0, 5), "m": domains.integers(0, 5)}, such_that=["n + m <= 3"])
    assert len(np.unique(whole.points, axis=0)) == 10


def test_a_constraint_that_always_holds_is_allowed():
    assert domains.box({"a": (0, 1), "b": (0, 1)}, such_that=["a + b <= 10", "a - a <= 1"]).region.rows == ()


def test_points_of_a_sobol_domain_are_inside():
    part = domains.box(SIMPLEX, such_that=["a + b + c + d + e <= 1"]).sobol(100, 0)
    assert part.size == 100 and np.max(np.sum(part.points, axis=1)) < 1
    assert domains.box({"n": domains.integers(0, 5), "m": domains.integers(0, 5)}, such_that=["n + m <= 3"]).sobol(500, 0).size == 10


def test_tables_without_constraints_stay_as_they_were():
    assert set(domains.grid([0], [1], 5).made_from) == {"type", "axes"}
    assert set(domains.box({"a": (0, 1)}).made_from) == {"type", "axes"}
    assert domains.grid([0], [1], 5, such_that=["x1 <= 0.5"]).made_from["such_that"] == ["x1 <= 0.5"]
