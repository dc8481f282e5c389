"""Covariance functions as pytrees: hyper-parameters are leaves; ``+`` and ``*`` build sums, products and scaled kernels.

Every kernel maps inputs ``x [n, d]`` and ``y [p, d]`` to ``k(x, y) [n, p]`` and has ``diag(x) [n]``. Length-scales are scalars or one
per axis (``[d]``, ARD), in the units of the inputs. A kernel that is a product of one-dimensional kernels returns them from
:meth:`Kernel.along_axes`; surrogates on product grids then work axis by axis, which is cheap.

Reference for the formulas: Rasmussen and Williams (2006), *Gaussian Processes for Machine Learning*, chapter 4.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxbandit.core import checks
from jaxbandit.core.arguments import takes
from jaxbandit.core.declare import Declared
from jaxbandit.core.fields import (
    between,
    exactly,
    finite_numbers,
    instance_of,
    nonnegative,
    numbers_from,
    per_axis,
    positive,
    tuple_of,
    whole,
)
from jaxbandit.core.gram import check_called, check_gram
from jaxbandit.core.pytree import param, pytree, static
from jaxbandit.core.types import Array, Numbers, PerAxis, Scalar, Table

__all__ = [
    "Categorical",
    "Constant",
    "Gram",
    "Kernel",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "OnAxes",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Scale",
    "SquaredExponential",
    "Sum",
    "White",
    "check_covariance",
    "parts_on_axes",
    "same",
]

SQRT3, SQRT5 = math.sqrt(3.0), math.sqrt(5.0)


POINTS = finite_numbers.of(exactly(None, None, words="one row per point, one column per axis"))


def _on_points(method: Callable[..., Array]) -> Callable[..., Array]:
    """Return a kernel's method, called with points ``[n, d]`` or, on anything else, raising ``InvalidArgument``."""

    @functools.wraps(method)
    def checked(self: Kernel, *points: ArrayLike) -> Array:
        name = type(self).__name__
        for letter, given in zip("xy", points, strict=False):
            POINTS(f"{name}: {letter}", given)
        axes = [np.shape(given)[1] for given in points]
        if len(set(axes)) > 1:
            raise checks.InvalidArgument(f"{name}: y: must have as many axes as x, {axes[0]}, got {axes[1]}")
        for dimension in axes[:1]:
            self.check_axes(dimension)
        return method(self, *points)

    return checked


class Kernel(Declared, abc.ABC):
    """A covariance function. Abstract; subclasses are final pytree dataclasses that define ``__call__``.

    Hyper-parameters are declared beside their fields, those with one number per axis by ``shape=jaxbandit.fields.per_axis``. Subclasses
    need not look at the points that they are given: what is no ``[n, d]`` is refused before.
    """

    described: ClassVar[str] = "a kernel of jaxbandit.kernels, such as SquaredExponential(length_scale=0.5)"
    in_files: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in ("__call__", "diag"):
            if name in vars(cls):
                setattr(cls, name, _on_points(vars(cls)[name]))

    @abc.abstractmethod
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        """Return the covariances ``[n, p]`` between inputs ``x [n, d]`` and ``y [p, d]``."""

    def diag(self, x: ArrayLike) -> Array:
        """Return the prior variances ``[n]`` at inputs ``x [n, d]``."""
        return jax.vmap(lambda row: self(row[None, :], row[None, :])[0, 0])(jnp.asarray(x))

    def along_axes(self, dimension: int) -> tuple[Kernel, ...] | None:
        """Return one-dimensional kernels, one per axis, whose product is this kernel; ``None`` when it is no such product."""
        return (self,) if dimension == 1 else None

    def check_axes(self, dimension: int) -> None:
        """Raise ``InvalidArgument`` on hyper-parameters that do not fit inputs of ``dimension`` axes, those of parts included."""
        for field in dataclasses.fields(self):  # type: ignore[arg-type]  # every kernel is a dataclass
            value, name = getattr(self, field.name), f"{type(self).__name__}.{field.name}"
            if isinstance(value, Kernel):
                value.check_axes(dimension)
            elif field.metadata.get("shape") is per_axis:
                shape = (len(value),) if isinstance(value, list | tuple) else np.shape(value)  # which may hold tracers
                if shape not in ((), (dimension,)):
                    raise checks.InvalidArgument(
                        f"{name}: expected one number, or one for each of the {dimension} axes, got shape {list(shape)}"
                    )

    def __add__(self, other: Kernel) -> Sum:
        return Sum(left=self, right=other)

    def __mul__(self, other: Kernel | float) -> Kernel:
        return Product(left=self, right=other) if isinstance(other, Kernel) else Scale(kernel=self, variance=other)

    __rmul__ = __mul__


