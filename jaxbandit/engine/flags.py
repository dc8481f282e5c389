"""Warnings of what the trials of a simulation were flagged for."""

from __future__ import annotations

import warnings

import jax
import numpy as np

from jaxbandit.core.checks import is_traced
from jaxbandit.core.status import Status, flags_in_words

STACK = 4  # the caller of simulate: above this function and simulate there is the check of its arguments


def warn_of_flags(status: jax.Array, lost: jax.Array | None, capacity: int) -> None:
    """Warn once of each flag that any trial of ``status [...]`` has, in words with the number of trials and what to do.

    It waits for the run to end. Under a transformation of JAX, and where other processes hold some of the trials, it says nothing.

    Args:
      status: flags of every trial.
      lost: how many values found no place in the buffer of pending feedback, ``None`` for feedback at once.
      capacity: rounds that the buffer holds.
    """
    if is_traced(status) or not status.is_fully_addressable:
        return
    bits = np.asarray(status)
    if not bits.any():
        return
    for line in flags_in_words(bits & ~int(Status.FEEDBACK_LOST)):
        warnings.warn(f"simulate: {line}", stacklevel=STACK)
    if lost is not None and (bits & int(Status.FEEDBACK_LOST)).any():
        [line] = flags_in_words(bits & int(Status.FEEDBACK_LOST))
        warnings.warn(f"simulate: {np.sum(lost)} values were lost by a buffer of {capacity} rounds; {line}", stacklevel=STACK)
