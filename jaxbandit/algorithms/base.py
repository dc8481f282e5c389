"""Interface of algorithms: pure functions of an immutable state."""

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
from jaxbandit.core.doors import setting
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.delays import Delay, Failing
from jaxbandit.domains import Box, Contextual, Domain
from jaxbandit.feedback import DelayedSurrogate, Feedback, Policy, Wait
from jaxbandit.rules.estimators import Estimate, Strategy
from jaxbandit.rules.scores import Score, best_of_box
from jaxbandit.surrogates import AbstractSurrogate, Belief, BoxSurrogate, Surrogate
from jaxbandit.surrogates.posterior import AnyPosterior, ContextBelief

# The default is the state of an annotation ``Algorithm``. Python's own type variables have defaults from 3.13 on.
if TYPE_CHECKING:
    from typing_extensions import TypeVar as Defaulting

    S = Defaulting("S", default=Any)
else:
    S = TypeVar("S")


@pytree
class Arena:
    """Everything that an algorithm may know about the problem.

    Attributes:
      surrogate: the GP model. Under delay it is a :class:`~jaxbandit.feedback.DelayedSurrogate`, which has the same interface.
      horizon: number of rounds ``T``. It is a leaf, so that a wrapper can run an algorithm over stretches of growing length.
      points: ``[n, d]`` points of the unit cube of a box that beliefs are about, instead of the points of the posterior.
      context: ``[]`` int32, the round's context on a domain with contexts, within ``select``. Beliefs are then about its ``A`` actions, and
        a decision numbers these.
      runs_seldom: whether programs run too seldom to repay a long compilation.
    """

    surrogate: AbstractSurrogate
    horizon: Array
    points: Array | None = None
    context: Array | None = None
    runs_seldom: bool = static(default=False)

    @property
    def constraints(self) -> int:
        """Number of constraints ``m``."""
        return self.surrogate.constraints

    @property
    def domain(self) -> Domain:
        """Domain of the surrogate."""
        return self.surrogate.domain

    @property
    def size(self) -> int:
        """Number of points of beliefs.

        It is ``M``, on a box that of the posterior, and in a context the number ``A`` of actions.
        """
        if self.context is not None:
            return cast(Contextual, self.domain).actions
        return self.surrogate.size if self.points is None else len(self.points)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Floating type of beliefs and states."""
        return self.surrogate.dtype

    def belief(self, state: object) -> Belief:
        """Return the belief of a state's posterior at every point."""
        belief = self.surrogate.belief(posterior_of(state))
        if self.context is not None:
            return ContextBelief.of(belief, self.context)
        return belief if self.points is None else belief.at(self.points)

    def here(self, table: Array) -> Array:
        """Return a state's table ``[..., M]`` at the points of beliefs."""
        return table if self.context is None else cast(Contextual, self.domain).at(self.context, table)

    def learn(self, posterior: AnyPosterior, observation: Seen) -> AnyPosterior:
        """Return the posterior conditioned on ``observation``."""
        if isinstance(observation, Observation):
            if observation.present is None:
                return self.surrogate.condition(posterior, observation.index, observation.values)
            # Outputs that are evaluated apart have factors of their own.
            return cast(Surrogate, self.surrogate).condition(posterior, observation.index, observation.values, observation.present)
        return cast(DelayedSurrogate, self.surrogate).learn(posterior, observation)


@pytree
class Decision:
    """Point chosen for a round, with diagnostics that a run records.

    Attributes:
      index: ``[]`` int32, the number of the point, or of the action of a context. ``arena.size`` marks a NaN score.
      widths: ``[1 + m]``, ``beta_t`` of the reward and of each constraint.
      flags: ``[]`` int32, the bits of :class:`~jaxbandit.Status` that the round raises.
      draws: draws of a randomised strategy: multiples of sigma ``[1 + m]``, or joint draws ``[1 + m, M]``.
      point: ``[d]`` coordinates in the unit cube, on a box.
      outputs: ``[1 + m]`` booleans, the outputs that the round evaluates; default all. Values of others are NaN in records. The algorithm
        needs ``Traits(decoupled=True)``.
    """

    index: Array
    widths: Array
    flags: Array | int = 0
    draws: Array | None = None
    point: Array | None = None
    outputs: Array | None = None


