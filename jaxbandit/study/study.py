"""Studies: runs in the same trials, and their tables."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Concatenate, Literal

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import codec
from jaxbandit.core.checks import InvalidArgument, check_known, did_you_mean, integer, naming, short
from jaxbandit.core.codec import ObjectTable, Plain, as_given, check_table, digest, few_words, from_fields, stable, to_fields
from jaxbandit.core.declare import Array, Device, FilePath, Key, P, T, check_fields, checked, parameters
from jaxbandit.core.doors import setting
from jaxbandit.core.fields import INT32_MAX, MOST_ROUNDS, Check, Described, Rounds, boolean, check_seed, of_class, whole
from jaxbandit.core.keys import Stream, stream_key, trial_key
from jaxbandit.core.pytree import canonicalise, float_dtype, replace
from jaxbandit.core.sweep import Sweep
from jaxbandit.core.text import html_table
from jaxbandit.delays import NoDelay
from jaxbandit.domains import Box
from jaxbandit.engine import InitialDesign, Trajectory, simulate
from jaxbandit.engine.cell import Cell, least_refresh
from jaxbandit.host.files import toml_table
from jaxbandit.problems import AbstractProblem
from jaxbandit.results.dataset import METRICS
from jaxbandit.study.runs import LearnerParts, Model, Row, Run, check_label, grid_runs, named_by_files, runs_table
from jaxbandit.surrogates import RangedSurrogate, Surrogate, arithmetic

# Files have these fields in this order.
PLAIN = ("name", "trials", "horizon", "seed", "trajectories", "common_random_numbers", "fused")
OWN = (*PLAIN, "parameters", "metrics")


@dataclasses.dataclass(frozen=True)
class Keep(Described):
    """Rounds in the results: every ``every``-th, or ``log_spaced`` rounds.

    Logarithms of ``log_spaced`` rounds are evenly spaced. The results always have the last round. By default they have every round of up to
    1,000, and of longer runs every n-th round, at most 1,001 in all.
    """

    described: ClassVar[str] = "a Keep, such as Keep(every=10)"
    every: Annotated[int, whole(1)] | None = None
    log_spaced: Annotated[int, whole(1)] | None = None

    def __post_init__(self) -> None:
        check_fields(self, "keep")
        if self.every is not None and self.log_spaced is not None:
            raise InvalidArgument(
                f"keep: give every or log_spaced, not both; got {setting('every', self.every)} and {setting('log_spaced', self.log_spaced)}"
            )

    @checked
    def rounds(self, horizon: Annotated[int, whole(1, MOST_ROUNDS)]) -> np.ndarray:
        """Return the rounds in the results, in order, counted from 1."""
        if self.log_spaced is not None:
            kept = np.round(np.geomspace(1, horizon, min(self.log_spaced, horizon))).astype(np.int64)
        else:
            every = -(-horizon // 1000) if self.every is None else min(self.every, horizon)
            kept = np.arange(every, horizon + 1, every)
        return np.unique(np.append(kept, horizon))


@contextlib.contextmanager
def arithmetic_of(study: Study) -> Iterator[None]:
    """Run the block in float64 if a model needs it.

    All runs of a study have one precision, because they share random numbers, and draws differ between float32 and float64.
    """
    with arithmetic(run.model.precision for run in study.runs if isinstance(run, Run) and isinstance(run.model, Surrogate)):
        yield


def in_its_arithmetic(function: Callable[Concatenate[Study, P], T]) -> Callable[Concatenate[Study, P], T]:
    """Return the function of a study within its arithmetic."""

    @functools.wraps(function)
    def with_study(study: Study, *args: P.args, **kwargs: P.kwargs) -> T:
        with arithmetic_of(study):
            return function(study, *args, **kwargs)

    return with_study


def _by(test: Callable[[str, Any], object]) -> Check:
    """Return a check that calls ``test`` with a field's name and value."""
    return Check("", lambda value: True, lambda name, value, place: test(name, value))


