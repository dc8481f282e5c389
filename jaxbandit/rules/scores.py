"""Scores of points, and ascents to the best point of a box."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.declare import Array, T
from jaxbandit.core.status import Status
from jaxbandit.domains import Box
from jaxbandit.domains.boxes import PartOfBox
from jaxbandit.numerics.ascent import Climb, ascend, to_edge
from jaxbandit.numerics.ties import everywhere, first, largest, pick
from jaxbandit.rules.estimators import Estimate


class Score(NamedTuple):
    """Scores of points, with the limits and flags of a round.

    Attributes:
      values: scores, minus infinity where a point is excluded.
      flags: masks ``[M]``, each with the flag that it raises where it holds at every point.
      otherwise: scores that decide instead in a round that raises a flag.
      limited: a reward ``[M]`` and costs ``[m, M]``; ``values`` exclude the points whose costs are positive.
      slopes: where ``values`` exclude no point, slopes of the positive costs: ``values`` are the reward of ``limited`` less slopes times
        costs.
    """

    values: Array  # [M]
    flags: tuple[tuple[Array, Status], ...] = ()
    otherwise: Array | None = None  # [M]
    limited: tuple[Array, Array] | None = None
    slopes: Array | None = None  # [m]

    @classmethod
    def of_draw(cls, drawn: Estimate, allowed: Array | bool = True) -> Score:
        """Return scores whose best is the best feasible point of a draw.

        If no point of ``allowed [M]`` is feasible, the least violating point has the best score.
        """
        violation = jnp.sum(jnp.maximum(drawn.costs, 0), axis=0)
        feasible = jnp.where((violation <= 0) & allowed, drawn.reward, -jnp.inf)
        unknown = jnp.isnan(violation) | jnp.isnan(drawn.reward)
        infeasible = (violation > 0) | ~jnp.asarray(allowed)
        least = jnp.where(allowed, -violation, -jnp.inf)
        limited = (drawn.reward, drawn.costs)
        return cls(jnp.where(unknown, jnp.nan, feasible), flags=((infeasible, Status.OK),), otherwise=least, limited=limited)

    def choose(self) -> tuple[Array, Array | int]:
        """Return the index of the point, ``M`` if NaN, and status bits."""
        raised = [everywhere(mask) for mask, _ in self.flags]
        bits: Array | int = 0
        for is_so, (_, flag) in zip(raised, self.flags, strict=True):
            bits = bits | jnp.where(is_so, int(flag), 0)
        return pick(self.in_force(raised)), bits

    def in_force(self, raised: Sequence[Array]) -> Array:
        """Return the scores that decide, given the raised flags."""
        values = self.values
        for is_so in raised:
            values = values if self.otherwise is None else jnp.where(is_so, self.otherwise, values)
        return values

    def softened(self, prices: Array, beyond: Array | float = 0.0) -> Score:
        """Return smooth scores, with squared positive costs in place of exclusion.

        ``prices [m]`` weigh the squares. Costs count as larger by ``beyond [m, M]``. Where ``beyond`` equals the costs at the best point of
        the scores without it, the best point with it lies on the edge. Scores that limit no point stay as they are.
        """
        if self.limited is None:
            return self
        reward, costs = self.limited[0], self.limited[1] + beyond
        positive = jnp.maximum(costs, 0)
        penalty = prices[:, None] * jnp.square(positive)
        # The parabola turns into a line where it is as steep as the penalty.
        if self.slopes is not None:
            penalty = jnp.where(costs <= self._bends(prices), penalty, self.slopes[:, None] * (positive - self._bends(prices) / 2))
        return self._replace(values=reward - jnp.sum(penalty, axis=0))

    def _bends(self, prices: Array) -> Array:
        """Return the costs ``[m, 1]`` where softened penalties become linear."""
        if self.slopes is None:
            return jnp.full((len(prices), 1), jnp.inf, prices.dtype)
        return jnp.where(prices > 0, self.slopes / (2 * jnp.where(prices > 0, prices, 1)), 0)[:, None]

    def past_edge(self, prices: Array) -> Array:
        """Return the positive costs, clipped at the ends of the parabolas."""
        assert self.limited is not None
        return jnp.clip(self.limited[1], 0, self._bends(prices))

    def largest_cost(self, prices: Array) -> Array:
        """Return the largest cost whose edge may be best, or minus infinity."""
        if self.limited is None:
            return jnp.full_like(self.values, -jnp.inf)
        costs = self.limited[1]
        return jnp.max(jnp.where(costs <= self._bends(prices), costs, -jnp.inf), axis=0, initial=-jnp.inf)

    def prices(self) -> Array:
        """Return the prices ``[m]`` of :meth:`softened`, from ranges over the points."""
        if self.limited is None:
            return jnp.zeros((0,), self.values.dtype)
        reward, costs = self.limited
        worst = jnp.max(costs, axis=-1)
        # The square of the largest cost is worth 20 ranges of the reward.
        return jnp.where(worst > 0, 20.0 * (jnp.max(reward) - jnp.min(reward)) / jnp.square(jnp.where(worst > 0, worst, 1)), 0)


def best_of_box(
    box: Box, pool: Array, score: Score, look: Callable[[Array], tuple[Score, T]], *, in_one: bool = False
) -> tuple[Array, Array, T]:
    """Return points of the unit cube, the best's index, and their ``look``.

    The points ``[n, d]`` are the ends of ascents that start in the pool, and the best point of the pool, so that the choice is never worse.

    Args:
      box: the box.
      pool: points ``[M, d]`` of the unit cube, the box's candidates first.
      score: the scores of the pool, whose flags are those of the round.
      look: function from points ``[n, d]`` to their scores and anything else that the caller needs of the returned points.
      in_one: as for :func:`~jaxbandit.numerics.ascent.ascend`.
    """
    raised = [everywhere(mask) for mask, _ in score.flags]
    prices = score.prices()

    def climbed(points: Array, beyond: Array | float = 0.0) -> Array:
        values = look(points)[0].softened(prices, beyond).in_force(raised)
        return jnp.where(box.holds(points), values, -jnp.inf) if isinstance(box, PartOfBox) else values

    # Each start lies on its own hill. Some starts are candidates, because all of the trial's own points may lie on one hill.
    heights = score.softened(prices).in_force(raised)
    starts = jnp.concatenate([hilltops(heights[: box.size], box.neighbours, box.brief), own_starts(heights, pool, box)])
    onto = box.onto if isinstance(box, PartOfBox) else None
    # After six steps of all ascents only the best ones go on, as many as a box has starts. In float32 these steps take a tenth of a round
    # less, and constrained EI with fits loses on the welded beam (128 trials, lower quartile after 100 evaluations -1.766 for -1.727):
    # beliefs there need float64.
    ended = ascend(climbed, pool[starts], box.steps, first=6, best=box.starts, onto=onto, in_one=in_one)
    if box.counted:
        ended = _at_whole_numbers(box, climbed, ended.place)
    ends = ended.place
    # The best points are often on the edge of the excluded set.
    if score.limited is not None:
        ends = jnp.concatenate([ends, _along_edge(box, climbed, lambda points: look(points)[0], prices, ended)])
    values = score.in_force(raised)
    points = jnp.concatenate([box.snapped(ends), pool[first(values >= largest(values), values.dtype)][None]])
    found_there, about = look(points)
    reached = found_there.in_force(raised)
    best = jnp.argmax(jnp.where(jnp.isnan(reached), -jnp.inf, reached))
    return points, best, about


def _along_edge(box: Box, climbed: Callable[[Array, Array], Array], scores: Callable[[Array], Score], prices: Array, ended: Climb) -> Array:
    """Return ends of ascents by the method of multipliers, and edge points.

    The given ends lie beyond the edge by their multipliers over twice the prices (Nocedal and Wright 2006, *Numerical optimization*,
    eq. 17.38). Costs raised by this distance have their best point on the edge. Sides of whole numbers stay.
    """
    beyond = scores(ended.place).past_edge(prices)
    along = ascend(
        lambda points: climbed(_without_counted(box, points), beyond), ended.place, 8, inverse=ended.inverse, onto=_beside(box)
    ).place
    return jnp.concatenate([along, to_edge(lambda points: scores(_without_counted(box, points)).largest_cost(prices), along)])


def _at_whole_numbers(box: Box, climbed: Callable[[Array], Array], ends: Array) -> Climb:
    """Ascend with whole-number sides fixed at the best corners beside ``ends``."""
    corners = box.corners(ends)
    levels = climbed(corners.reshape(-1, box.dimension)).reshape(corners.shape[:2])
    _, kept = jax.lax.top_k(jnp.where(jnp.isnan(levels), -jnp.inf, levels), min(2, levels.shape[1]))
    begun = jnp.take_along_axis(corners, kept[:, :, None], axis=1).reshape(-1, box.dimension)
    return ascend(lambda points: climbed(_without_counted(box, points)), begun, box.steps, onto=_beside(box))


def _beside(box: Box) -> Callable[[Array], Array] | None:
    """Return the projection onto the box's region along continuous axes."""
    return box.beside if isinstance(box, PartOfBox) else None


