"""The results of a study as one labelled dataset, and what can be asked of it."""

from __future__ import annotations

import datetime
import importlib.util
import json
import platform
import shutil
from pathlib import Path
from typing import Any

import jax
import numpy as np
import xarray as xr

import jaxbandit
from jaxbandit.algorithms.base import unwrapped
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.core.pytree import canonicalise, float_dtype
from jaxbandit.core.status import FAILED, Status, explain
from jaxbandit.delays import NEVER
from jaxbandit.feedback import Wait
from jaxbandit.problems import best_mixed_policy, is_random
from jaxbandit.study.comparison import sampled, save
from jaxbandit.study.describe import describe
from jaxbandit.study.files import CannotWrite, reason_of, write_whole

FACTS = {"value": "optimum", "feasible_fraction": "feasible_fraction", "slater_slack": "slater_slack"}
ENDS = ("status", "failed_round", "declared_round")


class TrialsFailed(RuntimeError):
    """Some trials of a study failed; the message says how many, which and why."""


def gather_results(plan: Any, parts: list[list[dict[str, np.ndarray]]]) -> xr.Dataset:
    """The dataset of a run: dims ``algorithm`` (the lines), ``trial`` and ``round``, and ``played``, ``output`` with trajectories.

    ``parts`` are the arrays of every batch of every cell. Coordinates along ``algorithm`` say what a line is: ``base`` (the algorithm),
    ``problem``, ``delay``, and one for each swept field (NaN where the algorithm has none). ``strong_regret`` is made from regret, and so
    NaN where no point is feasible.
    """
    study, lines = plan.study, [line.entry for line in plan.lines]
    order = np.argsort([number for planned in plan.cells for number in planned.lines], kind="stable")
    cells = [_cell_arrays(batches, len(planned.lines), study.trials) for planned, batches in zip(plan.cells, parts, strict=True)]

    def whole(name: str) -> np.ndarray:
        return np.concatenate([cell[name] for cell in cells])[order]

    kept = study.keep.rounds(study.horizon)
    before = study.initial.count if study.initial.counted else 0
    rounds = np.concatenate([np.arange(1 - before, 1), kept])
    strong = _strong_offsets(plan) if "strong_regret" in study.metrics else None
    variables: dict[str, Any] = {}
    for metric in study.metrics:
        name = "regret" if metric == "strong_regret" else metric
        curve = np.concatenate([whole(f"before_{name}"), whole(name)], axis=-1) if before else whole(name)
        if strong is not None and metric == "strong_regret":
            curve = curve + (strong - whole("optimum_value"))[..., None] * (rounds + before).astype(curve.dtype)
        variables[metric] = (("algorithm", "trial", "round"), curve)
    variables |= {name: (("algorithm", "trial"), whole(f"end_{name}")) for name in ENDS}
    variables |= {words: (("algorithm", "trial"), whole(f"optimum_{name}")) for name, words in FACTS.items()}
    if study.trajectories:
        variables |= _trajectories(cells, order, study.horizon)
    coordinates: dict[str, Any] = {
        "algorithm": [entry.label for entry in lines],
        "trial": np.arange(study.trials),
        "round": rounds,
        "base": ("algorithm", [line.base for line in plan.lines]),
        "problem": ("algorithm", [line.problem for line in plan.lines]),
        "delay": ("algorithm", [line.delay for line in plan.lines]),
    }
    for path in study.swept:
        coordinates[path] = ("algorithm", [_number(line.swept.get(path)) for line in plan.lines])
    return xr.Dataset(variables, coordinates, attributes(plan, before))


def _cell_arrays(batches: list[dict[str, np.ndarray]], lines: int, trials: int) -> dict[str, np.ndarray]:
    """``[lines, trials, ...]`` from the arrays of a cell's batches."""
    joined = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    return {name: array.reshape(lines, trials, *array.shape[1:]) for name, array in joined.items()}


def _trajectories(cells: list[dict[str, np.ndarray]], order: np.ndarray, horizon: int) -> dict[str, Any]:
    """Points, values and arrivals of every round; outputs that a problem lacks are NaN, and their feedback never arrives."""
    most = max(cell["seen_values"].shape[-1] for cell in cells)

    def padded(array: np.ndarray, fill: Any) -> np.ndarray:
        return np.pad(array, [(0, 0)] * 3 + [(0, most - array.shape[-1])], constant_values=fill)

    own = np.arange(1, horizon + 1, dtype=np.int32)[None, None, :, None]
    arrivals = [padded(c.get("seen_arrivals", np.broadcast_to(own, c["seen_values"].shape)), NEVER) for c in cells]
    dims = ("algorithm", "trial", "played", "output")
    return {
        "index": (dims[:3], np.concatenate([cell["seen_indices"] for cell in cells])[order]),
        "observed": (dims, np.concatenate([padded(cell["seen_values"], np.nan) for cell in cells])[order]),
        "arrival": (dims, np.minimum(np.concatenate(arrivals)[order], NEVER)),
    }


