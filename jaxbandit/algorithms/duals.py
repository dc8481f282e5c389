"""Dual variables and virtual queues (Zhou and Ji 2022)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, Decision, DualState, Scored, Seen, Traits
from jaxbandit.core.declare import Array, Key, PerConstraint, Scalar
from jaxbandit.core.fields import Letter, between, nonnegative, positive
from jaxbandit.core.pytree import float_dtype, pytree, replace, static
from jaxbandit.core.status import Status
from jaxbandit.numerics.ties import pick, weighted_sum
from jaxbandit.rules.estimators import Bounds, Estimate, Strategy
from jaxbandit.rules.scores import Score


@pytree
class Cbo(Scored[DualState]):
    r"""CBO, also called CKB: optimistic Lagrangian, dual steps by *estimated* costs.

    .. math::
        x_t = \arg\max_x \bar f_t(x) - \sum_j \phi_t^j \bar g_{t,j}(x), \qquad
        \phi_{t+1}^j = \mathrm{Proj}_{[0,\rho]}(\phi_t^j + \bar g_{t,j}(x_t) / V)

    with ``f_bar = Proj_[-B,B]``, ``g_bar = Proj_[-G,G]`` of the strategy's estimates and ``phi_1 = 0``. CBO-UCB is CBO with
    confidence bounds. A run records ``phi_t``, each in ``[0, rho]``, as ``multipliers``.

    Attributes:
      estimator: the exploration strategy; default UCB of the reward and LCB of the constraints, width 3.
      reward_clip: ``B > 0``.
      cost_clip: ``G > 0``, one number or ``[m]``.
      dual_cap: ``rho > 0``, one number or ``[m]``; the theory requires ``rho >= 4 B / delta`` with Slater slack ``delta``.
      step_divisor: ``V > 0``, one number or ``[m]``; default ``G sqrt(T) / rho``, the theory's choice.
    """

    name: ClassVar[str] = "cbo"
    title: ClassVar[str] = "CBO-UCB"
    papers: ClassVar[Mapping[str, str]] = {"zhou2022": "Algorithm 1"}
    shown = ("multipliers",)
    estimator: Strategy = Bounds()
    reward_clip: Annotated[Scalar, positive, Letter("B")] = 1.0
    cost_clip: Annotated[PerConstraint, positive, Letter("G")] = 1.0
    dual_cap: Annotated[PerConstraint, positive, Letter("rho")] = 10.0
    step_divisor: Annotated[PerConstraint, positive] | None = None

    def init(self, arena: Arena) -> DualState:
        return DualState(posterior=arena.surrogate.init(), multipliers=jnp.zeros((arena.constraints,), arena.dtype))

    def score(self, state: DualState, estimate: Estimate) -> Score:
        bound = jnp.asarray(self.reward_clip)
        reward = jnp.clip(estimate.reward, -bound, bound)
        clipped = tuple((mask, Status.ALL_CLIPPED) for mask in (estimate.reward >= bound, estimate.reward <= -bound))
        return Score(reward - weighted_sum(state.multipliers, self._clipped(estimate.costs)), flags=clipped)

    def after_choice(self, arena: Arena, state: DualState, estimate: Estimate, index: Array) -> DualState:
        """Return the state after the dual step, line 7 of Algorithm 1."""
        costs = self._clipped(estimate.costs)[:, index]
        return replace(state, multipliers=jnp.clip(state.multipliers + costs / self.divisor(arena.horizon), 0, jnp.asarray(self.dual_cap)))

    def _clipped(self, costs: Array) -> Array:
        clip = jnp.broadcast_to(jnp.asarray(self.cost_clip), (len(costs),))
        return jnp.clip(costs, -clip[:, None], clip[:, None])

    def divisor(self, horizon: Array | int) -> Array:
        """Return ``V``, ``[]`` or ``[m]``, for ``horizon`` rounds."""
        if self.step_divisor is not None:
            return jnp.asarray(self.step_divisor)
        cap = jnp.asarray(self.dual_cap, float_dtype())
        return jnp.asarray(self.cost_clip, cap.dtype) * jnp.sqrt(jnp.asarray(horizon, cap.dtype)) / cap

    def symbols_in_force(self, horizon: int) -> dict[str, object]:
        """Return the hyper-parameters under the paper's letters, with ``V``."""
        return {**super().symbols_in_force(horizon), "V": np.asarray(self.divisor(horizon)).tolist()}


