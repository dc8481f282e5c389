"""Many trials of many variants, in one program or in parts: begun, played for some rounds at a time, and concluded.

What they carry between the parts is a plain pytree of arrays, from which a run goes on bit for bit. Only curves leave a part, not the
trajectories, so that memory does not grow with the horizon. In one program only trials of one block carry anything at a time.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxbandit.algorithms.base import unwrapped
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
    indices: Array  # [n] of the initial design
    curves: Curves | None  # [n] of a counted initial design


@pytree
class Part:
    """What is seen in some rounds ``[n]`` of a trial."""

    curves: dict[str, Array]
    seen: dict[str, Any]  # by the names of Trajectory; empty unless trajectories are recorded


@partial(jax.jit, static_argnames="mesh")
def begin_all(cell: Cell, key: Array, pairs: Array, *, mesh: Mesh | None) -> tuple[Carry, Opening]:
    """Before round 1, for each of ``pairs [P, 3]``."""

    def one(shared: tuple[Cell, Array], pair: Array) -> tuple[Carry, Opening]:
        cell, key = shared
        return _begin(cell.setting(key, pair), cell.initial)

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
) -> tuple[Carry, Part]:
    """Rounds ``first .. first + rounds - 1``: what is carried on, and what was seen, with ``record="all"`` trajectories too."""

    def one(shared: tuple[Cell, Array, Array], own: tuple[Carry, Array]) -> tuple[Carry, Part]:
        cell, key, first = shared
        before, pair = own
        return _advance(cell.setting(key, pair), before, first, rounds, metrics, record)

    return over_pairs(one, (cell, key, first), (carry, pairs), block=cell.block, mesh=mesh)


@partial(jax.jit, static_argnames=("block", "mesh"))
def conclude_all(carry: Carry, best: Optimum, *, block: int, mesh: Mesh | None) -> dict[str, Any]:
    """What is known of trials when they end, see :func:`_conclude`."""

    def one(_: None, own: tuple[Carry, Optimum]) -> dict[str, Any]:
        return _conclude(*own)

    return over_pairs(one, None, (carry, best), block=block, mesh=mesh)


@partial(jax.jit, static_argnames=("metrics", "record", "mesh"))
def play_all(
    cell: Cell, key: Array, pairs: Array, *, metrics: tuple[str, ...], record: str, mesh: Mesh | None
) -> tuple[Opening, Part, dict[str, Any]]:
    """All rounds in one program: what :func:`begin_all`, :func:`advance_all` and :func:`conclude_all` give, to the rounding of sums."""

    def one(shared: tuple[Cell, Array], pair: Array) -> tuple[Opening, Part, dict[str, Any]]:
        cell, key = shared
        setting = cell.setting(key, pair)
        carry, opening = _begin(setting, cell.initial)
        carry, part = _advance(setting, carry, jnp.int32(1), cell.horizon, metrics, record)
        return opening, part, _conclude(carry, opening.optimum)

    return over_pairs(one, (cell, key), pairs, block=cell.block, mesh=mesh)


def _begin(setting: Setting, initial: InitialDesign) -> tuple[Carry, Opening]:
    """One trial before round 1."""
    progress, before = begin(setting, initial)
    so_far, curves = tally(setting.instance.constraints), None
    if initial.counted and initial.count:
        so_far, curves = extend(setting.instance, so_far, before.index)
    opening = Opening(optimum=optimum(setting.instance), indices=before.index, curves=curves)
    return Carry(progress=progress, tally=so_far), opening


def _advance(setting: Setting, before: Carry, first: Array, rounds: int, metrics: tuple[str, ...], record: str) -> tuple[Carry, Part]:
    """Some rounds of one trial; widths are kept of an algorithm that reads from them when it stopped."""
    progress, seen = advance(setting, before.progress, first, rounds, record=record)
    so_far, found = extend(setting.instance, before.tally, seen["indices"])
    names = ("indices", "values", "arrivals", *(("widths",) if hasattr(unwrapped(setting.algorithm), "evaluations") else ()))
    kept = {name: seen[name] for name in names if seen.get(name) is not None} if record == "all" else {}
    return Carry(progress=progress, tally=so_far), Part(curves={name: getattr(found, name) for name in metrics}, seen=kept)


def _conclude(carry: Carry, best: Optimum) -> dict[str, Any]:
    """What is known of one trial when it ends, by the names of :class:`~jaxbandit.simulate.Trajectory`.

    Of an algorithm that eliminates: ``candidates``, the number of points not struck out, and ``optimum_kept``, whether the best is one.
    """
    ended = outcome(carry.progress)
    alive = ended["candidates"]
    if alive is not None:
        ended |= {"candidates": jnp.sum(alive, dtype=jnp.int32), "optimum_kept": alive[best.index]}
    return {name: value for name, value in ended.items() if value is not None}
