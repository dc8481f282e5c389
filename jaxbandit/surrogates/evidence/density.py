"""Log evidence of noisy values under a GP with prior mean 0, repeated points collapsed, differentiable twice in closed form.

Nothing in it is LAPACK's, whose factorisations of a batch of matrices inside a compiled loop can wait for each other for ever on CPU;
products of matrices and element-wise sums cannot.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxbandit.core import checks
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import Described, Place, exactly, finite_numbers, nonnegative_numbers, positive, vector
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Array, Scalar, Table
from jaxbandit.kernels import Kernel

WHOLE = 56  # rows up to which all are eliminated at once, in place: two such matrices of float64 fit into the fastest cache of a core
BLOCK, LARGE_BLOCK = 16, 32  # rows that are eliminated at once of more; measured on CPU, the larger one from LARGE rows on
LARGE = 400
POINTS = finite_numbers.of(exactly(None, None, words="one row per point"))


@pytree
class Collapsed(Described):
    """Values of ``k`` outputs at distinct points, all that the evidence depends on; padding has a count of 0.

    ``c`` values at one point under noise ``s`` are as good as their mean under ``s / c`` and their spread about it, so a history of any
    length takes no more points than the domain has.
    """

    described: ClassVar[str] = "values at distinct points, Collapsed(points=..., counts=..., means=..., within=...)"
    points: Table  # [n, d]
    counts: Table  # [n] number of values at each point, 0 where there are none
    means: Table  # [k, n] mean of these values, any finite number where there are none
    within: Table  # [k] sum of the squared deviations of values from the mean of their point

    def __post_init__(self) -> None:
        POINTS("Collapsed.points", self.points)
        count = np.shape(self.points)[0]
        nonnegative_numbers("Collapsed.counts", self.counts, Place(exactly(count, words="one for each point")))
        finite_numbers("Collapsed.means", self.means, Place(exactly(None, count, words="outputs and points")))
        nonnegative_numbers("Collapsed.within", self.within, Place(exactly(np.shape(self.means)[0], words="one for each output")))

    def padded(self, size: int) -> Collapsed:
        """Return the same data with rows for ``size`` points, on the host."""
        missing = size - len(self.counts)
        return Collapsed(
            points=np.pad(self.points, ((0, missing), (0, 0))),
            counts=np.pad(self.counts, (0, missing)),
            means=np.pad(self.means, ((0, 0), (0, missing))),
            within=self.within,
        )

    def log_evidence(self, kernel: Kernel, noise_variance: Scalar) -> Array:
        """Return the log density ``[k]`` of the values of each output under ``N(0, K + noise_variance I)``.

        With ``D = diag(counts)``, ``B = I + D^(1/2) K D^(1/2) / s`` and ``z = D^(1/2) means`` it is
        ``-(z^T B^-1 z + within) / (2 s) - (log det B) / 2 - N log(2 pi s) / 2`` (Rasmussen and Williams 2006, eq. 2.30 and 3.27).
        """
        points, means = jnp.asarray(self.points), jnp.asarray(self.means)
        counts, noise = jnp.asarray(self.counts, means.dtype), jnp.asarray(noise_variance, means.dtype)
        roots = jnp.sqrt(counts)
        matrix = jnp.eye(len(roots), dtype=means.dtype) + _covariances(kernel, points) * (roots[:, None] * roots[None] / noise)
        white = roots[None] * means / jnp.sqrt(noise)
        total = jnp.sum(counts)
        rest = -0.5 * self.within / noise - 0.5 * total * (jnp.log(noise) + math.log(2 * math.pi))
        return _log_density(matrix, white) + rest

    def expansion(self, model: Callable[[Array], tuple[Kernel, Array]], place: Array) -> tuple[Array, Array, Array]:
        """Return the log evidence ``[]`` of all outputs under ``model(place)``, its gradient ``[P]`` and Fisher's information ``[P, P]``.

        The information is ``tr(V^-1 dV_i V^-1 dV_j) / 2`` for each output, ``V`` the covariance of its values. Derivatives of the
        covariances are taken forwards: backwards, sums over pairs of points keep a compiler from computing several exponentials at once.
        """
        points, means = jnp.asarray(self.points), jnp.asarray(self.means)
        counts, (outputs, size) = jnp.asarray(self.counts, means.dtype), means.shape

        def parts(at: Array) -> tuple[Array, Array]:
            kernel, noise = model(at)
            return _covariances(kernel, points), jnp.log(jnp.asarray(noise, means.dtype))

        (covariances, log_noise), along = jax.linearize(parts, place)
        changes, noises = jax.vmap(along)(jnp.eye(len(place), dtype=place.dtype))
        roots, noise, total = jnp.sqrt(counts), jnp.exp(log_noise), jnp.sum(counts)
        scale = roots[:, None] * roots[None] / noise
        excess = scale * covariances  # B - I
        changes = (scale[None] * changes - noises[:, None, None] * excess[None]).reshape(len(place), -1)  # dB
        inverted, logdet = inverse(jnp.eye(size, dtype=means.dtype) + excess)
        white = roots[None] * means / jnp.sqrt(noise)
        solved = jnp.matmul(white, inverted, precision="highest")
        rest = white - solved - jnp.matmul(solved, excess, precision="highest")  # rounding, which counts where many values meet
        fit, spread = jnp.sum(solved * (white + rest)), jnp.sum(jnp.asarray(self.within)) / noise
        value = -0.5 * (fit + spread + outputs * (logdet + total * (log_noise + math.log(2 * math.pi))))
        solved += jnp.matmul(rest, inverted, precision="highest")
        slopes = 0.5 * (jnp.matmul(solved.T, solved, precision="highest") - outputs * inverted)
        gradient = jnp.matmul(changes, slopes.reshape(-1), precision="highest") + 0.5 * (fit + spread - outputs * total) * noises
        # V^-1 dV is B^-1 dB + dlog(noise) between the points, and dlog(noise) within them.
        along_all = jnp.matmul(changes.reshape(-1, size), inverted, precision="highest").reshape(len(place), size, size)
        along_all = along_all + noises[:, None, None] * jnp.eye(size, dtype=means.dtype)[None]
        both = jnp.matmul(along_all.reshape(len(place), -1), along_all.transpose(0, 2, 1).reshape(len(place), -1).T, precision="highest")
        return value, gradient, 0.5 * outputs * (both + (total - size) * noises[:, None] * noises[None])


def _covariances(kernel: Kernel, points: Array) -> Array:
    """Return the covariances ``[n, n]`` of ``points [n, d]``: axis by axis where the kernel is a product, which is far faster on CPU.

    A sum over the axes of points inside a loop over pairs keeps a compiler from computing several exponentials at once.
    """
    parts = kernel.along_axes(points.shape[1])
    if parts is None:
        return kernel(points, points)
    along = [part(points[:, [axis]], points[:, [axis]]) for axis, part in enumerate(parts)]
    return functools.reduce(jnp.multiply, along)


@jax.custom_jvp
def _log_density(matrix: Array, values: Array) -> Array:
    """Return ``-(values B^-1 values + log det B) / 2`` as ``[k]`` for ``values [k, n]`` and ``B [n, n]``."""
    inverted, logdet = inverse(matrix)
    return -0.5 * (jnp.sum(jnp.matmul(values, inverted, precision="highest") * values, axis=1) + logdet)


@_log_density.defjvp
def _(primals: Any, tangents: Any) -> Any:
    """Return ``-(tr(B^-1 dB) - a^T dB a) / 2 - a^T dy``, where ``a = B^-1 y`` (Rasmussen and Williams 2006, eq. 5.9)."""
    (matrix, values), (change, moved) = primals, tangents
    inverted, logdet = inverse(matrix)
    solved = jnp.matmul(values, inverted, precision="highest")
    density = -0.5 * (jnp.sum(solved * values, axis=1) + logdet)
    slopes = 0.5 * (solved[:, :, None] * solved[:, None, :] - inverted[None])
    return density, jnp.sum(slopes * change[None], axis=(1, 2)) - jnp.sum(solved * moved, axis=1)


def collapse(points: np.ndarray, values: np.ndarray) -> Collapsed:
    """Return ``values [n, k]`` at ``points [n, d]`` with equal points collapsed, on the host."""
    distinct, owners, counts = np.unique(points, axis=0, return_inverse=True, return_counts=True)
    owners = owners.reshape(-1)
    means = np.stack([np.bincount(owners, weights=column, minlength=len(distinct)) for column in values.T]) / counts
    return Collapsed(points=distinct, counts=counts, means=means, within=np.sum(np.square(values.T - means[:, owners]), axis=1))


@checked
def log_evidence(
    kernel: Kernel,
    points: Annotated[ArrayLike, POINTS],
    values: Annotated[ArrayLike, finite_numbers, vector("one value per point")],
    noise_variance: Annotated[Scalar, positive],
) -> Array:
    """Return the log density ``[]`` of ``values [n]`` at ``points [n, d]`` under ``N(0, K + noise_variance I)``; differentiable.

    It may be called in ``jax.vmap`` and in loops. Rasmussen and Williams (2006), eq. 2.30.
    """
    checks.shape("values", values, (np.shape(points)[0],), remedy="one value per point")
    means = jnp.asarray(values)[None]
    data = Collapsed(points=jnp.asarray(points), counts=jnp.ones_like(means[0]), means=means, within=jnp.zeros_like(means[:, 0]))
    return data.log_evidence(kernel, noise_variance)[0]


@jax.custom_jvp
def inverse(matrix: Array) -> tuple[Array, Array]:
    """Return ``B^-1 [n, n]`` and ``log det B []`` of a symmetric ``B [n, n]`` whose eigenvalues are at least 1.

    Cholesky's factorisation ``B = L L^T``, a block of rows at a time, which eliminates ``[B, I]`` to ``[L^T, L^-1]``; then
    ``B^-1 = L^-T L^-1``. Both halves share one array, for a column of ``L^-1`` begins where that of ``B`` ends. No pivot of such a matrix
    is below 1: rounding alone makes one smaller, and it is set to 1, or to what rounding leaves of its entry, which keeps float32
    usable down to noise variances of 1e-6 of the kernel's.
    """
    size = matrix.shape[0]
    blocks = 1 if size <= WHOLE else -(-size // (BLOCK if size < LARGE else LARGE_BLOCK))
    block = -(-size // blocks)  # as equal as can be, so that little is padded
    padded = blocks * block
    rows = jnp.arange(padded)
    start = jnp.pad(matrix, (0, padded - size)) + jnp.diag((rows >= size).astype(matrix.dtype)) if padded > size else matrix

    floors = jnp.maximum(1, size * float(np.finfo(matrix.dtype).eps) * jnp.diagonal(start))

    def eliminate(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        both, logdet = carry
        first = number * block
        own_floors = jax.lax.dynamic_slice(floors, (first,), (block,))
        panel, part = _eliminated(jax.lax.dynamic_slice(both, (first, 0), (block, padded)), first, own_floors)
        own, after = (rows >= first) & (rows < first + block), rows >= first + block
        below = jnp.where(after[None], panel, 0)  # L^T of the rows that follow
        reduced = jnp.where(own[None] & (rows[None] > (first + jnp.arange(block))[:, None]), 0, panel)
        both = jnp.where(after[:, None] & own[None], 0, both) - jnp.matmul(below.T, reduced, precision="highest")
        return jax.lax.dynamic_update_slice(both, panel, (first, 0)), logdet + part

    if blocks == 1:
        both, logdet = _eliminated(start, 0, floors)
    else:
        both, logdet = jax.lax.fori_loop(0, blocks, eliminate, (start, jnp.zeros((), matrix.dtype)))
    root = jnp.tril(both[:size, :size])
    return jnp.matmul(root.T, root, precision="highest"), logdet


@inverse.defjvp
def _(primals: Any, tangents: Any) -> Any:
    (matrix,), (change,) = primals, tangents
    inverted, logdet = inverse(matrix)
    turned = -jnp.matmul(jnp.matmul(inverted, change, precision="highest"), inverted, precision="highest")
    return (inverted, logdet), (turned, jnp.sum(inverted * change))


def _eliminated(rows: Array, first: Scalar, floors: Array) -> tuple[Array, Array]:
    """Return ``L^T`` and ``L^-1`` in the place of ``rows [b, p]``, and ``log det(L L^T)``.

    From column ``first`` on ``rows`` are ``L L^T [b, b]`` and what follows it, and then ``L^T``; up to each row's diagonal they are then
    ``L^-1``, times what stands before column ``first``. Pivots below ``floors [b]`` are set to them.
    """
    size, width = rows.shape
    numbers, columns = jnp.arange(size), jnp.arange(width)

    def eliminate(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rows, logdet = carry
        row, own = rows[number], columns == first + number
        column = jax.lax.dynamic_slice(row, (first,), (size,))  # by symmetry
        pivot = jnp.maximum(column[number], floors[number])
        after, unit = jnp.where(numbers > number, column / pivot, 0), jnp.where(own, 1, row)
        left = jnp.where(own[None] & (numbers > number)[:, None], 0, rows) - after[:, None] * unit[None]
        return jnp.where((numbers == number)[:, None], (unit / jnp.sqrt(pivot))[None], left), logdet + jnp.log(pivot)

    done: tuple[Array, Array] = jax.lax.fori_loop(0, size, eliminate, (rows, jnp.zeros((), rows.dtype)))
    return done


def inverse_diagonal(matrix: Array) -> Array:
    """Return the diagonal ``[b]`` of the inverse of a symmetric matrix with a diagonal of ones; NaN where it is not positive definite."""
    floor = float(np.finfo(matrix.dtype).eps) * matrix.shape[0]
    root = jnp.tril(_eliminated(matrix, 0, jnp.full(matrix.shape[0], floor, matrix.dtype))[0])
    definite = jnp.all(jnp.diagonal(root) < 1 / math.sqrt(2 * floor))
    return jnp.where(definite, jnp.sum(root * root, axis=0), jnp.nan)