@pytree
class Observation:
    """Noisy values of the reward and of each constraint, observed at once.

    It has the methods of :class:`~jaxbandit.feedback.Feedback`, so that an algorithm runs under delay unchanged.
    """

    index: Array  # [] int32
    values: Array  # [1 + m]
    present: Array | None = None  # [1 + m] evaluated, default all

    def _or(self, missing: float) -> Array:
        return self.values if self.present is None else jnp.where(self.present, self.values, missing)

    def total(self) -> Array:
        """Return the sum of the values of each output, ``[1 + m]``."""
        return self._or(0)

    def largest(self) -> Array:
        """Return each output's largest value, ``[1 + m]``, or minus infinity."""
        return self._or(-jnp.inf)

    @property
    def count(self) -> Array:
        """Number of values of each output, ``[1 + m]``."""
        return jnp.ones_like(self.values) if self.present is None else self.present.astype(self.values.dtype)

    def map(self, function: Callable[[Array], Array]) -> Observation:
        """Return the observation with ``function`` of its values ``[1 + m]``."""
        return replace(self, values=function(self.values))


Seen: TypeAlias = Observation | Feedback
"""Values at the end of a round. They are of its chosen point, or under delay all values that arrived."""
Shown: TypeAlias = Mapping[str, Array]
"""Quantities of an algorithm's state that a run records, by name. See :meth:`Algorithm.diagnose`."""


@pytree
class BeliefState:
    """State that is a posterior and nothing else."""

    posterior: object


@pytree
class DualState(BeliefState):
    """State with a penalty factor or dual variable for each constraint."""

    multipliers: Array  # [m]


