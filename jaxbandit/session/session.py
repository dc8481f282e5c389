"""``Session``: a real experiment that asks for points and is told values, late, in parts and out of order, and that survives a crash."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import operator
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self, overload

import jax
import numpy as np

from jaxbandit.algorithms import Algorithm
from jaxbandit.core.checks import InvalidArgument, check_not_forked, short
from jaxbandit.core.codec import digest
from jaxbandit.core.declare import FilePath, checked
from jaxbandit.core.doors import either, setting, warn
from jaxbandit.core.fields import boolean, nonnegative_numbers, of_class, scalar, whole
from jaxbandit.core.status import Status, explain, flags_in_words, healthy
from jaxbandit.delays import Delay
from jaxbandit.domains import Box, Domain
from jaxbandit.engine import InitialDesign
from jaxbandit.engine.learner import UNLIKELY
from jaxbandit.feedback import Policy
from jaxbandit.host.cache import enable_unless_chosen
from jaxbandit.host.memory import bound_programs
from jaxbandit.session.axes import LARGEST_TOLD, Axis, Place, Space
from jaxbandit.session.guarantee import check_prior, fitted_once, seeded_by
from jaxbandit.session.history import History, HistoryRow, Names, OffGrid, OutsideOf, check_placed, observed, rows_of
from jaxbandit.session.journal import WAIT, Body, DamagedSession, SessionError, Unwritten, create_journal, open_journal
from jaxbandit.session.learner import Course
from jaxbandit.session.models import DEFAULT_ALGORITHM, deviations_of, fitted, fitted_in_units, standard_of, warn_of_constraints_that_held
from jaxbandit.session.quantities import Outputs, told_values
from jaxbandit.session.replay import LEARNER, Record, State, Ticket, spot_of
from jaxbandit.session.settled import Settled
from jaxbandit.session.specification import SEEDS, Specification, with_seeds
from jaxbandit.session.views import Reading, Recommendation
from jaxbandit.study.runs import Model

WARNED_OF = Status.FAR_FROM_PRIOR | Status.SAFE_SET_STILL | Status.SEED_UNSAFE  # once in a session, when it asks


class DeclaredInfeasible(UserWarning):
    """The algorithm has declared that no point satisfies the constraints; it goes on where they are violated least."""


class Session(Reading):
    """A real experiment, driven by the algorithms that simulations run; :meth:`create` makes one and :meth:`open` goes on with it.

    All that happens is in the session's journal, on the disk, before a call returns. A session may be used from several threads, and by
    several processes of a machine: a call that changes it holds it until it returns, and every call sees what others have done before. It
    is a context manager that closes itself. A round begins when a point is asked for and ends when the next one is; what is told in between
    arrives at its end, as in a simulation. With a simulation's model, in units, and its feedback policy, a session makes the choices of
    trial 0 of a simulation with its key, but for those of points under way, which it does not ask for again.

    The journal needs a disk of the machine's own: SQLite's write-ahead log cannot be shared between machines, which may share a study of
    Optuna instead, see :class:`jaxbandit.optuna.Sampler`.

    Attributes:
      directory: where the journal lies.
      specification: what the session is made of.
    """

    def __new__(cls, *parts: Any, **others: Any) -> Self:
        """Return a session to be initialised; :meth:`create` and :meth:`open` are the ways to one."""
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
    ) -> Session:
        """Begin a session, whose journal is written into a directory, or kept in memory.

        Args:
          directory: where to write; made unless it is there. ``None`` for a session that ends with the process.
          domain: the ``M`` points to choose among: a domain, or a list of :class:`Axis` in the user's own units, which the model sees
            scaled to ``[0, 1]``; or what :func:`domains.box <jaxbandit.domains.box>` takes, ``{"dose": (0.1, 2.0)}``.
          algorithm: any algorithm that needs no full information; default constrained expected improvement, ``Cei(augmented=True)``.
          model: the GP model of the outputs; lists in it have an entry for each output, the objective first. Default: a Matern-5/2 kernel
            with a length-scale for each axis, whose hyper-parameters, noise and mean are fitted from the initial design on, and again
            after four more complete tickets, of more than forty after a tenth more.
          key: a JAX PRNG key (``jax.random.key(seed)``).
          objective: ``"maximise NAME"`` or ``"minimise NAME"``.
          constraints: ``"NAME <= c"``, ``"NAME >= c"``, both for one output, or ``"NAME = c +- tolerance"`` for each further output.
          units: units of outputs by name, such as ``{"yield": "%"}``; those of the axes are theirs.
          horizon: most rounds ``T``.
          delay: what is known of how late values come; ``NoDelay()`` for one run at a time, whose values are told before the next is
            asked for. Default: nothing is known, and any number of runs may be under way.
          feedback: what the learner does meanwhile, a policy of :mod:`jaxbandit.feedback`; default ``Hallucinate()``, by which points
            under way count.
          initial: points to measure before round 1. Default: without a model ``2 (d + 1)`` points of a Sobol sequence, ten at most; on a
            box the last of them nearly repeats the first, which shows noise. With a model none, or the seeds of an algorithm that certifies
            points. Points may be asked for before they are told.
          capacity: rounds after which a value is too late to be used; default ``horizon``.
          fit_every: completed tickets after which the model's hyper-parameters are fitted to all that has been told, at the next
            :meth:`ask`; default never, or as said above without a model. See :meth:`fit`.
          standardise: whether the model is one of standardised outputs, which have mean 0 and variance 1; those in force are computed anew
            whenever the number of complete tickets has doubled. Else it is one of the outputs in their own units: a list of prior means is
            in these, one number is the objective's, and a constraint's is then its bound. Default: true, but for an algorithm that
            certifies points.
          seeds: points known to be safe, in the user's units, at which an algorithm that certifies points begins, ``[{"dose": 0.5}]``; its
            own ``seeds`` are numbers of points. Rows of ``history`` in which all constraints were measured to hold are seeds, too.
          max_step: of an algorithm that certifies points, how far from the measured ones it may go, by the names of axes in the user's
            units, ``{"temperature": 5}``: for every point that is asked for and is no seed there is one at which all constraints were
            measured to hold that is no further away on any of these axes.
          history, off_grid, outside, ignore: what was measured before, as for :meth:`tell_all`; enough of it replaces the default of
            ``initial``.

        SafeOpt, StageOpt and SGP-UCB certify points: they ask for none but seeds and those whose constraints hold with certainty under the
        model. That is a promise as far as the model's prior of the constraints is right, so that prior stays as it is: that of a ``model``
        in the outputs' own units or, without one, of a cautious one that is fitted once, to what is known before round 1, of which a
        warning says what it assumes. What would void the promise is refused.

        Raises:
          InvalidArgument: on any argument out of range or any two that do not fit each other.
          SessionError: where the directory holds a session already or cannot be written to.
        """
        specification = Specification(
            space=(space := Space.of(domain)),
            outputs=Outputs.read(objective, constraints, units),
            algorithm=with_seeds(DEFAULT_ALGORITHM if algorithm is None else algorithm, space, seeds),
            model=model,
            horizon=horizon,
            key=key,
            delay=delay,
            feedback=feedback,
            initial=initial,
            capacity=capacity,
            fit_every=fit_every,
            standardise=standardise,
            max_step=max_step,
        )
        return cls.begin(directory, specification, history, off_grid=off_grid, outside=outside, ignore=ignore)

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
    ) -> Session:
        """Begin a session of a specification, as a file describes it; other arguments and what it raises are those of :meth:`create`."""
        check_not_forked()
        enable_unless_chosen()
        specification.outputs.check_measured(specification.space.names)
        rows = [] if history is None else rows_of(history, specification, ignore, outside)  # whose tickets were another session's
        check_placed(rows, specification.space, off_grid, "history")
        further = [("observed", observed(1, rows))] if rows else []
        if specification.is_guarded:
            specification = seeded_by(specification, rows)
        if specification.initial is None and 0 < specification.design.count <= sum(row.is_whole(specification.outputs) for row in rows):
            specification = dataclasses.replace(specification, initial=InitialDesign())
        if isinstance(specification.space.domain, Box):
            rows = [dataclasses.replace(row, index=specification.space.size + place) for place, row in enumerate(rows)]
            further = [("observed", observed(1, rows))] if rows else []
        setting = specification.setting
        jax.eval_shape(Course(lambda: setting).start)  # refuses what does not fit, or cannot begin, before anything is written
        if specification.is_guarded and specification.algorithm.traits.seeds is None:
            words = "takes the points that the model believes safest, which guarantees nothing"
            raise InvalidArgument(f"seeds: must be known in a session; give {SEEDS()}, or a history that has some, for count=n {words}")
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
        read_only: bool = False,
        wait: Annotated[float, nonnegative_numbers, scalar] = WAIT,
    ) -> Session:
        """Go on with the session of a directory, as its journal leads to it.

        Args:
          directory: where the journal lies.
          algorithm: the algorithm, if it is of a class of your own; else it may be left out, and must be the session's.
          read_only: whether only to look at the session, which others may go on with.
          wait: seconds that each call waits for one of another process on the same session; then it raises ``SessionInUse``.

        Raises:
          SessionError: where there is no session, or on a network file system.
          DamagedSession: when the journal is none, of a newer version, damaged, an older copy, or changed by other hands; the command
            ``python -m jaxbandit session salvage`` goes on with what is left of it.
          InvalidArgument: when the algorithm is not the session's.
        """
        check_not_forked()
        enable_unless_chosen()
        journal = open_journal(Path(directory), read_only=read_only, wait=wait)
        try:
            specification = Specification.from_table(journal.events[0].body, algorithm)
            if algorithm is None and digest(specification.table()) != digest(journal.events[0].body):
                words = "is not what this version of jaxbandit makes of it"
                raise DamagedSession(f"directory: the specification of {journal.directory} {words}")
            session = cls(journal, specification)
            if not read_only and session._state.due(asking=False) is not None:  # where a process ended before it came to that
                with session._claimed():
                    session._keep_up()
            return session
        except BaseException:
            journal.close()
            raise

    @overload
    def ask(self) -> Ticket: ...

    @overload
    def ask(self, *, stop: Settled) -> Ticket | None: ...

    @overload
    def ask(self, count: int, *, stop: Settled | None = None) -> list[Ticket]: ...

    def ask(self, count: int | None = None, *, stop: Settled | None = None) -> Ticket | list[Ticket] | None:
        """Return the next point to measure, or a list of the next ``count``; each is under way until it is told or dropped.

        No point under way is asked for again as long as the algorithm finds another one, and no point of a dropped run ever, on a box none
        within a thousandth of every side: where the algorithm finds no other, the nearest that has not failed stands for it. The initial
        design comes first; what has not been told of it when round 1 begins arrives when it is told.

        Args:
          count: how many points to return as a list.
          stop: a rule that ends the experiment: where the recommended point is good enough, nothing is asked for. The call then returns
            ``None``, or an empty list, and the session's ``settlement`` says how sure it was. It is never so before the initial design has
            been told.

        Warns:
          DeclaredInfeasible: when the algorithm declares that no point satisfies the constraints.

        Raises:
          InvalidArgument: unless ``count`` is a whole number >= 1, and ``stop`` a :class:`~jaxbandit.session.Settled`.
          SessionError: when the horizon is reached, when values are missing that the algorithm needs first, when it cannot choose, or when
            no point is left whose run has not failed.
        """
        with self._claimed():
            if count is not None:
                whole(1)("count", count)
            if stop is not None and self._is_settled(stop):
                return None if count is None else []
            if count is None:
                return self._ask()
            state, horizon = self._state, self.specification.horizon
            rounds = count - state.left_of_design
            if len(state.course.rounds) + rounds > horizon:
                left = horizon - len(state.course.rounds)
                raise SessionError(f"ask: {left} of the {horizon} rounds of the session's horizon are left, not {count}")
            if rounds > 0:
                self._check_model()
            if self.specification.at_once and rounds > 1:
                raise SessionError(f"ask: values come before the next round here; ask for one point at a time, not {count}")
            return [self._ask() for _ in range(count)]

    def _is_settled(self, rule: Settled) -> bool:
        """Return whether a rule ends the session now, and write down that it does."""
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

    def _ask(self, point: int | Place | None = None) -> Ticket:
        """Return the ticket of the next point; of ``point``, on a box its place, where somebody else has chosen it."""
        body, status, after, state, is_ours = self._state.next(), Status.OK, None, self._state, point is None
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
            if point is None:
                chosen = state.course.choose(state.avoided, state.failed, body.get("index"), state.allowed)
                status, after = chosen.status, chosen.after
                point = chosen.place or chosen.point
            if not healthy(np.asarray(int(status))):
                raise SessionError(f"ask: the algorithm cannot choose: {explain(int(status))}; nothing has happened")
            if self.specification.is_guarded and status & Status.NO_SAFE_POINT:
                [line] = flags_in_words(np.asarray(int(Status.NO_SAFE_POINT)))
                raise SessionError(f"ask: {line.partition(': ')[2]}; nothing has happened")
            body |= {"place": list(point)} if isinstance(point, tuple) else {"index": point}
        if is_ours and (state.has_failed(spot := spot_of(body)) or (body["round"] and state.shows_nothing(spot))):
            index, place = state.not_failed(spot)
            body |= {"place": list(place)} if place else {"index": index}
        self._happen("asked", body | {"status": int(status)}, after)
        for line in flags_in_words(np.asarray(int(status & ~before & WARNED_OF))):
            warn(f"ask: {line.partition(': ')[2]}")
        if status & Status.DECLARED_INFEASIBLE:
            words = f"ask: {explain(int(Status.DECLARED_INFEASIBLE))} (ticket {body['ticket']})"
            warn(words, DeclaredInfeasible)
        return self._state.records[body["ticket"]].ticket

    def _check_model(self) -> None:
        """Raise ``SessionError`` where the model cannot certify points: values that it is fitted to are missing, or its prior is wrong."""
        state, parts = self._state, self.specification
        if not parts.is_guarded:
            return
        if parts.model is not None:
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
        correct: bool = False,
    ) -> None:
        """Tell what was measured at a ticket's point: all values, or those that are there, in any order of tickets.

        Telling the same values again changes nothing.

        Args:
          ticket: the ticket or its number.
          values: values by the names of the outputs, in their own units.
          reward: value of the objective, instead.
          constraints: value of each constrained output in their order, ``None`` where it is not there yet; one number for a single one.
          correct: whether values that were told before, and are different, are replaced by these; the learner then believes what it
            would believe had it been told these in the first place. It also takes back that a ticket was dropped.

        Raises:
          InvalidArgument: on an unknown ticket, values that are no finite numbers, a wrong number of them, or unknown names.
          SessionError: on other values than were told before, and on values of a dropped ticket, unless ``correct``.
        """
        with self._claimed():
            record = self._state.record(ticket)
            boolean("correct", correct)
            given = told_values(self.specification.outputs, values, reward, constraints, LARGEST_TOLD)
            self._check_told(record, given, correct)
            self._tell(record, given)

    def _check_told(self, record: Record, given: Mapping[str, float], correct: bool) -> None:
        """Raise ``SessionError`` where values of a ticket cannot be told, see :meth:`tell`."""
        changed = {name: value for name, value in given.items() if record.values.get(name, value) != value}
        number = record.ticket.number
        if record.dropped and self.specification.at_once:
            raise SessionError(f"ticket {number}: was dropped, and its round repeated; its values cannot be used any more")
        correcting = either("tell(..., correct=True)", "session tell with --correct")
        if record.dropped and not correct:
            raise SessionError(f"ticket {number}: was dropped; {correcting} takes that back")
        if changed and not correct:
            before = {name: record.values[name] for name in changed}
            raise SessionError(f"ticket {number}: was told {short(before)}, got {short(changed)}; {correcting} replaces it")

    def _tell(self, record: Record, given: Mapping[str, float]) -> None:
        """Let values of a ticket happen that can be told."""
        number, new = record.ticket.number, {name: value for name, value in given.items() if name not in record.values}
        changed = {name: value for name, value in given.items() if record.values.get(name, value) != value}
        self._keep_up()  # where a process ended before it came to that
        if new or record.dropped:
            self._warn_of_units(record.ticket.index, new)
            self._happen("told", {"ticket": number, "values": new})
        if changed:
            self._happen("corrected", {"ticket": number, "values": changed})
        self._keep_up()

    @checked
    def observe(
        self, point: Mapping[str, float | str], values: Mapping[str, float] | None = None, *, off_grid: OffGrid = "refuse"
    ) -> Ticket:
        """Tell what was measured at a point that was not asked for, before the session or beside it.

        The learner believes what it would believe had it known this before round 1; it counts as no round.

        Args:
          point: the point by the names of its coordinates, in the user's units.
          values: values by the names of the outputs, those that are there; others may be told later, as of a ticket, and count as under
            way until then. ``None`` of a run that is under way.
          off_grid: what to do with a point that is none of the domain's, ``"refuse"`` or ``"round"``: then the nearest one stands for it,
            of which a warning says the distance. A point beyond the ends of an axis is always refused.

        Returns:
          A ticket, which the history holds, and whose values :meth:`tell` corrects, as of one that was asked for.

        Raises:
          InvalidArgument: on a point that lacks coordinates or is none of the domain's, and on values as :meth:`tell`.
        """
        with self._claimed():
            parts = self.specification
            row = HistoryRow.of(self._state.space, parts.outputs, point, values)
            check_placed([row], parts.space, off_grid, "point")
            return self._observed([row])[0]

    @checked
    def tell_all(
        self,
        history: History,
        *,
        off_grid: OffGrid = "refuse",
        outside: OutsideOf = "refuse",
        ignore: Names = (),
        correct: bool = False,
    ) -> tuple[Ticket, ...]:
        """Tell all rows of a table: those with a number in a column ``ticket`` as :meth:`tell` does, others as :meth:`observe` does.

        Enough of them replace the default initial design where nothing else has happened, as the ``history`` of :meth:`create` does.

        The table that ``history().to_dataframe().reset_index()`` makes of the session can be told again, once blanks have been filled.

        Args:
          history: a ``pandas.DataFrame``, a mapping from names to columns, or the path of a CSV file: a column for every coordinate, which
            only rows with a ticket can do without, and for outputs, blank (or n/a, NA, -) where a value is not there yet. The
            names of columns may have units, as tables and figures of the session show them. A file may be separated by semicolons or
            tabs, and then have decimal commas, as spreadsheets write them.
          off_grid: as for :meth:`observe`.
          outside: what to do with a row whose point lies beyond the ends of an axis, ``"refuse"`` or ``"drop"``, which leaves it out.
          ignore: names of other columns, such as of dates and remarks.
          correct: as for :meth:`tell`.

        Returns:
          The tickets of which something new was told.

        Raises:
          InvalidArgument: on a file that cannot be read, on columns that are missing or unknown, and on an entry that cannot be used, by
            its row; nothing is told then.
          SessionError: as :meth:`tell`, and when the same rows without tickets have been told before.
        """
        with self._claimed():
            known = {number: record.ticket.index for number, record in self._state.records.items()}
            rows = rows_of(history, self.specification, ignore, outside, known, self._state.space)
            asked = [(self._state.record(row.ticket), row.values) for row in rows if row.ticket is not None]
            mine = [(record, values) for record, values in asked if not values.items() <= record.values.items()]
            for record, values in mine:
                self._check_told(record, values, correct)
            others = self._observed_all([row for row in rows if row.ticket is None], off_grid)
            for record, values in mine:
                self._tell(record, values)
            return (*(record.ticket for record, _ in mine), *others)

    def _observed_all(self, rows: Sequence[HistoryRow], off_grid: str) -> tuple[Ticket, ...]:
        check_placed(rows, self.specification.space, off_grid, "history")
        told = [row.table() for row in rows]
        for event in self._journal.events if rows else ():
            if event.kind == "observed" and event.body["rows"] == told:
                first, last = event.body["ticket"], event.body["ticket"] + len(told) - 1
                which = f"tickets {first} to {last}" if last > first else f"ticket {first}"
                raise SessionError(f"history: these rows were told before, as {which}")
        return self._observed(rows) if rows else ()

    def _observed(self, rows: Sequence[HistoryRow]) -> tuple[Ticket, ...]:
        self._keep_up()  # where a process ended before it came to that
        number, size = len(self._state.records) + 1, self._state.space.size
        rows = [dataclasses.replace(row, index=size + place) if row.index < 0 else row for place, row in enumerate(rows)]
        body, parts = observed(number, rows), self.specification
        if (
            number == 1
            and 0 < parts.design.count <= sum(row.is_whole(parts.outputs) for row in rows)
            and parts.design_is_default
            and not parts.is_guarded
        ):
            body |= {"initial": 0}
        self._happen("observed", body)
        self._warn_of_units(rows[0].index, rows[0].values)
        self._keep_up()
        return tuple(self._state.records[number + place].ticket for place in range(len(rows)))

    def drop(self, ticket: Ticket | int) -> None:
        """Give a run up that failed: no further value of it will come. Dropping it again changes nothing.

        Its point is not asked for again, nor recommended, until ``tell(..., correct=True)`` takes that back. Where values come before the
        next round, the round is repeated; else it counts as one whose values never arrive.

        Raises:
          InvalidArgument: on an unknown ticket.
          SessionError: on a ticket all of whose values have been told.
        """
        with self._claimed():
            record = self._state.record(ticket)
            if record.state == "complete":
                raise SessionError(f"ticket {record.ticket.number}: cannot be dropped, all its values have been told")
            if not record.dropped:
                self._happen("dropped", {"ticket": record.ticket.number})

    def fit(self) -> Model:
        """Fit the hyper-parameters of the model to all that has been told, and return the model that is in force from now on.

        Outputs are standardised anew, and each gets the kernel, the noise variance and the prior mean of greatest posterior density, see
        :func:`jaxbandit.surrogates.fit`, whose priors keep a handful of points from making a length-scale tiny or huge. A variance is
        fitted where a kernel has one, such as ``Scale``. All that has happened is then learnt anew under the fitted model; points that have
        been asked for stay as they are.

        Returns:
          The model of the standardised outputs; ``belief`` is in their own units.

        Warns:
          UserWarning: when a hyper-parameter ends at the end of the range that is searched, and at the first fit when a constraint has
            never been measured to be violated.

        Raises:
          SessionError: when nothing has been told yet.
        """
        with self._claimed():
            if self.specification.is_guarded:
                raise SessionError(
                    f"fit: {type(self.specification.algorithm).__name__} certifies points by the model's prior, which a fit would replace;"
                    " begin another session from this one's history with the model that you then believe"
                )
            return self._fit(refit=True)

    def _fit(self, *, refit: bool) -> Model:
        """Standardise outputs anew, ``refit`` the model, and learn all anew."""
        state, parts = self._state, self.specification
        given = parts.outputs, state.space, self.model
        told = state.told
        body: dict[str, object] = {"told": state.complete}
        if parts.schema == 1:
            body |= {"model": fitted_in_units(*given, told).table()}
        elif parts.is_guarded:
            model, standard = fitted_once(parts, told)
            body |= {"model": model.table(), **standard.table()}
        elif refit or state.standard is None:
            model, standard = fitted(*given, state.standard, told, shared=parts.algorithm.traits.joint_arrival)
            body |= {"model": model.table(), **standard.table(), "learner": LEARNER}
            if not state.fitted_at:
                warn_of_constraints_that_held(parts.outputs, told)
        else:
            body |= standard_of(parts.outputs, told, state.standard).table()
        has_changed = state.fitted_at and body.get("learner", state.learner) != state.learner
        self._happen("fitted", body)
        state.learn_anew()
        if has_changed:
            warn(f"fit: {self._change_of_learner()}; all points and values stay as they are")
        return self.model

    def _keep_up(self, *, asking: bool = False) -> None:
        """Fit the model, or standardise its outputs anew, where that is due."""
        refit = self._state.due(asking=asking)
        if refit is not None:
            self._fit(refit=refit)

    def _warn_of_units(self, index: int, new: Mapping[str, float]) -> None:
        """Warn where the first value of an output lies far from what a model in the outputs' units expects."""
        state, outputs = self._state, self.specification.outputs
        if state.standard is not None:
            return
        seen = {name for other in state.records.values() for name in other.values}
        for name in new.keys() - seen:
            away = deviations_of(outputs, state.space, state.model, name, new[name], index)
            if away > UNLIKELY:
                remedy = f"leave the model out, or say {setting('standardise', True)} with one of standardised outputs"
                if self.specification.is_guarded:
                    remedy = "begin another session with a model whose prior_mean and variance are in the outputs' units"
                words = f"is {away:.3g} prior deviations from the prior mean of a model in the outputs' units; {remedy}"
                warn(f"tell: {name} = {new[name]:g} {words}")

    @contextlib.contextmanager
    def _claimed(self) -> Iterator[State]:
        """Yield the state as :meth:`_current` does; until the block ends nobody else changes the session."""
        check_not_forked()
        bound_programs()
        with self._mutex, self._journal.claim():
            self._state.follow(self._journal)
            yield self._state

    def _happen(self, kind: str, body: Body, after: object = None) -> None:
        """Write an event down and let it happen; ``after`` is the algorithm's state after its choice of the point that is asked for."""
        self._state.enter(self._journal.append(kind, body), after)


__all__ = ["DeclaredInfeasible", "Recommendation", "Session"]
