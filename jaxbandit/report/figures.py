"""Pages of reports: one template for results of studies, studies that run and sessions, with figures as small SVG elements.

Which figures a study's report has depends on the variables of its dataset.
"""

from __future__ import annotations

import base64
import dataclasses
import io
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

import jinja2
import matplotlib
import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from jaxbandit.drawing import COLOURS, Drawing, figure_of, plain
from jaxbandit.report.curves import PANELS, boxes_over_time, mean_curves
from jaxbandit.report.statistics import elapsed, over_trials, problem_groups, win_matrix
from jaxbandit.report.sweeps import sweep, sweeps_of, win_map
from jaxbandit.report.traces import delay_histogram

MOST_LINES = len(COLOURS)  # most lines in one panel
MOST_BOXES = 3  # most panels of box plots side by side
MOST_POINTS = 200  # of a line
MOST_FIGURES = 4  # most figures of one kind: a hundred swept variants are shown by the sweep figure, not by a hundred curves
BOXES = 10  # box plots over time in one panel
MOST_RIVALS = 24  # most algorithms in a heat map of wins
ACROSS = 3  # panels side by side

T = TypeVar("T")
Panels: TypeAlias = Sequence[tuple[str, str]]  # measures with their axis labels

# Text as outlines looks the same everywhere; names of equal parts are equal, so that a report of equal results is the same file.
SVG: Any = {"svg.fonttype": "path", "svg.hashsalt": "jaxbandit", "path.simplify_threshold": 0.5}

Section: TypeAlias = Mapping[str, object] | Sequence[object] | str
"""Contents of a section, as its part of the template takes them; a section without any is left out."""

Cell: TypeAlias = str | Mapping[str, object]
"""A cell of a table: text, or a mapping of text, the tag that it stands in, an interval and asides below it."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """A figure of a page, and its caption."""

    caption: str
    figure: Figure


def render(kind: str, sections: Mapping[str, Section], **head: object) -> str:
    """Return a page that needs no other file: of a ``kind`` ("study", "watched" or "session"), with the sections that are not empty."""
    shown = {name: content for name, content in sections.items() if content}
    return _ENVIRONMENT.get_template("page.html.j2").render(kind=kind, sections=shown, **head)


def address_of(picture: Picture) -> str:
    """Return a figure as an address that holds it, as SVG."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(SVG):
        picture.figure.savefig(buffer, format="svg", metadata={"Date": None})
    return f"data:image/svg+xml;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def panels_of(dataset: xr.Dataset) -> Panels:
    """Return the measures of :data:`~jaxbandit.report.curves.PANELS` that a dataset holds, with their axis labels."""
    return [(name, label) for name, label in PANELS if name in dataset and np.isfinite(dataset[name].values).any()]


def curve_pictures(dataset: xr.Dataset) -> list[Picture]:
    """Draw averages over rounds with 95% bands: a figure for each group of up to ``MOST_LINES`` algorithms on one problem."""
    panels, few, places = panels_of(dataset), thinned(dataset), dataset.indexes["algorithm"]
    means = [over_trials(few, name, averaged=True).assign_coords(round=elapsed(few)) for name, _ in panels]
    parts = [(places.get_indexer(labels), note) for labels, note in _parts(dataset, MOST_LINES)]
    return mean_pictures(parts, panels, means, "Averages over rounds, means over trials with 95% confidence bands")


