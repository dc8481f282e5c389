"""Replay of PDCBO (Xu et al. 2023, CDC).

It has the authors' class, and the form with the estimate (Xu et al. 2023, DMABO).
"""

import numpy as np

from tests.oracles import policies
from tests.oracles.bandit import Model, Record, Replay
from tests.oracles.gaussian_process import Matrix


def replay(
    model: Model, record: Record, *, first: float = 1.0, step: float = 1.0, decay: float = 0.0, epsilon: float = 0.0, observed: bool = True
) -> Replay:
    """Replay ``UCB_f - phi . LCB_g`` with its dual steps.

    ``phi <- max(phi + step t^-decay (d_t + epsilon), 0)`` has ``d_t = c_t`` or ``LCB_g(x_t)``.
    """
    phi = np.full(len(model.grams) - 1, first)
    scores, multipliers, widths = [], [phi], []
    for t, belief in enumerate(policies.beliefs(model, record), start=1):
        upper, *lower = policies.optimistic(belief, None)
        scores.append(upper - sum(factor * bound for factor, bound in zip(phi, lower, strict=True)))
        cost = record.values[t - 1, 1:] if observed else np.array([bound[record.indices[t - 1]] for bound in lower])
        phi = np.maximum(phi + step / t**decay * (cost + epsilon), 0)
        multipliers.append(phi)
        widths.append(belief.width)
    return Replay(scores=np.stack(scores), multipliers=np.stack(multipliers), widths=np.stack(widths))


def scores(model: Model, record: Record) -> Matrix:
    return replay(model, record).scores
