"""SafeOpt, StageOpt and SGP-UCB, which choose points whose constraints hold with certainty."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Annotated, ClassVar

import jax
import jax.numpy as jnp

from jaxbandit.acquisition import draw_uniformly, pick, restricted_to, tie_share
from jaxbandit.algorithms.base import Algorithm, Arena, BeliefState, Decision, Traits
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import Array, Indices, Key, PerConstraint, Scalar
from jaxbandit.core.doors import either
from jaxbandit.core.fields import Letter, how_many_points, mask, nonnegative, points, positive, vector
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.core.status import Status
from jaxbandit.estimators import Bounds
from jaxbandit.safety import Expansion, Intervals, intervals, maximisers

at_least_one = vector("the number of a point each")
OFTEN = 100  # measurements of a seed after which more would change little
MOST_EXAMINED = 8  # seeds of which it is worked out in every round whether they could certify a point
PATIENCE = 30  # rounds with nothing certified beyond the seeds before the set is said to stand still


@pytree
class SafeState(BeliefState):
    """State of an algorithm with a safe set."""

    seeds: Array  # [M]
    certified: Array  # [] whether any point has been certified so far
    still: Array  # [] int32, rounds in a row up to now in which nothing beyond the seeds was certified


@pytree
class Safe(Algorithm[SafeState]):
    """Algorithm that chooses among the points that are certified, ``UCB_gj(x) <= 0`` for every ``j``, and a seed set; abstract.

    Points are certified by the values that have arrived, whatever a policy believes of those that have not. When no point is certified any
    more, the safe set is the seeds and the trial is flagged. A seed with ``LCB_gj > 0`` for some ``j`` is flagged and leaves the safe set,
    unless nothing would be left of it. A trial is flagged, too, where the set stands still: nothing beyond the seeds is certified, and
    either that has been so for ``PATIENCE`` rounds or, of ``MOST_EXAMINED`` seeds at most, no seed could certify a point if its lower
    bounds were observed there another ``OFTEN`` times. A seed outside the domain fails the trial.

    Attributes:
      allowed: ``[M]`` booleans, the points that may be certified; default all. Seeds are chosen whatever it says.
    """

    estimator: Bounds = Bounds()
    seeds: Annotated[Indices, points, at_least_one, Letter("seeds")] | None = None
    count: Annotated[int, how_many_points(), Letter("count")] | None = static(default=None)
    allowed: Annotated[Array, mask] | None = None

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
        return Traits(certifies=True, seeds=self.seeds, lacks=lacks)

    def init(self, arena: Arena) -> SafeState:
        # A rule that tells facts while a trial is traced may have told no seeds.
        if lacks := self.traits.lacks:
            raise InvalidArgument(lacks)
        mask = jnp.zeros((arena.size,), bool) if self.seeds is None else _mask(jnp.asarray(self.seeds), arena.size)
        return SafeState(posterior=arena.surrogate.init(), seeds=mask, certified=jnp.asarray(False), still=jnp.int32(0))

    @abc.abstractmethod
    def choose(self, arena: Arena, state: SafeState, known: Intervals, safe: Array, t: Array, key: Key) -> Array:
        """Return the index of a point of the safe set ``safe [M]``."""

    def select(self, arena: Arena, state: SafeState, t: Array, key: Key) -> tuple[Decision, SafeState]:
        known = intervals(arena.surrogate, state.posterior, self.estimator, t, key)
        seeds, certified = state.seeds, known.worst <= 0
        if self.allowed is not None:
            certified = certified & jnp.asarray(self.allowed)
        some, raised = jnp.any(certified), dict[Status, Array]()
        raised[Status.SAFE_SET_EMPTIED] = state.certified & ~some
        if self.seeds is None and self.count is not None:
            # By the policy's own intervals: before round 1 many points are alike but for rounding, which depends on the way to a belief.
            believed = jax.lax.top_k(-jnp.max(known.upper[1:], axis=0, initial=-jnp.inf), self.count)[1]
            seeds = jnp.where(t == 1, _mask(believed, arena.size), seeds)
            raised[Status.SEEDS_UNCERTAIN] = (t == 1) & ~jnp.all(certified[believed])
        unsafe = seeds & known.is_violated
        trusted = seeds & ~unsafe
        raised[Status.SEED_UNSAFE] = jnp.any(unsafe)
        raised[Status.NO_SAFE_POINT] = jnp.any(unsafe) & ~some & ~jnp.any(trusted)
        is_at_seeds = jnp.any(trusted) & ~jnp.any(certified & ~seeds) & ~jnp.all(trusted)
        still, could_leave = jnp.where(is_at_seeds, state.still + 1, 0), jnp.asarray(True)
        own = self.count or 0 if self.seeds is None else len(jnp.asarray(self.seeds))
        if 0 < own <= MOST_EXAMINED:
            places = jax.lax.top_k(trusted.astype(known.sd.dtype), min(own, arena.size))[1]
            expands = Expansion(often=OFTEN).expands(arena.surrogate, state.posterior, known, certified | trusted, places)
            could_leave = jnp.any(expands & trusted[places])
        raised[Status.SAFE_SET_STILL] = is_at_seeds & (~could_leave | (still > PATIENCE))
        trusted = jnp.where(raised[Status.NO_SAFE_POINT], seeds, trusted)
        safe = certified | trusted
        flags = sum((jnp.where(is_raised, int(flag), 0) for flag, is_raised in raised.items()), jnp.int32(0))
        index = self.choose(arena, replace(state, seeds=trusted), known, safe, t, key)
        after = replace(state, seeds=seeds, certified=state.certified | some, still=still)
        return Decision(index=index, widths=known.widths, flags=flags), after


def _mask(seeds: Array, size: int) -> Array:
    """Return ``[M]``, true at the seeds; nowhere when one lies outside the domain, which fails the trial instead of going unnoticed."""
    inside = jnp.all((seeds >= 0) & (seeds < size))
    return jnp.zeros((size,), bool).at[seeds].set(True, mode="drop") & inside


@pytree
class SafeOpt(Safe):
    r"""SafeOpt: the most uncertain point among possible maximisers and expanders of a set of certainly safe points.

    .. math::
        S_t = \{x : \mathrm{UCB}_{g_j}(x) \le 0 \;\forall j\} \cup S_0, \quad
        M_t = \{x \in S_t : \mathrm{UCB}_f(x) \ge \max_{S_t} \mathrm{LCB}_f\}, \\
        x_t = \arg\max_{M_t \cup G_t} \max_k 2 \beta_k \sigma_k(x) / \sigma_{k,0}

    where ``G_t``, the expanders, are the points of ``S_t`` whose observation could certify a point outside, see
    :class:`~jaxbandit.safety.Expansion`. When no point is certified any more, the safe set is the seeds and the trial is flagged. So is one
    whose seeds are shown to be unsafe, or that cannot leave them. A seed outside the domain fails the trial. (Without a Lipschitz constant
    and with several constraints: Berkenkamp, Krause and Schoellig 2021, "Bayesian Optimization with Safety Constraints".)

    Attributes:
      estimator: confidence bounds of width 3 by default.
      seeds: ``S_0``, the indices of points known to be safe, without which it does not start: given here, or told by
        ``informed=jaxbandit.informed.SafestSeeds(count=n)``, the truly safest of each instance.
      lipschitz: ``L > 0``, one number or ``[m]``; expanders are then those of the 2015 paper. Default: none is needed.
      threshold: an expander must be less certain than this, ``sd > threshold`` for some output; 0 for all.
      count: instead of ``seeds``, how many to take from the model: the points of least ``max_j UCB_gj`` before round 1, after the
        initial design. Nothing says that they are safe; a trial is flagged where one of them was not certified.
      together: whether one point outside must satisfy all constraints, see :class:`~jaxbandit.safety.Expansion`.
      allowed: ``[M]`` booleans, the points that may be certified; default all. A session's ``max_step`` sets it.
    """

    name: ClassVar[str] = "safeopt"
    title: ClassVar[str] = "SafeOpt"
    papers: ClassVar[Mapping[str, str]] = {"sui2015": "", "berkenkamp2021": "without a Lipschitz constant"}
    lipschitz: Annotated[PerConstraint, positive, Letter("L")] | None = None
    threshold: Annotated[Scalar, nonnegative, Letter("threshold")] = 0.0
    together: Annotated[bool, Letter("together")] = static(default=True)

    def choose(self, arena: Arena, state: SafeState, known: Intervals, safe: Array, t: Array, key: Key) -> Array:
        promising = maximisers(known, safe)
        # An expander can be chosen only where the interval is wider than every maximiser's.
        wider = known.size * (1 - tie_share(known.size.dtype)) > jnp.max(jnp.where(promising, known.size, -jnp.inf))
        candidates = safe & wider & jnp.any(known.sd > self.threshold, axis=0)
        expansion = Expansion(lipschitz=self.lipschitz, together=self.together)
        widest = expansion.widest(arena.surrogate, state.posterior, known, safe, candidates)
        chosen = promising | (jnp.arange(arena.size, dtype=jnp.int32) == widest)
        return pick(restricted_to(chosen, known.size))


@pytree
class StageOpt(Safe):
    r"""StageOpt: expand the safe set for ``T_0`` rounds, then maximise the upper bound of the reward on it.

    .. math::
        x_t = \arg\max_{G_t} \max_k 2 \beta_k \sigma_k(x) / \sigma_{k,0} \;\; (t \le T_0), \\
        x_t = \arg\max_{S_t} \mathrm{UCB}_f(x) \;\; (t > T_0)

    with safe set ``S_t``, expanders ``G_t`` and maximisers as in :class:`~jaxbandit.SafeOpt`; in the first stage the widest maximiser
    is chosen while there is no expander. The safe set keeps growing in the second. (The paper also ends the first stage once every
    expander's interval is small; here its length is given.)

    Attributes:
      exploration: ``T_0 >= 0`` rounds.
      estimator, seeds, lipschitz, count, together, allowed: as in :class:`~jaxbandit.SafeOpt`.
    """

    name: ClassVar[str] = "stageopt"
    title: ClassVar[str] = "StageOpt"
    papers: ClassVar[Mapping[str, str]] = {"sui2018": ""}
    lipschitz: Annotated[PerConstraint, positive, Letter("L")] | None = None
    exploration: Annotated[Scalar, nonnegative, Letter("T0")] = 50.0
    together: Annotated[bool, Letter("together")] = static(default=True)

    def choose(self, arena: Arena, state: SafeState, known: Intervals, safe: Array, t: Array, key: Key) -> Array:
        exploring = jnp.asarray(t, known.sd.dtype) <= self.exploration
        expansion = Expansion(lipschitz=self.lipschitz, together=self.together)
        # Without candidates there is nothing to examine: the second stage costs no matrix product.
        widest = expansion.widest(arena.surrogate, state.posterior, known, safe, safe & exploring)
        expander = jnp.arange(arena.size, dtype=jnp.int32) == widest
        allowed = jnp.where(jnp.any(expander), expander, maximisers(known, safe))
        return pick(jnp.where(exploring, restricted_to(allowed, known.size), restricted_to(safe, known.upper[0])))


@pytree
class SgpUcb(Safe):
    r"""SGP-UCB: ``T'`` rounds uniformly at random in the seed set, then the best upper bound of the reward on the safe set.

    .. math:: x_t \sim \mathrm{Unif}(S_0) \;\; (t \le T'), \qquad x_t = \arg\max_{S_t} \mathrm{UCB}_f(x) \;\; (t > T')

    with the safe set ``S_t`` of :class:`~jaxbandit.SafeOpt`. The paper's width is :func:`jaxbandit.widths.finite_set`.

    Attributes:
      warm_up: ``T' >= 0`` rounds.
      estimator, seeds, count, allowed: as in :class:`~jaxbandit.SafeOpt`.
    """

    name: ClassVar[str] = "sgpucb"
    title: ClassVar[str] = "SGP-UCB"
    papers: ClassVar[Mapping[str, str]] = {"amani2020": ""}
    warm_up: Annotated[Scalar, nonnegative, Letter("T'")] = 50.0

    def choose(self, arena: Arena, state: SafeState, known: Intervals, safe: Array, t: Array, key: Key) -> Array:
        warming = jnp.asarray(t, known.sd.dtype) <= self.warm_up
        # Once all seeds have been shown to be unsafe, a certified point stands for one.
        seeds = jnp.where(jnp.any(state.seeds), state.seeds, safe)
        return jnp.where(warming, draw_uniformly(key, seeds), pick(restricted_to(safe, known.upper[0])))
