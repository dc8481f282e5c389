"""Measures of runs, and runs as one dataset or a summary."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxbandit.algorithms import Algorithm
from jaxbandit.core.blocks import equal_blocks, map_blocks
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.codec import few_words, readable_plain
from jaxbandit.core.declare import Array, KeyOrSeed
from jaxbandit.core.keys import Stream, pair_key, stream_key, typed
from jaxbandit.core.pytree import canonicalise
from jaxbandit.core.status import Status, healthy
from jaxbandit.core.sweep import combinations
from jaxbandit.core.text import aligned, filled, html_table
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.domains import Box, Contextual
from jaxbandit.feedback import Policy
from jaxbandit.numerics.intervals import half_width
from jaxbandit.problems import AbstractProblem, optimum
from jaxbandit.results.dataset import METRICS, Contents, ResultRow, assembled, header, value_words
from jaxbandit.results.metrics import Tally, extend_tally, start_tally
from jaxbandit.surrogates import arithmetic

if TYPE_CHECKING:
    import xarray as xr

# Strong regret is left out, because it takes a linear programme for each instance.
MEASURED = tuple(name for name in METRICS if name != "strong_regret")


class MeasureColumn(NamedTuple):
    """Column of a table for a measure, perhaps ``averaged`` over rounds."""

    heading: str
    measure: str
    averaged: bool
    formula: str
    legend: str


#: Columns of a table of measures.
COLUMNS = (
    MeasureColumn("R/t", "regret", True, "$R/t$", "R regret"),
    MeasureColumn("R+/t", "positive_regret", True, "$R^+/t$", "R+ positive regret"),
    MeasureColumn("V/t", "hard_violation", True, "$V/t$", "V violation"),
    MeasureColumn("soft V/t", "soft_violation", True, "$V_{\\mathrm{soft}}/t$", "soft V violation of the sums over rounds"),
    MeasureColumn("N", "violating_rounds", False, "$N$", "N violating rounds"),
    MeasureColumn(
        "best R+V",
        "best_constrained_regret",
        False,
        "$\\min(R^+ + V)$",
        "best R+V the least sum of positive regret and violation in a round",
    ),
    MeasureColumn(
        "best feasible", "best_feasible_value", False, "best feasible $f$", "best feasible the largest reward at a feasible point"
    ),
    MeasureColumn("strong R/t", "strong_regret", True, "$R_{\\mathrm{strong}}/t$", "strong R regret against the best mixed policy"),
)


Measures: TypeAlias = tuple[Tally, dict[str, Array], dict[str, Array]]
"""Sums over rounds, the curves over them, and facts of each trial's instance."""


@partial(jax.jit, static_argnames=("metrics", "block", "common", "mesh"))
def measure_all(
    problem: AbstractProblem,
    key: Array | None,
    trials: tuple[Array, Tally, Array],
    count: Array | None = None,
    *,
    metrics: tuple[str, ...],
    block: int,
    common: bool = True,
    mesh: Mesh | None = None,
) -> Measures:
    """Return the measures of further rounds of trials.

    ``trials`` are their pairs ``[P, 3]``, sums so far and the indices ``[P, n]`` chosen, on a box points ``[P, n, d]``. The program
    measures ``block`` trials side by side, and cells on problems of one shape share it. Given ``count``, it measures only ``count``
    blocks on each device. Without ``key`` the problem must not be random; runs with ``common`` random numbers share their instances.
    """
    key = jax.random.key(0) if key is None else key

    def one(shared: tuple[AbstractProblem, Array], trial: tuple[Array, Tally, Array]) -> Measures:
        (problem, key), (pair, before, chosen) = shared, trial
        instance = problem.sample(stream_key(pair_key(key, pair, common), Stream.PROBLEM))
        after, curves = extend_tally(instance, before, chosen)
        best = optimum(instance)
        facts = {"optimum": best.value, "feasible_fraction": best.feasible_fraction, "slater_slack": best.slater_slack}
        if isinstance(instance.domain, Contextual):
            facts = {name: jnp.asarray(instance.domain.mean(values)) for name, values in facts.items()}
        return after, {name: getattr(curves, name) for name in metrics}, facts

    return map_blocks(one, (problem, key), trials, block=block, mesh=mesh, count=count)


