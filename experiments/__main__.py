"""The command line of the experiments.

It is ``python -m experiments list | NAME | all | trace NAME | bench | texts | hub``.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from experiments import texts
from experiments.benchmark import command as bench
from experiments.common.experiment import add_options, find_experiments, options_from
from experiments.common.running import run_experiment, write_trace
from jaxbandit import enable_cache
from jaxbandit.report.tables import filled
from jaxbandit.study import BatchFailed, Parser, WorkersLost, compile_quickly, connected, ended, interrupted, use_all_cores

if TYPE_CHECKING:
    from distributed import Client

WORKERS = "let workers of Dask play: local for some of this machine, or the address or the scheduler file of a cluster"


def _refilled(paragraph: str) -> str:
    """Return a paragraph or list in lines of the terminal's length.

    Tables have lines that are indented further. They stay as they are.
    """
    if re.search(r"^ {3}", paragraph, re.MULTILINE):
        return paragraph
    lines = re.sub(r"\n(?!- |\d\.)\s*", " ", paragraph).split("\n")
    return "\n".join(filled(line, indent="  " * line.startswith("- ")) for line in lines)


def parser(*, quick: bool = False) -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    experiments = find_experiments()
    top = Parser(prog="python -m experiments", description="The studies of the papers, from parameters to figure.")
    commands = top.add_subparsers(dest="command", metavar="COMMAND")
    commands.add_parser("list", help="what there is to run (the default)")
    for experiment in experiments.values():
        command = commands.add_parser(
            experiment.name,
            help=experiment.title,
            description="\n\n".join(map(_refilled, experiment.text.split("\n\n"))),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_options(command, experiment.reduced() if quick else experiment)
        command.add_argument("--quick", action="store_true", help="at reduced size, where no option says otherwise: does it work?")
        command.add_argument("--out", type=Path, metavar="DIR", help=f"where to write (default results/{experiment.name})")
        command.add_argument("--force", action="store_true", help="replace files that are there")
        command.add_argument("--resume", action="store_true", help="go on with the interrupted run of the same options in DIR")
        command.add_argument("--dask", metavar="WHERE", help=WORKERS)
        words = "play an algorithm of your own, too, on each problem with the model of its first run; the file's code is run"
        command.add_argument("--with", dest="own", metavar="FILE.py:NAME", action="append", default=[], help=words)
        _add_figure(command)
        _add_cache(command)
    everything = commands.add_parser("all", help="run every experiment, or go on with those that are missing")
    everything.add_argument("--quick", action="store_true", help="at reduced size: minutes, and figures that only show that it works")
    everything.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help="where to write (default %(default)s)")
    everything.add_argument("--force", action="store_true", help="replace files that are there")
    everything.add_argument("--dask", metavar="WHERE", help=WORKERS)
    _add_figure(everything)
    _add_cache(everything)
    trace = commands.add_parser("trace", help="write one trial as arrays that anybody can recompute (.npz)")
    which = trace.add_subparsers(dest="experiment", required=True, metavar="EXPERIMENT")
    for experiment in experiments.values():
        # An experiment of one algorithm has an option --algorithm of its own, which then names the trace's, too.
        command = which.add_parser(experiment.name, help=experiment.title, conflict_handler="resolve")
        add_options(command, experiment)
        command.add_argument("--algorithm", required=True, metavar="NAME", help="one of the experiment's, e.g. cbo-ucb")
        command.add_argument("--trial", type=int, default=0, metavar="I", help="number of the trial, from 0 (default %(default)s)")
        command.add_argument("--out", type=Path, required=True, metavar="FILE", help="where to write, ending in .npz")
        command.add_argument("--force", action="store_true", help="replace a file that is there")
    stated = commands.add_parser(
        "texts", help="run notebooks and experiments at full size, and compare what texts state with what they print"
    )
    stated.add_argument("names", nargs="*", metavar="NAME", help="such as rpol or boxes.ipynb (default all, which takes hours)")
    stated.add_argument(
        "--out", type=Path, default=Path("results/texts"), metavar="DIR", help="where results go, or are (default %(default)s)"
    )
    stated.add_argument("--force", action="store_true", help="run experiments again whose results are there")
    stated.add_argument("--write", action="store_true", help="store what notebooks put out in them")
    _add_cache(stated)
    packaged = commands.add_parser("hub", help="write the package of the Optuna sampler for OptunaHub")
    packaged.add_argument("--out", type=Path, default=Path("hub"), metavar="DIR", help="where to write (default %(default)s)")
    packaged.add_argument("--force", action="store_true", help="replace the package that is there")
    bench.add_arguments(commands.add_parser("bench", help="speed and memory, beside what people use now"))
    return top


def _add_figure(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what the figure is like."""
    parser.add_argument("--format", choices=("png", "pdf", "svg"), default="png", help="of the figure (default %(default)s)")
    parser.add_argument(
        "--style", choices=("screen", "paper"), default="screen", help="paper: as wide as its columns, in 8 pt, no headline"
    )


