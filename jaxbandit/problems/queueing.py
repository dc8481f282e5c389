"""Sharing of GPUs between two nodes that serve a queue at the least energy (Zhou and Ji 2022, App. A, after Yu, Neely and Wei 2017)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import numpy as np

from jaxbandit.core.codec import nameable
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import exactly, nonnegative, positive, positive_numbers, whole
from jaxbandit.core.types import Scalar
from jaxbandit.domains import grid
from jaxbandit.problems.base import from_tables
from jaxbandit.problems.full_information import FullInformation, full_information
from jaxbandit.problems.noise import CentredPoisson, Gaussian, PerOutput

__all__ = ["queueing"]


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
    queue. The paper gives the form only; energy, rates and all constants are ours. With them the constraint binds (no service costs no
    energy), the best point serves just enough, and the Slater slack is ``sum_i s_i - arrival_rate = 4`` jobs a round. ``g_t`` is not
    bounded, although the paper's Assumption 6 asks for it, because a Poisson number is not.

    Args:
      points_per_axis: grid resolution ``n >= 2``, ``M = n^2``.
      arrival_rate: mean jobs a round, ``> 0``; more than ``sum_i s_i`` makes the problem infeasible.
      capacities: ``s_i > 0``, ``[2]``, jobs a round that a node serves with its full share.
      curvature: ``q > 0``; the larger, the sooner a node's service levels off.
      energy: ``e_i > 0``, ``[2]``, energy a round at full share.
      noise_variance: Gaussian noise variance of the energy reading, ``>= 0``.

    Returns:
      A :class:`~jaxbandit.problems.FullInformation` problem: ``constraint_sample(drawn)`` is the round's ``g_t(.)`` as ``[1, M]``.

    Raises:
      InvalidArgument: on a parameter out of range.
    """
    domain = grid([0.0, 0.0], [1.0, 1.0], points_per_axis)
    shares = np.asarray(domain.points)  # [M, 2]
    service = (np.log1p(curvature * shares) / np.log1p(curvature)) @ np.asarray(capacities, np.float64)
    reward = -(shares**2) @ np.asarray(energy, np.float64)
    noise = PerOutput(models=(Gaussian(variance=noise_variance), CentredPoisson(rate=arrival_rate)))
    return full_information(from_tables(domain, reward, arrival_rate - service, noise=noise, name="queueing"))