def _check_metrics(field: str, names: object) -> None:
    """Raise ``InvalidArgument`` unless names are distinct metrics, at least one."""
    known = f"known are {', '.join(METRICS)}"
    if not isinstance(names, list | tuple):
        raise InvalidArgument(f"metrics: expected a list of names, got {short(names)}; {known}")
    for number, name in enumerate(names):
        if name not in METRICS:
            raise InvalidArgument(f"metrics: there is no {short(name)}{did_you_mean(str(name), METRICS)}; {known}")
        if name in names[:number]:
            raise InvalidArgument(f"metrics: {name!r} stands twice")
    if not names:
        raise InvalidArgument(f"metrics: there is none; {known}")


def _check_parameters(name: str, values: Any) -> None:
    """Raise ``InvalidArgument`` unless parameters are ``None`` or JSON values."""
    words = "a table of plain values, as JSON has them"
    if values is not None:
        of_class(Mapping, words)("parameters", values)
        try:
            json.dumps(dict(values))
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidArgument(f"parameters: expected {words}, got {short(values)}: {error}") from error


@dataclasses.dataclass(frozen=True, repr=False)
class Study(Described):
    """Runs to compare, all with the same numbers of trials and rounds.

    ``runs`` is a list written by hand, or the product of axes by :func:`~jaxbandit.study.grid`::

        Study("widths", runs=[Run("narrow", problem, Rpol(), model), Run("CONFIG", problem, Config(), model)], trials=100)
        Study("widths", runs=grid(problems={"sine": problem}, algorithms={"rpol": Rpol(), "config": Config()}, horizon=1000))

    Attributes:
      name: name of the study.
      runs: runs in the order of the results.
      trials: number of trials of every run.
      horizon: rounds of every trial, ``T``.
      seed: seed of all random numbers.
      metrics: names of :class:`~jaxbandit.metrics.Curves`; ``"strong_regret"`` solves a linear programme for each instance.
      keep: rounds of the metrics in the results, see :class:`Keep`.
      trajectories: whether the results have points, values and arrivals of every round, too.
      common_random_numbers: whether all runs see the same noise, delays and instances in trials of the same number.
      fused: whether kernels run the rounds, as for :func:`~jaxbandit.simulate`; ``True`` leaves runs without a kernel to XLA.
      parameters: further parameters of the study in its results, as JSON values; ``None`` for whether random numbers are common.
    """

    described: ClassVar[str] = "a Study"
    name: Annotated[str, _by(check_label)]
    runs: Sequence[Run]
    trials: Annotated[int, _by(partial(integer, least=1, most=INT32_MAX))] = 100
    horizon: Rounds = 1000
    seed: Annotated[int, _by(check_seed)] = 0
    metrics: Annotated[tuple[str, ...], _by(_check_metrics)] = tuple(
        name for name in METRICS if name not in ("reward", "best_feasible_value", "strong_regret")
    )
    keep: Keep = Keep()
    trajectories: bool = False
    common_random_numbers: bool = True
    fused: Literal["auto", True, False] = "auto"
    parameters: Annotated[ObjectTable | None, _by(_check_parameters)] = None

    def __post_init__(self) -> None:
        for name in ("runs", "metrics"):
            if isinstance(getattr(self, name), list):
                object.__setattr__(self, name, tuple(getattr(self, name)))
        self.validate()

    def __repr__(self) -> str:
        runs = f"{len(self.runs)} run{'s' * (len(self.runs) > 1)}"
        return f"Study({self.name!r}: {runs} x {self.trials} trials x {self.horizon} rounds, seed {self.seed})"

    def _repr_html_(self) -> str:
        """Return a table of the runs, for notebooks."""
        rows = [[run.label, repr(run.algorithm), str(run.problem_label), run.delay_label or "none"] for run in self.named_runs()]
        return html_table(["run", "algorithm", "problem", "delay"], rows, caption=repr(self))

    def keeping_everything(self) -> Study:
        """Return the study with all metrics in every round, and trajectories."""
        tables = not any(isinstance(run.problem.domain, Box) for run in self.runs)
        metrics = tuple(name for name in METRICS if tables or name != "strong_regret")
        return dataclasses.replace(self, metrics=metrics, keep=Keep(every=1), trajectories=True)

    @property
    def recorded(self) -> ObjectTable:
        """Parameters of the study in its results, as JSON values."""
        return {"common_random_numbers": self.common_random_numbers} if self.parameters is None else self.parameters

    @property
    @in_its_arithmetic
    def precision(self) -> str:
        """Floating type of all runs, ``"float64"`` if a model needs it."""
        return str(float_dtype())

    def validate(self) -> None:
        """Raise ``InvalidArgument`` unless all fields are valid and labels distinct."""
        check_fields(self)
        labels = [run.label for run in self.runs]
        if not labels or len(set(labels)) < len(labels):
            raise InvalidArgument(f"runs: give at least one, with distinct labels, got {short(labels)}")

    def named_runs(self) -> tuple[Run, ...]:
        """Return the runs with all labels, and one object for equal problems."""
        problems = _by_label(
            [run.problem for run in self.runs], [run.problem_label for run in self.runs], lambda problem: str(problem.name)
        )
        delays = [run.delay_in_force for run in self.runs]
        late = _by_label(
            delays, [run.delay_label for run in self.runs], lambda delay: "" if isinstance(delay, NoDelay) else few_words(delay)
        )
        return tuple(
            dataclasses.replace(
                run,
                problem=problem,
                algorithm_label=run.label if run.algorithm_label is None else run.algorithm_label,
                problem_label=problem_label,
                delay_label=delay_label,
            )
            for run, (problem_label, problem), (delay_label, _) in zip(self.runs, problems, late, strict=True)
        )

    def fingerprint(self) -> str:
        """Return a hash of everything that results depend on.

        It is equal on every machine. Therefore problems count by name and arguments if possible, and models by their ingredients, because
        the last bits of their values depend on the machine.
        """
        runs = self.named_runs()
        problems = {key: _counted_problem(problem) for key, problem in {id(run.problem): run.problem for run in runs}.items()}
        models = {key: _counted_model(model) for key, model in {id(run.model): run.model for run in runs}.items()}
        plain = [field.name for field in dataclasses.fields(Run) if field.name not in ("problem", "model", "delay", "feedback", "origin")]
        counted = [
            {name: stable(getattr(run, name)) for name in plain}
            | {"problem": problems[id(run.problem)], "model": models[id(run.model)]}
            | {"delay": stable(run.delay_in_force), "feedback": stable(run.policy_in_force)}
            for run in runs
        ]
        own = {f.name: stable(getattr(self, f.name)) for f in dataclasses.fields(self) if f.name != "runs"}
        return digest({**own, "runs": counted})

    def table(self) -> dict[str, object]:
        """Return the study as a table, or raise ``InvalidArgument`` if none exists."""
        runs = runs_table(self.named_runs(), self.horizon)
        plain = {name: getattr(self, name) for name in PLAIN}
        recorded = {} if self.parameters is None else {"parameters": dict(self.parameters)}
        return {**plain, "metrics": list(self.metrics), "keep": to_fields(self.keep, "keep"), **recorded, **runs}

    @checked
    @in_its_arithmetic
    def trajectory(
        self, run: Run, *, trials: int | Sequence[int] | None = None, record: str = "all", algorithm: Sweep | None = None
    ) -> Trajectory:
        """Run all trials or ``trials`` of one run and return their record.

        The sweep ``algorithm`` replaces the run's algorithm.
        """
        return simulate(
            run.problem,
            run.algorithm if algorithm is None else algorithm,
            run.model,
            horizon=self.horizon,
            key=jax.random.key(self.seed),
            trials=self.trials if trials is None else trials,
            record=record,
            initial=run.initial,
            informed=run.informed,
            delay=run.delay_in_force,
            feedback=run.policy_in_force,
            fused=cell_of(self, run, check=False, **common_needs(self, run)).kernel is not None,
        )

    @checked
    @in_its_arithmetic
    def describe_choices(self, run: Run) -> str:
        """Return a run's kernel in words, or the reason for XLA."""
        cell = cell_of(self, run, check=False, **common_needs(self, run))
        return cell.kernel.in_words if cell.kernel else f"by XLA, {cell.by_xla}"

    @checked
    @in_its_arithmetic
    def instance(self, problem: AbstractProblem, trial: Annotated[int, whole(0)]) -> AbstractProblem:
        """Return the instance of a problem or random family in a trial."""
        return canonicalise(problem).sample(stream_key(trial_key(jax.random.key(self.seed), trial), Stream.PROBLEM))

    @checked
    @in_its_arithmetic
    def instances(self, problem: AbstractProblem) -> AbstractProblem:
        """Return a family's instances ``[trials, ...]``, or a fixed problem itself."""
        problem = canonicalise(problem)
        return sampled(problem, jax.random.key(self.seed), jnp.arange(self.trials)) if problem.is_random else problem


