"""Sampler for Optuna's studies, and export of sessions to Optuna.

With :class:`Sampler` algorithms of this library choose the points of a study, and :func:`export` writes the tickets of a session as trials.
Both need the extras ``optuna`` and ``study`` (``pip install "jaxbandit[optuna,study]"``).
"""

from __future__ import annotations

import bisect
import dataclasses
import datetime
import itertools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import jax
import numpy as np
from optuna import Study, create_study
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import DuplicatedStudyError
from optuna.samplers import BaseSampler
from optuna.search_space import intersection_search_space
from optuna.storages import BaseStorage, JournalStorage, get_storage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from jaxbandit.algorithms import Algorithm
from jaxbandit.core.checks import InvalidArgument, blaming, did_you_mean, short
from jaxbandit.core.declare import KeyOrSeed, checked
from jaxbandit.core.fields import Check, Rounds, Words, each, exactly, function, label, numbers, path, text, whole
from jaxbandit.core.keys import typed
from jaxbandit.delays import Delay
from jaxbandit.domains import MOST_POINTS, box
from jaxbandit.domains.regions import limits_of
from jaxbandit.feedback import Policy
from jaxbandit.host.cache import enable_unless_chosen
from jaxbandit.problems.data import Constraint, Objective
from jaxbandit.session import Axis, Model, Session, SessionError, Specification
from jaxbandit.session.axes import LARGEST_TOLD, Place, Space
from jaxbandit.session.journal import Unwritten
from jaxbandit.session.learner import SAME, Spot, is_among
from jaxbandit.session.quantities import Outputs

__all__ = ["Sampler", "export"]
__dir__ = __all__.copy

MAX_GRID_POINTS = 10_000
OBJECTIVE = "objective"

optuna_storage = Check(
    "a storage of Optuna, the URL of a database, or the path of a file", lambda value: isinstance(value, BaseStorage) or path.takes(value)
)
distributions_by_name = Check(
    "a mapping from names of parameters to distributions of Optuna",
    lambda value: isinstance(value, Mapping) and len(value) > 0 and all(isinstance(each, BaseDistribution) for each in value.values()),
)
SearchSpace: TypeAlias = dict[str, BaseDistribution]
Point: TypeAlias = int | Place
"""A point of a grid by its number, or of a box by its place."""
Most: TypeAlias = Annotated[int, whole(2, MOST_POINTS)]
"""Largest number of points of an axis."""


@dataclasses.dataclass(frozen=True)
class Move:
    """Start or end of a trial of Optuna.

    A start has a ``point``, an end has ``values`` or a failure.
    """

    number: int
    point: Point | None = None
    values: Mapping[str, float] | None = None
    failed: bool = False

    def fits(self, made: Move) -> bool:
        """Return whether this move equals ``made``, apart from an unknown point."""
        return self == (made if self.point is not None else dataclasses.replace(made, point=None))


