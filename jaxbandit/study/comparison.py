"""Several algorithms on one problem under common random numbers, and their results as one labelled dataset."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
import platform
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
import xarray as xr

import jaxbandit
from jaxbandit.algorithms.base import unwrapped
from jaxbandit.core.keys import Stream, stream_key, trial_key
from jaxbandit.core.pytree import Sweep, canonicalise, float_dtype, stack, unstack
from jaxbandit.core.status import Status, explain
from jaxbandit.delays import NEVER, NoDelay
from jaxbandit.feedback import Wait
from jaxbandit.kernels import Kernel
from jaxbandit.metrics import Curves, curves
from jaxbandit.problems import Optimum, best_mixed_policy, is_random, optimum
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
      problem: its own problem, where a study spans several; ``None`` for the comparison's.
      initial: its own points before round 1, as many as the other entries have; ``None`` for the comparison's.
      delay: how late its feedback comes, a model of :mod:`jaxbandit.delays`; ``None`` for the problem's.
      feedback: what it does meanwhile, a policy of :mod:`jaxbandit.feedback`; ``None`` for the algorithm's own.
    """

    label: str
    alg: str
    algorithm: Any
    surrogate: Surrogate
    kernels: tuple[Kernel, ...]
    informed: Informed | None = None
    problem: Any = None
    initial: InitialDesign | None = None
    delay: Any = None
    feedback: Any = None


@dataclasses.dataclass(frozen=True)
class Comparison:
    """A study of the simplest shape: algorithms x trials x rounds on one problem, or each entry on its own.

    Neighbours among the entries that share all but label and the numbers of their delays run as one compiled program.
    """

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
            self.problem_of(entry),
            entry.algorithm,
            entry.surrogate,
            horizon=self.horizon,
            key=jax.random.key(self.seed),
            trials=self.trials if trials is None else trials,
            record=record,
            initial=self.initial_of(entry),
            informed=entry.informed,
            delay=entry.delay,
            feedback=entry.feedback,
        )

    def trajectories(self, entries: tuple[Entry, ...]) -> list[Trajectory]:
        """Run entries of :meth:`batches`, all trials."""
        if len(entries) == 1:
            return [self.trajectory(entries[0])]
        delays = Sweep(stacked=stack([canonicalise(entry.delay) for entry in entries]), size=len(entries))
        together = self.trajectory(dataclasses.replace(entries[0], delay=delays))
        return unstack(Sweep(stacked=together, size=len(entries)))

    def batches(self) -> list[tuple[Entry, ...]]:
        """The entries in their order, those together that run as one program."""

        def shared(entry: Entry) -> Any:
            if entry.delay is None:
                return entry.label
            parts = (entry.algorithm, entry.surrogate, entry.feedback, self.problem_of(entry), self.initial_of(entry))
            return (entry.informed, jax.tree.structure(entry.delay), *map(id, parts))

        return [tuple(batch) for _, batch in itertools.groupby(self.entries, shared)]

    def problem_of(self, entry: Entry) -> Any:
        """The problem or family that an entry is run on."""
        return self.problem if entry.problem is None else entry.problem

    def delay_of(self, entry: Entry) -> Any:
        """How late an entry's feedback comes."""
        return getattr(self.problem_of(entry), "delay", NoDelay()) if entry.delay is None else entry.delay

    def policy_of(self, entry: Entry) -> Any:
        """What an entry does while feedback is on its way."""
        return getattr(unwrapped(entry.algorithm), "feedback", Wait()) if entry.feedback is None else entry.feedback

    def initial_of(self, entry: Entry) -> InitialDesign:
        """What an entry observes before round 1."""
        return self.initial if entry.initial is None else entry.initial

    def instance(self, trial: int, entry: Entry | None = None) -> Any:
        """The problem of one trial, of an entry where they have their own."""
        key = stream_key(trial_key(jax.random.key(self.seed), trial), Stream.PROBLEM)
        return jaxbandit.canonicalise(self.problem if entry is None else self.problem_of(entry)).sample(key)

    def instances(self, problem: Any = None) -> Any:
        """The problem of every trial: stacked ``[trials, ...]`` instances of a random family, or the one problem itself."""
        problem = jaxbandit.canonicalise(self.problem if problem is None else problem)
        if not is_random(problem):
            return problem
        return sampled(problem, jax.random.key(self.seed), count=self.trials)


