"""The results of a study as one labelled dataset."""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import jax
import numpy as np
import xarray as xr

import jaxbandit
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.pytree import float_dtype
from jaxbandit.delays import NEVER
from jaxbandit.study.plan.planning import Plan
from jaxbandit.study.specify.describe import describe
from jaxbandit.study.specify.run import counted_before
from jaxbandit.study.specify.study import METRICS

FACTS = ("optimum", "feasible_fraction", "slater_slack")
ENDS = ("status", "failed_round", "declared_round")
TRIAL = ("algorithm", "trial")
SECONDS = ("run_seconds", "playing_seconds")

# Names in the results that no swept field can have; such a field, as `index` of the oracle, is called `algorithm.index` there.
OF_SOME_RUNS = ("best_mixed_policy", "candidates", "optimum_kept", "evaluations", "lost", "index", "observed", "arrival")
LABELS = ("base", "problem", "delay")
TAKEN = frozenset({*METRICS, *FACTS, *ENDS, *TRIAL, *SECONDS, *OF_SOME_RUNS, *LABELS, "round", "played", "output"})

Arrays: TypeAlias = Mapping[str, np.ndarray]
"""Arrays of a batch by name, each with an entry for every trial of it along the first axis."""


@dataclasses.dataclass(frozen=True)
class Variable:
    """Variable of the results over runs and trials, ``[runs, trials, ...]``, which is made batch by batch.

    Attributes:
      dims: names of its dimensions.
      shape: size of each.
      dtype: type of its numbers.
      made_of: returns its entries ``[n, ...]`` for the ``n`` trials of a batch, from the number of the cell, the arrays of the batch and
        the runs and trials that its rows are of, ``[n, 2]``.
    """

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    made_of: Callable[[int, Arrays, np.ndarray], np.ndarray]


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
    - ``run_seconds``, ``playing_seconds``: seconds of the run, with and without compilation; NaN where other processes ran some of it.

    Trajectories add ``observed``, the noisy values; ``index``, the points, over ``round`` with those of a counted initial design where
    every round is kept, otherwise over ``played``; ``arrival``, the round at whose end each value arrives (``delays.NEVER``: it never
    will), where feedback is late; and ``evaluations``, the rounds before a trial stopped by itself, where some run can.

    Args:
      plan: plan that was run.
      batch: returns the arrays of a batch, by the numbers of the cell and of the batch; called twice for the first of each cell.
      mixed: rewards of the best mixed policies ``[runs, trials]``, for strong regret.
      seconds: seconds of a run of every cell, with and without compilation.
    """
    variables = variables_of(plan, batch, mixed)
    arrays = {name: np.empty(variable.shape, variable.dtype) for name, variable in variables.items()}
    for name, run, trials, values in pieces(plan, variables, batch):
        arrays[name][run, trials] = values
    whole = {name: (variable.dims, arrays[name]) for name, variable in variables.items()}
    return header(plan, variables, mixed=mixed, seconds=seconds).assign(whole)


def pieces(
    plan: Plan, variables: Mapping[str, Variable], batch: Callable[[int, int], Arrays]
) -> Iterator[tuple[str, int, slice, np.ndarray]]:
    """Return pieces of all variables, batch by batch: the variable's name, the number of the run, the trials, and the values."""
    for cell, count in enumerate(plan.batch_counts):
        for number in range(count):
            arrays, rows = batch(cell, number), plan.trials_of(cell, number)
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
    study, runs, before = plan.study, plan.runs, counted_before(plan.runs)
    coordinates: dict[str, Any] = {
        "algorithm": [run.label for run in runs],
        "trial": np.arange(study.trials),
        "round": np.concatenate([np.arange(1 - before, 1), study.keep.rounds(study.horizon)]),
        "base": ("algorithm", [run.algorithm_label for run in runs]),
        "problem": ("algorithm", [run.problem_label for run in runs]),
        "delay": ("algorithm", [run.delay_label for run in runs]),
    }
    for path in study.swept:
        coordinates[coordinate_of(path)] = ("algorithm", [_number(run.swept.get(path)) for run in runs])
    if study.trajectories or "lost" in variables:
        most = max(cell.problem.outputs for cell in plan.cells)
        coordinates["output"] = ["reward", *(f"constraint {j}" for j in range(1, most))]
    if study.trajectories:
        coordinates["played"] = np.arange(1, study.horizon + 1)
    own: dict[str, Any] = {} if mixed is None else {"best_mixed_policy": (TRIAL, mixed.astype(float_dtype()))}
    own |= {} if seconds is None else _seconds(plan, seconds)
    return xr.Dataset(own, coordinates, attributes(plan, before))


