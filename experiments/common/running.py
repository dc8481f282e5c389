"""Running an experiment.

Its dataset, tables, figure and further files go into one directory. One trial can be written as an audit trace.
"""

from __future__ import annotations

import dataclasses
import datetime
import hashlib
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from experiments.common.experiment import Experiment, Options, spelling
from jaxbandit import Algorithm, InvalidArgument
from jaxbandit.report import tables
from jaxbandit.study import (
    HeldDirectory,
    Reporter,
    Run,
    Study,
    audit,
    flags_in_words,
    forget,
    hold_directory,
    made_before,
    own_algorithm,
    prepare_file,
    run_study,
    sweeps_without_effect,
    write_results,
    write_whole,
)

if TYPE_CHECKING:
    from distributed import Client


def progress(line: str) -> None:
    """Print one line of progress, on standard error."""
    print(line, file=sys.stderr, flush=True)


def run_experiment(
    experiment: Experiment,
    options: Options,
    out: Path,
    figure: tuple[str, str] = ("png", "screen"),
    *,
    force: bool,
    resume: bool = False,
    executor: Client | None = None,
    own: Sequence[str] = (),
) -> None:
    """Run an experiment, write its files to ``out``, and print its table.

    The files are ``results.nc``, ``summary.csv``, ``figure.png`` and further ones. The ``figure`` is of that format and style; in the style
    of papers its headline is printed as a caption. Workers of the executor, if one is given, play the study; an experiment that is no study
    plays by itself. Algorithms of a user's ``own``, ``"mine.py:FixedPenalty"`` each, are played, too. Where ``out`` holds the results of
    the same options, nothing is run unless ``force`` is on.

    Raises:
      InvalidArgument: when ``out`` holds other files and neither ``force`` nor ``resume`` is on, or nothing that can be resumed, or when a
        run that is going on holds it.
    """
    asked = {"name": experiment.name, "precision": str(jnp.result_type(float)), **dataclasses.asdict(options)}
    algorithms = [own_algorithm(given) for given in own]
    if own:
        asked["with"] = [[given, hashlib.sha256(Path(given.rpartition(":")[0]).read_bytes()).hexdigest()] for given in own]
    attributes = {"options": json.dumps(asked, sort_keys=True)}
    made = None if force else made_before(out / "results.nc", attributes)
    if made is not None:
        with made:
            _show(experiment, options, made, _write(experiment, made, out, *figure), f"made {made.attrs['created']}; --force runs again")
        return
    if resume and experiment.play is not None:
        raise InvalidArgument(f"--resume: {experiment.name} is no study, and cannot be resumed; start it anew with --force")
    if own and experiment.play is not None:
        raise InvalidArgument(f"--with: {experiment.name} is no study, to which an algorithm could be added")
    with hold_directory(out, force=force or resume) as held:
        started = time.perf_counter()
        alone = experiment.play
        if alone is None:
            play = partial(_studied, with_algorithms(experiment.study(options), algorithms), held, resume, executor)
        else:
            play = partial(alone, options, held.path)
        progress(f"{experiment.name}: {experiment.title}")
        if alone is not None and executor is not None:
            progress(f"{experiment.name} is no study of batches: this process plays it, without the workers")
        dataset = play()
        attributes["command"] = " ".join(["python -m experiments", experiment.name, *sys.argv[2:]])
        attributes["created"] = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        dataset = dataset.assign_attrs(attributes)
        if experiment.play is None:
            write_results(dataset, out / "results.nc")
        # An experiment that is no study has a dataset of its own form.
        else:
            write_whole(out / "results.nc", lambda path: dataset.to_netcdf(path, engine="h5netcdf"))
        files = _write(experiment, dataset, out, *figure)
        # Forget only now, because until here a run that is cut off can be resumed.
        forget(held)
        _show(experiment, options, dataset, files, f"written in {time.perf_counter() - started:.1f} s")


def _write(experiment: Experiment, dataset: Any, out: Path, kind: str, look: str) -> list[str]:
    """Write an experiment's files but its results, and return all paths."""
    # Matplotlib is slow to import, so --help does without it.
    from jaxbandit.report import plots, style

    def draw(path: Path) -> None:
        with style(look):
            figure = experiment.draw(dataset)
            if look == "paper":
                print(f"figure.{kind}: {plots.caption_of(figure)}")
            plots.write_figure(figure, path, kind)

    rows = experiment.rows(dataset)
    files: dict[str, Callable[[Path], object]] = {
        "summary.csv": lambda path: tables.write_csv(rows, path),
        f"figure.{kind}": draw,
        **({} if experiment.files is None else experiment.files(dataset, rows)),
    }
    for name, write in files.items():
        write_whole(out / name, write)
    return [str(out / name) for name in ("results.nc", *files)]


