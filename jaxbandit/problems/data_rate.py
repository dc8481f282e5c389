"""Data rate allocation among four servers (Shi and Eryilmaz 2022, App. E.2, after Lee, Mazumdar and Shroff 2005)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import exactly, finite_numbers, nonnegative, positive_numbers, whole
from jaxbandit.core.types import Scalar
from jaxbandit.domains import grid
from jaxbandit.problems.base import Problem, from_tables
from jaxbandit.problems.noise import Gaussian, PerOutput, Uniform

__all__ = ["data_rate"]

PRICES = np.array([0.2, 0.4, 0.8, 1.2])  # electricity per unit of rate; the cost 1 + PRICES x must be within a budget of 3
MAX_RATE = 2.0


@nameable
@checked
def data_rate(
    points_per_axis: Annotated[int, whole(2)] = 11,
    *,
    slopes: Annotated[Sequence[float], positive_numbers, exactly(4, words="one per server")] = (5.0, 1.0, 5.0, 1.0),
    offsets: Annotated[Sequence[float], finite_numbers, exactly(4, words="one per server")] = (1.0, 1.0, 1.0, 1.0),
    noise_variance: Annotated[Scalar, nonnegative] = 0.01,
    cost_half_width: Annotated[Scalar, nonnegative] = 0.0,
) -> Problem:
    """Maximise total utility of rates ``x in [0, 2]^4`` within an electricity budget, ``g = 0.2 x1 + 0.4 x2 + 0.8 x3 + 1.2 x4 - 2``.

    ``U_i = c_i (1 / (1 + exp(-a_i (x_i - b_i))) + d_i)`` for servers 1 and 3, ``U_i = c_i (log(a_i x_i + b_i) + d_i)`` for 2 and 4
    (SE22 eq. 35-36), ``f = sum_i U_i``. ``c_i`` and ``d_i`` follow from ``U_i(0) = 0``, ``U_i(2) = 1``. The constants of Lee et al. are
    not in the paper: ``a_i`` and ``b_i`` default to **assumed** values. With them ``f* = 2.632`` at ``(1.5, 1.75, 1.25, 0)`` on 9^4
    points and 2.642 on 11^4, where the constraint is tight.

    Args:
      points_per_axis: grid resolution ``n >= 2``, ``M = n^4``.
      slopes: ``a_i > 0``, ``[4]``, per unit of rate.
      offsets: ``b_i``, ``[4]``: the rate of half utility for servers 1 and 3; ``> 0`` for servers 2 and 4.
      noise_variance: Gaussian noise variance of the utility, ``>= 0`` (paper: 0.01).
      cost_half_width: half-width of the uniform noise on the cost, ``>= 0``: 0 for the paper's noiseless constraint, 0.2 for its noisy
        one.

    Raises:
      InvalidArgument: on a parameter out of range.
    """
    checks.positive(
        "offsets[1], offsets[3]", np.asarray(offsets, np.float64)[[1, 3]], remedy="a logarithm's argument must be > 0 at rate 0"
    )
    domain = grid([0.0] * 4, [MAX_RATE] * 4, points_per_axis)
    rates = np.asarray(domain.points)
    reward = sum(_utility(number, rates[:, number], slopes[number], offsets[number]) for number in range(4))
    # Rounded, so that points exactly on the budget, the best among them, are feasible in any floating type.
    constraint = np.round(rates @ PRICES - 2.0, 12)
    noise = PerOutput(models=(Gaussian(variance=noise_variance), Uniform(half_width=cost_half_width)))
    return from_tables(domain, reward, constraint, noise=noise, name="data_rate")


def _utility(server: int, rate: np.ndarray, slope: float, offset: float) -> np.ndarray:
    """Return ``U_i(rate) [M]``, from 0 at rate 0 to 1 at rate 2: sigmoid for servers 1 and 3, logarithmic for 2 and 4."""

    def raw(x: np.ndarray) -> np.ndarray:
        if server % 2 == 0:
            return np.exp(-np.logaddexp(0.0, -slope * (x - offset)))  # the sigmoid, without overflow
        return np.log(slope * x + offset)

    low, high = raw(np.zeros(())), raw(np.asarray(MAX_RATE))
    if not high > low:
        raise checks.InvalidArgument(
            f"slopes[{server}], offsets[{server}]: the utility is flat in float64 with ({slope}, {offset}); use a smaller slope or offset"
        )
    return (raw(rate) - low) / (high - low)
