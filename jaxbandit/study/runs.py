"""Runs of a study, GP models as tables, and grids of runs."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence, Set
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeAlias

import numpy as np

from jaxbandit.algorithms import Algorithm
from jaxbandit.core import checks, fields
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.codec import ObjectTable, as_given, digest, from_plain, from_value, origin_of, stable, to_fields
from jaxbandit.core.declare import PerAxis, PerOutput, check_fields, checked
from jaxbandit.core.fields import AtLeast, Check, Described, Rounds, Words, between, choice, finite_numbers, of_class, whole
from jaxbandit.core.pytree import set_field
from jaxbandit.core.sweep import combinations
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.domains import Domain
from jaxbandit.engine import InitialDesign
from jaxbandit.engine.arguments import Telling
from jaxbandit.engine.informed import Rule
from jaxbandit.feedback import Policy
from jaxbandit.kernels import Kernel
from jaxbandit.problems import AbstractProblem, FullInformation, full_information
from jaxbandit.problems.data import rows_of_csv
from jaxbandit.results.dataset import value_words
from jaxbandit.surrogates import PRECISIONS, Surrogate, ranged, surrogate
from jaxbandit.surrogates.choose import FormName, variance_in_files
from jaxbandit.surrogates.evidence.ranges import with_length_scale

SweptValues: TypeAlias = Annotated[Mapping[str, Sequence[object]], Words("a mapping from fields to values")]


@dataclasses.dataclass(frozen=True)
class Model:
    """The GP model of a grid's learners, built on each problem's points.

    With a ``length_scale_range`` the model is that of :func:`~jaxbandit.ranged`. A sweep over ``"model.length_scale"`` is one program then.

    Attributes:
      kernel: a kernel or its table for all outputs, or a list with a kernel for each output.
      noise_variance, prior_mean, form, tolerance, rank, precision: as for :func:`~jaxbandit.surrogate`. Noise that differs between points
        is a table; :func:`~jaxbandit.domains.tabulate` makes it of a function.
      length_scale: one number, or one for each axis, in place of the kernel's; only with a range.
      length_scale_range: the shortest and the longest length-scale, ``[low, high]`` or ``[[low, ...], [high, ...]]`` for each axis.
      fit_to: data to fit kernel and noise variance to before round 1, by maximum posterior as for :func:`~jaxbandit.surrogate`: rows
        ``[n, d + 1 + m]`` of a point's ``d`` coordinates, its reward and its constraints, or the path of a CSV file of such rows below a
        line of names. The model reads a file at once, and results store its rows. All trials share the fit, whereas
        :class:`~jaxbandit.Refitted` fits each trial to its own values.
    """

    kernel: Kernel | ObjectTable | Annotated[Sequence[Kernel | ObjectTable], AtLeast(1)] = dataclasses.field(
        default_factory=lambda: {"type": "SquaredExponential"}
    )
    noise_variance: Annotated[PerOutput | Sequence[Any], variance_in_files] = 0.05
    prior_mean: Annotated[PerOutput, finite_numbers] = 0.0
    form: FormName = "auto"
    tolerance: Annotated[float, between(0, 1, open_high=True, host=True)] | None = None
    rank: Annotated[int, whole(1)] | None = None
    precision: Annotated[str, choice(*PRECISIONS)] = "auto"
    length_scale: Annotated[PerAxis, fields.positive_numbers] | None = None
    length_scale_range: Annotated[tuple[PerAxis, PerAxis], fields.positive_numbers] | None = None
    fit_to: Annotated[object, fields.text | of_class(Path, "the path of a CSV file") | finite_numbers] | None = None

    def __post_init__(self) -> None:
        check_fields(self, "model")
        several = self.kernel if isinstance(self.kernel, list | tuple) else [self.kernel]
        kernels = tuple(from_plain(Kernel, kernel, "model.kernel") for kernel in several)
        object.__setattr__(self, "kernel", kernels if several is self.kernel else kernels[0])
        if self.length_scale_range is not None:
            ends = checks.numbers("model.length_scale_range", self.length_scale_range)
            if ends.shape[:1] != (2,) or not np.all(ends[0] < ends[1]):
                raise InvalidArgument(
                    f"model.length_scale_range: expected [low, high] with low < high, got {short(self.length_scale_range)}"
                )
        if self.fit_to is not None:
            with checks.naming("model.fit_to"):
                rows = np.asarray(rows_of_csv(self.fit_to) if isinstance(self.fit_to, str | Path) else self.fit_to, np.float64)
            if rows.ndim != 2 or not rows.size:
                words = "rows of numbers, the coordinates of a point and its values"
                raise InvalidArgument(f"model.fit_to: must be {words}, got {short(self.fit_to)}")
            object.__setattr__(self, "fit_to", rows)

    @staticmethod
    def behind(built: Model | Surrogate) -> Model:
        """Return the model of an unchanged surrogate, or raise ``InvalidArgument``."""
        if isinstance(built, Model):
            return built
        asked = origin_of(built)
        if asked is None:
            raise InvalidArgument("model: a surrogate that was changed since it was built cannot be written as a table")
        data = asked["fit_to"]
        return Model(**{**asked, "fit_to": None if data is None else np.column_stack([np.asarray(array, np.float64) for array in data])})

    @property
    def on_boxes(self) -> bool:
        """True if boxes can have the model: exact or features, without range."""
        is_exact = (self.form, self.rank, self.tolerance) == ("auto", None, None)
        return self.length_scale_range is None and (is_exact or self.form == "features")

    def validate(self, where: str) -> None:
        """Raise ``InvalidArgument`` on fields that exclude each other on any problem."""
        if self.length_scale_range is None and self.length_scale is not None:
            raise InvalidArgument(
                f"{where}.length_scale: needs length_scale_range = [low, high], for which the model is built once,"
                f" got {short(self.length_scale)} without one; or set the length-scale of its kernel"
            )
        if self.length_scale_range is not None and self.form != "auto":
            raise InvalidArgument(f"{where}.form: a model with a length_scale_range has a form of its own; use 'auto', got {self.form!r}")
        if self.fit_to is not None and self.length_scale is not None:
            raise InvalidArgument(
                f"{where}.length_scale: is fitted, for there is fit_to; leave one of them out, got {short(self.length_scale)}"
            )

    def at_middle(self) -> Model:
        """Return the model at the middle of its range, if any."""
        if self.length_scale is None or self.length_scale_range is None:
            return self
        return dataclasses.replace(self, length_scale=np.sqrt(np.prod(np.asarray(self.length_scale_range, np.float64), axis=0)).tolist())

    @checked
    def of(
        self, domain: Domain, outputs: Annotated[int, whole(1, 1000)], horizon: Annotated[int, whole(1)] | None, where: str
    ) -> Surrogate:
        """Return the surrogate of ``outputs`` functions for ``horizon`` observations."""
        # A list is fitted output by output, a single kernel to all outputs together.
        kernels: Any = list(self.kernel) if isinstance(self.kernel, tuple) else self.kernel
        rest = {name: getattr(self, name) for name in ("noise_variance", "prior_mean", "rank", "precision", "tolerance")}
        rest |= {"outputs": outputs, "horizon": horizon}
        with checks.naming(where):
            if self.fit_to is not None:
                rows, d = np.asarray(self.fit_to), domain.dimension
                if rows.shape[1] != d + outputs:
                    raise InvalidArgument(
                        f"fit_to: must have {d + outputs} columns, {d} coordinates of a point and the values of {outputs} outputs,"
                        f" got {rows.shape[1]}"
                    )
                rest["fit_to"] = rows[:, :d], rows[:, d:]
            if self.length_scale_range is None:
                return surrogate(domain, kernels, form=self.form, **rest)
            if self.length_scale is not None:
                own_scale = partial(with_length_scale, length_scale=self.length_scale)
                kernels = [own_scale(kernel) for kernel in kernels] if isinstance(kernels, list) else own_scale(kernels)
            return ranged(domain, kernels, low=self.length_scale_range[0], high=self.length_scale_range[1], **rest)

    def table(self) -> Mapping[str, object]:
        """Return the table of a study file, or raise ``InvalidArgument``."""
        table = to_fields(self, "model")
        return {name: table[name] for name in sorted(table, key="kernel".__eq__)}


GridModel: TypeAlias = Annotated[
    Model | Surrogate, Check("the models of a grid, Model(...)", lambda value: isinstance(value, Model | Surrogate))
]
Facts: TypeAlias = Telling | None


@dataclasses.dataclass(frozen=True, repr=False)
class Run(Described):
    """One algorithm on one problem, a row of the results.

    Attributes:
      label: name of the run in tables and figures; distinct within a study.
      problem: problem or random family.
      algorithm: algorithm of the learner.
      model: GP model of the learner, built on the problem's points.
      delay: delay of feedback, a model of :mod:`jaxbandit.delays`; ``None`` for the problem's own.
      feedback: policy of :mod:`jaxbandit.feedback` for the time until values arrive; ``None`` for the algorithm's own.
      informed: facts of each instance for the learner, as for :func:`~jaxbandit.simulate`.
      initial: points observed before round 1. The metrics of all runs of a study count the same number of them.
      swept: values of swept hyper-parameters, by their dotted paths.
      algorithm_label: name of the algorithm in results, without its swept values; ``None`` for ``label``.
      problem_label: name of the problem in results; ``None`` for the problem's own name, numbered if different problems share it.
      delay_label: name of the delay in results; ``None`` for its model in words, empty without delay.
      trace_name: name of the algorithm in audit traces, such as ``"cbo_ucb"``; ``None`` for the algorithm's own name.
      origin: how a grid made the run; ``None`` for a run written by hand.
    """

    described: ClassVar[str] = "a Run"
    label: str
    problem: AbstractProblem
    algorithm: Algorithm
    model: Surrogate
    delay: Delay | None = None
    feedback: Policy | None = None
    informed: Telling | None = None
    initial: InitialDesign = InitialDesign()
    swept: Annotated[Mapping[str, object], Words("a mapping from fields to values")] = dataclasses.field(default_factory=dict)
    algorithm_label: str | None = None
    problem_label: str | None = None
    delay_label: str | None = None
    trace_name: str | None = None
    origin: Origin | None = dataclasses.field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_fields(self, "Run")
        for name in ("algorithm_label", "problem_label", "delay_label", "trace_name"):
            if getattr(self, name) is not None:
                check_label(f"Run.{name}", getattr(self, name), empty=True)
        check_label("Run.label", self.label)

    def __repr__(self) -> str:
        return f"Run({self.label!r}: {self.algorithm!r} on {self.problem.name})"

    @property
    def delay_in_force(self) -> Delay:
        """Delay model of the run, by default the problem's."""
        return self.problem.delay if self.delay is None else self.delay

    @property
    def policy_in_force(self) -> Policy:
        """Feedback policy of the run, by default the algorithm's."""
        return self.algorithm.traits.feedback if self.feedback is None else self.feedback

    @property
    def name_in_traces(self) -> str:
        """Name of the algorithm in audit traces."""
        return self.algorithm.label if self.trace_name is None else self.trace_name


