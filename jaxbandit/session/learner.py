"""Learner of a session, in the rounds of :mod:`jaxbandit.engine.learner`.

A round begins when a point is asked for and ends at the next request. Values told in between arrive at its end, as in a simulation.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import ndtri

from jaxbandit.algorithms.base import Observation, Seen
from jaxbandit.core.declare import Array
from jaxbandit.core.pytree import replace
from jaxbandit.core.status import Status, healthy
from jaxbandit.domains import Box, Contextual, Domain
from jaxbandit.engine import learner
from jaxbandit.engine.trial import Setting, Surprises
from jaxbandit.feedback import DelayedSurrogate, Pending
from jaxbandit.feedback.learner import BESIDE
from jaxbandit.numerics.improvement import log_feasibility
from jaxbandit.rules.scores import Score, best_of_box
from jaxbandit.session.axes import Place, Spot
from jaxbandit.surrogates import Prediction, arithmetic
from jaxbandit.surrogates.boxes.pool import with_next
from jaxbandit.surrogates.boxes.posterior import Noting

# Number in the rounds of an output that is -1 for a run with values and 1 for a failed run.
RAN = -1
# Points of a box closer than this share of its sides differ by rounding only.
SAME = 1e-5
Seeing: TypeAlias = Callable[[int, float], float]
"""Function from the number of a modelled function and a value of it to the value that the model sees."""
Told: TypeAlias = tuple[int, Place, Mapping[int, float]]
"""A point, and values of modelled functions there by number."""


class Selection(NamedTuple):
    """Chosen point with the algorithm's flags and its state after the choice."""

    point: int
    place: Place
    status: Status
    after: object


class CourseState(NamedTuple):
    """Learner's state, delayed feedback and count of unlikely values between two rounds."""

    state: object
    pending: Pending | None
    far: Surprises


@jax.jit
def _start(setting: Setting, indices: Array, values: Array, count: Array, places: Array | None = None) -> CourseState:
    """Return the state before round 1, given ``count`` known points.

    These are the first of ``indices [n]`` with ``values [n, k]``, on a box at ``places [n, d]`` of the unit cube.
    """
    algorithm, arena, delays, noting = setting.algorithm, setting.arena, setting.delays, None
    # On a box the model conditions on more than 64 known points at once, because 1000 points in turn take a minute.
    if places is not None and len(indices) > 64 and not algorithm.traits.refits:
        noting = Noting(surrogate=arena.surrogate, places=places)
        arena = replace(arena, surrogate=noting)

    def learn(row: Array, state: object) -> object:
        if places is not None and noting is None:
            state = _placed(setting, state, indices[row], places[row])
        return algorithm.learn(arena, state, Observation(index=indices[row], values=values[row]))

    state = algorithm.init(arena)
    if len(indices):
        state = jax.lax.fori_loop(0, count, learn, state)
        if noting is not None:
            notes = algorithm.posterior(state)
            belief = noting.read(notes)
            state = jax.tree.map(lambda part: belief if part is notes else part, state, is_leaf=lambda part: part is notes)
        state = algorithm.begin(setting.arena, state)
    pending = None if delays is None else Pending.empty(delays.capacity, arena.surrogate.outputs, arena.dtype)
    return CourseState(state, pending, _far(setting, indices, values))


def _placed(setting: Setting, state: Any, index: Array, place: Array) -> object:
    """Return the state with ``place [d]`` stored as point number ``index``."""
    state = with_next(state, index - setting.arena.surrogate.domain.size)
    return setting.algorithm.place(setting.arena, state, place)[1]


def _far(setting: Setting, indices: Array, values: Array) -> Surprises:
    """Count the unlikely among ``values [n, k]``, with NaN for missing values."""
    each = jax.vmap(functools.partial(learner.surprises_at, setting.arena.surrogate.model))(indices, values)
    counts: Surprises = jax.tree.map(lambda which: jnp.sum(which, axis=0, dtype=jnp.int32), each)
    return counts


