"""All that a session is made of, as one value that its journal holds and from which it can be made again; and the fit of its model."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import jax
import numpy as np

from jaxbandit.algorithms import Algorithm
from jaxbandit.core.checks import InvalidArgument, check_known, short
from jaxbandit.core.codec import Plain, Table, digest, exact, from_fields, from_plain, name_of, to_plain, word_of
from jaxbandit.core.declare import Array, FilePath, Key, check_fields, checked
from jaxbandit.core.fields import Described, Words, whole
from jaxbandit.core.files import toml_table
from jaxbandit.core.keys import trial_key, typed
from jaxbandit.core.pytree import pytree
from jaxbandit.delays import LONGEST_DELAY, Delay, NoDelay
from jaxbandit.engine import InitialDesign
from jaxbandit.engine.arguments import Delays, Rounds
from jaxbandit.engine.cell import Cell
from jaxbandit.engine.rounds import design_key
from jaxbandit.engine.trial import Setting
from jaxbandit.feedback import Policy
from jaxbandit.problems import from_tables
from jaxbandit.session.journal import SessionError
from jaxbandit.session.quantities import Axis, Outputs, Space
from jaxbandit.study.runs import Model
from jaxbandit.surrogates import Prior, arithmetic, fit

FIELDS = ("objective", "constraints", "seed", "horizon", "capacity", "fit_every")
PARTS = ("axis", "algorithm", "model", "feedback", "delay", "initial", "units")
TAKEN = {"ticket", "state", "round", "index", "asked_at", "told_at", "best_so_far"}
TAKEN |= {"output", "point", "mean", "sd", "lower", "upper", "probability_of_feasibility"}
"""Names of variables of a session's tables, which no output and no axis can have."""


@pytree
class UnknownDelay(Delay):
    """Delays of a real experiment of which nothing is known before."""

    in_files = False

    @property
    def mean(self) -> float:
        return float("inf")

    def draw(self, key: Key, outputs: int) -> Array:
        raise InvalidArgument("delay: the delays of a session are not drawn, they happen")

    def quantile(self, q: float) -> int:
        return LONGEST_DELAY


