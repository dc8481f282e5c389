"""Log evidence of values under a GP, and prior densities of hyper-parameters.

The GP has prior mean 0. The module does not use LAPACK, because LAPACK's factorisations of a batch of matrices inside a compiled loop can
block each other forever on a CPU.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxbandit.core import checks
from jaxbandit.core.declare import Array, Declared, PerAxis, Scalar, Table, checked, parameters
from jaxbandit.core.fields import exactly, finite_numbers, positive, vector
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.kernels import Categorical, Kernel, Linear, OnAxes, Periodic
from jaxbandit.surrogates.precision import in_step

NOISE = "noise_variance"
rows_of_points = finite_numbers.of(exactly(None, None, words="one row per point"))


@pytree
class Collapsed:
    """Values of ``k`` outputs at ``n`` distinct points, as means and counts.

    The mean of ``c`` values with noise variance ``s`` has noise variance ``s / c``. Padding has count 0 and any finite mean. ``within`` is
    the sum of squared deviations from the points' means, and ``constant`` the prior variance of a constant added to each output.
    """

    points: Table  # [n, d]
    counts: Table  # [n]
    means: Table  # [k, n]
    within: Table  # [k]
    constant: Scalar = 0.0

    def padded(self, size: int) -> Collapsed:
        """Return the same data, padded to ``size`` points, on the host."""
        more = (0, size - len(self.counts))
        points, means = np.pad(self.points, (more, (0, 0))), np.pad(self.means, ((0, 0), more))
        return replace(self, points=points, counts=np.pad(self.counts, more), means=means)

    def log_evidence(self, kernel: Kernel, noise_variance: Scalar) -> Array:
        """Return the log density ``[k]`` of each output's values.

        Their distribution is ``N(0, K + s I)`` with the noise variance ``s``. With ``D = diag(counts)``,
        ``B = I + D^(1/2) K D^(1/2) / s`` and ``z = D^(1/2) means`` the log density is
        ``-(z^T B^-1 z + within) / (2 s) - (log det B) / 2 - N log(2 pi s) / 2`` (Rasmussen and Williams 2006, eq. 2.30 and 3.27).
        """
        points, means = jnp.asarray(self.points), jnp.asarray(self.means)
        counts, noise = jnp.asarray(self.counts, means.dtype), jnp.asarray(noise_variance, means.dtype)
        roots = jnp.sqrt(counts)
        covariances = _covariances(kernel, points) + self.constant
        matrix = jnp.eye(len(roots), dtype=means.dtype) + covariances * (roots[:, None] * roots[None] / noise)
        white = roots[None] * means / jnp.sqrt(noise)
        inverted, logdet = inverse(matrix)
        fit = -0.5 * (jnp.sum(jnp.matmul(white, inverted, precision="highest") * white, axis=1) + logdet)
        return fit + (-0.5 * self.within / noise - 0.5 * jnp.sum(counts) * (jnp.log(noise) + math.log(2 * math.pi)))

    def expansion(
        self, model: Callable[[Array], tuple[Kernel, Array]], place: Array, informed: Array | bool = True
    ) -> tuple[Array, Array, Array]:
        """Return log evidence ``[]``, gradient ``[P]`` and Fisher information under ``model(place)``.

        The information ``[P, P]`` is the sum over outputs of ``tr(V^-1 dV_i V^-1 dV_j) / 2``, where ``V`` is the covariance of the values.
        It costs more than everything else, and is 0 unless ``informed []``. Derivatives of the covariances are taken in forward mode,
        because in reverse mode sums over pairs of points keep a compiler from vectorising the exponentials.
        """
        points, means = jnp.asarray(self.points), jnp.asarray(self.means)
        counts, (outputs, size) = jnp.asarray(self.counts, means.dtype), means.shape

        def parts(at: Array) -> tuple[Array, Array]:
            kernel, noise = model(at)
            return _covariances(kernel, points) + self.constant, jnp.log(jnp.asarray(noise, means.dtype))

        (covariances, log_noise), along = jax.linearize(parts, place)
        changes, noises = jax.vmap(along)(jnp.eye(len(place), dtype=place.dtype))
        roots, noise, total = jnp.sqrt(counts), jnp.exp(log_noise), jnp.sum(counts)
        scale = roots[:, None] * roots[None] / noise
        excess = scale * covariances
        changes = (scale[None] * changes - noises[:, None, None] * excess[None]).reshape(len(place), -1)
        inverted, logdet = inverse(jnp.eye(size, dtype=means.dtype) + excess)
        white = roots[None] * means / jnp.sqrt(noise)
        solved = jnp.matmul(white, inverted, precision="highest")
        # This residual corrects rounding errors, which are large for many values at a point.
        rest = white - solved - jnp.matmul(solved, excess, precision="highest")
        fit, spread = jnp.sum(solved * (white + rest)), jnp.sum(jnp.asarray(self.within)) / noise
        value = -0.5 * (fit + spread + outputs * (logdet + total * (log_noise + math.log(2 * math.pi))))
        solved += jnp.matmul(rest, inverted, precision="highest")
        slopes = 0.5 * (jnp.matmul(solved.T, solved, precision="highest") - outputs * inverted)
        gradient = jnp.matmul(changes, slopes.reshape(-1), precision="highest") + 0.5 * (fit + spread - outputs * total) * noises

        def informing() -> Array:
            # V^-1 dV is B^-1 dB + dlog(noise) between the points, and dlog(noise) within them.
            along_all = jnp.matmul(changes.reshape(-1, size), inverted, precision="highest").reshape(len(place), size, size)
            along_all = along_all + noises[:, None, None] * jnp.eye(size, dtype=means.dtype)[None]
            turned = along_all.transpose(0, 2, 1).reshape(len(place), -1)
            both = jnp.matmul(along_all.reshape(len(place), -1), turned.T, precision="highest")
            return 0.5 * outputs * (both + (total - size) * noises[:, None] * noises[None])

        if informed is True:
            return value, gradient, informing()
        return value, gradient, jax.lax.cond(informed, informing, lambda: jnp.zeros((len(place), len(place)), means.dtype))


def _covariances(kernel: Kernel, points: Array) -> Array:
    # Products are computed axis by axis, because a sum over axes inside a loop over pairs keeps CPUs from vectorising exponentials.
    parts = kernel.along_axes(points.shape[1])
    if parts is None:
        return kernel(points, points)
    return functools.reduce(jnp.multiply, [part(points[:, [axis]], points[:, [axis]]) for axis, part in enumerate(parts)])


def collapse(points: np.ndarray, values: np.ndarray) -> Collapsed:
    """Return ``values [n, k]`` with equal ``points`` collapsed, on the host."""
    distinct, owners, counts = np.unique(points, axis=0, return_inverse=True, return_counts=True)
    owners = owners.reshape(-1)
    means = np.stack([np.bincount(owners, weights=column, minlength=len(distinct)) for column in values.T]) / counts
    return Collapsed(points=distinct, counts=counts, means=means, within=np.sum(np.square(values.T - means[:, owners]), axis=1))


@checked
def log_evidence(
    kernel: Kernel,
    points: Annotated[ArrayLike, rows_of_points],
    values: Annotated[ArrayLike, finite_numbers, vector("one value per point")],
    noise_variance: Annotated[Scalar, positive],
) -> Array:
    """Return the log density ``[]`` of values under a GP with noise.

    The distribution of ``values [n]`` at ``points [n, d]`` is ``N(0, K + noise_variance I)`` (Rasmussen and Williams 2006, eq. 2.30). The
    function is differentiable, and may be called in ``jax.vmap`` and in loops.
    """
    checks.shape("values", values, (np.shape(points)[0],), remedy="one value per point")
    means = jnp.asarray(values)[None]
    data = Collapsed(points=jnp.asarray(points), counts=jnp.ones_like(means[0]), means=means, within=jnp.zeros_like(means[:, 0]))
    return data.log_evidence(kernel, noise_variance)[0]


def inverse_root(matrix: Array, *, count: Array | None = None) -> tuple[Array, Array]:
    """Return ``L^-1`` and ``log det B []`` of ``B = L L^T``.

    The matrix ``B [n, n]`` is symmetric with eigenvalues of at least 1. A block of rows at a time, Cholesky's factorisation eliminates
    ``[B, I]`` to ``[L^T, L^-1]`` in one array. No exact pivot is below 1, so smaller pivots are set to 1, or to the rounding error of their
    entry. Elimination stops at row ``count []``, if later rows are those of the identity; their number changes no bit.
    """
    size, is_padded = matrix.shape[0], count is not None
    # Matrices up to 56 rows are eliminated in one block, because two of them in float64 fit into the fastest cache of a core. Larger
    # matrices have blocks of 16 rows, from 400 rows on of 32 rows, the fastest sizes measured on a CPU.
    blocks = 1 if size <= 56 and not is_padded else -(-size // (16 if size < 400 or is_padded else 32))
    block = 16 if is_padded else -(-size // blocks)
    padded = blocks * block
    rows = jnp.arange(padded)
    start = jnp.pad(matrix, (0, padded - size)) + jnp.diag((rows >= size).astype(matrix.dtype)) if padded > size else matrix

    # The rounding error of 128 rows gives the floor under the pivots of a padded matrix.
    floors = jnp.maximum(1, (128 if is_padded else size) * float(np.finfo(matrix.dtype).eps) * jnp.diagonal(start))

    def eliminate(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        both, logdet = carry
        first = number * block
        own_floors = jax.lax.dynamic_slice(floors, (first,), (block,))
        panel, part = _eliminated(jax.lax.dynamic_slice(both, (first, 0), (block, padded)), first, own_floors)
        own, after = (rows >= first) & (rows < first + block), rows >= first + block
        below = jnp.where(after[None], panel, 0)
        reduced = jnp.where(own[None] & (rows[None] > (first + jnp.arange(block))[:, None]), 0, panel)
        both = jnp.where(after[:, None] & own[None], 0, both) - jnp.matmul(below.T, reduced, precision="highest")
        return jax.lax.dynamic_update_slice(both, panel, (first, 0)), logdet + part

    if blocks == 1:
        both, logdet = _eliminated(start, 0, floors)
    else:
        used = blocks if count is None else -(-in_step(count).astype(rows.dtype) // block)
        both, logdet = jax.lax.fori_loop(0, used, eliminate, (start, jnp.zeros((), matrix.dtype)))
    return jnp.tril(both[:size, :size]), logdet


@jax.custom_jvp
def inverse(matrix: Array) -> tuple[Array, Array]:
    """Return ``B^-1`` and ``log det B []`` as in :func:`inverse_root`."""
    root, logdet = inverse_root(matrix)
    return jnp.matmul(root.T, root, precision="highest"), logdet


@inverse.defjvp
def _inverse_derivative(primals: Any, tangents: Any) -> Any:
    (matrix,), (change,) = primals, tangents
    inverted, logdet = inverse(matrix)
    turned = -jnp.matmul(jnp.matmul(inverted, change, precision="highest"), inverted, precision="highest")
    return (inverted, logdet), (turned, jnp.sum(inverted * change))


def _eliminated(rows: Array, first: Scalar, floors: Array) -> tuple[Array, Array]:
    # The rows [b, p] have L L^T [b, b] from column first on. They become L^T there, with L^-1 up to each row's diagonal, and L^-1 times the
    # rows in the columns before first. The second result is log det(L L^T). Pivots below floors [b] are set to the floors.
    size, width = rows.shape
    numbers, columns = jnp.arange(size), jnp.arange(width)

    def eliminate(number: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        rows, logdet = carry
        row, own = rows[number], columns == first + number
        column = jax.lax.dynamic_slice(row, (first,), (size,))
        pivot = jnp.maximum(column[number], floors[number])
        after, unit = jnp.where(numbers > number, column / pivot, 0), jnp.where(own, 1, row)
        left = jnp.where(own[None] & (numbers > number)[:, None], 0, rows) - after[:, None] * unit[None]
        return jnp.where((numbers == number)[:, None], (unit / jnp.sqrt(pivot))[None], left), logdet + jnp.log(pivot)

    return jax.lax.fori_loop(0, size, eliminate, (rows, jnp.zeros((), rows.dtype)))


def inverse_diagonal(matrix: Array) -> Array:
    """Return the inverse's diagonal of a correlation matrix, NaN unless positive definite."""
    floor = float(np.finfo(matrix.dtype).eps) * matrix.shape[0]
    root = jnp.tril(_eliminated(matrix, 0, jnp.full(matrix.shape[0], floor, matrix.dtype))[0])
    definite = jnp.all(jnp.diagonal(root) < 1 / math.sqrt(2 * floor))
    return jnp.where(definite, jnp.sum(root * root, axis=0), jnp.nan)


