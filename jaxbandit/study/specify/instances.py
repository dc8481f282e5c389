"""The problem instances that the trials of a study are played on."""

from __future__ import annotations

import jax

from jaxbandit.core.keys import Stream, stream_key, trial_key
from jaxbandit.problems import AbstractProblem


@jax.jit
def sampled(problem: AbstractProblem, root: jax.Array, trials: jax.Array) -> AbstractProblem:
    """Return the instances of a random family in the trials numbered ``trials [n]``, stacked along a leading axis ``[n]``."""
    return jax.vmap(lambda i: problem.sample(stream_key(trial_key(root, i), Stream.PROBLEM)))(trials)
