"""What the data sets share: arms with a covariance matrix, residuals to resample, a threshold, and finding and checking files."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.pytree import pytree, static
from jaxbandit.domains import arms
from jaxbandit.kernels import Gram
from jaxbandit.problems.base import Problem, from_tables
from jaxbandit.problems.noise import Residuals

COST_NOISE = ("same", "independent")


@pytree
class ArmsData:
    """A problem on ``M`` arms made from data, with what a learner is told about it.

    Attributes:
      problem: ``f`` = mean readings, ``g = -f + h``, noise resampled from the readings.
      gram: ``[M, M]`` covariance of the standardised readings, unit diagonal.
      bound: ``B = max |f|``.
      noise_bound: ``R``, the largest residual in absolute value.
      threshold: ``h``.
      labels: ``M`` names of arms.
      source: where the numbers come from; says "synthetic" when they are made up.
    """

    problem: Problem
    gram: Any
    bound: Any
    noise_bound: Any
    threshold: Any
    labels: tuple[str, ...] = static(default=())
    source: str = static(default="")

    @property
    def kernel(self) -> Gram:
        """The kernel of a surrogate on ``problem.domain``."""
        return Gram(matrix=self.gram)


def arms_data(
    readings: np.ndarray,
    reference: np.ndarray,
    *,
    threshold: Any,
    scale: Any,
    cost_noise: str,
    labels: tuple[str, ...],
    name: str,
    source: str,
) -> ArmsData:
    """Arms from ``readings [n, M]``, which give ``f`` and the noise, and ``reference [p, M]``, whose correlations are the kernel.

    ``threshold`` (``None`` for ``B / 2``) is in the readings' units; everything is divided by ``scale``.
    """
    checks.positive("scale", scale)
    checks.shape("scale", scale, ())
    checks.one_of("cost_noise", cost_noise, COST_NOISE)
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
    checks.shape("threshold", level, ())
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


def given_path(path: Any, variable: str) -> Any:
    """The user's path: the argument, else the environment variable, else ``None``."""
    return path if path is not None else os.environ.get(variable) or None


def find_file(name: str, path: Any, variable: str, what: str) -> Path:
    """The data file of ``name``; raises ``InvalidArgument`` when none is given or it is not there."""
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
    """Whether ``file`` has the SHA-256 of the file the paper used; raises ``InvalidArgument`` if not, unless told not to ``verify``."""
    actual = hashlib.sha256(file.read_bytes()).hexdigest()
    if actual != expected and verify:
        raise checks.InvalidArgument(
            f"{name}: {str(file)!r} is not the paper's file (SHA-256 {actual[:12]}..., not {expected[:12]}...); {remedy}"
        )
    return actual == expected
