"""Runs of every combination of problems, algorithms, hyper-parameters and delays."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from jaxbandit.algorithms import Algorithm
from jaxbandit.core import checks
from jaxbandit.core.arguments import takes
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.fields import (
    Check,
    Shape,
    between,
    choice,
    each,
    finite_numbers,
    of_class,
    optional,
    per_axis,
    per_output,
    positive_numbers,
    text,
    whole,
)
from jaxbandit.core.paths import set_field
from jaxbandit.core.sweep import combinations
from jaxbandit.core.types import PerAxis, PerOutput
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.domains import DOMAIN, Domain
from jaxbandit.engine import Informed, InitialDesign
from jaxbandit.engine.inputs import HORIZON, INFORMED
from jaxbandit.kernels import Kernel
from jaxbandit.problems import AbstractProblem, full_information
from jaxbandit.problems.base import PROBLEM
from jaxbandit.problems.data_tables import rows_of_csv
from jaxbandit.results.schema import value_words
from jaxbandit.study.specify.describe import describe_exactly
from jaxbandit.study.specify.registry import build, table_of
from jaxbandit.study.specify.run import Policy, Run
from jaxbandit.surrogates import PRECISIONS, Surrogate, ranged, surrogate
from jaxbandit.surrogates.choose import FORMS
from jaxbandit.surrogates.noise import VARIANCE_IN_FILES
from jaxbandit.surrogates.nystroem import with_length_scale

Table: TypeAlias = Mapping[str, Any]
"""An object as a study file has it: its type and fields, ``{"type": "sine", "points_per_axis": 50}``."""

MODEL = "model."  # what the path of a swept field of the model begins with


ONE_KERNEL = of_class(Kernel) | of_class(Mapping, "a table of one")
FIELDS: dict[str, Check] = {
    "kernel": ONE_KERNEL | each(ONE_KERNEL, least=1),
    "noise_variance": VARIANCE_IN_FILES,
    "prior_mean": finite_numbers.of(per_output),
    "form": choice(*FORMS),
    "tolerance": optional(between(0, 1, open_high=True, host=True)),
    "rank": optional(whole(1)),
    "precision": choice(*PRECISIONS),
    "length_scale": optional(positive_numbers.of(per_axis)),
    "length_scale_range": optional(positive_numbers),
    "fit_to": optional(text | of_class(Path, "the path of a CSV file") | finite_numbers),
}


@dataclasses.dataclass(frozen=True)
class _Labelled(Check):
    allowed: str
    check: Check

    def takes(self, value: Any) -> bool:
        return isinstance(value, Mapping) and all(isinstance(label, str) for label in value)

    def verify(self, name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
        for label, item in value.items():
            self.check(f"{name}[{label!r}]", item)


def labelled(check: Check) -> Check:
    """Return the check for a mapping from labels to what ``check`` allows."""
    return _Labelled(f"a mapping from labels to items, each {check.allowed}", check)


TABLE = of_class(Mapping, "a table of one")


@dataclasses.dataclass(frozen=True)
class Model:
    """The GP model of a grid's learners, built on each problem's points; fields as for :func:`~jaxbandit.surrogate`.

    With a ``length_scale_range`` the models are those of :func:`~jaxbandit.ranged`: all length-scales that a sweep over
    ``"model.length_scale"`` tries are one program.

    Attributes:
      kernel: a kernel or its table, one for all outputs or a list of one for each.
      noise_variance, prior_mean, form, tolerance, rank, precision: as for :func:`~jaxbandit.surrogate`; noise that differs between points
        is a table, which :func:`~jaxbandit.domains.tabulate` makes of a function.
      length_scale: one number or one for each axis, in place of the kernel's; only with a range.
      length_scale_range: the shortest and the longest length-scale, ``[low, high]`` or ``[[low, ...], [high, ...]]`` for each axis.
      fit_to: data that kernel and noise variance are fitted to before round 1, by maximum posterior as for
        :func:`~jaxbandit.surrogate`: rows ``[n, d + 1 + m]`` of a point's ``d`` coordinates, its reward and its constraints; or the path of
        a CSV file of such rows, below a line of names. A file is read at once, and results hold its rows. All trials share the fit;
        :class:`~jaxbandit.Refitted` fits in each trial to what it has seen.
    """

    kernel: Kernel | Table | Sequence[Kernel | Table] = dataclasses.field(default_factory=lambda: {"type": "SquaredExponential"})
    noise_variance: PerOutput | Sequence[Any] = 0.05
    prior_mean: PerOutput = 0.0
    form: str = "auto"
    tolerance: float | None = None
    rank: int | None = None
    precision: str = "auto"
    length_scale: PerAxis | None = None
    length_scale_range: Sequence[Any] | None = None
    fit_to: Any = None

    def validate(self, where: str) -> None:
        """Raise ``InvalidArgument`` on fields of wrong types and out of range; what depends on the problem is checked with it."""
        for name in ("noise_variance", "prior_mean"):
            FIELDS[name](f"{where}.{name}", getattr(self, name))
        checks.one_of(f"{where}.form", self.form, FORMS)
        if self.tolerance is not None:
            checks.scalar(f"{where}.tolerance", self.tolerance)
            checks.within(f"{where}.tolerance", self.tolerance, 0.0, 1.0, open_high=True)
        if self.rank is not None:
            checks.integer(f"{where}.rank", self.rank, least=1)
        self._check_range(where)
        if self.fit_to is not None and self.length_scale is not None:
            raise InvalidArgument(
                f"{where}.length_scale: is fitted, for there is fit_to; leave one of them out, got {short(self.length_scale)}"
            )

    def _check_range(self, where: str) -> None:
        """Raise ``InvalidArgument`` on a range of length-scales that is none, and on what does not go with or without one."""
        if self.length_scale_range is None:
            if self.length_scale is not None:
                raise InvalidArgument(
                    f"{where}.length_scale: needs length_scale_range = [low, high], for which the model is built once (jaxbandit.ranged),"
                    f" got {short(self.length_scale)} without one; or set the length-scale of its kernel"
                )
            return
        if self.form != "auto":
            raise InvalidArgument(f"{where}.form: a model with a length_scale_range has a form of its own; use 'auto', got {self.form!r}")

    def at_middle(self) -> Model:
        """Return the model at the middle of its range, from which those of all length-scales are made; one without is returned as it is."""
        if self.length_scale is None or self.length_scale_range is None:
            return self
        return dataclasses.replace(self, length_scale=np.sqrt(np.prod(np.asarray(self.length_scale_range, np.float64), axis=0)).tolist())

    def __post_init__(self) -> None:
        for name, check in FIELDS.items():
            check(f"model.{name}", getattr(self, name))
        for kernel in self.kernel if isinstance(self.kernel, list | tuple) else [self.kernel]:
            build("kernel", kernel, "model.kernel")
        if self.length_scale_range is not None:
            ends = checks.numbers("model.length_scale_range", self.length_scale_range)
            if ends.shape[:1] != (2,) or not np.all(ends[0] < ends[1]):
                raise InvalidArgument(
                    f"model.length_scale_range: expected [low, high] with low < high, got {short(self.length_scale_range)}"
                )
        if self.fit_to is not None:
            object.__setattr__(self, "fit_to", _rows(self.fit_to))

    @takes(problem=PROBLEM, horizon=optional(whole(1)), where=text)
    def on(self, problem: AbstractProblem, horizon: int, where: str) -> Surrogate:
        """Return the surrogate of all outputs of a problem, with room for ``horizon`` observations."""
        return self.of(problem.domain, problem.outputs, horizon, where)

    @takes(domain=DOMAIN, outputs=whole(1, 1000), horizon=optional(whole(1)), where=text)
    def of(self, domain: Domain, outputs: int, horizon: int, where: str) -> Surrogate:
        """Return the surrogate of ``outputs`` functions on a domain, with room for ``horizon`` observations."""
        kernels: Any = [build("kernel", kernel, f"{where}.kernel") for kernel in self._kernels(outputs)]
        kernels = kernels if isinstance(self.kernel, list | tuple) else kernels[0]  # one for all outputs is fitted to all of them
        rest: dict[str, Any] = {name: getattr(self, name) for name in ("noise_variance", "prior_mean", "rank", "precision")}
        rest |= {"outputs": outputs, "horizon": horizon}
        try:
            if self.fit_to is not None:
                rest["fit_to"] = _points_and_values(self.fit_to, domain.dimension, outputs)
            if self.length_scale_range is None:
                return surrogate(domain, kernels, form=self.form, tolerance=self.tolerance, **rest)
            if self.length_scale is not None:
                own_scale = partial(with_length_scale, length_scale=self.length_scale)
                kernels = [own_scale(kernel) for kernel in kernels] if isinstance(kernels, list) else own_scale(kernels)
            low, high = self.length_scale_range
            own: dict[str, Any] = {} if self.tolerance is None else {"tolerance": self.tolerance}
            return ranged(domain, kernels, low=low, high=high, **own, **rest)
        except InvalidArgument as error:
            raise InvalidArgument(f"{where}: {error}") from error

    def table(self) -> dict[str, Any]:
        """Return the table of a study file; raises ``InvalidArgument`` on a kernel that cannot be written as one."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if getattr(self, f.name) is not None}
        written = [table_of(kernel, "model.kernel") for kernel in self._kernels(1)]
        numbers = {name: np.asarray(value).tolist() for name, value in own.items() if name != "kernel"}
        return {**numbers, "kernel": written if isinstance(self.kernel, list | tuple) else written[0]}

    def _kernels(self, outputs: int) -> Sequence[Any]:
        return self.kernel if isinstance(self.kernel, list | tuple) else [self.kernel] * outputs