@pytree
class LogNormal(Declared):
    """Log-normal distribution with a ``median``, and ``spread`` of the logarithm.

    Attributes:
      median: median of each number.
      spread: standard deviation of each number's logarithm; several numbers, such as the length-scales of all axes, are independent.
      apart: standard deviation of the logarithms of several numbers about a shared number, and ``spread`` is the deviation of the shared
        number. Axes are then alike unless the data contradict. Default ``None``: no shared number.
    """

    in_files: ClassVar[bool] = True
    median: Annotated[Scalar, positive] = 1.0
    spread: Annotated[Scalar, positive] = 1.0
    apart: Annotated[Scalar, positive] | None = None

    def log_density(self, value: Table, unit: Table) -> Array:
        """Return the log density ``[]`` of ``log(value)``, the median in ``unit``."""
        away = jnp.log(jnp.asarray(value)) - jnp.log(self.median * jnp.asarray(unit))
        if self.apart is None or away.ndim == 0:
            return -0.5 * jnp.sum(jnp.square(away / self.spread))
        # The mean of c + e_i is independent of the rest; its variance is that of c and of the mean of e_i.
        mean, variance = jnp.mean(away), jnp.square(self.spread) + jnp.square(self.apart) / away.size
        return -0.5 * (jnp.sum(jnp.square((away - mean) / self.apart)) + jnp.square(mean) / variance)


