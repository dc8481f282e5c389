"""Measures of a run as curves over rounds, from the *mean* functions.

All functions are pure, and ``[..., T]`` stands for any leading axes of trials and variants. Definitions: RPOL eq. (5)-(6) (regret and hard
violation), Zhou and Ji (2022) sec. 2 and App. F (strong regret, soft violation, violating rounds), Xu et al. (2023) sec. 3 (positive
regret, best constrained regret). A round counts when the algorithm chooses its point, however late the feedback arrives. From float64
tables on the host the functions return float64 arrays of NumPy, and within a program of JAX its arrays.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike

from jaxbandit.core.blocks import one_program
from jaxbandit.core.checks import InvalidArgument, short
from jaxbandit.core.declare import Array, Scalar, checked
from jaxbandit.core.fields import Described, finite, finite_numbers, integers_from, nonnegative, numbers, whole
from jaxbandit.core.hints import missing
from jaxbandit.core.pytree import as_argument, float_dtype, pytree
from jaxbandit.core.status import healthy
from jaxbandit.delays import NEVER, Failing
from jaxbandit.domains import MOST_POINTS, Box, Contextual
from jaxbandit.problems import AbstractProblem, optimum
from jaxbandit.problems.base import Instance, as_exact_as_tables

__all__ = ["Curves", "DelayCounts", "by_evaluations", "curves", "delay_counts", "failures", "healthy"]
__dir__ = __all__.copy
__getattr__ = missing(__name__, __all__)


@pytree
class Curves(Described):
    """Cumulative measures after each round, ``[..., T]``.

    All regrets except the strong regret are NaN when no point is feasible, and the regret is negative where infeasible points have a larger
    reward. The best feasible value is NaN before the first feasible point. The strong regret needs the value of the best mixed policy pi.
    On a domain with contexts ``x*`` is the best feasible action of the round's context (dynamic regret), and pi a policy given the context.
    """

    described: ClassVar[str] = "measures of a run, jaxbandit.metrics.curves(...)"
    regret: Array  # [..., T] sum f(x*) - f(x_s)
    positive_regret: Array  # [..., T] sum (f(x*) - f(x_s))^+
    hard_violation: Array  # [..., T] sum_s sum_j g_j(x_s)^+
    soft_violation: Array  # [..., T] norm over j of (sum_s g_j(x_s))^+
    violating_rounds: Array  # [..., T] N, with some g_j(x_s) > 0
    best_constrained_regret: Array  # [..., T] min_s (f* - f(x_s))^+ + sum_j g_j(x_s)^+
    reward: Array  # [..., T] sum f(x_s)
    best_feasible_value: Array  # [..., T] max_s f(x_s), x_s feasible
    strong_regret: Array | None = None  # [..., T] sum E_pi f - f(x_s)


@checked
@as_exact_as_tables
def curves(
    problem: Instance,
    indices: Annotated[Array, numbers],
    *,
    mixed_value: Annotated[Scalar, finite] | None = None,
) -> Curves:
    """Compute the cumulative measures of the points chosen on ``problem``.

    Args:
      problem: the instance that was run (of a random family: the sampled instance, under ``vmap``).
      indices: indices ``[..., T]`` of the chosen points, on a box coordinates ``[..., T, d]`` in the units of its axes; see
        :attr:`jaxbandit.Trajectory.scored_indices` and :attr:`jaxbandit.Trajectory.scored_points`.
      mixed_value: reward of the best mixed policy (:func:`~jaxbandit.problems.best_mixed_policy`), for strong regret.
    """
    on_box, each = isinstance(problem.domain, Box), [problem.domain.dimension] if isinstance(problem.domain, Box) else []
    (finite_numbers if on_box else integers_from(0, MOST_POINTS))("indices", indices)
    shape, expected = np.shape(indices), f"[..., T{''.join(f', {d}' for d in each)}]"
    if len(shape) <= len(each) or [*shape[len(shape) - len(each) :]] != each:
        raise InvalidArgument(f"indices: expected shape {expected}, one point for each round, got shape {list(shape)}: {short(indices)}")
    if 0 in shape:
        raise InvalidArgument(f"indices: expected shape {expected} with T >= 1, got shape {list(shape)}")
    if isinstance(problem.domain, Box):
        problem.domain.check_inside("indices", indices)
    else:
        integers_from(0, problem.domain.size - 1)("indices", indices)
    return extend_tally(problem, start_tally(problem.constraints, shape[: len(shape) - len(each) - 1]), indices, mixed_value)[1]


@pytree
class Tally:
    """Values of the cumulative measures after some rounds."""

    sums: Array  # [..., 4 + m] as in :func:`_extended`
    violating_rounds: Array  # [...] int32
    best_constrained_regret: Array  # [...]
    best_feasible_value: Array  # [...] -inf before the first


def start_tally(constraints: int, shape: tuple[int, ...] = ()) -> Tally:
    """Return the measures of trials ``shape`` before the first round."""
    sums: Any = np.zeros((*shape, 4 + constraints), float_dtype())
    zero = sums[..., 0]
    endless = zero + sums.dtype.type(np.inf)
    return Tally(sums=sums, violating_rounds=zero.astype(np.int32), best_constrained_regret=endless, best_feasible_value=-endless)


def extend_tally(problem: AbstractProblem, so_far: Tally, indices: Array, mixed_value: Scalar | None = None) -> tuple[Tally, Curves]:
    """Return the measures after further rounds at ``indices``, and their curves."""
    if isinstance(problem.domain, Box):
        return _extended(problem.means_of(as_argument(indices)), None, optimum(problem).value, so_far, mixed_value)
    best = optimum(problem).value
    if isinstance(problem.domain, Contextual):
        best = best[indices // problem.domain.actions]
    return _extended(as_argument(problem.means), as_argument(indices), best, so_far, mixed_value)


@one_program
def _extended(means: Array, chosen: Array | None, best: Array, so_far: Tally, mixed_value: Scalar | None) -> tuple[Tally, Curves]:
    """Return the tally and the curves of further rounds."""
    # The means are ``[1 + m, M]``, or ``[1 + m, ..., n]`` of the chosen points.
    means = means if chosen is None else means[:, chosen]
    reward = means[0]
    costs = jnp.moveaxis(means[1:], 0, -2)  # [..., m, n]
    gap = best - reward
    excess = jnp.sum(jnp.maximum(costs, 0), axis=-2)
    violating = jnp.any(costs > 0, axis=-2).astype(gap.dtype)
    # Cumulative sums take long to compile, so all measures share one. In float32 it counts rounds exactly up to 2^24.
    terms = jnp.concatenate([jnp.stack([gap, jnp.maximum(gap, 0), excess, reward], axis=-2), costs, violating[..., None, :]], axis=-2)
    further = jnp.cumsum(terms, axis=-1)
    sums = so_far.sums[..., None] + further[..., :-1, :]
    soft = jnp.maximum(sums[..., 4:, :], 0)
    least = jax.lax.cummin(jnp.maximum(gap, 0) + excess, axis=gap.ndim - 1)
    largest = jax.lax.cummax(jnp.where(violating > 0, -jnp.inf, reward), axis=gap.ndim - 1)
    largest = jnp.maximum(so_far.best_feasible_value[..., None], largest)
    measures = Curves(
        regret=sums[..., 0, :],
        positive_regret=sums[..., 1, :],
        hard_violation=sums[..., 2, :],
        soft_violation=jnp.sqrt(jnp.sum(soft * soft, axis=-2)),
        violating_rounds=so_far.violating_rounds[..., None] + further[..., -1, :].astype(jnp.int32),
        best_constrained_regret=jnp.minimum(so_far.best_constrained_regret[..., None], least),
        reward=sums[..., 3, :],
        best_feasible_value=jnp.where(jnp.isneginf(largest), jnp.nan, largest),
        strong_regret=None if mixed_value is None else jnp.cumsum(mixed_value - reward, axis=-1),
    )
    after = Tally(
        sums=sums[..., -1],
        violating_rounds=measures.violating_rounds[..., -1],
        best_constrained_regret=measures.best_constrained_regret[..., -1],
        best_feasible_value=largest[..., -1],
    )
    return after, measures


@checked
def failures(problem: Instance, indices: Annotated[Array, numbers]) -> Array:
    """Count the failed runs after each round, ``[..., T]``.

    Args:
      problem: a problem of :func:`~jaxbandit.problems.with_failures`.
      indices: chosen points, as for :func:`curves`.
    """
    if not isinstance(problem.delay, Failing):
        raise InvalidArgument(f"problem: must be one of problems.with_failures, got {problem.name!r}, whose runs do not fail")
    curves(problem, indices)
    failed = problem.means_of(as_argument(indices))[-1] > 0
    return jnp.cumsum(failed, axis=-1, dtype=jnp.int32)


@checked
def by_evaluations(
    curve: Annotated[ArrayLike, numbers], values: Annotated[ArrayLike, numbers], *, horizon: Annotated[int, whole(1, MOST_POINTS)]
) -> np.ndarray:
    """Return a curve over rounds as one over evaluations of single functions.

    Args:
      curve: ``[..., T]``, such as a curve of :class:`Curves`.
      values: ``[..., T, k]`` of the same rounds, NaN where a function was not evaluated, ``Trajectory.values``.
      horizon: number ``E`` of evaluations. A round that evaluates all functions counts ``k``.

    Returns:
      ``[..., E]``, after each evaluation the curve's value in the last round that had ended by then, NaN before the first round's end and
      beyond the run's last evaluation.
    """
    table, rounds = np.asarray(values), np.asarray(curve)
    if table.shape[:-1] != rounds.shape or table.ndim < 2:
        raise InvalidArgument(f"values: expected shape {[*rounds.shape]} and an axis of functions, got shape {list(table.shape)}")
    spent = np.cumsum(np.sum(~np.isnan(table), axis=-1), axis=-1)
    counts = np.arange(1, horizon + 1)
    ended = np.sum(spent[..., None, :] <= counts[:, None], axis=-1)
    found = np.take_along_axis(rounds.astype(np.float64), np.maximum(ended - 1, 0), axis=-1)
    return np.where((ended > 0) & (counts <= spent[..., -1:]), found, np.nan)


@pytree
class DelayCounts:
    """Numbers of each output's values by their fate.

    ``arrived + pending + lost`` is the number of rounds. A learner that censors ignores the censored values among the arrived.
    """

    arrived: Array  # [..., k] within the run
    pending: Array  # [..., k] after the last round
    never: Array  # [..., k] pending for ever
    censored: Array  # [..., k] later than the window
    lost: Array  # [..., k] without a slot


@checked
def delay_counts(
    arrivals: Annotated[ArrayLike, integers_from(1, 2**31 - 1)],
    *,
    window: Annotated[Scalar, nonnegative] | None = None,
    lost: Annotated[ArrayLike, integers_from(0, 2**31 - 1)] | None = None,
) -> DelayCounts:
    """Count the arrived, pending, censored and lost values.

    Args:
      arrivals: ``[..., T, k]`` rounds, counted from 1, at whose ends values arrive; ``delays.NEVER`` or more for values that never do.
      window: window ``m`` in rounds of a censoring learner; ``None``: no value is censored.
      lost: ``[..., k]`` numbers of lost values, ``Trajectory.lost``; default 0. A buffer loses the values of the longest delays.
    """
    arrivals = jnp.asarray(arrivals)
    if arrivals.ndim < 2:
        raise InvalidArgument(f"arrivals: expected shape [..., T, k], got shape {list(arrivals.shape)}")
    if lost is not None and np.shape(lost) != (*arrivals.shape[:-2], arrivals.shape[-1]):
        raise InvalidArgument(f"lost: expected shape {[*arrivals.shape[:-2], arrivals.shape[-1]]}, got shape {list(np.shape(lost))}")
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
