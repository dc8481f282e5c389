"""A session as one looks at it: its tickets, what is believed, what is recommended, and all that has happened."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.codec import from_fields
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import boolean, nonnegative_numbers, scalar, whole
from jaxbandit.core.fields import path as path_check
from jaxbandit.core.files import prepare_file, reason_of, write_whole
from jaxbandit.core.showing import html_fields
from jaxbandit.core.status import Status
from jaxbandit.session.course import Course, Told
from jaxbandit.session.journal import JOURNAL, Body, DamagedSession, Event, Journal, SessionError
from jaxbandit.session.quantities import told_values
from jaxbandit.session.specification import Specification
from jaxbandit.study.model import Model

if TYPE_CHECKING:
    import matplotlib.figure
    import xarray as xr


BODIES = {
    "asked": {"ticket", "round", "index", "status"},
    "told": {"ticket", "values"},
    "corrected": {"ticket", "values"},
    "dropped": {"ticket"},
    "fitted": {"model", "told"},
}


@dataclasses.dataclass(frozen=True)
class Ticket:
    """A point that a session asks to be measured.

    Attributes:
      number: number of the ticket, from 1, by which it is told.
      round: the round that it belongs to, from 1; 0 for a point of the initial design.
      index: number of the point in the domain.
      point: the point by the names of its coordinates, in the user's units; of categories their labels.
      scaled: the same as the model sees it.
      status: flags that the algorithm has raised, see :mod:`jaxbandit.status`.
    """

    number: int
    round: int
    index: int
    point: Mapping[str, float | str]
    scaled: Mapping[str, float]
    status: Status = Status.OK

    @property
    def declared_infeasible(self) -> bool:
        """Return whether the algorithm has declared that no point satisfies the constraints."""
        return bool(self.status & Status.DECLARED_INFEASIBLE)


@dataclasses.dataclass
class Record:
    """Facts of a ticket that are known so far.

    Attributes:
      outputs: number of values of a complete ticket.
      round, index, status: as those of :class:`Ticket`.
      asked_at: when it was asked for.
      values: values told so far, by the names of the outputs.
      told_at: when the last of them was told.
      dropped: whether the run failed.
    """

    outputs: int
    round: int
    index: int
    status: Status
    asked_at: str
    values: dict[str, float] = dataclasses.field(default_factory=dict)
    told_at: str = ""
    dropped: bool = False

    @property
    def state(self) -> str:
        """``"dropped"``, ``"complete"``, ``"partial"`` or ``"pending"``."""
        if self.dropped:
            return "dropped"
        return "complete" if len(self.values) == self.outputs else "partial" if self.values else "pending"


class Tickets(dict[int, Record]):
    """All tickets of a session by their numbers, with the values that corrections have left."""

    def __init__(self, specification: Specification) -> None:
        super().__init__()
        self.specification, self.design = specification, specification.design()

    @classmethod
    def read(cls, specification: Specification, journal: Journal) -> Tickets:
        """Return all tickets of a journal.

        Raises:
          DamagedSession: on an event that a session of this specification has not written; the message says which, and why not.
        """
        tickets = cls(specification)
        for event in journal.events[1:]:
            try:
                tickets.enter(event)
            except (InvalidArgument, RecursionError) as error:
                where = f"event {event.number} of {journal.directory / JOURNAL}, {event.kind!r},"
                raise DamagedSession(f"directory: {where} does not fit its session: {reason_of(error)}") from error
        return tickets

    def enter(self, event: Event) -> None:
        """Enter an event into the ticket that it concerns; raises ``InvalidArgument`` on what no event of this session holds."""
        body, outputs = event.body, self.specification.outputs
        if body.keys() != BODIES[event.kind]:
            raise InvalidArgument(f"must hold {', '.join(sorted(BODIES[event.kind]))}, got {short(sorted(body))}")
        if event.kind == "asked":
            self._check_asked(body)
            self[body["ticket"]] = Record(len(outputs.names), body["round"], body["index"], Status(body["status"]), event.at)
        elif event.kind == "fitted":
            from_fields(Model, body["model"], "model").validate("model")
            _check_equal("told", body["told"], self.complete)
        else:
            record = self[self.number_of(body["ticket"])]
            values = {} if event.kind == "dropped" else body["values"]
            if event.kind == "dropped" and record.state in ("complete", "dropped"):
                raise InvalidArgument(f"ticket: must be one that could be dropped, got {body['ticket']}, which is {record.state}")
            if values != {} or event.kind == "corrected" or (event.kind == "told" and not record.dropped):
                values = told_values(outputs, values)
            for name in values:
                if (name in record.values) != (event.kind == "corrected"):
                    been = "was" if name in record.values else "had not been"
                    raise InvalidArgument(f"values: {name} of ticket {body['ticket']} {been} told before")
            record.dropped, record.values = event.kind == "dropped", record.values | values
            record.told_at = record.told_at if record.dropped else event.at

    def _check_asked(self, body: Body) -> None:
        """Raise ``InvalidArgument`` unless the next ticket is one that could have been asked for."""
        number, design, last = len(self) + 1, self.design, self.get(len(self))
        # Where values come before the next round, a ticket that is dropped gives its round back.
        begun = 0 if last is None else last.round - (self.specification.at_once and last.dropped and last.round > 0)
        _check_equal("ticket", body["ticket"], number)
        _check_equal("round", body["round"], 0 if number <= len(design) else begun + 1)
        whole(0, self.specification.horizon)("round", body["round"])
        whole(0, self.specification.space.domain.size - 1)("index", body["index"])
        whole(0, 2 * max(Status) - 1)("status", body["status"])
        if body["round"] == 0:
            _check_equal("index", body["index"], design[number - 1])

    @property
    def complete(self) -> int:
        """Number of tickets all of whose values have been told."""
        return sum(record.state == "complete" for record in self.values())

    def number_of(self, ticket: Ticket | int) -> int:
        """Return the number of a ticket; raises ``InvalidArgument`` on one that was never asked for."""
        number = ticket.number if isinstance(ticket, Ticket) else ticket
        if isinstance(number, bool) or not isinstance(number, int) or number not in self:
            known = f"1 to {len(self)}" if self else "none yet"
            raise InvalidArgument(f"ticket: must be one that was asked for ({known}), got {short(ticket)}")
        return number


def _check_equal(name: str, value: object, expected: int) -> None:
    """Raise ``InvalidArgument`` unless a value is the whole number that follows from the events before."""
    if type(value) is not int or value != expected:
        raise InvalidArgument(f"{name}: must be {expected} after the events before, got {short(value)}")


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """The point that a session recommends.

    Attributes:
      index: number of the point in the domain.
      point: the point by the names of its coordinates, in the user's units; of categories their labels.
      mean: posterior mean of each output, by name, in its own units.
      sd: posterior standard deviation of each output, by name.
      probability_of_feasibility: posterior probability that all constraints hold there, by independent normal beliefs.
      feasible: whether that reaches the probability asked for; otherwise the point is the one most likely to be feasible.
    """

    index: int
    point: Mapping[str, float | str]
    mean: Mapping[str, float]
    sd: Mapping[str, float]
    probability_of_feasibility: float
    feasible: bool


class View:
    """All of a session that changes nothing; :class:`~jaxbandit.session.Session` adds what does.

    Attributes:
      directory: where the journal lies.
      specification: what the session is made of.
    """

    directory: Path
    specification: Specification
    _journal: Journal
    _mutex: threading.RLock
    _tickets: Tickets
    _course: Course

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'; '.join(f'{name}: {text}' for name, text in self._in_brief()[:4])})".replace("\n", ", ")

    def _repr_html_(self) -> str:
        """Return a table of what the session is about and how far it is."""
        return html_fields(type(self).__name__, self._in_brief())

    def _in_brief(self) -> list[tuple[str, str]]:
        """Return facts by name: those of the text first, then those of the table."""
        parts, waiting = self.specification, len(self.pending)
        return [
            ("directory", str(self.directory)),
            ("tickets", f"{len(self._tickets)}, {waiting} pending" if waiting else str(len(self._tickets))),
            ("outputs", "\n".join([str(parts.outputs.objective), *map(str, parts.outputs.constraints)])),
            ("points", f"{parts.space.domain.size:,} of {', '.join(parts.space.names)}"),
            ("axes", "\n".join(map(repr, parts.space.axes)) or "those of the domain"),
            ("algorithm", repr(parts.algorithm)),
            ("model", repr(self.model)),
            ("feedback", repr(parts.feedback) if parts.feedback is not None else "the algorithm's own"),
        ]

    @property
    def pending(self) -> tuple[Ticket, ...]:
        """Tickets that have been asked for and lack values."""
        return tuple(self._ticket(number) for number, record in self._tickets.items() if record.state in ("pending", "partial"))

    @property
    def told(self) -> dict[int, list[str]]:
        """Names of the outputs whose values have been told, by ticket."""
        names = self.specification.outputs.names
        return {number: [name for name in names if name in record.values] for number, record in self._tickets.items()}

    @property
    def events(self) -> tuple[Event, ...]:
        """All that has happened, in order."""
        return tuple(self._journal.events)

    @property
    def model(self) -> Model:
        """The GP model in force: that of the specification, or of the last fit."""
        fits = [event for event in self._journal.events if event.kind == "fitted"]
        return from_fields(Model, fits[-1].body["model"], "model") if fits else self.specification.model

    @checked
    def belief(self, width: Annotated[float, nonnegative_numbers, scalar] = 2.0) -> xr.Dataset:
        """Return what is believed of every output at every point, from all that has arrived.

        Args:
          width: deviations from the mean to the bounds, >= 0.

        Returns:
          A dataset of ``mean``, ``sd``, ``lower`` and ``upper`` over ``output`` and ``point``, in the outputs' own units, and of
          ``probability_of_feasibility`` over ``point``; the coordinates of the points are in the user's units.
        """
        import xarray as xr  # here because opening a session should not pay for it

        space, outputs = self.specification.space, self.specification.outputs
        mean, sd, feasible = self._believed()
        tables = {"mean": mean, "sd": sd, "lower": mean - float(width) * sd, "upper": mean + float(width) * sd}
        return xr.Dataset(
            {name: (("output", "point"), table) for name, table in tables.items()} | {"probability_of_feasibility": ("point", feasible)},
            coords={"output": list(outputs.names), "point": np.arange(space.domain.size)}
            | {name: ("point", space.column(number)) for number, name in enumerate(space.names)},
            attrs={"width": float(width)},
        )

    def recommend(self, probability: float = 0.5, *, measured: bool = False) -> Recommendation:
        """Return the best point by posterior mean among those feasible with at least the given probability.

        Where none is, it is the one most likely to be feasible, and of those the best.

        Args:
          probability: least posterior probability that all constraints hold, from 0 to 1.
          measured: whether only points count that have been measured.

        Raises:
          InvalidArgument: on a probability out of range.
          SessionError: when only measured points count and there is none.
        """
        scalar.check("probability", probability)
        checks.within("probability", probability, 0, 1, open_low=False)
        boolean("measured", measured)
        space, outputs = self.specification.space, self.specification.outputs
        allowed = np.full(space.domain.size, not measured)
        with self._mutex:
            allowed[[record.index for record in self._tickets.values() if record.values]] = True
            mean, sd, feasible = self._believed()
        if not allowed.any():
            raise SessionError("recommend: no point has been measured yet; tell some values, or leave measured out")
        fine = allowed & (feasible >= probability)
        among = fine if fine.any() else allowed & (feasible == np.max(feasible[allowed]))
        index = int(np.argmax(np.where(among, outputs.objective.sign * mean[0], -np.inf)))
        return Recommendation(
            index=index,
            point=space.point(index),
            mean=dict(zip(outputs.names, mean[:, index].tolist(), strict=True)),
            sd=dict(zip(outputs.names, sd[:, index].tolist(), strict=True)),
            probability_of_feasibility=float(feasible[index]),
            feasible=bool(fine.any()),
        )

    def history(self) -> xr.Dataset:
        """Return what was asked for and told, one row for each ticket; ``history().to_dataframe()`` is the same in pandas.

        Values that are not there are NaN, times that are not there NaT. ``best_so_far`` is the best objective measured where all
        constraints were measured to hold; ``violation of NAME`` sums over tickets how far that constraint was measured to be violated.
        """
        import xarray as xr  # here because opening a session should not pay for it

        space, outputs = self.specification.space, self.specification.outputs
        with self._mutex:
            numbers, rows = list(self._tickets), [dataclasses.replace(record) for record in self._tickets.values()]
        values = {name: np.asarray([row.values.get(name, np.nan) for row in rows], np.float64) for name in outputs.names}
        points, objective = np.asarray([row.index for row in rows], np.int64), values[outputs.objective.name]
        violations = {constraint.name: constraint.violation(values[constraint.name]) for constraint in outputs.constraints}
        holds = np.all([np.isfinite(objective), *(violation == 0 for violation in violations.values())], axis=0)  # which NaN is not
        best = np.maximum.accumulate(np.where(holds, outputs.objective.sign * objective, -np.inf))
        columns = values | {
            "state": np.asarray([row.state for row in rows], dtype="U8"),
            "round": np.asarray([row.round for row in rows], np.int64),
            "index": points,
            "asked_at": _times([row.asked_at for row in rows]),
            "told_at": _times([row.told_at for row in rows]),
            "best_so_far": np.where(np.isfinite(best), outputs.objective.sign * best, np.nan),
            # A value that has not been told, or never will be, adds nothing to the sum.
            **{f"violation of {name}": np.cumsum(np.nan_to_num(column)) for name, column in violations.items()},
        }
        coordinates = {"ticket": np.asarray(numbers, np.int64)}
        coordinates |= {name: space.column(number, points) for number, name in enumerate(space.names)}
        return xr.Dataset(*({name: ("ticket", column) for name, column in table.items()} for table in (columns, coordinates)))

    @checked
    def plot(self, *, feasibility: bool = False) -> matplotlib.figure.Figure:
        """Return a figure of what is believed of every output, and of what was measured: bands on a line, maps on a plane, else slices.

        A notebook shows it; ``plot().savefig("belief.pdf")`` writes it.

        Args:
          feasibility: whether to add a row with the posterior probability that all constraints hold.

        Raises:
          InvalidArgument: on ``feasibility`` of a session without constraints.
        """
        from jaxbandit.session.figures import belief_figure  # here because matplotlib is slow to load

        space, outputs = self.specification.space, self.specification.outputs
        if feasibility and not outputs.constraints:
            raise InvalidArgument("feasibility: must be False in a session without constraints, where every point is feasible, got True")
        with self._mutex:
            return belief_figure(space, outputs, self.belief(), self.history(), self.recommend().index, feasibility=feasibility)

    def export(self, path: str | Path | None = None) -> Path:
        """Write all events as lines of JSON to a file, by default ``events.jsonl`` beside the journal, and return its path."""
        file = prepare_file(self.directory / "events.jsonl" if path is None else path_of(path, "path"), force=True)
        text = "".join(event.line() + "\n" for event in self._journal.events)
        write_whole(file, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        return file

    def _ticket(self, number: int) -> Ticket:
        space, record = self.specification.space, self._tickets[number]
        return Ticket(number, record.round, record.index, space.point(record.index), space.scaled(record.index), record.status)

    def _believed(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return mean and deviation ``[n, M]`` of the outputs in their own units, and the probability ``[M]`` that all constraints hold.

        By the algorithm's belief, or, where it learns nothing, by the model given all that has been told.
        """
        outputs = self.specification.outputs
        with self._mutex:
            if not self.specification.algorithm.traits.learns:
                predicted = self._course.predict_from(self._told())
            else:
                if not self._course.begun:
                    self._course.begin(self._known_design())
                predicted = self._course.predict()
        mean, sd = outputs.outward(np.asarray(predicted.mean, np.float64), np.asarray(predicted.sd, np.float64))
        return mean, sd, outputs.probability_of_feasibility(mean, sd)

    def _told(self) -> list[Told]:
        """Return the points of all values that have been told, with these as the model sees them."""
        return [(record.index, self.specification.outputs.inward(record.values)) for record in self._tickets.values() if record.values]

    def _known_design(self) -> list[Told]:
        """Return points and values of the initial design, as far as they are complete."""
        design = [record for record in self._tickets.values() if record.round == 0 and record.state == "complete"]
        return [(record.index, self.specification.outputs.inward(record.values)) for record in design]


def _times(written: list[str]) -> np.ndarray:
    """Return times in UTC, NaT for empty ones."""
    return np.asarray([np.datetime64(text.removesuffix("+00:00") if text else "NaT", "ms") for text in written], "datetime64[ms]")


def path_of(given: object, name: str = "directory") -> Path:
    """Return ``Path(given)``; raises ``InvalidArgument``, naming the argument, if it is not a path."""
    path_check(name, given)
    return Path(given)  # type: ignore[arg-type]  # which has been checked


__all__ = ["Recommendation", "Ticket", "Tickets", "View", "path_of"]
