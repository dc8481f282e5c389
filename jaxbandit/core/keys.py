"""Named PRNG streams: random numbers drawn for one purpose never depend on those drawn for another.

A trial's key is folded with a stream's number and then with the round, so noise is the same whatever the algorithm does (common
random numbers across algorithms), and a run can stop after any round and be resumed.
"""

from __future__ import annotations

import enum

import jax

from jaxbandit.core.types import Array, Key


class Stream(enum.IntEnum):
    """Purposes of random numbers. Their values are part of the results' reproducibility: append, never renumber."""

    POLICY = 0
    NOISE = 1
    DELAY = 2
    PROBLEM = 3
    DESIGN = 4


def trial_key(root: Key, trial: Array | int) -> Key:
    """Return the key of one trial of a study, the same however many trials run beside it."""
    return jax.random.fold_in(root, trial)


def stream_key(trial: Key, stream: Stream) -> Key:
    """Return the key of one purpose within a trial."""
    return jax.random.fold_in(trial, int(stream))


def round_key(stream: Key, t: Array | int) -> Key:
    """Return the key of round ``t`` (counted from 1) within a stream."""
    return jax.random.fold_in(stream, t)
