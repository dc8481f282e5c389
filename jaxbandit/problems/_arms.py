"""Parts shared by the data sets: arms with a covariance matrix, residuals to resample, a threshold, and finding and checking files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Annotated, TypeAlias, cast

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.fields import whole
from jaxbandit.core.pytree import pytree, static
from jaxbandit.core.types import Table
from jaxbandit.domains import arms
from jaxbandit.kernels import Gram
from jaxbandit.problems.base import Problem, from_tables
from jaxbandit.problems.noise import Residuals

Seed: TypeAlias = Annotated[int, whole(0, 2**63 - 1)]
"""A seed of NumPy's generator."""


@pytree
class ArmsData:
    """A problem on ``M`` arms made from data, with the facts about it that papers give to the learner.

    Attributes:
      problem: ``f`` = mean readings, ``g = -f + h``, noise resampled from the readings.
      gram: ``[M, M]`` covariance of the standardised readings, unit diagonal.
      bound: bound on the reward, ``B = max |f|``.
      noise_bound: bound on the noise, ``R``, the largest residual in absolute value.
      threshold: least reward of a feasible arm, ``h``.
      labels: names of the ``M`` arms.
      source: origin of the numbers; says "synthetic" when they are made up.
    """

    problem: Problem
    gram: Table
    bound: float
    noise_bound: float
    threshold: float
    labels: tuple[str, ...] = static(default=())
    source: str = static(default="")

    @property
    def kernel(self) -> Gram:
        """Kernel for a surrogate on ``problem.domain``."""
        return Gram(matrix=self.gram)

    @property
    def residuals(self) -> Table:
        """Residuals ``[n, M]`` of the readings, from which the noise is resampled."""
        return cast(Residuals, self.problem.noise).table


def arms_data(
    readings: np.ndarray,
    reference: np.ndarray,
    *,
    threshold: float | None,
    scale: float,
    cost_noise: str,
    labels: tuple[str, ...],
    name: str,
    source: str,
) -> ArmsData:
    """Make arms from ``readings [n, M]``, which give ``f`` and the noise, and ``reference [p, M]``, whose correlations are the kernel.

    ``threshold`` (``None`` for ``B / 2``) is in the units of the readings; everything is divided by ``scale``.
    """
    spread = reference.std(axis=0)
    for label, sd in zip(labels, spread, strict=True):
        if not sd > 0:
            raise checks.InvalidArgument(f"{source}: column {label!r} is constant, so it has no correlations; leave it out")
    standard = (reference - reference.mean(axis=0)) / spread
    covariance = standard.T @ standard / len(standard)
    mean = readings.mean(axis=0)
    bound = float(np.abs(mean).max())
    level = bound / 2 if threshold is None else threshold
    checks.positive("threshold", level, remedy="h is in the units of the readings")
    residuals = (readings - mean) / scale
    problem = from_tables(
        arms(len(mean)),
        mean / scale,
        (level - mean) / scale,
        noise=Residuals(table=residuals, weights=np.array([1.0, -1.0]), shared=cost_noise == "same"),
        name=name,
    )
    return ArmsData(
        problem=problem,
        gram=(covariance + covariance.T) / 2,
        bound=bound / float(scale),
        noise_bound=float(np.abs(residuals).max()),
        threshold=float(level) / float(scale),
        labels=labels,
        source=source,
    )


def given_path(path: str | Path | None, variable: str) -> str | Path | None:
    """Return the user's path: the argument, else the value of the environment variable, else ``None``."""
    return path if path is not None else os.environ.get(variable) or None


def find_file(name: str, path: str | Path | None, variable: str, what: str) -> Path:
    """Return the path of a data set's file; raises ``InvalidArgument`` when none is given or there is no such file."""
    given = given_path(path, variable)
    if given is None:
        raise checks.InvalidArgument(
            f"{name}: no data file given; pass path= or set {variable} to {what},"
            f" or use the made-up data of {name}_synthetic() ({name}_or_synthetic() picks one and says which)"
        )
    file = Path(given).expanduser()
    if not file.is_file():
        origin = "path" if path is not None else variable
        raise checks.InvalidArgument(f"{name}: {origin} = {str(given)!r} is not a file; give {what}")
    return file


def is_papers(name: str, file: Path, expected: str, *, verify: bool, remedy: str) -> bool:
    """Return whether ``file`` has the SHA-256 of the paper's file; raises ``InvalidArgument`` if not and ``verify`` is true."""
    actual = hashlib.sha256(file.read_bytes()).hexdigest()
    if actual != expected and verify:
        raise checks.InvalidArgument(
            f"{name}: {str(file)!r} is not the paper's file (SHA-256 {actual[:12]}..., not {expected[:12]}...); {remedy}"
        )
    return actual == expected
