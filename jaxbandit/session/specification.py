"""All that a session is made of, as one value that its journal holds and from which it can be made again."""

from __future__ import annotations

import dataclasses
import functools
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms import Algorithm
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.codec import digest, exact, from_fields, from_plain, name_of, to_plain, word_of
from jaxbandit.core.declare import check_domain, check_fields, checked
from jaxbandit.core.fields import Described, Words, whole
from jaxbandit.core.fields import path as path_check
from jaxbandit.core.files import opened_text, reason_of
from jaxbandit.core.keys import trial_key, typed
from jaxbandit.core.paths import check_known
from jaxbandit.core.pytree import pytree
from jaxbandit.core.types import Array, Key
from jaxbandit.delays import LONGEST_DELAY, Delay, NoDelay
from jaxbandit.engine import InitialDesign
from jaxbandit.engine.delayed import policy_in_force
from jaxbandit.engine.inputs import Rounds
from jaxbandit.feedback import Policy
from jaxbandit.session.axes import Axis, Space
from jaxbandit.session.outputs import Outputs
from jaxbandit.session.stepping import Learner, design_points, make_learner
from jaxbandit.session.tables import TAKEN
from jaxbandit.study.model import Model
from jaxbandit.surrogates import Surrogate, arithmetic

NUMBERS = ("horizon", "capacity", "fit_every")
PLAIN = ("objective", "constraints", "seed", *NUMBERS)
PARTS = ("axis", "algorithm", "model", "feedback", "delay", "initial")


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
    """All parts of a session; arguments as for :meth:`Session.create <jaxbandit.session.Session.create>`.

    Attributes:
      space: the points among which it chooses.
      outputs: what is measured.
      algorithm: the algorithm.
      model: the GP model of the outputs, built on the points.
      horizon: most rounds.
      key: a PRNG key; the session draws the random numbers of trial 0 of a simulation with this key.
      delay: what is known of the delays; ``None`` for nothing.
      feedback: feedback policy; ``None`` for the algorithm's own.
      initial: points to measure before round 1.
      capacity: rounds for which a value may be late; ``None`` for all of them.
      fit_every: completed tickets between two fits of the model; ``None`` for no fits.
    """

    described: ClassVar[str] = "a Specification"
    space: Annotated[Space, Words("the points of a session, Space.of(domain)")]
    outputs: Annotated[Outputs, Words("what a session measures, Outputs.read(objective, constraints)")]
    algorithm: Algorithm
    model: Annotated[Model, Words("the model of a session, study.Model(...)")]
    horizon: Rounds
    key: Key
    delay: Delay | None = None
    feedback: Policy | None = None
    initial: Annotated[InitialDesign, Words("an initial design, such as InitialDesign(random=3)")] = InitialDesign()
    capacity: Rounds | None = None
    fit_every: Annotated[int, whole(1)] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        names = [*self.space.names, *self.outputs.names]
        for number, name in enumerate(names):
            if name in TAKEN or name in names[:number]:
                own = number - len(self.space.names)
                where = "domain" if own < 0 else "constraints" if own else "objective"
                raise InvalidArgument(
                    f"{where}: outputs and axes must have names of their own, none of {', '.join(sorted(TAKEN))}, got {name!r}"
                )
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
        self.algorithm.validate(outputs=self.outputs.modelled)
        check_domain(self.algorithm, self.space.domain.size, self.space.domain.dimension)
        self.initial.validate("initial")
        self.initial.check_size(self.space.domain.size)
        if self.delay is not None:  # of the outputs that are told, or of the functions that are modelled
            told = len(self.outputs.names)
            self.delay.validate("delay", self.outputs.modelled if told == self.outputs.modelled else None)
        if self.at_once and self.feedback is not None:
            raise InvalidArgument(f"feedback: has no effect where values come before the next round, got {short(self.feedback)}")
        if self.algorithm.traits.needs_feedback_at_once and not self.at_once:
            raise InvalidArgument(
                f"delay: {type(self.algorithm).__name__} needs the values of a round before the next one; give delay=NoDelay(), got"
                f" {short(self.delay)}"
            )

    @property
    def at_once(self) -> bool:
        """Say whether the values of a round come before the next one is asked for."""
        return isinstance(self.delay, NoDelay) or (self.delay is None and self.algorithm.traits.needs_feedback_at_once)

    def design(self) -> list[int]:
        """Return the points of the initial design."""
        if not self.initial.count:
            return []  # at once: most sessions have none, and drawing no point would compile programs
        return design_points(self.initial, trial_key(typed(self.key), 0), self.space.domain.size)

    def surrogate(self, model: Model) -> Surrogate:
        """Return the GP model of the modelled functions that ``model`` of the outputs amounts to."""
        return _expanded(model, self.outputs, self.space.domain.size).of(
            self.space.domain, self.outputs.modelled, self.horizon + self.initial.count, "model"
        )

    @functools.cached_property
    def learner(self) -> Learner:
        """Learner of the session before any observation."""
        return self.learner_with(self.model)

    def learner_with(self, model: Model) -> Learner:
        """Return the learner of the session before any observation, with another model than its own."""
        surrogate = self.surrogate(model)
        with arithmetic([surrogate.precision]):
            if self.at_once:
                return make_learner(self.algorithm, surrogate, typed(self.key), horizon=self.horizon, policy=None, capacity=0)
            delay, policy = self.delay or UnknownDelay(), policy_in_force(self.algorithm, self.feedback)
            policy.validate(outputs=self.outputs.modelled)
            return make_learner(
                self.algorithm.with_delays(delay, policy),
                surrogate,
                typed(self.key),
                horizon=self.horizon,
                policy=policy,
                capacity=self.capacity or self.horizon,
                joint=delay.joint,
            )

    def table(self) -> dict[str, Any]:
        """Return the specification as plain values; an algorithm that no table describes by its fingerprint."""
        key = typed(self.key)
        return {
            "space": self.space.table(),
            "objective": str(self.outputs.objective),
            "constraints": [str(constraint) for constraint in self.outputs.constraints],
            "algorithm": algorithm_table(self.algorithm),
            "model": self.model.table(),
            "key": {"generator": str(jax.random.key_impl(key)), "data": np.asarray(jax.random.key_data(key)).tolist()},
            "delay": to_plain(self.delay, "delay"),
            "feedback": to_plain(self.feedback, "feedback"),
            "initial": {"indices": to_plain(self.initial.indices, "initial.indices"), "random": self.initial.random},
        } | {name: to_plain(getattr(self, name), name) for name in NUMBERS}

    @classmethod
    @checked
    def from_table(
        cls,
        table: Annotated[Mapping[str, Any], Words("a table that Specification.table() has written")],
        algorithm: Algorithm | None = None,
    ) -> Specification:
        """Return the specification that :meth:`table` has written; ``algorithm`` stands for one that no table describes.

        Raises:
          InvalidArgument: when that is missing, or is not the one that the session was made with.
        """
        own, key = table["algorithm"], table["key"]
        if "fingerprint" in own and (algorithm is None or fingerprint_of(algorithm) != own):
            words = "none was given" if algorithm is None else f"got another one, {short(algorithm)}"
            raise InvalidArgument(f"algorithm: the session was made with {own['class']} of your own; pass the same object, {words}")
        if "fingerprint" not in own and algorithm is not None and algorithm_table(algorithm) != own:
            raise InvalidArgument(f"algorithm: the session was made with another one, {short(own)}, got {short(algorithm)}")
        return cls(
            space=Space.from_table(table["space"]),
            key=jax.random.wrap_key_data(jnp.asarray(key["data"], jnp.uint32), impl=key["generator"]),
            **_read_parts({**table, "algorithm": own if algorithm is None else algorithm}),
        )

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the specification."""
        return digest(self.table())


def algorithm_table(algorithm: Algorithm) -> dict[str, Any]:
    """Return an algorithm as plain values: its table, or the class and the fingerprint of one that no table can describe."""
    try:
        return dict(to_plain(algorithm, "algorithm"))
    except InvalidArgument:
        return fingerprint_of(algorithm)


def fingerprint_of(algorithm: Algorithm) -> dict[str, Any]:
    """Return the class and the fingerprint of an algorithm."""
    return {"class": name_of(type(algorithm)), "fingerprint": digest({"it": exact(algorithm)})}


@checked
def read_toml(path: Annotated[Path, path_check]) -> Specification:
    """Return the specification of a TOML file.

    Raises:
      InvalidArgument: when the file cannot be read, is no TOML, or holds what no session has.
    """
    try:
        with opened_text(path) as file:
            table = tomllib.loads(file.read())
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgument(f"experiment: cannot read {str(path)!r}: {reason_of(error)}") from error
    for name in table:
        check_known(name, [*PLAIN, *PARTS], name, "an experiment has")
    for name in ("axis", "algorithm"):
        if not isinstance(table.get(name), Mapping) or not table[name]:
            raise InvalidArgument(f"{name}: there is none; add a table [{'axis.NAME' if name == 'axis' else name}]")
    seed = table.get("seed", 0)
    whole(0, 2**32 - 1)("seed", seed)
    return Specification(
        space=Space.of([Axis.read(name, axis, f"axis.{name}") for name, axis in table["axis"].items()]),
        key=jax.random.key(seed),
        **_read_parts(table),
    )


def _read_parts(table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a specification, without its points and its key, that a table of a file or of a journal holds."""
    return {
        "outputs": Outputs.read(table.get("objective", "maximise reward"), table.get("constraints", [])),
        "model": from_fields(Model, table.get("model", {}), "model"),
        "initial": from_fields(InitialDesign, table.get("initial", {}), "initial"),
        "horizon": table.get("horizon", 1000),
        **{word_of(role): from_plain(role, table.get(word_of(role)), word_of(role)) for role in (Algorithm, Delay, Policy)},
        **{name: table.get(name) for name in ("capacity", "fit_every")},
    }