@dataclasses.dataclass(frozen=True)
class _Truth:
    """What results are measured against: the instances of every trial and their benchmarks."""

    instances: Any
    over_trials: int | None  # the instances' axis of trials, ``None`` when all trials share one
    mixed: Any  # value of the best mixed policy, [trials] or []
    best: Optimum  # of every trial
    facts: dict[str, Any]

    def measure(self, indices: Any) -> Curves:
        """Curves of the points chosen, ``[trials, rounds]``."""
        return _curves(self.instances, indices, self.mixed, over_trials=self.over_trials)


# Compiled once for all entries and problems of the same shape.


@partial(jax.jit, static_argnames="count")
def sampled(problem: Any, root: jax.Array, *, count: int) -> Any:
    """The instances of trials ``0..count - 1`` of a random family."""
    keys = jax.vmap(lambda i: stream_key(trial_key(root, i), Stream.PROBLEM))(jax.numpy.arange(count))
    return jax.vmap(problem.sample)(keys)


@partial(jax.jit, static_argnames="over_trials")
def _curves(instances: Any, indices: Any, mixed: Any, *, over_trials: int | None) -> Curves:
    axes = (over_trials, 0, over_trials)
    return jax.vmap(lambda problem, chosen, value: curves(problem, chosen, mixed_value=value), axes)(instances, indices, mixed)


@partial(jax.jit, static_argnames=("over_trials", "count"))
def _optima(instances: Any, *, over_trials: int | None, count: int) -> Optimum:
    return jax.vmap(optimum, over_trials, axis_size=count)(instances)


def _truth(comparison: Comparison, problem: Any) -> _Truth:
    """Instances, optima and best mixed policies of one problem over a study's trials."""
    random, instances = is_random(problem), comparison.instances(problem)
    over_trials = 0 if random else None
    mixed = _mixed_values(instances, comparison.trials if random else None)
    best = _optima(instances, over_trials=over_trials, count=comparison.trials)
    facts = {
        "optimum": ("trial", np.asarray(best.value)),
        "feasible_fraction": ("trial", np.asarray(best.feasible_fraction)),
        "slater_slack": ("trial", np.asarray(best.slater_slack)),
        "best_mixed_policy": ("trial", np.broadcast_to(np.asarray(mixed), (comparison.trials,))),
    }
    return _Truth(instances=instances, over_trials=over_trials, mixed=mixed, best=best, facts=facts)


def run(comparison: Comparison, report: Callable[[str], None] = lambda line: None) -> xr.Dataset:
    """Run every entry and gather the results.

    Args:
      comparison: what to run.
      report: called with one line of progress as each entry starts and ends.

    Returns:
      A dataset with dimensions ``algorithm, trial, round`` (and ``output`` for noisy values), the measures of
      :class:`~jaxbandit.metrics.Curves`, flags per trial, and in its attributes all that is needed to run it again. Facts of the
      problem, such as ``optimum``, are per trial, and per algorithm too where entries have their own problems. If feedback of some
      entry has a delay, ``arrival`` is the round at whose end each value arrives (beyond the last: it does not; ``delays.NEVER``: it
      never will) and ``lost`` the number of values that found no place in the buffer. If some entry eliminates, ``candidates`` is the
      number of points that were not struck out, and ``optimum_kept`` whether the best feasible one was not. If some entry can stop by
      itself, ``evaluations`` is the number of rounds before it did, all rounds if it did not.
    """
    problems = {id(problem): problem for problem in map(comparison.problem_of, comparison.entries)}
    truths = {number: _truth(comparison, problem) for number, problem in problems.items()}
    late = any(not isinstance(comparison.delay_of(entry), NoDelay) for entry in comparison.entries)
    eliminates = any(getattr(unwrapped(entry.algorithm), "eliminates", False) for entry in comparison.entries)
    stops = any(hasattr(unwrapped(entry.algorithm), "evaluations") for entry in comparison.entries)
    parts: list[xr.Dataset] = []
    seconds: list[float] = []
    for batch in comparison.batches():
        numbers = "-".join(str(n) for n in sorted({len(parts) + 1, len(parts) + len(batch)}))
        names = ", ".join(entry.label for entry in batch)
        report(f"[{numbers}/{len(comparison.entries)}] {names}: {comparison.trials} trials x {comparison.horizon} rounds ...")
        start = time.perf_counter()
        trajectories = jax.block_until_ready(comparison.trajectories(batch))
        elapsed = time.perf_counter() - start
        seconds += [elapsed / len(batch)] * len(batch)
        for entry, trajectory in zip(batch, trajectories, strict=True):
            truth = truths[id(comparison.problem_of(entry))]
            part = _dataset(trajectory, truth.measure(trajectory.scored_indices))
            part = part.assign(_lateness(trajectory)) if late else part
            part = part.assign(_elimination(trajectory, truth)) if eliminates else part
            part = part.assign(_evaluations(entry, trajectory)) if stops else part
            parts.append(part.assign(truth.facts) if len(truths) > 1 else part)
        trouble = "".join(_trouble(trajectory) for trajectory in trajectories)
        report(f"    done in {elapsed:.1f} s (compilation included){trouble}")
    labels = xr.IndexVariable("algorithm", [entry.label for entry in comparison.entries])
    # NaN stands for the outputs that a problem with fewer constraints does not have.
    whole = xr.concat(parts, dim=labels, join="outer").assign(run_seconds=("algorithm", np.asarray(seconds)))
    if len(truths) == 1:
        whole = whole.assign(next(iter(truths.values())).facts)
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