@dataclasses.dataclass(frozen=True)
class Made:
    """Facts of a run beside its arrays.

    Attributes:
      problem: the problem.
      label: name of the algorithm.
      key: PRNG key of the run.
      trials: numbers of the trials.
      delay: the delay model.
      learner: algorithm of the first variant, and its policy for late feedback.
      variants: swept values of each variant by path; empty if they are not known.
    """

    problem: AbstractProblem
    label: str
    key: Array
    trials: Sequence[int]
    delay: Delay
    learner: tuple[Algorithm[Any], Policy | None]
    variants: Sequence[Mapping[str, object]] = ()

    def entry(self, axis: str, number: int) -> Made:
        """Return the facts of one entry, a variant labelled by swept values."""
        held = getattr(self, axis)[number : number + 1]
        words = [word for values in held for word in value_words(values)] if axis == "variants" else []
        return dataclasses.replace(self, **{axis: held, "label": " ".join([self.label, *words])})


@dataclasses.dataclass(frozen=True)
class RunArrays:
    """Arrays of a run's trials, named as in a study's batches.

    Attributes:
      arrays: entries ``[variants * trials, ...]``: ``end_...`` after a trial, ``seen_...`` of every round, and ``before_...`` of an
        initial design that counts.
      variants: number of variants.
      trials: number of trials.
      precision: precision of the models.
      made: further facts, if they are known.
    """

    arrays: Mapping[str, np.ndarray]
    variants: int
    trials: int
    precision: str
    made: Made | None = None

    @property
    def horizon(self) -> int:
        """Number of rounds ``T``."""
        return int(self.arrays["seen_indices"].shape[1])

    @property
    def before(self) -> int:
        """Number of points before round 1 that the metrics count."""
        return int(self.arrays["before_index"].shape[1]) if "before_index" in self.arrays else 0


def results_of(
    runs: Mapping[str, RunArrays],
    problem: AbstractProblem | None = None,
    *,
    key: KeyOrSeed | None = None,
    trials: int | Sequence[int] | None = None,
    delay: Delay | None = None,
    swept: Mapping[str, Sequence[object]] | None = None,
) -> xr.Dataset:
    """Return runs as one dataset, as :meth:`~jaxbandit.Trajectory.to_xarray` does."""
    problem = problem_of(runs, problem)
    numbers = check_alike(runs, problem, trials)
    unknown = "late" if any("seen_arrivals" in run.arrays for run in runs.values()) else ""
    rows, late = list[ResultRow](), dict[str, Delay]()
    for label, run in runs.items():
        of_run = delay or (run.made.delay if run.made else problem.delay)
        words = unknown if isinstance(of_run, NoDelay) else few_words(of_run)
        cell = [ResultRow(name, label, str(problem.name), words, values) for name, values in variants_named(label, run, swept)]
        rows += cell
        late |= {row.label: of_run for row in cell}
    first = next(iter(runs.values()))
    contents = Contents(
        rows=rows,
        swept=list(dict.fromkeys(path for row in rows for path in row.swept)),
        trials=numbers,
        horizon=first.horizon,
        kept=np.arange(1, first.horizon + 1),
        before=first.before,
        metrics=MEASURED,
        trajectories=all("seen_values" in run.arrays for run in runs.values()),
        problems=[problem] * len(runs),
    )
    batches = [{**run.arrays, **measured(run, problem, numbers, key)} for run in runs.values()]
    variables = contents.variables(batches)
    attributes = {
        "study": "",
        # Without its table no study can run again.
        "table": "",
        "problems": json.dumps({str(problem.name): readable_plain(problem)}),
        "delays": json.dumps({label: readable_plain(each) for label, each in late.items()}),
        "precision": first.precision,
    }
    sizes = [len(run.arrays["end_status"]) for run in runs.values()]
    pairs = np.split(np.argwhere(np.ones((len(contents.rows), first.trials))), np.cumsum(sizes)[:-1])
    pieces = (piece for cell, rows in enumerate(pairs) for piece in contents.pieces(variables, cell, batches[cell], rows))
    return assembled(header(contents, attributes, variables), variables, pieces)


