"""The command line: ``python -m jaxbandit run STUDY.toml | rerun RESULTS | report DIR | names [PLACE [NAME]] | session COMMAND``."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import textwrap
import time
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import jax
import numpy as np

from jaxbandit._version import __version__
from jaxbandit.core.cache import enable_cache
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.commands import ended, parsed
from jaxbandit.core.files import drop, reason_of
from jaxbandit.core.paths import did_you_mean
from jaxbandit.core.pytree import float_dtype
from jaxbandit.engine.summary import LEGEND
from jaxbandit.session.commands import add_commands
from jaxbandit.session.journal import CannotRecord
from jaxbandit.study.plan.processes import ProcessLost
from jaxbandit.surrogates import PRECISIONS

if TYPE_CHECKING:
    import xarray as xr

    from jaxbandit.study import HeldDirectory, Plan, Study
    from jaxbandit.study.plan.processes import Processes

FORMATS = {"nc": "results.nc", "zarr": "results.zarr"}
FIGURE = "curves.png"
MEMORY_OF_COMPILER = "some 220 MiB of the process, 100 MiB of the compiler and 10 to 25 MiB for each program, as measured on CPUs"
EXAMPLE = """\
A study file:

  trials = 100
  horizon = 1000

  [model]
  kernel = {type = "SquaredExponential", length_scale = 1.0}
  noise_variance = 0.05

  [problem.sine]
  type = "sine"
  points_per_axis = 50

  [algorithm.rpol]
  type = "Rpol"
  sweep = {"estimator.reward_width" = [1.0, 2.0, 3.0]}

Of several swept fields every combination is a run (their product); zipped = true beside the sweep takes the first values together, then
the second ones, as jaxbandit.sweep(..., zipped=True) does. `names PLACE` says what can stand in a table, such as names algorithm.

Further: seed, metrics, keep = {every = 10} or {log_spaced = 200}, trajectories, fused, initial = {random = 5},
common_random_numbers, [delay.LABEL], and for an algorithm model, feedback and informed.
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of all commands and their options."""
    top = argparse.ArgumentParser(prog="python -m jaxbandit", description="Studies of Gaussian-process bandits, from a file to a report.")
    top.add_argument("--version", action="version", version=f"jaxbandit {__version__}, JAX {jax.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser(
        "run",
        help="run a study",
        description="Run the study of a TOML file.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    run.add_argument("study", type=Path, metavar="STUDY.toml")
    run.add_argument("--out", type=Path, metavar="DIR", help="where to write (default results/NAME)")
    run.add_argument("--resume", action="store_true", help="go on with the interrupted run in DIR")
    run.add_argument("--force", action="store_true", help="replace what is in DIR")
    run.add_argument("--dry-run", action="store_true", help="say what would run, in how much memory and time, and stop")
    run.add_argument(
        "--memory",
        metavar="SIZE",
        help="limit of trials and results, such as 4GiB (default half of the devices' memory); the compiler takes some 100 MiB more",
    )
    run.add_argument("--segment", type=int, metavar="N", help="rounds between two checkpoints (default some seconds' worth)")
    run.add_argument("--checkpoint-share", type=float, default=0.04, metavar="X", help="of the time, for checkpoints (default %(default)s)")
    run.add_argument("--no-figure", action="store_true", help=f"draw no figure of the averages (default DIR/{FIGURE})")
    run.add_argument("--report", action="store_true", help="write the report, too (DIR/report.html, as the command report does)")
    run.add_argument("--format", choices=sorted(FORMATS), default="nc", help="NetCDF or Zarr (default %(default)s)")
    run.add_argument("--precision", choices=PRECISIONS, default="auto", help="auto: float64 where float32 would not do (the default)")
    run.add_argument("--cache", type=Path, metavar="DIR", help="where compiled programs are kept (default ~/.cache/jaxbandit)")
    run.add_argument("--no-cache", action="store_true", help="keep no compiled programs")
    run.add_argument("--coordinator", metavar="HOST:PORT", help="of the first of several processes; auto in a cluster such as Slurm's")
    run.add_argument("--processes", type=int, metavar="N", help="how many processes run the study")
    run.add_argument("--process-id", type=int, metavar="I", help="number of this process, from 0")
    again = commands.add_parser("rerun", help="play one trial of a study again, from its results")
    again.add_argument("results", type=Path, metavar="RESULTS")
    again.add_argument("--trial", type=int, required=True, metavar="I", help="number of the trial, from 0")
    again.add_argument("--run", metavar="LABEL", help="which run of the results, by its label (default the first)")
    again.add_argument("--out", type=Path, metavar="FILE", help="where to write the trial's rounds, as NetCDF")
    again.add_argument("--force", action="store_true", help="replace a file that is there")
    report = commands.add_parser("report", help="write a self-contained HTML report of the results in a directory")
    report.add_argument("directory", type=Path, metavar="DIR")
    report.add_argument("--out", type=Path, metavar="FILE", help="where to write (default DIR/report.html)")
    add_commands(commands.add_parser("session", help="a real experiment: ask for points, tell what was measured"))
    named = commands.add_parser(
        "names",
        help="what a study file can name at a place",
        description="List what a study file can name, with fields.",
    )
    named.add_argument("kind", nargs="?", metavar="PLACE", help="such as algorithm, problem, kernel or noise (default: list the places)")
    named.add_argument("name", nargs="?", metavar="NAME", help="only this one")
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command and return the exit status.

    It is 1 for what cannot be written, or memory that does not suffice, 2 for arguments that cannot be used, and 3 for lost processes.
    """
    less, go_on = "allow less by --memory", "the same command with --resume goes on"
    try:
        status = ended(partial(_command, argv), go_on=go_on, less=less, further={CannotRecord: 1, ProcessLost: 3})
    except Exception:  # a defect of ours: shown with its traceback, never swallowed
        if not jax.distributed.is_initialized():
            raise
        traceback.print_exc()
        status = 1
    if status and jax.distributed.is_initialized():  # other processes wait for this one unless it leaves at once
        _leave(status)
    return status


