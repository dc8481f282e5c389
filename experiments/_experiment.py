"""What an experiment module offers, and the options and outputs that all of them share."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxbandit import InitialDesign
from jaxbandit.core import checks
from jaxbandit.core.status import FAILED
from jaxbandit.study import Comparison, Entry, Reporter, forget, prepare_directory, run_study, write_whole

PARAMETER_SETS = ("recommended", "paper", "code")


@dataclasses.dataclass(frozen=True)
class Options:
    """What a user can set of any experiment.

    ``points_per_axis`` is 0 where the arms are fixed, and then has no effect. ``extra`` holds the options that an experiment adds.
    """

    trials: int
    horizon: int
    points_per_axis: int
    seed: int
    parameters: str
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Experiment:
    """One study of a paper.

    Attributes:
      name: on the command line.
      title: one line for lists and figures.
      defaults: the full-size options.
      build: from options to what is run.
      notes: lines printed under the table: facts a reader of the numbers must know.
      draw: writes the figure of a dataset to a path.
      text: what ``--help`` says.
      quick: options of a reduced size, for a run of minutes over all experiments.
      add_arguments: adds the experiment's own options to a parser; their names and defaults are the keys and values of
        ``defaults.extra``.
      files: further files by name, each with a function that writes it to a path, from the dataset and the table's rows.
    """

    name: str
    title: str
    defaults: Options
    build: Callable[[Options], Comparison]
    notes: Callable[[Any], list[str]]
    draw: Callable[[Any, Path], None]
    text: str = ""
    quick: Options | None = None
    add_arguments: Callable[[argparse.ArgumentParser], None] | None = None
    files: Callable[[Any, Sequence[dict[str, Any]]], Mapping[str, Callable[[Path], object]]] | None = None

    def reduced(self) -> Experiment:
        """The same with the reduced size as its default, if it has one."""
        return self if self.quick is None else dataclasses.replace(self, defaults=self.quick)


def add_options(parser: argparse.ArgumentParser, of: Experiment | Options) -> None:
    """The options of an experiment, its own ones too; or, given defaults only, those that all have."""
    defaults = of.defaults if isinstance(of, Experiment) else of
    parser.add_argument("--trials", type=int, default=defaults.trials, metavar="N", help="independent trials (default %(default)s)")
    parser.add_argument("--horizon", type=int, default=defaults.horizon, metavar="T", help="rounds per trial (default %(default)s)")
    resolution = "grid resolution (default %(default)s)" if defaults.points_per_axis else "no effect here: the arms are those of the data"
    parser.add_argument("--points-per-axis", type=int, default=defaults.points_per_axis, metavar="n", help=resolution)
    parser.add_argument("--seed", type=int, default=defaults.seed, metavar="S", help="seed of every random number (default %(default)s)")
    parser.add_argument(
        "--parameters", choices=PARAMETER_SETS, default=defaults.parameters, help="named parameter set (default %(default)s)"
    )
    parser.set_defaults(option_defaults=defaults)
    if isinstance(of, Experiment) and of.add_arguments is not None:
        of.add_arguments(parser)


def options_from(args: argparse.Namespace) -> Options:
    """The options as parsed; raises ``InvalidArgument`` on numbers out of range."""
    checks.integer("--trials", args.trials, least=1)
    checks.integer("--horizon", args.horizon, least=1)
    if args.option_defaults.points_per_axis:
        checks.integer("--points-per-axis", args.points_per_axis, least=2)
    checks.integer("--seed", args.seed, least=0)
    return Options(
        trials=args.trials,
        horizon=args.horizon,
        points_per_axis=args.points_per_axis,
        seed=args.seed,
        parameters=args.parameters,
        extra={name: getattr(args, name, default) for name, default in args.option_defaults.extra.items()},
    )


def comparison(
    name: str,
    problem: Any,
    entries: Iterable[Entry],
    options: Options,
    recorded: dict[str, Any],
    *,
    initial: InitialDesign = InitialDesign(),
) -> Comparison:
    """The entries of an experiment under the options that all experiments share; ``recorded`` goes into the results' attributes."""
    return Comparison(
        name=name,
        problem=problem,
        entries=tuple(entries),
        horizon=options.horizon,
        trials=options.trials,
        seed=options.seed,
        initial=initial,
        parameters={"set": options.parameters, **recorded},
    )


def final_values(dataset: Any, label: str, name: str) -> np.ndarray:
    """A measure after the last round in the trials of one entry that did not fail."""
    part = dataset.sel(algorithm=label)
    return part[name].values[(part.status.values & int(FAILED)) == 0, -1].astype(np.float64)


def excess(dataset: Any, label: str, reference: str, name: str) -> np.ndarray:
    """A measure after the last round above that of another entry, in each trial that failed in neither."""
    ok = (dataset.status.sel(algorithm=[label, reference]).values & int(FAILED) == 0).all(axis=0)
    last = dataset[name].isel(round=-1)
    return (last.sel(algorithm=label) - last.sel(algorithm=reference)).values[ok].astype(np.float64)


def half_width(values: np.ndarray) -> float:
    """Of the 95% confidence interval of a mean; NaN for fewer than two values."""
    return float(1.96 * values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def no_code_note(dataset: Any) -> list[str]:
    """A note for a run of the ``code`` set where it is the paper's."""
    known = json.loads(dataset.attrs["parameters"])
    return ["no code was published with this paper: --parameters code runs the paper's set"] if known["set"] == "code" else []


def progress(line: str) -> None:
    """One line of progress, on standard error so that tables can be piped."""
    print(line, file=sys.stderr, flush=True)


def run_experiment(experiment: Experiment, options: Options, out: Path, *, force: bool, resume: bool = False) -> None:
    """Run, write ``results.nc``, ``summary.csv``, ``figure.png`` and the experiment's further files to ``out``, print the table.

    Raises:
      InvalidArgument: when ``out`` holds files and neither ``force`` nor ``resume`` is on, or nothing that can be resumed.
    """
    from jaxbandit.report import plots, tables  # noqa: F401  (matplotlib is slow to import: not for --help)
    from jaxbandit.study.results import flags_in_words, save

    started = time.perf_counter()
    directory = out if resume else prepare_directory(out, force=force)
    comparison = experiment.build(options)
    progress(f"{experiment.name}: {experiment.title}")
    for line in dict.fromkeys(entry.surrogate.describe() for entry in comparison.entries):
        progress("surrogate: " + line.replace("\n", "; "))
    with Reporter() as (report, note):
        dataset = run_study(comparison, directory, resume=resume, report=report, note=note)
    for line in flags_in_words(dataset):
        progress(line)
    dataset.attrs["command"] = " ".join(["python -m experiments", experiment.name, *sys.argv[2:]])
    rows = tables.summary_rows(dataset)
    files: dict[str, Callable[[Path], object]] = {
        "results.nc": lambda path: save(dataset, path),
        "summary.csv": lambda path: tables.write_csv(rows, path),
        "figure.png": lambda path: experiment.draw(dataset, path),
        **({} if experiment.files is None else experiment.files(dataset, rows)),
    }
    for name, write in files.items():
        write_whole(directory / name, write)
    forget(directory)  # only now: until here a run that is cut off can be resumed
    print(f"\n{experiment.title}\n{options.trials} trials, T = {options.horizon}, {options.parameters} parameters, seed {options.seed}\n")
    print(tables.text_table(rows))
    for line in experiment.notes(dataset):
        print(f"- {line}")
    first, *others = files
    print(f"\nwrote {directory}/{first}, {', '.join(others)} in {time.perf_counter() - started:.1f} s")
