"""Report of a study's results as one self-contained HTML file: tables, figures, differences with intervals, parameters, versions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

import jaxbandit
from jaxbandit.core.arguments import takes
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.fields import optional
from jaxbandit.core.fields import path as path_check
from jaxbandit.core.files import prepare_file, reason_of, write_whole
from jaxbandit.core.status import MESSAGES, REMEDIES, Status
from jaxbandit.report import figures, findings
from jaxbandit.report.markup import Markup, document, element, escaped, joined, picture, section, table
from jaxbandit.report.rates import PAPER_RATES, Rate, rate_of
from jaxbandit.report.statistics import elapsed, growth_exponent, healthy, holm, paired_differences, problem_groups, win_matrix
from jaxbandit.report.tables import COLUMNS, summary_rows
from jaxbandit.report.vector import figure_with_values
from jaxbandit.results.files import read_results
from jaxbandit.results.flags import sweeps_without_effect

SEED = 0  # seed of the bootstraps, printed in the report
RESAMPLES = 2000
MOST_CHARACTERS = 2_000_000  # of a report; a study's PNG files are left out where they would exceed it
MOST_SENTENCES = 4  # above a section; more are folded away
MOST_COLUMNS = 7  # up to so many algorithms are compared each with each; more are all compared with the first
PNG = b"\x89PNG\r\n\x1a\n"
NUMBERS = re.compile(r"\[[^\[\]{}\"]*\]")  # lists in JSON, which take one line each

MEASURES = {"regret": "regret R", "positive_regret": "positive regret R+", "hard_violation": "violation V"}
CUMULATIVE = MEASURES | {"soft_violation": "soft violation", "strong_regret": "strong regret"}
# Attributes that are not repeated among the parameters.
SHOWN_ELSEWHERE = ("command", "versions", "devices", "created", "precision", "study")


@takes(directory=path_check, out=optional(path_check))
def write_report(directory: str | Path, out: str | Path | None = None) -> Path:
    """Write the report of a study's results as one HTML file.

    Args:
      directory: directory with ``results.nc`` or ``results.zarr``, as studies write it; its PNG files are shown too.
      out: path of the report, which is overwritten; default ``report.html`` in ``directory``.

    Returns:
      The path of the report, which refers to no other file or address.

    Raises:
      InvalidArgument: when the directory or its results are missing or cannot be read, or the results are not those of a study.
    """
    folder = Path(directory)
    if not folder.is_dir():
        raise InvalidArgument(f"directory: {folder} is no directory; give one that a study wrote its results to")
    dataset = checked(read_results(folder), folder)
    path = prepare_file(folder / "report.html" if out is None else out, force=True)
    shown = [file for file in sorted(folder.glob("*.png")) if not file.name.startswith("curves")]  # as the report draws, too
    extra = {file.name: file.read_bytes() for file in shown}
    try:
        text = render(dataset, name=folder.resolve().name, extra=extra)
    except (KeyError, ValueError, TypeError, IndexError) as error:  # of what a study does not write
        made = _parsed(dataset.attrs.get("versions", ""))
        version = made.get("jaxbandit", "unknown") if isinstance(made, dict) else "unknown"
        raise InvalidArgument(
            f"directory: the results in {folder}, of jaxbandit {version}, cannot be shown by {jaxbandit.__version__} ({reason_of(error)}):"
            " they are damaged or of another version"
        ) from error
    write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
    return path


def checked(dataset: xr.Dataset, name: str | Path) -> xr.Dataset:
    """Return the dataset if it holds the results of a study; raise ``InvalidArgument`` otherwise."""
    missing = [dim for dim in ("algorithm", "trial", "round") if not dataset.sizes.get(dim) or dim not in dataset.coords]
    missing += [variable for variable in ("status", "declared_round") if variable not in dataset]
    if missing:
        raise InvalidArgument(f"directory: {name} holds no results of a study: {', '.join(missing)} missing")
    for variable in ("status", "declared_round"):
        if set(dataset[variable].dims) != {"algorithm", "trial"} or dataset[variable].dtype.kind not in "iu":
            raise InvalidArgument(f"directory: {name} holds no results of a study: {variable} is no whole number for each run and trial")
    rounds = dataset["round"].values
    if rounds.dtype.kind not in "iu" or np.any(np.diff(rounds) <= 0):
        raise InvalidArgument(f"directory: {name} holds no results of a study: its rounds are no whole numbers in order")
    if len(set(map(str, dataset.algorithm.values))) < dataset.sizes["algorithm"]:
        raise InvalidArgument(f"directory: {name} holds no results of a study: some labels of its runs are equal")
    for measure, values in dataset.data_vars.items():
        if {"trial", "round"} <= set(values.dims) and (
            values.dtype.kind not in "iuf" or set(values.dims) != {"algorithm", "trial", "round"}
        ):
            raise InvalidArgument(f"directory: {name} holds no results of a study: {measure} is no number for each run, trial and round")
    for coordinate in ("problem", "delay", "base"):
        if coordinate in dataset and dataset[coordinate].dims not in ((), ("algorithm",)):
            raise InvalidArgument(f"directory: {name} holds no results of a study: its {coordinate} is no label of each run")
    _check_attributes(dataset, name)
    return dataset


def _check_attributes(dataset: xr.Dataset, name: str | Path) -> None:
    """Raise ``InvalidArgument`` on attributes that the report reads and that hold something else than studies write."""
    before = dataset.attrs.get("counted_before", 0)
    if not isinstance(before, int | np.integer) or before < 0:
        raise InvalidArgument(f"directory: the results in {name} are damaged: counted_before is no number of points, but {short(before)}")
    for attribute, kind in (("algorithms", dict), ("feedback", dict), ("swept", list)):
        value = dataset.attrs.get(attribute)
        found = kind() if value is None else _parsed(value)
        entries = found.values() if isinstance(found, dict) else found if isinstance(found, list) else ()
        if not isinstance(found, kind) or not all(isinstance(entry, str if kind is list else dict) for entry in entries):
            raise InvalidArgument(f"directory: the results in {name} are damaged: their attribute {attribute} is {short(value)}")


def render(dataset: xr.Dataset, *, name: str, extra: dict[str, bytes] | None = None) -> str:
    """Return the report of a dataset as HTML; ``name`` is its title if the dataset has none, ``extra`` holds PNG files by name."""
    title = str(_plain(dataset.attrs.get("study", name)))
    sections: list[tuple[str, str, list[Markup]]] = [
        ("summary", "Summary", _summary(dataset)),
        ("flags", "Flagged trials", _flags(dataset)),
        ("curves", "Curves", _pictures(dataset, figures.curve_pictures, figures.MOST_LINES)),
        ("boxes", "Spread over trials", _pictures(dataset, figures.box_pictures, figures.MOST_BOXES)),
        ("sweep", "Sweep", _pictures(dataset, figures.sweep_pictures)),
        ("delays", "Delays", _pictures(dataset, figures.delay_pictures)),
        ("differences", "Paired differences", _differences(dataset)),
        ("wins", "Who wins", _wins(dataset)),
        ("growth", "Growth exponents", _growth(dataset)),
        ("files", "Figures of the study", []),
        ("parameters", "Parameters", _parameters(dataset)),
        ("versions", "Versions and devices", _versions(dataset)),
    ]
    room = MOST_CHARACTERS - sum(len(part) for _, _, parts in sections for part in parts)
    sections = [(key, heading, _extra(extra or {}, room) if key == "files" else parts) for key, heading, parts in sections]
    said = {
        "summary": findings.summary(dataset),
        "curves": findings.curves(dataset),
        "boxes": findings.spread(dataset),
        "sweep": [*sweeps_without_effect(dataset), *findings.sweep(dataset)],
        "delays": findings.delays(dataset),
        "differences": findings.differences(dataset, SEED),
        "wins": findings.wins(dataset),
        "growth": findings.growth(dataset, SEED),
    }
    shown = [(key, heading, [*_sentences(said.get(key, [])), *parts]) for key, heading, parts in sections if parts]
    links = joined([element("a", heading, href=f"#{key}") for key, heading, _ in shown], " ")
    body = [section(key, heading, *parts) for key, heading, parts in shown]
    return document(f"{title}: report", *_head(dataset, title), element("nav", links), *body)


def _head(dataset: xr.Dataset, title: str) -> list[Markup]:
    sizes = dataset.sizes
    facts = f"{sizes['algorithm']} algorithms, {sizes['trial']} trials, {int(dataset['round'][-1]):,} rounds"
    seed, created = dataset.attrs.get("seed"), dataset.attrs.get("created")
    facts += f", seed {_plain(seed)}" if seed is not None else ""
    facts += f"; made {_plain(created)}" if created is not None else ""
    command = dataset.attrs.get("command")
    made = element("pre", _plain(command), class_="command") if command else element("p", "The results do not say which command made them.")
    return [element("h1", title), element("p", facts, class_="quiet"), made]


def _sentences(found: list[str]) -> list[Markup]:
    """Return the sentences that stand above a section; beyond ``MOST_SENTENCES`` they are folded away."""
    lines = [element("p", sentence, class_="finding") for sentence in found]
    rest = lines[MOST_SENTENCES:]
    folded = [element("details", element("summary", f"{len(rest)} more"), *rest)] if rest else []
    return [*lines[:MOST_SENTENCES], *folded]


def _summary(dataset: xr.Dataset) -> list[Markup]:
    shown = [heading for heading, name, _ in COLUMNS if name in dataset]
    rows = [
        [
            row["algorithm"],
            f"{row['trials'] - row['failed']} of {row['trials']}",
            *(with_half(row[heading], row[f"{heading} +-"]) for heading in shown),
        ]
        for row in summary_rows(dataset)
    ]
    note = (
        "Means over trials after the last round, with half-widths of 95% confidence intervals; a slash t means divided by the number of"
        f" rounds, {int(elapsed(dataset)[-1]):,}. R is regret, R+ its positive part, V violation, N the number of violating rounds; strong"
        " regret is against the best mixed policy. Trials that failed are left out: the second column says how many count."
    )
    return [table(["algorithm", "trials", *shown], rows), element("p", note, class_="quiet")]


def _flags(dataset: xr.Dataset) -> list[Markup]:
    status = dataset.status.transpose("algorithm", "trial").values
    seen = [flag for flag in Status if flag and np.any(status & int(flag))]
    if not seen:
        return [element("p", f"None of the {status.size:,} trials was flagged.")]
    rows = [
        [str(label), *(np.count_nonzero(own & int(flag)) for flag in seen), np.count_nonzero(~ok)]
        for label, own, ok in zip(dataset.algorithm.values, status, healthy(dataset), strict=True)
        if np.any(own)
    ]
    quiet = dataset.sizes["algorithm"] - len(rows)
    heads = ["algorithm", *(_spaced(str(flag.name)) for flag in seen), "failed, left out"]
    meanings = [element("li", element("b", _spaced(str(flag.name))), f": {MESSAGES[flag]} ({REMEDIES[flag]})") for flag in seen]
    others = [element("p", f"No trial of the other {quiet} algorithms was flagged.")] if quiet else []
    return [table(heads, rows), *others, element("ul", joined(meanings), class_="quiet")]


def _pictures(dataset: xr.Dataset, draw: Callable[[xr.Dataset], list[figures.Picture]], most: int = 0) -> list[Markup]:
    parts: list[Markup] = [figure_with_values(item.figure, item.caption, item.values) for item in draw(dataset)]
    hidden = figures.left_out(dataset, most) if most and parts else 0
    return [*parts, element("p", f"{hidden} more algorithms are in the tables only.", class_="quiet")] if hidden else parts


def _measures(dataset: xr.Dataset, names: dict[str, str]) -> list[tuple[str, str]]:
    return [(name, words) for name, words in names.items() if name in dataset and np.isfinite(dataset[name].values).any()]


def _differences(dataset: xr.Dataset) -> list[Markup]:
    parts: list[Markup] = []
    for labels in problem_groups(dataset):
        part, note = dataset.sel(algorithm=labels), figures.group_note(dataset, labels)
        measures = _measures(part, MEASURES) if len(labels) > 1 else []
        found = {words: paired_differences(part, name, seed=SEED, averaged=True, resamples=RESAMPLES) for name, words in measures}
        if len(labels) > MOST_COLUMNS and found:
            first, *others = labels
            columns = [_differences_from(pairs, others, [first]) for pairs in found.values()]
            rows = [[label, *(column[number][0] for column in columns)] for number, label in enumerate(others)]
            parts.append(table([f"row minus {first}{note}", *found], rows))
            continue
        for words, pairs in found.items():
            rows = [[label, *cells] for label, cells in zip(labels, _differences_from(pairs, labels, labels), strict=True)]
            parts += [element("h3", words + note), table(["row minus column", *labels], rows)]
    what = (
        "Differences after the last round, divided by the number of rounds, trial by trial (trials share their random numbers): means with"
        f" 95% percentile intervals of a bootstrap over trials ({RESAMPLES:,} resamples, seed {SEED}), and p-values of a paired t test, as"
        " they are and corrected by Holm's method for the number of pairs in the table (in that of comparisons with one algorithm, in the"
        " column); bold where the corrected one is at most 0.05. Pairs rest on the trials that failed in neither."
    )
    return [element("p", what, class_="quiet"), *parts] if parts else []


def _differences_from(pairs: xr.Dataset, rows: list[str], columns: list[str]) -> list[list[Markup]]:
    """Return the cells ``[rows][columns]`` of a table of differences, whose p-values are corrected for the number of its pairs."""
    p = pairs.p.sel(algorithm=rows, versus=columns).values
    corrected = np.full(p.shape, np.nan)
    once = np.triu_indices(len(rows), 1) if rows == columns else np.indices(p.shape).reshape(2, -1)
    corrected[once[0], once[1]] = holm(p[once[0], once[1]])
    if rows == columns:
        corrected[once[1], once[0]] = corrected[once[0], once[1]]

    def cell(r: int, c: int) -> Markup:
        return Markup() if rows[r] == columns[c] else _difference(pairs.sel(algorithm=rows[r], versus=columns[c]), corrected[r, c])

    return [[cell(r, c) for c in range(len(columns))] for r in range(len(rows))]


def _difference(pair: xr.Dataset, corrected: float) -> Markup:
    mean, low, high = (float(pair[name]) for name in ("mean", "low", "high"))
    if not np.isfinite(mean):
        return escaped("undefined" if int(pair["count"]) else "no common trial")
    if not np.isfinite(low):
        return escaped(f"{_fixed(mean, 3)} (one trial)")
    digits = _decimals((high - low) / 2)
    interval = element("div", f"[{_fixed(low, digits)}, {_fixed(high, digits)}]")
    p = element("div", f"p {_probability(float(pair.p))}, Holm {_probability(corrected)}", class_="quiet")
    value = escaped(_fixed(mean, digits))
    return joined([element("b", value) if corrected <= findings.LEVEL else value, interval, p], " ")


def _probability(p: float) -> str:
    """Format a p-value with two digits."""
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def _wins(dataset: xr.Dataset) -> list[Markup]:
    parts: list[Markup] = []
    for labels in problem_groups(dataset):
        part, note = dataset.sel(algorithm=labels), figures.group_note(dataset, labels)
        if len(labels) > MOST_COLUMNS:
            parts += _pictures(part, figures.win_pictures)
            continue
        for name, words in _measures(part, MEASURES) if len(labels) > 1 else ():
            share = win_matrix(part, name).values
            rows = [[label, *("" if a == b else _share(share[a, b]) for b in range(len(labels)))] for a, label in enumerate(labels)]
            parts += [element("h3", words + note), table(["row beats column", *labels], rows)]
    what = "Share of trials in which the row's value after the last round is below the column's; ties count half."
    return [element("p", what, class_="quiet"), *parts] if parts else []


def _growth(dataset: xr.Dataset) -> list[Markup]:
    measures = _measures(dataset, CUMULATIVE)
    found = {name: growth_exponent(dataset, name, seed=SEED, resamples=RESAMPLES) for name, _ in measures}
    if not found:
        return []
    labels = [str(label) for label in dataset.algorithm.values]
    claims = {(label, name): rate_of(dataset, label, name) for label in labels for name in found}
    rows = [[label, *(_exponent(found[name].sel(algorithm=label), claims[label, name]) for name in found)] for label in labels]
    first, last = (next(iter(found.values())).attrs[key] for key in ("first_round", "last_round"))
    note = (
        f"Slope of the mean's logarithm over log t from round {first:,} to round {last:,}, with a 95% bootstrap interval over trials;"
        " below 1 is sublinear. What papers claim are upper bounds, for smooth kernels and up to logarithms: a smaller slope agrees with"
        " them, and a larger one in a run of this length refutes nothing."
    )
    here = [rate for rate in PAPER_RATES if rate in claims.values()]
    return [
        element("p", note, class_="quiet"),
        table(["algorithm", *(words for _, words in measures)], rows, words=range(1, len(measures) + 1)),
        *([element("h3", "Bounds of the papers for these algorithms"), _bounds(here)] if here else []),
        element("details", element("summary", "All bounds of the papers"), _bounds(PAPER_RATES)),
    ]


def _exponent(fit: xr.Dataset, claim: Rate | None) -> Markup:
    exponent, low, high = (float(fit[key]) for key in ("exponent", "low", "high"))
    text = f"{exponent:.2f}" if np.isfinite(exponent) else "undefined"
    text += f" [{low:.2f}, {high:.2f}]" if np.isfinite(low) else ""
    asides = [str(fit.reason.values), f"paper: {claim.exponent:g}" if claim else ""]
    return joined([text, *(element("div", aside, class_="quiet") for aside in asides if aside)], "")


def _bounds(rates: Sequence[Rate]) -> Markup:
    rows = [[r.name, ", ".join(map(_spaced, r.measures)), f"{r.exponent:g}", r.bound, r.source] for r in rates]
    return table(["algorithm", "measures", "exponent", "bound", "source"], rows, words=(1, 3, 4))


def _extra(files: dict[str, bytes], room: int) -> list[Markup]:
    """Return the study's PNG files as figures, as many as fit into ``room`` characters, and a line on each of the others."""
    parts = []
    for name, data in files.items():
        if not data.startswith(PNG):
            parts.append(element("p", f"{name} is no PNG and is not shown.", class_="quiet"))
            continue
        shown = picture(data, name)
        if len(shown) > room:
            shown = element("p", f"{name}, {len(data):,} bytes, is in the study's directory: this page would be too large with it.")
        room -= len(shown)
        parts.append(shown)
    return parts


