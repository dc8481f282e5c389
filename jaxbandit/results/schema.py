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

Maker: TypeAlias = Callable[[int, Arrays, int], np.ndarray]
"""Function of the number of a cell, the arrays of a batch and the number of its rows, which returns entries ``[n, ...]`` of a variable."""


Source: TypeAlias = tuple[tuple[str, ...], str, Maker]
"""Dimensions of a variable, the array that it is made of, and its maker."""


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
    swept: Mapping[str, object] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Contents:
    """Sizes of results, and which quantities they hold."""

    rows: Sequence[Row]
    swept: Sequence[str]  # dotted paths
    trials: Sequence[int] | np.ndarray  # their numbers
    horizon: int
    kept: np.ndarray  # rounds of the metrics
    before: int  # points before round 1 that the metrics count
    metrics: tuple[str, ...]
    trajectories: bool  # whether points, values and arrivals of every round are kept
    problems: Sequence[AbstractProblem]  # of every cell, a cell being runs whose arrays come together

    @property
    def rounds(self) -> np.ndarray:
        """Numbers of the kept rounds, those of counted points before round 1 being 0, -1, and so on downwards."""
        return np.concatenate([np.arange(1 - self.before, 1), self.kept])

    def coordinates(self, *, outputs: bool) -> dict[str, object]:
        """Return the coordinates of the results; ``outputs`` says whether outputs are a dimension without trajectories, too."""
        named: dict[str, object] = {
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
        """Return all variables over runs and trials, given arrays of some batch of each cell, with or without trials.

        A variable is made of one array, and left out where no cell has it.
        """
        empty = [{name: np.empty((0, *a.shape[1:]), a.dtype) for name, a in arrays.items()} for arrays in examples]
        found = {}
        for name, (dims, array, make) in self._makers(empty).items():
            if any(array in arrays for arrays in empty):
                known = [make(cell, arrays, 0) for cell, arrays in enumerate(empty)]
                shape = (len(self.rows), len(self.trials), *known[0].shape[1:])
                found[name] = Variable(dims, shape, np.result_type(*(values.dtype for values in known)), make)
        return found

    def _makers(self, empty: Sequence[Arrays]) -> dict[str, Source]:
        """Return how each variable is made, given the arrays of cells without trials."""
        every, problems = len(self.kept) == self.horizon, self.problems
        own = np.arange(1, self.horizon + 1, dtype=np.int32)[:, None]  # rounds in which values arrive without delay

        def given(array: str, early: str = "", instead: Callable[[AbstractProblem], object] | None = None) -> Maker:
            """Return an array, with what is ``early`` first; a cell that lacks it has ``instead``, by its problem, in each trial."""

            def make(cell: int, arrays: Arrays, count: int) -> np.ndarray:
                if array in arrays or instead is None:
                    return _joined(arrays, early, array)
                value = np.asarray(instead(problems[cell]))
                return np.broadcast_to(value, (count, *value.shape))

            return make

        def padded(make: Maker, fill: float) -> Maker:
            """Return entries of one size in all cells: what some lack along axes beyond that of trials, such as outputs, is filled up."""

            def pad(cell: int, arrays: Arrays, count: int) -> np.ndarray:
                sizes = np.max([make(number, some, 0).shape[1:] for number, some in enumerate(empty)], axis=0)
                values = make(cell, arrays, count)
                widths = [(0, int(size) - has) for size, has in zip(sizes, values.shape[1:], strict=True)]
                return np.pad(values, [(0, 0), *widths], constant_values=fill)

            return pad

        curve, of_output = (*TRIAL, "round"), (*TRIAL, "output")
        makers: dict[str, Source] = {name: (curve, name, given(name, early=f"before_{name}")) for name in self.metrics}
        if "strong_regret" in self.metrics:
            makers["strong_regret"] = (curve, f"fact_{MIXED}", self._strong_regret)
        makers |= {name: (TRIAL, array, given(array)) for name, array in ((name, f"end_{name}") for name in ENDS)}
        makers |= {name: (TRIAL, array, given(array)) for name, array in ((name, f"fact_{name}") for name in FACTS)}
        mixed, sizes = given(f"fact_{MIXED}"), given("end_fitted_length_scales", instead=lambda problem: np.empty((0, 0), float_dtype()))
        lost = given("end_lost", instead=lambda problem: np.zeros(problem.outputs, np.int32))
        candidates = given("end_candidate_count", instead=lambda problem: problem.domain.size)
        evaluations = given("end_evaluations", instead=lambda problem: np.int32(self.horizon))
        makers |= {
            MIXED: (TRIAL, f"fact_{MIXED}", lambda *batch: mixed(*batch).astype(float_dtype())),
            "candidates": (TRIAL, "end_candidate_count", candidates),
            "optimum_kept": (TRIAL, "end_optimum_kept", given("end_optimum_kept", instead=lambda problem: True)),
            "evaluations": (TRIAL, "end_evaluations", evaluations),
            "fitted_length_scales": ((*TRIAL, "group", "axis"), "end_fitted_length_scales", padded(sizes, np.nan)),
            "lost": (of_output, "end_lost", padded(lost, 0)),
        }
        if not self.trajectories:
            return makers
        arrival = padded(given("seen_arrivals", instead=lambda problem: np.repeat(own, problem.outputs, axis=1)), NEVER)
        played = (*TRIAL, "played", "output")
        return makers | {
            "index": ((*TRIAL, "round" if every else "played"), "seen_indices", given("seen_indices", "before_index" if every else "")),
            "observed": (played, "seen_values", padded(given("seen_values"), np.nan)),
            "arrival": (played, "seen_arrivals", lambda *batch: np.minimum(arrival(*batch), NEVER)),
        }

    def _strong_regret(self, cell: int, arrays: Arrays, count: int) -> np.ndarray:
        """Return the entries of strong regret, which is against the rewards of the best mixed policies."""
        elapsed = self.rounds + self.before  # rounds that each entry sums over
        reward = _joined(arrays, "before_reward", "reward")
        return (arrays[f"fact_{MIXED}"][:, None] * elapsed - reward).astype(float_dtype())


def _joined(arrays: Arrays, early: str, name: str) -> np.ndarray:
    """Return an array with its entries before round 1, if there are any."""
    return np.concatenate([arrays[early], arrays[name]], axis=1) if early in arrays else arrays[name]


def output_names(outputs: int) -> list[str]:
    """Return the names of so many outputs: the reward and numbered constraints."""
    return ["reward", *(f"constraint {j}" for j in range(1, outputs))]


def coordinate_of(path: str) -> str:
    """Return the name that a swept field has in the results."""
    return f"algorithm.{path}" if path in TAKEN else path


def value_words(values: Mapping[str, object]) -> list[str]:
    """Return swept values as the labels of runs have them, without commas, which separate columns: ``reward_width=2``."""
    words = [
        f"{path.rsplit('.', 1)[-1]}={value:g}" if isinstance(value, int | float) and abs(value) < LARGE else f"{path}={short(value)}"
        for path, value in values.items()
    ]
    return [word.replace(",", "") for word in words]


def number_of(value: object) -> float:
    """Return a swept value as a number, NaN where it is none, such as a list or an object."""
    try:
        array = np.asarray(value)
        return float(array) if array.ndim == 0 and array.dtype.kind != "U" else float("nan")
    except (TypeError, ValueError, OverflowError):
        return float("nan")
