"""Kernels of the library."""

from __future__ import annotations

import abc
import functools
import math
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.typing import ArrayLike

from jaxbandit.core import checks
from jaxbandit.core.declare import Array, Key, PerAxis, Scalar, Table, checked, parameters
from jaxbandit.core.fields import exactly, finite_numbers, nonnegative, numbers_from, positive, vector, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.kernels.base import Axes, Kernel, Scale, check_gram, on_points, parts

__all__ = [
    "Categorical", "Constant", "Gram", "Linear", "Matern12", "Matern32", "Matern52", "OnAxes", "Periodic", "PosteriorMean",
    "RationalQuadratic", "SquaredExponential", "White", "parts_on_axes",
]  # fmt: skip

# Accelerators round the factors of a float32 product to about 10 bits by default, too few for a posterior after many rounds.
matmul = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)


class Unit(Kernel, abc.ABC):
    """Abstract base of kernels whose variance is 1 everywhere."""

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return jnp.ones(jnp.shape(x)[0], jnp.asarray(x).dtype)


class Separable(Unit):
    """Abstract base of products of the same one-dimensional kernel."""

    @checked
    def along_axes(self, dimension: Axes) -> tuple[Kernel, ...]:
        held = {parameter.name: getattr(self, parameter.name) for parameter in parameters(type(self))}
        several = {name: value for name, value in held.items() if np.ndim(value) > 0}
        return tuple(replace(self, **{name: value[axis] for name, value in several.items()}) for axis in range(dimension))


@pytree
class Stationary(Unit):
    """Abstract base of kernels of ``r = |(x - y) / length_scale|``.

    Attributes:
      spectrum: degrees of freedom of Student's t as spectral density, infinite for a Gaussian, ``None`` for other densities.
    """

    spectrum: ClassVar[float | None] = None
    length_scale: Annotated[PerAxis, positive] = 1.0

    @abc.abstractmethod
    def _at(self, squared: Array) -> Array:
        """Return the covariances at ``r^2 [n, p]``."""

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        x, y = jnp.asarray(x), jnp.asarray(y)
        return self._at(squared_distances(x, y, jnp.broadcast_to(jnp.asarray(self.length_scale), jnp.shape(x)[-1:])))


@jax.custom_jvp
def squared_distances(x: Array, y: Array, scale: Array) -> Array:
    """Return ``|(x - y) / scale|^2``, with derivatives by matrix products.

    The values are from differences, because the expanded square loses digits for near points. With up to 16 axes the sum is one axis after
    the other, because a sum over axes inside a loop over pairs keeps CPUs from computing several exponentials at once.
    """
    axes = x.shape[1]
    if axes > 16:
        difference = (x[:, None, :] - y[None, :, :]) / scale[None, None]
        return jnp.sum(difference * difference, axis=-1)
    differences = [(x[:, axis, None] - y[None, :, axis]) / scale[axis] for axis in range(axes)]
    return functools.reduce(jnp.add, [difference * difference for difference in differences])


def _distances_jvp(primals: tuple[Array, Array, Array], tangents: tuple[Any, Any, Any]) -> tuple[Array, Array]:
    """Return squared distances and their derivative, by products about ``y[0]``."""
    (x, y, scale), (dx, dy, dscale) = primals, tangents
    squared, origin = squared_distances(x, y, scale), y[:1]
    moved = jnp.zeros_like(squared)
    near, far = ((points - origin) / jnp.square(scale)[None] for points in (x, y))
    if not isinstance(dx, SymbolicZero):
        moved = moved + _of_pairs(dx, near, far)
    if not isinstance(dy, SymbolicZero):
        moved = moved + _of_pairs(dy, far, near).T
    if not isinstance(dscale, SymbolicZero):
        moved = moved + jax.jvp(lambda scale: squared_distances.fun(x, y, scale), (scale,), (dscale,))[1]
    return squared, moved


def _of_pairs(moves: Array, near: Array, far: Array) -> Array:
    """Return ``2 (near - far) . moves`` as one matrix product."""
    along = jnp.sum(near * moves, axis=1, keepdims=True)
    return 2 * matmul(jnp.concatenate([along, moves], axis=1), jnp.concatenate([jnp.ones_like(far[:, :1]), -far], axis=1).T)


