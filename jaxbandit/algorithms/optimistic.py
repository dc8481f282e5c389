"""Rules that choose the best optimistic estimate: of all points, of those whose constraints can hold, or less a penalty.

Penalties are fixed, rectified and growing, dual variables, virtual queues, or the same over an epoch of rounds.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit import widths
from jaxbandit.acquisition import pick, weighted_sum
from jaxbandit.algorithms.base import Algorithm, Arena, BeliefState, Decision, DualState, Score, Scored, Seen, Traits
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array, Key, PerConstraint, Scalar
from jaxbandit.core.fields import Letter, between, nonnegative, positive, whole
from jaxbandit.core.pytree import float_dtype, pytree, replace, static
from jaxbandit.core.status import Status
from jaxbandit.estimators import Bounds, Estimate, Strategy
from jaxbandit.penalties import Exponential, Penalty


@pytree
class Unconstrained(Scored[BeliefState]):
    r"""The point with the best reward estimate, ``x_t = argmax_x f_t(x)``.

    IGP-UCB with ``Bounds``, GP-TS with ``Thompson`` (Chowdhury and Gopalan 2017, Algorithms 1 and 2), RandGP-UCB with ``Randomised``
    (Zhou and Ji 2022, Def. 2). On a constrained problem it ignores the constraints.

    Attributes:
      estimator: the exploration strategy; default UCB of width 3.
    """

    name: ClassVar[str] = "unconstrained"
    title: ClassVar[str] = "IGP-UCB"
    paper: ClassVar[str] = "Chowdhury, Gopalan (2017), *On Kernelized Multi-armed Bandits*, Algorithms 1-2"
    estimator: Strategy = Bounds()

    def score(self, state: BeliefState, estimate: Estimate) -> Score:
        return Score(estimate.reward)


@pytree
class Config(Scored[BeliefState]):
    r"""CONFIG: the best upper bound of the reward among points whose constraints can still hold.

    .. math:: x_t = \arg\max_x \mathrm{UCB}_f(x) \quad\text{s.t.}\quad \mathrm{LCB}_{g_j}(x) \le 0 \;\; \forall j

    When no point satisfies every lower bound the problem is declared infeasible (line 4; a constraint with
    ``min_x LCB > 0`` is a special case). The run goes on, at the point of least worst-case lower bound, so that arrays keep one
    shape; the trial carries the flag and the round of the first declaration. An equality is two inequalities.

    Attributes:
      estimator: default UCB of the reward and LCB of the constraints, width 3, as in the paper's experiments.
    """

    name: ClassVar[str] = "config"
    title: ClassVar[str] = "CONFIG"
    paper: ClassVar[str] = (
        "Xu, Jiang, Svetozarevic, Jones (2023), *Constrained Efficient Global Optimization of Expensive Black-box Functions*, Algorithm 1"
    )
    estimator: Strategy = Bounds()

    def score(self, state: BeliefState, estimate: Estimate) -> Score:
        worst = jnp.max(estimate.costs, axis=0, initial=-jnp.inf)  # without constraints every point is feasible
        optimistic = jnp.where(worst > 0, -jnp.inf, jnp.where(worst <= 0, estimate.reward, jnp.nan))
        # Infeasible where it is > 0 everywhere, not where it is <= 0 nowhere: a NaN declares nothing.
        return Score(optimistic, flags=((worst > 0, Status.DECLARED_INFEASIBLE),), otherwise=-worst)


@pytree
class Epbo(Scored[BeliefState]):
    r"""EPBO: a fixed penalty on the positive part of optimistic constraint estimates.

    .. math:: x_t = \arg\max_x \mathrm{UCB}_f(x) - \rho \sum_j \mathrm{LCB}_{g_j}(x)^+

    Attributes:
      estimator: default UCB of the reward and LCB of the constraints, width 3.
      penalty: ``rho >= 0``, one number or ``[m]``.
    """

    name: ClassVar[str] = "epbo"
    title: ClassVar[str] = "EPBO"
    paper: ClassVar[str] = (
        "Lu, Paulson (2022), *No-regret Bayesian Optimization with Unknown Equality and Inequality Constraints using Exact "
        "Penalty Functions*"
    )
    estimator: Strategy = Bounds()
    penalty: Annotated[PerConstraint, nonnegative, Letter("rho")] = 1.0

    def score(self, state: BeliefState, estimate: Estimate) -> Score:
        penalty = jnp.broadcast_to(jnp.asarray(self.penalty, estimate.reward.dtype), (len(estimate.costs),))
        return Score(estimate.reward - weighted_sum(penalty, jnp.maximum(estimate.costs, 0)))


@pytree
class Rpol(Scored[DualState]):
    r"""RPOL: a penalty on the *positive part* of optimistic constraint estimates, growing at least like ``sqrt(t)``.

    .. math::
        x_t = \arg\max_x \hat f_t(x) - \sum_j Q_t^j \check g_{t,j}(x)^+, \qquad Q_{t+1} = \max(Q_t + c_t^+, \eta_t)

    with ``Q_1 = 1`` and ``eta_t = sqrt(t)`` (eq. 7 and the penalty update). RPOL-UCB is RPOL with confidence bounds.

    Attributes:
      estimator: the learning strategy; default UCB of the reward and LCB of the constraints, width 3.
      initial_penalty: ``Q_1 > 0``, one number or ``[m]``.
      penalty_growth: ``eta_t / sqrt(t)``, > 0; 1 in the paper.
    """

    name: ClassVar[str] = "rpol"
    title: ClassVar[str] = "RPOL-UCB"
    paper: ClassVar[str] = (
        "Guo, Zhu, Liu (2022), *Rectified Pessimistic-Optimistic Learning for Stochastic Continuum-armed Bandit with Constraints*, sec. 3-4"
    )
    shown = ("multipliers",)  # the rectified penalty factors Q_t
    estimator: Strategy = Bounds()
    initial_penalty: Annotated[PerConstraint, positive, Letter("Q1")] = 1.0
    penalty_growth: Annotated[Scalar, positive, Letter("eta_over_sqrt_t")] = 1.0

    def init(self, arena: Arena) -> DualState:
        penalty = jnp.full((arena.constraints,), jnp.asarray(self.initial_penalty), arena.dtype)
        return DualState(posterior=arena.surrogate.init(), multipliers=penalty)

    def score(self, state: DualState, estimate: Estimate) -> Score:
        return Score(estimate.reward - weighted_sum(state.multipliers, jnp.maximum(estimate.costs, 0)))  # eq. (7)

    def update(self, arena: Arena, state: DualState, observation: Seen, t: Array) -> DualState:
        violation = observation.map(lambda values: jnp.maximum(values, 0)).total()[1:]
        floor = self.penalty_growth * jnp.sqrt(jnp.asarray(t, violation.dtype))  # eta_t
        penalty = jnp.maximum(state.multipliers + violation, floor)
        return DualState(posterior=arena.learn(state.posterior, observation), multipliers=penalty)


@pytree
class Cbo(Scored[DualState]):
    r"""CBO: the best point of an optimistic Lagrangian, then a projected dual step along the *estimated* cost there.

    .. math::
        x_t = \arg\max_x \bar f_t(x) - \sum_j \phi_t^j \bar g_{t,j}(x), \qquad
        \phi_{t+1}^j = \mathrm{Proj}_{[0,\rho]}(\phi_t^j + \bar g_{t,j}(x_t) / V)

    with ``f_bar = Proj_[-B,B]``, ``g_bar = Proj_[-G,G]`` of the strategy's estimates and ``phi_1 = 0``. CBO-UCB is CBO with
    confidence bounds.

    Attributes:
      estimator: the exploration strategy; default UCB of the reward and LCB of the constraints, width 3.
      reward_clip: ``B > 0``.
      cost_clip: ``G > 0``, one number or ``[m]``.
      dual_cap: ``rho > 0``, one number or ``[m]``; the theory asks for ``rho >= 4 B / delta`` with Slater slack ``delta``.
      step_divisor: ``V > 0``, one number or ``[m]``; default ``G sqrt(T) / rho``, the theory's choice.
    """

    name: ClassVar[str] = "cbo"
    title: ClassVar[str] = "CBO-UCB"
    paper: ClassVar[str] = "Zhou, Ji (2022), *On Kernelized Multi-Armed Bandits with Constraints*, Algorithm 1"
    shown = ("multipliers",)  # the dual variables phi_t, each in [0, rho]
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
        """Move the dual by the estimate at ``x_t``, not by the observation (line 7 of Algorithm 1)."""
        costs = self._clipped(estimate.costs)[:, index]
        return replace(state, multipliers=jnp.clip(state.multipliers + costs / self.divisor(arena.horizon), 0, jnp.asarray(self.dual_cap)))

    def _clipped(self, costs: Array) -> Array:
        clip = jnp.broadcast_to(jnp.asarray(self.cost_clip), (len(costs),))
        return jnp.clip(costs, -clip[:, None], clip[:, None])

    def divisor(self, horizon: Array | int) -> Array:
        """Return ``V`` in force over ``horizon`` rounds, ``[]``, or ``[m]`` where a number that it depends on is."""
        if self.step_divisor is not None:
            return jnp.asarray(self.step_divisor)
        cap = jnp.asarray(self.dual_cap, float_dtype())
        return jnp.asarray(self.cost_clip, cap.dtype) * jnp.sqrt(jnp.asarray(horizon, cap.dtype)) / cap

    def symbols_in_force(self, horizon: int) -> dict[str, object]:
        """Return the hyper-parameters under the paper's letters, with the ``V`` in force."""
        return {**super().symbols_in_force(horizon), "V": np.asarray(self.divisor(horizon)).tolist()}


