"""The command ``bench``, its options and its output.

It has the sizes that are measured, too.
"""

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

# The sizes of each measurement: of a trial of the benchmark, of the usual one (three minutes on two cores), and of the full one.
SIZES: dict[str, dict[str, tuple[Any, Any, Any]]] = {
    "engine": {
        "points_per_axis": (16, 50, 50),
        "trials": (8, 100, 100),
        "horizon": (40, 120, 500),
        "repeats": (2, 2, 12),
        "turns": (1, 1, 2),
        "plays": (1, 1, 2),
    },
    "study": {
        "points_per_axis": (10, 20, 50),
        "values": (3, 4, 64),
        "trials": (8, 20, 100),
        "many": (20, 200, 10_000),
        "horizon": (20, 100, 1000),
        "few": (2, 2, 8),
        "long": (50, 1_000, 400_000),
        "repeats": (1, 1, 2),
        "memory_gib": (4, 4, 4),
    },
    "cluster": {
        "tasks": (20, 1_000, 10_000),
        "points_per_axis": (10, 20, 50),
        "trials": (20, 2_000, 10_000),
        "horizon": (20, 100, 1000),
        "repeats": (1, 1, 2),
    },
    "accuracy": {"points_per_axis": (8, 16, 30), "horizon": (60, 300, 3000)},
    "late": {
        "points_per_axis": (8, 50, 50),
        "trials": (8, 100, 100),
        "horizon": (20, 200, 200),
        "repeats": (1, 3, 5),
        "mean_delay": (15, 15, 15),
        # Rounds after which the values of a mean delay of 15 have arrived.
        "slots": (50, 50, 50),
    },
    "boxes": {
        "trials": (2, 20, 100),
        "horizon": (3, 48, 100),
        "rival_trials": (1, 1, 12),
        "rival_horizon": (2, 6, 48),
        "scbo": (False, True, True),
    },
    "data_rate": {"points_per_axis": (3, 6, 11), "trials": (2, 2, 8), "horizon": (20, 60, 350), "repeats": (1, 1, 3)},
    "session": {"points_per_axis": (8, 20, 50), "tickets": (10, 50, 1000), "ax_trials": (1, 3, 10)},
    "tuning": {
        "points_per_axis": (5, 10, 20),
        "horizon": (5, 30, 100),
        # Number of gradients whose accuracy is measured.
        "keys": (2, 8, 200),
        "wide_keys": (0, 0, 16),
        # It takes half a minute to compile.
        "refits": (False, False, True),
        "fits": (4, 100, 1000),
        # Precisions of fits, which take a quarter of a minute to compile in each.
        "precisions": ([], [], ["float32", "float64"]),
        "fit_points": (6, 20, 50),
        "repeats": (1, 1, 3),
    },
}
QUICK, USUAL, FULL = ({part: {name: size[n] for name, size in sizes.items()} for part, sizes in SIZES.items()} for n in range(3))
SHORT_HORIZON = 200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the benchmark to a parser."""
    parser.add_argument("--trials", type=_positive, metavar="N", help="most trials side by side (default 100, quick 8)")
    parser.add_argument("--horizon", type=_positive, metavar="T", help="rounds per trial (default 120, full 500, quick 40)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--force", action="store_true", help="replace a file that is there")
    parser.add_argument("--full", action="store_true", help="everything at the size of the documentation's figures: over ten minutes")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works; the figures mean little")
    parser.add_argument("--device", action="store_true", help="measure an accelerator instead, part by part, within nine minutes")
    parser.add_argument("--cpu-rehearsal", action="store_true", help="with --device: play its parts small, on the CPU")
    parser.add_argument("--dask", metavar="WHERE", default="local", help="workers that are measured, too (default %(default)s)")
    parser.add_argument("--skip-peers", action="store_true", help="measure the engine only")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, write the file, and return the status.

    The status is 1 when a measurement failed, 2 without an accelerator.

    Raises:
      InvalidArgument: before anything runs, on options that exclude each other, or a file that may not be replaced.
    """
    started = time.perf_counter()
    path = None if args.json is None else prepare_file(args.json, force=args.force)
    try:
        if args.device or args.cpu_rehearsal:
            figures = measure_device(args.cpu_rehearsal, partial(_write, path=path))
            print(device_table(figures))
            return 1 if any("error" in figures.get(part, {}) for part in PARTS) else 0
        figures = measure(_sizes(args), peers=not args.skip_peers)
    except (ChildFailed, NoAccelerator) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2 if isinstance(error, NoAccelerator) else 1
    figures["seconds"] = time.perf_counter() - started
    print(table(figures))
    _write(figures, path)
    progress(f"  took {figures['seconds']:.0f} s" if path is None else f"  wrote {path}; took {figures['seconds']:.0f} s")
    return 1 if any(peer.get("note") == "failed" for peer in figures["peers"].values()) else 0


def _write(figures: dict[str, Any], path: Path | None) -> None:
    """Write figures to the file, if there is one."""
    if path is not None:
        text = json.dumps(figures, indent=2, allow_nan=False) + "\n"
        write_whole(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _sizes(args: argparse.Namespace) -> Sizes:
    """Return the sizes of all measurements, from the options.

    Raises ``InvalidArgument`` for two options that exclude each other.
    """
    if args.full and args.quick:
        raise InvalidArgument("--full: everything at full size, but --quick asks for small sizes; give one of them")
    sizes = FULL if args.full else QUICK if args.quick else USUAL
    trials, horizon = args.trials or sizes["engine"]["trials"], args.horizon or sizes["engine"]["horizon"]
    engine = {name: size for name, size in sizes["engine"].items() if name != "trials"} | {
        "counts": sorted({min(count, trials) for count in (1, 10, trials)}) if args.full else [trials],
        "horizon": horizon,
        "short_horizon": SHORT_HORIZON if horizon > SHORT_HORIZON else max(1, horizon * 2 // 5),
    }
    return sizes | {"engine": engine, "cluster": sizes["cluster"] | {"dask": args.dask}}


def _positive(text: str) -> int:
    """Return a positive whole number from the command line."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number
