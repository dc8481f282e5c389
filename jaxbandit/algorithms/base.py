"""The interface of algorithms: pure functions over an immutable state, and an :class:`Arena`, all that an algorithm may know."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeAlias, TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.checks import InvalidArgument, blaming
from jaxbandit.core.declare import Array, Declared, Indices, Key, check_fields, symbols
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.delays import Delay
from jaxbandit.domains import Box, Domain
from jaxbandit.estimators import Estimate, Strategy
from jaxbandit.feedback import Feedback, Policy, Wait
from jaxbandit.scores import Score, best_of_box
from jaxbandit.surrogates import AbstractSurrogate, Elsewhere
from jaxbandit.surrogates.posterior import Belief

if TYPE_CHECKING:  # an algorithm named without its state has any; Python's own type variables have defaults from 3.13 on
    from typing_extensions import TypeVar as Defaulting

    S = Defaulting("S", default=Any)
else:
    S = TypeVar("S")  # state of an algorithm


@pytree
class Arena:
    """All a learner may know: the GP model of the functions and the number of rounds.

    Attributes:
      surrogate: the model; under delay a :class:`~jaxbandit.feedback.DelayedSurrogate`, which has the same interface.
      horizon: ``[]`` number of rounds ``T``; a leaf, so that a wrapper can run an algorithm over stretches of growing length.
    """

    surrogate: AbstractSurrogate
    horizon: Array

    @property
    def constraints(self) -> int:
        """Number of constraints ``m``."""
        return self.surrogate.constraints

    @property
    def domain(self) -> Domain:
        """The points among which it chooses, or the box."""
        domain: Domain = self.surrogate.domain
        return domain

    @property
    def size(self) -> int:
        """Number of points ``M``; on a box those that the posterior holds."""
        return self.surrogate.size

    @property
    def dtype(self) -> np.dtype[Any]:
        """Floating type of beliefs, and so of an algorithm's state."""
        return self.surrogate.dtype

    def learn(self, posterior: Belief, observation: Seen) -> Belief:
        """Return the posterior that has taken in what ``observation`` brings."""
        if isinstance(observation, Observation):
            return self.surrogate.condition(posterior, observation.index, observation.values)
        return self.surrogate.learn(posterior, observation)


@pytree
class Decision:
    """The point chosen for a round, and what led to it. Diagnostics are recorded, never read back."""

    index: Array  # [] int32, a row of the domain's points; M marks a NaN score
    widths: Array  # [1 + m] beta_t of the reward and of each constraint
    flags: Array | int = 0  # [] int32 bits of core.status.Status that this round raises, such as a declared infeasibility
    draws: Array | None = None  # what a randomised strategy drew: [1 + m] multiples of sigma, or [1 + m, M] joint draws
    point: Array | None = None  # [d] coordinates of the point in the unit cube, on a box


@pytree
class Observation:
    """Noisy values seen at once at a point: the reward, then each constraint (``<= 0`` is feasible).

    Algorithms ask it for the same sums as :class:`~jaxbandit.feedback.Feedback`, and so run under delay unchanged.
    """

    index: Array  # [] int32
    values: Array  # [1 + m]

    def total(self) -> Array:
        """Return the sum of the values of each output that came in this round, ``[1 + m]``."""
        return self.values

    def largest(self) -> Array:
        """Return the largest value of each output that came in this round, ``[1 + m]``."""
        return self.values

    @property
    def count(self) -> Array:
        """Number of values of each output that came in this round, ``[1 + m]``."""
        return jnp.ones_like(self.values)

    def map(self, function: Callable[[Array], Array]) -> Observation:
        """Return the same observation with ``function`` of its values ``[1 + m]``."""
        return replace(self, values=function(self.values))


Seen: TypeAlias = Observation | Feedback
"""Values that came in at the end of a round: those of the point chosen in it, or under delay those that arrived."""
Shown: TypeAlias = Mapping[str, Array]
"""Quantities of an algorithm's state that a run records, by name, see :meth:`Algorithm.diagnose`."""


@pytree
class BeliefState:
    """State of an algorithm that carries its posterior and nothing else."""

    posterior: object


@pytree
class DualState(BeliefState):
    """State of an algorithm with a penalty factor or dual variable for each constraint."""

    multipliers: Array  # [m]