def check_label(name: str, value: object, *, empty: bool = False) -> None:
    """Raise ``InvalidArgument`` unless files and terminals can show a label."""
    if not isinstance(value, str) or not (value.strip() or empty):
        raise InvalidArgument(f"{name}: expected text{'' if empty else ' that is not empty'}, got {short(value)}")
    if len(value) > 1000:
        raise InvalidArgument(f"{name}: at most 1000 characters are allowed, got {len(value)}: {short(value)}")
    if any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 or 0xD800 <= ord(letter) < 0xE000 for letter in value):
        raise InvalidArgument(
            f"{name}: control characters, such as line ends and NUL, and halves of surrogate pairs are not allowed, got {short(value)}"
        )


@dataclasses.dataclass(frozen=True)
class LearnerParts:
    """An algorithm of a grid with its own arguments of :func:`grid`."""

    algorithm: Algorithm
    sweep: Mapping[str, Sequence[object]] | None = None
    zipped: bool = False
    model: Model | None = None
    feedback: Policy | None = None
    informed: Facts = None

    @staticmethod
    def of(label: str, algorithm: object, held: Mapping[str, Any]) -> LearnerParts:
        """Return the learner of an algorithm and further fields, objects or tables."""
        where, roles = f"algorithm.{label}", {"feedback": Policy, "informed": Rule}
        made = {name: from_plain(roles[name], item, f"{where}.{name}") if name in roles else item for name, item in held.items()}
        return LearnerParts(from_plain(Algorithm, algorithm, where), **made)

    def table(self, where: str) -> Mapping[str, object]:
        """Return the table of a study file, or raise ``InvalidArgument``."""
        held = {"feedback": self.feedback, "informed": self.informed}
        table = {**as_given(self.algorithm, where), **{name: as_given(item, f"{where}.{name}") for name, item in held.items() if item}}
        if self.sweep is not None:
            table |= {"sweep": as_given({path: list(values) for path, values in self.sweep.items()}, where), "zipped": self.zipped}
        return table if self.model is None else {**table, "model": self.model.table()}

    def changed(self, sweep: Mapping[str, object], model: Model, where: str) -> tuple[Algorithm, Model]:
        """Return algorithm and model with swept values, or raise ``InvalidArgument``."""
        algorithm = self.algorithm
        for path, value in sweep.items():
            place = f"{where}.sweep.{path}"
            if path.startswith("model."):
                model = set_field(model, path.removeprefix("model."), value, place)
            else:
                algorithm = set_field(algorithm, path, value, place)
        return algorithm, model