@dataclasses.dataclass(frozen=True)
class Specification(Described):
    """All parts of a session; further attributes are the arguments of :meth:`Session.create <jaxbandit.session.Session.create>`.

    Attributes:
      space: the points among which it chooses.
      outputs: what is measured.
    """

    described: ClassVar[str] = "a Specification"
    space: Space
    outputs: Outputs
    algorithm: Algorithm
    model: Annotated[Model, Words("the model of a session, study.Model(...)")]
    key: Key
    horizon: Rounds = 1000
    delay: Delay | None = None
    feedback: Policy | None = None
    initial: InitialDesign = InitialDesign()
    capacity: Rounds | None = None
    fit_every: Annotated[int, whole(1)] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        names = [*self.space.names, *self.outputs.names]
        for number, name in enumerate(names):
            if name in TAKEN or name in names[:number]:
                place = number - len(self.space.names)
                where, taken = "domain" if place < 0 else "constraints" if place else "objective", ", ".join(sorted(TAKEN))
                raise InvalidArgument(f"{where}: outputs and axes must have names of their own, none of {taken}, got {name!r}")
        if self.model.fit_to is not None:
            raise InvalidArgument(
                "model.fit_to: a session fits to what it has been told, by Session.fit() and fit_every; fit to earlier data by"
                " surrogates.fit and give the kernel that it returns"
            )
        if self.algorithm.traits.sees_constraints:
            raise InvalidArgument(
                f"algorithm: {type(self.algorithm).__name__} sees the constraint functions before it chooses (full information), which no"
                " experiment can show; take an algorithm that learns them from measurements"
            )
        size, axes = self.space.domain.size, self.space.domain.dimension
        functions = len(self.outputs.functions)
        self.algorithm.validate(None, functions, size, axes)
        self.initial.validate("initial", None, size, axes)
        if self.delay is not None:  # of the outputs that are told, or of the functions that are modelled
            self.delay.validate("delay", functions if functions == len(self.outputs.names) else None)
        if self.at_once and self.feedback is not None:
            raise InvalidArgument(f"feedback: has no effect where values come before the next round, got {short(self.feedback)}")
        if self.algorithm.traits.needs_feedback_at_once and not self.at_once:
            raise InvalidArgument(
                f"delay: {type(self.algorithm).__name__} needs the values of a round before the next one; give delay=NoDelay(), got"
                f" {short(self.delay)}"
            )

    @property
    def at_once(self) -> bool:
        """Return whether the values of a round come before the next one is asked for."""
        return isinstance(self.delay, NoDelay) or (self.delay is None and self.algorithm.traits.needs_feedback_at_once)

    @property
    def units(self) -> dict[str, str]:
        """Units of axes and outputs by name, of those that have one."""
        return {axis.name: axis.unit for axis in self.space.axes if axis.unit} | dict(self.outputs.unit_of)

    @property
    def together(self) -> bool:
        """Return whether late values of a point are taken in together, once all are there."""
        late = [len(self.outputs.functions) == 1, self.algorithm.traits.joint_arrival, self.delay is not None and self.delay.joint]
        return not self.at_once and any(late)

    def design(self) -> list[int]:
        """Return the points of the initial design, those of a simulated trial of the same key."""
        if not self.initial.count:
            return []  # at once: most sessions have none, and drawing no point would compile programs
        key = design_key(trial_key(typed(self.key), 0))
        return [int(index) for index in np.asarray(self.initial.points(key, self.space.domain.size))]

    @functools.cached_property
    def setting(self) -> Setting:
        """All that stays the same from round to round: the setting of trial 0 of a simulation with the key."""
        return self.setting_with(self.model)

    def setting_with(self, model: Model) -> Setting:
        """Return the :attr:`setting` with another model."""
        domain, functions = self.space.domain, len(self.outputs.functions)
        surrogate = _expanded(model, self.outputs, domain.size).of(domain, functions, self.horizon + self.initial.count, "model")
        algorithm, delays = self.algorithm, None
        with arithmetic([surrogate.precision]):
            if not self.at_once:
                delay, policy = self.delay or UnknownDelay(), self.feedback or algorithm.traits.feedback
                policy.validate(outputs=functions)
                algorithm = algorithm.with_delays(delay, policy)
                delays = Delays(model=delay, policy=policy, capacity=self.capacity or self.horizon)
            unknown = from_tables(domain, np.zeros(domain.size), np.zeros((functions - 1, domain.size)))  # for what the user measures
            cell = Cell.of(unknown, [(algorithm, surrogate, delays)], self.initial, horizon=self.horizon)
            return jax.jit(Cell.setting)(cell, typed(self.key), np.asarray([0, 0, 1], np.int32))

    def table(self) -> dict[str, Any]:
        """Return the specification as plain values; an algorithm that no table describes by its fingerprint."""
        key, parts = typed(self.key), ("delay", "feedback", "horizon", "capacity", "fit_every")
        return {
            "space": self.space.table(),
            "objective": str(self.outputs.objective),
            "constraints": [str(constraint) for constraint in self.outputs.constraints],
            "algorithm": algorithm_table(self.algorithm),
            "model": self.model.table(),
            "key": {"generator": str(jax.random.key_impl(key)), "data": np.asarray(jax.random.key_data(key)).tolist()},
            "initial": {name: to_plain(getattr(self.initial, name), f"initial.{name}") for name in ("indices", "random")},
            **({"units": dict(self.outputs.unit_of)} if self.outputs.unit_of else {}),
        } | {name: to_plain(getattr(self, name), name) for name in parts}

    @classmethod
    @checked
    def from_table(
        cls, table: Annotated[Table, Words("a table that Specification.table() has written")], algorithm: Algorithm | None = None
    ) -> Specification:
        """Return the specification that :meth:`table` has written; ``algorithm`` stands for one that no table describes."""
        written, key = table["algorithm"], table["key"]
        if algorithm is None and "fingerprint" in written:
            raise InvalidArgument(f"algorithm: the session was made with {written['class']} of your own; pass the same object")
        if algorithm is not None and algorithm_table(algorithm) != written and fingerprint_of(algorithm) != written:
            raise InvalidArgument(f"algorithm: the session was made with another one, {short(written)}, got {short(algorithm)}")
        data: Any = np.asarray(key["data"], np.uint32)  # JAX's own array would take a program to make
        key = jax.random.wrap_key_data(data, impl=key["generator"])
        return cls._read({**table, "algorithm": written if algorithm is None else algorithm}, Space.from_table(table["space"]), key)

    @classmethod
    def _read(cls, table: Table, space: Space, key: Key) -> Specification:
        """Return the specification whose points and key are given, and whose other parts a table of a file or of a journal holds."""
        numbers = {name: table[name] for name in ("horizon", "capacity", "fit_every") if name in table}
        outputs = Outputs.read(table.get("objective", "maximise reward"), table.get("constraints", []), table.get("units"))
        model, initial = (
            from_fields(Model, table.get("model", {}), "model"),
            from_fields(InitialDesign, table.get("initial", {}), "initial"),
        )
        parts = {word_of(role): from_plain(role, table.get(word_of(role)), word_of(role)) for role in (Algorithm, Delay, Policy)}
        return cls(space=space, outputs=outputs, model=model, key=key, initial=initial, **parts, **numbers)


