"""Measures of a run, as curves over rounds, against the *mean* functions (never the noisy values).

Pure functions; ``[..., T]`` stands for any leading axes of trials and variants. Definitions: RPOL eq. (5)-(6) (regret and hard
violation), Zhou and Ji (2022) sec. 2 and App. F (strong regret, soft violation, violating rounds), Xu et al. (2023) sec. 3 (positive
regret, best constrained regret). Curves count a round when its point is chosen; under delay the ``arrived`` ones count it when its
feedback is in, which is all that an observer of the feedback can know.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from jaxbandit.core.pytree import float_dtype, pytree, replace, static
from jaxbandit.core.status import FAILED
from jaxbandit.delays import NEVER
from jaxbandit.problems import Problem, optimum

__all__ = [
    "ArrivedCurves",
    "Curves",
    "DelayCounts",
    "Summary",
    "Tally",
    "arrived_curves",
    "by_arrival",
    "curves",
    "delay_counts",
    "extend",
    "healthy",
    "summarise",
    "tally",
    "violation_by_constraint",
]

Array = jax.Array


@pytree
class Curves:
    """Cumulative measures after each round, ``[..., T]``; regrets but the strong one are NaN when no point is feasible."""

    regret: Array  # sum f(x*) - f(x_s); negative where infeasible points pay
    positive_regret: Array  # sum (f(x*) - f(x_s))^+
    hard_violation: Array  # sum over rounds and constraints of g_j(x_s)^+
    soft_violation: Array  # norm over j of (sum over rounds of g_j(x_s))^+
    violating_rounds: Array  # N, rounds with some g_j(x_s) > 0
    best_constrained_regret: Array  # min over s <= t of (f* - f(x_s))^+ + sum_j g_j(x_s)^+
    reward: Array  # sum f(x_s), defined where no point is feasible, too
    strong_regret: Any = None  # sum E_pi f - f(x_s), pi the best mixed policy; None when its value was not given


def curves(problem: Problem, indices: Array, *, mixed_value: Any = None) -> Curves:
    """Measures of the points ``indices [..., T]`` chosen on ``problem``.

    Args:
      problem: the instance that was run (for random families: the sampled one, under ``vmap``).
      indices: chosen points; see :attr:`Trajectory.scored_indices <jaxbandit.simulate.Trajectory.scored_indices>`.
      mixed_value: reward of the best mixed policy (:func:`~jaxbandit.problems.best_mixed_policy`), for strong regret.
    """
    found = extend(problem, tally(problem.constraints, jnp.shape(indices)[:-1]), indices)[1]
    if mixed_value is None:
        return found
    reward = jnp.asarray(problem.means)[0][indices]
    return replace(found, strong_regret=jnp.cumsum(mixed_value - reward, axis=-1))


@pytree
class Tally:
    """What curves have come to, so that they can go on from there."""

    regret: Array  # [...]
    positive_regret: Array  # [...]
    hard_violation: Array  # [...]
    costs: Array  # [..., m] sum of g_j(x_s)
    violating_rounds: Array  # [...] int32
    best_constrained_regret: Array  # [...]
    reward: Array  # [...]


def tally(constraints: int, shape: tuple[int, ...] = ()) -> Tally:
    """Before the first round, for trials of the given leading axes."""
    zero = jnp.zeros(shape, float_dtype())
    return Tally(
        regret=zero,
        positive_regret=zero,
        hard_violation=zero,
        costs=jnp.zeros((*shape, constraints), zero.dtype),
        violating_rounds=jnp.zeros(shape, jnp.int32),
        best_constrained_regret=jnp.full(shape, jnp.inf, zero.dtype),
        reward=zero,
    )


def extend(problem: Problem, so_far: Tally, indices: Array) -> tuple[Tally, Curves]:
    """The curves over further rounds, in which the points ``indices [..., n]`` were chosen, and what they come to."""
    means = jnp.asarray(problem.means)
    reward = means[0][indices]
    costs = jnp.moveaxis(means[1:][:, indices], 0, -2)  # [..., m, n]
    gap = optimum(problem).value - reward
    excess = jnp.sum(jnp.maximum(costs, 0), axis=-2)
    violating = jnp.any(costs > 0, axis=-2).astype(gap.dtype)
    # Sums are long to compile: one of all. Numbers of rounds are exact in it up to 2^24.
    terms = jnp.concatenate([jnp.stack([gap, jnp.maximum(gap, 0), excess, reward, violating], axis=-2), costs], axis=-2)
    before = [so_far.regret, so_far.positive_regret, so_far.hard_violation, so_far.reward, jnp.zeros_like(so_far.regret)]
    sums = jnp.concatenate([jnp.stack(before, axis=-1), so_far.costs], axis=-1)[..., None] + jnp.cumsum(terms, axis=-1)
    soft = jnp.maximum(sums[..., 5:, :], 0)
    best = jax.lax.cummin(jnp.maximum(gap, 0) + excess, axis=gap.ndim - 1)
    found = Curves(
        regret=sums[..., 0, :],
        positive_regret=sums[..., 1, :],
        hard_violation=sums[..., 2, :],
        soft_violation=jnp.sqrt(jnp.sum(soft * soft, axis=-2)),
        violating_rounds=so_far.violating_rounds[..., None] + sums[..., 4, :].astype(jnp.int32),
        best_constrained_regret=jnp.minimum(so_far.best_constrained_regret[..., None], best),
        reward=sums[..., 3, :],
    )
    after = Tally(
        regret=found.regret[..., -1],
        positive_regret=found.positive_regret[..., -1],
        hard_violation=found.hard_violation[..., -1],
        costs=sums[..., 5:, -1],
        violating_rounds=found.violating_rounds[..., -1],
        best_constrained_regret=found.best_constrained_regret[..., -1],
        reward=found.reward[..., -1],
    )
    return after, found


def violation_by_constraint(problem: Problem, indices: Array) -> Array:
    """Hard violation of each constraint, ``sum over rounds of g_j(x_s)^+``, as ``[..., m, T]``."""
    costs = jnp.moveaxis(jnp.asarray(problem.means)[1:][:, indices], 0, -2)
    return jnp.cumsum(jnp.maximum(costs, 0), axis=-1)


def by_arrival(amounts: Array, arrivals: Array) -> Array:
    """Sums of ``amounts [..., T]`` as they arrive: after round ``t`` those whose number in ``arrivals [..., T]`` is at most ``t``."""
    amounts, arrivals = jnp.asarray(amounts), jnp.asarray(arrivals)
    horizon = amounts.shape[-1]

    def one(amounts: Array, arrivals: Array) -> Array:
        places = jnp.minimum(arrivals - 1, horizon)  # the last place is for what does not arrive within the run
        return jnp.cumsum(jnp.zeros((horizon + 1,), amounts.dtype).at[places].add(amounts)[:horizon])

    return jnp.vectorize(one, signature="(t),(t)->(t)")(amounts, arrivals)


@pytree
class ArrivedCurves:
    """As :class:`Curves`, over the rounds whose feedback has arrived: ``[..., T]``; at the end they lack what is pending."""

    regret: Array  # by the arrival of rewards
    positive_regret: Array  # by the arrival of rewards
    hard_violation: Array  # each constraint's part by the arrival of its own costs


def arrived_curves(problem: Problem, indices: Array, arrivals: Array) -> ArrivedCurves:
    """Measures of the points ``indices [..., T]`` whose values have arrived by the end of each round.

    Args:
      problem: as for :func:`curves`.
      indices: chosen points.
      arrivals: ``[..., T, 1 + m]`` rounds, from 1, at whose ends values arrive, as
        :attr:`Trajectory.arrivals <jaxbandit.simulate.Trajectory.arrivals>` has them.
    """
    means, arrivals = jnp.asarray(problem.means), jnp.moveaxis(jnp.asarray(arrivals), -1, 0)
    gap = optimum(problem).value - means[0][indices]
    excess = [by_arrival(jnp.maximum(cost[indices], 0), when) for cost, when in zip(means[1:], arrivals[1:], strict=True)]
    return ArrivedCurves(
        regret=by_arrival(gap, arrivals[0]),
        positive_regret=by_arrival(jnp.maximum(gap, 0), arrivals[0]),
        hard_violation=sum(excess, start=jnp.zeros_like(gap)),
    )


@pytree
class DelayCounts:
    """What became of each output's values, ``[..., k]`` counts; ``arrived + pending + lost`` is the number of rounds."""

    arrived: Array  # within the run, with a place in the buffer
    pending: Array  # not arrived by the end of the last round
    never: Array  # of the pending: those that never arrive
    censored: Array  # of the arrived: those later than the window, which a learner that censors does not use
    lost: Array  # due within the run, without a place in the buffer


