"""RPOL with few and with many hyper-parameters.

They are parameters on a logarithmic scale. Functions build an algorithm and a model of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np

import jaxbandit as jb
from experiments.guo_2022.rpol import LENGTH_SCALE, NOISE_VARIANCE
from jaxbandit.gradients import logarithms
from jaxbandit.rules.estimators import Bounds
from jaxbandit.rules.widths import Width

# Number of knots of each schedule.
KNOTS = 7
# Width of the paper's Figure 1.
WIDTH = 3.0
Setting = tuple[dict[str, Any], Callable[[Any], tuple[jb.Algorithm, Any]]]


@jb.pytree
class Knots(Width):
    """Width that is linear in the round's logarithm between knots.

    The knots are equally spaced there from round 1 to ``horizon``.
    """

    values: Annotated[Any, jb.fields.positive, jb.fields.vector("one width per knot")]
    horizon: Annotated[int, jb.fields.whole(1)] = jb.static()

    def __call__(self, t: Any, gain: Any) -> Any:
        """Return the width of round ``t``, for each of the gains."""
        values = jnp.asarray(self.values, gain.dtype)
        last = len(values) - 1
        place = jnp.log(jnp.asarray(t, gain.dtype)) / max(math.log(self.horizon), 1e-6) * last
        low = jnp.clip(jnp.floor(place), 0, last - 1).astype(jnp.int32)
        share = jnp.clip(place - low.astype(gain.dtype), 0, 1)
        return ((1 - share) * values[low] + share * values[low + 1]) * jnp.ones_like(gain)


def sine(points_per_axis: int, horizon: int) -> tuple[Any, Any]:
    """Return the problem with the small feasible region and its model."""
    problem = jb.problems.sine(points_per_axis, noise_variance=NOISE_VARIANCE)
    kernel = jb.kernels.SquaredExponential(length_scale=LENGTH_SCALE)
    return problem, jb.surrogate(problem.domain, kernel, noise_variance=NOISE_VARIANCE, horizon=horizon)


def four(model: Any) -> Setting:
    """Return RPOL's four hyper-parameters at the paper's values."""
    algorithm = jb.Rpol(estimator=Bounds(reward_width=WIDTH, cost_width=WIDTH))
    return logarithms(algorithm, model, "estimator.reward_width", "estimator.cost_width", "penalty_growth", "initial_penalty")


def seven(model: Any) -> Setting:
    """Return these and the model's three parameters."""
    algorithm = jb.Rpol(estimator=Bounds(reward_width=WIDTH, cost_width=WIDTH))
    paths = ("estimator.reward_width", "estimator.cost_width", "penalty_growth", "initial_penalty", "model.noise_variance")
    params, build = logarithms(algorithm, model, *paths)

    def with_means(params: Any) -> tuple[jb.Algorithm, Any]:
        made, own = build({path: params[path] for path in paths})
        return made, jb.replace(own, prior_mean=params["model.prior_mean"])

    return params | {"model.prior_mean": jnp.zeros(2)}, with_means


def sixteen(model: Any, horizon: int) -> Setting:
    """Return sixteen numbers, with two schedules of seven widths."""
    schedules = [Knots(values=np.full(KNOTS, WIDTH), horizon=horizon) for _ in range(2)]
    algorithm = jb.Rpol(estimator=Bounds(reward_width=schedules[0], cost_width=schedules[1]))
    paths = ("estimator.reward_width.values", "estimator.cost_width.values", "penalty_growth", "initial_penalty")
    return logarithms(algorithm, model, *paths)
