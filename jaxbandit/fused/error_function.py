"""The error function and its complement in float32 by polynomials, for compilers of kernels lack one or both.

The approximations of the Cephes library (Moshier, ``ndtrf.c``), as XLA uses them.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Coefficients of polynomials, highest power first: erf(x) / x in x^2 up to 1, and x exp(x^2) erfc(x) in 1 / x^2, from 1 to 2 and beyond 2.
NEAR = (
    7.853861353153693e-5,
    -8.010193625184903e-4,
    5.188327685732524e-3,
    -2.685381193529856e-2,
    1.128358514861418e-1,
    -3.761262582423300e-1,
    1.128379165726710,
)
MIDDLE = (
    2.326819970068386e-2,
    -1.387039388740657e-1,
    3.687424674597105e-1,
    -5.824733027278666e-1,
    6.210004621745983e-1,
    -4.944515323274145e-1,
    3.404879937665872e-1,
    -2.741127028184656e-1,
    5.638259427386472e-1,
)
FAR = (
    -1.047766399936249e1,
    1.297719955372516e1,
    -7.495518717768503,
    2.921019019210786,
    -1.015265279202700,
    4.218463358204948e-1,
    -2.820767439740514e-1,
    5.641895067754075e-1,
)


def erf(x: Any) -> Any:
    """Return ``erf(x)``, in float32 by polynomials, to a few units of its last place."""
    if jnp.result_type(x) != np.float32:
        return jax.lax.erf(x)
    tail = _tail(x)
    return jnp.where(jnp.abs(x) > 1, jnp.where(x < 0, tail - 1, 1 - tail), _near_zero(x))


def erfc(x: Any) -> Any:
    """Return ``erfc(x) = 1 - erf(x)``, in float32 by polynomials, to a few units of its last place."""
    if jnp.result_type(x) != np.float32:
        return jax.lax.erfc(x)
    tail = _tail(x)
    return jnp.where(jnp.abs(x) > 1, jnp.where(x < 0, 2 - tail, tail), 1 - _near_zero(x))


def _near_zero(x: Any) -> Any:
    """Return ``erf(x)`` for ``x`` from -1 to 1, and that of the nearer end for others."""
    near = jnp.minimum(jnp.maximum(x, np.float32(-1)), np.float32(1))
    return near * _polynomial(near * near, NEAR)


def _tail(x: Any) -> Any:
    """Return ``erfc(|x|)`` for ``|x|`` of at least 1."""
    size = jnp.abs(x)
    inverse = 1 / jnp.maximum(size, np.float32(1))
    square = inverse * inverse
    return jnp.exp(-x * x) * inverse * jnp.where(size < 2, _polynomial(square, MIDDLE), _polynomial(square, FAR))


def _polynomial(x: Any, coefficients: tuple[float, ...]) -> Any:
    value = x * np.float32(0) + np.float32(coefficients[0])
    for c in coefficients[1:]:
        value = value * x + np.float32(c)
    return value
