"""Rules that give a learner facts of each instance, for ``simulate(..., informed=...)``.

Every trial calls its rule with ``(instance, algorithm, surrogate)``. Equal rules share one compiled program.
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
from jaxbandit.domains import Contextual
from jaxbandit.problems import AbstractProblem, optimum
from jaxbandit.problems.base import Instance
from jaxbandit.surrogates import Surrogate

__all__ = ["BestPoint", "FeasiblePoints", "Rule", "SafestSeeds", "safest"]
__dir__ = __all__.copy

A = TypeVar("A", bound=Algorithm)


def _worst_cost(instance: Instance) -> Array:
    """Return ``max_j g_j(x)`` of the mean constraints ``[M]``, or minus infinity."""
    return jnp.max(jnp.asarray(instance.means)[1:], axis=0, initial=-jnp.inf)


@checked
def safest(instance: Instance, count: Annotated[int, how_many_points()]) -> Array:
    """Return the int32 points ``[count]`` with the least worst cost, safest first.

    On a domain with contexts these are ``count`` points of each context, ``[Z count]``.
    """
    domain, cost = instance.domain, _worst_cost(instance)
    if isinstance(domain, Contextual):
        how_many_points()("count", count, Place(points=domain.actions))
        of_each = jax.lax.top_k(-cost.reshape(domain.contexts, -1), count)[1].astype(jnp.int32)
        return domain.numbers(jnp.arange(domain.contexts, dtype=jnp.int32)[:, None], of_each).reshape(-1)
    how_many_points()("count", count, Place(points=domain.size))
    return jax.lax.top_k(-cost, count)[1].astype(jnp.int32)


class Rule(Declared, abc.ABC):
    """Abstract base of rules that give a learner facts, with static fields."""

    described: ClassVar[str] = "a rule of jaxbandit.informed, such as SafestSeeds(count=2)"
    called: ClassVar[str] = "informed"
    in_files: ClassVar[bool] = True

    @abc.abstractmethod
    def __call__(self, instance: AbstractProblem, algorithm: A, surrogate: Surrogate) -> tuple[A, Surrogate]:
        """Return the algorithm and the surrogate to run on ``instance``."""


@pytree
class SafestSeeds(Rule):
    """Truly safest points as seeds of :class:`~jaxbandit.SafeOpt`, :class:`~jaxbandit.StageOpt` or :class:`~jaxbandit.SgpUcb`.

    Attributes:
      count: number of seeds, >= 1, on a domain with contexts in each context.
    """

    count: Annotated[int, how_many_points()] = static(default=1)

    def __call__(self, instance: AbstractProblem, algorithm: A, surrogate: Surrogate) -> tuple[A, Surrogate]:
        return algorithm.with_facts(seeds=safest(instance, self.count)), surrogate


@pytree
class FeasiblePoints(Rule):
    """Truly feasible points as the only draws of :class:`~jaxbandit.RandomSearch`."""

    def __call__(self, instance: AbstractProblem, algorithm: A, surrogate: Surrogate) -> tuple[A, Surrogate]:
        return algorithm.with_facts(allowed=_worst_cost(instance) <= 0), surrogate


@pytree
class BestPoint(Rule):
    """Best feasible point, or least violating point, for :class:`~jaxbandit.Oracle`."""

    def __call__(self, instance: AbstractProblem, algorithm: A, surrogate: Surrogate) -> tuple[A, Surrogate]:
        best = optimum(instance)
        index = jnp.where(jnp.isnan(best.value), safest(instance, 1)[0], best.index)
        return algorithm.with_facts(index=index), surrogate
