"""Long runs in parts: many trials of many variants are begun, played for some rounds at a time, and concluded.

What they carry between the parts is a plain pytree of arrays, from which a run goes on bit for bit. Only curves leave a part, not the
trajectories, so that memory does not grow with the horizon.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from jax.sharding import Mesh

from jaxbandit.core.keys import trial_key
from jaxbandit.core.pytree import Variants, pytree, static
from jaxbandit.metrics import Curves, Tally, extend, tally
from jaxbandit.problems import Optimum, optimum
from jaxbandit.simulate.pairs import axis_of, over_pairs
from jaxbandit.simulate.trial import InitialDesign, Progress, Setting, advance, begin, outcome, prepare

Array = jax.Array


@pytree
class Cell:
    """Lines of a study that differ in numbers only, and so share one program.

    Attributes:
      problem: a problem or a family.
      lines: variants of ``(algorithm, surrogate, delays)``.
      initial: points observed before round 1.
      horizon: ``T``.
      block: trials side by side.
      common: whether lines share their trials' random numbers.
      informed: as for :func:`~jaxbandit.simulate`.
    """

    problem: Any
    lines: Variants
    initial: InitialDesign
    horizon: int = static()
    block: int = static()
    common: bool = static(default=True)
    informed: Any = static(default=None)

    def setting(self, key: Array, pair: Array) -> Setting:
        """Of ``pair``: the line within the cell, the trial, and the line within the study."""
        algorithm, surrogate, delays = self.lines.pick(pair[0])
        root = key if self.common else jax.random.fold_in(key, pair[2])
        return prepare(
            self.problem,
            algorithm,
            surrogate,
            trial_key(root, pair[1]),
            horizon=self.horizon,
            informed=self.informed,
            delays=delays,
            axis=axis_of(self.block),
        )


@pytree
class Carry:
    """What a trial carries from part to part."""

    progress: Progress
    tally: Tally


@pytree
class Opening:
    """What is known before round 1."""

    optimum: Optimum
    curves: Curves | None  # [n] of a counted initial design


@partial(jax.jit, static_argnames="mesh")
def begin_all(cell: Cell, key: Array, pairs: Array, *, mesh: Mesh | None) -> tuple[Carry, Opening]:
    """Before round 1, for each of ``pairs [P, 3]``."""

    def one(shared: tuple[Cell, Array], pair: Array) -> tuple[Carry, Opening]:
        setting = shared[0].setting(shared[1], pair)
        progress, before = begin(setting, shared[0].initial)
        so_far, seen = tally(setting.instance.constraints), None
        if shared[0].initial.counted and shared[0].initial.count:
            so_far, seen = extend(setting.instance, so_far, before.index)
        return Carry(progress=progress, tally=so_far), Opening(optimum=optimum(setting.instance), curves=seen)

    return over_pairs(one, (cell, key), pairs, block=cell.block, mesh=mesh)


@partial(jax.jit, static_argnames=("rounds", "metrics", "record", "mesh"), donate_argnames="carry")
def advance_all(
    cell: Cell,
    key: Array,
    carry: Carry,
    pairs: Array,
    first: Array,
    *,
    rounds: int,
    metrics: tuple[str, ...],
    record: str,
    mesh: Mesh | None,
) -> tuple[Carry, dict[str, Array], dict[str, Any]]:
    """Rounds ``first .. first + rounds - 1``: what is carried on, curves ``[P, rounds]``, and with ``record="all"`` what was seen."""

    def one(shared: tuple[Cell, Array, Array], own: tuple[Carry, Array]) -> tuple[Carry, dict[str, Array], dict[str, Any]]:
        cell, key, first = shared
        before, pair = own
        setting = cell.setting(key, pair)
        progress, seen = advance(setting, before.progress, first, rounds, record=record)
        so_far, found = extend(setting.instance, before.tally, seen["indices"])
        curves = {name: getattr(found, name) for name in metrics}
        kept = {name: seen[name] for name in ("indices", "values", "arrivals") if seen.get(name) is not None} if record == "all" else {}
        return Carry(progress=progress, tally=so_far), curves, kept

    return over_pairs(one, (cell, key, first), (carry, pairs), block=cell.block, mesh=mesh)


@partial(jax.jit, static_argnames=("block", "mesh"))
def conclude_all(carry: Carry, *, block: int, mesh: Mesh | None) -> dict[str, Any]:
    """What is known of trials when they end, by the names of :class:`~jaxbandit.simulate.Trajectory`."""

    def one(_: None, own: Carry) -> dict[str, Any]:
        ended = outcome(own.progress)
        return {name: value for name, value in ended.items() if value is not None and name != "candidates"}

    return over_pairs(one, None, carry, block=block, mesh=mesh)
