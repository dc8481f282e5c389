"""The papers' problems with known functions on boxes: ``sine``, ``P1`` to ``P6``, data rates, and the sharing of GPUs with a queue."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import choice, exactly, finite_numbers, nonnegative, per_output_of_two, positive, positive_numbers, whole
from jaxbandit.core.pytree import replace
from jaxbandit.core.types import PerOutput as OneOrEach
from jaxbandit.core.types import Scalar
from jaxbandit.delays import POISSON_MEAN, Poisson
from jaxbandit.domains import grid
from jaxbandit.problems.base import Problem, from_tables
from jaxbandit.problems.modified import FullInformation, full_information
from jaxbandit.problems.noise import CentredPoisson, Gaussian, PerOutput, Uniform

__all__ = ["ARTIFICIAL", "CONTINUUM_OPTIMUM", "CONTINUUM_POINT", "artificial", "data_rate", "queueing", "sine", "sine_delayed"]

# At the optimum over the whole square, x1 = 3 pi / 2, where sin x1 = -1 and the constraint reads sin x2 >= 0.95.
CONTINUUM_POINT = (1.5 * math.pi, math.asin(0.95))
CONTINUUM_OPTIMUM = 1.0 - math.asin(0.95)


@nameable
@checked
def sine(
    points_per_axis: Annotated[int, whole(2)] = 50, *, noise_variance: Annotated[OneOrEach, nonnegative, per_output_of_two] = 0.05
) -> Problem:
    """Make ``f = -sin x1 - x2``, ``g = sin x1 sin x2 + 0.95`` on ``[0, 6]^2``: 1.77% of the square is feasible, in two islands.

    The small-feasible-region problem of RPOL (Guo et al. 2022, sec. 6) and of Shi and Eryilmaz (2022, App. E.1). The optimum on a grid is
    far below the continuum's ``f* = -0.25324``: -0.4493 on 30x30, -0.3487 on 50x50, -0.2728 on 100x100. The second island, around
    ``(pi / 2, 3 pi / 2)``, is a trap with ``f = -5.395``. Slater slack is only 0.05.

    Args:
      points_per_axis: grid resolution ``n``, ``M = n^2``, at least 2.
      noise_variance: Gaussian noise variance of reward and cost, one number or ``[2]``, ``>= 0`` (RPOL: 0.05).
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
    noise_variance: Annotated[OneOrEach, nonnegative, per_output_of_two] = 0.05,
    mean_delay: Annotated[Scalar, POISSON_MEAN] = 15.0,
) -> Problem:
    """Make :func:`sine` with delayed feedback: delays of reward and cost are independent Poisson numbers (RPOL, sec. 6).

    Args:
      points_per_axis, noise_variance: as for :func:`sine`.
      mean_delay: mean delay of each in rounds, ``>= 0`` (RPOL: 15).
    """
    return replace(sine(points_per_axis, noise_variance=noise_variance), delay=Poisson(mean=mean_delay), name="sine_delayed")