def prior_means(model: Model, outputs: Outputs) -> list[float]:
    """Return the prior mean of each output, in its own units.

    One number is the objective's; a constraint's is then its bound, so that it is as likely to hold as not.
    """
    means = np.asarray(model.prior_mean, np.float64)
    if means.ndim == 0:
        return [float(means), *(constraint.bound for constraint in outputs.constraints)]
    return [float(mean) for mean in _one_each("prior_mean", means, outputs)]


def _one_each(name: str, values: Any, outputs: Outputs) -> Any:
    """Return what a model says of each output; raises ``InvalidArgument`` unless there is one for each."""
    if len(values) != len(outputs.names):
        raise InvalidArgument(f"model.{name}: must hold one for each of the {len(outputs.names)} outputs, got {len(values)}")
    return values


def _expanded(model: Model, outputs: Outputs, size: int) -> Model:
    """Return the model of the modelled functions on ``size`` points from that of the outputs, of which an equality is modelled twice."""

    def each(name: str, value: Any) -> list[Any]:
        return [item for item, rows in zip(_one_each(name, value, outputs), outputs.rows, strict=True) for _ in rows]

    changes: dict[str, Any] = {"prior_mean": outputs.prior_means(prior_means(model, outputs))}
    if isinstance(model.kernel, list | tuple):
        changes["kernel"] = each("kernel", model.kernel)
    noise = np.shape(model.noise_variance)
    if noise and (noise == (len(outputs.names),) or noise != (size,)):  # a table over the points is that of all outputs
        changes["noise_variance"] = each("noise_variance", np.asarray(model.noise_variance).tolist())
    return dataclasses.replace(model, **changes)
