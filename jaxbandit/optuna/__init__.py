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
from jaxbandit.domains import MOST_POINTS
from jaxbandit.domains.regions import limits_of
from jaxbandit.feedback import Policy
from jaxbandit.host.cache import enable_unless_chosen
from jaxbandit.problems.data import Constraint, Objective
from jaxbandit.session import Axis, Model, Session, SessionError, Specification
from jaxbandit.session.axes import LARGEST_TOLD, BoxSpace, Place, Space, Spot
from jaxbandit.session.journal import Unwritten
from jaxbandit.session.learner import SAME, is_among
from jaxbandit.session.quantities import Outputs

__all__ = ["Sampler", "export"]
__dir__ = __all__.copy

MAX_GRID_POINTS = 10_000
OBJECTIVE = "objective"

optuna_storage = Check(
    "a storage of Optuna, the URL of a database, or the path of a file", lambda value: isinstance(value, BaseStorage) or path.takes(value)
)
SearchSpace: TypeAlias = dict[str, BaseDistribution]
Point: TypeAlias = int | Place
"""A point of a grid by its number, or of a box by its place."""
Most: TypeAlias = Annotated[int, whole(2, MOST_POINTS)]
"""Largest number of points of an axis."""


@dataclasses.dataclass(frozen=True)
class Move:
    """Start of a trial at a point, or its end with values."""

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
        space: Annotated[
            Mapping[str, BaseDistribution],
            Check(
                "a mapping from names of parameters to distributions of Optuna",
                lambda value: (
                    isinstance(value, Mapping) and len(value) > 0 and all(isinstance(one, BaseDistribution) for one in value.values())
                ),
            ),
        ]
        | None = None,
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
            self._parameters(self._varied).space(self._such_that, self._given)
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
        parameters = self._parameters(search_space)
        told = {other.number: {} if other.state == TrialState.FAIL else self._told(other) for other in others if other.state.is_finished()}
        outputs = self._outputs(study.direction, sorted({name for values in told.values() for name in values} - {OBJECTIVE}))
        told = _in_range(outputs, told)
        with self._mutex:
            parts = self._designed
            if parts is None or (parts.space.axes, parts.outputs) != (parameters.axes, outputs):
                own = parameters.space(self._such_that, self._given)
                parts = self._designed = Specification(space=own, outputs=outputs, **self._parts)
                design = parts.design_points()
                self._first = [parameters.in_steps(own, point) if isinstance(point, tuple) else point for point in design]
                self._session = None
            moves = _moves(others, trial, parameters, parts.space, told)
            running = {move.number for move in moves if move.values is None} - told.keys()
            if parts.at_once and running:
                words = f"needs the values of trial {min(running)} first; run one worker, and fail a trial whose worker is dead"
                raise SessionError(f"sampler: {type(parts.algorithm).__name__} {words}")
            return parameters.outward(self._chosen(parts, parameters, [*moves, Move(trial.number)]))

    def sample_independent(self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution) -> Any:
        """Return a uniform value, drawn by key, trial number and parameter name."""
        self._raise_error_if_multi_objective(study)
        if self._given is not None and self._given.get(param_name, param_distribution) != param_distribution:
            words = f"parameter {param_name} must be suggested as {self._given[param_name]}, got {param_distribution}"
            raise InvalidArgument(f"space: {words}")
        if param_distribution.single():
            only: Any = param_distribution
            return only.choices[0] if isinstance(only, CategoricalDistribution) else only.low
        parameters = self._parameters({param_name: param_distribution})
        entropy = [*np.ravel(jax.random.key_data(typed(self._parts["key"]))).tolist(), trial.number, *param_name.encode()]
        rng, space = np.random.default_rng(entropy), Space.of(list(parameters.axes))
        is_box = isinstance(space, BoxSpace)
        drawn = space.point(space.readable([rng.uniform()]) if is_box else int(rng.integers(space.size)))
        return parameters.outward(drawn)[param_name]

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
            found = self._outputs(study.direction, ()).excess(told)
        if any(map(math.isnan, found)):
            raise InvalidArgument(f"constraints: must be numbers, got {short(found)} of trial {trial.number}")
        as_optuna_keeps(found, study, trial)

    @property
    def _varied(self) -> SearchSpace:
        """The given distributions of more than one value."""
        return {name: distribution for name, distribution in (self._given or {}).items() if not distribution.single()}

    def _parameters(self, search_space: SearchSpace) -> StudyParameters:
        return StudyParameters(search_space, self._points, continuous=self._continuous)

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
            return Spot(0, point) if isinstance(point, tuple) else Spot(point)

        known = [spot(point) for point in begun if point is not None]
        unused = [own for own in self._first if not is_among(space.domain, spot(own), known, SAME)]
        design = []
        for own, point in itertools.zip_longest(self._first, begun[: len(self._first)]):
            if point is None:
                point = own if own in unused or not unused else unused[0]
                unused = [other for other in unused if other != point]
            design.append(point)
        return design

    def _chosen(self, parts: Specification, parameters: StudyParameters, moves: list[Move]) -> Mapping[str, Any]:
        """Return the point of the last move, a trial's start."""
        # Continue the stored session if its moves come first, else start anew. A move that raises an error leaves no session.
        first = self._design([move.point for move in moves if move.values is None], parts.space)
        session, made, self._session = self._session, self._made, None
        goes_on = len(made) < len(moves) and all(map(Move.fits, moves, made))
        if session is None or not goes_on or list(session._state.design) != first:
            session, made = Session(Unwritten(parts.table()), parts), []
            session._state.design = first
            session._state.course.readable = lambda place: parameters.in_steps(parts.space, place)
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