@dataclasses.dataclass(frozen=True)
class Traits:
    """Facts about an algorithm that a run needs.

    Attributes:
      feedback: policy under which the algorithm runs when feedback is late, unless a run names another policy.
      joint_arrival: whether the algorithm needs all values of a point together. Under delay they then arrive with the last value.
      decoupled: whether a round may evaluate some outputs alone, see :class:`Decision`. Outputs then have posteriors of their own.
      needs_feedback_at_once: whether the algorithm needs the feedback of a round before the next round, so that it cannot run under delay.
      sees_constraints: whether a run calls ``reveal`` before ``select``, as under stochastic full information.
      standardises: whether models of boxes standardise values by the mean and unit of the initial design, before round 1.
      learns: whether the algorithm conditions its posterior on observations. Otherwise the posterior stays the prior.
      certifies: whether the algorithm chooses only its seeds and points whose constraints hold with certainty under the model.
      seeds: ``[n]`` numbers of the points at which an algorithm that certifies begins, or ``None`` if they are unknown.
      refits: whether the algorithm fits the model's hyper-parameters while it runs.
      lacks: message of the error if the algorithm needs a fact before it can begin, else empty.
    """

    feedback: Policy = Wait()
    joint_arrival: bool = False
    decoupled: bool = False
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
    """Abstract base of algorithms.

    A subclass is a final pytree dataclass. It defines :meth:`select` and overrides other methods as needed. It declares hyper-parameters
    beside their fields, see ``jaxbandit.core.declare``; ``validate``, the letters of audit traces and the settings of study files follow
    from the declarations. A state, of type ``S``, is a pytree dataclass. The methods below work with a state that stores the posterior of
    ``arena.surrogate`` as ``posterior``. To run under delay, ``update`` only has to condition by ``arena.learn`` and to sum values by
    ``observation.total``.

    Attributes:
      name: short name in traces and messages, such as "rpol".
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
        """Name of runs and traces: ``name``, or else the class's name."""
        return self.name or type(self).__name__

    @property
    def traits(self) -> Traits:
        """Facts for runs, constant as ``traits = Traits(...)`` or from fields."""
        return Traits()

    @property
    def on_boxes(self) -> bool:
        """Return whether the algorithm runs on boxes, not only on finite domains."""
        return False

    @property
    def on_contexts(self) -> bool:
        """Return whether the algorithm runs on domains with contexts."""
        return False

    def init(self, arena: Arena) -> S:
        """Return the state before the first observation."""
        return cast(S, BeliefState(posterior=arena.surrogate.init()))

    @abc.abstractmethod
    def select(self, arena: Arena, state: S, t: Array, key: Key) -> tuple[Decision, S]:
        """Return the choice of round ``t`` (from 1) and the next state."""

    def update(self, arena: Arena, state: S, observation: Seen, t: Array) -> S:
        """Return the state after the observation of round ``t``."""
        return self.learn(arena, state, observation) if self.traits.learns else state

    def learn(self, arena: Arena, state: S, observation: Seen) -> S:
        """Return the state with its beliefs conditioned on ``observation``.

        Penalties and dual variables do not change. A run conditions on an initial design by this method alone. An algorithm whose surrogate
        models other values than the observed values overrides it.
        """
        return replace(state, posterior=arena.learn(posterior_of(state), observation))

    def begin(self, arena: Arena, state: S) -> S:
        """Prepare the state for round 1 once an initial design is complete."""
        return state

    def reveal(self, arena: Arena, state: S, sample: Array, t: Array) -> S:
        """Return the state with round ``t``'s constraint functions ``sample [m, M]``."""
        return state

    def reset(self, arena: Arena, state: S) -> S:
        """Return the state before round 1, with the posterior of ``state``."""
        return replace(self.init(arena), posterior=posterior_of(state))

    def posterior(self, state: S) -> AnyPosterior:
        """Return the posterior of the surrogate in ``state``."""
        return posterior_of(state)

    def belief(self, arena: Arena, state: S) -> Belief:
        """Return the belief of the posterior in ``state``."""
        return arena.surrogate.belief(self.posterior(state))

    def place(self, arena: Arena, state: S, point: Array) -> tuple[Array, S]:
        """Return the index of a box's point, and the state with it."""
        held = self.posterior(state)
        index, placed = cast(BoxSurrogate, arena.surrogate).place(held, point)
        after: S = jax.tree.map(lambda part: placed if part is held else part, state, is_leaf=lambda part: part is held)
        return index, after

    def diagnose(self, state: S) -> Shown:
        """Return the quantities of ``state`` that a run records, by name.

        By default these are the fields named in ``shown``. The names must be the same for every state. A run records in every round:
        ``multipliers [m]``, the penalty factors, dual variables or virtual queues of the coming round, ``flags []`` (int32), the bits of
        :class:`~jaxbandit.Status` raised so far, and ``length_scales [G, a]`` of models that are fitted on the way. It records at the end:
        ``candidates [M]`` (booleans), the points that are not eliminated, ``evaluations []`` (int32), the number of rounds that evaluated a
        function, and arrays of any other name, as ``Trajectory.shown``.
        """
        return {name: getattr(state, name) for name in self.shown}

    def with_delays(self, delay: Delay, policy: Policy) -> Self:
        """Return the algorithm for a delay model and a feedback policy.

        Raises:
          InvalidArgument: when the algorithm cannot run under them.
        """
        if self.traits.needs_feedback_at_once:
            raise InvalidArgument(f"{type(self).__name__}: needs the feedback of a round before the next one; it cannot run under delay")
        if self.traits.decoupled and not (isinstance(policy, Wait) and not isinstance(delay, Failing)):
            words = "evaluates some outputs alone, which only Wait knows, and not with runs that fail"
            raise InvalidArgument(f"feedback: {type(self).__name__} {words}; give {setting('feedback', Wait())}")
        return self

    def with_runs(self, constraints: int) -> Self:
        """Return the algorithm with one more constraint: runs give values.

        It is the last, after ``constraints`` others. By default the algorithm stays as it is.
        """
        return self

    def with_facts(self, **facts: object) -> Self:
        """Return the algorithm with fields set to facts of :mod:`jaxbandit.informed`.

        Raises:
          InvalidArgument: when the algorithm has no such field.
        """
        known = {field.name for field in dataclasses.fields(self)}  # type: ignore[arg-type]  # its subclasses are dataclasses
        for name in facts:
            if name not in known:
                raise InvalidArgument(f"informed: tells {name}, which {type(self).__name__} does not take; leave it out")
        return replace(self, **facts)

    def symbols_in_force(self, horizon: int) -> dict[str, object]:
        """Return the hyper-parameters under the paper's letters, for audit traces.

        These are the fields that declare a symbol. An algorithm adds hyper-parameters that it derives from its fields or the horizon.
        """
        return symbols(self)


