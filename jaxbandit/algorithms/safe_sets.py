"""Safe algorithms: SafeOpt, StageOpt and SGP-UCB."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp

from jaxbandit.algorithms.base import Algorithm, Arena, BeliefState, Decision, Observation, Seen, Traits
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array, Indices, Key, PerConstraint, Scalar
from jaxbandit.core.doors import either
from jaxbandit.core.fields import Letter, how_many_points, mask, nonnegative, points, positive, vector
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.status import Status
from jaxbandit.domains import Contextual
from jaxbandit.numerics.ties import draw_uniformly, nearly_best, pick, restricted_to, tie_share
from jaxbandit.rules.estimators import Bounds
from jaxbandit.rules.safety import Confidence, Expansion, Intervals, SafeSet, intervals, maximisers
from jaxbandit.surrogates import Belief


@pytree
class SafeState(BeliefState):
    """State with seeds, past certifications and the rule's memory."""

    seeds: Array  # [M]
    certified: Array  # [] any point so far, or [Z]
    still: Array  # [] int32, rounds at seeds
    memory: Any


@pytree
class Safe(Algorithm[SafeState]):
    """Abstract base of algorithms that choose seeds and certified points.

    The rule ``safety`` certifies points. By default a point is certified if ``UCB_gj(x) <= 0`` for every ``j`` by the values that have
    arrived, whatever a policy believes about missing values. When no point is certified any more, the safe set is the seeds and the trial
    is flagged. A seed that the rule calls unsafe, by default with ``LCB_gj > 0`` for some ``j``, flags the trial and leaves the safe set,
    unless the set would be empty. A trial is also flagged when the set stands still: no point beyond the seeds is certified, and either
    30 rounds passed like this or, for at most 8 seeds, no seed could certify a point if its lower bounds were observed there another 100
    times. A seed outside the domain fails the trial.

    Attributes:
      allowed: ``[M]`` booleans, the points that may be certified; default all. It does not exclude seeds.
      safety: rule of :mod:`jaxbandit.safety` that certifies points; default by confidence bounds.
    """

    estimator: Bounds = Bounds()
    seeds: Annotated[Indices, points, vector("the number of a point each"), Letter("seeds")] | None = None
    count: Annotated[int, how_many_points(), Letter("count")] | None = static(default=None)
    allowed: Annotated[Array, mask] | None = None
    safety: SafeSet | None = None

    @property
    def rule(self) -> SafeSet:
        """The rule that certifies points."""
        return Confidence() if self.safety is None else self.safety

    @property
    def traits(self) -> Traits:
        name, lacks = type(self).__name__, ""
        if self.seeds is None and self.count is None:
            lacks = f"{name}.seeds: needs points that are known to be safe, or nothing that it chooses is; " + either(
                f"give their numbers, {name}(seeds=[12, 40]) with problem.domain.nearest(point) for the number of a point, in a session"
                " seeds=[{...}] in your units or a history in which some constraints held, or in a simulation let"
                " informed=jaxbandit.informed.SafestSeeds(count=1) tell them",
                "give their numbers, in an experiment seeds = [{...}] in your units or a --history in which some held, or in"
                ' a study informed = {type = "SafestSeeds"}',
            )
            lacks += "; count=n takes the n points that the model believes safest, which guarantees nothing"
        return Traits(certifies=True, seeds=self.seeds, lacks=lacks, joint_arrival=self.rule.joint_arrival)

    @property
    def on_contexts(self) -> bool:
        # The model's safest points before round 1 are of one context.
        return self.count is None and self.rule.on_contexts

    def init(self, arena: Arena) -> SafeState:
        # A rule that sets facts while a trial is traced may have set no seeds.
        if lacks := self.traits.lacks:
            raise InvalidArgument(lacks)
        domain = arena.surrogate.domain
        certified = jnp.zeros((domain.contexts,), bool) if isinstance(domain, Contextual) else jnp.asarray(False)
        mask = jnp.zeros((arena.size,), bool) if self.seeds is None else _mask(jnp.asarray(self.seeds), arena.size)
        memory = self.rule.start(arena.domain, arena.constraints, arena.horizon, arena.dtype)
        return SafeState(posterior=arena.surrogate.init(), seeds=mask, certified=certified, still=jnp.int32(0), memory=memory)

    def learn(self, arena: Arena, state: SafeState, observation: Seen) -> SafeState:
        state = super().learn(arena, state, observation)
        return replace(state, memory=self.rule.learn(state.memory, arena.domain, *_costs(observation)))

    def update(self, arena: Arena, state: SafeState, observation: Seen, t: Array) -> SafeState:
        state = super().update(arena, state, observation, t)
        return replace(state, memory=self.rule.count(state.memory, *_costs(observation)[1:]))

    @abc.abstractmethod
    def choose(self, arena: Arena, state: SafeState, belief: Belief, known: Intervals, safe: Array, t: Array, key: Key) -> Array:
        """Return the index of a point of the safe set ``safe [M]``."""

    def select(self, arena: Arena, state: SafeState, t: Array, key: Key) -> tuple[Decision, SafeState]:
        belief = arena.belief(state)
        # The model of the belief has the hyper-parameters that are fitted.
        verdict = self.rule.judge(state.memory, intervals(belief.model, belief, self.estimator, t, key), arena.domain)
        seeds, certified, known = arena.here(state.seeds), verdict.certified, verdict.known
        if self.allowed is not None:
            certified = certified & arena.here(jnp.asarray(self.allowed))
        some, raised = jnp.any(certified), dict[Status, Array]()
        before = state.certified if arena.context is None else state.certified[arena.context]
        raised[Status.SAFE_SET_EMPTIED] = before & ~some & ~jnp.asarray(verdict.resting)
        if self.seeds is None and self.count is not None:
            # Use the policy's own intervals, because before round 1 many points differ by rounding alone.
            believed = jax.lax.top_k(-jnp.max(known.upper[1:], axis=0, initial=-jnp.inf), self.count)[1]
            seeds = jnp.where(t == 1, _mask(believed, arena.size), seeds)
            raised[Status.SEEDS_UNCERTAIN] = (t == 1) & ~jnp.all(certified[believed])
        unsafe = seeds & verdict.violated
        trusted = seeds & ~unsafe
        raised[Status.SEED_UNSAFE] = jnp.any(unsafe)
        # Only a context can be without seeds.
        lost = jnp.any(unsafe) if arena.context is None else jnp.any(unsafe) | ~jnp.any(seeds)
        raised[Status.NO_SAFE_POINT] = lost & ~some & ~jnp.any(trusted)
        is_at_seeds = jnp.any(trusted) & ~jnp.any(certified & ~seeds) & ~jnp.all(trusted) & ~jnp.asarray(verdict.resting)
        still, could_leave = jnp.where(is_at_seeds, state.still + 1, 0), jnp.asarray(True)
        own = self.count or 0 if self.seeds is None else len(jnp.asarray(self.seeds))
        # With more than 8 seeds it would take too long to compute in every round whether they could certify a point. Values in other
        # contexts could certify points, too.
        if arena.context is None and 0 < own <= 8:
            places = jax.lax.top_k(trusted.astype(known.sd.dtype), min(own, arena.size))[1]
            # After 100 measurements of a seed, more measurements would change little.
            expansion = self.rule.expansion(Expansion(often=100))
            expands = expansion.expands(belief.model, belief, known, certified | trusted, places)
            could_leave = jnp.any(expands & trusted[places])
        # A trial is flagged after 30 rounds without a certified point beyond the seeds.
        raised[Status.SAFE_SET_STILL] = is_at_seeds & (~could_leave | (still > 30))
        trusted = jnp.where(raised[Status.NO_SAFE_POINT], seeds, trusted)
        safe = certified | trusted
        if arena.context is not None:
            safe = jnp.where(jnp.any(safe), safe, nearly_best(-known.worst))
        flags = sum((jnp.where(is_raised, int(flag), 0) for flag, is_raised in raised.items()), jnp.int32(0))
        index = self.choose(arena, replace(state, seeds=trusted), belief, known, safe, t, key)
        if arena.context is None:
            after = replace(state, seeds=seeds, certified=state.certified | some, still=still)
        else:
            after = replace(state, certified=state.certified.at[arena.context].max(some), still=still)
        return Decision(index=index, widths=known.widths, flags=flags), after


