"""Cells: checked runs that share one compiled program, as its argument."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena
from jaxbandit.core import checks
from jaxbandit.core.blocks import axis_of
from jaxbandit.core.declare import Array, Declared, Device
from jaxbandit.core.doors import setting, warn
from jaxbandit.core.fields import nothing, of_class
from jaxbandit.core.keys import Stream, pair_key, stream_key
from jaxbandit.core.pytree import canonicalise, float_dtype, pytree, remember, replace, signature, static
from jaxbandit.core.sweep import Sweep, gather_variants
from jaxbandit.delays import Delay
from jaxbandit.domains import Box, Contextual
from jaxbandit.engine import learner
from jaxbandit.engine.arguments import Delays, plan_delays, told_facts, with_one_root
from jaxbandit.engine.trial import Informed, InitialDesign, Setting
from jaxbandit.feedback import Policy
from jaxbandit.fused.cells import Unsupported
from jaxbandit.fused.plan import FusedKernel, plan_of
from jaxbandit.problems import AbstractProblem
from jaxbandit.problems.base import without_name
from jaxbandit.results.dataset import output_names
from jaxbandit.rules.widths import Width
from jaxbandit.surrogates import AbstractSurrogate, BoxSurrogate, Surrogate
from jaxbandit.surrogates.boxes.pool import Sizes
from jaxbandit.surrogates.rows import RowCache

Variant: TypeAlias = tuple[Algorithm, Surrogate, Delays | None]


@pytree
class Cell:
    """Runs that differ in numbers only, and so share one program."""

    problem: AbstractProblem
    variants: Sweep
    initial: InitialDesign
    horizon: int = static()
    block: int = static()
    common: bool = static(default=True)
    informed: Informed | None = static(default=None)
    kernel: FusedKernel | None = static(default=None)

    # The reason why XLA runs the rounds, see `on`.
    by_xla: ClassVar[str] = ""

    @classmethod
    def ready(
        cls,
        problem: AbstractProblem,
        variants: Sequence[tuple[Algorithm, Surrogate, Delay]],
        initial: InitialDesign,
        *,
        horizon: int,
        feedback: Policy | None,
        capacity: int | None = None,
        informed: Informed | None,
        check: bool = True,
        **how: Any,
    ) -> Cell:
        """Return the checked cell of runs, ready but for :meth:`on`.

        By default the models have the room and the refresh period that these runs need. Runs are checked, with warnings, unless ``check``
        is false.
        """
        algorithms, models, delays = (list(parts) for parts in zip(*variants, strict=True))
        if check:
            check_run(problem, algorithms, models, horizon, initial, informed)
        late = plan_delays(problem, algorithms, delays, feedback, capacity, horizon)
        if informed is None and late[0] is not None:
            late = with_one_root(late, models, horizon)
        needed = {"room": horizon + initial.count, "refresh": least_refresh(models, horizon), "informed": informed}
        return cls.of(problem, list(zip(algorithms, models, late, strict=True)), initial, horizon=horizon, **(needed | how))

    @classmethod
    def of(
        cls,
        problem: AbstractProblem,
        variants: Sequence[Variant],
        initial: InitialDesign,
        *,
        room: int,
        refresh: int | None = None,
        block: int | None = None,
        **how: Any,
    ) -> Cell:
        """Return the cell of runs, with models for ``room`` observations."""
        distinct = {id(model): model for _, model, _ in variants}
        models = {number: canonicalise(replace(with_room_for(model, room, refresh), kernels=())) for number, model in distinct.items()}
        learners = [algorithm if late is None else algorithm.with_delays(late.model, late.policy) for algorithm, _, late in variants]
        turned = {id(part): canonicalise(part) for part in (*learners, *(late for _, _, late in variants))}
        gathered = [
            (turned[id(one)], models[id(model)], turned[id(late)]) for one, (_, model, late) in zip(learners, variants, strict=True)
        ]
        return cls(
            problem=canonicalise(without_name(problem)),
            variants=gather_variants(gathered),
            initial=canonicalise(initial),
            block=block or _usual_block(learners[0], gathered[0][1], variants[0][2]),
            **how,
        )

    def on(self, device: Device, fused: bool | str, rounds: int) -> Cell:
        """Return the cell for a device, with a kernel useful for ``rounds``."""
        kernel = self._kernel_on(device, fused, rounds)
        cell = self if device.platform == "cpu" else self.in_one_block()
        return remember(cell, by_xla=kernel) if isinstance(kernel, str) else replace(cell, kernel=kernel)

    def in_one_block(self) -> Cell:
        """Return the cell with rows in one block, for a smaller program."""

        def laid_out(part: object) -> object:
            return part.in_one_block() if isinstance(part, RowCache) else part

        variants = [jax.tree.map(laid_out, variant, is_leaf=lambda x: isinstance(x, RowCache)) for variant in self.variants.unstack()]
        return replace(self, variants=gather_variants(variants))

    def _kernel_on(self, device: Device, fused: bool | str, rounds: int) -> FusedKernel | str:
        """Return the kernel for all rounds, or the reason for XLA."""
        if fused is False:
            return f"as {setting('fused', False)} asks"
        fast_devices = ("NVIDIA H100",)
        if fused == "auto" and not device.device_kind.startswith(fast_devices):
            only = f"takes a kernel only on devices on which it was measured to be faster: {', '.join(fast_devices)}"
            return f"because {setting('fused', 'auto')} {only}"
        # In 20 million trial-rounds a kernel gains the time that it takes longer to compile.
        worthwhile = 20_000_000
        if fused == "auto" and rounds < worthwhile:
            pays = f"takes a kernel from {worthwhile:,} trial-rounds on, for which compiling it pays; these are {rounds:,}"
            return f"because {setting('fused', 'auto')} {pays}"
        algorithm, model, late = self.variants.pick(0)
        if fused == "auto" and checks.is_traced((algorithm, self.problem)):
            return "for it is traced, perhaps for a derivative, and a kernel has none"
        _, differing, _ = jax.tree.unflatten(self.variants.structure, self.variants.differing)
        if any(leaf is not None for leaf in jax.tree.leaves(differing.forms)):
            return "because models that run side by side differ in their features"
        try:
            return plan_of(algorithm, model, self.problem, None if late is None else late.policy, device.platform)
        except Unsupported as reason:
            return f"because {reason}"

    def shares_a_program(self, other: Cell) -> bool:
        """Return whether cells on one problem differ only in small leaves."""
        if (self.horizon, self.common, self.informed, self.kernel) != (other.horizon, other.common, other.informed, other.kernel):
            return False
        # Results do not depend on the capacity.
        mine, others = (_with_capacity(cell.variants.pick(0), 1) for cell in (self, other))
        # A kernel reads the features of all its trials from one table.
        if self.kernel is not None and not _equal_but(mine[1].forms, others[1].forms, largest=0):
            return False
        # Runs that differ in a leaf of this size are not variants of one cell, because a variant is copied for every trial.
        min_unshared_leaf = 4096
        return _equal_but(self.initial, other.initial, largest=0) and _equal_but(mine, others, largest=min_unshared_leaf)

    def joined(self, variants: Sequence[Variant]) -> Cell:
        """Return the cell of all ``variants``, with the largest buffer."""
        capacity = max((delays.capacity for _, _, delays in variants if delays is not None), default=1)
        return replace(self, variants=gather_variants([_with_capacity(variant, capacity) for variant in variants]))

    def setting(self, key: Array, pair: Array | np.ndarray) -> Setting:
        """Return the setting of a pair ``[3]``: variant, trial, run from 1."""
        return self.setting_of(self.variants.pick(pair[0]), pair_key(key, pair, self.common))

    def setting_of(self, variant: Variant, key: Array, *, unchecked: bool = False) -> Setting:
        """Return the setting of a variant in the trial of a key."""
        algorithm, surrogate, delays = variant
        with learner.blaming_class(self.problem, "problem: {name}.sample must return an instance for a key"):
            instance = self.problem.sample(stream_key(key, Stream.PROBLEM))
        learner.check_instance(instance, self.problem)
        if self.informed is not None:
            with checks.blaming("informed: must be a function of (instance, algorithm, surrogate) that JAX can trace"):
                told = self.informed(instance, algorithm, surrogate)
            match told:
                case (Algorithm() as algorithm, Surrogate() as surrogate):
                    pass
                case _:
                    raise checks.InvalidArgument(f"informed: must return (algorithm, surrogate), got {checks.short(told)}")
        # The surrogate factorises once, before the rounds, because a length-scale may be traced.
        surrogate = surrogate.factorised().separate() if algorithm.traits.decoupled else surrogate.factorised()
        bound: AbstractSurrogate = surrogate
        joint = False
        if delays is not None:
            joint = surrogate.outputs == 1 or algorithm.traits.joint_arrival
            separate = _arrive_apart(algorithm, surrogate, delays)
            axis = axis_of(self.block)
            late = delays.policy.bind(surrogate, separate_outputs=separate, capacity=delays.capacity, axis=axis)
            bound = replace(late, one_root=delays.one_root)
        return Setting(
            instance=instance,
            algorithm=algorithm,
            arena=Arena(surrogate=bound, horizon=jnp.asarray(np.int32(self.horizon))),
            key=key,
            delays=delays,
            joint_arrival=joint,
            kernel=self.kernel,
            unchecked=unchecked or self.informed is not None,
        )


def _arrive_apart(algorithm: Algorithm, surrogate: Surrogate, delays: Delays) -> bool:
    """Return whether the outputs' values arrive by themselves."""
    return surrogate.outputs > 1 and not (algorithm.traits.joint_arrival or delays.model.joint)


