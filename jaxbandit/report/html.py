"""Reports of a study's results as self-contained HTML pages."""

from __future__ import annotations

import base64
import dataclasses
import io
import itertools
import json
import textwrap
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from pprint import pformat
from typing import Any, TypeAlias

import jinja2
import matplotlib
import numpy as np
import xarray as xr
from matplotlib.figure import Figure
from PIL import Image

import jaxbandit
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import FilePath, T, checked
from jaxbandit.host.figures import COLOURS, DPI, Drawing, WholeLabels, compose, figure_of, plain
from jaxbandit.host.files import prepare_file, reason_of, write_whole
from jaxbandit.report import statistics
from jaxbandit.report.plots import boxes_over_time, delay_histogram, mean_curves
from jaxbandit.report.sweeps import sweep, sweeps_of, win_map
from jaxbandit.report.tables import PANELS, decimals, latex_table, summary_rows, with_half, write_csv
from jaxbandit.results.dataset import Results, flags_in_words, results_dataset, sweeps_without_effect
from jaxbandit.results.files import read_results
from jaxbandit.results.summary import groups_of, legend_of, measures_shown, note_of

__all__ = ["render", "write_report"]
__dir__ = __all__.copy

# Bytes of a figure as SVG, beyond which it becomes a PNG.
MAX_SVG_BYTES = 150_000

MEASURES = (("regret", "regret R"), ("positive_regret", "positive regret R+"), ("hard_violation", "violation V"))

Panels: TypeAlias = Sequence[tuple[str, str]]  # [panels] measure and label

Section: TypeAlias = Mapping[str, object] | Sequence[object] | str
"""Contents of a section for its part of the template. A section without contents is left out."""

TableCell: TypeAlias = str | Mapping[str, object]
"""A cell of a table. It is text, or a mapping of text, its tag, an interval and asides below."""


@dataclasses.dataclass(frozen=True)
class Picture:
    """Figure of a page with its caption."""

    caption: str
    figure: Figure


@checked
def write_report(directory: FilePath | Results, out: FilePath | None = None) -> Path:
    """Write the report of a study's results as one HTML file.

    Args:
      directory: directory with ``results.nc`` or ``results.zarr``, as studies write it, or a dataset of results.
      out: path of the report, which is overwritten; default ``report.html`` in ``directory``, or in the working directory.

    Returns:
      The path of the report, which refers to no other file or address.

    Raises:
      InvalidArgument: when the directory or its results are missing or cannot be read, or are not results of a study.
    """
    folder = Path(".") if isinstance(directory, xr.Dataset) else Path(directory)
    if not folder.is_dir():
        raise InvalidArgument(f"directory: {folder} is no directory; give one that a study wrote its results to")
    dataset = directory if isinstance(directory, xr.Dataset) else read_results(folder)
    needed = ("algorithm", "trial", "round", "status", "declared_round")
    if missing := [name for name in needed if name not in dataset.variables or not dataset[name].size]:
        raise InvalidArgument(f"directory: {folder} holds no results of a study: {', '.join(missing)} missing")
    results_dataset("directory", dataset)
    path = prepare_file(folder / "report.html" if out is None else out, force=True)
    try:
        text = render(dataset, name=folder.resolve().name)
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise InvalidArgument(
            f"directory: the results in {folder}, of versions {dataset.attrs.get('versions')}, cannot be shown by {jaxbandit.__version__}"
            f" ({reason_of(error)}): they are damaged or of another version"
        ) from error
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return path


