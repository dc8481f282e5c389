"""Rules that tell a learner facts of each instance: ready callables for ``simulate(..., informed=...)``.

Each is called inside every trial with ``(instance, algorithm, surrogate)``. Equal rules are one compiled program.
"""

from __future__ import annotations

import abc
from typing import Annotated, ClassVar, TypeVar

import jax
import jax.numpy as jnp

from jaxbandit.algorithms.base import Algorithm
from jaxbandit.core.declare import Array, Declared, checked
from jaxbandit.core.fields import Place, how_many_points
from jaxbandit.core.pytree import pytree, static
from jaxbandit.problems import AbstractProblem, optimum
from jaxbandit.problems.base import Instance
from jaxbandit.surrogates import Surrogate

__all__ = ["BestPoint", "FeasiblePoints", "Rule", "SafestSeeds", "safest"]
__dir__ = __all__.copy  # what completion shows

A = TypeVar("A", bound=Algorithm)


def _worst_cost(instance: Instance) -> Array:
    """Return ``max_j g_j(x)`` of the mean constraints as ``[M]``, minus infinity without constraints."""
    return jnp.max(jnp.asarray(instance.means)[1:], axis=0, initial=-jnp.inf)


@checked
def safest(instance: Instance, count: Annotated[int, how_many_points()]) -> Array:
    """Return the ``count`` points ``[count]`` (int32) whose largest mean constraint is least, safest first."""
    how_many_points()("count", count, Place(points=instance.domain.size))
    return jax.lax.top_k(-_worst_cost(instance), count)[1].astype(jnp.int32)


class Rule(Declared, abc.ABC):
    """Abstract base of rules that tell a learner facts of an instance; all their fields are static."""

    described: ClassVar[str] = "a rule of jaxbandit.informed, such as SafestSeeds(count=2)"
    called: ClassVar[str] = "informed"
    in_files: ClassVar[bool] = True

    @abc.abstractmethod
    def __call__(self, instance: AbstractProblem, algorithm: A, surrogate: Surrogate) -> tuple[A, Surrogate]:
        """Return the algorithm and the surrogate to run on ``instance``."""


@pytree
class SafestSeeds(Rule):
    """Seed :class:`~jaxbandit.SafeOpt`, :class:`~jaxbandit.StageOpt` or :class:`~jaxbandit.SgpUcb` with the truly safest points.

    Attributes:
      count: number of seeds, >= 1.
    """

    count: Annotated[int, how_many_points()] = static(default=1)

    def __call__(self, instance: AbstractProblem, algorithm: A, surrogate: Surrogate) -> tuple[A, Surrogate]:
        return algorithm.with_facts(seeds=safest(instance, self.count)), surrogate


@pytree
class FeasiblePoints(Rule):
    """Let :class:`~jaxbandit.RandomSearch` draw from the truly feasible points only."""

    def __call__(self, instance: AbstractProblem, algorithm: A, surrogate: Surrogate) -> tuple[A, Surrogate]:
        return algorithm.with_facts(allowed=_worst_cost(instance) <= 0), surrogate


@pytree
class BestPoint(Rule):
    """Tell :class:`~jaxbandit.Oracle` the best feasible point, or the least violating one where none is feasible."""

    def __call__(self, instance: AbstractProblem, algorithm: A, surrogate: Surrogate) -> tuple[A, Surrogate]:
        best = optimum(instance)
        index = jnp.where(jnp.isnan(best.value), safest(instance, 1)[0], best.index)
        return algorithm.with_facts(index=index), surrogate