@jax.jit
def _choose(
    setting: Setting,
    far: Surprises,
    t: Array,
    index: Array | None,
    allowed: Array | None,
    context: Array | None,
    state: object,
    under_way: Array | None = None,
    attempt: Array | None = None,
) -> Any:
    """Return the choice of round ``t`` and the state after it.

    The choice is point and status, ``[2]`` (int32), and on a box the place ``[d]`` of point ``index``. Each ``attempt`` has its own random
    numbers; with delayed feedback, points ``under_way [M]`` look worst in it. Points ``allowed [M]`` (default: all) may be certified.
    The choice is among the actions of ``context []``, if there is one.
    """
    algorithm, arena, key = setting.algorithm, replace(setting.arena, runs_seldom=True), learner.policy_key(setting.key, t)
    if allowed is not None:
        algorithm = algorithm.with_facts(allowed=allowed)
    if index is not None:
        state = with_next(state, index - arena.surrogate.domain.size)
    if attempt is not None:
        key = jax.random.fold_in(key, attempt)
        if isinstance(arena.surrogate, DelayedSurrogate):
            arena = replace(arena, surrogate=replace(arena.surrogate, under_way=under_way))
    choice = learner.choose_point(algorithm, arena, state, t, key, context)
    raised = learner.faults(arena, choice, choice.state, learner.may_be_infinite(algorithm.init(arena)))
    raised |= learner.far_from_prior(algorithm, arena.surrogate.model, far)
    status = learner.with_flags(learner.flags_raised(algorithm, choice.decision, choice.state), raised)
    return jnp.stack([choice.point, status]), choice.decision.point, choice.state


@jax.jit
def _end(setting: Setting, carry: CourseState, t: Array, index: Array, values: Array, place: Array | None = None) -> CourseState:
    """Return the state after round ``t`` at point ``index``.

    On a box it is ``place [d]``. ``values [C, k]`` (NaN if missing) arrive from the last ``C`` rounds; without delays ``C`` is 1.
    """
    algorithm, arena, pending = setting.algorithm, setting.arena, carry.pending
    # The journal has the place, so reruns make the same state.
    if place is not None:
        carry = carry._replace(state=_placed(setting, carry.state, index, place))
    if pending is None:
        seen: Seen = Observation(index=index, values=values[0])
        far = _far(setting, index[None], values)
    else:
        pending, seen = pending.received(t, index, values, ~jnp.isnan(values))
        far = _far(setting, pending.indices, values)
    state = algorithm.update(arena, carry.state, seen, t)
    # Only the session's beliefs need this: the algorithm uses no posterior.
    if not algorithm.traits.learns:
        state = algorithm.learn(arena, state, seen)
    return CourseState(state, pending, jax.tree.map(jnp.add, carry.far, far))


@jax.jit
def _predict(setting: Setting, state: object, place: Array | None = None) -> Prediction:
    """Return mean and deviation ``[k, M]``, or ``[k, 1]`` at a place."""
    belief = setting.algorithm.belief(setting.arena, state)
    return belief.arrived if place is None else belief.at(place[None]).arrived


@jax.jit
def _best(setting: Setting, state: object, level: Array) -> Array:
    """Return the feasible place ``[d]`` of a box with the best mean.

    A place counts as feasible if the logarithm of its probability of feasibility is at least ``level``. If no place is feasible, return the
    one that is most likely to be feasible.
    """
    belief = setting.algorithm.belief(setting.arena, state)
    assert isinstance(belief.domain, Box)
    # XLA would compile this quantile once for each loop of the ascents.
    required = _quantile(level)

    def score(believed: Prediction) -> Score:
        costs, sd = believed.mean[1:], believed.sd[1:]
        logarithm = log_feasibility(costs, sd)
        lacks = logarithm < level
        # The excess counts standard deviations and scales them by the largest, so that for one constraint it is as smooth as the mean.
        excess = (required - _quantile(logarithm)) * jnp.max(sd, axis=0, initial=0)
        fine = jnp.where(lacks, -jnp.inf, believed.mean[0])
        return Score(fine, flags=((lacks, Status.OK),), otherwise=logarithm, limited=(believed.mean[0], excess[None]))

    points, best, _ = best_of_box(
        belief.domain, belief.pool, score(belief.arrived), lambda points: (score(belief.at(points).arrived), None)
    )
    return points[best]


