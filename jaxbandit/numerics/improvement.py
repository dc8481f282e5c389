"""Logarithms of expected improvement, feasibility and the share of the signal."""

from __future__ import annotations

import math
from typing import Annotated

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import Array, checked
from jaxbandit.core.fields import nonnegative_numbers, numbers
from jaxbandit.core.pytree import float_dtype

__all__ = ["log_expected_improvement", "log_feasibility"]

# This module writes the normal tail by Mills' ratio R(x) = (1 - Phi(x)) / phi(x), x >= 0. With s = 2 BEND / (x + BEND) it is
# s q(1 - s) / (2 BEND), for a polynomial q through values at Chebyshev's nodes, to 2e-14; and 1 - x R(x) = -R'(x) is
# s^2 p(1 - s) / (2 BEND)^2 with p(t) = q(t) - (1 - t) q'(t), to 1e-12. No coefficient is large and no difference small, so that float32
# computes them to rounding.
BEND = 5.0
MILLS_COEFFICIENTS = [1.386342e-08, -4.4628e-09, -1.5101024e-07, 6.81462e-08, 1.06952691e-06, -7.9827401e-07, -6.9334679e-06]
MILLS_COEFFICIENTS += [9.94334552e-06, 4.181344937e-05, -0.00012471903784, -0.0001488346448, 0.00136585366539, -0.00199996113928]
MILLS_COEFFICIENTS += [-0.00750328173961, 0.05212550223547, -0.17325473420112, 0.41364471574927, -0.78591107554146, 1.24154706157333]
MILLS_COEFFICIENTS += [-1.667866595189, 1.92808104715316]


@jax.custom_jvp
def _log(x: Array) -> Array:
    """Return ``log x`` of a positive ``x``, correct to rounding.

    Subnormal ``x`` are excluded. In float64 it takes a tenth of the time of XLA's logarithm on CPUs. With ``x = 2^n m`` and ``m`` between
    the roots of 1/2 and 2 it is ``n log 2 + 2 artanh r`` for ``r = (m - 1) / (m + 1)``. NaN stays NaN.
    """
    if x.dtype != np.float64:
        return jnp.log(x)
    # These are the bits of the root of 1/2; the lowest 52 are those of its fraction.
    root_half = 0x3FE6A09E667F3BCD
    bits = jax.lax.bitcast_convert_type(x, np.int64)
    n = (bits - root_half) >> 52
    m = jax.lax.bitcast_convert_type(bits - (n << 52), np.float64)
    r = (m - 1) / (m + 1)
    # These are nine terms of artanh's series beside r; the others are less than rounding.
    terms = [1 / k for k in range(19, 1, -2)]
    squared, series, n = r * r, jnp.full_like(r, terms[0]), n.astype(np.float64)
    for c in terms[1:]:
        series = series * squared + c
    # The first part of log 2 times n is exact, and the second part is the rest.
    log_2 = 6.93147180369123816490e-01, 1.90821492927058770002e-10
    value = n * log_2[0] + (2 * r + (2 * r * squared * series + n * log_2[1]))
    return jnp.where(x < jnp.inf, value, x)


_log.defjvp(lambda primals, tangents: (_log(*primals), tangents[0] / primals[0]))


def _normal_tail(z: Array, coefficients: list[float]) -> tuple[Array, Array, Array]:
    """Return the parts of a logarithm of the normal tail.

    They are ``log phi(x)``, ``s / (2 BEND)`` and the polynomial at ``1 - s``, with ``x = |z|``.
    """
    # Unlike this, jnp.abs has no slope at 0.
    x = jnp.where(z > 0, z, -z)
    share = 1 / (x + BEND)
    at, value = 1 - 2 * BEND * share, jnp.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        value = value * at + c
    return -0.5 * jnp.square(x) - 0.5 * math.log(2 * math.pi), share, value


def _log_expected_excess(z: Array) -> Array:
    """Return ``log h(z)`` of ``h(z) = z Phi(z) + phi(z)``.

    ``h(z)`` is the expected excess of ``N(z, 1)``. It is computed by ``h(-x) = phi(x) (1 - x R(x))`` and ``h(x) = x + h(-x)``.
    """
    mills = np.poly1d(MILLS_COEFFICIENTS)
    density, share, value = _normal_tail(z, (mills + np.poly1d([1, -1]) * mills.deriv()).coeffs.tolist())
    below = share * share * value
    return jnp.where(z > 0, 0, density) + _log(jnp.where(z > 0, z + jnp.exp(density) * below, below))


def _log_normal_cdf(z: Array) -> Array:
    """Return ``log Phi(z)``, near 0 to rounding of 1.

    It is computed by ``Phi(-x) = phi(x) R(x)`` and ``Phi(x) = 1 - Phi(-x)``.
    """
    density, share, value = _normal_tail(z, MILLS_COEFFICIENTS)
    below = share * value
    return jnp.where(z > 0, 0, density) + _log(jnp.where(z > 0, 1 - jnp.exp(density) * below, below))


def _positive_deviations(sd: Array) -> Array:
    """Return deviations, raised to the least with a finite inverse square."""
    sd = jnp.asarray(sd)
    sd = sd if jnp.issubdtype(sd.dtype, jnp.floating) else sd.astype(float_dtype())
    return jnp.maximum(sd, math.sqrt(jnp.finfo(sd.dtype).tiny))


@checked
def log_expected_improvement(
    mean: Annotated[Array, numbers], sd: Annotated[Array, nonnegative_numbers], best: Annotated[Array, numbers]
) -> Array:
    """Return ``log E (f - best)^+`` for ``f ~ N(mean, sd^2)``.

    It is ``log(sd (z Phi(z) + phi(z)))`` with ``z = (mean - best) / sd``, and finite where the improvement itself underflows: points far
    below the incumbent are still ranked.
    """
    checks.broadcast(mean=mean, sd=sd, best=best)
    sd, mean, best = _positive_deviations(sd), jnp.asarray(mean), jnp.asarray(best)
    return _log(sd) + _log_expected_excess((mean - best) / sd)


@checked
def log_share_of_signal(sd: Annotated[Array, nonnegative_numbers], noise_variance: Annotated[Array, nonnegative_numbers]) -> Array:
    """Return ``log(1 - tau / sqrt(sd^2 + tau^2))`` with noise variance ``tau^2``.

    It says how much of a value at a point is no noise (Huang et al. 2006). It is written without the difference, because rounding would
    hide that where there is much noise.
    """
    checks.broadcast(sd=sd, noise_variance=noise_variance)
    variance, tau = jnp.square(_positive_deviations(sd)), jnp.sqrt(jnp.asarray(noise_variance))
    both = jnp.sqrt(variance + jnp.square(tau))
    return jnp.log(variance) - jnp.log(both) - jnp.log(both + tau)


@checked
def log_feasibility(mean: Annotated[Array, numbers], sd: Annotated[Array, nonnegative_numbers]) -> Array:
    """Return the log probability ``[M]`` that all constraints hold.

    It is ``sum_j log P(g_j <= 0)`` for independent ``g_j ~ N(mean, sd^2)``. ``mean`` and ``sd`` are ``[m, M]``.
    """
    checks.broadcast(mean=mean, sd=sd)
    z = -jnp.asarray(mean) / _positive_deviations(sd)
    # Without constraints XLA would compile the empty sum's formula.
    return jnp.sum(_log_normal_cdf(z) if len(z) else z, axis=0)
