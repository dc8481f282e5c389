"""Figures of a study's report; which ones depends on the variables of its dataset."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from jaxbandit.drawing import COLOURS, Drawing, figure_of, grid_of_axes, plain
from jaxbandit.report.curves import PANELS, boxes_over_time, curves
from jaxbandit.report.findings import in_words
from jaxbandit.report.statistics import elapsed, over_trials, problem_groups, win_matrix
from jaxbandit.report.sweeps import sweep, sweeps_of, win_map
from jaxbandit.report.template import Picture
from jaxbandit.report.traces import delay_histogram

MOST_LINES = len(COLOURS)  # most lines in one panel
MOST_BOXES = 3  # most panels of box plots side by side
MOST_POINTS = 200  # of a line
MOST_FIGURES = 4  # most figures of one kind: a hundred swept variants are shown by the sweep figure, not by a hundred curves
BOXES = 10  # box plots over time in one panel
MOST_RIVALS = 24  # most algorithms in a heat map of wins

T = TypeVar("T")
Panels: TypeAlias = list[tuple[str, str]]  # measures with their axis labels


def panels_of(dataset: xr.Dataset) -> Panels:
    """Return the measures of :data:`~jaxbandit.report.curves.PANELS` that a dataset holds, with their axis labels."""
    return [(name, label) for name, label in PANELS if name in dataset and np.isfinite(dataset[name].values).any()]


def curve_pictures(dataset: xr.Dataset) -> list[Picture]:
    """Draw averages over rounds with 95% bands: a figure for each group of up to ``MOST_LINES`` algorithms on one problem."""

    def draw(part: xr.Dataset, panels: Panels, figure: Figure) -> None:
        curves(thinned(part), measures=panels, axes=figure)

    return _grouped(dataset, MOST_LINES, draw, "Averages over rounds, means over trials with 95% confidence bands")


def box_pictures(dataset: xr.Dataset) -> list[Picture]:
    """Draw box plots over the rounds: a column for each algorithm, a row for each measure."""
    every = max(1, int(elapsed(dataset)[-1]) // BOXES)

    def draw(part: xr.Dataset, panels: Panels, figure: Figure) -> None:
        grid = grid_of_axes(figure, len(panels), part.sizes["algorithm"], (4.2, 3.0), one_scale=True)
        for row, (name, words) in zip(grid, panels, strict=True):
            for number, (axis, label) in enumerate(zip(row, part.algorithm.values, strict=True)):
                ylabel = "" if number else words
                boxes_over_time(part.sel(algorithm=label), name, heading=plain(label), ylabel=ylabel, every=every, ax=axis)

    caption = "Spread over trials: boxes hold the middle half of the trials, orange lines are medians, blue lines means"
    return _grouped(dataset, MOST_BOXES, draw, caption)


def _grouped(dataset: xr.Dataset, most: int, draw: Callable[[xr.Dataset, Panels, Figure], None], caption: str) -> list[Picture]:
    """Draw a picture of each group of up to ``most`` algorithms on one problem; none of a dataset without measures."""
    pictures, panels = [], panels_of(dataset)
    for labels, note in _parts(dataset, most) if panels else ():
        part, figure = dataset.sel(algorithm=labels), Drawing(layout="constrained")
        draw(part, panels, figure)
        pictures.append(Picture(f"{caption}{note}.", figure, final_values_in_words(part, panels)))
    return pictures


def sweep_pictures(dataset: xr.Dataset) -> list[Picture]:
    """Draw measures against swept hyper-parameters, if any: a figure for each set of algorithms that vary in the same ones."""
    pictures = []
    for parameters, part in sweeps_of(dataset):
        if panels := panels_of(part):
            figure = Drawing(layout="constrained")
            sweep(part, measures=panels, parameters=parameters, axes=figure)
            caption = f"Means over trials after the last round, over {' and '.join(parameters)}."
            pictures.append(Picture(caption, figure, final_values_in_words(part, panels)))
    return pictures


def delay_pictures(dataset: xr.Dataset) -> list[Picture]:
    """Draw the histogram of delays, if feedback was delayed."""
    if "arrival" not in dataset:
        return []
    figure, axes = figure_of(1, 1, (7.0, 3.6))
    delay_histogram(dataset, ax=axes[0, 0])
    return [Picture("Delays of the values that arrived within the run.", figure)]


def win_pictures(dataset: xr.Dataset) -> list[Picture]:
    """Draw the shares of trials won after the last round, for each measure; none for one algorithm or more than ``MOST_RIVALS``."""
    panels, side = panels_of(dataset), 2.9 + 0.32 * dataset.sizes["algorithm"]
    if not 2 <= dataset.sizes["algorithm"] <= MOST_RIVALS or not panels:
        return []
    figure, axes = figure_of(1, len(panels), (side + 0.8, side))
    for axis, (name, words) in zip(axes[0], panels, strict=True):
        win_map(win_matrix(dataset, name), heading=words, ax=axis)
    return [Picture("Share of trials that the row wins.", figure)]


def final_values_in_words(dataset: xr.Dataset, panels: Sequence[tuple[str, str]]) -> str:
    """Return the mean of every measure per round after the last round, for every algorithm, as sentences."""
    sentences = []
    for name, _ in panels:
        last = over_trials(dataset, name, averaged=True, levels=()).isel(round=-1)
        each = zip(dataset.algorithm.values, last["mean"].values, (last.high - last["mean"]).values, strict=True)
        values = ", ".join(f"{label} {in_words(mean, half)}" for label, mean, half in each)
        sentences.append(f"{name.replace('_', ' ')} per round at the end: {values}.")
    return " ".join(sentences)


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
