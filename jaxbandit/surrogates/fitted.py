"""Hyper-parameters of a model fitted to data while it is built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.fields import Check, Shape
from jaxbandit.core.types import Table
from jaxbandit.domains import Domain
from jaxbandit.kernels import Kernel
from jaxbandit.surrogates.evidence import Prior, fit
from jaxbandit.surrogates.evidence.maximise import paths, with_arrays


def _verify(name: str, value: Any, shape: Shape | None, outputs: int | None) -> None:
    for part, given, ranks in zip(("points", "values"), value, ((2,), (1, 2)), strict=True):
        table = checks.numbers(f"{name}: {part}", given)
        if table.ndim not in ranks or not table.size:
            raise checks.InvalidArgument(f"{name}: must be {DATA.allowed}, got {part} of shape {list(table.shape)}")
        checks.finite(f"{name}: {part}", table)


DIGITS = 7  # of fitted hyper-parameters, far more than any data determine

DATA = Check(
    "two arrays, points [n, d] and values [n] or [n, 1 + m], of finite numbers",
    lambda value: isinstance(value, tuple | list) and len(value) == 2,
    _verify,
)
"""Check of the data that a model is fitted to."""


def fitted(
    kernel: Kernel | Sequence[Kernel],
    noises: list[float | Table],
    means: list[float],
    data: tuple[Any, Any],
    domain: Domain,
    ends: tuple[Sequence[float], Sequence[float]] | None = None,
) -> tuple[list[Kernel], list[float | Table]]:
    """Return the kernel and the noise variance of each output of maximum posterior, given ``data``, points and values.

    The searches start at the arguments. One kernel and one noise variance for all outputs stay that; otherwise each output has its own.
    Kernels with one length-scale keep it between ``ends``, the shortest and the longest on each axis, where these are given.

    Raises:
      InvalidArgument: on data of wrong shapes, and on a noise variance that differs between points, which is none of the hyper-parameters.
    """
    if any(np.ndim(noise) for noise in noises):
        raise checks.InvalidArgument("noise_variance: fit_to fits one number for each output, got a table over the points; give numbers")
    points, values = (np.asarray(part, np.float64) for part in data)
    if points.shape[1] != domain.dimension or len(points) != len(values):
        raise checks.InvalidArgument(
            f"fit_to: must be points [n, {domain.dimension}] and values of the same n, got {list(points.shape)} and {list(values.shape)}"
        )
    table = values.reshape(len(values), -1)
    if table.shape[1] != len(means):
        raise checks.InvalidArgument(f"fit_to: values must have a column for each of the {len(means)} outputs, got {list(values.shape)}")
    table = table - np.asarray(means)
    sides = np.ptp(np.asarray(domain.points, np.float64), axis=0)
    prior = Prior(extent=np.where(sides > 0, sides, 1.0))

    def one(own: Kernel, columns: np.ndarray, noise: float | Table) -> tuple[Kernel, float]:
        own = with_arrays(own)
        found = fit(own, points, columns, float(noise), prior=prior, fixed=_kept(own), bounds=_bounds(own, ends))
        return jax.tree.map(_rounded, found.kernel), float(_rounded(found.noise_variance))

    if isinstance(kernel, Kernel) and len(set(noises)) == 1:
        shared = one(kernel, table, noises[0])
        return [shared[0]] * len(means), [shared[1]] * len(means)
    kernels = [kernel] * len(means) if isinstance(kernel, Kernel) else list(kernel)
    each = [one(own, column, noise) for own, column, noise in zip(kernels, table.T, noises, strict=True)]
    return [own for own, _ in each], [noise for _, noise in each]


def _kept(kernel: Kernel) -> tuple[str, ...]:
    """Return the paths of what keeps its value: Gram matrices, and numbers that are 0, such as the bias of ``Linear``."""
    named = zip(paths(kernel), jax.tree.leaves(kernel), strict=True)
    return tuple(path for path, leaf in named if np.ndim(leaf) == 2 or np.all(np.asarray(leaf) == 0))


def _bounds(kernel: Kernel, ends: tuple[Sequence[float], Sequence[float]] | None) -> dict[str, tuple[Any, Any]]:
    """Return the bounds of the length-scale of a kernel that has one, by its path."""
    if ends is None:
        return {}
    path, leaf = next(named for named in zip(paths(kernel), jax.tree.leaves(kernel), strict=True) if named[0].endswith("length_scale"))
    low, high = np.asarray(ends[0]), np.asarray(ends[1])
    return {path: (low, high) if np.ndim(leaf) else (np.max(low), np.min(high))}  # one for all axes, whose ranges it may not leave


def _rounded(leaf: Any) -> np.ndarray:
    """Return numbers to ``DIGITS`` digits, so that machines whose last bits differ make the same model of the same data."""
    return np.asarray(np.vectorize(lambda number: float(f"{number:.{DIGITS}g}"))(leaf), np.float64)