class Sampler(BaseSampler):
    """Sampler of Optuna that chooses points by an algorithm of this library.

    A trial is a round of a session: its values arrive when it ends, and running trials are pending. A failed trial is a failed run, and its
    point is not chosen again; a pruned trial only has values of constraints. An infinite value of a complete trial counts as the worst, or
    the best, finite value so far. Each choice follows from the trials of the study and the arguments of the sampler, so that each of many
    workers may have its own sampler, and a study goes on after a crash. A trial whose worker was killed stays pending until
    ``study.tell(number, state=TrialState.FAIL)`` is called, as the heartbeat of an RDB storage does by itself.

    The parameters are a box if one of them is a number without a step, or if their values make more than 10,000 points. Categories and
    parameters with at most 10,000 steps are discrete sides of the box; parameters with more steps, and integers on a logarithmic scale, are
    continuous sides, rounded afterwards. Otherwise, for an algorithm or a model without boxes, and with ``points``, the parameters are a
    grid, evenly spaced on their own scales and in their steps; a trial off the grid counts at the nearest point. The first trial, and
    parameters that some complete trials lack, such as parameters under a condition, are drawn uniformly and independently. Without a model
    the first trials are the initial design of the session.
    """

    @checked
    def __init__(
        self,
        algorithm: Algorithm,
        model: Annotated[Model, Words("the model of a session, study.Model(...)")] | None = None,
        *,
        key: KeyOrSeed,
        constraints: Annotated[Sequence[str] | Callable[[FrozenTrial], Sequence[float]], function("(trial)") | each(text)] | None = None,
        points: Most | Mapping[str, Most] | None = None,
        such_that: Annotated[Sequence[str], each(text)] = (),
        space: Annotated[Mapping[str, BaseDistribution], distributions_by_name] | None = None,
        horizon: Rounds = 1000,
        delay: Delay | None = None,
        feedback: Policy | None = None,
    ) -> None:
        """Make a sampler.

        Args:
          algorithm: any algorithm that needs no full information. If it needs the values of a round before the next, use one worker.
          model: the GP model of objective and constraints, as for :meth:`Session.create <jaxbandit.session.Session.create>`.
          key: a JAX PRNG key (``jax.random.key(seed)``), the same for all workers.
          constraints: ``"NAME <= c"``, ``"NAME >= c"``, both, or ``"NAME = c +- tolerance"`` for each, where trials set the attribute NAME
            by ``trial.set_user_attr``; or a function of a trial that returns values, ``<= 0`` for satisfied constraints. Both are stored
            for Optuna and its dashboard. Default: the constraints that trials set by ``trial.set_constraint``, in the order of names.
          points: most points of every axis of a grid, or of axes by name; default: a box, or a grid of at most 10,000 points with at most
            50 values of a number without a step.
          such_that: linear constraints that the parameters of all suggestions satisfy, such as ``"x + 2 * y <= 1"``, by their names and in
            their units. They need ``space``, because Optuna names the parameters one by one.
          space: distributions of the parameters by name, which every trial must suggest as they are. The first trial then is of the initial
            design, too.
          horizon: most trials.
          delay: model of the delays of values, as for :meth:`Session.create <jaxbandit.session.Session.create>`.
          feedback: policy for the missing values of running trials; default: as for a session.

        Raises:
          InvalidArgument: on arguments that are out of range or do not fit each other.
        """
        self._constraints: Any = constraints
        if constraints is not None and not callable(constraints):
            self._constraints = Outputs.read(f"maximise {OBJECTIVE}", constraints).constraints
            if any(constraint.name == OBJECTIVE for constraint in self._constraints):
                raise InvalidArgument(f"constraints: must be of attributes with other names than {OBJECTIVE!r}, got {short(constraints)}")
        if such_that and space is None:
            raise InvalidArgument("such_that: needs space, the distributions of all parameters by name, got None")
        self._such_that, self._given = tuple(such_that), None if space is None else {name: space[name] for name in sorted(space)}
        self._points, self._mutex = points, threading.Lock()
        self._parts: dict[str, Any] = {"algorithm": algorithm, "model": model, "key": key, "horizon": horizon}
        self._parts |= {"delay": delay, "feedback": feedback}
        self._continuous = points is None and algorithm.on_boxes and (model is None or model.on_boxes)
        # Raise the errors of constraints before the first trial.
        if such_that:
            self._space(self._varied)
        self._designed: Specification | None = None
        self._first: list[Point] = []
        self._session: Session | None = None
        self._made: list[Move] = []

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> SearchSpace:
        """Return the given distributions, or those common to complete and pruned trials.

        Without such trials it returns the distributions of the failed trial that has the most.
        """
        self._raise_error_if_multi_objective(study)
        if self._given is not None:
            return self._varied
        trials = study.get_trials(deepcopy=False)
        shared = intersection_search_space(trials, include_pruned=True)
        if not any(other.state in (TrialState.COMPLETE, TrialState.PRUNED) for other in trials):
            shared = max((other.distributions for other in trials if other.state == TrialState.FAIL), key=len, default={})
        return {name: shared[name] for name in sorted(shared) if not shared[name].single()}

    def sample_relative(self, study: Study, trial: FrozenTrial, search_space: SearchSpace) -> dict[str, Any]:
        """Return the algorithm's point, with warnings and errors of ``Session.ask``."""
        if not search_space:
            return {}
        enable_unless_chosen()
        others = [other for other in study.get_trials(deepcopy=False) if other.number != trial.number]
        # A later trial may suggest an unknown name, unless it is misspelt.
        if isinstance(self._points, Mapping):
            known = {name for other in others for name in other.distributions}
            for name in self._points.keys() - known:
                if words := did_you_mean(name, known - self._points.keys()):
                    raise InvalidArgument(f"points: no trial has a parameter {name!r}{words}")
        axes = _axes(search_space, self._points, continuous=self._continuous)
        told = {other.number: {} if other.state == TrialState.FAIL else self._told(other) for other in others if other.state.is_finished()}
        outputs = self._outputs(study.direction, sorted({name for values in told.values() for name in values} - {OBJECTIVE}))
        told = _in_range(outputs, told)
        with self._mutex:
            parts = self._designed
            if parts is None or (parts.space.axes, parts.outputs) != (axes, outputs):
                own = self._space(search_space)
                parts = self._designed = Specification(space=own, outputs=outputs, **self._parts)
                design = parts.design_points()
                self._first = [_in_steps(search_space, parts.space, point) if isinstance(point, tuple) else point for point in design]
                self._session = None
            moves = _moves(others, trial, search_space, parts.space, told)
            running = {move.number for move in moves if move.values is None} - told.keys()
            if parts.at_once and running:
                words = f"needs the values of trial {min(running)} first; run one worker, and fail a trial whose worker is dead"
                raise SessionError(f"sampler: {type(parts.algorithm).__name__} {words}")
            point = self._chosen(parts, search_space, [*moves, Move(trial.number)])
        return {name: _external(search_space[name], axis, point[axis.name]) for name, axis in zip(search_space, axes, strict=True)}

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution) -> Any:
        """Return a uniform value, drawn by key, trial number and parameter name."""
        self._raise_error_if_multi_objective(study)
        if self._given is not None and self._given.get(param_name, param_distribution) != param_distribution:
            words = f"parameter {param_name} must be suggested as {self._given[param_name]}, got {param_distribution}"
            raise InvalidArgument(f"space: {words}")
        if param_distribution.single():
            only: Any = param_distribution
            return only.choices[0] if isinstance(only, CategoricalDistribution) else only.low
        [axis] = _axes({param_name: param_distribution}, self._points, continuous=self._continuous)
        entropy = [*np.ravel(jax.random.key_data(typed(self._parts["key"]))).tolist(), trial.number, *param_name.encode()]
        rng, space = np.random.default_rng(entropy), Space.of([axis])
        drawn = space.point_at(space.readable([rng.uniform()])) if axis.continuous else space.point(int(rng.integers(space.size)))
        return _external(param_distribution, axis, drawn[axis.name])

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        """Store the constraint values of a trial for Optuna."""
        if self._constraints is None or state not in (TrialState.COMPLETE, TrialState.PRUNED):
            return
        if callable(self._constraints):
            given = self._constraints(trial)
            numbers.of(exactly(None, words="one number for each constraint"))("constraints(trial)", given)
            found = np.asarray(given, np.float64).tolist()
        else:
            told = self._told(trial)
            missing = [constraint.name for constraint in self._constraints if constraint.name not in told]
            if missing and state == TrialState.COMPLETE:
                words = f"say trial.set_user_attr({missing[0]!r}, value) before it ends"
                raise InvalidArgument(f"constraints: trial {trial.number} has no number {', '.join(missing)}; {words}")
            found = excess_of(self._outputs(study.direction, ()), told)
        if any(map(math.isnan, found)):
            raise InvalidArgument(f"constraints: must be numbers, got {short(found)} of trial {trial.number}")
        as_optuna_keeps(found, study, trial)

    @property
    def _varied(self) -> SearchSpace:
        """The given distributions of more than one value."""
        return {name: distribution for name, distribution in (self._given or {}).items() if not distribution.single()}

    def _space(self, search_space: SearchSpace) -> Space:
        """Return the space of parameters within the constraints."""
        axes = _axes(search_space, self._points, continuous=self._continuous)
        such_that = _in_numbers(self._such_that, self._given or {}, dict(zip(search_space, axes, strict=True)))
        return _space_of(axes, such_that, is_box=self._continuous and _is_box(search_space))

    def _told(self, trial: FrozenTrial) -> dict[str, float]:
        """Return a trial's constraint values, and a complete trial's objective, by output."""
        values: dict[str, Any]
        if isinstance(self._constraints, tuple):
            values = {constraint.name: trial.user_attrs.get(constraint.name) for constraint in self._constraints}
        else:
            # Leading zeros sort names like numbers.
            values = {f"constraint {name.zfill(4) if name.isdigit() else name}": value for name, value in trial.constraints.items()}
        if trial.state == TrialState.COMPLETE:
            values[OBJECTIVE] = trial.value
        return {name: float(value) for name, value in values.items() if isinstance(value, int | float) and not math.isnan(value)}

    def _outputs(self, direction: StudyDirection, names: Sequence[str]) -> Outputs:
        """Return the outputs, by default with constraints called ``names``."""
        known = isinstance(self._constraints, tuple)
        constraints = self._constraints if known else tuple(Constraint(name, "<=", 0.0) for name in names)
        return Outputs(Objective(OBJECTIVE, 1 if direction == StudyDirection.MAXIMIZE else -1), constraints)

    def _design(self, begun: Sequence[Point | None], space: Space) -> list[Point]:
        """Return the initial design, replacing its first points by ``begun`` points."""

        def spot(point: Point) -> Spot:
            return (0, point) if isinstance(point, tuple) else (point, ())

        known = [spot(point) for point in begun if point is not None]
        unused = [own for own in self._first if not is_among(space.domain, spot(own), known, SAME)]
        design = []
        for own, point in itertools.zip_longest(self._first, begun[: len(self._first)]):
            if point is None:
                point = own if own in unused or not unused else unused[0]
                unused = [other for other in unused if other != point]
            design.append(point)
        return design

    def _chosen(self, parts: Specification, space: SearchSpace, moves: list[Move]) -> Mapping[str, Any]:
        """Return the point of the last move, a trial's start."""
        # Continue the stored session if its moves come first, else start anew. A move that raises an error leaves no session.
        first = self._design([move.point for move in moves if move.values is None], parts.space)
        session, made, self._session = self._session, self._made, None
        goes_on = len(made) < len(moves) and all(map(Move.fits, moves, made))
        if session is None or not goes_on or list(session._state.design) != first:
            session, made = Session(Unwritten(parts.table()), parts), []
            session._state.design = first
            session._state.course.readable = lambda place: _in_steps(space, parts.space, place)
        for move in moves[len(made) :]:
            if move.values is None:
                ticket = session._ask(move.point)
                made.append(dataclasses.replace(move, point=session._state.records[ticket.number].place or ticket.index))
                continue
            number = 1 + [one.number for one in made if one.values is None].index(move.number)
            is_whole = len(move.values) == len(parts.outputs.names)
            if is_whole or (move.values and not parts.at_once):
                session.tell(number, move.values)
            if move.failed:
                session.tell(number, failed=True)
            elif not is_whole:
                session.drop(number)
            made.append(move)
        self._session, self._made = session, made
        return ticket.point


