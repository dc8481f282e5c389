"""Check of a session's model and of its values.

It predicts left-out values and computes the evidence of mistakes.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jaxbandit.core.doors import either
from jaxbandit.core.text import aligned, html_table
from jaxbandit.session import mistakes
from jaxbandit.session.journal import SessionError
from jaxbandit.session.models import for_each, standardised
from jaxbandit.session.quantities import Outputs, readable
from jaxbandit.session.replay import State
from jaxbandit.session.shown import Shown
from jaxbandit.surrogates.evidence.host import covariances

if TYPE_CHECKING:
    import matplotlib.figure
    import pandas as pd
    import xarray as xr

# A check needs this number of values of an output.
MIN_VALUES = 5
NO_MISTAKE = "No mistake was found."


@dataclasses.dataclass(frozen=True, eq=False)
class ModelCheck:
    """Return value of ``Session.check``: predictions of left-out values, and likely mistakes.

    Attributes:
      flags: sentences about likely mistakes, each with tickets and advice; none where no mistake was found.
      table: dataset over ``output`` and ``ticket`` of ``value``, of ``mean`` and ``sd`` of its prediction from all other values, of the
        ``residual`` in these deviations, and of the ``probability`` of a smaller value; NaN without a value.
      inside: by output, the shares of values in the central 80% and 95% of their predictions.
      least_expected: the tickets of the three least expected runs, the least expected first.
      drift: by output, the estimated change from the first to the last value at equal points, in the output's units.
      outputs: the outputs of the session.
    """

    flags: tuple[str, ...]
    table: xr.Dataset
    inside: dict[str, tuple[float, ...]]
    least_expected: tuple[int, ...]
    drift: dict[str, float]
    outputs: Outputs = dataclasses.field(repr=False)

    def to_dataframe(self) -> pd.DataFrame:
        """Return the table as rows of pandas, one for each value."""
        return self.table.to_dataframe().dropna(subset="value").reset_index()

    def plot(self) -> matplotlib.figure.Figure:
        """Return a figure of measured against predicted values.

        It has the residuals by ticket, too.
        """
        # Matplotlib is slow to load.
        from jaxbandit.session.figures import check_figure

        return check_figure(self.outputs, self.table, self.least_expected)

    def rows(self) -> list[list[str]]:
        """Return a line of text for each output, below headings."""
        found = [["output", "values", "inside 80%", "inside 95%", "drift, first to last"]]
        for name, (inner, outer) in self.inside.items():
            count = int(np.isfinite(self.table["value"].sel(output=name)).sum())
            found.append([name, str(count), f"{inner:.0%}", f"{outer:.0%}", readable(float(f"{self.drift[name]:.3g}"))])
        return found

    def __str__(self) -> str:
        said = [f"- {flag}" for flag in self.flags] or [NO_MISTAKE]
        least = f"The least expected runs are tickets {', '.join(map(str, self.least_expected))}."
        return "\n".join([*said, "", aligned(self.rows()), "", least])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """Return the flags as a list, and a table of the outputs."""
        from html import escape

        head, *body = self.rows()
        said = "".join(f"<li>{escape(flag)}</li>" for flag in self.flags) or f"<li>{NO_MISTAKE}</li>"
        least = f"Least expected runs: tickets {', '.join(map(str, self.least_expected))}"
        return f"<ul>{said}</ul>{html_table(head, body, caption=least)}"


class OutputValues(NamedTuple):
    """Values of one output by ticket, with their points."""

    name: str
    tickets: np.ndarray
    indices: np.ndarray
    values: np.ndarray

    def left_out(self, shown: Shown, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return leave-one-out means and deviations ``[K, n]``, and values ``[n]``.

        They are in the models' units, and deviations are of values with noise (Rasmussen and Williams 2006, eq. 5.12).
        """
        told = [(int(index), {self.name: float(value)}) for index, value in zip(self.indices, self.values, strict=True)]
        _, _, seen = standardised(shown.outputs, shown.standard, told, [number])
        average, values, found = shown.averages[number], seen[:, 0], list[tuple[np.ndarray, np.ndarray]]()
        for kernel, noise in average.models:
            matrix = covariances(kernel, shown.points[self.indices]) + float(average.data.constant)
            inverse = np.linalg.inv(matrix + max(float(noise), 1e-10) * np.eye(len(values)))
            precisions = np.diagonal(inverse)
            found.append((values - inverse @ values / precisions, 1 / np.sqrt(precisions)))
        means, deviations = map(np.stack, zip(*found, strict=True))
        return means, deviations, values

    def candidates(self, state: State, shown: Shown, number: int) -> tuple[list[mistakes.Candidate], float | None, list[Any]]:
        """Return models that may have made the values, location and transforms."""
        average, standard = shown.averages[number], shown.standard
        models = [(kernel, float(noise), float(weight)) for (kernel, noise), weight in zip(average.models, average.weights, strict=True)]
        if state.shown is None:
            [(kernel, noise, _)] = models
            others = mistakes.misstatements(kernel, noise)
            models = [(kernel, noise, 0.5), *((*one, 0.5 / len(others)) for one in others)]
            return models, standard.location[number] if state.standard is None else None, [mistakes.unchanged]
        sign = state.specification.outputs.objective.sign
        own = for_each("kernel", state.specification.first[0], state.specification.outputs, standard)[number]
        transforms = [mistakes.unchanged]
        for side in (1, -1):
            transforms += [mistakes.logarithmic(side)] if np.all(side * self.values > 0) else []
        if number == 0 and standard.bend is not None:
            transforms.append((lambda values: standard.bent(sign * values), lambda values: standard.log_slope(sign * values)))
        return mistakes.around([models[0][0], own], shown.points[self.indices], models), None, transforms

    def is_among(self, tickets: np.ndarray) -> bool:
        """Return whether values of tickets lie around the others' range."""
        some = np.isin(self.tickets, tickets)
        low, high = np.min(self.values[~some], initial=np.inf), np.max(self.values[~some], initial=-np.inf)
        return bool(np.all(some) or np.all(np.abs(self.values[some] - (low + high) / 2) <= 1.5 * (high - low)))


