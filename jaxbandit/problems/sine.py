"""The small-feasible-region problem of RPOL (Guo et al. 2022, sec. 6) and of Shi and Eryilmaz (2022, App. E.1)."""

from __future__ import annotations

import math
from typing import Annotated

import numpy as np

from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import nonnegative, per_output_of_two, whole
from jaxbandit.core.pytree import replace
from jaxbandit.core.types import PerOutput, Scalar
from jaxbandit.delays import POISSON_MEAN, Poisson
from jaxbandit.domains import grid
from jaxbandit.problems.base import Problem, from_tables
from jaxbandit.problems.noise import Gaussian

# At the optimum over the whole square, x1 = 3 pi / 2, where sin x1 = -1 and the constraint reads sin x2 >= 0.95.
CONTINUUM_POINT = (1.5 * math.pi, math.asin(0.95))
CONTINUUM_OPTIMUM = 1.0 - math.asin(0.95)


@nameable
@checked
def sine(
    points_per_axis: Annotated[int, whole(2)] = 50, *, noise_variance: Annotated[PerOutput, nonnegative, per_output_of_two] = 0.05
) -> Problem:
    """Make ``f = -sin x1 - x2``, ``g = sin x1 sin x2 + 0.95`` on ``[0, 6]^2``: 1.77% of the square is feasible, in two islands.

    The optimum on a grid is far below the continuum's ``f* = -0.25324``: -0.4493 on 30x30, -0.3487 on 50x50, -0.2728 on 100x100.
    The second island, around ``(pi / 2, 3 pi / 2)``, is a trap with ``f = -5.395``. Slater slack is only 0.05.

    Args:
      points_per_axis: grid resolution ``n``, ``M = n^2``, at least 2.
      noise_variance: Gaussian noise variance of reward and cost, one number or ``[2]``, ``>= 0`` (RPOL: 0.05).

    Raises:
      InvalidArgument: on a parameter out of range.
    """
    domain = grid([0.0, 0.0], [6.0, 6.0], points_per_axis)
    x1, x2 = np.asarray(domain.points).T
    reward, constraint = -np.sin(x1) - x2, np.sin(x1) * np.sin(x2) + 0.95
    return from_tables(domain, reward, constraint, noise=Gaussian(variance=noise_variance), name="sine")


@nameable
@checked
def sine_delayed(
    points_per_axis: Annotated[int, whole(2)] = 50,
    *,
    noise_variance: Annotated[PerOutput, nonnegative, per_output_of_two] = 0.05,
    mean_delay: Annotated[Scalar, POISSON_MEAN] = 15.0,
) -> Problem:
    """Make :func:`sine` with delayed feedback: delays of reward and cost are independent Poisson numbers (RPOL, sec. 6).

    Args:
      points_per_axis, noise_variance: as for :func:`sine`.
      mean_delay: mean delay of each in rounds, ``>= 0`` (RPOL: 15).

    Raises:
      InvalidArgument: on a parameter out of range.
    """
    return replace(sine(points_per_axis, noise_variance=noise_variance), delay=Poisson(mean=mean_delay), name="sine_delayed")