def _moves(
    others: Sequence[FrozenTrial], asking: FrozenTrial, parameters: StudyParameters, own: Space, told: Mapping[int, Any]
) -> list[Move]:
    """Return the moves before a trial asks for its point, in order.

    Trials start in the order of their numbers. The session chooses the point of an earlier trial without a stored point, as the trial's
    worker does at the same time. A later trial without a stored point is left out, because its worker will know the point of this trial.
    """
    begun, space = list[tuple[FrozenTrial, Point | None]](), parameters.distributions
    for trial in sorted(others, key=lambda trial: trial.number):
        known = trial.params if trial.state.is_finished() else {**trial.params, **trial.system_attrs.get("fixed_params", {})}
        is_of_space = all(trial.distributions.get(name, distribution) == distribution for name, distribution in space.items())
        if trial.state == TrialState.WAITING or not is_of_space:
            continue
        if space.keys() <= known.keys():
            point = parameters.inward(known)
            begun.append((trial, own.place(point) or own.nearest(point)))
        elif trial.state == TrialState.RUNNING and trial.number < asking.number:
            begun.append((trial, None))

    def seconds(time: datetime.datetime | None) -> float:
        assert time is not None, "a trial that has begun, or ended, has a time"
        return time.timestamp()

    moves = [((place, 0.0), Move(trial.number, point)) for place, (trial, point) in enumerate(begun)]
    starts = np.maximum.accumulate(np.asarray([seconds(trial.datetime_start) for trial, _ in begun]))
    for place, (trial, _) in enumerate(begun):
        if trial.state.is_finished():
            end = seconds(trial.datetime_complete)
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


