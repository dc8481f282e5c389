"""The check of delay models."""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import numpy as np

from jaxbandit.core.pytree import canonicalise
from jaxbandit.delays import NEVER, Delay
from jaxbandit.delays.models import DistributionModel
from jaxbandit.testing.common import STANDARD_ERRORS, ensure, made, survives


def check_delay(delay: Delay | Callable[[], Delay], *, outputs: int = 2, draws: int = 20_000) -> Delay:
    """Check that a delay model's draws have its declared distribution.

    Args:
      delay: the delay model.
      outputs: number of outputs in a draw, ``>= 1``.
      draws: number of rounds to draw. Tolerances are five standard errors.

    Raises:
      AssertionError: if the mean, the tail or the sub-exponential pair is not as declared.
    """
    delay = made(delay, Delay)
    name = survives(delay, outputs=outputs)
    sample = jax.jit(lambda own, keys: jax.vmap(lambda key: own.draw(key, outputs))(keys))
    drawn = np.asarray(sample(canonicalise(delay), jax.random.split(jax.random.key(0), draws)))
    right = drawn.shape == (draws, outputs) and drawn.dtype == np.int32
    ensure(right, name, f"must draw int32 [{outputs}], got {drawn.dtype} {list(drawn.shape[1:])}")
    ensure(bool(drawn.min() >= 0 and drawn.max() <= NEVER), name, f"must draw delays from 0 to NEVER, got {drawn.min()} to {drawn.max()}")
    if delay.joint:
        ensure(bool(np.all(drawn == drawn[:, :1])), name, "is joint, but values of one point arrive apart")
    mean, arrives = float(delay.mean), drawn < NEVER
    ensure(bool(np.all(arrives)) or mean == math.inf, name, f"loses values, so its mean must be infinite, got {mean:.6g}")
    numbers = drawn.astype(np.float64)
    if math.isfinite(mean):
        averages, errors = numbers.mean(axis=0), STANDARD_ERRORS * numbers.std(axis=0) / math.sqrt(draws) + 1e-6 * (1 + mean)
        # The model's mean is the largest of its outputs' means. A cut to a maximum can only lower them.
        is_cut = isinstance(delay, DistributionModel) and delay.maximum is not None
        right = bool(np.all(averages <= mean + errors)) and (is_cut or bool(np.any(averages >= mean - errors)))
        ensure(right, name, f"declares a mean of {mean:.6g}, but {draws} draws have {averages} with tolerances {errors}")
    for q in (0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999):
        n = delay.quantile(q)
        up_to, below = (np.sum(arrives & (drawn <= most), axis=0) / np.maximum(arrives.sum(axis=0), 1) for most in (n, n - 1))
        counts = np.maximum(arrives.sum(axis=0), 1)
        error = STANDARD_ERRORS * np.sqrt(q * (1 - q) / counts) + 1 / counts
        right = not arrives.any() or bool(np.all((up_to >= q - error) | ~arrives.any(axis=0)) and np.any(below <= q + error))
        ensure(right, name, f"quantile({q}) is {n}, but shares {up_to} of {draws} draws are <= {n}, and {below} are < {n}")
    if delay.sub_exponential is not None and math.isfinite(mean):
        xi, b = map(float, delay.sub_exponential)
        for h in [sign * step for sign in (-1, 1) for step in ((0.5 / b, 0.1 / b) if b else (0.5 / max(xi, 1), 0.1 / max(xi, 1)))]:
            # Centre each output by its own mean, because the model's mean is the largest of the outputs' means.
            growth = np.exp(h * (numbers - numbers.mean(axis=0)))
            error = STANDARD_ERRORS * growth.std(axis=0) / math.sqrt(draws) + 1e-6
            most = math.exp(h * h * xi * xi / 2)
            words = f"declares E exp(h (tau - mean)) <= {most:.6g} at h = {h:.3g}"
            ensure(bool(np.all(growth.mean(axis=0) <= most + error)), name, f"{words}, but draws have {growth.mean(axis=0)}")
    return delay