@dataclasses.dataclass(frozen=True)
class Traits:
    """Facts of an algorithm that a run goes by.

    Attributes:
      feedback: policy under which it runs when feedback is late, unless a run names another.
      joint_arrival: whether it needs all values of a point together; under delay they then arrive with the last of them.
      needs_feedback_at_once: whether it needs the feedback of a round before the next one, so that it cannot run under delay.
      sees_constraints: whether ``reveal`` is to be called before ``select``, as under stochastic full information.
      standardises: whether models of boxes take mean and unit of the values from the initial design, before round 1.
      learns: whether the posterior of its state takes in what is observed; else it stays the prior, which says nothing to a user.
      certifies: whether it chooses no point but those whose constraints hold with certainty under the model, and its seeds.
      seeds: ``[n]`` numbers of the points at which an algorithm that certifies begins; ``None`` where nobody has told it.
      refits: whether it fits the model's hyper-parameters while it runs.
      lacks: the message of the error where it must be told something before it can begin; empty where it can.
    """

    feedback: Policy = Wait()
    joint_arrival: bool = False
    needs_feedback_at_once: bool = False
    sees_constraints: bool = False
    standardises: bool = False
    learns: bool = True
    certifies: bool = False
    seeds: Indices | None = None
    refits: bool = False
    lacks: str = ""

    def __post_init__(self) -> None:
        check_fields(self, "Traits")


class Algorithm(Declared, abc.ABC, Generic[S]):
    """Rule that chooses points and learns from what comes back; abstract, and every algorithm is a final pytree dataclass.

    A subclass defines :meth:`select`, and overrides of the rest what it needs. Hyper-parameters are declared beside their
    fields, see ``jaxbandit.core.declare``; from that come ``validate``, the letters of audit traces and what study files can set. A
    state, of type ``S``, is a pytree dataclass; the defaults below work with one that holds the posterior of ``arena.surrogate`` as
    ``posterior``. ``update`` conditions by ``arena.learn`` and takes sums over what came in by ``observation.total``; that is all it
    takes to run under delay.

    Attributes:
      name: short name, such as "rpol"; it names traces and messages.
      title: name in tables, such as "RPOL-UCB".
      shown: fields of the state that a run records under their names, see :meth:`diagnose`.
    """

    described: ClassVar[str] = "an algorithm of jaxbandit, or of a subclass of jaxbandit.Algorithm"
    in_files: ClassVar[bool] = True
    name: ClassVar[str] = ""
    title: ClassVar[str] = ""
    shown: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def also_called(cls) -> tuple[str, ...]:
        return tuple(filter(None, (cls.name, cls.title)))

    @property
    def label(self) -> str:
        """Name of its runs and traces: ``name``, or that of a class without one."""
        return self.name or type(self).__name__

    @property
    def traits(self) -> Traits:
        """Facts that a run goes by; a class whose facts depend on no field sets ``traits = Traits(...)``."""
        return Traits()

    @property
    def on_boxes(self) -> bool:
        """Return whether it chooses any point of a box, not only among the points of a finite domain."""
        return False

    def init(self, arena: Arena) -> S:
        """Return the state before the first observation."""
        return cast(S, BeliefState(posterior=arena.surrogate.init()))

    @abc.abstractmethod
    def select(self, arena: Arena, state: S, t: Array, key: Key) -> tuple[Decision, S]:
        """Return the choice of round ``t`` (counted from 1) and the state after it."""

    def update(self, arena: Arena, state: S, observation: Seen, t: Array) -> S:
        """Return the state after round ``t``, with the observation made in it, or under delay with what arrived at its end."""
        return self.learn(arena, state, observation) if self.traits.learns else state

    def learn(self, arena: Arena, state: S, observation: Seen) -> S:
        """Return the state whose beliefs have taken in ``observation``; penalties and dual variables stay as they are.

        An initial design is taken in by this alone. An algorithm whose surrogate models other values than those observed overrides it.
        """
        return replace(state, posterior=arena.learn(posterior_of(state), observation))

    def begin(self, arena: Arena, state: S) -> S:
        """Return the state before round 1, once a whole initial design has been taken in; not called where there is none."""
        return state

    def reveal(self, arena: Arena, state: S, sample: Array, t: Array) -> S:
        """Return the state that has seen the constraint functions ``sample [m, M]`` of round ``t``, before the choice."""
        return state

    def reset(self, arena: Arena, state: S) -> S:
        """Return the state before round 1 that keeps what ``state`` has learnt of the functions."""
        return replace(self.init(arena), posterior=posterior_of(state))

    def belief(self, state: S) -> object:
        """Return the posterior of ``arena.surrogate`` that ``state`` holds."""
        return posterior_of(state)

    def reading(self, arena: Arena) -> Arena:
        """Return the arena whose surrogate reads the posteriors of :meth:`belief`; default: the same."""
        return arena

    def place(self, arena: Arena, state: S, point: Array) -> tuple[Array, S]:
        """Return the index ``[]`` that a point ``[d]`` of the unit cube gets on a box, and the state whose beliefs know it by that."""
        held = self.belief(state)
        index, placed = arena.surrogate.place(held, point)
        after: S = jax.tree.map(lambda part: placed if part is held else part, state, is_leaf=lambda part: part is held)
        return index, after

    def diagnose(self, state: S) -> Shown:
        """Return what a run records of ``state``, by names that are the same for every state; by default the fields named in ``shown``.

        Every round: ``multipliers [m]``, the penalty factors, dual variables or virtual queues in force in the coming round, ``flags []``
        (int32), the bits of :class:`~jaxbandit.Status` raised so far, and ``length_scales [G, a]`` of models that are fitted on the way.
        At the end: ``candidates [M]``, the points not struck out yet (booleans), ``evaluations []`` (int32), the rounds that evaluated
        something, and arrays of any other name, which are ``Trajectory.shown``.
        """
        return {name: getattr(state, name) for name in self.shown}

    def with_delays(self, delay: Delay, policy: Policy) -> Self:
        """Return the algorithm that knows what it may of the delay model and of the feedback policy it runs under.

        Raises:
          InvalidArgument: when the algorithm cannot work with them.
        """
        if self.traits.needs_feedback_at_once:
            raise InvalidArgument(f"{type(self).__name__}: needs the feedback of a round before the next one; it cannot run under delay")
        return self

    def with_facts(self, **facts: object) -> Self:
        """Return the algorithm with fields set to facts of one instance, see :mod:`jaxbandit.informed`; a wrapper passes them on.

        Raises:
          InvalidArgument: when the algorithm has no such field.
        """
        known = {field.name for field in dataclasses.fields(self)}  # type: ignore[arg-type]  # its subclasses are dataclasses
        for name in facts:
            if name not in known:
                raise InvalidArgument(f"informed: tells {name}, which {type(self).__name__} does not take; leave it out")
        return replace(self, **facts)

    def symbols_in_force(self, horizon: int) -> dict[str, object]:
        """Return the hyper-parameters in force over ``horizon`` rounds as plain values, under the paper's letters, for audit traces.

        These are the fields that declare a symbol; an algorithm that derives others from them, or from the horizon, adds those.
        """
        return symbols(self)


