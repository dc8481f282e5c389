"""Prior distributions of a kernel's hyper-parameters and of the noise variance: log-normal, length-scales scaled with the dimension."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar

import jax.numpy as jnp
import numpy as np

from jaxbandit.core.declare import Declared, parameters
from jaxbandit.core.fields import positive
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Array, PerAxis, Scalar, Table
from jaxbandit.kernels import Categorical, Kernel, Linear, OnAxes, Periodic
from jaxbandit.surrogates.evidence.density import Collapsed

NOISE = "noise_variance"  # path of the noise variance among hyper-parameters, which are otherwise fields of the kernel


@pytree
class LogNormal(Declared):
    """Log-normal distribution: the logarithm is normal about ``log(median)`` with standard deviation ``spread``."""

    in_files: ClassVar[bool] = True
    median: Annotated[Scalar, positive] = 1.0
    spread: Annotated[Scalar, positive] = 1.0

    def log_density(self, value: Table, unit: Table) -> Array:
        """Return the log density ``[]`` of ``log(value)``, summed over entries, without its constant; the median is in ``unit``."""
        return -0.5 * jnp.sum(jnp.square((jnp.log(jnp.asarray(value)) - jnp.log(self.median * jnp.asarray(unit))) / self.spread))


@pytree
class Prior(Declared):
    """Prior of the hyper-parameters of a kernel and of the noise variance; densities are those of the logarithms.

    Length-scales have medians in units of ``extent sqrt(d)``, the diagonal of a box, because distances grow like that (Hvarfner, Hellsten
    and Nardi 2024, *Vanilla Bayesian optimization performs great in high dimensions*, sec. 5.1). Variances, of the kernel and of the
    noise, have medians in units of ``scale``. Hyper-parameters that are neither, such as a period, have none, nor have the length-scales
    of periodic and linear kernels, which are no distances.

    Attributes:
      length_scale: of length-scales; ``None`` for a flat prior of the logarithm, as for the next two.
      variance: of the kernel's variances.
      noise_variance: of the noise variance.
      extent: sides of the box that inputs come from, one number or ``[d]``, in their units; default the range of the points.
      scale: variance of the values, in their units squared; default their mean square.
    """

    in_files: ClassVar[bool] = True
    length_scale: LogNormal | None = LogNormal(median=math.exp(math.sqrt(2.0)), spread=math.sqrt(3.0))
    variance: LogNormal | None = LogNormal(median=1.0, spread=1.5)
    noise_variance: LogNormal | None = LogNormal(median=math.exp(-4.0), spread=1.5)
    extent: Annotated[PerAxis, positive] | None = None
    scale: Annotated[Scalar, positive] | None = None

    def units(self, data: Collapsed) -> tuple[Array, Array]:
        """Return ``extent [d]`` and ``scale []``, from ``data`` where the prior has none of its own; both may be traced."""
        points, means = jnp.asarray(data.points), jnp.asarray(data.means)
        counts = jnp.asarray(data.counts, means.dtype)
        present = counts > 0
        if self.extent is None:
            high = jnp.max(jnp.where(present[:, None], points, -jnp.inf), axis=0)
            low = jnp.min(jnp.where(present[:, None], points, jnp.inf), axis=0)
            extent = jnp.where(high > low, high - low, 1)  # an axis that does not vary says nothing of its length-scale
        else:
            extent = jnp.broadcast_to(jnp.asarray(self.extent, points.dtype), points.shape[1:])
        if self.scale is None:
            square = jnp.sum(jnp.where(present[None], counts[None] * jnp.square(means), 0)) + jnp.sum(jnp.asarray(data.within))
            scale = jnp.where(square > 0, square / jnp.maximum(jnp.sum(counts) * len(means), 1), 1)
        else:
            scale = jnp.asarray(self.scale, means.dtype)
        return extent, scale

    def log_density(self, kernel: Kernel, noise_variance: Array, extent: Array, scale: Array) -> Array:
        """Return the log density ``[]`` of the logarithms of the hyper-parameters in these units, without its constant."""
        density = jnp.zeros((), extent.dtype)
        everything = tuple(range(len(extent)))
        for owner, name, value, axes in hyper_parameters(kernel, everything):
            diagonal = (extent if axes == everything else extent[np.asarray(axes)]) * math.sqrt(len(axes))
            if name == "length_scale" and self.length_scale is not None and not isinstance(owner, Periodic | Linear | Categorical):
                shared = jnp.exp(jnp.mean(jnp.log(diagonal)))  # of one length-scale for all axes
                density += self.length_scale.log_density(value, diagonal if np.ndim(value) else shared)
            if name == "variance" and self.variance is not None:
                density += self.variance.log_density(value, scale)
        return density if self.noise_variance is None else density + self.noise_variance.log_density(noise_variance, scale)


def hyper_parameters(kernel: Kernel, axes: tuple[int, ...]) -> Iterator[tuple[Kernel, str, Table, tuple[int, ...]]]:
    """Return every hyper-parameter of a kernel on ``axes`` and of the kernels it is made of: owner, name, value, and axes of the owner."""
    if isinstance(kernel, OnAxes):
        axes = tuple(axes[number] for number in kernel.axes)
    for parameter in parameters(type(kernel)):
        value = getattr(kernel, parameter.name)
        if isinstance(value, Kernel):
            yield from hyper_parameters(value, axes)
        elif not parameter.static:
            yield kernel, parameter.name, value, axes
