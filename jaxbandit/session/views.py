"""Views of a session: beliefs, history, recommendation, figure and events."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self, TypeAlias

import numpy as np

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import FilePath, checked
from jaxbandit.core.doors import either
from jaxbandit.core.fields import between, nonnegative_numbers, positive, scalar, whole
from jaxbandit.core.text import html_fields
from jaxbandit.domains import Box
from jaxbandit.domains.regions import given_in
from jaxbandit.host.files import prepare_file, write_whole
from jaxbandit.session.axes import Spot
from jaxbandit.session.checks import ModelCheck, checked_model
from jaxbandit.session.history import FAILURE
from jaxbandit.session.journal import Event, Journal, SessionError
from jaxbandit.session.reasons import Reason, reason
from jaxbandit.session.replay import State, Ticket
from jaxbandit.session.settled import Settlement, settlement
from jaxbandit.session.shown import Believed
from jaxbandit.session.specification import Specification
from jaxbandit.study.runs import Model

if TYPE_CHECKING:
    import matplotlib.figure
    import xarray as xr

Probability: TypeAlias = Annotated[float, between(0, 1, open_low=False, host=True)]
"""Least probability that all constraints hold."""


@dataclasses.dataclass(frozen=True)
class Recommendation:
    """The point that a session recommends.

    Attributes:
      index: number of the point in the domain; ``None`` for a point of a box that is neither candidate nor measured.
      point: the point by the names of its coordinates, in the user's units, with the labels of categories.
      mean: posterior mean of each output, by name, in its own units.
      sd: posterior standard deviation of each output, by name.
      probability_of_feasibility: posterior probability that all constraints hold at the point, by independent normal beliefs. After a
        failed run it includes the probability that a run gives values there.
      feasible: whether this probability reaches the required one; otherwise the point is the one most likely to be feasible.
    """

    index: int | None
    point: Mapping[str, float | str]
    mean: Mapping[str, float]
    sd: Mapping[str, float]
    probability_of_feasibility: float
    feasible: bool


class Reading:
    """Read-only part of a :class:`~jaxbandit.session.Session`."""

    def __init__(self, journal: Journal, specification: Specification) -> None:
        self.directory, self.specification = journal.directory, specification
        self._journal, self._mutex = journal, threading.RLock()
        self._state = State(specification)
        self._state.follow(journal)
        # Points and values that fit the user's prior of the constraints.
        self._vetted: set[tuple[int, tuple[tuple[str, float], ...]]] = set()

    def close(self) -> None:
        """Close the journal. Earlier events can still be read."""
        with self._mutex:
            self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def pending(self) -> tuple[Ticket, ...]:
        """Tickets with missing values."""
        with self._current() as state:
            return tuple(record.ticket for record in state.records.values() if record.state in ("pending", "partial"))

    @property
    def told(self) -> dict[int, list[str]]:
        """Names of the outputs with a value, by ticket."""
        names = self.specification.outputs.names
        with self._current() as state:
            return {number: [name for name in names if name in record.values] for number, record in state.records.items()}

    @property
    def events(self) -> tuple[Event, ...]:
        """All events in order."""
        with self._current():
            return tuple(self._journal.events)

    @property
    def settlement(self) -> Settlement | None:
        """Result of the rule that ended the session, ``None`` if not ended."""
        with self._current() as state:
            return state.settlement

    @property
    def model(self) -> Model:
        """Current GP model, in standardised outputs after a fit."""
        with self._current() as state:
            return state.model

    @property
    def shows_noise(self) -> bool:
        """Return whether a fit finds noise in an output."""
        with self._current() as state:
            return state.shown is not None and any(state.shown.noise)

    @checked
    def belief(self, width: Annotated[float, nonnegative_numbers, scalar] = 2.0) -> xr.Dataset:
        """Return the posterior of every output at every point, given all values.

        A model without given hyper-parameters is fitted to all values, and the hyper-parameters are averaged over draws from their
        posterior, given up to 256 values of an output. Algorithms choose by the last fit only, with smaller deviations.

        Args:
          width: deviations from the mean to the bounds, >= 0.

        Returns:
          A dataset of ``mean``, ``sd``, ``lower`` and ``upper`` over ``output`` and ``point``, in the outputs' own units, and of
          ``probability_of_feasibility`` over ``point``. The coordinates of the points are in the user's units.
        """
        # Opening a session should not pay for this import.
        import xarray as xr

        with self._current() as state:
            space, outputs, (mean, sd, feasible) = state.space, self.specification.outputs, state.belief_at()
        tables = {"mean": mean, "sd": sd, "lower": mean - float(width) * sd, "upper": mean + float(width) * sd}
        belief = xr.Dataset(
            {name: (("output", "point"), table) for name, table in tables.items()} | {"probability_of_feasibility": ("point", feasible)},
            coords={"output": list(outputs.names), "point": np.arange(space.size)}
            | {name: ("point", column) for name, column in space.columns.items()},
            attrs={"width": float(width)},
        )
        return self._with_units(belief)

    @checked
    def recommend(
        self, probability: Probability = 0.5, *, anywhere: bool = False, context: Mapping[str, float | str] | None = None
    ) -> Recommendation:
        """Return the measured, probably feasible point with the best posterior mean.

        The beliefs are the same as in :meth:`belief`. If values show no noise, they replace the means: the point is the best measured one
        whose measured constraints all hold. As long as no neighbouring points were measured, noise looks like a rough function; then a
        constraint's value and belief count half each.

        If no point is feasible with the probability, the result is the point most likely to be feasible; among equals it is the point that
        violates constraints least. A point with a failed or dropped run is recommended only if another run there was complete. After a
        failed run the probability that a run gives values counts, too.

        Args:
          probability: least posterior probability that all constraints hold, from 0 to 1.
          anywhere: whether unmeasured points count, too: all points of the domain, and on a box all points that ascents from the best
            candidates and measured points reach. The model's belief of such a point may be wrong, especially far from all measurements.
          context: context of the point, as for :meth:`Session.ask`; required with contexts.

        Raises:
          InvalidArgument: if the probability is out of range, or the context is not one of the session.
          SessionError: if no point has been measured, unless ``anywhere`` and the model is in the outputs' units.
        """
        with self._current() as state:
            here = state.space.context(context)
            space, sign = state.space, self.specification.outputs.objective.sign
            known = self._best_known(probability, anywhere=anywhere, context=here)
            if not anywhere or not isinstance(space.domain, Box):
                return known
            place = space.readable(state.course.best(probability))
            if state.has_failed(Spot(space.size, place)):
                return known
            found = self._recommended(None, space.point(place), state.belief_at(place), 0, probability)

            def worth(one: Recommendation) -> tuple[bool, float, float]:
                reward = sign * next(iter(one.mean.values()))
                return (True, reward, 0.0) if one.feasible else (False, one.probability_of_feasibility, reward)

            return max(known, found, key=worth)

    @checked
    def settled(
        self, within: Annotated[float, positive, scalar], draws: Annotated[int, whole(16, 65536)] = 256, *, probability: Probability = 0.5
    ) -> Settlement:
        """Return the probability that the recommended point is good enough.

        The method draws functions and hyper-parameters from their posterior and searches for each function's best feasible point, on a box
        among the candidates and near the best points. The result is as right as the model: it is too optimistic for a function unlike all
        draws of the model's kernels, such as a needle between the measured points.

        Args:
          within: largest loss of the objective that does not matter, > 0, in the objective's units.
          draws: number of functions drawn, from 16.
          probability: as for :meth:`recommend`.

        Returns:
          The probability that the recommended point satisfies all constraints and loses at most ``within``, and the expected gain of a
          further run.

        Raises:
          InvalidArgument: if an argument is out of range.
          SessionError: as :meth:`recommend` does.
        """
        with self._current() as state:
            state.space.check_one_best("settled", "each context has a best point of its own")
            best = self._best_known(probability).index
            assert best is not None
            return settlement(state.believed, state.space, best, state.unfit, float(within), draws)

    def check(self) -> ModelCheck:
        """Return whether the model predicts the values, and mistakes.

        Mistakes are values that look mistaken.

        Every value is predicted from all others by the belief that :meth:`belief` shows. Likely mistakes among the latest 128 values of
        every output are looked for: another unit or sign, exchanged columns, a drift in the order of the tickets, and a stated model that
        does not fit. In a session without a mistake a false alarm is rarer than 5%, by simulation, as far as its functions are like draws
        of its model.

        Raises:
          SessionError: when no output has five values yet, and when the model's noise differs between points.
        """
        with self._current() as state:
            return checked_model(state)

    def why(self, ticket: Ticket | int) -> Reason:
        """Return the reason for a ticket's point.

        It is from all values that had been told when it was asked for.

        Beliefs are those by which the algorithm chose. The term is that of the expected improvement, whatever the algorithm.

        Raises:
          InvalidArgument: on an unknown ticket.
          SessionError: on a ticket that was told without being asked for.
        """
        with self._current() as state:
            record = state.record(ticket)
            return reason(self.specification, self._journal.events, record.ticket, record.values)

    def _best_known(self, probability: float = 0.5, *, anywhere: bool = False, context: int | None = None) -> Recommendation:
        """Return the best measured point of a context, or of all ``anywhere``."""
        with self._current() as state:
            space, allowed = state.space, np.full(state.space.size, anywhere)
            if state.standard is not None and not any(record.values for record in state.records.values()):
                raise SessionError("recommend: nothing has been told yet, and a model of standardised outputs knows no units before")
            allowed[[record.ticket.index for record in state.records.values() if record.values]] = True
            allowed &= ~state.unfit & space.of_context(context)
            if not allowed.any():
                where = "" if context is None else " in this context"
                option = either("say anywhere=True", "take --anywhere")
                words = f"no point has been measured yet{where}; tell some values, or {option}"
                raise SessionError(f"recommend: {'every point has failed' if anywhere else words}")
            indices = np.flatnonzero(allowed)
            mean, sd, feasible = state.belief_at(at=indices)
            reward, excess = self.specification.outputs.objective.sign * mean[0], np.zeros(len(indices))
            if state.shown is not None and not anywhere:
                reward, feasible, excess = state.shown.measured(indices)
        fine = feasible >= probability
        least = np.where(feasible == np.max(feasible), -excess, -np.inf)
        among = fine if fine.any() else least == np.max(least)
        at, believed = int(np.argmax(np.where(among, reward, -np.inf))), (mean, sd, feasible)
        return self._recommended(int(indices[at]), space.point(int(indices[at])), believed, at, probability)

    def _recommended(
        self, index: int | None, point: Mapping[str, float | str], believed: Believed, at: int, probability: float
    ) -> Recommendation:
        names, (mean, sd, feasible) = self.specification.outputs.names, believed
        return Recommendation(
            index=index,
            point=point,
            mean=dict(zip(names, mean[:, at].tolist(), strict=True)),
            sd=dict(zip(names, sd[:, at].tolist(), strict=True)),
            probability_of_feasibility=float(feasible[at]),
            feasible=bool(feasible[at] >= probability),
        )

    def history(self) -> xr.Dataset:
        """Return points and values of all tickets, a row for each ticket.

        ``history().to_dataframe()`` is the same in pandas. Missing values are NaN and missing times NaT, such as the ``asked_at`` of an
        observed point. Variables with a unit have the attribute ``units``. ``best_so_far`` is the best measured objective with measured
        constraints that all hold; ``violation of NAME`` is the sum over tickets of that constraint's measured violation.
        ``failed`` marks failed runs, unless an axis or an output has that name.
        """
        import xarray as xr

        columns, places = self.columns(), {"ticket", *self._state.space.names}
        return self._with_units(
            xr.Dataset(*({name: ("ticket", column) for name, column in columns.items() if (name in places) is at} for at in (False, True)))
        )

    def columns(self) -> dict[str, np.ndarray]:
        """Return the columns of :meth:`history` by name, as NumPy arrays."""
        outputs = self.specification.outputs
        with self._current() as state:
            space = state.space
            rows = [dataclasses.replace(record) for record in state.records.values()]
        values = {name: np.asarray([row.values.get(name, np.nan) for row in rows], np.float64) for name in outputs.names}
        points, objective = np.asarray([row.ticket.index for row in rows], np.int64), values[outputs.objective.name]
        violations = {constraint.name: constraint.violation(values[constraint.name]) for constraint in outputs.constraints}
        # A constraint with NaN does not hold.
        holds = np.all([np.isfinite(objective), *(violation == 0 for violation in violations.values())], axis=0)
        best = np.maximum.accumulate(np.where(holds, outputs.objective.sign * objective, -np.inf))
        columns = {"ticket": np.asarray([row.ticket.number for row in rows], np.int64)}
        columns |= {name: column[points] for name, column in space.columns.items()} | values
        # An early journal may have an output of that name.
        failed = {} if FAILURE in columns else {FAILURE: np.asarray([row.over == "failed" for row in rows], bool)}
        columns |= failed
        return columns | {
            "state": np.asarray([row.state for row in rows], dtype="U8"),
            "round": np.asarray([row.ticket.round for row in rows], np.int64),
            "index": points,
            "asked_at": np.asarray([row.asked_at.removesuffix("+00:00") or "NaT" for row in rows], "datetime64[ms]"),
            "told_at": np.asarray([row.told_at.removesuffix("+00:00") or "NaT" for row in rows], "datetime64[ms]"),
            "best_so_far": np.where(np.isfinite(best), outputs.objective.sign * best, np.nan),
            # A missing value adds nothing to the sum.
            **{f"violation of {name}": np.cumsum(np.nan_to_num(column)) for name, column in violations.items()},
        }

    def _with_units(self, dataset: xr.Dataset) -> xr.Dataset:
        """Add the units of axes and outputs, shown in xarray's figures."""
        for name in dataset.variables.keys() & self.specification.units.keys():
            dataset[name].attrs["units"] = self.specification.units[str(name)]
        return dataset

    @checked
    def plot(self, *, feasibility: bool = False) -> matplotlib.figure.Figure:
        """Return a figure of beliefs and measurements of every output.

        It has bands on a line, maps on a plane, and otherwise slices. ``plot().savefig("belief.pdf")`` writes it to a file.

        Args:
          feasibility: whether to add a row with the posterior probability that all constraints hold.

        Raises:
          InvalidArgument: if ``feasibility`` is true in a session without constraints.
        """
        from jaxbandit.session.figures import belief_figure

        outputs = self.specification.outputs
        if feasibility and not outputs.constraints:
            raise InvalidArgument("feasibility: must be False in a session without constraints, where every point is feasible, got True")
        with self._current() as state:
            # Without measurements the figure marks the best point of the prior.
            best = self._best_known(anywhere=not any(record.values for record in state.records.values())).index
            assert best is not None
            return belief_figure(state.space, outputs, self.belief(), self.history(), best, feasibility=feasibility)

    def export(self, path: FilePath | None = None) -> Path:
        """Write events as JSON lines, by default ``events.jsonl``, and return the path."""
        file = prepare_file(self.directory / "events.jsonl" if path is None else path, force=True)
        text = "".join(event.line() + "\n" for event in self.events)
        write_whole(file, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        return file

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'; '.join(f'{name}: {text}' for name, text in self._in_brief()[:4])})".replace("\n", ", ")

    def _repr_html_(self) -> str:
        """Return an HTML table of the session's parts and progress."""
        return html_fields(type(self).__name__, self._in_brief())

    @property
    def learner_changed_at(self) -> int | None:
        """First ticket of a later jaxbandit version's learner, ``None`` without a change."""
        with self._current() as state:
            return state.learner_changed_at

    def _change_of_learner(self) -> str:
        """Return :attr:`learner_changed_at` in words, empty without a change."""
        number = self.learner_changed_at
        return f"from ticket {number} on points are those of the learner of a later version of jaxbandit" if number else ""

    def _in_brief(self) -> list[tuple[str, str]]:
        """Return facts by name, with the facts of ``__repr__`` first."""
        parts, waiting, choices = self.specification, len(self.pending), self.specification.space.choices
        known = f", such that {given_in(parts.space.such_that)}" if parts.space.such_that else ""
        source = "that of the model that was given" if parts.model else "fitted once, to what was known before round 1"
        with self._current() as state:
            bent = state.standard.said_of(parts.outputs.objective.sign) if state.standard else ""
        return [
            ("directory", str(self.directory)),
            ("tickets", f"{len(self._state.records)}, {waiting} pending" if waiting else str(len(self._state.records))),
            ("outputs", "\n".join([str(parts.outputs.objective), *map(str, parts.outputs.constraints)])),
            ("points", f"{choices if isinstance(choices, str) else f'{choices:,}'} of {', '.join(parts.space.names)}{known}"),
            ("axes", "\n".join(map(repr, parts.space.axes)) or "those of the domain"),
            ("algorithm", repr(parts.algorithm)),
            ("model", repr(self.model)),
            *([("learner", change)] if (change := self._change_of_learner()) else []),
            *([(str(parts.outputs.objective), bent)] if bent else []),
            *([("constraints hold", f"as far as their prior does, {source}")] if parts.is_guarded and parts.outputs.constraints else []),
        ]

    @contextlib.contextmanager
    def _current(self) -> Iterator[State]:
        """Yield the state after all processes' events to one thread at once."""
        with self._mutex:
            self._journal.follow()
            self._state.follow(self._journal)
            yield self._state
