"""The search for the brightest light sensor (Zhou and Ji 2022, App. F.1): 41 sensors of an office at CMU, or made-up data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from jaxbandit.core import checks
from jaxbandit.core.declare import checked
from jaxbandit.core.fields import positive
from jaxbandit.core.types import FilePath
from jaxbandit.problems._arms import ArmsData, Seed, arms_data, find_file, given_path, is_papers

__all__ = ["light", "light_or_synthetic", "light_synthetic"]

VARIABLE = "JAXBANDIT_LIGHT"
CHECKSUM = "3d87e03ae8bc9e3f0a4abeb57c64933c7d3dee7476ac5c4f6ca28b4efc357c15"
EXPECTED = "iw_data_all.mat (http://www.cs.cmu.edu/~guestrin/Class/10708-F08/projects/)"


@checked
def light(
    path: FilePath | None = None,
    *,
    threshold: Annotated[float, positive] | None = None,
    scale: Annotated[float, positive] = 1.0,
    cost_noise: Literal["same", "independent"] = "same",
    field: Literal["sensordata", "sensordataLux"] = "sensordata",
    verify: bool = True,
) -> ArmsData:
    """Make the light sensor problem from the file of Guestrin and Krause: 601 training and 192 test readings of 41 sensors.

    ``f`` = mean test reading, kernel = covariance of the standardised training readings, ``g = -f + h``. An observation is a random
    test row, read at the chosen sensor (the residuals of all sensors have sd 288: heavy noise). With the paper's file ``B = 945.5``,
    and 19 sensors are feasible for ``h = B / 2``. The kernel matrix has eigenvalues from 27 to 6e-5, for which float32 is hardly
    enough with raw readings: give a ``scale``, or use float64.

    Args:
      path: the ``.mat`` file; default the environment variable ``JAXBANDIT_LIGHT``.
      threshold: ``h > 0`` in the units of the readings; default ``B / 2``.
      scale: divisor ``> 0`` of all readings and of ``h``.
      cost_noise: ``"same"``: one reading gives reward ``y`` and cost ``h - y``, or ``"independent"``: the cost reads a row of its own
        (the paper does not say).
      field: ``"sensordata"``, raw counts, which agree with the paper's numbers, or ``"sensordataLux"``.
      verify: refuse any file but the paper's.

    Raises:
      InvalidArgument: when no file is given; when it is missing, is not the paper's, lacks a field or holds NaN; or when a parameter is
        out of range.
    """
    file = find_file("light", path, VARIABLE, EXPECTED)
    papers = is_papers("light", file, CHECKSUM, verify=verify, remedy="pass verify=False to use it all the same")
    train, test = _read(file, field)
    return arms_data(
        test,
        train,
        threshold=threshold,
        scale=scale,
        cost_noise=cost_noise,
        labels=tuple(f"sensor {number}" for number in range(1, train.shape[1] + 1)),
        name="light" if papers else "light-user",
        source=f"{file.name}, {field} ({'the' if papers else 'not the'} paper's file)",
    )


@checked
def light_synthetic(
    *,
    seed: Seed = 0,
    threshold: Annotated[float, positive] | None = None,
    scale: Annotated[float, positive] = 1.0,
    cost_noise: Literal["same", "independent"] = "same",
) -> ArmsData:
    """Make a **synthetic** replacement for :func:`light`, of the same size and similar values; its results are not results on the data.

    The 41 sensors are at random places of a floor with windows on one side. Their readings are daylight, which falls off with the
    distance from the windows and varies with hour and cloud, lamps in working hours, and a little sensor noise; clipped to
    ``[0, 1500]``.

    Args:
      seed: seed of NumPy's generator, ``>= 0``; the same seed gives the same data.
      threshold, scale, cost_noise: as for :func:`light`.

    Raises:
      InvalidArgument: on a parameter out of range.
    """
    rng = np.random.default_rng(seed)
    depth = rng.uniform(0.0, 1.0, 41)  # 0 at the windows
    exposure = 1500 * np.exp(-1.2 * depth) * rng.uniform(0.6, 1.0, 41)
    azimuth = rng.uniform(-1.5, 1.5, 41)  # hours by which a sensor's peak is off noon
    lamps = rng.uniform(20, 200, 41)

    def readings(count: int) -> np.ndarray:
        hour, cloud = rng.uniform(6, 20, (count, 1)), rng.uniform(0.3, 1.0, (count, 1))
        day = np.maximum(np.cos(np.pi * (hour - 12.5 - azimuth) / 13), 0) * (np.abs(hour - 12.5) < 8)
        on = (hour > 7) & (hour < 20)
        return np.clip(80 + exposure * cloud * day + lamps * on + rng.normal(0, 15, (count, 41)), 0, 1500)

    train, test = readings(601), readings(192)
    return arms_data(
        test,
        train,
        threshold=threshold,
        scale=scale,
        cost_noise=cost_noise,
        labels=tuple(f"synthetic sensor {number}" for number in range(1, 42)),
        name="light-synthetic",
        source=f"synthetic stand-in, seed {seed}",
    )


@checked
def light_or_synthetic(path: FilePath | None = None, **options: Any) -> ArmsData:
    """Return :func:`light` if ``path`` or ``JAXBANDIT_LIGHT`` gives a file, else :func:`light_synthetic`; ``source`` says which.

    Args:
      path: the ``.mat`` file, or ``None``.
      **options: ``threshold``, ``scale`` and ``cost_noise``.

    Raises:
      InvalidArgument: when a file is given and cannot be used: made-up data never silently replace a file.
    """
    return light_synthetic(**options) if given_path(path, VARIABLE) is None else light(path, **options)


def _read(file: Path, field: str) -> tuple[np.ndarray, np.ndarray]:
    """Read the training readings ``[p, M]`` and the test readings ``[n, M]``."""
    from scipy.io import loadmat  # comes with JAX; imported here because start-up should not pay for it

    try:
        content = loadmat(file)
    except Exception as error:  # scipy may raise any exception on malformed bytes
        raise checks.InvalidArgument(f"light: {str(file)!r} is not a MATLAB file that scipy can read: {error}") from error
    tables = []
    for part in ("train", "test"):
        value, path = content, ""
        for key in ("data", part, field):
            path = f"{path}.{key}".lstrip(".")
            names = value if isinstance(value, dict) else (value.dtype.names or ())
            if key not in names:
                raise checks.InvalidArgument(f"light: {str(file)!r} has no field {path!r}; give {EXPECTED}")
            value = value[key]
            value = value[0, 0] if value.dtype.names is None and value.dtype == object and value.size else value
        tables.append(_numbers(file, path, value))
    if tables[0].shape[1] != tables[1].shape[1]:
        raise checks.InvalidArgument(
            f"light: {str(file)!r}: {tables[0].shape[1]} training columns but {tables[1].shape[1]} test columns; both need one per sensor"
        )
    return tables[0], tables[1]


def _numbers(file: Path, path: str, value: Any) -> np.ndarray:
    try:
        table = np.asarray(value, np.float64)
    except (TypeError, ValueError) as error:
        raise checks.InvalidArgument(f"light: {str(file)!r}: field {path!r} does not hold numbers") from error
    checks.shape(f"light: {str(file)!r}: field {path!r}", table, (None, None), remedy="one row per reading, one column per sensor")
    if not table.size:
        raise checks.InvalidArgument(f"light: {str(file)!r}: field {path!r} is empty")
    bad = np.flatnonzero(~np.isfinite(table).all(axis=0))
    if bad.size:
        raise checks.InvalidArgument(
            f"light: {str(file)!r}: field {path!r}, column {bad[0] + 1}, has NaN or infinite readings; clean it first"
        )
    return table
