"""Base class of kernels, their operators, and computations on the host."""

from __future__ import annotations

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxbandit.core import checks
from jaxbandit.core.declare import Array, Declared, Scalar, Table, checked, parameters
from jaxbandit.core.fields import Place, exactly, finite_numbers, positive, whole
from jaxbandit.core.pytree import as_argument, canonicalise, pytree

__all__ = ["Kernel", "Product", "Scale", "Sum", "check_covariance", "same"]

# The number of axes is limited, because ``along_axes`` makes a kernel for each axis.
Axes: TypeAlias = Annotated[int, whole(1, 100_000)]


def on_points(method: Callable[..., Array]) -> Callable[..., Array]:
    """Return a kernel's method with a check of its points ``[n, d]``."""
    check_points = finite_numbers.of(exactly(None, None, words="one row per point, one column per axis"))

    @functools.wraps(method)
    def checked(self: Kernel, x: ArrayLike, y: ArrayLike | None = None) -> Array:
        name, points = type(self).__name__, {"x": x} if y is None else {"x": x, "y": y}
        for letter, given in points.items():
            check_points(f"{name}: {letter}", given)
        axes = [np.shape(given)[1] for given in points.values()]
        if axes[0] != axes[-1]:
            raise checks.InvalidArgument(f"{name}: y: must have as many axes as x, {axes[0]}, got {axes[1]}")
        self.check_axes(axes[0])
        return method(self, *points.values())

    return checked


class Kernel(Declared, abc.ABC):
    """Abstract base of covariance functions.

    Subclasses are final pytree dataclasses that define ``__call__``. Annotations declare the hyper-parameters, with
    ``jaxbandit.fields.per_axis`` for one number per axis. The package calls a kernel with points ``[n, d]`` of as many axes as its
    hyper-parameters allow. The package's own kernels refuse other points.

    Attributes:
      short_name: name in audit traces; by default the class's name in lower case.
      proved: whether the formula is known to give covariances, ``class Matern52(Stationary, proved=True)``. Subclasses do not inherit it.
    """

    described: ClassVar[str] = "a kernel of jaxbandit.kernels, such as SquaredExponential(length_scale=0.5)"
    in_files: ClassVar[bool] = True
    short_name: ClassVar[str]
    proved: ClassVar[bool]
    # NumPy then leaves the product of an array and a kernel to the kernel, which refuses it.
    __array_ufunc__: ClassVar[None] = None

    def __init_subclass__(cls, *, proved: bool = False, **options: object) -> None:
        super().__init_subclass__(**options)
        cls.proved = proved
        cls.short_name = vars(cls).get("short_name", cls.__name__.lower())

    @abc.abstractmethod
    def __call__(self, x: ArrayLike, y: ArrayLike) -> Array:
        """Return covariances ``[n, p]`` of ``x [n, d]`` and ``y [p, d]``."""

    @on_points
    def diag(self, x: ArrayLike) -> Array:
        """Return the prior variances ``[n]`` at inputs ``x [n, d]``."""
        return jax.vmap(lambda row: self(row[None, :], row[None, :])[0, 0])(jnp.asarray(x))

    @checked
    def along_axes(self, dimension: Axes) -> tuple[Kernel, ...] | None:
        """Return kernels of one axis whose product is this, else ``None``."""
        return (self,) if dimension == 1 else None

    @checked
    def check_axes(self, dimension: Axes) -> None:
        """Raise ``InvalidArgument`` on hyper-parameters that do not fit ``dimension`` axes."""
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
    """Scaled kernel, ``variance * kernel(x, y)``, with ``variance > 0``."""

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
    """Abstract base of kernels that combine the values of two kernels."""

    left: Kernel
    right: Kernel

    @abc.abstractmethod
    def _joined(self, left: Array, right: Array) -> Array:
        """Return the kernel's values from the values of its parts."""

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
    """Return whether two kernels are equal in structure and hyper-parameters."""
    left, structure = jax.tree.flatten(a)
    right, other = jax.tree.flatten(b)
    return hash(structure) == hash(other) and all(np.array_equal(x, y) for x, y in zip(left, right, strict=True))


# A call of a kernel outside a program compiles a program for each of its operations. Kernels of the same structure share the programs below
# for the same number of points, with Python's or NumPy's numbers.


def covariances_with(kernel: Kernel, points: Table, point: Table) -> tuple[np.ndarray, np.ndarray]:
    """Return the covariances ``[M]`` with ``point [d]``, and the prior variances ``[M]``."""
    with jax.enable_x64(True):
        arrays = (as_argument(np.asarray(x, np.float64)) for x in (points, point[None, :]))
        column, variances = _matrix_and_diagonal(canonicalise(kernel), *arrays)
        return np.asarray(column, np.float64)[:, 0], np.asarray(variances, np.float64)


