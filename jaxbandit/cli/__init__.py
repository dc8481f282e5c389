"""The command line: ``python -m jaxbandit COMMAND``."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from jaxbandit._version import __version__
from jaxbandit.cli.sessions import FIGURE_FORMATS, add_session_commands, add_style, session
from jaxbandit.cli.stubs import STUBS, write_stubs
from jaxbandit.core.checks import InvalidArgument, did_you_mean
from jaxbandit.core.codec import Named
from jaxbandit.core.doors import Parser
from jaxbandit.core.pytree import float_dtype
from jaxbandit.core.text import filled
from jaxbandit.host.cache import enable_cache
from jaxbandit.host.executors import WorkersLost, connected
from jaxbandit.host.files import ended
from jaxbandit.host.user_code import load
from jaxbandit.session import CannotRecord
from jaxbandit.study.run import BatchFailed
from jaxbandit.surrogates import PRECISIONS

if TYPE_CHECKING:
    import xarray as xr

    from jaxbandit.study import Plan

FORMATS = {"nc": "results.nc", "zarr": "results.zarr"}


def parser() -> Parser:
    """Return the parser of all commands and their options."""
    top = Parser(prog="python -m jaxbandit", description="Studies of Gaussian-process bandits, from a file to a report.")
    top.add_argument("--version", action="version", version=f"jaxbandit {__version__}, JAX {jax.__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, handler: Callable[[argparse.Namespace], int | None], words: str, **options: Any) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=words, **options)
        if name in ("run", "rerun", "bundle", "verify", "cite"):
            words = "a file of your own classes, which the study names; its code is run"
            added.add_argument("--with", dest="own", metavar="FILE.py", action="append", default=[], help=words)
        added.set_defaults(handler=handler)
        return added

    text = (Path(__file__).parents[1] / "examples" / "study.toml").read_text(encoding="utf-8")
    example = {"epilog": text, "formatter_class": argparse.RawDescriptionHelpFormatter}
    running = command("run", run_file, "run a study", description="Run the study of a TOML file.", **example)
    add = running.add_argument
    add("study", type=Path, metavar="STUDY.toml")
    add("--out", type=Path, metavar="DIR", help="where to write (default results/NAME)")
    add("--resume", action="store_true", help="go on with the interrupted run in DIR")
    add("--force", action="store_true", help="replace what is in DIR")
    add("--dry-run", action="store_true", help="say what would run, in how much memory and time, and stop")
    add(
        "--memory",
        metavar="SIZE",
        help="limit of trials and results, such as 4GiB (default half of the devices' memory); the compiler takes some 100 MiB more",
    )
    add("--segment", type=int, metavar="N", help="rounds between two checkpoints (default some seconds' worth)")
    add("--checkpoint-share", type=float, default=0.04, metavar="X", help="share of time for checkpoints (default %(default)s)")
    add("--no-figure", action="store_true", help="draw no figure of the averages (default DIR/curves.png)")
    add("--report", action="store_true", help="write the report, too (DIR/report.html, as the command report does)")
    add("--watch", action="store_true", help="keep a page of the study (DIR/report.html) while it runs; its report at the end")
    words = "of results, NetCDF or Zarr (default nc), or, given again, of the figure (default png)"
    add("--format", choices=[*FORMATS, *FIGURE_FORMATS], action="append", default=[], help=words)
    add_style(running)
    add("--precision", choices=PRECISIONS, default="auto", help="auto: float64 where float32 would not do (the default)")
    add("--cache", type=Path, metavar="DIR", help="where compiled programs are kept (default ~/.cache/jaxbandit)")
    add("--no-cache", action="store_true", help="keep no compiled programs")
    words = "let workers of Dask play: local for some of this machine, or the address or the scheduler file of a cluster"
    add("--dask", dest="executor", metavar="WHERE", help=words)
    again = command("rerun", rerun_trial, "play one trial of a study again, from its results")
    again.add_argument("results", type=Path, metavar="RESULTS")
    again.add_argument("--trial", type=int, required=True, metavar="I", help="number of the trial, from 0")
    again.add_argument("--run", dest="label", metavar="LABEL", help="which run of the results, by its label (default the first)")
    again.add_argument("--out", type=Path, metavar="FILE", help="where to write the trial's rounds, as NetCDF")
    again.add_argument("--force", action="store_true", help="replace a file that is there")
    reported = command("report", write_study_report, "write a self-contained HTML report of the results in a directory")
    reported.add_argument("directory", type=Path, metavar="DIR")
    reported.add_argument("--out", type=Path, metavar="FILE", help="where to write (default DIR/report.html)")
    watching = command("watch", watch_study, "keep a page of a study (DIR/report.html) while it runs elsewhere; its report at the end")
    watching.add_argument("directory", type=Path, metavar="DIR")
    packing = command("bundle", bundle_study, "pack the results of a study with all that checks them into a zip file")
    packing.add_argument("directory", type=Path, metavar="DIR")
    packing.add_argument("file", type=Path, metavar="FILE.zip")
    words = "a further file, such as STUDY.toml or a script; several --add add several"
    packing.add_argument("--add", type=Path, metavar="FILE", action="append", default=[], help=words)
    packing.add_argument("--force", action="store_true", help="replace a file that is there")
    verifying = command("verify", verify_bundle, "play the study of a bundle again, and compare all bits")
    verifying.add_argument("file", type=Path, metavar="FILE.zip")
    cited = command("cite", print_citations, "BibTeX of what a study uses: its algorithms' papers, and jaxbandit")
    cited.add_argument("file", type=Path, metavar="FILE", help="a study file (STUDY.toml) or results")
    add_session_commands(command("session", session, "a real experiment: ask for points, tell what was measured"))
    words = "stubs of an addition to the library"
    added = command(
        "new",
        lambda args: print(write_stubs(args.kind, args.name, Path.cwd())),
        words,
        description="Write the stubs of an addition into the checkout here.",
    )
    added.add_argument("kind", choices=STUBS, metavar="KIND", help=", ".join(STUBS))
    added.add_argument("name", metavar="NAME", help="such as Matern72 of a kernel, or two_valleys of a problem")
    words = "what a study file can name at a place"
    named = command("names", print_names, words, description="List what a study file can name, with fields.")
    named.add_argument("kind", nargs="?", metavar="PLACE", help="such as algorithm, problem, kernel or noise (default: list the places)")
    named.add_argument("name", nargs="?", metavar="NAME", help="only this one")
    return top


def main(argv: list[str] | None = None) -> int:
    """Run one command and return the exit status.

    It is 1 for failed output, lack of memory or a bundle that differs, 2 for arguments that cannot be used, and 3 for workers that are
    lost or fail.
    """

    def command() -> int | None:
        args = parser().parse_args(argv)
        for file in vars(args).get("own", ()):
            load(file)
        status: int | None = args.handler(args)
        return status

    return ended(
        command,
        go_on="the same command with --resume goes on",
        less="allow less by --memory",
        further={CannotRecord: 1, WorkersLost: 3, BatchFailed: 3},
    )


def run_file(args: argparse.Namespace) -> None:
    """Run the study of a TOML file: the command ``run``."""
    from jaxbandit.results.files import drop_results
    from jaxbandit.study import Reporter, forget, from_toml, hold_directory, made_before, make_plan, run_study, use_all_cores

    jax.config.update("jax_enable_x64", args.precision == "float64")
    # A caller in Python may have started devices before.
    with contextlib.suppress(RuntimeError):
        use_all_cores()
    if not args.no_cache:
        enable_cache() if args.cache is None else enable_cache(args.cache)
    study = from_toml(args.study, precision="float32" if args.precision == "float32" else None)
    name = Path(study.name)
    if args.out is None and (not name.parts or name.is_absolute() or ".." in name.parts):
        words = "choose another name, or a directory with --out"
        raise InvalidArgument(f"name: results/NAME must lie in results, got {study.name!r}; {words}")
    out = Path("results") / name if args.out is None else args.out
    if args.dry_run:
        plan = make_plan(study, memory=args.memory, segment=args.segment, streamed=True, by_workers=args.executor is not None)
        print(dry_run(plan))
        return
    path = out / FORMATS[chosen("--format", args.format, FORMATS)]
    same = {"fingerprint": study.fingerprint(), "jax_enable_x64": str(float_dtype() == np.float64)}
    made = None if args.force else made_before(path, same)
    if made is not None:
        with made:
            show(made, path, args, f"{{}}: made {made.attrs['created']}; --force runs again")
        return
    if args.resume and not out.is_dir():
        raise InvalidArgument(f"resume: {out} is no directory; nothing to go on with")
    started = time.perf_counter()
    with hold_directory(out, force=args.force or args.resume) as held:
        with connected(args.executor) as client, Reporter() as (report, note), contextlib.ExitStack() as stack:
            if args.watch:
                from jaxbandit.report.watching import watched

                report = stack.enter_context(watched(held.path, report, note))
            options = {name: getattr(args, name) for name in ("resume", "memory", "segment", "checkpoint_share")}
            attributes = {"command": " ".join(["python -m jaxbandit", *sys.argv[1:]])}
            dataset = run_study(study, held, results=path, attributes=attributes, executor=client, report=report, note=note, **options)
        with dataset:
            # Up to here a run that is cut off can be resumed.
            forget(held)
            # This run has replaced the run with results in other formats.
            for other in set(FORMATS.values()) - {path.name}:
                drop_results(out / other)
            show(dataset, path, args, f"wrote {{}} in {time.perf_counter() - started:.1f} s")


def show(dataset: xr.Dataset, path: Path, args: argparse.Namespace, words: str) -> None:
    """Print a study's table with notes, and write its further files."""
    from jaxbandit.host.figures import caption_of, style, write_figure
    from jaxbandit.report import statistics, tables
    from jaxbandit.report.html import StudyPage, write_report
    from jaxbandit.study import flags_in_words, sweeps_without_effect, write_whole

    rows, folder = tables.summary_rows(dataset), path.parent
    write_whole(folder / "summary.csv", lambda path: tables.write_csv(rows, path))
    said = (*flags_in_words(dataset), *sweeps_without_effect(dataset), *statistics.shared_start(dataset))
    notes = [tables.filled(f"- {line}", indent="  ") for line in said]
    print("\n".join(["", tables.text_table(rows), *notes, ""]))
    files, kind = [str(path), "summary.csv"], chosen("--format", args.format, FIGURE_FORMATS)
    with style(args.style):
        for number, picture in enumerate([] if args.no_figure else StudyPage(dataset).curves(), start=1):
            files.append(f"curves.{kind}" if number == 1 else f"curves-{number}.{kind}")
            if args.style == "paper":
                print(f"{files[-1]}: {caption_of(picture.figure) or picture.caption}")
            write_whole(folder / files[-1], partial(write_figure, picture.figure, kind=kind))
    print(words.format(f"{', '.join(files[:-1])} and {files[-1]}"))
    if args.report or args.watch:
        print(f"wrote {write_report(folder)}")


