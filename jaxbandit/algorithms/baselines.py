"""Baselines: random search, the clairvoyant optimum, constrained expected improvement, constrained Thompson sampling (the selection rule of
SCBO without its trust region), bandit online convex optimisation, and ADMMBO."""

from __future__ import annotations

from functools import partial
from typing import Annotated, ClassVar, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.acquisition import (
    draw_uniformly,
    log_expected_improvement,
    log_feasibility,
    pick,
    restricted_to,
    squared_distance,
    unit_box,
)  # fmt: skip
from jaxbandit.algorithms.base import Algorithm, Arena, BeliefState, Decision, DualState, Seen, Traits, posterior_of
from jaxbandit.consensus import Agreement, Consensus
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array, Key, PerAxis, Scalar
from jaxbandit.core.fields import MOST_ROUNDS, Letter, between, each_axis, mask, nonnegative, point, positive, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.status import Status
from jaxbandit.estimators import Strategy, Thompson
from jaxbandit.surrogates import Posterior

Evaluations: TypeAlias = Annotated[int, whole(1, MOST_ROUNDS)]


@pytree
class Experience:
    """Posterior, and the data that expected improvement has to remember themselves."""

    belief: object
    visited: Array  # [M] whether a point was chosen
    best: Array  # [] best reward observed together with costs that all hold, minus infinity before there is one


@pytree
class CeiState(BeliefState):
    """State of constrained EI."""

    posterior: Experience


@pytree
class Cei(Algorithm[CeiState]):
    r"""Expected improvement over the best feasible point so far, times the probability that the constraints hold.

    .. math::
        x_t = \arg\max_x \prod_j \Phi\!\left(\tfrac{-\mu_{g_j}}{\sigma_{g_j}}\right) \, \sigma_f \, (z \Phi(z) + \phi(z)),
        \qquad z = \frac{\mu_f - f^+ - \xi}{\sigma_f}

    in logarithms, so that nothing underflows (Gardner et al. 2014; Gelbart, Snoek and Adams 2014). As long as no point counts as
    feasible the probability alone decides.

    Attributes:
      improvement: ``xi >= 0``, added to the incumbent before improvement counts; 0 in the papers.
      incumbent: meaning of ``f+``. ``"mean"``: the best posterior mean of the reward over the points chosen so far whose posterior means
        satisfy every constraint, which noise does not fool. ``"observed"``: the best noisy reward among the rounds whose noisy costs
        all held.
    """

    name: ClassVar[str] = "cei"
    title: ClassVar[str] = "constrained EI"
    paper: ClassVar[str] = "Gardner et al. (2014), *Bayesian Optimization with Inequality Constraints*"
    improvement: Annotated[Scalar, nonnegative, Letter("xi")] = 0.0
    incumbent: Annotated[Literal["mean", "observed"], Letter("incumbent")] = static(default="mean")

    @property
    def traits(self) -> Traits:
        return Traits(joint_arrival=self.incumbent == "observed")

    def init(self, arena: Arena) -> CeiState:
        nowhere, nothing = jnp.zeros((arena.size,), bool), jnp.asarray(-jnp.inf, arena.dtype)
        return CeiState(posterior=Experience(belief=arena.surrogate.init(), visited=nowhere, best=nothing))

    def select(self, arena: Arena, state: CeiState, t: Array, key: Key) -> tuple[Decision, CeiState]:
        known = state.posterior
        belief = arena.surrogate.predict(known.belief)
        best = known.best
        if self.incumbent == "mean":
            eligible = known.visited & jnp.all(belief.mean[1:] <= 0, axis=0)
            best = jnp.max(jnp.where(eligible, belief.mean[0], -jnp.inf))
        exists = best > -jnp.inf
        gain = log_expected_improvement(belief.mean[0], belief.sd[0], jnp.where(exists, best, 0) + self.improvement)
        index = pick(log_feasibility(belief.mean[1:], belief.sd[1:]) + jnp.where(exists, gain, 0))
        return Decision(index=index, widths=jnp.zeros_like(belief.gain)), state

    def learn(self, arena: Arena, state: CeiState, observation: Seen) -> CeiState:
        """Condition the posterior; remember the point, and the reward if all costs held."""

        def feasible_reward(values: Array) -> Array:
            return jnp.full_like(values, jnp.where(jnp.all(values[1:] <= 0), values[0], -jnp.inf))

        known = state.posterior
        after = Experience(
            belief=arena.learn(known.belief, observation),
            visited=known.visited.at[observation.index].set(True),
            best=jnp.maximum(known.best, observation.map(feasible_reward).largest()[0]),
        )
        return CeiState(posterior=after)

    def belief(self, state: CeiState) -> object:
        known: Experience = posterior_of(state)
        return known.belief


