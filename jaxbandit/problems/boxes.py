"""Problems on continuous boxes: mean reward and constraints as functions of a point, with noise and delay."""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.blocks import one_program
from jaxbandit.core.declare import Array, PerOutput, Scalar, Table, checked
from jaxbandit.core.fields import nonnegative
from jaxbandit.core.pytree import pytree, static
from jaxbandit.delays import Delay, NoDelay
from jaxbandit.domains import Box
from jaxbandit.domains.finite import tables
from jaxbandit.problems.base import AbstractProblem, Optimum
from jaxbandit.problems.noise import Drawn, Gaussian, Noise

__all__ = ["BoxProblem", "Certificate", "on_box"]

Function: TypeAlias = Callable[[Array], Array | float]  # of one point x [d] in the units of the axes


@pytree
class Certificate:
    """The best feasible point that was found or given, and how sure that is.

    Attributes:
      value: its reward ``[]``, NaN where no feasible point was found.
      point: ``[d]`` in the units of the axes.
      gradient: ``[]`` norm of the projected gradient of the Lagrangian there, per side of the box; NaN where the value was given.
      gap: ``[]`` reward by which the best of another basin falls short, NaN where the value was given or there is no other.
    """

    value: Scalar
    point: Table
    gradient: Scalar = float("nan")
    gap: Scalar = float("nan")


class OnBox(AbstractProblem):
    """A problem on a :class:`~jaxbandit.domains.Box`, whose means are functions of a point; abstract. A subclass defines :meth:`values`.

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
        super().validate()
        check_noise(self)

    @abc.abstractmethod
    def values(self, point: Array) -> Array:
        """Return the mean values ``[1 + m]`` at one point ``[d]`` in the units of the axes."""

    @one_program
    def means_of(self, chosen: Table) -> Array:
        """Return the mean values ``[1 + m, ..., T]`` at points ``chosen [..., T, d]`` in the units of the axes."""
        points = jnp.asarray(chosen, jnp.asarray(self.means).dtype)
        flat = jax.vmap(self.values)(points.reshape(-1, points.shape[-1]))
        return jnp.moveaxis(flat.reshape(*points.shape[:-1], self.outputs), -1, 0)

    def observe(self, index: Array, drawn: Drawn) -> Array:
        """Return the noisy values ``[1 + m]`` at ``index``, here a point ``[d]`` of the unit cube, given the round's randomness."""
        return self.values(self.domain.from_unit(index)) + jnp.asarray(self.noise.apply(drawn, jnp.int32(0)))

    def has_feasible_point(self) -> Array:
        return jnp.isfinite(jnp.asarray(self.best.value))

    @one_program
    def optimum(self) -> Optimum:
        """Return what is known of the best feasible point, in the form of finite domains; the index is that of the best candidate."""
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
    """A problem on a :class:`~jaxbandit.domains.Box`; make one with :func:`on_box`. Maximise ``f`` subject to ``g_j <= 0``.

    Attributes:
      domain: the box.
      functions: the reward, then the constraints, functions of ``jax.numpy`` of one point ``x [d]`` in the units of the axes.
      means: ``[1 + m, C]`` their values at the box's candidates.
      best: the best feasible point, against which regret is measured, with its certificate.
      noise, delay, name: as of :class:`~jaxbandit.problems.Problem`.
    """

    domain: Box
    functions: tuple[Function, ...] = static(repr=False)
    means: Table
    best: Certificate
    noise: Noise = Gaussian()
    delay: Delay = NoDelay()
    name: str = static(default="user")

    def values(self, point: Array) -> Array:
        return jnp.stack([jnp.asarray(function(point), point.dtype) for function in self.functions])


def check_noise(problem: AbstractProblem) -> None:
    """Raise ``InvalidArgument`` where a problem's noise differs between the points of a finite domain."""
    for part in _parts(problem.noise):
        if part.by_point:
            words = "has a number for each point of a domain, which a box has not; use one that is alike everywhere"
            raise checks.InvalidArgument(
                f"{type(problem).__name__}.noise: {type(part).__name__} {words}, got {checks.short(problem.noise)}"
            )


def _parts(noise: Noise) -> Iterator[Noise]:
    """Return a noise model and those that it is made of."""
    yield noise
    for part in jax.tree.leaves(noise, is_leaf=lambda part: isinstance(part, Noise) and part is not noise):
        if isinstance(part, Noise):
            yield from _parts(part)