def _show(experiment: Experiment, options: Options, dataset: Any, files: list[str], ending: str) -> None:
    """Print the table of an experiment, its notes, and its files."""
    rows = experiment.rows(dataset)
    cells = [list(rows[0]), *([str(cell) for cell in row.values()] for row in rows)]
    trials = f"{options.trials} trial{'' if options.trials == 1 else 's'}"
    print(f"\n{experiment.title}\n{trials}, T = {options.horizon}, {options.parameters} parameters, seed {options.seed}\n")
    own = experiment.rows is not tables.summary_rows
    print(tables.aligned(cells, width=shutil.get_terminal_size().columns) if own else tables.text_table(rows))
    for line in (*experiment.notes(dataset), *(sweeps_without_effect(dataset) if experiment.play is None else [])):
        print(tables.filled(f"- {line}", indent="  "))
    print("\n" + tables.filled(f"{', '.join(files)}: {ending}"))


def with_algorithms(study: Study, algorithms: Sequence[Algorithm]) -> Study:
    """Return a study that plays ``algorithms`` on each problem, too.

    The further runs have the model and all else of the first run there.
    """
    first = {(run.problem_label, run.delay_label): run for run in reversed(study.named_runs())}
    (problems, delays), runs = map(set, zip(*first, strict=True)), list(study.runs)
    for algorithm in algorithms:
        for run in reversed(first.values()):
            name = type(algorithm).__name__
            words = [name, f"on {run.problem_label}" if len(problems) > 1 else "", run.delay_label if len(delays) > 1 else ""]
            made: dict[str, Any] = {"label": " ".join(filter(None, words)), "algorithm": algorithm, "algorithm_label": name, "swept": {}}
            runs.append(dataclasses.replace(run, **made, feedback=None, informed=None, trace_name=None, origin=None))
    return dataclasses.replace(study, runs=tuple(runs))


def _studied(study: Study, held: HeldDirectory, resume: bool, executor: Client | None) -> Any:
    """Return the dataset of a study that runs in a directory."""
    for line in dict.fromkeys(run.model.describe() for run in study.runs):
        progress("surrogate: " + line.replace("\n", "; "))
    with Reporter() as (report, note):
        dataset = run_study(study, held, resume=resume, executor=executor, report=report, note=note)
    for line in flags_in_words(dataset):
        progress(line)
    return dataset


def write_trace(experiment: Experiment, options: Options, algorithm: str, trial: int, out: Path, *, force: bool) -> None:
    """Write one trial's audit arrays to the file ``out``.

    The trial is of one algorithm.

    Raises:
      InvalidArgument: when ``out`` does not end in ``.npz`` or is there and ``force`` is off, or for an unknown algorithm or trial.
    """
    if out.suffix != ".npz":
        raise InvalidArgument(f"--out: must end in .npz, got {out}")
    path = prepare_file(out, force=force)
    study = experiment.study(options)
    arrays = audit(study, pick_run(study, algorithm), trial)
    write_whole(path, lambda temporary: np.savez_compressed(temporary, allow_pickle=False, **arrays))
    progress(f"wrote {path}: {', '.join(f'{name} {list(array.shape)}' for name, array in arrays.items())}")


def pick_run(study: Study, name: str) -> Run:
    """Return the run of an algorithm's name or a label.

    The label is in lower case with hyphens. Raises ``InvalidArgument`` unless one run has it.
    """
    labels = [re.sub("[^a-z0-9]+", "-", run.label.lower()).strip("-") for run in study.runs]
    names = [run.name_in_traces.replace("_", "-") for run in study.runs]
    known = [own if names.count(own) == 1 else label for own, label in zip(names, labels, strict=True)]
    for own in (known, labels):
        if (found := spelling(own)(name)) in own:
            return study.runs[own.index(found)]
    raise InvalidArgument(f"--algorithm: {study.name} runs {', '.join(known)}; got {name!r}")
