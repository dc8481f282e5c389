"""Confidence widths ``beta_t``, in posterior standard deviations.

A width is a plain number, as in most experiments, or a :class:`Width`: a schedule ``width(t, gain)`` of the round ``t`` (from 1) and of
the realised information gain of the rounds before it, ``1/2 sum log(1 + sigma^2 / lambda)``.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping
from typing import Annotated, ClassVar, TypeAlias

import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import Array, Declared, PerFunction, Table, checked
from jaxbandit.core.fields import between, finite_numbers, function, nonnegative, numbers, of_class, positive, whole
from jaxbandit.core.hints import missing
from jaxbandit.core.pytree import pytree, replace, static

__all__ = ["Censored", "Custom", "ImprovedGPUCB", "RealBeta", "SqrtLog", "Width", "WidthLike", "evaluate", "finite_set", "with_noise"]
__dir__ = __all__.copy
__getattr__ = missing(__name__, __all__)


class Width(Declared, abc.ABC):
    """Abstract base of widths that depend on the round or information gain."""

    described: ClassVar[str] = "a schedule of jaxbandit.widths, such as Custom(function=...)"
    in_files: ClassVar[bool] = True

    @abc.abstractmethod
    def __call__(self, t: Array, gain: Array) -> Array:
        """Return ``beta_t [...]`` in round ``t []``, given each function's ``gain [...]``."""

    def check_noise(self, noise_variance: Table) -> None:
        """Raise ``InvalidArgument`` unless the width fits the model's noise variances."""


WidthLike: TypeAlias = Annotated[PerFunction, positive] | Width
"""A width: a number > 0, an array of one for each function, or a schedule."""


@pytree
class ImprovedGPUCB(Width):
    """Width of improved GP-UCB (Chowdhury and Gopalan 2017, Thm 2).

    It is ``B + R sqrt(2 (gain + 1 + ln(union / delta)))``.

    Attributes:
      norm_bound: ``B > 0``, bound on the function's RKHS norm.
      noise_scale: ``R > 0``, sub-Gaussian scale of the noise.
      delta: failure probability in (0, 1).
      union: number of functions that share the failure probability: 2 for RPOL (sec. 4) and CBO (Zhou and Ji 2022), ``m + 1`` for CONFIG
        (Xu et al. 2023, Def. 2.5), 1 for Shi and Eryilmaz (2022).
    """

    papers: ClassVar[Mapping[str, str]] = {"chowdhury2017": "Theorem 2"}
    norm_bound: Annotated[PerFunction, positive] = 1.0
    noise_scale: Annotated[PerFunction, positive] = 1.0
    delta: Annotated[PerFunction, between(0, 1, open_high=True)] = 0.1
    union: Annotated[PerFunction, positive] = 2.0

    def __call__(self, t: Array, gain: Array) -> Array:
        given = (self.norm_bound, self.noise_scale, self.delta, self.union)
        norm_bound, noise_scale, delta, union = (jnp.asarray(value, gain.dtype) for value in given)
        return norm_bound + noise_scale * jnp.sqrt(2 * (gain + 1 + jnp.log(union / delta)))


@pytree
class RealBeta(Width):
    """Width of Real-beta-SafeOpt (Fiedler et al. 2024), computed from the data.

    It is ``B + R / sqrt(lambda) sqrt(2 factor gain + 2 ln(1 / delta))`` with ``gain = 1/2 ln det(I + K / lambda)``. The bound holds if
    ``lambda`` is the noise variance of the model itself; a run with another one is refused.

    Attributes:
      norm_bound: ``B > 0``, bound on the function's RKHS norm.
      noise_scale: ``R > 0``, sub-Gaussian scale of the noise.
      delta: failure probability in (0, 1).
      regulariser: ``lambda > 0``, the noise variance of the model.
      factor: 1 for the tight bound, 2 for the authors' final code, ``>= 1``.
    """

    papers: ClassVar[Mapping[str, str]] = {"fiedler2024": "Real-beta-SafeOpt"}
    norm_bound: Annotated[PerFunction, positive] = 1.0
    noise_scale: Annotated[PerFunction, positive] = 1.0
    delta: Annotated[PerFunction, between(0, 1, open_high=True)] = 0.1
    regulariser: Annotated[PerFunction, positive] = 1.0
    factor: Annotated[PerFunction, between(1, float("inf"), open_low=False, open_high=True)] = 1.0

    def __call__(self, t: Array, gain: Array) -> Array:
        given = (self.norm_bound, self.noise_scale, self.delta, self.regulariser, self.factor)
        norm_bound, noise_scale, delta, regulariser, factor = (jnp.asarray(value, gain.dtype) for value in given)
        return norm_bound + noise_scale / jnp.sqrt(regulariser) * jnp.sqrt(2 * (factor * gain - jnp.log(delta)))

    def check_noise(self, noise_variance: Table) -> None:
        if checks.is_traced((self.regulariser, noise_variance)):
            return
        assumed, true = np.ravel(np.asarray(self.regulariser, np.float64)), np.unique(np.asarray(noise_variance, np.float64))
        if not np.all(np.any(np.isclose(assumed[:, None], true[None], rtol=1e-3, atol=0), axis=1)):
            words = (
                f"must be the noise variance of the model, {', '.join(f'{value:.6g}' for value in true[:3])}, because lambda is the same"
            )
            raise checks.InvalidArgument(f"RealBeta.regulariser: {words}, got {checks.short(self.regulariser)}")


