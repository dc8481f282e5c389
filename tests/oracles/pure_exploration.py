"""BPE and BPE-Delay in float64 NumPy (Vakili et al. 2023).

What the paper calls a round is a *stage* here; a round is one choice.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tests.oracles.gaussian_process import Matrix, mean_and_sd

# The arguments are R and q_r, and the results are beta and the terms added to the bound and to the deviation.
Width = Callable[[int, float], tuple[float, float, float]]


@dataclass(frozen=True)
class Stage:
    """Rounds ``first .. last``, cut to the horizon, and ``q_r``."""

    first: int
    last: int
    q: float


def wait(horizon: int, delta: float, mean: float, xi: float, b: float) -> float:
    """``u_T(delta) = E[tau] + psi_T(delta / 2)``, eq. (5)."""
    logarithm = np.log(3 * horizon / (2 * (delta / 2)))
    return mean + min(np.sqrt(2 * xi**2 * logarithm), 2 * b * logarithm)


def stages(horizon: int, u: float) -> list[Stage]:
    """``q_r = ceil(sqrt(T q_{r-1}))``, ``t_r = ceil(q_r + u)``."""
    found, q, played = [], 1, 0
    while played < horizon:
        q = int(np.ceil(np.sqrt(horizon * q)))
        length = int(np.ceil(q + u))
        found.append(Stage(played + 1, min(played + length, horizon), q))
        played += length
    return found


def finite_width(norm: float, scale: float, lam: float, delta: float, size: int) -> Width:
    """Theorem 6.1."""
    return lambda R, q: (norm + scale / np.sqrt(lam) * np.sqrt(2 * np.log(4 * R * size / delta)), 0.0, 0.0)


def continuous_width(norm: float, scale: float, lam: float, delta: float, dimension: int, k_max: float) -> Width:
    """Theorem 6.2 at ``delta / 4R``, Lemma 4.3 at ``c = 1``."""

    # See Lemma 4.1.
    def beta(failure: float) -> float:
        return norm + scale / np.sqrt(lam) * np.sqrt(2 * np.log(1 / failure))

    def norm_of_mean(failure: float, t: float) -> float:
        return norm + max(scale, k_max) * np.sqrt(t) / np.sqrt(lam) * np.sqrt(2 * np.log(2 * t / failure))

    def width(R: int, q: float) -> tuple[float, float, float]:
        share = delta / (4 * R)
        points = norm_of_mean(share / 2, q) ** dimension * q**dimension
        return beta(share / (2 * points)), 2 / q, 2 / np.sqrt(q)

    return width


@dataclass(frozen=True)
class Trial:
    """Choices of one trial, with rewards seen and their rounds."""

    indices: Matrix  # [T]
    values: Matrix  # [T]
    arrivals: Matrix  # [T] the round at whose end each value arrives


def faults(
    gram: Matrix, noise: float, trial: Trial, plan: list[Stage], width: Width, alive: Matrix, tolerance: float, use_all: bool = False
) -> list[str]:
    """Return rounds whose choice or set cannot be BPE's, up to rounding.

    A point whose bound is within ``tolerance`` of the edge may have been rounded to either side. With ``use_all`` the stage's bounds
    use all of its values, arrived or not, and those of earlier stages: wrong, so that a caller can see the check fail.
    """
    found = [] if alive[0].all() else ["a point is missing at the start"]
    for stage in plan:
        rounds = np.arange(stage.first, stage.last + 1)
        allowed = alive[stage.first - 1]
        for t in rounds:
            chosen = trial.indices[t - 1]
            before = trial.indices[stage.first - 1 : t - 1]
            _, sd = mean_and_sd(gram, before, np.zeros(len(before)), noise)
            best = sd[allowed].max()
            if not allowed[chosen] or sd[chosen] < best * (1 - tolerance):
                found.append(f"round {t}: chose sd {sd[chosen]:.6g}, alive {bool(allowed[chosen])}; the best alive has {best:.6g}")
            if t > stage.first and np.any(alive[t - 1] != allowed):
                found.append(f"round {t}: the set changed within a stage")
        # The horizon may have cut the last stage.
        if stage is plan[-1]:
            break
        beta, more, extra = width(len(plan), stage.q)
        here = rounds[trial.arrivals[rounds - 1] <= stage.last]
        here = np.arange(1, stage.last + 1) if use_all else here
        mean, sd = mean_and_sd(gram, trial.indices[here - 1], trial.values[here - 1], noise)
        bound = more + beta * (sd + extra)
        margin = mean + bound - (mean - bound)[allowed].max()
        if np.any(alive[stage.last] != np.where(np.abs(margin) < tolerance, alive[stage.last], allowed & (margin > 0))):
            found.append(f"round {stage.last}: another set survives")
    return found
