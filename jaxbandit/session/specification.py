"""Specification of a session, as one value that its journal stores."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms import Algorithm
from jaxbandit.core import checks
from jaxbandit.core.checks import InvalidArgument, check_known, naming, short
from jaxbandit.core.codec import ObjectTable, Plain, digest, exact, from_fields, from_plain, name_of, to_plain, word_of
from jaxbandit.core.declare import Array, FilePath, Key, KeyOrSeed, check_fields, checked
from jaxbandit.core.doors import either, setting
from jaxbandit.core.fields import Described, Rounds, Words, anything, each, label, scalar, text, whole
from jaxbandit.core.keys import trial_key, typed
from jaxbandit.core.pytree import pytree, replace
from jaxbandit.delays import LONGEST_DELAY, Delay, Failing, NoDelay
from jaxbandit.domains import Box, Domain
from jaxbandit.domains.regions import Constraints, SuchThat
from jaxbandit.engine import InitialDesign
from jaxbandit.engine.arguments import Delays
from jaxbandit.engine.cell import Cell
from jaxbandit.engine.learner import design_key
from jaxbandit.engine.trial import Setting
from jaxbandit.feedback import Hallucinate, Policy, Wait
from jaxbandit.host.files import toml_table
from jaxbandit.kernels import Kernel
from jaxbandit.problems import AbstractProblem, BoxProblem, Certificate, from_tables
from jaxbandit.session.axes import ON_GRID, Axis, Place, Space
from jaxbandit.session.journal import SCHEMA
from jaxbandit.session.models import DEFAULT_ALGORITHM, default_model, draws, expanded, spread_out, with_means, with_runs
from jaxbandit.session.quantities import RUNS, Outputs, Standard
from jaxbandit.study.runs import Model
from jaxbandit.surrogates import arithmetic

seeds_option = functools.partial(either, "seeds=[{...}]", "seeds = [{...}]")
TAKEN = {"ticket", "state", "round", "index", "asked_at", "told_at", "best_so_far"}
TAKEN |= {"output", "point", "mean", "sd", "lower", "upper", "probability_of_feasibility"}
"""Names of variables of a session's tables, which no output and no axis can have."""