def _costs(observation: Seen) -> tuple[Array, Array, Array]:
    """Return points ``[n]``, costs ``[n, m]`` and the mask of observed costs."""
    if isinstance(observation, Observation):
        costs = observation.values[None, 1:]
        return jnp.asarray(observation.index)[None], costs, jnp.ones(costs.shape, bool)
    return observation.indices, observation.values[:, 1:], observation.present[:, 1:]


def _mask(seeds: Array, size: int) -> Array:
    """Return the mask of seeds, empty if one lies outside the domain."""
    inside = jnp.all((seeds >= 0) & (seeds < size))
    return jnp.zeros((size,), bool).at[seeds].set(True, mode="drop") & inside


@pytree
class SafeOpt(Safe):
    r"""SafeOpt: the most uncertain maximiser or expander of a safe set.

    .. math::
        S_t = \{x : \mathrm{UCB}_{g_j}(x) \le 0 \;\forall j\} \cup S_0, \quad
        M_t = \{x \in S_t : \mathrm{UCB}_f(x) \ge \max_{S_t} \mathrm{LCB}_f\}, \\
        x_t = \arg\max_{M_t \cup G_t} \max_k 2 \beta_k \sigma_k(x) / \sigma_{k,0}

    where the expanders ``G_t`` are the points of ``S_t`` whose observation could certify a point outside, see
    :class:`~jaxbandit.safety.Expansion`. When no point is certified any more, the safe set is the seeds and the trial is flagged. A trial
    is also flagged if its seeds prove unsafe or the safe set cannot grow beyond them. A seed outside the domain fails the trial. (For
    several constraints without a Lipschitz constant see Berkenkamp, Krause and Schoellig 2021, "Bayesian Optimization with Safety
    Constraints".)

    Attributes:
      estimator: confidence bounds of width 3 by default.
      seeds: ``S_0``, the indices of points known to be safe. The algorithm needs them to start. In a simulation
        ``informed=jaxbandit.informed.SafestSeeds(count=n)`` sets the truly safest points of each instance.
      lipschitz: ``L > 0``, one number or ``[m]``, for the expanders of the 2015 paper. Default: no constant.
      threshold: least uncertainty of an expander, ``sd > threshold`` for some output; 0 excludes no point.
      count: number of seeds to choose by the model, instead of ``seeds``: the points of least ``max_j UCB_gj`` before round 1, after the
        initial design. There is no guarantee that they are safe. A trial is flagged if one of them was not certified.
      together: whether one point outside must satisfy all constraints, see :class:`~jaxbandit.safety.Expansion`.
      allowed: ``[M]`` booleans, the points that may be certified; default all. A session's ``max_step`` sets it.
      safety: rule of :mod:`jaxbandit.safety` that certifies points, such as ``safety.Lipschitz(constant, noise_bound)``; default by
        confidence bounds.
    """

    name: ClassVar[str] = "safeopt"
    title: ClassVar[str] = "SafeOpt"
    papers: ClassVar[Mapping[str, str]] = {"sui2015": "", "berkenkamp2021": "without a Lipschitz constant"}
    lipschitz: Annotated[PerConstraint, positive, Letter("L")] | None = None
    threshold: Annotated[Scalar, nonnegative, Letter("threshold")] = 0.0
    together: Annotated[bool, Letter("together")] = static(default=True)

    def choose(self, arena: Arena, state: SafeState, belief: Belief, known: Intervals, safe: Array, t: Array, key: Key) -> Array:
        promising = maximisers(known, safe)
        # Only an expander whose interval is wider than every maximiser's can be chosen.
        wider = known.size * (1 - tie_share(known.size.dtype)) > jnp.max(jnp.where(promising, known.size, -jnp.inf))
        candidates = safe & wider & jnp.any(known.sd > self.threshold, axis=0)
        expansion = self.rule.expansion(Expansion(lipschitz=self.lipschitz, together=self.together))
        widest = expansion.widest(belief.model, belief, known, safe, candidates)
        chosen = promising | (jnp.arange(arena.size, dtype=jnp.int32) == widest)
        return pick(restricted_to(chosen, known.size))


