"""Results of a study or of ``simulate`` as one labelled dataset.

Results have the dimensions ``algorithm`` (the runs), ``trial`` and ``round``, and with trajectories ``played`` and ``output``.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import platform
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import jax
import numpy as np

from jaxbandit._version import __version__
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import Check, Place
from jaxbandit.core.pytree import float_dtype
from jaxbandit.core.status import Status, status_in_words
from jaxbandit.delays import NEVER
from jaxbandit.domains import Box
from jaxbandit.problems import AbstractProblem
from jaxbandit.results.metrics import Curves

METRICS = tuple(field.name for field in dataclasses.fields(Curves))
# The reward of the best mixed policy stays in float64 until strong regret is computed.
MIXED = "best_mixed_policy"
TRIAL = ("algorithm", "trial")
SECONDS = ("run_seconds", "playing_seconds")
LABELS = ("base", "problem", "delay")

# Each variable is made of an array of a batch. Arrays are of every measured round, of the end of a trial (end_...), of its instance
# (fact_...), or of every round that ran (seen_...).
SOURCES = {
    **{name: name for name in METRICS},
    "strong_regret": f"fact_{MIXED}",
    **{name: f"end_{name}" for name in ("status", "failed_round", "declared_round")},
    **{name: f"fact_{name}" for name in ("optimum", "feasible_fraction", "slater_slack", MIXED)},
    "candidates": "end_candidate_count",
    **{name: f"end_{name}" for name in ("optimum_kept", "evaluations", "fitted_length_scales", "lost")},
    "index": "seen_indices",
    "point": "seen_points",
    "observed": "seen_values",
    "arrival": "seen_arrivals",
}

Arrays: TypeAlias = Mapping[str, np.ndarray]
"""Arrays of a batch by name, each with an entry for every trial along the first axis."""

Piece: TypeAlias = tuple[str, int, slice, np.ndarray]
"""Name of a variable, number of the run, trials, and their values."""


class Variable(NamedTuple):
    """Variable ``[runs, trials, ...]`` of the results."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclasses.dataclass(frozen=True)