def checked_model(state: State) -> ModelCheck:
    """Return the check of a session's state."""
    # Both are slow to load.
    import xarray as xr
    from scipy.special import log_ndtr, ndtr

    outputs = state.specification.outputs
    told = [
        OutputValues(name, *(np.asarray(column) for column in zip(*rows, strict=True)))
        for name in outputs.names
        if len(rows := [(n, one.ticket.index, one.values[name]) for n, one in state.records.items() if name in one.values]) >= MIN_VALUES
    ]
    if not told:
        most = max(sum(name in one.values for one in state.records.values()) for name in outputs.names)
        raise SessionError(f"check: needs at least {MIN_VALUES} values of an output, and {most} have been told; tell more of them first")
    if np.ndim(state.model.noise_variance) and np.size(state.model.noise_variance) != len(state.modelled.outputs.names):
        raise SessionError("check: needs noise that is the same at all points, and the model has a table of noise over them")
    shown, tickets = state.believed, np.asarray([*state.records])
    columns = {name: np.full((len(told), len(tickets)), np.nan) for name in ("value", "mean", "sd", "residual", "probability")}
    tails = np.full(len(tickets), np.inf)
    for row, one in enumerate(told):
        number, at = outputs.names.index(one.name), np.searchsorted(tickets, one.tickets)
        means, deviations, seen = one.left_out(shown, number)
        away, weights = (seen - means) / deviations, shown.averages[number].weights
        mean, sd = shown.in_units(number, means, deviations)
        smaller = weights @ ndtr(away)
        for name, column in zip(columns, (one.values, mean, sd, (one.values - mean) / sd, smaller), strict=True):
            columns[name][row, at] = column
        tail = np.log(weights)[:, None] + np.minimum(log_ndtr(away), log_ndtr(-away))
        tails[at] = np.minimum(tails[at], mistakes.summed(tail))
    names = [one.name for one in told]
    table = xr.Dataset(
        {name: (("output", "ticket"), column) for name, column in columns.items()}, coords={"output": names, "ticket": tickets}
    )
    distances = np.abs(columns["probability"] - 0.5)
    levels = (0.8, 0.95)
    inside = {
        name: tuple(float(np.nanmean(np.where(np.isnan(row), np.nan, row <= level / 2))) for level in levels)
        for name, row in zip(names, distances, strict=True)
    }
    flags, drift = flagged(state, shown, told)
    least = tickets[np.argsort(tails, kind="stable")[: min(3, int(np.isfinite(tails).sum()))]]
    return ModelCheck(tuple(flags), table, inside, tuple(map(int, least)), drift, outputs)


