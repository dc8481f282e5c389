"""The results of a study as one labelled dataset."""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from typing import Any

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

FACTS = ("optimum", "feasible_fraction", "slater_slack")
ENDS = ("status", "failed_round", "declared_round")
TRIAL = ("algorithm", "trial")


def gather_results(
    plan: Plan,
    batches: Sequence[Sequence[Mapping[str, np.ndarray]]],
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
      batches: arrays of every batch of every cell.
      mixed: rewards of the best mixed policies ``[runs, trials]``, for strong regret.
      seconds: seconds of a run of every cell, with and without compilation.
    """
    study, runs = plan.study, plan.runs
    whole = _Whole.of(plan, batches)
    before = counted_before(runs)
    kept = study.keep.rounds(study.horizon)
    rounds = np.concatenate([np.arange(1 - before, 1), kept])
    variables = _curves(plan, whole, rounds + before, mixed)
    variables |= {name: (TRIAL, whole(f"end_{name}")) for name in ENDS}
    variables |= {name: (TRIAL, whole(f"fact_{name}")) for name in FACTS}
    variables |= {} if mixed is None else {"best_mixed_policy": (TRIAL, mixed.astype(float_dtype()))}
    variables |= {} if seconds is None else _seconds(plan, seconds)
    variables |= _elimination(plan, whole)
    variables |= _evaluations(plan, whole)
    variables |= _lateness(plan, whole)
    variables |= _trajectories(plan, whole, every=len(kept) == study.horizon) if study.trajectories else {}
    coordinates: dict[str, Any] = {
        "algorithm": [run.label for run in runs],
        "trial": np.arange(study.trials),
        "round": rounds,
        "base": ("algorithm", [run.algorithm_label for run in runs]),
        "problem": ("algorithm", [run.problem_label for run in runs]),
        "delay": ("algorithm", [run.delay_label for run in runs]),
    }
    for path in study.swept:
        coordinates[path] = ("algorithm", [_number(run.swept.get(path)) for run in runs])
    if study.trajectories or "lost" in variables:
        most = max(cell.problem.outputs for cell in plan.cells)
        coordinates["output"] = ["reward", *(f"constraint {j}" for j in range(1, most))]
    if study.trajectories:
        coordinates["played"] = np.arange(1, study.horizon + 1)
    return xr.Dataset(variables, coordinates, attributes(plan, before))


@dataclasses.dataclass(frozen=True)
class _Whole:
    """Arrays of all cells, ``[runs of the cell, trials, ...]``, and the order that puts their runs into the study's."""

    cells: list[dict[str, np.ndarray]]
    order: np.ndarray

    @staticmethod
    def of(plan: Plan, batches: Sequence[Sequence[Mapping[str, np.ndarray]]]) -> _Whole:
        """Put the batches of each cell together."""
        cells = []
        for members, own in zip(plan.members, batches, strict=True):
            joined = {name: np.concatenate([batch[name] for batch in own]) for name in own[0]}
            shape = (len(members), plan.study.trials)
            cells.append({name: array.reshape(*shape, *array.shape[1:]) for name, array in joined.items()})
        return _Whole(cells, np.argsort([number for members in plan.members for number in members], kind="stable"))

    def __contains__(self, name: str) -> bool:
        return any(name in cell for cell in self.cells)

    def __call__(self, name: str, *, instead: Callable[[int], Any] | None = None, fill: Any = None) -> np.ndarray:
        """Return the arrays of a name for all runs, ``[runs, trials, ...]``.

        Args:
          name: name of the arrays.
          instead: makes, for the cell of a number, what it lacks, without the axes of runs and trials.
          fill: value for outputs, along the last axis, that some problems lack.
        """

        def own(number: int, cell: dict[str, np.ndarray]) -> np.ndarray:
            if name in cell or instead is None:
                return cell[name]
            made = np.asarray(instead(number))
            return np.broadcast_to(made, cell["end_status"].shape + made.shape)

        arrays = [own(number, cell) for number, cell in enumerate(self.cells)]
        if fill is not None:
            most = max(array.shape[-1] for array in arrays)
            arrays = [np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, most - a.shape[-1])], constant_values=fill) for a in arrays]
        return np.concatenate(arrays)[self.order]