@pytree
class PrimalDual(Scored[DualState]):
    r"""CBO with a dual that the *observed* cost moves, by plain steps, without clips and without a cap.

    .. math::
        x_t = \arg\max_x \mathrm{UCB}_f(x) - \sum_j \phi_t^j \, \mathrm{LCB}_{g_j}(x), \qquad
        \phi_{t+1}^j = (\phi_t^j + \eta \, c_t^j)^+

    with ``eta = 1`` and ``phi_1 = 1``. It differs from :class:`~jaxbandit.Cbo` (Zhou and Ji 2022) in that there the estimate at
    ``x_t`` moves the dual, by ``1 / V``, from 0 and up to ``rho``, and both estimates are clipped.

    Attributes:
      estimator: the exploration strategy; default UCB of the reward and LCB of the constraints, width 3.
      initial_multiplier: ``phi_1 >= 0``, one number or ``[m]``.
      step: ``eta > 0``, one number or ``[m]``.
    """

    name: ClassVar[str] = "primaldual"
    title: ClassVar[str] = "primal-dual on observations"
    paper: ClassVar[str] = "CBO with a dual that the observed cost moves, as in the experiments of Xu et al. (2023)"
    shown = ("multipliers",)  # the dual variables phi_t >= 0
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

    sample: Array  # [m, M] the constraint functions g_t(.) revealed for the coming choice


