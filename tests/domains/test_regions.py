"""Constraints on coordinates that are known beforehand: their grammar, masks of finite domains, and parts of boxes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize

from jaxbandit import InvalidArgument, domains
from jaxbandit.domains.boxes import PartOfBox
from jaxbandit.domains.regions import limits_of

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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a", "ends too early"),
        ("a < 1", "cannot be read from '< 1' on"),
        ("a <=", "ends too early"),
        ("(a <= 1", "a bracket that is not closed"),
        ("a + q <= 1", "names 'q', which is no axis"),
        ("a * b <= 1", "multiplies two names"),
        ("a / b <= 1", "divide by numbers"),
        ("a / 0 <= 1", "divide by numbers"),
        ("1 <= 2", "must name an axis"),
        ("a <= 1e999", "finite numbers"),
        ("(" * 5000 + "a", "too many brackets"),
        ("a <= 1; import os", "cannot be read from '; import os' on"),
    ],
)
def test_a_text_that_is_no_constraint_is_refused_by_name(text, words):
    with pytest.raises(InvalidArgument, match=r"^such_that\[1\]: .*" + words.replace("(", r"\(")):
        limits_of(["a <= 1", text], NAMES)


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
    ]:  # of a uniform point the mean is 1 / 5, and each share is below 0.1 with probability 1 - 0.9^4
        inner = np.asarray(box.points)[: 2 * box.size // 3]
        np.testing.assert_allclose(inner.mean(axis=0), 0.2, atol=0.015)
        np.testing.assert_allclose((inner < 0.1).mean(axis=0), 1 - 0.9**4, atol=0.04)


def test_points_move_to_the_nearest_point_inside():
    box, points = domains.box(SIMPLEX, such_that=["a + b + c + d + e = 1"]), np.random.default_rng(0).uniform(size=(20, 5))
    moved = box.snapped(points)
    for one, there in zip(points, moved, strict=True):  # the projection onto a simplex by sorting (Duchi et al. 2008)
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


@pytest.mark.parametrize(
    ("axes", "such_that", "words"),
    [
        ({"a": (0, 1), "b": (0, 1)}, ["a <= 1", "a + b >= 3"], r"such_that\[1\]: 'a \+ b >= 3': excludes all points"),
        ({"a": (0, 1), "b": (0, 1)}, ["a + b <= .5", "a + b >= .6"], "such_that: its constraints together exclude all points"),
        ({"a": (0, 1), "b": (0, 1)}, ["a + b >= 2"], "allow points of an edge only"),
        ({"a": (0, 1), "n": domains.integers(0, 4)}, ["a + n = 2"], "the axis n has whole numbers, and an equality"),
        ({"a": (0, 1), "r": domains.log(1, 4)}, ["a + r = 2"], "the axis r is logarithmic, and an equality"),
        ({"a": (0, 1), "kind": ["x", "y"]}, ["a + kind <= 2"], "kind has categories"),
        ({"a": (0, 1)}, [lambda a: a + 2], "excludes all points that were tried"),
        ({"a": (0, 1)}, [lambda a: a <= 2], "must return one number"),
        ({"a": (0, 1)}, [lambda q: q], "must be a function of a, or of some of them"),
        ({"a": (0, 1)}, ["a - a >= 1"], "excludes all points"),
    ],
)
def test_constraints_that_no_box_can_have_are_refused_by_name(axes, such_that, words):
    with pytest.raises(InvalidArgument, match=words):
        domains.box(axes, such_that=such_that)


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