def _command(argv: list[str] | None) -> None:
    args = parsed(parser(), argv)
    COMMANDS[args.command](args)


def _leave(status: int) -> None:
    """End at once, so that other processes of a study notice; JAX's own end would wait for them, as they do for this one."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(status)


def run(args: argparse.Namespace) -> None:
    """Run the study of a TOML file: the command ``run``."""
    from jaxbandit.study import forget, from_toml, hold_directory, made_before, make_plan, use_all_cores
    from jaxbandit.study.plan.memory import check_disk
    from jaxbandit.study.plan.processes import join, this_process

    jax.config.update("jax_enable_x64", args.precision == "float64")
    with contextlib.suppress(RuntimeError):  # devices have been started: a caller in Python has chosen them
        use_all_cores()
    several = (args.coordinator, args.processes, args.process_id) != (None, None, None)
    joined = join(args.coordinator, args.processes, args.process_id) if several else None
    if not args.no_cache:
        enable_cache(args.cache)
    study = from_toml(args.study, precision="float32" if args.precision == "float32" else None)
    processes = joined or this_process()
    out = directory_of(study.name) if args.out is None else args.out
    if args.dry_run:
        plan = make_plan(study, memory=args.memory, segment=args.segment, streamed=True, processes=processes)
        check_disk(out, plan.disk_bytes(streamed=True))
        print(dry_run(plan))
        return
    path = out / FORMATS[args.format]
    same = {"fingerprint": study.fingerprint(), "jax_enable_x64": str(float_dtype() == np.float64)}
    made = None if args.force else made_before(path, same)
    if made is not None:
        with made:
            show(made, path, args, f"{{}}: made {made.attrs['created']}; --force runs again")
        return
    if args.resume and not out.is_dir():
        raise InvalidArgument(f"resume: {out} is no directory; nothing to go on with")
    started = time.perf_counter()
    with contextlib.ExitStack() as stack:
        held = stack.enter_context(hold_directory(out, force=args.force or args.resume)) if processes.first else None  # others find it
        dataset = play(study, held or out, path, args, processes)
        if dataset is None:
            print(f"process {processes.index} has done its part; the first one writes the results")
            return
        stack.enter_context(dataset)
        forget(held or out)  # only now: until here a run that is cut off can be resumed
        for other in set(FORMATS.values()) - {path.name}:  # results of a run that this one has replaced
            drop(out / other)
        show(dataset, path, args, f"wrote {{}} in {time.perf_counter() - started:.1f} s")


def play(study: Study, place: Path | HeldDirectory, path: Path, args: argparse.Namespace, processes: Processes) -> xr.Dataset | None:
    """Return the results of a study that is run in a directory, written to ``path``; ``None`` in all processes but the first."""
    from jaxbandit.study import Reporter, run_study

    with Reporter() as (report, note, compiling):
        return run_study(
            study,
            place,
            resume=args.resume,
            results=path,
            attributes={"command": " ".join(["python -m jaxbandit", *sys.argv[1:]])},
            memory=args.memory,
            segment=args.segment,
            checkpoint_share=args.checkpoint_share,
            processes=processes,
            report=report,
            note=note,
            compiling=compiling,
        )


def show(dataset: xr.Dataset, path: Path, args: argparse.Namespace, words: str) -> None:
    """Print the table of a study and, in ``words``, the names of the files that go with its results at ``path``, which are written."""
    print(summary(dataset, path.parent))
    files = [str(path), "summary.csv", *([] if args.no_figure else draw_curves(dataset, path.parent))]
    print(words.format(f"{', '.join(files[:-1])} and {files[-1]}"))
    if args.report:
        from jaxbandit.report.html import write_report

        print(f"wrote {write_report(path.parent)}")


def directory_of(name: str) -> Path:
    """Return ``results/NAME``, where a study goes unless told otherwise; raises ``InvalidArgument`` when that lies elsewhere."""
    parts = Path(name).parts
    if not parts or Path(name).is_absolute() or ".." in parts:
        raise InvalidArgument(f"name: results/NAME must lie in results, got {name!r}; choose another name, or a directory with --out")
    return Path("results") / name


def summary(dataset: xr.Dataset, directory: Path) -> str:
    """Return the table of a study, also written as CSV, and the flags of its trials."""
    from jaxbandit.report import findings, tables
    from jaxbandit.study import flags_in_words, write_whole

    rows = tables.summary_rows(dataset)
    write_whole(directory / "summary.csv", lambda path: tables.write_csv(rows, path))
    notes = [f"- {line}" for line in [*flags_in_words(dataset), *findings.shared_start(dataset)]]
    return "\n".join(["", tables.text_table(rows), "", *textwrap.wrap(LEGEND, 110), *notes, ""])


def draw_curves(dataset: xr.Dataset, directory: Path) -> list[str]:
    """Write the figures of a study's averages over rounds; return their names: ``curves.png``, ``curves-2.png``, ..."""
    from jaxbandit.drawing import DPI
    from jaxbandit.report.figures import curve_pictures
    from jaxbandit.study import write_whole

    stem, suffix = Path(FIGURE).stem, Path(FIGURE).suffix
    names = []
    for number, picture in enumerate(curve_pictures(dataset), start=1):
        names.append(FIGURE if number == 1 else f"{stem}-{number}{suffix}")
        write_whole(directory / names[-1], partial(picture.figure.savefig, format="png", dpi=DPI))
    return names