def chosen(option: str, given: list[str], among: Collection[str]) -> str:
    """Return the given value that is among some, by default the first."""
    found = [value for value in given if value in among]
    if len(set(found)) > 1:
        raise InvalidArgument(f"{option}: must be one of {', '.join(among)}, got {' and '.join(found)}")
    return found[0] if found else next(iter(among))


def dry_run(plan: Plan) -> str:
    """Return cells, batches, memory and estimated time of a plan, in words."""
    from jaxbandit.engine.simulation import carried_bytes
    from jaxbandit.host.memory import in_units
    from jaxbandit.study.plan import seconds_of_batch

    study = plan.study
    lines = [
        f"{study.name}: {len(plan.runs)} runs of {study.trials:,} trials x {study.horizon:,} rounds on {len(plan.devices)} devices,"
        f" {len(study.keep.rounds(study.horizon)):,} rounds kept, in {study.precision}",
        f"results: {in_units(plan.result_bytes)}, and as much again on disk while they are gathered",
    ]
    total = 0.0
    for cell in plan.cells:
        seconds = seconds_of_batch(carried_bytes(cell.cell), study.horizon, cell.size * cell.count, cell.devices)
        total += seconds
        parts = "all rounds at once" if cell.in_one_part else f"parts of {cell.rounds:,} rounds"
        size, run = f"{cell.count} x {cell.size:,} trials in {cell.batch_bytes / 2**20:,.0f} MiB", next(iter(cell.runs.values()))
        lines += [f"cell {cell.number + 1}: {cell.title}", f"  {size}, {parts}, about {seconds:,.0f} s"]
        lines += [f"  {line}" for line in (*run.model.describe().splitlines(), f"choices: {study.describe_choices(run)}")]
    of_compiler = "some 220 MiB of the process, 100 MiB of the compiler and 10 to 25 MiB for each program, as measured on CPUs"
    lines.append(f"beside the memory above: {of_compiler}")
    return "\n".join([*lines, f"about {total:,.0f} s in all, to an order of magnitude"])


