"""SCBO, scalable constrained Bayesian optimisation (Eriksson and Poloczek 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, cast

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.algorithms.base import Algorithm, Arena, BeliefState, Decision, Seen
from jaxbandit.core.declare import Array, Key, Scalar
from jaxbandit.core.fields import From, Letter, positive, whole
from jaxbandit.core.pytree import pytree, replace, static
from jaxbandit.domains import Box
from jaxbandit.domains.finite import sobol_points
from jaxbandit.numerics.ties import unit_box
from jaxbandit.rules.estimators import Strategy, Thompson
from jaxbandit.rules.scores import Score
from jaxbandit.surrogates import Belief


@pytree
class ScboState(BeliefState):
    """State of SCBO, with the trust region around the best point."""

    visited: Array  # [M]
    best: Array  # [] int32, at first M
    length: Array  # [] in domain's sides
    successes: Array  # [] int32, consecutive
    failures: Array  # [] int32, consecutive


@pytree
class Scbo(Algorithm[ScboState]):
    r"""SCBO: constrained Thompson sampling in a trust region around the best point.

    .. math::
        x_t = \arg\max \{ f_t(x) : g_{t,j}(x) \le 0 \;\forall j,\; x \in C_t \}, \quad\text{or} \\
        \arg\min_{x \in C_t} \sum_j g_{t,j}(x)^+ \;\text{ if there is no such candidate}

    The trust region is a cube of side ``L`` around the best point. On a finite domain the candidates ``C_t`` are its points, on a box
    ``min(5000, max(2000, 200 d))`` points. Beyond 20 axes these differ from the best point in 20 coordinates in the mean. ``L`` doubles
    after 3 rounds in a row that found a better point, and halves after ``d`` rounds in a row that did not. Below its least length it
    starts again.

    The best point has the largest posterior mean among the points whose means satisfy every constraint, else the least violation. Noise
    does not mislead this choice, and feedback may be late. The paper's restarts have new points and data; here only the trust region
    restarts, around the best point. The paper's transformations of outputs and scaling of sides by length-scales are left out.

    Attributes:
      estimator: the strategy that draws; default joint draws from the posterior.
      length: ``L`` at the start, from ``shortest`` to ``longest``.
      longest, shortest: ends of the range of ``L``.
      successes: rounds in a row that found a better point after which ``L`` doubles.
      failures: rounds in a row without a better point after which ``L`` halves; default ``d``.
    """

    name: ClassVar[str] = "scbo"
    title: ClassVar[str] = "SCBO"
    papers: ClassVar[Mapping[str, str]] = {"eriksson2021": "Algorithm 1"}
    shown = ("length",)
    estimator: Strategy = Thompson()
    length: Annotated[Scalar, positive, From("shortest"), Letter("L_init")] = 0.8
    longest: Annotated[Scalar, positive, From("length"), Letter("L_max")] = 1.6
    shortest: Annotated[Scalar, positive, Letter("L_min")] = 2.0**-7
    successes: Annotated[int, whole(1), Letter("tau_s")] = static(default=3)
    failures: Annotated[int, whole(1), Letter("tau_f")] | None = static(default=None)

    on_boxes = True

    def init(self, arena: Arena) -> ScboState:
        return ScboState(
            posterior=arena.surrogate.init(),
            visited=jnp.zeros((arena.size,), bool),
            best=jnp.int32(arena.size),
            length=jnp.asarray(self.length, arena.dtype),
            successes=jnp.int32(0),
            failures=jnp.int32(0),
        )

    def select(self, arena: Arena, state: ScboState, t: Array, key: Key) -> tuple[Decision, ScboState]:
        domain, belief = arena.surrogate.domain, arena.belief(state)
        among, drawing = jax.random.split(key)
        state = self.moved(arena, state, belief)
        box = domain if isinstance(domain, Box) else None
        pool = unit_box(domain.points) if box is None else belief.pool
        known = state.best < arena.size
        middle = jnp.where(known, pool[jnp.minimum(state.best, arena.size - 1)], 0.5)
        half = jnp.where(known, state.length, 1) / 2
        if box is None:
            inside = jnp.all(jnp.abs(pool - middle[None]) <= half, axis=-1)
            drawn = self.estimator.estimate(belief, t, drawing)
            index, _ = Score.of_draw(drawn, inside).choose()
            return Decision(index=index, widths=drawn.widths, draws=drawn.draws), state
        low, high = jnp.clip(middle - half, 0, 1), jnp.clip(middle + half, 0, 1)
        points = cast(Array, box.snapped(candidates(among, middle, low, high)))
        drawn = self.estimator.estimate(belief.at(points), t, drawing)
        chosen, _ = Score.of_draw(drawn).choose()
        point = points[jnp.minimum(chosen, len(points) - 1)]
        index, state = self.place(arena, state, point)
        index = jnp.where(chosen < len(points), index, arena.size)
        return Decision(index=index, widths=drawn.widths, draws=drawn.draws, point=point), state

    def moved(self, arena: Arena, state: ScboState, belief: Belief) -> ScboState:
        """Return the state with the trust region of the current belief."""
        violation = jnp.sum(jnp.maximum(belief.mean[1:], 0), axis=0)
        feasible = state.visited & (violation <= 0)
        value = jnp.where(jnp.any(feasible), jnp.where(feasible, belief.mean[0], -jnp.inf), jnp.where(state.visited, -violation, -jnp.inf))
        best = jnp.where(jnp.any(state.visited), jnp.argmax(value).astype(jnp.int32), jnp.int32(arena.size))
        counts, found = state.best < arena.size, best != state.best
        successes = jnp.where(found & counts, state.successes + 1, 0)
        failures = jnp.where(found | ~counts, 0, state.failures + 1)
        patience = arena.surrogate.domain.dimension if self.failures is None else self.failures
        longer, shorter = successes >= self.successes, failures >= patience
        length = jnp.where(longer, jnp.minimum(2 * state.length, self.longest), jnp.where(shorter, state.length / 2, state.length))
        return replace(
            state,
            best=best,
            length=jnp.where(length < self.shortest, jnp.asarray(self.length, length.dtype), length),
            successes=jnp.where(longer, 0, successes),
            failures=jnp.where(shorter, 0, failures),
        )

    def learn(self, arena: Arena, state: ScboState, observation: Seen) -> ScboState:
        learnt = super().learn(arena, state, observation)
        return replace(learnt, visited=state.visited.at[observation.index].set(True))

    def reset(self, arena: Arena, state: ScboState) -> ScboState:
        return replace(super().reset(arena, state), visited=state.visited)


def candidates(key: Key, middle: Array, low: Array, high: Array) -> Array:
    """Return candidates ``[n, d]`` between ``low`` and ``high``, with coordinates of ``middle``."""
    shifting, changing, one = jax.random.split(key, 3)
    dimension, dtype = len(middle), middle.dtype
    count = min(5000, max(2000, 200 * dimension))
    unit = np.asarray(sobol_points(dimension, count), dtype)
    points = low[None] + (high - low)[None] * ((unit + jax.random.uniform(shifting, (1, dimension), dtype)) % 1)
    # Mean number of coordinates of the best point that a candidate changes in higher dimensions.
    perturbed = 20
    if dimension <= perturbed:
        return points
    changed = jax.random.uniform(changing, points.shape) < perturbed / dimension
    # Change at least one coordinate.
    changed |= jnp.arange(dimension, dtype=jnp.int32)[None] == jax.random.randint(one, (count, 1), 0, dimension, jnp.int32)
    return jnp.where(changed, points, middle[None])
