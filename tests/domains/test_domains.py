"""Finite domains: what they contain, in which order, and what they refuse."""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxbandit import domains

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
    assert domain.nearest([0.5, 0.5]) == 0  # points 0, 1, 3 and 4 are all at the same distance
    assert isinstance(domain.nearest([0.0, 0.0]), int)
    for index, point in enumerate(domain.points):
        assert domain.nearest(point) == index


@SETTINGS
@given(target=st.lists(st.floats(-10, 10), min_size=2, max_size=2))
def test_nothing_is_nearer_than_nearest(target):
    domain = domains.points([[0.0, 0.0], [3.0, -4.0], [-7.0, 2.0], [6.5, 6.5]])
    distances = np.linalg.norm(domain.points - np.asarray(target), axis=1)
    assert distances[domain.nearest(target)] <= distances.min() * (1 + 1e-12)  # nearest compares squares, this roots


@pytest.mark.parametrize("domain", [domains.grid([0.0, 1.0], [2.0, 3.0], 4), domains.box({"x": (0.0, 1.0)}, candidates=8)])
def test_points_can_be_indexed_by_a_number_that_is_traced(domain):
    points = np.asarray(domain.points, np.float32)
    np.testing.assert_array_equal(jax.jit(lambda index: domain.points[index])(3), points[3])
    np.testing.assert_array_equal(jax.vmap(lambda index: domain.points[index, 0])(np.arange(3)), points[:3, 0])
    assert type(domain.points[3]) is np.ndarray and domain.points[3].dtype == np.float64
