"""Choice between float32 and float64, and of the rounds between refreshes.

A float32 run is wrong in two ways. The variance carries the rounding of the prior variance, and a refresh from the factors repairs this.
And factors stop changing once an observation changes them by less than their rounding. The limits were measured against float64: they
keep the mean within a tenth of a posterior deviation, and the deviation within a tenth of itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap

from jaxbandit.core import checks
from jaxbandit.core.declare import Array, Numbers, Table
from jaxbandit.core.doors import warn
from jaxbandit.core.fields import choice, each
from jaxbandit.core.pytree import float_dtype

__all__ = ["PRECISIONS", "arithmetic"]

#: Values of ``precision``; "auto" chooses by noise, rounds and kernel.
PRECISIONS = ("auto", "float32", "float64")


class RoundingLimits:
    """Limits of rounding, as measured against float64.

    Attributes:
      share_of_least_variance: features in float32 leave out at most this share of the least posterior variance, noise_variance / horizon.
      unrefreshed_ratio: horizon times prior variance / noise variance up to which a variance needs no refresh (deviation within 1%).
      refresh_ratio: rounds between refreshes times prior variance / noise variance (deviation within 3%).
      min_period, max_period: rounds between refreshes. A shorter period costs more than float64, a longer period saves no time.
      standstill: sqrt(noise / prior variance) / horizon^(3/2) below which a factor stops changing (deviation off by 6% there).
      share_left_out: share of prior variance that features may leave out, below the rounding of a long run, in float32 and in float64.
      unknown_horizon: rounds of a model whose horizon is not given.
      value_rounding: largest rounding of a value that the noise hides, in noise deviations (mean off by 0.08 deviations there).
    """

    share_of_least_variance: float = 0.01
    unrefreshed_ratio: float = 1e5
    refresh_ratio: float = 2.7e5
    min_period: int = 8
    max_period: int = 64
    standstill: float = 4e-8
    value_rounding: float = 0.008
    share_left_out: tuple[float, float] = (1e-6, 1e-13)
    unknown_horizon: int = 1000


class Need(NamedTuple):
    """Arithmetic that a run needs.

    Attributes:
      refresh: rounds between refreshes of the variance in float32, 0 for never; float64 needs no refresh.
      tolerance: share of prior variance that features may leave out in float32.
      least_variance: share of prior variance that is left at a point observed in every round.
      reason: why float32 is not enough; empty if it is enough.
    """

    precision: str
    refresh: int
    tolerance: float
    least_variance: float
    reason: str = ""


def needed(prior_variance: Numbers, noise_variance: Numbers, prior_mean: Numbers, horizon: int, *, refreshable: bool) -> Need:
    """Return the cheapest arithmetic that keeps a run right.

    There is a prior and a noise variance for each group of outputs, and a prior mean for each output. The form is ``refreshable`` if a
    refresh of its variance costs less than float64 does, as for features.
    """
    noises, mean = np.asarray(noise_variance, np.float64), _largest_magnitude(prior_mean)
    ratio = float(np.max(np.asarray(prior_variance, np.float64) / noises))
    tolerance, least = RoundingLimits.share_left_out[0], 1 / (ratio * horizon)
    if ratio * horizon > RoundingLimits.unrefreshed_ratio:
        tolerance = min(tolerance, RoundingLimits.share_of_least_variance / (ratio * horizon))
    if float(np.finfo(np.float32).eps) * mean > RoundingLimits.value_rounding * float(np.sqrt(np.min(noises))):
        return Need(
            "float64", RoundingLimits.min_period, tolerance, least, f"the prior mean is {mean:.3g}, whose rounding the noise does not hide"
        )
    if ratio * horizon <= RoundingLimits.unrefreshed_ratio:
        return Need("float32", 0, tolerance, least)
    rounds = int(np.clip(RoundingLimits.refresh_ratio / ratio, RoundingLimits.min_period, RoundingLimits.max_period))
    refresh = 1 << (rounds.bit_length() - 1)
    moves = 1 / np.sqrt(ratio) / horizon**1.5 >= RoundingLimits.standstill
    if refreshable and ratio * RoundingLimits.min_period <= RoundingLimits.refresh_ratio and moves:
        return Need("float32", refresh, tolerance, least)
    reason = f"the prior variance is {ratio:.2g} times the noise variance, over {horizon} rounds"
    return Need("float64", refresh, tolerance, least, reason)


def _largest_magnitude(values: Numbers) -> float:
    return float(np.max(np.abs(np.asarray(values, np.float64))))


def check_float64_suffices(prior_variance: Numbers, noise_variance: Numbers, prior_mean: Numbers, horizon: int) -> None:
    """Raise on a mean, and warn of noise, that float64 cannot resolve."""
    most = RoundingLimits.value_rounding * float(np.sqrt(np.min(np.asarray(prior_variance, np.float64)))) / float(np.finfo(np.float64).eps)
    if (mean := _largest_magnitude(prior_mean)) > most:
        raise checks.InvalidArgument(
            f"prior_mean: must be at most {most:.3g} for float64 to tell values one prior deviation apart, got {mean:.3g}; subtract it from"
            " the values"
        )
    # At this noise variance means were off by 0.1 deviations.
    below = _largest_magnitude(prior_variance) * horizon * RoundingLimits.share_left_out[1]
    if (lowest := float(np.min(noise_variance))) < below:
        words = f"below {below:.1g}, over {horizon} rounds, means and deviations are rounding even in float64, got {lowest:.3g}"
        warn(f"noise_variance: {words}")


def chosen_precision(precision: str, need: Need) -> str:
    """Return a model's precision, given or needed, or JAX's float64."""
    if float_dtype() == np.float64:
        if precision == "float32":
            raise checks.InvalidArgument("precision: 'float32', but jax_enable_x64 is on, which makes everything float64; turn it off")
        return "float64"
    return need.precision if precision == "auto" else precision


def warn_of_float32(chosen: str, need: Need) -> None:
    """Warn the user of a float32 model that needs float64."""
    if chosen != need.precision == "float64":
        words = f"precision: float32 resolves too little here: {need.reason}; use precision='auto' or 'float64'"
        warn(words)


def least_variances(variances: Table) -> list[float]:
    """Return each group's least noise variance, from ``[G]`` or ``[G, M]``."""
    return [float(np.min(own)) for own in np.asarray(variances, np.float64)]


@contextlib.contextmanager
def arithmetic(precisions: Iterable[str]) -> Iterator[bool]:
    """Run in float64 if any precision is, and yield whether JAX switches."""
    checks.check_not_forked()
    given = list(precisions) if isinstance(precisions, Iterable) else precisions
    each(choice("float32", "float64"))("precisions", given)
    switch = "float64" in given and float_dtype() != np.float64
    with jax.enable_x64(True) if switch else contextlib.nullcontext():
        yield switch


def require(precision: str) -> None:
    """Raise ``InvalidArgument`` if a float64 model is used in float32."""
    if precision == "float64" and float_dtype() != np.float64:
        raise checks.InvalidArgument(
            "surrogate.precision: 'float64', but beliefs are made in float32 here; use it within `with jax.enable_x64(True):`"
            " (simulate and studies do so by themselves), or build it with precision='float32'"
        )


@custom_vmap
def in_step(rounds: Array) -> Array:
    """Return a count that a batch shares as one number."""
    # A branch on one number stays a branch under vmap.
    return rounds


@in_step.def_vmap
def _in_step_batched(size: int, batched: list[bool], rounds: Array) -> tuple[Array, bool]:
    return jnp.max(rounds), False