def render(dataset: xr.Dataset, *, name: str) -> str:
    """Return a dataset's report as HTML, with ``name`` as default title."""

    def parsed(value: object) -> object:
        """Return an attribute as Python values, parsed if it is JSON."""
        try:
            return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
        except (ValueError, RecursionError):
            return value

    attributes = {name: parsed(value) for name, value in dataset.attrs.items()}
    sizes, results = dataset.sizes, StudyPage(dataset)
    facts = f"{sizes['algorithm']} runs of {sizes['trial']} trials, {int(dataset['round'][-1]):,} rounds"
    facts += "".join(f"{words}{attributes[key]}" for key, words in (("seed", ", seed "), ("created", "; made ")) if key in attributes)
    # The head of the page shows the command and the study.
    values = {name: value for name, value in attributes.items() if name not in ("command", "study")}
    shown = partial(pformat, width=120, compact=True, sort_dicts=False)
    nested = [(name, shown(value)) for name, value in values.items() if isinstance(value, dict | list)]
    single = [[{"text": name, "tag": "code"}, str(value)] for name, value in values.items() if not isinstance(value, dict | list)]
    sections: dict[str, Section] = {
        "summary": results.summary(),
        "flags": flags_in_words(dataset) or [f"None of the {dataset.status.size:,} trials was flagged."],
        "curves": results.curves(),
        "boxes": results.boxes(),
        "sweep": results.sweeps(),
        "delays": results.delays(),
        "differences": results.differences(),
        "wins": results.wins(),
        "growth": results.growth(),
        "parameters": {"single": single, "nested": nested} if values else {},
    }
    return page(
        "study",
        sections,
        title=attributes.get("study", name),
        subtitle="report",
        facts=facts,
        command=attributes.get("command"),
        findings={"summary": statistics.shared_start(dataset), "sweep": sweeps_without_effect(dataset)},
    )


def page(kind: str, sections: Mapping[str, Section], **head: object) -> str:
    """Return the page of a ``kind`` ("study", "watched", "session") without empty sections."""
    shown = {name: content for name, content in sections.items() if content}
    loader = jinja2.PackageLoader("jaxbandit.report", "")
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["address"] = address_of
    return environment.get_template("page.html.j2").render(kind=kind, sections=shown, **head)


