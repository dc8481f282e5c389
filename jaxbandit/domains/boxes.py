"""Continuous boxes, in models the unit cube."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.blocks import numpy_of
from jaxbandit.core.codec import from_plain, nameable
from jaxbandit.core.declare import Array, Key, Role, check_fields, checked
from jaxbandit.core.fields import Above, Words, choice, coordinates, exactly, finite, integers_from, key, positive, whole, whole_numbers
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.domains.finite import MOST_POINTS, Domain, as_texts, check_names, distinct_labels, sobol, sobol_points, words_of
from jaxbandit.domains.regions import DEEPER_SINGLE, Constraints, Limit, Region, SuchThat, check_kinds, given_in, limits_of, middle_of

__all__ = ["Box", "box", "integers", "log"]

# On boxes of more than three axes a third of the candidates moves to the faces, by this power of the distances from the centre in half
# sides.
OUTWARDS = 1 / 8

Int32: TypeAlias = Annotated[int, whole(-(2**31), 2**31 - 1)]

Points: TypeAlias = Annotated[Any, coordinates]
"""Points ``[..., d]`` of a box, of NumPy or JAX, or as lists."""


@pytree
class Side(Role):
    """Side of a box, from :func:`log`, :func:`integers`, two numbers or labels.

    Attributes:
      low, high: ends of the side, ``low < high``.
      scale: ``"linear"``, ``"log"`` or ``"integers"``. Equal ratios are equally long on ``"log"``. The ends of ``"integers"`` are integers.
      labels: labels of categories, which are the integers ``0, 1, ...`` without an order; ``()`` for numbers.
    """

    described: ClassVar[str] = (
        "a side of a box, such as (0.1, 2.0), domains.log(1e-4, 0.1), domains.integers(1, 8) or the texts of categories"
    )
    low: Annotated[float, finite] = static()
    high: Annotated[float, finite, Above("low")] = static()
    scale: Annotated[str, choice("linear", "log", "integers")] = static(default="linear")
    labels: tuple[str, ...] = static(default=())

    def __post_init__(self) -> None:
        check_fields(self, "Side")
        checks_of_ends = {"log": positive, "integers": whole_numbers(-(2**31), 2**31 - 1, "an axis")}
        ends, check = {"low": self.low, "high": self.high}, checks_of_ends.get(self.scale, finite)
        for name, end in ends.items():
            check(f"Side.{name}", end)
            object.__setattr__(self, name, float(end))
        if self.labels and (self.scale, self.low, self.high) != ("integers", 0, len(distinct_labels("Side.labels", self.labels)) - 1):
            raise checks.InvalidArgument(f"Side.labels: must be those of the integers from 0 to high, got {checks.short(self.labels)}")

    def to_unit(self, value: Any) -> Any:
        """Return values as shares of the side, in ``[0, 1]``.

        The shares of whole numbers are the middles of equal parts, up to rounding.
        """
        # Kernels test categories for equality, so their shares are multiples of 2^-16, exact in every precision and program.
        if self.labels:
            middles = np.floor((np.arange(len(self.labels)) + 0.5) / len(self.labels) * 2.0**16) / 2.0**16
            number = value.astype(np.int32)
            if isinstance(number, np.ndarray) and np.any((number < 0) | (number >= len(middles))):
                raise checks.InvalidArgument(
                    f"points: must have numbers of categories from 0 to {len(middles) - 1}, got {checks.short(value)}"
                )
            return numpy_of(value).asarray(middles, value.dtype)[number]
        if self.scale == "log":
            return (numpy_of(value).log(value) - math.log(self.low)) / math.log(self.high / self.low)
        if self.scale == "integers":
            return (value - self.low + 0.5) / (self.high - self.low + 1)
        return (value - self.low) / (self.high - self.low)

    def from_unit(self, share: Any) -> Any:
        """Return the values at shares of the side, in ``[0, 1]``."""
        module = numpy_of(share)
        if self.scale == "log":
            return self.low * module.exp(share * math.log(self.high / self.low))
        if self.scale == "integers":
            return self.low + module.clip(module.floor(share * (self.high - self.low + 1)), 0, self.high - self.low)
        return self.low + share * (self.high - self.low)

    def snapped(self, share: Any) -> Any:
        """Return the shares, rounded to the middles of parts for whole numbers."""
        return self.to_unit(self.from_unit(share)) if self.scale == "integers" else share


@nameable
@checked
def log(low: Annotated[float, positive], high: Annotated[float, positive, Above("low")]) -> Side:
    """Make a side of a box on a logarithmic scale."""
    return Side(low=float(low), high=float(high), scale="log")


@nameable
@checked
def integers(low: Int32, high: Annotated[Int32, Above("low")]) -> Side:
    """Make a side of a box of whole numbers, ``low .. high``."""
    return Side(low=float(low), high=float(high), scale="integers")


@pytree
class Box(Domain):
    """Continuous box in ``d`` dimensions, from :func:`box`.

    Every round scores its candidates ``points [C, d]`` before it searches better points between them. The candidates are a scrambled Sobol
    set. On boxes of more than three axes a third of the set is moved away from the centre, in most axes to near the faces.

    Attributes:
      neighbours: ``[C, n]`` numbers of each candidate's nearest candidates in the unit cube.
      sides: the scale and the ends of each axis.
      starts: number of a round's ascents that go on to their end, the best of many brief ascents from candidates and earlier choices.
      steps: steps of each ascent.
    """

    described: ClassVar[str] = "a box, jaxbandit.domains.box(...)"
    neighbours: Annotated[np.ndarray | Array, integers_from(0, MOST_POINTS), exactly(None, None)] = dataclasses.field(repr=False)
    sides: tuple[Side, ...] = static()
    starts: Annotated[int, whole(1)] = static(default=6)
    steps: Annotated[int, whole(0, 10_000)] = static(default=24)

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.sides) != self.dimension:
            raise checks.InvalidArgument(f"Box.sides: must be one for each of the {self.dimension} axes, got {len(self.sides)}")
        exactly(self.size, None, words="one row per point").check("Box.neighbours", self.neighbours)
        if not checks.is_traced(self.neighbours):
            integers_from(0, self.size - 1)("Box.neighbours", self.neighbours)

    @checked
    def to_unit(self, points: Points) -> Any:
        """Return ``points [..., d]`` as points of the models' unit cube."""
        return self._along(points, [side.to_unit for side in self.sides])

    @checked
    def from_unit(self, points: Points) -> Any:
        """Return points ``[..., d]`` of the unit cube in the axes' units."""
        return self._along(points, [side.from_unit for side in self.sides])

    @checked
    def snapped(self, points: Points) -> Any:
        """Return points of the unit cube with whole numbers rounded."""
        return self._along(points, [side.snapped for side in self.sides])

    def are_near(self, points: Any, place: Any, within: float) -> Any:
        """Return the mask of points near ``place`` on every side.

        ``points [..., n, d]`` and ``place [..., d]`` are of the unit cube. Near means less than the share ``within`` of a side away, and
        equal for whole numbers and categories.
        """
        module, place = numpy_of(points), place[..., None, :]
        near = []
        for axis, side in enumerate(self.sides):
            one, other = points[..., axis], place[..., axis]
            is_whole = side.scale == "integers"
            near.append(side.from_unit(one) == side.from_unit(other) if is_whole else module.abs(one - other) < within)
        return module.all(module.stack(near), axis=0)

    def check_inside(self, name: str, points: Any) -> None:
        """Raise ``InvalidArgument`` on points outside the box, unless they are traced."""
        if checks.is_traced(points):
            return
        for axis, (side, column) in enumerate(zip(self.sides, np.moveaxis(np.asarray(points, np.float64), -1, 0), strict=True)):
            with np.errstate(all="ignore"):
                change = np.log if side.scale == "log" else np.asarray
                low, high, at = change(side.low), change(side.high), change(column)
                # Points computed in float32 may lie outside by a millionth of a side and of its largest end.
                beyond = 0 if side.scale == "integers" else 1e-6 * (high - low + max(abs(low), abs(high)))
                held = (at >= low - beyond) & (at <= high + beyond) & ((side.scale != "integers") | (at % 1 == 0))
            if not np.all(held):
                kind = "a whole number" if side.scale == "integers" else "a number"
                words = f"must lie in the box, on the axis {self.name_of(axis)} {kind} from {side.low:g} to {side.high:g}"
                raise checks.InvalidArgument(f"{name}: {words}, got {checks.short(column[~held])}")

    @property
    def brief(self) -> int:
        """Number of brief ascents of a round from candidates."""
        return (1 + self.dimension) * self.starts

    @property
    def counted(self) -> list[int]:
        """Numbers of the axes of whole numbers."""
        return [axis for axis, side in enumerate(self.sides) if side.scale == "integers" and not side.labels]

    def corners(self, points: Array) -> Array:
        """Return corners ``[n, c, d]`` of whole numbers beside ``points [n, d]``.

        Up to four axes give all combinations. More axes give the nearest corner and its neighbours along each axis.
        """
        axes, kind = np.asarray(self.counted), points.dtype
        levels = np.asarray([self.sides[axis].high - self.sides[axis].low + 1 for axis in axes], kind)[None, None]
        places = points[:, None, axes] * levels
        if len(axes) <= 4:
            numbers = jnp.floor(places - 0.5) + np.asarray(list(itertools.product((0, 1), repeat=len(axes))), kind)[None]
        else:
            one_by_one = np.concatenate([np.zeros((1, len(axes)), kind), np.eye(len(axes), dtype=kind)])[None]
            numbers = jnp.floor(places) + jnp.where(places % 1 < 0.5, -1, 1).astype(kind) * one_by_one
        shares = (jnp.clip(numbers, 0, levels - 1) + 0.5) / levels
        return jnp.repeat(points[:, None], shares.shape[1], axis=1).at[:, :, axes].set(shares)

    def design(self, key: Key, count: int, dtype: np.dtype) -> Array:
        """Return points ``[count, d]`` of the unit cube, spread out at random."""
        spread_out = jnp.asarray(sobol_points(self.dimension, count), dtype)
        return (spread_out + jax.random.uniform(key, (self.dimension,), dtype)[None]) % 1

    @checked
    def sobol(self, count: Annotated[int, whole(1, MOST_POINTS)], key: Annotated[Key | int, key | whole(0)]) -> Domain:
        """Return a finite domain of ``count`` Sobol points of the box.

        Points are in the units of the axes. ``key`` is a PRNG key, or a whole number as a seed.
        """
        unit = sobol([0.0] * self.dimension, [1.0] * self.dimension, count, key).points
        return Domain(points=self.from_unit(np.asarray(unit)), names=self.names, categories=self.categories)

    def _along(self, points: Any, changes: Sequence[Callable[[Any], Any]]) -> Any:
        if not isinstance(points, np.ndarray | jax.Array):
            points = jnp.asarray(points) if checks.is_traced(points) else np.asarray(points)
        return numpy_of(points).stack([change(points[..., axis]) for axis, change in enumerate(changes)], axis=-1)


