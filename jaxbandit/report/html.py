"""Report of a study's results as one self-contained HTML file: tables, figures, differences with intervals, parameters, versions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from pprint import pformat

import numpy as np
import xarray as xr

import jaxbandit
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import checked
from jaxbandit.core.files import prepare_file, reason_of, write_whole
from jaxbandit.core.types import FilePath
from jaxbandit.report import figures
from jaxbandit.report.figures import Cell, Picture, Section
from jaxbandit.report.statistics import elapsed, growth_exponent, holm, paired_differences, problem_groups, shared_start
from jaxbandit.report.tables import COLUMNS, summary_rows
from jaxbandit.results.dataset import RESULTS, flags_in_words, sweeps_without_effect
from jaxbandit.results.files import read_results

__all__ = ["render", "write_report"]
__dir__ = __all__.copy  # what completion shows

SEED = 0  # seed of the bootstraps, printed in the report
RESAMPLES = 2000
LEVEL = 0.05  # probability of any error among the comparisons of one table
MOST_COLUMNS = 7  # up to so many algorithms are compared each with each; more are all compared with the first

MEASURES = {"regret": "regret R", "positive_regret": "positive regret R+", "hard_violation": "violation V"}
CUMULATIVE = MEASURES | {"soft_violation": "soft violation", "strong_regret": "strong regret"}
# Attributes that are not repeated among the parameters.
SHOWN_ELSEWHERE = ("command", "study")


@checked
def write_report(directory: FilePath, out: FilePath | None = None) -> Path:
    """Write the report of a study's results as one HTML file.

    Args:
      directory: directory with ``results.nc`` or ``results.zarr``, as studies write it.
      out: path of the report, which is overwritten; default ``report.html`` in ``directory``.

    Returns:
      The path of the report, which refers to no other file or address.

    Raises:
      InvalidArgument: when the directory or its results are missing or cannot be read, or the results are not those of a study.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise InvalidArgument(f"directory: {folder} is no directory; give one that a study wrote its results to")
    dataset = read_results(folder)
    for complaint in _complaints(dataset):
        raise InvalidArgument(f"directory: {folder} holds no results of a study: {complaint}")
    RESULTS("directory", dataset)
    path = prepare_file(folder / "report.html" if out is None else out, force=True)
    try:
        text = render(dataset, name=folder.resolve().name)
    except (KeyError, ValueError, TypeError, IndexError) as error:  # of what a study does not write
        versions = _parsed(dataset.attrs.get("versions", ""))
        version = versions.get("jaxbandit", "unknown") if isinstance(versions, dict) else "unknown"
        raise InvalidArgument(
            f"directory: the results in {folder}, of jaxbandit {version}, cannot be shown by {jaxbandit.__version__} ({reason_of(error)}):"
            " they are damaged or of another version"
        ) from error
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return path


def _complaints(dataset: xr.Dataset) -> Iterator[str]:
    """Yield what is wrong with the rounds and variables that a report reads."""
    missing = [dim for dim in ("algorithm", "trial", "round") if not dataset.sizes.get(dim) or dim not in dataset.coords]
    missing += [variable for variable in ("status", "declared_round") if variable not in dataset]
    if missing:
        yield f"{', '.join(missing)} missing"
    rounds, before = dataset["round"].values, dataset.attrs.get("counted_before", 0)
    if rounds.dtype.kind not in "iu" or np.any(np.diff(rounds) <= 0):
        yield "its rounds are no whole numbers in order"
    if not isinstance(before, int | np.integer) or before < 0:
        yield f"counted_before is no number of points, but {short(before)}"
    for name, values in dataset.data_vars.items():
        dims = set(values.dims)
        if ({"trial", "round"} <= dims and "algorithm" not in dims) or (name == "status" and dims != {"algorithm", "trial"}):
            yield f"{name} is not of each run"


def render(dataset: xr.Dataset, *, name: str) -> str:
    """Return the report of a dataset as HTML; ``name`` is its title if the dataset has none."""
    attributes = {name: _parsed(value) for name, value in dataset.attrs.items()}
    sizes = dataset.sizes
    facts = f"{sizes['algorithm']} algorithms, {sizes['trial']} trials, {int(dataset['round'][-1]):,} rounds"
    facts += "".join(f"{words}{attributes[key]}" for key, words in (("seed", ", seed "), ("created", "; made ")) if key in attributes)
    sections: dict[str, Section] = {
        "summary": _summary(dataset),
        "flags": flags_in_words(dataset) or [f"None of the {dataset.status.size:,} trials was flagged."],
        "curves": _pictures(dataset, figures.curve_pictures, figures.MOST_LINES),
        "boxes": _pictures(dataset, figures.box_pictures, figures.MOST_BOXES),
        "sweep": _pictures(dataset, figures.sweep_pictures),
        "delays": _pictures(dataset, figures.delay_pictures),
        "differences": _differences(dataset),
        "wins": _pictures(dataset, figures.win_pictures),
        "growth": _growth(dataset),
        "parameters": _parameters(attributes),
    }
    return figures.render(
        "study",
        sections,
        title=attributes.get("study", name),
        subtitle="report",
        facts=facts,
        command=attributes.get("command"),
        findings={"summary": shared_start(dataset), "sweep": sweeps_without_effect(dataset)},
    )


def _summary(dataset: xr.Dataset) -> Section:
    shown = [heading for heading, name, _ in COLUMNS if name in dataset]
    rows = [
        [row["algorithm"], f"{row['trials'] - row['failed']} of {row['trials']}", *(with_half(row[h], row[f"{h} +-"]) for h in shown)]
        for row in summary_rows(dataset)
    ]
    return {"heads": ["algorithm", "trials", *shown], "rows": rows, "rounds": f"{int(elapsed(dataset)[-1]):,}"}