def posterior_of(state: Any, name: str = "posterior") -> Any:
    """Return a field of a state, or raise ``InvalidArgument`` without it."""
    with blaming("state: must be one that this algorithm has made"):
        return getattr(state, name)


class Scored(Algorithm[S]):
    """Abstract base of algorithms that score points one by one.

    They choose the point of the best score. The score of a point depends on the belief about this point alone, because the kernel of
    :mod:`jaxbandit.fused` computes it point by point. A subclass defines :meth:`score` and overrides other methods as needed. Its state
    stores one posterior.

    Attributes:
      estimator: the exploration strategy, if :meth:`estimate` uses one.
    """

    estimator: Strategy

    on_boxes = True

    @property
    def on_contexts(self) -> bool:
        return True

    def estimate(self, arena: Arena, state: S, t: Array, key: Key) -> Estimate:
        """Return the estimates of round ``t``, by default the strategy's."""
        return self.estimator.estimate(arena.belief(state), t, key)

    def shared(self, arena: Arena, state: S, estimate: Estimate) -> S:
        """Return the state with quantities that this round's scores share.

        An incumbent is an example. The state after the round does not have them.
        """
        return state

    @abc.abstractmethod
    def score(self, state: S, estimate: Estimate) -> Score:
        """Return the scores ``[M]``, each from ``state`` and its point's estimates."""

    def after_choice(self, arena: Arena, state: S, estimate: Estimate, index: Array) -> S:
        """Return the state after the choice of the point at ``index``."""
        return state

    def select(self, arena: Arena, state: S, t: Array, key: Key) -> tuple[Decision, S]:
        estimate = self.estimate(arena, state, t, key)
        ready = self.shared(arena, state, estimate)
        score = self.score(ready, estimate)
        index, flags = score.choose()
        decision = Decision(index=index, widths=estimate.widths, flags=flags, draws=estimate.draws)
        if isinstance(arena.surrogate.domain, Box):
            return self._refined(arena, state, ready, t, key, score, decision)
        return decision, self.after_choice(arena, state, estimate, index)

    def _refined(self, arena: Arena, state: S, ready: S, t: Array, key: Key, score: Score, found: Decision) -> tuple[Decision, S]:
        """Return the decision for the ascents' best point, and its state."""
        box = cast(Box, arena.surrogate.domain)

        def look(points: Array) -> tuple[Score, Estimate]:
            estimate = self.estimate(replace(arena, points=points), state, t, key)
            return self.score(ready, estimate), estimate

        points, best, estimate = best_of_box(box, arena.belief(state).pool, score, look, in_one=arena.runs_seldom)
        index, placed = self.place(arena, state, points[best])
        # The index M marks a NaN score.
        index = jnp.where(found.index == arena.size, found.index, index)
        return replace(found, index=index, point=points[best]), self.after_choice(arena, placed, estimate, best)
