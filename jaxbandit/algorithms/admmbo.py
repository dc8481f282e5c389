"""ADMMBO (Ariafar, Coll-Font, Brooks and Dy 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, ClassVar, TypeAlias

import jax
import jax.numpy as jnp

from jaxbandit.algorithms.base import Algorithm, Arena, BeliefState, Decision, Seen, Traits
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array, Key, Scalar
from jaxbandit.core.fields import MOST_ROUNDS, Letter, nonnegative, positive, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.status import Status
from jaxbandit.numerics.improvement import log_expected_improvement, log_feasibility
from jaxbandit.numerics.ties import pick, restricted_to, unit_box
from jaxbandit.rules.consensus import Agreement, Consensus
from jaxbandit.surrogates import Posterior

Evaluations: TypeAlias = Annotated[int, whole(1, MOST_ROUNDS)]


@pytree
class AdmmboState(BeliefState):
    """State of ADMMBO, with stage 0 the x-step and ``j`` z-step ``j``."""

    posterior: Posterior
    visited: Array  # [1 + m, M]
    variables: Consensus
    stage: Array  # [] int32
    left: Array  # [] int32 evaluations of stage
    outer: Array  # [] int32 completed iterations
    flags: Array  # [] int32
    evaluations: Array  # [] int32


@pytree
class Admmbo(Algorithm[AdmmboState]):
    r"""ADMM whose subproblems are solved by Bayesian optimisation.

    The problem is ``min -f(x) + sum_j 1{g_j(z_j) > 0}`` subject to ``x = z_j``. Every round evaluates one function at one point:

    1. x-step: a few rounds of expected improvement on ``-f(x) + (m rho / 2) |x - mean_j(z_j - y_j / rho)|^2``.
    2. z-step for each ``j``: a few rounds on ``h_j(z) = 1{g_j(z) > 0} + (rho / (2 M)) |x - z + y_j / rho|^2``, then
       ``y_j += rho (x - z_j)``. The expected improvement is 0 if ``q < 0``, ``q theta`` if ``0 <= q < 1`` and ``q - (1 - theta)`` if
       ``q >= 1``, with ``theta = Phi(-mu_g / sigma_g)`` and ``q`` the best ``h_j`` so far less the quadratic term.
    3. Stop once the variables agree, see :class:`~jaxbandit.consensus.Consensus`, or after ``outer_iterations``.

    The best point and the best value of a step are by posterior mean at the points where the function was evaluated. The authors' code
    uses the observed values, which noise makes look better than they are. Distances are in the domain's bounding box scaled to
    ``[0, side]^d``. Before any evaluation ``z_j`` is the upper corner, as in the authors' code. If no point promises an improvement, the
    point of largest ``q`` is chosen.

    After the stop every round repeats the answer: the best posterior mean of the reward among the evaluated points whose constraints hold
    by posterior mean. The trial is flagged ``STOPPED``, and nothing is evaluated any more. A run records the number of
    ``evaluations`` before the stop, where a curve ends. ADMMBO needs feedback at once.

    Attributes:
      penalty: first ``rho > 0``.
      weight: ``M > 0``, the weight of infeasibility against distance.
      side: side > 0 of the box in which distances are measured. The authors' code measures them in the domain's units, so that ``x`` and
        ``z_j`` agree sooner on a larger domain: 6 for its first example, on ``[0, 6]^2``.
      agreement: the tolerances of the stopping rule.
      feasibility_tolerance: how far above 0 a constraint's mean may be in the answer, >= 0.
      reward_budget, cost_budget: evaluations of each x-step and z-step, in the first outer iteration and in later ones.
      outer_iterations: largest number of outer iterations.
    """

    name: ClassVar[str] = "admmbo"
    title: ClassVar[str] = "ADMMBO"
    papers: ClassVar[Mapping[str, str]] = {"ariafar2019": ""}
    shown = ("flags", "evaluations")
    penalty: Annotated[Scalar, positive, Letter("rho")] = 0.1
    weight: Annotated[Scalar, positive, Letter("M")] = 50.0
    side: Annotated[Scalar, positive, Letter("side")] = 1.0
    agreement: Agreement = Agreement()
    feasibility_tolerance: Annotated[Scalar, nonnegative, Letter("feasibility_tolerance")] = 0.01
    reward_budget: Annotated[tuple[Evaluations, Evaluations], Letter("budget_f")] = static(default=(10, 5))
    cost_budget: Annotated[tuple[Evaluations, Evaluations], Letter("budget_g")] = static(default=(50, 5))
    outer_iterations: Annotated[int, whole(1, MOST_ROUNDS), Letter("outer")] = static(default=15)

    traits = Traits(needs_feedback_at_once=True, decoupled=True)

    def init(self, arena: Arena) -> AdmmboState:
        domain, zero = arena.surrogate.domain, jnp.int32(0)
        corner, rho = jnp.full((domain.dimension,), self.side, arena.dtype), jnp.asarray(self.penalty, arena.dtype)
        nowhere = jnp.zeros((1 + arena.constraints, domain.size), bool)
        return AdmmboState(
            posterior=arena.surrogate.init(),
            visited=nowhere,
            variables=Consensus.start(corner, arena.constraints, rho),
            stage=zero,
            left=jnp.int32(self.reward_budget[0]),
            outer=zero,
            flags=zero,
            evaluations=zero,
        )

    def select(self, arena: Arena, state: AdmmboState, t: Array, key: Key) -> tuple[Decision, AdmmboState]:
        running = state.flags == 0
        belief = self.belief(arena, state)
        mean, sd, visited = belief.mean[state.stage], belief.sd[state.stage], state.visited[state.stage]
        value = self._value(arena, state)
        best = jnp.max(jnp.where(visited, value, -jnp.inf))
        optimality = jnp.where(jnp.any(visited), log_expected_improvement(value, sd, best), value)

        pull = self._pull(arena, state)
        q = jnp.where(jnp.any(visited), -best, 1 + jnp.max(pull)) - pull
        theta = jnp.exp(log_feasibility(mean[None], sd[None]))
        promise = jnp.where(q < 0, 0, jnp.where(q < 1, q * theta, q - (1 - theta)))
        feasibility = jnp.where(jnp.max(promise) <= 0, q, promise)

        score = jnp.where(state.stage == 0, optimality, feasibility)
        index = pick(jnp.where(running, score, self._answer(belief.mean, state.visited)))
        evaluated = (jnp.arange(1 + arena.constraints, dtype=jnp.int32) == state.stage) & running
        return Decision(index=index, widths=jnp.zeros_like(evaluated, mean.dtype), outputs=evaluated), state

    def update(self, arena: Arena, state: AdmmboState, observation: Seen, t: Array) -> AdmmboState:
        running = state.flags == 0
        state = replace(
            self.learn(arena, state, observation),
            left=state.left - 1,
            evaluations=state.evaluations + running.astype(jnp.int32),
        )
        after, before = (replace(each, posterior=None, visited=None) for each in (self._next_stage(arena, state), state))
        moved: AdmmboState = jax.tree.map(partial(jnp.where, running & (state.left == 0)), after, before)
        return replace(moved, posterior=state.posterior, visited=state.visited)

    def learn(self, arena: Arena, state: AdmmboState, observation: Seen) -> AdmmboState:
        return replace(super().learn(arena, state, observation), visited=state.visited.at[:, observation.index].max(observation.count > 0))

    def reset(self, arena: Arena, state: AdmmboState) -> AdmmboState:
        return replace(super().reset(arena, state), visited=state.visited)

    def _grid(self, arena: Arena) -> Array:
        return self.side * unit_box(arena.surrogate.domain.points)  # [M, d]

    def _pull(self, arena: Arena, state: AdmmboState) -> Array:
        """Return the quadratic term of the stage's subproblem, ``[M]``."""
        grid, variables = self._grid(arena), state.variables
        x_pull, z_pull = variables.x_pull(grid), variables.z_pull(grid, jnp.maximum(state.stage - 1, 0)) / self.weight
        return jnp.where(state.stage == 0, x_pull, z_pull)

    def _value(self, arena: Arena, state: AdmmboState) -> Array:
        """Return the posterior mean of the stage's objective: ``-h_j`` in z-steps."""
        mean = self.belief(arena, state).mean[state.stage]
        infeasible = jnp.where(jnp.isnan(mean), mean, (mean > 0).astype(mean.dtype))
        return jnp.where(state.stage == 0, mean, -infeasible) - self._pull(arena, state)

    def _next_stage(self, arena: Arena, state: AdmmboState) -> AdmmboState:
        """Return the state after a stage's last evaluation."""
        grid, m = self._grid(arena), arena.constraints
        index = pick(restricted_to(state.visited[state.stage], self._value(arena, state)))
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

    def _answer(self, mean: Array, visited: Array) -> Array:
        """Return scores of evaluated points: feasible means, else least violations."""
        anywhere, worst = jnp.any(visited, axis=0), jnp.max(mean[1:], axis=0)
        fine = anywhere & (worst <= self.feasibility_tolerance)
        return jnp.where(jnp.any(fine), restricted_to(fine, mean[0]), restricted_to(anywhere, -worst))

    def _check(self, name: str, outputs: int | None) -> None:
        if outputs == 1:
            raise InvalidArgument(f"{name}: needs at least one constraint; without any use Unconstrained")
