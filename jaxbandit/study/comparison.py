"""Several algorithms on one problem under common random numbers, and their results as one labelled dataset."""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import xarray as xr

import jaxbandit
from jaxbandit.core.keys import Stream, stream_key, trial_key
from jaxbandit.core.pytree import float_dtype
from jaxbandit.core.status import Status, explain
from jaxbandit.kernels import Kernel
from jaxbandit.metrics import Curves, curves
from jaxbandit.problems import best_mixed_policy, is_random, optimum
from jaxbandit.simulate import Informed, InitialDesign, Trajectory, simulate
from jaxbandit.study.describe import describe
from jaxbandit.surrogates import Surrogate

CURVES = tuple(field.name for field in dataclasses.fields(Curves))


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of a comparison.

    Attributes:
      label: what tables and figures call it.
      alg: its name in audit traces (``cbo_ucb``).
      algorithm, surrogate: what is run.
      kernels: kernel of each output, for records.
      informed: what the study tells the learner of each instance, see :func:`~jaxbandit.simulate`.
    """

    label: str
    alg: str
    algorithm: Any
    surrogate: Surrogate
    kernels: tuple[Kernel, ...]
    informed: Informed | None = None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A study of the simplest shape: algorithms x trials x rounds on one problem."""

    name: str
    problem: Any
    entries: tuple[Entry, ...]
    horizon: int
    trials: int
    seed: int
    initial: InitialDesign = dataclasses.field(default_factory=InitialDesign)
    parameters: dict[str, Any] = dataclasses.field(default_factory=dict)

    def trajectory(self, entry: Entry, *, trials: Any = None, record: str = "all") -> Trajectory:
        """Run one entry, all its trials or those numbered in ``trials``."""
        return simulate(
            self.problem,
            entry.algorithm,
            entry.surrogate,
            horizon=self.horizon,
            key=jax.random.key(self.seed),
            trials=self.trials if trials is None else trials,
            record=record,
            initial=self.initial,
            informed=entry.informed,
        )

    def instance(self, trial: int) -> Any:
        """The problem of one trial."""
        key = stream_key(trial_key(jax.random.key(self.seed), trial), Stream.PROBLEM)
        return jaxbandit.canonicalise(self.problem).sample(key)

    def instances(self) -> Any:
        """The problem of every trial: stacked ``[trials, ...]`` instances of a random family, or the one problem itself."""
        if not is_random(self.problem):
            return jaxbandit.canonicalise(self.problem)
        root = jax.random.key(self.seed)
        keys = jax.vmap(lambda i: stream_key(trial_key(root, i), Stream.PROBLEM))(jax.numpy.arange(self.trials))
        return jax.jit(jax.vmap(jaxbandit.canonicalise(self.problem).sample))(keys)


def run(comparison: Comparison, report: Callable[[str], None] = lambda line: None) -> xr.Dataset:
    """Run every entry and gather the results.

    Args:
      comparison: what to run.
      report: called with one line of progress as each entry starts and ends.

    Returns:
      A dataset with dimensions ``algorithm, trial, round`` (and ``output`` for noisy values), the measures of
      :class:`~jaxbandit.metrics.Curves`, flags per trial, and in its attributes all that is needed to run it again.
    """
    random, instances = is_random(comparison.problem), comparison.instances()
    over_trials = 0 if random else None
    mixed = _mixed_values(instances, comparison.trials if random else None)
    measure = jax.jit(jax.vmap(lambda p, indices, value: curves(p, indices, mixed_value=value), (over_trials, 0, over_trials)))
    best = jax.jit(jax.vmap(optimum, over_trials, axis_size=comparison.trials))(instances)
    parts, seconds = [], []
    for number, entry in enumerate(comparison.entries, start=1):
        report(f"[{number}/{len(comparison.entries)}] {entry.label}: {comparison.trials} trials x {comparison.horizon} rounds ...")
        start = time.perf_counter()
        trajectory = jax.block_until_ready(comparison.trajectory(entry))
        seconds.append(time.perf_counter() - start)
        measured = measure(instances, trajectory.scored_indices, mixed)
        parts.append(_dataset(trajectory, measured))
        report(f"    done in {seconds[-1]:.1f} s (compilation included){_trouble(trajectory)}")
    labels = xr.IndexVariable("algorithm", [entry.label for entry in comparison.entries])
    whole = xr.concat(parts, dim=labels).assign(run_seconds=("algorithm", np.asarray(seconds)))
    whole = whole.assign(
        optimum=("trial", np.asarray(best.value)),
        feasible_fraction=("trial", np.asarray(best.feasible_fraction)),
        slater_slack=("trial", np.asarray(best.slater_slack)),
        best_mixed_policy=("trial", np.broadcast_to(np.asarray(mixed), (comparison.trials,))),
    )
    return whole.assign_attrs(_attributes(comparison))