class ResultRow:
    """Names and swept values, by dotted path, of one run."""

    label: str
    base: str
    problem: str
    delay: str
    swept: Mapping[str, object] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Contents:
    """Sizes of results, and names of the quantities that they store.

    Attributes:
      rows: names and swept values of each run.
      swept: dotted paths of the swept fields.
      trials: numbers of the trials.
      horizon: number of rounds.
      kept: rounds of the metrics.
      before: number of points before round 1 that the metrics count.
      metrics: names of the metrics.
      trajectories: whether points, values and arrivals of every round are stored.
      problems: problem of every cell; the runs of a cell have their arrays in common.
    """

    rows: Sequence[ResultRow]
    swept: Sequence[str]
    trials: Sequence[int] | np.ndarray
    horizon: int
    kept: np.ndarray
    before: int
    metrics: tuple[str, ...]
    trajectories: bool
    problems: Sequence[AbstractProblem]

    @property
    def coordinate_names(self) -> list[str]:
        """Names of points' coordinates on boxes: their axes, if all agree."""
        domains = [problem.domain for problem in self.problems]
        names = {tuple(map(domain.name_of, range(domain.dimension))) for domain in domains if isinstance(domain, Box)}
        most = max(domain.dimension for domain in domains)
        same = len(names) == 1 and len(min(names)) == most
        return list(min(names)) if same else [f"x{axis + 1}" for axis in range(most)] if names else []

    @property
    def rounds(self) -> np.ndarray:
        """Numbers of the kept rounds, after 0, -1, ... of earlier points."""
        return np.concatenate([np.arange(1 - self.before, 1), self.kept])

    def coordinates(self, *, outputs: bool) -> dict[str, object]:
        """Return the coordinates of the results."""
        named: dict[str, object] = {
            "algorithm": [row.label for row in self.rows],
            "trial": np.asarray(self.trials),
            "round": self.rounds,
            **{name: ("algorithm", [getattr(row, name) for row in self.rows]) for name in LABELS},
            **{coordinate_of(path): ("algorithm", [swept_number(row.swept.get(path)) for row in self.rows]) for path in self.swept},
        }
        if outputs or self.trajectories:
            named["output"] = output_names(max(problem.outputs for problem in self.problems))
        if self.trajectories:
            named["played"] = np.arange(1, self.horizon + 1)
            named |= {"coordinate": names} if (names := self.coordinate_names) else {}
        return named

    def variables(self, examples: Sequence[Arrays]) -> dict[str, Variable]:
        """Return all variables, given a batch's arrays of each cell."""
        empty, variables = [{name: array[:0] for name, array in arrays.items()} for arrays in examples], {}
        further = self._further_dims
        # An index on a box is a place in a pool of points, without meaning for users.
        meaningless = ["index"] if all(isinstance(problem.domain, Box) for problem in self.problems) else []
        for name in [*self.metrics, *(name for name in SOURCES if name not in (*METRICS, *meaningless))]:
            dims = further.get(name, ("round",) if name in METRICS else ())
            if any(SOURCES[name] in arrays for arrays in empty) and (self.trajectories or not SOURCES[name].startswith("seen_")):
                entries = [self.entries(name, cell, arrays) for cell, arrays in enumerate(empty)]
                sizes = np.max([array.shape[1:] for array in entries], axis=0).astype(int).tolist()
                shape, dtype = (len(self.rows), len(self.trials), *sizes), np.result_type(*(array.dtype for array in entries))
                variables[name] = Variable((*TRIAL, *dims), shape, dtype)
        return variables

    @property
    def _further_dims(self) -> dict[str, tuple[str, ...]]:
        """Dimensions beyond runs and trials of the variables that are no metrics."""
        of_round = "round" if len(self.kept) == self.horizon else "played"
        of_values = {"observed": ("played", "output"), "arrival": ("played", "output"), "lost": ("output",)}
        return {**of_values, "fitted_length_scales": ("group", "axis"), "index": (of_round,), "point": (of_round, "coordinate")}

    def entries(self, name: str, cell: int, arrays: Arrays) -> np.ndarray:
        """Return a batch's entries ``[n, ...]`` of a variable, or defaults."""
        problem, source = self.problems[cell], SOURCES[name]
        if name == "strong_regret":
            elapsed = self.rounds + self.before
            return (arrays[source][:, None] * elapsed - _with_early(arrays, "reward")).astype(float_dtype())
        if name == MIXED:
            return arrays[source].astype(float_dtype())
        if name == "point" and source not in arrays:
            # The cell is on a finite domain.
            table = np.asarray(problem.domain.points, float_dtype())
            return table[self.entries("index", cell, arrays)]
        if name in METRICS or (name in ("index", "point") and len(self.kept) == self.horizon):
            return _with_early(arrays, source, f"before_{name}")
        if source in arrays:
            return np.minimum(arrays[source], NEVER) if name == "arrival" else arrays[source]
        if name == "arrival":
            # Without delays every value arrives at once.
            value = np.repeat(np.arange(1, self.horizon + 1, dtype=np.int32)[:, None], problem.outputs, axis=1)
        else:
            instead: dict[str, object] = {
                "candidates": problem.domain.size,
                "optimum_kept": True,
                "evaluations": np.int32(self.horizon),
                "fitted_length_scales": np.empty((0, 0), float_dtype()),
                "lost": np.zeros(problem.outputs, np.int32),
            }
            value = np.asarray(instead[name])
        return np.broadcast_to(value, (len(arrays["end_status"]), *value.shape))

    def misfit(self, cell: int, arrays: Arrays, count: int) -> str:
        """Return why arrays of ``count`` trials do not fit, or ``""``."""
        problem, shown = self.problems[cell], {name: source for name, source in SOURCES.items() if source in arrays}
        needed = {"status", *self.metrics, *(("observed",) if self.trajectories else ())}
        if lacking := sorted(SOURCES[name] for name in needed - shown.keys()):
            return f"it lacks {', '.join(lacking)}"
        for name, array in arrays.items():
            if array.shape[:1] != (count,):
                return f"{name} is of the shape {array.shape}, and there are {count} trials"
        sizes = {"round": len(self.kept), "played": self.horizon, "output": problem.outputs, "coordinate": problem.domain.dimension}
        further = self._further_dims
        for name, source in shown.items():
            dims = () if source.startswith("fact_") else further.get(name, ("round",) if name in METRICS else ())
            shape, found = tuple(sizes.get(dim) for dim in dims), arrays[source].shape[1:]
            if len(found) != len(shape) or any(size not in (None, has) for size, has in zip(shape, found, strict=True)):
                return f"{source} has the shape {found} in each trial, in place of {shape}"
            if arrays[source].dtype.kind not in "fiub":
                return f"{source} holds no numbers"
        ranges = {"end_status": 2 * max(Status)}
        if not isinstance(problem.domain, Box):
            ranges["seen_indices"] = problem.domain.size
        for name, size in ranges.items():
            array = arrays.get(name, np.zeros(0, np.int32))
            if array.dtype.kind not in "iu" or np.any((array < 0) | (array >= size)):
                return f"{name} holds others than whole numbers from 0 to {size - 1}"
        return ""

    def pieces(self, variables: Mapping[str, Variable], cell: int, arrays: Arrays, rows: np.ndarray) -> Iterator[Piece]:
        """Return a batch's pieces, given runs and trials ``rows [n, 2]``."""
        runs, starts = np.unique(rows[:, 0], return_index=True)
        # These fill up variables of cells with fewer outputs, axes or groups than others.
        fill = {"fitted_length_scales": np.nan, "point": np.nan, "observed": np.nan, "arrival": NEVER}
        for name, variable in variables.items():
            values = self.entries(name, cell, arrays)
            missing = [(0, size - has) for size, has in zip(variable.shape[2:], values.shape[1:], strict=True)]
            if np.any(missing):
                values = np.pad(values, [(0, 0), *missing], constant_values=fill.get(name, 0))
            for run, trials, part in zip(runs, np.split(rows[:, 1], starts[1:]), np.split(values, starts[1:]), strict=True):
                yield name, int(run), slice(int(trials[0]), int(trials[-1]) + 1), part


