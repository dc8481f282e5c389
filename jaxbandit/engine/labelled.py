"""The variables and coordinates of results, the same for a study's and for what ``simulate`` returns.

Results have the dimensions ``algorithm`` (the runs), ``trial`` and ``round``, and with trajectories ``played`` and ``output``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.pytree import float_dtype
from jaxbandit.delays import NEVER
from jaxbandit.metrics import Curves
from jaxbandit.problems import AbstractProblem

METRICS = tuple(field.name for field in dataclasses.fields(Curves))
FACTS = ("optimum", "feasible_fraction", "slater_slack")
ENDS = ("status", "failed_round", "declared_round")
TRIAL = ("algorithm", "trial")
SECONDS = ("run_seconds", "playing_seconds")

# Names in the results that no swept field can have; such a field, as `index` of the oracle, is called `algorithm.index` there.
OF_SOME_RUNS = (
    "best_mixed_policy",
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
Mixed: TypeAlias = Callable[[np.ndarray], np.ndarray]


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
      runs, trials, horizon: numbers of runs, of trials and of rounds ``T``.
      kept: rounds of the metrics that are kept.
      before: points before round 1 that the metrics count.
      metrics: names of the metrics.
      trajectories: whether points, values and arrivals of every round are kept.
      problems: problem of every cell, a cell being runs whose arrays come together.
    """

    runs: int
    trials: int
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


def coordinates(contents: Contents, rows: Sequence[Row], swept: Sequence[str], *, outputs: bool) -> dict[str, Any]:
    """Return the coordinates of results; ``swept`` are the paths of all swept fields, ``outputs`` says whether outputs are a dimension."""
    found: dict[str, Any] = {
        "algorithm": [row.label for row in rows],
        "trial": np.arange(contents.trials),
        "round": contents.rounds,
        "base": ("algorithm", [row.base for row in rows]),
        "problem": ("algorithm", [row.problem for row in rows]),
        "delay": ("algorithm", [row.delay for row in rows]),
    }
    for path in swept:
        found[coordinate_of(path)] = ("algorithm", [number_of(row.swept.get(path)) for row in rows])
    if outputs or contents.trajectories:
        found["output"] = output_names(max(problem.outputs for problem in contents.problems))
    if contents.trajectories:
        found["played"] = np.arange(1, contents.horizon + 1)
    return found


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


def variables_of(contents: Contents, first: Sequence[Arrays], mixed: Mixed | None) -> dict[str, Variable]:
    """Return all variables over runs and trials.

    Args:
      contents: what the results hold.
      first: the arrays of the first batch of each cell, which say what there is.
      mixed: returns the rewards ``[n]`` of the best mixed policies of runs and trials ``[n, 2]``, for strong regret.
    """
    makers = _Makers(contents, first, mixed)
    found = {metric: makers.variable((*TRIAL, "round"), makers.metric(metric)) for metric in contents.metrics}
    found |= {name: makers.variable(TRIAL, makers.array(f"end_{name}")) for name in ENDS}
    found |= {name: makers.variable(TRIAL, makers.array(f"fact_{name}")) for name in FACTS}
    return found | _elimination(makers) | _evaluations(makers) | _fits(makers) | _lateness(makers) | _trajectories(makers)


class _Makers:
    """Functions that make variables of the arrays of batches; see :class:`Variable`."""

    def __init__(self, contents: Contents, first: Sequence[Arrays], mixed: Mixed | None) -> None:
        self.contents, self.mixed = contents, mixed
        # The arrays of each cell without their rows: what there is, of which type and shape.
        self.empty = [{name: np.empty((0, *a.shape[1:]), a.dtype) for name, a in arrays.items()} for arrays in first]

    def __contains__(self, name: str) -> bool:
        return any(name in arrays for arrays in self.empty)

    def variable(self, dims: tuple[str, ...], maker: Maker) -> Variable:
        """Return the variable that a function makes."""
        none = np.zeros((0, 2), np.int64)
        made = [maker(cell, arrays, none) for cell, arrays in enumerate(self.empty)]
        shape = (self.contents.runs, self.contents.trials, *made[0].shape[1:])
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
        """Return what makes a metric over the kept rounds."""
        if metric != "strong_regret":
            return self.curve(metric)
        mixed, reward = self.mixed, self.curve("reward")
        if mixed is None:
            raise InvalidArgument("mixed: strong regret is against the best mixed policies; give their rewards")
        elapsed = self.contents.rounds + self.contents.before  # rounds that each entry sums over

        def strong(cell: int, arrays: Arrays, rows: np.ndarray) -> np.ndarray:
            return (mixed(rows)[:, None] * elapsed - reward(cell, arrays, rows)).astype(float_dtype())

        return strong