def coordinate_of(path: str) -> str:
    """Return the name that a swept field has in the results."""
    return f"algorithm.{path}" if path in TAKEN else path


def variables_of(plan: Plan, batch: Callable[[int, int], Arrays], mixed: np.ndarray | None) -> dict[str, Variable]:
    """Return all variables over runs and trials that batches hold; arguments as for :func:`gather_results`."""
    makers = _Makers(plan, [batch(cell, 0) for cell in range(len(plan.cells))], mixed)
    found = {metric: makers.variable((*TRIAL, "round"), makers.metric(metric)) for metric in plan.study.metrics}
    found |= {name: makers.variable(TRIAL, makers.array(f"end_{name}")) for name in ENDS}
    found |= {name: makers.variable(TRIAL, makers.array(f"fact_{name}")) for name in FACTS}
    return found | _elimination(makers) | _evaluations(makers) | _lateness(makers) | _trajectories(makers)


Maker: TypeAlias = Callable[[int, Arrays, np.ndarray], np.ndarray]


class _Makers:
    """Functions that make variables of the arrays of batches; see :class:`Variable`."""

    def __init__(self, plan: Plan, first: Sequence[Arrays], mixed: np.ndarray | None) -> None:
        self.plan, self.mixed = plan, mixed
        self.before = counted_before(plan.runs)
        # The arrays of each cell without their rows: what there is, of which type and shape.
        self.empty = [{name: np.empty((0, *a.shape[1:]), a.dtype) for name, a in arrays.items()} for arrays in first]

    def __contains__(self, name: str) -> bool:
        return any(name in arrays for arrays in self.empty)

    def variable(self, dims: tuple[str, ...], maker: Maker) -> Variable:
        """Return the variable that a function makes."""
        none = np.zeros((0, 2), np.int64)
        made = [maker(cell, arrays, none) for cell, arrays in enumerate(self.empty)]
        shape = (len(self.plan.runs), self.plan.study.trials, *made[0].shape[1:])
        return Variable(dims, shape, np.result_type(*(values.dtype for values in made)), maker)

    def array(self, name: str, *, instead: Callable[[int], Any] | None = None, fill: Any = None) -> Maker:
        """Return what makes a variable of one array.

        Args:
          name: name of the array.
          instead: makes, for the cell of a number, what it lacks, without the axis of trials.
          fill: value for outputs, along the last axis, that some problems lack.
        """

        def plain(cell: int, arrays: Arrays, rows: np.ndarray) -> np.ndarray:
            if name in arrays or instead is None:
                return arrays[name]
            made = np.asarray(instead(cell))
            return np.broadcast_to(made, (len(rows), *made.shape))

        if fill is None:
            return plain
        none = np.zeros((0, 2), np.int64)
        most = max(plain(cell, arrays, none).shape[-1] for cell, arrays in enumerate(self.empty))

        def padded(cell: int, arrays: Arrays, rows: np.ndarray) -> np.ndarray:
            values = plain(cell, arrays, rows)
            return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, most - values.shape[-1])], constant_values=fill)

        return padded

    def curve(self, name: str) -> Maker:
        """Return what makes a curve, with the points before round 1 that count."""

        def made(cell: int, arrays: Arrays, rows: np.ndarray) -> np.ndarray:
            early = f"before_{name}"
            return np.concatenate([arrays[early], arrays[name]], axis=1) if early in arrays else arrays[name]

        return made

    def metric(self, metric: str) -> Maker:
        """Return what makes a metric of the study over the kept rounds."""
        if metric != "strong_regret":
            return self.curve(metric)
        mixed, study, reward = self.mixed, self.plan.study, self.curve("reward")
        if mixed is None:
            raise InvalidArgument("mixed: strong regret is against the best mixed policies; give their rewards")
        kept = study.keep.rounds(study.horizon)
        elapsed = np.concatenate([np.arange(1 - self.before, 1), kept]) + self.before  # rounds that each entry sums over

        def strong(cell: int, arrays: Arrays, rows: np.ndarray) -> np.ndarray:
            best = mixed[rows[:, 0], rows[:, 1]]
            return (best[:, None] * elapsed - reward(cell, arrays, rows)).astype(float_dtype())

        return strong


