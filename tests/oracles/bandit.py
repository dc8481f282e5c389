"""A learner's beliefs, one trial's record, and its replay.

A replay takes what a run recorded (chosen points and observed values) and works out what the algorithm should have seen and done in
every round, so that rounding, which may break ties either way, is the only difference allowed.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.oracles.gaussian_process import Matrix

# The arguments are round and gain [k], and the result is beta [k].
Width = Callable[[int, Matrix], Matrix]


# Widths.


def constant(value: float | Matrix) -> Width:
    """``beta`` for every output, or one each."""
    return lambda t, gain: np.broadcast_to(np.asarray(value, float), gain.shape)


def improved_gp_ucb(norm_bound: float, noise_scale: float, delta: float, union: float) -> Width:
    """``B + R sqrt(2 (gamma_{t-1} + 1 + ln(c / p)))``."""
    return lambda t, gain: norm_bound + noise_scale * np.sqrt(2 * (gain + 1 + np.log(union / delta)))


def sqrt_log(a: float, b: float) -> Width:
    """``sqrt(a log(b t))``."""
    return lambda t, gain: np.full(gain.shape, np.sqrt(a * np.log(b * t)))


# Replays.


@dataclass(frozen=True)
class Model:
    """Prior beliefs of ``k = 1 + m`` functions on ``M`` points."""

    grams: Matrix  # [k, M, M]
    noise: Matrix  # [k]
    prior_mean: Matrix  # [k]
    width: Width


@dataclass(frozen=True)
class Record:
    """Choices and observations of one trial."""

    indices: Matrix  # [T]
    values: Matrix  # [T, k]
    initial_indices: Matrix  # [n], seen before round 1
    initial_values: Matrix  # [n, k]


@dataclass(frozen=True)
class Replay:
    """The choice that the algorithm should have computed."""

    scores: Matrix  # [T, M] what it maximises
    multipliers: Matrix  # [T + 1, m] in force at rounds 1..T+1
    widths: Matrix  # [T, k]


def score_gaps(scores: Matrix, indices: Matrix) -> Matrix:
    """Return losses ``[T]`` against the best score, relative to ``max(1, |best|)``."""
    best = scores.max(1)
    return (best - scores[np.arange(len(indices)), indices]) / np.maximum(1.0, np.abs(best))