def _add_cache(parser: argparse.ArgumentParser) -> None:
    """Add the options that say where compiled programs are kept."""
    parser.add_argument("--cache", type=Path, metavar="DIR", help="where compiled programs are kept (default ~/.cache/jaxbandit)")
    parser.add_argument("--no-cache", action="store_true", help="keep no compiled programs")


def run_all(args: argparse.Namespace, executor: Client | None) -> None:
    """Run every experiment whose results are missing, and print all tables."""
    for name, experiment in find_experiments().items():
        options = (experiment.reduced() if args.quick else experiment).defaults
        out = args.out / name
        # An experiment that is no study cannot be resumed.
        anew = experiment.play is not None and not (out / "results.nc").exists()
        resume = interrupted(out) and not args.force
        run_experiment(experiment, options, out, (args.format, args.style), force=args.force or anew, resume=resume, executor=executor)
        print()


def main(argv: list[str] | None = None) -> int:
    """Run one command and return the exit status.

    The status is 2 for bad arguments, 1 for output that cannot be written or fit memory, 3 for lost workers.
    """
    go_on = "a study goes on by the same command with --resume, all by the same command"
    return ended(lambda: _command(argv), go_on=go_on, less="ask for less", further={WorkersLost: 3, BatchFailed: 3})


def _command(argv: list[str] | None) -> int:
    args = parser().parse_args(argv)
    if getattr(args, "quick", False):
        args = parser(quick=True).parse_args(argv)
    if "no_cache" in args and not args.no_cache:
        enable_cache() if args.cache is None else enable_cache(args.cache)
    if args.command in (None, "list"):
        for name, experiment in find_experiments().items():
            print(filled(f"{name:20s} {experiment.title}", indent=21 * " "))
    elif args.command == "bench":
        return bench.run(args)
    elif args.command == "hub":
        from experiments.hub import write_package

        print(f"wrote {write_package(args.out, force=args.force)}")
    elif args.command == "texts":
        return texts.compare(args.names, args.out, force=args.force, write=args.write)
    elif args.command == "all":
        with connected(args.dask) as client:
            run_all(args, client)
    elif args.command == "trace":
        experiment = find_experiments()[args.experiment]
        write_trace(experiment, options_from(args), args.algorithm, args.trial, args.out, force=args.force)
    else:
        experiment = find_experiments()[args.command]
        out = args.out or Path("results") / experiment.name
        with connected(args.dask) as client:
            figure = (args.format, args.style)
            how = {"force": args.force, "resume": args.resume, "executor": client, "own": args.own}
            run_experiment(experiment, options_from(args), out, figure, **how)
    return 0


if __name__ == "__main__":
    # An experiment may start a device when it is imported, so this comes before.
    use_all_cores()
    if "--quick" in sys.argv:
        compile_quickly()
    sys.exit(main())
