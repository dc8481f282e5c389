"""The artificial problems ``P1`` to ``P6`` of CONFIG (Xu et al. 2023, sec. 6.2, Tables 3 and 4): Branin under quantile constraints."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np

from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import choice, nonnegative, per_output_of_two, whole
from jaxbandit.core.types import PerOutput
from jaxbandit.domains import grid
from jaxbandit.problems.base import Problem, from_tables
from jaxbandit.problems.noise import Gaussian

__all__ = ["ARTIFICIAL", "artificial"]


def _branin(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    bowl = x2 - 5.1 / (4 * math.pi**2) * x1**2 + 5 / math.pi * x1 - 6
    return bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * np.cos(x1) + 10


def _modified_branin(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    return _branin(x1, x2) + 20 * x1 - 30 * x2


def _bowl(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    return ((x1 + 3) ** 2 + (x2 + 3) ** 2 - 100) / 2


def _inverse_bowl(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    return -_bowl(x1, x2)


def _sine_of_square(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    return np.sin((x1**2 + x2**2) / 10)


# Objective to minimise, constraint function and its level Qr = 3/4 min + 1/4 max over the square: the bowl's least value is -50, at
# (-3, -3), its greatest 119, at (10, 10); the sine takes all of [-1, 1].
_DEFINITIONS = {
    "P1": (_branin, _sine_of_square, -0.5),
    "P2": (_modified_branin, _sine_of_square, -0.5),
    "P3": (_branin, _inverse_bowl, -76.75),
    "P4": (_modified_branin, _inverse_bowl, -76.75),
    "P5": (_branin, _bowl, -7.75),
    "P6": (_modified_branin, _bowl, -7.75),
}
ARTIFICIAL = tuple(_DEFINITIONS)


@nameable
@checked
def artificial(
    name: Annotated[str, choice(*ARTIFICIAL)],
    points_per_axis: Annotated[int, whole(2)] = 100,
    *,
    standardised: bool = True,
    noise_variance: Annotated[PerOutput, nonnegative, per_output_of_two] = 0.0025,
) -> Problem:
    """Make one of CONFIG's ``P1`` to ``P6`` on ``[-10, 10]^2``: minimise Branin, or modified Branin, under one constraint.

    ``f`` is the objective with its sign turned, ``g = c - Qr(c)`` for ``c`` = SinQ (P1, P2), InvBowl (P3, P4) or Bowl (P5, P6), and
    ``Qr`` is taken over the square, not the grid, so that all grids have the same constraint. Share of feasible points and least
    objective on 401x401 points: P1 28.7%, 0.560; P2 28.7%, -359.07; P3 1.64%, 12.164; P4 1.64%, -77.19; P5 57.3%, 0.3986; P6 57.3%,
    -211.30.

    Args:
      name: ``"P1"`` ... ``"P6"``.
      points_per_axis: grid resolution ``n >= 2``, ``M = n^2`` (the authors' scripts: 100).
      standardised: subtract ``f``'s mean over the grid and divide by its standard deviation there (about 350 to 390); recommended,
        because the objectives reach 2,000. ``False`` keeps the paper's units, as its scripts do.
      noise_variance: Gaussian noise variance of reward and cost, one number or ``[2]``, ``>= 0``, in the tables' units. The paper
        gives none; the default is its model's ``lambda = 0.05^2``. Its scripts are noiseless (0).

    Raises:
      InvalidArgument: on an unknown name or a parameter out of range.
    """
    objective, constraint, level = _DEFINITIONS[name]
    domain = grid([-10.0, -10.0], [10.0, 10.0], points_per_axis)
    x1, x2 = np.asarray(domain.points).T
    reward = -objective(x1, x2)
    if standardised:
        reward = (reward - reward.mean()) / reward.std()
    return from_tables(domain, reward, constraint(x1, x2) - level, noise=Gaussian(variance=noise_variance), name=name)
