"""Many trials of many variants, in one program or in parts: begun, played for some rounds at a time, and concluded; and measured.

What they carry between the parts is a plain pytree of arrays, from which a run goes on bit for bit. In one program only trials of one
block carry anything at a time.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from jaxbandit.algorithms.base import unwrapped
from jaxbandit.core.keys import Stream, stream_key, trial_key
from jaxbandit.core.pytree import Variants, pytree, static
from jaxbandit.metrics import Tally, extend
from jaxbandit.problems import optimum
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
        return prepare(
            self.problem,
            algorithm,
            surrogate,
            _trial_key(key, pair, self.common),
            horizon=self.horizon,
            informed=self.informed,
            delays=delays,
            axis=axis_of(self.block),
        )


@partial(jax.jit, static_argnames="mesh")
def begin_all(cell: Cell, key: Array, pairs: Array, *, mesh: Mesh | None) -> tuple[Progress, Array]:
    """Before round 1, for each of ``pairs [P, 3]``: what is carried, and the points ``[P, n]`` of the initial design."""

    def one(shared: tuple[Cell, Array], pair: Array) -> tuple[Progress, Array]:
        cell, key = shared
        progress, before = begin(cell.setting(key, pair), cell.initial)
        return progress, before.index

    return over_pairs(one, (cell, key), pairs, block=cell.block, mesh=mesh)


@partial(jax.jit, static_argnames=("rounds", "record", "mesh"), donate_argnames="carry")
def advance_all(
    cell: Cell, key: Array, carry: Progress, pairs: Array, first: Array, *, rounds: int, record: str, mesh: Mesh | None
) -> tuple[Progress, dict[str, Any]]:
    """Rounds ``first .. first + rounds - 1``: what is carried on, and what was seen, see :func:`_seen`."""

    def one(shared: tuple[Cell, Array, Array], own: tuple[Progress, Array]) -> tuple[Progress, dict[str, Any]]:
        cell, key, first = shared
        before, pair = own
        setting = cell.setting(key, pair)
        progress, seen = advance(setting, before, first, rounds, record=record)
        return progress, _seen(setting, seen, record)

    return over_pairs(one, (cell, key, first), (carry, pairs), block=cell.block, mesh=mesh)


@partial(jax.jit, static_argnames="mesh")
def conclude_all(cell: Cell, key: Array, carry: Progress, pairs: Array, *, mesh: Mesh | None) -> dict[str, Any]:
    """What is known of trials when they end, see :func:`_conclude`."""

    def one(shared: tuple[Cell, Array], own: tuple[Progress, Array]) -> dict[str, Any]:
        cell, key = shared
        progress, pair = own
        return _conclude(cell.setting(key, pair), progress)

    return over_pairs(one, (cell, key), (carry, pairs), block=cell.block, mesh=mesh)


@partial(jax.jit, static_argnames=("record", "mesh"))
def play_all(cell: Cell, key: Array, pairs: Array, *, record: str, mesh: Mesh | None) -> tuple[Array, dict[str, Any], dict[str, Any]]:
    """All rounds in one program: the points, what was seen and what is known that the three above give."""

    def one(shared: tuple[Cell, Array], pair: Array) -> tuple[Array, dict[str, Any], dict[str, Any]]:
        cell, key = shared
        setting = cell.setting(key, pair)
        progress, before = begin(setting, cell.initial)
        progress, seen = advance(setting, progress, 1, cell.horizon, record=record)
        return before.index, _seen(setting, seen, record), _conclude(setting, progress)

    return over_pairs(one, (cell, key), pairs, block=cell.block, mesh=mesh)


@partial(jax.jit, static_argnames=("common", "metrics", "block", "mesh"))
def measure_all(
    problem: Any,
    key: Array,
    pairs: Array,
    so_far: Tally,
    indices: Array,
    *,
    common: bool,
    metrics: tuple[str, ...],
    block: int,
    mesh: Mesh | None,
) -> tuple[Tally, dict[str, Array], dict[str, Array]]:
    """Curves over further rounds, in which ``indices [P, n]`` were chosen, what they come to, and facts of each trial's instance.

    A program of its own, for it depends on the problem only: cells on problems of one shape share it.
    """

    def one(shared: tuple[Any, Array], own: tuple[Array, Tally, Array]) -> tuple[Tally, dict[str, Array], dict[str, Array]]:
        problem, key = shared
        pair, before, chosen = own
        instance = problem.sample(stream_key(_trial_key(key, pair, common), Stream.PROBLEM))
        after, found = extend(instance, before, chosen)
        best = optimum(instance)
        facts = {"optimum": best.value, "feasible_fraction": best.feasible_fraction, "slater_slack": best.slater_slack}
        return after, {name: getattr(found, name) for name in metrics}, facts

    return over_pairs(one, (problem, key), (pairs, so_far, indices), block=block, mesh=mesh)


def _trial_key(key: Array, pair: Array, common: bool) -> Array:
    """Of a pair's trial; of the line's own unless random numbers are common."""
    return trial_key(key if common else jax.random.fold_in(key, pair[2]), pair[1])


def _seen(setting: Setting, seen: dict[str, Any], record: str) -> dict[str, Any]:
    """The points of one trial's rounds, with ``record="all"`` values and arrivals too, by the names of Trajectory.

    Widths are kept of an algorithm that reads from them when it stopped.
    """
    names = ("indices", "values", "arrivals", *(("widths",) if hasattr(unwrapped(setting.algorithm), "evaluations") else ()))
    return {name: seen[name] for name in (names if record == "all" else names[:1]) if seen.get(name) is not None}


def _conclude(setting: Setting, progress: Progress) -> dict[str, Any]:
    """What is known of one trial when it ends, by the names of :class:`~jaxbandit.simulate.Trajectory`.

    Of an algorithm that eliminates: ``candidates``, the number of points not struck out, and ``optimum_kept``, whether the best is one.
    """
    ended = outcome(progress)
    alive = ended["candidates"]
    if alive is not None:
        ended |= {"candidates": jnp.sum(alive, dtype=jnp.int32), "optimum_kept": alive[optimum(setting.instance).index]}
    return {name: value for name, value in ended.items() if value is not None}
