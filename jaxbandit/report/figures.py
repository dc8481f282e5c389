"""Figures of a study's report; which ones depends on the variables of its dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import xarray as xr

from jaxbandit.drawing import COLOURS, compose, figure_of, plain
from jaxbandit.report.curves import PANELS, boxes_over_time, curves
from jaxbandit.report.statistics import elapsed, over_trials, problem_groups, win_matrix
from jaxbandit.report.sweeps import sweep_panels, sweeps_of, win_map
from jaxbandit.report.template import Picture
from jaxbandit.report.traces import delay_histogram

MOST_LINES = len(COLOURS)  # most lines in one panel
MOST_BOXES = 3  # most panels of box plots side by side
MOST_POINTS = 200  # of a line
MOST_FIGURES = 4  # most figures of one kind: a hundred swept variants are shown by the sweep figure, not by a hundred curves
BOXES = 10  # box plots over time in one panel
MOST_RIVALS = 24  # most algorithms in a heat map of wins

T = TypeVar("T")
Panels: TypeAlias = list[list[Callable[..., Any]]]  # rows of functions, each of which draws one panel


def panels_of(dataset: xr.Dataset) -> list[tuple[str, str]]:
    """Return the measures of :data:`~jaxbandit.report.curves.PANELS` that a dataset holds, with their axis labels."""
    return [(name, label) for name, label in PANELS if name in dataset and np.isfinite(dataset[name].values).any()]


def curve_pictures(dataset: xr.Dataset) -> list[Picture]:
    """Draw averages over rounds with 95% bands: a figure for each group of up to ``MOST_LINES`` algorithms on one problem."""
    pictures, panels = [], panels_of(dataset)
    for labels, note in _parts(dataset, MOST_LINES) if panels else ():
        part = dataset.sel(algorithm=labels)
        figure, axes = figure_of(1, len(panels), (4.2, 3.6))
        curves(thinned(part), measures=panels, axes=axes)
        caption = f"Averages over rounds, means over trials with 95% confidence bands{note}."
        pictures.append(Picture(caption, figure, final_values_in_words(part, panels)))
    return pictures


def box_pictures(dataset: xr.Dataset) -> list[Picture]:
    """Draw box plots over the rounds: a column for each algorithm, a row for each measure."""
    pictures, panels = [], panels_of(dataset)
    every = max(1, int(elapsed(dataset)[-1]) // BOXES)
    for labels, note in _parts(dataset, MOST_BOXES) if panels else ():
        rows: Panels = [
            [
                partial(boxes_over_time, part=dataset.sel(algorithm=label), name=name, heading=plain(label), ylabel=words, every=every)
                for label in labels
            ]
            for name, words in panels
        ]
        caption = f"Spread over trials: boxes hold the middle half of the trials, orange lines are medians, blue lines means{note}."
        values = final_values_in_words(dataset.sel(algorithm=labels), panels)
        pictures.append(Picture(caption, compose("", rows, size=(4.2, 3.0), one_scale=True), values))
    return pictures


def sweep_pictures(dataset: xr.Dataset) -> list[Picture]:
    """Draw measures against swept hyper-parameters, if any: a figure for each set of algorithms that vary in the same ones."""
    pictures = []
    for parameters, part in sweeps_of(dataset):
        panels = panels_of(part)
        if panels:
            figure = compose("", sweep_panels(part, measures=panels, parameters=parameters))
            caption = f"Means over trials after the last round, over {' and '.join(parameters)}."
            pictures.append(Picture(caption, figure, final_values_in_words(part, panels)))
    return pictures


def delay_pictures(dataset: xr.Dataset) -> list[Picture]:
    """Draw the histogram of delays, if feedback was delayed."""
    if "arrival" not in dataset:
        return []
    rows: Panels = [[partial(delay_histogram, dataset)]]
    return [Picture("Delays of the values that arrived within the run.", compose("", rows, size=(7.0, 3.6)))]


def win_pictures(dataset: xr.Dataset) -> list[Picture]:
    """Draw the shares of trials won after the last round, for each measure; none for one algorithm or more than ``MOST_RIVALS``."""
    panels, side = panels_of(dataset), 2.9 + 0.32 * dataset.sizes["algorithm"]
    if not 2 <= dataset.sizes["algorithm"] <= MOST_RIVALS or not panels:
        return []
    rows: Panels = [[partial(win_map, wins=win_matrix(dataset, name), heading=words)] for name, words in panels]
    return [Picture("Share of trials that the row wins.", compose("", rows, size=(side + 0.8, side)))]


def final_values_in_words(dataset: xr.Dataset, panels: Sequence[tuple[str, str]]) -> str:
    """Return the mean of every measure per round after the last round, for every algorithm, as sentences."""
    sentences = []
    for name, _ in panels:
        means = over_trials(dataset, name, averaged=True, levels=()).isel(round=-1)
        each = [
            f"{label} {mean:.3g}" + (f" ± {high - mean:.2g}" if np.isfinite(high) else "") if np.isfinite(mean) else f"{label} undefined"
            for label, mean, high in zip(dataset.algorithm.values, means["mean"].values, means.high.values, strict=True)
        ]
        sentences.append(f"{name.replace('_', ' ')} per round at the end: {', '.join(each)}.")
    return " ".join(sentences)


def thinned(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset at up to ``MOST_POINTS`` of its rounds, the last one among them."""
    count = dataset.sizes["round"]
    return dataset.isel(round=np.unique(np.linspace(0, count - 1, min(count, MOST_POINTS)).round().astype(int)))


def left_out(dataset: xr.Dataset, most: int) -> int:
    """Return the number of algorithms not shown, because figures of ``most`` algorithms each would be too many."""
    return dataset.sizes["algorithm"] - sum(len(labels) for labels, _ in _parts(dataset, most))


def _parts(dataset: xr.Dataset, most: int) -> Iterator[tuple[list[str], str]]:
    """Yield the labels of each figure, up to ``most`` of one problem, with a note on the problem; at most ``MOST_FIGURES`` times."""
    yield from parts_of([(labels, group_note(dataset, labels)) for labels in problem_groups(dataset)], most)


def parts_of(groups: Sequence[tuple[Sequence[T], str]], most: int) -> list[tuple[list[T], str]]:
    """Return the members of each figure, up to ``most`` of one group, with the note on the group; at most ``MOST_FIGURES`` of them."""
    return [(chunk, note) for members, note in groups for chunk in _chunks(members, most)][:MOST_FIGURES]


def group_note(dataset: xr.Dataset, labels: list[str]) -> str:
    """Return the problem of a group of algorithms as ``", problem ..."``; empty when all algorithms were run on the same one."""
    if len(problem_groups(dataset)) == 1:
        return ""
    return f", problem {dataset['problem'].sel(algorithm=labels[0]).item()}"


def _chunks(items: Sequence[T], most: int) -> list[list[T]]:
    """Split items into consecutive parts of nearly equal length, at most ``most`` each."""
    count = -(-len(items) // most)
    return [list(chunk) for chunk in np.array_split(np.asarray(items, object), count)]
