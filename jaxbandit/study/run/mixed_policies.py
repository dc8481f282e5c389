"""Rewards of the best mixed policies on the instances of a study, which strong regret is measured against."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.pytree import canonicalise
from jaxbandit.problems import AbstractProblem, best_mixed_policy
from jaxbandit.study.specify.run import Run
from jaxbandit.study.specify.study import Study, sampled


def mixed_values(study: Study, runs: Sequence[tuple[int, Run]], trials: Sequence[int]) -> np.ndarray:
    """Return the reward of the best mixed policy, ``[runs, trials]`` in float64: one linear programme per instance, on the host.

    Args:
      study: study whose random numbers are used.
      runs: runs with their numbers in the study.
      trials: numbers of the trials.
    """
    known: dict[Any, np.ndarray] = {}
    rows = []
    for number, run in runs:
        # Without common random numbers a random family gives every run its own instances.
        stream = 0 if study.common_random_numbers or not run.problem.is_random else number + 1
        name = (id(run.problem), stream)
        if name not in known:
            known[name] = _values_on(run.problem, jax.random.key(study.seed), stream, trials)
        rows.append(known[name])
    return np.stack(rows)


def _values_on(problem: AbstractProblem, root: jax.Array, stream: int, trials: Sequence[int]) -> np.ndarray:
    """Return the values ``[trials]`` on the instances of a run's own stream of random numbers, or of the common one if it is 0."""
    if not problem.is_random:
        return np.full(len(trials), best_mixed_policy(problem)[0])
    root = jax.random.fold_in(root, stream) if stream else root
    many = jax.tree.map(np.asarray, sampled(canonicalise(problem), root, jnp.asarray(trials, jnp.int32)))
    return np.asarray([best_mixed_policy(jax.tree.map(lambda x, i=i: x[i], many))[0] for i in range(len(trials))])
