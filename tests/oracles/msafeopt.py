"""M-SafeOpt, column by column."""

from typing import Any

import numpy as np

from tests.oracles import safe_rules
from tests.oracles.bandit import Model, Record
from tests.oracles.gaussian_process import Matrix


def scores(
    model: Model, record: Record, *, axis: int = 0, rise: float = 1.0, slope: float = 0.0, each: bool = False, **told: Any
) -> Matrix:
    """``[T, M]`` what the algorithm maximises."""
    points = safe_rules.grid_points(len(model.grams[0]))
    values, rows = np.unique(points[:, axis]), []
    told.setdefault("seeds", np.flatnonzero(points[:, axis] == 0))
    for known, safe in safe_rules.rounds(model, record, **told):
        beta, sd, score = known.belief.width, known.belief.sd, np.full(len(points), -np.inf)
        best_sure = known.lcb[0][safe].max()
        for x in np.unique(points[:, 1 - axis]):
            # The column begins with its least s.
            column = np.flatnonzero(points[:, 1 - axis] == x)
            here = column[safe[column]]
            if not len(here):
                continue
            edge, top = here[-1], here[np.argmax(known.ucb[0][here])]
            sure = known.lcb[0][here].max() if each else best_sure
            within = [s for s in values if np.all(known.lcb[1:, edge] + slope * (s - points[edge, axis]) <= 0)]
            promise = known.ucb[0][edge] + rise * (max(within) - points[edge, axis]) if within else -np.inf
            if each or known.ucb[0][top] > sure or promise > sure:
                score[top] = max(score[top], beta[0] * sd[0, top])
            if promise > sure:
                score[edge] = max(score[edge], (beta * sd[:, edge]).max())
        rows.append(
            score if score.max() > 0 else safe_rules.hidden(np.arange(len(points)) == np.flatnonzero(safe)[0], np.zeros(len(points)))
        )
    return np.stack(rows)