squared_distances.defjvp(_distances_jvp, symbolic_zeros=True)


def distance(squared: Array) -> Array:
    """Return ``r``, with gradient 0 and not NaN at coinciding points."""
    apart = squared > 0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, squared, 1)), 0)


@pytree
class SquaredExponential(Stationary, Separable, proved=True):
    """Squared exponential, ``k = exp(-|x - y|^2 / (2 l^2))``.

    ``length_scale`` is ``l``, scalar or ``[d]``. For the convention ``exp(-|x - y|^2 / b^2)`` use :meth:`from_bandwidth`.
    """

    short_name: ClassVar[str] = "se"
    spectrum: ClassVar[float | None] = math.inf

    @classmethod
    @checked
    def from_bandwidth(cls, bandwidth: Annotated[PerAxis, positive]) -> SquaredExponential:
        """Return ``exp(-|x - y|^2 / b^2)``, CONFIG's convention (sec. 6.1)."""
        return cls(length_scale=np.asarray(bandwidth) / math.sqrt(2.0))

    def _at(self, squared: Array) -> Array:
        return jnp.exp(-0.5 * squared)


@pytree
class Matern12(Stationary, proved=True):
    """Matern 1/2 (exponential), ``k = exp(-|(x - y) / l|)``."""

    spectrum: ClassVar[float | None] = 1

    def _at(self, squared: Array) -> Array:
        return jnp.exp(-distance(squared))


@pytree
class Matern32(Stationary, proved=True):
    """Matern 3/2 kernel.

    ``k = (1 + sqrt(3) r) exp(-sqrt(3) r)`` with ``r = |(x - y) / l|``.
    """

    spectrum: ClassVar[float | None] = 3

    def _at(self, squared: Array) -> Array:
        r = math.sqrt(3.0) * distance(squared)
        return (1 + r) * jnp.exp(-r)


@pytree
class Matern52(Stationary, proved=True):
    """Matern 5/2 kernel.

    ``k = (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)`` with ``r = |(x - y) / l|``.
    """

    spectrum: ClassVar[float | None] = 5

    def _at(self, squared: Array) -> Array:
        r = math.sqrt(5.0) * distance(squared)
        return (1 + r + r * r / 3) * jnp.exp(-r)


@pytree
class RationalQuadratic(Stationary, proved=True):
    """Rational quadratic kernel, a mixture of length-scales.

    ``k = (1 + r^2 / (2 alpha))^-alpha`` with ``r = |(x - y) / l|`` and ``alpha > 0``.
    """

    short_name: ClassVar[str] = "rq"
    alpha: Annotated[Scalar, positive] = 1.0

    def _at(self, squared: Array) -> Array:
        return (1 + squared / (2 * jnp.asarray(self.alpha))) ** -jnp.asarray(self.alpha)


@pytree
class Periodic(Separable, proved=True):
    """Periodic kernel (MacKay 1998).

    ``k = exp(-2 sum_a sin^2(pi (x_a - y_a) / p_a) / l_a^2)``. Both hyper-parameters are scalars or ``[d]``. ``length_scale`` has no unit,
    ``period`` is in input units. The kernel is a product over axes, because the same formula on the Euclidean distance would not be
    positive semi-definite.
    """

    length_scale: Annotated[PerAxis, positive] = 1.0
    period: Annotated[PerAxis, positive] = 1.0

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        axes = (1, 1, jnp.shape(x)[-1])
        difference = jnp.asarray(x)[:, None, :] - jnp.asarray(y)[None, :, :]
        phase = jnp.sin(math.pi * difference / jnp.broadcast_to(jnp.asarray(self.period), axes))
        scaled = phase / jnp.broadcast_to(jnp.asarray(self.length_scale), axes)
        return jnp.exp(-2 * jnp.sum(scaled * scaled, axis=-1))


