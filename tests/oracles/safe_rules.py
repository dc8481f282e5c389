"""Safe points of every round of a run, by the rules' formulas."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tests.oracles.bandit import Model, Record
from tests.oracles.gaussian_process import Matrix
from tests.oracles.safe_sets import Knowledge, knowledge, seeds_of


def grid_points(size: int) -> Matrix:
    """The points of a square grid of the unit square."""
    axis = np.linspace(0, 1, round(np.sqrt(size)))
    return np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)


def distances(points: Matrix) -> Matrix:
    return np.sqrt(((points[:, None, :] - points[None, :, :]) ** 2).sum(-1))


def along(mask: Matrix, axis: int, *, below: bool) -> Matrix:
    """Return a square grid's points below, or above, ``mask``."""
    side = round(np.sqrt(len(mask)))
    table = np.moveaxis(mask.reshape(side, side), axis, 0)
    found = np.stack([(table[i:] if below else table[: i + 1]).any(0) for i in range(side)])
    return np.moveaxis(found, 0, axis).reshape(-1)


def judged(rule: str, how: Mapping[str, Any], known: Knowledge, points: Matrix, seen: Matrix, costs: Matrix) -> tuple[Matrix, Matrix]:
    """Return certified and violated points, given costs ``[n, m]`` at ``seen [n]``."""
    if rule == "monotone":
        certified, violated = judged(how["rule"], how, known, points, seen, costs)
        return along(certified, how["axis"], below=True), along(violated, how["axis"], below=False)
    if rule == "lipschitz":
        away = how["bound"] + how["constant"][:, None] * distances(points)[seen][:, None, :]  # [n, m, M]
        upper = np.min(costs[:, :, None] + away, axis=0, initial=np.inf)
        lower = np.max(costs[:, :, None] - away, axis=0, initial=-np.inf)
        return np.all(upper <= 0, axis=0), np.any(lower > 0, axis=0)
    if rule == "conformal":
        width = how["width"][len(seen) - how["design"]]
        certified = np.all(known.belief.mean[1:] + width * known.belief.sd[1:] <= 0, axis=0) & (width <= how["w_max"])
        return certified, np.zeros(len(points), bool)
    return np.all(known.ucb[1:] <= 0, axis=0), np.any(known.lcb[1:] > 0, axis=0)


def conformal_widths(costs: Matrix, *, alpha: float, eta: float, w_max: float, w_1: float, omega: float, horizon: int) -> Matrix:
    """Return the widths ``[T + 1]``, given the measured costs ``[T, m]``."""
    share, widths = alpha - (w_max - w_1) / (eta * horizon) - 1 / horizon, [w_1]
    for cost in costs:
        widths.append(max(0.0, widths[-1] + eta * (float(cost.max() > -omega) - share)))
    return np.array(widths)


def rounds(
    model: Model,
    record: Record,
    *,
    rule: str = "confidence",
    how: Mapping[str, Any] | None = None,
    seeds: Matrix | None = None,
    count: int = 3,
) -> Iterator[tuple[Knowledge, Matrix]]:
    """Yield the belief and the safe set of every round."""
    points, design, start = grid_points(len(model.grams[0])), len(record.initial_indices), None
    chosen = np.concatenate([record.initial_indices, record.indices])
    costs = np.concatenate([record.initial_values, record.values])[:, 1:]
    how = dict(how or {}) | {"design": design}
    if "conformal" in (rule, how.get("rule")):
        settings = {name: how[name] for name in ("alpha", "eta", "w_max", "w_1", "omega")}
        how["width"] = conformal_widths(record.values[:, 1:], **settings, horizon=len(record.indices))
    for t, known in enumerate(knowledge(model, record)):
        start = start if start is not None else seeds_of(known, count) if seeds is None else np.isin(np.arange(len(points)), seeds)
        certified, violated = judged(rule, how, known, points, chosen[: design + t], costs[: design + t])
        trusted = start & ~violated
        yield known, certified | trusted if (certified | trusted).any() else start


def hidden(safe: Matrix, score: Matrix) -> Matrix:
    """The score on the safe points, minus infinity elsewhere."""
    return np.where(safe, score, -np.inf)


def sgp_ucb(known: Knowledge, safe: Matrix) -> Matrix:
    """Scores of SGP-UCB after its warm-up."""
    return hidden(safe, known.ucb[0])


def safeopt(known: Knowledge, safe: Matrix, constant: Matrix) -> Matrix:
    """Return SafeOpt's scores with a Lipschitz constant and unit prior deviations."""
    reaches = np.all(known.lcb[1:, :, None] + constant[:, None, None] * distances(grid_points(len(safe))) <= 0, axis=0)
    expanders = safe & (reaches & ~safe[None, :]).any(1)
    maximisers = safe & (known.ucb[0] >= known.lcb[0][safe].max())
    return hidden(maximisers | expanders, known.size)
