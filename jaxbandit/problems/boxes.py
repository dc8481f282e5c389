"""Problems on continuous boxes, given by functions of a point."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks, fields
from jaxbandit.core.blocks import one_program
from jaxbandit.core.declare import Array, PerOutput, Scalar, Table, check_fields, checked
from jaxbandit.core.fields import Check, Place, Words, each, exactly, finite, finite_numbers
from jaxbandit.core.pytree import as_argument, float_dtype, pytree, static
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.domains import Box, Domain
from jaxbandit.domains.boxes import PartOfBox
from jaxbandit.domains.finite import tables
from jaxbandit.problems.base import AbstractProblem, Optimum, noise_of
from jaxbandit.problems.noise import Drawn, Function, Gaussian, Noise, function_of_point

__all__ = ["BoxProblem", "Certificate", "on_box"]

Walls: TypeAlias = list[tuple[np.ndarray, float]]
"""Rows ``[d]`` and bounds of the edges of a part of the unit cube."""
PointOfBox: TypeAlias = Annotated[Array, fields.numbers, fields.each_axis]  # [d]
NumberOrNan: TypeAlias = Annotated[Scalar, fields.numbers, fields.scalar]
"""Number ``[]``, NaN if it is not known."""


def _verify_best(name: str, value: Any, place: Place) -> None:
    best, point = value
    finite(f"{name}[0]", best)
    finite_numbers(f"{name}[1]", point, place._replace(shape=fields.each_axis))


value_and_point = Check(
    "a pair of the best feasible point's value and its coordinates (value, [d])",
    lambda value: isinstance(value, tuple | list) and len(value) == 2,
    _verify_best,
)


@pytree
class Certificate:
    """Best feasible point that was found or given, with its evidence.

    Attributes:
      value: its reward ``[]``, NaN without a feasible point.
      point: ``[d]`` in the units of the axes.
      gradient: ``[]`` norm of the projected gradient of the Lagrangian there, per side of the box; NaN for a given value.
      gap: ``[]`` reward by which the best point of another basin falls short; NaN for a given value or a single basin.
    """

    # Optima are in different basins if they are more than a twentieth of the box's sides apart.
    basin_distance: ClassVar[float] = 0.05
    value: NumberOrNan
    point: Annotated[Table, fields.numbers, fields.vector("one coordinate for each axis")]
    gradient: NumberOrNan = float("nan")
    gap: NumberOrNan = float("nan")

    def __post_init__(self) -> None:
        check_fields(self, "Certificate")


class OnBox(AbstractProblem):
    """Abstract base of problems on a :class:`~jaxbandit.domains.Box`.

    The means are functions of a point, and a subclass defines them as :meth:`values`.

    Attributes (fields of the subclass):
      domain: the box.
      means: ``[1 + m, C]`` the functions' values at the box's candidates.
      best: the best feasible point, against which regret is measured, with its certificate.
    """

    on_boxes: ClassVar[bool] = True

    if TYPE_CHECKING:

        @property
        def domain(self) -> Box: ...
        @property
        def best(self) -> Certificate: ...

    def validate(self) -> None:
        fields.of_class(Box)(f"{type(self).__name__}.domain", self.domain)
        rows = exactly(None, self.domain.size, words="one row per function, one column per candidate")
        finite_numbers(f"{type(self).__name__}.means", self.means, Place(rows))
        super().validate()
        check_noise(self)
        for axis, side in enumerate(self.domain.sides):
            low, high = (float_dtype().type(end) for end in (side.low, side.high))
            if not low < high:
                words = f"the axis {self.domain.name_of(axis)} must have ends that differ in {low.dtype}, got {side.low} and {side.high}"
                raise checks.InvalidArgument(f"{type(self).__name__}.domain: {words}; turn on jax_enable_x64, or change the unit")

    @abc.abstractmethod
    def values(self, point: PointOfBox) -> Array:
        """Return the mean values ``[1 + m]`` at a point ``[d]``.

        The point is in the units of the axes.
        """

    @checked
    def means_of(self, chosen: Annotated[Table, fields.coordinates]) -> Array:
        """Return the mean values ``[1 + m, ..., T]`` at points ``chosen``.

        They are ``[..., T, d]`` in the units of the axes.
        """
        return self._means_of(as_argument(chosen))

    @one_program
    def _means_of(self, chosen: Array) -> Array:
        points = jnp.asarray(chosen, jnp.asarray(self.means).dtype)
        flat = jax.vmap(self.values)(points.reshape(-1, points.shape[-1]))
        return jnp.moveaxis(flat.reshape(*points.shape[:-1], self.outputs), -1, 0)

    @checked
    def observe(self, index: PointOfBox, drawn: Drawn) -> Array:
        """Return the noisy values ``[1 + m]`` at a point.

        Here ``index`` is a point ``[d]`` of the unit cube, and ``drawn`` the round's randomness.
        """
        return self.values(self.domain.from_unit(index)) + jnp.asarray(self.noise.apply(drawn, jnp.int32(0)))

    def has_feasible_point(self) -> Array:
        return jnp.isfinite(jnp.asarray(self.best.value))

    @one_program
    def optimum(self) -> Optimum:
        """Return the facts of the best feasible point.

        The index is the best candidate's, because results on finite domains have the same form.
        """
        feasible = jnp.all(jnp.asarray(self.means)[1:] <= 0, axis=0)
        means = jnp.asarray(self.means)
        slack = jnp.max(jnp.min(-means[1:], axis=0)) if len(means) > 1 else jnp.asarray(jnp.inf, means.dtype)
        return Optimum(
            value=jnp.asarray(self.best.value, means.dtype),
            index=jnp.argmax(jnp.where(feasible, means[0], -jnp.inf)).astype(jnp.int32),
            feasible_fraction=jnp.mean(feasible.astype(means.dtype)),
            slater_slack=slack,
            unconstrained_value=jnp.max(means[0]),
        )


@pytree
class BoxProblem(OnBox):
    """Problem on a :class:`~jaxbandit.domains.Box`: maximise ``f`` subject to ``g_j <= 0``.

    Make it with :func:`on_box`.

    Attributes:
      domain: the box.
      functions: the reward, then the constraints, functions of ``jax.numpy`` of one point ``x [d]`` in the units of the axes.
      means: ``[1 + m, C]`` their values at the box's candidates.
      best: the best feasible point, against which regret is measured, with its certificate.
      noise, delay, name: as of :class:`~jaxbandit.problems.Problem`.
    """

    domain: Box
    functions: Annotated[tuple[Function, ...], each(function_of_point, least=1, types=(tuple,))] = static(repr=False)
    means: Table
    best: Annotated[Certificate, Words("a Certificate")]
    noise: Noise = Gaussian()
    delay: Delay = NoDelay()
    name: str = static(default="user")

    def validate(self) -> None:
        super().validate()
        if len(self.functions) != self.outputs:
            raise checks.InvalidArgument(
                f"BoxProblem.functions: must be one for each of the {self.outputs} rows of means, got {len(self.functions)}"
            )

    @checked
    def values(self, point: PointOfBox) -> Array:
        point = jnp.asarray(point, jnp.asarray(self.means).dtype)
        return jnp.stack([jnp.asarray(function(point), point.dtype) for function in self.functions])


def check_noise(problem: AbstractProblem) -> None:
    """Raise ``InvalidArgument`` if noise has a number for each point."""
    for part in _parts(problem.noise):
        if part.by_point:
            words = "has a number for each point of a domain, which a box has not; use one that is alike everywhere"
            raise checks.InvalidArgument(
                f"{type(problem).__name__}.noise: {type(part).__name__} {words}, got {checks.short(problem.noise)}"
            )


def _parts(noise: Noise) -> Iterator[Noise]:
    """Return a noise model and the models inside."""
    yield noise
    for part in jax.tree.leaves(noise, is_leaf=lambda part: isinstance(part, Noise) and part is not noise):
        if isinstance(part, Noise):
            yield from _parts(part)


@checked
def on_box(
    domain: Box,
    reward: Annotated[Function, function_of_point],
    constraints: Annotated[Sequence[Function], each(function_of_point)],
    *,
    noise_variance: Annotated[PerOutput, fields.nonnegative] | None = None,
    noise: Noise | None = None,
    delay: Delay | None = None,
    best: Annotated[tuple[float, Sequence[float]], value_and_point] | None = None,
    name: Annotated[str, fields.label] = "user",
) -> BoxProblem:
    """Make a problem on a box from functions of ``jax.numpy``.

    They are functions of one point ``x [d]`` in the units of the axes.

    Args:
      domain: the box.
      reward: mean reward.
      constraints: mean constraints; a constraint is satisfied where it is ``<= 0``.
      noise_variance, noise, delay, name: as for :func:`~jaxbandit.problems.from_functions`.
      best: the value and the coordinates of the best feasible point, with a category as its number; default: ``certified`` searches it in
        float64 from many starts.

    Raises:
      InvalidArgument: when JAX cannot trace a function, such as a function with Python's branches on numbers of the point, or a function
        does not return one finite number per point; on a best point that is outside or infeasible, or whose value is not the reward there
        or is smaller than a candidate's; or without noise.
    """
    own = noise_of(noise_variance, noise, 1 + len(constraints))
    named = {"reward": reward} | {f"constraints[{number}]": function for number, function in enumerate(constraints)}
    for where, function in named.items():
        check_traceable(where, function, domain.dimension)
    points, functions = np.asarray(domain.points, np.float64), tuple(named.values())
    if best is not None:
        value_and_point("best", best, Place(axes=domain.dimension))
        domain.check_inside("best[1]", at := np.asarray(best[1], np.float64))
        points = np.concatenate([points, at[None]])
    means = np.stack(tables(named, Domain(points=points)))
    if best is None:
        found = certified(domain, functions)
    else:
        means, there = means[:, :-1], means[:, -1]
        check_best(float(best[0]), there, means)
        found = Certificate(value=float(best[0]), point=at)
    return BoxProblem(
        domain=domain, functions=functions, means=means, best=found, noise=own, delay=NoDelay() if delay is None else delay, name=name
    )


def check_traceable(name: str, function: Function, dimension: int) -> None:
    """Raise ``InvalidArgument`` unless JAX traces a function to one real number."""
    words = f"{name}: must be a function of one point x [{dimension}] that JAX can trace, made of jax.numpy, with jnp.where for branches"
    with jax.enable_x64(True), checks.blaming(words):
        made = jax.eval_shape(lambda x: jnp.asarray(function(x)), jax.ShapeDtypeStruct((dimension,), np.float64))
    if made.shape != () or not checks.is_real(made.dtype):
        raise checks.InvalidArgument(
            f"{name}(x): must be one number [] for each point x [{dimension}], got {made.dtype} {list(made.shape)}"
        )


def check_best(value: float, there: np.ndarray, means: np.ndarray) -> None:
    """Raise ``InvalidArgument`` if a given best point is not the best.

    Its values are ``there [1 + m]``, and those of all candidates are ``means [1 + m, C]``.
    """
    # Rounded coordinates may miss their values by a thousandth of a function's spread over the candidates.
    off = 1e-3 * np.maximum(np.ptp(means, axis=1), np.abs(there))
    if abs(value - there[0]) > off[0]:
        raise checks.InvalidArgument(f"best[0]: must be the reward at best[1], {there[0] + 0.0:.6g}, got {value:.6g}")
    if np.any(there[1:] > off[1:]):
        number = int(np.argmax(there[1:] / off[1:]))
        raise checks.InvalidArgument(
            f"best[1]: must be a feasible point, got one where constraints[{number}] is {there[1 + number]:.6g} > 0"
        )
    feasible = np.where(np.all(means[1:] <= 0, axis=0), means[0], -np.inf)
    if np.max(feasible) > value + off[0]:
        words = f"must be the largest reward of a feasible point, and that of candidate {np.argmax(feasible)} is {np.max(feasible):.6g}"
        raise checks.InvalidArgument(f"best[0]: {words}, got {value:.6g}")


def certified(box: Box, functions: Sequence[Function]) -> Certificate:
    """Return the best feasible point of sequential quadratic programmes, in float64.

    They start from the best of many Sobol points. Sides of whole numbers keep the value that each start has there.
    """
    # Import SciPy here, because start-up should not pay for it.
    from scipy.optimize import Bounds, NonlinearConstraint, minimize
    from scipy.stats import qmc

    starts = 32
    with jax.enable_x64(True):
        values = jax.jit(lambda unit: jnp.stack([jnp.asarray(f(box.from_unit(unit)), unit.dtype) for f in functions]))
        slopes, dimension = jax.jit(jax.jacfwd(values)), box.dimension
        unit = np.asarray(box.snapped(qmc.Sobol(dimension, seed=0).random(2**14)))
        if isinstance(box, PartOfBox):
            unit = np.concatenate([box.to_unit(np.asarray(box.points, np.float64)), unit])
        table = np.asarray(jax.jit(jax.vmap(values))(unit))
        spread = np.maximum(np.std(table, axis=0), 1e-300)
        excess = np.sum(np.maximum(table[:, 1:] / spread[1:], 0), axis=1)
        order = np.lexsort((-table[:, 0], excess))[: 4 * starts]
        whole_sides = np.asarray([side.scale == "integers" for side in box.sides])
        known, walls = limits_within(box)
        found: list[tuple[float, np.ndarray, float]] = []
        for start in unit[order[:: 4 if len(order) >= 4 * starts else 1]]:
            bounds = Bounds(np.where(whole_sides, start, 0.0), np.where(whole_sides, start, 1.0))
            limits = NonlinearConstraint(
                lambda x: np.asarray(values(x))[1:] / spread[1:], -np.inf, 0.0, jac=lambda x: np.asarray(slopes(x))[1:] / spread[1:, None]
            )
            solved = minimize(
                lambda x: -float(values(x)[0]) / spread[0],
                start,
                jac=lambda x: -np.asarray(slopes(x))[0] / spread[0],
                bounds=bounds,
                constraints=[*([limits] if len(functions) > 1 else []), *known],
                method="SLSQP",
                options={"maxiter": 300, "ftol": 1e-14},
            )
            x = np.asarray(box.snapped(np.clip(solved.x, 0, 1)))
            here = np.asarray(values(x))
            if np.all(np.isfinite(here)) and np.all(here[1:] <= 1e-8 * spread[1:]):
                found.append((float(here[0]), x, _slope_left(np.asarray(slopes(x)), here, x, spread, walls)))
        feasible = excess <= 0
        if feasible.any():
            first = int(np.argmax(np.where(feasible, table[:, 0], -np.inf)))
            found.append((float(table[first, 0]), unit[first], float("nan")))
        if not found:
            return Certificate(value=np.float64(np.nan), point=np.full(dimension, np.nan))
        value, x, slope = max(found, key=lambda item: item[0])
        others = [other for other, place, _ in found if np.linalg.norm(place - x) > Certificate.basin_distance * np.sqrt(dimension)]
        gap = value - max(others) if others else float("nan")
        return Certificate(value=value, point=np.asarray(box.from_unit(x)), gradient=slope, gap=gap)


def limits_within(box: Box) -> tuple[list[Any], Walls]:
    """Return a part's constraints for SciPy, and its linear rows and bounds."""
    from scipy.optimize import LinearConstraint, NonlinearConstraint

    if not isinstance(box, PartOfBox):
        return [], []
    region, found = box.region, list[Any]()
    for row, bound, is_equal in zip(region.rows, region.bounds, region.equal, strict=True):
        found.append(LinearConstraint(np.asarray(row)[None], bound if is_equal else -np.inf, bound))
    for limit in region.others:
        found.append(NonlinearConstraint(lambda x, limit=limit: limit.excess(np.asarray(box.from_unit(x[None]))), -np.inf, 0.0))
    walls = [(np.asarray(row), bound) for row, bound in zip(region.rows, region.bounds, strict=True)]
    return found, walls + [(-row, -bound) for (row, bound), is_equal in zip(walls, region.equal, strict=True) if is_equal]


def _slope_left(slopes: np.ndarray, values: np.ndarray, x: np.ndarray, spread: np.ndarray, inner: Walls) -> float:
    """Return the norm of the projected gradient of the reward.

    Active constraints, sides and ``inner`` walls cancel the other part. Its unit is the spread of the reward per side.
    """
    from scipy.optimize import nnls

    sides = np.eye(len(x))
    walls = [-sides[a] for a in np.flatnonzero(x <= 1e-9)] + [sides[a] for a in np.flatnonzero(x >= 1 - 1e-9)]
    walls += [row for row, bound in inner if row @ x >= bound - 1e-6]
    active = [slopes[1 + j] / spread[1 + j] for j in np.flatnonzero(values[1:] > -1e-6 * spread[1:])]
    directions, target = [*active, *walls], slopes[0] / spread[0]
    return float(nnls(np.stack(directions, axis=1), target)[1] if directions else np.linalg.norm(target))