def parts_on_axes(kernel: Kernel, axes: tuple[int, ...]) -> Iterator[tuple[Kernel, tuple[int, ...]]]:
    """Return the kernels that a kernel on ``axes`` is made of and that are made of no others, each with the axes that it sees."""
    if isinstance(kernel, OnAxes):
        yield from parts_on_axes(kernel.kernel, tuple(axes[number] for number in kernel.axes))
        return
    held = [getattr(kernel, field.name) for field in dataclasses.fields(kernel)]  # type: ignore[arg-type]
    inner = [value for value in held if isinstance(value, Kernel)]
    if not inner:
        yield kernel, axes
    for part in inner:
        yield from parts_on_axes(part, axes)


def same(a: Kernel, b: Kernel) -> bool:
    """Return whether two kernels are equal in structure and in every hyper-parameter, so that outputs can share one factor."""
    left, structure = jax.tree.flatten(a)
    right, other = jax.tree.flatten(b)
    return hash(structure) == hash(other) and all(np.array_equal(x, y) for x, y in zip(left, right, strict=True))


def _squared_distance(x: ArrayLike, y: ArrayLike, length_scale: PerAxis) -> Array:
    """Return ``sum_a ((x_a - y_a) / l_a)^2`` as ``[n, p]``, from differences: the expanded square loses digits for near points."""
    scale = jnp.broadcast_to(jnp.asarray(length_scale), (1, 1, jnp.shape(x)[-1]))
    difference = (jnp.asarray(x)[:, None, :] - jnp.asarray(y)[None, :, :]) / scale
    return jnp.sum(difference * difference, axis=-1)


def _distance(x: ArrayLike, y: ArrayLike, length_scale: PerAxis) -> Array:
    """Return the scaled distance ``[n, p]``, whose gradient is zero, not NaN, at coinciding points."""
    squared = _squared_distance(x, y, length_scale)
    apart = squared > 0
    return jnp.where(apart, jnp.sqrt(jnp.where(apart, squared, 1)), 0)


def _ones(x: ArrayLike) -> Array:
    return jnp.ones(jnp.shape(x)[0], jnp.result_type(x))


LOOKED_AT = 100  # points of a domain at which a user's kernel is tried


def check_covariance(name: str, kernel: Kernel, points: Table) -> None:
    """Raise ``InvalidArgument`` unless ``kernel`` gives covariances: finite, symmetric and positive semi-definite at some of ``points``.

    The package's own kernels do by their formulas; those that a user has written are called, in float64.
    """
    if all(type(part).__module__ == __name__ for part in _parts(kernel)):
        return
    table = np.asarray(points, np.float64)
    table = table[np.linspace(0, len(table) - 1, min(len(table), LOOKED_AT)).astype(int)]
    with checks.blaming(f"{name}: must give covariances [n, p] of points [n, d] and [p, d]"), jax.enable_x64(True):
        matrix, diagonal = np.asarray(kernel(table, table)), np.asarray(kernel.diag(table))
    check_called(name, type(kernel).__name__, matrix, diagonal, len(table))


def _parts(kernel: Kernel) -> list[Kernel]:
    """Return a kernel and those that it is made of."""
    fields = [getattr(kernel, field.name) for field in dataclasses.fields(kernel)]  # type: ignore[arg-type]  # as above
    return [kernel, *(part for value in fields if isinstance(value, Kernel) for part in _parts(value))]


def _scale_per_axis(scale: PerAxis, dimension: int) -> list[PerAxis]:
    """Return the hyper-parameter of each axis, from one number for all or one per axis."""
    return [scale if isinstance(scale, float | int) or np.ndim(scale) == 0 else scale[a] for a in range(dimension)]


