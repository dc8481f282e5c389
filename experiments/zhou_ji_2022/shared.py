"""Shared by the experiments of Zhou and Ji (2022).

It has CBO and the baselines, the facts of each instance, and notes on violating rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxbandit as jb
from jaxbandit.problems import AbstractProblem
from jaxbandit.report.statistics import final_values
from jaxbandit.rules.estimators import Bounds, Randomised, Thompson
from jaxbandit.rules.widths import ImprovedGPUCB, finite_set
from jaxbandit.study import Run

# The probability is alpha. The paper gives no number.
FAILURE_PROBABILITY = 0.1
# Width of the algorithms with safe sets.
SAFE_WIDTH = 2.0
# Rounds of StageOpt's first stage, and of SGP-UCB's warm-up.
EXPLORATION = 50.0
STRATEGIES = {"CBO-UCB": Bounds, "CBO-TS": Thompson, "CBO-Rand": Randomised}


def theory_width(noise_scale: float) -> ImprovedGPUCB:
    """Return the ``beta_t`` of the paper's Theorem 1."""
    return ImprovedGPUCB(norm_bound=1.0, noise_scale=noise_scale, delta=FAILURE_PROBABILITY, union=2.0)


def cbo_runs(
    problem: AbstractProblem,
    model: jb.Surrogate,
    width: Any,
    *,
    informed: jb.Informed | None = None,
    suffix: str = "",
    cost_clip: float = 1.0,
) -> Iterator[Run]:
    """Return the runs of CBO-UCB, CBO-TS and CBO-Rand, labelled with ``suffix``."""
    for label, strategy in STRATEGIES.items():
        estimator = strategy(reward_width=width, cost_width=width)
        algorithm = jb.Cbo(estimator=estimator, reward_clip=1.0, cost_clip=cost_clip, dual_cap=10.0)
        yield Run(label + suffix, problem, algorithm, model, informed=informed, trace_name=label.lower().replace("-", "_"))


def clip_to_instance(instance: Any, algorithm: Any, surrogate: Any) -> tuple[Any, Any]:
    """Give CBO ``B = max |f|`` and ``G = max |g|``."""
    bounds = jnp.max(jnp.abs(instance.means), axis=1)
    return jb.replace(algorithm, reward_clip=bounds[0], cost_clip=bounds[1:]), surrogate


def width_of_instance(instance: Any, algorithm: Any) -> Any:
    """Return the algorithm with ``B`` and ``G`` in its theory widths."""
    bounds, told = jnp.max(jnp.abs(instance.means), axis=1), algorithm.estimator
    widths = {
        "reward_width": jb.replace(told.reward_width, norm_bound=bounds[0]),
        "cost_width": jb.replace(told.cost_width, norm_bound=bounds[1:]),
    }
    return jb.replace(algorithm, estimator=jb.replace(told, **widths))


def clip_and_width_of_instance(instance: Any, algorithm: Any, surrogate: Any) -> tuple[Any, Any]:
    """Give CBO ``B`` and ``G``, in its theory widths, too."""
    return width_of_instance(instance, clip_to_instance(instance, algorithm, surrogate)[0]), surrogate


def typical_safe_point(instance: Any) -> Any:
    """Return a feasible point ``[]`` with the median constraint value.

    It is the safest point if none is feasible. An algorithm with a safe set must be told a safe point. With ``g = -f + h`` the safest is
    the best: told that, it is done.
    """
    cost = jnp.max(jnp.asarray(instance.means)[1:], axis=0)
    order = jnp.argsort(cost)
    return order[jnp.maximum(jnp.sum(cost <= 0) - 1, 0) // 2].astype(jnp.int32)


def steepest(instance: Any) -> Any:
    """Return the steepest slope ``[]`` of the constraint on a one-dimensional grid."""
    cost, points = jnp.asarray(instance.means)[1], jnp.asarray(instance.domain.points)[:, 0]
    return jnp.max(jnp.abs(jnp.diff(cost) / jnp.diff(points)))


def safe_point_of_instance(instance: Any, algorithm: Any, surrogate: Any) -> tuple[Any, Any]:
    """Give an algorithm a safe point and the true Lipschitz constant."""
    told = {"lipschitz": steepest(instance)} if isinstance(algorithm, jb.StageOpt) else {}
    return jb.replace(algorithm, seeds=typical_safe_point(instance)[None], **told), surrogate


def safe_point_and_width_of_instance(instance: Any, algorithm: Any, surrogate: Any) -> tuple[Any, Any]:
    """Give an algorithm with a safe set its facts and widths."""
    return width_of_instance(instance, safe_point_of_instance(instance, algorithm, surrogate)[0]), surrogate


def safe_runs(problem: AbstractProblem, model: jb.Surrogate, *, suffix: str = "", noise_scale: float | None = None) -> Iterator[Run]:
    """Return the runs of StageOpt and SGP-UCB."""
    literal = noise_scale is not None
    stage = SAFE_WIDTH if noise_scale is None else theory_width(noise_scale)
    sgp = finite_set(problem.domain.size, FAILURE_PROBABILITY) if literal else SAFE_WIDTH
    algorithms: dict[str, Any] = {
        "StageOpt": jb.StageOpt(estimator=Bounds(reward_width=stage, cost_width=stage), exploration=EXPLORATION),
        "SGP-UCB": jb.SgpUcb(estimator=Bounds(reward_width=sgp, cost_width=sgp), warm_up=EXPLORATION),
    }
    for label, algorithm in algorithms.items():
        informed = safe_point_and_width_of_instance if literal and label == "StageOpt" else safe_point_of_instance
        yield Run(label + suffix, problem, algorithm, model, informed=informed)


def spread_of_counts(dataset: Any) -> list[str]:
    """Return the distribution over trials of violating rounds, one line per run."""
    lines = []
    for label in dataset.algorithm.values:
        counts = final_values(dataset.sel(algorithm=label), "violating_rounds")
        if not len(counts):
            continue
        low, middle, high = np.quantile(counts, (0.25, 0.5, 0.75))
        lines.append(
            f"N, {label}: mean {counts.mean():.1f}, quartiles {low:.3g} / {middle:.3g} / {high:.3g}, max {counts.max():.0f},"
            f" {100 * np.mean(counts == 0):.0f}% of trials 0"
        )
    return lines


def soft_violation_note(dataset: Any) -> str:
    """Return the number of trials with a positive final cost sum."""
    finals = {label: final_values(dataset.sel(algorithm=label), "soft_violation") for label in dataset.algorithm.values}
    above = {label: int(np.count_nonzero(values > 0)) for label, values in finals.items() if np.any(values > 0)}
    if not above:
        return "soft violation is 0 at the end of every trial (the paper: 0)"
    worst = max(float(values.max()) for values in finals.values() if len(values))
    return f"soft violation above 0 at the end, in trials: {above}; at most {worst:.4g}"