@pytree
class ConstrainedThompson(Algorithm[BeliefState]):
    r"""Draw the reward and every constraint; take the best feasible point of the draw, else the least violating one.

    .. math::
        x_t = \arg\max \{ f_t(x) : g_{t,j}(x) \le 0 \;\forall j \}, \quad\text{or}\quad
        \arg\min_x \sum_j g_{t,j}(x)^+ \;\text{ if there is no such point}

    Attributes:
      estimator: the strategy that draws; default joint draws from the posterior.
    """

    name: ClassVar[str] = "constrainedthompson"
    title: ClassVar[str] = "constrained Thompson sampling"
    paper: ClassVar[str] = "Eriksson, Poloczek (2021), *Scalable Constrained Bayesian Optimization*"
    estimator: Strategy = Thompson()

    def select(self, arena: Arena, state: BeliefState, t: Array, key: Key) -> tuple[Decision, BeliefState]:
        drawn = self.estimator.estimate(arena.surrogate, state.posterior, t, key)
        violation = jnp.sum(jnp.maximum(drawn.costs, 0), axis=0)
        feasible = violation <= 0
        score = jnp.where(jnp.any(feasible), restricted_to(feasible, drawn.reward), -violation)
        index = pick(jnp.where(jnp.isnan(violation), jnp.nan, score))
        return Decision(index=index, widths=drawn.widths, draws=drawn.draws), state


@pytree
class RandomSearch(Algorithm[BeliefState]):
    """Draw points uniformly from the grid, or from those allowed; nothing is learnt, and the information gain stays 0.

    Attributes:
      allowed: ``[M]`` booleans, the points that may be drawn; default all. ``informed=jaxbandit.informed.FeasiblePoints()`` allows the
        feasible points of each instance: what luck earns at no violation. (Where no point is feasible, all are allowed.)
    """

    name: ClassVar[str] = "randomsearch"
    title: ClassVar[str] = "random search"
    traits = Traits(learns=False)
    allowed: Annotated[Array, mask] | None = None

    def select(self, arena: Arena, state: BeliefState, t: Array, key: Key) -> tuple[Decision, BeliefState]:
        everywhere = jnp.ones((arena.size,), bool)
        allowed = everywhere if self.allowed is None else jnp.where(jnp.any(self.allowed), self.allowed, everywhere)
        widths = jnp.zeros((1 + arena.constraints,), arena.dtype)
        return Decision(index=draw_uniformly(key, allowed), widths=widths), state


@pytree
class Oracle(Algorithm[BeliefState]):
    """Choose one point in every round: the best feasible one, which ``informed=jaxbandit.informed.BestPoint()`` tells.

    Attributes:
      index: number of the point. It has to be told, for an algorithm cannot look at the truth.
    """

    name: ClassVar[str] = "oracle"
    title: ClassVar[str] = "clairvoyant"
    traits = Traits(learns=False)
    index: Annotated[Scalar, point] | None = None

    def init(self, arena: Arena) -> BeliefState:
        if self.index is None:
            raise InvalidArgument("Oracle.index: nobody told it the optimum; pass informed=jaxbandit.informed.BestPoint() to simulate")
        return super().init(arena)

    def select(self, arena: Arena, state: BeliefState, t: Array, key: Key) -> tuple[Decision, BeliefState]:
        widths = jnp.zeros((1 + arena.constraints,), arena.dtype)
        return Decision(index=jnp.asarray(self.index).astype(jnp.int32), widths=widths), state


@pytree
class OcoState(DualState):
    """State of bandit OCO, in coordinates of the unit box; its posterior stays the prior, and its multipliers are ``lambda >= 0``."""

    centre: Array  # [d] x
    direction: Array  # [d] u, of unit length
    first: Array  # [1 + m] values at x + delta u