@pytree
class SquaredExponential(Kernel):
    """Squared exponential, ``k(x, y) = exp(-|x - y|^2 / (2 l^2))``; ``length_scale`` is ``l``, scalar or ``[d]``.

    For the convention without the 2, ``exp(-|x - y|^2 / b^2)``, use :meth:`from_bandwidth`.
    """

    length_scale: PerAxis = param(1.0, check=positive, shape=per_axis)

    @classmethod
    def from_bandwidth(cls, bandwidth: PerAxis) -> SquaredExponential:
        """Return ``k(x, y) = exp(-|x - y|^2 / b^2)``, the convention of CONFIG (Xu et al. 2023, sec. 6.1): ``l = b / sqrt(2)``."""
        return cls(length_scale=np.asarray(bandwidth) / math.sqrt(2.0))

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return jnp.exp(-0.5 * _squared_distance(x, y, self.length_scale))

    def diag(self, x: ArrayLike) -> Array:
        return _ones(x)

    def along_axes(self, dimension: int) -> tuple[Kernel, ...]:
        return tuple(SquaredExponential(length_scale=s) for s in _scale_per_axis(self.length_scale, dimension))


@pytree
class Matern12(Kernel):
    """Matern 1/2 (exponential), ``k = exp(-r)`` with ``r = |(x - y) / l|``."""

    length_scale: PerAxis = param(1.0, check=positive, shape=per_axis)

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return jnp.exp(-_distance(x, y, self.length_scale))

    def diag(self, x: ArrayLike) -> Array:
        return _ones(x)


@pytree
class Matern32(Kernel):
    """Matern 3/2, ``k = (1 + sqrt(3) r) exp(-sqrt(3) r)`` with ``r = |(x - y) / l|``."""

    length_scale: PerAxis = param(1.0, check=positive, shape=per_axis)

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        r = SQRT3 * _distance(x, y, self.length_scale)
        return (1 + r) * jnp.exp(-r)

    def diag(self, x: ArrayLike) -> Array:
        return _ones(x)


@pytree
class Matern52(Kernel):
    """Matern 5/2, ``k = (1 + sqrt(5) r + 5 r^2 / 3) exp(-sqrt(5) r)`` with ``r = |(x - y) / l|``."""

    length_scale: PerAxis = param(1.0, check=positive, shape=per_axis)

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        r = SQRT5 * _distance(x, y, self.length_scale)
        return (1 + r + r * r / 3) * jnp.exp(-r)

    def diag(self, x: ArrayLike) -> Array:
        return _ones(x)


@pytree
class RationalQuadratic(Kernel):
    """Rational quadratic, ``k = (1 + r^2 / (2 alpha))^-alpha`` with ``r = |(x - y) / l|``; ``alpha > 0`` mixes length-scales."""

    length_scale: PerAxis = param(1.0, check=positive, shape=per_axis)
    alpha: Scalar = param(1.0, check=positive)

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return (1 + _squared_distance(x, y, self.length_scale) / (2 * jnp.asarray(self.alpha))) ** -jnp.asarray(self.alpha)

    def diag(self, x: ArrayLike) -> Array:
        return _ones(x)


@pytree
class Periodic(Kernel):
    """Periodic (MacKay 1998), ``k = exp(-2 sum_a sin^2(pi (x_a - y_a) / p_a) / l_a^2)``; ``length_scale`` has no unit.

    Both hyper-parameters are scalars or ``[d]``; ``period`` is in input units. On several axes it is the product of one-dimensional
    kernels: the same formula on the Euclidean distance would not be positive semi-definite.
    """

    length_scale: PerAxis = param(1.0, check=positive, shape=per_axis)
    period: PerAxis = param(1.0, check=positive, shape=per_axis)

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        axes = (1, 1, jnp.shape(x)[-1])
        difference = jnp.asarray(x)[:, None, :] - jnp.asarray(y)[None, :, :]
        phase = jnp.sin(math.pi * difference / jnp.broadcast_to(jnp.asarray(self.period), axes))
        scaled = phase / jnp.broadcast_to(jnp.asarray(self.length_scale), axes)
        return jnp.exp(-2 * jnp.sum(scaled * scaled, axis=-1))

    def diag(self, x: ArrayLike) -> Array:
        return _ones(x)

    def along_axes(self, dimension: int) -> tuple[Kernel, ...]:
        scales, periods = _scale_per_axis(self.length_scale, dimension), _scale_per_axis(self.period, dimension)
        return tuple(Periodic(length_scale=s, period=p) for s, p in zip(scales, periods, strict=True))