def _usual_block(algorithm: Algorithm, surrogate: Surrogate, delays: Delays | None) -> int:
    """Return the number of trials whose factors suit a CPU core's cache."""
    block = int(min(form.trials_per_block for form in surrogate.forms))
    if delays is None or delays.one_root or not delays.policy.has_factors_of_arrivals or not _arrive_apart(algorithm, surrogate, delays):
        return block
    return max(min(block, 2), block * len(surrogate.forms) // surrogate.outputs)


def _with_capacity(variant: Variant, capacity: int) -> Variant:
    """Return a variant with another capacity for pending feedback."""
    algorithm, model, delays = variant
    return algorithm, model, None if delays is None else replace(delays, capacity=capacity)


def _equal_but(one: object, other: object, *, largest: int) -> bool:
    """Return whether trees are equal except in leaves below ``largest`` numbers."""
    if signature(one) != signature(other):
        return False
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.size(x) < largest or x is y or np.array_equal(x, y) for x, y in pairs)


def _warn_of_noise(problem: AbstractProblem, models: Sequence[Surrogate]) -> None:
    """Warn if noise variances of model and problem differ by ``NOISE_OFF``."""
    if (
        checks.is_traced((problem, [model.noise_variance for model in models]))
        or (true := problem.noise.variances(problem.outputs)) is None
    ):
        return
    noise_off = 100
    for model in models:
        assumed = np.asarray(model.noise_variance, np.float64).reshape(len(model.forms), -1).mean(axis=1)[list(model.groups)]
        off = (true > 0) & ((assumed > noise_off * true) | (noise_off * assumed < true))
        if np.any(off):
            j = int(np.argmax(off))
            warn(
                f"noise_variance: the model's is {assumed[j]:.3g} for {output_names(problem.outputs)[j]}, while the noise of problem"
                f" {problem.name!r} has {true[j]:.3g}, more than {noise_off} times off; give both in the same units, unless that is meant",
            )
            return


