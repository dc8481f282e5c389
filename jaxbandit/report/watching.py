"""Pages of running studies and sessions, reloaded by a browser."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
import xarray as xr

from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.declare import FilePath, checked
from jaxbandit.core.fields import between, function
from jaxbandit.host.figures import COLOURS
from jaxbandit.host.files import CannotWrite, reason_of, write_whole
from jaxbandit.numerics.intervals import NORMAL_95
from jaxbandit.report.html import Section, figure_parts, mean_pictures, page, write_report
from jaxbandit.report.session import write_session_report
from jaxbandit.report.statistics import grouped
from jaxbandit.report.tables import AXIS_LABELS, COLUMNS, PANELS, with_half
from jaxbandit.session.journal import open_journal
from jaxbandit.study.files import Names, is_held
from jaxbandit.study.progress import Progress

__all__ = ["page_so_far", "watch", "watch_session", "watched"]
__dir__ = __all__.copy

# Seconds until a run is read and its page is reloaded again.
RELOAD_SECONDS = 5
ParsedJson: TypeAlias = Mapping[str, Any]
"""Parsed JSON of the progress of a run, or of one of the runs of a study."""


def page_so_far(found: ParsedJson, *, cut_off: bool = False) -> str:
    """Return a running study's progress, curves and runs as HTML.

    ``found`` is the parsed ``progress.json``; anything else raises ``InvalidArgument``. With ``cut_off`` no process continues the run.
    """
    try:
        return _study_page(found, cut_off)
    except (KeyError, ValueError, TypeError, IndexError, ArithmeticError) as error:
        raise InvalidArgument(f"{Names.progress}: it is damaged, or of another version of jaxbandit ({reason_of(error)})") from error


def _study_page(state: ParsedJson, cut_off: bool) -> str:
    runs, rate, left = state["runs"], state.get("rate"), None if cut_off else state["left"]
    begun, waiting = [run for run in runs if run["trials"]], [str(run["label"]) for run in runs if not run["trials"]]
    failed, finished = sum(run["failed"] for run in runs), sum(run["trials"] for run in runs)
    columns = [column for column in COLUMNS if any(column.measure in run["mean"] for run in begun)]
    means = [_mean_curves(state, begun, column.measure, column.averaged) for column in columns]
    problems = grouped(str(run.get("problem", "")) for run in begun)
    parts = figure_parts([(numbers, f", problem {name}" if len(problems) > 1 else "") for name, numbers in problems.items()], len(COLOURS))
    panels = [(name, dict(PANELS).get(name, heading if averaged else AXIS_LABELS[name])) for heading, name, averaged, *_ in columns]
    rows = [
        [
            run["label"],
            f"{run['trials']:,} of {state['trials']:,}",
            f"{run['failed']:,}",
            *(with_half(float(mean["mean"][n, -1]), float(mean.high[n, -1] - mean["mean"][n, -1])) for mean in means),
        ]
        for n, run in enumerate(begun)
    ]
    # Round down, so that 100% means that all work is done.
    share = min(max(int(100 * state["done"] / max(state["work"], 1)), 0), 100) / 100
    progress = f"{share:.0%} done"
    # The time left is stated in the largest unit that makes it 2 or more.
    if left is not None and 0 < left < np.inf:
        units = (("days", 86400), ("hours", 3600), ("minutes", 60))
        progress += next((f", {left / size:.0f} {unit} left" for unit, size in units if left >= 2 * size), f", {np.ceil(left):.0f} s left")
    sections: dict[str, Section] = {
        "so-far": mean_pictures(parts, panels, means, "Means over finished trials with 95% confidence bands"),
        "runs": {"heads": ["run", "finished", "failed", *(column.heading for column in columns)], "rows": rows} if rows else {},
        "waiting": f"Runs without a finished trial, {len(waiting):,} of {len(runs):,}: {', '.join(waiting)}." if waiting else "",
    }
    return page(
        "watched",
        sections,
        title=str(state["study"]),
        subtitle=f"{share:.0%}",
        reload=RELOAD_SECONDS,
        facts=f"runs: {len(runs):,}, trials of each: {state['trials']:,}, rounds: {state['horizon']:,}",
        share=share,
        progress=progress,
        asides=[
            f"{state['done']:,} of {state['work']:,} trial-rounds",
            *([f"{rate:,.0f} trial-rounds/s"] if rate is not None else []),
            f"workers: {state['workers']:,}",
            f"updated {str(state['updated']).replace('T', ' ')}",
        ],
        dashboard=str(state["dashboard"]),
        cut_off=cut_off,
        failed=f"{failed:,} of {finished:,} finished trials failed; they are left out of all means." if failed else "",
    )


def _mean_curves(state: ParsedJson, begun: list[ParsedJson], measure: str, averaged: bool) -> xr.Dataset:
    """Return ``mean``, ``low`` and ``high`` of a measure ``[algorithm, round]``, perhaps averaged."""
    elapsed = np.asarray(state["rounds"], np.int64) + int(state.get("counted_before", 0))
    unknown = np.full(len(elapsed), np.nan)
    mean, sd = (np.asarray([dict(run[kind]).get(measure, unknown) for run in begun], np.float64) for kind in ("mean", "deviation"))
    if not mean.shape == sd.shape == (len(begun), len(elapsed)):
        raise ValueError(f"curves of {measure} have other lengths than the rounds")
    half = NORMAL_95 * sd / np.sqrt([[max(run["trials"] - run["failed"], 1)] for run in begun])
    tables = {"mean": mean, "low": mean - half, "high": mean + half}
    return xr.Dataset(
        {name: (("algorithm", "round"), table / (elapsed if averaged else 1)) for name, table in tables.items()},
        coords={"algorithm": [str(run["label"]) for run in begun], "round": elapsed},
    )


class _PageOfRun:
    """Page in a run's directory, rewritten whenever the run's state changes."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.path, self.source, self.say = folder / "report.html", folder / Names.progress, say
        # The page's state: its time, and whether the run was cut off.
        self.shown: tuple[float, bool] | None = None
        self.announced = False

    def rewrite(self, *, cut_off: bool = False) -> None:
        """Rewrite the page if the run's state is new and readable."""
        now = (_written(self.source), cut_off)
        if now[0] == 0 or now == self.shown:
            return
        self.shown = now
        try:
            page = page_so_far(json.loads(self.source.read_text(encoding="utf-8")), cut_off=cut_off).encode()
        except FileNotFoundError:
            return
        except (ValueError, RecursionError) as error:
            return self.say(str(error) if isinstance(error, InvalidArgument) else f"{self.source} cannot be read: {reason_of(error)}")
        write_whole(self.path, lambda temporary: temporary.write_bytes(page))
        if not self.announced:
            self.announced = True
            self.say(f"the study while it runs: {self.path}; a browser that shows it loads it again every {RELOAD_SECONDS} s")