def common_needs(study: Study, *besides: Run) -> dict[str, int]:
    """Return the room and refresh period for all models, with runs ``besides``."""
    runs = (*besides, *study.runs)
    room = study.horizon + max(run.initial.count for run in runs)
    return {"room": room, "refresh": least_refresh([run.model for run in runs], study.horizon)}


def cell_of(study: Study, run: Run, device: Device | None = None, **how: Any) -> Cell:
    """Return a run's cell on a device, by default the first."""
    variants = [(run.algorithm, run.model, run.delay_in_force)]
    how |= {"feedback": run.policy_in_force, "informed": run.informed, "common": study.common_random_numbers}
    cell = Cell.ready(run.problem, variants, run.initial, horizon=study.horizon, **how)
    return cell.on(device or jax.devices()[0], study.fused, len(study.runs) * study.trials * study.horizon)


@jax.jit
def sampled(problem: AbstractProblem, root: Key, trials: Array) -> AbstractProblem:
    """Return the instances ``[n, ...]`` of a random family in ``trials [n]``."""
    return jax.vmap(lambda i: problem.sample(stream_key(trial_key(root, i), Stream.PROBLEM)))(trials)


def _counted_problem(problem: AbstractProblem) -> Plain:
    """Return a problem's name and arguments, or its contents, for the fingerprint."""
    named = named_by_files(problem)
    table = codec.origin_of(named)
    if table is not None and codec.says_all(table):
        # The contents stand for a problem with arguments that a table cannot hold.
        with contextlib.suppress(InvalidArgument):
            return [type(problem).__name__, stable(as_given(named))]
    return stable(problem)


