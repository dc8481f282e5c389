"""Beliefs of a learner after chosen rounds of a trial, replayed from its trajectory, and the scores of an acquisition."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.arguments import takes
from jaxbandit.core.fields import MOST_ROUNDS, boolean, function, integers_from, nonnegative, of_class, optional, scalar, vector
from jaxbandit.core.pytree import canonicalise, float_dtype
from jaxbandit.core.types import Array
from jaxbandit.engine import Trajectory
from jaxbandit.problems import AbstractProblem
from jaxbandit.surrogates import Posterior, Prediction, Surrogate, arithmetic

# An acquisition to map: takes the posterior of one round, the multipliers [m] in force and the round; returns the score [M].
Score = Callable[[Prediction, np.ndarray, int], Array]

ROUNDS = integers_from(0, MOST_ROUNDS).of(vector("the numbers of rounds"))
SCORE = optional(function("(belief, multipliers, t)"))
RUN = of_class(Trajectory, "what simulate returns, a Trajectory")


@takes(surrogate=of_class(Surrogate), trajectory=RUN, rounds=ROUNDS)
def posterior_after(surrogate: Surrogate, trajectory: Trajectory, rounds: Sequence[int]) -> Prediction:
    """Compute the posterior of one trial after some of its rounds, from its chosen points and observed values.

    It is conditioned on every value that had arrived by the end of the round, those of the initial design included: the information of
    a learner under :class:`~jaxbandit.feedback.Wait` when it chooses its next point.

    Args:
      surrogate: the model that was run.
      trajectory: trajectory of one trial, without leading axes (``run.trial(3)``), recorded with values.
      rounds: ``n`` rounds in ``[0, T]``; 0 means before the first.

    Returns:
      Means and standard deviations ``[n, k, M]``, information gains ``[n, k]``.

    Raises:
      InvalidArgument: on a trajectory of many trials or without values, or a round out of range.
    """
    if trajectory.values is None:
        raise checks.InvalidArgument("trajectory: has no values; run it with record='all'")
    if np.ndim(trajectory.indices) != 1:
        raise checks.InvalidArgument(f"trajectory: of many trials, shape {list(np.shape(trajectory.indices))}; take one by run.trial(0)")
    horizon, outputs = np.shape(trajectory.values)
    if np.max(rounds) > horizon:
        raise checks.InvalidArgument(f"rounds: must be at most {horizon}, the last round, got {checks.short(rounds)}")
    before = len(np.asarray(trajectory.initial_indices))
    at_once = np.broadcast_to(np.arange(1, horizon + 1, dtype=np.int32)[:, None], (horizon, outputs))
    arrivals = at_once if trajectory.arrivals is None else np.asarray(trajectory.arrivals)
    due = np.concatenate([np.zeros((before, outputs), np.int32), arrivals])
    # Values of one point that arrive at different times need a factor for each output.
    model = surrogate if (due == due[:, :1]).all() else surrogate.separate()
    indices = np.concatenate([np.asarray(trajectory.initial_indices), np.asarray(trajectory.indices)]).astype(np.int32)
    values = np.concatenate([np.asarray(trajectory.initial_values), np.asarray(trajectory.values)])
    with arithmetic([model.precision]) as switched:
        belief = _replayed(canonicalise(model).factorised(), indices, values.astype(float_dtype()), due, np.asarray(rounds, np.int32))
    return jax.tree.map(np.asarray, belief) if switched else belief  # outside, JAX would round its own arrays


@jax.jit
def _replayed(surrogate: Surrogate, indices: Array, values: Array, due: Array, rounds: Array) -> Prediction:
    """Return the predictions after each of ``rounds [n]``, from ``indices [N]``, ``values [N, k]`` and rounds of arrival ``due [N, k]``."""

    def after(last: Array) -> Prediction:
        def observe(posterior: Posterior, seen: tuple[Array, Array, Array]) -> tuple[Posterior, None]:
            index, value, when = seen
            return surrogate.condition(posterior, index, value, when <= last), None

        return surrogate.predict(jax.lax.scan(observe, surrogate.init(), (indices, values, due))[0])

    return jax.lax.map(after, rounds)


@takes(reward_width=nonnegative.of(scalar), cost_width=nonnegative.of(scalar), rectified=boolean)
def penalised_bounds(reward_width: float, cost_width: float, *, rectified: bool = True) -> Score:
    """Return RPOL-UCB's score ``UCB_f - sum_j Q_j LCB_{g_j}^+`` as a function; ``rectified=False``: CBO-UCB's, without its clipping."""

    @takes(belief=of_class(Prediction, "what a model predicts, surrogate.predict(posterior)"))
    def score(belief: Prediction, multipliers: np.ndarray, t: int) -> Array:
        costs = belief.mean[1:] - cost_width * belief.sd[1:]
        costs = jnp.maximum(costs, 0) if rectified else costs
        weights = jnp.asarray(multipliers, costs.dtype)[:, None]
        return belief.mean[0] + reward_width * belief.sd[0] - jnp.sum(weights * costs, axis=0)

    return score


@dataclasses.dataclass(frozen=True)
class Frame:
    """Contents of the panels of one round: a table ``[M]`` for each, the points tried so far, the largest mean constraint."""

    round: int
    tables: list[np.ndarray]
    tried: np.ndarray  # [n] indices
    chosen: int | None  # the point chosen next, None after the last round
    believed: np.ndarray | None  # [M] largest posterior mean of a constraint
    belief: Prediction
    seen: np.ndarray  # [n, k] values of the points tried, NaN where they have not arrived


def frames_of(surrogate: Surrogate, trajectory: Trajectory, rounds: Sequence[int], score: Score | None) -> list[Frame]:
    """Return the contents of the panels, one frame for each round."""
    beliefs = posterior_after(surrogate, trajectory, rounds)
    indices, horizon = np.asarray(trajectory.indices), len(np.asarray(trajectory.indices))
    tried = np.concatenate([np.asarray(trajectory.initial_indices), indices])
    seen = np.concatenate([np.asarray(trajectory.initial_values), np.asarray(trajectory.values)])
    before = len(tried) - horizon
    due = np.arange(1, horizon + 1)[:, None] if trajectory.arrivals is None else np.asarray(trajectory.arrivals)
    frames = []
    for place, t in enumerate(rounds):
        belief = jax.tree.map(lambda x, place=place: np.asarray(x[place]), beliefs)
        mean, sd = belief.mean, belief.sd
        tables = [table for j in range(len(mean)) for table in (mean[j], sd[j])]
        if score is not None:
            tables.append(_ranks(np.asarray(score(belief, np.asarray(trajectory.multipliers)[t], t + 1))))  # in force at round t + 1
        arrived = np.where((due <= t)[:t], seen[before : before + t], np.nan)
        frames.append(
            Frame(
                round=int(t),
                tables=tables,
                tried=tried[: before + t],
                chosen=int(indices[t]) if t < horizon else None,
                believed=mean[1:].max(axis=0) if len(mean) > 1 else None,
                belief=belief,
                seen=np.concatenate([seen[:before], arrived]),
            )
        )
    return frames


def _ranks(scores: np.ndarray) -> np.ndarray:
    """Return the share of other points with a lower score, ties as half: scores themselves span too wide a range under penalties."""
    finite = scores[np.isfinite(scores)]
    rounding = 1e-6 * max(1.0, float(np.abs(finite).max(initial=0)))  # scores that differ by that in float32 are equal
    _, place, counts = np.unique(np.round(scores / rounding), return_inverse=True, return_counts=True)
    below = np.cumsum(counts) - counts + (counts - 1) / 2
    return np.where(np.isnan(scores), np.nan, below[place.reshape(-1)] / max(len(scores) - 1, 1))


def names_of(item: Surrogate | AbstractProblem) -> list[str]:
    """Return the names of the outputs."""
    return ["reward", *([f"constraint {j}" for j in range(1, item.outputs)] if item.outputs > 2 else ["constraint"])][: item.outputs]
