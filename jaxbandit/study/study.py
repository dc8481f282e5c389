"""A study as a value: a list of runs, each played in the same trials, on the same random numbers; from a table, and as one."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Concatenate, Literal, ParamSpec, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, check_known, did_you_mean, naming, short
from jaxbandit.core.codec import Plain, Table, as_given, check_table, digest, from_fields, in_words, origin_of, says_all, stable, to_fields
from jaxbandit.core.declare import Array, FilePath, Key, check_fields, checked, parameters
from jaxbandit.core.doors import setting
from jaxbandit.core.fields import INT32_MAX, MOST_ROUNDS, Check, Described, boolean, check_seed, of_class, whole
from jaxbandit.core.keys import Stream, stream_key, trial_key
from jaxbandit.core.pytree import canonicalise, float_dtype, replace
from jaxbandit.core.sweep import Sweep
from jaxbandit.core.text import html_table
from jaxbandit.delays import NoDelay
from jaxbandit.domains import Box
from jaxbandit.engine import InitialDesign, Trajectory, simulate
from jaxbandit.engine.arguments import Rounds, at_once, kernel_of
from jaxbandit.engine.cell import refreshed_in_time, with_room
from jaxbandit.fused.plan import FusedKernel
from jaxbandit.host.files import toml_table
from jaxbandit.problems import AbstractProblem
from jaxbandit.results.dataset import METRICS
from jaxbandit.study.runs import Learner, Model, Row, Run, check_label, named_by_files, runs_of, table_of
from jaxbandit.surrogates import RangedSurrogate, Surrogate, arithmetic

DEFAULT_METRICS = tuple(name for name in METRICS if name not in ("reward", "best_feasible_value", "strong_regret"))
MOST_ROUNDS_BY_DEFAULT = 1000  # that are kept when nothing is said
PLAIN = ("name", "trials", "horizon", "seed", "trajectories", "common_random_numbers", "fused")  # as files have them, in this order
OWN = (*PLAIN, "parameters", "metrics")
OF_ALGORITHM = ("sweep", "zipped", "model", "feedback", "informed")  # what an algorithm's table holds beside its type and fields

T = TypeVar("T")
P = ParamSpec("P")


@dataclasses.dataclass(frozen=True)
class Keep(Described):
    """Every ``every``-th round, or ``log_spaced`` rounds whose logarithms are evenly spaced; the last one always.

    By default every round of up to 1,000, and of longer runs every n-th such that at most 1,001 are kept.
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
        """Return the numbers of the rounds that are kept, in order, counted from 1."""
        if self.log_spaced is not None:
            kept = np.round(np.geomspace(1, horizon, min(self.log_spaced, horizon))).astype(np.int64)
        else:
            every = -(-horizon // MOST_ROUNDS_BY_DEFAULT) if self.every is None else min(self.every, horizon)
            kept = np.arange(every, horizon + 1, every)
        return np.unique(np.append(kept, horizon))


@contextlib.contextmanager
def arithmetic_of(study: Study) -> Iterator[None]:
    """Let the block work in float64 where a model of a study needs that.

    All runs of a study are in one precision: draws of random numbers differ between float32 and float64, and runs share them.
    """
    with arithmetic(run.model.precision for run in study.runs if isinstance(run, Run) and isinstance(run.model, Surrogate)):
        yield


def in_its_arithmetic(function: Callable[Concatenate[Study, P], T]) -> Callable[Concatenate[Study, P], T]:
    """Let a function of a study work in its arithmetic."""

    @functools.wraps(function)
    def with_study(study: Study, *args: P.args, **kwargs: P.kwargs) -> T:
        with arithmetic_of(study):
            return function(study, *args, **kwargs)

    return with_study


def _by(test: Callable[[str, Any], object]) -> Check:
    """Return the check for what ``test``, called with the name of a field and its value, lets pass."""
    return Check("", lambda value: True, lambda name, value, place: test(name, value))


def _check_metrics(field: str, names: object) -> None:
    """Raise ``InvalidArgument`` on unknown names of metrics, on none, and on one that stands twice."""
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
    """Raise ``InvalidArgument`` unless further parameters are ``None`` or a mapping of JSON values."""
    if values is not None:
        of_class(Mapping, "a table of plain values, as JSON has them")("parameters", values)
        try:
            json.dumps(dict(values))
        except (TypeError, ValueError, RecursionError) as error:
            words = "expected a table of plain values, as JSON has them"
            raise InvalidArgument(f"parameters: {words}, got {short(values)}: {error}") from error


@dataclasses.dataclass(frozen=True, repr=False)
class Study(Described):
    """Runs that are compared: all are played in the same number of trials and rounds.

    ``runs`` is a list written by hand, or what :func:`~jaxbandit.study.grid` makes of axes::

        Study("widths", runs=[Run("narrow", problem, Rpol(), model), Run("CONFIG", problem, Config(), model)], trials=100)
        Study("widths", runs=grid(problems={"sine": problem}, algorithms={"rpol": Rpol(), "config": Config()}, horizon=1000))

    Attributes:
      name: name of the study.
      runs: what is played, in the order of the results.
      trials: trials of every run.
      horizon: rounds of every trial, ``T``.
      seed: seed of all random numbers.
      metrics: names of :class:`~jaxbandit.metrics.Curves`; ``"strong_regret"`` takes a linear programme for each instance.
      keep: rounds of the metrics that the results keep, see :class:`Keep`.
      trajectories: whether the results keep points, values and arrivals of every round, too.
      common_random_numbers: whether all runs see the same noise, delays and instances in trials of one number.
      fused: whether kernels play the rounds, as for :func:`~jaxbandit.simulate`; ``True`` leaves runs to XLA that no kernel can play.
      parameters: what else the results record of the study, as JSON values; ``None`` for whether random numbers are common.
    """

    described: ClassVar[str] = "a Study"
    name: Annotated[str, _by(check_label)]
    runs: Sequence[Run]
    trials: Annotated[int, _by(partial(checks.integer, least=1, most=INT32_MAX))] = 100
    horizon: Rounds = 1000
    seed: Annotated[int, _by(check_seed)] = 0
    metrics: Annotated[tuple[str, ...], _by(_check_metrics)] = DEFAULT_METRICS
    keep: Keep = Keep()
    trajectories: bool = False
    common_random_numbers: bool = True
    fused: Literal["auto", True, False] = "auto"
    parameters: Annotated[Table | None, _by(_check_parameters)] = None

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
        """Return the study whose results keep every metric that it has in every round, and trajectories."""
        tables = not any(isinstance(run.problem.domain, Box) for run in self.runs)
        metrics = tuple(name for name in METRICS if tables or name != "strong_regret")
        return dataclasses.replace(self, metrics=metrics, keep=Keep(every=1), trajectories=True)

    @property
    def recorded(self) -> Table:
        """Parameters that the results record beside the runs, as JSON values."""
        return {"common_random_numbers": self.common_random_numbers} if self.parameters is None else self.parameters

    @property
    @in_its_arithmetic
    def precision(self) -> str:
        """Floating type of all runs, ``"float64"`` where a model of one of them needs it."""
        return str(float_dtype())

    def validate(self) -> None:
        """Raise ``InvalidArgument`` on values of wrong types or out of range, unknown metrics, no runs, and labels that are equal."""
        check_fields(self)
        labels = [run.label for run in self.runs]
        if not labels or len(set(labels)) < len(labels):
            raise InvalidArgument(f"runs: give at least one, with distinct labels, got {short(labels)}")

    def named_runs(self) -> tuple[Run, ...]:
        """Return the runs with all labels filled in, and with one object in place of equal problems."""
        problems = _named([run.problem for run in self.runs], [run.problem_label for run in self.runs], lambda problem: str(problem.name))
        delays = [run.delay_in_force for run in self.runs]
        late = _named(delays, [run.delay_label for run in self.runs], lambda delay: "" if isinstance(delay, NoDelay) else in_words(delay))
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
        """Return a hash of all that the results depend on: equal for equal studies, on every machine.

        Problems that can be named count as their names and arguments, for the last bits of their values depend on the machine; models
        count as what they were made from.
        """
        runs = self.named_runs()
        problems = {key: _counted_problem(problem) for key, problem in {id(run.problem): run.problem for run in runs}.items()}  # each once
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
        """Return the study as a TOML file would have it; raises ``InvalidArgument`` when no table describes some part of a run."""
        runs = table_of(self.named_runs(), self.horizon)
        plain = {name: getattr(self, name) for name in PLAIN}
        recorded = {} if self.parameters is None else {"parameters": dict(self.parameters)}
        return {**plain, "metrics": list(self.metrics), "keep": to_fields(self.keep, "keep"), **recorded, **runs}

    @checked
    @in_its_arithmetic
    def trajectory(
        self, run: Run, *, trials: int | Sequence[int] | None = None, record: str = "all", algorithm: Sweep | None = None
    ) -> Trajectory:
        """Play one run, in all its trials or those numbered in ``trials``, and return everything that happened.

        ``algorithm`` is a sweep that takes the place of the run's algorithm.
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
            fused=isinstance(self._kernel(run), FusedKernel),
        )

    @checked
    def describe_choices(self, run: Run) -> str:
        """Return a line on what plays the rounds of a run: a kernel, or XLA and for what reason."""
        kernel = self._kernel(run)
        return f"by XLA, {kernel}" if isinstance(kernel, str) else kernel.in_words

    @in_its_arithmetic
    def _kernel(self, run: Run) -> FusedKernel | str:
        return kernel_for(self, run, self.models_in_force(run)[0])

    def models_in_force(self, *besides: Run) -> list[Surrogate]:
        """Return the models of runs ``besides`` the study's and of these, as they are played in its number of rounds."""
        runs = (*besides, *self.runs)
        room = self.horizon + max(run.initial.count for run in runs)
        return with_room(refreshed_in_time([run.model for run in runs], self.horizon), room)

    @checked
    @in_its_arithmetic
    def instance(self, problem: AbstractProblem, trial: Annotated[int, whole(0)]) -> AbstractProblem:
        """Return the instance of a problem, or of a random family, in one trial."""
        return canonicalise(problem).sample(stream_key(trial_key(jax.random.key(self.seed), trial), Stream.PROBLEM))

    @checked
    @in_its_arithmetic
    def instances(self, problem: AbstractProblem) -> AbstractProblem:
        """Return the instances of all trials, stacked ``[trials, ...]``; a problem that is not random is returned as it is."""
        problem = canonicalise(problem)
        return sampled(problem, jax.random.key(self.seed), jnp.arange(self.trials)) if problem.is_random else problem


def kernel_for(study: Study, run: Run, model: Surrogate) -> FusedKernel | str:
    """Return the kernel that plays a run of a study with a model, or why XLA does; how long the study is matters, not one trial of it."""
    policy, rounds = None if at_once([run.delay_in_force]) else run.policy_in_force, len(study.runs) * study.trials * study.horizon
    return kernel_of(study.fused, [run.algorithm], [model], run.problem, policy, rounds, jax.devices()[0])


@jax.jit
def sampled(problem: AbstractProblem, root: Key, trials: Array) -> AbstractProblem:
    """Return the instances of a random family in the trials numbered ``trials [n]``, stacked along a leading axis ``[n]``."""
    return jax.vmap(lambda i: problem.sample(stream_key(trial_key(root, i), Stream.PROBLEM)))(trials)


def _counted_problem(problem: AbstractProblem) -> Plain:
    """Return what counts of a problem: its name and arguments, or its contents where these are not all or it has none."""
    named = named_by_files(problem)
    table = origin_of(named)
    if table is not None and says_all(table):
        with contextlib.suppress(InvalidArgument):  # of arguments that no table holds
            return [type(problem).__name__, stable(as_given(named))]
    return stable(problem)


def _counted_model(model: Surrogate) -> Plain:
    """Return what counts of a model: what it was made from, since the last bits of its features depend on the machine."""
    if not model.kernels:
        return stable(model)
    names = ["kernels", "noise_variance", "prior_mean", "groups", "domain"]
    names += ["length_scale", "variance", "low", "high"] if isinstance(model, RangedSurrogate) else []
    made_from = {name: stable(getattr(model, name)) for name in names}
    if isinstance(box := model.domain, Box):  # so do those of candidates
        made_from["domain"] = stable(replace(box, points=np.round(box.to_unit(np.asarray(box.points, np.float64)), 6)))
    return {"class": "Surrogate", **made_from, "forms": [[form.name, form.rank] for form in model.forms]}


def _named(items: Sequence[T], labels: Sequence[str | None], words: Callable[[T], str]) -> list[tuple[str, T]]:
    """Return a label and an item for each of ``items``.

    An item without a label is called by its words, numbered where different items have the same words, and the first item that equals it
    takes its place.
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
    """Return the study of a TOML file, in UTF-8 with or without a byte-order mark, with ``precision`` in place of what it says.

    Raises:
      InvalidArgument: when the file cannot be read, is no TOML, or holds what no study has.
    """
    table = toml_table(path, "study")
    with naming(str(path)):
        return from_table({"name": Path(path).stem} | table, precision=precision)


def from_table(table: Table, *, precision: str | None = None) -> Study:
    """Return the study that a table describes, as :meth:`Study.table` writes it; raises ``InvalidArgument`` on what no study has."""

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
    runs = runs_of(problems, delays, learners, model, initial, horizon, rows, of_problems)
    return Study(runs=runs, keep=keep, **given)


def _learner(table: Table, label: str, model_of: Callable[[object, str], Model]) -> Learner:
    """Return what the table of an algorithm says of it and its runs."""
    where, held = f"algorithm.{label}", {name: table[name] for name in OF_ALGORITHM if name in table}
    for name in held.keys() - {"zipped"}:
        check_table(held[name], f"{where}.{name}")
    for path, values in held.get("sweep", {}).items():
        if not isinstance(values, list) or not values:
            raise InvalidArgument(f"{where}.sweep.{path}: expected a list of values, got {short(values)}")
    if "zipped" in held:
        boolean(f"{where}.zipped", held["zipped"])
    if "model" in held:
        held["model"] = model_of(held["model"], f"{where}.model")
    return Learner.of(label, {name: value for name, value in table.items() if name not in held}, held)