@pytree
class Oco(Algorithm[OcoState]):
    r"""A primal-dual gradient step along gradients that two evaluations estimate; every evaluation is a round.

    In an odd round ``u`` is drawn from the unit sphere and ``x + delta u`` evaluated, in the next one ``x - delta u``. Then

    .. math::
        \hat\nabla F = \tfrac{d}{2 \delta} (F(x + \delta u) - F(x - \delta u)) \, u, \quad
        x \leftarrow \mathrm{Proj}(x + \eta (\hat\nabla f - \sum_j \lambda_j \hat\nabla g_j)), \quad
        \lambda_j \leftarrow (\lambda_j + \eta (\bar g_j - \kappa \lambda_j))^+

    with ``eta = step / sqrt(T)``, ``kappa = regulariser eta`` and ``bar g_j`` the mean of the two observed costs. ``x`` moves in the
    domain's bounding box, scaled to ``[0, 1]^d`` and shrunk about its middle by ``1 - shrink``, so that both points lie inside.

    The engine evaluates points of a grid, so it is the *nearest grid point* that is evaluated, and ``delta`` is at least one grid step:
    with less, both evaluations would often be of one point. It keeps no model, and needs feedback at once.

    Attributes:
      step: ``eta sqrt(T) > 0``; to be tuned, by a :func:`~jaxbandit.sweep`.
      regulariser: ``kappa / eta >= 0``.
      perturbation: ``delta`` in ``(0, 1/2)``, raised to one grid step where it is less; default one grid step.
      shrink: ``zeta`` in ``[0, 1)``; default ``2 delta``.
      start: ``[d]`` first ``x`` in the unit box; default uniform in the shrunk box.
    """

    name: ClassVar[str] = "oco"
    title: ClassVar[str] = "bandit OCO"
    paper: ClassVar[str] = "Cao, Liu (2018), *Online Convex Optimization with Time-Varying Constraints and Bandit Feedback*"
    shown = ("multipliers",)
    step: Annotated[Scalar, positive] = 1.0
    regulariser: Annotated[Scalar, nonnegative] = 1.0
    perturbation: Annotated[Scalar, between(0, 0.5, open_high=True), Letter("delta")] | None = None
    shrink: Annotated[Scalar, between(0, 1, open_low=False, open_high=True), Letter("zeta")] | None = None
    start: Annotated[PerAxis, between(0, 1, open_low=False), each_axis, Letter("start")] | None = None

    traits = Traits(learns=False, needs_feedback_at_once=True)  # the second point of a pair is for the same direction as the first

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
        """Return the ``delta`` in force."""
        domain = arena.surrogate.domain
        counts = [n for n in domain.grid_shape if n > 1] or [max(2.0, domain.size ** (1 / domain.dimension))]
        least = jnp.asarray(1 / (min(counts) - 1), jnp.asarray(domain.points).dtype)
        return least if self.perturbation is None else jnp.maximum(self.perturbation, least)

    def _inside(self, arena: Arena, point: Array) -> Array:
        """Return the projection of ``point [d]`` onto the shrunk box."""
        margin = jnp.minimum(self._delta(arena) if self.shrink is None else 0.5 * self.shrink, 0.5)
        return jnp.clip(point, margin, 1 - margin)

    def symbols_in_force(self, horizon: int) -> dict[str, object]:
        """Return the hyper-parameters; in a trace ``draw_f`` holds each round's direction, ``draw_g`` its centre ``x``."""
        eta = np.asarray(self.step) / np.sqrt(horizon)
        return {**super().symbols_in_force(horizon), "eta": eta.tolist(), "kappa": (np.asarray(self.regulariser) * eta).tolist()}


@pytree
class SeparateBeliefs:
    """Beliefs about functions that are evaluated one at a time, each at points of its own."""

    belief: Posterior
    visited: Array  # [1 + m, M] where each function was evaluated


@pytree
class AdmmboState(BeliefState):
    """State of ADMMBO."""

    posterior: SeparateBeliefs
    variables: Consensus  # x, z_j, y_j and rho, in the scaled box
    stage: Array  # [] int32, which function is evaluated: 0 in the x-step, j in the z-step of constraint j
    left: Array  # [] int32, evaluations left in the stage
    outer: Array  # [] int32, outer iterations completed
    flags: Array  # [] int32, STOPPED once it has
    evaluations: Array  # [] int32, rounds that evaluated something