@dataclasses.dataclass(frozen=True)
class Row:
    """One run of a study file, by labels and swept values."""

    label: str
    problem: str
    algorithm: str
    delay: str
    sweep: ObjectTable = dataclasses.field(default_factory=dict)
    trace_name: str | None = None


@dataclasses.dataclass(frozen=True)
class Origin:
    """Ingredients of a run in a grid, with the resulting fields ``made``."""

    learner: LearnerParts
    model: Model
    horizon: int
    made: Mapping[str, object]
    of_problem: Model | None = None

    @staticmethod
    def of(run: Run, horizon: int) -> Origin:
        """Return the run's unchanged origin, or that of an equal grid."""
        origin = run.origin
        if origin is not None and all(getattr(run, name) is value for name, value in origin.made.items()):
            return origin
        learner, model = LearnerParts(run.algorithm, feedback=run.feedback, informed=run.informed), Model.behind(run.model)
        learner.changed(run.swept, model, f"run {run.label!r}")
        return Origin(learner, model, horizon, {})


@checked
def grid(
    *,
    problems: Mapping[str, AbstractProblem | ObjectTable],
    algorithms: Mapping[str, Algorithm | ObjectTable],
    horizon: Rounds,
    delays: Mapping[str, Delay | ObjectTable] | None = None,
    model: GridModel = Model(),
    sweeps: Mapping[str, SweptValues] | None = None,
    zipped: Sequence[str] | Annotated[Set[str], Words("a set of labels")] = (),
    models: Mapping[str, GridModel] | None = None,
    feedback: Mapping[str, Policy | ObjectTable] | None = None,
    informed: Mapping[str, Facts | ObjectTable] | None = None,
    initial: InitialDesign = InitialDesign(),
) -> list[Run]:
    """Return the runs of all problems x algorithms x delays x hyper-parameters.

    Problems, algorithms, delays and other parts are objects, or tables such as ``{"type": "sine", "points_per_axis": 50}`` of study files.
    Join lists of several grids, and of runs written by hand, by ``[*one, *other]`` for a :class:`Study`.

    Args:
      problems: problems or families by label. Runs of an algorithm that sees constraint functions wrap the problem by
        :func:`~jaxbandit.problems.full_information`.
      algorithms: algorithms by label.
      horizon: rounds of the study, ``T``. Models have room for them.
      delays: delay models by label; default no delay, whatever the problems' own.
      model: GP model of all learners and problems without a model of their own. A :func:`~jaxbandit.surrogate`, such as
        ``problem.model()``, stands for its arguments.
      sweeps: by the label of an algorithm, the values to try of hyper-parameters named by dotted paths
        (``{"rpol": {"estimator.reward_width": [1.0, 2.0], "model.noise_variance": [0.05, 0.1]}}``). Every combination is a run.
      zipped: labels of the algorithms whose swept values vary together instead, first with first.
      models: own models, by the label of a problem or of an algorithm. The algorithm's model precedes the problem's.
      feedback: own feedback policies, by the label of an algorithm; default each algorithm's own.
      informed: facts of each instance for learners, by the label of an algorithm.
      initial: points observed before round 1.

    Raises:
      InvalidArgument: on unknown names and fields, static fields that are swept, and parts that do not fit each other.
    """
    own = {"sweep": sweeps, "model": models, "feedback": feedback, "informed": informed}
    for name, labels in {"sweeps": sweeps, "zipped": zipped, "models": models, "feedback": feedback, "informed": informed}.items():
        for label in labels or ():
            checks.one_of(name, label, (*algorithms, *(problems if name == "models" else ())))
    if both := algorithms.keys() & problems.keys() & (models or {}).keys():
        raise InvalidArgument(f"models: {short(min(both))} is a problem and an algorithm; call one of them by another label")
    built = {label: Model.behind(item) for label, item in (models or {}).items()}
    own["model"] = {label: item for label, item in built.items() if label in algorithms}
    learners = {
        label: LearnerParts.of(label, item, {"zipped": label in zipped, **{name: (items or {}).get(label) for name, items in own.items()}})
        for label, item in algorithms.items()
    }
    of_problems = {label: item for label, item in built.items() if label in problems}
    late = {"none": NoDelay()} if delays is None else delays
    return grid_runs(problems, late, learners, Model.behind(model), initial, horizon, models=of_problems)


