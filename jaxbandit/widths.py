"""Confidence widths ``beta_t``: how many posterior standard deviations an algorithm allows for.

A width is a plain number (what most experiments use) or one of the schedules below: a pytree with ``__call__(t, gain)``, where ``t``
is the round (from 1) and ``gain`` the realised information gain of the rounds before it, ``1/2 sum log(1 + sigma^2 / lambda)``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.pytree import pytree, replace, static

__all__ = ["Censored", "Custom", "ImprovedGPUCB", "SqrtLog", "evaluate", "finite_set", "validate", "with_noise"]

Array = jax.Array


@pytree
class ImprovedGPUCB:
    """Improved GP-UCB, ``B + R sqrt(2 (gain + 1 + ln(union / delta)))`` (Chowdhury and Gopalan 2017, Thm 2).

    Attributes:
      norm_bound: ``B > 0``, bound on the function's RKHS norm.
      noise_scale: ``R > 0``, sub-Gaussian scale of the noise.
      delta: failure probability in (0, 1).
      union: how many functions share it: 2 for RPOL (sec. 4) and CBO (Zhou and Ji 2022), ``m + 1`` for CONFIG (Xu et al. 2023,
        Def. 2.5), 1 for Shi and Eryilmaz (2022).
    """

    norm_bound: Any = 1.0
    noise_scale: Any = 1.0
    delta: Any = 0.1
    union: Any = 2.0

    def __call__(self, t: Array, gain: Array) -> Array:
        return self.norm_bound + self.noise_scale * jnp.sqrt(2 * (gain + 1 + jnp.log(self.union / self.delta)))

    def validate(self, name: str) -> None:
        """Raise ``InvalidArgument`` on a parameter outside its range."""
        checks.positive(f"{name}.norm_bound", self.norm_bound)
        checks.positive(f"{name}.noise_scale", self.noise_scale)
        checks.within(f"{name}.delta", self.delta, 0.0, 1.0, open_high=True)
        checks.positive(f"{name}.union", self.union)


@pytree
class SqrtLog:
    """``sqrt(a log(b t))``, the finite-set schedule of Srinivas et al. (2010) up to constants; needs ``a > 0`` and ``b > 1``."""

    a: Any = 2.0
    b: Any = 2.0

    def __call__(self, t: Array, gain: Array) -> Array:
        return jnp.sqrt(self.a * jnp.log(self.b * jnp.asarray(t, gain.dtype)))

    def validate(self, name: str) -> None:
        """Raise ``InvalidArgument`` unless ``a > 0`` and ``b > 1`` (at ``b = 1`` the first width would be 0)."""
        checks.positive(f"{name}.a", self.a)
        checks.within(f"{name}.b", self.b, 1.0, float("inf"), open_high=True)


def finite_set(size: int, delta: float) -> SqrtLog:
    """``sqrt(2 ln(M t^2 pi^2 / (6 delta)))`` for ``M = size`` points (Srinivas et al. 2010, Thm 1; Amani et al. 2020)."""
    checks.integer("size", size, least=1)
    checks.within("delta", delta, 0.0, 1.0, open_high=True)
    return SqrtLog(a=4.0, b=float(np.sqrt(size * np.pi**2 / (6 * delta))))


@pytree
class Custom:
    """A user's own schedule: a JAX-traceable ``function(t, gain) -> beta``, times ``scale > 0`` (a leaf, so it can be swept)."""

    function: Callable[[Array, Array], Array] = static()
    scale: Any = 1.0

    def __call__(self, t: Array, gain: Array) -> Array:
        return self.scale * self.function(t, gain)

    def validate(self, name: str) -> None:
        """Raise ``InvalidArgument`` unless ``function`` is callable and ``scale`` positive."""
        if not callable(self.function):
            raise checks.InvalidArgument(f"{name}.function: expected a function of (t, gain), got {self.function!r}")
        checks.positive(f"{name}.scale", self.scale)


@pytree
class Censored:
    """``v_t = scale B_r sum_{s=t-m}^{t-1} sigma_t(x_s) + beta_t``, for a learner that censors (Verma et al. 2022; RPOL sec. 5).

    Attributes:
      base: ``beta_t``, a number or another schedule.
      feedback_bound: ``B_r > 0``, bound on the feedback; in the theory ``B_f + R sqrt(2 ln T)``.
      scale: share >= 0 of the window term that is taken: 1 in the theory, which explores with little else for a very long time.
    """

    base: Any = 3.0
    feedback_bound: Any = 1.0
    scale: Any = 0.01

    def __call__(self, t: Array, gain: Array) -> Array:
        return evaluate(self.base, t, gain)

    def widen(self, beta: Array, recent: Array) -> Array:
        """``v_t`` from ``beta_t`` and the deviations at the last ``m`` points, summed."""
        return beta + self.scale * self.feedback_bound * recent

    def validate(self, name: str) -> None:
        """Raise ``InvalidArgument`` on a parameter outside its range."""
        validate(f"{name}.base", self.base, np.size(self.base) if not callable(self.base) else 1)
        checks.positive(f"{name}.feedback_bound", self.feedback_bound)
        checks.nonnegative(f"{name}.scale", self.scale)


def evaluate(width: Any, t: Array, gain: Array, recent: Array | None = None) -> Array:
    """``beta_t`` for each entry of ``gain [...]``, in its shape, from a number, one number per entry, or a schedule.

    ``recent [...]`` is what a learner that censors adds to a :class:`Censored` width; no other learner has any.

    Raises:
      InvalidArgument: when a :class:`Censored` width meets a learner without.
    """
    value = jnp.broadcast_to(width(t, gain) if callable(width) else jnp.asarray(width, gain.dtype), gain.shape)
    if not isinstance(width, Censored):
        return value
    if recent is None:
        raise checks.InvalidArgument("widths.Censored: is for delayed feedback under feedback.Censor; give its base as the width instead")
    return width.widen(value, recent)


def with_noise(width: Any, factor: Array) -> Any:
    """``width`` for noise ``factor`` times as large: a theory schedule scales its noise term, a tuned number stays as it is."""
    if isinstance(width, ImprovedGPUCB):
        return replace(width, noise_scale=width.noise_scale * factor)
    return width


def validate(name: str, width: Any, functions: int) -> None:
    """Raise ``InvalidArgument`` unless ``width`` is a positive number or a valid schedule, for one or for each of ``functions``."""
    if hasattr(width, "validate"):
        width.validate(name)
        parts = [(f"{name}.{field.name}", getattr(width, field.name)) for field in dataclasses.fields(width)]
    elif callable(width):
        raise checks.InvalidArgument(f"{name}: got a bare function; wrap it as widths.Custom(function=...)")
    else:
        checks.positive(name, width, remedy="a width is a number > 0 or a schedule of jaxbandit.widths")
        parts = [(name, width)]
    for label, value in parts:
        if not callable(value) and np.shape(value) != () and np.shape(value) != (functions,):
            words = "one number" if functions == 1 else f"one number, or one for each of the {functions} constraints"
            raise checks.InvalidArgument(f"{label}: expected {words}, got shape {list(np.shape(value))}")