@pytree
class StageOpt(Safe):
    r"""StageOpt: expand the safe set for ``T_0`` rounds, then maximise.

    .. math::
        x_t = \arg\max_{G_t} \max_k 2 \beta_k \sigma_k(x) / \sigma_{k,0} \;\; (t \le T_0), \\
        x_t = \arg\max_{S_t} \mathrm{UCB}_f(x) \;\; (t > T_0)

    with safe set ``S_t``, expanders ``G_t`` and maximisers as in :class:`~jaxbandit.SafeOpt`. The first stage chooses the widest maximiser
    if there is no expander. The safe set keeps growing in the second stage. (The paper also ends the first stage once every expander's
    interval is small; here its length is fixed.)

    Attributes:
      exploration: ``T_0 >= 0`` rounds.
      estimator, seeds, lipschitz, count, together, allowed, safety: as in :class:`~jaxbandit.SafeOpt`.
    """

    name: ClassVar[str] = "stageopt"
    title: ClassVar[str] = "StageOpt"
    papers: ClassVar[Mapping[str, str]] = {"sui2018": ""}
    lipschitz: Annotated[PerConstraint, positive, Letter("L")] | None = None
    exploration: Annotated[Scalar, nonnegative, Letter("T0")] = 50.0
    together: Annotated[bool, Letter("together")] = static(default=True)

    def choose(self, arena: Arena, state: SafeState, belief: Belief, known: Intervals, safe: Array, t: Array, key: Key) -> Array:
        exploring = jnp.asarray(t, known.sd.dtype) <= self.exploration
        expansion = self.rule.expansion(Expansion(lipschitz=self.lipschitz, together=self.together))
        # The second stage has no candidates to examine, so it costs no matrix product.
        widest = expansion.widest(belief.model, belief, known, safe, safe & exploring)
        expander = jnp.arange(arena.size, dtype=jnp.int32) == widest
        allowed = jnp.where(jnp.any(expander), expander, maximisers(known, safe))
        return pick(jnp.where(exploring, restricted_to(allowed, known.size), restricted_to(safe, known.upper[0])))


