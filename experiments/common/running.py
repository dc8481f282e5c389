"""Running an experiment: its dataset, tables, figure and further files, written to one directory."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from experiments.common.experiment import Experiment, Options
from jaxbandit import InvalidArgument
from jaxbandit.study import (
    HeldDirectory,
    Reporter,
    Study,
    flags_in_words,
    forget,
    hold_directory,
    run_study,
    sweeps_without_effect,
    write_results,
    write_whole,
)


def progress(line: str) -> None:
    """Print one line of progress, on standard error so that tables can be piped."""
    print(line, file=sys.stderr, flush=True)


def run_experiment(experiment: Experiment, options: Options, out: Path, *, force: bool, resume: bool = False) -> None:
    """Run an experiment, write ``results.nc``, ``summary.csv``, ``figure.png`` and its further files to ``out``, and print the table.

    Raises:
      InvalidArgument: when ``out`` holds files and neither ``force`` nor ``resume`` is on, or nothing that can be resumed, or when a run
        that is going on holds it.
    """
    if resume and experiment.play is not None:
        raise InvalidArgument(f"--resume: {experiment.name} is no study, and cannot be resumed; start it anew with --force")
    with hold_directory(out, force=force or resume) as held:
        _run(experiment, options, held, resume)


def _run(experiment: Experiment, options: Options, held: HeldDirectory, resume: bool) -> None:
    """Run an experiment in a directory that is held."""
    from jaxbandit.report import plots, tables  # matplotlib is slow to import: not for --help

    started, directory = time.perf_counter(), held.path
    study = experiment.study(options) if experiment.play is None else None
    progress(f"{experiment.name}: {experiment.title}")
    if study is not None:
        dataset = _studied(study, held, resume)
        if dataset is None:
            return  # the first of several processes gathers the results
        rows = tables.summary_rows(dataset)
        text = tables.text_table(rows)
    elif experiment.play is not None:
        dataset, rows = experiment.play(options, directory)
        text = tables.aligned([list(rows[0]), *([str(cell) for cell in row.values()] for row in rows)])
    dataset.attrs["command"] = " ".join(["python -m experiments", experiment.name, *sys.argv[2:]])
    if study is None:  # a dataset of its own form, which is no study's results
        write_whole(directory / "results.nc", lambda path: dataset.to_netcdf(path, engine="h5netcdf"))
    else:
        write_results(dataset, directory / "results.nc")
    files: dict[str, Callable[[Path], object]] = {
        "summary.csv": lambda path: tables.write_csv(rows, path),
        "figure.png": lambda path: experiment.draw(dataset).savefig(path, dpi=plots.DPI),
        **({} if experiment.files is None else experiment.files(dataset, rows)),
    }
    for name, write in files.items():
        write_whole(directory / name, write)
    forget(held)  # only now: until here a run that is cut off can be resumed
    trials = f"{options.trials} trial{'' if options.trials == 1 else 's'}"
    print(f"\n{experiment.title}\n{trials}, T = {options.horizon}, {options.parameters} parameters, seed {options.seed}\n")
    print(text)
    for line in (*experiment.notes(dataset), *([] if study is None else sweeps_without_effect(dataset))):
        print(f"- {line}")
    print(f"\nwrote {directory}/results.nc, {', '.join(files)} in {time.perf_counter() - started:.1f} s")


def _studied(study: Study, held: HeldDirectory, resume: bool) -> Any:
    """Return the dataset of a study that is run in a directory; ``None`` in all processes but the first."""
    for line in dict.fromkeys(run.model.describe() for run in study.runs):
        progress("surrogate: " + line.replace("\n", "; "))
    with Reporter() as (report, note, compiling):
        dataset = run_study(study, held, resume=resume, report=report, note=note, compiling=compiling)
    for line in [] if dataset is None else flags_in_words(dataset):
        progress(line)
    return dataset
