"""Rounds of a run that are kept in the results."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import MOST_ROUNDS, whole

MAX_ROUNDS_BY_DEFAULT = 1000  # rounds that are kept when nothing is said


@dataclasses.dataclass(frozen=True)
class Keep:
    """Every ``every``-th round, or ``log_spaced`` rounds whose logarithms are evenly spaced; the last one always.

    By default every round of up to 1,000, and of longer runs every n-th such that at most 1,001 are kept.
    """

    every: int | None = None
    log_spaced: int | None = None

    def __post_init__(self) -> None:
        self.validate()

    @checked
    def rounds(self, horizon: Annotated[int, whole(1, MOST_ROUNDS)]) -> np.ndarray:
        """Return the numbers of the rounds that are kept, in order, counted from 1."""
        if self.log_spaced is not None:
            spaced = np.unique(np.round(np.geomspace(1, horizon, min(self.log_spaced, horizon))).astype(np.int64))
            return np.unique(np.append(spaced, horizon))
        every = self._every(horizon)
        return np.unique(np.append(np.arange(every, horizon + 1, every), horizon))

    @checked
    def count(self, horizon: Annotated[int, whole(1, MOST_ROUNDS)]) -> int:
        """Return how many rounds are kept at most: of evenly spaced logarithms fewer where some fall on one round."""
        if self.log_spaced is not None:
            return min(self.log_spaced, horizon)
        every = self._every(horizon)
        return horizon // every + (horizon % every > 0)

    def _every(self, horizon: int) -> int:
        return -(-horizon // MAX_ROUNDS_BY_DEFAULT) if self.every is None else min(self.every, horizon)

    def validate(self) -> None:
        """Raise ``InvalidArgument`` on numbers below 1, or when both ways are asked for."""
        if self.every is not None and self.log_spaced is not None:
            raise InvalidArgument(f"keep: give every or log_spaced, not both; got every={self.every}, log_spaced={self.log_spaced}")
        for name, value in vars(self).items():
            if value is not None:
                checks.integer(f"keep.{name}", value, least=1)