def mean_pictures(parts: Sequence[tuple[Sequence[int], str]], panels: Panels, means: Sequence[xr.Dataset], caption: str) -> list[Picture]:
    """Draw a picture for each of ``parts``, the numbers of its algorithms and a note on them, with a panel for each of ``means``."""
    pictures, across = [], min(len(panels), ACROSS)
    for numbers, note in parts if panels else ():
        figure, axes = figure_of(-(-len(panels) // across), across, (4.2, 3.6))
        for axis in axes.flat[len(panels) :]:
            axis.remove()
        shown = [thinned(mean.isel(algorithm=list(numbers))) for mean in means]
        mean_curves(axes.flat[: len(panels)], shown[0]["round"].values, panels, shown)
        pictures.append(Picture(f"{caption}{note}.", figure))
    return pictures


def box_pictures(dataset: xr.Dataset) -> list[Picture]:
    """Draw box plots over the rounds: a column for each algorithm, a row for each measure."""
    every, panels, pictures = max(1, int(elapsed(dataset)[-1]) // BOXES), panels_of(dataset), []
    for labels, note in _parts(dataset, MOST_BOXES) if panels else ():
        figure, grid = figure_of(len(panels), len(labels), (4.2, 3.0), one_scale=True)
        for row, (name, words) in zip(grid, panels, strict=True):
            for number, (axis, label) in enumerate(zip(row, labels, strict=True)):
                ylabel = "" if number else words
                boxes_over_time(dataset.sel(algorithm=label), name, heading=plain(label), ylabel=ylabel, every=every, ax=axis)
        caption = "Spread over trials: boxes hold the middle half of the trials, orange lines are medians, blue lines means"
        pictures.append(Picture(f"{caption}{note}.", figure))
    return pictures


def sweep_pictures(dataset: xr.Dataset) -> list[Picture]:
    """Draw measures against swept hyper-parameters, if any: a figure for each set of algorithms that vary in the same ones."""
    pictures = []
    for parameters, part in sweeps_of(dataset):
        if panels := panels_of(part):
            figure = Drawing(layout="constrained")
            sweep(part, measures=panels, parameters=parameters, axes=figure)
            pictures.append(Picture(f"Means over trials after the last round, over {' and '.join(parameters)}.", figure))
    return pictures


def delay_pictures(dataset: xr.Dataset) -> list[Picture]:
    """Draw the histogram of delays, if feedback was delayed."""
    if "arrival" not in dataset:
        return []
    figure, axes = figure_of(1, 1, (7.0, 3.6))
    delay_histogram(dataset, ax=axes[0, 0])
    return [Picture("Delays of the values that arrived within the run.", figure)]


def win_pictures(dataset: xr.Dataset) -> list[Picture]:
    """Draw the shares of trials won after the last round, for each measure, of 2 to ``MOST_RIVALS`` algorithms on one problem."""
    pictures = []
    for labels in problem_groups(dataset):
        part, side = dataset.sel(algorithm=labels), 2.9 + 0.32 * len(labels)
        if 2 <= len(labels) <= MOST_RIVALS and (panels := panels_of(part)):
            figure, axes = figure_of(1, len(panels), (side + 0.8, side))
            for axis, (name, words) in zip(axes[0], panels, strict=True):
                win_map(win_matrix(part, name), heading=words, ax=axis)
            pictures.append(Picture(f"Share of trials that the row wins{group_note(dataset, labels)}.", figure))
    return pictures


def thinned(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset at up to ``MOST_POINTS`` of its rounds, the last one among them."""
    count = dataset.sizes["round"]
    return dataset.isel(round=np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(int)))


def left_out(dataset: xr.Dataset, most: int) -> int:
    """Return the number of algorithms not shown, because figures of ``most`` algorithms each would be too many."""
    return dataset.sizes["algorithm"] - sum(len(labels) for labels, _ in _parts(dataset, most))


def _parts(dataset: xr.Dataset, most: int) -> list[tuple[list[str], str]]:
    """Return the labels of each figure, up to ``most`` of one problem, with a note on the problem; at most ``MOST_FIGURES`` of them."""
    return parts_of([(labels, group_note(dataset, labels)) for labels in problem_groups(dataset)], most)


def parts_of(groups: Sequence[tuple[Sequence[T], str]], most: int) -> list[tuple[list[T], str]]:
    """Return the members of each figure, up to ``most`` of one group, with the note on the group; at most ``MOST_FIGURES`` of them."""
    parts = [(np.array_split(np.asarray(members, object), -(-len(members) // most)), note) for members, note in groups]
    return [(list(chunk), note) for chunks, note in parts for chunk in chunks][:MOST_FIGURES]


def group_note(dataset: xr.Dataset, labels: list[str]) -> str:
    """Return the problem of a group of algorithms as ``", problem ..."``; empty when all algorithms were run on the same one."""
    return "" if len(problem_groups(dataset)) == 1 else f", problem {dataset['problem'].sel(algorithm=labels[0]).item()}"


_ENVIRONMENT = jinja2.Environment(
    loader=jinja2.PackageLoader("jaxbandit.report", ""), autoescape=True, trim_blocks=True, lstrip_blocks=True, cache_size=1
)
_ENVIRONMENT.filters["address"] = address_of
