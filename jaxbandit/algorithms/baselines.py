"""Baselines: random search, the optimum, constrained EI and Thompson sampling."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, BeliefState, Decision, Scored, Seen, Traits
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array, Key, PerConstraint, Scalar
from jaxbandit.core.fields import Letter, mask, nonnegative, point
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.domains import Box
from jaxbandit.domains.boxes import PartOfBox
from jaxbandit.numerics.improvement import log_expected_improvement, log_feasibility, log_share_of_signal
from jaxbandit.numerics.ties import draw_uniformly
from jaxbandit.rules.estimators import Estimate, Strategy, Thompson
from jaxbandit.rules.scores import Score


@pytree
class CeiState(BeliefState):
    """State of constrained EI."""

    visited: Array  # [M]
    best: Array  # [] feasible reward, or -inf


@pytree
class Cei(Scored[CeiState]):
    r"""Expected improvement times the probability that the constraints hold.

    .. math::
        x_t = \arg\max_x \prod_j \Phi\!\left(\tfrac{-\mu_{g_j}}{\sigma_{g_j}}\right) \, \sigma_f \, (z \Phi(z) + \phi(z)),
        \qquad z = \frac{\mu_f - f^+ - \xi}{\sigma_f}

    in logarithms, so that nothing underflows (Gardner et al. 2014; Gelbart, Snoek and Adams 2014). As long as no chosen point is feasible
    the probability alone decides.

    Attributes:
      improvement: ``xi >= 0``, the least improvement that counts; 0 in the papers.
      incumbent: meaning of ``f+``. ``"mean"``: the best posterior mean of the reward over the points chosen so far whose posterior means
        satisfy every constraint. ``"observed"``: the best noisy reward of a round whose noisy costs were all feasible. Noise misleads the
        second, not the first.
      augmented: whether to multiply the improvement by ``1 - tau / sqrt(sigma_f^2 + tau^2)``, with the noise variance ``tau^2`` of the
        reward (Huang et al. 2006), so that the search leaves a point that was measured often although it looks best. Without noise it
        changes nothing.
      caution: exponents >= 0 of the probabilities that the constraints hold, one number or ``[m]``; default 1. Larger exponents keep the
        search away from points where a constraint may not hold.
    """

    name: ClassVar[str] = "cei"
    title: ClassVar[str] = "constrained EI"
    papers: ClassVar[Mapping[str, str]] = {"gardner2014": "", "gelbart2014": "", "huang2006": "the augmented form"}
    improvement: Annotated[Scalar, nonnegative, Letter("xi")] = 0.0
    incumbent: Annotated[Literal["mean", "observed"], Letter("incumbent")] = static(default="mean")
    augmented: Annotated[bool, Letter("augmented")] = static(default=False)
    caution: Annotated[PerConstraint, nonnegative] | None = None

    @property
    def traits(self) -> Traits:
        return Traits(joint_arrival=self.incumbent == "observed")

    def init(self, arena: Arena) -> CeiState:
        nowhere, nothing = jnp.zeros((arena.size,), bool), jnp.asarray(-jnp.inf, arena.dtype)
        return CeiState(posterior=arena.surrogate.init(), visited=nowhere, best=nothing)

    def estimate(self, arena: Arena, state: CeiState, t: Array, key: Key) -> Estimate:
        belief = arena.belief(state)
        noise = belief.noise if self.augmented else None
        return Estimate(reward=belief.mean[0], costs=belief.mean[1:], widths=jnp.zeros_like(belief.gain), sd=belief.sd, noise=noise)

    @property
    def on_contexts(self) -> bool:
        # The best observed reward is not that of one context.
        return self.incumbent == "mean"

    def shared(self, arena: Arena, state: CeiState, estimate: Estimate) -> CeiState:
        """Return the state with the round's incumbent ``f+``."""
        if self.incumbent == "observed":
            return state
        eligible = arena.here(state.visited) & jnp.all(estimate.costs <= 0, axis=0)
        best = jnp.max(jnp.where(eligible, estimate.reward, -jnp.inf))
        return replace(state, best=best)

    def score(self, state: CeiState, estimate: Estimate) -> Score:
        assert estimate.sd is not None
        best, sd = state.best, estimate.sd
        exists = best > -jnp.inf
        gain = log_expected_improvement(estimate.reward, sd[0], jnp.where(exists, best, 0) + self.improvement)
        if estimate.noise is not None:
            gain = gain + log_share_of_signal(sd[0], estimate.noise)
        if self.caution is None:
            feasible = log_feasibility(estimate.costs, sd[1:])
        else:
            each = jax.vmap(log_feasibility)(estimate.costs[:, None], sd[1:, None])
            feasible = jnp.sum(jnp.reshape(jnp.asarray(self.caution), (-1, 1)) * each, axis=0)
        return Score(feasible + jnp.where(exists, gain, 0))

    def with_runs(self, constraints: int) -> Cei:
        given = np.broadcast_to(1.0 if self.caution is None else np.asarray(self.caution), constraints)
        # The exponent 30 is for the probability that a run gives values, of which a fit of few failures is too sure.
        return replace(self, caution=np.append(given, 30.0))

    def learn(self, arena: Arena, state: CeiState, observation: Seen) -> CeiState:
        """Condition the posterior and update the visited points and the best reward."""

        def feasible_reward(values: Array) -> Array:
            # A delayed value is NaN.
            is_feasible = jnp.all(values[1:] <= 0) & ~jnp.isnan(values[0])
            return jnp.full_like(values, jnp.where(is_feasible, values[0], -jnp.inf))

        return CeiState(
            posterior=arena.learn(state.posterior, observation),
            visited=state.visited.at[observation.index].set(True),
            best=jnp.maximum(state.best, observation.map(feasible_reward).largest()[0]),
        )

    def reset(self, arena: Arena, state: CeiState) -> CeiState:
        return replace(super().reset(arena, state), visited=state.visited, best=state.best)