@pytree
class Prior(Declared):
    """Prior of the logarithms of a kernel's hyper-parameters and the noise variance.

    Length-scales have medians in units of ``extent sqrt(d)``, the diagonal of a box, because distances grow with it (Hvarfner, Hellsten
    and Nardi 2024, *Vanilla Bayesian optimization performs great in high dimensions*, sec. 5.1). Variances of the kernel and of the noise
    have medians in units of ``scale``. Other hyper-parameters, such as a period, have a flat prior, and so have the length-scales of
    periodic and linear kernels, because they are no distances.

    Attributes:
      length_scale: prior of length-scales; ``None`` is a flat prior of the logarithm here and in the next two.
      variance: prior of the kernel's variances.
      noise_variance: prior of the noise variance.
      extent: sides of the inputs' box in units of the inputs, one number or ``[d]``; default the range of the points.
      scale: variance of the values, in their units squared; default their mean square.
    """

    in_files: ClassVar[bool] = True
    length_scale: LogNormal | None = LogNormal(median=math.exp(math.sqrt(2.0)), spread=math.sqrt(3.0))
    variance: LogNormal | None = LogNormal(median=1.0, spread=1.5)
    noise_variance: LogNormal | None = LogNormal(median=math.exp(-4.0), spread=1.5)
    extent: Annotated[PerAxis, positive] | None = None
    scale: Annotated[Scalar, positive] | None = None

    def units(self, data: Collapsed) -> tuple[Array, Array]:
        """Return ``extent [d]`` and ``scale []``, by default computed from ``data``."""
        points, means = jnp.asarray(data.points), jnp.asarray(data.means)
        counts = jnp.asarray(data.counts, means.dtype)
        present = counts > 0
        if self.extent is None:
            high = jnp.max(jnp.where(present[:, None], points, -jnp.inf), axis=0)
            low = jnp.min(jnp.where(present[:, None], points, jnp.inf), axis=0)
            # An axis without variation has no information on its length-scale.
            extent = jnp.where(high > low, high - low, 1)
        else:
            extent = jnp.broadcast_to(jnp.asarray(self.extent, points.dtype), points.shape[1:])
        if self.scale is None:
            square = jnp.sum(jnp.where(present[None], counts[None] * jnp.square(means), 0)) + jnp.sum(jnp.asarray(data.within))
            scale = jnp.where(square > 0, square / jnp.maximum(jnp.sum(counts) * len(means), 1), 1)
        else:
            scale = jnp.asarray(self.scale, means.dtype)
        return extent, scale

    def log_density(self, kernel: Kernel, noise_variance: Array, extent: Array, scale: Array) -> Array:
        """Return the log density ``[]`` of hyper-parameters up to a constant."""
        density = jnp.zeros((), extent.dtype)
        everything = tuple(range(len(extent)))
        for owner, name, value, axes in hyper_parameters(kernel, everything):
            diagonal = (extent if axes == everything else extent[np.asarray(axes)]) * math.sqrt(len(axes))
            if name == "length_scale" and self.length_scale is not None and not isinstance(owner, Periodic | Linear | Categorical):
                # A single length-scale has the geometric mean of the axes' units.
                shared = jnp.exp(jnp.mean(jnp.log(diagonal)))
                density += self.length_scale.log_density(value, diagonal if np.ndim(value) else shared)
            if name == "variance" and self.variance is not None:
                density += self.variance.log_density(value, scale)
        return density if self.noise_variance is None else density + self.noise_variance.log_density(noise_variance, scale)