def _moves(others: Sequence[FrozenTrial], asking: FrozenTrial, space: SearchSpace, own: Space, told: Mapping[int, Any]) -> list[Move]:
    """Return the moves before a trial asks for its point, in order.

    Trials start in the order of their numbers. The session chooses the point of an earlier trial without a stored point, as the trial's
    worker does at the same time. A later trial without a stored point is left out, because its worker will know the point of this trial.
    """
    begun: list[tuple[FrozenTrial, Point | None]] = []
    for trial in sorted(others, key=lambda trial: trial.number):
        known = trial.params if trial.state.is_finished() else {**trial.params, **trial.system_attrs.get("fixed_params", {})}
        is_of_space = all(trial.distributions.get(name, distribution) == distribution for name, distribution in space.items())
        if trial.state == TrialState.WAITING or not is_of_space:
            continue
        if space.keys() <= known.keys():
            point = {axis.name: _internal(space[name], axis, known[name]) for name, axis in zip(space, own.axes, strict=True)}
            begun.append((trial, own.place(point) or own.nearest(point)))
        elif trial.state == TrialState.RUNNING and trial.number < asking.number:
            begun.append((trial, None))
    moves = [((place, 0.0), Move(trial.number, point)) for place, (trial, point) in enumerate(begun)]
    starts = np.maximum.accumulate(np.asarray([_seconds(trial.datetime_start) for trial, _ in begun]))
    for place, (trial, _) in enumerate(begun):
        if trial.state.is_finished():
            end = _seconds(trial.datetime_complete)
            # The values arrive at the end of this round.
            last = max(place, int(np.searchsorted(starts, end)) - 1)
            failed = trial.state == TrialState.FAIL
            moves.append(((last, end), Move(trial.number, values=told[trial.number], failed=failed)))
    return [move for _, move in sorted(moves, key=lambda pair: (pair[0], pair[1].number))]


