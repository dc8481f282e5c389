"""What a run gives as one labelled dataset."""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
import xarray as xr

import jaxbandit
from jaxbandit.algorithms.base import unwrapped
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.pytree import float_dtype
from jaxbandit.delays import NEVER
from jaxbandit.feedback import Wait
from jaxbandit.study.cells import PlannedCell
from jaxbandit.study.describe import describe
from jaxbandit.study.lines import counted_before
from jaxbandit.study.planning import Plan

FACTS = ("optimum", "feasible_fraction", "slater_slack")
ENDS = ("status", "failed_round", "declared_round")
TRIAL = ("algorithm", "trial")


def gather_results(
    plan: Plan,
    parts: list[list[dict[str, np.ndarray]]],
    *,
    mixed: np.ndarray | None = None,
    seconds: Sequence[tuple[float, float]] | None = None,
) -> xr.Dataset:
    """The dataset of a run: dims ``algorithm`` (the lines), ``trial`` and ``round``, and ``played``, ``output`` with trajectories.

    Coordinates along ``algorithm`` say what a line is: ``base`` (the algorithm), ``problem``, ``delay``, and one for each swept field
    (NaN where the algorithm has none). Beside the metrics and the flags of each trial there are facts of its instance (``optimum`` and
    the like) and, where some line has use for it:

    - ``lost``: values that found no place in the buffer of pending feedback, where feedback is late.
    - ``candidates``, ``optimum_kept``: points that were not struck out, and whether the best is one of them, where some line eliminates.
    - ``run_seconds``, ``playing_seconds``: of the line, with and without compilation; NaN where others ran some of it.

    Trajectories add ``observed``, the noisy values; ``index``, the points, over ``round`` with those of a counted initial design where
    every round is kept, otherwise over ``played``; ``arrival``, the round at whose end each value arrives (``delays.NEVER``: it never
    will), where feedback is late; and ``evaluations``, the rounds before a trial stopped by itself, where some line can.

    Args:
      plan: what was run.
      parts: the arrays of every batch of every cell.
      mixed: rewards of the best mixed policies ``[lines, trials]``, for strong regret.
      seconds: with and without compilation, of a line of every cell.
    """
    study, lines = plan.study, plan.lines
    whole = _Whole.of(plan, parts)
    before = counted_before(lines)
    kept = study.keep.rounds(study.horizon)
    rounds = np.concatenate([np.arange(1 - before, 1), kept])
    variables = _curves(plan, whole, rounds + before, mixed)
    variables |= {name: (TRIAL, whole(f"end_{name}")) for name in ENDS}
    variables |= {name: (TRIAL, whole(f"fact_{name}")) for name in FACTS}
    variables |= {} if mixed is None else {"best_mixed_policy": (TRIAL, mixed.astype(float_dtype()))}
    variables |= {} if seconds is None else _seconds(plan, seconds)
    variables |= _elimination(plan, whole)
    variables |= _lateness(plan, whole)
    variables |= _trajectories(plan, whole, every=len(kept) == study.horizon) if study.trajectories else {}
    coordinates: dict[str, Any] = {
        "algorithm": [line.entry.label for line in lines],
        "trial": np.arange(study.trials),
        "round": rounds,
        "base": ("algorithm", [line.base for line in lines]),
        "problem": ("algorithm", [line.problem for line in lines]),
        "delay": ("algorithm", [line.delay for line in lines]),
    }
    for path in study.swept:
        coordinates[path] = ("algorithm", [_number(line.swept.get(path)) for line in lines])
    if study.trajectories or "lost" in variables:
        most = max(planned.cell.problem.outputs for planned in plan.cells)
        coordinates["output"] = ["reward", *(f"constraint {j}" for j in range(1, most))]
    if study.trajectories:
        coordinates["played"] = np.arange(1, study.horizon + 1)
    return xr.Dataset(variables, coordinates, attributes(plan, before))


@dataclasses.dataclass(frozen=True)
class _Whole:
    """The arrays of all cells, ``[lines of the cell, trials, ...]``, and where the lines belong."""

    cells: list[dict[str, np.ndarray]]
    order: np.ndarray

    @staticmethod
    def of(plan: Plan, parts: list[list[dict[str, np.ndarray]]]) -> _Whole:
        """The batches of each cell put together."""
        cells = []
        for planned, batches in zip(plan.cells, parts, strict=True):
            joined = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
            shape = (len(planned.lines), plan.study.trials)
            cells.append({name: array.reshape(*shape, *array.shape[1:]) for name, array in joined.items()})
        return _Whole(cells, np.argsort([number for planned in plan.cells for number in planned.lines], kind="stable"))

    def __contains__(self, name: str) -> bool:
        return any(name in cell for cell in self.cells)

    def __call__(self, name: str, *, instead: Callable[[int], Any] | None = None, fill: Any = None) -> np.ndarray:
        """``[lines, trials, ...]``.

        Args:
          name: of the arrays.
          instead: makes, for the cell of a number, what it lacks, up to the axes of lines and trials.
          fill: for outputs, along the last axis, that some problems lack.
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
    """The study's metrics over the kept rounds; ``elapsed`` is how many each sums over."""

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
    """Of every line, from those of a line of every cell."""
    by_line = {line: own for planned, own in zip(plan.cells, seconds, strict=True) for line in planned.lines}
    columns = zip(*(by_line[line] for line in range(len(plan.lines))), strict=True)
    return {name: ("algorithm", np.asarray(column)) for name, column in zip(("run_seconds", "playing_seconds"), columns, strict=True)}