def _strong_offsets(plan: Any) -> np.ndarray:
    """Value of the best mixed policy, ``[lines, trials]``: one linear programme per instance, on the host."""
    study, known, rows = plan.study, {}, []
    for number, line in enumerate(plan.lines):
        problem = line.entry.problem
        # Without common random numbers a random family gives every line its own instances.
        own = (id(problem), 0 if study.common_random_numbers or not is_random(problem) else number + 1)
        if own not in known:
            root = jax.random.key(study.seed)
            known[own] = _mixed_values(canonicalise(problem), jax.random.fold_in(root, own[1]) if own[1] else root, study.trials)
        rows.append(known[own])
    return np.stack(rows).astype(float_dtype())


def _mixed_values(problem: Any, root: Any, trials: int) -> np.ndarray:
    """``[trials]``, of the instances that ``root`` gives."""
    if not is_random(problem):
        return np.full(trials, best_mixed_policy(problem)[0])
    many = jax.tree.map(np.asarray, sampled(problem, root, count=trials))
    return np.asarray([best_mixed_policy(jax.tree.map(lambda x, i=i: x[i], many))[0] for i in range(trials)])


def _number(value: Any) -> float:
    return float(value) if np.ndim(value) == 0 and value is not None else float("nan")


def attributes(plan: Any, before: int) -> dict[str, Any]:
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
        "swept": json.dumps(study.swept),
        "counted_before": before,
        "parameters": json.dumps({"common_random_numbers": study.common_random_numbers, "rounds_in_a_part": plan.rounds}),
        "batches": json.dumps([[batch.size, batch.batches] for batch in plan.batches]),
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


def flagged(dataset: xr.Dataset) -> dict[str, dict[str, int]]:
    """For each line with flagged trials, how many trials have each flag."""
    found: dict[str, dict[str, int]] = {}
    for label in dataset.algorithm.values:
        status = dataset.status.sel(algorithm=label).values
        counts = {explain(int(flag)): int(np.count_nonzero(status & flag)) for flag in Status if flag}
        if any(counts.values()):
            found[str(label)] = {words: count for words, count in counts.items() if count}
    return found


def raise_if_failed(dataset: xr.Dataset) -> xr.Dataset:
    """The dataset, if no trial failed; raises :class:`TrialsFailed` otherwise."""
    failed = (dataset.status.values & int(FAILED)) != 0
    if not failed.any():
        return dataset
    lines = []
    for label, status in zip(dataset.algorithm.values, dataset.status.values, strict=True):
        bad = np.flatnonzero(status & int(FAILED))
        if len(bad):
            rounds = dataset.failed_round.sel(algorithm=label).values[bad]
            lines.append(f"{label}: trial {bad[0]} in round {rounds[0]} ({explain(int(status[bad[0]]))}), {len(bad)} in all")
    raise TrialsFailed(f"{int(failed.sum())} of {failed.size} trials failed; " + "; ".join(lines))


def read_results(path: str | Path) -> xr.Dataset:
    """The dataset of a NetCDF file or a Zarr directory, or of the directory that a run wrote one to.

    Raises:
      InvalidArgument: when there is none, or it cannot be read.
    """
    path = Path(path)
    inside = [path / name for name in ("results.nc", "results.zarr")]
    found = next((file for file in inside if file.exists()), path)
    if not found.exists() or (found.is_dir() and found.suffix != ".zarr"):
        raise InvalidArgument(f"results: {path} holds no results.nc or results.zarr" if path.is_dir() else f"results: there is no {path}")
    try:
        return xr.open_zarr(_with_zarr(found)).load() if found.suffix == ".zarr" else xr.load_dataset(found, engine="h5netcdf")
    except InvalidArgument:
        raise
    except Exception as error:  # what the readers raise on a damaged file is not documented
        raise InvalidArgument(f"results: cannot read {found}: {reason_of(error)}") from error


def write_results(dataset: xr.Dataset, path: Path) -> None:
    """Write NetCDF, or Zarr if ``path`` ends in ``.zarr``; whole or not at all.

    Raises:
      InvalidArgument: when Zarr is asked for and not installed.
      CannotWrite: on any error of the operating system.
    """
    if path.suffix == ".zarr":
        _write_zarr(dataset, _with_zarr(path))
    else:
        write_whole(path, lambda temporary: save(dataset, temporary))


def _write_zarr(dataset: xr.Dataset, path: Path) -> None:
    temporary = path.with_name(f".{path.name}")
    try:
        dataset.to_zarr(temporary, mode="w", zarr_format=2)  # 3 has no stable form of labels
        if path.exists():
            shutil.rmtree(path)
        temporary.rename(path)
    except OSError as error:
        raise CannotWrite(path, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _with_zarr(path: Path) -> Path:
    """``path``, if Zarr can be read and written here."""
    if importlib.util.find_spec("zarr") is None:
        raise InvalidArgument("format: zarr is not installed; pip install zarr, or use NetCDF")
    return path
