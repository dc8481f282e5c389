"""The results of a study as one labelled dataset."""

from __future__ import annotations

import datetime
import json
import platform
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr

import jaxbandit
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.describe import describe
from jaxbandit.core.pytree import float_dtype
from jaxbandit.engine.labelled import SECONDS, TRIAL, Arrays, Contents, Mixed, Row, Variable, coordinate_of, coordinates, variables_of
from jaxbandit.study.plan.planning import Plan
from jaxbandit.study.specify.run import counted_before


def gather_results(
    plan: Plan,
    batch: Callable[[int, int], Arrays],
    *,
    mixed: np.ndarray | None = None,
    seconds: Sequence[tuple[float, float]] | None = None,
) -> xr.Dataset:
    """Return the dataset of a study: dims ``algorithm`` (the runs), ``trial``, ``round``, and ``played``, ``output`` with trajectories.

    Coordinates along ``algorithm`` say what a run is: ``base`` (the algorithm), ``problem``, ``delay``, and one for each swept field
    (NaN where the run has none). Beside the metrics and the flags of each trial there are facts of its instance (``optimum`` and
    the like) and, where some run has use for it:

    - ``lost``: values that found no place in the buffer of pending feedback, where feedback is late.
    - ``candidates``, ``optimum_kept``: points that were not struck out, and whether the best is one of them, where some run eliminates.
    - ``run_seconds``, ``playing_seconds``: seconds of the run, with and without compilation, of all workers together; NaN where an
      earlier process ran some of it.

    Trajectories add ``observed``, the noisy values; ``index``, the points, over ``round`` with those of a counted initial design where
    every round is kept, otherwise over ``played``; ``arrival``, the round at whose end each value arrives (``delays.NEVER``: it never
    will), where feedback is late; and ``evaluations``, the rounds before a trial stopped by itself, where some run can.

    Args:
      plan: plan that was run.
      batch: returns the arrays of a batch, by the numbers of the cell and of the batch; called twice for the first of each cell.
      mixed: rewards of the best mixed policies ``[runs, trials]``, for strong regret.
      seconds: seconds of a run of every cell, with and without compilation.
    """
    variables = study_variables(plan, lambda cell: batch(cell, 0), of_rows(mixed))
    arrays = {name: np.empty(variable.shape, variable.dtype) for name, variable in variables.items()}
    for name, run, trials, values in pieces(plan, variables, batch):
        arrays[name][run, trials] = values
    whole = {name: (variable.dims, arrays[name]) for name, variable in variables.items()}
    return header(plan, variables, mixed=mixed, seconds=seconds).assign(whole)


def pieces(
    plan: Plan, variables: Mapping[str, Variable], batch: Callable[[int, int], Arrays]
) -> Iterator[tuple[str, int, slice, np.ndarray]]:
    """Return pieces of all variables, batch by batch: the variable's name, the number of the run, the trials, and the values."""
    for cell, number in plan.places:
        yield from pieces_of(plan, variables, cell, number, batch(cell, number))


def pieces_of(
    plan: Plan, variables: Mapping[str, Variable], cell: int, number: int, arrays: Arrays
) -> Iterator[tuple[str, int, slice, np.ndarray]]:
    """Return the pieces of all variables that a batch holds."""
    rows = plan.trials_of(cell, number)
    runs, starts = np.unique(rows[:, 0], return_index=True)
    ends = [*starts[1:], len(rows)]
    for name, variable in variables.items():
        values = variable.made_of(cell, arrays, rows)
        for run, start, end in zip(runs, starts, ends, strict=True):
            first = int(rows[start, 1])
            yield name, int(run), slice(first, first + int(end - start)), values[start:end]


