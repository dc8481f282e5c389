"""Replays of constrained expected improvement."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import erfcx, log_ndtr, ndtr

from tests.oracles.bandit import Model, Record
from tests.oracles.gaussian_process import Matrix
from tests.oracles.policies import beliefs


def log_expected_improvement(mean: Matrix, sd: Matrix, best: float) -> Matrix:
    """Return ``log(sigma (z Phi(z) + phi(z)))`` as BoTorch writes it.

    Ament et al. 2023, eq. 9 and 14. Directly for ``z > -1``; below as ``log phi(z) + log(1 - sqrt(pi / 2) |z| erfcx(|z| / sqrt 2))``,
    then ``log phi(z) - 2 log |z|`` once the difference is all rounding.
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
    """The choice that constrained EI should have computed."""

    scores: Matrix  # [T, M] log of EI times the probability of feasibility
    feasible: Matrix  # [T] whether there was an incumbent
    doubtful: Matrix  # [T] whether rounding may have decided which points count as feasible


def cei(
    model: Model,
    record: Record,
    *,
    incumbent: str,
    improvement: float = 0.0,
    augmented: bool = False,
    caution: Sequence[float] | float = 1.0,
    tolerance: float = 0.0,
) -> CeiReplay:
    """Constrained EI, augmented as Huang et al. (2006) do.

    ``f+`` is by posterior mean at queried points, or by noisy observation. Probabilities of feasibility have the exponents ``caution``.
    """
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
        score = (np.reshape(caution, (-1, 1)) * log_ndtr(-b.mean[1:] / b.sd[1:])).sum(0)
        if fine.any():
            score = score + log_expected_improvement(b.mean[0], b.sd[0], rewards[fine].max() + improvement)
            if augmented:
                noise = model.noise[0]
                score = score + np.log1p(-np.sqrt(noise / (b.sd[0] ** 2 + noise)))
        scores.append(score)
    return CeiReplay(scores=np.stack(scores), feasible=np.array(feasible), doubtful=np.array(doubtful))