def _in_range(outputs: Outputs, told: Mapping[int, Mapping[str, float]]) -> dict[int, dict[str, float]]:
    """Return the values of trials by output, with infinite values made finite.

    An infinite value of the objective becomes the worst or best finite value. An infinite value of a constraint is placed beyond the
    bounds and all finite values, by their range. Outputs without a finite value are left out.
    """
    ends: dict[str, tuple[float, float]] = {}
    for name in outputs.names:
        finite = [values[name] for values in told.values() if abs(values.get(name, math.inf)) <= LARGEST_TOLD]
        bounds = [sign * bound for constraint in outputs.constraints if constraint.name == name for sign, bound in constraint.sides]
        if finite:
            low, high = min([*finite, *bounds]), max([*finite, *bounds])
            beyond = (high - low or 1.0) if bounds else 0.0
            ends[name] = (low - beyond, high + beyond)
    return {
        number: {name: min(max(value, ends[name][0]), ends[name][1]) for name, value in values.items() if name in ends}
        for number, values in told.items()
    }


def _seconds(time: datetime.datetime | None) -> float:
    assert time is not None, "a trial that has begun, or ended, has a time"
    return time.timestamp()


def _axes(space: SearchSpace, points: Most | Mapping[str, Most] | None, *, continuous: bool) -> tuple[Axis, ...]:
    """Return the axes of parameters, as sides of a box if ``continuous``.

    Raises ``InvalidArgument`` on more points than a domain can have.
    """
    if continuous and _is_box(space):
        return tuple(_side(f"parameter {name}", distribution) for name, distribution in space.items())

    def made(most: int) -> tuple[Axis, ...]:
        asked = points if isinstance(points, Mapping) else dict.fromkeys(space, points)
        limits = {name: min(most, 50) if math.isinf(_count(each)) else most for name, each in space.items()}
        return tuple(_axis(f"parameter {name}", each, asked.get(name) or limits[name]) for name, each in space.items())

    def size(axes: tuple[Axis, ...]) -> int:
        return math.prod(len(axis.values) for axis in axes)

    # The largest number of values of an axis that keeps the grid within its limit.
    most = bisect.bisect_right(range(3, MAX_GRID_POINTS + 1), MAX_GRID_POINTS, key=lambda most: size(made(most))) + 2
    axes = made(most)
    if size(axes) > MOST_POINTS:
        words = f"give fewer than {short(points)} for each axis, or less parameters"
        raise InvalidArgument(f"points: a grid of {size(axes):,} points is more than {MOST_POINTS:,}; {words}")
    return axes