def delay_counts(arrivals: Array, *, window: Any = None, lost: Any = None) -> DelayCounts:
    """How many values arrived, were pending at the end, censored or lost.

    Args:
      arrivals: ``[..., T, k]`` rounds, from 1, at whose ends values arrive; ``delays.NEVER`` and more for what never will.
      window: ``m`` of a learner that censors; ``None``: nothing is censored.
      lost: ``[..., k]`` values that the buffer had no place for, :attr:`Trajectory.lost <jaxbandit.simulate.Trajectory.lost>`; default
        none. A buffer loses the values of the longest delays.
    """
    arrivals = jnp.asarray(arrivals)
    horizon = arrivals.shape[-2]
    delays = arrivals - jnp.broadcast_to(jnp.arange(1, horizon + 1, dtype=arrivals.dtype)[:, None], arrivals.shape)
    within = arrivals <= horizon

    def count(mask: Array) -> Array:
        return jnp.sum(mask, axis=-2, dtype=jnp.int32)

    due = count(within)
    gone = jnp.zeros_like(due) if lost is None else jnp.asarray(lost, jnp.int32)
    late = jnp.zeros_like(due) if window is None else count(within & (delays > window))
    return DelayCounts(
        arrived=due - gone,
        pending=horizon - due,
        never=count(arrivals >= NEVER),
        censored=jnp.maximum(late - gone, 0),
        lost=gone,
    )


