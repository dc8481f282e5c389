"""Replays of UCB-D, UCB-C and COBAR.

Values are NaN where a function was not evaluated. A value is used from the round after its arrival on.
"""

from dataclasses import dataclass

import numpy as np

from tests.oracles.bandit import Model, Record
from tests.oracles.gaussian_process import Matrix, mean_and_sd

UNREACHABLE = -1e9


@dataclass(frozen=True)
class Rounds:
    """The choices that an algorithm should have computed."""

    scores: Matrix  # [T, M] what it maximises
    outputs: Matrix  # [T, k] evaluated at the recorded point
    recommended: int = -1


def intervals(model: Model, record: Record, due: Matrix, width: float, t: int) -> tuple[Matrix, Matrix]:
    """Return lower and upper bounds ``[k, M]`` of round ``t``."""
    bounds = []
    for j, gram in enumerate(model.grams):
        known = due[: t - 1, j] < t
        seen = np.concatenate([record.initial_indices, record.indices[: t - 1][known]])
        values = np.concatenate([record.initial_values[:, j], record.values[: t - 1, j][known]])
        mean, sd = mean_and_sd(gram, seen, values, model.noise[j], model.prior_mean[j])
        bounds.append((mean - width * sd, mean + width * sd))
    lower, upper = zip(*bounds, strict=True)
    return np.stack(lower), np.stack(upper)


def arrivals(record: Record) -> Matrix:
    """Return the rounds of evaluated values at once, endless for others."""
    numbers = np.arange(1, len(record.indices) + 1)[:, None]
    return np.where(np.isnan(record.values), 10**9, numbers)


def ucbd(model: Model, record: Record, due: Matrix, *, width: float, guard: float = 10.0, coupled: bool = False) -> Rounds:
    """Replay the branches of the authors' code, turned to ``g <= 0``."""
    scores, outputs, bounds = [], [], []
    for t, x in enumerate(record.indices, start=1):
        lower, upper = intervals(model, record, due, width, t)
        optimistic = (lower[1:] <= 0).all(0)
        evaluated = np.zeros(len(lower), bool)
        if not optimistic.any():
            scores.append(-lower[1:].max(0))
            evaluated[1 + lower[1:, x].argmax()] = True
            outputs.append(evaluated)
            continue
        scores.append(np.where(optimistic, upper[0], UNREACHABLE))
        length, gaps = upper[0, x] - lower[0, x], upper[1:, x]
        if gaps.max() <= length:
            evaluated[0] = True
            evaluated[1:] = (upper - lower)[1:, x] > guard * length
        else:
            evaluated[1 + gaps.argmax()] = True
        outputs.append(np.ones_like(evaluated) if coupled else evaluated)
        bounds.append((max(length, gaps.max()), x))
    return Rounds(np.stack(scores), np.stack(outputs), min(bounds, key=lambda bound: bound[0])[1] if bounds else -1)


def cobar(model: Model, record: Record, due: Matrix, *, width: float, decoupled: bool = False) -> Rounds:
    """Replay COBAR set by set."""
    shape = len(model.grams), len(model.grams[0])
    low, high = np.full(shape, -np.inf), np.full(shape, np.inf)
    scores, outputs = [], []
    for t, x in enumerate(record.indices, start=1):
        lower, upper = intervals(model, record, due, width, t)
        low, high = np.maximum(low, lower), np.minimum(high, upper)
        sure = (high[1:] <= 0).all(0)
        level = low[0][sure].max() if sure.any() else -np.inf
        region = (high[0] >= level) & (low[1:] <= 0).all(0)
        if not region.any():
            scores.append(-low[1:].max(0))
            proposer = 1 + int(low[1:, x].argmax())
        else:
            proposals = [np.where(region, high[0] - (level if sure.any() else low[0]), UNREACHABLE)]
            for j in range(1, len(low)):
                proposals.append(np.where(region & (high[j] > 0), high[j] - low[j], UNREACHABLE))
            proposer = int(np.argmax([proposal.max() for proposal in proposals]))
            scores.append(proposals[proposer])
        outputs.append(np.arange(shape[0]) == proposer if decoupled else np.ones(shape[0], bool))
    return Rounds(np.stack(scores), np.stack(outputs))
