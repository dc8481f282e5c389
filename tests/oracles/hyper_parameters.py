"""Maximum-posterior hyper-parameters in float64 NumPy, on all data."""

from typing import Any

import numpy as np
from scipy.optimize import minimize

from tests.oracles.gaussian_process import squared_exponential

Matrix = np.ndarray

# Log medians and spreads are in the units of the functions below.
LENGTH_SCALE, VARIANCE, NOISE = (np.sqrt(2.0), np.sqrt(3.0)), (0.0, 1.5), (-4.0, 1.5)
# The same of fits to values that an algorithm chooses, and the least and the largest noise variance, in units of the values' variance.
LEARNING, NOISES = ((np.log(0.4), 0.7), (0.0, 1.5), (np.log(1e-4), 2.0)), (1e-7, 10.0)


def loss(
    logs: Matrix,
    points: Matrix,
    values: Matrix,
    sides: Matrix,
    scale: float,
    constant: float = 0.0,
    kernel: Any = squared_exponential,
    priors: Any = (LENGTH_SCALE, VARIANCE, NOISE),
) -> float:
    """Return the negative log posterior density of logarithms, up to a constant.

    ``points [n, d]``; ``values [n, k]`` of outputs that share them; one length-scale for all axes or ``d``; a ``constant`` of that prior
    variance is added to the values of each output.
    """
    lengths, variance, noise = np.exp(logs[:-2]), np.exp(logs[-2]), np.exp(logs[-1])
    root = np.linalg.cholesky(variance * kernel(points, points, lengths) + constant + noise * np.eye(len(points)))
    white = np.linalg.solve(root, values)
    evidence = -0.5 * np.sum(white**2) - values.shape[1] * (np.log(np.diag(root)).sum() + 0.5 * len(points) * np.log(2 * np.pi))
    diagonal = np.log(sides * np.sqrt(len(sides)))
    units = diagonal if len(lengths) > 1 else np.mean(diagonal, keepdims=True)
    of_length_scale, of_variance, of_noise = priors
    prior = -0.5 * np.sum(((logs[:-2] - units - of_length_scale[0]) / of_length_scale[1]) ** 2)
    prior -= 0.5 * ((logs[-2] - np.log(scale) - of_variance[0]) / of_variance[1]) ** 2
    prior -= 0.5 * ((logs[-1] - np.log(scale) - of_noise[0]) / of_noise[1]) ** 2
    return float(-evidence - prior)


def fit(start: Matrix, low: Matrix, high: Matrix, *data: Any) -> tuple[Matrix, float]:
    """Return the least :func:`loss` of ``data`` and where it lies."""
    bounds = list(zip(np.log(low), np.log(high), strict=True))
    found = minimize(loss, np.log(start), data, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-14, "gtol": 1e-9})
    return np.exp(found.x), float(found.fun)


def loss_and_slope(
    logs: Matrix, points: Matrix, values: Matrix, constant: float = 0.0, priors: Any = (LENGTH_SCALE, VARIANCE, NOISE)
) -> tuple[float, Matrix]:
    """Return :func:`loss` of a Matern-5/2 kernel, and its gradient.

    One output has a length-scale for each axis of the unit cube. The gradient of the evidence is ``tr((a a^T - V^-1) dV) / 2`` with ``a
    = V^-1 y`` (Rasmussen and Williams 2006, eq. 5.9).
    """
    (count, axes), noise = points.shape, np.exp(logs[-1])
    squares = np.square((points.T[:, :, None] - points.T[:, None]) / np.exp(logs[:-2])[:, None, None])  # [d, n, n]
    root5r = np.sqrt(5 * squares.sum(0))
    decay = np.exp(logs[-2] - root5r)
    kernel = (1 + root5r + root5r**2 / 3) * decay
    root = np.linalg.cholesky(kernel + constant + noise * np.eye(count))
    inverse = np.linalg.inv(root)
    inverse = inverse.T @ inverse
    solved = inverse @ values
    evidence = -0.5 * values @ solved - np.log(np.diag(root)).sum() - 0.5 * count * np.log(2 * np.pi)
    turned = 0.5 * (np.outer(solved, solved) - inverse)
    along = np.tensordot(squares, turned * (5 / 3) * (1 + root5r) * decay, axes=2)
    slope = np.concatenate([along, [np.sum(turned * kernel), noise * np.trace(turned)]])
    centres = np.concatenate([np.full(axes, priors[0][0] + 0.5 * np.log(axes)), [priors[1][0], priors[2][0]]])
    spreads = np.concatenate([np.full(axes, priors[0][1]), [priors[1][1], priors[2][1]]])
    away = (logs - centres) / spreads
    return float(0.5 * away @ away - evidence), away / spreads - slope