def check_run(
    problem: AbstractProblem,
    algorithms: Sequence[Algorithm],
    models: Sequence[Surrogate],
    horizon: int,
    initial: InitialDesign,
    informed: Informed | None,
) -> None:
    """Raise ``InvalidArgument`` unless all parts are valid and fit each other."""
    problem.validate()
    size, axes = problem.domain.size, problem.domain.dimension
    distinct = {id(model): model for model in models}.values()
    for model in distinct:
        _check_model(problem, model)
        need = model.needs(horizon)
        if need.precision == "float64" != model.precision and float_dtype() == np.float32:
            warn(
                f"precision: float32 resolves too little here: {need.reason}; build the surrogate with"
                f" {setting('horizon', horizon)} and {setting('precision', 'auto')}",
            )
        check_capacity(model, horizon, initial.count)
    _warn_of_noise(problem, list(distinct))
    for algorithm in {id(algorithm): algorithm for algorithm in algorithms}.values():
        of_class(Algorithm)("algorithm", algorithm)
        if algorithm.traits.sees_constraints and not problem.reveals_constraints:
            raise checks.InvalidArgument(
                f"problem: {type(algorithm).__name__} sees a noisy constraint function before it chooses, which problem {problem.name!r}"
                " does not give; wrap it by full_information"
            )
        algorithm.validate(None, problem.outputs, size, axes)
        for width in jax.tree.leaves(algorithm, is_leaf=lambda part: isinstance(part, Width)):
            if isinstance(width, Width):
                for model in distinct:
                    width.check_noise(model.noise_variance)
        if informed is None and (lacks := algorithm.traits.lacks):
            raise checks.InvalidArgument(lacks)
        if isinstance(problem.domain, Box) and not algorithm.on_boxes:
            raise checks.InvalidArgument(
                f"algorithm: {type(algorithm).__name__} chooses among the points of a finite domain, and problem {problem.name!r} is on a"
                " box; make it by problems.from_functions on points of the box, such as domain.sobol(4096, 0)"
            )
        if isinstance(problem.domain, Contextual) and not algorithm.on_contexts:
            raise checks.InvalidArgument(
                f"algorithm: {checks.short(algorithm)} cannot choose among the actions of one context, and problem {problem.name!r} has"
                " contexts; take one that scores points, such as Pdcbo or Rpol"
            )
    on_box = isinstance(problem.domain, Box)
    initial.validate("initial", problem.outputs, None if on_box and initial.indices is None else size, axes)
    (told_facts | nothing)("informed", informed)
    if isinstance(informed, Declared):
        if on_box:
            rule = f"{type(informed).__name__} tells numbers of points, which a box has not"
            raise checks.InvalidArgument(f"informed: {rule}; give a function of (instance, algorithm, surrogate), or points in the box")
        informed.validate(None, None, size, axes)