@pytree
class Linear(Kernel):
    """Linear, ``k = b + sum_a x_a y_a / l_a^2`` with ``bias`` ``b >= 0``: not stationary, its variance grows with the input."""

    length_scale: PerAxis = param(1.0, check=positive, shape=per_axis)
    bias: Scalar = param(0.0, check=nonnegative)

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        scale = jnp.broadcast_to(jnp.asarray(self.length_scale), (1, jnp.shape(x)[-1]))
        product = jnp.matmul(jnp.asarray(x) / scale, (jnp.asarray(y) / scale).T, precision=jax.lax.Precision.HIGHEST)
        return jnp.asarray(self.bias) + product


@pytree
class Constant(Kernel):
    """Constant, ``k = variance``: an unknown offset shared by all inputs."""

    variance: Scalar = param(1.0, check=positive)

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return jnp.broadcast_to(jnp.asarray(self.variance, jnp.asarray(x).dtype), (jnp.shape(x)[0], jnp.shape(y)[0]))

    def along_axes(self, dimension: int) -> tuple[Kernel, ...]:
        return (self, *(Constant(variance=1.0) for _ in range(dimension - 1)))


@pytree
class White(Kernel):
    """White noise in the function itself, ``k = variance`` where ``x == y`` and 0 elsewhere (not observation noise)."""

    variance: Scalar = param(1.0, check=positive)

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        equal = jnp.all(jnp.asarray(x)[:, None, :] == jnp.asarray(y)[None, :, :], axis=-1)
        return jnp.where(equal, jnp.asarray(self.variance, jnp.asarray(x).dtype), 0)


@pytree
class Categorical(Kernel):
    """Categories without an order, ``k = exp(-sum_a [x_a != y_a] / l_a)``, by how many axes two points differ on (Hamming distance).

    Two categories of one axis have the correlation ``exp(-1 / l)``, all pairs the same; :class:`Gram` gives each pair its own.
    ``length_scale`` is ``l``, scalar or ``[d]``, without a unit. Use :class:`OnAxes` where other axes hold numbers.
    """

    length_scale: PerAxis = param(1.0, check=positive, shape=per_axis)

    @classmethod
    @takes(correlation=numbers_from(1e-6, 1 - 1e-6))
    def from_correlation(cls, correlation: PerAxis) -> Categorical:
        """Return the kernel in which points that differ on one axis have this correlation, in (0, 1): one number, or one per axis."""
        return cls(length_scale=-1 / np.log(np.asarray(correlation, np.float64)))

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        differ = jnp.asarray(x)[:, None, :] != jnp.asarray(y)[None, :, :]
        inverse = 1 / jnp.broadcast_to(jnp.asarray(self.length_scale, jnp.asarray(x).dtype), (1, 1, jnp.shape(x)[-1]))
        return jnp.exp(-jnp.sum(jnp.where(differ, inverse, 0), axis=-1))

    def diag(self, x: ArrayLike) -> Array:
        return _ones(x)

    def along_axes(self, dimension: int) -> tuple[Kernel, ...]:
        return tuple(Categorical(length_scale=s) for s in _scale_per_axis(self.length_scale, dimension))


@pytree
class OnAxes(Kernel):
    """A kernel of some of the axes: ``kernel(x[axes], y[axes])``.

    Products of them are kernels of mixed domains, sums are additive kernels::

        OnAxes(kernel=SquaredExponential(length_scale=0.5), axes=(0, 1)) * OnAxes(kernel=Categorical(), axes=(2,))

    Attributes:
      kernel: the kernel; what it has one per axis belongs to ``axes``, in their order.
      axes: numbers of the axes, from 0.
    """

    kernel: Kernel = param(check=instance_of(Kernel))
    axes: tuple[int, ...] = static(default=(0,), check=tuple_of(whole(0)))

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        own = np.asarray(self.axes)
        return self.kernel(jnp.asarray(x)[:, own], jnp.asarray(y)[:, own])

    def diag(self, x: ArrayLike) -> Array:
        return self.kernel.diag(jnp.asarray(x)[:, np.asarray(self.axes)])

    def along_axes(self, dimension: int) -> tuple[Kernel, ...] | None:
        inner = self.kernel.along_axes(len(self.axes))
        if inner is None:
            return None
        own: dict[int, Kernel] = dict(zip(self.axes, inner, strict=True))
        return tuple(own.get(axis, Constant(variance=1.0)) for axis in range(dimension))

    def check_axes(self, dimension: int) -> None:
        if max(self.axes) >= dimension:
            raise checks.InvalidArgument(
                f"OnAxes.axes: must be among 0..{dimension - 1} for points of {dimension} axes, got {list(self.axes)}"
            )
        self.kernel.check_axes(len(self.axes))

    def _check(self, name: str, outputs: int | None) -> None:
        if not self.axes or len(set(self.axes)) < len(self.axes):
            raise checks.InvalidArgument(f"{name}.axes: must be at least one axis, each once, got {list(self.axes)}")