def _pictures(dataset: xr.Dataset, draw: Callable[[xr.Dataset], list[Picture]], most: int = 0) -> Section:
    pictures = draw(dataset)
    hidden = figures.left_out(dataset, most) if most and pictures else 0
    return {"pictures": pictures, "hidden": f"{hidden} more algorithms are in the tables only." if hidden else ""} if pictures else {}


def _measures(dataset: xr.Dataset, names: Mapping[str, str]) -> dict[str, str]:
    """Return those of some measures, with their words, that a dataset holds."""
    return {name: words for name, words in names.items() if name in dataset and np.isfinite(dataset[name].values).any()}


def _differences(dataset: xr.Dataset) -> Section:
    tables: list[tuple[str, list[str], list[list[Cell]]]] = []
    for labels in problem_groups(dataset):
        part, note = dataset.sel(algorithm=labels), figures.group_note(dataset, labels)
        pairs = {
            words: paired_differences(part, name, seed=SEED, averaged=True, resamples=RESAMPLES)
            for name, words in _measures(part, MEASURES).items()
            if len(labels) > 1
        }
        if pairs and len(labels) > MOST_COLUMNS:
            first, *others = labels
            columns = [_differences_from(table, others, [first]) for table in pairs.values()]
            rows = [[label, *(column[number][0] for column in columns)] for number, label in enumerate(others)]
            tables.append(("", [f"row minus {first}{note}", *pairs], rows))
            continue
        for words, table in pairs.items():
            rows = [[label, *cells] for label, cells in zip(labels, _differences_from(table, labels, labels), strict=True)]
            tables.append((words + note, ["row minus column", *labels], rows))
    return {"tables": tables, "resamples": f"{RESAMPLES:,}", "seed": SEED} if tables else {}


def _differences_from(pairs: xr.Dataset, rows: list[str], columns: list[str]) -> list[list[Cell]]:
    """Return the cells ``[rows][columns]`` of a table of differences, whose p-values are corrected for the number of its pairs."""
    p = pairs.p.sel(algorithm=rows, versus=columns).values
    shown = np.triu(np.ones(p.shape, bool), 1) if rows == columns else np.ones(p.shape, bool)  # each pair once
    corrected = holm(np.where(shown, p, np.nan))
    return [
        [_difference(pairs.sel(algorithm=row, versus=column), corrected[r, c]) if shown[r, c] else "" for c, column in enumerate(columns)]
        for r, row in enumerate(rows)
    ]


def _difference(pair: xr.Dataset, corrected: float) -> Cell:
    mean, low, high = (float(pair[name]) for name in ("mean", "low", "high"))
    if not np.isfinite(mean):
        return "undefined" if int(pair["count"]) else "no common trial"
    if not np.isfinite(low):
        return f"{_fixed(mean, 3)} (one trial)"
    digits = _decimals((high - low) / 2)
    p, holms = ("< 0.0001" if value < 1e-4 else f"{value:.2g}" for value in (float(pair.p), corrected))
    return {
        "text": _fixed(mean, digits),
        "tag": "b" if corrected <= LEVEL else "",
        "interval": f"[{_fixed(low, digits)}, {_fixed(high, digits)}]",
        "asides": [f"p {p}, Holm {holms}"],
    }


def _growth(dataset: xr.Dataset) -> Section:
    measures = _measures(dataset, CUMULATIVE)
    fits = {name: growth_exponent(dataset, name, seed=SEED, resamples=RESAMPLES) for name in measures}
    if not fits:
        return {}
    first, last = (f"{next(iter(fits.values())).attrs[key]:,}" for key in ("first_round", "last_round"))
    return {
        "heads": ["algorithm", *measures.values()],
        "rows": [[str(label), *(_exponent(fit.sel(algorithm=label)) for fit in fits.values())] for label in dataset.algorithm.values],
        "first": first,
        "last": last,
    }


def _exponent(fit: xr.Dataset) -> Cell:
    exponent, low, high = (float(fit[key]) for key in ("exponent", "low", "high"))
    text = f"{exponent:.2f}" if np.isfinite(exponent) else "undefined"
    return {"text": text + (f" [{low:.2f}, {high:.2f}]" if np.isfinite(low) else ""), "asides": [str(fit.reason.values)]}


def _parameters(attributes: Mapping[str, object]) -> Section:
    values = {name: value for name, value in attributes.items() if name not in SHOWN_ELSEWHERE}
    nested = [
        (name, pformat(value, width=120, compact=True, sort_dicts=False))
        for name, value in values.items()
        if isinstance(value, dict | list)
    ]
    single = [[{"text": name, "tag": "code"}, str(value)] for name, value in values.items() if not isinstance(value, dict | list)]
    return {"single": single, "nested": nested} if values else {}


def _parsed(value: object) -> object:
    """Return an attribute as Python values, parsed if it is JSON."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    try:
        return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
    except (ValueError, RecursionError):
        return value


def _decimals(half: float) -> int:
    """Return the number of decimals that show two digits of an uncertainty."""
    return int(np.clip(1 - np.floor(np.log10(half)), 0, 9)) if np.isfinite(half) and half > 0 else 3


def _fixed(value: float, digits: int) -> str:
    """Format a number with the given number of decimals, without a sign on a zero."""
    return f"{round(value, digits) + 0.0:,.{digits}f}"


def with_half(mean: float, half: float) -> str:
    """Return a mean and its half-width as text, such as ``0.52 ± 0.13``."""
    if not np.isfinite(mean):
        return "undefined"
    digits = _decimals(half)
    return _fixed(mean, digits) + (f" ± {_fixed(half, digits)}" if np.isfinite(half) else "")
