"""The loops that the benchmark compares with.

Each is one trial of RPOL-UCB in Python. A library refits the posterior every round.

Hyper-parameters are fixed, so that no time goes into fitting them. ``sklearn`` is the loop that people write, one regressor for each
function; ``sklearn-joint`` is the fastest way to say it in that library, one fit for both outputs, which share kernel and noise here.
"""

from __future__ import annotations

import importlib.metadata
import time
from collections.abc import Callable
from typing import Any

import numpy as np

NOISE_VARIANCE = 0.05
# The width is the paper's beta.
WIDTH = 3.0

# From the points [t, 2], their indices [t] and values [t, 2] to the mean [2, M] and standard deviation [M] on the grid.
Posterior = Callable[[np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def measure_peer(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the mean microseconds per round of one trial.

    They are up to each of ``spec["marks"]``, the best of ``spec["plays"]``. The algorithm does not know its horizon, so the first 200
    rounds of a run of 500 are a run of 200. A library that is not installed gives ``{"missing": its name}``.
    """
    build, package = PEERS[spec["peer"]]
    axis = np.linspace(0.0, 6.0, spec["points_per_axis"])
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    try:
        version = importlib.metadata.version(package)
        posterior = build(grid)
        # Loading and compiling on first use is not the work of a round.
        posterior(grid[:2], np.arange(2), np.zeros((2, 2)))
    # The PackageNotFoundError of importlib is one, too.
    except ImportError:
        return {"missing": package}
    plays = [play(posterior, grid, spec["marks"]) for _ in range(spec["plays"])]
    us = {str(mark): min(times[str(mark)] for times, _ in plays) for mark in spec["marks"]}
    return {"us": us, "violation": plays[0][1], "version": version}


def play(posterior: Posterior, grid: np.ndarray, marks: list[int]) -> tuple[dict[str, float], float]:
    """Play one trial of RPOL-UCB on ``sine``.

    Return microseconds per round up to each of ``marks``, and the mean violation.
    """
    x1, x2 = grid.T
    means = np.stack([-np.sin(x1) - x2, np.sin(x1) * np.sin(x2) + 0.95])  # [2, M]
    horizon = max(marks)
    noise = np.sqrt(NOISE_VARIANCE) * np.random.default_rng(0).normal(size=(horizon, 2))
    indices, values = np.zeros(horizon, np.int64), np.zeros((horizon, 2))
    mean, sd, penalty = np.zeros_like(means), np.ones(len(grid)), 1.0
    us, start = {}, time.perf_counter()
    for t in range(1, horizon + 1):
        score = mean[0] + WIDTH * sd - penalty * np.maximum(mean[1] - WIDTH * sd, 0)
        chosen = int(np.argmax(score))
        indices[t - 1], values[t - 1] = chosen, means[:, chosen] + noise[t - 1]
        penalty = max(penalty + max(values[t - 1, 1], 0.0), np.sqrt(t))
        mean, sd = posterior(grid[indices[:t]], indices[:t], values[:t])
        if t in marks:
            us[str(t)] = (time.perf_counter() - start) / t * 1e6
    return us, float(np.maximum(means[1, indices], 0).mean())


def _dense(grid: np.ndarray, dtype: Any) -> Posterior:
    """Return a posterior by a Cholesky factor of ``K + lambda I``."""
    from scipy.linalg import solve_triangular

    squared = np.sum((grid[:, None, :] - grid[None, :, :]) ** 2, axis=-1)
    kernel = np.exp(-squared / 2).astype(dtype)

    def posterior(points: np.ndarray, indices: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        regulariser = np.asarray(NOISE_VARIANCE, dtype) * np.eye(len(indices), dtype=dtype)
        factor = np.linalg.cholesky(kernel[np.ix_(indices, indices)] + regulariser)
        rows = solve_triangular(factor, kernel[indices], lower=True, check_finite=False)  # [t, M]
        weights = solve_triangular(factor, values.astype(dtype), lower=True, check_finite=False)
        return weights.T @ rows, np.sqrt(np.maximum(1 - np.einsum("tm,tm->m", rows, rows), 0))

    return posterior


def _sklearn(grid: np.ndarray, together: bool) -> Posterior:
    """Return a posterior by scikit-learn, with one fit or several."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF

    def posterior(points: np.ndarray, indices: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        means = []
        for outputs in [values] if together else values.T[..., None]:
            model = GaussianProcessRegressor(RBF(1.0, "fixed"), alpha=NOISE_VARIANCE, optimizer=None).fit(points, outputs)
            mean, sd = model.predict(grid, return_std=True)
            means.append(mean.reshape(len(grid), -1))
        return np.concatenate(means, axis=1).T, sd.reshape(len(grid), -1)[:, 0]

    return posterior


# Name: how to build it, and the distribution whose version is reported.
PEERS: dict[str, tuple[Callable[[np.ndarray], Posterior], str]] = {
    "numpy": (lambda grid: _dense(grid, np.float64), "numpy"),
    "numpy32": (lambda grid: _dense(grid, np.float32), "numpy"),
    "sklearn": (lambda grid: _sklearn(grid, together=False), "scikit-learn"),
    "sklearn-joint": (lambda grid: _sklearn(grid, together=True), "scikit-learn"),
}
