"""The variables and coordinates of results, the same for a study's and for what ``simulate`` returns.

Results have the dimensions ``algorithm`` (the runs), ``trial`` and ``round``, and with trajectories ``played`` and ``output``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from jaxbandit.core.checks import short
from jaxbandit.core.pytree import float_dtype
from jaxbandit.delays import NEVER
from jaxbandit.metrics import Curves
from jaxbandit.problems import AbstractProblem

METRICS = tuple(field.name for field in dataclasses.fields(Curves))
FACTS = ("optimum", "feasible_fraction", "slater_slack")
MIXED = "best_mixed_policy"  # its reward, in float64 as long as strong regret is not computed
ENDS = ("status", "failed_round", "declared_round")
TRIAL = ("algorithm", "trial")
SECONDS = ("run_seconds", "playing_seconds")

# Names in the results that no swept field can have; such a field, as `index` of the oracle, is called `algorithm.index` there.
OF_SOME_RUNS = (
    MIXED,
    "candidates",
    "optimum_kept",
    "evaluations",
    "lost",
    "index",
    "observed",
    "arrival",
    "fitted_length_scales",
)
LABELS = ("base", "problem", "delay")
TAKEN = frozenset({*METRICS, *FACTS, *ENDS, *TRIAL, *SECONDS, *OF_SOME_RUNS, *LABELS, "round", "played", "output"})

LARGE = 2.0**1023  # beyond it an integer has no float

Arrays: TypeAlias = Mapping[str, np.ndarray]
"""Arrays of a batch by name, each with an entry for every trial of it along the first axis."""

Maker: TypeAlias = Callable[[int, Arrays, np.ndarray], np.ndarray]
"""Function of the number of a cell, the arrays of a batch, and the run and trial ``[n, 2]`` of each row; returns entries ``[n, ...]``."""


@dataclasses.dataclass(frozen=True)
class Variable:
    """Variable of the results over runs and trials, ``[runs, trials, ...]``, which is computed batch by batch."""

    dims: tuple[str, ...]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    entries: Maker


@dataclasses.dataclass(frozen=True)
class Row:
    """Names of one run in the results: its label, its algorithm, problem and delay, and its swept values by their dotted paths."""

    label: str
    base: str
    problem: str
    delay: str
    swept: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Contents:
    """Sizes of results, and which quantities they hold.

    Attributes:
      rows: names of the runs.
      swept: dotted paths of the swept fields.
      trials: numbers of the trials.
      horizon: number of rounds ``T``.
      kept: rounds of the metrics that are kept.
      before: points before round 1 that the metrics count.
      metrics: names of the metrics.
      trajectories: whether points, values and arrivals of every round are kept.
      problems: problem of every cell, a cell being runs whose arrays come together.
    """

    rows: Sequence[Row]
    swept: Sequence[str]
    trials: Sequence[int] | np.ndarray
    horizon: int
    kept: np.ndarray
    before: int
    metrics: tuple[str, ...]
    trajectories: bool
    problems: Sequence[AbstractProblem]

    @property
    def rounds(self) -> np.ndarray:
        """Numbers of the kept rounds, those of counted points before round 1 being 0, -1, and so on downwards."""
        return np.concatenate([np.arange(1 - self.before, 1), self.kept])

    def coordinates(self, *, outputs: bool) -> dict[str, Any]:
        """Return the coordinates of the results; ``outputs`` says whether outputs are a dimension without trajectories, too."""
        named: dict[str, Any] = {
            "algorithm": [row.label for row in self.rows],
            "trial": np.asarray(self.trials),
            "round": self.rounds,
            **{name: ("algorithm", [getattr(row, name) for row in self.rows]) for name in LABELS},
            **{coordinate_of(path): ("algorithm", [number_of(row.swept.get(path)) for row in self.rows]) for path in self.swept},
        }
        if outputs or self.trajectories:
            named["output"] = output_names(max(problem.outputs for problem in self.problems))
        if self.trajectories:
            named["played"] = np.arange(1, self.horizon + 1)
        return named

    def variables(self, examples: Sequence[Arrays]) -> dict[str, Variable]:
        """Return all variables over runs and trials, given arrays of some batch of each cell, with or without trials."""
        empty = [{name: np.empty((0, *a.shape[1:]), a.dtype) for name, a in arrays.items()} for arrays in examples]
        nobody = np.zeros((0, 2), np.int64)

        def variable(dims: tuple[str, ...], entries: Maker) -> Variable:
            known = [entries(cell, arrays, nobody) for cell, arrays in enumerate(empty)]
            shape = (len(self.rows), len(self.trials), *known[0].shape[1:])
            return Variable(dims, shape, np.result_type(*(values.dtype for values in known)), entries)

        columns = {name: _Column((*TRIAL, "round"), name, early=f"before_{name}") for name in self.metrics} | self._columns()
        found = {
            name: variable(column.dims, column.maker(self.problems, empty))
            for name, column in columns.items()
            if any(column.array in arrays for arrays in empty)
        }
        if "strong_regret" in self.metrics:
            found["strong_regret"] = variable((*TRIAL, "round"), self._strong_regret)
        return {name: found[name] for name in columns if name in found}

    def _columns(self) -> dict[str, _Column]:
        """Return how variables that are no metrics come from arrays of batches; those of which no cell has the array are left out."""
        columns = {name: _Column(TRIAL, f"end_{name}") for name in ENDS} | {name: _Column(TRIAL, f"fact_{name}") for name in FACTS}
        columns |= {
            MIXED: _Column(TRIAL, f"fact_{MIXED}", dtype=float_dtype()),
            "candidates": _Column(TRIAL, "end_candidate_count", lambda problem: problem.domain.size),
            "optimum_kept": _Column(TRIAL, "end_optimum_kept", lambda problem: True),
            "evaluations": _Column(TRIAL, "end_evaluations", lambda problem: np.int32(self.horizon)),
            "fitted_length_scales": _Column(
                (*TRIAL, "group", "axis"), "end_fitted_length_scales", lambda problem: np.empty((0, 0), float_dtype()), np.nan
            ),
            "lost": _Column((*TRIAL, "output"), "end_lost", lambda problem: np.zeros(problem.outputs, np.int32), 0),
        }
        if not self.trajectories:
            return columns
        every, dims = len(self.kept) == self.horizon, (*TRIAL, "played", "output")
        own = np.arange(1, self.horizon + 1, dtype=np.int32)[:, None]
        return columns | {
            "index": _Column((*TRIAL, "round" if every else "played"), "seen_indices", early="before_index" if every else ""),
            "observed": _Column(dims, "seen_values", fill=np.nan),
            "arrival": _Column(dims, "seen_arrivals", lambda problem: np.repeat(own, problem.outputs, axis=1), NEVER, most=NEVER),
        }

    def _strong_regret(self, cell: int, arrays: Arrays, rows: np.ndarray) -> np.ndarray:
        """Return the entries of strong regret, which is against the rewards of the best mixed policies."""
        elapsed = self.rounds + self.before  # rounds that each entry sums over
        reward = _joined(arrays, "before_reward", "reward")
        return (arrays[f"fact_{MIXED}"][:, None] * elapsed - reward).astype(float_dtype())


@dataclasses.dataclass(frozen=True)
class _Column:
    """One array of batches as a variable.

    Attributes:
      dims: names of the dimensions.
      array: name of the array.
      instead: value of each trial in a cell that lacks the array, by the cell's problem.
      fill: value for what some cells lack along the axes beyond that of trials, such as outputs.
      early: name of the array with entries before round 1, which come first where there are any.
      most: upper bound of the values.
      dtype: type of the values, default that of the array.
    """

    dims: tuple[str, ...]
    array: str
    instead: Callable[[AbstractProblem], Any] | None = None
    fill: Any = None
    early: str = ""
    most: int | None = None
    dtype: np.dtype[Any] | None = None

    def maker(self, problems: Sequence[AbstractProblem], empty: Sequence[Arrays]) -> Maker:
        """Return the entries of the variable, given the arrays of each cell without trials."""

        def plain(cell: int, arrays: Arrays, rows: np.ndarray) -> np.ndarray:
            if self.array in arrays or self.instead is None:
                return _joined(arrays, self.early, self.array).astype(self.dtype or arrays[self.array].dtype, copy=False)
            value = np.asarray(self.instead(problems[cell]))
            return np.broadcast_to(value, (len(rows), *value.shape))

        if self.fill is None:
            return plain
        sizes = np.max([plain(cell, arrays, np.zeros((0, 2))).shape[1:] for cell, arrays in enumerate(empty)], axis=0)

        def padded(cell: int, arrays: Arrays, rows: np.ndarray) -> np.ndarray:
            values = plain(cell, arrays, rows)
            widths = [(0, 0), *((0, int(size) - here) for size, here in zip(sizes, values.shape[1:], strict=True))]
            values = np.pad(values, widths, constant_values=self.fill)
            return values if self.most is None else np.minimum(values, self.most)

        return padded


def _joined(arrays: Arrays, early: str, name: str) -> np.ndarray:
    """Return an array with its entries before round 1, if there are any."""
    return np.concatenate([arrays[early], arrays[name]], axis=1) if early in arrays else arrays[name]


def output_names(outputs: int) -> list[str]:
    """Return the names of so many outputs: the reward and numbered constraints."""
    return ["reward", *(f"constraint {j}" for j in range(1, outputs))]


def coordinate_of(path: str) -> str:
    """Return the name that a swept field has in the results."""
    return f"algorithm.{path}" if path in TAKEN else path


def value_words(values: Mapping[str, Any]) -> list[str]:
    """Return swept values as the labels of runs have them, without commas, which separate columns: ``reward_width=2``."""
    words = [
        f"{path.rsplit('.', 1)[-1]}={value:g}" if isinstance(value, int | float) and abs(value) < LARGE else f"{path}={short(value)}"
        for path, value in values.items()
    ]
    return [word.replace(",", "") for word in words]


def number_of(value: Any) -> float:
    """Return a swept value as a number, NaN where it is none, such as a list or an object."""
    try:
        return float(value) if np.ndim(value) == 0 and not isinstance(value, str) else float("nan")
    except (TypeError, ValueError, OverflowError):
        return float("nan")