def healthy(status: Array) -> Array:
    """Which trials have no failure flag, ``[...]`` booleans; a declared or real infeasibility is not a failure."""
    return (status & int(FAILED)) == 0


@pytree
class Summary:
    """A measure over trials. ``count`` says how many healthy trials it rests on."""

    mean: Array
    half_width: Array  # of the 95% confidence interval of the mean, 1.96 sd / sqrt(count)
    sd: Array
    quantiles: Array  # [len(levels), ...]
    count: Array
    levels: tuple[float, ...] = static()


def summarise(values: Array, ok: Array, *, levels: tuple[float, ...] = (0.05, 0.25, 0.5, 0.75, 0.95)) -> Summary:
    """Mean, 95% confidence half-width, standard deviation and quantiles of ``values [trials, ...]`` over the trials that are ``ok``.

    Failed trials are left out and the count says so; with fewer than two healthy trials spread and interval are NaN.
    """
    values = jnp.asarray(values, float_dtype())
    mask = ok.reshape(ok.shape + (1,) * (values.ndim - 1))
    count = jnp.sum(ok)
    number = jnp.maximum(count, 1).astype(values.dtype)
    mean = jnp.where(count > 0, jnp.sum(jnp.where(mask, values, 0), axis=0) / number, jnp.nan)
    squares = jnp.sum(jnp.where(mask, jnp.square(values - mean[None]), 0), axis=0)
    sd = jnp.where(count > 1, jnp.sqrt(squares / jnp.maximum(number - 1, 1)), jnp.nan)
    quantiles = jnp.nanquantile(jnp.where(mask, values, jnp.nan), jnp.asarray(levels, values.dtype), axis=0)
    return Summary(mean=mean, half_width=1.96 * sd / jnp.sqrt(number), sd=sd, quantiles=quantiles, count=count, levels=levels)