@pytree
class Scgp(Algorithm[ScgpState]):
    r"""SCGP-UCB: a virtual queue per constraint, pushed up a little every round so that violations are paid back.

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
    paper: ClassVar[str] = "Zhou, Ji (2022), *On Kernelized Multi-Armed Bandits with Constraints*, Algorithm 2"
    shown = ("multipliers",)
    estimator: Strategy = Bounds()
    reward_clip: Annotated[Scalar, positive, Letter("B")] = 1.0
    slater: Annotated[Scalar, between(0, 1), Letter("delta")] = 0.5
    schedule: Annotated[Literal[1, 2], Letter("schedule")] = static(default=1)

    traits = Traits(sees_constraints=True)

    def init(self, arena: Arena) -> ScgpState:
        return ScgpState(
            posterior=arena.surrogate.init(),
            multipliers=jnp.zeros((arena.constraints,), arena.dtype),
            sample=jnp.zeros((arena.constraints, arena.size), arena.dtype),
        )

    def reveal(self, arena: Arena, state: ScgpState, sample: Array, t: Array) -> ScgpState:
        """Take in ``g_t(.)`` before the choice of round ``t`` (line 4)."""
        return replace(state, sample=sample)

    def select(self, arena: Arena, state: ScgpState, t: Array, key: Key) -> tuple[Decision, ScgpState]:
        estimate = self.estimator.estimate(arena.surrogate, state.posterior, t, key)
        bound = jnp.asarray(self.reward_clip)
        reward = jnp.clip(estimate.reward, -bound, bound)
        everywhere = (jnp.min(estimate.reward) >= bound) | (jnp.max(estimate.reward) <= -bound)
        flags = jnp.where(everywhere, int(Status.ALL_CLIPPED), 0)
        root = jnp.sqrt(jnp.asarray(t, reward.dtype))
        if self.schedule == 1:
            push, divisor = 1 / root, self.slater * root / (8 * self.reward_clip)
        else:
            push, divisor = self.slater / (2 * root), self.slater**2 * root / (16 * self.reward_clip)
        index = pick(reward - weighted_sum(state.multipliers / divisor, state.sample))  # line 5
        queue = jnp.maximum(state.multipliers + state.sample[:, index] + push, 0)  # line 7
        return Decision(index=index, widths=estimate.widths, flags=flags, draws=estimate.draws), replace(state, multipliers=queue)


@pytree
class EpochState(DualState):
    """State with the posterior of the outputs that ``kappa`` combines, ``kappa`` of the current epoch as multipliers, and sums over it."""

    total: Array  # [m] sum of the costs that came in over the epoch so far
    count: Array  # [m] their number

    @classmethod
    def start(cls, arena: Arena, kappa: float, name: str, **more: Array) -> Self:
        """Return the state before round 1 of the algorithm ``name``, whose outputs must share a factor."""
        if len(arena.surrogate.model.forms) != 1:
            raise InvalidArgument(f"surrogate: {name} models a combination of outputs; give all of them one kernel and noise_variance")
        return cls(
            posterior=arena.surrogate.init(),
            multipliers=jnp.full((arena.constraints,), kappa, arena.dtype),
            total=jnp.zeros((arena.constraints,), arena.dtype),
            count=jnp.zeros((arena.constraints,), arena.dtype),
            **more,
        )

    def after(self, arena: Arena, observation: Seen, t: Array, *, length: int, restart: bool) -> tuple[Self, Array, Array]:
        """Return the state after round ``t`` of epochs of ``length``, the average costs ``[m]``, and whether the epoch is over."""
        total, count = self.total + observation.total()[1:], self.count + observation.count[1:]
        last, posterior = t % length == 0, self.posterior
        if restart:  # at the end of an epoch, so that an initial design serves the first one
            posterior = jax.lax.cond(last, arena.surrogate.init, lambda: self.posterior)
        state = replace(self, posterior=posterior, total=jnp.where(last, 0, total), count=jnp.where(last, 0, count))
        return state, total / jnp.maximum(count, 1), last

    def estimate(self, arena: Arena, strategy: Strategy, t: Array, key: Key) -> Estimate:
        """Return the estimate of ``f - sum_j kappa_j h_j``, one combination of the outputs."""
        weights = jnp.append(jnp.ones((1,), self.multipliers.dtype), -self.multipliers)
        return strategy.combination(arena.surrogate, self.posterior, weights, t, key)


@pytree
class Se2State(EpochState):
    """State of Algorithm 2, of the outputs ``(r, psi(g_j) - 1)``."""

    flags: Array  # [] status bits: whether a penalty has reached its cap


@pytree
class Se2(Scored[Se2State]):
    r"""Multiplicative penalties in epochs of ``S`` rounds, for constraints observed without noise.

    .. math::
        x_t = \arg\max_x \mathrm{UCB}_{F_l}(x), \quad F_l = f - \sum_j \kappa_l^j (\psi(g_j) - 1), \qquad
        \kappa_{l+1}^j = \kappa_l^j \, \psi\!\left(\tfrac{1}{S} \sum_{s} g_j(x_l^s)\right)

    with ``kappa_1 = 1``. Reward and penalty are observed apart, so earlier epochs serve under the new ``kappa`` at no cost: the
    surrogate learns ``(r, psi(g_j) - 1)`` and the mean of ``F_l`` is their combination. The paper's text starts every epoch afresh
    (``restart=True``), with which its figures do not come out. The outputs must share kernel and noise variance.

    Attributes:
      estimator: strategy for ``F_l``, by its reward width; default UCB of width 1. GP-TS is ``Thompson`` (Remark 1).
      psi: penalty function, ``Exponential`` or ``Polynomial``.
      epoch: ``S >= 1`` rounds.
      penalty_cap: largest ``kappa`` and ``psi``; reaching it flags the trial, for ``exp`` can overflow.
      restart: forget the data of earlier epochs.
    """

    name: ClassVar[str] = "se2"
    title: ClassVar[str] = "GP-UCB with noiseless constraints"
    paper: ClassVar[str] = (
        "Shi, Eryilmaz (2022), *A Bayesian Approach for Stochastic Continuum-armed Bandit with Long-term Constraints*, Algorithm 2"
    )
    shown = ("multipliers", "flags")
    estimator: Strategy = Bounds(reward_width=1.0, cost_width=1.0)
    psi: Annotated[Penalty, Letter("psi")] = Exponential()
    penalty_cap: Annotated[Scalar, between(1, float("inf"), open_high=True), Letter("cap")] = 1e6
    epoch: Annotated[int, whole(1), Letter("S")] = static(default=20)
    restart: Annotated[bool, Letter("restart")] = static(default=False)

    traits = Traits(joint_arrival=True)  # outputs that share a factor must arrive together

    def init(self, arena: Arena) -> Se2State:
        return Se2State.start(arena, 1.0, self.name, flags=jnp.int32(0))

    def estimate(self, arena: Arena, state: Se2State, t: Array, key: Key) -> Estimate:
        return state.estimate(arena, self.estimator, t, key)

    def score(self, state: Se2State, estimate: Estimate) -> Score:
        return Score(estimate.reward)

    def update(self, arena: Arena, state: Se2State, observation: Seen, t: Array) -> Se2State:
        learnt = self.learn(arena, state, observation)
        state, average, last = learnt.after(arena, observation, t, length=self.epoch, restart=self.restart)
        kappa = jnp.where(last, jnp.minimum(state.multipliers * self._psi(average), self.penalty_cap), state.multipliers)
        largest = jnp.max(jnp.append(kappa, observation.map(self._psi).largest()[1:]), initial=0)
        flags = state.flags | jnp.where(largest >= self.penalty_cap, int(Status.PENALTY_CAPPED), 0)
        return replace(state, multipliers=kappa, flags=flags)

    def learn(self, arena: Arena, state: Se2State, observation: Seen) -> Se2State:
        """Condition on ``(r, psi(c_j) - 1)``, the values that the surrogate models here."""
        modelled = observation.map(lambda values: jnp.append(values[:1], self._psi(values[1:]) - 1))
        return replace(state, posterior=arena.learn(state.posterior, modelled))

    def _psi(self, costs: Array) -> Array:
        return jnp.minimum(self.psi.at(costs), self.penalty_cap)


@pytree
class Se3(Scored[EpochState]):
    r"""Additive penalties in epochs of ``S`` rounds, for constraints observed with noise.

    .. math::
        x_t = \arg\max_x \mathrm{UCB}_{G_l}(x), \quad G_l = f - \sum_j \kappa_l^j g_j, \qquad
        \kappa_{l+1}^j = \left(\kappa_l^j + \mu \tfrac{1}{S} \sum_{s} c_j^s\right)^+

    with ``kappa_1 = 0``. A theory width takes the noise of the combination, ``R sqrt(1 + sum_j kappa_j^2)``. Data of earlier epochs
    are used again unless ``restart``, as in :class:`~jaxbandit.Se2`. The outputs must share kernel and noise variance.

    Attributes:
      estimator: strategy for ``G_l``, by its reward width; default UCB of width 3.
      step: ``mu > 0``, of order ``1 / sqrt(L)`` for ``L`` epochs.
      epoch: ``S >= 1`` rounds.
      restart: forget the data of earlier epochs.
    """

    name: ClassVar[str] = "se3"
    title: ClassVar[str] = "GP-UCB with noisy constraints"
    paper: ClassVar[str] = (
        "Shi, Eryilmaz (2022), *A Bayesian Approach for Stochastic Continuum-armed Bandit with Long-term Constraints*, Algorithm 3"
    )
    shown = ("multipliers",)
    estimator: Strategy = Bounds()
    step: Annotated[Scalar, positive, Letter("mu")] = 0.5
    epoch: Annotated[int, whole(1), Letter("S")] = static(default=20)
    restart: Annotated[bool, Letter("restart")] = static(default=False)

    traits = Traits(joint_arrival=True)  # outputs that share a factor must arrive together

    def init(self, arena: Arena) -> EpochState:
        return EpochState.start(arena, 0.0, self.name)

    def estimate(self, arena: Arena, state: EpochState, t: Array, key: Key) -> Estimate:
        noise_factor = jnp.sqrt(1 + jnp.sum(jnp.square(state.multipliers)))
        scaled = replace(self.estimator, reward_width=widths.with_noise(self.estimator.reward_width, noise_factor))
        return state.estimate(arena, scaled, t, key)

    def score(self, state: EpochState, estimate: Estimate) -> Score:
        return Score(estimate.reward)

    def update(self, arena: Arena, state: EpochState, observation: Seen, t: Array) -> EpochState:
        learnt = self.learn(arena, state, observation)
        state, average, last = learnt.after(arena, observation, t, length=self.epoch, restart=self.restart)
        moved = jnp.maximum(state.multipliers + self.step * average, 0)
        return replace(state, multipliers=jnp.where(last, moved, state.multipliers))