@checked
def on_box(
    domain: Box,
    reward: Function,
    constraints: Sequence[Function],
    *,
    noise_variance: Annotated[PerOutput, nonnegative] | None = None,
    noise: Noise | None = None,
    delay: Delay | None = None,
    best: tuple[float, Sequence[float]] | None = None,
    name: str = "user",
) -> BoxProblem:
    """Make a problem on a box from functions of ``jax.numpy`` of one point ``x [d]`` in the units of the axes.

    Args:
      domain: the box.
      reward: mean reward.
      constraints: mean constraints, each ``<= 0`` where it holds.
      noise_variance, noise, delay, name: as for :func:`~jaxbandit.problems.from_functions`.
      best: the value and the coordinates of the best feasible point; default: looked for in float64, from many starts, by
        ``certified``.

    Raises:
      InvalidArgument: when a function does not give one finite number per point, or without noise.
    """
    if (noise_variance is None) == (noise is None):
        raise checks.InvalidArgument("noise_variance: must be given, a number >= 0, or noise, a noise model; one of the two")
    named = {"reward": reward} | {f"constraints[{number}]": function for number, function in enumerate(constraints)}
    means, functions = np.stack(tables(named, domain)), tuple(named.values())
    if best is None:
        found = certified(domain, functions)
    else:
        checks.shape("best", np.asarray(best[1], np.float64), (domain.dimension,), remedy="one coordinate for each axis")
        found = Certificate(value=float(best[0]), point=np.asarray(best[1], np.float64))
    own = noise or Gaussian(variance=0.0 if noise_variance is None else noise_variance)
    return BoxProblem(
        domain=domain, functions=functions, means=means, best=found, noise=own, delay=NoDelay() if delay is None else delay, name=name
    )


LOOKED_AT = 2**14  # Sobol points from the best of which the optimum is looked for
STARTS = 32
APART = 0.05  # distance in sides of the box from which two optima count as of different basins


def certified(box: Box, functions: Sequence[Function]) -> Certificate:
    """Return the best feasible point that sequential quadratic programmes find from the best of many Sobol points, in float64.

    Sides of whole numbers keep the value that each start has there.
    """
    from scipy.optimize import Bounds, NonlinearConstraint, minimize  # come with JAX; start-up should not pay for them
    from scipy.stats import qmc

    with jax.enable_x64(True):
        values = jax.jit(lambda unit: jnp.stack([jnp.asarray(f(box.from_unit(unit)), unit.dtype) for f in functions]))
        slopes, dimension = jax.jit(jax.jacfwd(values)), box.dimension
        unit = np.asarray(box.snapped(qmc.Sobol(dimension, seed=0).random(LOOKED_AT)))
        table = np.asarray(jax.jit(jax.vmap(values))(unit))
        spread = np.maximum(np.std(table, axis=0), 1e-300)
        excess = np.sum(np.maximum(table[:, 1:] / spread[1:], 0), axis=1)
        order = np.lexsort((-table[:, 0], excess))[: 4 * STARTS]
        whole_sides = np.asarray([side.scale == "integers" for side in box.sides])
        found: list[tuple[float, np.ndarray, float]] = []
        for start in unit[order[:: 4 if len(order) >= 4 * STARTS else 1]]:
            bounds = Bounds(np.where(whole_sides, start, 0.0), np.where(whole_sides, start, 1.0))
            limits = NonlinearConstraint(
                lambda x: np.asarray(values(x))[1:] / spread[1:], -np.inf, 0.0, jac=lambda x: np.asarray(slopes(x))[1:] / spread[1:, None]
            )
            solved = minimize(
                lambda x: -float(values(x)[0]) / spread[0],
                start,
                jac=lambda x: -np.asarray(slopes(x))[0] / spread[0],
                bounds=bounds,
                constraints=[limits] if len(functions) > 1 else [],
                method="SLSQP",
                options={"maxiter": 300, "ftol": 1e-14},
            )
            x = np.asarray(box.snapped(np.clip(solved.x, 0, 1)))
            here = np.asarray(values(x))
            if np.all(np.isfinite(here)) and np.all(here[1:] <= 1e-8 * spread[1:]):
                found.append((float(here[0]), x, _slope_left(np.asarray(slopes(x)), here, x, spread)))
        feasible = excess <= 0
        if feasible.any():
            first = int(np.argmax(np.where(feasible, table[:, 0], -np.inf)))
            found.append((float(table[first, 0]), unit[first], float("nan")))
        if not found:
            return Certificate(value=np.float64(np.nan), point=np.full(dimension, np.nan))
        value, x, slope = max(found, key=lambda item: item[0])
        others = [other for other, place, _ in found if np.linalg.norm(place - x) > APART * np.sqrt(dimension)]
        gap = value - max(others) if others else float("nan")
        return Certificate(value=value, point=np.asarray(box.from_unit(x)), gradient=slope, gap=gap)


def _slope_left(slopes: np.ndarray, values: np.ndarray, x: np.ndarray, spread: np.ndarray) -> float:
    """Return the norm of what active constraints and sides leave of the reward's gradient, in units of its spread per side."""
    from scipy.optimize import nnls

    sides = np.eye(len(x))
    walls = [-sides[a] for a in np.flatnonzero(x <= 1e-9)] + [sides[a] for a in np.flatnonzero(x >= 1 - 1e-9)]
    active = [slopes[1 + j] / spread[1 + j] for j in np.flatnonzero(values[1:] > -1e-6 * spread[1:])]
    directions, target = [*active, *walls], slopes[0] / spread[0]
    return float(nnls(np.stack(directions, axis=1), target)[1] if directions else np.linalg.norm(target))