def header(
    plan: Plan,
    variables: Collection[str],
    *,
    mixed: np.ndarray | None = None,
    seconds: Sequence[tuple[float, float]] | None = None,
) -> xr.Dataset:
    """Return the results without ``variables``, which are named: coordinates, attributes, and what has no entry for each trial."""
    rows = [Row(run.label, str(run.algorithm_label), str(run.problem_label), str(run.delay_label), dict(run.swept)) for run in plan.runs]
    found = contents_of(plan)
    own: dict[str, Any] = {} if mixed is None else {"best_mixed_policy": (TRIAL, mixed.astype(float_dtype()))}
    own |= {} if seconds is None else _seconds(plan, seconds)
    labels = coordinates(found, rows, plan.study.swept, outputs="lost" in variables)
    return xr.Dataset(own, labels, attributes(plan, found.before))


def contents_of(plan: Plan) -> Contents:
    """Return what the results of a plan hold."""
    study = plan.study
    return Contents(
        runs=len(plan.runs),
        trials=study.trials,
        horizon=study.horizon,
        kept=study.keep.rounds(study.horizon),
        before=counted_before(plan.runs),
        metrics=study.metrics,
        trajectories=study.trajectories,
        problems=[cell.problem for cell in plan.cells],
    )


def study_variables(plan: Plan, first: Callable[[int], Arrays], mixed: Mixed | None) -> dict[str, Variable]:
    """Return all variables over runs and trials that batches hold, given what the first batch of a cell holds, or one without trials."""
    return variables_of(contents_of(plan), [first(cell) for cell in range(len(plan.cells))], mixed)


def of_rows(mixed: np.ndarray | None) -> Mixed | None:
    """Return the function that variables are made by from the rewards of the best mixed policies ``[runs, trials]``, if there are any."""
    return None if mixed is None else lambda rows: mixed[rows[:, 0], rows[:, 1]]


def _seconds(plan: Plan, seconds: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return the seconds of every run from those of one run of every cell."""
    by_run = {number: own for members, own in zip(plan.members, seconds, strict=True) for number in members}
    columns = zip(*(by_run[number] for number in range(len(plan.runs))), strict=True)
    return {name: ("algorithm", np.asarray(column)) for name, column in zip(SECONDS, columns, strict=True)}


def run_of(plan: Plan) -> dict[str, str]:
    """Return the attributes on which all values of the results depend."""
    return {"fingerprint": plan.study.fingerprint(), "batches": json.dumps(plan.batches)}


def attributes(plan: Plan, before: int) -> dict[str, Any]:
    """Return inputs, versions and devices; structured values as JSON text. ``table`` is the study, empty when it has no table."""
    study, runs = plan.study, plan.runs
    try:
        table = json.dumps(study.table())
    except InvalidArgument:
        table = ""
    return {
        **run_of(plan),
        "study": study.name,
        "table": table,
        "horizon": study.horizon,
        "trials": study.trials,
        "seed": study.seed,
        "swept": json.dumps([coordinate_of(path) for path in study.swept]),
        "counted_before": before,
        "parameters": json.dumps(dict(study.recorded)),
        "problems": json.dumps({run.problem_label: describe(run.problem) for run in runs}),
        "initial_designs": json.dumps({run.label: describe(run.initial) for run in runs}),
        "algorithms": json.dumps({run.label: {"alg": run.name_in_traces, **describe(run.algorithm)} for run in runs}),
        "delays": json.dumps({run.label: describe(run.delay_in_force) for run in runs}),
        "feedback": json.dumps({run.label: describe(run.policy_in_force) for run in runs}),
        "kernels": json.dumps({run.label: [describe(kernel) for kernel in run.model.kernels_in_force] for run in runs}),
        "surrogates": json.dumps({run.label: run.model.describe() for run in runs}),
        "choices": json.dumps({run.label: study.describe_choices(run) for run in runs}),
        "noise_variance_of_model": json.dumps({run.label: describe(run.model.noise_variance) for run in runs}),
        "precision": str(float_dtype()),
        "devices": json.dumps([str(device) for device in plan.devices]),
        "versions": json.dumps(
            {"jaxbandit": jaxbandit.__version__, "jax": jax.__version__, "numpy": np.__version__, "python": platform.python_version()}
        ),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
