"""Replays of ADMMBO."""

from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from tests.oracles.bandit import Model, Record
from tests.oracles.boxes import box
from tests.oracles.expected_improvement import log_expected_improvement
from tests.oracles.gaussian_process import Matrix, posterior


@dataclass(frozen=True)
class AdmmboReplay:
    """The choice that ADMMBO should have computed."""

    scores: Matrix  # [T, M] what it maximises
    evaluated: Matrix  # [T] 0 for the reward, j for constraint j, -1 once it has stopped
    outer: int
    rho: float


def admmbo(
    model: Model,
    record: Record,
    points: Matrix,
    *,
    rho: float,
    weight: float,
    side: float = 1.0,
    absolute: float = 0.05,
    relative: float = 0.05,
    relaxation: float = 1.5,
    tolerance: float = 0.01,
    budgets: tuple[tuple[int, int], tuple[int, int]],
    outer_iterations: int,
) -> AdmmboReplay:
    """ADMMBO (Ariafar et al. 2019) as the paper's loops."""
    grid, (k, size) = box(points, side), (len(model.grams), len(points))
    m, d = k - 1, grid.shape[1]
    data: list[tuple[list[int], list[float]]] = [(list(record.initial_indices), list(record.initial_values[:, j])) for j in range(k)]
    x, z, y = np.full(d, side), np.full((m, d), side), np.zeros((m, d))
    scores: list[Matrix] = []
    evaluated: list[int] = []
    horizon = len(record.indices)

    def belief(j: int) -> tuple[Matrix, Matrix]:
        seen, values = data[j]
        mean, covariance = posterior(model.grams[j], np.array(seen, int), np.array(values), model.noise[j], model.prior_mean[j])
        return mean, np.sqrt(np.maximum(np.diag(covariance), 0))

    def evaluate(j: int, score: Matrix) -> bool:
        """Score an evaluation of function ``j``, and return its recorded value.

        The value is false when the record ends.
        """
        t = len(scores)
        if t == horizon:
            return False
        scores.append(score)
        evaluated.append(j)
        data[j][0].append(record.indices[t])
        data[j][1].append(record.values[t, j])
        return True

    def x_objective(mean: Matrix) -> Matrix:
        centre = np.mean([z[j] - y[j] / rho for j in range(m)], axis=0)
        return -mean + m * rho / 2 * ((grid - centre) ** 2).sum(1)

    def distance_term(j: int) -> Matrix:
        return rho / (2 * weight) * ((x - grid + y[j] / rho) ** 2).sum(1)

    def best_evaluated(j: int, objective: Matrix) -> Matrix:
        seen = np.unique(data[j][0])
        return grid[seen[np.argmin(objective[seen])]]

    outer = 0
    while outer < outer_iterations and len(scores) < horizon:
        for _ in range(budgets[0][outer > 0]):
            mean, sd = belief(0)
            objective = x_objective(mean)
            seen = data[0][0]
            score = log_expected_improvement(-objective, sd, (-objective)[seen].max()) if seen else -objective
            if not evaluate(0, score):
                return AdmmboReplay(np.stack(scores), np.array(evaluated), outer, rho)
        x = best_evaluated(0, x_objective(belief(0)[0]))
        before = z.copy()
        for j in range(m):
            for _ in range(budgets[1][outer > 0]):
                mean, sd = belief(j + 1)
                objective = (mean > 0) + distance_term(j)
                seen = data[j + 1][0]
                least = objective[seen].min() if seen else 1 + distance_term(j).max()
                q, theta = least - distance_term(j), ndtr(-mean / sd)
                score = np.select([q < 0, q < 1], [np.zeros(size), q * theta], q - (1 - theta))
                if not evaluate(j + 1, score if score.max() > 0 else q):
                    return AdmmboReplay(np.stack(scores), np.array(evaluated), outer, rho)
            z[j] = best_evaluated(j + 1, (belief(j + 1)[0] > 0) + distance_term(j))
            y[j] = y[j] + rho * (x - z[j])
        outer += 1
        norm = np.linalg.norm
        primal, dual = norm(x - z, axis=1), rho * norm(z - before, axis=1)
        near = primal < np.sqrt(d) * absolute + relaxation * relative * np.maximum(norm(x), norm(z, axis=1))
        still = dual < np.sqrt(d) * absolute + relaxation * relative * rho * norm(y, axis=1)
        if np.all(near & still):
            break
        if primal.mean() > 10 * dual.mean():
            rho *= 2
        elif dual.mean() > 10 * primal.mean():
            rho /= 2
    means = np.stack([belief(j)[0] for j in range(k)])
    tried = np.zeros(size, bool)
    tried[np.concatenate([np.array(seen, int) for seen, _ in data])] = True
    worst = means[1:].max(0)
    fine = tried & (worst <= tolerance)
    answer = np.where(fine, means[0], -1e9) if fine.any() else np.where(tried, -worst, -1e9)
    while len(scores) < horizon:
        scores.append(answer)
        evaluated.append(-1)
    return AdmmboReplay(np.stack(scores), np.array(evaluated), outer, rho)