def grid_rows(problems: Sequence[str], learners: Mapping[str, LearnerParts], delays: Sequence[str]) -> list[Row]:
    """Return every combination, with labels ``rpol reward_width=2 on sine delay poisson``."""
    # Labels have no commas, because commas separate columns.
    rows, seen = [], dict[str, int]()
    for problem, (name, learner) in itertools.product(problems, learners.items()):
        values = combinations(learner.sweep or {}, zipped=learner.zipped, where=f"algorithm.{name}.sweep")
        for delay, swept in itertools.product(delays, values):
            words = [name, *value_words(swept)]
            words += [f"on {problem}"] if len(problems) > 1 and problem else []
            words += [f"delay {delay}"] if len(delays) > 1 and delay else []
            label = " ".join(words)
            # Values that differ in their last digits have the same words.
            seen[label] = number = seen.get(label, 0) + 1
            rows.append(Row(label if number == 1 else f"{label} #{number}", problem, name, delay, swept))
    return rows


def grid_runs(
    given_problems: Mapping[str, AbstractProblem | ObjectTable],
    given_delays: Mapping[str, Delay | ObjectTable],
    learners: Mapping[str, LearnerParts],
    common_model: Model,
    initial: InitialDesign,
    horizon: int,
    rows: Sequence[Row] | None = None,
    models: Mapping[str, Model] | None = None,
) -> list[Run]:
    """Return the runs of a grid, or of ``rows``, sharing equal models."""
    for name, items in {"problem": given_problems, "algorithm": learners, "delay": given_delays}.items():
        if not items:
            raise InvalidArgument(f"{name}s: there is none, got {{}}; give at least one by a label")
        for row in rows or ():
            checks.one_of(f"run.{name}", getattr(row, name), tuple(items))
    problems = {label: from_plain(AbstractProblem, item, f"problem.{label}") for label, item in given_problems.items()}
    delays = {label: from_plain(Delay, item, f"delay.{label}") for label, item in given_delays.items()}
    common_model.validate("model")
    revealed: dict[str, AbstractProblem] = {}
    surrogates: dict[tuple[str, bool, str], Surrogate] = {}
    runs = []
    for row in grid_rows(list(problems), learners, list(delays)) if rows is None else rows:
        where, learner, problem = f"algorithm.{row.algorithm}", learners[row.algorithm], problems[row.problem]
        swept = {path: from_value(value, f"{where}.sweep.{path}") for path, value in row.sweep.items()}
        own = (models or {}).get(row.problem)
        algorithm, model = learner.changed(swept, learner.model or own or common_model, where)
        if algorithm.traits.sees_constraints and not problem.reveals_constraints:
            problem = revealed.setdefault(row.problem, full_information(problem))
        where = "model" if model is common_model else f"problem.{row.problem}.model" if model is own else f"{where}.model"
        model.validate(where)
        of = (row.problem, problem is problems[row.problem])
        key, common = ((*of, digest(stable(each))) for each in (model, model.at_middle()))
        if common not in surrogates:
            surrogates[common] = model.at_middle().of(problem.domain, problem.outputs, horizon + initial.count, where)
        if key not in surrogates:
            surrogates[key] = set_field(surrogates[common], "length_scale", model.length_scale, f"{where}.length_scale")
        made: dict[str, Any] = {
            "problem": problem,
            "algorithm": algorithm,
            "model": surrogates[key],
            "delay": delays[row.delay],
            "feedback": learner.feedback,
            "informed": learner.informed,
            "initial": initial,
            "swept": swept,
        }
        labels: dict[str, Any] = {"algorithm_label": row.algorithm, "problem_label": row.problem, "delay_label": row.delay}
        origin = Origin(learner, common_model, horizon, made, own)
        runs.append(Run(row.label, **made, **labels, trace_name=row.trace_name, origin=origin))
    return runs