@pytree
class PartOfBox(Box):
    """Part of a box, where constraints on the coordinates hold, from :func:`box`.

    All candidates are inside, and :meth:`snapped` returns points inside.

    Attributes:
      region: the part of the unit cube.
    """

    region: Region = static(default=Region(()))

    @property
    def unit(self) -> Any:
        """Candidates ``[C, d]`` in the unit cube."""
        return self.to_unit(self.points)

    @checked
    def sobol(self, count: Annotated[int, whole(1, MOST_POINTS)], key: Annotated[Key | int, key | whole(0)]) -> Domain:
        """Return a finite domain of at most ``count`` points inside the region.

        They are points of a Sobol sequence, or of random walks where few of it are inside. Points are in the units of the axes.
        """
        chosen = inside(self, count, words_of(key))
        distinct = chosen[np.sort(np.unique(chosen, axis=0, return_index=True)[1])]
        return Domain(points=self.from_unit(distinct), names=self.names, categories=self.categories)

    def holds(self, points: Any) -> Any:
        """Return whether constraints hold at ``points [n, d]`` of the unit cube."""
        return self.region.holds(points, self.from_unit(points))

    def onto(self, points: Any) -> Any:
        """Return the nearest points ``[n, d]`` inside, with whole numbers as continuous."""
        return self.region.onto(points, whole=True)

    def beside(self, points: Any) -> Any:
        """Return the nearest points ``[n, d]`` inside along continuous axes."""
        return self.region.onto(points)

    @checked
    def snapped(self, points: Points) -> Any:
        """Return points with whole numbers rounded, inside the region.

        The points are in the unit cube. They are the nearest points inside along continuous axes, or candidates where these are outside.
        """
        flat = self._along(points, [side.snapped for side in self.sides])
        flat, shape = flat.reshape(-1, self.dimension), flat.shape
        module, near = numpy_of(flat), self.beside(flat)
        own = module.asarray(self.unit, near.dtype)
        closest = module.argmin(module.sum(own * own, axis=1)[None] - 2 * near @ own.T, axis=1)
        return module.where(self.holds(near)[:, None], near, own[closest]).reshape(shape)

    def settled(self, point: np.ndarray, near: float = 0.0) -> np.ndarray:
        """Return a point ``[d]`` on all equalities, up to rounding.

        The point is in the unit cube, and also on the faces and edges that are ``near``.
        """
        if near:
            # A coordinate within a billionth of the side of a face counts as on it.
            point = np.where(np.abs(point - 0.5) > 0.5 - 1e-9, np.round(point), point)
        return self.region.balanced(point, near)

    def is_inside(self, point: np.ndarray) -> bool:
        """Return whether a point ``[d]`` is in the cube and allowed."""
        return bool(np.all(np.abs(point - 0.5) <= 0.5) and self.holds(point[None])[0])

    def corners(self, points: Array) -> Array:
        found = super().corners(points)
        return self.beside(found.reshape(-1, self.dimension)).reshape(found.shape)

    def design(self, key: Key, count: int, dtype: np.dtype) -> Array:
        """Return candidates ``[count, d]``, each the furthest of 16 from those before."""
        own = jnp.asarray(self.unit, dtype)
        drawn = own[jax.random.randint(key, (count, 16), 0, self.size)]

        def add(number: Array, chosen: Array) -> Array:
            apart = jnp.sum(jnp.square(drawn[number][:, None] - chosen[None]), axis=-1)
            nearest = jnp.min(jnp.where(jnp.arange(count)[None] < number, apart, jnp.inf), axis=1)
            return chosen.at[number].set(drawn[number, jnp.argmax(nearest)])

        return jax.lax.fori_loop(0, count, add, jnp.zeros((count, self.dimension), dtype))


