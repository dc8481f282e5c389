"""Replays of RPOL, CBO and CONFIG by their confidence bounds."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.oracles import gaussian_process as gp
from tests.oracles.bandit import Model, Record, Replay
from tests.oracles.gaussian_process import Matrix


@dataclass(frozen=True)
class Bounds:
    """Confidence bounds on the grid before a round."""

    ucb: Matrix  # [M] of the reward
    lcb: Matrix  # [m, M] of the constraints
    width: Matrix  # [k]


def bounds(model: Model, record: Record) -> Iterator[Bounds]:
    """Return the bounds before each of the ``T`` rounds."""
    indices = np.concatenate([record.initial_indices, record.indices])
    values = np.concatenate([record.initial_values, record.values])
    start = len(record.initial_indices)
    for t in range(1, len(record.indices) + 1):
        end = start + t - 1
        mean, sd, gain = gp.beliefs(model.grams, indices[:end], values[:end], model.noise, model.prior_mean)
        beta = model.width(t, gain)
        yield Bounds(ucb=mean[0] + beta[0] * sd[0], lcb=mean[1:] - beta[1:, None] * sd[1:], width=np.array(beta))


def rpol(model: Model, record: Record, *, initial_penalty: float | Matrix = 1.0, penalty_growth: float = 1.0) -> Replay:
    """RPOL-UCB (Guo et al. 2022, eq. 7).

    The multipliers follow ``Q <- max(Q + c_t^+, sqrt(t))``.
    """
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
    """CBO-UCB (Zhou and Ji 2022, Algorithm 1) with its ``V``.

    The Lagrangian is truncated, and the dual step follows the estimate at ``x_t``.
    """
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
    """The right choice of CONFIG, among points with ``worst <= 0``."""

    ucb: Matrix  # [T, M]
    worst: Matrix  # [T, M] the largest LCB over constraints
    widths: Matrix  # [T, k]


def config(model: Model, record: Record) -> ConfigReplay:
    """CONFIG (Xu et al. 2023, Algorithm 1)."""
    rounds = list(bounds(model, record))
    return ConfigReplay(
        ucb=np.stack([b.ucb for b in rounds]), worst=np.stack([b.lcb.max(0) for b in rounds]), widths=np.stack([b.width for b in rounds])
    )


def config_faults(replay: ConfigReplay, indices: Matrix, declared_round: int, tolerance: float) -> list[str]:
    """Return every round whose choice or declaration cannot be CONFIG's.

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