def named_by_files(problem: AbstractProblem) -> AbstractProblem:
    """Return the problem of a study file, without ``full_information``."""
    return problem.problem if isinstance(problem, FullInformation) else problem


def runs_table(runs: Sequence[Run], horizon: int) -> dict[str, object]:
    """Return labelled runs as tables, one by one unless a grid."""
    sections: dict[str, dict[str, Mapping[str, Any]]] = {"problem": {}, "delay": {}, "algorithm": {}}
    learners: dict[str, LearnerParts] = {}
    origins = [Origin.of(run, horizon) for run in runs]
    models = {id(origin.model): origin.model.table() for origin in origins}
    model, initial = models[id(origins[0].model)], to_fields(runs[0].initial, "initial")
    rows = []
    for run, origin in zip(runs, origins, strict=True):
        if origin.horizon != horizon:
            raise InvalidArgument(f"runs: the grid was made for {origin.horizon} rounds, not for {horizon}")
        row = Row(run.label, str(run.problem_label), str(run.algorithm_label), str(run.delay_label), run.swept, run.trace_name)
        rows.append(row)
        learners.setdefault(row.algorithm, origin.learner)
        held: dict[str, Any] = {"problem": named_by_files(run.problem), "delay": run.delay_in_force}
        tables = {kind: as_given(item, f"{kind}.{getattr(row, kind)}") for kind, item in held.items()}
        if origin.of_problem is not None:
            tables["problem"] = {**tables["problem"], "model": origin.of_problem.table()}
        tables["algorithm"] = origin.learner.table(f"algorithm.{row.algorithm}")
        if origin.learner.model is None and models[id(origin.model)] != model:
            tables["algorithm"] = {**tables["algorithm"], "model": models[id(origin.model)]}
        for kind, table in tables.items():
            if sections[kind].setdefault(getattr(row, kind), table) != table:
                label = getattr(row, kind)
                raise InvalidArgument(f"runs: {kind} {label!r} is not the same in all of them; give each a {kind}_label of its own")
    if any(to_fields(run.initial, "initial") != initial for run in runs):
        raise InvalidArgument("runs: a table has one initial design for all of them, and they have several")
    learners = {label: dataclasses.replace(item, sweep=sections["algorithm"][label].get("sweep")) for label, item in learners.items()}
    every = grid_rows(list(sections["problem"]), learners, list(sections["delay"]))
    written, combined = ([to_fields(row, "run") for row in each] for each in (rows, every))
    return {"initial": initial, "model": model, **sections} | ({"run": written} if written != combined else {})