def _is_box(space: SearchSpace) -> bool:
    """Return whether parameters need a box rather than a grid."""
    return any(isinstance(each, FloatDistribution) and each.step is None for each in space.values()) or (
        not all(isinstance(each, CategoricalDistribution) for each in space.values())
        and math.prod(_count(each) for each in space.values()) > MAX_GRID_POINTS
    )


def _space_of(axes: Sequence[Axis], such_that: Sequence[str] = (), *, is_box: bool) -> Space:
    """Return the space of axes, a box even without continuous sides."""
    if not is_box:
        return Space.of(list(axes), such_that)
    limits: dict[str, Any] = {"such_that": such_that} if such_that else {}
    domain = box({axis.name: axis.side() for axis in axes}, **limits)
    return Space(domain=domain, axes=tuple(axes), names=tuple(axis.name for axis in axes), such_that=tuple(such_that))


def _in_numbers(such_that: Sequence[str], space: SearchSpace, axes: Mapping[str, Axis]) -> list[str]:
    """Return constraints on parameters as constraints on axes.

    The axes of parameters with steps have the numbers of the steps.
    """
    found = []
    for limit in limits_of(such_that, list(space)):
        terms, bound = list[str](), limit.bound
        for (name, one), factor in zip(space.items(), limit.factors, strict=True):
            if not factor:
                continue
            if isinstance(one, CategoricalDistribution):
                raise InvalidArgument(f"{limit.where}: {name} has categories, which have no sums")
            assert isinstance(one, FloatDistribution | IntDistribution)
            if (axis := axes.get(name)) is None:
                # The parameter has a single value.
                bound -= factor * one.low
                continue
            if axis.continuous and (one.step is not None or isinstance(one, IntDistribution)):
                raise InvalidArgument(f"{limit.where}: {name} is rounded after the choice; give it fewer steps, on a linear scale")
            bound, factor = (bound - factor * one.low, factor * (one.step or 1)) if _has_steps(one) else (bound, factor)
            terms.append(f"{factor!r} * {axis.name}")
        if not terms:
            raise InvalidArgument(f"{limit.where}: must name a parameter of several values")
        found.append(f"{' + '.join(terms)} {'=' if limit.is_equality else '<='} {bound!r}")
    return found


