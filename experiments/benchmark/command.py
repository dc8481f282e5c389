"""The command ``bench``: its options, the sizes that it measures, and what it prints and writes."""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from experiments.benchmark.device import PARTS, NoAccelerator, device_table, measure_device
from experiments.benchmark.measure import ChildFailed, measure
from experiments.benchmark.table import table
from experiments.common.running import progress
from jaxbandit import InvalidArgument
from jaxbandit.study import prepare_file, write_whole

Sizes: TypeAlias = dict[str, dict[str, Any]]

# The sizes of each measurement: of the usual benchmark, of less than three minutes on two cores, of the full one, and of a trial of it.
USUAL: Sizes = {
    "engine": {"points_per_axis": 50, "trials": 100, "horizon": 120, "repeats": 2, "turns": 1, "plays": 1},
    "data-rate": {"points_per_axis": 6, "trials": 2, "horizon": 60, "repeats": 1},
    "study": {
        "points_per_axis": 20,
        "values": 4,
        "trials": 20,
        "many": 200,
        "horizon": 100,
        "few": 2,
        "long": 1_000,
        "repeats": 1,
        "memory_gib": 4,
    },
    "cluster": {"tasks": 1_000, "points_per_axis": 20, "trials": 2_000, "horizon": 100, "repeats": 1},
    "accuracy": {"points_per_axis": 16, "horizon": 300},
    "session": {"points_per_axis": 20, "tickets": 50, "ax_trials": 3},
    "tuning": {
        "settings": ["rpol4"],
        "descents": [],  # half a minute each
        "points_per_axis": 10,
        "horizon": 30,
        "keys": 8,
        "wide_keys": 2,
        "refits": False,  # which take half a minute to compile
        "fits": 100,
        "precisions": [],  # of fits, which take a quarter of a minute to compile in each
        "fit_points": 20,
        "repeats": 1,
    },
}
FULL: Sizes = {
    "engine": {"points_per_axis": 50, "trials": 100, "horizon": 500, "repeats": 12, "turns": 2, "plays": 2},
    # All rounds and all points of the experiment, but few of its trials: they are run one after the other, so time grows in proportion.
    "data-rate": {"points_per_axis": 11, "trials": 8, "horizon": 350, "repeats": 3},
    "study": {
        "points_per_axis": 50,
        "values": 64,
        "trials": 100,
        "many": 10_000,
        "horizon": 1000,
        "few": 8,
        "long": 400_000,
        "repeats": 2,
        "memory_gib": 4,
    },
    "cluster": {"tasks": 10_000, "points_per_axis": 50, "trials": 10_000, "horizon": 1000, "repeats": 2},
    "accuracy": {"points_per_axis": 30, "horizon": 3000},
    "session": {"points_per_axis": 50, "tickets": 1000, "ax_trials": 10},
    "tuning": {
        "settings": ["rpol4", "cbo4", "rpol7", "rpol16"],
        "descents": ["rpol4", "rpol16"],
        "points_per_axis": 20,
        "horizon": 100,
        "keys": 200,
        "wide_keys": 16,
        "refits": True,
        "fits": 1000,
        "precisions": ["float32", "float64"],
        "fit_points": 50,
        "repeats": 3,
    },
}
QUICK: Sizes = {
    "engine": {"points_per_axis": 16, "trials": 8, "horizon": 40, "repeats": 2, "turns": 1, "plays": 1},
    "data-rate": {"points_per_axis": 5, "trials": 2, "horizon": 20, "repeats": 1},
    "study": {
        "points_per_axis": 10,
        "values": 3,
        "trials": 8,
        "many": 20,
        "horizon": 20,
        "few": 2,
        "long": 50,
        "repeats": 1,
        "memory_gib": 4,
    },
    "cluster": {"tasks": 20, "points_per_axis": 10, "trials": 20, "horizon": 20, "repeats": 1},
    "accuracy": {"points_per_axis": 8, "horizon": 60},
    "session": {"points_per_axis": 8, "tickets": 10, "ax_trials": 1},
    "tuning": {
        "settings": ["rpol4"],
        "descents": [],
        "points_per_axis": 5,
        "horizon": 5,
        "keys": 2,
        "wide_keys": 2,
        "refits": False,
        "fits": 4,
        "precisions": [],
        "fit_points": 6,
        "repeats": 1,
    },
}
SHORT_HORIZON = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the benchmark to a parser."""
    parser.add_argument("--trials", type=_positive, metavar="N", help="most trials side by side (default 100, quick 8)")
    parser.add_argument("--horizon", type=_positive, metavar="T", help="rounds per trial (default 120, full 500, quick 40)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.add_argument("--full", action="store_true", help="everything at the size of the README's figures: over ten minutes")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works; the figures mean little")
    parser.add_argument("--device", action="store_true", help="measure an accelerator instead, part by part, within nine minutes")
    parser.add_argument("--cpu-rehearsal", action="store_true", help="with --device: play its parts small, on the CPU")
    parser.add_argument("--dask", metavar="WHERE", default="local", help="workers that are measured, too (default %(default)s)")
    parser.add_argument("--skip-peers", action="store_true", help="measure the engine only")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table and write the file; return the exit status, 1 when a measurement failed.

    Raises:
      InvalidArgument: before anything runs, when the file is there already and may not be replaced.
    """
    started = time.perf_counter()
    path = _output(args)
    if args.device or args.cpu_rehearsal:
        return _run_device(args.cpu_rehearsal, path)
    try:
        sizes = _sizes(args)
        others = (sizes[name] for name in ("data-rate", "study", "accuracy", "session", "tuning"))
        cluster = sizes["cluster"] | {"dask": args.dask}
        figures = measure(_settings(args), *others, cluster=cluster, peers=not args.skip_peers)
    except ChildFailed as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    figures["seconds"] = time.perf_counter() - started
    print(table(figures))
    _write(figures, path)
    if path is not None:
        progress(f"  wrote {path}")
    progress(f"  took {figures['seconds']:.0f} s")
    return 1 if any(peer.get("note") == "failed" for peer in figures["peers"].values()) else 0


