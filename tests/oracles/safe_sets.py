"""Replays of the methods with a safe set: SafeOpt, StageOpt and SGP-UCB.

A choice from a set has no score to compare where rounding may move a point into or out of the set. Such a choice is held against two
sets, one of the points that are surely in and one of those that may be.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from tests.oracles.bandit import Model, Record
from tests.oracles.gaussian_process import Matrix, information_gain, posterior
from tests.oracles.policies import Belief

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
    """Belief before each round."""
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


def trusted(known: Knowledge, seeds: Matrix, margin: float) -> Matrix:
    """Return seeds with ``LCB_gj <= margin`` for all ``j``."""
    return seeds & np.all(known.lcb[1:] <= margin, axis=0)


def could_certify(model: Model, known: Knowledge, margin: float) -> Matrix:
    """Return whether observing ``LCB_gj(x)`` would certify ``x'``, ``[m, M, M]``.

    It is certified if ``UCB_gj(x') <= margin``; ``x`` comes first.
    """
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
    """Return points that reach a point outside, ``[M]``."""
    reach = reach & outside[None, None, :]
    return np.all(reach, axis=0).any(-1) if together else np.all(reach.any(-1), axis=0)


@dataclass(frozen=True)
class Sets:
    """Sets of a round, at their smallest and largest under rounding."""

    safe: tuple[Matrix, Matrix]
    maximisers: tuple[Matrix, Matrix]
    expanders: tuple[Matrix, Matrix]


def sets(model: Model, known: Knowledge, seeds: Matrix, margin: float, *, points: Matrix, lipschitz: Matrix | None, together: bool) -> Sets:
    """Safe set, maximisers and expanders."""
    small, large = (certified(known, side) | trusted(known, seeds, side) for side in (-margin, margin))
    # Nothing may be left, and then the seeds are.
    if not small.any():
        small, large = (small if large.any() else seeds), large | seeds
    upper, lower = known.ucb[0], known.lcb[0]
    top = {"small": lower[small].max(initial=-np.inf), "large": lower[large].max()}

    def expanding(inside: Matrix, outside: Matrix, m: float) -> Matrix:
        reach = could_certify(model, known, m) if lipschitz is None else lipschitz_certify(known, points, lipschitz, m)
        return inside & expanders(reach, outside, together)

    return Sets(
        safe=(small, large),
        maximisers=(small & (upper >= top["large"] + margin), large & (upper >= top["small"] - margin)),
        expanders=(expanding(small, ~large, -margin), expanding(large, ~small, margin)),
    )


def best_of(value: Matrix, surely: Matrix, maybe: Matrix, chosen: int, margin: float) -> str | None:
    """Return the fault of ``chosen`` as a set's point of largest ``value``.

    The set lies between ``surely`` and ``maybe``.
    """
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
    """Return every round whose choice cannot be the algorithm's.

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
            left = trusted(known, mask, margin)
            wrong = None if (left if left.any() else mask)[chosen] else "not a seed"
        elif rule in ("stageopt", "sgp_ucb") and t > stage:
            wrong = best_of(known.ucb[0], *s.safe, chosen, margin)
        elif rule == "safeopt":
            either = [a | b for a, b in zip(s.maximisers, s.expanders, strict=True)]
            wrong = best_of(known.size, *either, chosen, margin)
        else:
            wrong = best_of(known.size, *s.expanders, chosen, margin)
            # There may have been no expander.
            if not s.expanders[0].any() and wrong is not None:
                wrong = best_of(known.size, *s.maximisers, chosen, margin)
        if wrong is not None:
            faults.append(f"round {t}: point {chosen} {wrong}")
    return faults