def _quantile(logarithm: Array) -> Array:
    """Return the normal quantile of a log-probability, approximate below exp(-30)."""
    small = -30.0
    inner = jnp.clip(logarithm, small, -float(jnp.finfo(logarithm.dtype).eps))
    still = jax.lax.stop_gradient(inner)
    exact = ndtri(jnp.exp(still))
    # The slope is the probability divided by the normal density. Derivatives of JAX's polynomials would take long to compile.
    slope = jnp.exp(still + jnp.square(exact) / 2 + math.log(2 * math.pi) / 2)
    return exact + slope * (inner - still) + math.sqrt(-2 * small) - jnp.sqrt(-2 * jnp.minimum(logarithm, small))


@dataclasses.dataclass
class PendingRound:
    """Point or context of a round, arguments of its choice, and arrivals."""

    index: int = 0
    place: Place = ()
    under_way: Sequence[Spot] = ()
    failed: Sequence[Spot] = ()
    allowed: np.ndarray | None = None  # [M], None for all
    # Values by round and output.
    arrivals: dict[tuple[int, int], float] = dataclasses.field(default_factory=dict)


def is_among(domain: Domain, spot: Spot, others: Sequence[Spot], within: float = BESIDE) -> bool:
    """Return whether a point is (on a box: nearly) among others."""
    if not isinstance(domain, Box):
        return spot[0] in {index for index, _ in others}
    return bool(others) and bool(np.any(domain.are_near(np.asarray([place for _, place in others]), np.asarray(spot[1]), within)))


def _is_made(status: int) -> bool:
    """Return whether the flags allow the choice."""
    return bool(healthy(np.asarray(int(status))))


def room_for(count: int) -> int:
    """Return ``count`` rounded up, so that few programs are compiled."""
    return max(16, 1 << (count - 1).bit_length()) if count else 0