def region_of(such_that: Sequence[SuchThat], names: Sequence[str], sides: Sequence[Side]) -> Region:
    """Return the part of the unit cube where constraints hold.

    Raises ``InvalidArgument`` if there is none.
    """
    limits, rows, others = limits_of(such_that, names), [], list[Limit]()
    check_kinds(limits, [bool(side.labels) for side in sides])
    for limit in limits:
        used = [(name, side) for name, side, factor in zip(names, sides, limit.factors, strict=False) if factor]
        for name, side in used:
            if limit.is_equality and side.scale != "linear":
                words = "has whole numbers" if side.scale == "integers" else "is logarithmic"
                raise checks.InvalidArgument(f"{limit.where}: the axis {name} {words}, and an equality needs continuous, linear axes")
        if limit.function is not None or any(side.scale == "log" for _, side in used):
            others.append(limit)
            continue
        low = np.asarray([side.low - 0.5 * (side.scale == "integers") for side in sides])
        length = np.asarray([side.high - side.low + (side.scale == "integers") for side in sides])
        factors = np.asarray(limit.factors) * length
        bound, size = limit.bound - float(np.asarray(limit.factors) @ low), float(np.sum(np.abs(factors)))
        if not used:
            if bound < 0 or (limit.is_equality and bound > 0):
                raise checks.InvalidArgument(f"{limit.where}: excludes all points")
            continue
        rows.append((limit, factors / size, bound / size, all(side.scale == "integers" for _, side in used)))
    least = np.asarray([0.5 / (side.high - side.low + 1) if side.scale == "integers" else 0.0 for side in sides])
    middle = middle_of([row[:3] for row in rows], least)
    # A constraint that always holds takes no time.
    kept = [row for row in rows if row[0].is_equality or float(np.sum(np.maximum(row[1], 0))) > row[2]]
    return Region(
        given=tuple(such_that),
        rows=tuple(tuple(row.tolist()) for _, row, *_ in kept),
        bounds=tuple(bound for _, _, bound, _ in kept),
        equal=tuple(limit.is_equality for limit, *_ in kept),
        coarse=tuple(is_coarse for *_, is_coarse in kept),
        others=tuple(others),
        middle=tuple(middle.tolist()),
        free=tuple(side.scale != "integers" for side in sides),
    )


