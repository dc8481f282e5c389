"""The compiled programs: many trials of many variants, in one piece or in parts: begun, played for some rounds at a time, and concluded.

What trials carry between the parts is a plain pytree of arrays, from which a run goes on bit for bit. In one piece only the trials of one
block carry anything at a time. ``jaxbandit.simulate`` and studies both run these programs; nothing else compiles a trial.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxbandit.algorithms.base import Algorithm
from jaxbandit.core.blocks import axis_of, equal_blocks, least_block, map_blocks
from jaxbandit.core.checks import InvalidArgument, blaming
from jaxbandit.core.keys import pair_key, trial_key
from jaxbandit.core.pytree import canonicalise, pytree, replace, signature, static
from jaxbandit.core.sweep import Sweep, gather_variants
from jaxbandit.engine.delayed import Delays
from jaxbandit.engine.trial import Informed, InitialDesign, Setting, TrialState, advance, begin, conclude, multipliers_of, prepare
from jaxbandit.fused.rounds import Plan as KernelPlan
from jaxbandit.metrics import Curves, curves, healthy
from jaxbandit.problems import AbstractProblem
from jaxbandit.problems.base import without_name
from jaxbandit.surrogates import Surrogate
from jaxbandit.surrogates.rows import RowCache

Array = jax.Array
WHOLE_RECORDS = ("all", "audit")  # records that keep the multipliers after the last round, and every candidate


MIN_UNSHARED_LEAF = 4096  # numbers in a leaf from which runs that differ in it are cells of their own: a variant is copied for every trial

Variant: TypeAlias = tuple[Algorithm, Surrogate, Delays | None]
"""Parts that vary between the runs of a cell: the algorithm, its model, and delays with what the learner does meanwhile."""


@pytree
class Cell:
    """Runs that differ in numbers only, and so share one program.

    Attributes:
      problem: a problem or a family.
      variants: ``(algorithm, surrogate, delays)`` of each run.
      initial: points observed before round 1.
      horizon: number of rounds ``T``.
      block: number of trials side by side.
      common: whether the runs share their trials' random numbers.
      informed: as for :func:`~jaxbandit.simulate`.
      kernel: the kernel of :mod:`jaxbandit.fused` that plays the rounds, ``None`` where XLA plays them.
    """

    problem: AbstractProblem
    variants: Sweep
    initial: InitialDesign
    horizon: int = static()
    block: int = static()
    common: bool = static(default=True)
    informed: Informed | None = static(default=None)
    kernel: KernelPlan | None = static(default=None)

    @classmethod
    def of(
        cls, problem: AbstractProblem, variants: Sequence[Variant], initial: InitialDesign, *, horizon: int, block: int = 1, **how: Any
    ) -> Cell:
        """Return the cell of runs that fit each other, in arrays of the engine's types; objects that stand several times are turned once.

        Args:
          problem: problem of all runs.
          variants: algorithm, surrogate and delays of each run.
          initial: points observed before round 1.
          horizon: number of rounds ``T``.
          block: number of trials side by side.
          **how: ``common``, ``informed`` and ``kernel``.
        """
        turned: dict[int, Any] = {id(item): canonicalise(item) for algorithm, _, delays in variants for item in (algorithm, delays)}
        turned |= {id(model): canonicalise(model.without_kernels()) for _, model, _ in variants}
        gathered = gather_variants([tuple(turned[id(part)] for part in variant) for variant in variants])
        return cls(
            problem=canonicalise(without_name(problem)),
            variants=gathered,
            initial=canonicalise(initial),
            horizon=horizon,
            block=block,
            **how,
        )

    def shares_a_program(self, other: Cell) -> bool:
        """Return whether runs of two cells on one problem can be variants of one: they differ in numbers only, and in no large leaf.

        The size of the buffer of pending feedback may differ, on which results do not depend.
        """
        if (self.horizon, self.common, self.informed, self.kernel) != (other.horizon, other.common, other.informed, other.kernel):
            return False
        mine, others = (_with_capacity(cell.variants.pick(0), 1) for cell in (self, other))
        if self.kernel is not None and not _equal_but(mine[1].forms, others[1].forms, largest=0):
            return False  # a kernel reads the features of all its trials from one table
        return _equal_but(self.initial, other.initial, largest=0) and _equal_but(mine, others, largest=MIN_UNSHARED_LEAF)

    @staticmethod
    def joined(cells: Sequence[Cell]) -> Cell:
        """Return one cell of the runs of cells that share a program."""
        variants = [variant for cell in cells for variant in cell.variants.unstack()]
        capacity = max((delays.capacity for _, _, delays in variants if delays is not None), default=1)
        return replace(cells[0], variants=gather_variants([_with_capacity(variant, capacity) for variant in variants]))

    def setting(self, key: Array, pair: Array) -> Setting:
        """Return the setting of ``pair [3]``: the variant within the cell, the trial, and the run within the study counted from 1."""
        algorithm, surrogate, delays = self.variants.pick(pair[0])
        return prepare(
            self.problem,
            algorithm,
            surrogate,
            pair_key(key, pair, self.common),
            horizon=self.horizon,
            informed=self.informed,
            delays=delays,
            axis=axis_of(self.block),
            kernel=self.kernel,
        )


def _with_capacity(variant: Variant, capacity: int) -> Variant:
    """Return a variant with another size of the buffer of pending feedback."""
    algorithm, model, delays = variant
    return algorithm, model, None if delays is None else replace(delays, capacity=capacity)


def _equal_but(one: Any, other: Any, *, largest: int) -> bool:
    """Return whether two trees are equal but for the numbers in leaves of fewer than ``largest``."""
    if signature(one) != signature(other):
        return False
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.size(x) < largest or x is y or np.array_equal(x, y) for x, y in pairs)


def laid_out_for(platform: str, cell: Cell) -> Cell:
    """Return a cell whose models keep their rows as devices of a platform want them, see :meth:`RowCache.in_one_block`."""

    def in_rows(x: Any) -> bool:
        return isinstance(x, RowCache)

    if platform == "cpu":
        return cell
    variants = [jax.tree.map(lambda x: x.in_one_block() if in_rows(x) else x, own, is_leaf=in_rows) for own in cell.variants.unstack()]
    return replace(cell, variants=gather_variants(variants))


@partial(jax.jit, static_argnames="mesh")
def begin_all(cell: Cell, key: Array, pairs: Array, *, mesh: Mesh | None) -> tuple[TrialState, dict[str, Array]]:
    """Return the state of each of ``pairs [P, 3]`` before round 1, and its initial design, see :func:`_initial`."""

    def one(shared: tuple[Cell, Array], pair: Array) -> tuple[TrialState, dict[str, Array]]:
        cell, key = shared
        trial, before = begin(cell.setting(key, pair), cell.initial)
        return trial, _initial(before)

    return map_blocks(one, (cell, key), pairs, block=cell.block, mesh=mesh)


@partial(jax.jit, static_argnames=("rounds", "record", "mesh"), donate_argnames="carry")
def advance_all(
    cell: Cell, key: Array, carry: TrialState, pairs: Array, first: Array, *, rounds: int, record: str, mesh: Mesh | None
) -> tuple[TrialState, dict[str, Any]]:
    """Play rounds ``first .. first + rounds - 1`` of each pair; returns the states after them and the record of every round."""

    def one(shared: tuple[Cell, Array, Array], own: tuple[TrialState, Array]) -> tuple[TrialState, dict[str, Any]]:
        cell, key, first = shared
        before, pair = own
        trial, seen = advance(cell.setting(key, pair), before, first, rounds, record=record)
        return trial, _present(seen)

    return map_blocks(one, (cell, key, first), (carry, pairs), block=cell.block, mesh=mesh)


@partial(jax.jit, static_argnames="mesh")
def conclude_all(cell: Cell, key: Array, carry: TrialState, pairs: Array, *, mesh: Mesh | None) -> dict[str, Any]:
    """Return the quantities of trials that have ended, by the names of :class:`~jaxbandit.Trajectory`."""

    def one(shared: tuple[Cell, Array], own: tuple[TrialState, Array]) -> dict[str, Any]:
        cell, key = shared
        trial, pair = own
        return _brief(conclude(cell.setting(key, pair), trial))

    return map_blocks(one, (cell, key), (carry, pairs), block=cell.block, mesh=mesh)


@jax.custom_jvp
def without_derivative(tree: Any) -> Any:
    """Return ``tree``, whose derivative is an error: choices are piecewise constant, and their derivative is 0 without a word."""
    return tree


@without_derivative.defjvp
def _(primals: Any, tangents: Any) -> Any:
    raise InvalidArgument(
        "simulate: it has no derivative, for the points chosen are piecewise constant in every hyper-parameter;"
        " use jaxbandit.gradients.SmoothedLoss, or jaxbandit.gradients.replay for beliefs along fixed points"
    )


@partial(jax.jit, static_argnames=("record", "mesh"))
def play_all(
    cell: Cell, key: Array, pairs: Array, count: Array | None = None, *, record: str, mesh: Mesh | None
) -> tuple[dict[str, Array], dict[str, Any], dict[str, Any]]:
    """Play all rounds in one program; returns the initial design, the record of every round, and the quantities at the end.

    Given ``count``, only so many blocks of each device are played, see :func:`~jaxbandit.core.blocks.map_blocks`.

    Raises:
      InvalidArgument: when it is differentiated.
    """
    cell = without_derivative(cell)

    def one(shared: tuple[Cell, Array], pair: Array) -> tuple[dict[str, Array], dict[str, Any], dict[str, Any]]:
        cell, key = shared
        setting = cell.setting(key, pair)
        trial, before = begin(setting, cell.initial)
        trial, seen = advance(setting, trial, 1, cell.horizon, record=record)
        ended = conclude(setting, trial)
        if record in WHOLE_RECORDS:
            last = multipliers_of(setting.algorithm, trial.state, setting.arena)
            seen["multipliers"] = jnp.concatenate([seen["multipliers"], last[None]])
        return _initial(before), _present(seen), ended if record in WHOLE_RECORDS else _brief(ended)

    return map_blocks(one, (cell, key), pairs, block=cell.block, mesh=mesh, count=count)


@partial(jax.jit, static_argnames=("build", "measure", "horizon", "block", "informed"))
def measure_each(
    problem: AbstractProblem,
    initial: InitialDesign,
    delays: Delays | None,
    own: Any,
    trials: Array,
    key: Array,
    *,
    build: Callable[[Any], tuple[Algorithm, Surrogate]],
    measure: Callable[[Curves], Array],
    horizon: int,
    block: int,
    informed: Informed | None,
) -> tuple[Array, Array, Array]:
    """Play ``trials [P]`` with hyper-parameters of their own and return ``measure`` of each, and whether it went well.

    ``own`` is a pytree with leading axes ``[P]``; ``build`` makes the algorithm and the model of one trial from it. The second result is a
    fingerprint of the points that a trial chose: equal where all of them are.
    """
    count = trials.shape[0]
    blocks, block = equal_blocks(count, block, 1, least_block(block))
    padded = jax.tree.map(lambda x: jnp.concatenate([x, jnp.repeat(x[-1:], blocks * block - count, axis=0)]), (own, trials))

    def one(shared: tuple[Any, Any, Any, Array], mine: tuple[Any, Array]) -> tuple[Array, Array, Array]:
        problem, initial, delays, key = shared
        with blaming("build: must make an algorithm and a surrogate of traced parameters"):
            algorithm, surrogate = build(mine[0])
        if delays is not None:
            algorithm = algorithm.with_delays(delays.model, delays.policy)
        own_key = trial_key(key, mine[1])
        axis = axis_of(block)
        setting = prepare(problem, algorithm, surrogate, own_key, horizon=horizon, informed=informed, delays=delays, axis=axis, told=True)
        trial, before = begin(setting, initial)
        trial, seen = advance(setting, trial, 1, horizon, record="indices")
        indices = jnp.concatenate([before.index, seen["indices"]]) if initial.counted else seen["indices"]
        weights = 2 * jax.random.bits(jax.random.key(0), indices.shape, jnp.uint32) + 1
        status = conclude(setting, trial)["status"]
        return measure(curves(setting.instance, indices)), jnp.sum(weights * indices.astype(jnp.uint32)), healthy(status)

    played = map_blocks(one, (problem, initial, delays, key), padded, block=block, mesh=None)
    return jax.tree.map(lambda x: x[:count], played)


def _initial(before: Any) -> dict[str, Array]:
    """Return the points ``[n]`` and values ``[n, 1 + m]`` of an initial design, by the names of :class:`~jaxbandit.Trajectory`."""
    return {"initial_indices": before.index, "initial_values": before.values}


def _present(seen: dict[str, Any]) -> dict[str, Any]:
    """Return the arrays that there are."""
    return {name: value for name, value in seen.items() if value is not None}


def _brief(ended: dict[str, Any]) -> dict[str, Any]:
    """Return the quantities at the end without those of the size of the domain."""
    return {name: value for name, value in ended.items() if name != "candidates"}
