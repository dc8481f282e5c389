"""Goal-oriented safe exploration (GoOSE) of one step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp

from jaxbandit.algorithms.base import Arena
from jaxbandit.algorithms.safe_sets import Safe, SafeState
from jaxbandit.core.declare import Array, Key, PerConstraint, Scalar
from jaxbandit.core.fields import Letter, positive
from jaxbandit.core.pytree import pytree
from jaxbandit.numerics.ties import pick, restricted_to, squared_distance
from jaxbandit.rules.safety import Intervals
from jaxbandit.surrogates import Belief


@pytree
class Goose(Safe):
    r"""GoOSE: certify points near the optimistic goal, then maximise.

    The goal is the best upper bound among the points whose constraints can hold, ``LCB_gj < -eps``. If the goal is safe, the choice is the
    best upper bound of the safe set. Otherwise a safe point ``x`` with ``min_j 2 beta_j sigma_gj(x) > eps`` could certify a point ``y``
    outside if

    .. math:: \mathrm{LCB}_{g_j}(x) + L_j |x - y| \le \epsilon \;\; \forall j.

    Of the points that can be certified the nearest to the goal is the target, and the choice is the point with the widest
    ``min_j`` of the intervals among those that could certify it. If there is no target, the choice is the best upper bound of the safe
    set. This is one step of the paper's rule, as in the code of CSafeOpt; the paper looks several steps ahead.

    Attributes:
      lipschitz: ``L > 0``, one number or ``[m]``, in units of the cost per unit of distance.
      epsilon: least length ``> 0`` of the intervals of a point worth a measurement.
      estimator, seeds, count, allowed, safety: as in :class:`~jaxbandit.SafeOpt`.
    """

    name: ClassVar[str] = "goose"
    title: ClassVar[str] = "GoOSE"
    papers: ClassVar[Mapping[str, str]] = {"turchetta2019": "one step"}
    lipschitz: Annotated[PerConstraint, positive, Letter("L")] = 1.0
    epsilon: Annotated[Scalar, positive, Letter("eps")] = 0.1
    # Distances are to all points of the domain.
    on_contexts = False

    def choose(self, arena: Arena, state: SafeState, belief: Belief, known: Intervals, safe: Array, t: Array, key: Key) -> Array:
        lower, upper, dtype = known.lower[1:], known.upper[0], known.sd.dtype
        points = jnp.asarray(arena.domain.points, dtype)
        optimistic = jnp.all(lower < -self.epsilon, axis=0)
        goal = pick(restricted_to(optimistic | ~jnp.any(optimistic), upper))
        lengths = jnp.min(2 * known.widths[1:, None] * known.sd[1:], axis=0, initial=jnp.inf)
        constant = jnp.broadcast_to(jnp.asarray(self.lipschitz, dtype), lower.shape[:1])[:, None]
        # A point reaches this far. Points that are not worth a measurement reach nothing.
        reach = jnp.min((self.epsilon - lower) / constant, axis=0, initial=jnp.inf)
        reach = jnp.where(safe & (lengths > self.epsilon), reach, -jnp.inf)

        def away(point: Array) -> Array:
            return jnp.sqrt(squared_distance(points, point))

        # Distances to 64 points are computed at once.
        reached = jax.lax.map(lambda point: jnp.any(away(point) <= reach), points, batch_size=min(64, arena.size))
        # The index M of a NaN score is clamped.
        targets, place = reached & ~safe, points[jnp.minimum(goal, arena.size - 1)]
        target = pick(jnp.where(targets, -away(place), -jnp.inf))
        expanders = away(points[jnp.minimum(target, arena.size - 1)]) <= reach
        expanding = (goal < arena.size) & ~safe[jnp.minimum(goal, arena.size - 1)] & jnp.any(targets)
        return pick(jnp.where(expanding, restricted_to(expanders, lengths), restricted_to(safe, upper)))