# Prior of fits to the values at points that an algorithm chooses, in units of their variance. Longer length-scales, such as in `Prior()`,
# leave more trials in a lower basin. Noise may be absent or larger than the signal, but little noise is likelier, because a wider prior
# explains a few values of a flat region by noise alone, and then the algorithm samples only corners of the box.
LEARNING = Prior(length_scale=LogNormal(median=0.4, spread=0.7), noise_variance=LogNormal(median=1e-4, spread=2.0), scale=1.0)
# Prior of beliefs that are shown. Few values do not separate noise from roughness, nor short length-scales from long ones. Under the prior
# above, a belief takes measured values for true, and expects too smooth a function elsewhere.
BELIEVING = replace(LEARNING, length_scale=LogNormal(median=0.25, spread=0.8), noise_variance=LogNormal(median=1e-2, spread=2.0))


@dataclasses.dataclass(frozen=True)
class LearningRules:
    """Limits of fits to a run's values, in units of their variance.

    Attributes:
      mean: prior variance of the constant mean.
      sides: least and largest length-scale, in units of the sides.
      noises: least and largest noise variance.
      starts: length-scale, in units of the sides, and noise variance at which further searches start.
    """

    mean: float = 1.0
    sides: tuple[float, float] = (0.005, 100.0)
    noises: tuple[float, float] = (1e-7, 10.0)
    starts: tuple[tuple[float, float], ...] = ((0.3, 1e-4), (1.0, 1e-3), (1.0, 1e-1))