@pytree
class SqrtLog(Width):
    """``sqrt(a log(b t))``, the finite-set schedule of Srinivas et al. (2010).

    Attributes:
      a: factor of the logarithm, > 0.
      b: factor of the round, > 1 (at 1 the first width would be 0).
    """

    papers: ClassVar[Mapping[str, str]] = {"srinivas2010": "Theorem 1"}
    a: Annotated[PerFunction, positive] = 2.0
    b: Annotated[PerFunction, between(1, float("inf"), open_high=True)] = 2.0

    def __call__(self, t: Array, gain: Array) -> Array:
        a, b, t = (jnp.asarray(value, gain.dtype) for value in (self.a, self.b, t))
        return jnp.sqrt(a * jnp.log(b * t))


@checked
def finite_set(size: Annotated[int, whole(1, 2**53)], delta: Annotated[float, between(0, 1, open_high=True, host=True)]) -> SqrtLog:
    """Return the schedule of Srinivas et al. (2010, Thm 1).

    It is ``sqrt(2 ln(M t^2 pi^2 / (6 delta)))`` for ``M = size`` points, as in Amani et al. (2020).

    Raises:
      InvalidArgument: unless ``size`` is a whole number of at least 1 and ``delta`` lies in (0, 1).
    """
    return SqrtLog(a=4.0, b=float(np.sqrt(size * np.pi**2 / (6 * delta))))


@pytree
class Custom(Width):
    """A user's own schedule.

    Attributes:
      function: JAX-traceable ``function(t, gain) -> beta``.
      scale: factor > 0 of the function's values; a leaf, so it can be swept.
    """

    function: Annotated[Callable[[Array, Array], Array], function("(t, gain)")] = static()
    scale: Annotated[PerFunction, positive] = 1.0

    def __call__(self, t: Array, gain: Array) -> Array:
        return jnp.asarray(self.scale, gain.dtype) * self.function(t, gain)


@pytree
class Censored(Width):
    """Width of a learner that censors (Verma et al. 2022).

    It is, as in sec. 5 of RPOL, ``v_t = scale B_r sum_{s=t-m}^{t-1} sigma_t(x_s) + beta_t``.

    Attributes:
      base: ``beta_t``, a number or another schedule.
      feedback_bound: ``B_r > 0``, bound on the feedback; in the theory ``B_f + R sqrt(2 ln T)``.
      scale: factor >= 0 on the window term. It is 1 in the theory, where exploration dominates for a very long time.
    """

    base: WidthLike = 3.0
    papers: ClassVar[Mapping[str, str]] = {"verma2022": ""}
    feedback_bound: Annotated[PerFunction, positive] = 1.0
    scale: Annotated[PerFunction, nonnegative] = 0.01

    def __call__(self, t: Array, gain: Array) -> Array:
        return evaluate(self.base, t, gain)

    def _check(self, name: str, outputs: int | None) -> None:
        if isinstance(self.base, Censored):
            raise checks.InvalidArgument(f"{name}.base: must be a number or another schedule, got a second widths.Censored")


@checked
def evaluate(
    width: Annotated[WidthLike, of_class(Width) | finite_numbers],
    t: Annotated[Array, numbers],
    gain: Annotated[Array, numbers],
    recent: Annotated[Array, finite_numbers] | None = None,
) -> Array:
    """Return ``beta_t [...]`` for the entries of ``gain [...]``.

    ``recent [...]`` is the window sum of a :class:`Censored` width. Only a learner that censors has it.

    Raises:
      InvalidArgument: when a :class:`Censored` width has no ``recent``.
    """
    gain = jnp.asarray(gain)
    if not isinstance(width, Width) and checks.shape_of("width", width) not in ((), gain.shape):
        raise checks.InvalidArgument(f"width: expected one number, or one for each of gain {list(gain.shape)}, got {list(np.shape(width))}")
    with checks.blaming(f"widths.{type(width).__name__}: must be a function of (t, gain) that JAX can trace, with a width for each gain"):
        value = jnp.broadcast_to(jnp.asarray(width(t, gain) if isinstance(width, Width) else width, gain.dtype), gain.shape)
    if not isinstance(width, Censored):
        return value
    if recent is None:
        raise checks.InvalidArgument("widths.Censored: is for delayed feedback under feedback.Censor; give its base as the width instead")
    return value + jnp.asarray(width.scale, value.dtype) * jnp.asarray(width.feedback_bound, value.dtype) * recent


def with_noise(width: WidthLike, factor: Array) -> WidthLike:
    """Return ``width`` with its noise term, if any, scaled by ``factor``."""
    if isinstance(width, ImprovedGPUCB | RealBeta):
        return replace(width, noise_scale=jnp.asarray(width.noise_scale, factor.dtype) * factor)
    return width
