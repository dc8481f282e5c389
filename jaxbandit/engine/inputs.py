"""Arguments of a simulation, as others take them, too."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeAlias

import jax
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.fields import MOST_ROUNDS, Check, Place, each, function, of_class, whole

MOST_TRIALS = 2**31 - 1
TRIALS_IN_WORDS = f"a whole number of trials from 1 to {MOST_TRIALS}, or a list of their numbers, each from 0 to {MOST_TRIALS}"


def _are_trials(value: object) -> bool:
    if isinstance(value, int | np.integer):
        return not isinstance(value, bool) and bool(1 <= value <= MOST_TRIALS)
    if isinstance(value, np.ndarray | jax.Array):
        return bool(value.ndim == 1 and value.dtype.kind in "iu")
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _check_numbers(name: str, value: Any, place: Place) -> None:
    if isinstance(value, int | np.integer):
        return
    if isinstance(value, range):  # which may be endless; all its numbers lie between its ends
        value = [value[0], value[-1]] if value else []
    for number in np.asarray(value).tolist() if isinstance(value, np.ndarray | jax.Array) else value:
        checks.integer(f"{name}: the number of a trial", number, least=0, most=MOST_TRIALS)
    if not len(value):
        raise checks.InvalidArgument(f"{name}: the list of trial numbers is empty; must be {TRIALS_IN_WORDS}, got []")


def _check_different(name: str, value: Any, place: Place) -> None:
    SOME_DEVICES.verify(name, value, place)
    if len(set(value)) < len(value):
        raise checks.InvalidArgument(f"{name}: must be different devices, got {checks.short(value)}")


SOME_DEVICES = each(of_class(jax.Device, "a device, such as jax.devices()[0]"), least=1)
DIFFERENT_DEVICES = dataclasses.replace(SOME_DEVICES, allowed=f"{SOME_DEVICES.allowed}, none twice", verify=_check_different)
TRIALS = Check(TRIALS_IN_WORDS, _are_trials, _check_numbers)
INFORMED = function("(instance, algorithm, surrogate)")

Trials: TypeAlias = Annotated[int | Sequence[int], TRIALS]
Rounds: TypeAlias = Annotated[int, whole(1, MOST_ROUNDS)]
Telling: TypeAlias = Annotated[Callable[..., Any], INFORMED]  # the learner facts of an instance, see jaxbandit.Informed
