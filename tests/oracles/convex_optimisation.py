"""Replays of two-point bandit online convex optimisation."""

from dataclasses import dataclass

import numpy as np

from tests.oracles.bandit import Record
from tests.oracles.gaussian_process import Matrix


@dataclass(frozen=True)
class OcoReplay:
    """The play that bandit OCO should have computed."""

    targets: Matrix  # [T, d] where it wanted to evaluate, in the unit box
    centres: Matrix  # [T, d]
    multipliers: Matrix  # [T + 1, m]


def oco(record: Record, directions: Matrix, first_centre: Matrix, *, eta: float, kappa: float, delta: float, shrink: float) -> OcoReplay:
    """Two-point bandit OCO (Cao and Liu 2018) from drawn ``directions [T, d]``."""
    x, d = np.array(first_centre, float), directions.shape[1]
    dual = np.zeros(record.values.shape[1] - 1)
    targets, centres, multipliers = [], [], [dual]
    for t in range(len(record.indices)):
        u = directions[t - t % 2]
        targets.append(x + delta * u if t % 2 == 0 else x - delta * u)
        centres.append(x)
        if t % 2 == 1:
            plus, minus = record.values[t - 1], record.values[t]
            gradients = np.outer(plus - minus, u) * d / (2 * delta)  # [1 + m, d]
            step = gradients[0] - dual @ gradients[1:]
            dual = np.maximum(dual + eta * ((plus + minus)[1:] / 2 - kappa * dual), 0)
            x = np.minimum(np.maximum(x + eta * step, shrink / 2), 1 - shrink / 2)
        multipliers.append(dual)
    return OcoReplay(targets=np.stack(targets), centres=np.stack(centres), multipliers=np.stack(multipliers))
