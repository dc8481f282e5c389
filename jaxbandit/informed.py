"""What a study may tell a learner of each instance: ready callables for ``simulate(..., informed=...)``.

Each is called inside every trial with ``(instance, algorithm, surrogate)``. Equal ones are one compiled program.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp

from jaxbandit.core import checks
from jaxbandit.problems import optimum

__all__ = ["BestPoint", "FeasiblePoints", "SafestSeeds", "safest"]

Array = jax.Array


def worst_cost(instance: Any) -> Array:
    """``max_j g_j(x)`` of the mean constraints as ``[M]``, minus infinity without constraints."""
    return jnp.max(jnp.asarray(instance.means)[1:], axis=0, initial=-jnp.inf)


def safest(instance: Any, count: int) -> Array:
    """The ``count`` points ``[count]`` (int32) whose largest mean constraint is least, safest first."""
    return jax.lax.top_k(-worst_cost(instance), count)[1].astype(jnp.int32)


@dataclasses.dataclass(frozen=True)
class SafestSeeds:
    """Seeds :class:`~jaxbandit.SafeOpt`, :class:`~jaxbandit.StageOpt` or :class:`~jaxbandit.SgpUcb` with the truly safest points."""

    count: int = 1

    def __post_init__(self) -> None:
        checks.integer("SafestSeeds.count", self.count, least=1)

    def __call__(self, instance: Any, algorithm: Any, surrogate: Any) -> tuple[Any, Any]:
        return algorithm.with_facts(seeds=safest(instance, self.count)), surrogate


@dataclasses.dataclass(frozen=True)
class FeasiblePoints:
    """Lets :class:`~jaxbandit.RandomSearch` draw from the truly feasible points only."""

    def __call__(self, instance: Any, algorithm: Any, surrogate: Any) -> tuple[Any, Any]:
        return algorithm.with_facts(allowed=worst_cost(instance) <= 0), surrogate


@dataclasses.dataclass(frozen=True)
class BestPoint:
    """Tells :class:`~jaxbandit.Oracle` the best feasible point, or the least violating one where none is feasible."""

    def __call__(self, instance: Any, algorithm: Any, surrogate: Any) -> tuple[Any, Any]:
        best = optimum(instance)
        index = jnp.where(jnp.isnan(best.value), safest(instance, 1)[0], best.index)
        return algorithm.with_facts(index=index), surrogate
