"""Labelled tables of a session: what it believes, what it recommends and what has happened, in the user's own names and units."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from jaxbandit.session.axes import Space
from jaxbandit.session.outputs import Outputs
from jaxbandit.session.tickets import Record
from jaxbandit.surrogates import Prediction

if TYPE_CHECKING:
    import xarray as xr


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


TAKEN = frozenset(
    {
        *("ticket", "state", "round", "index", "asked_at", "told_at", "best_so_far"),
        *("output", "point", "mean", "sd", "lower", "upper", "probability_of_feasibility"),
    }
)
"""Names that the tables use themselves, so that no output and no axis can have them."""


def belief_table(space: Space, outputs: Outputs, predicted: Prediction, width: float) -> xr.Dataset:
    """Return mean, deviation and bounds of every output at every point, and the probability that the constraints hold there."""
    import xarray as xr  # here because opening a session should not pay for it

    mean, sd = outputs.outward(np.asarray(predicted.mean, np.float64), np.asarray(predicted.sd, np.float64))
    return xr.Dataset(
        {
            "mean": (("output", "point"), mean),
            "sd": (("output", "point"), sd),
            "lower": (("output", "point"), mean - width * sd),
            "upper": (("output", "point"), mean + width * sd),
            "probability_of_feasibility": ("point", outputs.probability_of_feasibility(mean, sd)),
        },
        coords={"output": list(outputs.names), "point": np.arange(space.domain.size)}
        | {name: ("point", space.column(number)) for number, name in enumerate(space.names)},
        attrs={"width": width},
    )


def recommend(space: Space, outputs: Outputs, predicted: Prediction, probability: float, allowed: np.ndarray) -> Recommendation:
    """Return the best point by posterior mean among those ``allowed [M]`` that are feasible with at least ``probability``.

    Where none is, it is the one most likely to be feasible, and of those the best.
    """
    mean, sd = outputs.outward(np.asarray(predicted.mean, np.float64), np.asarray(predicted.sd, np.float64))
    feasible = outputs.probability_of_feasibility(mean, sd)
    fine = allowed & (feasible >= probability)
    reward = outputs.objective.sign * mean[0]
    if fine.any():
        index = int(np.argmax(np.where(fine, reward, -np.inf)))
    else:
        likeliest = allowed & (feasible == np.max(feasible[allowed]))
        index = int(np.argmax(np.where(likeliest, reward, -np.inf)))
    return Recommendation(
        index=index,
        point=space.point(index),
        mean={name: float(value) for name, value in zip(outputs.names, mean[:, index], strict=True)},
        sd={name: float(value) for name, value in zip(outputs.names, sd[:, index], strict=True)},
        probability_of_feasibility=float(feasible[index]),
        feasible=bool(fine.any()),
    )


def history_table(space: Space, outputs: Outputs, records: Mapping[int, Record]) -> xr.Dataset:
    """Return what was asked for and told, one row for each ticket; values that are not there are NaN, times that are not there NaT.

    ``best_so_far`` is the best objective measured so far at a point all of whose constraints were measured to hold, and
    ``violation of NAME`` the sum over tickets of how far that constraint was measured to be violated.
    """
    import xarray as xr  # here because opening a session should not pay for it

    numbers = sorted(records)
    rows = [records[number] for number in numbers]
    values = {name: np.asarray([row.values.get(name, np.nan) for row in rows], np.float64) for name in outputs.names}
    points = np.asarray([row.index for row in rows], np.int64)
    violations = {constraint.name: constraint.violation(values[constraint.name]) for constraint in outputs.constraints}
    feasible = np.isfinite(values[outputs.objective.name])
    for violation in violations.values():
        feasible &= violation == 0  # which NaN is not
    reward = np.where(feasible, outputs.objective.sign * values[outputs.objective.name], -np.inf)
    best = np.maximum.accumulate(reward) if len(rows) else reward
    measured: dict[str, tuple[str, np.ndarray]] = {name: ("ticket", column) for name, column in values.items()}
    # A value that has not been told, or never will be, adds nothing to the sum.
    summed = {f"violation of {name}": ("ticket", np.cumsum(np.nan_to_num(column))) for name, column in violations.items()}
    kept: dict[str, tuple[str, np.ndarray]] = {
        "state": ("ticket", np.asarray([row.state(len(outputs.names)) for row in rows], dtype="U8")),
        "round": ("ticket", np.asarray([row.round for row in rows], np.int64)),
        "index": ("ticket", np.asarray([row.index for row in rows], np.int64)),
        "asked_at": ("ticket", _times([row.asked_at for row in rows])),
        "told_at": ("ticket", _times([row.told_at for row in rows])),
        "best_so_far": ("ticket", np.where(np.isfinite(best), outputs.objective.sign * best, np.nan)),
    }
    chosen = {name: ("ticket", space.column(number, points)) for number, name in enumerate(space.names)}
    return xr.Dataset(measured | kept | summed, coords={"ticket": np.asarray(numbers, np.int64)} | chosen)


def _times(written: list[str]) -> np.ndarray:
    """Return times in UTC, NaT for empty ones."""
    return np.asarray([np.datetime64(text.removesuffix("+00:00") if text else "NaT", "ms") for text in written], "datetime64[ms]")