def covariance_matrices(kernels: Sequence[Kernel], x: Sequence[Table], y: Sequence[Table]) -> list[np.ndarray]:
    """Return each kernel's covariances between its points in ``x`` and ``y``."""
    with jax.enable_x64(True):
        given = [[as_argument(np.asarray(points, np.float64)) for points in side] for side in (x, y)]
        return [np.asarray(matrix, np.float64) for matrix in _covariance_program(tuple(map(canonicalise, kernels)), *given)]


@jax.jit
def _covariance_program(kernels: tuple[Kernel, ...], x: list[Array], y: list[Array]) -> list[Array]:
    return [kernel(points, others) for kernel, points, others in zip(kernels, x, y, strict=True)]


@checked
def check_covariance(
    name: str, kernel: Kernel, points: Annotated[Table, finite_numbers, exactly(None, None, words="one row per point")]
) -> None:
    """Raise ``InvalidArgument`` unless ``kernel`` gives covariances at some of ``points``.

    It calls a user's kernel in float64 at up to 100 points, and checks that its matrix is finite, symmetric and positive semi-definite.
    """
    if all(part.proved for part in [kernel, *all_parts(kernel)]):
        return
    table = np.asarray(points, np.float64)
    table = table[np.linspace(0, len(table) - 1, min(len(table), 100)).astype(int)]
    with checks.blaming(f"{name}: must give covariances [n, p] of points [n, d] and [p, d]"), jax.enable_x64(True):
        matrix, diagonal = map(np.asarray, _matrix_and_diagonal(kernel, table, table))
    size, kind = len(table), type(kernel).__name__
    for part, want in ((matrix, (size, size)), (diagonal, (size,))):
        if part.shape != want or part.dtype.kind != "f":
            words = f"must give real covariances of shape {list(want)}, got {part.dtype} {list(part.shape)}"
            raise checks.InvalidArgument(f"{name}: {kind} {words}")
    check_gram(f"{name}: the matrix of {kind}", matrix, 1e-6)
    if not np.allclose(np.diagonal(matrix), diagonal, rtol=1e-6, atol=1e-6 * float(np.abs(matrix).max())):
        raise checks.InvalidArgument(f"{name}: {kind}.diag must give the diagonal of the matrix, got {checks.short(diagonal)}")


@jax.jit
def _matrix_and_diagonal(kernel: Kernel, points: Array, others: Array) -> tuple[Array, Array]:
    return kernel(points, others), kernel.diag(points)


def unscaled(kernel: Kernel) -> tuple[Kernel, Any]:
    """Return a kernel without its scale, and its variance."""
    return (kernel.kernel, kernel.variance) if isinstance(kernel, Scale) else (kernel, 1.0)


def parts(kernel: Kernel) -> dict[str, Kernel]:
    """Return the kernels among the fields of a kernel, by name."""
    fields = dataclasses.fields(kernel)  # type: ignore[arg-type]  # every kernel is a dataclass
    return {field.name: part for field in fields if isinstance(part := getattr(kernel, field.name), Kernel)}


def all_parts(kernel: Kernel) -> list[Kernel]:
    """Return the parts of a kernel and, recursively, their parts."""
    return [inner for part in parts(kernel).values() for inner in (part, *all_parts(part))]


def check_gram(name: str, matrix: np.ndarray, tolerance: float) -> None:
    """Raise ``InvalidArgument`` unless ``matrix`` is a covariance, up to a tolerance."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.size:
        raise checks.InvalidArgument(f"{name}: expected a square [M, M] matrix, got shape {list(matrix.shape)}")
    checks.finite(name, matrix)
    scale = float(np.abs(matrix).max()) or 1.0
    skew = float(np.abs(matrix - matrix.T).max())
    if skew > tolerance * scale:
        raise checks.InvalidArgument(f"{name}: must be symmetric, got entries {skew:.3g} apart; symmetrise it with (K + K.T) / 2")
    margin = tolerance * scale * len(matrix)
    symmetric = (matrix + matrix.T) / 2
    # A factorisation is far cheaper than eigenvalues, and succeeds when they are above -margin.
    try:
        np.linalg.cholesky(symmetric + margin * np.eye(len(matrix)))
    except np.linalg.LinAlgError:
        least = float(np.linalg.eigvalsh(symmetric)[0])
        if least < -margin:
            raise checks.InvalidArgument(
                f"{name}: must be positive semi-definite, got a least eigenvalue of {least:.3g}; clip its eigenvalues at 0 first"
            ) from None