@pytree
class Gram(Kernel):
    """Explicit Gram matrix ``matrix [M, M]`` for finite arms; inputs are arm numbers ``[n, 1]`` (see ``domains.arms``).

    It is also the factor of an axis of categories, see :class:`OnAxes` and ``domains.mixed``; its rows are then in the order of these.

    Use :meth:`checked` on a matrix of your own: it refuses one that is not square, symmetric and positive semi-definite.
    """

    matrix: Table = param(check=finite_numbers, shape=exactly(None, None, words="one row and one column per arm"))

    @classmethod
    @takes(matrix=finite_numbers, tolerance=between(0, 1, open_low=False, host=True))
    def checked(cls, matrix: Numbers, *, tolerance: float = 1e-8) -> Gram:
        """Make a Gram kernel from ``matrix [M, M]``; raises ``InvalidArgument`` unless it is finite, symmetric and PSD."""
        table = np.asarray(matrix, np.float64)
        check_gram("Gram.matrix", table, tolerance)
        return cls(matrix=table)

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        rows, columns = jnp.asarray(x)[:, 0].astype(jnp.int32), jnp.asarray(y)[:, 0].astype(jnp.int32)
        return jnp.asarray(self.matrix)[rows[:, None], columns[None, :]]

    def check_axes(self, dimension: int) -> None:
        if dimension != 1:
            raise checks.InvalidArgument(
                f"Gram: a Gram matrix needs a domain of arm numbers (domains.arms), got d = {dimension}; see OnAxes"
            )

    def _check(self, name: str, outputs: int | None) -> None:
        if not checks.is_traced(self.matrix):
            check_gram(f"{name}.matrix", np.asarray(self.matrix, np.float64), 1e-6)


@pytree
class Scale(Kernel):
    """Scaled kernel, ``variance * kernel(x, y)``, with ``variance > 0`` in squared units of the output."""

    kernel: Kernel = param(check=instance_of(Kernel))
    variance: Scalar = param(1.0, check=positive)

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return jnp.asarray(self.variance) * self.kernel(x, y)

    def diag(self, x: ArrayLike) -> Array:
        return jnp.asarray(self.variance) * self.kernel.diag(x)

    def along_axes(self, dimension: int) -> tuple[Kernel, ...] | None:
        inner = self.kernel.along_axes(dimension)
        return None if inner is None else (Scale(kernel=inner[0], variance=self.variance), *inner[1:])


@pytree
class Sum(Kernel):
    """Sum of two kernels, ``left(x, y) + right(x, y)``."""

    left: Kernel = param(check=instance_of(Kernel))
    right: Kernel = param(check=instance_of(Kernel))

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return self.left(x, y) + self.right(x, y)

    def diag(self, x: ArrayLike) -> Array:
        return self.left.diag(x) + self.right.diag(x)


@pytree
class Product(Kernel):
    """Product of two kernels, ``left(x, y) * right(x, y)``."""

    left: Kernel = param(check=instance_of(Kernel))
    right: Kernel = param(check=instance_of(Kernel))

    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return self.left(x, y) * self.right(x, y)

    def diag(self, x: ArrayLike) -> Array:
        return self.left.diag(x) * self.right.diag(x)

    def along_axes(self, dimension: int) -> tuple[Kernel, ...] | None:
        left, right = self.left.along_axes(dimension), self.right.along_axes(dimension)
        if left is None or right is None:
            return None
        return tuple(Product(left=a, right=b) for a, b in zip(left, right, strict=True))