def _run_device(rehearsal: bool, path: Path | None) -> int:
    """Measure an accelerator, print the table and write the file; return the exit status, 1 when a part failed, 2 without accelerator."""
    try:
        figures = measure_device(rehearsal, partial(_write, path=path))
    except NoAccelerator as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print(device_table(figures))
    return 1 if any("error" in figures.get(part, {}) for part in PARTS) else 0


def _write(figures: dict[str, Any], path: Path | None) -> None:
    """Write figures to the file, if there is one."""
    if path is not None:
        text = json.dumps(figures, indent=2, allow_nan=False) + "\n"
        write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _sizes(args: argparse.Namespace) -> Sizes:
    """Return the sizes of all measurements that the options ask for; raises ``InvalidArgument`` on two that exclude each other."""
    if args.full and args.quick:
        raise InvalidArgument("--full: everything at full size, but --quick asks for small sizes; give one of them")
    return FULL if args.full else QUICK if args.quick else USUAL


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    """Return the sizes of the engine's measurements."""
    defaults = _sizes(args)["engine"]
    trials, horizon = args.trials or defaults["trials"], args.horizon or defaults["horizon"]
    return {
        "points_per_axis": defaults["points_per_axis"],
        "counts": sorted({min(count, trials) for count in (1, 10, trials)}) if args.full else [trials],
        "horizon": horizon,
        "short_horizon": SHORT_HORIZON if horizon > SHORT_HORIZON else max(1, horizon * 2 // 5),
        **{name: defaults[name] for name in ("repeats", "turns", "plays")},
    }


def _output(args: argparse.Namespace) -> Path | None:
    """Return the file to write, if any; raises ``InvalidArgument`` when it is there already and may not be replaced."""
    if args.json is None:
        return None
    return prepare_file(args.json, force=args.force)


def _positive(text: str) -> int:
    """Return a positive whole number from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number