def _seconds(plan: Plan, seconds: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return the seconds of every run from those of one run of every cell."""
    by_run = {number: own for members, own in zip(plan.members, seconds, strict=True) for number in members}
    columns = zip(*(by_run[number] for number in range(len(plan.runs))), strict=True)
    return {name: ("algorithm", np.asarray(column)) for name, column in zip(SECONDS, columns, strict=True)}


def _elimination(makers: _Makers) -> dict[str, Variable]:
    """Return how many points were not struck out, all of them by a run that never does, and whether the best is one of them."""
    if "end_candidate_count" not in makers:
        return {}
    every = makers.array("end_candidate_count", instead=lambda cell: makers.plan.cells[cell].problem.domain.size)
    kept = makers.array("end_optimum_kept", instead=lambda cell: True)
    return {"candidates": makers.variable(TRIAL, every), "optimum_kept": makers.variable(TRIAL, kept)}


def _evaluations(makers: _Makers) -> dict[str, Variable]:
    """Return in how many rounds each trial evaluated something, before it stopped by itself; in all rounds of a run that never does."""
    if "end_evaluations" not in makers:
        return {}
    horizon = np.int32(makers.plan.study.horizon)
    return {"evaluations": makers.variable(TRIAL, makers.array("end_evaluations", instead=lambda cell: horizon))}


def _lateness(makers: _Makers) -> dict[str, Variable]:
    """Return how many values were lost: none of outputs that a problem lacks."""
    if "end_lost" not in makers:
        return {}
    lost = makers.array("end_lost", instead=lambda cell: np.zeros(makers.plan.cells[cell].problem.outputs, np.int32), fill=0)
    return {"lost": makers.variable((*TRIAL, "output"), lost)}


def _trajectories(makers: _Makers) -> dict[str, Variable]:
    """Return points, values and arrivals, if they are kept; outputs that a problem lacks are NaN, and their feedback never arrives."""
    study = makers.plan.study
    if not study.trajectories:
        return {}

    def index(cell: int, arrays: Arrays, rows: np.ndarray) -> np.ndarray:
        every = over == "round" and "before_index" in arrays
        return np.concatenate([arrays["before_index"], arrays["seen_indices"]], axis=1) if every else arrays["seen_indices"]

    over = "round" if len(study.keep.rounds(study.horizon)) == study.horizon else "played"
    dims = (*TRIAL, "played", "output")
    found = {"index": makers.variable((*TRIAL, over), index)}
    found["observed"] = makers.variable(dims, makers.array("seen_values", fill=np.nan))
    if "seen_arrivals" in makers:

        def at_once(cell: int) -> np.ndarray:
            return np.repeat(np.arange(1, study.horizon + 1, dtype=np.int32)[:, None], makers.plan.cells[cell].problem.outputs, axis=1)

        late = makers.array("seen_arrivals", instead=at_once, fill=NEVER)
        found["arrival"] = makers.variable(dims, lambda cell, arrays, rows: np.minimum(late(cell, arrays, rows), NEVER))
    return found


def _number(value: Any) -> float:
    """Return a swept value as a number, NaN where it is none, such as a list or an object."""
    try:
        return float(value) if np.ndim(value) == 0 and not isinstance(value, str) else float("nan")
    except (TypeError, ValueError, OverflowError):
        return float("nan")


def attributes(plan: Plan, before: int) -> dict[str, Any]:
    """Return inputs, versions and devices; structured values as JSON text. ``table`` is the study, empty when it has no table."""
    study, runs = plan.study, plan.runs
    try:
        table = json.dumps(study.table())
    except InvalidArgument:
        table = ""
    return {
        "study": study.name,
        "table": table,
        "fingerprint": study.fingerprint(),
        "horizon": study.horizon,
        "trials": study.trials,
        "seed": study.seed,
        "swept": json.dumps([coordinate_of(path) for path in study.swept]),
        "counted_before": before,
        "parameters": json.dumps(dict(study.recorded)),
        "batches": json.dumps(plan.batches),
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