def _counted_model(model: Surrogate) -> Plain:
    """Return a model's ingredients for the fingerprint."""
    if not model.kernels:
        return stable(model)
    names = ["kernels", "noise_variance", "prior_mean", "groups", "domain"]
    names += ["length_scale", "variance", "low", "high"] if isinstance(model, RangedSurrogate) else []
    made_from = {name: stable(getattr(model, name)) for name in names}
    if isinstance(box := model.domain, Box):
        made_from["domain"] = stable(replace(box, points=np.round(box.to_unit(np.asarray(box.points, np.float64)), 6)))
    return {"class": "Surrogate", **made_from, "forms": [[form.name, form.rank] for form in model.forms]}


def _by_label(items: Sequence[T], labels: Sequence[str | None], words: Callable[[T], str]) -> list[tuple[str, T]]:
    """Return a label and an item for each of ``items``.

    The default label is the item's words, numbered if different items have the same words. The first equal item replaces such an item.
    """
    unnamed = {id(item): item for item, label in zip(items, labels, strict=True) if label is None}
    digests = {key: digest(stable(item)) for key, item in unnamed.items()}
    known: dict[str, dict[str, T]] = {}
    named = []
    for item, label in zip(items, labels, strict=True):
        if label is None:
            alike, contents = known.setdefault(words(item), {}), digests[id(item)]
            first = alike.setdefault(contents, item)
            number = list(alike).index(contents) + 1
            named.append((words(item) + (f" {number}" if number > 1 else ""), first))
        else:
            named.append((label, item))
    return named


