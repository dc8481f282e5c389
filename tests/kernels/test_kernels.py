"""Kernels against scikit-learn's, and the properties that surrogates rely on."""

import inspect
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.gaussian_process import kernels as oracle

from jaxbandit import kernels, testing

RANDOM = np.random.default_rng(20240)
# Inputs that float32 represents exactly, so that both precisions answer for the same points.
X = RANDOM.uniform(-2, 2, (9, 2)).astype(np.float32).astype(np.float64)
Y = RANDOM.uniform(-2, 2, (6, 2)).astype(np.float32).astype(np.float64)
ARD = np.array([0.5, 1.25])

SE, RBF = kernels.SquaredExponential, oracle.RBF
PAIRS = {
    "se": (SE(length_scale=0.75), RBF(0.75)),
    "se-ard": (SE(length_scale=ARD), RBF(ARD)),
    "se-ard-list": (SE(length_scale=[0.5, 1.25]), RBF(ARD)),
    "matern12": (kernels.Matern12(length_scale=0.75), oracle.Matern(0.75, nu=0.5)),
    "matern12-ard": (kernels.Matern12(length_scale=ARD), oracle.Matern(ARD, nu=0.5)),
    "matern32": (kernels.Matern32(length_scale=0.75), oracle.Matern(0.75, nu=1.5)),
    "matern32-ard": (kernels.Matern32(length_scale=ARD), oracle.Matern(ARD, nu=1.5)),
    "matern52": (kernels.Matern52(length_scale=0.75), oracle.Matern(0.75, nu=2.5)),
    "matern52-ard": (kernels.Matern52(length_scale=ARD), oracle.Matern(ARD, nu=2.5)),
    "rational-quadratic": (kernels.RationalQuadratic(length_scale=0.75, alpha=0.5), oracle.RationalQuadratic(0.75, alpha=0.5)),
    "rational-quadratic-steep": (kernels.RationalQuadratic(length_scale=1.5, alpha=3.0), oracle.RationalQuadratic(1.5, alpha=3.0)),
    "linear": (kernels.Linear(), oracle.DotProduct(sigma_0=0.0)),
    # The bias is sigma_0^2.
    "linear-bias": (kernels.Linear(bias=2.25), oracle.DotProduct(sigma_0=1.5)),
    "constant": (kernels.Constant(variance=2.5), oracle.ConstantKernel(2.5)),
    "scaled": (2.5 * SE(length_scale=0.75), oracle.ConstantKernel(2.5) * RBF(0.75)),
    "scaled-right": (SE(length_scale=0.75) * 2.5, oracle.ConstantKernel(2.5) * RBF(0.75)),
    "sum": (SE(length_scale=0.75) + kernels.Matern52(length_scale=1.5), RBF(0.75) + oracle.Matern(1.5, nu=2.5)),
    "product": (SE(length_scale=0.75) * kernels.Linear(bias=1.0), RBF(0.75) * oracle.DotProduct(sigma_0=1.0)),
    "nested": (
        (0.5 * SE(length_scale=ARD) + kernels.Constant(variance=0.25)) * kernels.Matern32(length_scale=2.0) + kernels.Linear(),
        (0.5 * RBF(ARD) + oracle.ConstantKernel(0.25)) * oracle.Matern(2.0, nu=1.5) + oracle.DotProduct(sigma_0=0.0),
    ),
}
PERIODIC = {
    "periodic": (kernels.Periodic(length_scale=0.75, period=1.5), oracle.ExpSineSquared(0.75, 1.5)),
    "periodic-long": (kernels.Periodic(length_scale=2.0, period=8.0), oracle.ExpSineSquared(2.0, 8.0)),
    "periodic-locally": (kernels.Periodic(period=1.5) * SE(length_scale=2.0), oracle.ExpSineSquared(1.0, 1.5) * RBF(2.0)),
}
ALL = {**{name: ours for name, (ours, _) in (PAIRS | PERIODIC).items()}, "white": kernels.White(variance=0.5)}
ALL |= {"categorical": kernels.Categorical(length_scale=ARD), "on-axes": kernels.OnAxes(kernel=SE(length_scale=0.75), axes=(1,))}
ARMS, OTHER_ARMS = np.arange(4.0)[:, None], np.array([[0.0, 2.0], [1.0, 1.0], [1.0, 2.0]])
MATRIX = np.array([[2.0, 0.5, 0.1, 0.0], [0.5, 1.0, 0.2, 0.1], [0.1, 0.2, 1.5, 0.3], [0.0, 0.1, 0.3, 1.0]])
# Every kernel with its formula in NumPy, written apart from it, and points where the usual ones do not suit it. A new one gets a line.
FORMULAS = {
    "SquaredExponential": ("se-ard", PAIRS["se-ard"][1]),
    "Matern12": ("matern12-ard", PAIRS["matern12-ard"][1]),
    "Matern32": ("matern32-ard", PAIRS["matern32-ard"][1]),
    "Matern52": ("matern52-ard", PAIRS["matern52-ard"][1]),
    "RationalQuadratic": ("rational-quadratic-steep", PAIRS["rational-quadratic-steep"][1]),
    "Linear": ("linear-bias", PAIRS["linear-bias"][1]),
    "Constant": ("constant", PAIRS["constant"][1]),
    "Scale": ("scaled", PAIRS["scaled"][1]),
    "Sum": ("sum", PAIRS["sum"][1]),
    "Product": ("product", PAIRS["product"][1]),
    "White": ("white", lambda x, y: 0.5 * (x[:, None] == y[None]).all(axis=-1)),
    "Periodic": ("periodic", lambda x, y: np.exp(-2 * np.sum((np.sin(np.pi * (x[:, None] - y[None]) / 1.5) / 0.75) ** 2, axis=-1))),
    "Categorical": ("categorical", lambda x, y: np.exp(-np.sum((x[:, None] != y[None]) / ARD, axis=-1)), OTHER_ARMS),
    "OnAxes": ("on-axes", lambda x, y: RBF(0.75)(x[:, 1:], y[:, 1:])),
    "PosteriorMean": (
        kernels.PosteriorMean(kernel=SE(length_scale=0.75), points=Y, weights=Y[:, 0]),
        lambda x, y: np.outer(RBF(0.75)(x, Y) @ Y[:, 0], RBF(0.75)(y, Y) @ Y[:, 0]),
        X,
    ),
    "Gram": (kernels.Gram(matrix=MATRIX), lambda x, y: MATRIX[np.ix_(x[:, 0].astype(int), y[:, 0].astype(int))], ARMS),
}
COMPOSED = {name: PAIRS[name][1] for name in ("nested", "scaled-right")} | {"periodic-locally": None}