def dry_run(plan: Plan) -> str:
    """Return cells, batches, memory and estimated time of a plan, in words."""
    from jaxbandit.core.memory import in_units
    from jaxbandit.study.run.probe import seconds_per_round

    study = plan.study
    lines = [
        f"{study.name}: {len(plan.runs)} runs of {study.trials:,} trials x {study.horizon:,} rounds on {len(plan.devices)} devices,"
        f" {len(study.keep.rounds(study.horizon)):,} rounds kept, in {study.precision}",
        f"results: {in_units(plan.result_bytes)}, and while they are gathered up to {in_units(plan.disk_bytes(streamed=True))} on disk",
    ]
    total = 0.0
    before: list[str] = []
    for cell, (size, count, rounds) in enumerate(plan.batches):
        seconds = seconds_per_round(plan, cell) * study.horizon * size * count
        total += seconds
        parts = "all rounds at once" if rounds == study.horizon else f"parts of {rounds:,} rounds"
        lines += [
            f"cell {cell + 1}: {plan.title(cell)}",
            f"  {count} batch{'es' if count > 1 else ''} of {size:,} trials, {plan.batch_bytes(cell) / 2**20:,.0f} MiB"
            f" ({plan.trial_bytes[cell] / 2**20:.2f} MiB a trial), {parts}, about {seconds:,.0f} s",
        ]
        run = plan.runs[plan.members[cell][0]]
        said = ["  " + line for line in [*run.model.describe().splitlines(), "choices: " + study.describe_choices(run)]]
        lines += ["  model and choices as above"] if said == before else said
        before = said
    lines.append(f"beside the memory above: {MEMORY_OF_COMPILER}")
    return "\n".join([*lines, f"about {total:,.0f} s in all, by a few rounds played here"])