@pytree
class SgpUcb(Safe):
    r"""SGP-UCB: random seeds for ``T'`` rounds, then the best upper bound.

    .. math:: x_t \sim \mathrm{Unif}(S_0) \;\; (t \le T'), \qquad x_t = \arg\max_{S_t} \mathrm{UCB}_f(x) \;\; (t > T')

    with the safe set ``S_t`` of :class:`~jaxbandit.SafeOpt`. The paper's width is :func:`jaxbandit.widths.finite_set`.

    Attributes:
      warm_up: ``T' >= 0`` rounds.
      estimator, seeds, count, allowed, safety: as in :class:`~jaxbandit.SafeOpt`.
    """

    name: ClassVar[str] = "sgpucb"
    title: ClassVar[str] = "SGP-UCB"
    papers: ClassVar[Mapping[str, str]] = {"amani2020": ""}
    warm_up: Annotated[Scalar, nonnegative, Letter("T'")] = 50.0

    def choose(self, arena: Arena, state: SafeState, belief: Belief, known: Intervals, safe: Array, t: Array, key: Key) -> Array:
        warming = jnp.asarray(t, known.sd.dtype) <= self.warm_up
        # If all seeds have proved unsafe, draw from the certified points.
        seeds = jnp.where(jnp.any(state.seeds), state.seeds, safe)
        return jnp.where(warming, draw_uniformly(key, seeds), pick(restricted_to(safe, known.upper[0])))