def problem_of(runs: Mapping[str, RunArrays], problem: AbstractProblem | None) -> AbstractProblem:
    """Return the problem that measures runs: the given problem or theirs."""
    known = {id(run.made.problem): run.made.problem for run in runs.values() if run.made}
    if problem is None and len(known) != 1:
        words = "give the problem that was run, with which regret and violation are measured"
        raise InvalidArgument(f"problem: {words}{f'; the runs were on {len(known)} objects' if known else ''}")
    return next(iter(known.values())) if problem is None else problem


def check_alike(runs: Mapping[str, RunArrays], problem: AbstractProblem, trials: int | Sequence[int] | None) -> list[int]:
    """Return the trials' numbers, or raise ``InvalidArgument`` on runs of different sizes."""
    for name, field in (("trials", "trials"), ("rounds", "horizon"), ("counted initial points", "before")):
        sizes = {getattr(run, field) for run in runs.values()}
        if len(sizes) != 1:
            raise InvalidArgument(f"runs: all must have equally many {name} to be compared, got {sorted(sizes)}")
    size, axes = problem.domain.size, problem.domain.dimension if isinstance(problem.domain, Box) else 0
    for label, run in runs.items():
        largest, given = int(run.arrays["seen_indices"].max()), run.arrays.get("seen_values", np.empty(problem.outputs)).shape[-1]
        axes_given = run.arrays["seen_points"].shape[-1] if "seen_points" in run.arrays else 0
        wrong = {
            f"is on {f'a box of {axes} axes' if axes else 'points'}, but run {label!r} on {axes_given or 'no'} axes of one": axes
            != axes_given,
            f"has {size} points, but run {label!r} chose point {largest}": not axes and largest >= size,
            f"has {problem.outputs} outputs, but run {label!r} has {given}": given != problem.outputs,
        }
        for words in (words for words, is_so in wrong.items() if is_so):
            raise InvalidArgument(f"problem: {problem.name!r} {words}; give the one that was run")
    count = next(iter(runs.values())).trials
    if len(played := {tuple(run.made.trials) for run in runs.values() if run.made}) > 1:
        raise InvalidArgument(f"runs: all must be of the same trials to be compared, got {' and '.join(map(short, sorted(played)))}")
    chosen = trials if trials is not None else next(iter(played), count)
    numbers = [int(number) for number in (range(chosen) if isinstance(chosen, int | np.integer) else chosen)]
    if len(numbers) != count:
        raise InvalidArgument(f"trials: the run has {count} trials, got numbers of {len(numbers)}")
    return numbers


def variants_named(label: str, run: RunArrays, swept: Mapping[str, Sequence[object]] | None) -> list[tuple[str, dict[str, object]]]:
    """Return label and swept values of each variant, or a number."""
    if not swept and run.made and run.made.variants:
        # A single variant has a label of its own.
        words = value_words if run.variants > 1 else lambda values: []
        return [(" ".join([label, *words(values)]), dict(values)) for values in run.made.variants]
    if not swept:
        return [(label, {})] if run.variants == 1 else [(f"{label} variant {n}", {}) for n in range(run.variants)]
    zipped = all(isinstance(values, Sequence | np.ndarray) and len(values) == run.variants for values in swept.values())
    chosen = combinations(swept, zipped=zipped, where="swept")
    if len(chosen) != run.variants:
        raise InvalidArgument(f"swept: run {label!r} has {run.variants} variants, got values of {len(chosen)}; give those of its sweep")
    return [(" ".join([label, *value_words(values)]), values) for values in chosen]