@pytree
class Admmbo(Algorithm[AdmmboState]):
    r"""ADMM on ``min -f(x) + sum_j 1{g_j(z_j) > 0}`` subject to ``x = z_j``, each subproblem by Bayesian optimisation.

    Every round evaluates one function at one point, and learns nothing of the others there:

    1. x-step: a few rounds of expected improvement on ``-f(x) + (m rho / 2) |x - mean_j(z_j - y_j / rho)|^2``;
    2. z-steps, for each ``j``: a few rounds on ``h_j(z) = 1{g_j(z) > 0} + (rho / (2 M)) |x - z + y_j / rho|^2``, whose expected
       improvement has the closed form 0, ``q theta`` or ``q - (1 - theta)`` as ``q < 0``, ``q < 1`` or not, with ``q`` the best ``h_j``
       so far less the quadratic term and ``theta = Phi(-mu_g / sigma_g)``; after each, ``y_j += rho (x - z_j)``;
    3. it stops once the variables agree, see :class:`~jaxbandit.consensus.Consensus`, or after ``outer_iterations``.

    The best point of a step, and the best value that improvement is counted from, are by posterior mean at the points where the
    function was evaluated; the authors' code takes the observed values, which noise makes look better than they are. Distances are in
    the domain's bounding box scaled to ``[0, side]^d``. Before any evaluation ``z_j`` is the upper corner, as in the authors' code.
    Where no point promises an improvement the one of largest ``q`` is taken.

    After the stop it learns nothing more and repeats its answer, the best posterior mean of the reward among the points evaluated
    whose constraints hold by posterior mean, and the trial is flagged ``STOPPED``. ``widths`` are 1 for the function that a
    round evaluates and 0 for the others, all 0 after the stop. A run records the number of ``evaluations`` before the stop, where a curve
    ends. It needs feedback at once.

    Attributes:
      penalty: first ``rho > 0``.
      weight: ``M > 0``, of infeasibility against distance.
      side: of the box in which distances are taken, > 0. The authors' code takes them in the domain's own units, so that ``x`` and
        ``z_j`` agree sooner where those are larger: 6 for its first example, on ``[0, 6]^2``.
      agreement: the tolerances of the stopping rule.
      feasibility_tolerance: how far above 0 a constraint's mean may be in the answer, >= 0.
      reward_budget, cost_budget: evaluations of each x-step and z-step, in the first outer iteration and in later ones.
      outer_iterations: most of them.
    """

    name: ClassVar[str] = "admmbo"
    title: ClassVar[str] = "ADMMBO"
    paper: ClassVar[str] = "Ariafar, Coll-Font, Brooks, Dy (2019), *ADMMBO: Bayesian Optimization with Unknown Constraints using ADMM*"
    shown = ("flags", "evaluations")
    penalty: Annotated[Scalar, positive, Letter("rho")] = 0.1
    weight: Annotated[Scalar, positive, Letter("M")] = 50.0
    side: Annotated[Scalar, positive, Letter("side")] = 1.0
    agreement: Agreement = Agreement()
    feasibility_tolerance: Annotated[Scalar, nonnegative, Letter("feasibility_tolerance")] = 0.01
    reward_budget: Annotated[tuple[Evaluations, Evaluations], Letter("budget_f")] = static(default=(10, 5))
    cost_budget: Annotated[tuple[Evaluations, Evaluations], Letter("budget_g")] = static(default=(50, 5))
    outer_iterations: Annotated[int, whole(1, MOST_ROUNDS), Letter("outer")] = static(default=15)

    traits = Traits(needs_feedback_at_once=True)  # every round evaluates what the one before has led to

    def init(self, arena: Arena) -> AdmmboState:
        domain, zero = arena.surrogate.domain, jnp.int32(0)
        corner, rho = jnp.full((domain.dimension,), self.side, arena.dtype), jnp.asarray(self.penalty, arena.dtype)
        nowhere = jnp.zeros((1 + arena.constraints, domain.size), bool)
        return AdmmboState(
            posterior=SeparateBeliefs(belief=arena.surrogate.model.separate().init(), visited=nowhere),
            variables=Consensus.start(corner, arena.constraints, rho),
            stage=zero,
            left=jnp.int32(self.reward_budget[0]),
            outer=zero,
            flags=zero,
            evaluations=zero,
        )

    def select(self, arena: Arena, state: AdmmboState, t: Array, key: Key) -> tuple[Decision, AdmmboState]:
        known, running = state.posterior, state.flags == 0
        belief = arena.surrogate.model.separate().predict(known.belief)
        mean, sd, visited = belief.mean[state.stage], belief.sd[state.stage], known.visited[state.stage]
        value = self._value(arena, state)  # of the x-step, and minus h_j of the z-steps
        best = jnp.max(jnp.where(visited, value, -jnp.inf))
        optimality = jnp.where(jnp.any(visited), log_expected_improvement(value, sd, best), value)

        pull = self._pull(arena, state)
        q = jnp.where(jnp.any(visited), -best, 1 + jnp.max(pull)) - pull
        theta = jnp.exp(log_feasibility(mean[None], sd[None]))
        promise = jnp.where(q < 0, 0, jnp.where(q < 1, q * theta, q - (1 - theta)))
        feasibility = jnp.where(jnp.max(promise) <= 0, q, promise)

        score = jnp.where(state.stage == 0, optimality, feasibility)
        anywhere, worst = jnp.any(known.visited, axis=0), jnp.max(belief.mean[1:], axis=0)
        fine = anywhere & (worst <= self.feasibility_tolerance)
        answer = jnp.where(jnp.any(fine), restricted_to(fine, belief.mean[0]), restricted_to(anywhere, -worst))
        index = pick(jnp.where(running, score, answer))
        evaluated = (jnp.arange(1 + arena.constraints, dtype=jnp.int32) == state.stage) & running
        return Decision(index=index, widths=evaluated.astype(mean.dtype)), state

    def update(self, arena: Arena, state: AdmmboState, observation: Seen, t: Array) -> AdmmboState:
        running = state.flags == 0
        present = (jnp.arange(1 + arena.constraints, dtype=jnp.int32) == state.stage) & running
        state = replace(
            state,
            posterior=self._condition(arena, state.posterior, observation, present),
            left=state.left - 1,
            evaluations=state.evaluations + running.astype(jnp.int32),
        )
        after, before = (replace(each, posterior=None) for each in (self._next_stage(arena, state), state))
        moved: AdmmboState = jax.tree.map(partial(jnp.where, running & (state.left == 0)), after, before)
        return replace(moved, posterior=state.posterior)

    def learn(self, arena: Arena, state: AdmmboState, observation: Seen) -> AdmmboState:
        """Take in all functions at a point, as an initial design brings them."""
        everything = jnp.ones((1 + arena.constraints,), bool)
        return replace(state, posterior=self._condition(arena, state.posterior, observation, everything))

    def belief(self, state: AdmmboState) -> Posterior:
        known: SeparateBeliefs = posterior_of(state)
        return known.belief

    def _condition(self, arena: Arena, posterior: SeparateBeliefs, observation: Seen, present: Array) -> SeparateBeliefs:
        belief = arena.surrogate.model.separate().condition(posterior.belief, observation.index, observation.values, present)
        return SeparateBeliefs(belief=belief, visited=posterior.visited.at[:, observation.index].max(present))

    def _grid(self, arena: Arena) -> Array:
        return self.side * unit_box(arena.surrogate.domain.points)  # [M, d], in the scaled box

    def _pull(self, arena: Arena, state: AdmmboState) -> Array:
        """Return the quadratic term of the stage's subproblem, ``[M]``."""
        grid, variables = self._grid(arena), state.variables
        x_pull, z_pull = variables.x_pull(grid), variables.z_pull(grid, jnp.maximum(state.stage - 1, 0)) / self.weight
        return jnp.where(state.stage == 0, x_pull, z_pull)

    def _value(self, arena: Arena, state: AdmmboState) -> Array:
        """Return the objective that the stage's subproblem maximises, by posterior mean, ``[M]``."""
        mean = arena.surrogate.model.separate().predict(state.posterior.belief).mean[state.stage]
        infeasible = jnp.where(jnp.isnan(mean), mean, (mean > 0).astype(mean.dtype))
        return jnp.where(state.stage == 0, mean, -infeasible) - self._pull(arena, state)

    def _next_stage(self, arena: Arena, state: AdmmboState) -> AdmmboState:
        """Return the state after a stage's last evaluation."""
        grid, m = self._grid(arena), arena.constraints
        index = pick(restricted_to(state.posterior.visited[state.stage], self._value(arena, state)))
        best = grid[jnp.minimum(index, grid.shape[0] - 1)]
        x_step, z_step = replace(state.variables, x=best), state.variables.with_z(best, state.stage - 1)
        variables = jax.tree.map(partial(jnp.where, state.stage == 0), x_step, z_step)
        closed, agreed = variables.close(self.agreement)
        last = state.stage == m
        outer, stage = state.outer + last.astype(jnp.int32), (state.stage + 1) % (1 + m)
        later = jnp.minimum(outer, 1)
        budgets = jnp.asarray([self.reward_budget, self.cost_budget], jnp.int32)
        return replace(
            state,
            variables=jax.tree.map(partial(jnp.where, last), closed, variables),
            stage=stage,
            left=budgets[jnp.minimum(stage, 1), later],
            outer=outer,
            flags=jnp.where(last & (agreed | (outer >= self.outer_iterations)), int(Status.STOPPED), 0),
        )

    def _check(self, name: str, outputs: int | None) -> None:
        if outputs == 1:
            raise InvalidArgument(f"{name}: needs at least one constraint; without any use Unconstrained")