def _with_early(arrays: Arrays, name: str, early: str = "before_reward") -> np.ndarray:
    """Return an array with its entries before round 1, if any."""
    return np.concatenate([arrays[early], arrays[name]], axis=1) if early in arrays else arrays[name]


def output_names(outputs: int) -> list[str]:
    """Return the names of outputs: the reward and numbered constraints."""
    return ["reward", *(f"constraint {j}" for j in range(1, outputs))]


def coordinate_of(path: str) -> str:
    """Return the name that a swept field has in the results."""
    # A swept field with one of these names of results, as `index` of the oracle, is called `algorithm.index` there.
    reserved_names = frozenset({*SOURCES, *TRIAL, *SECONDS, *LABELS, "round", "played", "output", "coordinate"})
    return f"algorithm.{path}" if path in reserved_names else path


def value_words(values: Mapping[str, object]) -> list[str]:
    """Return swept values as in the labels of runs: ``reward_width=2``."""
    # A larger integer has no float. Commas separate columns, so that no label has one.
    most = 2.0**1023
    words = [
        f"{path.rsplit('.', 1)[-1]}={value:g}" if isinstance(value, int | float) and abs(value) < most else f"{path}={short(value)}"
        for path, value in values.items()
    ]
    return [word.replace(",", "") for word in words]


def swept_number(value: object) -> float:
    """Return a swept value as a number, NaN for other objects."""
    try:
        array = np.asarray(value)
        return float(array) if array.ndim == 0 and array.dtype.kind != "U" else float("nan")
    except (TypeError, ValueError, OverflowError):
        return float("nan")


# Checks of results as arguments.


def _are_results(value: object) -> bool:
    # The extra belongs to studies and reports, and nothing else calls this.
    import xarray as xr

    there = isinstance(value, xr.Dataset) and "status" in value and all(value.sizes.get(name) for name in ("trial", "round"))
    return there and value.sizes.get("algorithm", 1) > 0  # type: ignore[attr-defined]


def _verify(name: str, value: Any, place: Place) -> None:
    for label, variable in value.data_vars.items():
        if {"trial", "round"} <= set(variable.dims) and variable.dtype.kind not in "biuf":
            raise InvalidArgument(f"{name}: the measure {label} must hold real numbers, got {variable.dtype}")
    if value["status"].dtype.kind not in "iu":
        raise InvalidArgument(f"{name}: status must hold whole numbers, got {value['status'].dtype}")
    labels = value["algorithm"].values.ravel().tolist() if "algorithm" in value.coords else []
    if len(set(labels)) < len(labels):
        raise InvalidArgument(f"{name}: must have distinct labels along algorithm, got {short(labels)}")


results_dataset = Check("a dataset of results, with status and the dimensions algorithm, trial and round", _are_results, _verify)
dataset_of_one = Check("a dataset of one algorithm's results, with status and the dimensions trial and round", _are_results, _verify)

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

    Results: TypeAlias = xr.Dataset
    OneResult: TypeAlias = xr.Dataset
else:
    # A caller that has a dataset has loaded xarray.
    Results = Annotated[Any, results_dataset]
    OneResult = Annotated[Any, dataset_of_one]


# From pieces to tables.