class StudyPage:
    """Sections of a report, computed from the results of a study."""

    def __init__(self, dataset: xr.Dataset) -> None:
        self.dataset, self.panels, groups = dataset, _measures(dataset), statistics.problem_groups(dataset)
        # The labels of each problem's algorithms, with a note on the problem.
        self.groups = [
            (labels, f", problem {dataset['problem'].sel(algorithm=labels[0]).item()}" if len(groups) > 1 else "") for labels in groups
        ]

    @property
    def parts(self) -> list[tuple[xr.Dataset, str]]:
        """Results on each problem, with a note on it."""
        return [(_without_problem(self.dataset.sel(algorithm=labels), note), note) for labels, note in self.groups]

    def summary(self) -> Section:
        """Return the table of means after the last round."""
        found = summary_rows(self.dataset)
        shown = measures_shown(found)
        rows: list[list[TableCell]] = []
        for heading, members in groups_of(found).items():
            rows += [[{"text": heading, "tag": "i"}, *[""] * (len(shown) + 1)]] if heading else []
            for label, row in members:
                numbers = (with_half(row[name], row[f"{name} +-"]) + note_of(row, name) for name in shown)
                rows.append([label, f"{row['trials'] - row['failed']} of {row['trials']}", *numbers])
        legend = f"{legend_of(found)} Rounds: {int(statistics.elapsed(self.dataset)[-1]):,}. Trials that failed are left out."
        written = io.StringIO()
        write_csv(found, written)
        copies = {"CSV": written.getvalue(), "LaTeX": latex_table(found)}
        return {"heads": ["algorithm", "trials", *shown], "rows": rows, "legend": legend, "copies": copies}

    def differences(self) -> Section:
        """Return tables of paired differences with intervals and p-values."""
        tables: list[tuple[str, list[str], list[list[TableCell]]]] = []
        seed, resamples = 0, 2000
        for part, note in self.parts:
            names = part.algorithm.values.tolist()
            measures = _measures(part, MEASURES) if len(names) > 1 else []
            pairs = [statistics.paired_differences(part, name, seed=seed, averaged=True, resamples=resamples) for name, _ in measures]
            # Compare up to seven algorithms each with each, a table for each measure, and more with the first, a column for each measure.
            if len(names) <= 7:
                for (_, words), every in zip(measures, pairs, strict=True):
                    shown = [(r, c) for r in range(len(names)) for c in range(r + 1, len(names))]
                    found = dict(zip(shown, self._column(every, shown), strict=True))
                    body = [[name, *(found.get((r, c), "") for c in range(len(names)))] for r, name in enumerate(names)]
                    tables.append((words + note, ["row minus column", *names], body))
            elif measures:
                columns = [self._column(every, [(r, 0) for r in range(1, len(names))]) for every in pairs]
                body = [list(row) for row in zip(names[1:], *columns, strict=True)]
                tables.append((note.removeprefix(", "), [f"row minus {names[0]}", *(words for _, words in measures)], body))
        return {"tables": tables, "resamples": f"{resamples:,}", "seed": seed} if tables else {}

    @staticmethod
    def _column(pairs: xr.Dataset, shown: Sequence[tuple[int, int]]) -> list[TableCell]:
        """Return the cells of ``shown`` pairs, with p-values by Holm's correction."""

        def cell(pair: xr.Dataset, corrected: float) -> TableCell:
            mean, low, high = (float(pair[name]) for name in ("mean", "low", "high"))
            if not np.isfinite(mean):
                return "undefined" if int(pair["count"]) else "no common trial"
            if not np.isfinite(low):
                return f"{mean:z,.3f} (one trial)"
            digits = decimals((high - low) / 2)
            p, holms = ("< 0.0001" if value < 1e-4 else f"{value:.2g}" for value in (float(pair.p), corrected))
            interval = f"[{low:z,.{digits}f}, {high:z,.{digits}f}]"
            tag = "b" if corrected <= 0.05 else ""
            return {"text": f"{mean:z,.{digits}f}", "tag": tag, "interval": interval, "asides": [f"p {p}, Holm {holms}"]}

        corrected = statistics.holm([pairs.p.values[pair] for pair in shown])
        return [cell(pairs.isel(algorithm=r, versus=c), p) for (r, c), p in zip(shown, corrected, strict=True)]

    def growth(self) -> Section:
        """Return the table of growth exponents."""
        measures = _measures(self.dataset, (*MEASURES, ("soft_violation", "soft violation"), ("strong_regret", "strong regret")))
        fits = [statistics.growth_exponent(self.dataset, name, seed=0, resamples=2000) for name, _ in measures]
        if not fits:
            return {}

        def cell(fit: xr.Dataset) -> TableCell:
            exponent, low, high = (float(fit[key]) for key in ("exponent", "low", "high"))
            text = f"{exponent:.2f}" if np.isfinite(exponent) else "undefined"
            return {"text": text + (f" [{low:.2f}, {high:.2f}]" if np.isfinite(low) else ""), "asides": [str(fit.reason.values)]}

        return {
            "heads": ["algorithm", *(words for _, words in measures)],
            "rows": [[str(label), *(cell(fit.sel(algorithm=label)) for fit in fits)] for label in self.dataset.algorithm.values],
            **{key: f"{fits[0].attrs[f'{key}_round']:,}" for key in ("first", "last")},
        }

    def delays(self) -> Section:
        """Draw a histogram of delays, if there are any."""
        if "arrival" not in self.dataset:
            return []
        drawn = compose("", [[partial(delay_histogram, self.dataset)]], size=(7.0, 3.6))
        return [Picture("Delays of the values that arrived within the run.", drawn)]

    def curves(self) -> list[Picture]:
        """Draw averages over rounds with 95% bands, an algorithm for each colour."""
        few, places = _thinned(self.dataset), self.dataset.indexes["algorithm"]
        means = [statistics.over_trials(few, name, averaged=True).assign_coords(round=statistics.elapsed(few)) for name, _ in self.panels]
        parts = [(places.get_indexer(labels), note) for labels, note in figure_parts(self.groups, len(COLOURS))]
        return mean_pictures(parts, self.panels, means, "Averages over rounds, means over trials with 95% confidence bands")

    def boxes(self) -> list[Picture]:
        """Draw box plots at ten rounds, three algorithms across and measures downwards."""
        box = partial(boxes_over_time, every=max(1, int(statistics.elapsed(self.dataset)[-1]) // 10))
        caption = "Spread over trials: boxes hold the middle half of the trials, orange lines are medians, blue lines means"
        pictures = []
        for labels, note in figure_parts(self.groups, 3) if self.panels else ():
            part = self.dataset.sel(algorithm=labels)
            names = _without_problem(part, note).algorithm.values
            # A panel has room for 42 letters in a line above it.
            columns = [(part.sel(algorithm=label), textwrap.fill(plain(name), 42)) for label, name in zip(labels, names, strict=True)]
            rows = [
                [partial(box, one, name, heading="" if number else heading, ylabel=words) for one, heading in columns]
                for number, (name, words) in enumerate(self.panels)
            ]
            pictures.append(Picture(f"{caption}{note}.", compose("", rows, size=(4.2, 3.0), one_scale=True)))
        return pictures

    def sweeps(self) -> list[Picture]:
        """Draw measures against swept hyper-parameters, a figure for each sweep."""
        pictures = []
        for parameters, part in sweeps_of(self.dataset):
            if panels := _measures(part):
                figure = Drawing(layout=WholeLabels())
                sweep(part, measures=panels, parameters=parameters, axes=figure)
                pictures.append(Picture(f"Means over trials after the last round, over {' and '.join(parameters)}.", figure))
        return pictures

    def wins(self) -> list[Picture]:
        """Draw shares of trials won among 2 to 24 algorithms."""
        pictures = []
        for part, note in self.parts:
            count = part.sizes["algorithm"]
            side = 2.9 + 0.32 * count
            if 2 <= count <= 24 and (panels := _measures(part)):
                row = [partial(win_map, statistics.win_matrix(part, name), heading=words) for name, words in panels]
                pictures.append(Picture(f"Share of trials that the row wins{note}.", compose("", [row], size=(side + 0.8, side))))
        return pictures


def _measures(dataset: xr.Dataset, known: Panels = PANELS) -> Panels:
    """Return the measures in ``known`` that a dataset has, with their labels."""
    return [(name, words) for name, words in known if name in dataset and np.isfinite(dataset[name].values).any()]


def mean_pictures(parts: Sequence[tuple[Sequence[int], str]], panels: Panels, means: Sequence[xr.Dataset], caption: str) -> list[Picture]:
    """Draw a picture for each part, three panels of means a row."""
    pictures, across = [], min(len(panels), 3)
    for numbers, note in parts if panels else ():
        figure, axes = figure_of(-(-len(panels) // across), across, (4.2, 3.6))
        for axis in axes.flat[len(panels) :]:
            axis.remove()
        shown = [_without_problem(_thinned(mean.isel(algorithm=list(numbers))), note) for mean in means]
        mean_curves(axes.flat[: len(panels)], shown[0]["round"].values, panels, shown)
        pictures.append(Picture(f"{caption}{note}.", figure))
    return pictures


def _thinned(dataset: xr.Dataset) -> xr.Dataset:
    """Return the dataset at up to 200 rounds, including the last."""
    count = dataset.sizes["round"]
    return dataset.isel(round=np.unique(np.linspace(0, count - 1, min(count, 200)).round().astype(int)))


def figure_parts(groups: Sequence[tuple[Sequence[T], str]], most: int) -> list[tuple[list[T], str]]:
    """Return the members, up to ``most``, and notes of four figures."""
    figures = 4
    counts = [-(-len(members) // most) for members, _ in groups]
    chunks = [[(list(members[n::count]), note) for n in range(count)] for (members, note), count in zip(groups, counts, strict=True)]
    rounds = itertools.zip_longest(*chunks)
    # The first figures of all groups come before any second figure.
    parts = [part for each in rounds for part in each if part is not None]
    if hidden := sum(len(members) for members, _ in parts[figures:]):
        members, note = parts[figures - 1]
        parts[figures - 1] = members, f"{note}; {hidden:,} more runs are in the tables only"
    return parts[:figures]


def _without_problem(part: xr.Dataset, note: str) -> xr.Dataset:
    """Return runs with labels that leave out the problem in their ``note``."""
    start, _, problem = note.split(";")[0].partition(", problem ")
    on = "" if start or not problem else f" on {problem}"
    labels = [str(label).replace(on, "", 1) for label in part.algorithm.values]
    return part.assign_coords(algorithm=labels) if len(set(labels)) == len(labels) else part


def address_of(picture: Picture) -> str:
    """Return a figure as data URL, a small SVG or a PNG."""
    buffer, kind = io.BytesIO(), "svg+xml"
    # Text drawn as outlines looks the same everywhere. The fixed salt makes reports of equal results equal files.
    settings: Any = {"svg.fonttype": "path", "svg.hashsalt": "jaxbandit", "path.simplify_threshold": 0.5}
    with matplotlib.rc_context(settings):
        picture.figure.savefig(buffer, format="svg", metadata={"Date": None})
    if buffer.tell() > MAX_SVG_BYTES:
        figure, kind, painted = picture.figure, "png", io.BytesIO()
        # A PNG has at most 2400 pixels across, and 128 colours.
        figure.savefig(painted, format="png", dpi=min(DPI, 2400 / figure.get_figwidth()))
        buffer = io.BytesIO()
        Image.open(painted).convert("RGB").quantize(128, Image.Quantize.FASTOCTREE).save(buffer, "png", optimize=True)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