@pytree
class Categorical(Separable, proved=True):
    """Categories without an order, ``k = exp(-sum_a [x_a != y_a] / l_a)``.

    All pairs of categories of one axis have the correlation ``exp(-1 / l)``; in :class:`Gram` each pair has its own. ``length_scale`` is
    ``l``, scalar or ``[d]``, without a unit. Use :class:`OnAxes` if other axes are numbers.
    """

    length_scale: Annotated[PerAxis, positive] = 1.0

    @classmethod
    @checked
    def from_correlation(cls, correlation: Annotated[PerAxis, numbers_from(1e-6, 1 - 1e-6)]) -> Categorical:
        """Return the kernel with this correlation, in (0, 1), between categories."""
        return cls(length_scale=-1 / np.log(np.asarray(correlation, np.float64)))

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        differ = jnp.asarray(x)[:, None, :] != jnp.asarray(y)[None, :, :]
        inverse = 1 / jnp.broadcast_to(jnp.asarray(self.length_scale, jnp.asarray(x).dtype), (1, 1, jnp.shape(x)[-1]))
        return jnp.exp(-jnp.sum(jnp.where(differ, inverse, 0), axis=-1))


@pytree
class Gram(Kernel, proved=True):
    """Gram matrix ``matrix [M, M]`` for finite arms or categories.

    Inputs are arm numbers ``[n, 1]``, see ``domains.arms``, or the numbers of an axis's categories, see :class:`OnAxes` and
    ``domains.mixed``. A matrix that is not square, symmetric and positive semi-definite raises ``InvalidArgument``.
    """

    matrix: Annotated[Table, finite_numbers, exactly(None, None, words="one row and one column per arm")]

    @checked
    def check_axes(self, dimension: Axes) -> None:
        if dimension != 1:
            raise checks.InvalidArgument(
                f"Gram: a Gram matrix needs a domain of arm numbers (domains.arms), got d = {dimension}; see OnAxes"
            )

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        rows, columns = jnp.asarray(x)[:, 0].astype(jnp.int32), jnp.asarray(y)[:, 0].astype(jnp.int32)
        return jnp.asarray(self.matrix)[rows[:, None], columns[None, :]]

    def _check(self, name: str, outputs: int | None) -> None:
        if not checks.is_traced(self.matrix):
            check_gram(f"{name}.matrix", np.asarray(self.matrix, np.float64), 1e-6)


@pytree
class Linear(Kernel, proved=True):
    """Linear, ``k = bias + sum_a x_a y_a / l_a^2``."""

    length_scale: Annotated[PerAxis, positive] = 1.0
    bias: Annotated[Scalar, nonnegative] = 0.0

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        scale = jnp.broadcast_to(jnp.asarray(self.length_scale), (1, jnp.shape(x)[-1]))
        product = matmul(jnp.asarray(x) / scale, (jnp.asarray(y) / scale).T)
        return jnp.asarray(self.bias) + product


@pytree
class Constant(Kernel, proved=True):
    """Constant, ``k = variance``: an unknown offset shared by all inputs."""

    variance: Annotated[Scalar, positive] = 1.0

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return jnp.broadcast_to(jnp.asarray(self.variance, jnp.asarray(x).dtype), (jnp.shape(x)[0], jnp.shape(y)[0]))

    @checked
    def along_axes(self, dimension: Axes) -> tuple[Kernel, ...]:
        return (self, *(Constant(variance=1.0) for _ in range(dimension - 1)))


@pytree
class White(Kernel, proved=True):
    """White noise of the function, ``k = variance`` where ``x == y``."""

    variance: Annotated[Scalar, positive] = 1.0

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        equal = jnp.all(jnp.asarray(x)[:, None, :] == jnp.asarray(y)[None, :, :], axis=-1)
        return jnp.where(equal, jnp.asarray(self.variance, jnp.asarray(x).dtype), 0)