def _elimination(makers: _Makers) -> dict[str, Variable]:
    """Return how many points were not struck out, all of them by a run that never does, and whether the best is one of them."""
    if "end_candidate_count" not in makers:
        return {}
    every = makers.array("end_candidate_count", instead=lambda cell: makers.contents.problems[cell].domain.size)
    kept = makers.array("end_optimum_kept", instead=lambda cell: True)
    return {"candidates": makers.variable(TRIAL, every), "optimum_kept": makers.variable(TRIAL, kept)}


def _evaluations(makers: _Makers) -> dict[str, Variable]:
    """Return in how many rounds each trial evaluated something, before it stopped by itself; in all rounds of a run that never does."""
    if "end_evaluations" not in makers:
        return {}
    horizon = np.int32(makers.contents.horizon)
    return {"evaluations": makers.variable(TRIAL, makers.array("end_evaluations", instead=lambda cell: horizon))}


def _fits(makers: _Makers) -> dict[str, Variable]:
    """Return the length-scales that were fitted in the end, of each group of outputs on each axis; NaN where there is none such."""
    name = "end_fitted_length_scales"
    if name not in makers:
        return {}
    shapes = [arrays[name].shape[1:] for arrays in makers.empty if name in arrays]
    most = tuple(int(size) for size in np.max(shapes, axis=0))

    def padded(cell: int, arrays: Arrays, rows: np.ndarray) -> np.ndarray:
        if name not in arrays:
            return np.full((len(rows), *most), np.nan, float_dtype())
        own = arrays[name]
        return np.pad(own, [(0, 0), *((0, size - here) for size, here in zip(most, own.shape[1:], strict=True))], constant_values=np.nan)

    return {"fitted_length_scales": makers.variable((*TRIAL, "group", "axis"), padded)}


def _lateness(makers: _Makers) -> dict[str, Variable]:
    """Return how many values were lost: none of outputs that a problem lacks."""
    if "end_lost" not in makers:
        return {}
    lost = makers.array("end_lost", instead=lambda cell: np.zeros(makers.contents.problems[cell].outputs, np.int32), fill=0)
    return {"lost": makers.variable((*TRIAL, "output"), lost)}


def _trajectories(makers: _Makers) -> dict[str, Variable]:
    """Return points, values and arrivals, if they are kept; outputs that a problem lacks are NaN, and their feedback never arrives."""
    contents = makers.contents
    if not contents.trajectories:
        return {}

    def index(cell: int, arrays: Arrays, rows: np.ndarray) -> np.ndarray:
        every = over == "round" and "before_index" in arrays
        return np.concatenate([arrays["before_index"], arrays["seen_indices"]], axis=1) if every else arrays["seen_indices"]

    over = "round" if len(contents.kept) == contents.horizon else "played"
    dims = (*TRIAL, "played", "output")
    found = {"index": makers.variable((*TRIAL, over), index)}
    found["observed"] = makers.variable(dims, makers.array("seen_values", fill=np.nan))
    if "seen_arrivals" in makers:

        def at_once(cell: int) -> np.ndarray:
            return np.repeat(np.arange(1, contents.horizon + 1, dtype=np.int32)[:, None], contents.problems[cell].outputs, axis=1)

        late = makers.array("seen_arrivals", instead=at_once, fill=NEVER)
        found["arrival"] = makers.variable(dims, lambda cell, arrays, rows: np.minimum(late(cell, arrays, rows), NEVER))
    return found