def _parameters(dataset: xr.Dataset) -> list[Markup]:
    single, nested = [], []
    for name, value in dataset.attrs.items():
        if name in SHOWN_ELSEWHERE:
            continue
        plain = _parsed(value)
        if isinstance(plain, dict | list):
            text = NUMBERS.sub(lambda found: " ".join(found.group().split()), json.dumps(plain, indent=2, ensure_ascii=False))
            nested.append(element("details", element("summary", element("code", name)), element("pre", text)))
        else:
            single.append([element("code", name), str(plain)])
    return [*([table(["name", "value"], single, words=(1,))] if single else []), *nested]


def _versions(dataset: xr.Dataset) -> list[Markup]:
    versions = _parsed(dataset.attrs.get("versions", "{}"))
    rows = [[name, version] for name, version in versions.items()] if isinstance(versions, dict) else [["versions", versions]]
    devices = _parsed(dataset.attrs.get("devices", "[]"))
    rows.append(["devices", ", ".join(map(str, devices)) if isinstance(devices, list) else str(devices)])
    rows += [[name, _plain(dataset.attrs[name])] for name in ("precision", "created") if name in dataset.attrs]
    return [table(["what", "which"], rows, words=(1,))]


def _plain(value: Any) -> Any:
    """Return an attribute as Python values."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


def _parsed(value: Any) -> Any:
    """Return an attribute as Python values, parsed if it is JSON."""
    value = _plain(value)
    try:
        return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value
    except (ValueError, RecursionError):
        return value


def _spaced(name: str) -> str:
    return name.lower().replace("_", " ")


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


def _share(value: float) -> str:
    return f"{value:.0%}" if np.isfinite(value) else "undefined"


__all__ = ["render", "write_report"]
__dir__ = __all__.copy  # what completion shows