def _count(distribution: BaseDistribution) -> float:
    """Return the number of values of a distribution."""
    if isinstance(distribution, CategoricalDistribution):
        return len(distribution.choices)
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    return math.inf if distribution.step is None else 1 + round((distribution.high - distribution.low) / distribution.step)


def _side(name: str, distribution: BaseDistribution) -> Axis:
    """Return a side of a box: categories, few steps, or an interval."""
    if isinstance(distribution, FloatDistribution | IntDistribution) and (
        not _has_steps(distribution) or _count(distribution) > MAX_GRID_POINTS
    ):
        low, high = (0, _last_step(distribution)) if _has_steps(distribution) else (distribution.low, distribution.high)
        return Axis.between(name, low, high, scale="logarithmic" if distribution.log else "linear")
    return _axis(name, distribution, MAX_GRID_POINTS)


def _axis(name: str, distribution: BaseDistribution, most: int) -> Axis:
    """Return an axis of categories, or ``most`` values or step numbers."""
    if isinstance(distribution, CategoricalDistribution):
        texts = [f"{place}: {choice}" for place, choice in enumerate(distribution.choices)]
        return Axis.of_categories(name, [text if label.takes(text) else ascii(text) for text in texts])
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high, step = distribution.low, distribution.high, distribution.step
    scale = "logarithmic" if distribution.log else "linear"
    if isinstance(distribution, FloatDistribution) and step is None:
        return Axis.between(name, low, high, most, scale)
    if distribution.log:
        numbers = np.arange(low, high + 1) if _count(distribution) <= most else np.geomspace(low, high, most).round().astype(int)
        return Axis(name, tuple(np.unique(numbers).tolist()), scale)
    last = _last_step(distribution)
    return Axis(name, tuple(sorted({round(number) for number in np.linspace(0, last, min(most, last + 1)).tolist()})))


def _has_steps(distribution: FloatDistribution | IntDistribution) -> bool:
    """Return whether an axis has the numbers of steps as values."""
    return distribution.step is not None and not distribution.log