def _curves(plan: Plan, whole: _Whole, elapsed: np.ndarray, mixed: np.ndarray | None) -> dict[str, Any]:
    """Return the study's metrics over the kept rounds; ``elapsed [rounds]`` is how many rounds each sums over."""

    def curve(name: str) -> np.ndarray:
        return np.concatenate([whole(f"before_{name}"), whole(name)], axis=-1) if f"before_{name}" in whole else whole(name)

    def measure(metric: str) -> np.ndarray:
        if metric != "strong_regret":
            return curve(metric)
        if mixed is None:
            raise InvalidArgument("mixed: strong regret is against the best mixed policies; give their rewards")
        return (mixed[..., None] * elapsed - curve("reward")).astype(float_dtype())

    return {metric: ((*TRIAL, "round"), measure(metric)) for metric in plan.study.metrics}


def _seconds(plan: Plan, seconds: Sequence[tuple[float, float]]) -> dict[str, Any]:
    """Return the seconds of every run from those of one run of every cell."""
    by_run = {number: own for members, own in zip(plan.members, seconds, strict=True) for number in members}
    columns = zip(*(by_run[number] for number in range(len(plan.runs))), strict=True)
    return {name: ("algorithm", np.asarray(column)) for name, column in zip(("run_seconds", "playing_seconds"), columns, strict=True)}


def _elimination(plan: Plan, whole: _Whole) -> dict[str, Any]:
    """Return how many points were not struck out, all of them by a run that never does, and whether the best is one of them."""
    if "end_candidate_count" not in whole:
        return {}
    every = whole("end_candidate_count", instead=lambda cell: plan.cells[cell].problem.domain.size)
    return {"candidates": (TRIAL, every), "optimum_kept": (TRIAL, whole("end_optimum_kept", instead=lambda cell: True))}


def _lateness(plan: Plan, whole: _Whole) -> dict[str, Any]:
    """Return how many values were lost: none of outputs that a problem lacks."""
    if "end_lost" not in whole:
        return {}
    lost = whole("end_lost", instead=lambda cell: np.zeros(plan.cells[cell].problem.outputs, np.int32), fill=0)
    return {"lost": ((*TRIAL, "output"), lost)}


def _trajectories(plan: Plan, whole: _Whole, every: bool) -> dict[str, Any]:
    """Return points, values and arrivals; outputs that a problem lacks are NaN, and their feedback never arrives."""
    horizon, index, over = plan.study.horizon, whole("seen_indices"), "played"
    if every:
        over = "round"
        index = np.concatenate([whole("before_index"), index], axis=-1) if "before_index" in whole else index
    dims = (*TRIAL, "played", "output")
    found: dict[str, Any] = {"index": ((*TRIAL, over), index), "observed": (dims, whole("seen_values", fill=np.nan))}
    if "seen_arrivals" in whole:

        def at_once(cell: int) -> np.ndarray:
            return np.repeat(np.arange(1, horizon + 1, dtype=np.int32)[:, None], plan.cells[cell].problem.outputs, axis=1)

        found["arrival"] = (dims, np.minimum(whole("seen_arrivals", instead=at_once, fill=NEVER), NEVER))
    return found


def _evaluations(plan: Plan, whole: _Whole) -> dict[str, Any]:
    """Return in how many rounds each trial evaluated something, before it stopped by itself; in all rounds of a run that never does."""
    if "end_evaluations" not in whole:
        return {}
    return {"evaluations": (TRIAL, whole("end_evaluations", instead=lambda cell: np.int32(plan.study.horizon)))}


def _number(value: Any) -> float:
    return float(value) if np.ndim(value) == 0 and value is not None else float("nan")


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
        "swept": json.dumps(list(study.swept)),
        "counted_before": before,
        "parameters": json.dumps(dict(study.recorded)),
        "batches": json.dumps(plan.batches),
        "problems": json.dumps({run.problem_label: describe(run.problem) for run in runs}),
        "initial_designs": json.dumps({run.label: describe(run.initial) for run in runs}),
        "algorithms": json.dumps({run.label: {"alg": run.name_in_traces, **describe(run.algorithm)} for run in runs}),
        "delays": json.dumps({run.label: describe(run.delay_in_force) for run in runs}),
        "feedback": json.dumps({run.label: describe(run.policy_in_force) for run in runs}),
        "kernels": json.dumps({run.label: [describe(kernel) for kernel in run.model.kernels] for run in runs}),
        "surrogates": json.dumps({run.label: run.model.describe() for run in runs}),
        "noise_variance_of_model": json.dumps({run.label: describe(run.model.noise_variance) for run in runs}),
        "precision": str(float_dtype()),
        "devices": json.dumps([str(device) for device in plan.devices]),
        "versions": json.dumps(
            {"jaxbandit": jaxbandit.__version__, "jax": jax.__version__, "numpy": np.__version__, "python": platform.python_version()}
        ),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