def rerun_trial(args: argparse.Namespace) -> None:
    """Run one trial again and compare its bits: the command ``rerun``."""
    from jaxbandit.study import prepare_file, read_results, rerun, write_results

    with read_results(args.results, load=False) as dataset:
        if args.out is not None:
            prepare_file(args.out, force=args.force)
        enable_cache()
        asked = dataset.attrs.get("jax_enable_x64", str(dataset.attrs.get("precision") == "float64"))
        jax.config.update("jax_enable_x64", asked == "True")
        again = rerun(dataset, args.trial, label=args.label)
        label = str(again.algorithm.values[0])
        print(f"{label}, trial {args.trial}: {again.sizes['played']} rounds")
        stored = dataset.sel(algorithm=label, trial=args.trial)
        for name in [name for name in dataset.data_vars if {"algorithm", "trial", "round"} == set(dataset[name].dims) and name in again]:
            values = stored[name].values
            played = again[name].sel(algorithm=label, trial=args.trial, round=stored["round"]).values
            equal = np.array_equal(played, values, equal_nan=values.dtype.kind == "f")
            same = "the same bits" if equal else f"differs by up to {np.max(np.abs(played - values)):.3g}"
            print(f"  {name}: {values[-1]:.6g} after the last round; {same}")
    if args.out is not None:
        write_results(again, args.out)
        print(f"wrote {args.out}")