def _last_step(distribution: FloatDistribution | IntDistribution) -> int:
    """Return the number of the last step, exactly for whole values."""
    extent, step = distribution.high - distribution.low, distribution.step or 1
    return int(extent // step) if isinstance(distribution, IntDistribution) else round(extent / step)


def _internal(distribution: BaseDistribution, axis: Axis, value: Any) -> Any:
    """Return the value on an axis of a parameter's value."""
    if isinstance(distribution, CategoricalDistribution):
        return axis.values[int(distribution.to_internal_repr(value))]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, *_, high = axis.values
    if _has_steps(distribution):
        value = round((value - distribution.low) / (distribution.step or 1))
    # Enqueued values may be outside.
    return min(max(value, low), high)


def _external(distribution: BaseDistribution, axis: Axis, value: Any) -> Any:
    """Return the value of a parameter, in steps, from an axis's value."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[axis.values.index(value)]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    if isinstance(distribution, IntDistribution) and distribution.log:
        return min(max(round(value), distribution.low), distribution.high)
    if not _has_steps(distribution):
        return value
    value = min(distribution.low + (distribution.step or 1) * round(value), distribution.high)
    # Rounding to 14 digits removes the rounding error of the sum.
    return value if isinstance(distribution, IntDistribution) else float(f"{value:.14g}")


def _in_steps(space: SearchSpace, own: Space, place: Place) -> Place:
    """Return the place after rounding parameters to steps and few digits."""
    there, named = own.point_at(own.readable(place)), zip(space.items(), own.axes, strict=True)
    return own.place({axis.name: _internal(each, axis, _external(each, axis, there[axis.name])) for (_, each), axis in named})


def excess_of(outputs: Outputs, values: Mapping[str, float]) -> list[float]:
    """Return constraint values, ``<= 0`` if satisfied, two for an equality."""
    return [value for row, value in sorted(outputs.inward(values).items()) if row > 0]


def as_optuna_keeps(excess: list[float], study: Study | None = None, trial: FrozenTrial | None = None) -> dict[str, Any]:
    """Return constraint values in Optuna's form, stored in a running ``trial``.

    Optuna has no public function for it, and its dashboard shows no other form.
    """
    from optuna.samplers._base import _CONSTRAINTS_KEY

    if study is not None and trial is not None:
        study._storage.set_trial_system_attr(trial._trial_id, _CONSTRAINTS_KEY, excess)
    return {_CONSTRAINTS_KEY: excess}


@checked
def export(
    session: Annotated[Session, Words("a session, session.Session")],
    storage: Annotated[str | Path | BaseStorage, optuna_storage],
    name: Annotated[str, label] | None = None,
) -> Study:
    """Write the tickets of a session as trials of a new study.

    Complete tickets become complete trials, dropped and failed tickets failed trials, and all other tickets running trials. Values of
    outputs and the ticket's number are attributes of the trial; constraints are stored in Optuna's form if all their values are known.

    Args:
      session: the session.
      storage: a storage of Optuna, the URL of a database, or the path of a file for a journal.
      name: name of the study; default: the name of the session's directory.

    Raises:
      InvalidArgument: on a storage that cannot be opened.
      SessionError: when the storage has a study of the same name.
    """
    with blaming(f"storage: must be {optuna_storage.allowed}, got {short(storage)}"):
        if isinstance(storage, Path) or (isinstance(storage, str) and "://" not in storage):
            storage = JournalStorage(JournalFileBackend(str(storage)))
        storage = get_storage(storage)
    outputs, space = session.specification.outputs, session.specification.space
    name = session.directory.resolve().name if name is None else name
    try:
        study = create_study(storage=storage, study_name=name, direction="maximize" if outputs.objective.sign > 0 else "minimize")
    except DuplicatedStudyError as error:
        raise SessionError(f"optuna: the storage holds a study {name!r} already; choose another storage, or another name") from error
    states = {"complete": TrialState.COMPLETE} | dict.fromkeys(("dropped", "failed", "retry"), TrialState.FAIL)
    distributions = {axis: _distribution(space, axis) for axis in space.names}
    with session._current() as state:
        records = list(state.records.values())
    for record in records:
        excess = excess_of(outputs, record.values)
        trial = create_trial(
            state=states.get(record.state, TrialState.RUNNING),
            value=record.values[outputs.objective.name] if record.state == "complete" else None,
            params=dict(record.ticket.point),
            distributions=distributions,
            user_attrs={"ticket": record.ticket.number, **record.values},
            system_attrs=as_optuna_keeps(excess) if 0 < len(excess) == len(outputs.functions) - 1 else {},
        )
        # Nobody asked for a ticket that was measured before the session.
        began = record.asked_at or record.told_at or session.events[0].at
        trial.datetime_start, trial.datetime_complete = _local(began), None
        if trial.state.is_finished():
            trial.datetime_complete = _local(record.told_at or began)
        study.add_trial(trial)
    return study


def _distribution(space: Space, name: str) -> BaseDistribution:
    """Return Optuna's distribution of an axis of a session."""
    column = space.columns[name]
    if column.dtype.kind == "U":
        return CategoricalDistribution(list(dict.fromkeys(column.tolist())))
    kind = IntDistribution if column.dtype.kind == "i" else FloatDistribution
    return kind(column.min().item(), column.max().item(), log=space.is_logarithmic(name))


def _local(time: str) -> datetime.datetime:
    """Return a journal's time as Optuna stores it, local without zone."""
    return datetime.datetime.fromisoformat(time).astimezone().replace(tzinfo=None)
