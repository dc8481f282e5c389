"""A session as one looks at it: what is under way, what is believed, what is recommended, and all that has happened."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.codec import from_fields
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import nonnegative_numbers, scalar
from jaxbandit.core.fields import path as path_check
from jaxbandit.core.files import prepare_file, write_whole
from jaxbandit.core.showing import html_fields
from jaxbandit.session.course import Course
from jaxbandit.session.journal import Event, Journal, SessionError
from jaxbandit.session.specification import Specification
from jaxbandit.session.tables import Recommendation, belief_table, history_table, recommend
from jaxbandit.session.tickets import Record, Ticket
from jaxbandit.study.model import Model

if TYPE_CHECKING:
    import matplotlib.figure
    import xarray as xr


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
    _records: dict[int, Record]
    _course: Course

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'; '.join(f'{name}: {text}' for name, text in self._in_brief()[:4])})".replace("\n", ", ")

    def _repr_html_(self) -> str:
        """Return a table of what the session is about and how far it is."""
        return html_fields(type(self).__name__, self._in_brief())

    def _in_brief(self) -> list[tuple[str, str]]:
        """Return facts by name: those of the text first, then those of the table."""
        own, waiting = self.specification, len(self.pending)
        return [
            ("directory", str(self.directory)),
            ("tickets", f"{len(self._records)}, {waiting} pending" if waiting else str(len(self._records))),
            ("outputs", "\n".join([str(own.outputs.objective), *map(str, own.outputs.constraints)])),
            ("points", f"{own.space.domain.size:,} of {', '.join(own.space.names)}"),
            ("axes", "\n".join(map(repr, own.space.axes)) or "those of the domain"),
            ("algorithm", repr(own.algorithm)),
            ("model", repr(self.model)),
            ("feedback", repr(own.feedback) if own.feedback is not None else "the algorithm's own"),
        ]

    @property
    def pending(self) -> tuple[Ticket, ...]:
        """Tickets that have been asked for and lack values."""
        count = len(self.specification.outputs.names)
        return tuple(
            self._ticket(number, record) for number, record in self._records.items() if record.state(count) in ("pending", "partial")
        )

    @property
    def told(self) -> dict[int, list[str]]:
        """Names of the outputs whose values have been told, by ticket."""
        return {number: [name for name in self.specification.outputs.names if name in own.values] for number, own in self._records.items()}

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
        with self._mutex:
            return belief_table(self.specification.space, self.specification.outputs, self._predicted(), float(width))

    def recommend(self, probability: float = 0.5, *, measured: bool = False) -> Recommendation:
        """Return the best point by posterior mean among those feasible with at least the given probability.

        Args:
          probability: least posterior probability that all constraints hold, from 0 to 1.
          measured: whether only points count that have been measured.

        Raises:
          InvalidArgument: on a probability out of range.
          SessionError: when only measured points count and there is none.
        """
        checks.scalar("probability", probability)
        checks.within("probability", probability, 0, 1, open_low=False)
        checks.boolean("measured", measured)
        with self._mutex:
            allowed = np.ones(self.specification.space.domain.size, bool)
            if measured:
                allowed[:] = False
                allowed[[record.index for record in self._records.values() if record.values]] = True
                if not allowed.any():
                    raise SessionError("recommend: no point has been measured yet; tell some values, or leave measured out")
            return recommend(self.specification.space, self.specification.outputs, self._predicted(), float(probability), allowed)

    def history(self) -> xr.Dataset:
        """Return what was asked for and told, one row for each ticket; ``history().to_dataframe()`` is the same in pandas.

        ``best_so_far`` is the best objective measured where all constraints were measured to hold; ``violation of NAME`` sums over
        tickets how far that constraint was measured to be violated.
        """
        with self._mutex:
            return history_table(self.specification.space, self.specification.outputs, self._records)

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

    def _ticket(self, number: int, record: Record) -> Ticket:
        space = self.specification.space
        return Ticket(number, record.round, record.index, space.point(record.index), space.scaled(record.index), record.status)

    def _predicted(self) -> Any:
        """Return what is believed: by the algorithm, or, where it learns nothing, by the model given all that has been told."""
        if not self.specification.algorithm.traits.learns:
            return self._course.rounds.predict_from(self._told())
        return self._course.with_design(self._records).predict()

    def _told(self) -> Iterator[tuple[int, dict[int, float]]]:
        """Return the points of all values that have been told, with these as the model sees them, by output."""
        return ((own.index, self.specification.outputs.inward(own.values)) for own in self._records.values() if own.values)


def path_of(given: Any, name: str = "directory") -> Path:
    """Return a path; raises ``InvalidArgument`` on what is none, which ``name`` names."""
    path_check(name, given)
    return Path(given)


__all__ = ["View", "path_of"]
