"""The command line: ``python -m experiments list | NAME | trace NAME | bench``."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from jaxbandit.study import CannotWrite, Run, Study, compile_quickly, use_all_cores

if __name__ == "__main__":  # before anything below can start a device
    use_all_cores()
    if "--quick" in sys.argv:
        compile_quickly()

from experiments import (
    bench,
    bpe,
    bpe_delays,
    bpe_vs_bpe,
    building,
    config_gp,
    config_infeasible,
    config_p,
    data_rate,
    delay_sweep,
    rpol,
    rpol_delayed,
    scgp,
    se22_noiseless,
    se22_noisy,
    se22_tradeoff,
    shootout,
    zj22,
    zj22_light,
    zj22_stocks,
)
from experiments._experiment import Experiment, Options, add_options, options_from, progress, run_experiment
from jaxbandit import InvalidArgument

MODULES = (
    rpol,
    rpol_delayed,
    bpe,
    bpe_delays,
    bpe_vs_bpe,
    delay_sweep,
    zj22,
    zj22_light,
    zj22_stocks,
    scgp,
    se22_noiseless,
    se22_noisy,
    se22_tradeoff,
    data_rate,
    config_gp,
    config_infeasible,
    config_p,
    building,
    shootout,
)
EXPERIMENTS: dict[str, Experiment] = {module.EXPERIMENT.name: module.EXPERIMENT for module in MODULES}


def parser(*, quick: bool = False) -> argparse.ArgumentParser:
    """Return the parser of all commands; with the experiments' reduced sizes as defaults if ``quick``."""
    known = {name: experiment.reduced() if quick else experiment for name, experiment in EXPERIMENTS.items()}
    top = argparse.ArgumentParser(prog="python -m experiments", description="The studies of the papers, from parameters to figure.")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("list", help="what there is to run")
    for experiment in known.values():
        command = commands.add_parser(
            experiment.name,
            help=experiment.title,
            description=experiment.text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add_options(command, experiment)
        command.add_argument("--quick", action="store_true", help="at reduced size, where no option says otherwise: does it work?")
        command.add_argument("--out", type=Path, metavar="DIR", help=f"where to write (default results/{experiment.name})")
        command.add_argument("--force", action="store_true", help="replace files that are there")
        command.add_argument("--resume", action="store_true", help="go on with the interrupted run of the same options in DIR")
    everything = commands.add_parser("all", help="run every experiment")
    everything.add_argument("--quick", action="store_true", help="at reduced size: minutes, and figures that only show that it works")
    everything.add_argument("--out", type=Path, default=Path("results"), metavar="DIR", help="where to write (default %(default)s)")
    everything.add_argument("--force", action="store_true", help="replace files that are there")
    trace = commands.add_parser("trace", help="write one trial as arrays that anybody can recompute (.npz)")
    which = trace.add_subparsers(dest="experiment", required=True, metavar="EXPERIMENT")
    for experiment in EXPERIMENTS.values():
        # An experiment of one algorithm has an option --algorithm of its own, which then names the trace's, too.
        command = which.add_parser(experiment.name, help=experiment.title, conflict_handler="resolve")
        add_options(command, experiment)
        command.add_argument("--algorithm", required=True, metavar="NAME", help="one of the experiment's, e.g. cbo-ucb")
        command.add_argument("--trial", type=int, default=0, metavar="I", help="number of the trial, from 0 (default %(default)s)")
        command.add_argument("--out", type=Path, required=True, metavar="FILE", help="where to write, ending in .npz")
        command.add_argument("--force", action="store_true", help="replace a file that is there")
    bench.add_arguments(commands.add_parser("bench", help="speed and memory, beside what people use now"))
    return top


def run_all(args: argparse.Namespace) -> None:
    """Run every experiment, one after the other, each into its own directory."""
    for name, experiment in EXPERIMENTS.items():
        options = (experiment.reduced() if args.quick else experiment).defaults
        run_experiment(experiment, options, args.out / name, force=args.force)
        print()


def write_trace(experiment: Experiment, options: Options, args: argparse.Namespace) -> None:
    """Write the audit arrays of one trial to a file."""
    import numpy as np

    from jaxbandit.study import audit, prepare_file, write_whole

    if args.out.suffix != ".npz":
        raise InvalidArgument(f"--out: must end in .npz, got {args.out}")
    path = prepare_file(args.out, force=args.force)
    study = experiment.build(options)
    arrays = audit(study, pick_run(study, args.algorithm), args.trial)
    write_whole(path, lambda temporary: np.savez_compressed(temporary, allow_pickle=False, **arrays))
    progress(f"wrote {path}: {', '.join(f'{name} {list(array.shape)}' for name, array in arrays.items())}")


def pick_run(study: Study, name: str) -> Run:
    """Return the run of that algorithm's name, or of that label in lower case with hyphens; raises ``InvalidArgument`` unless it is one."""
    labels = {re.sub("[^a-z0-9]+", "-", run.label.lower()).strip("-"): run for run in study.runs}
    names = [run.name_in_traces.replace("_", "-") for run in study.runs]
    if names.count(name) == 1:
        return study.runs[names.index(name)]
    if name in labels:
        return labels[name]
    known = [own if names.count(own) == 1 else label for own, label in zip(names, labels, strict=True)]
    raise InvalidArgument(f"--algorithm: {study.name} runs {', '.join(known)}; got {name!r}")


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status, 2 for arguments that cannot be used."""
    args = parser().parse_args(argv)
    if getattr(args, "quick", False):
        args = parser(quick=True).parse_args(argv)
    try:
        if args.command == "list":
            for name, experiment in EXPERIMENTS.items():
                print(f"{name:20s} {experiment.title}")
        elif args.command == "bench":
            return bench.run(args)
        elif args.command == "all":
            run_all(args)
        elif args.command == "trace":
            write_trace(EXPERIMENTS[args.experiment], options_from(args), args)
        else:
            experiment = EXPERIMENTS[args.command]
            out = args.out or Path("results") / experiment.name
            run_experiment(experiment, options_from(args), out, force=args.force, resume=args.resume)
    except InvalidArgument as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except CannotWrite as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