def _rows(given: Any) -> np.ndarray:
    """Return the rows ``[n, c]`` that a model is fitted to, given as they are or as the path of a CSV file."""
    if isinstance(given, str | Path):
        try:
            given = rows_of_csv(given)
        except InvalidArgument as error:
            raise InvalidArgument(f"model.fit_to: {error}") from error
    rows = np.asarray(given, np.float64)
    if rows.ndim != 2 or not rows.size:
        raise InvalidArgument(f"model.fit_to: must be rows of numbers, the coordinates of a point and its values, got {short(given)}")
    return rows


def _points_and_values(rows: np.ndarray, dimension: int, outputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Return points ``[n, d]`` and values ``[n, 1 + m]`` of the rows that a model is fitted to."""
    if rows.shape[1] != dimension + outputs:
        raise InvalidArgument(
            f"fit_to: must have {dimension + outputs} columns, {dimension} coordinates of a point and the values of {outputs} outputs,"
            f" got {rows.shape[1]}"
        )
    return rows[:, :dimension], rows[:, dimension:]


class Grid(tuple[Run, ...]):
    """The runs that :func:`grid` made, with the tables that make them again; any other sequence of them has no tables.

    Attributes:
      horizon: rounds that the models were made for.
      problem_tables: by label, what the problems that were given as tables were made from.
    """

    horizon: int
    problem_tables: Mapping[str, Table]
    _write: Callable[[], dict[str, Any]]

    @classmethod
    def of(cls, runs: Iterable[Run], horizon: int, problem_tables: Mapping[str, Table], write: Callable[[], dict[str, Any]]) -> Grid:
        """Return the runs of a grid; ``write`` gives its tables."""
        made = cls(runs)
        made.horizon, made.problem_tables, made._write = horizon, problem_tables, write
        return made

    def table(self) -> dict[str, Any]:
        """Return what a study file says of the runs; raises ``InvalidArgument`` when some part cannot be written as a table."""
        return self._write()


@takes(
    problems=labelled(PROBLEM | TABLE),
    algorithms=labelled(of_class(Algorithm) | TABLE),
    horizon=HORIZON,
    delays=optional(labelled(of_class(Delay) | TABLE)),
    model=of_class(Model, "the models of a grid, Model(...)"),
    sweeps=optional(labelled(of_class(Mapping, "a mapping from fields to values"))),
    zipped=each(text) | of_class(Set, "a set of labels"),
    models=optional(labelled(of_class(Model, "the models of a grid, Model(...)"))),
    feedback=optional(labelled(of_class(Policy) | TABLE)),
    informed=optional(labelled(INFORMED | TABLE)),
    initial=of_class(InitialDesign),
)
def grid(
    *,
    problems: Mapping[str, AbstractProblem | Table],
    algorithms: Mapping[str, Any],
    horizon: int,
    delays: Mapping[str, Delay | Table] | None = None,
    model: Model = Model(),
    sweeps: Mapping[str, Mapping[str, Sequence[Any]]] | None = None,
    zipped: Collection[str] = (),
    models: Mapping[str, Model] | None = None,
    feedback: Mapping[str, Policy | Table] | None = None,
    informed: Mapping[str, Informed | Table] | None = None,
    initial: InitialDesign = InitialDesign(),
) -> Grid:
    """Return the runs of all problems x algorithms x delays x hyper-parameters, as a list that :class:`Study` takes.

    Problems, algorithms, delays and the like are given as objects, or as tables ``{"type": "sine", "points_per_axis": 50}`` of what
    makes them, as in a study file. A study of tables, or of objects that can be written as tables, can be played again from its results
    alone; problems are written only as the tables that they were given as.

    Args:
      problems: problems or families by label. An algorithm that sees constraint functions is given the problem with
        :func:`~jaxbandit.problems.full_information`.
      algorithms: algorithms by label.
      horizon: rounds of the study, ``T``, for which models are made.
      delays: delay models by label; default no delay, whatever the problems' own.
      model: GP model of all learners that have none of their own.
      sweeps: by the label of an algorithm, the values to try of hyper-parameters named by dotted paths
        (``{"rpol": {"estimator.reward_width": [1.0, 2.0], "model.noise_variance": [0.05, 0.1]}}``); every combination is a run.
      zipped: labels of the algorithms whose swept values go together instead, first with first.
      models: own models, by the label of an algorithm.
      feedback: own feedback policies, by the label of an algorithm; default what each algorithm says.
      informed: what learners are told of each instance, by the label of an algorithm.
      initial: points observed before round 1.

    Raises:
      InvalidArgument: on unknown names and fields, static fields that are swept, and parts that do not fit each other.
    """
    delays = {"none": NoDelay()} if delays is None else delays
    own: dict[str, Any] = {"sweeps": sweeps or {}, "zipped": zipped, "models": models or {}}
    own |= {"feedback": feedback or {}, "informed": informed or {}}
    for name, given in (("problems", problems), ("algorithms", algorithms), ("delays", delays)):
        if not given:
            raise InvalidArgument(f"{name}: there is none, got {{}}; give at least one by a label")
    for name, labels in own.items():
        for label in labels:
            checks.one_of(name, label, tuple(algorithms))
    tables = {label: item for label, item in problems.items() if isinstance(item, Mapping)}
    made_problems = {label: build("problem", item, f"problem.{label}") for label, item in problems.items()}
    made_delays = {label: build("delay", item, f"delay.{label}") for label, item in delays.items()}
    model.validate("model")
    for label, given in own["models"].items():
        given.validate(f"algorithm.{label}.model")
    made_models: dict[Any, Surrogate] = {}
    runs = []
    for problem_label, algorithm_label in itertools.product(made_problems, algorithms):
        where = f"algorithm.{algorithm_label}"
        base = build("algorithm", algorithms[algorithm_label], where)
        problem = made_problems[problem_label]
        task = full_information(problem) if base.sees_constraints and not problem.reveals_constraints else problem
        values = combinations(own["sweeps"].get(algorithm_label, {}), zipped=algorithm_label in zipped, where=f"{where}.sweep")
        for delay_label, swept in itertools.product(made_delays, values):
            algorithm, chosen = base, own["models"].get(algorithm_label, model)
            for path, value in swept.items():
                if path.startswith(MODEL):
                    chosen = set_field(chosen, path.removeprefix(MODEL), value, f"{where}.sweep.{path}")
                else:
                    algorithm = set_field(algorithm, path, value, f"{where}.sweep.{path}")
            own_model = algorithm_label in own["models"] or chosen is not model
            where_model = f"{where}.model" if own_model else "model"
            chosen.validate(where_model)
            of = (problem_label, task is problem)
            key, common = ((*of, json.dumps(describe_exactly(item))) for item in (chosen, chosen.at_middle()))
            if common not in made_models:
                made_models[common] = chosen.at_middle().on(task, horizon + initial.count, where_model)
            if key not in made_models:
                made_models[key] = set_field(made_models[common], "length_scale", chosen.length_scale, f"{where_model}.length_scale")
            several = (problem_label if len(problems) > 1 else "", delay_label if len(delays) > 1 else "")
            runs.append(
                Run(
                    label=_label(algorithm_label, swept, *several),
                    problem=task,
                    algorithm=algorithm,
                    model=made_models[key],
                    delay=made_delays[delay_label],
                    feedback=build("feedback", own["feedback"].get(algorithm_label), f"{where}.feedback"),
                    informed=build("informed", own["informed"].get(algorithm_label), f"{where}.informed"),
                    initial=initial,
                    swept=swept,
                    algorithm_label=algorithm_label,
                    problem_label=problem_label,
                    delay_label=delay_label,
                )
            )

    write = partial(grid_table, problems, algorithms, delays, model, initial, own)
    return Grid.of(_distinct(runs), horizon, tables, write)


def grid_table(
    problems: Mapping[str, Any],
    algorithms: Mapping[str, Any],
    delays: Mapping[str, Any],
    model: Model,
    initial: InitialDesign,
    own: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the arguments of :func:`grid` as a study file has them; raises ``InvalidArgument`` on what cannot be written as a table."""
    written = {}
    for label, algorithm in algorithms.items():
        table = dict(table_of(algorithm, f"algorithm.{label}"))
        if label in own["sweeps"]:
            sweep = {path: np.asarray(values).tolist() for path, values in own["sweeps"][label].items()}
            table |= {"sweep": sweep, "zipped": label in own["zipped"]}
        if label in own["models"]:
            table["model"] = own["models"][label].table()
        for kind in ("feedback", "informed"):
            if label in own[kind]:
                table[kind] = table_of(own[kind][label], f"algorithm.{label}.{kind}")
        written[label] = table
    given = {} if initial.indices is None else {"indices": np.asarray(initial.indices).tolist()}
    return {
        "initial": {"random": initial.random, "counted": initial.counted, **given},
        "model": model.table(),
        "problem": {label: table_of(item, f"problem.{label}") for label, item in problems.items()},
        "delay": {label: table_of(item, f"delay.{label}") for label, item in delays.items()},
        "algorithm": written,
    }


def _label(base: str, values: Mapping[str, Any], problem: str, delay: str) -> str:
    """Return the label of a run, without commas, which separate columns: ``rpol reward_width=2 on sine delay poisson``."""
    return " ".join([base, *value_words(values), *([f"on {problem}"] if problem else []), *([f"delay {delay}"] if delay else [])])


def _distinct(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with labels numbered where some are equal, as of values that differ in their last digits only."""
    seen: dict[str, int] = {}
    found = []
    for run in runs:
        seen[run.label] = number = seen.get(run.label, 0) + 1
        found.append(run if number == 1 else dataclasses.replace(run, label=f"{run.label} #{number}"))
    return found
