"""Experiments as values, and the options and outputs that all of them share."""

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

from jaxbandit import checks
from jaxbandit.metrics import healthy
from jaxbandit.study import Reporter, Run, Study, flags_in_words, forget, prepare_directory, run_study, write_results, write_whole

PARAMETER_SETS = ("recommended", "paper", "code")


@dataclasses.dataclass(frozen=True)
class Options:
    """Options that a user can set of any experiment.

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
      build: makes the study of some options.
      notes: lines printed under the table: facts a reader of the numbers must know.
      draw: writes the figure of a dataset to a path.
      text: text of ``--help``.
      quick: options of a reduced size, for a run of minutes over all experiments.
      add_arguments: adds the experiment's own options to a parser; their names and defaults are the keys and values of
        ``defaults.extra``.
      files: further files by name, each with a function that writes it to a path, from the dataset and the table's rows.
    """

    name: str
    title: str
    defaults: Options
    build: Callable[[Options], Study]
    notes: Callable[[Any], list[str]]
    draw: Callable[[Any, Path], None]
    text: str = ""
    quick: Options | None = None
    add_arguments: Callable[[argparse.ArgumentParser], None] | None = None
    files: Callable[[Any, Sequence[dict[str, Any]]], Mapping[str, Callable[[Path], object]]] | None = None

    def reduced(self) -> Experiment:
        """Return the same experiment with the reduced size as its default, if it has one."""
        return self if self.quick is None else dataclasses.replace(self, defaults=self.quick)


def add_options(parser: argparse.ArgumentParser, of: Experiment | Options) -> None:
    """Add the options of an experiment, its own ones too; or, given defaults only, those that all have."""
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
    """Return the options as parsed; raises ``InvalidArgument`` on numbers out of range."""
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


def study(name: str, runs: Iterable[Run], options: Options, recorded: Mapping[str, Any]) -> Study:
    """Return the study of an experiment's runs, which keeps everything; ``recorded`` goes into the results' attributes."""
    return Study(
        name=name,
        runs=tuple(runs),
        trials=options.trials,
        horizon=options.horizon,
        seed=options.seed,
        parameters={"set": options.parameters, **recorded},
    ).keeping_everything()


def final_values(dataset: Any, label: str, name: str) -> np.ndarray:
    """Return a measure after the last round in the trials of one run that did not fail."""
    part = dataset.sel(algorithm=label)
    return part[name].values[healthy(part.status.values), -1].astype(np.float64)


def excess(dataset: Any, label: str, reference: str, name: str) -> np.ndarray:
    """Return a measure after the last round above that of another run, in each trial that failed in neither."""
    ok = healthy(dataset.status.sel(algorithm=[label, reference]).values).all(axis=0)
    last = dataset[name].isel(round=-1)
    return (last.sel(algorithm=label) - last.sel(algorithm=reference)).values[ok].astype(np.float64)


def half_width(values: np.ndarray) -> float:
    """Return the half-width of the 95% confidence interval of a mean; NaN for fewer than two values."""
    return float(1.96 * values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def no_code_note(dataset: Any) -> list[str]:
    """Return a note for a run of the ``code`` set where it is the paper's."""
    known = json.loads(dataset.attrs["parameters"])
    return ["no code was published with this paper: --parameters code runs the paper's set"] if known["set"] == "code" else []


def progress(line: str) -> None:
    """Print one line of progress, on standard error so that tables can be piped."""
    print(line, file=sys.stderr, flush=True)


def run_experiment(experiment: Experiment, options: Options, out: Path, *, force: bool, resume: bool = False) -> None:
    """Run, write ``results.nc``, ``summary.csv``, ``figure.png`` and the experiment's further files to ``out``, print the table.

    Raises:
      InvalidArgument: when ``out`` holds files and neither ``force`` nor ``resume`` is on, or nothing that can be resumed.
    """
    from jaxbandit.report import plots, tables  # noqa: F401  (matplotlib is slow to import: not for --help)

    started = time.perf_counter()
    directory = out if resume else prepare_directory(out, force=force)
    study = experiment.build(options)
    progress(f"{experiment.name}: {experiment.title}")
    for line in dict.fromkeys(run.model.describe() for run in study.runs):
        progress("surrogate: " + line.replace("\n", "; "))
    with Reporter() as (report, note):
        dataset = run_study(study, directory, resume=resume, report=report, note=note)
    if dataset is None:
        return  # the first of several processes gathers the results
    for line in flags_in_words(dataset):
        progress(line)
    dataset.attrs["command"] = " ".join(["python -m experiments", experiment.name, *sys.argv[2:]])
    rows = tables.summary_rows(dataset)
    write_results(dataset, directory / "results.nc")
    files: dict[str, Callable[[Path], object]] = {
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
    print(f"\nwrote {directory}/results.nc, {', '.join(files)} in {time.perf_counter() - started:.1f} s")