def measured(run: RunArrays, problem: AbstractProblem, numbers: Sequence[int], key: KeyOrSeed | None) -> dict[str, np.ndarray]:
    """Return measures and facts of instances, named as in a study's batches."""
    key = run.made.key if key is None and run.made else key
    if key is None and problem.is_random:
        raise InvalidArgument(
            f"key: problem {problem.name!r} draws an instance for each trial; give the key that simulate was given (key=...), which draws"
            " them again"
        )
    count, arrays, before = run.variants * run.trials, run.arrays, run.before
    seen, first = ("seen_points", "before_point") if "seen_points" in arrays else ("seen_indices", "before_index")
    indices = np.concatenate([arrays[first], arrays[seen]], axis=1) if before else arrays[seen]
    # Blocks of 64 trials bound the memory that instances of a random family take.
    blocks, block = equal_blocks(count, 64, 1)
    pairs = np.stack([np.zeros(count, int), np.tile(numbers, run.variants), np.ones(count, int)], axis=1).astype(np.int32)
    padded = [np.concatenate([array, np.repeat(array[-1:], blocks * block - count, axis=0)]) for array in (pairs, indices)]
    with arithmetic([run.precision]):
        used = None if key is None else typed(key)
        start = start_tally(problem.constraints, (blocks * block,))
        _, curves, facts = measure_all(canonicalise(problem), used, (padded[0], start, padded[1]), metrics=MEASURED, block=block)
        of_rounds = {name: np.asarray(curve)[:count] for name, curve in curves.items()}
        known = {f"fact_{name}": np.asarray(values)[:count] for name, values in facts.items()}
    early = {f"before_{name}": curve[:, :before] for name, curve in of_rounds.items()} if before else {}
    return {name: curve[:, before:] for name, curve in of_rounds.items()} | early | known


# Summaries.


@dataclasses.dataclass(frozen=True, repr=False)
class RunSummary:
    """Table of measures of runs, shown as text or HTML.

    Attributes:
      rows: by heading, the mean and (``"R/t +-"``) the 95% confidence half-width of every measure, with counts of trials.
    """

    rows: tuple[dict[str, Any], ...]

    def __repr__(self) -> str:
        return summary_text(self.rows)

    def _repr_html_(self) -> str:
        head, *body = summary_cells(self.rows, " ± ")
        return html_table(head, body, caption=legend_of(self.rows))


def summary_row(label: str, last: Mapping[str, np.ndarray], elapsed: int, status: np.ndarray, declared: np.ndarray) -> dict[str, Any]:
    """Return a run's row of the summary, given arrays ``[trials]``."""
    ok, declarations = healthy(status), declared[declared > 0]
    row: dict[str, Any] = {"algorithm": label, "trials": len(ok), "failed": int((~ok).sum())}
    for heading, name, averaged, *_ in COLUMNS:
        final = last[name][ok].astype(np.float64) / (elapsed if averaged else 1) if name in last else np.zeros(0)
        if name == "best_feasible_value":
            # Leave out trials that were never at a feasible point.
            final = final[np.isfinite(final)]
            row["ever feasible"] = len(final)
        row[heading] = float(final.mean()) if len(final) else float("nan")
        row[f"{heading} +-"] = float(half_width(final))
    row["declared infeasible"] = int(np.count_nonzero(status & int(Status.DECLARED_INFEASIBLE)))
    row["mean round declared"] = float(declarations.mean()) if len(declarations) else float("nan")
    return row