@dataclasses.dataclass(frozen=True)
class StudyParameter:
    """Parameter of a study by name, with Optuna's distribution."""

    name: str
    distribution: Any

    @property
    def is_categorical(self) -> bool:
        return isinstance(self.distribution, CategoricalDistribution)

    @property
    def has_steps(self) -> bool:
        """Return whether an axis has the numbers of steps as values."""
        return not self.is_categorical and self.distribution.step is not None and not self.distribution.log

    @property
    def count(self) -> float:
        """Number of values."""
        if self.is_categorical:
            return len(self.distribution.choices)
        extent, step = self.distribution.high - self.distribution.low, self.distribution.step
        return math.inf if step is None else 1 + round(extent / step)

    @property
    def last_step(self) -> int:
        """Number of the last step, exactly for whole values."""
        extent, step = self.distribution.high - self.distribution.low, self.distribution.step or 1
        return int(extent // step) if isinstance(self.distribution, IntDistribution) else round(extent / step)

    @property
    def side(self) -> Axis:
        """Side of a box: categories, few steps, or an interval."""
        if self.is_categorical or (self.has_steps and self.count <= MAX_GRID_POINTS):
            return self.axis(MAX_GRID_POINTS)
        low, high = (0, self.last_step) if self.has_steps else (self.distribution.low, self.distribution.high)
        return Axis.between(self.label, low, high, scale=self.scale)

    @property
    def label(self) -> str:
        """Name of the axis."""
        return f"parameter {self.name}"

    @property
    def scale(self) -> str:
        """Scale of a numeric axis."""
        return "logarithmic" if self.distribution.log else "linear"

    def axis(self, most: int) -> Axis:
        """Return an axis of categories, or ``most`` values or step numbers."""
        own = self.distribution
        if self.is_categorical:
            texts = [f"{place}: {choice}" for place, choice in enumerate(own.choices)]
            return Axis.of_categories(self.label, [text if label.takes(text) else ascii(text) for text in texts])
        if own.step is None:
            return Axis.between(self.label, own.low, own.high, most, self.scale)
        if own.log:
            few = self.count <= most
            numbers = np.arange(own.low, own.high + 1) if few else np.geomspace(own.low, own.high, most).round().astype(int)
            return Axis(self.label, tuple(np.unique(numbers).tolist()), self.scale)
        spaced = np.linspace(0, self.last_step, min(most, self.last_step + 1))
        return Axis(self.label, tuple(sorted({round(number) for number in spaced.tolist()})))

    def inward(self, axis: Axis, value: Any) -> Any:
        """Return the value on the axis of the parameter's value."""
        if self.is_categorical:
            return axis.values[int(self.distribution.to_internal_repr(value))]
        low, *_, high = axis.values
        if self.has_steps:
            value = round((value - self.distribution.low) / (self.distribution.step or 1))
        # Enqueued values may be outside.
        return min(max(value, low), high)

    def outward(self, axis: Axis, value: Any) -> Any:
        """Return the parameter's value, in steps, from the axis's value."""
        own = self.distribution
        if self.is_categorical:
            return own.choices[axis.values.index(value)]
        if not self.has_steps:
            return min(max(round(value), own.low), own.high) if isinstance(own, IntDistribution) else value
        value = min(own.low + (own.step or 1) * round(value), own.high)
        # Rounding to 14 digits removes the rounding error of the sum.
        return value if isinstance(own, IntDistribution) else float(f"{value:.14g}")


class StudyParameters:
    """Parameters of a study, as sides of a box or axes."""

    def __init__(self, distributions: SearchSpace, points: Most | Mapping[str, Most] | None = None, *, continuous: bool) -> None:
        self.distributions, self.own = distributions, [StudyParameter(*pair) for pair in distributions.items()]
        is_large = math.prod(one.count for one in self.own) > MAX_GRID_POINTS
        self.is_box = continuous and (
            any(isinstance(each, FloatDistribution) and each.step is None for each in distributions.values())
            or (is_large and not all(one.is_categorical for one in self.own))
        )
        if self.is_box:
            self.axes = tuple(one.side for one in self.own)
            return
        asked = points if isinstance(points, Mapping) else dict.fromkeys(distributions, points)

        def made(most: int) -> tuple[Axis, ...]:
            return tuple(one.axis(asked.get(one.name) or (min(most, 50) if math.isinf(one.count) else most)) for one in self.own)

        def size(most: int) -> int:
            return math.prod(len(axis.values) for axis in made(most))

        # The largest number of values of an axis that keeps the grid within its limit.
        most = bisect.bisect_right(range(3, MAX_GRID_POINTS + 1), MAX_GRID_POINTS, key=size) + 2
        if size(most) > MOST_POINTS:
            words = f"give fewer than {short(points)} for each axis, or less parameters"
            raise InvalidArgument(f"points: a grid of {size(most):,} points is more than {MOST_POINTS:,}; {words}")
        self.axes = made(most)

    def inward(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a point by axis from the values of parameters."""
        return {axis.name: one.inward(axis, values[one.name]) for one, axis in zip(self.own, self.axes, strict=True)}

    def outward(self, point: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of parameters from a point by axis."""
        return {one.name: one.outward(axis, point[axis.name]) for one, axis in zip(self.own, self.axes, strict=True)}

    def in_steps(self, space: Space, place: Place) -> Place:
        """Return the place after rounding parameters to steps and few digits."""
        return space.place(self.inward(self.outward(space.point(space.readable(place)))))

    def space(self, such_that: Sequence[str] = (), given: Mapping[str, BaseDistribution] | None = None) -> Space:
        """Return the axes' space within constraints on ``given`` parameters."""
        limits = self._limits(such_that, given or {})
        return BoxSpace.of_axes(self.axes, limits) if self.is_box else Space.of(list(self.axes), limits)

    def _limits(self, such_that: Sequence[str], given: Mapping[str, BaseDistribution]) -> list[str]:
        """Return constraints on parameters as constraints on axes."""
        found, axes = [], dict(zip(self.distributions, self.axes, strict=True))
        for limit in limits_of(such_that, list(given)):
            terms, bound = list[str](), limit.bound
            for (name, distribution), factor in zip(given.items(), limit.factors, strict=True):
                one = StudyParameter(name, distribution)
                if not factor:
                    continue
                if one.is_categorical:
                    raise InvalidArgument(f"{limit.where}: {name} has categories, which have no sums")
                if (axis := axes.get(name)) is None:
                    # The parameter has a single value.
                    bound -= factor * one.distribution.low
                    continue
                if axis.continuous and one.distribution.step is not None:
                    raise InvalidArgument(f"{limit.where}: {name} is rounded after the choice; give it fewer steps, on a linear scale")
                if one.has_steps:
                    bound, factor = bound - factor * one.distribution.low, factor * (one.distribution.step or 1)
                terms.append(f"{factor!r} * {axis.name}")
            if not terms:
                raise InvalidArgument(f"{limit.where}: must name a parameter of several values")
            found.append(f"{' + '.join(terms)} {'=' if limit.is_equality else '<='} {bound!r}")
        return found


def as_optuna_keeps(excess: list[float], study: Study | None = None, trial: FrozenTrial | None = None) -> dict[str, Any]:
    """Return constraint values in Optuna's form, stored in a running ``trial``."""
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

    def distribution(axis: str, column: np.ndarray) -> BaseDistribution:
        if column.dtype.kind == "U":
            return CategoricalDistribution(list(dict.fromkeys(column.tolist())))
        kind = IntDistribution if column.dtype.kind == "i" else FloatDistribution
        return kind(column.min().item(), column.max().item(), log=space.is_logarithmic(axis))

    def local(time: str) -> datetime.datetime:
        # Optuna stores local times without a zone.
        return datetime.datetime.fromisoformat(time).astimezone().replace(tzinfo=None)

    distributions = {axis: distribution(axis, space.columns[axis]) for axis in space.names}
    with session._current() as state:
        records = list(state.records.values())
    for record in records:
        excess = outputs.excess(record.values)
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
        trial.datetime_start, trial.datetime_complete = local(began), None
        if trial.state.is_finished():
            trial.datetime_complete = local(record.told_at or began)
        study.add_trial(trial)
    return study