@pytree
class OnAxes(Kernel, proved=True):
    """Kernel of some of the axes, ``kernel(x[axes], y[axes])``.

    Products of them are kernels of mixed domains, sums are additive kernels::

        OnAxes(kernel=SquaredExponential(length_scale=0.5), axes=(0, 1)) * OnAxes(kernel=Categorical(), axes=(2,))

    Attributes:
      kernel: the kernel. Its hyper-parameters per axis are in the order of ``axes``.
      axes: numbers of the axes, from 0.
    """

    kernel: Kernel
    axes: tuple[Annotated[int, whole(0)], ...] = static(default=(0,))

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        axes = np.asarray(self.axes)
        return self.kernel(jnp.asarray(x)[:, axes], jnp.asarray(y)[:, axes])

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return self.kernel.diag(jnp.asarray(x)[:, np.asarray(self.axes)])

    @checked
    def along_axes(self, dimension: Axes) -> tuple[Kernel, ...] | None:
        inner = self.kernel.along_axes(len(self.axes))
        if inner is None:
            return None
        factors: dict[int, Kernel] = dict(zip(self.axes, inner, strict=True))
        return tuple(factors.get(axis, Constant(variance=1.0)) for axis in range(dimension))

    @checked
    def check_axes(self, dimension: Axes) -> None:
        if max(self.axes) >= dimension:
            raise checks.InvalidArgument(
                f"OnAxes.axes: must be among 0..{dimension - 1} for points of {dimension} axes, got {checks.short(list(self.axes))}"
            )
        self.kernel.check_axes(len(self.axes))

    def _check(self, name: str, outputs: int | None) -> None:
        if not self.axes or len(set(self.axes)) < len(self.axes):
            raise checks.InvalidArgument(f"{name}.axes: must be at least one axis, each once, got {list(self.axes)}")


@pytree
class PosteriorMean(Kernel, proved=True):
    """Multiples of a known posterior mean, ``k = m(x) m(y)``.

    The mean is ``m(x) = sum_i weights_i kernel(x, points_i)``, and a draw is ``b m(x)`` with a standard normal factor ``b``. In a sum with
    another kernel, values show how much of an earlier mean there is in a function. Fits keep all numbers of this kernel.

    Attributes:
      kernel: the kernel of the earlier model.
      points: ``[n, d]`` points of the earlier values.
      weights: ``[n]`` weights of the points.
    """

    kernel: Kernel
    points: Annotated[Table, finite_numbers, exactly(None, None, words="one row per point")]
    weights: Annotated[Table, finite_numbers, vector("one weight per point")]

    def mean(self, x: ArrayLike) -> Array:
        """Return the mean ``[n]`` at inputs ``x [n, d]``."""
        return matmul(self.kernel(x, jnp.asarray(self.points)), jnp.asarray(self.weights))

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return self.mean(x)[:, None] * self.mean(y)[None, :]

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return jnp.square(self.mean(x))

    @checked
    def check_axes(self, dimension: Axes) -> None:
        if np.shape(self.points)[1] != dimension:
            raise checks.InvalidArgument(f"PosteriorMean.points: must have {dimension} axes, got {np.shape(self.points)[1]}")
        self.kernel.check_axes(dimension)

    def _check(self, name: str, outputs: int | None) -> None:
        checks.shape(f"{name}.weights", self.weights, np.shape(self.points)[:1], remedy="one weight per point")


@checked
def parts_on_axes(kernel: Kernel, axes: tuple[Annotated[int, whole(0)], ...]) -> Iterator[tuple[Kernel, tuple[int, ...]]]:
    """Return a kernel's innermost parts, each with its axes among ``axes``."""
    if isinstance(kernel, OnAxes):
        yield from parts_on_axes(kernel.kernel, tuple(axes[number] for number in kernel.axes))
        return
    if not parts(kernel):
        yield kernel, axes
    for part in parts(kernel).values():
        yield from parts_on_axes(part, axes)


def spectral(kernel: Kernel, key: Key, shape: tuple[int, int], dtype: np.dtype) -> tuple[Array, Scalar] | None:
    """Return draws from a stationary kernel's spectral density, and its variance.

    The density of a Matern kernel of smoothness ``nu`` is Student's t with ``2 nu`` degrees of freedom (Rahimi and Recht 2007). The result
    is ``None`` for other kernels.
    """
    if isinstance(kernel, Scale):
        inner = spectral(kernel.kernel, key, shape, dtype)
        return None if inner is None else (inner[0], inner[1] * jnp.asarray(kernel.variance))
    if not isinstance(kernel, Stationary) or kernel.spectrum is None:
        return None
    normal, chi = jax.random.split(key)
    drawn, freedom = jax.random.normal(normal, shape, dtype), kernel.spectrum
    if freedom < math.inf:
        # The sums of these squares are chi-squared.
        squares = jnp.square(jax.random.normal(chi, (int(freedom), shape[0]), dtype))
        drawn = drawn * jnp.sqrt(freedom / jnp.sum(squares, axis=0))[:, None]
    return drawn / jnp.broadcast_to(jnp.asarray(kernel.length_scale), drawn.shape), jnp.ones((), dtype)
