"""What the experiments of Zhou and Ji (2022) share: the three CBO algorithms, bounds told per instance, notes on violating rounds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxbandit as jb
from experiments._experiment import final_values
from jaxbandit.core.pytree import replace
from jaxbandit.estimators import Bounds, Randomised, Thompson
from jaxbandit.study import Entry
from jaxbandit.widths import ImprovedGPUCB

FAILURE_PROBABILITY = 0.1  # alpha; the paper gives none
STRATEGIES = {"CBO-UCB": Bounds, "CBO-TS": Thompson, "CBO-Rand": Randomised}


def theory_width(noise_scale: float, norm_bound: float = 1.0) -> ImprovedGPUCB:
    """The ``beta_t`` of the paper's Theorem 1."""
    return ImprovedGPUCB(norm_bound=norm_bound, noise_scale=noise_scale, delta=FAILURE_PROBABILITY, union=2.0)


def cbo(label: str, width: Any, *, reward_clip: float = 1.0, cost_clip: float = 1.0) -> jb.Cbo:
    """CBO of one kind with one width for reward and cost; ``rho = 10`` and ``V = G sqrt(T) / rho``."""
    estimator = STRATEGIES[label](reward_width=width, cost_width=width)
    return jb.Cbo(estimator=estimator, reward_clip=reward_clip, cost_clip=cost_clip, dual_cap=10.0)


def entries(template: Entry, width: Any, *, suffix: str = "", **clips: float) -> Iterator[Entry]:
    """CBO-UCB, CBO-TS and CBO-Rand, each an entry like ``template``."""
    for label in STRATEGIES:
        name = label.lower().replace("-", "_")
        yield dataclasses.replace(template, label=label + suffix, alg=name, algorithm=cbo(label, width, **clips))


def clip_to_instance(instance: Any, algorithm: Any, surrogate: Any) -> tuple[Any, Any]:
    """Tell CBO an instance's ``B = max |f|`` and ``G = max |g|``."""
    bounds = jnp.max(jnp.abs(instance.means), axis=1)
    return replace(algorithm, reward_clip=bounds[0], cost_clip=bounds[1:]), surrogate


def clip_and_width_of_instance(instance: Any, algorithm: Any, surrogate: Any) -> tuple[Any, Any]:
    """The same, and ``B`` and ``G`` to the theory widths, where the paper uses them too."""
    algorithm, surrogate = clip_to_instance(instance, algorithm, surrogate)
    told = algorithm.estimator
    told = replace(
        told,
        reward_width=replace(told.reward_width, norm_bound=algorithm.reward_clip),
        cost_width=replace(told.cost_width, norm_bound=algorithm.cost_clip),
    )
    return replace(algorithm, estimator=told), surrogate


def spread_of_counts(dataset: Any) -> list[str]:
    """The distribution over trials of the number of violating rounds, one line per entry."""
    lines = []
    for label in dataset.algorithm.values:
        counts = final_values(dataset, label, "violating_rounds")
        if not len(counts):
            continue
        low, middle, high = np.quantile(counts, (0.25, 0.5, 0.75))
        lines.append(
            f"N, {label}: mean {counts.mean():.1f}, quartiles {low:.3g} / {middle:.3g} / {high:.3g}, max {counts.max():.0f},"
            f" {100 * np.mean(counts == 0):.0f}% of trials 0"
        )
    return lines


def soft_violation_note(dataset: Any) -> str:
    """In how many trials the sum of costs is above zero at the end."""
    finals = {label: final_values(dataset, label, "soft_violation") for label in dataset.algorithm.values}
    above = {label: int(np.count_nonzero(values > 0)) for label, values in finals.items() if np.any(values > 0)}
    if not above:
        return "soft violation is 0 at the end of every trial (the paper: 0)"
    worst = max(float(values.max()) for values in finals.values() if len(values))
    return f"soft violation above 0 at the end, in trials: {above}; at most {worst:.4g}"
