"""Parts of domains, by constraints on coordinates that are known beforehand.

A constraint is a text such as ``"a + b <= 1"``, linear in the names of the axes, or a function of the coordinates by name that is ``<= 0``
where points are allowed.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.blocks import numpy_of
from jaxbandit.core.codec import name_of
from jaxbandit.core.fields import Check, each
from jaxbandit.core.hints import did_you_mean

SuchThat: TypeAlias = str | Callable[..., Any]
each_constraint = each(
    Check(
        "text such as 'a + b <= 1', or a function of coordinates by name that is <= 0 where points are allowed",
        lambda value: isinstance(value, str) or (callable(value) and not isinstance(value, type)),
    )
)
Constraints: TypeAlias = Annotated[Sequence[SuchThat], each_constraint]
"""Constraints on coordinates, texts or functions."""


@dataclasses.dataclass(frozen=True)
class Limit:
    """One constraint on the inputs, linear or a function.

    It is ``factors . x <= bound`` or ``=``, or a function ``<= 0``.

    Attributes:
      where: the argument and the text of the constraint, for messages.
      names: names of all axes.
      factors: ``[d]`` factors of the coordinates, in the units of the axes; ``()`` of a function.
      function: the function of coordinates by name.
    """

    where: str
    names: tuple[str, ...]
    factors: tuple[float, ...] = ()
    bound: float = 0.0
    is_equality: bool = False
    function: Callable[..., Any] | None = None

    def excess(self, points: Any) -> Any:
        """Return how far ``points [n, d]`` exceed the bound, in axes' units."""
        if self.function is None:
            return points @ numpy_of(points).asarray(self.factors, points.dtype) - self.bound
        if not isinstance(points, np.ndarray):
            return _function_values(self.function, self.names, points)
        with jax.enable_x64(True):
            return np.asarray(_evaluated(self.function, self.names)(points))

    def holds(self, points: np.ndarray) -> np.ndarray:
        """Return whether the constraint holds at ``points [n, d]`` of a domain."""
        excess: np.ndarray = self.excess(points)
        # On grids a constraint holds within a billionth of the sizes of its terms.
        near = 1e-9 * (np.abs(points) @ np.abs(self.factors) + abs(self.bound)) if self.factors else 0.0
        return np.abs(excess) <= near if self.is_equality else excess <= near

    def check(self) -> None:
        """Raise ``InvalidArgument`` unless JAX traces the function to a number."""
        if self.function is None:
            return
        words = f"{self.where}: must be a function of {', '.join(self.names)}, or of some of them, by name that JAX can trace"
        with jax.enable_x64(True), checks.blaming(words):
            made = jax.eval_shape(
                lambda x: _function_values(self.function, self.names, x), jax.ShapeDtypeStruct((1, len(self.names)), np.float64)
            )
        if made.shape != (1,) or not checks.is_real(made.dtype):
            words = "must return one number, <= 0 where points are allowed"
            raise checks.InvalidArgument(f"{self.where}: {words}, got {made.dtype} {list(made.shape[1:])}")


def _function_values(function: Any, names: Sequence[str], points: Any) -> Any:
    """Return the values ``[n]`` of a function of coordinates by name."""
    taken = inspect.signature(function).parameters.values()
    every = any(one.kind == one.VAR_KEYWORD for one in taken)
    given = [(axis, name) for axis, name in enumerate(names) if every or name in {one.name for one in taken}]
    return jax.vmap(lambda x: jnp.asarray(function(**{name: x[axis] for axis, name in given})))(jnp.asarray(points))


@functools.cache
def _evaluated(function: Any, names: tuple[str, ...]) -> Any:
    return jax.jit(functools.partial(_function_values, function, names))


def limits_of(such_that: Sequence[SuchThat], names: Sequence[str]) -> list[Limit]:
    """Return constraints on the axes of these names, or raise ``InvalidArgument``."""
    found = []
    for number, given in enumerate(such_that):
        if callable(given):
            found.append(Limit(f"such_that[{number}]", tuple(names), function=given))
            found[-1].check()
            continue
        where = f"such_that[{number}]: {given!r}"
        try:
            found += [Limit(where, tuple(names), *parts) for parts in _Reader(given, names, where).constraints()]
        except RecursionError:
            raise checks.InvalidArgument(f"such_that[{number}]: has too many brackets, got {checks.short(given)}") from None
    return found