def inside(box: PartOfBox, count: int, seed: Sequence[int]) -> np.ndarray:
    """Return ``count`` points of the unit cube inside a part.

    Raises ``InvalidArgument`` if they cannot be found. They are points of a Sobol sequence eight times as long where enough of it is
    inside, else ends of eight random walks for each at most. Some points repeat where only few exist.
    """
    region, dimension = box.region, box.dimension
    rng, found = np.random.default_rng(list(seed)), np.zeros((0, dimension))

    def kept(points: np.ndarray) -> np.ndarray:
        moved = region.onto(Box.snapped(box, points), deeper=DEEPER_SINGLE)
        return moved[box.holds(moved)]

    spread_out = Box.snapped(box, sobol_points(dimension, 8 * count, seed))
    spread_out = spread_out[box.holds(spread_out)]
    if len(spread_out) < count and region.rows:
        for _ in range(8):
            found = np.concatenate([found, kept(region.walked(count, rng))])
            if len(found) >= count:
                break
    points = spread_out if len(spread_out) >= len(found) else found
    if not len(points):
        raise checks.InvalidArgument(f"such_that: excludes all points that were tried, got {given_in(region.given)}")
    points = np.resize(points, (count, dimension))
    if dimension > 3 and not region.others:
        outwards = points[count - count // 3 :]
        points[count - count // 3 :] = np.where(box.holds(moved := region.outwards(outwards, OUTWARDS))[:, None], moved, outwards)
    return points


def _side_of(where: str, given: object) -> Side:
    """Return the side from two numbers, a :class:`Side`, its table, or labels."""
    made = from_plain(Side, given, where)
    if isinstance(made, Side):
        return made
    is_array = isinstance(made, np.ndarray) or (isinstance(made, jax.Array) and checks.is_real(made.dtype))
    items = made.tolist() if is_array else made
    if not isinstance(items, list | tuple) or len(items) < 2:
        raise checks.InvalidArgument(f"{where}: must be {Side.described}, got {checks.short(given)}")
    if any(isinstance(item, str) for item in items):
        return Side(low=0.0, high=len(items) - 1.0, scale="integers", labels=distinct_labels(where, items))
    if len(items) > 2 or not all(map(finite.takes, items)):
        raise checks.InvalidArgument(f"{where}: must be {Side.described}, got {checks.short(given)}; {as_texts(items)}")
    with checks.naming(where):
        return Side(low=items[0], high=items[1])


@nameable
@checked
def box(
    axes: Annotated[
        Mapping[str, Any], Words("a mapping from the names of axes to (low, high), domains.log, domains.integers or categories")
    ],
    *,
    candidates: Annotated[int, whole(2, MOST_POINTS)] | None = None,
    starts: Annotated[int, whole(1, 1000)] | None = None,
    steps: Annotated[int, whole(0, 10_000)] = 24,
    key: Annotated[Key | int, key | whole(0)] = 0,
    such_that: Constraints = (),
) -> Box:
    """Make a continuous box with named axes.

    An example is ``box({"dose": (0.1, 2.0), "rate": log(1e-4, 1e-1), "layers": integers(1, 8)})``. Two texts or more are categories. They
    have the numbers ``0, 1, ...`` in points and need their own kernel, as in :func:`mixed`. Ascents do not change categories; a round
    chooses them among the candidates and the points chosen before.

    A round scores ``candidates`` points of a scrambled Sobol set and the points chosen before. It ascends briefly from hilltops,
    candidates with no better candidate near by, and then from the ``starts`` best points up to ``steps`` steps in all. It chooses the best
    scored point, which is never worse than the candidates. Ascents treat whole numbers as continuous. The round then scores the whole
    numbers beside the ends, and from the best of these ascends along the other axes once more. Models compute in the unit cube, so that a
    length-scale is a share of a side.

    Args:
      axes: by name, two numbers ``low < high``, or :func:`log` or :func:`integers` of them, or distinct texts; in a study file
        ``{type = "log", low = 1e-4, high = 0.1}``.
      candidates: number of Sobol points; default the larger of 512 for each of ``d`` axes and ``82 d^2``, from 1,024 to 8,192. Beyond
        three axes a third of them are moved away from the centre.
      starts: number of ascents of a round that go on to their end; default one for each axis, at least 6.
      steps: steps of each ascent, 0 to choose among the candidates.
      key: a PRNG key, or a whole number as a seed, of the Sobol set's scrambling.
      such_that: constraints that all points satisfy: texts that are linear in the names of the axes, in their units, such as
        ``"a + b + c <= 1"``, ``"a <= 2 * b"``, ``"0.1 <= a + b <= 0.9"`` and ``"a + b + c + d = 1"``, or functions of ``jax.numpy`` of some
        axes by name that are ``<= 0`` where points are allowed. An equality needs continuous axes that are not logarithmic.

    Raises:
      InvalidArgument: on any other axis, without axes, or on constraints that exclude all points.
    """
    check_names("axes", axes)
    sides = [_side_of(f"axes[{name!r}]", item) for name, item in axes.items()]
    if candidates is None:
        candidates = min(max(512 * len(sides), 82 * len(sides) ** 2, 1024), 8192)
    unit = np.asarray(sobol([0.0] * len(sides), [1.0] * len(sides), candidates, key).points)
    labels = tuple(side.labels for side in sides)
    nowhere, named = np.zeros((1, len(sides))), labels if any(labels) else ()
    # Scores are often best on faces and in corners of a box. With many axes few points lie near these.
    if len(sides) > 3:
        away = 2 * unit - 1
        moved = (np.arange(candidates) >= candidates - candidates // 3)[:, None] & np.asarray([not texts for texts in labels])[None]
        unit = np.where(moved, 0.5 + 0.5 * np.sign(away) * np.abs(away) ** OUTWARDS, unit)
    # The import is here because it would slow down start-up.
    from scipy.spatial import KDTree

    # A candidate is on top of a hill of the score if no candidate among this number of nearest neighbours has a better score.
    neighbours = 6
    _, near = KDTree(unit).query(unit, min(1 + neighbours, candidates))
    made = Box(
        points=np.repeat(nowhere, candidates, axis=0),
        neighbours=near[:, 1:].astype(np.int32),
        names=tuple(axes),
        categories=named,
        sides=tuple(sides),
        starts=min(max(6, len(sides)) if starts is None else starts, candidates),
        steps=steps,
    )
    if not such_that:
        return replace(made, points=made.from_unit(unit))
    region = region_of(such_that, list(axes), sides)
    part = PartOfBox(**{field.name: getattr(made, field.name) for field in dataclasses.fields(made)}, region=region)
    unit = inside(part, candidates, words_of(key))
    _, near = KDTree(unit).query(unit, min(1 + neighbours, candidates))
    return replace(part, points=made.from_unit(unit), neighbours=near[:, 1:].astype(np.int32))
