"""Online convex optimisation with bandit feedback (Cao and Liu 2018).

The two-point scheme follows the literature on the paper; details such as the default step sizes are ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, Decision, DualState, Seen, Traits
from jaxbandit.core.declare import Array, Key, PerAxis, Scalar
from jaxbandit.core.fields import Letter, between, each_axis, nonnegative, positive
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.numerics.ties import pick, squared_distance, unit_box


@pytree
class OcoState(DualState):
    """State in coordinates of the unit box, with ``lambda`` as multipliers."""

    centre: Array  # [d] x
    direction: Array  # [d] unit vector u
    first: Array  # [1 + m] values of odd round


@pytree
class Oco(Algorithm[OcoState]):
    r"""Primal-dual gradient steps with gradients from pairs of rounds.

    An odd round draws ``u`` from the unit sphere and evaluates ``x + delta u``; the next round evaluates ``x - delta u``. Then

    .. math::
        \hat\nabla F = \tfrac{d}{2 \delta} (F(x + \delta u) - F(x - \delta u)) \, u, \\
        x \leftarrow \mathrm{Proj}(x + \eta (\hat\nabla f - \sum_j \lambda_j \hat\nabla g_j)), \quad
        \lambda_j \leftarrow (\lambda_j + \eta (\bar g_j - \kappa \lambda_j))^+

    with ``eta = step / sqrt(T)``, ``kappa = regulariser eta`` and ``bar g_j`` the mean of the two observed costs. ``x`` moves in the
    domain's bounding box, scaled to ``[0, 1]^d`` and shrunk about its middle by ``1 - shrink``, so that both points lie inside.

    Rounds evaluate the *nearest grid point*, and ``delta`` is at least one grid step, because otherwise both rounds of a pair would often
    evaluate the same point. The algorithm has no model and needs feedback at once.

    Attributes:
      step: ``eta sqrt(T) > 0``. Tune it, for example by a :func:`~jaxbandit.sweep`.
      regulariser: ``kappa / eta >= 0``.
      perturbation: ``delta`` in ``(0, 1/2)``, raised to one grid step if it is less; default one grid step.
      shrink: ``zeta`` in ``[0, 1)``; default ``2 delta``.
      start: ``[d]`` first ``x`` in the unit box; default uniform in the shrunk box.
    """

    name: ClassVar[str] = "oco"
    title: ClassVar[str] = "bandit OCO"
    papers: ClassVar[Mapping[str, str]] = {"cao2018": ""}
    shown = ("multipliers",)
    step: Annotated[Scalar, positive] = 1.0
    regulariser: Annotated[Scalar, nonnegative] = 1.0
    perturbation: Annotated[Scalar, between(0, 0.5, open_high=True), Letter("delta")] | None = None
    shrink: Annotated[Scalar, between(0, 1, open_low=False, open_high=True), Letter("zeta")] | None = None
    start: Annotated[PerAxis, between(0, 1, open_low=False), each_axis, Letter("start")] | None = None

    traits = Traits(learns=False, needs_feedback_at_once=True)

    def init(self, arena: Arena) -> OcoState:
        dimension = arena.surrogate.domain.dimension
        nowhere = jnp.zeros((dimension,), arena.dtype)
        zeros = jnp.zeros((1 + arena.constraints,), arena.dtype)
        return OcoState(posterior=arena.surrogate.init(), multipliers=zeros[1:], centre=nowhere, direction=nowhere, first=zeros)

    def select(self, arena: Arena, state: OcoState, t: Array, key: Key) -> tuple[Decision, OcoState]:
        start_key, direction_key = jax.random.split(key)
        shape, dtype = state.centre.shape, state.centre.dtype
        uniform = jax.random.uniform(start_key, shape, dtype) if self.start is None else jnp.asarray(self.start, dtype)
        centre = jnp.where(t == 1, self._inside(arena, uniform), state.centre)
        normal = jax.random.normal(direction_key, shape, dtype)
        odd = t % 2 == 1
        direction = jnp.where(odd, normal / jnp.linalg.norm(normal), state.direction)
        target = centre + jnp.where(odd, 1, -1) * self._delta(arena) * direction
        index = pick(-squared_distance(unit_box(arena.surrogate.domain.points), target))
        decision = Decision(index=index, widths=jnp.zeros_like(state.first), draws=jnp.stack([direction, centre]))
        return decision, replace(state, centre=centre, direction=direction)

    def update(self, arena: Arena, state: OcoState, observation: Seen, t: Array) -> OcoState:
        now, odd = observation.total(), t % 2 == 1
        eta = self.step / jnp.sqrt(jnp.asarray(arena.horizon, now.dtype))
        slopes = (state.centre.shape[0] / (2 * self._delta(arena))) * (state.first - now)  # [1 + m]
        uphill = (slopes[0] - jnp.sum(state.multipliers * slopes[1:])) * state.direction
        cost = 0.5 * (state.first + now)[1:]
        dual = jnp.maximum(state.multipliers + eta * (cost - self.regulariser * eta * state.multipliers), 0)
        return replace(
            state,
            centre=jnp.where(odd, state.centre, self._inside(arena, state.centre + eta * uphill)),
            multipliers=jnp.where(odd, state.multipliers, dual),
            first=jnp.where(odd, now, state.first),
        )

    def _delta(self, arena: Arena) -> Array:
        """Return ``delta``, at least one grid step."""
        domain = arena.surrogate.domain
        counts = [n for n in domain.grid_shape if n > 1] or [max(2.0, domain.size ** (1 / domain.dimension))]
        least = jnp.asarray(1 / (min(counts) - 1), jnp.asarray(domain.points).dtype)
        return least if self.perturbation is None else jnp.maximum(self.perturbation, least)

    def _inside(self, arena: Arena, point: Array) -> Array:
        """Return the projection of ``point [d]`` onto the shrunk box."""
        margin = jnp.minimum(self._delta(arena) if self.shrink is None else 0.5 * self.shrink, 0.5)
        return jnp.clip(point, margin, 1 - margin)

    def symbols_in_force(self, horizon: int) -> dict[str, object]:
        """Return the hyper-parameters, with ``eta`` and ``kappa``.

        In a trace ``draw_f`` is each round's direction and ``draw_g`` its centre ``x``.
        """
        eta = np.asarray(self.step) / np.sqrt(horizon)
        return {**super().symbols_in_force(horizon), "eta": eta.tolist(), "kappa": (np.asarray(self.regulariser) * eta).tolist()}