def header(
    contents: Contents, attributes: Mapping[str, object], variables: Collection[str] = (), of_runs: Mapping[str, object] | None = None
) -> xr.Dataset:
    """Return results with ``of_runs`` and attributes, without the named ``variables``."""
    try:
        import xarray as xr
    except ImportError as error:
        raise InvalidArgument('to_xarray: needs xarray; install it with pip install "jaxbandit[study]"') from error

    common = {
        "horizon": contents.horizon,
        "trials": len(contents.trials),
        "swept": json.dumps([coordinate_of(path) for path in contents.swept]),
        "counted_before": contents.before,
        "versions": json.dumps(
            {"jaxbandit": __version__, "jax": jax.__version__, "numpy": np.__version__, "python": platform.python_version()}
        ),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    return xr.Dataset(dict(of_runs or {}), contents.coordinates(outputs="lost" in variables), {**common, **attributes})


def assembled(head: xr.Dataset, variables: Mapping[str, Variable], pieces: Iterable[Piece]) -> xr.Dataset:
    """Return results in memory, their header with all variables."""
    arrays = {name: np.empty(variable.shape, variable.dtype) for name, variable in variables.items()}
    for name, run, trials, values in pieces:
        arrays[name][run, trials] = values
    return head.assign({name: (variable.dims, arrays[name]) for name, variable in variables.items()})


@checked
def to_dataframe(dataset: Results, *, last: bool = False) -> pd.DataFrame:
    """Return results as a tidy table of runs, trials and rounds.

    Columns are the labels of the run (``algorithm``, ``base``, ``problem``, ``delay``), a column for each swept field (NaN for a run
    without it), then ``trial`` and ``round``, every measure of a round, on a box the coordinates of its point (``point.dose``), and facts
    of the trial, such as ``status`` and ``optimum``.
    ``table.to_csv(path)`` and ``table.to_parquet(path)`` write it; the latter needs the extra ``parquet``.

    Args:
      dataset: results of a study, or of :meth:`~jaxbandit.Trajectory.to_xarray`.
      last: whether to keep the last round only.
    """
    part, order = dataset.isel(round=[-1]) if last else dataset, (*TRIAL, "round")
    if "point" in part and "round" in part.point.dims:
        part = part.assign({f"point.{name}": part.point.sel(coordinate=name, drop=True) for name in part.coordinate.values})
    part = part[[name for name in part.data_vars if set(part[name].dims) <= set(order)]]
    of_round = [str(name) for name in part.data_vars if "round" in part[name].dims]
    of_trial = [str(name) for name in part.data_vars if "round" not in part[name].dims]
    labels = [str(name) for name in part.coords if part[name].dims in ((), ("algorithm",)) and name != "algorithm"]
    table = part.to_dataframe(dim_order=[name for name in order if name in part.dims]).reset_index()
    return table[["algorithm", *labels, "trial", "round", *of_round, *of_trial]]


# Flags of trials.


@checked
def flags_in_words(dataset: Results) -> list[str]:
    """Return a line for each flag of trials, with its runs.

    An example is ``rpol, cbo: 3 of 100 trials: why (what to do)``.
    """
    runs, most = dict[str, list[str]](), 3
    for label, status in zip(dataset.algorithm.values, dataset.status.transpose("algorithm", "trial").values, strict=True):
        for line in status_in_words(status):
            runs.setdefault(line, []).append(str(label))
    more = {line: f" and {len(labels) - most:,} more, each" for line, labels in runs.items() if len(labels) > most}
    return [f"{', '.join(labels[:most])}{more.get(line, '')}: {line}" for line, labels in runs.items()]


@checked
def sweeps_without_effect(dataset: Results) -> list[str]:
    """Return a line for each group of swept fields without effect.

    A field has no effect if runs ended with the same numbers, bit for bit, in every trial.
    """
    ends = [dataset[name].isel(round=-1) if "round" in dataset[name].dims else dataset[name] for name in sorted(map(str, dataset))]
    ends = [end.transpose(*TRIAL, ...) for end in ends if set(TRIAL) <= set(end.dims) and "played" not in end.dims]
    swept = {str(name): dataset[name].values for name in json.loads(dataset.attrs.get("swept", "[]")) if name in dataset.coords}
    alike: dict[Hashable, list[int]] = {}
    for run in range(dataset.sizes["algorithm"] if swept else 0):
        same = [str(dataset[name].values[run]) for name in LABELS if name in dataset.coords]
        alike.setdefault((*same, *(end.values[run].tobytes() for end in ends)), []).append(run)
    groups: dict[str, list[str]] = {}
    for runs in alike.values():
        fields = [name for name, values in swept.items() if len(set(values[runs][np.isfinite(values[runs])].tolist())) > 1]
        if fields:
            groups.setdefault(" and ".join(fields), []).append(", ".join(dataset.algorithm.values[runs]))
    more = {fields: f" (and of {len(runs) - 1} more such groups)" if len(runs) > 1 else "" for fields, runs in groups.items()}
    return [f"{fields} changed no number in any trial of {runs[0]}{more[fields]}" for fields, runs in groups.items()]
