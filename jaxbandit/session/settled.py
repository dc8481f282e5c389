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


@dataclasses.dataclass(frozen=True)
class Settled(Described):
    """Rule that ends a session when its recommended point is good enough.

    Attributes:
      within: largest loss of the objective that does not matter, > 0, in the objective's units.
      probability: least probability, from 0 to 1, that the recommended point satisfies all constraints and that no other feasible point is
        better by more than ``within``.
      draws: number of functions drawn from the belief to compute the probability.
    """

    described: ClassVar[str] = "a rule such as Settled(within=0.1)"
    within: Annotated[float, positive, scalar]
    probability: Annotated[float, between(0, 1, host=True)] = 0.95
    draws: Annotated[int, whole(16, 65536)] = 256

    def __post_init__(self) -> None:
        check_fields(self)


@dataclasses.dataclass(frozen=True)
class Settlement(Described):
    """Confidence of a session in its recommended point.

    Attributes:
      probability: posterior probability that the recommended point satisfies all constraints and that no other feasible point is better by
        more than ``within``.
      gain: largest expected gain of one further point over the recommended point, in the objective's units. An infeasible point gains
        nothing, and the recommended point counts with its belief.
      within: largest loss of the objective that does not matter.
    """

    described: ClassVar[str] = "what Session.settled returns"
    probability: Annotated[float, between(0, 1, open_low=False, open_high=False, host=True)]
    gain: Annotated[float, nonnegative_numbers, scalar]
    within: Annotated[float, positive, scalar]

    def __post_init__(self) -> None:
        check_fields(self)


def settlement(shown: Shown, space: Space, recommended: int, unfit: np.ndarray, within: float, draws: int) -> Settlement:
    """Return the settlement of the ``recommended`` point from drawn functions.

    No point of ``unfit [M]`` counts as a better one.
    """
    points, numbers = likely_points(shown, space, recommended, unfit, draws)
    # Looks on a box use the seeds before.
    rewards, holds = shown.draws(points, draws, numbers=numbers, seed=3)
    at = int(np.flatnonzero(numbers == recommended)[0])
    gains = np.where(holds, rewards - rewards[:, [at]], -np.inf)
    return Settlement(
        probability=float(np.mean(holds[:, at] & (np.max(gains, axis=1) <= within))),
        gain=float(np.max(np.mean(np.maximum(gains, 0), axis=0))),
        within=within,
    )


def likely_points(shown: Shown, space: Space, recommended: int, unfit: np.ndarray, draws: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points ``[n, d]`` that may be better, and their numbers.

    They are the points most likely to be feasible and better than the ``recommended`` one, which is among them. On a box half of them are
    near the best ones of draws, and have the number -1. The points ``unfit [M]`` are left out.
    """
    # SciPy comes with JAX. It is imported here because start-up should not pay for it.
    from scipy.special import log_ndtr

    domain, numbers = space.domain, np.flatnonzero(~unfit | (np.arange(space.size) == recommended))
    # Points near a known hill are all likely to be a little better. Some must not take the places of points that nobody knows.
    # On a box three looks consider this many points near the best points of every draw.
    looks, count = 3 if isinstance(domain, Box) else 0, 128
    most = POINTS_DRAWN - looks * count
    if len(numbers) > most:
        mean, sd, likely = shown.at(space.modelled[numbers])
        reward, is_it = shown.outputs.objective.sign * mean[0], numbers == recommended
        excess = (reward - reward[is_it][0]) / np.maximum(sd[0], np.finfo(np.float64).tiny)
        worth = np.where(is_it, np.inf, log_ndtr(excess) + np.log(np.maximum(likely, 1e-300)))
        numbers = numbers[np.sort(np.argsort(-worth, kind="stable")[:most])]
    points = space.modelled[numbers]
    for look in range(looks):
        rewards, holds = shown.draws(points, draws, numbers=numbers, seed=look)
        centres, generator = points[np.argmax(np.where(holds, rewards, -np.inf), axis=1)], np.random.default_rng(look)
        around = centres[np.arange(count) % len(centres)]
        # Half of the points move along a few axes only, because an optimum often lies on sides of the box.
        moved = generator.uniform(size=around.shape) < generator.uniform(size=(count, 1))
        size = 10 ** generator.uniform(-4, -0.7, (count, 1))
        near = np.clip(around + moved * size * generator.standard_normal(around.shape), 0, 1)
        assert isinstance(domain, Box)
        points = np.concatenate([points, np.asarray(domain.snapped(near), np.float64)])
        numbers = np.append(numbers, np.full(len(near), -1))
    return points, numbers