def summary_of(
    runs: Mapping[str, RunArrays],
    problem: AbstractProblem | None = None,
    *,
    key: KeyOrSeed | None = None,
    trials: int | Sequence[int] | None = None,
    swept: Mapping[str, Sequence[object]] | None = None,
) -> RunSummary:
    """Return the summary of runs, as :meth:`~jaxbandit.Trajectory.summary` does."""
    problem = problem_of(runs, problem)
    numbers = check_alike(runs, problem, trials)
    rows = []
    for label, run in runs.items():
        curves = measured(run, problem, numbers, key)
        for place, (name, _) in enumerate(variants_named(label, run, swept)):
            these = slice(place * run.trials, (place + 1) * run.trials)
            last = {measure: curves[measure][these, -1] for measure in MEASURED}
            ends = (run.arrays[array][these] for array in ("end_status", "end_declared_round"))
            rows.append(summary_row(name, last, run.horizon + run.before, *ends))
    return RunSummary(rows=tuple(rows))


def measures_shown(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the headings of the measures that some row has."""
    return [column.heading for column in COLUMNS if any(np.isfinite(row[column.heading]) for row in rows)]


def legend_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the legend of the numbers and letters of a table."""
    shown = measures_shown(rows)
    legends = [column.legend for column in COLUMNS if column.heading in shown]
    few = any(note_of(row, heading) for row in rows for heading in shown)
    return (
        "Means over trials after the last round with half-widths of 95% intervals; /t: divided by the number of rounds. "
        f"{', '.join([*legends, 'declared: trials that declared the instance infeasible'])}"
        f"{'; (3/10): over the 3 of 10 trials that ever were at a feasible point' if few else ''}."
    )


def note_of(row: Mapping[str, Any], heading: str) -> str:
    """Return ``" (3/10)"`` if a mean leaves out trials without failure."""
    ok = row["trials"] - row["failed"]
    return f" ({row['ever feasible']}/{ok})" if heading == "best feasible" and row["ever feasible"] < ok else ""


def groups_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[str, Mapping[str, Any]]]]:
    """Return many rows and their labels by problem and by sweep."""
    most_without_headings = 8
    on_several = len({row.get("problem", "") for row in rows}) > 1
    sizes, groups = Counter((row.get("problem"), row.get("base")) for row in rows), dict[str, list[tuple[str, Mapping[str, Any]]]]()
    for row in rows:
        base, on = row.get("base", ""), f"on {row['problem']}" if on_several else ""
        label = row["algorithm"].replace(f" {on}", "", 1) if on else row["algorithm"]
        of = base if sizes[row.get("problem"), base] > 1 and label.startswith(f"{base} ") else ""
        groups.setdefault(" ".join(filter(None, (of, on))), []).append((label.removeprefix(f"{of} ") if of else label, row))
    return groups if len(groups) > 1 and len(rows) > most_without_headings else {"": [(row["algorithm"], row) for row in rows]}


def summary_cells(rows: Sequence[Mapping[str, Any]], joint: str = " +- ") -> list[list[str]]:
    """Return the cells of a table as text, the heading first."""
    shown = measures_shown(rows)

    def cell(row: Mapping[str, Any], heading: str) -> str:
        value, half = row[heading], row[f"{heading} +-"]
        text = "undefined" if not np.isfinite(value) else f"{value:.3f}" + (f"{joint}{half:.3f}" if np.isfinite(half) else "")
        return text + note_of(row, heading)

    body = []
    for heading, members in groups_of(rows).items():
        body += [[heading, *[""] * (len(shown) + 1)]] if heading else []
        for label, row in members:
            name = ("  " if heading else "") + label + (f" ({row['failed']} failed)" if row["failed"] else "")
            body.append([name, *(cell(row, measure) for measure in shown), f"{row['declared infeasible']}/{row['trials']}"])
    return [["algorithm", *shown, "declared"], *body]


def summary_text(rows: Sequence[Mapping[str, Any]], width: int | None = None) -> str:
    """Return a table and its legend in ``width`` letters, default the terminal's."""
    width = shutil.get_terminal_size().columns if width is None else width
    return "\n".join([aligned(summary_cells(rows), width=width), "", filled(legend_of(rows), width)])