def posterior_of(state: Any, name: str = "posterior") -> Any:
    """Return the posterior of a state, or another field; raises ``InvalidArgument`` on what is no state of the algorithm."""
    with blaming("state: must be one that this algorithm has made"):
        return getattr(state, name)


class Scored(Algorithm[S]):
    """Algorithm that chooses the point of the best score, which depends on what is believed of that point alone; abstract.

    Both :meth:`select` and the kernel of :mod:`jaxbandit.fused`, which computes scores point by point, are made from its methods. A
    subclass defines :meth:`score`, and overrides of the rest what it needs; its state holds one posterior.

    Attributes:
      estimator: the exploration strategy, where :meth:`estimate` goes by one.
    """

    estimator: Strategy

    @property
    def on_boxes(self) -> bool:
        return True

    def estimate(self, arena: Arena, state: S, t: Array, key: Key) -> Estimate:
        """Return the estimates from which points are scored in round ``t``; default: those of every output by the strategy."""
        return self.estimator.estimate(arena.surrogate, posterior_of(state), t, key)

    def shared(self, state: S, estimate: Estimate) -> S:
        """Return the state with what the scores of this round share, such as an incumbent, from the estimates; default: the same.

        The state that a round leaves behind is without it.
        """
        return state

    @abc.abstractmethod
    def score(self, state: S, estimate: Estimate) -> Score:
        """Return the scores ``[M]`` of points, each computed from what ``estimate`` has at that point and what ``state`` shares."""

    def after_choice(self, arena: Arena, state: S, estimate: Estimate, index: Array) -> S:
        """Return the state once the point that ``estimate`` has at ``index`` was chosen; default: the same."""
        return state

    def select(self, arena: Arena, state: S, t: Array, key: Key) -> tuple[Decision, S]:
        estimate = self.estimate(arena, state, t, key)
        ready = self.shared(state, estimate)
        score = self.score(ready, estimate)
        index, flags = score.choose()
        decision = Decision(index=index, widths=estimate.widths, flags=flags, draws=estimate.draws)
        if isinstance(arena.surrogate.domain, Box):
            return self._refined(arena, state, ready, t, key, score, decision)
        return decision, self.after_choice(arena, state, estimate, index)

    def _refined(self, arena: Arena, state: S, ready: S, t: Array, key: Key, score: Score, found: Decision) -> tuple[Decision, S]:
        """Return the decision for the best point that ascents from the best of the pool find, and the state that knows that point."""
        box, surrogate = cast(Box, arena.surrogate.domain), arena.surrogate

        def look(points: Array) -> tuple[Score, Estimate]:
            there = replace(arena, surrogate=Elsewhere(surrogate=surrogate, points=points))
            estimate = self.estimate(there, state, t, key)
            return self.score(ready, estimate), estimate

        points, best, estimate = best_of_box(box, surrogate.pool(self.belief(state)), score, look)
        index, placed = self.place(arena, state, points[best])
        index = jnp.where(found.index == arena.size, found.index, index)  # which marks a NaN score
        return replace(found, index=index, point=points[best]), self.after_choice(arena, placed, estimate, best)
