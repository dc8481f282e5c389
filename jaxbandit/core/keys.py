"""Named PRNG streams: what is drawn for one purpose never depends on what is drawn for another.

A trial's key is folded with a stream's number and then with the round, so noise is the same whatever the policy does (common
random numbers across algorithms) and a run can stop after any round and go on.
"""

from __future__ import annotations

import enum

import jax

Key = jax.Array


class Stream(enum.IntEnum):
    """What a random number is for. The numbers are part of the results' reproducibility: append, never renumber."""

    POLICY = 0
    NOISE = 1
    DELAY = 2
    PROBLEM = 3
    DESIGN = 4


def trial_key(root: Key, trial: jax.Array | int) -> Key:
    """The key of one trial of a study, independent of how many trials run beside it."""
    return jax.random.fold_in(root, trial)


def stream_key(trial: Key, stream: Stream) -> Key:
    """The key of one purpose within a trial."""
    return jax.random.fold_in(trial, int(stream))


def round_key(stream: Key, t: jax.Array | int) -> Key:
    """The key of round ``t`` (counted from 1) within a stream."""
    return jax.random.fold_in(stream, t)
