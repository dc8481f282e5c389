"""Sessions of real experiments: ask for points, tell values."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self, TypeAlias, overload

import jax
import numpy as np

from jaxbandit.algorithms import Algorithm
from jaxbandit.core.checks import InvalidArgument, check_not_forked, naming, short
from jaxbandit.core.codec import digest, to_fields
from jaxbandit.core.declare import FilePath, checked
from jaxbandit.core.doors import either, setting, warn
from jaxbandit.core.fields import Check, boolean, nonnegative_numbers, of_class, path, scalar, whole
from jaxbandit.core.status import Status, explain, healthy, status_in_words
from jaxbandit.delays import Delay
from jaxbandit.domains import Domain
from jaxbandit.domains.regions import Constraints, SuchThat
from jaxbandit.engine import InitialDesign
from jaxbandit.feedback import Policy
from jaxbandit.host.cache import enable_unless_chosen
from jaxbandit.host.memory import Programs
from jaxbandit.session.axes import LARGEST_TOLD, Axis, Place
from jaxbandit.session.guarantee import check_prior, fitted_once, seeded_by
from jaxbandit.session.history import History, HistoryRow, Names, OffGrid, OutsideOf, check_placed, rows_of
from jaxbandit.session.journal import WAIT, Body, DamagedSession, SessionError, Unwritten, create_journal, open_journal
from jaxbandit.session.models import fitted, fitted_in_units, standard_of, unlikely, warn_of_constraints_that_held
from jaxbandit.session.quantities import told_values
from jaxbandit.session.replay import LEARNER, Record, State, Ticket, spot_of
from jaxbandit.session.settled import Settled
from jaxbandit.session.similar import means_of
from jaxbandit.session.specification import Specification, seeds_option
from jaxbandit.session.views import Reading, Recommendation
from jaxbandit.study.runs import Model

Context: TypeAlias = Mapping[str, float | str] | None
"""Values of the contexts by name, ``None`` in a session without contexts."""


SIMILAR = Check(
    "a session or its directory, or a list, each item text, a path or a session",
    lambda value: all(isinstance(one, Session) or path.takes(one) for one in _listed(value)),
)


def _listed(similar: Any) -> Sequence[Any]:
    """Return similar sessions as a list."""
    return similar if isinstance(similar, list | tuple) else [similar]


class DeclaredInfeasible(UserWarning):
    """Warning that the algorithm has declared the constraints infeasible.

    It continues where they are violated least.
    """


class Session(Reading):
    """A real experiment, driven by the algorithms that simulations run.

    :meth:`create` begins a session and :meth:`open` continues it. Values may be told late, in parts and in any order. A call returns after
    its changes are in the journal on the disk, so a session survives a crash. Several threads and several processes of a machine may use a
    session: a call that changes it locks it, and every call sees all earlier changes. A session is a context manager that closes itself.

    A round begins when :meth:`ask` returns its point and ends at the next :meth:`ask`. Values told in between arrive at its end, as in a
    simulation. With a simulation's model (in the outputs' units), feedback policy and key, a session makes the choices of the simulation's
    trial 0, except that it does not ask again for points under way.

    The journal needs a local disk, because machines cannot share SQLite's write-ahead log. They can share a study of Optuna, see
    :class:`jaxbandit.optuna.Sampler`.

    Attributes:
      directory: directory of the journal.
      specification: the session's domain, outputs, algorithm, model and options.
    """

    def __new__(cls, *parts: Any, **others: Any) -> Self:
        """Return an uninitialised session for :meth:`create` or :meth:`open`."""
        if others or len(parts) != 2 or not isinstance(parts[1], Specification):
            raise TypeError("Session: Session.create(directory, domain, key=0) begins a session, Session.open(directory) goes on with one")
        return super().__new__(cls)

    @classmethod
    def create(
        cls,
        directory: str | Path | None,
        domain: Domain | Sequence[Axis] | Mapping[str, Any],
        algorithm: Algorithm | None = None,
        model: Model | None = None,
        *,
        key: jax.Array | int,
        objective: str = "maximise reward",
        constraints: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
        such_that: Sequence[SuchThat] = (),
        horizon: int = 1000,
        delay: Delay | None = None,
        feedback: Policy | None = None,
        initial: InitialDesign | None = None,
        capacity: int | None = None,
        fit_every: int | None = None,
        standardise: bool | None = None,
        seeds: Sequence[Mapping[str, float | str]] | None = None,
        max_step: Mapping[str, float] | None = None,
        history: History | None = None,
        off_grid: str = "refuse",
        outside: str = "refuse",
        ignore: Sequence[str] = (),
        similar: Session | str | Path | Sequence[Session | str | Path] = (),
    ) -> Session:
        """Begin a session with its journal in a directory or in memory.

        Args:
          directory: directory of the journal, created if missing. ``None`` for a session that ends with the process.
          domain: the ``M`` points to choose among: a domain; a list of :class:`Axis` in the user's own units, scaled to ``[0, 1]`` for the
            model; or an argument of :func:`domains.box <jaxbandit.domains.box>` such as ``{"dose": (0.1, 2.0)}``.
          algorithm: any algorithm that needs no full information; default constrained expected improvement, ``Cei(augmented=True)``.
          model: the GP model of the outputs; lists in it have an entry for each output, the objective first. Default: a Matern-5/2 kernel
            with a length-scale for each axis. Its hyper-parameters, noise and mean are fitted after the initial design, and again after
            four more complete tickets (above forty tickets, after a tenth more).
          key: a JAX PRNG key (``jax.random.key(seed)``).
          objective: ``"maximise NAME"`` or ``"minimise NAME"``.
          constraints: ``"NAME <= c"``, ``"NAME >= c"``, both for one output, or ``"NAME = c +- tolerance"`` for each further output.
          units: units of outputs by name, such as ``{"yield": "%"}``. An :class:`Axis` has its own unit.
          such_that: constraints that all points satisfy, as for :func:`domains.box <jaxbandit.domains.box>`: texts such as ``"a + b <= 1"``
            by the names of the axes, in their units, or functions of axes by name that are ``<= 0`` where points are allowed.
          horizon: largest number of rounds ``T``.
          delay: how late values arrive. With ``NoDelay()`` one run is under way at a time, and its values are told before the next
            :meth:`ask`. Default: unknown, with any number of runs under way.
          feedback: how the learner treats points under way, a policy of :mod:`jaxbandit.feedback`; default ``Hallucinate()``.
          initial: points to measure before round 1. Default without a model: ``2 (d + 1)`` points of a Sobol sequence, at most ten; on a
            box the last point nearly repeats the first, to show the noise. Default with a model: no points, or the seeds of an algorithm
            that certifies points. All these points may be under way at once.
          capacity: rounds after which a value is too late to be used; default ``horizon``.
          fit_every: completed tickets after which :meth:`ask` fits the model's hyper-parameters to all values. Default with a model: never.
            See :meth:`fit`.
          standardise: whether the model describes standardised outputs (mean 0, variance 1). They are standardised anew whenever the number
            of complete tickets has doubled. If false, the model is in the outputs' own units, as is a list of prior means; a single number
            is the objective's prior mean, and each constraint's is its bound. Default: true, unless the algorithm certifies points.
          seeds: points known to be safe, in the user's units, such as ``[{"dose": 0.5}]``, where an algorithm that certifies points begins;
            the algorithm's own ``seeds`` are numbers of points. Rows of ``history`` whose measured constraints all hold are seeds, too.
          max_step: largest step of an algorithm that certifies points, by axis and in the user's units, such as ``{"temperature": 5}``.
            Each point asked for, except seeds, is that close on all these axes to a point whose measured constraints all hold.
          history, off_grid, outside, ignore: earlier measurements, as for :meth:`tell_all`; enough rows replace the default of ``initial``.
          similar: a session, its directory, or a list of them, with the same axes and some of the same outputs. The prior mean of an output
            is then a multiple of its posterior mean there; the values show which multiple, 0 for a mean that misleads. The default initial
            design has half of the points. The journal stores the means, so that the other session is not needed any more.

        SafeOpt, StageOpt and SGP-UCB certify points: they ask only for seeds and for points whose constraints hold with certainty under the
        model. The guarantee is as good as the model's prior of the constraints, so the session keeps this prior. It is the prior of a
        ``model`` in the outputs' own units. Without ``model`` a cautious prior is fitted once, to the values before round 1, and a warning
        states its assumptions. Options that would void the guarantee raise InvalidArgument.

        Raises:
          InvalidArgument: if an argument is out of range or two arguments do not fit each other.
          SessionError: if the directory has a session already or cannot be written to.
        """
        specification = Specification.of(
            domain, algorithm, model=model, key=key, objective=objective, constraints=constraints, units=units, such_that=such_that,
            horizon=horizon, delay=delay, feedback=feedback, initial=initial, capacity=capacity, fit_every=fit_every,
            standardise=standardise, seeds=seeds, max_step=max_step,
        )  # fmt: skip
        return cls.begin(directory, specification, history, off_grid=off_grid, outside=outside, ignore=ignore, similar=similar)

    @classmethod
    @checked
    def begin(
        cls,
        directory: FilePath | None,
        specification: Specification,
        history: History | None = None,
        *,
        off_grid: OffGrid = "refuse",
        outside: OutsideOf = "refuse",
        ignore: Names = (),
        similar: Annotated[object, SIMILAR] = (),
    ) -> Session:
        """Begin a session of a specification, otherwise like :meth:`create`."""
        check_not_forked()
        enable_unless_chosen()
        means = []
        for one in _listed(similar):
            with naming("similar"), contextlib.ExitStack() as stack:
                other = one if isinstance(one, Session) else stack.enter_context(cls.open(one, read_only=True))
                means.append(means_of(specification, other.specification, other.columns()))
        if means:
            specification = dataclasses.replace(specification, similar=means)
        specification.outputs.check_measured(specification.space.names)
        # A ticket in these rows belongs to another session.
        rows = [] if history is None else rows_of(history, specification, ignore, outside)
        check_placed(rows, specification.space, off_grid, "history")
        further = [("observed", HistoryRow.observed(1, rows, specification.space.size))] if rows else []
        if specification.is_guarded:
            specification = seeded_by(specification, rows)
        if specification.initial is None and 0 < specification.design.count <= sum(row.is_whole(specification.outputs) for row in rows):
            specification = dataclasses.replace(specification, initial=InitialDesign())
        # Raise the algorithm's errors before the journal is written.
        specification.check_start(*specification.first)
        if specification.is_guarded and specification.algorithm.traits.seeds is None:
            words = "takes the points that the model believes safest, which guarantees nothing"
            raise InvalidArgument(
                f"seeds: must be known in a session; give {seeds_option()}, or a history that has some, for count=n {words}"
            )
        written = specification.table(), further
        session = cls(Unwritten(*written) if directory is None else create_journal(Path(directory), *written), specification)
        with session._claimed():
            session._keep_up()
        return session

    @classmethod
    @checked
    def open(
        cls,
        directory: FilePath,
        *,
        algorithm: Algorithm | None = None,
        such_that: Constraints | None = None,
        read_only: bool = False,
        wait: Annotated[float, nonnegative_numbers, scalar] = WAIT,
    ) -> Session:
        """Continue the session of a directory.

        Args:
          directory: directory of the journal.
          algorithm: the session's algorithm. Only an algorithm of your own class is required here.
          such_that: the session's constraints on points. They are required here only if a function is among them.
          read_only: whether the session may only be read; others may still change it.
          wait: seconds that each call waits for another process's call on the session; then it raises ``SessionInUse``.

        Raises:
          SessionError: if there is no session, or the directory is on a network file system.
          DamagedSession: if the file is no journal, comes from a newer version, is damaged, is an older copy, or was changed by another
            program. The command ``python -m jaxbandit session salvage`` continues with the readable part.
          InvalidArgument: if the algorithm is not the session's.
        """
        check_not_forked()
        enable_unless_chosen()
        journal = open_journal(Path(directory), read_only=read_only, wait=wait)
        try:
            specification = Specification.from_table(journal.events[0].body, algorithm, such_that)
            if algorithm is None and digest(specification.table()) != digest(journal.events[0].body):
                words = "is not what this version of jaxbandit makes of it"
                raise DamagedSession(f"directory: the specification of {journal.directory} {words}")
            session = cls(journal, specification)
            # An earlier process may have ended before a fit that was due.
            if not read_only and session._state.due(asking=False) is not None:
                with session._claimed():
                    session._keep_up()
            return session
        except BaseException:
            journal.close()
            raise

    @overload
    def ask(self, *, context: Context = None) -> Ticket: ...

    @overload
    def ask(self, *, stop: Settled, context: Context = None) -> Ticket | None: ...

    @overload
    def ask(self, count: int, *, stop: Settled | None = None, context: Context = None) -> list[Ticket]: ...

    def ask(self, count: int | None = None, *, stop: Settled | None = None, context: Context = None) -> Ticket | list[Ticket] | None:
        """Return the next point, or a list of the next ``count`` points.

        A point is under way until all its values are told, it fails or it is dropped. A session repeats a point under way only if the
        algorithm finds no other point. It never repeats the point of a failed or dropped run (on a box: a point within a thousandth of
        every side), but takes the nearest other point. The initial design is first; round 1 may begin before all its values are told. After
        the design the points to retry are first.

        Args:
          count: number of points to return as a list.
          stop: rule that ends the session. If the recommended point is good enough, the call returns ``None`` or an empty list, and the
            session's ``settlement`` has the probability. The session never ends before the initial design is complete.
          context: values of the axes with ``context=True``, as they are seen now, such as ``{"outdoors": -3}``. The point is one of this
            context, of the values of the axes that are nearest. Required with such axes.

        Warns:
          DeclaredInfeasible: if the algorithm declares that no point satisfies the constraints.

        Raises:
          InvalidArgument: unless ``count`` is a whole number >= 1, ``stop`` a :class:`~jaxbandit.session.Settled`, and ``context`` has a
            value for each context and nothing else.
          SessionError: if the horizon is reached, needed values are missing, the algorithm cannot choose, or runs at all points failed.
        """
        with self._claimed():
            if count is not None:
                whole(1)("count", count)
            here = self.specification.space.context(context)
            if stop is not None and self._is_settled(stop):
                return None if count is None else []
            if count is None:
                return self._ask(context=here)
            state, horizon = self._state, self.specification.horizon
            rounds = count - state.left_of_design
            if len(state.course.rounds) + rounds > horizon:
                left = horizon - len(state.course.rounds)
                raise SessionError(f"ask: {left} of the {horizon} rounds of the session's horizon are left, not {count}")
            if rounds > 0:
                self._check_model()
            if self.specification.at_once and rounds > 1:
                raise SessionError(f"ask: values come before the next round here; ask for one point at a time, not {count}")
            return [self._ask(context=here) for _ in range(count)]

    def _is_settled(self, rule: Settled) -> bool:
        """Return whether a rule ends the session, and record that it does."""
        of_class(Settled, Settled.described)("stop", rule)
        state = self._state
        if state.unmeasured or not state.complete:
            return False
        found = self.settled(rule.within, rule.draws)
        if found.probability < rule.probability:
            return False
        if state.settlement != found:
            self._happen("settled", {"ticket": len(state.records), **dataclasses.asdict(found)})
        return True

    def _ask(self, point: int | Place | None = None, context: int | None = None) -> Ticket:
        """Return the next ticket of a context, perhaps at a given ``point``."""
        body, status, after, state, is_ours = self._state.next(context), Status.OK, None, self._state, point is None
        before = functools.reduce(operator.or_, (record.ticket.status for record in self._state.records.values()), Status.OK)
        if body["round"] > 0:
            waiting = [ticket for ticket in self.pending if not ticket.observed]
            if self.specification.at_once and not self._state.course.rounds and waiting:
                missing = ", ".join(str(ticket.number) for ticket in waiting)
                raise SessionError(f"ask: values come before the next round here; tell or drop tickets {missing}")
            if not self._state.course.complete:
                number = max(number for number, record in self._state.records.items() if record.ticket.round)
                lacking = ", ".join(name for name in self.specification.outputs.names if name not in self._state.records[number].values)
                raise SessionError(f"ask: values come before the next round here; tell {lacking} of ticket {number}, or drop it")
            if len(self._state.course.rounds) >= self.specification.horizon:
                raise SessionError(f"ask: all {self.specification.horizon} rounds of the session's horizon have been asked for")
            self._check_model()
            self._keep_up(asking=True)
            if point is None and (again := state.to_retry(context)) is not None:
                point = again.point
            elif point is None:
                chosen = state.course.choose(state.round_at(body.get("index", state.space.in_context(0, context))))
                status, after = chosen.status, chosen.after
                point = chosen.place or chosen.point
            if not healthy(np.asarray(int(status))):
                raise SessionError(f"ask: the algorithm cannot choose: {explain(int(status))}; nothing has happened")
            if self.specification.is_guarded and status & Status.NO_SAFE_POINT:
                [line] = status_in_words(np.asarray(int(Status.NO_SAFE_POINT)))
                raise SessionError(f"ask: {line.partition(': ')[2]}; nothing has happened")
            body |= state.space.event(point)
        if is_ours:
            body |= state.space.event(state.not_failed(spot_of(body), body["round"]).point)
        self._happen("asked", body | {"status": int(status)}, after)
        # A session warns of each of these flags once.
        warned_of = Status.FAR_FROM_PRIOR | Status.SAFE_SET_STILL | Status.SEED_UNSAFE
        for line in status_in_words(np.asarray(int(status & ~before & warned_of))):
            warn(f"ask: {line.partition(': ')[2]}")
        if status & Status.DECLARED_INFEASIBLE:
            words = f"ask: {explain(int(Status.DECLARED_INFEASIBLE))} (ticket {body['ticket']})"
            warn(words, DeclaredInfeasible)
        return self._state.records[body["ticket"]].ticket

    def _check_model(self) -> None:
        """Raise ``SessionError`` if values or the prior cannot certify points."""
        state, parts = self._state, self.specification
        if not parts.is_guarded:
            return
        told = [(one.ticket.index, tuple(one.values.items())) for one in state.records.values()]
        for index, values in {*told} - self._vetted:
            check_prior(parts, dict(values), index, "ask")
        self._vetted.update(told)
        if parts.model is not None or state.fitted_at:
            return
        name = type(parts.algorithm).__name__
        if state.unmeasured:
            tickets = f"ticket{'s' if state.unmeasured[1:] else ''} {', '.join(map(str, state.unmeasured))}"
            words = "certifies points by a model that is fitted once, to the values at its seeds"
            raise SessionError(f"ask: {name} {words}; tell or drop {tickets} first")
        if not state.complete:
            raise SessionError(f"ask: no value of a seed of {name} has been told, and nothing else is known; begin with other seeds")

    def tell(
        self,
        ticket: Ticket | int,
        values: Mapping[str, float] | None = None,
        *,
        reward: float | None = None,
        constraints: float | Sequence[float | None] | None = None,
        failed: bool | str = False,
        correct: bool = False,
    ) -> None:
        """Store values measured at a ticket's point.

        Some values may be told later, and tickets in any order. Telling the same values again changes nothing.

        After the first failed run the session models whether runs give values, as a further constraint: 1 for a run with values and -1 for
        a failed run, with prior mean 1 and noise variance 0.01. The values of a failed run stay unknown, and its point is neither requested
        again nor recommended. If the algorithm certifies points, needs each round's values at once, or needs outputs that share a kernel,
        the session only avoids these points.

        Args:
          ticket: the ticket or its number.
          values: values by the names of the outputs, in their own units.
          reward: value of the objective, in place of ``values``.
          constraints: value of each constrained output in order, ``None`` for a missing value; a number for a single output.
          failed: whether the run failed and has no further values; ``"retry"`` for an accident, from which the session learns nothing and
            whose point it requests again.
          correct: whether to replace earlier values and to undo a drop or a failure; the learner reruns with the new values in their place.

        Raises:
          InvalidArgument: if the ticket or a name is unknown, a value is not a finite number, the number of values is wrong, or a
            failed run has values.
          SessionError: if values differ from earlier values, or the ticket was dropped or failed, unless ``correct``; if a complete or
            failed ticket fails.
        """
        with self._claimed():
            record = self._state.record(ticket)
            boolean("correct", correct)
            if failed is not False:
                if failed is not True and failed != "retry":
                    raise InvalidArgument(f"failed: must be True, False or 'retry', got {short(failed)}")
                if values is not None or reward is not None or constraints is not None:
                    raise InvalidArgument("failed: a run that failed has no values; tell the values that it has before, by themselves")
                self._check_failed(record, failed == "retry", correct)
                self._fail(record, failed == "retry")
                return
            given = told_values(self.specification.outputs, values, reward, constraints, LARGEST_TOLD)
            self._check_told(record, given, correct)
            self._tell(record, given)

    def _check_told(self, record: Record, given: Mapping[str, float], correct: bool) -> None:
        """Raise ``SessionError`` if :meth:`tell` must not store these values."""
        correcting = either("tell(..., correct=True)", "session tell with --correct")
        self._check_over(record, correct, correcting)
        changed = {name: value for name, value in given.items() if record.values.get(name, value) != value}
        if changed and not correct:
            before = {name: record.values[name] for name in changed}
            raise SessionError(f"ticket {record.ticket.number}: was told {short(before)}, got {short(changed)}; {correcting} replaces it")

    def _check_over(self, record: Record, correct: bool, correcting: str) -> None:
        """Raise ``SessionError`` if a run is over, unless ``correct`` undoes that."""
        number, been = record.ticket.number, "was dropped" if record.over == "dropped" else "was told that its run failed"
        is_learnt = record.over == "failed" and self._state.modelled.learns_runs
        if record.over and not is_learnt and self.specification.at_once:
            raise SessionError(f"ticket {number}: {been}, and its round repeated; its values cannot be used any more")
        if record.over and not correct:
            raise SessionError(f"ticket {number}: {been}; {correcting} takes that back")

    def _check_failed(self, record: Record, retry: bool, correct: bool) -> None:
        """Raise ``SessionError`` where a run cannot have failed, see :meth:`tell`."""
        number, before = record.ticket.number, record.state
        if before == "complete":
            raise SessionError(f"ticket {number}: cannot have failed, all its values have been told")
        if before == ("retry" if retry else "failed"):
            raise SessionError(f"ticket {number}: was told before that its run failed")
        self._check_over(record, correct, either("tell(..., correct=True)", "session fail with --correct"))

    def _fail(self, record: Record, retry: bool = False) -> None:
        """Let a run fail that can have failed."""
        if not (retry or self.specification.with_runs or self._state.failed):
            kind = type(self.specification.algorithm).__name__
            warn(f"tell: with {kind} this session learns nothing from runs that fail, but that their points are not asked for again")
        self._keep_up()
        self._happen("failed", {"ticket": record.ticket.number, "retry": retry})
        self._keep_up()

    def _tell(self, record: Record, given: Mapping[str, float]) -> None:
        """Store checked values of a ticket."""
        number, new = record.ticket.number, {name: value for name, value in given.items() if name not in record.values}
        changed = {name: value for name, value in given.items() if record.values.get(name, value) != value}
        self._keep_up()
        if new or record.over:
            self._warn_of_units(record.ticket.index, new)
            self._happen("told", {"ticket": number, "values": new})
        if changed:
            self._happen("corrected", {"ticket": number, "values": changed})
        self._keep_up()

    @checked
    def observe(
        self, point: Mapping[str, float | str], values: Mapping[str, float] | None = None, *, off_grid: OffGrid = "refuse"
    ) -> Ticket:
        """Store values measured at a point that was not asked for.

        The learner conditions on them before round 1; they count as no round.

        Args:
          point: the point by the names of its coordinates, in the user's units.
          values: values by the names of the outputs; missing ones are under way until :meth:`tell`. ``None`` for a run under way.
          off_grid: treatment of a point outside the domain: ``"refuse"``, or ``"round"`` to take the nearest point of the domain and warn
            of the distance. A point beyond the ends of an axis is always refused.

        Returns:
          A ticket. The session's history includes it, and :meth:`tell` completes and corrects its values.

        Raises:
          InvalidArgument: if the point lacks coordinates or is outside the domain, or for values as :meth:`tell` does.
        """
        with self._claimed():
            parts = self.specification
            row = HistoryRow.of(self._state.space, parts.outputs, point, values)
            check_placed([row], parts.space, off_grid, "point")
            return self._observed([row])[0]

    @checked
    def tell_all(
        self, history: History, *, off_grid: OffGrid = "refuse", outside: OutsideOf = "refuse", ignore: Names = (), correct: bool = False
    ) -> tuple[Ticket, ...]:
        """Store all rows of a table of measurements.

        A row with a number in a column ``ticket`` is passed to :meth:`tell`, another row to :meth:`observe`. In a new session enough rows
        replace the default initial design, as the ``history`` of :meth:`create` does. The session's own table,
        ``history().to_dataframe().reset_index()``, is accepted with its blanks filled in.

        Args:
          history: a ``pandas.DataFrame``, a mapping from names to columns, or the path of a CSV file. Each coordinate has a column (rows
            with a ticket need no coordinates), and so have outputs, blank (or n/a, NA, -) for a missing value. The column ``failed`` may
            mark failed runs, which have no values. The names of columns may have units, as in the session's tables and figures. A file
            separated by semicolons or tabs may have decimal commas.
          off_grid: as for :meth:`observe`.
          outside: treatment of a row with a point beyond the ends of an axis, ``"refuse"`` or ``"drop"``.
          ignore: names of other columns, such as dates and remarks.
          correct: as for :meth:`tell`.

        Returns:
          The tickets with new values.

        Raises:
          InvalidArgument: if a file cannot be read, columns are missing or unknown, or an entry cannot be used; then no row is stored.
          SessionError: as :meth:`tell` does, and if the same rows without tickets were stored before.
        """
        with self._claimed():
            known = {number: record.ticket.index for number, record in self._state.records.items()}
            rows = rows_of(history, self.specification, ignore, outside, known, self._state.space)
            asked = [(self._state.record(row.ticket), row.values) for row in rows if row.ticket is not None]
            mine = [(record, values) for record, values in asked if not values.items() <= record.values.items()]
            for record, values in mine:
                self._check_told(record, values, correct)
            failed = {row.ticket: self._state.record(row.ticket) for row in rows if row.failed and row.ticket is not None}
            failed = {number: record for number, record in failed.items() if record.over != "failed"}
            for record in failed.values():
                self._check_failed(record, False, correct)
            others = [row for row in rows if row.ticket is None]
            check_placed(others, self.specification.space, off_grid, "history")
            for event in self._journal.events if others else ():
                before = event.body["rows"] if event.kind == "observed" else []
                # Points of a box had the numbers of that time.
                if before and before == HistoryRow.observed(0, others, before[0]["index"])["rows"]:
                    first, last = event.body["ticket"], event.body["ticket"] + len(before) - 1
                    which = f"tickets {first} to {last}" if last > first else f"ticket {first}"
                    raise SessionError(f"history: these rows were told before, as {which}")
            further = self._observed(others) if others else ()
            for record, values in mine:
                self._tell(record, values)
            for record in failed.values():
                self._fail(record)
            return (*(record.ticket for record, _ in mine), *(record.ticket for record in failed.values()), *further)

    def _observed(self, rows: Sequence[HistoryRow]) -> tuple[Ticket, ...]:
        self._keep_up()
        number, parts = len(self._state.records) + 1, self.specification
        body = HistoryRow.observed(number, rows, self._state.space.size)
        if (
            number == 1
            and 0 < parts.design.count <= sum(row.is_whole(parts.outputs) for row in rows)
            and parts.design_is_default
            and not parts.is_guarded
        ):
            body |= {"initial": 0}
        self._happen("observed", body)
        self._warn_of_units(self._state.records[number].ticket.index, rows[0].values)
        self._keep_up()
        return tuple(self._state.records[number + place].ticket for place in range(len(rows)))

    def drop(self, ticket: Ticket | int) -> None:
        """Mark a ticket's run as never made.

        Dropping it again changes nothing. A failed run is told by :meth:`tell`, and the session learns from it. The session neither asks
        for nor recommends its point until ``tell(..., correct=True)`` undoes the drop. If the session has no delays, the round is repeated;
        otherwise its missing values never arrive.

        Raises:
          InvalidArgument: if the ticket is unknown.
          SessionError: if the ticket is complete or its run failed.
        """
        with self._claimed():
            record = self._state.record(ticket)
            if record.state in ("complete", "failed", "retry"):
                why = "it was told that its run failed" if record.over else "all its values have been told"
                raise SessionError(f"ticket {record.ticket.number}: cannot be dropped, {why}")
            if not record.over:
                self._happen("dropped", {"ticket": record.ticket.number})

    def fit(self) -> Model:
        """Fit the model's hyper-parameters to all values and return the new model.

        The session standardises the outputs anew and gives each output the kernel, noise variance and prior mean of greatest posterior
        density, see :func:`jaxbandit.surrogates.fit`. The priors keep a handful of points from making a length-scale tiny or huge. A
        variance is fitted if the kernel has one, such as ``Scale``. The learner then runs all rounds again under the fitted model, with the
        points that were asked for.

        Returns:
          The model of the standardised outputs; ``belief`` is in their own units.

        Warns:
          UserWarning: if a hyper-parameter ends at a bound of its search, or if no value violates a constraint at the first fit.

        Raises:
          SessionError: if no value has been told, or the algorithm certifies points.
        """
        with self._claimed():
            if self.specification.is_guarded:
                raise SessionError(
                    f"fit: {type(self.specification.algorithm).__name__} certifies points by the model's prior, which a fit would replace;"
                    " begin another session from this one's history with the model that you then believe"
                )
            return self._fit(refit=True)

    def _fit(self, *, refit: bool) -> Model:
        """Standardise outputs, perhaps ``refit`` the model, and rerun the learner."""
        state, parts = self._state, self.specification
        given = state.modelled.outputs, state.space, self.model
        told = state.told
        body: dict[str, object] = {"told": state.complete}
        if parts.schema == 1:
            body |= {"model": fitted_in_units(*given, told).table()}
        elif parts.is_guarded:
            model, standard = fitted_once(parts, told)
            body |= {"model": model.table(), **to_fields(standard, "standard")}
        elif refit or state.standard is None:
            model, standard = fitted(*given, state.standard, told, shared=parts.algorithm.traits.joint_arrival)
            body |= {"model": model.table(), **to_fields(standard, "standard"), "learner": LEARNER}
            if not state.fitted_at:
                warn_of_constraints_that_held(parts.outputs, told)
        else:
            body |= to_fields(standard_of(state.modelled.outputs, told, state.standard), "standard")
        has_changed = state.fitted_at and body.get("learner", state.learner) != state.learner
        self._happen("fitted", body)
        if has_changed:
            warn(f"fit: {self._change_of_learner()}; all points and values stay as they are")
        return self.model

    def _keep_up(self, *, asking: bool = False) -> None:
        """Fit the model or standardise outputs, if that is due."""
        refit = self._state.due(asking=asking)
        if refit is not None:
            self._fit(refit=refit)

    def _warn_of_units(self, index: int, new: Mapping[str, float]) -> None:
        """Warn if an output's first value is unlikely under an unstandardised prior."""
        state = self._state
        if state.standard is not None:
            return
        seen = {name for other in state.records.values() for name in other.values}
        first = {name: value for name, value in new.items() if name not in seen}
        for name, away in unlikely(state.modelled.outputs, state.space, state.model, first, index).items():
            remedy = f"leave the model out, or say {setting('standardise', True)} with one of standardised outputs"
            if self.specification.is_guarded:
                remedy = "begin another session with a model whose prior_mean and variance are in the outputs' units"
            words = f"is {away:.3g} prior deviations from the prior mean of a model in the outputs' units; {remedy}"
            warn(f"tell: {name} = {new[name]:g} {words}")

    @contextlib.contextmanager
    def _claimed(self) -> Iterator[State]:
        """Yield the current state and lock the session until the block ends."""
        check_not_forked()
        Programs.bound()
        with self._mutex, self._journal.claim():
            self._state.follow(self._journal)
            yield self._state

    def _happen(self, kind: str, body: Body, after: object = None) -> None:
        """Append an event to the journal and apply it."""
        self._state.enter(self._journal.append(kind, body), after)


__all__ = ["DeclaredInfeasible", "Recommendation", "Session"]
