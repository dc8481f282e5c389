"""The role of a kernel, kernels made of others by operators, and kernels on the host: covariances in float64, and checks of a user's."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxbandit.core import checks
from jaxbandit.core.declare import Array, Declared, Scalar, Table, checked, parameters
from jaxbandit.core.fields import Place, exactly, finite_numbers, positive, whole
from jaxbandit.core.pytree import as_argument, canonicalise, pytree

__all__ = ["Kernel", "Product", "Scale", "Sum", "check_covariance", "same"]

Axes: TypeAlias = Annotated[int, whole(1, 100_000)]  # for a kernel makes one of its own for each axis
LOOKED_AT = 100  # points of a domain at which a user's kernel is tried
POINTS = finite_numbers.of(exactly(None, None, words="one row per point, one column per axis"))


def on_points(method: Callable[..., Array]) -> Callable[..., Array]:
    """Return a kernel's method, called with points ``[n, d]`` or, on anything else, raising ``InvalidArgument``."""

    @functools.wraps(method)
    def checked(self: Kernel, x: ArrayLike, y: ArrayLike | None = None) -> Array:
        name, points = type(self).__name__, {"x": x} if y is None else {"x": x, "y": y}
        for letter, given in points.items():
            POINTS(f"{name}: {letter}", given)
        axes = [np.shape(given)[1] for given in points.values()]
        if axes[0] != axes[-1]:
            raise checks.InvalidArgument(f"{name}: y: must have as many axes as x, {axes[0]}, got {axes[1]}")
        self.check_axes(axes[0])
        return method(self, *points.values())

    return checked


class Kernel(Declared, abc.ABC):
    """A covariance function. Abstract; subclasses are final pytree dataclasses that define ``__call__``.

    Hyper-parameters are declared in their annotations, those with one number per axis with ``jaxbandit.fields.per_axis``. The package calls
    a kernel with points ``[n, d]`` of as many axes as its hyper-parameters allow; the methods of its own refuse any other.

    Attributes:
      short_name: name in audit traces; by default that of the class in lower case.
      proved: whether its formula is known to give covariances, ``class Matern52(Stationary, proved=True)``; no subclass inherits it.
    """

    described: ClassVar[str] = "a kernel of jaxbandit.kernels, such as SquaredExponential(length_scale=0.5)"
    in_files: ClassVar[bool] = True
    short_name: ClassVar[str]
    proved: ClassVar[bool]
    __array_ufunc__: ClassVar[None] = None  # so that NumPy leaves the product of an array and a kernel to the kernel, which refuses it

    def __init_subclass__(cls, *, proved: bool = False, **options: object) -> None:
        super().__init_subclass__(**options)
        cls.proved = proved
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
                parameter.shape.check(f"{type(self).__name__}.{parameter.name}", value, Place(axes=dimension))

    def __add__(self, other: Kernel) -> Sum:
        return Sum(left=self, right=other)

    def __mul__(self, other: Kernel | float) -> Kernel:
        return Product(left=self, right=other) if isinstance(other, Kernel) else Scale(kernel=self, variance=other)

    __rmul__ = __mul__


@pytree
class Scale(Kernel, proved=True):
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
class Pair(Kernel):
    """Abstract base of kernels made of two by an operation on their values."""

    left: Kernel
    right: Kernel

    @abc.abstractmethod
    def _joined(self, left: Array, right: Array) -> Array:
        """Return the values of the kernel, from those of its parts."""

    @on_points
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        return self._joined(self.left(x, y), self.right(x, y))

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        return self._joined(self.left.diag(x), self.right.diag(x))


@pytree
class Sum(Pair, proved=True):
    """Sum of two kernels, ``left(x, y) + right(x, y)``."""

    def _joined(self, left: Array, right: Array) -> Array:
        return left + right


@pytree
class Product(Pair, proved=True):
    """Product of two kernels, ``left(x, y) * right(x, y)``."""

    def _joined(self, left: Array, right: Array) -> Array:
        return left * right

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


# Called by itself a kernel compiles one program for each of its operations. Kernels of one structure share the programs below on equally
# many points, whether their numbers are Python's or NumPy's.


