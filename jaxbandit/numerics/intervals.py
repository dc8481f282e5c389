"""Confidence intervals of means over independent trials, in NumPy."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import numpy as np

from jaxbandit.core.declare import checked
from jaxbandit.core.fields import leading, numbers

TrialValues: TypeAlias = Annotated[np.ndarray, numbers.of(leading("trials"))]
# Half-width of a 95% interval of a mean, in standard errors.
NORMAL_95 = 1.96


@checked
def standard_deviation(values: TrialValues) -> np.ndarray:
    """Return the sample standard deviation over trials, NaN for fewer than two."""
    values = np.asarray(values)
    return values.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1:], np.nan)[()]


@checked
def half_width(values: TrialValues) -> np.ndarray:
    """Return the half-width ``[...]`` of the mean's 95% confidence interval.

    It is ``1.96 sd / sqrt(trials)`` for ``values [trials, ...]``, and NaN with fewer than two trials.
    """
    return np.asarray(NORMAL_95 * standard_deviation(values) / np.sqrt(max(len(values), 1)))
