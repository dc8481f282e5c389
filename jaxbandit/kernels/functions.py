"""The kernels: of differences between points, of points without an order, linear, constant and white ones, and kernels of some axes."""

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
from jaxbandit.core.fields import exactly, finite_numbers, nonnegative, numbers_from, positive, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.kernels.base import Axes, Kernel, Scale, check_gram, on_points, parts

__all__ = [
    "Categorical", "Constant", "Gram", "Linear", "Matern12", "Matern32", "Matern52", "OnAxes", "Periodic", "RationalQuadratic",
    "SquaredExponential", "White", "parts_on_axes",
]  # fmt: skip

matmul = functools.partial(jnp.matmul, precision=jax.lax.Precision.HIGHEST)  # accelerators round the factors of a product by default
SQRT3, SQRT5 = math.sqrt(3.0), math.sqrt(5.0)


class Unit(Kernel, abc.ABC):
    """Abstract base of kernels whose variance is 1 everywhere."""

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return jnp.ones(jnp.shape(x)[0], jnp.asarray(x).dtype)


class Separable(Unit):
    """Abstract base of products of kernels of one axis each, which differ by their hyper-parameters alone."""

    @checked
    def along_axes(self, dimension: Axes) -> tuple[Kernel, ...]:
        held = {parameter.name: getattr(self, parameter.name) for parameter in parameters(type(self))}
        several = {name: value for name, value in held.items() if np.ndim(value) > 0}
        return tuple(replace(self, **{name: value[axis] for name, value in several.items()}) for axis in range(dimension))


FEW = 16  # axes


@pytree
class Stationary(Unit):
    """Abstract base of kernels of ``r = |(x - y) / l|``; ``length_scale`` is ``l``, scalar or ``[d]``.

    Attributes:
      spectrum: degrees of freedom of Student's t that is the spectral density, infinite for a Gaussian, ``None`` for any other.
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
    """Return ``|(x - y) / scale|^2 [n, p]`` of points ``[n, d]`` and ``[p, d]``, whose derivative by points is computed by products.

    The values are from differences, because the expanded square loses digits for near points; and one axis after the other where those
    are few, because a sum over axes inside a loop over pairs keeps CPUs from several exponentials at once.
    """
    axes = x.shape[1]
    if axes > FEW:
        difference = (x[:, None, :] - y[None, :, :]) / scale[None, None]
        return jnp.sum(difference * difference, axis=-1)
    differences = [(x[:, axis, None] - y[None, :, axis]) / scale[axis] for axis in range(axes)]
    return functools.reduce(jnp.add, [difference * difference for difference in differences])


def _moved(primals: tuple[Array, Array, Array], tangents: tuple[Any, Any, Any]) -> tuple[Array, Array]:
    """Return squared distances and ``2 (x - y) . (dx - dy) / scale^2`` with the products expanded, about ``y[0]``; and the rest."""
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
    """Return ``2 (near - far) . moves [n, p]``; as one product, whose transpose is one, too."""
    along = jnp.sum(near * moves, axis=1, keepdims=True)
    return 2 * matmul(jnp.concatenate([along, moves], axis=1), jnp.concatenate([jnp.ones_like(far[:, :1]), -far], axis=1).T)


squared_distances.defjvp(_moved, symbolic_zeros=True)


def distance(squared: Array) -> Array:
    """Return ``r [n, p]``, whose gradient is zero, not NaN, at coinciding points."""
    apart = squared > 0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, squared, 1)), 0)


@pytree
class SquaredExponential(Stationary, Separable, proved=True):
    """Squared exponential, ``k(x, y) = exp(-|x - y|^2 / (2 l^2))``; ``length_scale`` is ``l``, scalar or ``[d]``.

    For the convention without the 2, ``exp(-|x - y|^2 / b^2)``, use :meth:`from_bandwidth`.
    """

    short_name: ClassVar[str] = "se"
    spectrum: ClassVar[float | None] = math.inf

    @classmethod
    @checked
    def from_bandwidth(cls, bandwidth: Annotated[PerAxis, positive]) -> SquaredExponential:
        """Return ``k(x, y) = exp(-|x - y|^2 / b^2)``, the convention of CONFIG (Xu et al. 2023, sec. 6.1): ``l = b / sqrt(2)``."""
        return cls(length_scale=np.asarray(bandwidth) / math.sqrt(2.0))

    def _at(self, squared: Array) -> Array:
        return jnp.exp(-0.5 * squared)


@pytree
class Matern12(Stationary, proved=True):
    """Matern 1/2 (exponential), ``k = exp(-r)`` with ``r = |(x - y) / l|``."""

    spectrum: ClassVar[float | None] = 1

    def _at(self, squared: Array) -> Array:
        return jnp.exp(-distance(squared))


@pytree
class Matern32(Stationary, proved=True):
    """Matern 3/2, ``k = (1 + sqrt(3) r) exp(-sqrt(3) r)`` with ``r = |(x - y) / l|``."""

    spectrum: ClassVar[float | None] = 3

    def _at(self, squared: Array) -> Array:
        r = SQRT3 * distance(squared)
        return (1 + r) * jnp.exp(-r)


@pytree
class Matern52(Stationary, proved=True):
    """Matern 5/2, ``k = (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)`` with ``r = |(x - y) / l|``."""

    spectrum: ClassVar[float | None] = 5

    def _at(self, squared: Array) -> Array:
        r = SQRT5 * distance(squared)
        return (1 + r + r * r / 3) * jnp.exp(-r)


@pytree
class RationalQuadratic(Stationary, proved=True):
    """Rational quadratic, ``k = (1 + r^2 / (2 alpha))^-alpha`` with ``r = |(x - y) / l|``; ``alpha > 0`` mixes length-scales."""

    short_name: ClassVar[str] = "rq"
    alpha: Annotated[Scalar, positive] = 1.0

    def _at(self, squared: Array) -> Array:
        return (1 + squared / (2 * jnp.asarray(self.alpha))) ** -jnp.asarray(self.alpha)


@pytree
class Periodic(Separable, proved=True):
    """Periodic (MacKay 1998), ``k = exp(-2 sum_a sin^2(pi (x_a - y_a) / p_a) / l_a^2)``; ``length_scale`` has no unit.

    Both hyper-parameters are scalars or ``[d]``; ``period`` is in input units. On several axes it is the product of one-dimensional
    kernels: the same formula on the Euclidean distance would not be positive semi-definite.
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
    """Categories without an order, ``k = exp(-sum_a [x_a != y_a] / l_a)``, by how many axes two points differ on (Hamming distance).

    Two categories of one axis have the correlation ``exp(-1 / l)``, all pairs the same; :class:`Gram` gives each pair its own.
    ``length_scale`` is ``l``, scalar or ``[d]``, without a unit. Use :class:`OnAxes` where other axes hold numbers.
    """

    length_scale: Annotated[PerAxis, positive] = 1.0

    @classmethod
    @checked
    def from_correlation(cls, correlation: Annotated[PerAxis, numbers_from(1e-6, 1 - 1e-6)]) -> Categorical:
        """Return the kernel in which points that differ on one axis have this correlation, in (0, 1): one number, or one per axis."""
        return cls(length_scale=-1 / np.log(np.asarray(correlation, np.float64)))

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        differ = jnp.asarray(x)[:, None, :] != jnp.asarray(y)[None, :, :]
        inverse = 1 / jnp.broadcast_to(jnp.asarray(self.length_scale, jnp.asarray(x).dtype), (1, 1, jnp.shape(x)[-1]))
        return jnp.exp(-jnp.sum(jnp.where(differ, inverse, 0), axis=-1))