def covariances_with(kernel: Kernel, points: Table, point: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the covariances ``[M]`` of ``points [M, d]`` with one ``point [d]``, and the prior variances ``[M]``."""
    with jax.enable_x64(True):
        column, variances = _evaluated(canonicalise(kernel), *(as_argument(np.asarray(x, np.float64)) for x in (points, point[None, :])))
        return np.asarray(column, np.float64)[:, 0], np.asarray(variances, np.float64)


def covariances(kernels: Sequence[Kernel], x: Sequence[Table], y: Sequence[Table]) -> list[np.ndarray]:
    """Return for each of ``kernels`` the covariances ``[n, p]`` of its own points, ``[n, d]`` of ``x`` and ``[p, d]`` of ``y``."""
    with jax.enable_x64(True):
        given = [[as_argument(np.asarray(points, np.float64)) for points in side] for side in (x, y)]
        return [np.asarray(matrix, np.float64) for matrix in _covariances(tuple(map(canonicalise, kernels)), *given)]


@jax.jit
def _covariances(kernels: tuple[Kernel, ...], x: list[Array], y: list[Array]) -> list[Array]:
    return [kernel(points, others) for kernel, points, others in zip(kernels, x, y, strict=True)]


@checked
def check_covariance(
    name: str, kernel: Kernel, points: Annotated[Table, finite_numbers, exactly(None, None, words="one row per point")]
) -> None:
    """Raise ``InvalidArgument`` unless ``kernel`` gives covariances: finite, symmetric and positive semi-definite at some of ``points``.

    The package's own kernels are ``proved``; those that a user has written are called, in float64.
    """
    if all(part.proved for part in [kernel, *all_parts(kernel)]):
        return
    table = np.asarray(points, np.float64)
    table = table[np.linspace(0, len(table) - 1, min(len(table), LOOKED_AT)).astype(int)]
    with checks.blaming(f"{name}: must give covariances [n, p] of points [n, d] and [p, d]"), jax.enable_x64(True):
        matrix, diagonal = map(np.asarray, _evaluated(kernel, table, table))
    size, kind = len(table), type(kernel).__name__
    for part, want in ((matrix, (size, size)), (diagonal, (size,))):
        if part.shape != want or part.dtype.kind != "f":
            words = f"must give real covariances of shape {list(want)}, got {part.dtype} {list(part.shape)}"
            raise checks.InvalidArgument(f"{name}: {kind} {words}")
    check_gram(f"{name}: the matrix of {kind}", matrix, 1e-6)
    if not np.allclose(np.diagonal(matrix), diagonal, rtol=1e-6, atol=1e-6 * float(np.abs(matrix).max())):
        raise checks.InvalidArgument(f"{name}: {kind}.diag must give the diagonal of the matrix, got {checks.short(diagonal)}")


@jax.jit  # not operation by operation
def _evaluated(kernel: Kernel, points: Array, others: Array) -> tuple[Array, Array]:
    return kernel(points, others), kernel.diag(points)


def parts(kernel: Kernel) -> dict[str, Kernel]:
    """Return the kernels among the fields of a kernel, by name."""
    fields = dataclasses.fields(kernel)  # type: ignore[arg-type]  # every kernel is a dataclass
    return {field.name: part for field in fields if isinstance(part := getattr(kernel, field.name), Kernel)}


def all_parts(kernel: Kernel) -> list[Kernel]:
    """Return the kernels that a kernel is made of, their own parts included."""
    return [inner for part in parts(kernel).values() for inner in (part, *all_parts(part))]


def check_gram(name: str, matrix: np.ndarray, tolerance: float) -> None:
    """Raise ``InvalidArgument`` unless ``matrix`` is finite, symmetric and positive semi-definite, up to a share of its largest entry."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise checks.InvalidArgument(f"{name}: expected a square [M, M] matrix, got shape {list(matrix.shape)}")
    checks.finite(name, matrix)
    scale = float(np.abs(matrix).max()) or 1.0
    skew = float(np.abs(matrix - matrix.T).max())
    if skew > tolerance * scale:
        raise checks.InvalidArgument(f"{name}: must be symmetric, got entries {skew:.3g} apart; symmetrise it with (K + K.T) / 2")
    margin = tolerance * scale * len(matrix)
    symmetric = (matrix + matrix.T) / 2
    try:  # far cheaper than eigenvalues, and it succeeds when they are above -margin
        np.linalg.cholesky(symmetric + margin * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        least = float(np.linalg.eigvalsh(symmetric)[0])
        if least < -margin:
            raise checks.InvalidArgument(
                f"{name}: must be positive semi-definite, got a least eigenvalue of {least:.3g}; clip its eigenvalues at 0 first"
            ) from None