def write_study_report(args: argparse.Namespace) -> None:
    """Write the report of a study: the command ``report``."""
    from jaxbandit.report.html import write_report

    print(f"wrote {write_report(args.directory, args.out)}")


def watch_study(args: argparse.Namespace) -> None:
    """Show a study while it runs: the command ``watch``."""
    from jaxbandit.report.watching import watch

    # Ctrl-C is how a user stops watching.
    with contextlib.suppress(KeyboardInterrupt):
        watch(args.directory, say=partial(print, flush=True))


def bundle_study(args: argparse.Namespace) -> None:
    """Pack a study into a zip file: the command ``bundle``."""
    from jaxbandit.study import bundle

    print(f"wrote {bundle(args.directory, args.file, scripts=[*args.add, *args.own], force=args.force)}")


def verify_bundle(args: argparse.Namespace) -> int:
    """Return 1 if a bundle's rerun differs: the command ``verify``."""
    from jaxbandit.study import verify

    enable_cache()
    compared = verify(args.file)
    for one in compared:
        words = f"{one.share:.1%} of the trials differ, by up to {one.largest:.3g} of the largest number"
        print(f"{one.name}: {'the same bits' if one.equal else words}")
    if all(one.equal for one in compared):
        return 0
    print("Another machine or version rounds otherwise: requirements.txt of the bundle has its versions, results.nc its kind of device.")
    return 1


def print_citations(args: argparse.Namespace) -> None:
    """Print BibTeX for what a study uses: the command ``cite``."""
    from jaxbandit.results.citations import cite
    from jaxbandit.study import from_toml, read_results
    from jaxbandit.study.trial import study_of

    if args.file.suffix == ".toml":
        print(cite(from_toml(args.file)))
    else:
        with read_results(args.file, load=False) as dataset:
            print(cite(study_of(dataset)))


def print_names(args: argparse.Namespace) -> None:
    """Print what a study file can name: the command ``names``."""
    from jaxbandit.study.catalogue import catalogue, described, places

    known: Named[Any] = places()
    found = list[str]()
    for argument, given in (("place", args.kind), ("name", args.name)):
        if given is not None:
            if (name := known.spelled(given)) not in known:
                what = f"{found[0]} {given!r}" if found else repr(given)
                raise InvalidArgument(f"{argument}: there is no {what}{did_you_mean(given, known)}; known are {', '.join(known)}")
            found.append(name)
            known = known[name] if argument == "place" else known
    match found:
        case [place, name]:
            print(described(name, known[name]))
        case [place]:
            print(catalogue(place))
        case _:
            print("\n".join(filled(f"{place:14s} {', '.join(things)}", indent=15 * " ") for place, things in known.items()))