def _branin(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    bowl = x2 - 5.1 / (4 * math.pi**2) * x1**2 + 5 / math.pi * x1 - 6
    return bowl**2 + 10 * (1 - 1 / (8 * math.pi)) * np.cos(x1) + 10


def _bowl(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    return ((x1 + 3) ** 2 + (x2 + 3) ** 2 - 100) / 2


OBJECTIVES = {"Br": _branin, "MBr": lambda x1, x2: _branin(x1, x2) + 20 * x1 - 30 * x2}  # to minimise
# Constraint functions and their levels Qr = 3/4 min + 1/4 max over the square: the bowl's least value is -50, at (-3, -3), its greatest
# 119, at (10, 10); the sine takes all of [-1, 1].
CONSTRAINTS = {
    "SinQ": (lambda x1, x2: np.sin((x1**2 + x2**2) / 10), -0.5),
    "InvBowl": (lambda x1, x2: -_bowl(x1, x2), -76.75),
    "Bowl": (_bowl, -7.75),
}
_DEFINITIONS = {f"P{number + 1}": pair for number, pair in enumerate((own, each) for each in CONSTRAINTS for own in OBJECTIVES)}
ARTIFICIAL = tuple(_DEFINITIONS)


@nameable
@checked
def artificial(
    name: Annotated[str, choice(*ARTIFICIAL)],
    points_per_axis: Annotated[int, whole(2)] = 100,
    *,
    standardised: bool = True,
    noise_variance: Annotated[OneOrEach, nonnegative, per_output_of_two] = 0.0025,
) -> Problem:
    """Make one of CONFIG's ``P1`` to ``P6`` on ``[-10, 10]^2``: minimise Branin, or modified Branin, under one constraint.

    They are those of Xu et al. (2023), sec. 6.2, Tables 3 and 4. ``f`` is the objective with its sign turned, ``g = c - Qr(c)`` for
    ``c`` = SinQ (P1, P2), InvBowl (P3, P4) or Bowl (P5, P6), and ``Qr`` is taken over the square, not the grid, so that all grids have the
    same constraint. Share of feasible points and least objective on 401x401 points: P1 28.7%, 0.560; P2 28.7%, -359.07; P3 1.64%, 12.164;
    P4 1.64%, -77.19; P5 57.3%, 0.3986; P6 57.3%, -211.30.

    Args:
      name: ``"P1"`` ... ``"P6"``.
      points_per_axis: grid resolution ``n >= 2``, ``M = n^2`` (the authors' scripts: 100).
      standardised: subtract ``f``'s mean over the grid and divide by its standard deviation there (about 350 to 390); recommended,
        because the objectives reach 2,000. ``False`` keeps the paper's units, as its scripts do.
      noise_variance: Gaussian noise variance of reward and cost, one number or ``[2]``, ``>= 0``, in the tables' units. The paper
        gives none; the default is its model's ``lambda = 0.05^2``. Its scripts are noiseless (0).
    """
    own, each = _DEFINITIONS[name]
    objective, (constraint, level) = OBJECTIVES[own], CONSTRAINTS[each]
    domain = grid([-10.0, -10.0], [10.0, 10.0], points_per_axis)
    x1, x2 = np.asarray(domain.points).T
    reward = -objective(x1, x2)
    if standardised:
        reward = (reward - reward.mean()) / reward.std()
    return from_tables(domain, reward, constraint(x1, x2) - level, noise=Gaussian(variance=noise_variance), name=name)


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
    (Shi and Eryilmaz 2022, App. E.2, eq. 35-36, after Lee, Mazumdar and Shroff 2005), ``f = sum_i U_i``. ``c_i`` and ``d_i`` follow from
    ``U_i(0) = 0``, ``U_i(2) = 1``. The constants of Lee et al. are not in the paper: ``a_i`` and ``b_i`` default to **assumed** values.
    With them ``f* = 2.632`` at ``(1.5, 1.75, 1.25, 0)`` on 9^4 points and 2.642 on 11^4, where the constraint is tight.

    Args:
      points_per_axis: grid resolution ``n >= 2``, ``M = n^4``.
      slopes: ``a_i > 0``, ``[4]``, per unit of rate.
      offsets: ``b_i``, ``[4]``: the rate of half utility for servers 1 and 3; ``> 0`` for servers 2 and 4.
      noise_variance: Gaussian noise variance of the utility, ``>= 0`` (paper: 0.01).
      cost_half_width: half-width of the uniform noise on the cost, ``>= 0``: 0 for the paper's noiseless constraint, 0.2 for its noisy
        one.
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


@nameable
@checked
def queueing(
    points_per_axis: Annotated[int, whole(2)] = 21,
    *,
    arrival_rate: Annotated[float, positive] = 6.0,
    capacities: Annotated[Sequence[float], positive_numbers, exactly(2, words="one per node")] = (6.0, 4.0),
    curvature: Annotated[float, positive] = 4.0,
    energy: Annotated[Sequence[float], positive_numbers, exactly(2, words="one per node")] = (2.0, 1.0),
    noise_variance: Annotated[Scalar, nonnegative] = 0.01,
) -> FullInformation:
    """Make the problem of GPU shares ``x in [0, 1]^2`` that serve random arrivals, seen before the choice, at the least energy.

    ``f = -sum_i e_i x_i^2`` (energy, observed with noise), ``g_t = omega_t - sum_i h_i(x_i)`` with ``omega_t ~ Poisson(arrival_rate)``
    jobs in a round and known concave service rates ``h_i(x) = s_i log(1 + q x) / log(1 + q)``, so that ``g <= 0`` is stability of the
    queue. The paper (Zhou and Ji 2022, App. A, after Yu, Neely and Wei 2017) gives the form only; energy, rates and all constants are
    ours. With them the constraint binds (no service costs no energy), the best point serves just enough, and the Slater slack is
    ``sum_i s_i - arrival_rate = 4`` jobs a round. ``g_t`` is not bounded, although the paper's Assumption 6 asks for it, because a Poisson
    number is not.

    Args:
      points_per_axis: grid resolution ``n >= 2``, ``M = n^2``.
      arrival_rate: mean jobs a round, ``> 0``; more than ``sum_i s_i`` makes the problem infeasible.
      capacities: ``s_i > 0``, ``[2]``, jobs a round that a node serves with its full share.
      curvature: ``q > 0``; the larger, the sooner a node's service levels off.
      energy: ``e_i > 0``, ``[2]``, energy a round at full share.
      noise_variance: Gaussian noise variance of the energy reading, ``>= 0``.

    Returns:
      A :class:`~jaxbandit.problems.FullInformation` problem: ``constraint_sample(drawn)`` is the round's ``g_t(.)`` as ``[1, M]``.
    """
    domain = grid([0.0, 0.0], [1.0, 1.0], points_per_axis)
    shares = np.asarray(domain.points)  # [M, 2]
    service = (np.log1p(curvature * shares) / np.log1p(curvature)) @ np.asarray(capacities, np.float64)
    reward = -(shares**2) @ np.asarray(energy, np.float64)
    noise = PerOutput(models=(Gaussian(variance=noise_variance), CentredPoisson(rate=arrival_rate)))
    return full_information(from_tables(domain, reward, arrival_rate - service, noise=noise, name="queueing"))
