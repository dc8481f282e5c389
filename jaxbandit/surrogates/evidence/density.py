"""Log evidence of noisy values under a GP with prior mean 0, repeated points collapsed, differentiable twice in closed form."""

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
from jaxbandit.core.fields import Described, exactly, finite_numbers, nonnegative_numbers, positive, vector, whole
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Array, Scalar, Table
from jaxbandit.kernels import Kernel
from jaxbandit.surrogates.evidence.inverse import inverse

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
        nonnegative_numbers("Collapsed.counts", self.counts, exactly(count, words="one for each point"))
        finite_numbers("Collapsed.means", self.means, exactly(None, count, words="outputs and points"))
        nonnegative_numbers("Collapsed.within", self.within, exactly(np.shape(self.means)[0], words="one for each output"))

    @checked
    def padded(self, size: Annotated[int, whole(1)]) -> Collapsed:
        """Return the same data with rows for ``size`` points, on the host."""
        checks.integer("size", size, least=len(self.counts))
        missing = size - len(self.counts)
        return Collapsed(
            points=np.pad(self.points, ((0, missing), (0, 0))),
            counts=np.pad(self.counts, (0, missing)),
            means=np.pad(self.means, ((0, 0), (0, missing))),
            within=self.within,
        )

    @checked
    def log_evidence(self, kernel: Kernel, noise_variance: Annotated[Scalar, positive]) -> Array:
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
