"""Replays of the baselines: primal-dual on observations, constrained EI and Thompson sampling, and the methods with a safe set.

As ``reference``: float64 NumPy, no JAX, nothing of ``jaxbandit``; every posterior is dense and made afresh each round. A choice from a
set has no score to compare where rounding may move a point into or out of the set. Such a choice is held against two sets, one of the
points that are surely in and one of those that may be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from reference import Matrix, Model, Record, Replay, information_gain, posterior
from reference_more import Belief, beliefs
from scipy.special import erfcx, log_ndtr, ndtr


def primal_dual(model: Model, record: Record, *, first: Matrix, step: float) -> Replay:
    """``UCB_f - phi . LCB_g``; the *observed* cost moves the dual, ``phi <- (phi + eta c_t)^+``, without cap."""
    phi = np.array(first, float)
    scores, multipliers, widths = [], [phi], []
    for t, b in enumerate(beliefs(model, record), start=1):
        lower = b.mean - b.width[:, None] * b.sd
        scores.append(b.mean[0] + b.width[0] * b.sd[0] - phi @ lower[1:])
        phi = np.maximum(0, phi + step * record.values[t - 1, 1:])
        multipliers.append(phi)
        widths.append(b.width)
    return Replay(scores=np.stack(scores), multipliers=np.stack(multipliers), widths=np.stack(widths))


def log_expected_improvement(mean: Matrix, sd: Matrix, best: float) -> Matrix:
    """``log(sigma (z Phi(z) + phi(z)))`` as BoTorch's ``LogExpectedImprovement`` writes it (Ament et al. 2023, eq. 9 and 14).

    Directly for ``z > -1``; below as ``log phi(z) + log(1 - sqrt(pi / 2) |z| erfcx(|z| / sqrt 2))``, which is
    ``log phi(z) - 2 log |z|`` once the difference is all rounding.
    """
    z = (mean - best) / sd
    log_phi = -(z**2) / 2 - np.log(2 * np.pi) / 2
    x = np.maximum(-z, 1.0)
    direct = np.log(np.exp(np.where(z > -1, log_phi, 0)) + np.where(z > -1, z * ndtr(z), 0))
    middle = log_phi + np.log(np.maximum(1 - np.sqrt(np.pi / 2) * x * erfcx(x / np.sqrt(2)), 1e-300))
    far = log_phi - 2 * np.log(x)
    return np.log(sd) + np.where(z > -1, direct, np.where(z > -1e5, middle, far))


@dataclass(frozen=True)
class CeiReplay:
    """What constrained EI should have computed."""

    scores: Matrix  # [T, M] log of EI times the probability of feasibility
    feasible: Matrix  # [T] whether there was an incumbent
    doubtful: Matrix  # [T] whether rounding may have decided which points count as feasible


def cei(model: Model, record: Record, *, incumbent: str, improvement: float = 0.0, tolerance: float = 0.0) -> CeiReplay:
    """Constrained EI with ``f+`` by posterior mean at queried points, or by noisy observation."""
    chosen = np.concatenate([record.initial_indices, record.indices])
    values = np.concatenate([record.initial_values, record.values])
    scores, feasible, doubtful = [], [], []
    for t, b in enumerate(beliefs(model, record)):
        past = slice(0, len(record.initial_indices) + t)
        if incumbent == "mean":
            costs, rewards = b.mean[1:, chosen[past]].T, b.mean[0, chosen[past]]
        else:
            costs, rewards = values[past, 1:], values[past, 0]
        fine = np.all(costs <= 0, axis=1)
        doubtful.append(incumbent == "mean" and bool(np.any(np.abs(costs.max(1, initial=-np.inf)) <= tolerance)))
        feasible.append(bool(fine.any()))
        score = log_ndtr(-b.mean[1:] / b.sd[1:]).sum(0)
        if fine.any():
            score = score + log_expected_improvement(b.mean[0], b.sd[0], rewards[fine].max() + improvement)
        scores.append(score)
    return CeiReplay(scores=np.stack(scores), feasible=np.array(feasible), doubtful=np.array(doubtful))


def constrained_thompson(draws: Matrix) -> Matrix:
    """Scores ``[T, M]`` of constrained Thompson sampling from the drawn functions ``[T, 1 + m, M]``.

    The best drawn reward where every drawn constraint holds, else the least total violation.
    """
    scores = []
    for f, *g in draws:
        excess = sum(np.maximum(g_j, 0) for g_j in g)
        scores.append(np.where(excess == 0, f, -1e9) if np.any(excess == 0) else -excess)
    return np.stack(scores)


# Safe sets. ``margin`` is how far a point has to be from the edge of a set to be surely on its side.


@dataclass(frozen=True)
class Knowledge:
    """A belief with its covariances, and the confidence bounds."""

    belief: Belief
    covariance: Matrix  # [k, M, M]
    ucb: Matrix  # [k, M]
    lcb: Matrix  # [k, M]
    size: Matrix  # [M] widest interval of all outputs, each in units of its prior standard deviation


def knowledge(model: Model, record: Record) -> Iterator[Knowledge]:
    """What is known before each round."""
    chosen = np.concatenate([record.initial_indices, record.indices])
    values = np.concatenate([record.initial_values, record.values])
    start = len(record.initial_indices)
    for t in range(1, len(record.indices) + 1):
        seen, observed = chosen[: start + t - 1], values[: start + t - 1]
        gain = np.array([information_gain(g, seen, lam) for g, lam in zip(model.grams, model.noise, strict=True)])
        width = np.array(model.width(t, gain))
        pairs = [posterior(g, seen, observed[:, k], model.noise[k], model.prior_mean[k]) for k, g in enumerate(model.grams)]
        mean, covariance = (np.stack(x) for x in zip(*pairs, strict=True))
        sd = np.sqrt(np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0))
        reach = width[:, None] * sd
        prior = np.sqrt([np.diag(g).max() for g in model.grams])
        yield Knowledge(
            belief=Belief(mean=mean, sd=sd, width=width),
            covariance=covariance,
            ucb=mean + reach,
            lcb=mean - reach,
            size=(2 * reach / prior[:, None]).max(0),
        )


def certified(known: Knowledge, margin: float) -> Matrix:
    """Points with ``UCB_gj <= margin`` for all ``j``."""
    return np.all(known.ucb[1:] <= margin, axis=0)


def seeds_of(known: Knowledge, count: int) -> Matrix:
    """The ``count`` points of least worst upper bound, as ``[M]``."""
    chosen = np.zeros(known.ucb.shape[1], bool)
    chosen[np.argsort(known.ucb[1:].max(0), kind="stable")[:count]] = True
    return chosen


def could_certify(model: Model, known: Knowledge, margin: float) -> Matrix:
    """``[m, M, M]``: whether ``LCB_gj(x)`` observed at ``x`` would give ``UCB_gj(x') <= margin``; ``x`` first."""
    answers = []
    for j in range(1, len(model.grams)):
        k, mean, sd, beta = known.covariance[j], known.belief.mean[j], known.belief.sd[j], known.belief.width[j]
        total = np.diag(k) + model.noise[j]
        new_mean = mean[None, :] + k * ((known.lcb[j] - mean) / total)[:, None]
        new_variance = np.maximum(sd[None, :] ** 2 - k**2 / total[:, None], 0)
        answers.append(new_mean + beta * np.sqrt(new_variance) <= margin)
    return np.stack(answers)


def lipschitz_certify(known: Knowledge, points: Matrix, lipschitz: Matrix, margin: float) -> Matrix:
    """``[m, M, M]``: whether ``LCB_gj(x) + L_j |x - x'| <= margin``."""
    distance = np.sqrt(((points[:, None, :] - points[None, :, :]) ** 2).sum(-1))
    return known.lcb[1:, :, None] + np.asarray(lipschitz)[:, None, None] * distance[None] <= margin


def expanders(reach: Matrix, outside: Matrix, together: bool) -> Matrix:
    """Points from which some point outside is reached, for all constraints together or for each by itself, ``[M]``."""
    reach = reach & outside[None, None, :]
    return np.all(reach, axis=0).any(-1) if together else np.all(reach.any(-1), axis=0)


@dataclass(frozen=True)
class Sets:
    """The sets of a round, once as small and once as large as rounding may make them."""

    safe: tuple[Matrix, Matrix]  # surely, maybe
    maximisers: tuple[Matrix, Matrix]
    expanders: tuple[Matrix, Matrix]


def sets(model: Model, known: Knowledge, seeds: Matrix, margin: float, *, points: Matrix, lipschitz: Matrix | None, together: bool) -> Sets:
    """Safe set, maximisers and expanders."""
    small, large = certified(known, -margin) | seeds, certified(known, margin) | seeds
    upper, lower = known.ucb[0], known.lcb[0]
    top = {"small": lower[small].max(), "large": lower[large].max()}

    def expanding(inside: Matrix, outside: Matrix, m: float) -> Matrix:
        reach = could_certify(model, known, m) if lipschitz is None else lipschitz_certify(known, points, lipschitz, m)
        return inside & expanders(reach, outside, together)

    return Sets(
        safe=(small, large),
        maximisers=(small & (upper >= top["large"] + margin), large & (upper >= top["small"] - margin)),
        expanders=(expanding(small, ~large, -margin), expanding(large, ~small, margin)),
    )


def best_of(value: Matrix, surely: Matrix, maybe: Matrix, chosen: int, margin: float) -> str | None:
    """What is wrong with ``chosen`` as the largest ``value`` of a set between ``surely`` and ``maybe``."""
    if not maybe[chosen]:
        return "not in the set"
    best = value[surely].max(initial=-np.inf)
    short = best - value[chosen]
    return f"short of the best by {short:.3g}" if short > margin * max(1.0, abs(best)) else None


def safe_faults(
    model: Model,
    record: Record,
    *,
    points: Matrix,
    rule: str,
    seeds: Matrix | None,
    count: int = 1,
    lipschitz: Matrix | None = None,
    together: bool = True,
    stage: int = 0,
    margin: float,
) -> list[str]:
    """Every round in which the recorded choice cannot be that of ``safeopt``, ``stageopt`` or ``sgp_ucb``.

    ``stage`` is ``T0`` of the second, ``T'`` of the third.
    """
    faults = []
    mask = None
    for t, known in enumerate(knowledge(model, record), start=1):
        if mask is None:
            mask = seeds_of(known, count) if seeds is None else np.isin(np.arange(len(points)), seeds)
        chosen = record.indices[t - 1]
        s = sets(model, known, mask, margin, points=points, lipschitz=lipschitz, together=together)
        if rule == "sgp_ucb" and t <= stage:
            wrong = None if mask[chosen] else "not a seed"
        elif rule in ("stageopt", "sgp_ucb") and t > stage:
            wrong = best_of(known.ucb[0], *s.safe, chosen, margin)
        elif rule == "safeopt":
            either = [a | b for a, b in zip(s.maximisers, s.expanders, strict=True)]
            wrong = best_of(known.size, *either, chosen, margin)
        else:
            wrong = best_of(known.size, *s.expanders, chosen, margin)
            if not s.expanders[0].any() and wrong is not None:  # perhaps there was none
                wrong = best_of(known.size, *s.maximisers, chosen, margin)
        if wrong is not None:
            faults.append(f"round {t}: point {chosen} {wrong}")
    return faults


# Methods that evaluate pairs of points, or functions apart.


def box(points: Matrix, side: float = 1.0) -> Matrix:
    """The points in their bounding box, scaled to ``[0, side]^d``."""
    return side * (points - points.min(0)) / (points.max(0) - points.min(0))


@dataclass(frozen=True)
class OcoReplay:
    """What bandit OCO should have computed."""

    targets: Matrix  # [T, d] where it wanted to evaluate, in the unit box
    centres: Matrix  # [T, d]
    multipliers: Matrix  # [T + 1, m]


def oco(
    record: Record,
    directions: Matrix,
    first_centre: Matrix,
    *,
    eta: float,
    kappa: float,
    delta: float,
    shrink: float,
) -> OcoReplay:
    """Two-point bandit OCO (Cao and Liu 2018) from the drawn ``directions [T, d]`` and the first centre."""
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


@dataclass(frozen=True)
class AdmmboReplay:
    """What ADMMBO should have computed."""

    scores: Matrix  # [T, M] what it maximises
    evaluated: Matrix  # [T] 0 for the reward, j for constraint j, -1 once it has stopped
    outer: int  # outer iterations completed
    rho: float  # at the end


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
    """ADMMBO (Ariafar et al. 2019) with every function's own data; written as the loops that the paper describes."""
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
        """Score a round in which function ``j`` is evaluated, and take its value from the record; false when there are no more."""
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