@pytree
class Gram(Kernel, proved=True):
    """Explicit Gram matrix ``matrix [M, M]`` for finite arms; inputs are arm numbers ``[n, 1]`` (see ``domains.arms``).

    It is also the factor of an axis of categories, see :class:`OnAxes` and ``domains.mixed``; its rows are then in the order of these.

    A matrix that is not square, symmetric and positive semi-definite is refused.
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
    """Linear, ``k = b + sum_a x_a y_a / l_a^2`` with ``bias`` ``b >= 0``: not stationary, its variance grows with the input."""

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
    """White noise in the function itself, ``k = variance`` where ``x == y`` and 0 elsewhere (not observation noise)."""

    variance: Annotated[Scalar, positive] = 1.0

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        equal = jnp.all(jnp.asarray(x)[:, None, :] == jnp.asarray(y)[None, :, :], axis=-1)
        return jnp.where(equal, jnp.asarray(self.variance, jnp.asarray(x).dtype), 0)


@pytree
class OnAxes(Kernel, proved=True):
    """A kernel of some of the axes: ``kernel(x[axes], y[axes])``.

    Products of them are kernels of mixed domains, sums are additive kernels::

        OnAxes(kernel=SquaredExponential(length_scale=0.5), axes=(0, 1)) * OnAxes(kernel=Categorical(), axes=(2,))

    Attributes:
      kernel: the kernel; what it has one per axis belongs to ``axes``, in their order.
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


@checked
def parts_on_axes(kernel: Kernel, axes: tuple[Annotated[int, whole(0)], ...]) -> Iterator[tuple[Kernel, tuple[int, ...]]]:
    """Return the kernels that a kernel on ``axes`` is made of and that are made of no others, each with the axes that it sees."""
    if isinstance(kernel, OnAxes):
        yield from parts_on_axes(kernel.kernel, tuple(axes[number] for number in kernel.axes))
        return
    if not parts(kernel):
        yield kernel, axes
    for part in parts(kernel).values():
        yield from parts_on_axes(part, axes)


def spectral(kernel: Kernel, key: Key, shape: tuple[int, int], dtype: np.dtype) -> tuple[Array, Scalar] | None:
    """Return frequencies ``[F, d]`` drawn from the spectral density of a stationary kernel, and its variance; ``None`` of any other.

    Those of a Matern kernel of smoothness ``nu`` are Student's t with ``2 nu`` degrees of freedom (Rahimi and Recht 2007).
    """
    if isinstance(kernel, Scale):
        inner = spectral(kernel.kernel, key, shape, dtype)
        return None if inner is None else (inner[0], inner[1] * jnp.asarray(kernel.variance))
    if not isinstance(kernel, Stationary) or kernel.spectrum is None:
        return None
    normal, chi = jax.random.split(key)
    drawn, freedom = jax.random.normal(normal, shape, dtype), kernel.spectrum
    if freedom < math.inf:
        squares = jnp.square(jax.random.normal(chi, (int(freedom), shape[0]), dtype))  # sums of which are chi-squared
        drawn = drawn * jnp.sqrt(freedom / jnp.sum(squares, axis=0))[:, None]
    return drawn / jnp.broadcast_to(jnp.asarray(kernel.length_scale), drawn.shape), jnp.ones((), dtype)
