"""CSafeOpt from the formulas of its code."""

from typing import Any

import numpy as np

from tests.oracles import safe_rules
from tests.oracles.bandit import Model, Record
from tests.oracles.gaussian_process import Matrix


def scores(model: Model, record: Record, *, epsilon: float = 1.0, alpha: float = 0.6, zeta: float = 0.1, **told: Any) -> Matrix:
    """``[T, M]`` what the algorithm maximises."""
    rows = []
    for known, safe in safe_rules.rounds(model, record, **told):
        threshold = epsilon / known.belief.width[0] ** (2 * alpha)
        uncertain = safe & (2 * known.belief.width[1:, None] * known.belief.sd[1:] > threshold).all(0)
        gate = np.where(uncertain, np.clip(known.belief.sd[0] - threshold, 0, None), 0.0)
        gate = gate / gate.max() if gate.max() > 0 else gate
        inside = known.ucb[0][safe]
        rows.append(safe_rules.hidden(safe, known.ucb[0] + (inside.max() - inside.min() + zeta) * gate))
    return np.stack(rows)