class _Reader:
    """Reader of one text by the grammar of sums, products and relations."""

    def __init__(self, text: str, names: Sequence[str], where: str) -> None:
        self.rest, self.where = text.strip(), where
        self.names, self.is_about_axes = sorted(enumerate(names), key=lambda pair: -len(pair[1])), False

    def constraints(self) -> list[tuple[tuple[float, ...], float, bool]]:
        """Return factors, bound and whether it is an equality, of each relation."""
        sides, relations = [self.sum()], list[str]()
        while relation := self.taken(re.compile(r"<=|>=|==?")):
            relations.append(relation)
            sides.append(self.sum())
        if self.rest or not relations:
            raise self.refused()
        made = []
        for left, relation, right in zip(sides, relations, sides[1:], strict=False):
            *factors, constant = ((right - left) if relation == ">=" else (left - right)).tolist()
            made.append((tuple(factors), 0.0 - constant, relation in ("=", "==")))
        if not all(np.isfinite([*factors, bound]).all() for factors, bound, _ in made):
            raise self.refused("must have finite numbers")
        if not self.is_about_axes:
            raise self.refused(f"must name an axis, of {', '.join(name for _, name in sorted(self.names))}")
        return made

    def sum(self) -> np.ndarray:
        """Return factors and constant ``[d + 1]`` of a sum."""
        total = self.product()
        while sign := self.taken(re.compile(r"[+-]")):
            total = total + (1 if sign == "+" else -1) * self.product()
        return total

    def product(self) -> np.ndarray:
        """Return factors and constant ``[d + 1]`` of a product."""
        total = self.factor()
        while sign := self.taken(re.compile(r"[*/]")):
            other = self.factor()
            if sign == "/" and (other[:-1].any() or not other[-1]):
                raise self.refused("must divide by numbers other than 0 only")
            if sign == "*" and total[:-1].any() and other[:-1].any():
                raise self.refused("must be linear, and multiplies two names; give a function of them instead")
            total = total / other[-1] if sign == "/" else total * other[-1] if not other[:-1].any() else other * total[-1]
        return total

    def factor(self) -> np.ndarray:
        """Return factors and constant of a number, a name or a bracket."""
        found = np.zeros(len(self.names) + 1)
        if sign := self.taken(re.compile(r"[+-]")):
            return self.factor() * (1 if sign == "+" else -1)
        if self.taken(re.compile(r"\(")):
            found = self.sum()
            if not self.taken(re.compile(r"\)")):
                raise self.refused("has a bracket that is not closed")
            return found
        for axis, name in self.names:
            if re.match(re.escape(name) + (r"(?!\w)" if name[-1:].isalnum() else ""), self.rest):
                self.rest, found[axis], self.is_about_axes = self.rest[len(name) :].lstrip(), 1.0, True
                return found
        if number := self.taken(re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")):
            found[-1] = float(number)
            return found
        if word := re.match(r"[^\W\d]\w*", self.rest):
            known = [name for _, name in sorted(self.names)]
            near = did_you_mean(word.group(), known)
            raise self.refused(f"names {word.group()!r}, which is no axis{near}; the axes are {', '.join(known)}")
        raise self.refused()

    def taken(self, pattern: re.Pattern[str]) -> str:
        """Return what the rest begins with by a pattern, and move on."""
        found = pattern.match(self.rest)
        if found is None:
            return ""
        self.rest = self.rest[found.end() :].lstrip()
        return found.group()

    def refused(self, words: str = "") -> checks.InvalidArgument:
        """Return the error with these words, or with the grammar."""
        at = f"cannot be read from {checks.short(self.rest)} on" if self.rest else "ends too early"
        grammar = f"{at}; give sums of names and numbers with <=, >= or = between them, such as 'a + 2 * b <= 1'"
        return checks.InvalidArgument(f"{self.where}: {words or grammar}")


def mask_of(
    such_that: Sequence[SuchThat], names: Sequence[str], points: np.ndarray, categories: Sequence[Sequence[str]] = ()
) -> np.ndarray:
    """Return whether ``points [M, d]``, in the axes' units, satisfy constraints."""
    limits, allowed = limits_of(such_that, names), np.ones(len(points), bool)
    check_kinds(limits, [bool(labels) for labels in categories] or [False] * len(names))
    for limit in limits:
        holds = limit.holds(points)
        if not holds.any():
            raise checks.InvalidArgument(f"{limit.where}: excludes all {len(points):,} points")
        allowed &= holds
    if not allowed.any():
        raise checks.InvalidArgument(f"such_that: its constraints together exclude all {len(points):,} points, got {given_in(such_that)}")
    return allowed


def check_kinds(limits: Sequence[Limit], categorical: Sequence[bool]) -> None:
    """Raise ``InvalidArgument`` where a text has categories in a sum."""
    for limit in limits:
        for name, factor, is_category in zip(limit.names, limit.factors, categorical, strict=False):
            if factor and is_category:
                raise checks.InvalidArgument(f"{limit.where}: {name} has categories, which have no sums; give a function instead")


def given_in(such_that: Sequence[SuchThat]) -> str:
    """Return constraints in words."""
    return ", ".join(repr(one) if isinstance(one, str) else name_of(one) for one in such_that)


# Points of this share of the sides from an edge count as inside, in float64. Searches in float32 go a little further inside.
CLOSE, DEEPER_SINGLE = 1e-11, 4e-6


@dataclasses.dataclass(frozen=True)
class Region:
    """Convex part of the unit cube, with functions that limit it.

    The functions are ``<= 0`` in the allowed part.

    Attributes:
      given: the constraints as they were given.
      rows: ``[m, d]`` factors of linear constraints, whose absolute values sum to 1, so that an excess is a share of the sides.
      bounds: ``[m]`` their bounds.
      equal: ``[m]`` whether each is an equality.
      coarse: ``[m]`` whether each is of whole numbers alone.
      others: constraints that are not linear in the cube.
      middle: ``[d]`` the point furthest inside the linear constraints.
      free: ``[d]`` whether each axis is continuous.
    """

    given: tuple[SuchThat, ...]
    rows: tuple[tuple[float, ...], ...] = ()
    bounds: tuple[float, ...] = ()
    equal: tuple[bool, ...] = ()
    coarse: tuple[bool, ...] = ()
    others: tuple[Limit, ...] = ()
    middle: tuple[float, ...] = ()
    free: tuple[bool, ...] = ()

    def holds(self, points: Any, values: Any) -> Any:
        """Return whether constraints hold at ``points [n, d]`` of the cube.

        ``values`` are the points in the units of the axes.
        """
        module, is_double = numpy_of(points), points.dtype == np.float64
        allowed = module.ones(len(points), bool)
        for row, bound, is_equal, is_coarse in zip(self.rows, self.bounds, self.equal, self.coarse, strict=True):
            excess = self._sums(points, row) - bound
            # In float32 points count as inside from a millionth of the sides within the edge on.
            near = CLOSE if is_double else -1e-6
            allowed &= module.abs(excess) <= 2 * abs(near) if is_equal else excess <= (abs(near) if is_coarse else near)
        for limit in self.others:
            allowed &= limit.excess(values) <= 0
        return allowed

    def onto(self, points: Any, *, whole: bool = False, deeper: float | None = None) -> Any:
        """Return the nearest points ``[n, d]`` inside the linear constraints.

        They differ along continuous axes, or with ``whole`` along all axes. They are ``deeper`` inside, by default as far as their
        precision needs. The dual problem is solved by turns, one constraint after another, each exactly. Where all axes are free the rest
        that several constraints leave is cut off towards the middle.
        """
        module, kind = numpy_of(points), points.dtype
        if not self.rows:
            return module.clip(points, 0, 1)
        rows, bounds, free = np.asarray(self.rows), self._depths(kind, deeper), np.asarray(self.free) | whole
        moving, equal = module.asarray(np.where(free[None], rows, 0), kind), module.asarray(self.equal)
        fixed = np.where(free[None], 0, rows)
        goals = module.stack([bound - self._sums(points, row) for bound, row in zip(bounds, fixed, strict=True)], axis=1)

        def visit(number: Any, prices: Any) -> Any:
            row, own = moving[number], np.arange(len(rows))[None] == number
            rest = points - module.sum(module.where(own, 0, prices)[:, :, None] * moving[None], axis=1)
            price = _price(module, rest, row, goals[:, number])
            price = module.where(module.any(row != 0), module.where(equal[number], price, module.maximum(price, 0)), 0)
            return module.where(own, price[:, None], prices)

        # Several constraints take 24 sweeps.
        prices, visits = module.zeros((len(points), len(rows)), kind), len(rows) * (24 if len(rows) > 1 else 1)
        if visits == 1:
            prices = visit(0, prices)
        elif module is np:
            for number in range(visits):
                prices = visit(number % len(rows), prices)
        else:
            prices = jax.lax.fori_loop(0, visits, lambda number, prices: visit(number % len(rows), prices), prices)
        moved = points - module.sum(prices[:, :, None] * moving[None], axis=1)
        moved = module.where(module.asarray(free)[None], module.clip(moved, 0, 1), points)
        return self._cut(moved, deeper) if len(rows) > 1 and free.all() else moved

    def walked(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Return ends ``[count, d]`` of hit-and-run walks inside (Smith 1984)."""
        rows, bounds, equal = np.asarray(self.rows), self._depths(np.dtype(np.float32)), np.asarray(self.equal)
        dimension = rows.shape[1]
        sides = np.eye(dimension)
        along = np.linalg.svd(rows[equal])[2][np.linalg.matrix_rank(rows[equal]) :] if equal.any() else sides
        rows = np.concatenate([rows[~equal], sides, -sides])
        bounds = np.concatenate([bounds[~equal], np.ones(dimension), np.zeros(dimension)])
        points = np.repeat(np.asarray(self.middle)[None], count, axis=0)
        for _ in range(12 * dimension):
            way = rng.standard_normal((count, len(along))) @ along
            speed, room = way @ rows.T, np.maximum(bounds[None] - points @ rows.T, 0)
            with np.errstate(divide="ignore", invalid="ignore"):
                far = np.min(np.where(speed > 0, room / speed, np.inf), axis=1)
                back = np.max(np.where(speed < 0, room / speed, -np.inf), axis=1)
            points = points + (back + (far - back) * rng.uniform(size=count))[:, None] * way
        return self._cut(points, DEEPER_SINGLE)

    def outwards(self, points: np.ndarray, power: float) -> np.ndarray:
        """Return points moved away from the middle along continuous axes.

        Most come near an edge of the linear constraints. The distance from the middle, as a share of that of the edge on the way, is raised
        to ``power``.
        """
        equal, sides, middle = np.asarray(self.equal, bool), np.eye(len(self.middle)), np.asarray(self.middle)
        free = np.asarray(self.free)
        rows = np.concatenate([np.asarray(self.rows).reshape(-1, len(middle))[~equal], sides[free], -sides[free]])
        bounds = np.concatenate([self._depths(np.dtype(np.float32))[~equal], np.ones(free.sum()), np.zeros(free.sum())])
        away = np.where(free[None], points - middle[None], 0)
        room = bounds[None] - (points - away) @ rows.T
        share = np.max((away @ rows.T) / np.maximum(room, 1e-300), axis=1)
        share = np.clip(share, 1e-300, 1)
        return np.asarray(np.where(free[None], points - away + away * (share ** (power - 1))[:, None], points))

    def balanced(self, point: np.ndarray, near: float = 0.0) -> np.ndarray:
        """Return a point ``[d]`` on all equalities, up to rounding.

        The point is in the unit cube, and also on the edges that it is ``near``. Only as many coordinates change as there are such
        constraints, those furthest from the faces.
        """
        rows, bounds = np.asarray(self.rows), np.asarray(self.bounds)
        active = np.asarray(
            [equal or (near > 0 and row @ point - bound > -near) for row, bound, equal in zip(rows, bounds, self.equal, strict=True)], bool
        )
        if not active.any():
            return point
        # The import is here because it would slow down start-up.
        from scipy.linalg import qr

        rows, lacking, rank = rows[active], (bounds - rows @ point)[active], np.linalg.matrix_rank(rows[active])
        [moved] = qr(rows * np.where(self.free, 1e-3 + np.minimum(point, 1 - point), 0)[None], mode="r", pivoting=True)[1:]
        after = point.copy()
        after[moved[:rank]] += np.linalg.lstsq(rows[:, moved[:rank]], lacking)[0]
        return after

    def _cut(self, points: Any, deeper: float | None = None) -> Any:
        """Return points ``[n, d]`` moved towards the middle until inside."""
        module, kind = numpy_of(points), points.dtype
        middle, equal, bounds = module.asarray(self.middle, kind), np.asarray(self.equal), self._depths(kind, deeper)
        rows = np.asarray(self.rows)
        if equal.any():
            back = np.linalg.pinv(rows[equal])
            for _ in range(2):
                lacking = module.stack(
                    [bound - self._sums(points, row) for bound, row in zip(bounds[equal], rows[equal], strict=True)], axis=1
                )
                points = points + module.sum(lacking[:, None, :] * module.asarray(back, kind)[None], axis=-1)
        sides = np.eye(len(self.middle))
        rows, bounds = (
            np.concatenate([rows[~equal], sides, -sides]),
            np.concatenate([bounds[~equal], np.ones(len(sides)), np.zeros(len(sides))]),
        )
        away, share = points - middle[None], module.ones(len(points), kind)
        for row, room in zip(rows, bounds - rows @ np.asarray(self.middle), strict=True):
            towards = self._sums(away, row)
            share = module.minimum(share, module.where(towards > room, room / module.where(towards > room, towards, 1), 1))
        return module.clip(middle[None] + share[:, None] * away, 0, 1)

    def _depths(self, kind: np.dtype, deeper: float | None = None) -> np.ndarray:
        """Return the bounds ``[m]`` of searches, a little inside."""
        if deeper is None:
            deeper = 1e-10 if kind == np.float64 else DEEPER_SINGLE
        return np.asarray(self.bounds) - np.where(np.asarray(self.equal) | np.asarray(self.coarse), 0, deeper)

    def _sums(self, points: Any, row: Sequence[float] | np.ndarray) -> Any:
        """Return ``row . x [n]``, in the precision of ``points [n, d]``."""
        module = numpy_of(points)
        return module.sum(points * module.asarray(row, points.dtype)[None], axis=-1)


def _price(module: Any, points: Any, row: Any, goal: Any) -> Any:
    """Return the multiple ``[n]`` of ``row`` to subtract from points.

    After it, ``points [n, d]`` clipped to ``[0, 1]`` meet ``goal [n]``. The sum after clipping falls by straight pieces between ``2 d``
    known multiples.
    """
    unused = (row == 0)[None]
    factors = module.where(unused, 1, row[None])
    bends = module.concatenate([module.where(unused, 0, side / factors) for side in (points, points - 1)], axis=1)  # [n, 2d]
    clipped = module.clip(points[:, None, :] - bends[:, :, None] * row[None, None], 0, 1)
    sums, far = module.sum(clipped * row[None, None], axis=-1), module.asarray(np.inf, row.dtype)
    above = sums >= goal[:, None]
    low, high = module.max(module.where(above, bends, -far), axis=1), module.min(module.where(above, far, bends), axis=1)
    most, least = module.min(module.where(above, sums, far), axis=1), module.max(module.where(above, -far, sums), axis=1)
    low = module.where(module.isfinite(low), low, module.min(bends, axis=1))
    high = module.where(module.isfinite(high), high, module.max(bends, axis=1))
    is_between = module.isfinite(most) & module.isfinite(least)
    share = module.where(is_between, most - goal, 0) / module.where(is_between, most - least, 1)
    return low + share * module.where(is_between, high - low, 0)


def middle_of(rows: Sequence[tuple[Limit, np.ndarray, float]], least: np.ndarray) -> np.ndarray:
    """Return the point ``[d]`` of the unit cube furthest inside all rows.

    Coordinates lie between ``least [d]`` and ``1 - least``. Raises ``InvalidArgument`` where there is no such point.
    """
    if not rows:
        return np.full(len(least), 0.5)
    # The import is here because it would slow down start-up.
    from scipy.optimize import linprog

    def furthest(some: Sequence[tuple[Limit, np.ndarray, float]]) -> tuple[np.ndarray | None, float]:
        """Return the point, and how far inside it is."""
        size, sides = len(least), np.eye(len(least))
        inside = [(row, bound) for limit, row, bound in some if not limit.is_equality]
        inside += [*zip(sides, 1 - least, strict=True), *zip(-sides, -least, strict=True)]
        equal = [(row, bound) for limit, row, bound in some if limit.is_equality]
        solved = linprog(
            np.eye(size + 1)[size] * -1,
            A_ub=[[*row, 1.0] for row, _ in inside],
            b_ub=[bound for _, bound in inside],
            A_eq=[[*row, 0.0] for row, _ in equal] or None,
            b_eq=[bound for _, bound in equal] or None,
            bounds=[(None, None)] * size + [(None, 1)],
        )
        return (None, -np.inf) if solved.x is None else (solved.x[:size], float(solved.x[size]))

    point, depth = furthest(rows)
    if point is None or depth < -CLOSE:
        alone = next((row[0].where for row in rows if furthest([row])[1] < -CLOSE), None)
        words = (
            "excludes all points" if alone else f"its constraints together exclude all points, got {given_in([r[0].where for r in rows])}"
        )
        raise checks.InvalidArgument(f"{alone or 'such_that'}: {words}")
    if depth < DEEPER_SINGLE:
        words = "allow points of an edge only; write an equality, or leave out an axis that can have one value only"
        raise checks.InvalidArgument(f"such_that: its constraints {words}, got {given_in([limit.where for limit, *_ in rows])}")
    return point
