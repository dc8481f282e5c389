"""A study as a value: algorithms x hyper-parameters x problems x delays x trials, in Python or in a TOML file."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from jaxbandit.algorithms.base import sees_samples
from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument
from jaxbandit.delays import NoDelay
from jaxbandit.problems import full_information
from jaxbandit.simulate import InitialDesign
from jaxbandit.study.describe import describe_exactly
from jaxbandit.study.lines import CURVES, Entry, Line
from jaxbandit.study.registry import build, fields_of, known_field, nearest, table_of
from jaxbandit.study.thinning import Keep
from jaxbandit.surrogates import surrogate

MODEL = "model."  # what begins the path of a swept field of the model


@dataclasses.dataclass(frozen=True)
class Model:
    """The GP model of a study's learners, built on each problem's points; fields as for :func:`~jaxbandit.surrogate`."""

    kernel: Any = dataclasses.field(default_factory=lambda: {"type": "SquaredExponential"})
    noise_variance: Any = 0.05
    prior_mean: Any = 0.0
    form: str = "auto"
    tolerance: float | None = None
    rank: int | None = None

    def on(self, problem: Any, horizon: int, where: str) -> tuple[Any, tuple[Any, ...]]:
        """The surrogate and the kernel of each output."""
        given = self.kernel if isinstance(self.kernel, list | tuple) else [self.kernel] * problem.outputs
        kernels = tuple(build("kernel", kernel, f"{where}.kernel") for kernel in given)
        rest = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "kernel"}
        return surrogate(problem.domain, kernels, outputs=problem.outputs, horizon=horizon, **rest), kernels


@dataclasses.dataclass(frozen=True)
class Contender:
    """An algorithm of a study, and the values of its fields that are tried.

    Attributes:
      algorithm: an instance, or its table.
      sweep: for paths of fields (``"estimator.reward_width"``, ``"model.noise_variance"``) the values; every combination is a line.
      zipped: whether values of several fields go together, first with first, instead.
      model: its own model; default the study's.
      feedback: what it does while feedback is late; default the algorithm's own.
      informed: what it is told of each instance.
    """

    algorithm: Any
    sweep: Mapping[str, Sequence[Any]] = dataclasses.field(default_factory=dict)
    zipped: bool = False
    model: Model | None = None
    feedback: Any = None
    informed: Any = None

    def combinations(self) -> list[dict[str, Any]]:
        """The values of each line."""
        if self.zipped:
            return [dict(zip(self.sweep, values, strict=True)) for values in zip(*self.sweep.values(), strict=True)] or [{}]
        return [dict(zip(self.sweep, values, strict=True)) for values in itertools.product(*self.sweep.values())]


@dataclasses.dataclass(frozen=True)
class Study:
    """Algorithms x hyper-parameters x problems x delays x trials.

    Problems, algorithms, delays and the like are given as objects, or as tables ``{"type": "sine", "points_per_axis": 50}`` of what
    makes them; only a study of tables, or of objects that can be written as such, can be run again from its results alone.

    Attributes:
      name: of the study.
      problems: by label; a problem, a family or a table.
      algorithms: by label; a :class:`Contender`, or an algorithm alone.
      model: the GP model of all learners that have none of their own.
      delays: by label; default none.
      trials, horizon, seed: of every line.
      metrics: names of :class:`~jaxbandit.metrics.Curves`; ``"strong_regret"`` takes a linear programme for each instance.
      keep: which rounds are kept, see :class:`Keep`.
      trajectories: whether points, values and arrivals of every round are kept, too.
      initial: points observed before round 1.
      common_random_numbers: whether lines see the same noise, delays and instances in trials of a number.
    """

    name: str
    problems: Mapping[str, Any]
    algorithms: Mapping[str, Any]
    model: Model = dataclasses.field(default_factory=Model)
    delays: Mapping[str, Any] = dataclasses.field(default_factory=lambda: {"none": NoDelay()})
    trials: int = 100
    horizon: int = 1000
    seed: int = 0
    metrics: tuple[str, ...] = tuple(name for name in CURVES if name not in ("reward", "strong_regret"))
    keep: Keep = dataclasses.field(default_factory=Keep)
    trajectories: bool = False
    initial: InitialDesign = dataclasses.field(default_factory=InitialDesign)
    common_random_numbers: bool = True

    def validate(self) -> None:
        """Raise ``InvalidArgument`` on numbers out of range, names that do not exist, or nothing to run."""
        for name, least in (("trials", 1), ("horizon", 1), ("seed", 0)):
            checks.integer(name, getattr(self, name), least=least)
        for name in ("problems", "algorithms", "delays"):
            if not getattr(self, name):
                raise InvalidArgument(f"{name}: there is none; give at least one by a label")
        for name in self.metrics:
            if name not in CURVES:
                raise InvalidArgument(f"metrics: there is no {name!r}{nearest(name, CURVES)}; known are {', '.join(CURVES)}")
        if not self.metrics:
            raise InvalidArgument(f"metrics: there is none; known are {', '.join(CURVES)}")
        self.keep.validate()

    def lines(self) -> list[Line]:
        """Every line, neighbours as alike as can be.

        Raises:
          InvalidArgument: on unknown names and fields, static fields that are swept, and parts that do not fit each other.
        """
        self.validate()
        problems = {label: build("problem", table, f"problem.{label}") for label, table in self.problems.items()}
        delays = {label: build("delay", table, f"delay.{label}") for label, table in self.delays.items()}
        models: dict[Any, Any] = {}
        found = []
        for where, problem in problems.items():
            for label in self.algorithms:
                contender = self.contender(label)
                for late, delay in delays.items():
                    found += self._variants(label, contender, (where, problem), (late, delay), models)
        return found

    def _variants(self, label: str, contender: Contender, problem: tuple[str, Any], delay: tuple[str, Any], models: Any) -> list[Line]:
        """The lines of one algorithm on one problem under one delay."""
        where = f"algorithm.{label}"
        base = build("algorithm", contender.algorithm, where)
        task = full_information(problem[1]) if sees_samples(base) and not problem[1].reveals_constraints else problem[1]
        found = []
        for values in contender.combinations():
            algorithm, model = base, contender.model or self.model
            for path, value in values.items():
                if path.startswith(MODEL):
                    model = _with(model, path.removeprefix(MODEL), value, f"{where}.sweep.{path}")
                else:
                    algorithm = _with(algorithm, path, value, f"{where}.sweep.{path}")
            key = (problem[0], task is problem[1], json.dumps(describe_exactly(model)))
            if key not in models:
                models[key] = model.on(task, self.horizon + self.initial.count, "model")
            entry = Entry(
                label=_label(label, values, problem[0] if len(self.problems) > 1 else "", delay[0] if len(self.delays) > 1 else ""),
                alg=getattr(algorithm, "name", label),
                algorithm=algorithm,
                surrogate=models[key][0],
                kernels=models[key][1],
                informed=build("informed", contender.informed, f"{where}.informed"),
                problem=task,
                initial=self.initial,
                delay=delay[1],
                feedback=build("feedback", contender.feedback, f"{where}.feedback"),
            )
            found.append(Line(entry=entry, base=label, problem=problem[0], delay=delay[0], swept=dict(values)))
        return found

    @property
    def parameters(self) -> dict[str, Any]:
        """What the results should say of themselves beside the lines."""
        return {"common_random_numbers": self.common_random_numbers}

    @property
    def swept(self) -> list[str]:
        """Paths of all fields that some algorithm sweeps."""
        return list(dict.fromkeys(path for label in self.algorithms for path in self.contender(label).sweep))

    def fingerprint(self) -> str:
        """A hash of all that the results depend on: equal for equal studies, whether of objects or of tables, on every machine."""
        algorithms = {label: self.contender(label) for label in self.algorithms}
        described = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)} | {
            "algorithms": {
                label: dataclasses.replace(
                    own,
                    algorithm=build("algorithm", own.algorithm, f"algorithm.{label}"),
                    model=_built(own.model),
                    **{kind: build(kind, getattr(own, kind), f"algorithm.{label}.{kind}") for kind in ("feedback", "informed")},
                )
                for label, own in algorithms.items()
            },
            "delays": {label: build("delay", delay, f"delay.{label}") for label, delay in self.delays.items()},
            "model": _built(self.model),
        }
        return hashlib.sha256(json.dumps(describe_exactly(described), sort_keys=True).encode()).hexdigest()

    def contender(self, label: str) -> Contender:
        """An algorithm of the study with all that belongs to it."""
        given = self.algorithms[label]
        return given if isinstance(given, Contender) else Contender(algorithm=given)

    def table(self) -> dict[str, Any]:
        """The study as a TOML file would have it; raises ``InvalidArgument`` when some part cannot be written as a table."""
        algorithms = {}
        for label in self.algorithms:
            contender = self.contender(label)
            own = dict(table_of("algorithm", contender.algorithm, f"algorithm.{label}"))
            if contender.sweep:
                own |= {
                    "sweep": {path: np.asarray(values).tolist() for path, values in contender.sweep.items()},
                    "zipped": contender.zipped,
                }
            own |= {} if contender.model is None else {"model": _model_table(contender.model)}
            for kind in ("feedback", "informed"):
                value = getattr(contender, kind)
                own |= {} if value is None else {kind: table_of(kind, value, f"algorithm.{label}.{kind}")}
            algorithms[label] = own
        given = np.asarray(self.initial.indices).tolist() if self.initial.indices is not None else None
        return {
            **{name: getattr(self, name) for name in ("name", "trials", "horizon", "seed", "trajectories", "common_random_numbers")},
            "metrics": list(self.metrics),
            "keep": self.keep.table(),
            "initial": {"random": self.initial.random, "counted": self.initial.counted} | ({} if given is None else {"indices": given}),
            "model": _model_table(self.model),
            "problem": {label: table_of("problem", item, f"problem.{label}") for label, item in self.problems.items()},
            "delay": {label: table_of("delay", item, f"delay.{label}") for label, item in self.delays.items()},
            "algorithm": algorithms,
        }


def from_toml(path: str | Path) -> Study:
    """The study of a TOML file.

    Raises:
      InvalidArgument: when the file cannot be read, is no TOML, or holds what no study has.
    """
    try:
        text = Path(path).read_text()
    except OSError as error:
        raise InvalidArgument(f"study: cannot read {path}: {error.strerror}") from error
    try:
        return from_table({"name": Path(path).stem} | tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InvalidArgument(f"study: {path} is no TOML: {error}") from error


def from_table(table: Mapping[str, Any]) -> Study:
    """The study that a table describes, as :meth:`Study.table` writes it; raises ``InvalidArgument`` on what no study has."""
    known = ["name", "trials", "horizon", "seed", "metrics", "keep", "trajectories", "common_random_numbers", "initial", "model"]
    known += ["problem", "delay", "algorithm"]
    for name in table:
        known_field(name, known, name, "a study has")
    for name in ("problem", "algorithm"):
        if not table.get(name):
            raise InvalidArgument(f"{name}: there is none; add a table [{name}.LABEL] with its type")
    plain = {name: table[name] for name in ("name", "trials", "horizon", "seed", "trajectories", "common_random_numbers") if name in table}
    if "metrics" in table:
        plain["metrics"] = tuple(table["metrics"])
    if "delay" in table:
        plain["delays"] = dict(table["delay"])
    study = Study(
        problems=dict(table["problem"]),
        algorithms={label: _contender(own, f"algorithm.{label}") for label, own in table["algorithm"].items()},
        model=_dataclass(Model, table.get("model", {}), "model"),
        keep=_dataclass(Keep, table.get("keep", {}), "keep"),
        initial=_dataclass(InitialDesign, table.get("initial", {}), "initial"),
        **plain,
    )
    study.validate()
    return study


def _contender(table: Any, where: str) -> Contender:
    """An algorithm's table, less what is the study's affair."""
    if not isinstance(table, Mapping):
        raise InvalidArgument(f"{where}: expected a table, got {table!r}")
    own = [f.name for f in dataclasses.fields(Contender) if f.name != "algorithm"]
    rest = {name: table[name] for name in own if name in table}
    if "sweep" in rest:
        for path, values in rest["sweep"].items():
            if not isinstance(values, list) or not values:
                raise InvalidArgument(f"{where}.sweep.{path}: expected a list of values, got {values!r}")
    if "model" in rest:
        rest["model"] = _dataclass(Model, rest["model"], f"{where}.model")
    return Contender(algorithm={name: value for name, value in table.items() if name not in own}, **rest)


def _dataclass(kind: Any, table: Mapping[str, Any], where: str) -> Any:
    for name in table:
        known_field(name, fields_of(kind), f"{where}.{name}", f"{where} takes")
    return kind(**{name: np.asarray(value) if name == "indices" else value for name, value in table.items()})


def _built(model: Model | None) -> Any:
    """The model with kernels in place of their tables."""
    if model is None:
        return None
    many = model.kernel if isinstance(model.kernel, list | tuple) else [model.kernel]
    return dataclasses.replace(model, kernel=[build("kernel", kernel, "model.kernel") for kernel in many])


def _model_table(model: Model) -> dict[str, Any]:
    own = {f.name: getattr(model, f.name) for f in dataclasses.fields(model) if getattr(model, f.name) is not None}
    kernel = own.pop("kernel")
    many = isinstance(kernel, list | tuple)
    written = [table_of("kernel", one, "model.kernel") for one in (kernel if many else [kernel])]
    numbers = {name: np.asarray(value).tolist() for name, value in own.items()}
    return {**numbers, "kernel": written if many else written[0]}


def _label(base: str, values: Mapping[str, Any], problem: str, delay: str) -> str:
    """``rpol, reward_width=2, on sine, delay poisson``."""
    own = [
        f"{path.rsplit('.', 1)[-1]}={value:g}" if isinstance(value, int | float) else f"{path}={value}" for path, value in values.items()
    ]
    return ", ".join([base, *own, *([f"on {problem}"] if problem else []), *([f"delay {delay}"] if delay else [])])


def _with(item: Any, path: str, value: Any, where: str) -> Any:
    """``item`` with the field at ``path`` set, which must be a leaf."""
    first, _, rest = path.partition(".")
    if isinstance(item, Mapping):
        return {**item, first: _with(item[first], rest, value, where) if rest else value} if first in item or not rest else _missing(where)
    if not dataclasses.is_dataclass(item) or isinstance(item, type):
        raise InvalidArgument(f"{where}: a {type(item).__name__} has no fields")
    fields = {f.name: f for f in dataclasses.fields(item)}
    free = [name for name, f in fields.items() if not f.metadata.get("static")]
    known_field(first, fields, where, f"{type(item).__name__} can sweep {', '.join(free)}; its fields are")
    if first not in free:
        raise InvalidArgument(f"{where}: {first} of {type(item).__name__} is static, part of the program; it can sweep {', '.join(free)}")
    return dataclasses.replace(item, **{first: _with(getattr(item, first), rest, value, where) if rest else value})


def _missing(where: str) -> Any:
    raise InvalidArgument(f"{where}: there is no such field")