@jax.jit
def compiled(some, x, y):
    """Compute matrices and diagonals of several kernels in one program."""
    return [(kernel(x, y), kernel.diag(x)) for kernel in some]


def ours(kernel, x, y, dtype):
    """Return the kernel matrix in a precision, and check its dtype."""
    with jax.enable_x64(dtype == np.float64):
        ((result, _),) = compiled([kernel], x.astype(dtype), y.astype(dtype))
        assert result.dtype == dtype
        return np.asarray(result, np.float64)


@cache
def of_all(dtype):
    """Return matrices and diagonals of all kernels in a precision."""
    with jax.enable_x64(dtype == np.float64):
        return dict(zip(ALL, compiled(list(ALL.values()), X.astype(dtype), np.concatenate([X, Y]).astype(dtype)), strict=True))


@cache
def on_one_axis(dtype):
    """The same for ``PERIODIC`` and the first coordinates of ``X`` and ``Y``."""
    some = [ALL[name] for name in PERIODIC]
    with jax.enable_x64(dtype == np.float64):
        return dict(zip(PERIODIC, compiled(some, X[:, :1].astype(dtype), Y[:, :1].astype(dtype)), strict=True))


def tolerance(dtype, matrix, roundings):
    """Return a few roundings of the largest entry."""
    return roundings * float(np.finfo(dtype).eps) * float(np.abs(matrix).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", PAIRS)
def test_matches_scikit_learn(name, dtype):
    matrix, want = of_all(dtype)[name][0], PAIRS[name][1](X, np.concatenate([X, Y]))
    assert matrix.dtype == dtype
    # Distances, powers and exponentials take about ten roundings each; nested kernels multiply two of them.
    np.testing.assert_allclose(np.asarray(matrix, np.float64), want, rtol=0, atol=tolerance(dtype, want, 32), err_msg=name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", PERIODIC)
def test_periodic_matches_scikit_learn_on_one_axis(name, dtype):
    matrix, want = on_one_axis(dtype)[name][0], PERIODIC[name][1](X[:, :1], Y[:, :1])
    assert matrix.dtype == dtype
    # The phase pi |x - y| / p reaches 8, so the sine is off by 8 eps, and exp(-2 sin^2 / l^2) by up to 4 / l^2 < 8 times that.
    np.testing.assert_allclose(np.asarray(matrix, np.float64), want, rtol=0, atol=tolerance(dtype, want, 128), err_msg=name)


def test_linear_length_scale_divides_the_inputs():
    want = oracle.DotProduct(sigma_0=1.5)(X / ARD, Y / ARD)
    np.testing.assert_allclose(ours(kernels.Linear(length_scale=ARD, bias=2.25), X, Y, np.float64), want, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("bandwidth", [0.7, np.array([0.5, 3.0])])
def test_from_bandwidth_has_no_factor_two(bandwidth):
    want = np.exp(-np.sum(((X[:, None, :] - Y[None, :, :]) / bandwidth) ** 2, axis=-1))
    kernel = SE.from_bandwidth(bandwidth)
    # Exponents are below 70, and a few roundings each are allowed.
    np.testing.assert_allclose(ours(kernel, X, Y, np.float64), want, rtol=1e-12, atol=0)
    # The tolerance is 32 roundings of 1.
    np.testing.assert_allclose(ours(kernel, X, Y, np.float32), want, rtol=0, atol=4e-6)


@pytest.mark.parametrize("name", FORMULAS)
def test_every_kernel_keeps_its_promises_and_has_its_formula(name):
    case, formula, *points = FORMULAS[name]
    kernel = ALL[case] if isinstance(case, str) else case
    assert type(kernel).__name__ == name
    testing.check_kernel(kernel, formula=formula, points=points[0] if points else None)


@pytest.mark.full
@pytest.mark.parametrize("name", COMPOSED)
def test_kernels_of_kernels_keep_their_promises(name):
    testing.check_kernel(ALL[name], formula=COMPOSED[name])


@pytest.mark.full
@pytest.mark.parametrize(
    "kernel", [3.0 * SE(length_scale=ARD), SE(length_scale=0.5) * SE(length_scale=ARD) * kernels.Constant(variance=0.5) * 3.0]
)
def test_products_over_axes_are_the_kernel(kernel):
    assert len(kernel.along_axes(2)) == 2
    testing.check_kernel(kernel)


def test_every_public_kernel_has_a_formula_here():
    public = {
        name for name in kernels.__all__ if inspect.isclass(getattr(kernels, name)) and not inspect.isabstract(getattr(kernels, name))
    }
    assert set(FORMULAS) == public


@pytest.mark.parametrize("name", ["matern12", "matern32", "matern52", "rational-quadratic", "sum", "nested", "linear-bias"])
def test_along_axes_refuses_what_is_no_product(name):
    assert ALL[name].along_axes(2) is None
    assert (ALL[name] * SE()).along_axes(2) is None
    assert (2.0 * ALL[name]).along_axes(2) is None


def test_gradients_by_points_are_those_of_differences():
    """The points lie far from the origin."""
    weights, x, y = RANDOM.standard_normal((len(X), len(Y))), X + 1e6, Y + 1e6
    apart = (x[:, None] - y[None]) / ARD**2
    slopes = (weights * np.exp(-0.5 * np.sum(apart**2 * ARD**2, axis=-1)))[:, :, None] * apart
    with jax.enable_x64(True):
        by_points = jax.jit(jax.grad(lambda x, y: jnp.sum(weights * SE(length_scale=ARD)(x, y)), (0, 1)))(x, y)
    for gradient, want in zip(by_points, (-slopes.sum(axis=1), slopes.sum(axis=0)), strict=True):
        np.testing.assert_allclose(gradient, want, rtol=1e-10, atol=1e-12)


SAME = [
    ("equal", SE(length_scale=0.5), SE(length_scale=0.5), True),
    ("number and array of equal value", SE(length_scale=0.5), SE(length_scale=jnp.float32(0.5)), True),
    ("equal vectors", SE(length_scale=np.array([1.0, 2.0])), SE(length_scale=np.array([1.0, 2.0])), True),
    ("equal composites", 2.0 * SE() + kernels.Linear(), 2.0 * SE() + kernels.Linear(), True),
    ("other value", SE(length_scale=0.5), SE(length_scale=0.6), False),
    ("other class with the same fields", kernels.Matern32(length_scale=0.5), kernels.Matern52(length_scale=0.5), False),
    ("sum and product", SE() + SE(), SE() * SE(), False),
    ("scaled and not", SE(), 1.0 * SE(), False),
    ("other order", SE() + kernels.Linear(), kernels.Linear() + SE(), False),
    ("other entry", SE(length_scale=np.array([1.0, 2.0])), SE(length_scale=np.array([2.0, 1.0])), False),
    ("scalar and vector", SE(length_scale=1.0), SE(length_scale=np.ones(2)), False),
    ("equal Gram matrices", kernels.Gram(matrix=np.eye(3)), kernels.Gram(matrix=np.eye(3)), True),
    ("other Gram matrices", kernels.Gram(matrix=np.eye(3)), kernels.Gram(matrix=np.eye(2)), False),
]


@pytest.mark.parametrize(("a", "b", "want"), [case[1:] for case in SAME], ids=[case[0] for case in SAME])
def test_same(a, b, want):
    assert kernels.same(a, b) is want
    assert kernels.same(b, a) is want


def test_gram_takes_singular_and_slightly_asymmetric_matrices():
    # The rank is one, and the least eigenvalue is of order -1e-16.
    kernels.Gram(matrix=np.ones((4, 4)))
    nearly = np.eye(3)
    # The entry is rounding, below the tolerance of 1e-6.
    nearly[0, 1] = 1e-10
    kernels.Gram(matrix=nearly)