def _without_counted(box: Box, points: Array) -> Array:
    """Return the points without derivatives along sides of whole numbers."""
    still = np.isin(np.arange(box.dimension), box.counted)
    return jnp.where(still[None], jax.lax.stop_gradient(points), points)


def own_starts(heights: Array, pool: Array, box: Box) -> Array:
    """Return the indices of the trial's best points, else of candidates."""
    own = pool[box.size :]
    # A point that is not placed yet repeats a candidate.
    placed = jnp.any(own != pool[jnp.arange(len(own)) % box.size], axis=1)
    known = jnp.where(placed, heights[box.size :], -jnp.inf)
    known = jnp.pad(known, (0, max(box.starts - len(own), 0)), constant_values=-jnp.inf)
    best = best_of_strides(known, box.starts)
    return jnp.where(known[best] > -jnp.inf, box.size + best, jnp.arange(box.starts))


def hilltops(values: Array, neighbours: Array | np.ndarray, count: int) -> Array:
    """Return the indices of the ``count`` best values that no neighbour exceeds.

    ``neighbours`` are ``[M, n]``. The search looks at eight spread points for each hilltop. If it finds too few hilltops, some of these
    points fill up the rest and may repeat others.
    """
    few = best_of_strides(values, 8 * count)
    known = jnp.where(jnp.isnan(values), -jnp.inf, values)
    heights = known[few]
    top = jnp.all(known[jnp.asarray(neighbours)[few]] <= heights[:, None], axis=1)
    # On CPUs XLA's top_k is twenty times as fast in float32. The distances to the largest value keep their order in it.
    below = jnp.where(top & (heights > -jnp.inf), heights - jnp.max(heights), -jnp.inf).astype(np.float32)
    highest, best = jax.lax.top_k(below, min(count, len(few)))
    return jnp.where(highest > -jnp.inf, few[best], few[best_of_strides(heights, count)])


def best_of_strides(values: Array, count: int) -> Array:
    """Return the index of the best value in each of ``count`` strides.

    Points of a Sobol sequence that are chosen like this lie apart.
    """
    count = min(count, len(values))
    rows = jnp.pad(jnp.where(jnp.isnan(values), -jnp.inf, values), (0, -len(values) % count), constant_values=-jnp.inf).reshape(-1, count)
    return jnp.argmax(rows, axis=0) * count + jnp.arange(count)
