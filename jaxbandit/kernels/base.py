"""The role of a kernel, and the kernels that operators make of others: scaled ones, sums and products."""

from __future__ import annotations

import abc
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxbandit.core import checks
from jaxbandit.core.declare import Declared, checked, parameters
from jaxbandit.core.fields import exactly, finite_numbers, positive, whole
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Array, PerAxis, Scalar

Axes: TypeAlias = Annotated[int, whole(1, 100_000)]  # for a kernel makes one of its own for each axis
POINTS = finite_numbers.of(exactly(None, None, words="one row per point, one column per axis"))


def on_points(method: Callable[..., Array]) -> Callable[..., Array]:
    """Return a kernel's method, called with points ``[n, d]`` or, on anything else, raising ``InvalidArgument``."""

    @functools.wraps(method)
    def checked(self: Kernel, *points: ArrayLike, **named: ArrayLike) -> Array:
        name = type(self).__name__
        if named:
            points = inspect.signature(method).bind(self, *points, **named).args[1:]
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

    Hyper-parameters are declared in their annotations, those with one number per axis with ``jaxbandit.fields.per_axis``. The package calls
    a kernel with points ``[n, d]`` of as many axes as its hyper-parameters allow; the methods of its own refuse any other.

    Attributes:
      short_name: name in audit traces; by default that of the class in lower case.
    """

    described: ClassVar[str] = "a kernel of jaxbandit.kernels, such as SquaredExponential(length_scale=0.5)"
    in_files: ClassVar[bool] = True
    short_name: ClassVar[str]
    __array_ufunc__: ClassVar[None] = None  # so that NumPy leaves the product of an array and a kernel to the kernel, which refuses it

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.short_name = vars(cls).get("short_name", cls.__name__.lower())

    @abc.abstractmethod
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        """Return the covariances ``[n, p]`` between inputs ``x [n, d]`` and ``y [p, d]``."""

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        """Return the prior variances ``[n]`` at inputs ``x [n, d]``."""
        return jax.vmap(lambda row: self(row[None, :], row[None, :])[0, 0])(jnp.asarray(x))

    @checked
    def along_axes(self, dimension: Axes) -> tuple[Kernel, ...] | None:
        """Return one-dimensional kernels, one per axis, whose product is this kernel; ``None`` when it is no such product."""
        return (self,) if dimension == 1 else None

    @checked
    def check_axes(self, dimension: Axes) -> None:
        """Raise ``InvalidArgument`` on hyper-parameters that do not fit inputs of ``dimension`` axes, those of parts included."""
        for parameter in parameters(type(self)):
            value = getattr(self, parameter.name)
            if isinstance(value, Kernel):
                value.check_axes(dimension)
            elif parameter.shape is not None:
                parameter.shape.fit_axes(f"{type(self).__name__}.{parameter.name}", value, dimension)

    def __add__(self, other: Kernel) -> Sum:
        return Sum(left=self, right=other)

    def __mul__(self, other: Kernel | float) -> Kernel:
        return Product(left=self, right=other) if isinstance(other, Kernel) else Scale(kernel=self, variance=other)

    __rmul__ = __mul__


@pytree
class Scale(Kernel):
    """Scaled kernel, ``variance * kernel(x, y)``, with ``variance > 0`` in squared units of the output."""

    kernel: Kernel
    variance: Annotated[Scalar, positive] = 1.0

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return jnp.asarray(self.variance) * self.kernel(x, y)

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return jnp.asarray(self.variance) * self.kernel.diag(x)

    @checked
    def along_axes(self, dimension: Axes) -> tuple[Kernel, ...] | None:
        inner = self.kernel.along_axes(dimension)
        return None if inner is None else (Scale(kernel=inner[0], variance=self.variance), *inner[1:])


@pytree
class Sum(Kernel):
    """Sum of two kernels, ``left(x, y) + right(x, y)``."""

    left: Kernel
    right: Kernel

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return self.left(x, y) + self.right(x, y)

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return self.left.diag(x) + self.right.diag(x)


@pytree
class Product(Kernel):
    """Product of two kernels, ``left(x, y) * right(x, y)``."""

    left: Kernel
    right: Kernel

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return self.left(x, y) * self.right(x, y)

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return self.left.diag(x) * self.right.diag(x)

    @checked
    def along_axes(self, dimension: Axes) -> tuple[Kernel, ...] | None:
        left, right = self.left.along_axes(dimension), self.right.along_axes(dimension)
        if left is None or right is None:
            return None
        return tuple(Product(left=a, right=b) for a, b in zip(left, right, strict=True))


@checked
def same(a: Kernel, b: Kernel) -> bool:
    """Return whether two kernels are equal in structure and in every hyper-parameter, so that outputs can share one factor."""
    left, structure = jax.tree.flatten(a)
    right, other = jax.tree.flatten(b)
    return hash(structure) == hash(other) and all(np.array_equal(x, y) for x, y in zip(left, right, strict=True))


def ones(x: ArrayLike) -> Array:
    """Return the prior variances ``[n]`` of a kernel that is 1 at equal points."""
    return jnp.ones(jnp.shape(x)[0], jnp.result_type(x))


def scale_per_axis(scale: PerAxis, dimension: int) -> list[PerAxis]:
    """Return the hyper-parameter of each axis, from one number for all or one per axis."""
    return [scale if isinstance(scale, float | int) or np.ndim(scale) == 0 else scale[a] for a in range(dimension)]
