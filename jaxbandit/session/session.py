"""``Session``: a real experiment that asks for points and is told values, late, in parts and out of order, and that survives a crash."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Annotated

import jax
import numpy as np

from jaxbandit.algorithms import Algorithm
from jaxbandit.core.checks import short
from jaxbandit.core.codec import digest
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import boolean, nonnegative_numbers, scalar
from jaxbandit.core.status import Status, explain, flags_in_words, healthy
from jaxbandit.delays import Delay
from jaxbandit.domains import Domain
from jaxbandit.engine import InitialDesign
from jaxbandit.feedback import Policy
from jaxbandit.session.course import MAKER, Course
from jaxbandit.session.journal import Body, DamagedSession, Event, Journal, SessionError, create_journal, open_journal
from jaxbandit.session.quantities import Axis, Outputs, Space, told_values
from jaxbandit.session.specification import Specification, algorithm_table, fitted_model
from jaxbandit.session.view import Ticket, Tickets, View, path_of
from jaxbandit.study.model import Model

SNAPSHOT_EVERY = 100  # events between two snapshots: fewer than can be replayed in the time that opening may take


class DeclaredInfeasible(UserWarning):
    """The algorithm has declared that no point satisfies the constraints; it goes on where they are violated least."""


class Session(View):
    """A real experiment, driven by the algorithms that simulations run; :meth:`create` makes one and :meth:`open` goes on with it.

    All that happens is in the session's journal, on the disk, before a call returns. A session may be used from several threads, and is a
    context manager that closes itself. A round begins when a point is asked for and ends when the next one is; what is told in between
    arrives at its end, as in a simulation, and a session makes the choices of trial 0 of a simulation with its key.

    The journal needs a disk of the machine's own: SQLite's write-ahead log cannot be shared between machines.

    Attributes:
      directory: where the journal lies.
      specification: what the session is made of.
    """

    def __init__(self, journal: Journal, specification: Specification) -> None:
        self.directory, self.specification = journal.directory, specification
        self._journal, self._mutex = journal, threading.RLock()
        self._tickets = Tickets.read(specification, journal)
        self._course = self._replayed()

    @classmethod
    def create(
        cls,
        directory: str | Path,
        domain: Domain | Sequence[Axis],
        algorithm: Algorithm,
        model: Model,
        *,
        key: jax.Array,
        objective: str = "maximise reward",
        constraints: Sequence[str] = (),
        horizon: int = 1000,
        delay: Delay | None = None,
        feedback: Policy | None = None,
        initial: InitialDesign | None = None,
        capacity: int | None = None,
        fit_every: int | None = None,
    ) -> Session:
        """Begin a session, whose journal is written into a directory.

        Args:
          directory: where to write; made unless it is there.
          domain: the ``M`` points to choose among: a domain, or a list of :class:`Axis` in the user's own units, which the model sees
            scaled to ``[0, 1]``.
          algorithm: any algorithm that needs no full information.
          model: the GP model of the outputs; lists in it have an entry for each output, the objective first. A list of prior means is in
            the outputs' own units; one number is the objective's, and a constraint's is then its bound.
          key: a JAX PRNG key (``jax.random.key(seed)``).
          objective: ``"maximise NAME"`` or ``"minimise NAME"``.
          constraints: ``"NAME <= c"``, ``"NAME >= c"`` or ``"NAME = c +- tolerance"`` for each.
          horizon: most rounds ``T``.
          delay: what is known of how late values come; ``NoDelay()`` for one run at a time, whose values are told before the next is
            asked for. Default: nothing is known, and any number of runs may be under way.
          feedback: what the learner does meanwhile, a policy of :mod:`jaxbandit.feedback`; default: the algorithm's own.
          initial: points to measure before round 1; default none.
          capacity: rounds after which a value is too late to be used; default ``horizon``.
          fit_every: completed tickets after which the model's hyper-parameters are fitted to all that has been told, at the next
            :meth:`ask`; default never. See :meth:`fit`.

        Raises:
          InvalidArgument: on any argument out of range or any two that do not fit each other.
          SessionError: where the directory holds a session already or cannot be written to.
        """
        specification = Specification(
            space=Space.of(domain),
            outputs=Outputs.read(objective, tuple(constraints) if isinstance(constraints, list) else constraints),
            algorithm=algorithm,
            model=model,
            horizon=horizon,
            key=key,
            delay=delay,
            feedback=feedback,
            initial=InitialDesign() if initial is None else initial,
            capacity=capacity,
            fit_every=fit_every,
        )
        return cls.begin(directory, specification)

    @classmethod
    @checked
    def begin(cls, directory: str | Path, specification: Specification) -> Session:
        """Begin a session of a specification, as a file describes it; raises as :meth:`create` does."""
        jax.eval_shape(Course(specification.setting).start)  # refuses what does not fit, or cannot begin, before anything is written
        return cls(create_journal(path_of(directory), specification.table()), specification)

    @classmethod
    @checked
    def open(
        cls,
        directory: str | Path,
        *,
        algorithm: Algorithm | None = None,
        read_only: bool = False,
        wait: Annotated[float, nonnegative_numbers, scalar] = 0.0,
    ) -> Session:
        """Go on with the session of a directory, as its journal leads to it.

        Args:
          directory: where the journal lies.
          algorithm: the algorithm, if it is of a class of your own; else it may be left out, and must be the session's.
          read_only: look at the session without holding it, while another process may go on with it.
          wait: seconds to wait for another process that holds it.

        Raises:
          SessionError: where there is no session.
          SessionInUse: when another process holds it.
          DamagedSession: when the journal is none, of a newer version, damaged, or changed by other hands.
          InvalidArgument: when the algorithm is not the session's.
        """
        journal = open_journal(path_of(directory), read_only=read_only, wait=wait)
        with contextlib.ExitStack() as stack:
            stack.enter_context(contextlib.closing(journal))
            specification = Specification.from_table(journal.events[0].body, algorithm)
            if algorithm is None and specification.fingerprint != digest(journal.events[0].body):
                raise DamagedSession(
                    f"directory: the specification of {journal.directory} is not what this version of jaxbandit makes of it"
                )
            session = cls(journal, specification)
            stack.pop_all()
            return session

    def ask(self) -> Ticket:
        """Return the next point to measure; it is under way until it is told or dropped.

        Warns:
          DeclaredInfeasible: when the algorithm declares that no point satisfies the constraints.

        Raises:
          SessionError: when the horizon is reached, when values are missing that the algorithm needs first, or when it cannot choose.
        """
        with self._mutex:
            self._check_writable()
            number = len(self._tickets) + 1
            if number <= len(self._tickets.design):
                self._happen("asked", {"ticket": number, "round": 0, "index": self._tickets.design[number - 1], "status": 0})
                return self._ticket(number)
            self._check_ready()
            self._fit_if_due()
            if not self._course.begun:
                self._course.begin(self._known_design())
            choice = self._course.choose()
            if not healthy(np.asarray(int(choice.status))):
                raise SessionError(f"ask: the algorithm cannot choose: {explain(int(choice.status))}; nothing has happened")
            body = {"ticket": number, "round": len(self._course.rounds) + 1, "index": choice.point}
            self._happen("asked", body | {"status": int(choice.status | self._far_from_prior())}, choice.after)
            ticket = self._ticket(number)
            if ticket.declared_infeasible:
                warnings.warn(f"ask: {explain(int(Status.DECLARED_INFEASIBLE))} (ticket {number})", DeclaredInfeasible, stacklevel=2)
            self._keep_snapshot(SNAPSHOT_EVERY)
            return ticket

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
          constraints: value of each constraint in their order, ``None`` where it is not there yet; one number for a single constraint.
          correct: whether values that were told before, and are different, are replaced by these; the learner then believes what it
            would believe had it been told these in the first place. It also takes back that a ticket was dropped.

        Raises:
          InvalidArgument: on an unknown ticket, values that are no finite numbers, a wrong number of them, or unknown names.
          SessionError: on other values than were told before, and on values of a dropped ticket, unless ``correct``.
        """
        with self._mutex:
            self._check_writable()
            number = self._tickets.number_of(ticket)
            boolean("correct", correct)
            largest = float(np.finfo(self._course.setting.arena.dtype).max) / 4  # that the model's arithmetic can work with
            given, record = told_values(self.specification.outputs, values, reward, constraints, largest), self._tickets[number]
            changed = {name: value for name, value in given.items() if record.values.get(name, value) != value}
            new = {name: value for name, value in given.items() if name not in record.values}
            if record.dropped and self.specification.at_once:
                raise SessionError(f"ticket {number}: was dropped, and its round repeated; its values cannot be used any more")
            if record.dropped and record.round == 0 and self._course.begun:
                raise SessionError(f"ticket {number}: was dropped, and the initial design has been used without it")
            if record.dropped and not correct:
                raise SessionError(f"ticket {number}: was dropped; tell(..., correct=True) takes that back")
            if changed and not correct:
                before = {name: record.values[name] for name in changed}
                raise SessionError(f"ticket {number}: was told {short(before)}, got {short(changed)}; tell(..., correct=True) replaces it")
            if new or record.dropped:
                self._happen("told", {"ticket": number, "values": new})
            if changed:
                self._happen("corrected", {"ticket": number, "values": changed})

    def drop(self, ticket: Ticket | int) -> None:
        """Give a run up that failed: no value of it will come. Dropping it again changes nothing.

        Where values come before the next round, the round is repeated; else it counts as one whose values never arrive.

        Raises:
          InvalidArgument: on an unknown ticket.
          SessionError: on a ticket all of whose values have been told.
        """
        with self._mutex:
            self._check_writable()
            number = self._tickets.number_of(ticket)
            if self._tickets[number].state == "complete":
                raise SessionError(f"ticket {number}: cannot be dropped, all its values have been told")
            if not self._tickets[number].dropped:
                self._happen("dropped", {"ticket": number})

    def fit(self) -> Model:
        """Fit the hyper-parameters of the model to all that has been told, and return the model that is in force from now on.

        Each output gets the kernel and the noise variance of greatest posterior density, see :func:`jaxbandit.surrogates.fit`, whose priors
        keep a handful of points from making a length-scale tiny or huge. A variance is fitted where a kernel has one, such as ``Scale``.
        All that has happened is then learnt anew under the fitted model; points that have been asked for stay as they are.

        Raises:
          SessionError: when nothing has been told yet.
        """
        with self._mutex:
            self._check_writable()
            told = [(record.index, record.values) for record in self._tickets.values() if record.values]
            model = fitted_model(self.specification, self.model, told)
            self._happen("fitted", {"model": model.table(), "told": self._tickets.complete})
            return model

    def close(self) -> None:
        """Let go of the session, for other processes to take."""
        with self._mutex:
            if self._journal.writable:
                self._keep_snapshot(1)
            self._journal.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _replayed(self) -> Course:
        """Return the learner that the events lead to, with the state of the snapshot where that is one of theirs."""
        events, model, parts = self._journal.events, self.model, self.specification
        course = Course(parts.setting if model is parts.model else parts.setting_with(model))
        for event in events:
            self._follow(course, event)
        start, state = self._journal.snapshot(MAKER) or (0, b"")
        is_later = any(event.kind in ("fitted", "corrected") for event in events[start:])
        self._since_snapshot = len(events) - (start if start and not is_later and course.restore(state) else 0)
        return course

    def _happen(self, kind: str, body: Body, after: object = None) -> None:
        """Write an event down and let it happen; ``after`` is the algorithm's state after its choice of the point that is asked for."""
        event = self._journal.append(kind, body)
        self._tickets.enter(event)
        self._since_snapshot += 1
        if kind in ("corrected", "fitted"):
            self._course = self._replayed()
        else:
            self._follow(self._course, event, after)

    def _follow(self, course: Course, event: Event, after: object = None) -> None:
        """Let a learner follow an event, with the values that corrections have left."""
        if event.kind not in ("asked", "told", "dropped"):
            return
        number, outputs = event.body["ticket"], self.specification.outputs
        record = self._tickets[number]
        if event.kind == "told":
            names = event.body["values"]
            course.told[number] += len(names)
            if course.together:  # once all are there
                names = outputs.names if course.told[number] == len(outputs.names) else ()
            if record.round and names:
                course.tell(record.round, outputs.inward({name: record.values[name] for name in names}))
        elif event.kind == "asked" and record.round:
            if not course.begun:
                course.begin(self._known_design())
            course.asked(record.index, after)
        elif event.kind == "dropped" and self.specification.at_once and record.round == len(course.rounds) > 0:
            course.take_back()

    def _check_writable(self) -> None:
        if not self._journal.writable:
            raise SessionError("session: is closed, or was opened for reading only; open it to go on with it")

    def _check_ready(self) -> None:
        """Raise ``SessionError`` where the next round cannot begin."""
        missing = [] if self._course.begun else [ticket.number for ticket in self.pending]
        if missing:
            raise SessionError(f"ask: the initial design comes first; tell or drop tickets {', '.join(map(str, missing))}")
        if not self._course.complete:
            number = len(self._tickets)
            lacking = [name for name in self.specification.outputs.names if name not in self._tickets[number].values]
            raise SessionError(f"ask: values come before the next round here; tell {', '.join(lacking)} of ticket {number}, or drop it")
        if len(self._course.rounds) >= self.specification.horizon:
            raise SessionError(f"ask: all {self.specification.horizon} rounds of the session's horizon have been asked for")

    def _far_from_prior(self) -> Status:
        """Return the flag of values that the model calls impossible, where they are; warn of it the first time."""
        if not self.specification.algorithm.traits.learns or not self._course.far_from_prior(self._told()):
            return Status.OK
        if not any(record.status & Status.FAR_FROM_PRIOR for record in self._tickets.values()):
            [line] = flags_in_words(np.asarray(int(Status.FAR_FROM_PRIOR)))
            warnings.warn(f"ask: {line.partition(': ')[2]}", stacklevel=3)
        return Status.FAR_FROM_PRIOR

    def _fit_if_due(self) -> None:
        """Fit the model if enough has been told since the last fit."""
        every = self.specification.fit_every
        fits = [0, *(event.body["told"] for event in self._journal.events if event.kind == "fitted")] if every else []
        if every and self._tickets.complete >= fits[-1] + every:
            self.fit()

    def _keep_snapshot(self, least: int) -> None:
        """Keep a snapshot if at least so many events have happened since the last; of an algorithm whose code may change there is none."""
        if self._since_snapshot < least or "fingerprint" in algorithm_table(self.specification.algorithm):
            return
        state = self._course.snapshot()
        if state is not None:
            self._journal.keep_snapshot(MAKER, state)
            self._since_snapshot = 0


__all__ = ["DeclaredInfeasible", "Session"]
