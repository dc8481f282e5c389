"""GoOSE of one step, point by point."""

from typing import Any

import numpy as np

from tests.oracles import safe_rules
from tests.oracles.bandit import Model, Record
from tests.oracles.gaussian_process import Matrix

# Distances of a grid tie, and the first of the tied points counts.
NEAR = 1e-9


def scores(model: Model, record: Record, *, lipschitz: Any = 1.0, epsilon: float = 0.1, **told: Any) -> Matrix:
    """``[T, M]`` what the algorithm maximises."""
    points = safe_rules.grid_points(len(model.grams[0]))
    away, rows = safe_rules.distances(points), []
    constant = np.broadcast_to(lipschitz, len(model.grams) - 1)
    for known, safe in safe_rules.rounds(model, record, **told):
        lower, lengths = known.lcb[1:], (known.ucb - known.lcb)[1:].min(0)
        goals = (lower < -epsilon).all(0)
        goal = np.argmax(safe_rules.hidden(goals if goals.any() else ~goals, known.ucb[0]))
        pool = [x for x in np.flatnonzero(safe) if lengths[x] > epsilon]
        outside = np.flatnonzero(~safe)

        def reaches(x: int, y: int, lower: Matrix = lower) -> bool:
            return all(lower[j, x] + constant[j] * away[x, y] <= epsilon for j in range(len(constant)))

        targets = [y for y in outside if any(reaches(x, y) for x in pool)]
        if safe[goal] or not targets:
            rows.append(safe_rules.hidden(safe, known.ucb[0]))
            continue
        nearest = min(away[y, goal] for y in targets)
        target = next(y for y in targets if away[y, goal] <= nearest + NEAR)
        rows.append(safe_rules.hidden(np.isin(np.arange(len(points)), [x for x in pool if reaches(x, target)]), lengths))
    return np.stack(rows)