def rerun(args: argparse.Namespace) -> None:
    """Play one trial of a study again: the command ``rerun``."""
    from jaxbandit.study import prepare_file, read_results, write_results
    from jaxbandit.study import rerun as play

    with read_results(args.results, load=False) as dataset:
        if args.out is not None:
            prepare_file(args.out, force=args.force)
        enable_cache()
        asked = dataset.attrs.get("jax_enable_x64", str(dataset.attrs.get("precision") == "float64"))
        jax.config.update("jax_enable_x64", asked == "True")
        again = play(dataset, args.trial, label=args.run)
        label = str(again.algorithm.values[0])
        print(f"{label}, trial {args.trial}: {again.sizes['played']} rounds")
        for name in [name for name in dataset.data_vars if {"algorithm", "trial", "round"} == set(dataset[name].dims) and name in again]:
            compare(dataset, again, str(name), label, args.trial)
    if args.out is not None:
        write_results(again, args.out)
        print(f"wrote {args.out}")


def compare(dataset: xr.Dataset, again: xr.Dataset, name: str, label: str, trial: int) -> None:
    """Print whether a variable of a trial that was played again has the bits that the results hold."""
    try:
        stored = dataset[name].sel(algorithm=label, trial=trial)
        own = again[name].sel(algorithm=label, trial=trial, round=stored["round"]).values
        values = stored.values
    except (KeyError, ValueError, TypeError, OSError, RuntimeError) as error:  # a damaged file
        raise InvalidArgument(f"results: they hold no {name} of trial {trial} of {label!r} that can be read: {reason_of(error)}") from error
    if values.dtype.kind not in "iuf":
        raise InvalidArgument(f"results: their {name} holds no numbers")
    equal = np.array_equal(own, values, equal_nan=values.dtype.kind == "f")
    same = "the same bits" if equal else f"differs by up to {np.max(np.abs(own - values)):.3g}"
    print(f"  {name}: {values[-1]:.6g} after the last round; {same}")


def report(args: argparse.Namespace) -> None:
    """Write the report of a study: the command ``report``."""
    from jaxbandit.report.html import write_report

    print(f"wrote {write_report(args.directory, args.out)}")


def names(args: argparse.Namespace) -> None:
    """Print what a study file can name: the command ``names``."""
    from jaxbandit.study.specify.catalogue import catalogue, described, places

    known = places()
    if args.kind is None:
        print("\n".join(f"{place:14s} {', '.join(own)}" for place, own in known.items()))
        return
    if args.kind not in known:
        raise InvalidArgument(f"place: there is no {args.kind!r}{did_you_mean(args.kind, known)}; known are {', '.join(known)}")
    if args.name is None:
        print(catalogue(args.kind))
        return
    own = known[args.kind]
    if args.name not in own:
        raise InvalidArgument(f"name: there is no {args.kind} {args.name!r}{did_you_mean(args.name, own)}; known are {', '.join(own)}")
    print(described(args.name, own[args.name]))


def session(args: argparse.Namespace) -> None:
    """Run a command on a session: the commands ``session ...``."""
    from jaxbandit.report.session import write_session_report
    from jaxbandit.session import commands

    enable_cache()
    commands.run(args, write_session_report)


COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "run": run,
    "rerun": rerun,
    "report": report,
    "names": names,
    "session": session,
}
