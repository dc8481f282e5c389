"""Domains of categories and of many dimensions: their points and labels, their kernels, and the forms that models get on them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxbandit
from jaxbandit import InvalidArgument, domains, kernels
from jaxbandit.surrogates.evidence.ranges import with_length_scale
from tests.oracles import gaussian_process as gp

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

    return model.predict(jax.lax.scan(step, model.init(), (indices, values[:, None]))[0])


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
        assert auto.forms[0].name in ("product", form)  # where the kernel is no product, features
        model = jaxbandit.surrogate(MIXED, kernel, noise_variance=0.05, outputs=1, form=form, horizon=12)
        found = seen(model, jnp.asarray(indices, jnp.int32), jnp.asarray(values, model.dtype))
    mean, sd = gp.mean_and_sd(dense(name), indices, values, 0.05)
    tolerance = 2e-4 if precision == "float32" else 1e-11
    np.testing.assert_allclose(found.mean[0], mean, atol=tolerance)
    np.testing.assert_allclose(found.sd[0], sd, atol=tolerance)


def test_a_range_of_length_scales_on_some_axes() -> None:
    """A traced length-scale of all axes is that of the numbers; what a kernel of some axes cannot be given is refused."""
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
    for axis in unit.T:  # one point in each 64th of every axis
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
    """A smooth kernel has few features, a rough one is exact by rows; either posterior is the dense one."""
    domain, rng = domains.sobol([0.0] * 10, [1.0] * 10, 1024, 0), np.random.default_rng(0)
    model = jaxbandit.surrogate(domain, kernel, noise_variance=0.01, outputs=1, horizon=10)
    assert {made.name for made in model.forms} == {form}
    indices, values = rng.integers(domain.size, size=10), rng.standard_normal(10)
    found = seen(model, jnp.asarray(indices, jnp.int32), jnp.asarray(values, model.dtype))
    points, shape = np.asarray(domain.points), {"features": (gp.squared_exponential, 20.0), "rows": (gp.matern52, 0.5)}[form]
    mean, sd = gp.mean_and_sd(shape[0](points, points, shape[1]), indices, values, 0.01)
    np.testing.assert_allclose(found.mean[0], mean, atol=2e-3)  # the values are noise, a hundred times as rough as the model's own
    np.testing.assert_allclose(found.sd[0], sd, atol=1e-4)