@pytree
class ConstrainedThompson(Scored[BeliefState]):
    r"""Choose the best feasible point of a draw of reward and constraints.

    .. math::
        x_t = \arg\max \{ f_t(x) : g_{t,j}(x) \le 0 \;\forall j \}, \quad\text{or} \\
        \arg\min_x \sum_j g_{t,j}(x)^+ \;\text{ if there is no such point}

    Attributes:
      estimator: the strategy that draws; default joint draws from the posterior.
    """

    name: ClassVar[str] = "constrainedthompson"
    title: ClassVar[str] = "constrained Thompson sampling"
    papers: ClassVar[Mapping[str, str]] = {"eriksson2021": "without trust region"}
    estimator: Strategy = Thompson()

    def score(self, state: BeliefState, estimate: Estimate) -> Score:
        return Score.of_draw(estimate)


@pytree
class RandomSearch(Algorithm[BeliefState]):
    """Draw points uniformly from the grid, the allowed points, or a box.

    Attributes:
      allowed: ``[M]`` booleans, the points that may be drawn; default all. ``informed=jaxbandit.informed.FeasiblePoints()`` allows the
        feasible points of each instance, so that chance chooses without violation. (If no point is feasible, all points are allowed.)
    """

    name: ClassVar[str] = "randomsearch"
    title: ClassVar[str] = "random search"
    traits = Traits(learns=False)
    allowed: Annotated[Array, mask] | None = None

    on_boxes = on_contexts = True

    def select(self, arena: Arena, state: BeliefState, t: Array, key: Key) -> tuple[Decision, BeliefState]:
        widths, domain = jnp.zeros((1 + arena.constraints,), arena.dtype), arena.surrogate.domain
        if isinstance(domain, Box):
            if self.allowed is not None:
                raise InvalidArgument("RandomSearch.allowed: is a mask of points, which a box has none of; leave it out")
            if isinstance(domain, PartOfBox):
                drawn = domain.design(key, 1, arena.dtype)[0]
            else:
                drawn = domain.snapped(jax.random.uniform(key, (domain.dimension,), arena.dtype))
            index, placed = self.place(arena, state, drawn)
            return Decision(index=index, widths=widths, point=drawn), placed
        everywhere = jnp.ones((arena.size,), bool)
        given = everywhere if self.allowed is None else arena.here(self.allowed)
        allowed = everywhere if self.allowed is None else jnp.where(jnp.any(given), given, everywhere)
        return Decision(index=draw_uniformly(key, allowed), widths=widths), state


@pytree
class Oracle(Algorithm[BeliefState]):
    """Choose the same point in every round: the best feasible point.

    Attributes:
      index: number of the point. ``informed=jaxbandit.informed.BestPoint()`` sets it, because an algorithm cannot look at the truth.
    """

    name: ClassVar[str] = "oracle"
    title: ClassVar[str] = "clairvoyant"
    traits = Traits(learns=False)
    index: Annotated[Scalar, point] | None = None

    def init(self, arena: Arena) -> BeliefState:
        if self.index is None:
            raise InvalidArgument(
                "Oracle.index: nobody told it the optimum, which only a simulation knows; there the rule BestPoint tells it"
            )
        return super().init(arena)

    def select(self, arena: Arena, state: BeliefState, t: Array, key: Key) -> tuple[Decision, BeliefState]:
        widths = jnp.zeros((1 + arena.constraints,), arena.dtype)
        return Decision(index=jnp.asarray(self.index).astype(jnp.int32), widths=widths), state