@checked
def from_toml(path: FilePath, *, precision: str | None = None) -> Study:
    """Return the study of a UTF-8 TOML file, perhaps in another ``precision``.

    Raises:
      InvalidArgument: when the file cannot be read, is no TOML, or has entries that no study has.
    """
    table = toml_table(path, "study")
    with naming(str(path)):
        return from_table({"name": Path(path).stem} | table, precision=precision)


def from_table(table: ObjectTable, *, precision: str | None = None) -> Study:
    """Return the study of a table, or raise ``InvalidArgument``."""

    def model_of(table: object, where: str) -> Model:
        model = from_fields(Model, table, where)
        return model if precision is None else dataclasses.replace(model, precision=precision)

    check_table(table, "study")
    for name in table:
        check_known(name, [*OWN, "keep", "initial", "model", "problem", "delay", "algorithm", "run"], name, "a study has")
    if "name" not in table:
        raise InvalidArgument("name: there is none; give the study a name")
    for name in ("problem", "algorithm"):
        if not table.get(name):
            raise InvalidArgument(f"{name}: there is none; add a table [{name}.LABEL] with its type")
    for name in ("problem", "delay", "algorithm"):
        for label, item in check_table(table.get(name, {}), name).items():
            check_table(item, f"{name}.{label}")
    given = {name: table[name] for name in OWN if name in table}
    for parameter in parameters(Study):
        if parameter.name in given:
            parameter.check(parameter.name, given[parameter.name])
    keep = from_fields(Keep, table.get("keep", {}), "keep")
    initial = from_fields(InitialDesign, table.get("initial", {}), "initial")
    learners = {label: _learner(item, label, model_of) for label, item in table["algorithm"].items()}
    model = model_of(table.get("model", {}), "model")
    given_rows = table.get("run")
    if given_rows is not None and not (isinstance(given_rows, list) and given_rows):
        raise InvalidArgument(f"run: expected a list of tables, the runs one by one, got {short(given_rows)}")
    rows = None if given_rows is None else [from_fields(Row, row, f"run[{number}]") for number, row in enumerate(given_rows)]
    for number, row in enumerate(rows or ()):
        check_table(row.sweep, f"run[{number}].sweep")
    delays, horizon = table.get("delay", {"none": {"type": "NoDelay"}}), table.get("horizon", Study.horizon)
    of_problems = {label: model_of(item["model"], f"problem.{label}.model") for label, item in table["problem"].items() if "model" in item}
    problems = {label: {name: value for name, value in item.items() if name != "model"} for label, item in table["problem"].items()}
    runs = grid_runs(problems, delays, learners, model, initial, horizon, rows, of_problems)
    return Study(runs=runs, keep=keep, **given)


def _learner(table: ObjectTable, label: str, model_of: Callable[[object, str], Model]) -> LearnerParts:
    """Return the learner of an algorithm's table."""
    names = ("sweep", "zipped", "model", "feedback", "informed")
    where, held = f"algorithm.{label}", {name: table[name] for name in names if name in table}
    for name in held.keys() - {"zipped"}:
        check_table(held[name], f"{where}.{name}")
    for path, values in held.get("sweep", {}).items():
        if not isinstance(values, list) or not values:
            raise InvalidArgument(f"{where}.sweep.{path}: expected a list of values, got {short(values)}")
    if "zipped" in held:
        boolean(f"{where}.zipped", held["zipped"])
    if "model" in held:
        held["model"] = model_of(held["model"], f"{where}.model")
    return LearnerParts.of(label, {name: value for name, value in table.items() if name not in held}, held)
