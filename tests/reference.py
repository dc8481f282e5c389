"""An independent reference in float64 NumPy: dense Gaussian-process posteriors and replays of recorded trajectories.

Written from the papers and ``spec/algorithms.md``, with no JAX and nothing of ``jaxbandit``: every posterior is a fresh Cholesky
factorisation of ``K_XX + lam I`` on all data so far. A replay takes what a run recorded (chosen points and observed values) and works
out what the algorithm should have seen and done in every round, so that rounding, which may break ties either way, is the only
difference allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

Matrix = np.ndarray
Width = Callable[[int, Matrix], Matrix]  # (round, gain [k]) -> beta [k]


# Kernels (Rasmussen and Williams 2006, eq. 4.9, 4.14-4.17), unit prior variance.


def distance(x: Matrix, y: Matrix, length_scale: float | Matrix) -> Matrix:
    """``|(x - y) / l|`` as ``[n, p]``."""
    return np.sqrt((((x[:, None, :] - y[None, :, :]) / length_scale) ** 2).sum(-1))


def squared_exponential(x: Matrix, y: Matrix, length_scale: float | Matrix = 1.0) -> Matrix:
    return np.exp(-(distance(x, y, length_scale) ** 2) / 2)


def matern12(x: Matrix, y: Matrix, length_scale: float | Matrix = 1.0) -> Matrix:
    return np.exp(-distance(x, y, length_scale))


def matern32(x: Matrix, y: Matrix, length_scale: float | Matrix = 1.0) -> Matrix:
    z = np.sqrt(3) * distance(x, y, length_scale)
    return (1 + z) * np.exp(-z)


def matern52(x: Matrix, y: Matrix, length_scale: float | Matrix = 1.0) -> Matrix:
    r = distance(x, y, length_scale)
    return (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r)


# Posterior of one function on a grid with Gram matrix ``gram [M, M]``.


def posterior(gram: Matrix, indices: Matrix, values: Matrix, noise: float | Matrix, prior_mean: float = 0.0) -> tuple[Matrix, Matrix]:
    """Mean ``[M]`` and covariance ``[M, M]`` given ``values [n]`` seen at ``indices [n]``; ``noise`` may differ between them."""
    if len(indices) == 0:
        return np.full(len(gram), float(prior_mean)), gram.copy()
    factor = np.linalg.cholesky(gram[np.ix_(indices, indices)] + np.diag(np.broadcast_to(noise, len(indices))))
    rows = np.linalg.solve(factor, gram[indices])  # L^-1 K(X, grid)
    return prior_mean + rows.T @ np.linalg.solve(factor, values - prior_mean), gram - rows.T @ rows


def mean_and_sd(gram: Matrix, indices: Matrix, values: Matrix, noise: float | Matrix, prior_mean: float = 0.0) -> tuple[Matrix, Matrix]:
    """Mean and standard deviation ``[M]``; as :func:`posterior` without the covariances."""
    if len(indices) == 0:
        return np.full(len(gram), float(prior_mean)), np.sqrt(np.diag(gram))
    factor = np.linalg.cholesky(gram[np.ix_(indices, indices)] + np.diag(np.broadcast_to(noise, len(indices))))
    rows = np.linalg.solve(factor, gram[indices])
    mean = prior_mean + rows.T @ np.linalg.solve(factor, values - prior_mean)
    return mean, np.sqrt(np.maximum(np.diag(gram) - (rows**2).sum(0), 0))


def information_gain(gram: Matrix, indices: Matrix, noise: float) -> float:
    """Realised information gain ``1/2 logdet(I + K_XX / lam)``."""
    return 0.5 * np.linalg.slogdet(np.eye(len(indices)) + gram[np.ix_(indices, indices)] / noise)[1]


def aggregated(indices: Matrix, values: Matrix, noise: float) -> tuple[Matrix, Matrix, Matrix]:
    """Equivalent data with every point once: ``n`` observations of one point are their average under noise ``lam / n``."""
    points, where, counts = np.unique(indices, return_inverse=True, return_counts=True)
    return points, np.bincount(where, weights=values) / counts, noise / counts


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
    """What a learner believes beforehand of ``k = 1 + m`` functions on ``M`` points."""

    grams: Matrix  # [k, M, M]
    noise: Matrix  # [k]
    prior_mean: Matrix  # [k]
    width: Width


@dataclass(frozen=True)
class Record:
    """What one trial chose and saw."""

    indices: Matrix  # [T]
    values: Matrix  # [T, k]
    initial_indices: Matrix  # [n], seen before round 1
    initial_values: Matrix  # [n, k]


@dataclass(frozen=True)
class Bounds:
    """Confidence bounds on the grid before a round."""

    ucb: Matrix  # [M] of the reward
    lcb: Matrix  # [m, M] of the constraints
    width: Matrix  # [k]


def bounds(model: Model, record: Record) -> Iterator[Bounds]:
    """Bounds before each of the ``T`` rounds, from the data of the rounds before it and the initial design."""
    indices = np.concatenate([record.initial_indices, record.indices])
    values = np.concatenate([record.initial_values, record.values])
    start = len(record.initial_indices)
    for t in range(1, len(record.indices) + 1):
        seen, observed = indices[: start + t - 1], values[: start + t - 1]
        gain = np.array([information_gain(g, seen, lam) for g, lam in zip(model.grams, model.noise, strict=True)])
        beta = model.width(t, gain)
        beliefs = [mean_and_sd(gram, seen, observed[:, j], model.noise[j], model.prior_mean[j]) for j, gram in enumerate(model.grams)]
        mean, sd = (np.stack(x) for x in zip(*beliefs, strict=True))
        yield Bounds(ucb=mean[0] + beta[0] * sd[0], lcb=mean[1:] - beta[1:, None] * sd[1:], width=np.array(beta))


@dataclass(frozen=True)
class Replay:
    """What the algorithm should have computed."""

    scores: Matrix  # [T, M] what it maximises
    multipliers: Matrix  # [T + 1, m] in force at rounds 1..T+1
    widths: Matrix  # [T, k]


def rpol(model: Model, record: Record, *, initial_penalty: float | Matrix = 1.0, penalty_growth: float = 1.0) -> Replay:
    """RPOL-UCB (Guo et al. 2022): eq. (7), then ``Q <- max(Q + c_t^+, eta_t)``, ``eta_t = sqrt(t)``."""
    queue = np.broadcast_to(np.asarray(initial_penalty, float), len(model.grams) - 1)
    scores, multipliers, widths = [], [queue], []
    for t, b in enumerate(bounds(model, record), start=1):
        scores.append(b.ucb - queue @ np.where(b.lcb > 0, b.lcb, 0.0))
        cost = record.values[t - 1, 1:]
        queue = np.maximum(queue + np.where(cost > 0, cost, 0.0), penalty_growth * t**0.5)
        multipliers.append(queue)
        widths.append(b.width)
    return Replay(scores=np.stack(scores), multipliers=np.stack(multipliers), widths=np.stack(widths))


def cbo(
    model: Model,
    record: Record,
    *,
    reward_clip: float = 1.0,
    cost_clip: float | Matrix = 1.0,
    dual_cap: float = 10.0,
    step_divisor: float | Matrix | None = None,
) -> Replay:
    """CBO-UCB (Zhou and Ji 2022, Algorithm 1): truncated Lagrangian, dual step along the estimate at ``x_t``; ``V = G sqrt(T) / rho``."""
    constraints = len(model.grams) - 1
    clip = np.broadcast_to(np.asarray(cost_clip, float), constraints)
    divisor = clip * len(record.indices) ** 0.5 / dual_cap if step_divisor is None else np.broadcast_to(step_divisor, constraints)
    dual = np.zeros(constraints)
    scores, multipliers, widths = [], [dual], []
    for chosen, b in zip(record.indices, bounds(model, record), strict=True):
        cost = np.minimum(np.maximum(b.lcb, -clip[:, None]), clip[:, None])
        scores.append(np.minimum(np.maximum(b.ucb, -reward_clip), reward_clip) - dual @ cost)
        dual = np.minimum(np.maximum(dual + cost[:, chosen] / divisor, 0.0), dual_cap)
        multipliers.append(dual)
        widths.append(b.width)
    return Replay(scores=np.stack(scores), multipliers=np.stack(multipliers), widths=np.stack(widths))


@dataclass(frozen=True)
class ConfigReplay:
    """What CONFIG should have computed; a point may be chosen where ``worst <= 0``."""

    ucb: Matrix  # [T, M]
    worst: Matrix  # [T, M] the largest LCB over constraints
    widths: Matrix  # [T, k]


def config(model: Model, record: Record) -> ConfigReplay:
    """CONFIG (Xu et al. 2023, Algorithm 1)."""
    rounds = list(bounds(model, record))
    return ConfigReplay(
        ucb=np.stack([b.ucb for b in rounds]),
        worst=np.stack([b.lcb.max(0) for b in rounds]),
        widths=np.stack([b.width for b in rounds]),
    )


def config_faults(replay: ConfigReplay, indices: Matrix, declared_round: int, tolerance: float) -> list[str]:
    """Every round in which the recorded choice or declaration cannot be CONFIG's, up to rounding.

    A lower bound within ``tolerance`` of the edge 0 may have been rounded to either side of it, so such a point may be chosen but
    need not be, and a round in which the whole grid is within tolerance of infeasible may be declared or not.
    """
    faults = []
    for t, (ucb, worst, chosen) in enumerate(zip(replay.ucb, replay.worst, indices, strict=True), start=1):
        sure, impossible = worst.min() <= -tolerance, worst.min() > tolerance
        if sure and declared_round == t:
            faults.append(f"round {t}: declared, although a point has LCB {worst.min():.3g}")
        if impossible and not 0 < declared_round <= t:
            faults.append(f"round {t}: not declared, although the least worst LCB is {worst.min():.3g}")
        best = ucb[worst <= -tolerance].max(initial=-np.inf)
        eligible = worst[chosen] <= tolerance and ucb[chosen] >= best - tolerance * max(1.0, abs(best))
        least = worst[chosen] <= worst.min() + tolerance * max(1.0, abs(worst.min()))
        if not (eligible if sure else least if impossible else eligible or least):
            faults.append(f"round {t}: chose UCB {ucb[chosen]:.6g}, worst LCB {worst[chosen]:.3g}; best eligible UCB {best:.6g}")
    return faults


def score_gaps(scores: Matrix, indices: Matrix) -> Matrix:
    """``[T]`` how far the chosen point's score falls short of the best, relative to ``max(1, |best|)``."""
    best = scores.max(1)
    return (best - scores[np.arange(len(indices)), indices]) / np.maximum(1.0, np.abs(best))


def random_functions(gram: Matrix, count: int, rng: np.random.Generator) -> Matrix:
    """``count`` draws ``[count, M]`` of a zero-mean Gaussian process."""
    return rng.standard_normal((count, len(gram))) @ np.linalg.cholesky(gram + 1e-9 * np.eye(len(gram))).T
