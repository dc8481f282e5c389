"""Replay of CONFIG by its confidence bounds."""

from dataclasses import dataclass

import numpy as np

from tests.oracles.bandit import Model, Record
from tests.oracles.gaussian_process import Matrix
from tests.oracles.policies import beliefs, optimistic


@dataclass(frozen=True)
class ConfigReplay:
    """The right choice of CONFIG, among points with ``worst <= 0``."""

    ucb: Matrix  # [T, M]
    lcb: Matrix  # [T, m, M]
    widths: Matrix  # [T, k]

    @property
    def worst(self) -> Matrix:
        """Largest lower bound over constraints ``[T, M]``."""
        return self.lcb.max(1)


def config(model: Model, record: Record) -> ConfigReplay:
    """CONFIG (Xu et al. 2023, Algorithm 1)."""
    rounds = list(beliefs(model, record))
    estimates = np.stack([optimistic(belief, None) for belief in rounds])
    return ConfigReplay(ucb=estimates[:, 0], lcb=estimates[:, 1:], widths=np.stack([belief.width for belief in rounds]))


def config_faults(replay: ConfigReplay, indices: Matrix, declared_round: int, tolerance: float) -> list[str]:
    """Return every round whose choice or declaration cannot be CONFIG's.

    A lower bound within ``tolerance`` of the edge 0 may have been rounded to either side of it, so such a point may be chosen but
    need not be, and a round in which the whole grid is within tolerance of infeasible may be declared or not.
    """
    faults = []
    for t, (ucb, worst, chosen) in enumerate(zip(replay.ucb, replay.worst, indices, strict=True), start=1):
        sure, impossible = worst.min() <= -tolerance, worst.min() > tolerance
        if sure and declared_round == t:
            faults.append(f"round {t}: declared, although a point has LCB {worst.min():.3g}")
        if impossible and not 0 < declared_round <= t:
            faults.append(f"round {t}: not declared, although the least worst LCB is {worst.min():.3g}")
        best = ucb[worst <= -tolerance].max(initial=-np.inf)
        eligible = worst[chosen] <= tolerance and ucb[chosen] >= best - tolerance * max(1.0, abs(best))
        least = worst[chosen] <= worst.min() + tolerance * max(1.0, abs(worst.min()))
        if not (eligible if sure else least if impossible else eligible or least):
            faults.append(f"round {t}: chose UCB {ucb[chosen]:.6g}, worst LCB {worst[chosen]:.3g}; best eligible UCB {best:.6g}")
    return faults
