"""Named PRNG streams, independent of each other.

A trial's key is folded with a stream's number and then with the round, so noise is the same whatever the algorithm does (common random
numbers across algorithms), and a run can stop after any round and be resumed.
"""

from __future__ import annotations

import enum
from typing import Annotated, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from jaxbandit.core.declare import Array, Key, KeyOrSeed, checked
from jaxbandit.core.fields import integers_from, of_class, scalar, whole

__all__ = ["Stream", "round_key", "stream_key", "trial_key", "typed"]
__dir__ = __all__.copy


class Stream(enum.IntEnum):
    """Purposes of random numbers, to be appended and never renumbered."""

    POLICY = 0
    NOISE = 1
    DELAY = 2
    PROBLEM = 3
    DESIGN = 4
    CONTEXT = 5


NonnegativeInt: TypeAlias = Annotated[Array | int, integers_from(0, 2**31 - 1), scalar]


@checked
def typed(given: KeyOrSeed) -> Key:
    """Return the typed key for a seed or a ``jax.random.PRNGKey``."""
    assert isinstance(given, jax.Array | np.ndarray)
    if jax.dtypes.issubdtype(given.dtype, jax.dtypes.prng_key):
        return given
    return jax.random.wrap_key_data(jnp.asarray(given))


@checked
def threefry(given: Key) -> Key:
    """Return a Threefry key, because ``jax.random.poisson`` takes no other."""
    return jax.random.wrap_key_data(jax.random.key_data(typed(given))[:2], impl="threefry2x32")


@checked
def trial_key(root: Key, trial: NonnegativeInt) -> Key:
    """Return a trial's key, the same however many trials run beside it."""
    return jax.random.fold_in(root, trial)


def pair_key(root: Key, pair: Array | np.ndarray, common: bool) -> Key:
    """Return a ``pair [3]``'s key, the trial's if numbers are ``common``."""
    return trial_key(root if common else jax.random.fold_in(root, pair[2]), pair[1])


@checked
def stream_key(
    trial: Key, stream: Annotated[Stream, of_class(Stream, f"a Stream, one of {', '.join(Stream.__members__)}") | whole(0, len(Stream) - 1)]
) -> Key:
    """Return the key of one purpose within a trial."""
    return jax.random.fold_in(trial, int(stream))


@checked
def round_key(stream: Key, t: NonnegativeInt) -> Key:
    """Return the key of round ``t`` (counted from 1) within a stream."""
    return jax.random.fold_in(stream, t)