def arrivals_of(trajectory: Trajectory) -> np.ndarray:
    """The round at whose end each value arrives, ``[..., T, k]``: its own when there is no delay, ``NEVER`` for what never will."""
    if trajectory.arrivals is not None:
        return np.minimum(np.asarray(trajectory.arrivals), NEVER)
    values = np.asarray(trajectory.values)
    return np.broadcast_to(np.arange(1, values.shape[-2] + 1, dtype=np.int32)[:, None], values.shape)


def _lateness(trajectory: Trajectory) -> dict[str, Any]:
    """When the values of one entry arrived, and how many were lost."""
    arrivals = arrivals_of(trajectory)
    trials, _, outputs = arrivals.shape
    lost = np.zeros((trials, outputs), np.int32) if trajectory.lost is None else np.asarray(trajectory.lost)
    return {"arrival": (("trial", "played", "output"), arrivals), "lost": (("trial", "output"), lost)}


def _elimination(trajectory: Trajectory, truth: _Truth) -> dict[str, Any]:
    """How many points one entry did not strike out, all if it never does, and whether the optimum is one of them."""
    best, size = np.asarray(truth.best.index), truth.instances.means.shape[-1]
    alive = np.ones((len(best), size), bool) if trajectory.candidates is None else np.asarray(trajectory.candidates)
    kept = np.take_along_axis(alive, best[:, None], axis=1)[:, 0]
    return {"candidates": ("trial", alive.sum(axis=1)), "optimum_kept": ("trial", kept)}


def _evaluations(entry: Entry, trajectory: Trajectory) -> dict[str, Any]:
    """In how many rounds one entry evaluated something, before it stopped by itself."""
    trials, rounds = trajectory.indices.shape
    count = getattr(unwrapped(entry.algorithm), "evaluations", lambda widths: np.full(trials, rounds, np.int32))
    return {"evaluations": ("trial", np.asarray(count(trajectory.widths)))}


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
        "own_problems": json.dumps({e.label: describe(e.problem) for e in comparison.entries if e.problem is not None}),
        "initial_design": json.dumps(describe(comparison.initial)),
        "own_initial_designs": json.dumps({e.label: describe(e.initial) for e in comparison.entries if e.initial is not None}),
        "algorithms": json.dumps({e.label: {"alg": e.alg, **describe(e.algorithm)} for e in comparison.entries}),
        "delays": json.dumps({e.label: describe(comparison.delay_of(e)) for e in comparison.entries}),
        "feedback": json.dumps({e.label: describe(comparison.policy_of(e)) for e in comparison.entries}),
        "kernels": json.dumps({e.label: [describe(k) for k in e.kernels] for e in comparison.entries}),
        "surrogates": json.dumps({e.label: e.surrogate.describe() for e in comparison.entries}),
        "noise_variance_of_model": json.dumps({e.label: describe(e.surrogate.noise_variance) for e in comparison.entries}),
        "random_instances": str(any(is_random(comparison.problem_of(e)) for e in comparison.entries)),
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