LEARNED = LearningRules()


def learned(names: Sequence[str], side: Scalar = 1.0) -> tuple[dict[str, tuple[Any, Any]], list[dict[str, Any]]]:
    """Return ranges of a fit to standardised values, and further starts.

    One search starts at short length-scales without noise, and two at long length-scales with little and with much noise, because few noisy
    values have several maxima of almost equal height. The first search continues from the last fit. ``side`` is the side of the box, and
    ``names`` are the paths of the hyper-parameters.
    """
    lengths = [name for name in names if name.endswith("length_scale")]
    bounds = dict.fromkeys(lengths, (LEARNED.sides[0] * side, LEARNED.sides[1] * side)) | {NOISE: LEARNED.noises}
    return bounds, [dict.fromkeys(lengths, share * side) | {NOISE: noise} for share, noise in LEARNED.starts]


def hyper_parameters(kernel: Kernel, axes: tuple[int, ...]) -> Iterator[tuple[Kernel, str, Table, tuple[int, ...]]]:
    """Yield owner, name, value and owner's axes of every hyper-parameter."""
    if isinstance(kernel, OnAxes):
        axes = tuple(axes[number] for number in kernel.axes)
    for parameter in parameters(type(kernel)):
        value = getattr(kernel, parameter.name)
        if isinstance(value, Kernel):
            yield from hyper_parameters(value, axes)
        elif not parameter.static:
            yield kernel, parameter.name, value, axes
