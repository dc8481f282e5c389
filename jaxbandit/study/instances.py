"""The instances that a study's trials are played on, and their best mixed policies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.keys import Stream, stream_key, trial_key
from jaxbandit.core.pytree import canonicalise
from jaxbandit.problems import best_mixed_policy
from jaxbandit.study.lines import Line, Specification


@jax.jit
def sampled(problem: Any, root: jax.Array, trials: jax.Array) -> Any:
    """The instances of a random family in the trials of the numbers ``trials [n]``, with a leading axis ``[n]``."""
    return jax.vmap(lambda i: problem.sample(stream_key(trial_key(root, i), Stream.PROBLEM)))(trials)


def mixed_values(study: Specification, lines: Sequence[tuple[int, Line]], trials: Sequence[int]) -> np.ndarray:
    """Reward of the best mixed policy, ``[lines, trials]`` in float64: one linear programme per instance, on the host.

    Args:
      study: whose random numbers are used.
      lines: lines with their numbers in the study.
      trials: numbers of the trials.
    """
    known: dict[Any, np.ndarray] = {}
    rows = []
    for number, line in lines:
        problem = line.entry.problem
        # Without common random numbers a random family gives every line its own instances.
        own = 0 if study.common_random_numbers or not problem.is_random else number + 1
        name = (id(problem), own)
        if name not in known:
            known[name] = _of_problem(problem, jax.random.key(study.seed), own, trials)
        rows.append(known[name])
    return np.stack(rows)


def _of_problem(problem: Any, root: jax.Array, own: int, trials: Sequence[int]) -> np.ndarray:
    """``[trials]``, on the instances of a line's own stream of random numbers, or of that of all lines if ``own`` is 0."""
    if not problem.is_random:
        return np.full(len(trials), best_mixed_policy(problem)[0])
    root = jax.random.fold_in(root, own) if own else root
    many = jax.tree.map(np.asarray, sampled(canonicalise(problem), root, jnp.asarray(trials, jnp.int32)))
    return np.asarray([best_mixed_policy(jax.tree.map(lambda x, i=i: x[i], many))[0] for i in range(len(trials))])