def algorithm_table(algorithm: Algorithm) -> dict[str, Plain]:
    """Return an algorithm as plain values: its table, or the class and the fingerprint of one that no table can describe."""
    try:
        return dict(to_plain(algorithm, "algorithm"))
    except InvalidArgument:
        return fingerprint_of(algorithm)


def fingerprint_of(algorithm: Algorithm) -> dict[str, Plain]:
    """Return the class and the fingerprint of an algorithm."""
    return {"class": name_of(type(algorithm)), "fingerprint": digest({"it": exact(algorithm)})}


@checked
def read_toml(path: FilePath) -> Specification:
    """Return the specification of a TOML file.

    Raises:
      InvalidArgument: when the file cannot be read, is no TOML, or holds what no session has.
    """
    table = toml_table(path, "experiment")
    for name in table:
        check_known(name, [*FIELDS, *PARTS], name, "an experiment has")
    for name in ("axis", "algorithm"):
        if not isinstance(table.get(name), Mapping) or not table[name]:
            raise InvalidArgument(f"{name}: there is none; add a table [{'axis.NAME' if name == 'axis' else name}]")
    seed = table.get("seed", 0)
    whole(0, 2**32 - 1)("seed", seed)
    space = Space.of([Axis.read(name, axis, f"axis.{name}") for name, axis in table["axis"].items()])
    return Specification._read(table, space, jax.random.key(seed))


def fitted_model(specification: Specification, model: Model, told: Sequence[tuple[int, Mapping[str, float]]]) -> Model:
    """Return ``model`` with kernels and noise variances fitted to ``told``, points with values by name, as ``Session.fit`` describes."""
    outputs, points = specification.outputs, np.asarray(specification.space.domain.points, np.float64)
    if not told:
        raise SessionError("fit: nothing has been told yet; tell some values first")
    if np.size(model.noise_variance) > len(outputs.names):
        raise SessionError("fit: fits one noise variance for each output, and the model has a table over the points; give it numbers")
    prior = Prior(extent=np.ptp(points, axis=0) + (np.ptp(points, axis=0) == 0))
    means, kernels, noises = (_each(name, model, outputs) for name in ("prior_mean", "kernel", "noise_variance"))
    for number, name in enumerate(outputs.names):
        rows = [(index, values[name]) for index, values in told if name in values]
        if rows:  # otherwise the output keeps what it has
            places, values = map(np.asarray, zip(*rows, strict=True))
            fitted = fit(kernels[number], points[places], values - means[number], float(noises[number]), prior=prior)
            kernels[number], noises[number] = fitted.kernel, fitted.noise_variance
    return dataclasses.replace(model, kernel=tuple(kernels), noise_variance=tuple(map(float, noises)), prior_mean=tuple(map(float, means)))


def _each(name: str, model: Model, outputs: Outputs) -> list[Any]:
    """Return a field of a model for each output; raises ``InvalidArgument`` unless it holds one for all or one for each."""
    value = getattr(model, name)  # a single prior mean is the objective's: a constraint at its bound is as likely to hold as not
    if not isinstance(value, list | tuple | np.ndarray) or np.shape(value) == ():
        return [value, *(constraint.bound if name == "prior_mean" else value for constraint in outputs.constraints)]
    if len(value) != len(outputs.names):
        raise InvalidArgument(f"model.{name}: must hold one for each of the {len(outputs.names)} outputs, got {len(value)}")
    return list(value)


def _expanded(model: Model, outputs: Outputs, size: int) -> Model:
    """Return the model of the modelled functions on ``size`` points from that of the outputs, of which an equality is modelled twice."""

    def rows_of(name: str) -> list[Any]:
        each = dict(zip(outputs.names, _each(name, model, outputs), strict=True))
        return [each[output] for output, *_ in outputs.functions]

    means = outputs.inward(dict(zip(outputs.names, map(float, _each("prior_mean", model, outputs)), strict=True)))
    changes: dict[str, Any] = {"prior_mean": list(means.values())}
    if isinstance(model.kernel, list | tuple):
        changes["kernel"] = rows_of("kernel")
    noise = np.shape(model.noise_variance)
    if noise and (noise == (len(outputs.names),) or noise != (size,)):  # a table over the points is that of all outputs
        changes["noise_variance"] = np.asarray(rows_of("noise_variance")).tolist()
    return dataclasses.replace(model, **changes)