def _mixed_values(instances: Any, count: int | None) -> Any:
    """Value of the best mixed policy, one per instance when there are ``count`` of them."""
    if count is None:
        return np.asarray(best_mixed_policy(instances)[0], float_dtype())
    each = [jax.tree.map(lambda x, i=i: x[i], instances) for i in range(count)]
    return np.asarray([best_mixed_policy(instance)[0] for instance in each], float_dtype())


def _dataset(trajectory: Trajectory, measured: Curves) -> xr.Dataset:
    """One entry's arrays, labelled; ``round`` counts from 1, below 1 for a counted initial design."""
    rounds = trajectory.indices.shape[1]
    before = trajectory.scored_indices.shape[1] - rounds
    per_round = {name: (("trial", "round"), np.asarray(getattr(measured, name))) for name in CURVES}
    per_round["index"] = (("trial", "round"), np.asarray(trajectory.scored_indices))
    seen = {"observed": (("trial", "played", "output"), np.asarray(trajectory.values))}
    per_trial = {name: ("trial", np.asarray(getattr(trajectory, name))) for name in ("status", "declared_round", "failed_round")}
    outputs = ["reward", *(f"constraint {j}" for j in range(1, trajectory.values.shape[-1]))]
    return xr.Dataset(
        per_round | seen | per_trial,
        coords={
            "trial": np.arange(trajectory.indices.shape[0]),
            "round": np.arange(1 - before, rounds + 1),
            "played": np.arange(1, rounds + 1),
            "output": outputs,
        },
    )


def _trouble(trajectory: Trajectory) -> str:
    """A note on flagged trials, empty when there are none."""
    status = np.asarray(trajectory.status)
    notes = [f"{np.count_nonzero(status & flag)} trials: {explain(int(flag))}" for flag in Status if flag and np.any(status & flag)]
    return "; " + "; ".join(notes) if notes else ""


def _attributes(comparison: Comparison) -> dict[str, Any]:
    """Inputs, versions and devices; structured values as JSON text."""
    return {
        "study": comparison.name,
        "horizon": comparison.horizon,
        "trials": comparison.trials,
        "seed": comparison.seed,
        "parameters": json.dumps(comparison.parameters),
        "problem": json.dumps(describe(comparison.problem)),
        "initial_design": json.dumps(describe(comparison.initial)),
        "algorithms": json.dumps({e.label: {"alg": e.alg, **describe(e.algorithm)} for e in comparison.entries}),
        "kernels": json.dumps({e.label: [describe(k) for k in e.kernels] for e in comparison.entries}),
        "surrogates": json.dumps({e.label: e.surrogate.describe() for e in comparison.entries}),
        "noise_variance_of_model": json.dumps({e.label: describe(e.surrogate.noise_variance) for e in comparison.entries}),
        "random_instances": str(is_random(comparison.problem)),
        "precision": str(float_dtype()),
        "devices": json.dumps([str(d) for d in jax.devices()]),
        "versions": json.dumps(
            {"jaxbandit": jaxbandit.__version__, "jax": jax.__version__, "numpy": np.__version__, "python": platform.python_version()}
        ),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }


def save(dataset: xr.Dataset, path: Any) -> None:
    """Write a dataset as compressed NetCDF-4."""
    compressed = {name: {"zlib": True, "complevel": 4} for name in dataset.data_vars if dataset[name].dtype.kind in "fi"}
    dataset.to_netcdf(path, engine="h5netcdf", encoding=compressed)