def _elimination(plan: Plan, whole: _Whole) -> dict[str, Any]:
    """How many points were not struck out, all by a line that never does, and whether the best is one of them."""
    if "end_candidates" not in whole:
        return {}
    every = whole("end_candidates", instead=lambda cell: plan.cells[cell].cell.problem.domain.size)
    return {"candidates": (TRIAL, every), "optimum_kept": (TRIAL, whole("end_optimum_kept", instead=lambda cell: True))}


def _lateness(plan: Plan, whole: _Whole) -> dict[str, Any]:
    """How many values were lost; of outputs that a problem lacks, none."""
    if "end_lost" not in whole:
        return {}
    lost = whole("end_lost", instead=lambda cell: np.zeros(plan.cells[cell].cell.problem.outputs, np.int32), fill=0)
    return {"lost": ((*TRIAL, "output"), lost)}


def _trajectories(plan: Plan, whole: _Whole, every: bool) -> dict[str, Any]:
    """Points, values and arrivals; outputs that a problem lacks are NaN, and their feedback never arrives."""
    horizon, index, over = plan.study.horizon, whole("seen_indices"), "played"
    if every:
        over = "round"
        index = np.concatenate([whole("before_index"), index], axis=-1) if "before_index" in whole else index
    dims = (*TRIAL, "played", "output")
    found: dict[str, Any] = {"index": ((*TRIAL, over), index), "observed": (dims, whole("seen_values", fill=np.nan))}
    if "seen_arrivals" in whole:

        def at_once(cell: int) -> np.ndarray:
            return np.repeat(np.arange(1, horizon + 1, dtype=np.int32)[:, None], plan.cells[cell].cell.problem.outputs, axis=1)

        found["arrival"] = (dims, np.minimum(whole("seen_arrivals", instead=at_once, fill=NEVER), NEVER))
    if "seen_widths" in whole:
        found["evaluations"] = (TRIAL, _evaluations(plan, whole))
    return found


def _evaluations(plan: Plan, whole: _Whole) -> np.ndarray:
    """In how many rounds each trial evaluated something, before it stopped by itself."""

    def of_cell(planned: PlannedCell, arrays: dict[str, np.ndarray]) -> np.ndarray:
        if "seen_widths" not in arrays:
            return np.full(arrays["end_status"].shape, plan.study.horizon, np.int32)
        return np.asarray(unwrapped(plan.lines[planned.lines[0]].entry.algorithm).evaluations(arrays["seen_widths"]))

    counts = [of_cell(planned, arrays) for planned, arrays in zip(plan.cells, whole.cells, strict=True)]
    return np.concatenate(counts)[whole.order]


def _number(value: Any) -> float:
    return float(value) if np.ndim(value) == 0 and value is not None else float("nan")


def attributes(plan: Plan, before: int) -> dict[str, Any]:
    """Inputs, versions and devices; structured values as JSON text. ``table`` is the study, empty when it cannot be written."""
    study, entries = plan.study, [line.entry for line in plan.lines]
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
        "parameters": json.dumps(study.parameters),
        "batches": json.dumps([[batch.size, batch.batches, batch.rounds] for batch in plan.batches]),
        "problems": json.dumps({line.problem: describe(line.entry.problem) for line in plan.lines}),
        "initial_designs": json.dumps({e.label: describe(e.initial) for e in entries}),
        "algorithms": json.dumps({e.label: {"alg": e.alg, **describe(e.algorithm)} for e in entries}),
        "delays": json.dumps({e.label: describe(e.delay) for e in entries}),
        "feedback": json.dumps({e.label: describe(e.feedback or getattr(unwrapped(e.algorithm), "feedback", Wait())) for e in entries}),
        "kernels": json.dumps({e.label: [describe(k) for k in e.kernels] for e in entries}),
        "surrogates": json.dumps({e.label: e.surrogate.describe() for e in entries}),
        "noise_variance_of_model": json.dumps({e.label: describe(e.surrogate.noise_variance) for e in entries}),
        "precision": str(float_dtype()),
        "devices": json.dumps([str(device) for device in plan.devices]),
        "versions": json.dumps(
            {"jaxbandit": jaxbandit.__version__, "jax": jax.__version__, "numpy": np.__version__, "python": platform.python_version()}
        ),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