def flagged(state: State, shown: Shown, told: Sequence[OutputValues]) -> tuple[list[str], dict[str, float]]:
    """Return sentences about likely mistakes, and the drift of every output."""
    names = state.specification.outputs.names
    # Mistakes are looked for among the latest 128 values of every output.
    told = [OutputValues(one.name, *(column[-128:] for column in one[1:])) for one in told]
    varied = {one.name: one for one in told if np.ptp(one.values) > 0}
    pairs = [
        (one, other)
        for one, other in itertools.combinations(varied.values(), 2)
        if len(np.intersect1d(one.tickets, other.tickets)) >= MIN_VALUES
    ]
    is_stated = state.shown is None
    candidates = {name: one.candidates(state, shown, names.index(name)) for name, one in varied.items()}

    def column(one: OutputValues, kept: np.ndarray) -> mistakes.Column:
        models, location, transforms = candidates[one.name]
        return mistakes.Column.of(shown.points[one.indices[kept]], one.values[kept], models, location, transforms)

    said, now = list[str](), dict(varied)
    # A mistake is shown where it makes the values this many times as likely. Values that look mistaken are more often right than a drift or
    # a stated model that does, because functions with steps and penalties look like that.
    values_likelier, likelier = 100.0, 20.0
    # Mistaken values are looked for one after the other, up to this number.
    most = 3
    for _ in range(most):
        found: list[tuple[mistakes.Block, np.ndarray, tuple[str, ...]]] = []
        for one in now.values():
            found.append((column(one, np.ones(len(one.values), bool)).wrong_unit(), one.tickets, (one.name,)))
        for first, second in pairs:
            one, other = now[first.name], now[second.name]
            both = [np.isin(a.tickets, b.tickets) for a, b in ((one, other), (other, one))]
            block = column(one, both[0]).exchanged(column(other, both[1]))
            found.append((block, one.tickets[both[0]], (one.name, other.name)))
        block, tickets, which = max(found, key=lambda each: each[0].evidence)
        wrong = tickets[block.first : block.last + 1]
        corrected = _as_meant(now, which, wrong, block.factor)
        if block.evidence <= np.log(values_likelier) or not all(one.is_among(wrong) for one in corrected.values()):
            break
        said.append(_mistake_in_words(which, wrong, block.factor))
        now |= corrected
    drift, stated = dict.fromkeys((one.name for one in told), 0.0), dict[tuple[str, ...], np.ndarray]()
    for name, one in now.items():
        points, (models, location, transforms) = shown.points[one.indices], candidates[name]
        # A trend along an axis is none in time.
        whole = mistakes.Column.of(points, one.values, models, None, transforms, trend=points)
        evidence, drift[name] = whole.drift() if whole.freedom >= MIN_VALUES - 1 else (-np.inf, 0.0)
        if evidence > np.log(likelier):
            where = f"from ticket {one.tickets[0]} to ticket {one.tickets[-1]}"
            change = f"{'rise' if drift[name] > 0 else 'fall'} by about {abs(drift[name]):.3g}"
            advice = f"measure the point of ticket {one.tickets[0]} again, and calibrate the instrument if the value has changed"
            said.append(f"Values of {name} at equal points {change} {where}; {advice}.")
        if is_stated:
            kernel, noise, _ = models[0]
            # Standardised values have about the variance of the model.
            unit = None if state.standard is None else float(np.std(one.values)) or 1.0
            stated[name,] = mistakes.of_stated(points, one.values, kernel, noise, location, unit)
    if len(stated) > 1:
        # All outputs may have the same mistake.
        stated = {tuple(now): np.sum([*stated.values()], axis=0)} | stated
    for which, logarithms in stated.items():
        evidence, part, factor = mistakes.misstated(logarithms)
        if evidence > np.log(likelier):
            said.append(_model_in_words(which, part, factor))
            break
    return said, drift


def _as_meant(now: dict[str, OutputValues], which: tuple[str, ...], wrong: np.ndarray, factor: float) -> dict[str, OutputValues]:
    """Return the outputs of a mistake with the values that were meant."""
    if len(which) == 1:
        [one] = (now[name] for name in which)
        return {one.name: one._replace(values=np.where(np.isin(one.tickets, wrong), one.values / factor, one.values))}
    one, other = (now[name] for name in which)
    at = [np.flatnonzero(np.isin(each.tickets, wrong)) for each in (one, other)]
    values, others = one.values.copy(), other.values.copy()
    values[at[0]], others[at[1]] = other.values[at[1]], one.values[at[0]]
    return {one.name: one._replace(values=values), other.name: other._replace(values=others)}


def _mistake_in_words(names: Sequence[str], tickets: np.ndarray, factor: float) -> str:
    """Return a sentence about values in another unit, or exchanged ones."""
    one, correction = len(tickets) == 1, either("tell(..., correct=True)", "session tell with --correct")
    where = f"ticket {tickets[0]}" if one else f"tickets {tickets[0]} to {tickets[-1]}"
    if len(names) > 1:
        subject = f"{names[0]} and {names[1]} of {where} seem to be exchanged"
        return f"{subject}; check the columns, and correct them by {correction}."
    if factor < 0:
        mistake, cause = "the wrong sign", "the sign"
    else:
        size = f"{factor:g} times too large" if factor > 1 else f"{1 / factor:g} times too small"
        mistake, cause = f"{'a value' if one else 'values'} {size}", "the unit"
    subject = f"{names[0]} of {where} {'seems' if one else 'seem'} to have {mistake} beside the other values"
    return f"{subject}; check {cause}, and correct {'it' if one else 'them'} by {correction}."


def _model_in_words(names: tuple[str, ...], part: str, factor: float) -> str:
    where = f"values of {' and '.join(names)}"
    if part == "length_scale":
        words = f"{'longer' if factor > 1 else 'shorter'} length-scales, by a factor of about {max(factor, 1 / factor):.3g}"
    else:
        words = f"{'more' if factor > 1 else 'less'} noise, by a factor of about {max(factor, 1 / factor):.3g} of its variance"
    advice = either("leave the model out of Session.create", "leave the model out of the session's file")
    return f"The model does not fit the {where}, which suggest {words}; state that in another session, or {advice} to have it fitted."