def check_capacity(model: Surrogate, horizon: int, initial: int) -> None:
    """Raise ``InvalidArgument`` if a row cache is too small."""
    capacity = min((form.capacity for form in model.forms if isinstance(form, RowCache)), default=model.domain.size)
    if capacity < model.domain.size and horizon + initial > capacity:
        raise checks.InvalidArgument(
            f"horizon: {horizon} rounds and {initial} initial points, but the surrogate's row cache holds"
            f" {capacity}; build it with {setting('horizon', horizon + initial)}"
        )


def least_refresh(models: Sequence[Surrogate], horizon: int) -> int:
    """Return the shortest refresh period that a model needs, or 0."""
    distinct = {id(model): model for model in models}.values()
    periods = [model.needs(horizon).refresh for model in distinct if float_dtype() == np.float32]
    return min((period for period in periods if period), default=0)


def with_room_for(model: Surrogate, points: int, refresh: int | None = None) -> Surrogate:
    """Return a model with room for ``points``, and another refresh period."""
    if isinstance(model, BoxSurrogate):
        model = model.with_room(-(-points // Sizes.room) * Sizes.room)
    return model if refresh in (None, model.refresh) else replace(model, refresh=refresh)


def _check_model(problem: AbstractProblem, model: Surrogate) -> None:
    """Raise ``InvalidArgument`` unless ``model`` fits the problem's outputs and points."""
    of_class(Surrogate)("surrogate", model)
    model.validate()
    if problem.outputs != model.outputs:
        raise checks.InvalidArgument(
            f"surrogate: models {model.outputs} outputs, but problem {problem.name!r} has {problem.outputs}"
            f" (reward and m = {problem.constraints} constraints); build it with outputs={problem.outputs}"
        )
    if problem.domain is model.domain:
        return
    boxes = [(each.names, each.sides) if isinstance(each, Box) else None for each in (model.domain, problem.domain)]
    if boxes[0] != boxes[1]:
        words = "a box and the other is not, or their sides differ"
        raise checks.InvalidArgument(
            f"surrogate: of its domain and that of problem {problem.name!r} one is {words}; build it on problem.domain"
        )
    x, y = (np.asarray(domain.points, np.float64) for domain in (problem.domain, model.domain))
    if x.shape != y.shape or np.any(np.abs(x - y) > 1e-6 * np.max(np.abs(x), initial=0.0)):
        raise checks.InvalidArgument(
            f"surrogate: built on other points ({model.domain.size}) than problem {problem.name!r} has"
            f" ({problem.domain.size}); build it on problem.domain"
        )