@pytree
class UnknownDelay(Delay):
    """Unknown delays of a real experiment."""

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
    """Parts of a session, mostly arguments of :meth:`Session.create <jaxbandit.session.Session.create>`.

    Attributes:
      space: the points to choose among.
      outputs: the measured outputs.
      schema: version of the journal. In version 1 the model is in the outputs' units, and the default feedback policy is the algorithm's.
      is_guarded: whether to refuse options that void the guarantee of an algorithm that certifies points. Early journals did not.
      similar: for each similar session, the means of outputs by name, as kernels.
      learns_runs: whether the last output is whether runs give values, see :attr:`with_runs`.
    """

    described: ClassVar[str] = "a Specification"
    # The features of a domain with more points take too long for a command.
    max_feature_points: ClassVar[int] = 4096
    # Least capacity (in observations) of a model by rows.
    first_room: ClassVar[int] = 64
    space: Space
    outputs: Outputs
    algorithm: Algorithm
    model: Annotated[Model, Words("the model of a session, study.Model(...)")] | None
    key: KeyOrSeed
    horizon: Rounds = 1000
    delay: Delay | None = None
    feedback: Policy | None = None
    initial: InitialDesign | None = None
    capacity: Rounds | None = None
    fit_every: Annotated[int, whole(1)] | None = None
    standardise: bool | None = None
    max_step: Mapping[str, float] | None = None
    schema: int = SCHEMA
    is_guarded: bool = True
    similar: Annotated[Sequence[Mapping[str, Any]], anything] = ()
    learns_runs: bool = False

    @classmethod
    def of(
        cls,
        domain: Space | Domain | Sequence[Axis] | Mapping[str, Any],
        algorithm: Algorithm | None = None,
        *,
        objective: str = "maximise reward",
        constraints: Sequence[str] = (),
        units: Mapping[str, str] | None = None,
        such_that: Sequence[SuchThat] = (),
        seeds: Sequence[Mapping[str, float | str]] | None = None,
        **fields: Any,
    ) -> Specification:
        """Return the specification in the words of a session's creation.

        The words and their errors are those of :meth:`Session.create <jaxbandit.session.Session.create>`. Those that are not named here are
        fields of the specification.
        """
        space = domain if isinstance(domain, Space) else Space.of(domain, such_that)
        outputs = Outputs.read(objective, constraints, units)
        algorithm = cls._with_seeds(DEFAULT_ALGORITHM if algorithm is None else algorithm, space, seeds)
        if algorithm.traits.certifies and space.axes:
            # Rules of safe sets may name an axis.
            space = dataclasses.replace(space, domain=replace(space.domain, names=space.names))
        return cls(space=space, outputs=outputs, algorithm=algorithm, **fields)

    def __post_init__(self) -> None:
        check_fields(self)
        object.__setattr__(self, "is_guarded", self.is_guarded and self.algorithm.traits.certifies)
        if self.standardise is None:
            object.__setattr__(self, "standardise", not self.is_guarded)
        names = [*self.space.names, *self.outputs.names]
        for number, name in enumerate(names):
            place = number - len(self.space.names)
            where, taken = "domain" if place < 0 else "constraints" if place else "objective", ", ".join(sorted(TAKEN))
            if name == RUNS and self.learns_runs:
                continue
            label(where, name)
            if name in TAKEN or name in names[:number]:
                if place >= 0 and name in self.space.names:
                    raise InvalidArgument(
                        f"{where}: outputs and axes must have names of their own, and {name!r} is an axis, whose ends are its limits"
                    )
                raise InvalidArgument(f"{where}: outputs and axes must have names of their own, none of {taken}, got {name!r}")
        if self.model is None and not self.standardise and not self.is_guarded:
            raise InvalidArgument(
                f"standardise: must be {short(True)} without a model, because one is fitted to standardised outputs, got {short(False)}"
            )
        if self.model is not None and self.model.fit_to is not None:
            raise InvalidArgument(
                "model.fit_to: a session fits to what it has been told, when asked to and by fit_every; give earlier data as its"
                f" {either('history', '--history')}, or a kernel with the hyper-parameters that suit them"
            )
        if self.algorithm.traits.sees_constraints:
            raise InvalidArgument(
                f"algorithm: {type(self.algorithm).__name__} sees the constraint functions before it chooses (full information), which no"
                " experiment can show; take an algorithm that learns them from measurements"
            )
        self.space.check_algorithm(self.algorithm)
        if self.is_guarded:
            self._check_guarantee()
        self._check_similar()
        self._check_steps()
        size, axes = self.space.domain.size, self.space.domain.dimension
        functions = len(self.outputs.functions)
        self.algorithm.validate(None, functions, size, axes)
        self.design.validate("initial", functions, size, axes)
        if self.design.values is not None:
            raise InvalidArgument(f"initial.values: a session is told its values; give earlier ones as {either('history', '--history')}")
        # An output with two limits is modelled by two functions.
        if self.delay is not None:
            self.delay.validate("delay", functions if functions == len(self.outputs.names) else None)
        if self.at_once and self.feedback is not None:
            raise InvalidArgument(f"feedback: has no effect where values come before the next round, got {short(self.feedback)}")
        if self.algorithm.traits.needs_feedback_at_once and not self.at_once:
            raise InvalidArgument(
                f"delay: {type(self.algorithm).__name__} needs the values of a round before the next one; give"
                f" {setting('delay', NoDelay())}, got"
                f" {short(self.delay)}"
            )
        if self.feedback is None and self.schema > 1 and not self.at_once:
            object.__setattr__(self, "feedback", Hallucinate())

    @staticmethod
    def _with_seeds(algorithm: Algorithm, space: Space, seeds: Sequence[Mapping[str, object]] | None) -> Algorithm:
        """Return the algorithm with ``seeds``, or raise ``InvalidArgument`` for unknown points."""
        if seeds is None:
            return algorithm
        name = type(algorithm).__name__
        if not isinstance(seeds, list | tuple) or not seeds or not all(isinstance(seed, Mapping) for seed in seeds):
            example = short([{name: 0.5 for name in space.names}])
            raise InvalidArgument(
                f"seeds: must be a list of points by the names of their coordinates, such as {example}, got {short(seeds)}"
            )
        if not algorithm.traits.certifies:
            raise InvalidArgument(f"seeds: {name} begins at no seeds; give an initial design, or a history")
        if algorithm.traits.seeds is not None:
            raise InvalidArgument(f"seeds: {name} has seeds of its own; give either these or its own, got both")
        if isinstance(space.domain, Box):
            raise InvalidArgument(f"seeds: {name} chooses among the points of a grid; give every axis a number of points")
        numbers = []
        for place, seed in enumerate(seeds):
            with naming(f"seeds[{place}]"):
                index = space.nearest(seed)
                if space.distance(seed, index) > ON_GRID:
                    there = short(space.point(index))
                    raise InvalidArgument(f"point: must be one of the domain's, for one beside it may be unsafe; the nearest is {there}")
                numbers.append(index)
        return algorithm.with_facts(seeds=np.asarray(numbers))

    def _check_guarantee(self) -> None:
        """Raise ``InvalidArgument`` if an argument voids the guarantee of certified points."""
        name = type(self.algorithm).__name__
        seeds, own = self.algorithm.traits.seeds, "certifies points by a prior of the constraints that stays as it is"
        if self.standardise:
            raise InvalidArgument(
                f"standardise: must be {short(False)} with {name}, which {own}: a unit computed from values moves it; give a model in the"
                " outputs' own units, or none, and leave standardise out"
            )
        if self.fit_every is not None:
            raise InvalidArgument(
                f"fit_every: must be left out with {name}, which {own}; begin another session from this one's history with the model that"
                f" you then believe, got {self.fit_every}"
            )
        if self.algorithm.traits.refits:
            raise InvalidArgument(
                f"algorithm: {name} fits the model while it runs, which voids the guarantee of what it runs; run that alone"
            )
        if self.feedback is not None and not isinstance(self.feedback, Wait | Hallucinate):
            policies = f"{short(Wait())} or {short(Hallucinate())}"
            words = f"certify points by values that were never measured; take {policies}"
            raise InvalidArgument(f"feedback: {type(self.feedback).__name__} would let {name} {words}")
        if self.initial is not None and self.initial.count:
            known = [] if seeds is None else np.asarray(seeds).tolist()
            indices = [] if self.initial.indices is None else np.asarray(self.initial.indices).tolist()
            if self.initial.random or (seeds is not None and not set(indices) <= set(known)):
                raise InvalidArgument(
                    f"initial: must hold seeds of {name} alone, for nothing is known of other points; leave it out, and the seeds are"
                    f" measured first, got {short(self.initial)}"
                )

    def _check_similar(self) -> None:
        """Raise ``InvalidArgument`` if the learner cannot have similar sessions."""
        name, traits = type(self.algorithm).__name__, self.algorithm.traits
        if not self.similar:
            return
        if self.model is not None:
            raise InvalidArgument(f"similar: is a part of the default model; leave the model out, got {short(self.model)}")
        for is_own, words in (
            (traits.certifies, "certifies points by a prior of its own"),
            (traits.refits, "fits a model of its own"),
            (traits.joint_arrival, "has one model for all outputs"),
        ):
            if is_own:
                raise InvalidArgument(f"similar: must be left out with {name}, which {words}; give earlier values as its history")

    def _check_steps(self) -> None:
        """Raise ``InvalidArgument`` unless steps of ``max_step`` reach a next point."""
        space, steps = self.space, self.max_step
        if steps is None:
            return
        if not self.algorithm.traits.certifies:
            words = f"limits SafeOpt, StageOpt and SgpUcb, and {type(self.algorithm).__name__} is none of these"
            raise InvalidArgument(f"max_step: {words}; leave it out, got {short(steps)}")
        if not isinstance(steps, Mapping) or not steps:
            raise InvalidArgument(
                f"max_step: must be a mapping from names of axes to numbers > 0, such as {short({space.names[0]: 1})}, got {short(steps)}"
            )
        for name, step in steps.items():
            where, column = f"max_step.{name}", space.columns.get(name)
            check_known(name, space.names, where, "the axes are")
            assert column is not None
            if column.dtype.kind == "U":
                raise InvalidArgument(f"{where}: must be left out, for categories have no distance, got {short(step)}")
            scalar.check(where, step)
            checks.positive(where, step)
            gaps = np.diff(np.unique(column))
            if gaps.size and step < (least := float(gaps.min())) * (1 - ON_GRID):
                raise InvalidArgument(f"{where}: must be at least {least:g}, the least step between two values of the axis, got {step:g}")

    @property
    def at_once(self) -> bool:
        """Return whether values of a round arrive before the next round."""
        return isinstance(self.delay, NoDelay) or (self.delay is None and self.algorithm.traits.needs_feedback_at_once)

    @property
    def units(self) -> dict[str, str]:
        """Units of the axes and outputs with a unit, by name."""
        return {axis.name: axis.unit for axis in self.space.axes if axis.unit} | dict(self.outputs.unit_of)

    @property
    def together(self) -> bool:
        """Return whether the model waits for all values of a point."""
        late = [len(self.outputs.functions) == 1, self.algorithm.traits.joint_arrival, self.delay is not None and self.delay.joint]
        return not self.at_once and any(late)

    @functools.cached_property
    def design(self) -> InitialDesign:
        """Given or default initial design."""
        if self.initial is None:
            if self.is_guarded:
                seeds = self.algorithm.traits.seeds
                return InitialDesign() if seeds is None else InitialDesign(indices=np.unique(np.asarray(seeds)))
            # A key by itself compiles programs.
            key = None if isinstance(self.space.domain, Box) else self._design_key
            return InitialDesign() if self.model else spread_out(self.space.domain, key, halved=bool(self.similar))
        return self.initial

    @property
    def design_is_default(self) -> bool:
        """Return whether the initial design is the default."""
        default = dataclasses.replace(self, initial=None).design
        return self._design_table(self.design) == self._design_table(default)

    @property
    def _design_key(self) -> Key:
        return design_key(trial_key(typed(self.key), 0))

    def design_points(self) -> list[int | Place]:
        """Return the points of a simulation's initial design: numbers, or places."""
        domain = self.space.domain
        # Sampling would compile programs even for no points.
        if not self.design.count:
            return []
        if not isinstance(domain, Box):
            return [int(index) for index in np.asarray(self.design.points(self._design_key, domain.size))]
        with arithmetic([self._cell_with(*self.first, self.room()).variants.pick(0)[1].precision]):
            places = jax.jit(InitialDesign.places)(self.design, self._design_key, domain)
            return [self.space.readable(place) for place in np.asarray(places).tolist()]

    @functools.cached_property
    def first(self) -> tuple[Model, Standard | None]:
        """Model before any fit, with its standard unless in the outputs' units."""
        outputs = self.outputs
        unknown = Standard(location=(0.0, *(one.centre for one in outputs.constraints)), scale=(1.0,) * len(outputs.names))
        return with_means(self.alone, outputs, self.similar), unknown if self.standardise or not self.model else None

    @functools.cached_property
    def alone(self) -> Model:
        """Model before any fit, without similar sessions."""
        return self.model or default_model(self.space.domain, self.algorithm)

    @functools.cached_property
    def undelayed(self) -> Specification | None:
        """The specification on a box without delays.

        It is ``None`` where its choices may be others. As long as no value is late, its learner has one posterior in place of two, and its
        programs take half the time to compile and to run.
        """
        if self.at_once or self.learns_runs or self.schema == 1 or self.delay is not None or not isinstance(self.space.domain, Box):
            return None
        assert self.feedback is not None
        return dataclasses.replace(self, delay=NoDelay(), feedback=None) if self.feedback.matters_only_late else None

    @functools.cached_property
    def setting(self) -> Setting:
        """Setting of trial 0 of a simulation with the same key."""
        return self.setting_with(*self.first, self.room())

    def room(self, tickets: int = 0, known: int = 0) -> int:
        """Return the model's capacity in observations after some tickets.

        The capacity suffices for all rounds and ``known`` points. Two kinds of models have rows of the covariance instead, with a capacity
        that doubles: default models, because programs for all rounds take several times as long to compile, and models of many points,
        because each process would take seconds to compute their features.
        """
        every = self.horizon + self.design.count + known
        return min(every, max(self.first_room, 1 << tickets.bit_length())) if self._grows else every

    @property
    def _grows(self) -> bool:
        """Return whether the model's capacity grows with the session."""
        of_rows = self.model is None or self.space.domain.size > self.max_feature_points
        return self.schema > 1 and of_rows and not draws(self.algorithm)

    def setting_with(self, model: Model, standard: Standard | None, room: int) -> Setting:
        """Return the :attr:`setting` with another model and capacity."""
        cell = self._cell_with(model, standard, room)
        with arithmetic([cell.variants.pick(0)[1].precision]):
            return jax.jit(Cell.setting)(cell, typed(self.key), np.asarray([0, 0, 1], np.int32))

    def _cell_with(self, model: Model, standard: Standard | None, room: int) -> Cell:
        domain, functions = self.space.domain, len(self.outputs.functions)
        free = model.form == "auto" and model.rank is None and model.length_scale_range is None
        # The rows of a model have at most 2^27 entries.
        if self._grows and free and not isinstance(domain, Box) and domain.size <= 2**27 // room:
            model = dataclasses.replace(model, form="rows")
        surrogate = expanded(model, self.outputs, domain.size, standard).of(domain, functions, room, "model")
        late = None
        if not self.at_once:
            policy = self.feedback or self.algorithm.traits.feedback
            policy.validate(outputs=functions)
            late = Delays(model=self.delay or UnknownDelay(), policy=policy, capacity=self.capacity or self.horizon)
        with arithmetic([surrogate.precision]):
            variants = [(self.algorithm, surrogate, late)]
            cell = Cell.of(self._problem, variants, self.design, horizon=self.horizon, room=room, block=1)
            return cell.in_one_block() if self._grows else cell

    @property
    def _problem(self) -> AbstractProblem:
        """A problem with unused values on the domain."""
        domain, functions = self.space.domain, len(self.outputs.functions)
        means = np.zeros((functions, domain.size))
        if isinstance(domain, Box):
            nowhere = Certificate(value=np.float64(0), point=np.zeros(domain.dimension))
            return BoxProblem(domain=domain, functions=(Specification._nothing,) * functions, means=means, best=nowhere)
        return from_tables(domain, means[0], means[1:])

    @staticmethod
    def _nothing(point: Array) -> Array:
        return jnp.zeros((), point.dtype)

    @functools.cached_property
    def with_runs(self) -> Specification | None:
        """The specification with one more output, or ``None``.

        The output is whether a run gives values. Some learners cannot have it.

        It cannot in journals of version 1, where a model certifies points or all outputs share a kernel, where the learner needs all values
        of a round before the next one, and where arguments hold one entry for each output.
        """
        if self.schema == 1 or self.is_guarded:
            return None
        late = {"delay": None, "feedback": Wait()} if self.at_once else {"delay": self.delay and Failing(delay=self.delay)}
        try:
            algorithm = self.algorithm.with_runs(len(self.outputs.functions) - 1)
            parts = dataclasses.replace(self, outputs=self.outputs.with_runs(), algorithm=algorithm, learns_runs=True, **late)
            parts.check_start(*with_runs(self.outputs, self.alone, *self.first, self.space.domain.size))
        except InvalidArgument:
            return None
        return parts

    def check_start(self, model: Model, standard: Standard | None) -> None:
        """Raise the algorithm's ``InvalidArgument`` unless it can start with a model."""
        cell = self._cell_with(model, standard, self.room())

        def begun(pair: Array) -> object:
            setting = cell.setting(typed(self.key), pair)
            return setting.algorithm.init(setting.arena)

        with arithmetic([cell.variants.pick(0)[1].precision]):
            jax.eval_shape(begun, np.asarray([0, 0, 1], np.int32))

    def table(self) -> dict[str, Any]:
        """Return plain values, with a fingerprint for an algorithm without a table."""
        key, parts = typed(self.key), ("delay", "feedback", "horizon", "capacity", "fit_every")
        return {
            "space": self.space.table(),
            "objective": str(self.outputs.objective),
            "constraints": [text for constraint in self.outputs.constraints for text in constraint.written],
            "algorithm": self._algorithm_table(self.algorithm),
            "model": None if self.model is None else self.model.table(),
            "key": {"generator": str(jax.random.key_impl(key)), "data": np.asarray(jax.random.key_data(key)).tolist()},
            "initial": self._design_table(self.design),
            **({"units": dict(self.outputs.unit_of)} if self.outputs.unit_of else {}),
            **({"standardise": self.standardise} if self.schema > 1 else {}),
            **({"similar": [to_plain(dict(means), "similar") for means in self.similar]} if self.similar else {}),
            **({"max_step": None if self.max_step is None else dict(self.max_step)} if self.is_guarded else {}),
        } | {name: to_plain(getattr(self, name), name) for name in parts}

    @staticmethod
    def _design_table(design: InitialDesign) -> dict[str, Plain]:
        """Return an initial design as plain values."""
        names = ("indices", "random") if design.repeated_within is None else ("indices", "random", "repeated_within")
        return {name: to_plain(getattr(design, name), f"initial.{name}") for name in names}

    @staticmethod
    def _algorithm_table(algorithm: Algorithm) -> dict[str, Plain]:
        """Return an algorithm's table, or else its class and fingerprint."""
        try:
            return dict(to_plain(algorithm, "algorithm"))
        except InvalidArgument:
            return fingerprint_of(algorithm)

    @classmethod
    @checked
    def from_table(
        cls,
        table: Annotated[ObjectTable, Words("a table that Specification.table() has written")],
        algorithm: Algorithm | None = None,
        such_that: Constraints | None = None,
    ) -> Specification:
        """Return a :meth:`table`'s specification, given what no table describes.

        That is a fingerprinted ``algorithm``, and functions of ``such_that``.
        """
        written, key = table["algorithm"], table["key"]
        if algorithm is None and "fingerprint" in written:
            raise InvalidArgument(f"algorithm: the session was made with {written['class']} of your own; pass the same object")
        if algorithm is not None and cls._algorithm_table(algorithm) != written and fingerprint_of(algorithm) != written:
            raise InvalidArgument(f"algorithm: the session was made with another one, {short(written)}, got {short(algorithm)}")
        # A JAX array would compile a program.
        data: Any = np.asarray(key["data"], np.uint32)
        key = jax.random.wrap_key_data(data, impl=key["generator"])
        schema = SCHEMA if "standardise" in table else 1
        is_guarded = "max_step" in table
        table, space = {"standardise": False, **table}, Space.from_table(table["space"], such_that)
        given = {**table, "algorithm": written if algorithm is None else algorithm}
        similar = [{name: from_plain(Kernel, mean, "similar") for name, mean in means.items()} for means in table.get("similar", ())]
        return cls._read(given, space, key, schema=schema, is_guarded=is_guarded, similar=similar)

    @classmethod
    def _read(cls, table: ObjectTable, space: Space, key: KeyOrSeed, **version: Any) -> Specification:
        """Return the specification of a space, a key and a table."""
        given = {name: table[name] for name in WORDS if name in table and name not in ("domain", "key", "such_that")}
        for name, kind in (("model", Model), ("initial", InitialDesign)):
            given[name] = None if table.get(name) is None else from_fields(kind, table[name], name)
        for role in (Algorithm, Delay, Policy):
            given[word_of(role)] = from_plain(role, table.get(word_of(role)), word_of(role))
        return cls.of(space, key=key, **version, **given)


