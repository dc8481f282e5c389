"""Probability that the recommended point of an experiment is good enough."""

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar

import numpy as np

from jaxbandit.core.declare import check_fields
from jaxbandit.core.fields import Described, between, nonnegative_numbers, positive, scalar, whole
from jaxbandit.domains import Box
from jaxbandit.session.axes import Space
from jaxbandit.session.shown import Shown

# Functions are drawn at this number of points, because the cost grows with its third power.
POINTS_DRAWN = 768
# On a box the points near the best ones of every draw are looked at this many times, with this many points each.
LOOKS, POINTS_NEAR = 3, 2048


@dataclasses.dataclass(frozen=True)
class Settled(Described):
    """A rule that ends an experiment when its recommended point is probably good enough.

    Attributes:
      within: largest loss of the objective, in its own units, > 0, that does not matter.
      probability: least probability, from 0 to 1, that the recommended point satisfies all constraints and that no other point which does
        is better by more than ``within``.
      draws: number of functions drawn from the belief, by which the probability is computed.
    """

    described: ClassVar[str] = "a rule such as Settled(within=0.1)"
    within: Annotated[float, positive, scalar]
    probability: Annotated[float, between(0, 1, host=True)] = 0.95
    draws: Annotated[int, whole(16, 65536)] = 256

    def __post_init__(self) -> None:
        check_fields(self)


@dataclasses.dataclass(frozen=True)
class Settlement(Described):
    """How sure an experiment is of its recommended point.

    Attributes:
      probability: posterior probability that the recommended point satisfies all constraints and that no other point which does is better
        by more than ``within``.
      gain: the largest expected gain of one further point over the recommended one, in the objective's units; a point gains nothing where
        it violates a constraint, and the recommended one counts as it is believed.
      within: loss of the objective that does not matter.
    """

    described: ClassVar[str] = "what Session.settled returns"
    probability: Annotated[float, between(0, 1, open_low=False, open_high=False, host=True)]
    gain: Annotated[float, nonnegative_numbers, scalar]
    within: Annotated[float, positive, scalar]

    def __post_init__(self) -> None:
        check_fields(self)


def settlement(shown: Shown, space: Space, recommended: int, unfit: np.ndarray, within: float, draws: int) -> Settlement:
    """Return how sure a belief is of the ``recommended`` point, by functions drawn from it.

    Functions are drawn at the points that are most likely to be better. On a box these include points near the best one of every draw.
    The points ``unfit [M]`` count as no better ones.
    """
    domain = space.domain
    numbers = np.flatnonzero(~unfit | (np.arange(space.size) == recommended))
    points, numbers = _likely(shown, space.modelled[numbers], numbers, recommended)
    for look in range(LOOKS if isinstance(domain, Box) else 0):
        rewards, holds = shown.draws(points, draws, numbers=numbers, seed=look)
        near = _near(points[np.unique(np.argmax(np.where(holds, rewards, -np.inf), axis=1))], look)
        assert isinstance(domain, Box)
        own = np.asarray(domain.snapped(near), np.float64)
        points, numbers = _likely(shown, np.concatenate([points, own]), np.append(numbers, np.full(len(own), -1)), recommended)
    rewards, holds = shown.draws(points, draws, numbers=numbers, seed=LOOKS)
    at = int(np.flatnonzero(numbers == recommended)[0])
    gains = np.where(holds, rewards - rewards[:, [at]], -np.inf)
    return Settlement(
        probability=float(np.mean(holds[:, at] & (np.max(gains, axis=1) <= within))),
        gain=float(np.max(np.mean(np.maximum(gains, 0), axis=0))),
        within=within,
    )


def _likely(shown: Shown, points: np.ndarray, numbers: np.ndarray, recommended: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the points ``[n, d]`` that are most likely to be feasible and better than the ``recommended`` one, and their numbers."""
    # SciPy comes with JAX. It is imported here because start-up should not pay for it.
    from scipy.special import log_ndtr

    if len(points) <= POINTS_DRAWN:
        return points, numbers
    mean, sd, holds = shown.at(points)
    reward, is_it = shown.outputs.objective.sign * mean[0], numbers == recommended
    excess = (reward - reward[is_it][0]) / np.maximum(sd[0], np.finfo(np.float64).tiny)
    likely = np.where(is_it, np.inf, log_ndtr(excess) + np.log(np.maximum(holds, 1e-300)))
    kept = np.sort(np.argsort(-likely, kind="stable")[:POINTS_DRAWN])
    return points[kept], numbers[kept]


def _near(centres: np.ndarray, look: int) -> np.ndarray:
    """Return points ``[n, d]`` of the unit cube near ``centres [m, d]``, at distances of all sizes."""
    generator = np.random.default_rng(look)
    around = centres[np.arange(POINTS_NEAR) % len(centres)]
    # Half of the points move along a few axes alone, because an optimum often lies on sides of the box.
    moved = generator.uniform(size=around.shape) < generator.uniform(size=(POINTS_NEAR, 1))
    size = 10 ** generator.uniform(-4, -0.7, (POINTS_NEAR, 1))
    return np.clip(around + moved * size * generator.standard_normal(around.shape), 0, 1)
