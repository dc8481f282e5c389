"""Reading of a session: its beliefs, history, recommendation, figure and events, after all that has happened."""

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
from jaxbandit.core.fields import between, nonnegative_numbers, positive, scalar, whole
from jaxbandit.core.text import html_fields
from jaxbandit.domains import Box
from jaxbandit.host.files import prepare_file, write_whole
from jaxbandit.session.axes import Place
from jaxbandit.session.journal import Event, Journal, SessionError
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
      index: number of the point in the domain; ``None`` of a point of a box between its candidates and those measured.
      point: the point by the names of its coordinates, in the user's units; of categories their labels.
      mean: posterior mean of each output, by name, in its own units.
      sd: posterior standard deviation of each output, by name.
      probability_of_feasibility: posterior probability that all constraints hold there, by independent normal beliefs.
      feasible: whether that reaches the probability asked for; otherwise the point is the one most likely to be feasible.
    """

    index: int | None
    point: Mapping[str, float | str]
    mean: Mapping[str, float]
    sd: Mapping[str, float]
    probability_of_feasibility: float
    feasible: bool


class Reading:
    """Part of a session that changes nothing, see :class:`~jaxbandit.session.Session`."""

    def __init__(self, journal: Journal, specification: Specification) -> None:
        self.directory, self.specification = journal.directory, specification
        self._journal, self._mutex = journal, threading.RLock()
        self._state = State(specification)
        self._state.follow(journal)
        # Points, with the values told there, that a prior of the constraints which the user has stated allows.
        self._vetted: set[tuple[int, tuple[tuple[str, float], ...]]] = set()

    def close(self) -> None:
        """Close the journal; what has happened by then can still be read."""
        with self._mutex:
            self._journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def pending(self) -> tuple[Ticket, ...]:
        """Tickets that have been asked for and lack values."""
        with self._current() as state:
            return tuple(record.ticket for record in state.records.values() if record.state in ("pending", "partial"))

    @property
    def told(self) -> dict[int, list[str]]:
        """Names of the outputs whose values have been told, by ticket."""
        names = self.specification.outputs.names
        with self._current() as state:
            return {number: [name for name in names if name in record.values] for number, record in state.records.items()}

    @property
    def events(self) -> tuple[Event, ...]:
        """All that has happened, in order."""
        with self._current():
            return tuple(self._journal.events)

    @property
    def settlement(self) -> Settlement | None:
        """How sure the session was when a rule last ended it; ``None`` where none did, or it has gone on since."""
        with self._current() as state:
            return state.settlement

    @property
    def model(self) -> Model:
        """The GP model in force: that of the specification, or of the last fit, which is one of standardised outputs."""
        with self._current() as state:
            return state.model

    @property
    def shows_noise(self) -> bool:
        """Return whether values of an output show noise, by a fit to all that was told; not where the model's noise is stated."""
        with self._current() as state:
            return state.shown is not None and any(state.shown.noise)

    @checked
    def belief(self, width: Annotated[float, nonnegative_numbers, scalar] = 2.0) -> xr.Dataset:
        """Return what is believed of every output at every point, from all that was told.

        A model that the session fits by itself is fitted to all of it, and its hyper-parameters are averaged over draws from their
        posterior, of up to 256 values of an output. Algorithms choose by the last fit alone, which is surer of itself.

        Args:
          width: deviations from the mean to the bounds, >= 0.

        Returns:
          A dataset of ``mean``, ``sd``, ``lower`` and ``upper`` over ``output`` and ``point``, in the outputs' own units, and of
          ``probability_of_feasibility`` over ``point``; the coordinates of the points are in the user's units.
        """
        import xarray as xr  # here because opening a session should not pay for it

        with self._current() as state:
            space, outputs, (mean, sd, feasible) = state.space, self.specification.outputs, self._believed()
        tables = {"mean": mean, "sd": sd, "lower": mean - float(width) * sd, "upper": mean + float(width) * sd}
        belief = xr.Dataset(
            {name: (("output", "point"), table) for name, table in tables.items()} | {"probability_of_feasibility": ("point", feasible)},
            coords={"output": list(outputs.names), "point": np.arange(space.size)}
            | {name: ("point", column) for name, column in space.columns.items()},
            attrs={"width": float(width)},
        )
        return self._with_units(belief)

    def _believed(self, place: Place = (), *, at: np.ndarray | None = None) -> Believed:
        """Return what is believed at all points, at a ``place`` in the unit cube of a box, or at points by number."""
        outputs = self.specification.outputs
        with self._current() as state:
            if (shown := state.shown) is not None:
                points = state.space.modelled
                return shown.at(np.asarray([place]) if place else points if at is None else points[at])
            predicted = state.course.predict_at(place) if place else state.course.predict()
            # Of a box, not free places.
            standard, known = state.standard, slice(1) if place else np.arange(state.space.size) if at is None else at
        mean, sd = (np.asarray(table, np.float64)[:, known] for table in (predicted.mean, predicted.sd))
        mean, sd = outputs.outward(mean, sd, standard)
        return mean, sd, outputs.probability_of_feasibility(mean, sd)

    @checked
    def recommend(self, probability: Probability = 0.5, *, anywhere: bool = False) -> Recommendation:
        """Return the best point measured by posterior mean, of those feasible with a probability.

        A model that the session fits is fitted to all that was told, and its hyper-parameters are averaged. Where values show no noise, the
        values count in place of the means: the point is the best one measured where all constraints were measured to hold. While no
        neighbouring points were measured, noise looks like a rough function, and of a constraint value and belief count half each.

        Where no point is feasible with that probability, it is the point most likely to be feasible, and of such points the one that
        violates constraints least. It is no point whose run was dropped, unless another run there was complete.

        Args:
          probability: least posterior probability that all constraints hold, from 0 to 1.
          anywhere: whether points count that nobody has measured, too: all of the domain, on a box all that ascents from the best
            candidates and points measured reach. What the model believes of such a point may be wrong, far from all measurements most.

        Raises:
          InvalidArgument: on a probability out of range.
          SessionError: when no point has been measured, unless any point counts and the model is in the outputs' units.
        """
        with self._current() as state:
            space, known, sign = state.space, self._best_known(probability, anywhere=anywhere), self.specification.outputs.objective.sign
            if not anywhere or not isinstance(space.domain, Box):
                return known
            place = space.readable(state.course.best(probability).tolist())
            if state.has_failed((space.size, place)):
                return known
            found = self._recommended(None, space.point_at(place), self._believed(place), 0, probability)

            def worth(one: Recommendation) -> tuple[bool, float, float]:
                reward = sign * next(iter(one.mean.values()))
                return (True, reward, 0.0) if one.feasible else (False, one.probability_of_feasibility, reward)

            return found if worth(found) > worth(known) else known

    @checked
    def settled(
        self, within: Annotated[float, positive, scalar], draws: Annotated[int, whole(16, 65536)] = 256, *, probability: Probability = 0.5
    ) -> Settlement:
        """Return how likely the recommended point is as good as the best one, and what a further run is expected to gain.

        Functions are drawn from the belief, with hyper-parameters drawn from theirs. Of each the best feasible point is looked for, on a
        box among its candidates and near those that are best. It is right as far as the model is: where a function is not like a draw of
        the kernels that the model averages over, such as a needle between the points measured, it promises too much.

        Args:
          within: loss of the objective, in its own units, > 0, that does not matter.
          draws: number of functions drawn, from 16.
          probability: as for :meth:`recommend`, whose point it is about.

        Returns:
          The probability that the point satisfies all constraints and is within that loss of the best one, and the expected gain.

        Raises:
          InvalidArgument: on an argument out of range.
          SessionError: as :meth:`recommend`.
        """
        with self._current() as state:
            best = self._best_known(probability).index
            assert best is not None
            return settlement(state.believed, state.space, best, state.unfit, float(within), draws)

    def _best_known(self, probability: float = 0.5, *, anywhere: bool = False) -> Recommendation:
        """Return the best of the points measured; or of all points of the domain, on a box of its candidates and the points measured."""
        with self._current() as state:
            space, allowed = state.space, np.full(state.space.size, anywhere)
            if state.standard is not None and not any(record.values for record in state.records.values()):
                raise SessionError("recommend: nothing has been told yet, and a model of standardised outputs knows no units before")
            allowed[[record.ticket.index for record in state.records.values() if record.values]] = True
            allowed[state.unfit] = False
            if not allowed.any():
                words = "every point has failed" if anywhere else "no point has been measured yet; tell some values, or say anywhere=True"
                raise SessionError(f"recommend: {words}")
            indices = np.flatnonzero(allowed)
            mean, sd, feasible = self._believed(at=indices)
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
        """Return what was asked for and told, one row for each ticket; ``history().to_dataframe()`` is the same in pandas.

        Values that are not there are NaN, times that are not there NaT, as when a point was asked for that never was; variables with a unit
        have the attribute ``units``. ``best_so_far`` is the best objective measured where all constraints were measured to hold;
        ``violation of NAME`` sums over tickets how far that constraint was measured to be violated.
        """
        import xarray as xr  # here because opening a session should not pay for it

        columns, places = self.columns(), {"ticket", *self._state.space.names}
        return self._with_units(
            xr.Dataset(*({name: ("ticket", column) for name, column in columns.items() if (name in places) is at} for at in (False, True)))
        )

    def columns(self) -> dict[str, np.ndarray]:
        """Return the variables and coordinates of :meth:`history` by name, as NumPy arrays with an entry for each ticket."""
        outputs = self.specification.outputs
        with self._current() as state:
            space = state.space
            rows = [dataclasses.replace(record) for record in state.records.values()]
        values = {name: np.asarray([row.values.get(name, np.nan) for row in rows], np.float64) for name in outputs.names}
        points, objective = np.asarray([row.ticket.index for row in rows], np.int64), values[outputs.objective.name]
        violations = {constraint.name: constraint.violation(values[constraint.name]) for constraint in outputs.constraints}
        holds = np.all([np.isfinite(objective), *(violation == 0 for violation in violations.values())], axis=0)  # which NaN is not
        best = np.maximum.accumulate(np.where(holds, outputs.objective.sign * objective, -np.inf))
        columns = {"ticket": np.asarray([row.ticket.number for row in rows], np.int64)}
        columns |= {name: column[points] for name, column in space.columns.items()} | values
        return columns | {
            "state": np.asarray([row.state for row in rows], dtype="U8"),
            "round": np.asarray([row.ticket.round for row in rows], np.int64),
            "index": points,
            "asked_at": np.asarray([row.asked_at.removesuffix("+00:00") or "NaT" for row in rows], "datetime64[ms]"),
            "told_at": np.asarray([row.told_at.removesuffix("+00:00") or "NaT" for row in rows], "datetime64[ms]"),
            "best_so_far": np.where(np.isfinite(best), outputs.objective.sign * best, np.nan),
            # A value that has not been told, or never will be, adds nothing to the sum.
            **{f"violation of {name}": np.cumsum(np.nan_to_num(column)) for name, column in violations.items()},
        }

    def _with_units(self, dataset: xr.Dataset) -> xr.Dataset:
        """Return a dataset whose variables have the attribute ``units``, which xarray's figures show, where axes and outputs do."""
        for name in dataset.variables.keys() & self.specification.units.keys():
            dataset[name].attrs["units"] = self.specification.units[str(name)]
        return dataset

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

        outputs = self.specification.outputs
        if feasibility and not outputs.constraints:
            raise InvalidArgument("feasibility: must be False in a session without constraints, where every point is feasible, got True")
        with self._current() as state:
            # Before anything is measured the figure marks the best point by the prior.
            best = self._best_known(anywhere=not any(record.values for record in state.records.values())).index
            assert best is not None  # as no ascent was made
            return belief_figure(state.space, outputs, self.belief(), self.history(), best, feasibility=feasibility)

    def export(self, path: FilePath | None = None) -> Path:
        """Write all events as lines of JSON to a file, by default ``events.jsonl`` beside the journal, and return its path."""
        file = prepare_file(self.directory / "events.jsonl" if path is None else path, force=True)
        text = "".join(event.line() + "\n" for event in self.events)
        write_whole(file, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        return file

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'; '.join(f'{name}: {text}' for name, text in self._in_brief()[:4])})".replace("\n", ", ")

    def _repr_html_(self) -> str:
        """Return a table of what the session is about and how far it is."""
        return html_fields(type(self).__name__, self._in_brief())

    @property
    def learner_changed_at(self) -> int | None:
        """Number of the first ticket after the learner of a later version of jaxbandit took over; ``None`` where none has."""
        with self._current() as state:
            return state.learner_changed_at

    def _change_of_learner(self) -> str:
        """Return from where on the learner is that of a later version, in words; nothing where it has not changed."""
        number = self.learner_changed_at
        return f"from ticket {number} on points are those of the learner of a later version of jaxbandit" if number else ""

    def _in_brief(self) -> list[tuple[str, str]]:
        """Return facts by name: those of the text first, then those of the table."""
        parts, waiting, choices = self.specification, len(self.pending), self.specification.space.choices
        source = "that of the model that was given" if parts.model else "fitted once, to what was known before round 1"
        with self._current() as state:
            bent = state.standard.said_of(parts.outputs.objective.sign) if state.standard else ""
        return [
            ("directory", str(self.directory)),
            ("tickets", f"{len(self._state.records)}, {waiting} pending" if waiting else str(len(self._state.records))),
            ("outputs", "\n".join([str(parts.outputs.objective), *map(str, parts.outputs.constraints)])),
            (
                "points",
                f"{choices if isinstance(choices, str) else f'{choices:,}'} of {', '.join(parts.space.names)}",
            ),
            ("axes", "\n".join(map(repr, parts.space.axes)) or "those of the domain"),
            ("algorithm", repr(parts.algorithm)),
            ("model", repr(self.model)),
            *([("learner", change)] if (change := self._change_of_learner()) else []),
            *([(str(parts.outputs.objective), bent)] if bent else []),
            *([("constraints hold", f"as far as their prior does, {source}")] if parts.is_guarded and parts.outputs.constraints else []),
        ]

    @contextlib.contextmanager
    def _current(self) -> Iterator[State]:
        """Yield the state after all that has happened, by other processes, too, to one thread at a time."""
        with self._mutex:
            self._journal.follow()
            self._state.follow(self._journal)
            yield self._state