# Words of `Session.create` and of files: those of `Specification.of`, and the fields that users give.
WORDS = {*inspect.signature(Specification.of).parameters, *(field.name for field in dataclasses.fields(Specification))}
WORDS -= {"fields", "space", "outputs", "schema", "is_guarded", "similar", "learns_runs"}


def fingerprint_of(algorithm: Algorithm) -> dict[str, Plain]:
    """Return the class and the fingerprint of an algorithm."""
    return {"class": name_of(type(algorithm)), "fingerprint": digest({"it": exact(algorithm)})}


@checked
def read_toml(path: FilePath) -> Specification:
    """Return the specification of a TOML file.

    Raises:
      InvalidArgument: if the file cannot be read, is no TOML, or has an unknown entry.
    """
    table = toml_table(path, "experiment")
    with naming(str(path)):
        for name in table:
            check_known(name, sorted(WORDS - {"domain", "key"} | {"axis", "seed"}), name, "an experiment has")
        if not isinstance(table.get("axis"), Mapping) or not table["axis"]:
            raise InvalidArgument("axis: there is none; add a table [axis.NAME]")
        seed = table.get("seed", 0)
        whole(0, 2**32 - 1)("seed", seed)
        each(text)("such_that", such_that := table.get("such_that", []))
        space = Space.of([Axis.read(name, axis, f"axis.{name}") for name, axis in table["axis"].items()], such_that)
        return Specification._read(table, space, jax.random.key(seed))