class Course:
    """Rounds of a session, with the learner's state computed when needed."""

    def __init__(
        self, make: Callable[[], Setting], seen: Seeing = lambda _, value: value, undelayed: Callable[[], Setting] | None = None
    ) -> None:
        # The last round has not ended.
        self.rounds: list[PendingRound] = []
        self._known: list[Told] = []
        self.readable: Callable[[Place], Place] = tuple
        # Values of a round come before the next round if this is true.
        self.at_once = False
        self.learn_under(make, seen, undelayed)

    def learn_under(
        self, make: Callable[[], Setting], seen: Seeing, undelayed: Callable[[], Setting] | None = None, *, learns_runs: bool = False
    ) -> None:
        """Rerun all rounds, when needed, with another setting and ``seen``.

        As long as no value is late, ``undelayed`` makes the setting. If it ``learns_runs``, the last output of the setting is whether runs
        failed.
        """
        self._make, self._seen, self._undelayed, self._learns_runs = make, seen, undelayed, learns_runs
        self._setting: Setting | None = None
        self._play_anew()

    @property
    def setting(self) -> Setting:
        """Everything that stays the same from round to round."""
        if self._setting is None:
            self._setting = self._make() if self._undelayed is None else self._undelayed()
        return self._setting

    def _look_for_late_values(self, rounds: int) -> None:
        """Rerun all rounds if a value of the first ``rounds`` was late."""
        # A value of whether the run gave values comes with the last value.
        known = all(RAN in values for *_, values in self._known)
        ended = (
            (t, RAN) in one.arrivals and all(number == t for number, _ in one.arrivals) for t, one in enumerate(self.rounds[:rounds], 1)
        )
        if self._undelayed is not None and not (known and all(ended)):
            self._undelayed = self._setting = None
            self._play_anew()

    def _play_anew(self) -> None:
        """Rerun all rounds when they are next needed."""
        # `_carry` is the state after round `_played`, `_after` the state after the last choice, and `_now` the result of `latest`.
        self._carry: CourseState | None = None
        self._played = 0
        self._after: object = None
        self._now: CourseState | None = None

    def begin(self, known: list[Told]) -> None:
        """Replace the points and values that are known before round 1."""
        if known != self._known:
            self._known = known
            self._play_anew()

    def choose(self, asked: PendingRound, before: CourseState | None = None) -> Selection:
        """Return the choice of the next round for :meth:`asked`.

        On a box the point gets the number ``asked.index`` and a ``readable`` place. A rerun gives the state ``before`` its round.
        """
        if before is None:
            self._look_for_late_values(len(self.rounds))
        carry, t = (self.latest(), len(self.rounds) + 1) if before is None else (before, self._played + 1)
        setting, domain = self.setting, self.setting.arena.domain
        own = np.int32(asked.index) if isinstance(domain, Box) else None
        context = np.int32(asked.index // domain.actions) if isinstance(domain, Contextual) else None

        def attempt(*more: object) -> Selection:
            with self._arithmetic():
                chosen, place, after = _choose(setting, carry.far, np.int32(t), own, asked.allowed, context, carry.state, *more)
            point, status = np.asarray(chosen).tolist()
            there = () if place is None else tuple(np.asarray(place, np.float64).tolist())
            return Selection(point, self.readable(there) if there and _is_made(status) else there, Status(status), after)

        def repeats(chosen: Selection) -> tuple[bool, bool]:
            is_late, spot = isinstance(setting.arena.surrogate, DelayedSurrogate), Spot(*chosen[:2])
            return is_among(domain, spot, asked.failed), is_late and is_among(domain, spot, asked.under_way, SAME)

        best = first = attempt()
        mask = np.isin(np.arange(setting.arena.size), [number for number, _ in (*asked.under_way, *asked.failed)])
        for number in range(1, 4):
            if not any(repeats(best)):
                break
            other = attempt(mask, np.int32(number))
            if _is_made(other.status) and repeats(other) < repeats(best):
                # Keep the first status, because in a further attempt points under way only look bad.
                best = other._replace(status=first.status)
        return best

    def asked(self, begun: PendingRound, after: object = None) -> None:
        """Begin the next round, with the state ``after`` :meth:`choose` if just made."""
        if after is not None:
            self._carry, self._played = self._now, len(self.rounds)
        self.rounds.append(begun)
        self._after, self._now = after, None

    def tell(self, number: int, values: Mapping[int, float]) -> None:
        """Add ``values``, by output, of round ``number`` to the arrivals."""
        self.rounds[-1].arrivals |= {(number, output): value for output, value in values.items()}
        self._now = None

    def correct(self, number: int, values: Mapping[int, float]) -> None:
        """Replace arrived values of round ``number`` by ``values``."""
        for one in self.rounds:
            one.arrivals |= {(number, output): value for output, value in values.items() if (number, output) in one.arrivals}
        self._play_anew()

    def withdraw(self, number: int) -> None:
        """Forget that the run of round ``number`` failed."""
        for one in self.rounds:
            one.arrivals.pop((number, RAN), None)
        self._play_anew()

    def without(self, spots: Sequence[Spot]) -> Course:
        """Return the course without the asking of some points."""
        course, numbers = Course(self._make), dict[int, int]()
        course.learn_under(self._make, self._seen, self._undelayed, learns_runs=self._learns_runs)
        course.readable = self.readable
        course.begin([one for one in self._known if one[:2] not in spots])
        for number, one in enumerate(self.rounds, start=1):
            if (one.index, one.place) not in spots:
                numbers[number] = len(numbers) + 1
                course.asked(dataclasses.replace(one, arrivals={}))
            for (of, output), value in one.arrivals.items():
                if of in numbers:
                    course.tell(numbers[of], {output: value})
        return course

    def take_back(self) -> None:
        """Remove the last round. Call it only without delays."""
        self.rounds.pop()
        self._after = self._now = None

    @property
    def complete(self) -> bool:
        """Return whether all values for the next choice have arrived."""
        can_be_late = self._undelayed is not None or self.setting.delays is not None
        return not self.rounds or (can_be_late and not self.at_once) or self._has_all_values

    @property
    def _has_all_values(self) -> bool:
        """Return whether all values of the last round have arrived in it."""
        arrivals, number = self.rounds[-1].arrivals.keys(), len(self.rounds)
        return (number, RAN) in arrivals if self._learns_runs else len(arrivals - {(number, RAN)}) == self.setting.arena.surrogate.outputs

    def latest(self) -> CourseState:
        """Return the state as if the last round, if complete, ended now."""
        if self._now is None:
            self._look_for_late_values(len(self.rounds) - 1)
            self._carry = self._carry or self.start()
            with self._arithmetic():
                while self._played < len(self.rounds) - 1:
                    self._carry, self._played = self._ended(self._carry), self._played + 1
                ends = self._played < len(self.rounds) and (self._has_all_values if self._undelayed else self.complete)
                self._now = self._ended(self._carry) if ends else self._carry
        return self._now

    def start(self) -> CourseState:
        """Return the state before round 1, or raise the algorithm's error."""
        arena, count = self.setting.arena, len(self._known)
        points, rows = np.zeros(room_for(count), np.int32), np.full((room_for(count), arena.surrogate.outputs), np.nan, arena.dtype)
        box = arena.surrogate.domain if isinstance(arena.surrogate.domain, Box) else None
        places = None if box is None or not count else np.full((len(points), box.dimension), 0.5, arena.dtype)
        for number, (index, place, values) in enumerate(self._known):
            points[number] = index
            if places is not None:
                places[number] = place
            for output, value in values.items():
                if output != RAN or self._learns_runs:
                    rows[number, output] = self._seen(output, value)
        with self._arithmetic():
            return _start(self.setting, points, rows, np.int32(count), places)

    def _ended(self, carry: CourseState) -> CourseState:
        """Return the state after the round that follows ``carry``."""
        arena, t, ended = self.setting.arena, np.int32(self._played + 1), self.rounds[self._played]
        if self._after is not None:
            carry = carry._replace(state=self._after)
        elif self.choosing_matters:
            carry = carry._replace(state=self.choose(ended, carry).after)
        room = 1 if carry.pending is None else len(carry.pending.values)
        values = np.full((room, arena.surrogate.outputs), np.nan, arena.dtype)
        for (number, output), value in ended.arrivals.items():
            # The buffer has no row for an earlier round.
            if number > t - room and (output != RAN or self._learns_runs):
                values[(number - 1) % room, output] = self._seen(output, value)
        place = np.asarray(ended.place, arena.dtype) if ended.place else None
        return _end(self.setting, carry, t, np.int32(ended.index), values, place)

    @functools.cached_property
    def choosing_matters(self) -> bool:
        """Return whether choices change the algorithm's state, so reruns repeat them."""
        state, _, far = jax.eval_shape(self.start)
        domain = self.setting.arena.surrogate.domain
        is_box, context = isinstance(domain, Box), np.int32(0) if isinstance(domain, Contextual) else None
        # A choice has the same arguments, so JAX traces it once.
        with self._arithmetic():
            graph = _choose.trace(self.setting, far, np.int32(1), np.int32(0) if is_box else None, None, context, state).jaxpr.jaxpr
        leaves, held = jax.tree.leaves(state), self.setting.algorithm.posterior(state)
        # On a box the end of a round stores the place in the belief, so this change does not matter.
        placed = {id(leaf) for leaf in jax.tree.leaves(held)} if is_box else set()
        before, after = graph.invars[-len(leaves) :], graph.outvars[-len(leaves) :]
        return any(x is not y for x, y, leaf in zip(before, after, leaves, strict=True) if id(leaf) not in placed)

    def predict(self, place: Place = ()) -> Prediction:
        """Return mean and deviation ``[k, M]``, or ``[k, 1]`` at a place."""
        # An undelayed state lacks the place of a round that has not ended.
        if not place:
            self._look_for_late_values(len(self.rounds))
        at = np.asarray(place, self.setting.arena.dtype) if place else None
        with self._arithmetic():
            return jax.tree.map(np.asarray, _predict(self.setting, self.latest().state, at))

    def best(self, probability: float) -> Place:
        """Return the place of best mean that is feasible with a probability."""
        dtype = self.setting.arena.dtype
        level = np.log(np.maximum(np.asarray(probability, dtype), np.finfo(dtype).tiny))
        with self._arithmetic():
            return tuple(np.asarray(_best(self.setting, self.latest().state, level), np.float64).tolist())

    def _arithmetic(self) -> contextlib.AbstractContextManager[bool]:
        """Return the context for the precision of the model."""
        return arithmetic([self.setting.arena.surrogate.model.precision])