@pytree
class PrimalDual(Scored[DualState]):
    r"""CBO with dual steps by *observed* costs, without clips or a cap.

    .. math::
        x_t = \arg\max_x \mathrm{UCB}_f(x) - \sum_j \phi_t^j \, \mathrm{LCB}_{g_j}(x), \qquad
        \phi_{t+1}^j = (\phi_t^j + \eta \, c_t^j)^+

    with ``eta = 1`` and ``phi_1 = 1``. In :class:`~jaxbandit.Cbo` (Zhou and Ji 2022), by contrast, the estimate at ``x_t`` moves the dual,
    by ``1 / V``, from 0 and up to ``rho``, and both estimates are clipped. A run records ``phi_t`` as ``multipliers``.

    Attributes:
      estimator: the exploration strategy; default UCB of the reward and LCB of the constraints, width 3.
      initial_multiplier: ``phi_1 >= 0``, one number or ``[m]``.
      step: ``eta > 0``, one number or ``[m]``.
    """

    name: ClassVar[str] = "primaldual"
    title: ClassVar[str] = "primal-dual on observations"
    papers: ClassVar[Mapping[str, str]] = {"xu2023": "sec. 6, its rival", "zhou2022": "Algorithm 1, which it varies"}
    shown = ("multipliers",)
    estimator: Strategy = Bounds()
    initial_multiplier: Annotated[PerConstraint, nonnegative, Letter("phi1")] = 1.0
    step: Annotated[PerConstraint, positive, Letter("eta")] = 1.0

    def init(self, arena: Arena) -> DualState:
        first = jnp.broadcast_to(jnp.asarray(self.initial_multiplier, arena.dtype), (arena.constraints,))
        return DualState(posterior=arena.surrogate.init(), multipliers=first)

    def score(self, state: DualState, estimate: Estimate) -> Score:
        return Score(estimate.reward - weighted_sum(state.multipliers, estimate.costs))

    def update(self, arena: Arena, state: DualState, observation: Seen, t: Array) -> DualState:
        dual = jnp.maximum(state.multipliers + jnp.asarray(self.step) * observation.total()[1:], 0)
        return DualState(posterior=arena.learn(state.posterior, observation), multipliers=dual)


@pytree
class ScgpState(DualState):
    """State of SCGP-UCB, whose multipliers are the virtual queues ``Q(t)``."""

    sample: Array  # [m, M] revealed functions g_t


@pytree
class Scgp(Algorithm[ScgpState]):
    r"""SCGP-UCB: virtual queues that grow every round, to compensate for violations.

    .. math::
        x_t = \arg\max_x \bar f_t(x) - \tfrac{1}{V_t} \sum_j Q_j(t) g_{t,j}(x), \qquad
        Q_j(t+1) = (Q_j(t) + g_{t,j}(x_t) + \epsilon_t)^+

    Schedule 1: ``eps_t = 1 / sqrt t``, ``V_t = delta sqrt t / (8 B)``. Schedule 2: ``eps_t = delta / (2 sqrt t)``,
    ``V_t = delta^2 sqrt t / (16 B)``.

    Attributes:
      estimator: strategy for the reward; default UCB of width 3.
      reward_clip: ``B > 0``.
      slater: Slater constant ``delta`` in (0, 1].
      schedule: 1 or 2.
    """

    name: ClassVar[str] = "scgp"
    title: ClassVar[str] = "SCGP-UCB"
    papers: ClassVar[Mapping[str, str]] = {"zhou2022": "Algorithm 2"}
    shown = ("multipliers",)
    estimator: Strategy = Bounds()
    reward_clip: Annotated[Scalar, positive, Letter("B")] = 1.0
    slater: Annotated[Scalar, between(0, 1), Letter("delta")] = 0.5
    schedule: Annotated[Literal[1, 2], Letter("schedule")] = static(default=1)

    traits = Traits(sees_constraints=True)

    on_contexts = True

    def init(self, arena: Arena) -> ScgpState:
        return ScgpState(
            posterior=arena.surrogate.init(),
            multipliers=jnp.zeros((arena.constraints,), arena.dtype),
            sample=jnp.zeros((arena.constraints, arena.size), arena.dtype),
        )

    def reveal(self, arena: Arena, state: ScgpState, sample: Array, t: Array) -> ScgpState:
        """Return the state with ``g_t`` before the choice, line 4."""
        return replace(state, sample=sample)

    def select(self, arena: Arena, state: ScgpState, t: Array, key: Key) -> tuple[Decision, ScgpState]:
        estimate = self.estimator.estimate(arena.belief(state), t, key)
        bound = jnp.asarray(self.reward_clip)
        reward = jnp.clip(estimate.reward, -bound, bound)
        everywhere = (jnp.min(estimate.reward) >= bound) | (jnp.max(estimate.reward) <= -bound)
        flags = jnp.where(everywhere, int(Status.ALL_CLIPPED), 0)
        push, divisor = self._schedules(jnp.asarray(t, reward.dtype))
        # The choice is line 5 of Algorithm 2, the queue line 7.
        sample = arena.here(state.sample)
        index = pick(reward - weighted_sum(state.multipliers / divisor, sample))
        queue = jnp.maximum(state.multipliers + sample[:, index] + push, 0)
        return Decision(index=index, widths=estimate.widths, flags=flags, draws=estimate.draws), replace(state, multipliers=queue)

    def _schedules(self, t: Array) -> tuple[Array, Array]:
        """Return ``eps_t`` and ``V_t``."""
        root = jnp.sqrt(t)
        if self.schedule == 1:
            return 1 / root, self.slater * root / (8 * self.reward_clip)
        return self.slater / (2 * root), self.slater**2 * root / (16 * self.reward_clip)
