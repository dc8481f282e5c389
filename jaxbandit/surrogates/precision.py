"""Arithmetic of a run: the rule that decides between float32 and float64, and when a posterior variance is refreshed.

A float32 run is wrong in two ways. The variance carries the rounding of the prior variance, which refreshing it from the factors repairs;
and factors stand still once an observation changes them by less than their rounding. The limits were measured against float64: they keep
the mean within a tenth of a posterior deviation and the deviation within a tenth of itself.
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

PRECISIONS = ("auto", "float32", "float64")  #: what ``precision`` may be; "auto" chooses by noise, rounds and kernel
HORIZON_IF_UNKNOWN = 1000

# Largest share of prior variance that features may leave out: below what the arithmetic of a long run loses anyway. In float32 it is less
# where the posterior variance, which can fall to noise_variance / horizon, comes near it.
SHARE_LEFT_OUT = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-13}
SHARE_OF_LEAST_VARIANCE = 0.01

FRESH_UP_TO = 1e5  # horizon * prior variance / noise variance up to which a variance needs no refreshing (sd within 1% there)
ROUNDS_PER_SHARE = 2.7e5  # rounds between refreshes times prior variance / noise variance (sd within 3%)
SHORTEST_PERIOD, LONGEST_PERIOD = 8, 64  # rounds between refreshes: more often costs more than float64 does, less often saves nothing
STANDSTILL = 4e-8  # sqrt(noise / prior variance) / horizon^(3/2) below which a factor stands still (sd off by 6% there)
ROUNDING_OF_VALUES = 0.008  # largest rounding of a value that the noise hides, in noise deviations (mean off by 0.08 deviations there)


class Need(NamedTuple):
    """Arithmetic that a run needs."""

    precision: str  # "float32" or "float64"
    refresh: int  # rounds between refreshes of the variance in float32, 0 for never; float64 needs none
    tolerance: float  # share of prior variance that features may leave out in float32
    least_variance: float  # share of prior variance that the variance of a point falls to when it is observed in every round
    reason: str = ""  # why float32 is not enough, empty where it is


def needed(prior_variance: Numbers, noise_variance: Numbers, prior_mean: Numbers, horizon: int, *, refreshable: bool) -> Need:
    """Return the cheapest arithmetic that keeps a run right.

    Prior and noise variances are of each group of outputs, prior means of each output. ``refreshable`` says whether refreshing the variance
    costs less than float64 does, as it does for features.
    """
    noises, mean = np.asarray(noise_variance, np.float64), _largest(prior_mean)
    ratio = float(np.max(np.asarray(prior_variance, np.float64) / noises))
    tolerance, least = SHARE_LEFT_OUT[np.dtype(np.float32)], 1 / (ratio * horizon)
    if ratio * horizon > FRESH_UP_TO:
        tolerance = min(tolerance, SHARE_OF_LEAST_VARIANCE / (ratio * horizon))
    if float(np.finfo(np.float32).eps) * mean > ROUNDING_OF_VALUES * float(np.sqrt(np.min(noises))):
        return Need("float64", SHORTEST_PERIOD, tolerance, least, f"the prior mean is {mean:.3g}, whose rounding the noise does not hide")
    if ratio * horizon <= FRESH_UP_TO:
        return Need("float32", 0, tolerance, least)
    rounds = int(np.clip(ROUNDS_PER_SHARE / ratio, SHORTEST_PERIOD, LONGEST_PERIOD))
    refresh = 1 << (rounds.bit_length() - 1)
    if refreshable and ratio * SHORTEST_PERIOD <= ROUNDS_PER_SHARE and 1 / np.sqrt(ratio) / horizon**1.5 >= STANDSTILL:
        return Need("float32", refresh, tolerance, least)
    reason = f"the prior variance is {ratio:.2g} times the noise variance, over {horizon} rounds"
    return Need("float64", refresh, tolerance, least, reason)


def _largest(values: Numbers) -> float:
    return float(np.max(np.abs(np.asarray(values, np.float64))))


def check_float64_suffices(prior_variance: Numbers, noise_variance: Numbers, prior_mean: Numbers, horizon: int) -> None:
    """Refuse a prior mean beside which float64 cannot hold a prior deviation; warn of noise that it cannot tell from its rounding."""
    most = ROUNDING_OF_VALUES * float(np.sqrt(np.min(np.asarray(prior_variance, np.float64)))) / float(np.finfo(np.float64).eps)
    if (mean := _largest(prior_mean)) > most:
        raise checks.InvalidArgument(
            f"prior_mean: must be at most {most:.3g} for float64 to tell values one prior deviation apart, got {mean:.3g}; subtract it from"
            " the values"
        )
    below = _largest(prior_variance) * horizon * SHARE_LEFT_OUT[np.dtype(np.float64)]  # means were off by 0.1 deviations there
    if (lowest := float(np.min(noise_variance))) < below:
        words = f"below {below:.1g}, over {horizon} rounds, means and deviations are rounding even in float64, got {lowest:.3g}"
        warn(f"noise_variance: {words}")


def in_force(precision: str, need: Need) -> str:
    """Return the precision that a model gets: the one asked for, or the one that it needs; all are in float64 where JAX is."""
    if float_dtype() == np.float64:
        if precision == "float32":
            raise checks.InvalidArgument("precision: 'float32', but jax_enable_x64 is on, which makes everything float64; turn it off")
        return "float64"
    return need.precision if precision == "auto" else precision


def warn_of_float32(chosen: str, need: Need) -> None:
    """Warn the user who builds a model where it is in float32 and needs float64."""
    if chosen != need.precision == "float64":
        words = f"precision: float32 resolves too little here: {need.reason}; use precision='auto' or 'float64'"
        warn(words)


def least(variances: Table) -> list[float]:
    """Return the smallest noise variance of each group of outputs, from ``[G]`` or ``[G, M]``."""
    return [float(np.min(own)) for own in np.asarray(variances, np.float64)]


@contextlib.contextmanager
def arithmetic(precisions: Iterable[str]) -> Iterator[bool]:
    """Run in float64 where one of ``precisions`` is ``"float64"``; gives whether that changes anything."""
    checks.check_not_forked()
    given = list(precisions) if isinstance(precisions, Iterable) else precisions
    each(choice("float32", "float64"))("precisions", given)
    switch = "float64" in given and float_dtype() != np.float64
    with jax.enable_x64(True) if switch else contextlib.nullcontext():
        yield switch


def require(precision: str) -> None:
    """Raise ``InvalidArgument`` where a model that needs float64 is used in float32."""
    if precision == "float64" and float_dtype() != np.float64:
        raise checks.InvalidArgument(
            "surrogate.precision: 'float64', but beliefs are made in float32 here; use it within `with jax.enable_x64(True):`"
            " (simulate and studies do so by themselves), or build it with precision='float32'"
        )


@custom_vmap
def in_step(rounds: Array) -> Array:
    """Return a count that is the same in all trials of a batch, as one number: a branch on it stays a branch."""
    return rounds


@in_step.def_vmap
def _(size: int, batched: list[bool], rounds: Array) -> tuple[Array, bool]:
    return jnp.max(rounds), False