@checked
def watch(
    directory: FilePath,
    *,
    seconds: Annotated[float, between(0, 3600, host=True)] = RELOAD_SECONDS,
    say: Annotated[Callable[[str], None], function("(line)")] = print,
) -> Path:
    """Rewrite ``report.html`` of a run until it ends in its report.

    The function also waits for a run that was cut off, because another process may resume it.

    Args:
      directory: directory with results, or of a run that goes on in another process or was cut off.
      seconds: time between two reads of the directory, in (0, 3600].
      say: function that receives lines of text: the address of the page, and errors.

    Returns:
      The path of the report.

    Raises:
      InvalidArgument: when the directory holds no run and no results, or results that cannot be shown.
      CannotWrite: when the page cannot be written.
    """
    folder = Path(directory)
    page, before = _PageOfRun(folder, say), ""
    while True:
        going_on, begun = is_held(folder), _written(folder / Names.record)
        if not going_on and max(_written(folder / name) for name in ("results.nc", "results.zarr")) > begun:
            path = write_report(folder)
            say(f"wrote {path}")
            return path
        if not (going_on or begun):
            raise InvalidArgument(f"directory: {folder} holds no run and no results; give one that a study is run in, or was")
        page.rewrite(cut_off=not going_on)
        state = ("" if page.shown else "has finished no batch yet") if going_on else "was cut off; waiting until --resume goes on with it"
        if state and state != before:
            say(f"the run in {folder} {state}")
        before = state
        time.sleep(seconds)


@checked
def watch_session(
    directory: FilePath,
    *,
    seconds: Annotated[float, between(0, 3600, host=True)] = RELOAD_SECONDS,
    say: Annotated[Callable[[str], None], function("(line)")] = print,
) -> None:
    """Rewrite ``report.html`` of a session after each event, until it is interrupted.

    Args:
      directory: directory of a session that other processes use.
      seconds: time between two reads of its journal, in (0, 3600].
      say: function that receives a line of text with the address of the page.

    Raises:
      SessionError: when there is no session, or its journal cannot be read.
      CannotWrite: when the page cannot be written.
    """
    folder, shown = Path(directory), 0
    while True:
        journal = open_journal(folder, read_only=True)
        journal.close()
        if shown < len(journal.events):
            path = write_session_report(folder, reload=RELOAD_SECONDS)
            if not shown:
                say(f"the session while it goes on: {path}; a browser that shows it loads it again every {RELOAD_SECONDS} s")
            shown = len(journal.events)
        time.sleep(seconds)


@contextlib.contextmanager
def watched(directory: Path, report: Callable[[Progress], None], say: Callable[[str], None]) -> Iterator[Callable[[Progress], None]]:
    """Yield a function that reports progress and rewrites the page.

    Rewriting takes at most a tenth of the run's time. ``say`` receives the error of a page that cannot be written, and the run goes on.
    """
    page, due = _PageOfRun(directory, say), 0.0

    def rewrite(*, cut_off: bool = False) -> None:
        nonlocal due
        start = time.monotonic()
        try:
            page.rewrite(cut_off=cut_off)
        except CannotWrite as error:
            say(str(error))
        due = time.monotonic() + max(RELOAD_SECONDS, (time.monotonic() - start) / 0.1)

    def told(progress: Progress) -> None:
        report(progress)
        if time.monotonic() >= due:
            rewrite()

    try:
        yield told
    except BaseException:
        rewrite(cut_off=True)
        raise


def _written(path: Path) -> float:
    """Return the modification time of a path, or 0 without it."""
    try:
        return path.stat().st_mtime
    except (FileNotFoundError, NotADirectoryError):
        return 0.0
